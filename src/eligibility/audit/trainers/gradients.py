"""A trained model's gradient at its logits: of each row's positions, and of each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.language.directions import flat
from eligibility.audit.trainers.answers import Tokens, parsed, states
from eligibility.audit.trainers.placing import Placing
from eligibility.audit.trainers.scored import Scored, cache_in, with_last_token
from eligibility.audit.trainers.tiny import LENGTH, VOCABULARY
from eligibility.audit.user_code import user_place

AtPrompts = dict[Tokens, Tensor]  # [V] by the prompt's tokens so far
AtStates = dict[tuple[Tokens, Tokens], list[float]]  # [V] by the prompt and the answer so far


class Rows:
    """Gradients at the logits of every row and position that the program scores.

    Where a program multiplies by the matrix itself and never makes logits, the gradient by the last
    hidden state determines the one by the logits: there are more features than tokens. Where it
    makes logits, the hidden state may have a gradient of another head as well, a critic's.

    A forward pass that goes on with cached tokens scores rows that begin with these.
    """

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings()
        self._head = head.weight
        whole = next(m for m in model.modules() if getattr(m, "lm_head", None) is head)
        whole.register_forward_hook(self._after_head)
        backbone = model.base_model
        while getattr(backbone, "base_model", backbone) is not backbone:
            backbone = backbone.base_model
        backbone.register_forward_hook(self._after_forward, with_kwargs=True)
        self.outcome = Placing([])
        self.scored: set[int] = set()  # rows of the outcome that the last step has scored
        self.logits: AtStates = {}  # with which the last step has scored them
        self._found: list[tuple[Scored, Tensor]] = []  # [b, T, V] of each pass
        self._cached: dict[int, list[Tokens]] = {}
        self.last: Scored | None = None
        self.reads = True  # else it is the audit that computes gradients

    def forget(self) -> None:
        """Drop what was found before the next outcome."""
        self._found.clear()
        self.outcome = Placing([])

    def expect_rows(self, rows: list[tuple[Tokens, Tokens]]) -> None:
        """Set prompt and answer of each row of the outcome; if they are the same, it goes on."""
        if rows != self.outcome.rows:
            self.outcome = Placing(rows)

    def _after_forward(self, module: Any, args: Any, options: Any, output: Any) -> None:
        hidden = output[0]
        ids = options.get("input_ids", args[0] if args else None)
        if ids is None:
            return
        before = self._before(cache_in(options), *ids.shape)
        read, asked = (
            [(*old, *new) for old, new in zip(before, tokens.tolist(), strict=True)]
            for tokens in (ids, with_last_token(ids) if hidden.requires_grad else ids)
        )
        cache = cache_in(output)
        if cache is not None:
            self._cached[id(cache)] = read
        scored = self.last = Scored(asked, len(before[0]), place=user_place())
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: self._keep(scored, gradient.detach().double()))

    def _after_head(self, module: Any, args: Any, output: Any) -> None:
        scored, logits = self.last, getattr(output, "logits", None)
        if scored is not None and logits is not None and logits.requires_grad:
            scored.logits = logits.detach().double()
            logits.register_hook(lambda gradient: scored.reach(gradient.detach().double()))

    def _keep(self, scored: Scored, hidden: Tensor) -> None:
        """[b, T, V] at the logits of a pass, from their own gradient or the hidden state's."""
        if not self.reads:
            scored.taken(hidden.shape[1])
        elif scored.makes_logits:
            self._found.append((scored, scored.taken(hidden.shape[1])))
        else:
            inverse = torch.linalg.pinv(self._head.detach().double()[:VOCABULARY])
            self._found.append((scored, hidden @ inverse))

    def _before(self, cache: Any, rows: int, new: int) -> list[Tokens]:
        """What a cache contains for each row, in addition to the new tokens."""
        known = self._cached.get(id(cache), [])
        fits = len(known) == rows and cache.get_seq_length() == len(known[0]) + new
        return known if fits else [()] * rows  # else another one had its identity

    def collected(self, length: int = LENGTH) -> tuple[Tensor, AtPrompts]:
        """[B, W, V] the gradient of a step, and what it is at the prompts."""
        outcome = self.outcome
        table = torch.zeros(len(outcome.rows), length, VOCABULARY, dtype=torch.float64)
        prompts: AtPrompts = {}
        self.scored, self.logits = set(), {}
        outcome.begin_step()
        for scored, gradient in self._found:
            for number, (row, each) in enumerate(zip(scored.rows, gradient, strict=True)):
                prompt, answer, start = parsed(row, length)
                place = scored.places[number] if scored.places else None
                if place is None and not each[:-1].any() and each[-1].any():
                    before = tuple(row[start : scored.first + len(each)])
                    place = outcome.of_next_token(number, prompt, before)
                if place is None:
                    last = start + len(answer) - 2 - scored.first
                    graded = each[last : last + 1]
                    place = outcome.of_answer(prompt, answer, graded, scored.place)
                self.scored.add(place)
                for t in range(min(length, len(row) - start + 1)):
                    if 0 <= (column := start + t - 1 - scored.first) < len(each):
                        table[place, t] += each[column]
                        said = scored.at(number, column - len(each))
                        if said and t < len(answer):
                            self.logits[prompt, answer[:t]] = said
                for column in range(max(start - 1 - scored.first, 0)):
                    read = scored.first + column + 1 - start + len(prompt)
                    state = prompt[: max(read, 0)] or (read,)  # below 0: padding before it
                    prompts[state] = prompts.get(state, 0.0) + each[column]
            outcome.end_pass()
        self._found.clear()
        return table, prompts


