"""The worked questions: each answer is worked out, and its numbers are what the world says."""

from __future__ import annotations

import math
import re

import pytest
import torch
from rich.cells import cell_len
from torch.distributions import Categorical, kl_divergence

import eligibility as el
from eligibility.errors import InvalidValueError
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.questions import QUESTIONS, answer_question


def column(explanation: Explanation, title: str) -> tuple[float | None, ...]:
    return next(c.values for c in explanation.tables[0].columns if c.title == title)


def test_they_are_numbered_from_1() -> None:
    assert [question.number for question in QUESTIONS] == [*range(1, len(QUESTIONS) + 1)]
    assert len(QUESTIONS) >= 17


def test_every_answer_is_compared_with_numbers_of_the_world() -> None:
    compared = {int(found[1]) for name in globals() if (found := re.match(r"test_(\d+)_", name))}
    missing = {question.number for question in QUESTIONS} - compared
    assert not missing, f"write test_{min(missing)}_… below, with numbers from elsewhere"


@pytest.mark.parametrize("number", [question.number for question in QUESTIONS])
def test_every_answer_passes_its_checks_and_renders(number: int) -> None:
    answer = answer_question(number)
    assert answer.checks
    assert all(check.passed for check in answer.checks), answer.checks
    assert answer.title == f"{number}. {QUESTIONS[number - 1].asked}"
    assert max(map(cell_len, answer.text().splitlines())) <= 80
    assert "U+" not in answer.latex()
    assert Explanation.from_json(answer.to_json()).text() == answer.text()
    assert "<html" in answer.html()


def test_1_not_drawn() -> None:
    assert answer_question(1).rule.result.values == pytest.approx([0.31, -0.69, -0.69, -0.69])


def test_2_kl_by_hand_differs_by_a_constant() -> None:
    answer = answer_question(2)
    p, q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
    kl = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    by_torch = [math.log(a / b) - kl for a, b in zip(p, q, strict=True)]
    assert column(answer, "torch") == pytest.approx(by_torch)
    assert column(answer, "difference") == pytest.approx([kl + 1] * 3)


def test_3_detaching_the_normaliser() -> None:
    answer = answer_question(3)
    assert column(answer, "log-sum-exp detached") == (1.0, 0.0, 0.0)
    assert column(answer, "Σ softmax detached") == pytest.approx(column(answer, "whole"))


def test_4_logits_are_shifted_log_probs() -> None:
    answer = answer_question(4)
    stored = column(answer, "dist.logits")
    assert sum(math.exp(value) for value in stored) == pytest.approx(1)
    shifts = [a - b for a, b in zip(column(answer, "logits"), stored, strict=True)]
    assert shifts == pytest.approx([shifts[0]] * 3)


def test_5_entropy_of_masked_logits() -> None:
    answer = answer_question(5)
    assert all(math.isnan(value) for value in column(answer, "by hand"))
    assert column(answer, "eligibility") == pytest.approx(column(answer, "torch"))


def test_6_saturation() -> None:
    answer = answer_question(6)
    assert column(answer, "probs=softmax(z)") == (0.0, 0.0, 0.0)
    assert column(answer, "logits=z") == pytest.approx([-1, 1, 0], abs=1e-6)


def test_7_all_actions_sum_to_zero() -> None:
    answer = answer_question(7)
    assert column(answer, "Σ π_a e_a") == pytest.approx([0, 0, 0], abs=1e-15)
    pi, rewards = column(answer, "π"), (1.0, 0.0, 3.0)
    mean = sum(p * r for p, r in zip(pi, rewards, strict=True))
    exact = [p * (r - mean) for p, r in zip(pi, rewards, strict=True)]
    assert column(answer, "Σ π_a r_a e_a") == pytest.approx(exact)


def test_8_every_supported_distribution_is_in_one_list() -> None:
    text = " ".join(answer_question(8).why)
    for cls in el.supported_distributions():
        assert f" {cls.__name__}," in text or f" {cls.__name__}." in text, cls


def test_9_second_backward_doubles() -> None:
    answer = answer_question(9)
    first, second = column(answer, "first"), column(answer, "second, retained")
    assert second == pytest.approx([2 * value for value in first])


def test_10_the_loss_value_moves_and_its_gradient_does_not() -> None:
    answer = answer_question(10)
    gradients = [c.values for c in answer.tables[0].columns if c.title.startswith("gradient")]
    assert len(gradients) == 3
    assert gradients[1] == pytest.approx(gradients[0])
    assert gradients[2] == pytest.approx(gradients[0])
    assert "0.9214, 0.1429, -7.403" in answer.why[1]


def row(explanation: Explanation, label: str) -> list[float | None]:
    (table,) = explanation.tables
    return [column.values[table.rows.index(label)] for column in table.columns]


