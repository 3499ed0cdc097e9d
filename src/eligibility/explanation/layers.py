"""The step from logits to weights: through a linear layer, e_ij = δ_i x_j."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Match
from eligibility.explanation.checks import check_equal, rounding_of
from eligibility.explanation.elements import Check, Leaf, RuleStatement, Term
from eligibility.explanation.graph import Graph
from eligibility.explanation.recorder import base_name
from eligibility.explanation.wording import numbers_of

# Layers of a network that are written out, those next to its output first.
_MOST_LAYERS = 2
# Where autograd saves the input of each kind of layer.
_INPUTS = {"addmm": "mat1", "mm": "self"}


# The rule of a layer's weight, and whether autograd agrees.
Layer = tuple[RuleStatement, Check]


def layers_of(
    graph: Graph, matches: Sequence[Match], leaves: Mapping[int, Leaf], of: str
) -> list[Layer]:
    """The linear layers of ``graph`` whose weight is a leaf, at most the last few."""
    found: dict[str, Layer] = {}
    order = {node: index for index, node in enumerate(graph.nodes)}
    for match in sorted(matches, key=lambda m: -order[m.nodes[-1]]):
        if match.name == "linear layer" and len(found) < _MOST_LAYERS:
            leaf = leaves.get(id(autograd_internals.variable_of(match.inputs["weight"][0])))
            if leaf is not None and leaf.name not in found:
                found |= _layer(graph, match, leaf, of)
    return list(found.values())


def _layer(graph: Graph, match: Match, leaf: Leaf, of: str) -> dict[str, Layer]:
    """The layer by the name of its weight; nothing where it cannot be followed."""
    product = next(node for node in match.nodes if base_name(node.name()) in _INPUTS)
    saved = autograd_internals.saved_value(product, _INPUTS[base_name(product.name())])
    delta, arrived = (
        graph.flows[product].arrived[0],
        graph.arrivals(match.inputs["weight"], match.nodes),
    )
    if not isinstance(saved, Tensor) or delta is None or len(arrived) != 1:
        return {}
    ((_, autograd),) = arrived
    inputs, uses = saved.detach(), len(leaf.contributions)
    result = delta.mT.double() @ inputs.double()
    scale = delta.mT.double().abs() @ inputs.double().abs()
    epsilon = torch.finfo(autograd.dtype).eps
    check = check_equal(
        f"δ_i x_j = autograd, at {leaf.name}",
        result,
        autograd.double(),
        rounding_of(scale, len(inputs), epsilon),
        "the layer is used in another way as well",
    )
    rule = RuleStatement(
        name="backpropagation into the weights of a linear layer"
        + (f", the last of its {uses} uses" if uses > 1 else ""),
        parameter=leaf.name,
        coordinates="",
        equation=f"∂ {of}/∂W_ij = Σ δ_i x_j",
        terms=(
            Term("δ", "symbol", f"∂ {of}/∂(output of the layer)", numbers_of(delta)),
            Term("x", "symbol", "input of the layer", numbers_of(inputs)),
        ),
        result=numbers_of(result),
        reference="chain rule; for one Bernoulli-logistic unit Williams 1992, eq. (7)",
    )
    return {leaf.name: (rule, check)}
