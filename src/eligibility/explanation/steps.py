"""A watched graph as the record's steps and leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from eligibility.explanation import autograd_internals
from eligibility.explanation.derivation import Contribution, Edge, Leaf, Numbers, Step
from eligibility.explanation.graph import Flow, Graph, Node
from eligibility.explanation.numbers import KEPT, numbers_of
from eligibility.explanation.operations import Description, describe
from eligibility.explanation.recorder import Recording

# A place that a gradient can arrive at: an output of a node.
Place = tuple[Node, int]

# The attribute in which autograd saves the value of an input, by the number of that input.
_SAVED_INPUTS = {"self": 0, "other": 1}


class Writer:
    """Writes one graph as steps and leaves.

    Args:
        graph: A graph whose backward pass was watched.
        leaf_names: What the reader calls each of the graph's ends.
        recording: Forward values and lines, if they were recorded.
        variables: The user's variables that hold the value at a place: name and tensor.
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
        self._end_ids = {
            (end.node, end.output): name for end, name in zip(graph.ends, leaf_names, strict=True)
        }
        self._saved = self._saved_inputs()

    def steps(self) -> tuple[Step, ...]:
        """Every node that a gradient went through, in forward order."""
        return tuple(map(self._step, self._nodes))

    def leaves(self) -> tuple[Leaf, ...]:
        """Every end with the summands of its gradient."""
        leaves = []
        for end, name in zip(self._graph.ends, self._leaf_names, strict=True):
            arrivals = self._graph.arrivals(end)
            names = [_noun(arrival.node) for arrival in arrivals]
            repeated = {noun for noun, times in Counter(names).items() if times > 1}
            contributions = tuple(
                Contribution(
                    step=self._step_ids[arrival.node],
                    through=f"through the {noun}"
                    + (f" {self._step_ids[arrival.node]}" if noun in repeated else ""),
                    gradient=numbers_of(arrival.gradient),
                )
                for arrival, noun in zip(arrivals, names, strict=True)
            )
            total = sum(arrival.gradient for arrival in arrivals) if arrivals else None
            gradient = numbers_of(total) if isinstance(total, Tensor) else None
            leaves.append(Leaf(name, name, numbers_of(end.tensor), gradient, contributions))
        return tuple(leaves)

    def _step(self, node: Node) -> Step:
        flow = self._graph.flows[node]
        description = describe(node.name())
        output = next((i for i, g in enumerate(flow.arrived) if g is not None), 0)
        name, held = self._variables.get((node, output), ("", None))
        ran = self._recording.find(node) if self._recording is not None else None
        arrived = flow.arrived[output] if flow.arrived else None
        value = ran.values[output] if ran is not None and output < len(ran.values) else None
        return Step(
            id=self._step_ids[node],
            name=_noun(node),
            operation=node.name(),
            formula=description.formula if description else "",
            latex=description.latex if description else "",
            variable=name,
            value=value
            or (numbers_of(held) if held is not None else self._saved.get((node, output))),
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
            factor = factors[index] if index < len(factors) else None
            edges.append(
                Edge(
                    target=self._end_ids.get(place, self._step_ids.get(place[0], "")),
                    gradient=None if gradient is None else numbers_of(gradient),
                    factor=factor.text if factor else "",
                    factor_latex=factor.latex if factor else "",
                    factor_value=local[index] if index < len(local) else None,
                )
            )
        return tuple(edges)

    def _saved_inputs(self) -> dict[Place, Numbers]:
        """Values that were saved for the backward pass: of a node itself or by what used it."""
        if self._recording is not None:
            return {}
        values: dict[Place, Numbers] = {}
        for node in self._nodes:
            saved = autograd_internals.saved_values(node)
            if isinstance(saved.get("result"), Tensor):
                values[node, 0] = numbers_of(saved["result"])
            for name, index in _SAVED_INPUTS.items():
                tensor = saved.get(name)
                if isinstance(tensor, Tensor) and index < len(node.next_functions):
                    values.setdefault(node.next_functions[index], numbers_of(tensor))
        return values


def _noun(node: Node) -> str:
    """What a node is called in a sentence; its raw name if it is not listed."""
    description = describe(node.name())
    return description.name if description else node.name()


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
