"""What a program's loss does on its way from the model's logits: for the line of a finding.

One branch records every operation of torch's: the line that called it, the operations that made
what it read, and the tokens whose logits still move its result. Another one, with rewards of the
other sign, shows what follows the rewards, also where these are numbers of Python's.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.interception.graph import nodes_below, normalised_along_rows
from eligibility.audit.language.directions import flat
from eligibility.audit.language.recording import (
    Operation,
    Recorder,
    tensors_in,
    with_fields,
)
from eligibility.audit.trainers.answers import Tokens, parsed
from eligibility.audit.trainers.scored import Scored
from eligibility.audit.trainers.tiny import SYMBOLS
from eligibility.audit.user_code import user_place

POLICY = ("logits", "sequence_logits")
BEHAVIOUR = ("old_log_probs",)
REFERENCE = ("ref_logits",)
SAMPLED = ("tokens",)
Slopes = Sequence[Tensor | None]
_REWARDED = frozenset({"rewards"})
# Of functions that put numbers elsewhere, and decide nothing.
_MOVES = {
    "to", "cpu", "cuda", "clone", "detach", "contiguous", "__getitem__", "view", "reshape",
    "squeeze", "unsqueeze", "unbind", "split", "chunk", "stack", "cat", "concat", "pad", "expand",
    "repeat", "flatten",
}  # fmt: skip
_MOST = 3000  # operations
_NORMALISING = frozenset({"log_softmax", "softmax", "logsumexp", "cross_entropy"})


class LoopRecorder(Recorder):
    """Records the operations of one branch, up to where its answers have been trained on once."""

    def __init__(self) -> None:
        super().__init__(user_place)
        self.live = True
        self._losses: list[int] = []
        self._logits: list[Tensor] = []
        self._rows: list[tuple[Scored, int]] = []  # of each of them, with its first column
        self._temperature = 1.0
        self._attached = 0.0
        self._along_rows: list[Any] = []  # file and line of a softmax over positions

    def given(self, tensor: Any, made: Iterable[str]) -> None:
        """A tensor that the audit gives to the program."""
        if self.live and isinstance(tensor, Tensor):
            super().given(tensor, made)

    def scored(self, logits: Any, tags: Iterable[str], rows: Scored | None) -> None:
        """The logits of a forward pass."""
        if self.live and isinstance(logits, Tensor) and rows is not None:
            if logits.requires_grad:
                self._logits.append(logits)
                self._rows.append((rows, len(rows.rows[0]) - logits.shape[1]))
            super().given(logits, tags)

    def goes_backward(self, loss: Tensor) -> None:
        """A loss, before its gradient is computed."""
        if self.live:
            self._losses.append(self._makers.get(id(loss), -1))
            self._attached = max(self._attached, share_beside_logits(loss, self._logits))

    def met(self, func: Any, args: Any, options: Any, result: Any) -> None:
        """A call of torch's that was made."""
        if not self.live or len(self.operations) >= _MOST:
            return
        if getattr(func, "__name__", "") in _NORMALISING and self._logits:
            scaled = next(tensors_in((args, options)))
            self._temperature = _temperature(scaled, self._logits) or self._temperature
            node = getattr(result, "grad_fn", None)
            if node is not None and normalised_along_rows(node) == len(SYMBOLS):
                self._along_rows = self._along_rows or [*user_place()]
        super().met(func, args, options, result)

    def _note(self, name: str, tensor: Tensor, read: list[Tensor], made: Iterable[str]) -> None:
        super()._note(name, tensor, read, made)
        mark = zlib.crc32(tensor.detach().numpy().tobytes())
        reach = self._reach(tensor) if tensor.requires_grad and self._logits else []
        self.operations[-1] = replace(self.operations[-1], mark=mark, reach=reach)

    def _reach(self, tensor: Tensor) -> list[Any]:
        """Pass, row and column of all the logits that move a tensor."""
        slopes: Slopes = ()
        with suppress(RuntimeError):  # its graph may be freed
            slopes = _slopes(tensor, self._logits, _generic(tensor))
        return [
            (number, row, column)
            for number, slope in enumerate(slopes)
            if slope is not None
            for row, column in slope.abs().sum(-1).nonzero().tolist()
        ]

    def listed(self, given: list[Tokens]) -> dict[str, Any]:
        """What was recorded."""
        plain = []
        for each in self.operations:
            reach = [self._token(given, place) for place in each.reach]
            plain.append(vars(each) | {"made": [*each.made], "lost": [], "reach": reach})
        return {
            "operations": plain,
            "losses": self._losses,
            "temperature": self._temperature,
            "attached": self._attached,
            "along_rows": self._along_rows,
        }

    def _token(self, given: list[Tokens], place: tuple[int, int, int]) -> Any:
        number, row, column = place
        scored, first = self._rows[number]
        tokens = scored.rows[row]
        _, answer, start = parsed(tokens, len(tokens))
        if not scored.places:
            return (-1 - row - 1000 * number, first + column + 1 - start, len(answer))
        sampled = scored.places[row]
        return (sampled, first + column + 1 - start, len(given[sampled]))


