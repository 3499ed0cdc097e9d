"""Which of several parameterisations a distribution was constructed with.

A stock object computes the other ones on first use and then holds them as if they had been given
(``probs`` and ``logits``), and ``expand`` copies all of them. What was given is read from the
object, without computing anything that it does not hold yet. A class may say it itself, in an
attribute ``given_parameter``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch.distributions import Distribution

from eligibility.errors import InvalidValueError
from eligibility.rules.cholesky import scale_tril_of

# A distribution is constructed with one of each of these.
ALTERNATIVES = (("probs", "logits"), ("covariance_matrix", "precision_matrix", "scale_tril"))
# Where stock classes keep the distribution that holds their parameters.
_HOLDERS = ("base_dist", "_categorical")


def given_names(dist: Distribution, names: Iterable[str]) -> tuple[str, ...]:
    """``names`` without the alternatives that ``dist`` was not constructed with.

    More than one of them stays if the object cannot tell: it was expanded after others had been
    computed, and each follows from the other to the last bit.
    """
    names = tuple(names)
    for group in ALTERNATIVES:
        rivals = [name for name in group if name in names]
        if len(rivals) > 1:
            lost = set(rivals).difference(_given(dist, rivals))
            names = tuple([name for name in names if name not in lost])
    return names


def is_given(dist: Distribution, name: str) -> bool:
    """Whether ``dist`` may have been constructed with ``name`` rather than with an alternative."""
    group = next(group for group in ALTERNATIVES if name in group)
    return name in given_names(dist, group)


def check_unambiguous(names: tuple[str, ...]) -> None:
    """Raise if two of ``names`` are alternatives of each other."""
    for group in ALTERNATIVES:
        rivals = [name for name in names if name in group]
        if len(rivals) > 1:
            raise InvalidValueError(
                "`wrt`",
                "None, for a distribution expanded after both "
                + " and ".join(rivals)
                + " had been computed",
                "the one it was constructed with",
                "pass " + " or ".join(f"wrt={name!r}" for name in rivals),
            )


def _given(dist: Distribution, names: list[str]) -> list[str]:
    for holder in _HOLDERS:
        dist = vars(dist).get(holder, dist)
    known = getattr(dist, "given_parameter", None)
    if known in names:
        return [known]
    attributes = list(vars(dist))
    own = [name for name in names if name in attributes]
    if len(own) == 1:
        return own
    # A constructor stores what it is given before it calls its base, which stores the batch
    # shape; what is computed on first use comes later.
    early = [name for name in own if attributes.index(name) < attributes.index("_batch_shape")]
    if len(early) == 1:
        return early
    # Copied by `expand`. What was computed can be computed again, to the last bit; what was given
    # cannot, unless rounding happens to lead back to it.
    given = [name for name in own if not _is_reproduced(dist, name)]
    return given or [name for name in own if _leads_to_the_rest(dist, name)] or names


def _is_reproduced(dist: Distribution, name: str) -> bool:
    """Whether what ``dist`` holds under ``name`` follows from the rest of what it holds."""
    lazy = inspect.getattr_static(type(dist), name, None)
    compute = getattr(lazy, "wrapped", None)
    return compute is not None and torch.equal(compute(dist), vars(dist)[name])


def _leads_to_the_rest(dist: Distribution, name: str) -> bool:
    """Whether a constructor, given what is held under ``name``, makes the Cholesky factor held."""
    factor = vars(dist).get("_unbroadcasted_scale_tril")
    if factor is None:
        return True
    made = scale_tril_of(name, vars(dist)[name])
    return torch.equal(made, factor.expand_as(made))
