"""The answers of a language, and two routes to each divergence."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError, ShapeError

exact = el.exact.language


@pytest.mark.parametrize(("vocabulary", "length"), [(2, 1), (2, 4), (3, 1), (3, 3), (4, 2)])
def test_answers_are_those_of_a_walk_through_the_tree(vocabulary: int, length: int) -> None:
    """Second route: prefixes in a list, walked one token at a time."""
    end = vocabulary - 1
    prefixes = [prefix for t in range(length) for prefix in itertools.product(range(end), repeat=t)]
    logits = torch.randn(len(prefixes), vocabulary, dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    wanted: dict[tuple[int, ...], tuple[list[int], float]] = {}
    for prefix in prefixes:
        states = [prefixes.index(prefix[:t]) for t in range(len(prefix) + 1)]
        last = range(vocabulary) if len(prefix) == length - 1 else [end]
        for token in last:
            answer = (*prefix, token)
            chance = sum(float(log_probs[s, a]) for s, a in zip(states, answer, strict=True))
            wanted[answer] = (states, chance)
    law = exact.answers(logits)
    assert len(law) == len(wanted)
    lengths = law.values.lengths.tolist()
    for row, size in enumerate(lengths):
        answer = tuple(law.values.tokens[row, :size].tolist())
        states, chance = wanted.pop(answer)
        assert law.values.states[row, :size].tolist() == states
        assert float(law.log_probs[row]) == pytest.approx(chance, abs=1e-13)
        assert bool(law.values.ended[row]) == (answer[-1] == end)
        assert not law.values.tokens[row, size:].any()
        assert not law.values.states[row, size:].any()
    assert lengths == sorted(lengths)


def test_divergence_of_answers_is_the_sum_of_those_of_states(language: Any) -> None:
    whole = exact.answer_kl(language.policy, language.reference)
    by_state = exact.state_kl(language.policy, language.reference)
    assert float(whole) == pytest.approx(float(by_state), rel=1e-13)


def test_gradients_of_the_two_divergences_differ(language: Any) -> None:
    """Σ d(s) KL_s with d held fixed gives no credit for where a token leads."""
    policy = language.policy.clone().requires_grad_()
    (whole,) = torch.autograd.grad(exact.answer_kl(policy, language.reference), policy)
    (by_state,) = torch.autograd.grad(exact.state_kl(policy, language.reference), policy)
    last = slice(3, 7)  # the states of the third token: nothing comes after them
    assert torch.allclose(whole[last], by_state[last], atol=1e-15)
    assert float((whole - by_state).norm() / whole.norm()) > 0.1


def test_visits_follow_the_tree(language: Any) -> None:
    probs = language.policy.softmax(-1)
    visits = exact.state_visits(language.policy)
    wanted = [1.0, probs[0, 0], probs[0, 1]]
    wanted += [wanted[1 + a] * probs[1 + a, b] for a in range(2) for b in range(2)]
    assert torch.allclose(visits, torch.tensor([float(w) for w in wanted], dtype=torch.float64))


def test_a_token_that_is_forbidden_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    assert exact.answers(logits).probs.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (
            torch.zeros(4, 3),
            "the logits of a language: got 4 states of 3 tokens, expected 1, 3, 7, 15, ... states "
            "for answers of at most 1, 2, 3, 4, ... tokens; give one row for each prefix that is "
            "not ended, the empty one included",
        ),
        (
            torch.zeros(4),
            "the logits of a language: got shape [4], expected [states, V] with V of at least 2; "
            "pass one row of logits for each prefix",
        ),
    ],
    ids=["states", "shape"],
)
def test_tables_of_no_language_are_refused(logits: Tensor, message: str) -> None:
    with pytest.raises(ShapeError) as raised:
        exact.answers(logits)
    assert str(raised.value) == message


def test_a_language_too_large_is_refused() -> None:
    with pytest.raises(InvalidValueError) as raised:
        exact.answers(torch.zeros(7, 3), limit=10)
    assert str(raised.value) == (
        "enumeration of answers: got 15, expected at most 10; use fewer tokens or shorter answers, "
        "or raise `limit`"
    )


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(InvalidValueError) as raised:
        exact.state_kl(torch.zeros(1, 2), torch.zeros(1, 2), direction="backward")
    assert str(raised.value) == (
        "`direction`: got 'backward', expected 'reverse' or 'forward'; name the direction"
    )
