"""Known parts of a graph; those that a program asked a distribution for are known from the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from eligibility.explanation.calls import Call
from eligibility.explanation.graph import Graph, Node

# A place that a gradient can arrive at: an output of a node. (None, 0) is a constant.
Place = tuple[Node, int]
Kind = Literal["log_prob", "entropy", "divergence", "other", "loss"]


@dataclass(frozen=True)
class Match:
    """A recognised subgraph."""

    name: str  # what it is called: "Categorical(probs=).log_prob"
    kind: Kind  # what its value is
    nodes: tuple[Node, ...]  # the nodes inside, in forward order; the last one makes its value
    inputs: Mapping[str, Place]  # where its named inputs come from
    formula: str = ""  # what it computes
    call: Call | None = None  # the question to a distribution that made it, if one was recorded


# (class, what it was given) -> the formula of its log_prob; (class, question) -> of the answer
_FORMULAS = {
    ("Categorical", "probs="): "log(x_a / Σx)",
    ("Categorical", "logits="): "x_a − log Σ exp(x)",
    ("Categorical", "entropy"): "−Σ π log π",
    ("Categorical", "divergence"): "Σ p (log p − log q)",
    ("Bernoulli", "probs="): "y log x + (1 − y) log(1 − x)",
    ("Bernoulli", "logits="): "y x − log(1 + eˣ)",
}


def matches_of_calls(
    graph: Graph,
    calls: Sequence[Call],
    users: Mapping[Node, set[Node]],
    order: Mapping[Node, int],
    ends: set[Node],
) -> list[Match]:
    """What distributions were asked for: each with the operations that serve nothing else."""
    found: dict[Node, Match] = {}
    for call in calls:
        root = call.result.grad_fn
        if root not in order or root in found or root in ends:
            continue
        outside = {place_of(tensor)[0] for tensor in call.given.values() if tensor.requires_grad}
        inside: set[Node] = set()
        for node in reversed(graph.nodes[: order[root] + 1]):
            serves = node is root or (users.get(node) and users[node] <= inside)
            if (
                serves
                and node not in outside | ends
                and not any(node in m.nodes for m in found.values())
            ):
                inside.add(node)
        name = type(call.dist).__name__
        given = ", ".join(f"{key}=" for key, tensor in call.given.items() if tensor.requires_grad)
        title = f"{name}({given}).{call.kind}" if call.kind != "divergence" else f"KL of {name}"
        nodes = tuple(sorted(inside, key=order.__getitem__))
        asked = given if call.kind == "log_prob" else call.kind
        formula = _FORMULAS.get((name, asked), "")
        found[root] = Match(title, call.kind, nodes, {}, formula, call)
    return list(found.values())


def place_of(tensor: Tensor) -> Place:
    """Where gradients of ``tensor`` arrive."""
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return (edge.node, edge.output_nr)
