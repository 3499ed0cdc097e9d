"""The gradient as a table: a row an entry, a column for each thing that makes it up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice, product

from torch import Tensor

from eligibility.explanation.elements import Column, Leaf, Numbers, Role, Table
from eligibility.explanation.problem import Part, counts_of
from eligibility.explanation.sentences import say
from eligibility.explanation.wording import numbers_of, vector
from eligibility.rules.registry import find_rule

# Rows that a table shows; a reader who wants the rest has the tensors.
MOST_ROWS = 24
# Summands of a gradient that have a column each; STEPS lists them all.
_MOST_SUMMANDS = 3


def table_of(part: Part, gradient: Numbers) -> Table:
    """The table of one parameter: what it is, what was drawn, the summands, the gradient."""
    columns = [column(part.called, "parameter", part.parameter)]
    counts = _counts(part)
    if counts is not None:
        dist = part.problem.distribution()
        if part.parameter.shape == dist.probs.shape:
            columns.append(column("probability", "probability", dist.probs))
        columns.append(column("drawn", "outcome", counts))
    elif part.parameter.shape == part.problem.value.shape:
        columns.append(column("value", "outcome", part.problem.value.double()))
    columns += _summands(part)
    columns.append(_numbers_column("gradient", "gradient", gradient))
    if part.is_torchs and not part.agrees:
        columns.append(column("by the rule", "convention", part.result))
    size = part.parameter.numel()
    one_row = size == part.parameter.shape[-1:].numel()
    selected = [] if counts is None else counts.reshape(-1).nonzero().reshape(-1).tolist()
    return Table(
        title=f"∂ {part.of} / ∂ {part.called}",
        axis="entry" if counts is None else "category" if one_row else "row, category",
        rows=row_labels(part.parameter.shape),
        columns=tuple(columns),
        selected=tuple(index for index in selected if index < MOST_ROWS),
        omitted=max(0, size - MOST_ROWS),
        note=_note(part),
    )


def leaf_table(leaf: Leaf, of: str) -> Table:
    """The table of one leaf of a graph."""
    columns = [_numbers_column("value", "parameter", leaf.value)]
    if 2 <= len(leaf.contributions) <= _MOST_SUMMANDS:
        columns += [
            _numbers_column(part.through, "contribution", part.gradient)
            for part in leaf.contributions
        ]
    if leaf.gradient is not None:
        columns.append(_numbers_column("gradient", "gradient", leaf.gradient))
    return Table(
        title=f"∂ {of} / ∂ {leaf.name}",
        axis="entry",
        rows=row_labels(leaf.value.shape),
        columns=tuple(columns),
        omitted=max(0, leaf.value.size - MOST_ROWS),
    )


def leaf_summary(leaves: Sequence[Leaf], of: str) -> Table:
    """Many leaves in one table, a row a leaf."""
    shown = [leaf for leaf in leaves if leaf.gradient is not None]
    extremes = [leaf.gradient for leaf in shown if leaf.gradient is not None]
    return Table(
        title=f"∂ {of} / ∂ each leaf",
        axis="leaf",
        rows=tuple(leaf.name for leaf in shown[:MOST_ROWS]),
        columns=(
            Column("entries", "outcome", tuple(float(leaf.value.size) for leaf in shown)),
            Column("least gradient", "gradient", tuple(n.minimum for n in extremes)),
            Column("greatest gradient", "gradient", tuple(n.maximum for n in extremes)),
        ),
        omitted=max(0, len(shown) - MOST_ROWS),
    )


def conventions_table(part: Part) -> Table | None:
    """The eligibility in every convention of the parameter; None if there is only one."""
    if part.rule.coordinates is None:
        return None
    names = [name for name in part.conventions if name is not None]
    if len(names) < 2:
        return None
    rules = [find_rule(part.problem.distribution(), part.name, name) for name in names]
    shape = part.problem.parameters[part.name].shape
    columns = tuple(
        column(str(rule.coordinates), "convention", part.problem.eligibility(rule), shape[-1])
        for rule in rules
    )
    return Table(
        title=f"∂ log_prob / ∂ {part.name} in each convention",
        axis="category",
        rows=row_labels(shape),
        columns=columns,
        omitted=max(0, shape.numel() - MOST_ROWS),
        note="; ".join(f"{rule.coordinates}: {rule.equation}" for rule in rules),
    )


def row_labels(shape: Sequence[int]) -> tuple[str, ...]:
    """An index a row, at most as many as a table shows; axes of length 1 are left out."""
    kept = [axis for axis, length in enumerate(shape) if length != 1]
    indices = islice(product(*map(range, shape)), MOST_ROWS)
    return tuple(",".join(str(index[axis]) for axis in kept) or "0" for index in indices)


def _summands(part: Part) -> list[Column]:
    """The gradient's summands in torch's computation, or torch's gradient in other coordinates."""
    if part.rule.coordinates not in (None, "weights"):
        if part.leaf.gradient is None:
            return []
        return [_numbers_column("torch's rule", "convention", part.leaf.gradient)]
    if part.split:
        return [column(label, "contribution", g) for label, g in part.split.items()]
    if not 2 <= len(part.leaf.contributions) <= _MOST_SUMMANDS:
        return []
    return [
        _numbers_column(summand.through, "contribution", summand.gradient)
        for summand in part.leaf.contributions
    ]


def _counts(part: Part) -> Tensor | None:
    """How often each entry of the parameter was drawn, if it has one for each category."""
    if part.name not in ("probs", "logits") or not part.has_categories:
        return None
    categories = part.problem.parameters[part.name].shape[-1]
    return counts_of(part.problem, categories).sum_to_size(part.parameter.shape)


def _note(part: Part) -> str:
    """What the gradient of p is where that of log p was asked for, and the other way round."""
    if (
        part.asked is None
        or (part.is_torchs and not part.agrees)
        or part.eligibility.numel() > 8
        or not bool(part.eligibility.isfinite().all())
    ):
        return ""
    probability = part.problem.log_prob().exp()
    if part.asked == "prob":
        return say("note_prob", eligibility=vector(part.eligibility.reshape(-1).tolist()))
    if probability.numel() != 1:
        return ""
    scaled = (part.eligibility.reshape(-1) * probability.reshape(())).tolist()
    return say("note_log_prob", scaled=vector(scaled))


def column(title: str, role: Role, tensor: Tensor, width: int | None = None) -> Column:
    """A tensor as a column; rows of fewer than ``width`` entries end in an empty cell."""
    if width is not None and tensor.shape[-1] < width:
        # The free coordinates of one category are rows without an entry: −1 could not count them.
        rows = tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1]).tolist()
        values = [item for row in rows for item in (*row, *[None] * (width - len(row)))]
        return Column(title, role, tuple(values[:MOST_ROWS]))
    return _numbers_column(title, role, numbers_of(tensor))


def _numbers_column(title: str, role: Role, numbers: Numbers) -> Column:
    return Column(title, role, numbers.values[:MOST_ROWS])
