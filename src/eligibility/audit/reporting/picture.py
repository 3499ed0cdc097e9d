"""Pictures of a report: the credit as two maps of squares, coefficients as bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eligibility.audit.reporting.report import Credit


_SQUARE, _LABEL, _GAP = 26, 210, 60  # pixels
UP, DOWN = "#1a7f37", "#b3261e"


def credit_picture(credit: Credit) -> str:
    """M as squares, the program's on the left and REINFORCE's on the right, on one scale."""
    largest = max((abs(v) for row in (*credit.given, *credit.reinforce) for v in row), default=0.0)
    columns, rows = len(credit.rewards), len(credit.decisions)
    width = _LABEL + 2 * columns * _SQUARE + _GAP
    height = (rows + 2) * _SQUARE
    second = _LABEL + columns * _SQUARE + _GAP
    parts = [
        f'<text x="{_LABEL}" y="14">this program</text>',
        f'<text x="{second}" y="14">REINFORCE</text>',
    ]
    for number, name in enumerate(credit.decisions):
        y = (number + 1.7) * _SQUARE
        parts.append(f'<text x="0" y="{y:.0f}">{escape(name)}</text>')
    for left, matrix in ((_LABEL, credit.given), (second, credit.reinforce)):
        parts += _squares(left, matrix, largest or 1.0, credit)
    return (
        '<div class="wide"><svg class="credit" role="img" '
        f'aria-label="credit of {rows} decisions by {columns} rewards" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"{''.join(parts)}</svg></div>"
    )


def _squares(
    left: int, matrix: Sequence[Sequence[float]], largest: float, credit: Credit
) -> list[str]:
    made = []
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            title = f"{credit.decisions[y]}, {credit.rewards[x]}: {value:.4g}"
            made.append(
                f'<rect x="{left + x * _SQUARE}" y="{(y + 1) * _SQUARE}" width="{_SQUARE - 2}" '
                f'height="{_SQUARE - 2}" fill="{UP if value >= 0 else DOWN}" '
                f'fill-opacity="{min(abs(value) / largest, 1.0):.3f}" stroke="#8b949e" '
                f'stroke-width="0.5"><title>{escape(title)}</title></rect>'
            )
    return made


def bar(share: float, colour: str) -> str:
    """A bar from the middle: to the right for a positive share, to the left for a negative one."""
    width = 60.0 * min(abs(share), 1.0)
    left = 60.0 if share >= 0 else 60.0 - width
    return (
        f'<svg width="120" height="14" role="img" aria-label="{share:.2f}">'
        '<line x1="60" y1="0" x2="60" y2="14" stroke="#8b949e"/>'
        f'<rect x="{left:.1f}" y="3" width="{width:.1f}" height="8" fill="{colour}"/></svg>'
    )
