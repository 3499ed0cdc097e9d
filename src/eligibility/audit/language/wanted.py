"""What a loss was meant to compute: E[R], with its divergence of whole answers and its entropy."""

from __future__ import annotations

from eligibility.audit.language.measured import Measured
from eligibility.audit.language.regularisers import DIRECTION_OF

_DIVERGENCES = ("kl-reverse", "kl-states", "kl-forward")


def wanted_components(measured: Measured) -> dict[str, float]:
    """The coefficients of the objective that the loss's terms stand for.

    A divergence of any kind stands for KL(π‖ref) of whole answers, with the same coefficient and
    against the update; an entropy for itself, and with it.
    """
    given = measured.components
    wanted = {"reward": abs(given.get("reward", 1.0))}
    divergences = [abs(given[name]) for name in _DIVERGENCES if name in given]
    if divergences:
        wanted["kl-reverse"] = -max(divergences)
    elif "k1" in _terms(measured) and measured.reference_in_value:
        rows = measured.observed.rewards.shape[1]
        wanted["kl-reverse"] = -abs(_terms(measured)["k1"]) * rows
    for name in ("entropy", "entropy-states"):
        if name in given and name in {DIRECTION_OF.get(term) for term in _terms(measured)}:
            wanted[name] = abs(given[name])
    return wanted


def _terms(measured: Measured) -> dict[str, float]:
    return dict(measured.regularisers.coefficients) if measured.regularisers else {}
