"""Where a program's rewards come from, and the probe's rewards in their place.

A reward is what a function of the user's returns for the text of an answer, or for a list of them;
or, if no such function moves the gradient, the numbers that the program makes a tensor of, one for
each answer; or those that it assigns to a name; or what a reward model says. Which of them it is,
is found by its effect alone; of a name, and of a function in which a model runs, also by what it
depends on.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eligibility.audit.costs import may_be_a_cost
from eligibility.audit.trainers.answers import Tokens, parsed
from eligibility.audit.trainers.spelling import words_in
from eligibility.audit.trainers.tiny import END, PROMPT_ONLY, WORD
from eligibility.audit.user_code import user_place

_DEPTH = 4
FUNCTION, TENSOR, ITEM, MODEL, NAME = "function", "tensor", "item", "model", "name"

# How names begin of what is made of rewards: in its place, nothing of how it is made would be seen.
_MADE_OF_REWARDS = ("adv", "baseline")

Place = tuple[str, str, int]


@dataclass(frozen=True)
class Source:
    """What may be a reward.

    Attributes:
        kind: One of the five.
        name: Name of the function, or of the variable assigned to.
        file: Where it is.
        line: Likewise.
        argument: Which argument of the function has the answers: its place, or its name.
        whole: Whether all the numbers that were seen are whole ones, as counts are.
        doubtful: Whether it may as well be made of rewards, or of the policy: it is a name, or a
            function in which a model runs, or whose result carries a gradient.
    """

    kind: str
    name: str = ""
    file: str = ""
    line: int = 0
    argument: int | str = 0
    whole: bool = False
    doubtful: bool = False

    @property
    def place(self) -> Place:
        """Kind, file and line, which tell it from others."""
        return (self.kind, self.file, self.line)

    @property
    def may_be_a_cost(self) -> bool:
        """Whether it is a name that does not mean a reward."""
        return self.kind == NAME and may_be_a_cost(self.name)

    def described(self) -> str:
        """In words."""
        if self.kind == FUNCTION:
            return f"{self.name}()"
        if self.kind == MODEL:
            return "the reward model"
        place = f"line {self.line} of {Path(self.file).name}"
        if self.kind == NAME:
            return f"`{self.name}` in {place}"
        return f"the numbers that {place} puts into a tensor"


class Scores:
    """Watches for rewards, and replaces those of the sources that were chosen.

    Args:
        reward: Reward of an answer.
        given: The answers so far, in the order of the program's rows; those of its last call.
    """

    def __init__(
        self,
        reward: Callable[[Tokens], float],
        given: Callable[[], tuple[list[Tokens], list[Tokens]]],
    ) -> None:
        self._reward, self._given = reward, given
        self.passes = 0  # of models, also of those without a head
        self.found: dict[Place, Source] = {}
        self.order: dict[Place, int] = {}
        self.chosen: dict[Place, Source] = {}
        self.silent: dict[Place, Source] = {}  # those that say 0
        # The numbers of those that are doubtful, with the answer of each; "" where it is unknown.
        self.said: dict[Place, list[tuple[float, str]]] = {}
        self.length = 0  # of the longest answer
        self._called: dict[Place, str] = {}  # names of functions
        self._begun = 0

    def watched(self, function: Any) -> Any:
        """The function, whose results may be replaced."""
        code = getattr(function, "__code__", None)
        if code is None:
            return function
        place = (FUNCTION, code.co_filename, code.co_firstlineno)
        self._called[place] = function.__name__

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self._begun += 1
            begun, passes = self._begun, self.passes
            result = function(*args, **options)
            if not self._given()[0]:
                return result
            doubtful = self.passes != passes or getattr(result, "requires_grad", False)
            return self._of_function(place, begun, (args, options), result, doubtful)

        return call

    def _of_function(
        self, place: Place, begun: int, given: tuple[Any, Any], result: Any, doubtful: bool
    ) -> Any:
        args, options = given
        known = self.chosen.get(place)
        if known is not None or place in self.silent:
            known = known or self.found[place]
            value = _argument(known.argument, args, options)
            answers = [self._answer(n) for n in _words(value) or ()]
            values = _as_numbers(result)
            if values is None or len(values[0]) != len(answers):
                return result
            return values[1]([self._said(place, answer) for answer in answers])
        if place in self.found and not doubtful:
            return result
        values = _as_numbers(result)
        for argument, value in (*enumerate(args), *options.items()):
            counts = _words(value)
            if values and counts and any(counts) and len(counts) == len(values[0]):
                about = place[1], place[2], argument, isinstance(result, bool), doubtful
                source = Source(FUNCTION, self._called[place], *about)
                self.found.setdefault(place, source)
                self.order.setdefault(place, begun)
                self.said.setdefault(place, []).extend(zip(values[0], _names(value), strict=True))
                break
        return result

    def of_tensor(self, data: Any, result: Tensor) -> Tensor:
        """A tensor that the program makes of numbers."""
        flat = _flat(data)
        if flat is None or not (rows := self._rows(len(flat))):
            return result
        place = (TENSOR, *user_place())
        self._note(place, flat)
        if place in self.chosen or place in self.silent:
            values = [self._said(place, answer) for answer in rows]
            return torch.tensor(values, dtype=torch.float64).reshape(result.shape)
        return result

    def of_item(self, tensor: Tensor, index: Any, value: Any) -> None:
        """A number that the program puts into a tensor with a place for each answer."""
        row = index[0] if isinstance(index, tuple) and index else index
        rows = self._rows(tensor.numel())
        plain = isinstance(row, int) and isinstance(value, numbers.Real)
        if not plain or not -len(rows) <= row < len(rows):
            return
        place = (ITEM, *user_place())
        self._note(place, [float(value)])
        if place in self.chosen or place in self.silent:
            tensor[index] = self._said(place, rows[row])

    def of_name(self, value: Any, name: str, file: str, line: int) -> Any:
        """What the program assigns to a name, made of the answers."""
        last_name = name.rpartition(".")[2].lower()
        made = isinstance(value, bool) or last_name.startswith(_MADE_OF_REWARDS)
        known = None if made else _as_numbers(value)
        if known is None:
            return value
        place = (NAME, file, line)
        before = self.said.setdefault(place, [])
        rows = self._rows(len(known[0]))
        if len(known[0]) == 1:  # one answer after the other, in the order in which they were drawn
            rows = self._given()[0][len(before) : len(before) + 1]
        before += [(number, "") for number in known[0]]
        if not rows:
            return value
        whole = all(float(x).is_integer() for x in known[0]) and len(set(before)) > 1
        self.found[place] = Source(NAME, name, file, line, 0, whole, doubtful=True)
        self.order.setdefault(place, self._begun)
        if place in self.chosen or place in self.silent:
            return known[1]([self._said(place, answer) for answer in rows])
        return value

    def of_model(self, ids: Any) -> Tensor:
        """[N, 1] what the probe's reward model says of rows of tokens."""
        place = (MODEL, "", 0)
        self.found.setdefault(place, Source(MODEL))
        self.order.setdefault(place, self._begun)
        rows = [self._answer(row.count(WORD)) for row in ids.tolist()]
        return torch.tensor([[self._said(place, answer)] for answer in rows])

    def candidates(self) -> list[Source]:
        """What was found: functions first, the outer before the inner; names last."""

        def rank(source: Source) -> tuple[bool, bool, bool, int]:
            elsewhere = source.kind not in (FUNCTION, MODEL)
            return source.doubtful, source.whole, elsewhere, self.order.get(source.place, 0)

        return sorted(self.found.values(), key=rank)

    def _rows(self, count: int) -> list[Tokens]:
        """The answers of the last call, or all answers, if they are that many; else none."""
        listed, last = self._given()
        return next((rows for rows in (last, listed) if len(rows) == count), [])

    def _note(self, place: Place, values: Sequence[float]) -> None:
        whole = all(float(value).is_integer() for value in values) and place[0] == TENSOR
        known = self.found.get(place)
        whole = whole and (known is None or known.whole)
        self.found[place] = Source(place[0], "", *place[1:], 0, whole)
        self.order.setdefault(place, self._begun)

    def _said(self, place: Place, answer: Tokens) -> float:
        return 0.0 if place in self.silent else self._reward(answer)

    def _answer(self, words: int) -> Tokens:
        """The answer with this number of words: it has ended if it is shorter than the longest."""
        said = (WORD,) * min(words, self.length)
        return said if len(said) == self.length else (*said, END)


