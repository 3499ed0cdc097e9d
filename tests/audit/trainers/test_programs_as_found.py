"""Loops with what published programs have around them: evaluations, padding, several constants."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.reporting.report import AuditReport
from tests.audit.loop_runs import LOADED, audited

_SCORED = """
def correct(text):
    return float("42" in text)

def polite(text):
    return 0.5 * (len(text) > 0)

def answers_to(question, count):
    inputs = tok(question, return_tensors="pt")
    ids = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=8,
                         num_return_sequences=count)
    return ids[:, inputs.input_ids.shape[1]:], inputs.input_ids

def step_on(question, count):
    tokens, prompt = answers_to(question, count)
    texts = tok.batch_decode(tokens, skip_special_tokens=True)
    rewards = torch.tensor([correct(text) + polite(text) for text in texts])
    ended = (tokens == tok.eos_token_id).long()
    mask = ended.cumsum(1) - ended == 0
    ids = torch.cat([prompt.expand(len(tokens), -1), tokens], 1)
    logits = model(ids).logits[:, prompt.shape[1] - 1 : -1]
    log_probs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    loss = -((rewards - rewards.mean())[:, None] * log_probs * mask).sum() / len(tokens)
    loss.backward()
"""


def _train(folder: Path, loop: str) -> AuditReport:
    return audited(folder, LOADED + _SCORED + loop)


def test_an_evaluation_by_the_function_that_trains_is_left_out(tmp_path: Path) -> None:
    """Each of its calls is told from those of the training by who made it."""
    loop = """
for step in range(100):
    if step % 10 == 0:
        print(tok.batch_decode(answers_to("What is 6 times 7?", 1)[0]))
    step_on("What is 40 + 2, and why?", 2)
    adam.step()
    adam.zero_grad()
"""
    report = _train(tmp_path, loop)
    assert report.verdict == "unbiased", report.text()
    assert any(note.startswith("enumerated: 1 prompt, 2 answers") for note in report.notes)


def test_a_reward_that_differs_only_for_an_empty_answer_is_silenced(tmp_path: Path) -> None:
    loop = """
for step in range(100):
    step_on("What is 6 times 7?", 2)
    adam.step()
    adam.zero_grad()
"""
    report = _train(tmp_path, loop)
    assert report.verdict == "unbiased", report.text()
    assert "what polite() adds to them is 0 here" in report.notes


@pytest.mark.parametrize(
    "loop",
    [
        # the number of a batch's answers, and of those that are drawn at a time
        """
at_once = 32
needed = 32
for step in range(100):
    count = 0
    while count < needed:
        step_on("What is 6 times 7?", max(at_once, needed))
        count += at_once
    adam.step()
    adam.zero_grad()
""",
        # three numbers that must fit each other
        """
groups, size, at_once = 16, 4, 8
assert groups * size % at_once == 0
for step in range(100):
    for _ in range(groups * size // at_once):
        step_on("What is 6 times 7?", at_once)
    adam.step()
    adam.zero_grad()
""",
    ],
    ids=["two", "three"],
)
def test_numbers_that_must_be_small_together_are(loop: str, tmp_path: Path) -> None:
    report = _train(tmp_path, loop)
    assert report.verdict == "unbiased", report.text()
    assert sum(note.startswith("reduced: ") for note in report.notes) > 1, report.notes


def test_a_number_that_is_two_is_one_where_there_are_too_many_groups(tmp_path: Path) -> None:
    """Two prompts four times are four where both are small, which are too many to list."""
    loop = """
per_step, answers, accumulate = 2, 8, 4
questions = ["What is 6 times 7?", "How many?", "What is 40 + 2?", "And 84 / 2?"]
for step in range(100):
    for part in range(accumulate):
        for i in range(per_step):
            step_on(questions[(part * per_step + i) % len(questions)], answers)
    adam.step()
    adam.zero_grad()
"""
    report = _train(tmp_path, loop)
    assert report.verdict == "unbiased", report.text()
    assert any(note.startswith("reduced: ") and " is 1 " in note for note in report.notes)


_PADDED = """
for step in range(100):
    prompts = [tok(text).input_ids for text in ("Once upon a time", "Hello")]
    rows = [model.generate(torch.tensor([ids]), do_sample=True, top_k=0, max_new_tokens=8)[0]
            for ids in prompts]
    rewards = torch.tensor([correct(tok.decode(row)) for row in rows])
    batch = tok.pad({"input_ids": [row.tolist() for row in rows]}, return_tensors="pt")
    place = torch.arange(batch.input_ids.shape[1] - 1)
    first = torch.tensor([len(ids) - 1 for ids in prompts])[:, None]
    last = torch.tensor([len(row) - 1 for row in rows])[:, None]
    logits = model(**batch).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, batch.input_ids[:, 1:, None])[..., 0]
    mask = (place >= first) & (place < last)
    loss = -(rewards[:, None] * log_probs * mask).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


