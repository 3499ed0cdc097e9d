"""Walking an autograd graph: its nodes, and the gradient on every edge while a backward runs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from torch import Tensor

from eligibility.explanation import autograd_internals

Node = Any  # torch.autograd.graph.Node; its attributes are not typed
# A place that a gradient can arrive at: an output of a node. (None, 0) is a constant.
Place = tuple[Node, int]
Arrival = tuple[Node, Tensor]
Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Flow:
    """What went through one node: gradients in, one an output, and out, one an input."""

    arrived: Gradients
    handed_on: Gradients


@dataclass(frozen=True)
class End:
    """A tensor in which gradients are collected, and its place."""

    tensor: Tensor
    place: Place


@dataclass
class Graph:
    """The nodes between one tensor and the ends, and what flowed through them."""

    # Every node between, inputs before what uses them, in the order they were made.
    nodes: list[Node]
    ends: list[End]  # where gradients are collected
    # What went through each of ``nodes`` in the backward pass that was watched.
    flows: dict[Node, Flow] = field(default_factory=dict)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note the gradients of the backward pass that runs inside."""
        handles = [node.register_hook(partial(self._note, node)) for node in self.nodes]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _note(self, node: Node, handed_on: Gradients, arrived: Gradients) -> None:
        self.flows[node] = Flow(tuple(arrived), tuple(handed_on))

    def arrivals(self, place: Place, nodes: Iterable[Node] | None = None) -> list[Arrival]:
        """What ``nodes``, by default all, handed on to a place: each with its gradient."""
        return [
            (node, gradient)
            for node in (self.flows if nodes is None else nodes)
            for target, gradient in zip(
                node.next_functions, self.flows[node].handed_on, strict=True
            )
            if target == place and gradient is not None
        ]


def graph_between(root: Node, wrt: Sequence[Tensor] | None = None) -> Graph:
    """The graph below the node ``root`` down to ``wrt``; None: down to every leaf."""
    inputs: dict[Node, list[Node]] = {}
    leaves: dict[Node, Tensor] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        variable = autograd_internals.variable_of(node)
        if variable is not None:
            leaves[node] = variable
        if node in inputs or variable is not None:
            continue
        inputs[node] = inputs_of(node)
        pending += inputs[node]
    ends = [End(tensor, (node, 0)) for node, tensor in leaves.items()]
    if wrt is None:
        nodes = _in_forward_order(inputs, set(inputs))
        used = {target: i for i, n in reversed(list(enumerate(nodes))) for target in inputs[n]}
        return Graph(nodes, sorted(ends, key=lambda end: used[end.place[0]]))
    chosen = [end for tensor in wrt for end in ends if end.tensor is tensor]
    chosen += [End(t, (t.grad_fn, t.output_nr)) for t in wrt if t.grad_fn in inputs]
    between = _ancestors(inputs, {end.place[0] for end in chosen})
    return Graph(_in_forward_order(inputs, between), chosen)


def inputs_of(node: Node) -> list[Node]:
    """The nodes that ``node`` hands gradients on to."""
    return [target for target, _ in node.next_functions if target is not None]


def users_of(inputs: Mapping[Node, Sequence[Node]]) -> dict[Node, set[Node]]:
    """Node -> those that have it among their inputs."""
    users: dict[Node, set[Node]] = {}
    for node, targets in inputs.items():
        for target in targets:
            users.setdefault(target, set()).add(node)
    return users


def _ancestors(inputs: dict[Node, list[Node]], ends: set[Node]) -> set[Node]:
    """The nodes from which an end can be reached, the ends themselves left out."""
    users = users_of(inputs)
    found: set[Node] = set()
    pending = list(ends)
    while pending:
        for user in users.get(pending.pop(), ()):
            if user not in found:
                found.add(user)
                pending.append(user)
    return found


def _in_forward_order(inputs: dict[Node, list[Node]], wanted: set[Node]) -> list[Node]:
    """``wanted``, inputs before what uses them, and as far as that allows as they were made."""
    waiting = {n: len({m for m in inputs[n] if m in wanted}) for n in inputs if n in wanted}
    users = users_of({node: inputs[node] for node in waiting})
    ties = count()
    ready: list[tuple[int, int, Node]] = []

    def push(node: Node) -> None:
        made = autograd_internals.sequence_number(node) or 0
        heapq.heappush(ready, (made, next(ties), node))

    for node, unseen in waiting.items():
        if unseen == 0:
            push(node)
    order = []
    while ready:
        *_, node = heapq.heappop(ready)
        order.append(node)
        for user in users.get(node, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                push(user)
    return order