def _argument(which: int | str, args: Any, options: Any) -> Any:
    if isinstance(which, str):
        return options.get(which)
    return args[which] if which < len(args) else None


def _words(value: Any) -> list[int] | None:
    """How many words of an answer are in a text, or in each of a list; None: it has no texts."""
    if isinstance(value, str):
        return [words_in(value)]
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() in (1, 2):
        rows = value.tolist() if value.dim() == 2 else [value.tolist()]
        return [_of_tokens(row) for row in rows]
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(token, int) for token in value):
            return [_of_tokens(list(value))]
        return [_inside(each, _DEPTH) for each in value]
    return None


def _names(value: Any) -> list[str]:
    """A name for each of the answers that `_words` counts, with its prompt if it has one."""
    rows = value.tolist() if isinstance(value, Tensor) else value
    alone = isinstance(rows, str) or isinstance(rows[0], int)
    return [
        str(parsed(row, len(row))[:2]) if isinstance(row, list) else str(row)
        for row in ([rows] if alone else rows)
    ]


def _of_tokens(row: list[int]) -> int:
    said = parsed(row, len(row))[1] if PROMPT_ONLY in row else row
    ended = said.index(END) if END in said else len(said)
    return list(said[:ended]).count(WORD)


def _inside(value: Any, depth: int) -> int:
    """The words in everything that a value holds."""
    if isinstance(value, str):
        return words_in(value)
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 1:
        return _of_tokens(value.tolist())
    if not depth:
        return 0
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return sum(_inside(each, depth - 1) for each in value)
    return _inside(vars(value), depth - 1) if hasattr(value, "__dict__") else 0


