"""A trained model's gradient at its logits: of each row's positions, and of each state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eligibility.audit.trainers.answers import Tokens, parsed, states
from eligibility.audit.trainers.tiny import LENGTH, VOCABULARY


class Rows:
    """Gradients at the logits of every row and position that the program scores.

    Logits are a matrix times the last hidden state, and there are more features than tokens. So the
    gradient by the hidden state determines the one by the logits, also where a program multiplies
    by the matrix itself and never makes logits.

    Args:
        model: A causal language model of transformers.
    """

    def __init__(self, model: Any) -> None:
        self._head = model.get_output_embeddings().weight
        self._backbone = model.base_model
        while (
            hasattr(self._backbone, "base_model")
            and self._backbone.base_model is not self._backbone
        ):
            self._backbone = self._backbone.base_model
        self._backbone.register_forward_hook(self._after_forward, with_kwargs=True)
        self._expected: list[tuple[Tokens, Tokens]] = []
        self._found: list[tuple[list[list[int]], Tensor]] = []

    def expect(self, prompts: list[Tokens], given: list[Tokens]) -> None:
        """The answers of the next outcome, prompt by prompt."""
        copies = len(given) // len(prompts)
        self._expected = [(prompts[i // copies], answer) for i, answer in enumerate(given)]
        self._found.clear()

    def _after_forward(self, module: Any, args: Any, options: Any, output: Any) -> None:
        hidden = output[0]
        ids = options.get("input_ids", args[0] if args else None)
        if ids is None or not hidden.requires_grad:
            return
        rows = ids.tolist()
        hidden.register_hook(
            lambda gradient: self._found.append((rows, gradient.detach().double()))
        )

    def collected(self, steps: int) -> tuple[Tensor, float]:
        """[B, W, V] the mean of the steps' gradients, and the largest share that is at a prompt."""
        table = torch.zeros(len(self._expected), LENGTH, VOCABULARY, dtype=torch.float64)
        inverse = torch.linalg.pinv(self._head.detach().double()[:VOCABULARY])
        elsewhere = 0.0
        free = list(range(len(self._expected)))
        for rows, hidden in self._found:
            gradient = hidden @ inverse  # [b, T, V]
            for row, each in zip(rows, gradient, strict=True):
                prompt, answer, start = parsed(row)
                place = self._place(prompt, answer, free)
                width = min(LENGTH, len(row) - start)
                table[place, :width] += each[start - 1 : start - 1 + width]
                elsewhere = max(
                    elsewhere, float(each[: start - 1].abs().max()) if start > 1 else 0.0
                )
            if not free:
                free = list(range(len(self._expected)))
        self._found.clear()
        size = float(table.abs().max())
        return table / steps, elsewhere / size if size else 0.0

    def _place(self, prompt: Tokens, answer: Tokens, free: list[int]) -> int:
        """Which row of the outcome it is; the same one twice only when all have been met."""
        same = [i for i, known in enumerate(self._expected) if known == (prompt, answer)]
        place = next((i for i in same if i in free), same[0])
        if place in free:
            free.remove(place)
        return place


class StateWeights:
    """The logits of the states, and what a gradient by the parameters does to them.

    Args:
        model: What is trained.
        prompts: Tokens of each prompt.
    """

    def __init__(self, model: Any, prompts: list[Tokens]) -> None:
        self._model, self._prompts = model, prompts
        self._trained = [p for p in model.parameters() if p.requires_grad] or list(
            model.parameters()
        )
        self.parameters = sum(p.numel() for p in self._trained)
        self._slopes = torch.empty(0)
        self._kept: list[tuple[list[Tensor], Tensor]] = []  # parameters and slopes of each policy
        self._visits: list[tuple[int, int, int]] = []  # row, position, state

    def fit(self, seed: int, drift: float = 0.0) -> None:
        """Give the states generic logits; with a drift, also those of a later policy.

        Parameters that are 0 stay it. Where no parameters give these logits, the nearest are kept.

        Args:
            seed: Of the logits.
            drift: By how much log π(token) of the later policy differs at most.
        """
        generator = torch.Generator().manual_seed(seed)
        count = len(self._prompts) * len(states())
        wanted = _SPREAD * torch.randn(count, generator=generator, dtype=torch.float64)
        self._kept = [self._approached(wanted, _CLOSE)]
        if drift:
            change = 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
            wanted = self._differentiated()[0] + 0.8 * drift * change
            self._kept.append(self._approached(wanted, 0.1 * drift))
        self.take(0)

    @torch.no_grad()
    def take(self, policy: int) -> None:
        """Be the policy of the rollout, 0, or the later one, 1."""
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
        with torch.enable_grad():
            for parameter in self._trained:
                parameter.requires_grad_(True)
            for prompt in self._prompts:
                for state in states():
                    z = self._logits(self._model, (*prompt, *state))
                    difference = z[0] - z[1]
                    found = torch.autograd.grad(difference, self._trained, allow_unused=True)
                    differences.append(difference.detach())
                    rows.append(self._flat(found))
        for parameter, was in zip(self._trained, needed, strict=True):
            parameter.requires_grad_(was)
        return torch.stack(differences), torch.stack(rows)

    def logits(self, model: Any) -> list[list[list[float]]]:
        """[P, S, V] of a model."""
        with torch.no_grad():
            return [
                [self._logits(model, (*p, *s)).tolist() for s in states()] for p in self._prompts
            ]

    def expect(self, given: list[Tokens]) -> None:
        """The answers of the next outcome, prompt by prompt."""
        index, copies = states().index, len(given) // len(self._prompts)
        self._visits = [
            (row, t, row // copies * len(states()) + index(answer[:t]))
            for row, answer in enumerate(given)
            for t in range(len(answer))
        ]

    def gradient(self) -> Tensor:
        """[N] the trained parameters' gradients as they are now."""
        return self._flat([p.grad for p in self._trained])

    def as_trained(self, gradient: Tensor, table: Tensor) -> tuple[Tensor, float]:
        """Gradients at the logits, scaled as the parameters' gradient is, and what they leave.

        Args:
            gradient: [N] that the optimizer meets.
            table: [B, W, V] at the logits of each row.
        """
        by_state = torch.zeros(len(self._slopes), dtype=torch.float64)
        for row, t, state in self._visits:
            by_state[state] += table[row, t, 0]
        explained = by_state @ self._slopes
        size = float(gradient.norm())
        if size < _NOTHING:
            return torch.zeros_like(table), 0.0
        squared = float(explained @ explained)
        scale = float(gradient @ explained) / squared if squared else 0.0
        left = float((gradient - scale * explained).norm()) / size
        return (table if abs(scale - 1.0) < _SINGLE else scale * table), left

    def _logits(self, model: Any, tokens: Tokens) -> Tensor:
        logits: Tensor = model(input_ids=torch.tensor([tokens])).logits[0, -1, :VOCABULARY]
        return logits.double()

    def _flat(self, gradients: Any) -> Tensor:
        pairs = zip(gradients, self._trained, strict=True)
        return torch.cat(
            [
                (torch.zeros_like(p) if g is None else g.detach()).double().flatten()
                for g, p in pairs
            ]
        )


_SPREAD = 0.8  # standard deviation of the first logit less the second
_TRIALS, _CLOSE = 60, 0.05
_NOTHING = 1e-10  # a gradient's norm below it is the rounding of single precision
_SINGLE = 1e-5
