"""Tables of numbers with a bar under each: sizes and signs are seen before they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from eligibility.explanation.elements import Column, Table
from eligibility.explanation.page.markup import Markup, element, join
from eligibility.explanation.wording import entry

# Columns whose numbers are gradients share one scale; probabilities have their own, from 0 to 1.
_GRADIENTS = ("contribution", "gradient", "convention")
# A leaf that is used more often than this has its further summands in the list of steps.
_MOST_SUMMANDS = 4


def table_html(table: Table) -> Markup:
    """A table; every element has its role, since on a phone its rows are laid out as cards."""
    table, summands = _without_most_summands(table)
    scale = scale_of(
        value for column in table.columns if column.role in _GRADIENTS for value in column.values
    )
    head = element(
        "tr",
        element("th", table.axis, scope="col", role="columnheader"),
        *(
            element("th", column.title, scope="col", role="columnheader", class_=column.role)
            for column in table.columns
        ),
        role="row",
    )
    body = [
        _row(label, index, table, index in table.selected, scale)
        for index, label in enumerate(table.rows)
    ]
    grid = element(
        "table",
        element("caption", table.title),
        element("thead", head, role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        role="table",
    )
    more = element("p", f"… and {table.omitted} more", class_="aside") if table.omitted else None
    left_out = f"The other {summands} summands are listed below the steps." if summands else None
    note = element("p", table.note, class_="aside note") if table.note else None
    others = element("p", left_out, class_="aside") if left_out else None
    return element("div", grid, more, others, note, class_="table")


def _without_most_summands(table: Table) -> tuple[Table, int]:
    """The table with at most this many columns of summands, and how many were left out."""
    summands = [column for column in table.columns if column.role == "contribution"]
    left_out = summands[_MOST_SUMMANDS:]
    kept = tuple(column for column in table.columns if column not in left_out)
    return replace(table, columns=kept), len(left_out)


def scale_of(values: Iterable[float | None]) -> tuple[float, float]:
    """The least and the greatest of the finite values and 0; never an empty range."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    return (low, high) if high > low else (0.0, 1.0)


def bar(value: float | None, scale: tuple[float, float]) -> Markup:
    """A bar from 0 to ``value``; an infinite one reaches the end of the scale."""
    if value is None or math.isnan(value):
        return Markup("")
    low, high = scale
    # In per mille of the scale: plain numbers whatever the scale is.
    zero, end = (1000 * (min(max(x, low), high) - low) / (high - low) for x in (0.0, value))
    return element(
        "svg",
        element("rect", class_="axis", x=_tenth(zero - 4), y=0, width=8, height=10),
        element(
            "rect",
            class_="down" if value < 0 else "up",
            x=_tenth(min(zero, end)),
            y=2,
            width=_tenth(abs(end - zero)),
            height=6,
        ),
        class_="bar",
        viewBox="-4 0 1008 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _tenth(value: float) -> str:
    return f"{value:.1f}"


def _row(
    label: str, index: int, table: Table, selected: bool, scale: tuple[float, float]
) -> Markup:
    mark = element("span", "drawn", class_="drawn") if selected else None
    header = element("th", join(label, mark), scope="row", role="rowheader")
    cells = [_cell(column, index, scale) for column in table.columns]
    return element("tr", header, *cells, role="row", class_="selected" if selected else None)


def _cell(column: Column, index: int, scale: tuple[float, float]) -> Markup:
    value = column.at(index)
    drawn = None
    if column.role in _GRADIENTS:
        drawn = bar(value, scale)
    elif column.role == "probability":
        drawn = bar(value, (0.0, 1.0))
    # The element `data` keeps the exact number for programs; readers see the rounded one.
    shown = (
        element("span", class_="number")
        if value is None
        else element("data", entry(column, index), class_="number", value=repr(value))
    )
    return element("td", shown, drawn, role="cell", class_=column.role, data_label=column.title)
