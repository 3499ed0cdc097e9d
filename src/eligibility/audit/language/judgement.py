"""The report of a loss over tokens, made of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from eligibility.audit.faults import FAULTS
from eligibility.audit.faults.language import FIXES
from eligibility.audit.language.conventions import convention_of_term, conventions_of
from eligibility.audit.language.formula import rule_of
from eligibility.audit.language.laws import NUMBERED, RATIOS
from eligibility.audit.language.measured import TOLERANCE, Measured
from eligibility.audit.language.measurement import share
from eligibility.audit.language.places import place_of, ratio_of_one
from eligibility.audit.language.reading import EXACT_IN_SINGLE, pattern_alone
from eligibility.audit.language.recording import NOWHERE, Place
from eligibility.audit.language.regularisers import DIRECTION_OF
from eligibility.audit.reporting.report import AuditReport, Finding

# Noticed, and no bias: it is said as a warning where the expectation is exact.
_MAY_BE_EXACT = (
    "broadcast", "padding-counted", "mean-log-prob-times-sum-of-returns",
    "reward-of-another-answer",
)  # fmt: skip
_DIVERGENCES = ("kl-reverse", "kl-states", "kl-forward")


def judge(measured: Measured, program: str, place: Place) -> AuditReport:
    """The report of a loss."""
    findings = tuple(_finding(rule, seen, place, measured) for rule, seen in _seen(measured))
    conventions = conventions_of(measured)
    verdict = _verdict(measured, findings)
    if verdict == "unexplained":
        seen = f"the unexplained part is {measured.unexplained:.1%} of the whole"
        findings = (*findings, _finding("unexplained", seen, place, measured))
    outcomes = measured.observed.outcomes
    return AuditReport(
        program=program,
        verdict=verdict,
        summary=_summary(
            verdict, measured, findings, [c.name for c in conventions if c.bias != 0.0]
        ),
        rule=rule_of(measured),
        findings=findings,
        conventions=conventions,
        credit=measured.credit,
        components=measured.components,
        wanted=wanted_components(measured),
        invariances=measured.invariances,
        residual=measured.residual,
        cosine=measured.cosine,
        paths=outcomes.paths,
        predicted_paths=outcomes.paths,
        exhaustive=True,
        probability=float(measured.observed.probability.sum()) / len(outcomes.worlds),
        parameters=int(measured.expected[0].size),
        precision="float64",
        tolerance=TOLERANCE,
        notes=(f"enumerated: {outcomes.described()}",),
    )


def _seen(measured: Measured) -> Iterator[tuple[str, str]]:
    """Each fault that was seen, with what was measured."""
    broken = int((~measured.observed.finite).sum())
    if broken:
        batches = len(measured.observed.finite)
        yield "non-finite-gradient", f"NaN or infinite in {broken} of {batches} batches"
    if not np.nan_to_num(measured.observed.ascent).any():
        yield "no-gradient", "the gradient is 0 in every batch, up to rounding"
        return
    yield from _of_reading(measured)
    if measured.padded > TOLERANCE:
        yield "padding-counted", f"{measured.padded:.1%} of the gradients falls on padded positions"
    elif measured.invariances.get("padding", 0.0) > EXACT_IN_SINGLE:
        change = measured.invariances["padding"]
        text = f"changing the values on the padding changes the gradient by {change:.1%}"
        yield "padding-counted", text
    if measured.prompts > TOLERANCE:
        yield (
            "prompt-scored",
            f"{measured.prompts:.1%} of a batch's gradient falls on the prompts' logits",
        )
    odd, whole = map(np.nan_to_num, (measured.observed.odd, measured.observed.ascent))
    if not measured.sample.ascent.any() or share(odd, whole) <= TOLERANCE:
        yield "returns-unused", "no weight changes with any reward"
    yield from _of_regularisers(measured)


def _of_reading(measured: Measured) -> Iterator[tuple[str, str]]:
    reading = measured.reading
    every = "in every batch"
    if reading is None:
        yield from _dropped(pattern_alone(measured.sample), every)
        if measured.cosine < -0.5 and measured.observed.complete:
            yield "wrong-sign", f"cosine with ∇E[R]: {measured.cosine:.3f}"
        return
    own = _own_share(measured)
    if own < 0:
        yield "wrong-sign", f"a token's weight decreases with the reward of its answer {every}"
    if not reading.coefficients.get("own"):
        yield "broadcast", f"every token has the same weight, from all rewards together, {every}"
    if reading.coefficients.get("wrong group") or reading.scale == "wrong group":
        yield "broadcast", f"answer i of each prompt has a statistic of prompt i {every}"
    if reading.rewards != "its own":
        yield "reward-of-another-answer", f"the rewards are {reading.rewards} {every}"
    if reading.coefficients.get(NUMBERED):
        text = f"each is compared with the answers to other prompts that have its number, {every}"
        yield "reward-of-another-answer", text
    if reading.scored.startswith("token "):
        yield "scored-other-action", f"the {reading.scored} is scored {every}"
    if reading.scored == "most likely":
        yield "most-likely-action-scored", f"the likeliest token is scored {every}"
    if reading.factor.startswith("probability"):
        yield "probability-not-log-probability", f"the weights have the {reading.factor} {every}"
    if reading.factor.startswith("ratio "):
        yield "old-log-prob-stale", f"the weights have the {reading.factor} {every}"
    if reading.scored == "taken":
        yield from _dropped(reading.pattern, every)
    if reading.pattern == "last-only":
        yield _credit_fault(measured), f"only the last token has a weight {every}"
    if reading.gate.kind == "wrong side":
        yield "clip-on-the-wrong-side", str(reading.gate)
    behaviour = measured.observed.outcomes.worlds[0].behaviour
    drawn_otherwise = not behaviour.on_policy and measured.residual > TOLERANCE
    if reading.factor not in RATIOS and drawn_otherwise:
        yield _uncorrected(measured), f"{_drawn_and_scored(measured)}; the weights contain no ratio"


def _dropped(pattern: str, every: str) -> Iterator[tuple[str, str]]:
    if pattern in ("last-dropped", "end-dropped"):
        yield "last-step-dropped", f"the weight of the last token is 0 {every}"
    if pattern == "first-dropped":
        yield "first-token-dropped", f"the weight of the first token is 0 {every}"


def _uncorrected(measured: Measured) -> str:
    """What answers of another policy without a ratio come from."""
    if measured.observed.outcomes.worlds[0].behaviour.source not in ("old", "rollout"):
        return "behaviour-not-scored"
    always_one = any(ratio_of_one(operation) for operation in measured.operations)
    return "ratio-always-one" if always_one else "off-policy-uncorrected"


def _drawn_and_scored(measured: Measured) -> str:
    """The token that is drawn less often than it is scored, where they differ most."""
    worlds, states = measured.observed.outcomes.worlds, len(measured.observed.language.states)
    drawn = torch.cat([world.drawn[:, :states].exp().flatten() for world in worlds])
    scored = torch.cat([world.logits[:, :states].softmax(-1).flatten() for world in worlds])
    most = int((scored - drawn).argmax())
    return f"a token of probability {scored[most]:.3f} is drawn with {drawn[most]:.3f}"


def _own_share(measured: Measured) -> float:
    """∂(weight of a token)/∂(reward of its answer), as the reading has it."""
    assert measured.reading is not None
    language = measured.observed.language
    rows = language.prompts * language.group_size
    shares = {"own": 1.0, "group": 1 / language.group_size, "group tokens": 1 / language.group_size}
    given = measured.reading.coefficients.items()
    return sum(value * shares.get(name, 1 / rows) for name, value in given)


def _credit_fault(measured: Measured) -> str:
    """What a weight on the last token alone comes from: the rewards of each token tell."""
    matrix = np.abs(measured.credit_in_answer)
    before = np.tril(matrix, -1).max()
    done = {operation.name for operation in measured.operations if "rewards" in operation.made}
    summed = "cumsum" in done and "flip" not in done
    return "rewards-so-far" if summed or before > TOLERANCE * matrix.max() else "immediate-reward"


def _of_regularisers(measured: Measured) -> Iterator[tuple[str, str]]:
    if measured.reference_in_value and not measured.reference_in_gradient:
        yield "kl-without-gradient", "changing the reference changes the loss, but not its gradient"
    if undetached := _undetached(measured.terms):
        yield "advantage-not-detached", undetached
    for term, coefficient in measured.terms.items():
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
    """The sign of a divergence in the reward that is differentiated: as much log π next to it."""
    kept, entropy = given.get("k1 in the reward", 0.0), given.get("log-probability in the reward")
    if not kept or entropy is None or abs(entropy - kept) > TOLERANCE * abs(kept):
        return ""
    return "the reward contains the divergence and also log π with the same coefficient"


def _finding(rule: str, seen: str, place: Place, measured: Measured) -> Finding:
    fault = FAULTS[rule]
    found = place_of(rule, measured.operations)
    place = place if found == NOWHERE else found
    harmless = rule in _MAY_BE_EXACT and measured.residual < TOLERANCE
    severity = "warning" if harmless else fault.severity
    means = f"{fault.means}; no bias, only more noise" if harmless else fault.means
    fix = FIXES.get(rule, fault.fix)
    return replace(Finding.of(fault, seen, *place), means=means, fix=fix, severity=severity)


def _verdict(measured: Measured, findings: tuple[Finding, ...]) -> str:
    faults = {finding.rule for finding in findings if finding.severity == "fault"}
    for verdict in ("no-gradient", "wrong-sign"):
        if verdict in faults:
            return verdict
    if faults:
        return "biased"  # also where E[R] has its gradient: a divergence without one was asked for
    if measured.residual < TOLERANCE:
        return "unbiased"
    return "convention" if measured.explained and measured.padded < TOLERANCE else "unexplained"


def _summary(
    verdict: str, measured: Measured, findings: tuple[Finding, ...], biasing: list[str]
) -> str:
    faults = [finding for finding in findings if finding.severity == "fault"]
    if verdict == "unbiased":
        return f"the expected gradient is {measured.factor:.4g} × ∇E[R], exactly"
    if verdict == "convention":
        return f"the gradient of a loss with known conventions: {', '.join(biasing)}"
    if faults:
        return faults[0].means
    return findings[-1].means


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
    elif "k1" in measured.terms and measured.reference_in_value:
        rows = measured.observed.rewards.shape[1]
        wanted["kl-reverse"] = -abs(measured.terms["k1"]) * rows
    for name in ("entropy", "entropy-states"):
        if name in given and name in {DIRECTION_OF.get(term) for term in measured.terms}:
            wanted[name] = abs(given[name])
    return wanted
