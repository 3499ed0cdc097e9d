"""What a loss is the sum of, and which outcome each part of it pulls at, and how hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.distributions import Bernoulli, Categorical

from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Match
from eligibility.explanation.elements import Table
from eligibility.explanation.graph import Graph, Node, Place, inputs_of
from eligibility.explanation.patterns import LINEAR
from eligibility.explanation.problem import Part
from eligibility.explanation.recognised import log_probs_of
from eligibility.explanation.recorder import base_name
from eligibility.explanation.tables import MOST_ROWS, column


@dataclass(frozen=True)
class Terms:
    """The summands of a loss by what they are for: "policy", "entropy", "KL" or "the rest"."""

    # Where each one is in the graph, with the gradient that arrives there.
    places: Mapping[str, Sequence[tuple[Place, Tensor]]]

    def at(self, place: Place | Tensor) -> dict[str, Tensor]:
        """The gradient of each summand at ``place``; those that do not reach it are left out."""
        found = {}
        target: Any = place if isinstance(place, Tensor) else GradientEdge(*place)
        for label, tops in self.places.items():
            same = [weight for top, weight in tops if top == place]
            outputs = [GradientEdge(*top) for top, _ in tops if top != place]
            starts = [weight for top, weight in tops if top != place]
            gradients = autograd_internals.gradients(outputs, [target], starts) if outputs else ()
            parts = [*same, *(gradient for gradient in gradients if gradient is not None)]
            if parts:
                found[label] = torch.stack(parts).sum(0)
        return found


def terms_of(graph: Graph, matches: Sequence[Match]) -> Terms:
    """The summands of the explained tensor, as far down as it is a sum."""
    tops = {match.nodes[-1]: match for match in matches if match.kind not in ("other", "loss")}
    places: dict[str, list[tuple[Place, Tensor]]] = {}
    known = set(graph.nodes)
    pending, seen = list(graph.nodes[-1:]), set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        below = inputs_of(node)
        name = base_name(node.name())
        splits = name in LINEAR and (name not in ("mul", "div") or len(below) == 1)
        if node not in tops and splits and all(target in known for target in below):
            pending += below
            continue
        arrived = next((g for g in graph.flows[node].arrived if g is not None), None)
        if arrived is not None:
            output = next(i for i, g in enumerate(graph.flows[node].arrived) if g is not None)
            label = _label(node, tops, known)
            places.setdefault(label, []).append(((node, output), arrived))
    return Terms(places)


def _label(root: Node, tops: Mapping[Node, Match], known: set[Node]) -> str:
    """What a summand is for, by the known things that it is made of."""
    if root in tops:
        return {"log_prob": "policy", "divergence": "KL"}.get(tops[root].kind, tops[root].kind)
    kinds: set[str] = set()
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if node in seen or node not in known:
            continue
        seen.add(node)
        if node in tops:
            kinds.add(tops[node].kind)
        pending += inputs_of(node)
    if "log_prob" in kinds:
        return "KL" if base_name(root.name()) == "pow" else "policy"
    return "entropy" if kinds == {"entropy"} else "the rest"


def outcomes_table(
    graph: Graph, matches: Sequence[Match], parts: Sequence[Part], terms: Terms, of: str
) -> Table | None:
    """A row for each outcome: what was drawn, its probability, and its weight by summand."""
    asked = [match for match in log_probs_of(graph, matches) if match.call is not None]
    if len(asked) > 1:
        values = [m.call.value for m in asked if m.call is not None and m.call.value is not None]
        log_probs = [m.call.result.detach() for m in asked if m.call is not None]
        if len({v.numel() for v in values}) != 1 or len(values) != len(asked):
            return None
        weights = [terms.at((m.nodes[-1], m.call.result.output_nr)) for m in asked if m.call]
        shape = log_probs[0]
        by_term = {
            label: torch.stack([w.get(label, torch.zeros_like(shape)) for w in weights])
            for label in dict.fromkeys(name for weight in weights for name in weight)
        }
        value, log_prob = torch.stack(values), torch.stack(log_probs)
        is_discrete = isinstance(asked[0].call and asked[0].call.dist, (Categorical, Bernoulli))
    elif parts:
        part = parts[0]
        value, log_prob = part.problem.value, part.problem.log_prob()
        is_discrete = issubclass(part.problem.family, (Categorical, Bernoulli))
        match = next(m for m in matches if m.kind == "log_prob")
        by_term = terms.at((match.nodes[-1], 0))
        if set(by_term) <= {"policy"} or any(
            w.numel() != part.factor.numel() for w in by_term.values()
        ):
            by_term = {"": part.factor}
    else:
        return None
    size = log_prob.numel()
    if size < 2 or any(weight.numel() != size for weight in by_term.values()):
        return None
    return _table(graph, value, log_prob, by_term, is_discrete, len(asked) > 1, of)


def _table(
    graph: Graph,
    value: Tensor,
    log_prob: Tensor,
    by_term: Mapping[str, Tensor],
    is_discrete: bool,
    are_steps: bool,
    of: str,
) -> Table:
    size = log_prob.numel()
    columns = []
    if value.numel() == size:
        columns.append(column("drawn", "outcome", value))
    if is_discrete:
        columns.append(column("π(a)", "probability", log_prob.exp()))
    else:
        columns.append(column("log p", "parameter", log_prob))
    ratio, outside = _clamped(graph, size)
    if ratio is not None:
        columns.append(column("ratio", "parameter", ratio))
    many = len(by_term) > 1
    for label, weight in by_term.items():
        columns.append(column(f"weight, {label}" if many else "weight", "gradient", weight))
    pull = next((w.reshape(-1) for label, w in by_term.items() if label in ("policy", "")), None)
    clipped: list[int] = []
    if outside is not None and pull is not None:
        clipped = (outside.reshape(-1) & (pull == 0)).nonzero().reshape(-1).tolist()
    rows = [f"{i}, clipped" if i in clipped else str(i) for i in range(min(size, MOST_ROWS))]
    note = f"weight is ∂ {of}/∂ log p: what multiplies the eligibility of that outcome."
    if clipped:
        note += (
            f" The clip silences {len(clipped)} of {size}: min() takes the clamped ratio there, "
            "and a clamp has derivative 0 outside its bounds. (--question 15)"
        )
    return Table(
        title=f"The {'steps' if are_steps else 'outcomes'} of {of}",
        axis="step" if are_steps else "outcome",
        rows=tuple(rows),
        columns=tuple(columns),
        omitted=max(0, size - MOST_ROWS),
        note=note,
    )


def _clamped(graph: Graph, size: int) -> tuple[Tensor | None, Tensor | None]:
    """The ratio that a clip holds between its bounds, and where it is outside."""
    for node in graph.nodes:
        saved = autograd_internals.saved_value(node, "self")
        is_clamp = base_name(node.name()) == "clamp"
        if is_clamp and isinstance(saved, Tensor) and saved.numel() == size:
            low = autograd_internals.saved_value(node, "min")
            high = autograd_internals.saved_value(node, "max")
            if low is None or high is None or high > 10 or low <= 0.01:
                continue  # torch's own bounds of a probability, not a clip
            return saved.detach(), (saved < low) | (saved > high)
    return None, None


def split_at(terms: Terms, part: Part) -> dict[str, Tensor]:
    """The gradient at a parameter by summand, where there are several."""
    found = terms.at(part.place)
    reaching = {label: g for label, g in found.items() if bool((g != 0).any())}
    return reaching if len(reaching) > 1 else {}
