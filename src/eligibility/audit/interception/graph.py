"""Looks into the graph of a loss: ratios, products, and squared errors that chase a target.

Nodes know the line that made them where anomaly detection was on in the forward pass; so a fact
comes with the line of the operation itself, not with that of ``backward``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from eligibility.audit.trace import PRODUCT, RATIO, SOFTMAX, SQUARE, SWAPPED, TARGET, Fact

MAX_NODES = 4000
# Errors between a prediction and its target; a square is one if a difference is squared.
_ERRORS = ("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0", "L1LossBackward0")
# Operations that put a loss together from errors.
_COMBINING = (
    "AddBackward", "SubBackward", "RsubBackward", "MulBackward", "DivBackward", "Mean", "Sum",
    "Maximum", "Minimum", "Where", "Sqrt", "Unbind", "Split",
)  # fmt: skip
_SUMS = ("SubBackward0", "AddBackward0", "RsubBackward1")
_PRODUCTS = ("MulBackward", "DotBackward", "MvBackward", "MmBackward", "BmmBackward")
_MOST_PRODUCTS = 256  # more than a loss has outside its networks
_PASSED = ("Clamp", "Sum", "Mean")  # of log-ratios, before the exponential
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def inspect_graph(root: Any, update: int, trained: Iterable[Any]) -> list[Fact]:
    """The facts in the graph of a loss, whose node is ``root``, that leads to a step ``update``."""
    facts: list[Fact] = []
    index = {id(tensor): i for i, tensor in enumerate(trained)}
    for node in nodes_below(root):
        if (distance := _ratio(node)) is not None:
            facts.append(Fact(RATIO, place_of_node(node), distance, update))
        if clips_ratio(node) and _bounds_swapped(node):
            facts.append(Fact(SWAPPED, place_of_node(node), 0.0, update))
        width = normalised_along_rows(node)
        if width and sum(size > 1 for size in node._saved_result.shape) == 2:  # steps and actions
            facts.append(Fact(SOFTMAX, place_of_node(node), width, update))
        if side := _side_of_square(node):
            facts.append(Fact(SQUARE, place_of_node(node), side, update))
    for node, *alone in _attached_products(root):
        first, second = (sorted(index[leaf] for leaf in side if leaf in index) for side in alone)
        if first and second:
            facts.append(Fact(PRODUCT, place_of_node(node), len(first), update, (*first, *second)))
    for node, sides, leaves in _attached_targets(root):
        tensors = tuple(sorted(index[leaf] for leaf in leaves if leaf in index))
        place = _target_place(*sides) or place_of_node(node)
        facts.append(Fact(TARGET, place, 0.0, update, tensors))
    return facts


def normalised_along_rows(node: Any) -> int:
    """Size of the last dimension of a softmax of several rows along another one; 0 for others."""
    if not node.name().startswith(("SoftmaxBackward", "LogSoftmaxBackward")):
        return 0
    shape, dim = node._saved_result.shape, node._saved_dim
    dim -= 2**64 if dim >= 2**63 else 0  # torch says numbers below 0 without their sign
    rows = shape[dim] if shape and dim % len(shape) != len(shape) - 1 else 1
    return int(shape[-1]) if rows > 1 else 0


def _side_of_square(node: Any) -> int:
    """N of an [N, N] product, one factor of which is N numbers without a gradient; else 0."""
    if node.name() != "MulBackward0":
        return 0
    shape = node._input_metadata[0].shape
    if len(shape) != 2 or not 1 < shape[0] == shape[1]:
        return 0
    with suppress(RuntimeError):  # a factor was changed in place: backward is about to say so
        factors = [each for each in (node._saved_self, node._saved_other) if each is not None]
        if any(each.numel() == shape[0] and not each.requires_grad for each in factors):
            return int(shape[0])
    return 0


def nodes_below(root: Any, most: float = MAX_NODES) -> Iterator[Any]:
    """The nodes from which a loss was made, itself first; up to some of them."""
    waiting, seen, count = [root], {root}, 0
    while waiting and count < most:
        node, count = waiting.pop(), count + 1
        yield node
        for inner in _inputs(node):
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)


def _inputs(node: Any) -> list[Any]:
    return [inner for inner, _ in node.next_functions]


def _ratio(node: Any) -> float | None:
    """Largest distance from 1 of exp(new − old) or new/old, where only the new one is attached."""
    inputs = _inputs(node)
    difference = exponentiated_difference(node)
    if difference is not None:
        sides = _inputs(difference)
        if sides[0] is None or sides[1] is not None:
            return None
        return float((node._saved_result.detach() - 1.0).abs().max())
    if divides_by_probabilities(node) and inputs[0].name() == "ExpBackward0":
        new, old = inputs[0]._saved_result.detach(), node._saved_other.detach()
        return float((new / old - 1.0).abs().max())
    return None


def exponentiated_difference(node: Any) -> Any:
    """The node of a − b if ``node`` is exp(a − b), which may be reshaped, clamped or summed first.

    So it is in TorchRL, which adds a dimension, and where an action has several components.
    """
    if node.name() != "ExpBackward0":
        return None
    inner = _inputs(node)[0]
    while inner is not None and (_reshapes(inner) or inner.name().startswith(_PASSED)):
        inner = next((below for below in _inputs(inner) if below is not None), None)
    return inner if inner is not None and inner.name() == "SubBackward0" else None


def clips_ratio(node: Any) -> bool:
    """Whether ``node`` clips a ratio of probabilities, as PPO does."""
    return node.name().startswith("Clamp") and any(
        exponentiated_difference(inner) is not None or divides_by_probabilities(inner)
        for inner in _through_shapes(_inputs(node)[0])
    )


def watch_extremes(root: Any, told: Callable[[Any, bool], None]) -> None:
    """Call ``told`` while a loss is differentiated, at each extreme of a ratio's two objectives.

    With the node, and whether the loss falls with the smaller of the two objectives.
    """
    for node in nodes_below(root):
        extreme = node.name() in ("MinimumBackward0", "MaximumBackward0")
        if extreme and sum(map(_has_clip, _inputs(node))) == 1:
            node.register_prehook(partial(_tell_side, node, told))


def _tell_side(node: Any, told: Callable[[Any, bool], None], gradients: Sequence[Any]) -> None:
    slope = float(gradients[0].sum())
    if slope:
        told(node, (slope < 0) == (node.name() == "MinimumBackward0"))


def _has_clip(node: Any) -> bool:
    """Whether ``node`` is a clipped ratio, perhaps times something."""
    below = list(_through_shapes(node))
    factors = [inner for each in below if each.name().startswith("Mul") for inner in _inputs(each)]
    return any(map(clips_ratio, below)) or any(map(_has_clip, factors))


def place_of_node(node: Any) -> tuple[str, int]:
    """File and line of the user's statement that made a node."""
    for text in node.metadata.get("traceback_", []):
        found = _LINE.search(text)
        if found:
            return found.group(1), int(found.group(2))
    return "", 0


