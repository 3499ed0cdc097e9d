"""Special functions to the last bits: the differences that eligibilities are made of.

An eligibility is small where the outcome is typical, and it is the difference of two numbers that
are not. Each function here returns such a difference directly, as a sum of terms of one sign,
so that nothing cancels. All are elementwise, differentiable, and meant for double precision.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor


def _bernoulli_numbers(count: int) -> tuple[Fraction, ...]:
    """B₂, B₄, …, from ``Σ_k C(n + 1, k) B_k = 0``."""
    numbers = [Fraction(1), Fraction(-1, 2)]
    for n in range(2, 2 * count + 1):
        known = sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0))
        numbers.append(-known / (n + 1))
    return tuple(numbers[2::2])


_BERNOULLI = _bernoulli_numbers(24)
# The first of them, as many as the asymptotic series need.
_STIRLING = _BERNOULLI[:10]
# The asymptotic series below are used from here on; the recurrences lead there.
_FAR = 12
# 1 − I₁(κ)/I₀(κ) = Σ c_k/κ^k for κ → ∞; from there on, the series has converged to 2⁻⁵⁸.
_BESSEL_FAR = 64.0


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """``ln(a/b)`` for positive a, b; near a = b through the difference, which is exact there."""
    ratio = numerator / denominator
    near = (ratio > 0.5) & (ratio < 2.0)
    relative = torch.where(near, (numerator - denominator) / denominator, 0.0)
    apart = numerator.log() - denominator.log()
    far = torch.where((ratio > 0) & ratio.isfinite(), ratio.log(), apart)
    return torch.where(near, torch.log1p(relative), far)


def logit(probs: Tensor) -> Tensor:
    """``ln(p/(1 − p))``; near p = ½ through 2p − 1, which is exact there."""
    near = (probs > 0.25) & (probs < 0.75)
    middle = torch.where(near, (2 * probs - 1) / (1 - probs), 0.0)
    return torch.where(near, torch.log1p(middle), probs.log() - torch.log1p(-probs))


def logistic(logits: Tensor) -> Tensor:
    """``σ(l)``; unlike torch's, not 0 where e^l is a subnormal number."""
    small = torch.exp(-logits.abs())
    return torch.where(logits >= 0, 1.0, small) / (1 + small)


def weigh_odds(ones: Tensor, zeros: Tensor, logits: Tensor) -> Tensor:
    """``a σ(−l) − b σ(l)``; for small |l| as ``½[(a − b) − (a + b) tanh(l/2)]``.

    There the two halves of ``a − b`` would cancel, and the difference of counts is exact.
    """
    apart = ones * logistic(-logits) - zeros * logistic(logits)
    near = ((ones - zeros) - (ones + zeros) * torch.tanh(logits / 2)) / 2
    return torch.where(logits.abs() < 1, near, apart)


def weigh_inverse_odds(ones: Tensor, zeros: Tensor, logits: Tensor) -> Tensor:
    """``a (1 + e^−l) − b (1 + e^l)``, a count of 0 contributing exactly 0."""
    grown, shrunk = 1 + torch.exp(logits), 1 + torch.exp(-logits)
    apart = torch.where(ones == 0, 0.0, ones * shrunk) - torch.where(zeros == 0, 0.0, zeros * grown)
    return torch.where(logits.abs() < 1, weigh_odds(ones, zeros, logits) * grown * shrunk, apart)


def log1p_remainder(x: Tensor) -> Tensor:
    """``(x − ln(1 + x))/x²`` for x > −1: 1/2 at 0, decreasing.

    Near 0 with s = x/(2 + x): ln(1 + x) = 2 artanh(s), so the remainder is a series in s².
    """
    near = x.abs() < 0.5
    small = torch.where(near, x, 0.0)
    half = small / (2 + small)
    square = half * half
    tail = torch.zeros_like(x)
    for k in range(14, 0, -1):
        tail = tail * square + 1 / (2 * k + 1)
    series = (1 - 2 * half / (2 + small) * tail) / (2 + small)
    large = torch.where(near, 1.0, x)
    direct = (1 - torch.log1p(large) / large) / large
    return torch.where(near, series, direct)


def log1p_gap(x: Tensor) -> Tensor:
    """``x − ln(1 + x)`` for x > −1: never negative, x²/2 near 0."""
    near = x.abs() < 0.5
    small = torch.where(near, x, 0.0)
    return torch.where(near, small * small * log1p_remainder(small), x - torch.log1p(x))


def digamma_gap(x: Tensor, step: Tensor | float = math.inf) -> Tensor:
    """``[ln x − ψ(x)] − [ln(x + h) − ψ(x + h)]`` for x > 0 and a step h >= 0.

    With the default step ∞ it is ``ln x − ψ(x)``. Never negative.

    Notes:
        ``ln x − ψ(x) = Σ_k g(1/(x + k))`` with g(t) = t − ln(1 + t). The difference of two such
        terms has the closed form used here, and so has that of the asymptotic series.
    """
    h = x.new_full((1,), step) if isinstance(step, float) else step.unsqueeze(-1)
    near = x.unsqueeze(-1) + torch.arange(_FAR, dtype=x.dtype, device=x.device)
    before = 1 / (near * (1 + near / h))  # h/(x (x + h)), also for h = ∞
    after = 1 / (near * (1 + (near + 1) / h))  # h/(x (x + h + 1))
    small = before / (near + h + 1) + log1p_gap(after)  # before − after = before/(x + h + 1)
    terms = torch.where(after > 0.5, before - torch.log1p(after), small)
    # The first term may be far larger than the rest; added last, it is rounded once.
    return terms[..., 0] + (terms[..., 1:].sum(-1) + _digamma_gap_far(x + _FAR, h.squeeze(-1)))