class StateWeights:
    """The logits of the states, and what a gradient by the parameters does to them."""

    def __init__(self, model: Any, prompts: list[Tokens], length: int = LENGTH) -> None:
        self._model, self.prompts, self.states = model, prompts, states(length)
        self._trained = [p for p in model.parameters() if p.requires_grad] or list(
            model.parameters()
        )
        self.parameters = sum(p.numel() for p in self._trained)
        self._slopes = torch.empty(0)
        self._kept: list[tuple[list[Tensor], Tensor]] = []  # parameters and slopes of each policy

    def fit(self, seed: int, drift: float = 0.0, nucleus: float = 1.0) -> None:
        """Give the states generic logits; with a drift, also those of a later policy.

        Parameters that are 0 stay it. Where no parameters give these logits, the nearest are kept.

        Args:
            seed: Seed of the logits.
            drift: By how much log π(token) of the later policy differs at most.
            nucleus: The `top_p` with which tokens are drawn: below 1, a word is likelier than it
                in the first state of the last prompt's answers that can have logits of its own, so
                that the end is never drawn there.
        """
        generator = torch.Generator().manual_seed(seed)
        count = len(self.prompts) * len(self.states)
        wanted = _SPREAD * torch.randn(count, generator=generator, dtype=torch.float64)
        if 0.0 < nucleus < 1.0:
            self._kept = [self._with_a_sure_word(wanted, nucleus)]
        else:
            self._kept = [self._approached(wanted, _CLOSE)]
        if drift:
            change = 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
            wanted = self._differentiated()[0] + 0.8 * drift * change
            self._kept.append(self._approached(wanted, 0.1 * drift))
        self.take(0)

    def _with_a_sure_word(self, wanted: Tensor, nucleus: float) -> tuple[list[Tensor], Tensor]:
        """As `_approached`, with a word likelier than the nucleus in one state.

        Prompts of one repeated token can have the same logits at the beginning of an answer.
        """
        likely = -torch.tensor((1.0 + nucleus) / 2.0, dtype=torch.float64).logit()
        found: tuple[list[Tensor], Tensor] = ([], torch.empty(0))
        for state in range(len(wanted) - len(self.states), len(wanted)):
            sure = wanted.clone()
            sure[state] = likely
            found = self._approached(sure, _CLOSE)
            if float(self._differentiated()[0][state].neg().sigmoid()) > nucleus:
                break
        return found

    @torch.no_grad()
    def take(self, policy: int) -> None:
        """Set the parameters of the rollout's policy, 0, or of the later one, 1."""
        values, self._slopes = self._kept[policy]
        for parameter, value in zip(self._trained, values, strict=True):
            parameter.copy_(value)

    def _approached(self, wanted: Tensor, close: float) -> tuple[list[Tensor], Tensor]:
        """Parameters that give these differences of logits, and the slopes there.

        By Levenberg and Marquardt's method.
        """
        moved = torch.cat([(p != 0).flatten() for p in self._trained])
        damping = 1.0
        differences, slopes = self._differentiated()
        for _ in range(_TRIALS):
            free, missing = slopes * moved, wanted - differences
            if float(missing.norm()) < close:
                break
            inner = free @ free.T + damping * torch.eye(len(wanted), dtype=torch.float64)
            change = free.T @ torch.linalg.solve(inner, missing)
            self._move(change)
            found = self._differentiated()
            if float((wanted - found[0]).norm()) < float(missing.norm()):
                (differences, slopes), damping = found, damping / 5
            else:
                self._move(-change)
                damping *= 5
        return [p.detach().clone() for p in self._trained], self._differentiated()[1]

    @torch.no_grad()
    def _move(self, change: Tensor) -> None:
        parts = torch.split(change, [p.numel() for p in self._trained])
        for parameter, part in zip(self._trained, parts, strict=True):
            parameter.add_(part.reshape(parameter.shape))

    def _differentiated(self) -> tuple[Tensor, Tensor]:
        """[P·S] the first logit less the second, and [P·S, N] their slopes by the parameters."""
        differences, rows = [], []
        needed = [p.requires_grad for p in self._trained]
        with torch.inference_mode(False), torch.enable_grad():  # it may sample in that mode
            for parameter in self._trained:
                parameter.requires_grad_(True)
            for prompt in self.prompts:
                for state in self.states:
                    z = self._logits(self._model, (*prompt, *state))
                    difference = z[0] - z[1]
                    found = torch.autograd.grad(difference, self._trained, allow_unused=True)
                    differences.append(difference.detach())
                    rows.append(flat(found, self._trained).double())
        for parameter, was in zip(self._trained, needed, strict=True):
            parameter.requires_grad_(was)
        return torch.stack(differences), torch.stack(rows)

    def logits(self, model: Any) -> list[list[list[float]]]:
        """[P, S, V] of a model."""
        with torch.no_grad():
            return self.table(lambda tokens: self._logits(model, tokens).tolist())

    def table(self, of: Callable[[Tokens], list[float]]) -> list[list[list[float]]]:
        """[P, S, V] what a function returns for the tokens of each state."""
        return [[of((*prompt, *state)) for state in self.states] for prompt in self.prompts]

    def gradient(self) -> Tensor:
        """[N] the trained parameters' gradients as they are now."""
        return flat([p.grad for p in self._trained], self._trained).double()

    def as_trained(
        self, gradient: Tensor, table: Tensor, given: list[Tokens]
    ) -> tuple[Tensor, float]:
        """Gradients at the logits, scaled as the parameters' gradient is, and what they leave.

        Args:
            gradient: [N] that the optimizer meets.
            table: [B, W, V] at the logits of each row.
            given: The answers of the rows, prompt by prompt.
        """
        by_state = torch.zeros(len(self._slopes), dtype=torch.float64)
        copies = len(given) // len(self.prompts)
        for row, answer in enumerate(given):
            first = row // copies * len(self.states)
            for t in range(len(answer)):
                by_state[first + self.states.index(answer[:t])] += table[row, t, 0]
        explained = by_state @ self._slopes
        size = float(gradient.norm())
        if size < _NOTHING:  # it is multiplied by 0, or what rows have at a state cancels there
            cancels = float(explained.norm()) < _NOTHING
            return (table if cancels else torch.zeros_like(table)), 0.0
        squared = float(explained @ explained)
        scale = float(gradient @ explained) / squared if squared else 0.0
        left = float((gradient - scale * explained).norm()) / size
        as_it_is = abs(scale - 1.0) < _SINGLE or left > _ELSEWHERE * min(abs(scale - 1.0), 1.0)
        return (table if as_it_is else scale * table), left

    def _logits(self, model: Any, tokens: Tokens) -> Tensor:
        logits: Tensor = model(input_ids=torch.tensor([tokens])).logits[0, -1, :VOCABULARY]
        return logits.double()


