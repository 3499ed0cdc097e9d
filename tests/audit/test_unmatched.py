"""What is told of gradients that no rule explains: made here from known weights and vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eligibility.audit.arrays import Array
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.catalogue import CREDITS, Candidate
from eligibility.audit.judgement.constants import Constants
from eligibility.audit.judgement.diagnosis import diagnose
from eligibility.audit.judgement.evidence import Evidence, gather
from eligibility.audit.judgement.exact import bias
from eligibility.audit.judgement.matching import find_match, within_reach
from eligibility.audit.judgement.timeline import timeline
from eligibility.audit.judgement.unmatched import unmatched_fault
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import Trace
from tests.audit.zoo.inspection import observe
from tests.audit.zoo.styles import STYLES
from tests.audit.zoo.variants import variant

CONSTANTS = Constants(discounts=(0.9, 1.0))
VALUES = np.array([0.3, -0.7, 1.1, 0.0])


@pytest.fixture(scope="module")
def surveys() -> dict[str, tuple[Survey, Evidence]]:
    """Of one program without a critic for each kind of batch, and of one with a critic."""
    found = {}
    for style in STYLES:
        if style.name in ("numpy_sampling", "batch", "bootstrapped"):
            program = variant(style, "as-written", "exact")
            assert program is not None
            survey = observe(program, 60)
            evidence = gather(survey)
            assert evidence is not None
            found[style.name] = survey, evidence
    return found


def named(survey: Survey, evidence: Evidence, weights: Array, vectors: Array | None = None) -> str:
    """The rule found for gradients Σ_i w_i g_i; with ``vectors`` [P, I, D] for g."""
    ascent = np.einsum(
        "pi,pid->pd",
        weights * evidence.present,
        evidence.eligibility if vectors is None else vectors,
    )
    made = replace(evidence, ascent=ascent)
    line = timeline(made)
    case = AuditedProgram(replace(survey, traces=_without_scores(survey)), None, "made", CONSTANTS)
    found = unmatched_fault(case, made, line, bias(made, line, 0.9), [])
    assert found is not None
    return found.rule


def _without_scores(survey: Survey) -> tuple[Trace, ...]:
    return tuple(replace(trace, scores=()) for trace in survey.traces)


def test_one_number_for_all_actions_is_a_broadcast(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    survey, evidence = surveys["batch"]
    line = timeline(evidence)
    same = np.tanh(line.total(evidence.reward, "batch"))
    assert named(survey, evidence, same) == "broadcast"
    other = same + 0.1 * line.discounted(0.9)
    assert named(survey, evidence, other) != "broadcast"


def test_the_scores_of_another_distribution_are_seen_without_a_call(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    survey, evidence = surveys["numpy_sampling"]
    returns = timeline(evidence).discounted(0.9)
    # an offset that is the same for all actions of a state gives scores of another distribution
    generator = np.random.Generator(np.random.PCG64(3))
    offset = 0.2 * generator.normal(size=(4, evidence.ascent.shape[1]))
    own: dict[int, dict[float, Array]] = {}
    for place in zip(*np.nonzero(evidence.present), strict=True):
        state = int(evidence.state[place])
        own.setdefault(state, {})[round(float(evidence.log_prob[place]), 9)] = evidence.eligibility[
            place
        ]
    moved = evidence.eligibility.copy()
    for place in zip(*np.nonzero(evidence.present), strict=True):
        vectors = own[int(evidence.state[place])]
        weights = np.linspace(0.1, 0.5, len(vectors))
        moved[place] = evidence.eligibility[place] + sum(
            w * v for w, v in zip(weights, vectors.values(), strict=True)
        )
    assert named(survey, evidence, returns, moved) == "behaviour-not-scored"
    away = moved + offset[evidence.state]
    assert named(survey, evidence, returns, away) == "behaviour-not-scored"
    uneven = away * (1.0 + evidence.state[..., None])
    assert named(survey, evidence, returns, uneven) == "unexplained"


def test_one_vector_for_all_actions_of_a_state_is_the_likeliest_ones(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    survey, evidence = surveys["numpy_sampling"]
    vector = np.random.Generator(np.random.PCG64(4)).normal(size=(4, evidence.ascent.shape[1]))
    returns = timeline(evidence).discounted(0.9)
    assert named(survey, evidence, returns, vector[evidence.state]) == "most-likely-action-scored"


def test_the_probability_is_seen_as_a_factor(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    survey, evidence = surveys["numpy_sampling"]
    weights = timeline(evidence).discounted(0.9) * np.exp(evidence.log_prob)
    assert named(survey, evidence, weights) == "probability-not-log-probability"
    assert named(survey, evidence, weights * np.exp(evidence.log_prob)) == "unexplained"


def test_runs_that_do_not_repeat_are_not_judged(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    """A path that was seen twice, or missed, as where a clock decides: no sum over paths is one."""
    survey, _ = surveys["numpy_sampling"]
    assert diagnose(AuditedProgram(survey, None, "it", CONSTANTS)).verdict == "unbiased"
    for traces in ((*survey.traces, survey.traces[0]), survey.traces[1:]):
        report = diagnose(AuditedProgram(replace(survey, traces=traces), None, "it", CONSTANTS))
        assert report.verdict == "inconclusive"
        assert "the probabilities of all its paths sum to" in report.summary


@pytest.mark.parametrize("name", ["numpy_sampling", "batch", "bootstrapped"])
def test_what_no_weights_of_the_decisions_give_is_out_of_reach(
    name: str, surveys: dict[str, tuple[Survey, Evidence]]
) -> None:
    _, evidence = surveys[name]
    rng = np.random.default_rng(5)
    weights = rng.normal(size=evidence.present.shape) * evidence.present
    any_of_them = np.einsum("pi,pid->pd", weights, evidence.eligibility)
    bonus = 0.3 * np.einsum("pi,pid->pd", evidence.present.astype(float), evidence.entropy)
    assert within_reach(replace(evidence, ascent=any_of_them + bonus), 1e-9)
    first = replace(evidence, ascent=any_of_them).restricted(evidence.episode == 0)
    several = bool((evidence.present & (evidence.episode > 0)).any())
    assert within_reach(first, 1e-9) == (not several)
    short = evidence.present.sum(axis=1) < evidence.ascent.shape[1] - 2
    assert short.any()
    elsewhere = any_of_them + rng.normal(size=any_of_them.shape)
    assert not within_reach(replace(evidence, ascent=elsewhere), 1e-9)


def test_rounding_that_fits_no_epsilon_leaves_a_division_without_one(
    surveys: dict[str, tuple[Survey, Evidence]],
) -> None:
    _, evidence = surveys["batch"]
    whitened = Candidate(CREDITS[0], 0.9, False, "whitened", "batch", "", "")
    line = timeline(evidence)
    noise = 1.0 + 3e-3 * np.random.default_rng(0).standard_normal(evidence.ascent.shape)
    made = replace(evidence, ascent=evidence.gradient(whitened.weights(line)) * noise)
    match = find_match(made, CONSTANTS, 1e-2, "no")
    assert match is not None
    assert match.form == whitened
