"""The graph as a picture: a column of boxes, forward from top to bottom, gradients back upwards.

One column is read like a text and fits a phone. Above each box stand the gradients that it hands
on; those that go to the box above run straight up, the others through lanes at the left.
"""

from __future__ import annotations

from dataclasses import dataclass

from eligibility.explanation.derivation import Edge, Explanation, Leaf, Numbers, Step
from eligibility.explanation.page.markup import Markup, element
from eligibility.explanation.wording import summary

# A picture of more boxes than this helps nobody; the list of steps remains.
MOST_BOXES = 60
# Sizes in units of the picture, which is drawn about one to one.
_WIDTH, _BOX, _ROW, _GAP, _LANE = 420, 42, 17, 13, 13
# Characters of numbers that fit on a line, and of a factor beside them.
_MOST_NUMBERS, _MOST_FACTOR = 40, 12


@dataclass(frozen=True)
class _Lane:
    """An edge that does not go straight up: its two boxes, and the lane it takes."""

    source: int
    target: int
    number: int


def picture(explanation: Explanation) -> Markup | None:
    """The graph as one SVG image; None if it has more boxes than help."""
    boxes = _in_order(explanation)
    if len(boxes) > MOST_BOXES:
        return None
    place = {box.id: index for index, box in enumerate(boxes)}
    lanes = _lanes(boxes, place)
    left = 10 + _LANE * len({lane.number for lane in lanes})
    parts: list[Markup] = []
    tops: list[int] = []
    y = 2
    for index, box in enumerate(boxes):
        if isinstance(box, Step):
            above = boxes[index - 1].id if index else ""
            parts += _edges(box, above, {b.id: b.name for b in boxes}, left, y)
            y += _GAP + _ROW * max(1, len(box.edges))
        elif index:
            y += _GAP
        tops.append(y)
        parts += _box(box, left, y)
        y += _BOX
    parts += [_lane_path(lane, tops, left) for lane in lanes]
    of = explanation.subject.of
    parts.append(_line(f"↑ 1, since ∂ {of} / ∂ {of} = 1", left + 16, y + _ROW + 2, "handed"))
    image = element(
        "svg",
        element("title", "The computation, and the gradient on each of its edges"),
        *parts,
        viewBox=f"0 0 {_WIDTH} {y + _ROW + 8}",
        role="img",
        class_="graph",
    )
    caption = (
        "Read it downwards for the values and upwards (↑) for the gradients. "
        "Where several arrows arrive, what they bring is added up."
    )
    return element("figure", image, element("figcaption", caption))


def _in_order(explanation: Explanation) -> list[Step | Leaf]:
    """The steps in forward order, each leaf just above the first step that uses it."""
    waiting = {leaf.id: leaf for leaf in explanation.leaves}
    boxes: list[Step | Leaf] = []
    for step in explanation.steps:
        targets = dict.fromkeys(edge.target for edge in step.edges)
        boxes += [waiting.pop(target) for target in targets if target in waiting]
        boxes.append(step)
    return boxes


def _lanes(boxes: list[Step | Leaf], place: dict[str, int]) -> list[_Lane]:
    """Lanes for the edges that skip boxes, short ones first: the nearest that is free."""
    skipping = {
        (index - place[edge.target], place[edge.target], index)
        for index, box in enumerate(boxes)
        if isinstance(box, Step)
        for edge in box.edges
        if place.get(edge.target, index) < index - 1
    }
    lanes: list[_Lane] = []
    for _, target, source in sorted(skipping):
        taken = {lane.number for lane in lanes if target <= lane.source and lane.target <= source}
        free = next(number for number in range(len(lanes) + 1) if number not in taken)
        lanes.append(_Lane(source, target, free))
    return lanes


def _box(box: Step | Leaf, left: int, top: int) -> list[Markup]:
    """A step's name, formula and value, or a leaf's name, value and gradient."""
    is_leaf = isinstance(box, Leaf)
    outline = element(
        "rect",
        class_="leaf" if is_leaf else "step",
        x=left,
        y=top,
        width=_WIDTH - left - 2,
        height=_BOX,
        rx=5,
    )
    first, second, right = top + 17, top + 34, _WIDTH - 12
    if isinstance(box, Leaf):
        return [
            outline,
            _line(box.name, left + 10, first, "name"),
            _line(_short(box.value), right, first, "value end", key=f"{box.id}.value"),
            _line("gradient", left + 10, second, "name"),
            _line(_short(box.gradient), right, second, "total end", key=f"{box.id}.gradient"),
        ]
    formula = element("tspan", box.formula, class_="formula", dx=8) if box.formula else None
    held = box.variable or "value"
    return [
        outline,
        element("text", box.name, formula, x=left + 10, y=first, class_="name"),
        _line(box.id, right, first, "aside end"),
        _line(held, left + 10, second, "aside"),
        _line(_short(box.value), right, second, "value end", key=f"{box.id}.value"),
    ]


def _edges(step: Step, above: str, names: dict[str, str], left: int, top: int) -> list[Markup]:
    """What a step hands on, a line an edge, and the arrow to the box above it."""
    parts = [
        _handed_on(f"{step.id}.edge.{index}", edge, names, left + 16, top + 5 + _ROW * (index + 1))
        for index, edge in enumerate(step.edges)
    ]
    if any(edge.target == above for edge in step.edges):
        height = _GAP + _ROW * len(step.edges)
        arrow = f"M{left + 7} {top + height}V{top + 2}m-4 6l4 -6l4 6"
        parts.append(element("path", d=arrow, class_="edge"))
    return parts


def _handed_on(key: str, edge: Edge, names: dict[str, str], x: int, y: int) -> Markup:
    """One gradient, where it goes, and the local factor that made it if that is short."""
    handed = _short(edge.gradient)
    beside = f"to {names.get(edge.target, 'outside this graph')}"
    if 0 < len(edge.factor) <= _MOST_FACTOR:
        beside = f"{beside}, × {edge.factor}"
    return element(
        "text",
        "↑ ",
        element("tspan", handed, data_key=key),
        element("tspan", beside, class_="aside", dx=8),
        x=x,
        y=y,
        class_="handed",
    )


def _lane_path(lane: _Lane, tops: list[int], left: int) -> Markup:
    """From the left side of one box up to the left side of another."""
    x = left - 8 - _LANE * lane.number
    start, end = tops[lane.source] + _BOX // 2, tops[lane.target] + _BOX // 2
    corners = f"M{left} {start}H{x + 5}q-5 0 -5 -5V{end + 5}q0 -5 5 -5H{left - 1}"
    return element("path", d=f"{corners}m-5 -4l5 4l-5 4", class_="edge")


def _line(content: str, x: int, y: int, class_: str, key: str | None = None) -> Markup:
    """A line of text; the script keeps it up to date if it has a ``key``."""
    return element("text", content, x=x, y=y, class_=class_, data_key=key)


def _short(numbers: Numbers | None) -> str:
    """All the numbers if they fit on a line, else their shape and range."""
    whole = summary(numbers)
    return whole if len(whole) <= _MOST_NUMBERS else summary(numbers, most=0)