_SPREAD = 0.8  # standard deviation of the first logit less the second
_TRIALS, _CLOSE = 60, 0.05
_NOTHING = 1e-10  # a gradient's norm below it is the rounding of single precision
_SINGLE = 1e-5
_ELSEWHERE = 0.01  # share, of what a scale changes, that comes from elsewhere: it is none then


@dataclass
class Pass:
    """The steps of one pass over the answers."""

    steps: int = 0
    scored: set[int] = field(default_factory=set)
    _table: Any = 0.0
    _gradient: Any = 0.0
    _prompts: AtPrompts = field(default_factory=dict)

    def add(self, table: Tensor, gradient: Tensor, scored: set[int], prompts: AtPrompts) -> None:
        """Add a step: its gradients [B, W, V] and [N], its rows, and what is at their prompts."""
        self.steps += 1
        self.scored |= scored
        for state, each in prompts.items():
            self._prompts[state] = self._prompts.get(state, 0.0) + each
        self._table, self._gradient = self._table + table, self._gradient + gradient

    def mean(self) -> tuple[Tensor, Tensor]:
        """The mean of the steps' gradients."""
        return self._table / self.steps, self._gradient / self.steps

    @property
    def prompt_share(self) -> float:
        """How much of the gradient is at prompts: what rows add cancels if weights sum to 0."""
        size = float(self._table.abs().max())
        shares = (float(each.abs().max()) / size for each in self._prompts.values() if size)
        return max(shares, default=0.0)
