"""A question with its answer, and what the answers are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eligibility.explanation.checks import check_equal, rounding_of
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.elements import Check, Column, Role, Subject, Table
from eligibility.explanation.wording import number

# The answers' numbers are of the order of 1, in float64.
_NOISE = 1e-15


@dataclass(frozen=True)
class Question:
    """A question and how to work out its answer."""

    number: int  # what the command line calls it
    asked: str  # the question in one line
    where: str  # where people asked it
    answer: Callable[[Question], Explanation]

    @property
    def title(self) -> str:
        """The first line of its answer."""
        return f"{self.number}. {self.asked}"


def answer(
    question: Question, why: tuple[str, ...], table: Table | None, checks: Sequence[Check]
) -> Explanation:
    """An explanation that is a table and what holds in it."""
    return Explanation(
        title=question.title,
        subject=Subject("question", str(question.number), ()),
        tables=() if table is None else (table,),
        why=why,
        steps=(),
        leaves=(),
        checks=tuple(checks),
        notes=(f"Asked in {question.where}.",),
    )


def table(title: str, axis: str, columns: dict[str, Tensor], rows: tuple[str, ...] = ()) -> Table:
    """One column a tensor, a row an entry; what float64 rounds to nearly 0 is 0."""
    size = max(tensor.numel() for tensor in columns.values())
    roles: dict[str, Role] = {"π": "probability", "p": "probability", "q": "probability"}
    shown = []
    for name, tensor in columns.items():
        values: list[float] = tensor.detach().reshape(-1).tolist()
        clean = tuple(0.0 if abs(value) < _NOISE else value for value in values)
        shown.append(Column(name, roles.get(name, "gradient"), clean))
    return Table(title, axis, rows or tuple(map(str, range(size))), tuple(shown))


def gradient_of(output: Tensor, leaf: Tensor) -> Tensor:
    """∂ output / ∂ leaf; the graph is kept."""
    (gradient,) = torch.autograd.grad(output, leaf, retain_graph=True)
    return gradient


def value_of(tensor: Tensor) -> str:
    """A scalar as the texts write it."""
    return number(float(tensor.detach()))


def log_prob_of(dist: Any, action: int) -> Tensor:
    """log π(action)."""
    result: Tensor = dist.log_prob(torch.tensor(action))
    return result


def equal(statement: str, left: Tensor, right: Tensor | float) -> Check:
    """Whether both sides agree to the rounding of their dtype."""
    left = left.detach()
    other = torch.as_tensor(right, dtype=left.dtype).detach().expand(left.shape)
    scale = torch.maximum(left.abs(), other.abs()).amax().clamp(min=1.0)
    rounding = rounding_of(scale, 3, torch.finfo(left.dtype).eps)
    return check_equal(statement, left, other, rounding, "the two sides differ")