def _digamma_gap_far(x: Tensor, step: Tensor) -> Tensor:
    """The asymptotic series ``1/(2x) + Σ B_2k/(2k x^2k)``, its difference term by term."""
    inverse, later = 1 / x, 1 / (x + step)
    difference = inverse / (1 + x / step)  # 1/x − 1/(x + h)
    a, b = inverse**2, later**2
    slope, value = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(len(_STIRLING), 0, -1):
        slope = slope * b + value
        value = value * a + float(_BERNOULLI[k - 1] / (2 * k))
    slope = slope * b + value
    return difference * (0.5 + (inverse + later) * slope)


def digamma_difference(x: Tensor, step: Tensor) -> Tensor:
    """``ψ(x + h) − ψ(x)`` for x > 0 and h >= 0."""
    difference = torch.log1p(step / x) + digamma_gap(x, step)
    return torch.where(step == 0, torch.zeros_like(difference), difference)


def digamma_half_step(x: Tensor) -> Tensor:
    """``ψ(x + ½) − ψ(x) − 1/(2x)`` for x > 0: positive, 1/(8x²) for x → ∞.

    Notes:
        One step of the recurrence is worth ``1/(4 y (y + ½)(y + 1))``; the rest is the series
        ``Σ B_2k (2 − 2^(1−2k))/(2k y^2k)``.
    """
    near = x.unsqueeze(-1) + torch.arange(_FAR, dtype=x.dtype, device=x.device)
    steps = (0.25 / near / (near + 0.5) / (near + 1)).sum(-1)
    square = (x + _FAR) ** -2
    series = torch.zeros_like(x)
    for k in range(len(_STIRLING), 0, -1):
        number = _BERNOULLI[k - 1] * (2 - Fraction(2, 4**k)) / (2 * k)
        series = (series + float(number)) * square
    return steps + series


def bose_mean(x: Tensor) -> Tensor:
    """``x/(1 − e^−x) − 1`` for any x: x/2 + x²/12 near 0, x − 1 for x → ∞."""
    near = x.abs() < 1
    small = torch.where(near, x, 0.0)
    square = small * small
    even = torch.zeros_like(x)
    for k in range(len(_BERNOULLI), 0, -1):
        even = (even + float(_BERNOULLI[k - 1] / math.factorial(2 * k))) * square
    large = torch.where(near, 1.0, x)
    return torch.where(near, small / 2 + even, large / -torch.expm1(-large) - 1)


def langevin_half(x: Tensor) -> Tensor:
    """``1/(1 − e^−x) − 1/x − 1/2``: odd, x/12 near 0, ±1/2 at ±∞."""
    near = x.abs() < 3
    small = torch.where(near, x, 0.0)
    square = small * small
    odd = torch.zeros_like(x)
    for k in range(len(_BERNOULLI), 0, -1):
        odd = odd * square + float(_BERNOULLI[k - 1] / math.factorial(2 * k))
    large = torch.where(near, 1.0, x)
    return torch.where(near, small * odd, 0.5 / torch.tanh(large / 2) - 1 / large)


def bessel_ratio(x: Tensor) -> Tensor:
    """``I₁(κ)/I₀(κ)`` for κ >= 0, the mean resultant length of a von Mises law."""
    small = torch.clamp(x, max=1.0)
    square = small * small
    fraction = torch.full_like(x, 24.0)
    for k in range(22, 0, -2):  # Gauss' continued fraction κ/(2 + κ²/(4 + κ²/(6 + …)))
        fraction = k + square / fraction
    return torch.where(x < 1, small / fraction, 1 - bessel_ratio_complement(x))


def bessel_ratio_complement(x: Tensor) -> Tensor:
    """``1 − I₁(κ)/I₀(κ)`` for κ > 0, without the cancellation: 1/(2κ) for κ → ∞.

    Notes:
        Both integrals ``∫ e^(κ (cos θ − 1)) (1 − cos θ) dθ`` and ``∫ e^(κ (cos θ − 1)) dθ`` have
        positive terms, and the trapezoidal rule converges geometrically on a period.
    """
    near = torch.clamp(x, max=_BESSEL_FAR).unsqueeze(-1)
    angles = torch.linspace(0, math.pi / 2, 49, dtype=x.dtype, device=x.device)  # θ/2
    height = 2 * torch.sin(angles) ** 2  # 1 − cos θ
    mass = torch.exp(-near * height)
    mass = torch.cat([mass[..., :1] / 2, mass[..., 1:-1], mass[..., -1:] / 2], -1)
    direct = (mass * height).sum(-1) / mass.sum(-1)
    inverse = 1 / torch.clamp(x, min=_BESSEL_FAR)
    series = torch.zeros_like(x)
    for coefficient in reversed(_BESSEL_COMPLEMENT):
        series = (series + float(coefficient)) * inverse
    return torch.where(x < _BESSEL_FAR, direct, series)


def _bessel_complement_coefficients(count: int) -> tuple[Fraction, ...]:
    """From the Riccati equation ``A′ = 1 − A/κ − A²`` of A = I₁/I₀, with A = 1 − Σ c_k κ^−k."""
    coefficients = [Fraction(0)]
    for k in range(1, count + 1):
        # κ^−k: (k − 1) c_(k−1) = −[k = 1] + c_(k−1) + 2 c_k − Σ_{i+j=k} c_i c_j
        products = sum(coefficients[i] * coefficients[k - i] for i in range(1, k))
        before = coefficients[k - 1]
        coefficients.append(((k - 1) * before - before + (k == 1) + products) / 2)
    return tuple(coefficients[1:])


_BESSEL_COMPLEMENT = _bessel_complement_coefficients(18)
