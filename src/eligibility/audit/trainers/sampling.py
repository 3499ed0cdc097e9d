"""`generate`, led through every group of answers, and what each does to the gradient."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from eligibility.audit.trainers.answers import Tokens, answers, outcomes, parsed
from eligibility.audit.trainers.gradients import Pass, Rows, StateWeights
from eligibility.audit.trainers.many_tokens import ManyTokens
from eligibility.audit.trainers.next_token import nucleus_of, one_token_probabilities, setting
from eligibility.audit.trainers.record import Policies, Record
from eligibility.audit.trainers.refused import Finished, Refused
from eligibility.audit.trainers.tiny import END, GROUP, LENGTH, PAD, PROMPTS
from eligibility.audit.user_code import is_user_file

OWN_LOOP = (
    "the program trains in its own loop, whose rewards the audit cannot set; audit its loss "
    "with audit_token_loss"
)
_MIXED = (1, 3, 2, 0)  # an outcome in which no two answers are alike
_SAME = 1e-5  # gradients in single precision differ by less
PAIRS = 2
_BETWEEN = ("eligibility", "torch", "accelerate")  # packages between a step and who asked for it


class Sampler:
    """Gives the answers of the next outcome at every call, and reads the gradient of each step."""

    generate: Callable[..., Any]  # transformers' own
    _rows: Rows  # both from the first call on
    _states: StateWeights

    def __init__(self, record: Record, announce: Callable[[int, int], None], pairs: int) -> None:
        self.record, self._announce, self._pairs = record, announce, pairs
        self.reference: Any = None
        self.rewards: Callable[[int, Tokens], float] = lambda prompt, answer: 0.0
        self.world = 0
        self._plan: Iterator[tuple[int, Tokens]] = iter(())
        self._total = 0
        self._prompts: list[Tokens] = []
        self._options: dict[str, Any] = {}
        self._pass = Pass()
        self._again = False  # whether the answers are those that have been trained on before
        register_optimizer_step_pre_hook(self._before_step)

    def generated(self, model: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """In place of transformers' ``generate``: the prompts, and the next outcome's answers."""
        if not self.record.trainer:
            raise Refused(OWN_LOOP)
        ids, options = asked_for(arguments, options)
        rows = [parsed(row)[0] for row in ids.tolist()]
        if not self._prompts:
            self._begin(model, rows, options)
        if any(rows.count(prompt) != GROUP for prompt in self._prompts):
            raise Refused("the program changes the prompts or the number of answers at every step")
        self.close_outcome()
        task = next(self._plan, None)
        if task is None:
            raise Finished
        world, chosen = task
        if world != self.world or not self.record.policies:
            self._enter(world, model)
        given = [answers()[a] for a in chosen]
        self._rows.forget()
        self._rows.expect_rows([(self._prompts[i // GROUP], a) for i, a in enumerate(given)])
        unread = {p: iter(given[GROUP * i :]) for i, p in enumerate(self._prompts)}
        return padded(ids, [next(unread[prompt]) for prompt in rows], END)

    @property
    def sign(self) -> float:
        """The sign of the rewards in this block."""
        return -1.0 if self.world % 2 else 1.0

    def _begin(self, model: Any, rows: list[Tokens], options: dict[str, Any]) -> None:
        """Note the model, the prompts and the options of the first call."""
        prompts = sorted(dict.fromkeys(rows), key=len)
        if len(prompts) != len(PROMPTS):
            raise Refused(
                f"the program samples answers to {len(prompts)} prompts at a time, and the probe "
                f"has {len(PROMPTS)}"
            )
        self._prompts, self._options = prompts, options
        self._rows = Rows(model)
        self._states = StateWeights(model, prompts)
        self.record.parameters = self._states.parameters
        self._plan = self._tasks()

    def _tasks(self) -> Iterator[tuple[int, Tokens]]:
        """The blocks and their outcomes: unordered groups if the order is shown not to matter."""
        yield 0, _MIXED
        yield 0, _swapped(_MIXED)
        self.close_outcome()
        record = self.record
        first, second = (torch.tensor(table) for table in record.gradients)
        other = second[[*_swapped(tuple(range(len(_MIXED))))]]
        change = float((other - first).norm() / first.norm().clamp(min=1e-30))
        record.gradients.clear()
        record.gradients_again.clear()
        record.ordered = change > _SAME
        pairs = 1 if record.ordered else self._pairs
        every = outcomes(record.ordered)
        self._total = 2 * pairs * len(every)
        yield from ((w, chosen) for w in range(2 * pairs) for chosen, _ in every)

    def _enter(self, world: int, model: Any) -> None:
        """The next policy, or the same with the rewards of the other sign."""
        self.world = world
        if world % 2 == 0:
            if isinstance(self.reference, torch.nn.Module):
                StateWeights(self.reference, self._prompts).fit(seed=world + 1)
            self._states.fit(seed=world, drift=self.record.drift)
        if not self.record.policies:
            many = ManyTokens()
            many.add_to(model)
            many.drawn_by(self.generate, model, self._prompts[0], self._options)
            many.remove_from(model)
            self.record.unseen = many.unseen()
        draw = partial(one_token_probabilities, self.generate, model, options=self._options)
        made = Policies(
            drawn=self._states.table(draw),
            rewards=[
                [self.sign * self.rewards(p, answer) for answer in answers()]
                for p in range(len(self._prompts))
            ],
        )
        note_policy(self.record, self._states, model, self.reference, made)

    def _before_step(self, optimizer: Any, args: Any, options: Any) -> None:
        """Read the gradient; without one, no optimizer moves a parameter.

        Once a group of answers has been trained on, the policy is the later one until the next.
        """
        if not self.record.trainer and in_user_loop():
            raise Refused(OWN_LOOP)
        if not self.record.policies:
            return
        table, prompts = self._rows.collected()
        self._pass.add(table, self._states.gradient(), self._rows.scored, prompts)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        record = self.record
        if record.drift and not self._again and self._pass.steps == record.steps:
            self._keep(record.gradients)
            self._states.take(1)
            self._again = True

    def close_outcome(self) -> None:
        """Keep what the steps on the last answers leave, and go back to the first policy."""
        if not self._prompts:
            return
        if self._pass.steps:
            self._keep(self.record.gradients_again if self._again else self.record.gradients)
        if self._again:
            self._states.take(0)
            self._again = False
        self._announce(len(self.record.gradients), self._total)

    def _keep(self, gradients: Any) -> None:
        """Add the mean gradient of the steps so far."""
        record, (table, gradient) = self.record, self._pass.mean()
        given = [answer for _, answer in self._rows.outcome.rows]
        table, leak = self._states.as_trained(gradient, table, given)
        record.steps = self._pass.steps
        record.leak = max(record.leak, leak)
        record.prompt_share = max(record.prompt_share, self._pass.prompt_share)
        gradients.append(table.tolist())
        self._pass = Pass()


def in_user_loop() -> bool:
    """Whether the user's own code, and no trainer, has called the optimizer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame is not None and is_user_file(frame.f_code.co_filename)


