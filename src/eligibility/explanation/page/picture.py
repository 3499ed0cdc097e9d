"""The graph as a picture: a column of boxes, forward from top to bottom, gradients back upwards.

One column is read like a text and fits a phone. Above each box stand the gradients that it hands
on; those that go to the box above run straight up, the others through lanes at the left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eligibility.explanation.elements import Edge, Leaf, Numbers, Step
from eligibility.explanation.page.markup import Markup, element
from eligibility.explanation.wording import summary

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation

# With more boxes than this a picture does not help; the list of steps remains.
MOST_BOXES = 60
# Known subgraphs are drawn operation by operation if no more boxes than this come of it.
MOST_UNFOLDED = 16
# Sizes in units of the picture, which is drawn about one to one.
_WIDTH, _BOX, _ROW, _GAP, _LANE = 420, 42, 17, 13, 13
# Widths of a character: of numbers, which are monospaced, and of words on average.
_DIGIT, _LETTER = 6.7, 6.0
_MOST_NUMBERS = 40


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
    for step in _drawn(explanation.steps):
        targets = dict.fromkeys(edge.target for edge in step.edges)
        boxes += [waiting.pop(target) for target in targets if target in waiting]
        boxes.append(step)
    return boxes


def _drawn(steps: tuple[Step, ...]) -> list[Step]:
    """The steps that get a box: those of a known subgraph one by one, if they are few."""
    single = [part for step in steps for part in (step.inner or (step,))]
    if len(single) <= MOST_UNFOLDED:
        moved = {step.id: step.inner[-1].id for step in steps if step.inner}
    else:
        single = list(steps)
        moved = {part.id: step.id for step in steps for part in step.inner}
    return [
        replace(
            step, edges=tuple(replace(e, target=moved.get(e.target, e.target)) for e in step.edges)
        )
        for step in single
    ]


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
    width = _WIDTH - left - 2
    kind = "leaf" if isinstance(box, Leaf) else "step"
    outline = element("rect", class_=kind, x=left, y=top, width=width, height=_BOX, rx=5)
    first, second = top + 17, top + 34
    if isinstance(box, Leaf):
        room = width - 30 - _LETTER * len(box.name)
        return [
            outline,
            _line(box.name, left + 10, first, "name"),
            _numbers(box.value, first, room, "value", f"{box.id}.value"),
            _line("gradient", left + 10, second, "name"),
            _numbers(box.gradient, second, width - 85, "total", f"{box.id}.gradient"),
        ]
    room = width - 60 - _LETTER * (len(box.name) + len(box.id))
    formula = _fitting(box.formula, room) if box.formula else ""
    label = box.variable or "value"
    return [
        outline,
        element(
            "text",
            box.name,
            element("tspan", formula, class_="formula", dx=8) if formula else None,
            x=left + 10,
            y=first,
            class_="name",
        ),
        _line(box.id, _WIDTH - 12, first, "aside end"),
        _line(label, left + 10, second, "aside"),
        _numbers(box.value, second, width - 30 - _LETTER * len(label), "value", f"{box.id}.value"),
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
    """One gradient, where it goes, and the local factor that made it, as far as they fit."""
    handed, most = _shortened(edge.gradient, _WIDTH - x - 100)
    # Whatever numbers the script puts here, the text after them stays on the line.
    room = _WIDTH - x - 30 - _DIGIT * 0.9 * min(most, _MOST_NUMBERS)
    target = f"to {names.get(edge.target, 'outside this graph')}"
    whole = f"{target}, × {edge.factor}" if edge.factor else target
    beside = whole if _LETTER * len(whole) <= room else _fitting(target, room)
    return element(
        "text",
        "↑ ",
        element("tspan", handed, data_key=key, data_most=most),
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


def _numbers(numbers: Numbers | None, y: int, room: float, class_: str, key: str) -> Markup:
    """Numbers at the right side of a box; the script keeps them up to date."""
    shown, most = _shortened(numbers, room)
    return element(
        "text", shown, x=_WIDTH - 12, y=y, class_=f"{class_} end", data_key=key, data_most=most
    )


def _line(content: str, x: int, y: int, class_: str) -> Markup:
    return element("text", content, x=x, y=y, class_=class_)


def _shortened(numbers: Numbers | None, room: float) -> tuple[str, int]:
    """All the numbers if they fit, else their shape and range; and how many characters fit."""
    most = min(_MOST_NUMBERS, int(room / _DIGIT))
    whole = summary(numbers)
    return (whole if len(whole) <= most else summary(numbers, most=0)), most


def _fitting(text: str, room: float) -> str:
    """As much of a text as fits."""
    most = max(0, int(room / _LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}…" if most > 3 else ""