def _as_numbers(result: Any) -> tuple[list[float], Callable[[list[float]], Any]] | None:
    """The numbers in a result, and how to put others in their place; None: it is something else."""
    if isinstance(result, (numbers.Real, np.generic)):
        return [float(result)], lambda values: values[0]
    if isinstance(result, Tensor) and result.numel() == (result.shape or (1,))[0]:
        shape = result.shape
        return result.double().reshape(-1).tolist(), lambda v: torch.tensor(v).reshape(shape)
    if isinstance(result, np.ndarray) and result.ndim < 2 and result.dtype.kind in "fiub":
        return result.reshape(-1).tolist(), np.asarray
    if isinstance(result, list) and result and all(isinstance(x, numbers.Real) for x in result):
        return [float(x) for x in result], lambda values: values
    if isinstance(result, list) and result and all(map(_is_single, result)):
        return [float(x) for x in result], lambda values: [
            torch.tensor(value).reshape(each.shape)
            for value, each in zip(values, result, strict=True)
        ]
    if isinstance(result, dict):
        return _in_dictionary(result)
    if isinstance(result, tuple) and result and (first := _as_numbers(result[0])):
        return first[0], lambda values: (first[1](values), *result[1:])
    return None


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _in_dictionary(
    result: dict[Any, Any],
) -> tuple[list[float], Callable[[list[float]], Any]] | None:
    named = [key for key in result if "reward" in str(key) or "score" in str(key)]
    known = ((key, _as_numbers(result[key])) for key in named)
    key, found = next(((k, numbers) for k, numbers in known if numbers), (None, None))
    if found is None:
        return None
    values, put = found
    return values, lambda others: result | {key: put(others)}


def _flat(data: Any) -> list[float] | None:
    """The numbers of a list, or of a list of lists of one."""
    if isinstance(data, np.ndarray) and data.dtype.kind in "fiub":
        data = data.reshape(-1).tolist()
    if not isinstance(data, (list, tuple)) or not data:
        return None
    if all(isinstance(each, list) and len(each) == 1 for each in data):
        data = [each[0] for each in data]
    elif len(data) == 1 and isinstance(data[0], list):
        data = data[0]
    plain = (numbers.Real, np.generic)
    if all(isinstance(x, plain) or (isinstance(x, Tensor) and x.dim() == 0) for x in data):
        return [float(x) for x in data]
    return None