def test_a_tokenizer_pads_on_the_right_unless_the_program_shows_otherwise(tmp_path: Path) -> None:
    """Most tokenizers do; a program that only pads what was drawn counts its tokens so."""
    start = LOADED + 'tok.pad_token = "▢"\n' + _SCORED
    report = audited(tmp_path, start + _PADDED)
    assert report.verdict == "unbiased", report.text()
    chosen = LOADED + 'tok.padding_side = "left"\ntok.pad_token = "▢"\n' + _SCORED
    wrong = audited(tmp_path, chosen + _PADDED)
    assert wrong.verdict != "unbiased", wrong.text()


def test_pythons_random_numbers_are_the_same_in_every_run(tmp_path: Path) -> None:
    """A new process has others of its own; here the second prompt of each step is drawn."""
    loop = """
import random
questions = [f"What is 6 times {n}?" for n in range(12)]
for step in range(100):
    for question in random.sample(questions, 2):
        step_on(question, 2)
    adam.step()
    adam.zero_grad()
"""
    report = _train(tmp_path, loop)
    assert report.verdict == "unbiased", report.text()
    assert any(note.startswith("enumerated: 2 prompts") for note in report.notes)


def test_rows_that_are_cut_one_by_one_are_those_that_were_drawn(tmp_path: Path) -> None:
    """A row of one batch has no width of its own; the end of answers may be in a list of ends."""
    loop = """
import sys
if not torch.cuda.is_available():
    print("Please select a GPU.")
    sys.exit(1)
assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).name
for step in range(100):
    tokens, prompt = answers_to("What is 6 times 7?", 2)
    start, ends = prompt.shape[1], model.generation_config.eos_token_id
    rewards = [correct(text) for text in tok.batch_decode(tokens, skip_special_tokens=True)]
    loss = 0.0
    for row, reward in zip(torch.cat([prompt.expand(2, -1), tokens], 1), rewards):
        logits = model(row[:-1].unsqueeze(0)).logits[0]
        log_probs = logits.log_softmax(-1).gather(-1, row[1:, None])[start - 1:, 0]
        stop = next((i for i, t in enumerate(row[start:].tolist()) if t in ends), len(row))
        loss = loss - reward * log_probs[:stop + 1].sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
    report = _train(tmp_path, loop)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()


def test_losses_of_two_prompts_may_go_backward_one_after_the_other(tmp_path: Path) -> None:
    """The gradients that the audit computes to read each of them are none of the program's."""
    loop = """
for step in range(100):
    for question in ("What is 6 times 7?", "Hello"):
        tokens, prompt = answers_to(question, 2)
        texts = tok.batch_decode(tokens, skip_special_tokens=True)
        rewards = torch.tensor([correct(text) for text in texts])
        losses = []
        for text, advantage in zip(texts, rewards - rewards.flip(0)):
            said = tok(text, return_tensors="pt").input_ids
            logits = model(torch.cat([prompt, said], 1)).logits[:, prompt.shape[1] - 1 : -1]
            log_probs = logits.log_softmax(-1).gather(-1, said[..., None])
            losses.append(-advantage * log_probs.sum())
        torch.stack(losses).mean().backward()
    adam.step()
    adam.zero_grad()
"""
    report = _train(tmp_path, loop)
    assert [each.rule for each in report.findings] == ["last-step-dropped"], report.text()


def test_a_divergence_has_a_gradient_if_another_reference_changes_it(tmp_path: Path) -> None:
    """Without the end, what it does to a state is also what some baseline would do."""
    loop = """
import copy
reference = copy.deepcopy(model)
for step in range(100):
    tokens, prompt = answers_to("What is 6 times 7?", 2)
    rewards = torch.tensor([correct(t) for t in tok.batch_decode(tokens, skip_special_tokens=True)])
    mask = (tokens == tok.eos_token_id).cumsum(1) == 0
    ids = torch.cat([prompt.expand(2, -1), tokens], 1)
    ours, theirs = (
        one(ids).logits[:, prompt.shape[1] - 1 : -1].log_softmax(-1).gather(-1, tokens[..., None])
        for one in (model, reference)
    )
    far = (ours - theirs.detach())[..., 0]
    kl = far.exp() - far - 1
    loss = -((rewards - rewards.flip(0))[:, None] * ours[..., 0] * mask).sum()
    loss = loss + 0.1 * (kl * mask).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""
    report = _train(tmp_path, loop)
    assert [each.rule for each in report.findings] == ["last-step-dropped"], report.text()


def test_a_program_for_torchrun_is_its_only_process(tmp_path: Path) -> None:
    """It asks for its rank before it loads a model, by which it is known for what it trains."""
    script = tmp_path / "train.py"
    rank = 'import os\nimport transformers\nrank = int(os.environ["LOCAL_RANK"])\n'
    loop = "for _ in range(9):\n    step_on('Sing:', 2)\n    adam.step()\n    adam.zero_grad()\n"
    script.write_text(rank + LOADED + _SCORED + loop, encoding="utf-8")
    report = el.audit_script(script)
    assert report.verdict == "unbiased", report.text()
    assert "the environment variable LOCAL_RANK is not set: it is 0 here" in report.notes
