"""KL divergences between the drop-ins, and between one of them and torch's own class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution, register_kl

from eligibility.distributions._coin import log_failure_and_success
from eligibility.distributions.bernoulli import Bernoulli
from eligibility.distributions.binomial import Binomial
from eligibility.distributions.masked_categorical import Categorical
from eligibility.distributions.multinomial import Multinomial
from eligibility.distributions.one_hot_categorical import OneHotCategorical
from eligibility.errors import InvalidValueError, ShapeError
from eligibility.ops.backends import plain
from eligibility.shapes import are_values_readable

_SINGLE = (Bernoulli, Categorical, OneHotCategorical)
_REPEATED = (Binomial, Multinomial)


def _kl_single(p: Distribution, q: Distribution) -> Tensor:
    """``Σ π (log π − log π')`` of one draw; 0 where π = 0, with a gradient of exactly 0."""
    return _kl_of_one_draw(p, q).to(_dtype(p, q))


def _kl_repeated(p: Distribution, q: Distribution) -> Tensor:
    """n times the divergence of one draw; ∞ where p draws more often than q can."""
    mine, other = (torch.as_tensor(dist.total_count) for dist in (p, q))  # type: ignore[attr-defined]  # these have it
    if are_values_readable(mine, other) and bool((mine < other).any()):
        raise InvalidValueError(
            "`total_count` of the first distribution",
            "fewer draws than the second distribution",
            "equal numbers of draws",
            "a divergence between different numbers of draws has no closed form",
        )
    divergence = mine * _kl_of_one_draw(p, q)
    return torch.where(mine == other, divergence, float("inf")).to(_dtype(p, q))


def _kl_of_one_draw(p: Distribution, q: Distribution) -> Tensor:
    if p.event_shape != q.event_shape or (
        p.batch_shape != q.batch_shape and p.batch_shape and q.batch_shape
    ):
        raise ShapeError(
            "the distributions of a KL divergence",
            f"batch and event shapes {[*p.batch_shape]}, {[*p.event_shape]} "
            f"and {[*q.batch_shape]}, {[*q.event_shape]}",
            "equal shapes, or one distribution for the whole batch",
            "expand one of them; nothing is broadcast silently",
        )
    mine, other = _log_pmf(p), _log_pmf(q)
    if mine.shape[-1] != other.shape[-1]:
        raise ShapeError(
            "the distributions of a KL divergence",
            f"{mine.shape[-1]} and {other.shape[-1]} categories",
            "the same number of categories in both",
            "give the missing ones the probability 0",
        )
    shape = torch.broadcast_shapes(mine.shape, other.shape)  # type: ignore[no-untyped-call]  # torch
    return plain.kl(mine.expand(shape), other.expand(shape))


def _log_pmf(dist: Distribution) -> Tensor:
    """The log-probabilities of the outcomes of one draw on the last axis, wide enough to add."""
    single = getattr(dist, "_categorical", dist)
    if isinstance(single, Bernoulli | Binomial | Categorical):
        return single._log_pmf
    if isinstance(dist, torch.distributions.Bernoulli | torch.distributions.Binomial):
        from_probs = "probs" in vars(dist)
        parameter = dist.probs if from_probs else dist.logits
        wide = parameter.to(plain.compute_dtype(parameter))
        return torch.stack(log_failure_and_success(wide, from_probs), -1)
    logits: Tensor = single.logits  # type: ignore[union-attr]  # a categorical of torch's own
    return logits.to(plain.compute_dtype(logits))


def _dtype(p: Distribution, q: Distribution) -> torch.dtype:
    dtypes = (dist._param.dtype for dist in (p, q))  # type: ignore[attr-defined]  # these have it
    return torch.promote_types(*dtypes)


for _classes, _function in ((_SINGLE, _kl_single), (_REPEATED, _kl_repeated)):
    for _cls in _classes:
        _stock = next(b for b in _cls.__mro__ if b.__module__.startswith("torch.distributions"))
        for _pair in ((_cls, _cls), (_cls, _stock), (_stock, _cls)):
            register_kl(*_pair)(_function)  # type: ignore[no-untyped-call]  # torch
