"""What a loss was meant to compute: E[R], with its divergence of whole answers and its entropy."""

from __future__ import annotations

from eligibility.audit.language.facts import Facts
from eligibility.audit.language.regularisers import DIRECTION_OF

_DIVERGENCES = ("kl-reverse", "kl-states", "kl-forward")


def wanted_components(facts: Facts) -> dict[str, float]:
    """The coefficients of the objective that the loss's terms stand for.

    A divergence of any kind stands for KL(π‖ref) of whole answers, with the same coefficient and
    against the update; an entropy for itself, and with it.
    """
    given = facts.components
    wanted = {"reward": abs(given.get("reward", 1.0))}
    divergences = [abs(given[name]) for name in _DIVERGENCES if name in given]
    if divergences:
        wanted["kl-reverse"] = -max(divergences)
    elif "k1" in _terms(facts) and facts.reference_in_value:
        rows = facts.observed.rewards.shape[1]
        wanted["kl-reverse"] = -abs(_terms(facts)["k1"]) * rows
    for name in ("entropy", "entropy-states"):
        if name in given and name in {DIRECTION_OF.get(term) for term in _terms(facts)}:
            wanted[name] = abs(given[name])
    return wanted


def _terms(facts: Facts) -> dict[str, float]:
    return dict(facts.regularisers.coefficients) if facts.regularisers else {}