def _temperature(scaled: Tensor, logits: list[Tensor]) -> float | None:
    """What logits were divided by before a softmax of ``scaled``; None: they are not in it."""
    if not scaled.requires_grad:
        return None
    slopes = _slopes(scaled.sum(), logits)
    moved = [slope[slope != 0] for slope in slopes if slope is not None and slope.any()]
    alike = bool(moved) and all(float(each.std(correction=0)) == 0.0 for each in moved)
    return 1.0 / float(moved[-1][0]) if alike and moved[-1][0] > 0 else None


def operations_of(recorded: dict[str, Any], turned: dict[str, Any]) -> tuple[Operation, ...]:
    """The operations that lead to a loss, in their order.

    Args:
        recorded: By one branch.
        turned: By another one, with rewards of the other sign.
    """
    plain, other = (
        [Operation(**each) for each in branch["operations"]] for branch in (recorded, turned)
    )
    reach = [frozenset(map(tuple, each.reach)) for each in plain]
    done = with_fields(_with_rewards(plain, other))
    losses = [number for number in recorded["losses"] if number >= 0]
    leading = sorted(_above(done, losses))
    lost = _lost(done, reach, leading, frozenset().union(*(reach[n] for n in losses)))
    found = []
    for number in leading:
        each = done[number]
        if not each.name or not each.place[0]:
            continue
        if "rewards" in each.made and not any(read & _REWARDED for read in each.read):
            each = replace(
                each,
                read=[*each.read, _REWARDED],
                graded=[*each.graded, False],
                sizes=[*each.sizes, 1],
            )
        found.append(
            replace(
                each,
                reach=_parts(reach[number]),
                lost=frozenset(lost.get(number, ())),
                positions=len(reach[number]),
            )
        )
    return tuple(found)


def _with_rewards(plain: list[Operation], turned: list[Operation]) -> list[Operation]:
    """The operations, of which those are made of rewards whose results change with their sign."""
    found: list[Operation] = []
    together = True  # as long as both branches do the same
    for number, each in enumerate(plain):
        other = turned[number] if number < len(turned) else None
        together = together and other is not None and other.place[1] == each.place[1]
        moved = together and other is not None and other.mark != each.mark
        own = frozenset(each.made) | (_REWARDED if moved else frozenset())
        found.append(replace(each, place=(each.place[0], each.place[1]), made=own))
    return found


def _above(done: list[Operation], ends: Iterable[int]) -> set[int]:
    """The operations that some results were made by, and these themselves."""
    waiting, found = list(ends), set[int]()
    while waiting:
        number = waiting.pop()
        if number >= 0 and number not in found:
            found.add(number)
            waiting += done[number].inputs
    return found


def _lost(
    done: list[Operation], reach: list[frozenset[Any]], leading: list[int], kept: frozenset[Any]
) -> dict[int, set[str]]:
    """Which operations lose an answer's first or last token for the loss, and not the others.

    Where it is multiplied by 0, or selected, it is lost where this was decided.
    """
    lost: dict[int, set[str]] = {}
    for number in leading:
        inputs, own = [i for i in done[number].inputs if i >= 0], reach[number]
        gone = frozenset().union(*(reach[i] for i in inputs)) - own - kept
        ends = {
            "first" if t == 0 else "last"
            for row, t, length in gone
            if t in (0, length - 1) and any((row, s, length) in own for s in range(length))
        }
        if ends:
            others = _above(done, (i for i in inputs if not reach[i]))
            decided = (i for i in others if done[i].logical and done[i].name not in _MOVES)
            lost.setdefault(max(decided, default=number), set()).update(ends)
    return lost


def _parts(reach: frozenset[Any]) -> frozenset[str]:
    """Where the tokens are, apart from the answers."""
    padding = any(t >= length for _, t, length in reach)
    prompt = any(t < 0 for _, t, _ in reach)
    return frozenset(["padding"] * padding + ["prompt"] * prompt)


def share_beside_logits(loss: Tensor, logits: Sequence[Tensor]) -> float:
    """How much of the slope of the gradient at the logits does not go through them.

    Parameters of one number are left out: the weight of a term may be learned with it.
    """
    made_from = nodes_below(loss.grad_fn, math.inf) if loss.grad_fn is not None else ()
    leaves = (node.variable for node in made_from if hasattr(node, "variable"))
    parameters = [leaf for leaf in leaves if leaf.numel() > 1]
    if not logits or not parameters:
        return 0.0
    with suppress(RuntimeError):  # something in it has no second derivative
        first = torch.autograd.grad(loss, logits, create_graph=True, allow_unused=True)
        moving = [slope for slope in first if slope is not None and slope.requires_grad]
        if not moving:
            return 0.0
        weighed = torch.stack([(_generic(slope) * slope).sum() for slope in moving]).sum()
        at_logits = _slopes(weighed, logits)
        pairs = [(z, s) for z, s in zip(logits, at_logits, strict=True) if s is not None]
        whole = _slopes(weighed, parameters)
        through: Slopes = [None] * len(parameters)
        if pairs:
            outputs, given = zip(*pairs, strict=True)
            through = _slopes(outputs, parameters, given)
        size = flat(whole, parameters).norm()
        beside = (flat(whole, parameters) - flat(through, parameters)).norm()
        return float(beside / size) if size else 0.0
    return 0.0


def _slopes(of: Any, by: Sequence[Tensor], given: Any = None) -> Slopes:
    return torch.autograd.grad(of, by, given, retain_graph=True, allow_unused=True)


def _generic(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 1.0 + torch.rand(like.shape, generator=generator, dtype=like.dtype)
