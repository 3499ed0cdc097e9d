"""Known subgraphs as rules: the closed form of what a `Categorical` in a graph does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical

from eligibility.explanation import autograd_internals
from eligibility.explanation.derivation import Contribution, Leaf
from eligibility.explanation.graph import Graph, Node
from eligibility.explanation.names import Names
from eligibility.explanation.numbers import numbers_of
from eligibility.explanation.patterns import Match, Place
from eligibility.explanation.problem import Part, like_rows, make_problem
from eligibility.explanation.recorder import base_name
from eligibility.explanation.steps import through
from eligibility.rules.registry import find_rule

# So many distributions of one graph are explained by their rule; the rest repeat it.
_MOST_PARTS = 2


class _Draw(NamedTuple):
    """What was drawn, and how much the explained tensor depends on its log-probability."""

    action: Tensor
    weight: Tensor


def parts_of(
    graph: Graph, matches: Sequence[Match], leaves: Mapping[int, Leaf], names: Names, of: str
) -> list[Part]:
    """The rules that hold inside ``graph``, at most the first few."""
    parts: list[Part] = []
    for match in matches:
        if match.kind == "log_prob" and "x" in match.inputs and len(parts) < _MOST_PARTS:
            part = _part(graph, match, leaves, names, of)
            parts += [part] if part is not None else []
    return parts


def _part(
    graph: Graph, match: Match, leaves: Mapping[int, Leaf], names: Names, of: str
) -> Part | None:
    """The rule of one distribution; None if its outcome or its parameter is not known."""
    place = match.inputs["x"]
    parameter, draw = _parameter(match, names), _draw(graph, match)
    arrived = _arrived(graph, match, place)
    if parameter is None or draw is None or not arrived:
        return None
    name = "probs" if "probs" in match.name else "logits"
    rows = parameter.double().expand(*draw.action.shape, parameter.shape[-1])
    problem = make_problem(Categorical, {name: rows}, {}, draw.action)
    rule = find_rule(problem.distribution(), name)
    eligibility = rule(problem.as_given(), problem.value)
    weight = draw.weight.double()
    autograd = torch.stack([gradient for _, gradient in arrived]).sum(0)
    leaf = _leaf(place, leaves, names, name, parameter, arrived)
    return Part(
        problem=problem,
        name=name,
        called=leaf.name,
        rule=rule,
        of=of,
        asked=None,
        factor=weight,
        eligibility=eligibility,
        parameter=parameter,
        result=(like_rows(weight, eligibility) * eligibility).sum_to_size(parameter.shape),
        autograd=autograd,
        leaf=leaf,
    )


def _arrived(graph: Graph, match: Match, place: Place) -> list[tuple[Node, Tensor]]:
    """The gradients that the nodes of ``match`` hand on to ``place``."""
    return [
        (node, gradient)
        for node in match.nodes
        for target, gradient in zip(node.next_functions, graph.flows[node].handed_on, strict=True)
        if target == place and gradient is not None
    ]


def _leaf(
    place: Place,
    leaves: Mapping[int, Leaf],
    names: Names,
    name: str,
    parameter: Tensor,
    arrived: list[tuple[Node, Tensor]],
) -> Leaf:
    """The leaf at ``place``; for an intermediate result, the same facts about that."""
    variable = autograd_internals.variable_of(place[0])
    called, held = names.places.get(place, (name, None))
    known = leaves.get(id(variable)) or leaves.get(id(held))
    if known is not None:
        return known
    total = torch.stack([gradient for _, gradient in arrived]).sum(0)
    contributions = tuple(
        Contribution("", through(node), numbers_of(gradient)) for node, gradient in arrived
    )
    return Leaf(called, called, numbers_of(parameter), numbers_of(total), contributions)


def _parameter(match: Match, names: Names) -> Tensor | None:
    """The value of a distribution's parameter; logits may differ from it by a constant."""
    place = match.inputs["x"]
    variable = autograd_internals.variable_of(place[0])
    held = variable if variable is not None else names.places.get(place, ("", None))[1]
    if held is not None:
        return held.detach()
    for node in match.nodes:
        kind = base_name(node.name())
        if kind in ("logsumexp", "div"):
            return _saved_tensor(node, "self")
        if kind == "logsoftmax":
            return _saved_tensor(node, "result")
        if kind == "softmax":
            return _saved_tensor(node, "result").log()
    return None


def _saved_tensor(node: Node, name: str) -> Tensor:
    return torch.as_tensor(autograd_internals.saved_value(node, name)).detach()


def _draw(graph: Graph, match: Match) -> _Draw | None:
    """What was drawn and its weight, from the node that selects it."""
    for node in match.nodes:
        kind = base_name(node.name())
        if kind not in ("gather", "nllloss", "index", "select"):
            continue
        handed = graph.flows[node].handed_on[0]
        if handed is None:
            return None
        if kind == "gather":
            action = _saved_tensor(node, "index")
        elif kind == "nllloss":
            action = _saved_tensor(node, "target").clamp(min=0).unsqueeze(-1)
        else:
            action = handed.abs().argmax(-1, keepdim=True)
            if not bool((handed != 0).any(-1).all()):
                return None
        return _Draw(action.squeeze(-1), handed.gather(-1, action).squeeze(-1))
    return None
