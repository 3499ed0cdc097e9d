"""The tiny language model, its tokenizer, and the list of what it can say."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from eligibility.audit.trainers.answers import answers, outcomes, parsed, states
from eligibility.audit.trainers.gradients import Pass, Rows, StateWeights
from eligibility.audit.trainers.sampling import as_asked_for
from eligibility.audit.trainers.tiny import (
    END,
    GROUP,
    LENGTH,
    PROMPT_ONLY,
    PROMPTS,
    SYMBOLS,
    VOCABULARY,
    WORD,
    make_model,
    make_tokenizer,
)

Tokens = tuple[int, ...]


def prompts() -> list[Tokens]:
    return [tuple(make_tokenizer()(text)["input_ids"]) for text in PROMPTS]


def test_unordered_outcomes_stand_for_every_ordered_one() -> None:
    assert sum(orders for _, orders in outcomes(ordered=False)) == len(outcomes(ordered=True))


@pytest.mark.parametrize("answer", answers())
@pytest.mark.parametrize("prompt", [(2,), (2, 1, 2), (0, 2)])
def test_a_padded_row_is_read_as_its_prompt_and_answer(prompt: Tokens, answer: Tokens) -> None:
    row = [END, END, *prompt, *answer, *[END] * (LENGTH - len(answer))]
    stripped = prompt[next(i for i, token in enumerate(prompt) if token != END) :]
    assert parsed(row) == (stripped, answer, 2 + len(prompt))


def test_the_tokenizer_reads_any_text_and_writes_answers_back() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer("What is 3 + 4?")["input_ids"] == [2]
    for answer in answers():
        words = tuple(token for token in answer if token != END)
        assert tokenizer.decode(answer, skip_special_tokens=True) == SYMBOLS[WORD] * len(words)
    chat = [{"role": "user", "content": PROMPTS[1]}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == PROMPTS[1]


def test_tokens_that_are_never_drawn_have_one_logit_in_every_model() -> None:
    """Else a ratio to a reference overflows at padding, as it does in no program of the world."""
    models = [make_model(11), make_model(7)]
    with torch.no_grad():
        models[1].model.layers[0].self_attn.q_proj.weight += 3.0  # as an adapter moves it
        models[1].model.norm.weight *= 2.0
        seen = [each(torch.tensor([[2, 1, 3, 3], [0, 0, 2, 1]])).logits for each in models]
    assert seen[0].ne(seen[1])[..., :VOCABULARY].any()
    torch.testing.assert_close(seen[0][..., VOCABULARY:], seen[1][..., VOCABULARY:])
    assert (seen[0][..., VOCABULARY:] < -300.0).all()


def test_fitted_states_have_generic_probabilities_and_never_draw_the_prompts_token() -> None:
    model = make_model(11)
    weights = StateWeights(model, prompts())
    for seed in (0, 2):
        weights.fit(seed)
        logits = torch.tensor(weights.logits(model))
        probs = logits.softmax(-1)[..., 0].flatten()
        assert probs.min() > 0.02
        assert probs.max() < 0.98
        assert torch.cdist(probs[:, None], probs[:, None]).add(torch.eye(6)).min() > 1e-3
        for prompt, state in itertools.product(prompts(), states()):
            ids = torch.tensor([[*prompt, *state]])
            assert model(input_ids=ids).logits[0, -1].softmax(-1)[PROMPT_ONLY] < 1e-100


def test_gradients_by_the_logits_are_read_from_the_hidden_states() -> None:
    """Against a loss whose derivative is known; and the parameters' gradient agrees."""
    model, texts = make_model(11), prompts()
    rows, weights = Rows(model), StateWeights(model, texts)
    weights.fit(0)
    given = [(1, 0), (1, 1, 1), (0,), (1, 1, 0)]
    rows.forget()  # the gradients of the fit
    rows.expect_rows([(texts[i // GROUP], answer) for i, answer in enumerate(given)])
    width = max(map(len, texts)) + LENGTH
    table = torch.zeros(len(given), LENGTH, VOCABULARY, dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    for row, answer in enumerate(given):
        prompt = texts[row // GROUP]
        tokens = [*prompt, *answer]
        ids = torch.tensor([[*tokens, *[END] * (width - len(tokens))]])
        log_probs = model(input_ids=ids).logits[0].log_softmax(-1)
        for t, token in enumerate(answer):
            factor = 1.0 + row + 0.3 * t
            scored = log_probs[len(prompt) + t - 1]
            loss = loss + factor * scored[token]
            probs = scored.detach().exp()[:VOCABULARY]
            table[row, t] = factor * (torch.eye(VOCABULARY)[token] - probs)
    model.zero_grad()
    loss.backward()
    found, at_prompts = rows.collected()
    assert torch.allclose(found, table, atol=1e-12)
    step = Pass()
    step.add(found, weights.gradient(), rows.scored, at_prompts)
    assert step.prompt_share < 1e-12
    scaled, left = weights.as_trained(weights.gradient(), found, given)
    assert left < 1e-6  # Llama's norm and rotary angles are in single precision
    assert torch.equal(scaled, found)
    gradient = weights.gradient()
    # a critic on the same features pulls at the parameters as well, partly along the policy's pull
    mixed = gradient * 0.99 + 0.009 * gradient.norm() * _orthogonal(gradient)
    assert torch.equal(weights.as_trained(mixed, found, given)[0], found)
    halved = weights.as_trained(gradient / 2, found, given)[0]
    torch.testing.assert_close(halved, found / 2, rtol=1e-5, atol=1e-9)


def _orthogonal(gradient: torch.Tensor) -> torch.Tensor:
    other = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(3)).double()
    other = other - gradient * (other @ gradient) / (gradient @ gradient)
    return other / other.norm()


def test_rows_with_the_same_answer_are_told_apart_by_the_steps_that_score_them() -> None:
    """Two steps on a row each: the second one is not a second time for the first row."""
    model, (text, _) = make_model(11), prompts()
    rows, scored = Rows(model), []
    for _ in range(2):
        rows.expect_rows([(text, (1, 0)), (text, (1, 0))])
        model(input_ids=torch.tensor([[*text, 1, 0]])).logits.logsumexp(-1).sum().backward()
        rows.collected()
        scored.append(rows.scored)
    assert scored == [{0}, {1}]


def test_scores_have_the_temperature_that_a_configuration_asks_for() -> None:
    transformers: Any = importlib.import_module("transformers")
    sequences = torch.tensor([[PROMPT_ONLY, WORD, PROMPT_ONLY, WORD, WORD, END]])
    settings = transformers.GenerationConfig(return_dict_in_generate=True, temperature=2.0)
    made = as_asked_for(make_model(1), sequences, 3, {"generation_config": settings})
    assert len(made.scores) == len(made.logits) == 3
    for scores, logits in zip(made.scores, made.logits, strict=True):
        assert torch.equal(scores, logits / 2.0)
