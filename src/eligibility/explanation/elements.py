"""The elements of an explanation. Builders fill them in; renderers only read them.

Everything is a plain Python value, so that it survives JSON and needs no torch to be shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# What a column of numbers means: a renderer may draw bars for probabilities and gradients.
Role = Literal["parameter", "probability", "outcome", "contribution", "gradient", "convention"]


@dataclass(frozen=True)
class Numbers:
    """The numbers of one tensor."""

    shape: tuple[int, ...]  # the tensor's shape; complex tensors have a last axis of 2
    dtype: str  # its dtype without the ``torch.`` prefix
    values: tuple[float, ...]  # its entries in row-major order, at most the first ``KEPT``
    # The least of *all* entries; None if there is none. NaN if any is NaN.
    minimum: float | None
    maximum: float | None  # the greatest of all entries, likewise

    @property
    def size(self) -> int:
        """The number of entries of the tensor, kept here or not."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Source:
    """One line of code: ``role`` says whether it is the user's or the library's."""

    file: str
    line: int
    code: str
    role: Literal["user", "library"]

    @property
    def place(self) -> str:
        """The last two parts of the path, and the line."""
        return f"{'/'.join(self.file.replace(chr(92), '/').split('/')[-2:])}:{self.line}"


@dataclass(frozen=True)
class Edge:
    """One arrow of the backward pass: what a step hands to one of its inputs."""

    target: str  # the ``id`` of the `Step` or `Leaf` that receives it; "" if it ends nowhere
    gradient: Numbers | None  # what is handed on; None if the step hands on nothing here
    # The local derivative as a formula in ``x`` (first input), ``y`` (second) and the forward value
    # ``f``; "" if the operation is unknown.
    factor: str = ""
    factor_value: Numbers | None = None  # the local derivative's numbers, where it is elementwise


@dataclass(frozen=True)
class Step:
    """One operation of the forward pass and what it does to the gradient on the way back."""

    id: str  # unique in the explanation; "s1" is the first in forward order
    # What it is called, in words: "division", or "Categorical(probs=)" for a folded group.
    name: str
    operation: str  # the name of the autograd node: "DivBackward0"; for a group, of its last one
    # The forward formula in ``x``, ``y``: "x / y"; "" if the operation is unknown.
    formula: str = ""
    variable: str = ""  # the name of the user's variable that holds the value, if one does
    value: Numbers | None = None  # the forward value; None if nothing recorded or saved it
    gradient: Numbers | None = None  # the gradient that arrives, ∂(explained tensor)/∂(value)
    edges: tuple[Edge, ...] = ()  # what it hands to each of its inputs, in the order of the inputs
    sources: tuple[Source, ...] = ()  # the lines of code that ran it, the user's first
    # The steps that a recognised group folds; empty for a single operation.
    inner: tuple[Step, ...] = ()

    def unfolded(self) -> Iterator[Step]:
        """The step, and those inside it."""
        yield self
        for step in self.inner:
            yield from step.unfolded()


@dataclass(frozen=True)
class Contribution:
    """One summand of a leaf's gradient: the edge from ``step`` to the leaf."""

    step: str  # the ``id`` of the step that hands it over
    through: str  # that step in words: "through the sum"
    gradient: Numbers  # the summand, of the leaf's shape


@dataclass(frozen=True)
class Leaf:
    """A tensor that gradients end in, and the summands of its gradient."""

    id: str  # unique in the explanation: "probs" or "leaf2"
    name: str  # the user's name for it: "probs", "policy.0.weight"
    value: Numbers
    gradient: Numbers | None  # ∂(explained tensor)/∂(leaf), the sum of the contributions
    contributions: tuple[Contribution, ...] = ()  # one for each edge that arrives


@dataclass(frozen=True)
class Column:
    """One column of a table: a title, what it means, and an entry a row; None is an empty cell."""

    title: str
    role: Role
    values: tuple[float | None, ...]

    def at(self, row: int) -> float | None:
        """The entry of a row; None beyond the last one."""
        return self.values[row] if row < len(self.values) else None


@dataclass(frozen=True)
class Table:
    """The gradient, a row an entry."""

    title: str  # what it shows: "∂ prob / ∂ probs"
    axis: str  # what a row is: "category", "entry"
    rows: tuple[str, ...]  # the label of each row
    columns: tuple[Column, ...]
    selected: tuple[int, ...] = ()  # the rows that were drawn; a renderer may mark them
    omitted: int = 0  # how many further rows there are, not shown
    note: str = ""  # a sentence that belongs under it, or ""


@dataclass(frozen=True)
class Term:
    """One piece of a rule with its numbers."""

    symbol: str  # how the equation writes it: "w" or "−1/Σw"
    # A symbol of the equation; a summand of the log-probability's gradient; or the factor that the
    # summands are multiplied by.
    kind: Literal["symbol", "summand", "factor"]
    meaning: str  # what it stands for: "probs"; "" for a summand
    value: Numbers


@dataclass(frozen=True)
class RuleStatement:
    """A closed form with the user's numbers put in."""

    name: str  # the rule in words
    parameter: str  # what it differentiates with respect to
    coordinates: str  # the convention, where there are several; else ""
    equation: str  # the formula in Unicode: "∂ log π(a)/∂w_k = [k = a]/w_k − 1/Σw"
    terms: tuple[Term, ...]  # each symbol or summand with its numbers
    result: Numbers  # what the formula gives
    reference: str  # author, year, equation
    # Every convention of the parameter side by side; None if there is only one.
    conventions: Table | None = None
    others: tuple[RuleStatement, ...] = ()  # the same statement in each of the other conventions


@dataclass(frozen=True)
class Check:
    """A statement that was computed to be true or false."""

    statement: str  # what is compared: "rule = autograd through torch"
    passed: bool  # whether ``deviation <= tolerance``
    deviation: float  # the largest deviation found; NaN if a number was not finite
    tolerance: float  # the deviation that rounding explains
    detail: str = ""  # why it failed, or what was not compared; "" if there is nothing to say


@dataclass(frozen=True)
class Expectation:
    """A common wrong expectation that applies here, and the answer to it."""

    expected: str  # what one expects: "0 for what was not sampled"
    answer: str  # why it is otherwise, with the user's numbers
    # The number of the worked question in ``eligibility explain --question``; 0: none.
    question: int = 0
    # What a script must do to show that it expects this: "gradient" (look at one), "value" (look at
    # the value of the loss); "" where the numbers themselves are enough. "intermediate" (look at
    # the ``.grad`` of an intermediate result) is never shown for a script: which of them it reads
    # is seen while it runs, and answered under WHY .grad IS None, with its line and its name.
    evidence: Literal["", "gradient", "value", "intermediate"] = ""


@dataclass(frozen=True)
class Subject:
    """What was asked: enough to ask it again."""

    kind: Literal["rule", "graph", "question"]  # "rule", "graph", or "question" for a worked answer
    of: str  # what is differentiated: "log_prob", "prob", or the name of the user's tensor
    wrt: tuple[str, ...]  # the parameters or leaves it is differentiated with respect to
    family: str = ""  # the distribution's class name; "" for a graph
    # The name and the numbers of each parameter the distribution was given.
    parameters: tuple[tuple[str, Numbers], ...] = ()
    outcome: Numbers | None = None  # the value whose probability is explained
    coordinates: str = ""  # the convention that was asked for; "" if the parameter has one only
