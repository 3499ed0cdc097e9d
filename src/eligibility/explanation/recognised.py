"""Known subgraphs as rules: the closed form of what a `Categorical` in a graph does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from eligibility.explanation import autograd_internals
from eligibility.explanation.asked import leaf_at, parts_of_calls, parts_of_formula
from eligibility.explanation.elements import Leaf
from eligibility.explanation.graph import Graph, Node
from eligibility.explanation.matches import Match, Place
from eligibility.explanation.names import Names
from eligibility.explanation.problem import Part, entropy_gradient, like_rows, make_problem
from eligibility.explanation.recorder import base_name
from eligibility.rules.registry import find_rule


class _Draw(NamedTuple):
    """What was drawn, and how much the explained tensor depends on its log-probability."""

    action: Tensor
    weight: Tensor


class _Source(NamedTuple):
    """Where a distribution's parameter enters, and who else uses its log-probabilities.

    Attributes:
        place: The parameter.
        nodes: The nodes that hand gradients on to it.
        entropies: The entropies of the same distribution.
    """

    place: Place
    nodes: tuple[Node, ...]
    entropies: tuple[Match, ...] = ()


def parts_of(
    graph: Graph, matches: Sequence[Match], leaves: Mapping[int, Leaf], names: Names, of: str
) -> list[Part]:
    """The rules of the first distribution of each kind inside ``graph``."""
    known: dict[object, list[Part]] = {}
    for match in log_probs_of(graph, matches):
        if match.call is not None:
            kind: object = type(match.call.dist)
            found = known.get(kind) or parts_of_calls(graph, match, matches, leaves, names, of)
        else:
            kind = _family_of(match)
            found = known.get(kind) or _by_hand(graph, match, matches, leaves, names, of)
        if found:
            known[kind] = found
    return [part for found in known.values() for part in found]


def _by_hand(
    graph: Graph,
    match: Match,
    matches: Sequence[Match],
    leaves: Mapping[int, Leaf],
    names: Names,
    of: str,
) -> list[Part]:
    """The rules of a log-probability that is written out, or that nothing recorded."""
    if _family_of(match) is not Categorical:
        return parts_of_formula(graph, match, leaves, names, of)
    source = _source(graph, match, matches)
    part = source and _part(graph, match, source, leaves, names, of)
    return [part] if part is not None else []


def _family_of(match: Match) -> type[Distribution]:
    return next((f for word, f in _FAMILIES.items() if word in match.name), Categorical)


_FAMILIES: dict[str, type[Distribution]] = {
    "Bernoulli": Bernoulli, "Normal": Normal, "Gaussian": Normal,
}  # fmt: skip


def log_probs_of(graph: Graph, matches: Sequence[Match]) -> list[Match]:
    """The log-probabilities inside ``graph``, in the order of the program."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    found = [match for match in matches if match.kind == "log_prob"]
    return sorted(found, key=lambda match: order[match.nodes[-1]])


def _source(graph: Graph, match: Match, matches: Sequence[Match]) -> _Source | None:
    """The source of a distribution of its own, or of one that it shares with its entropies."""
    if "x" in match.inputs:
        return _Source(match.inputs["x"], match.nodes)
    if "z" not in match.inputs:
        return None
    logs = match.inputs["logs"]
    entropies = tuple(m for m in matches if m.kind == "entropy" and m.inputs.get("logs") == logs)
    known = {node for m in (match, *entropies) for node in m.nodes}
    users = {node for node in graph.nodes if logs in node.next_functions}
    if not users <= known:
        return None
    owner = next((m.nodes for m in matches if m.nodes[-1] is logs[0]), (logs[0],))
    return _Source(match.inputs["z"], owner, entropies)


def _part(
    graph: Graph,
    match: Match,
    source: _Source,
    leaves: Mapping[int, Leaf],
    names: Names,
    of: str,
) -> Part | None:
    """The rule of one distribution; None if its outcome or its parameter is not known."""
    parameter, draw = _parameter(source, names), _draw(graph, match)
    arrived = _arrived(graph, source)
    if parameter is None or draw is None or not arrived:
        return None
    name = "probs" if "probs" in match.name else "logits"
    rows = parameter.double().expand(*draw.action.shape, parameter.shape[-1])
    problem = make_problem(Categorical, {name: rows}, {}, draw.action)
    rule = find_rule(problem.distribution(), name)
    eligibility = problem.eligibility(rule)
    weight = draw.weight.double()
    bonus = _entropy_weight(graph, source)
    result = like_rows(weight, eligibility) * eligibility
    if bonus is not None:
        result = result + like_rows(bonus, eligibility) * entropy_gradient(rows)
    leaf = leaf_at(graph, source.place, leaves, names, name, parameter)
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
        result=result.sum_to_size(parameter.shape),
        autograd=torch.stack([gradient for _, gradient in arrived]).sum(0),
        leaf=leaf,
        bonus=bonus,
        place=source.place,
    )


def _entropy_weight(graph: Graph, source: _Source) -> Tensor | None:
    """∂(what is explained)/∂ entropy of each row; None if no entropy is used."""
    weights = [graph.flows[match.nodes[-1]].arrived[0] for match in source.entropies]
    known = [weight.double() for weight in weights if weight is not None]
    return torch.stack(known).sum(0) if known else None


def _arrived(graph: Graph, source: _Source) -> list[tuple[Node, Tensor]]:
    """The gradients that are handed on to the parameter."""
    return [
        (node, gradient)
        for node in source.nodes
        for target, gradient in zip(node.next_functions, graph.flows[node].handed_on, strict=True)
        if target == source.place and gradient is not None
    ]


def _parameter(source: _Source, names: Names) -> Tensor | None:
    """The value of a distribution's parameter; logits may differ from it by a constant."""
    place = source.place
    variable = autograd_internals.variable_of(place[0])
    held = variable if variable is not None else names.places.get(place, ("", None))[1]
    if held is not None:
        return held.detach()
    for node in source.nodes:
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


def _before_logarithm(graph: Graph, match: Match, picked: Node, weight: Tensor) -> Tensor:
    """The weight of log π(a) where it is π(a) that is picked: the gradient into the logarithm."""
    above = match.nodes[match.nodes.index(picked) + 1 :]
    logarithm = next((node for node in above if base_name(node.name()) == "log"), None)
    arrived = graph.flows[logarithm].arrived[0] if logarithm is not None else None
    return weight if arrived is None else arrived.reshape(weight.shape)


def _draw(graph: Graph, match: Match) -> _Draw | None:
    """What was drawn and its weight, from the node that selects it."""
    for node in match.nodes:
        kind = base_name(node.name())
        if kind not in ("gather", "nllloss", "index", "select", "mul"):
            continue
        handed = next((g for g in graph.flows[node].handed_on if g is not None), None)
        if handed is None:
            return None
        if kind == "gather":
            action = _saved_tensor(node, "index")
        elif kind == "nllloss":
            action = _saved_tensor(node, "target").clamp(min=0).unsqueeze(-1)
        else:
            action = handed.abs().argmax(-1, keepdim=True)
            if not bool(((handed != 0).sum(-1) == 1).all()):
                return None
        weight = handed.gather(-1, action).squeeze(-1)
        return _Draw(action.squeeze(-1), _before_logarithm(graph, match, node, weight))
    return None
