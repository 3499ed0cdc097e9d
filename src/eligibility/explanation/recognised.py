"""Known subgraphs as rules: the closed form of what a `Categorical` in a graph does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from eligibility.explanation import autograd_internals
from eligibility.explanation.asked import Scene, parts_of_calls, parts_of_formula, with_bonus
from eligibility.explanation.calls import Match
from eligibility.explanation.graph import Graph, Node, Place
from eligibility.explanation.problem import Part, make_problem
from eligibility.explanation.recorder import base_name


class _Source(NamedTuple):
    """Where a distribution's parameter enters, and who else uses its log-probabilities."""

    place: Place
    nodes: tuple[Node, ...]  # the nodes that hand gradients on to it
    entropies: tuple[Match, ...] = ()  # the entropies of the same distribution


def parts_of(scene: Scene) -> list[Part]:
    """The rules of the first distribution of each kind inside a graph."""
    known: dict[object, list[Part]] = {}
    for match in log_probs_of(scene.graph, scene.matches):
        kind: object = type(match.call.dist) if match.call is not None else _family_of(match)
        if not known.get(kind):
            find = _by_hand if match.call is None else parts_of_calls
            known[kind] = find(scene, match)
    return [part for found in known.values() for part in found]


def _by_hand(scene: Scene, match: Match) -> list[Part]:
    """The rules of a log-probability that is written out, or that nothing recorded."""
    if _family_of(match) is not Categorical:
        return parts_of_formula(scene, match)
    source = _source(scene, match)
    part = source and _part(scene, match, source)
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


def _source(scene: Scene, match: Match) -> _Source | None:
    """The source of its distribution, which it may share with its entropies."""
    if "x" in match.inputs:
        return _Source(match.inputs["x"], match.nodes)
    if "z" not in match.inputs:
        return None
    logs, matches = match.inputs["logs"], scene.matches
    entropies = tuple(m for m in matches if m.kind == "entropy" and m.inputs.get("logs") == logs)
    known = {node for m in (match, *entropies) for node in m.nodes}
    users = {node for node in scene.graph.nodes if logs in node.next_functions}
    if not users <= known:
        return None
    owner = next((m.nodes for m in matches if m.nodes[-1] is logs[0]), (logs[0],))
    return _Source(match.inputs["z"], owner, entropies)


def _part(scene: Scene, match: Match, source: _Source) -> Part | None:
    """The rule of one distribution; None if its outcome or its parameter is not known."""
    parameter, draw = _parameter(scene, source), _draw(scene.graph, match)
    arrived = scene.handed_to(source.place, source.nodes)
    if parameter is None or draw is None or arrived is None:
        return None
    action, weight = draw
    name = "probs" if "probs" in match.name else "logits"
    rows = parameter.double().expand(*action.shape, parameter.shape[-1])
    problem = make_problem(Categorical, {name: rows}, {}, action)
    part = scene.part(problem, name, parameter, weight)
    bonuses = [scene.graph.flows[match.nodes[-1]].arrived[0] for match in source.entropies]
    known = [bonus.double() for bonus in bonuses if bonus is not None]
    if known:
        part = with_bonus(part, torch.stack(known).sum(0))
    return scene.placed(part, source.place, arrived)


def _parameter(scene: Scene, source: _Source) -> Tensor | None:
    """The value of a distribution's parameter; logits may differ from it by a constant."""
    known = scene.tensor_at(source.place)
    if known is not None:
        return known
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


def _draw(graph: Graph, match: Match) -> tuple[Tensor, Tensor] | None:
    """What was drawn, and the weight of its log-probability, from the node that selects it."""
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
        return action.squeeze(-1), _before_logarithm(graph, match, node, weight)
    return None
