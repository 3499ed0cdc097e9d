"""What a forward and a backward leave at each layer: its input, and the gradient at its output.

Forward hooks note each use of a layer that has a closed form; they are removed when the forward
is over, and nothing stays on the module. The autograd graph then tells which parameters act only
through the noted uses: a functional use elsewhere is seen as an edge that avoids them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from eligibility.errors import InvalidValueError
from eligibility.reinforce.weights.factors import Factors, combine
from eligibility.reinforce.weights.layers import ClosedForm, closed_form_of, is_batched


@dataclass(frozen=True, eq=False)
class _Noted:
    """One call of a layer with a closed form, as its forward hook saw it."""

    layer: Any
    closed_form: ClosedForm
    inputs: Tensor
    version: int
    before: Node | None  # where the graph goes on, upstream of the layer
    after: GradientEdge | None  # at its output; None where the call was outside the graph


def capture(
    module: nn.Module, log_prob: Callable[[], Tensor], *, verify: bool
) -> tuple[Tensor, dict[int, Factors]]:
    """The value ``[N]`` of ``log_prob``, and the factors by ``id(parameter)``.

    A parameter is missing if it also acts in another way than through a noted layer.
    """
    noted: list[_Noted] = []
    with torch.enable_grad(), _noting(module, noted):
        value = log_prob()
    if not value.requires_grad:
        return value, {}
    reached, outside = _walk(value, noted)
    deltas = _deltas(value, reached, verify)
    outside |= {id(p) for note in noted if note.after is None for p in note.layer.parameters()}
    parts: dict[int, list[Factors]] = {}
    for note, delta in zip(reached, deltas, strict=True):
        parameters = dict(note.layer.named_parameters(recurse=False))
        if delta is None:
            outside |= {id(parameter) for parameter in parameters.values()}
            continue
        _check_unmodified(note)
        for name, factors in _factors(note, delta).items():
            parts.setdefault(id(parameters[name]), []).append(factors)
    whole = {key: combine(uses) for key, uses in parts.items() if key not in outside}
    return value.detach(), whole


@contextmanager
def _noting(module: nn.Module, noted: list[_Noted]) -> Iterator[None]:
    handles = []
    try:
        for layer in module.modules():
            closed_form = closed_form_of(layer)
            if closed_form is not None:
                hook = _note(closed_form, noted)
                # First of all hooks: a later one may replace the output.
                handles.append(layer.register_forward_hook(hook, prepend=True, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _note(closed_form: ClosedForm, noted: list[_Noted]) -> Callable[..., None]:
    def hook(
        layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        x = args[0] if args else kwargs["input"]
        # Edges, not tensors: an activation that works in place would move the tensor downstream.
        after = get_gradient_edge(output) if output.requires_grad else None
        noted.append(_Noted(layer, closed_form, x.detach(), x._version, x.grad_fn, after))

    return hook


def _walk(value: Tensor, noted: Sequence[_Noted]) -> tuple[list[_Noted], set[int]]:
    """The noted uses that ``value`` depends on, and the parameters it reaches around them."""
    by_node = {note.after.node: note for note in noted if note.after is not None}
    stack, seen = [value.grad_fn], set[Node]()
    reached: list[_Noted] = []
    outside: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in by_node:
            reached.append(by_node[node])
            stack.append(by_node[node].before)
        elif hasattr(node, "variable"):
            outside.add(id(node.variable))
        else:
            stack.extend(following for following, _ in node.next_functions)
    return reached, outside


def _deltas(value: Tensor, noted: Sequence[_Noted], verify: bool) -> list[Tensor | None]:
    """``∂ log p/∂output`` of each use; None where the rows are not the samples."""
    edges = [note.after for note in noted if note.after is not None]
    if not edges:
        return []
    ones = torch.ones_like(value)
    deltas = list(torch.autograd.grad(value, edges, ones, retain_graph=verify))
    samples = len(value)
    fits = [
        is_batched(note.layer, note.inputs, samples) and delta.shape[0] == samples
        for note, delta in zip(noted, deltas, strict=True)
    ]
    if verify:
        weights = _powers_of_two(value)
        weighted = torch.autograd.grad(value, edges, weights)
        for i, (delta, other) in enumerate(zip(deltas, weighted, strict=True)):
            fits[i] = fits[i] and _is_row_by_row(delta, other, weights)
    return [delta if fit else None for delta, fit in zip(deltas, fits, strict=True)]


def _powers_of_two(value: Tensor) -> Tensor:
    """A weight for each sample; multiplying by it rounds nothing."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(0, 4, (len(value),), generator=generator)
    exponents[:1], exponents[1:2] = 0, 3
    return (2.0**exponents).to(value)


def _is_row_by_row(delta: Tensor, weighted: Tensor, weights: Tensor) -> bool:
    """Weighting the samples must weight the rows: else they mix, or the rows are not samples."""
    if not delta.numel():
        return True
    expected = delta * weights.to(delta).reshape(-1, *[1] * (delta.ndim - 1))
    error, scale = (weighted - expected).abs().amax(), expected.abs().amax()
    return not bool(error > torch.finfo(delta.dtype).eps ** 0.5 * scale)


def _factors(note: _Noted, delta: Tensor) -> dict[str, Factors]:
    """In the dtype of the parameters, which autocast does not use for the activations."""
    dtype = note.layer.weight.dtype
    x = note.inputs.to(dtype) if note.inputs.is_floating_point() else note.inputs
    return note.closed_form(note.layer, x, delta.to(dtype))


def _check_unmodified(note: _Noted) -> None:
    if note.inputs._version != note.version:
        raise InvalidValueError(
            f"the input of a {type(note.layer).__name__} layer",
            "a tensor that the module changed in place afterwards",
            "an input that nothing changes after the layer has read it",
            "use the out-of-place operation; torch's own backward needs this as well",
        )
