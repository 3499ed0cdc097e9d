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
    """The numbers of one tensor.

    Attributes:
        shape: The tensor's shape; complex tensors have a last axis of 2.
        dtype: Its dtype without the ``torch.`` prefix.
        values: Its entries in row-major order, at most the first ``KEPT``.
        minimum: The least of *all* entries; None if there is none. NaN if any is NaN.
        maximum: The greatest of all entries, likewise.
    """

    shape: tuple[int, ...]
    dtype: str
    values: tuple[float, ...]
    minimum: float | None
    maximum: float | None

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
    """One arrow of the backward pass: what a step hands to one of its inputs.

    Attributes:
        target: The ``id`` of the `Step` or `Leaf` that receives it; "" if it ends nowhere.
        gradient: What is handed on; None if the step hands on nothing here.
        factor: The local derivative as a formula in ``x`` (first input), ``y`` (second) and the
            forward value ``f``; "" if the operation is unknown.
        factor_value: The local derivative's numbers, where it is elementwise.
    """

    target: str
    gradient: Numbers | None
    factor: str = ""
    factor_value: Numbers | None = None


@dataclass(frozen=True)
class Step:
    """One operation of the forward pass and what it does to the gradient on the way back.

    Attributes:
        id: Unique in the explanation; "s1" is the first in forward order.
        name: What it is called, in words: "division", or "Categorical(probs=)" for a folded group.
        operation: The name of the autograd node: "DivBackward0"; for a group, of its last one.
        formula: The forward formula in ``x``, ``y``: "x / y"; "" if the operation is unknown.
        variable: The name of the user's variable that holds the value, if one does.
        value: The forward value; None if nothing recorded or saved it.
        gradient: The gradient that arrives, ∂(explained tensor)/∂(value).
        edges: What it hands to each of its inputs, in the order of the inputs.
        sources: The lines of code that ran it, the user's first.
        inner: The steps that a recognised group folds; empty for a single operation.
    """

    id: str
    name: str
    operation: str
    formula: str = ""
    variable: str = ""
    value: Numbers | None = None
    gradient: Numbers | None = None
    edges: tuple[Edge, ...] = ()
    sources: tuple[Source, ...] = ()
    inner: tuple[Step, ...] = ()

    def unfolded(self) -> Iterator[Step]:
        """The step, and those inside it."""
        yield self
        for step in self.inner:
            yield from step.unfolded()


@dataclass(frozen=True)
class Contribution:
    """One summand of a leaf's gradient: the edge from ``step`` to the leaf.

    Attributes:
        step: The ``id`` of the step that hands it over.
        through: That step in words: "through the sum".
        gradient: The summand, of the leaf's shape.
    """

    step: str
    through: str
    gradient: Numbers


@dataclass(frozen=True)
class Leaf:
    """A tensor that gradients end in, and the summands of its gradient.

    Attributes:
        id: Unique in the explanation: "probs" or "leaf2".
        name: The user's name for it: "probs", "policy.0.weight".
        value: Its value.
        gradient: ∂(explained tensor)/∂(leaf), the sum of the contributions.
        contributions: One for each edge that arrives.
    """

    id: str
    name: str
    value: Numbers
    gradient: Numbers | None
    contributions: tuple[Contribution, ...] = ()


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
    """The gradient, a row an entry.

    Attributes:
        title: What it shows: "∂ prob / ∂ probs".
        axis: What a row is: "category", "entry".
        rows: The label of each row.
        columns: Its columns.
        selected: The rows that were drawn; a renderer may mark them.
        omitted: How many further rows there are, not shown.
        note: A sentence that belongs under it, or "".
    """

    title: str
    axis: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    selected: tuple[int, ...] = ()
    omitted: int = 0
    note: str = ""


@dataclass(frozen=True)
class Term:
    """One piece of a rule with its numbers.

    Attributes:
        symbol: How the equation writes it: "w" or "−1/Σw".
        kind: A symbol of the equation; a summand of the log-probability's gradient; or the factor
            that the summands are multiplied by.
        meaning: What it stands for: "probs"; "" for a summand.
        value: Its numbers.
    """

    symbol: str
    kind: Literal["symbol", "summand", "factor"]
    meaning: str
    value: Numbers


@dataclass(frozen=True)
class RuleStatement:
    """A closed form with the user's numbers put in.

    Attributes:
        name: The rule in words.
        parameter: What it differentiates with respect to.
        coordinates: The convention, where there are several; else "".
        equation: The formula in Unicode: "∂ log π(a)/∂w_k = [k = a]/w_k − 1/Σw".
        terms: Each symbol or summand with its numbers.
        result: What the formula gives.
        reference: Author, year, equation.
        conventions: Every convention of the parameter side by side; None if there is only one.
        others: The same statement in each of the other conventions.
    """

    name: str
    parameter: str
    coordinates: str
    equation: str
    terms: tuple[Term, ...]
    result: Numbers
    reference: str
    conventions: Table | None = None
    others: tuple[RuleStatement, ...] = ()


@dataclass(frozen=True)
class Check:
    """A statement that was computed to be true or false.

    Attributes:
        statement: What is compared: "rule = autograd through torch".
        passed: Whether ``deviation <= tolerance``.
        deviation: The largest deviation found; NaN if a number was not finite.
        tolerance: The deviation that rounding explains.
        detail: Why it failed, or what was not compared; "" if there is nothing to say.
    """

    statement: str
    passed: bool
    deviation: float
    tolerance: float
    detail: str = ""


@dataclass(frozen=True)
class Expectation:
    """A common wrong expectation that applies here, and the answer to it.

    Attributes:
        expected: What one expects: "0 for what was not sampled".
        answer: Why it is otherwise, with the user's numbers.
        question: The number of the worked question in ``eligibility explain --question``; 0: none.
        evidence: What a script must do to show that it expects this: "gradient" (look at one),
            "value" (look at the value of the loss); "" where the numbers themselves are enough.
    """

    expected: str
    answer: str
    question: int = 0
    evidence: Literal["", "gradient", "value", "intermediate"] = ""


@dataclass(frozen=True)
class Subject:
    """What was asked: enough to ask it again.

    Attributes:
        kind: "rule", "graph", or "question" for a worked answer.
        of: What is differentiated: "log_prob", "prob", or the name of the user's tensor.
        wrt: The parameters or leaves it is differentiated with respect to.
        family: The distribution's class name; "" for a graph.
        parameters: The name and the numbers of each parameter the distribution was given.
        outcome: The value whose probability is explained.
        coordinates: The convention that was asked for; "" if the parameter has one only.
    """

    kind: Literal["rule", "graph", "question"]
    of: str
    wrt: tuple[str, ...]
    family: str = ""
    parameters: tuple[tuple[str, Numbers], ...] = ()
    outcome: Numbers | None = None
    coordinates: str = ""
