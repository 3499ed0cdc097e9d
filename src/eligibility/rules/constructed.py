"""Which of several parameterisations a distribution was constructed with.

A stock object computes the other ones on first use and then holds them as if they had been given
(``probs`` beside ``logits``), and ``expand`` copies all of them. What was given is read from the
object, without computing anything that it does not hold yet.
"""

from __future__ import annotations

import inspect

import torch
from torch.distributions import Distribution

# Of each of these, a distribution is constructed with one.
_ALTERNATIVES = (
    ("probs", "logits"),
    ("covariance_matrix", "precision_matrix", "scale_tril"),
)
# Where stock classes keep the distribution that holds their parameters.
_HOLDERS = ("base_dist", "_categorical")


def given_names(dist: Distribution, names: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` without the alternatives that ``dist`` was not constructed with."""
    for group in _ALTERNATIVES:
        offered = [name for name in names if name in group]
        if len(offered) > 1:
            given = _given(_holder(dist), offered)
            names = tuple(name for name in names if name == given or name not in offered)
    return names


def _holder(dist: Distribution) -> Distribution:
    for name in _HOLDERS:
        dist = vars(dist).get(name, dist)
    return dist


def _given(dist: Distribution, names: list[str]) -> str:
    held = list(vars(dist))
    own = [name for name in names if name in held]
    # A constructor stores what it is given before it calls its base, which stores the batch
    # shape; what is computed on first use comes later.
    early = [name for name in own if held.index(name) < held.index("_batch_shape")]
    if len(early) == 1:
        return early[0]
    # Copied by `expand`: what was computed can be computed again, to the last bit; what was given
    # cannot, unless it is exactly representable, and then both describe the same distribution.
    given = [name for name in own if not _is_reproduced(dist, name)]
    return (given or own or names)[-1]


def _is_reproduced(dist: Distribution, name: str) -> bool:
    lazy = inspect.getattr_static(type(dist), name, None)
    compute = getattr(lazy, "wrapped", None)
    return compute is not None and torch.equal(compute(dist), vars(dist)[name])
