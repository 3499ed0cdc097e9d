"""From what was measured of a loss over tokens to what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from eligibility.audit.faults import FAULTS
from eligibility.audit.faults.language import FIXES
from eligibility.audit.language.conventions import convention_of_term, conventions_of
from eligibility.audit.language.facts import TOLERANCE, Facts
from eligibility.audit.language.places import NOWHERE, Place, place_of, ratio_of_one
from eligibility.audit.language.reading import EXACT_IN_SINGLE, pattern_alone
from eligibility.audit.language.wanted import wanted_components
from eligibility.audit.reporting.report import AuditReport, Finding

# Noticed, and no bias: it is said as a warning where the expectation is exact.
_MAY_BE_EXACT = ("broadcast", "padding-counted", "mean-log-prob-times-sum-of-returns")


def judge(facts: Facts, program: str, place: Place) -> AuditReport:
    """The report of a loss.

    Args:
        facts: What was measured.
        program: Its name.
        place: Where it is, for what no operation stands for.
    """
    findings = tuple(_finding(rule, seen, place, facts) for rule, seen in _seen(facts))
    conventions = conventions_of(facts)
    verdict = _verdict(facts, findings)
    if verdict == "unexplained":
        seen = f"the part that no name explains is {facts.unexplained:.1%} of the whole"
        findings = (*findings, _finding("unexplained", seen, place, facts))
    outcomes = facts.observed.outcomes
    return AuditReport(
        program=program,
        verdict=verdict,
        summary=_summary(verdict, facts, findings, [c.name for c in conventions if c.bias]),
        rule=_rule(facts),
        findings=findings,
        conventions=conventions,
        credit=facts.credit,
        components=facts.components,
        wanted=wanted_components(facts),
        invariances=facts.invariances,
        residual=facts.residual,
        cosine=facts.cosine,
        paths=outcomes.paths,
        predicted_paths=outcomes.paths,
        exhaustive=True,
        probability=float(facts.observed.probability.sum()) / len(outcomes.worlds),
        parameters=int(facts.expected[0].size),
        precision="float64",
        tolerance=TOLERANCE,
        notes=(f"enumerated: {outcomes.described()}",),
    )


def _seen(facts: Facts) -> Iterator[tuple[str, str]]:
    """Each fault that was seen, with what was measured."""
    broken = int((~facts.observed.finite).sum())
    if broken:
        share = f"{broken} of {len(facts.observed.finite)} batches"
        yield "non-finite-gradient", f"NaN or infinite in {share}"
    if not np.nan_to_num(facts.observed.ascent).any():
        yield "no-gradient", "the gradient is 0 in every batch, up to rounding"
        return
    yield from _of_reading(facts)
    if facts.padded > TOLERANCE:
        yield "padding-counted", f"{facts.padded:.1%} of the gradients lies at padded positions"
    elif facts.invariances.get("padding", 0.0) > EXACT_IN_SINGLE:
        change = facts.invariances["padding"]
        yield "padding-counted", f"other values on the padding change the gradient by {change:.1%}"
    if facts.prompts > TOLERANCE:
        yield "prompt-scored", f"{facts.prompts:.1%} of a batch's gradient lies at prompts' logits"
    if not np.linalg.norm(facts.sample.ascent) or not _rewards_matter(facts):
        yield "returns-unused", "no weight changes with any reward"
    yield from _of_regularisers(facts)


def _rewards_matter(facts: Facts) -> bool:
    odd = np.nan_to_num(facts.observed.odd)
    return bool(
        np.linalg.norm(odd) > TOLERANCE * np.linalg.norm(np.nan_to_num(facts.observed.ascent))
    )


def _of_reading(facts: Facts) -> Iterator[tuple[str, str]]:
    reading = facts.reading
    every = "in every batch"
    if reading is None:
        yield from _dropped(pattern_alone(facts.sample), every)
        if facts.cosine < -0.5 and facts.observed.finite.all():
            yield "wrong-sign", f"cosine with ∇E[R]: {facts.cosine:.3f}"
        return
    own = _own_share(facts)
    if own < 0:
        yield "wrong-sign", f"a token's weight falls with the reward of its answer {every}"
    if not reading.coefficients.get("own"):
        yield "broadcast", f"every token has the same weight, from all rewards together, {every}"
    if reading.coefficients.get("wrong group") or reading.scale == "wrong group":
        yield "broadcast", f"answer i of each prompt has a statistic of prompt i {every}"
    if reading.scored in ("token before", "token after"):
        yield "scored-other-action", f"the {reading.scored} is scored {every}"
    if reading.scored == "most likely":
        yield "most-likely-action-scored", f"the likeliest token is scored {every}"
    if reading.factor.startswith("probability"):
        yield "probability-not-log-probability", f"the weights have the {reading.factor} {every}"
    if reading.scored == "taken":
        yield from _dropped(reading.pattern, every)
    if reading.pattern == "last-only":
        yield _credit_fault(facts), f"only the last token has a weight {every}"
    behaviour = facts.observed.outcomes.worlds[0].behaviour
    if reading.factor == "one" and not behaviour.on_policy and facts.residual > TOLERANCE:
        yield _uncorrected(facts), f"the weights do not depend on the ratio {every}"


def _dropped(pattern: str, every: str) -> Iterator[tuple[str, str]]:
    if pattern in ("last-dropped", "end-dropped"):
        yield "last-step-dropped", f"the weight of the last token is 0 {every}"
    if pattern == "first-dropped":
        yield "first-token-dropped", f"the weight of the first token is 0 {every}"


def _uncorrected(facts: Facts) -> str:
    """What answers of another policy without a ratio come from."""
    if facts.observed.outcomes.worlds[0].behaviour.source not in ("old", "rollout"):
        return "behaviour-not-scored"
    always_one = any(ratio_of_one(operation) for operation in facts.operations)
    return "ratio-always-one" if always_one else "off-policy-uncorrected"


def _own_share(facts: Facts) -> float:
    """∂(weight of a token)/∂(reward of its answer), as the reading has it."""
    assert facts.reading is not None
    language = facts.observed.language
    rows = language.prompts * language.group_size
    shares = {"own": 1.0, "group": 1 / language.group_size, "group tokens": 1 / language.group_size}
    given = facts.reading.coefficients.items()
    return sum(value * shares.get(name, 1 / rows) for name, value in given)


def _credit_fault(facts: Facts) -> str:
    """What a weight on the last token alone comes from: the rewards of each token tell."""
    matrix = np.abs(facts.credit_in_answer)
    before = np.tril(matrix, -1).max()
    return "rewards-so-far" if before > TOLERANCE * matrix.max() else "immediate-reward"


def _of_regularisers(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.reference_in_value and not facts.reference_in_gradient:
        yield "kl-without-gradient", "another reference changes the loss, and not its gradient"
    if facts.regularisers is None:
        return
    given = facts.regularisers.coefficients
    undetached = _undetached(given)
    if undetached:
        yield "advantage-not-detached", undetached
    for term, coefficient in given.items():
        seen = f"coefficient {coefficient:.4g} of {term}"
        if term in ("k3", "exact forward") and coefficient > 0:
            yield "kl-forward", seen
        elif term == "exact entropy" and coefficient > 0:
            yield "entropy-sign", seen
        elif coefficient < 0 and convention_of_term(term, -coefficient) is not None:
            yield ("entropy-sign" if "log-probability" in term else "kl-sign"), seen
        elif term in ("k3", "exact forward"):
            yield "kl-sign", seen


def _undetached(given: Mapping[str, float]) -> str:
    """The sign of a divergence in the reward that is differentiated: as much log π beside it."""
    kept, entropy = given.get("k1 in the reward", 0.0), given.get("log-probability in the reward")
    if not kept or entropy is None or abs(entropy - kept) > TOLERANCE * abs(kept):
        return ""
    return "beside the divergence in the reward, log π is in it with the same coefficient"


def _finding(rule: str, seen: str, place: Place, facts: Facts) -> Finding:
    fault = FAULTS[rule]
    found = place_of(rule, facts.operations)
    place = place if found == NOWHERE else found
    harmless = rule in _MAY_BE_EXACT and facts.residual < TOLERANCE
    severity = "warning" if harmless else fault.severity
    means = f"{fault.means}; no bias, only more noise" if harmless else fault.means
    fix = FIXES.get(rule, fault.fix)
    return Finding(rule, fault.title, means, seen, place[0], place[1], fix, severity)


def _verdict(facts: Facts, findings: tuple[Finding, ...]) -> str:
    faults = {finding.rule for finding in findings if finding.severity == "fault"}
    for verdict in ("no-gradient", "wrong-sign"):
        if verdict in faults:
            return verdict
    if faults:
        return "biased"  # also where E[R] has its gradient: a divergence without one was asked for
    if facts.residual < TOLERANCE:
        return "unbiased"
    return "convention" if facts.explained and facts.padded < TOLERANCE else "unexplained"


def _summary(verdict: str, facts: Facts, findings: tuple[Finding, ...], biasing: list[str]) -> str:
    faults = [finding for finding in findings if finding.severity == "fault"]
    if verdict == "unbiased":
        return f"the expected gradient is {facts.factor:.4g} × ∇E[R], exactly"
    if verdict == "convention":
        return f"the gradient of a loss with known choices: {', '.join(biasing)}"
    if faults:
        return faults[0].means
    return findings[-1].means


def _rule(facts: Facts) -> str:
    """The reading in words."""
    reading = facts.reading
    if reading is None:
        return ""
    given = {name: value for name, value in reading.coefficients.items() if value}
    names = {
        "own": "reward",
        "group": "mean of the group",
        "batch": "mean of the batch",
        "tokens": "mean over the batch's tokens",
        "tokens of group means": "mean of the groups' means over the batch's tokens",
        "group tokens": "mean over the group's tokens",
        "wrong group": "mean of the group whose number is the answer's",
    }
    parts = [f"{value:+.4g} × {names[name]}" for name, value in given.items()]
    said = [f"weight of a token = {' '.join(parts)}"]
    if reading.scale != "none":
        epsilon = f" + {reading.epsilon:.1e}" if reading.epsilon > 1e-12 else ""
        said.append(f"divided by the deviation of: {reading.scale}{epsilon}")
    if reading.divisor != "constant":
        said.append(f"divided by: {reading.divisor}")
    if reading.factor != "one":
        said.append(f"times the {reading.factor}")
    if reading.gate.kind != "none":
        said.append(str(reading.gate))
    if reading.pattern != "all":
        said.append(reading.pattern)
    if facts.regularisers is not None:
        said += [f"{value:+.4g} × {n}" for n, value in facts.regularisers.coefficients.items()]
    return ", ".join(said)
