"""The Cholesky factor of a covariance, from whichever matrix was given."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_of_factor(factor: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix."""
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return inverse


def scale_tril_of(given: str, matrix: Tensor) -> Tensor:
    """The lower triangular L with ``L Lᵀ = Σ``, from Σ, its inverse, or L itself."""
    if given == "scale_tril":
        return matrix
    if given == "covariance_matrix":
        factor: Tensor = torch.linalg.cholesky(matrix)
        return factor
    # P = Σ⁻¹ = L⁻ᵀ L⁻¹: the factorisation that starts at the last row gives L⁻¹.
    reverse = torch.linalg.cholesky(matrix.flip(-1, -2)).flip(-1, -2)
    return inverse_of_factor(reverse.mT)