def test_11_the_gradient_of_a_loss_of_0_is_that_of_reinforce() -> None:
    # Rewards [1 0 0 1] of actions [0 0 1 2]: A = ±(1/2)/(1/√3), and Σ A = 0, so that −mean(A e) is
    # −A/4 for each action, those of action 0 cancelling.
    unit = math.sqrt(3) / 2 / 4
    assert column(answer_question(11), "GRPO") == pytest.approx([0, unit, -unit], abs=1e-12)


def test_12_the_ratio_moves_after_the_first_update() -> None:
    # d log π(0) = −lr · (−(1 − π)) along one_hot − π, by a gradient step worked out by hand.
    z = [0.5, 0.0, -0.5]
    pi = [math.exp(v) / sum(map(math.exp, z)) for v in z]
    moved = [v + 0.5 * ((k == 0) - pi[k]) for k, v in enumerate(z)]
    after = math.exp(moved[0]) / sum(map(math.exp, moved))
    assert column(answer_question(12), "ratio")[:2] == pytest.approx([1.0, after / pi[0]])


def test_13_which_divergence_each_estimator_descends() -> None:
    answer = answer_question(13)
    z, ref = [1.0, 0.0, -1.0], [0.0, 0.5, 0.0]
    pi = [math.exp(v) / sum(map(math.exp, z)) for v in z]
    q = [math.exp(v) / sum(map(math.exp, ref)) for v in ref]
    r = [math.log(a / b) for a, b in zip(pi, q, strict=True)]
    kl = sum(a * b for a, b in zip(pi, r, strict=True))
    reverse = [a * (b - kl) for a, b in zip(pi, r, strict=True)]
    forward = [a - b for a, b in zip(pi, q, strict=True)]
    assert row(answer, "k1 in the loss") == pytest.approx([0, 0, 0], abs=1e-15)
    assert row(answer, "k2 in the loss") == pytest.approx(reverse)
    assert row(answer, "k3 in the loss") == pytest.approx(forward)
    assert row(answer, "k1 in the reward") == pytest.approx(reverse)


def test_14_a_detached_weight_is_a_number() -> None:
    answer = answer_question(14)
    assert column(answer, "CISPO") == pytest.approx([-0.5, -1.0, -1.2, 1.2])
    assert column(answer, "PPO") == pytest.approx([-0.5, -1.0, 0.0, 1.5])
    not_detached = [-0.5 * (1 + math.log(0.5)), -1.0, -1.2, 1.2]
    assert column(answer, "CISPO, not detached") == pytest.approx(not_detached)


def test_15_the_clip_silences_one_side() -> None:
    assert column(answer_question(15), "weight") == pytest.approx([-0.5, 0, -1, 1, 0, 1.5])


def test_16_a_token_of_a_short_response_weighs_more() -> None:
    answer = answer_question(16)
    assert column(answer, "per response") == pytest.approx([-1 / 8, -1 / 32, 1 / 8, 1 / 32])
    assert column(answer, "by a constant") == pytest.approx([-1 / 32, -1 / 32, 1 / 32, 1 / 32])


def test_17_the_group_mean_costs_one_share_of_the_gradient() -> None:
    answer = answer_question(17)
    pi = 1 / (1 + math.exp(-1.0))
    exact = pi * (1 - pi)
    assert column(answer, "leave-one-out") == pytest.approx([exact, -exact])
    assert column(answer, "group mean") == pytest.approx([2 / 3 * exact, -2 / 3 * exact])


def test_an_unknown_question_is_refused() -> None:
    last = len(QUESTIONS)
    with pytest.raises(InvalidValueError) as raised:
        answer_question(last + 1)
    assert str(raised.value) == (
        f"`--question`: got {last + 1}, expected a number from 1 to {last}; `eligibility explain "
        "--question` lists them"
    )


def offered(output: torch.Tensor) -> set[int]:
    return {item.question for item in el.explain(output).expected}


def test_the_right_question_is_offered_where_its_situation_is_met() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0]], requires_grad=True)
    probs = torch.tensor([[0.5, 0.3, 0.2]], requires_grad=True)
    masked = torch.tensor([0.0, 0.0, -math.inf], requires_grad=True)
    saturated = torch.tensor([1.0, 1e-9], requires_grad=True)
    action = torch.tensor([1])
    assert offered(Categorical(probs=probs).log_prob(action)) == {1}
    assert offered(kl_divergence(Categorical(probs=probs), Categorical(logits=logits))) >= {2}
    assert offered(Categorical(logits=logits).log_prob(action)) == {4}
    log_probs = masked.log_softmax(-1)
    assert offered(-(log_probs.exp() * log_probs).sum()) >= {5}
    assert offered(Categorical(probs=saturated).log_prob(torch.tensor(1))) == {1, 6}
    assert offered(-(Categorical(logits=logits).log_prob(action) * 2).mean()) == {4, 10}


def test_an_answer_does_not_point_to_itself() -> None:
    assert {item.question for item in answer_question(1).expected} == {0}