def with_likeliest(model: Any, ids: Tensor) -> Tensor:
    """[N, P + W] the rows of prompts, each followed by the likeliest tokens."""
    rows = ids
    with torch.no_grad():
        for _ in range(LENGTH):
            mask = torch.cat([(ids != PAD).long(), torch.ones_like(rows[:, ids.shape[1] :])], 1)
            likeliest = model(input_ids=rows, attention_mask=mask).logits[:, -1].argmax(-1)
            ended = (rows[:, ids.shape[1] :] == END).any(1)
            rows = torch.cat([rows, likeliest.masked_fill(ended, END)[:, None]], 1)
    return rows


def as_asked_for(
    model: Any, sequences: Tensor, start: int, options: Any, *, without_scores: bool = False
) -> Any:
    """What `generate` returns: the rows alone, or with the logits that they were drawn from.

    With ``without_scores`` the scores are NaN, and so is the gradient of a loss that uses them.
    """
    if not setting(options, "return_dict_in_generate"):
        return sequences
    utils: Any = importlib.import_module("transformers.generation.utils")
    first = (sequences != model.generation_config.pad_token_id).long().argmax(1)
    mask = (torch.arange(sequences.shape[1]) >= first[:, None]).long()
    with torch.no_grad():
        logits = model(input_ids=sequences, attention_mask=mask).logits[:, start - 1 : -1]
    steps = tuple(logits.unbind(1))
    scores = tuple(step / (setting(options, "temperature") or 1.0) for step in steps)
    if (nucleus := nucleus_of(options)) < 1.0:
        warp = utils.TopPLogitsWarper(nucleus)
        scores = tuple(warp(sequences, step) for step in scores)
    if without_scores:
        scores = tuple(torch.full_like(step, torch.nan) for step in scores)
    return utils.GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, logits=steps)


def _swapped(rows: Tokens) -> Tokens:
    """The rows of each group in the opposite order."""
    starts = range(0, len(rows), GROUP)
    return tuple(row for start in starts for row in reversed(rows[start : start + GROUP]))


def asked_for(arguments: tuple[Any, ...], options: Any) -> tuple[Tensor, dict[str, Any]]:
    """[N, S] the prompt of each answer that `generate` is asked for, and its other arguments."""
    given = dict(options)
    ids = arguments[0] if arguments else given.pop("input_ids", given.pop("inputs", None))
    if hasattr(ids, "keys"):  # what a tokenizer returns
        ids = ids["input_ids"]
    if ids is None:
        raise Refused("`generate` is called without input_ids; the audit needs prompts as tokens")
    given.pop("attention_mask", None)
    copies = int(setting(given, "num_return_sequences") or 1)
    return ids.repeat_interleave(copies, 0), given


def masks_padding(arguments: tuple[Any, ...], options: dict[str, Any], pad: int) -> bool:
    """Whether `generate` is kept from reading the padding before each prompt."""
    ids: Any = arguments[0] if arguments else options.get("input_ids", options.get("inputs"))
    mask = options.get("attention_mask")
    if hasattr(ids, "keys"):  # what a tokenizer returns
        ids, mask = ids["input_ids"], ids.get("attention_mask", mask)
    if mask is None:  # transformers makes one, where padding is not the end
        mask = (ids != pad) | (pad == END)
    padding = ((ids == END) | (ids == PAD)).cumprod(1)
    return not bool((padding * mask).any())


def padded(ids: Tensor, chosen: list[Tokens], pad: int) -> Tensor:
    """[N, S + W] the prompts with their answers."""
    width = max(map(len, chosen))
    rows = [[*answer, *[pad] * (width - len(answer))] for answer in chosen]
    return torch.cat([ids, torch.tensor(rows).to(ids)], 1)


def note_policy(
    record: Record, states: StateWeights, model: Any, reference: Any, made: Policies
) -> None:
    """Add the policy that the states have now, and the later one if there is to be one."""
    made.logits = states.logits(model)
    made.reference = states.logits(reference) if reference is not None else []
    record.policies.append(made)
    if record.drift:
        states.take(1)
        record.later.append(replace(made, logits=states.logits(model)))
        states.take(0)