def _bounds_swapped(node: Any) -> bool:
    """Whether a clip returns its upper bound for every number."""
    low, high = getattr(node, "_saved_min", None), getattr(node, "_saved_max", None)
    return low is not None and high is not None and bool(np.all(np.greater(low, high)))


def divides_by_probabilities(node: Any) -> bool:
    """Whether probabilities are divided by numbers in (0, 1], as π_new/π_old is.

    A distance divided by a deviation, or logits divided by a temperature, do not count.
    """
    if node.name() != "DivBackward0":
        return False
    inputs = _inputs(node)
    if inputs[1] is not None or not _is_probability(inputs[0]):
        return False
    old = node._saved_other.detach()
    return old.ndim > 0 and bool(((old > 0) & (old <= 1)).all())


def _is_probability(node: Any) -> bool:
    """Whether what a node made is an exponential or a softmax, perhaps times something."""
    return any(
        inner.name().startswith(("Exp", "Softmax", "Sigmoid"))
        or (
            inner.name().startswith(("Mul", "Div", "Rsub", "Prod", "Gather"))
            and any(map(_is_probability, _inputs(inner)))
        )
        for inner in _through_shapes(node)
    )


def _attached_products(root: Any) -> Iterator[tuple[Any, set[int], set[int]]]:
    """The products of two factors that both carry a gradient; the leaves of each one alone."""
    products = (
        node
        for node in nodes_below(root)
        if node.name().startswith(_PRODUCTS) and None not in _inputs(node)
    )
    for node in islice(products, _MOST_PRODUCTS):
        first, second = (_parameters(inner) for inner in _inputs(node))
        yield node, first - second, second - first


def _attached_targets(root: Any) -> Iterator[tuple[Any, list[Any], set[int]]]:
    """The squared errors of a loss whose two sides lead to the same leaves; the sides, and those.

    Squares within a network, as where it normalises what a layer gives, are no errors.
    """
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        shared = ((each, _parameters(each[0]) & _parameters(each[1])) for each in _errors(node))
        sides, leaves = next((found for found in shared if found[1]), ([], set()))
        if leaves:
            yield node, sides, leaves
        elif _reshapes(node) or node.name().startswith(_COMBINING):
            inputs = [inner for inner in _inputs(node) if inner is not None and inner not in seen]
            seen.update(inputs)
            waiting += inputs


def _errors(node: Any) -> list[list[Any]]:
    """The two sides of each error that ``node`` squares, where both carry a gradient."""
    inputs = _inputs(node)
    squared = node.name() == "PowBackward0" and float(node._saved_exponent) == 2.0
    product = node.name() == "MulBackward0" and len(inputs) == 2 and inputs[0] is inputs[1]
    errors = [node] if node.name() in _ERRORS else []
    if squared or product:
        errors = [inner for inner in _through_shapes(inputs[0]) if inner.name() in _SUMS]
    return [sides for sides in map(_inputs, errors) if len(sides) > 1 and None not in sides[:2]]


def _parameters(node: Any) -> set[int]:
    """The leaves that are reached, as identities of their tensors."""
    return {id(inner.variable) for inner in nodes_below(node) if hasattr(inner, "variable")}


def _through_shapes(node: Any) -> Iterator[Any]:
    """The first nodes that compute: below stacking, viewing and indexing."""
    waiting, seen = [node], 0
    while waiting and seen < MAX_NODES:
        inner, seen = waiting.pop(), seen + 1
        if inner is None:
            continue
        if _reshapes(inner):
            waiting += _inputs(inner)
        else:
            yield inner


def _reshapes(node: Any) -> bool:
    words = ("Stack", "Cat", "View", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Select", "Index",
             "Expand", "Transpose", "Permute", "TBackward", "Neg", "Clone", "Alias",
             "Copy")  # fmt: skip
    return any(word in node.name() for word in words)


def _target_place(left: Any, right: Any) -> tuple[str, int] | None:
    """Where the side was computed that is a sum of a reward and a value, not a value alone."""
    for side in (left, right):
        for inner in _through_shapes(side):
            if inner.name() in ("AddBackward0", "MulBackward0", "SubBackward0"):
                return place_of_node(inner)
    return None


def line_text(file: str, line: int) -> str:
    """What a node keeps as its stack: one entry, in the form of those that Python prints."""
    return f'  File "{file}", line {line}\n'
