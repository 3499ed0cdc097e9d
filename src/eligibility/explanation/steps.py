"""A watched graph as the record's steps and leaves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Match
from eligibility.explanation.elements import Contribution, Edge, Leaf, Numbers, Step
from eligibility.explanation.graph import Flow, Graph, Node, Place
from eligibility.explanation.operations import Description, describe
from eligibility.explanation.recorder import Recording
from eligibility.explanation.wording import KEPT, numbers_of

# The attribute in which autograd saves the value of an input, by the number of that input.
_SAVED_INPUTS = {"self": 0, "other": 1}
# Steps of a long graph that are not folded next to the leaves, and next to the output.
_SHOWN_FIRST, _SHOWN_LAST = 6, 12


class Writer:
    """Writes one graph, whose backward pass was watched, as steps and leaves.

    ``variables`` are the user's that hold the value at a place: name and tensor.
    """

    def __init__(
        self,
        graph: Graph,
        leaf_names: Sequence[str],
        recording: Recording | None = None,
        variables: Mapping[Place, tuple[str, Tensor]] | None = None,
    ) -> None:
        self._graph = graph
        self._leaf_names = leaf_names
        self._recording = recording
        self._variables = variables or {}
        self._nodes = [node for node in graph.nodes if node in graph.flows]
        self._step_ids = {node: f"s{index}" for index, node in enumerate(self._nodes, 1)}
        self._end_ids = {end.place: name for end, name in zip(graph.ends, leaf_names, strict=True)}
        self._saved = self._saved_inputs()

    def steps(self, matches: Sequence[Match] = ()) -> tuple[Step, ...]:
        """Every node that a gradient went through, in forward order, known subgraphs folded."""
        single = {node: self._step(node) for node in self._nodes}
        inside = {node: match for match in matches for node in match.nodes}
        tops = [node for node in self._nodes if node in inside and node is inside[node].nodes[-1]]
        groups = {
            self._step_ids[node]: f"g{index}"
            for index, node in enumerate(tops, 1)
            if len(inside[node].nodes) > 1
        }
        outer = []
        for node, step in single.items():
            match = inside.get(node)
            if match is None or node is match.nodes[-1]:
                if match is not None:
                    step = self._group(match, single, groups.get(step.id))
                edges = (replace(e, target=groups.get(e.target, e.target)) for e in step.edges)
                outer.append(replace(step, edges=tuple(edges)))
        return _fold_middle(outer)

    def _group(self, match: Match, single: Mapping[Node, Step], group: str | None) -> Step:
        """The steps of a known subgraph as one; a single node has no id for a group."""
        last = single[match.nodes[-1]]
        if group is None:
            return replace(last, name=match.name, formula=match.formula)
        inner = tuple(single[node] for node in match.nodes)
        ids = {step.id for step in inner}
        return replace(
            last,
            id=group,
            name=match.name,
            formula=match.formula,
            variable=last.variable or next((s.variable for s in inner if s.variable), ""),
            edges=tuple(
                Edge(edge.target, edge.gradient)
                for step in reversed(inner)
                for edge in step.edges
                if edge.target not in ids
            ),
            inner=inner,
        )

    def leaves(self) -> tuple[Leaf, ...]:
        """Every end with the summands of its gradient."""
        leaves = []
        for end, name in zip(self._graph.ends, self._leaf_names, strict=True):
            arrivals = self._graph.arrivals(end.place)
            times = Counter(through(node) for node, _ in arrivals)
            contributions = []
            for node, gradient in arrivals:
                step, way = self._step_ids[node], through(node)
                way += f" {step}" if times[way] > 1 else ""
                contributions.append(Contribution(step, way, numbers_of(gradient)))
            total = sum(gradient for _, gradient in arrivals)
            summed = numbers_of(total) if isinstance(total, Tensor) else None
            leaves.append(Leaf(name, name, numbers_of(end.tensor), summed, tuple(contributions)))
        return tuple(leaves)

    def _step(self, node: Node) -> Step:
        flow = self._graph.flows[node]
        description = describe(node.name())
        output = next((i for i, g in enumerate(flow.arrived) if g is not None), 0)
        name, tensor = self._variables.get((node, output), ("", None))
        ran = self._recording.find(node) if self._recording is not None else None
        arrived = flow.arrived[output] if flow.arrived else None
        value = ran.values[output] if ran is not None and output < len(ran.values) else None
        return Step(
            id=self._step_ids[node],
            name=noun(node),
            operation=node.name(),
            formula=description.formula if description else "",
            variable=name,
            value=value
            or (numbers_of(tensor) if tensor is not None else self._saved.get((node, output))),
            gradient=None if arrived is None else numbers_of(arrived),
            edges=self._edges(node, flow, description),
            sources=ran.sources if ran is not None else (),
        )

    def _edges(self, node: Node, flow: Flow, description: Description | None) -> tuple[Edge, ...]:
        factors = description.factors if description else ()
        local = _local_derivatives(node, flow) if description and description.elementwise else ()
        edges = []
        for index, (place, gradient) in enumerate(
            zip(node.next_functions, flow.handed_on, strict=True)
        ):
            if place[0] is None and gradient is None:
                continue  # a constant: nothing is handed on
            target = self._end_ids.get(place, self._step_ids.get(place[0], ""))
            handed = None if gradient is None else numbers_of(gradient)
            factor = factors[index] if index < len(factors) else ""
            edges.append(Edge(target, handed, factor, local[index] if index < len(local) else None))
        return tuple(edges)

    def _saved_inputs(self) -> dict[Place, Numbers]:
        """Values that were saved for the backward pass: of a node itself or by what used it."""
        if self._recording is not None:
            return {}
        values: dict[Place, Numbers] = {}
        for node in self._nodes:
            result = autograd_internals.saved_value(node, "result")
            if isinstance(result, Tensor):
                values[node, 0] = numbers_of(result)
            for name, index in _SAVED_INPUTS.items():
                tensor = autograd_internals.saved_value(node, name)
                if isinstance(tensor, Tensor) and index < len(node.next_functions):
                    values.setdefault(node.next_functions[index], numbers_of(tensor))
        return values


def _fold_middle(steps: Sequence[Step]) -> tuple[Step, ...]:
    """``steps`` if they are few; else the first and the last, what is between folded into one."""
    if len(steps) <= _SHOWN_FIRST + _SHOWN_LAST + 1:
        return tuple(steps)
    middle = steps[_SHOWN_FIRST:-_SHOWN_LAST]
    times = Counter(step.name for step in middle).most_common()
    fold = Step(
        id="middle",
        name=f"{len(middle)} more steps",
        operation="",
        formula=", ".join(f"{count} × {name}" for name, count in times),
        inner=tuple(middle),
    )
    return (*steps[:_SHOWN_FIRST], fold, *steps[-_SHOWN_LAST:])


def noun(node: Node) -> str:
    """What a node is called; if it is not listed, its own name without autograd's spelling."""
    description = describe(node.name())
    if description is not None:
        return description.name
    stem = re.sub(r"Backwards?\d*$", "", node.name().rsplit("::", 1)[-1])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", stem).lower() or node.name()


def through(node: Node) -> str:
    """The edge that leaves a node, in a sentence."""
    return f"through the {noun(node)}"


def _local_derivatives(node: Node, flow: Flow) -> tuple[Numbers | None, ...]:
    """The local derivative for each input of an elementwise node, where shapes agree."""
    arrived = flow.arrived[0]
    if arrived is None or arrived.numel() > KEPT:
        return ()
    with torch.no_grad():
        results = node(torch.ones_like(arrived))
    derivatives = results if isinstance(results, tuple) else (results,)
    return tuple(
        numbers_of(d) if d is not None and d.shape == arrived.shape else None for d in derivatives
    )
