"""The rules of what distributions were asked for, and of densities written out by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from eligibility.errors import EligibilityError
from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Call, Match, place_of
from eligibility.explanation.elements import Contribution, Leaf
from eligibility.explanation.graph import Graph, Node, Place
from eligibility.explanation.names import Names
from eligibility.explanation.problem import (
    Part,
    Problem,
    entropy_gradient,
    like_rows,
    make_problem,
    problem_of,
    stock_family,
)
from eligibility.explanation.recorder import base_name
from eligibility.explanation.steps import through
from eligibility.explanation.wording import numbers_of
from eligibility.rules.registry import constructed_parameters, find_rule, nearest_entry
from eligibility.rules.rule import Rule


@dataclass(frozen=True)
class LiveProblem(Problem):
    """The problem of a distribution that is made of others: it is asked itself, as it is."""

    live: Any = None

    def distribution(self, **replaced: Tensor) -> Any:
        return self.live

    def log_prob(self, **replaced: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = self.live.log_prob(self.value)
        return result.double()

    def read(self, rule: Rule) -> dict[str, Any]:
        return rule.read(self.live)


@dataclass(frozen=True)
class Scene:
    """What the rules in a graph are found from."""

    graph: Graph  # the graph, after its backward pass
    matches: Sequence[Match]  # what was recognised in it
    leaves: Mapping[int, Leaf]  # the leaves that are explained, by the ids of their tensors
    names: Names  # what the reader calls tensors
    of: str  # the name of the explained tensor

    def part(self, problem: Problem, name: str, parameter: Tensor, factor: Tensor) -> Part:
        """What the rule gives for a parameter; `placed` fills in what autograd says."""
        rule = find_rule(problem.distribution(), name)
        with torch.no_grad():
            eligibility = problem.eligibility(rule).double()
        value, factor = parameter.detach(), factor.double().expand(eligibility.shape[: factor.ndim])
        result = (like_rows(factor, eligibility) * eligibility).sum_to_size(value.shape)
        return Part(
            problem=problem, name=name, called=name, rule=rule, of=self.of, asked=None,
            factor=factor, eligibility=eligibility, parameter=value, result=result,
            autograd=result, leaf=Leaf(name, name, numbers_of(value), None),
        )  # fmt: skip

    def placed(self, part: Part, place: Place, autograd: Tensor) -> Part:
        """The same with what autograd says at ``place``, and the leaf there."""
        leaf = self._leaf_at(place, part.name, part.parameter)
        return replace(part, called=leaf.name, autograd=autograd, leaf=leaf, place=place)

    def tensor_at(self, place: Place) -> Tensor | None:
        """The tensor at a place, if the program still holds it."""
        variable = autograd_internals.variable_of(place[0]) if place[0] is not None else None
        tensor = variable if variable is not None else self.names.places.get(place, ("", None))[1]
        return None if tensor is None else tensor.detach()

    def arrived_at(self, result: Tensor) -> Tensor:
        """The gradient that arrives at a result; zeros if none does."""
        flow = self.graph.flows.get(result.grad_fn)
        arrived = flow.arrived[result.output_nr] if flow is not None else None
        return torch.zeros_like(result) if arrived is None else arrived

    def handed_to(self, place: Place, nodes: Sequence[Node]) -> Tensor | None:
        """The gradient that ``nodes`` together hand on to a place; None if they hand on none."""
        found = [gradient for _, gradient in self.graph.arrivals(place, nodes)]
        return torch.stack(found).sum(0) if found else None

    def _leaf_at(self, place: Place, name: str, parameter: Tensor) -> Leaf:
        """The leaf at ``place``; for an intermediate result, the same facts about that."""
        variable = autograd_internals.variable_of(place[0])
        called, tensor = self.names.places.get(place, (name, None))
        known = self.leaves.get(id(variable)) or self.leaves.get(id(tensor))
        if known is not None:
            return known
        arrivals = self.graph.arrivals(place)
        if not arrivals:
            return Leaf(called, called, numbers_of(parameter), None)
        total = torch.stack([gradient for _, gradient in arrivals]).sum(0)
        contributions = tuple(Contribution("", through(n), numbers_of(g)) for n, g in arrivals)
        return Leaf(called, called, numbers_of(parameter), numbers_of(total), contributions)


def with_bonus(part: Part, bonus: Tensor) -> Part:
    """The same where the entropy of each row is used too, with these weights."""
    rows = part.problem.parameters[part.name]
    added = (like_rows(bonus, rows) * entropy_gradient(rows)).sum_to_size(part.parameter.shape)
    return replace(part, bonus=bonus, result=part.result + added)


def parts_of_calls(scene: Scene, match: Match) -> list[Part]:
    """The rules of one log-probability, and of all that have the same parameters and shape."""
    first = match.call
    assert first is not None
    assert first.value is not None
    asked = [m.call for m in scene.matches if m.call is not None]
    calls = [call for call in asked if _is_alike(call, first)]
    weights = [scene.arrived_at(call.result) for call in calls]
    value, factor = first.value, weights[0]
    if len(calls) > 1:
        value = torch.stack([call.value for call in calls if call.value is not None])
        factor = torch.stack(weights)
    entropies = [call for call in asked if call.kind == "entropy" and _same_given(call, first)]
    found = []
    for name in _names_of(first):
        given = first.given[name]
        try:
            part = scene.part(_problem(first, value, name), name, given, factor)
        except (EligibilityError, RuntimeError, AttributeError, NotImplementedError):
            continue
        outputs, starts = [call.result for call in calls], list(weights)
        if entropies and name == "logits" and part.problem.family is Categorical:
            bonus = [scene.arrived_at(call.result) for call in entropies]
            part = with_bonus(part, torch.stack(bonus).double().sum(0))
            outputs += [call.result for call in entropies]
            starts += bonus
        (autograd,) = autograd_internals.gradients(outputs, [given], starts)
        if autograd is None:
            continue
        through_outcome = _through_outcomes(calls, weights, given)
        if through_outcome is not None:
            autograd = autograd - through_outcome
            part = replace(part, through_outcome=through_outcome)
        found.append(scene.placed(part, place_of(given), autograd))
    return found


def _through_outcomes(
    calls: Sequence[Call], weights: Sequence[Tensor], given: Tensor
) -> Tensor | None:
    """What arrives at ``given`` through outcomes that kept their graph; None if nothing does."""
    found = []
    for call, weight in zip(calls, weights, strict=True):
        if call.attached is None:
            continue
        (arrived,) = autograd_internals.gradients([call.result], [call.attached], [weight])
        if arrived is not None:
            (handed,) = autograd_internals.gradients([call.attached], [given], [arrived])
            found += [] if handed is None else [handed]
    return torch.stack(found).sum(0) if found else None


def _is_alike(call: Call, first: Call) -> bool:
    """Whether ``call`` is the same question with another outcome."""
    return (
        call.kind == "log_prob"
        and call.value is not None
        and first.value is not None
        and call.value.shape == first.value.shape
        and type(call.dist) is type(first.dist)
        and _same_given(call, first)
    )


def _same_given(call: Call, first: Call) -> bool:
    return call.given.keys() == first.given.keys() and all(
        call.given[name] is first.given[name] for name in first.given
    )


def _names_of(call: Call) -> list[str]:
    """The parameters with a rule that were given as tensors with a gradient."""
    try:
        names = constructed_parameters(call.dist)
    except EligibilityError:
        return []
    return [name for name in names if name in call.given and call.given[name].requires_grad]


def _problem(call: Call, value: Tensor, name: str) -> Problem:
    """The problem in float64 where the distribution can be made again; else the object itself."""
    has_own_rule = nearest_entry(type(call.dist)) is not stock_family(type(call.dist))
    if not has_own_rule and "." not in name:
        with contextlib.suppress(EligibilityError):
            return problem_of(call.dist, value, (name,), call.given)
    with torch.no_grad():
        rows = find_rule(call.dist, name)(call.dist, value)
    given = call.given[name].detach().double().expand(rows.shape)
    return LiveProblem(type(call.dist), {name: given}, {}, value, call.dist)


def parts_of_formula(scene: Scene, match: Match) -> list[Part]:
    """The rules of a Bernoulli or Gaussian density that is written out."""
    found = (_coin if "Bernoulli" in match.name else _gaussian)(scene, match)
    if found is None:
        return []
    family, parameters, value, factor = found
    parts = []
    for name, (place, tensor) in parameters.items():
        fixed = {key: given for key, (_, given) in parameters.items()}
        try:
            problem = make_problem(family, fixed, {}, value)
        except (EligibilityError, RuntimeError):
            return []
        part = scene.part(problem, name, tensor, factor)
        total = scene.handed_to(place, match.nodes)
        if total is None:
            continue  # a constant
        if not torch.allclose(part.result, total.double(), rtol=1e-2, atol=1e-6):
            return []  # of the same shape, with other constants: another density
        parts.append(scene.placed(part, place, total))
    return parts


_Formula = tuple[type[Distribution], dict[str, tuple[Place, Tensor]], Tensor, Tensor]


def _coin(scene: Scene, match: Match) -> _Formula | None:
    """A coin: its parameter, the outcome, and the weight of its log-probability."""
    name = "probs" if "probs" in match.name else "logits"
    place = match.inputs["x"]
    flows = scene.graph.flows
    arrived = flows[match.nodes[-1]].arrived[0]
    for node in match.nodes:
        kind = base_name(node.name())
        if kind == "binarycrossentropywithlogits":
            given = autograd_internals.saved_value(node, "self")
            outcome = autograd_internals.saved_value(node, "target")
            arrived = flows[node].arrived[0]
            if arrived is not None:
                is_mean = autograd_internals.saved_value(node, "reduction") == 1
                arrived = -arrived.expand_as(given) / (given.numel() if is_mean else 1)
            known = scene.tensor_at(place)
            given = given if known is None else known
            return _formula(Bernoulli, name, place, given, outcome, arrived)
        if kind == "mul" and base_name(_below(node).name()) == "log":
            given = autograd_internals.saved_value(_below(node), "self")
            constants = [autograd_internals.saved_value(node, key) for key in ("self", "other")]
            outcome = next((c for c in constants if isinstance(c, Tensor) and c.shape), None)
            if _below(_below(node)) is place[0]:
                return _formula(Bernoulli, name, place, given, outcome, arrived)
    return None


def _formula(
    family: type[Distribution], name: str, place: Place, given: Any, outcome: Any, weight: Any
) -> _Formula | None:
    if not (isinstance(given, Tensor) and isinstance(outcome, Tensor) and weight is not None):
        return None
    return family, {name: (place, given.detach())}, outcome.detach().double(), weight


def _below(node: Node) -> Node:
    """The node that the first differentiable input of ``node`` comes from."""
    return next((target for target, _ in node.next_functions if target is not None), node)


def _gaussian(scene: Scene, match: Match) -> _Formula | None:
    """A Gaussian density: mean, standard deviation, outcome and weight."""
    places = {name: match.inputs[name] for name in ("loc", "scale") if name in match.inputs}
    tensors = {name: scene.tensor_at(place) for name, place in places.items()}
    squares = [
        node
        for node in match.nodes
        if base_name(node.name()) == "pow" and base_name(_below(node).name()) in ("sub", "div")
    ]
    arrived = scene.graph.flows[match.nodes[-1]].arrived[0]
    loc, scale = tensors.get("loc"), tensors.get("scale")
    if loc is None or scale is None or arrived is None or len(squares) != 1:
        return None
    squared = autograd_internals.saved_value(squares[0], "self")
    if squared is None:
        return None
    is_score = base_name(_below(squares[0]).name()) == "div"
    difference = squared.detach().double() * (scale.double() if is_score else 1.0)
    parameters = {"loc": (places["loc"], loc), "scale": (places["scale"], scale)}
    return Normal, parameters, difference + loc.double(), arrived
