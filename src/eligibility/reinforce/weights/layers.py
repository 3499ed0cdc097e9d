"""The closed forms, one function a kind of layer: (layer, x, δ) → factors of its parameters.

``x`` is the layer's input and ``δ = ∂ log p/∂output``, both with the samples on the first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from eligibility.reinforce.weights.factors import Dense, Factors, Lookup, OuterProduct, Use

ClosedForm: TypeAlias = Callable[[Any, Tensor, Tensor], dict[str, Factors]]


def closed_form_of(layer: nn.Module) -> ClosedForm | None:
    """The closed form for a layer; None if it has none, or if its options rule it out.

    The type must be the layer's own: a subclass may compute something else, and so may a layer
    whose weight is computed (weight norm, parametrisations), which is then no parameter.
    """
    if not isinstance(getattr(layer, "weight", None), nn.Parameter):
        return None
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return None
    return _CLOSED_FORMS.get(type(layer))


def is_batched(layer: nn.Module, x: Tensor, samples: int) -> bool:
    """Whether the first axis of the layer's input can be the samples'."""
    if isinstance(layer, nn.LayerNorm):
        enough = x.ndim > layer.weight.ndim
    elif isinstance(layer, nn.Embedding):
        enough = x.ndim >= 1
    elif isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        enough = x.ndim == layer.weight.ndim
    else:
        enough = x.ndim >= 2
    return enough and x.shape[0] == samples


def linear(layer: nn.Linear, x: Tensor, delta: Tensor) -> dict[str, Factors]:
    """``y = W x + b``: ``e_W = Σ_p δ xᵀ``, ``e_b = Σ_p δ``."""
    use = Use(x, delta, _positions, _positions)
    factors: dict[str, Factors] = {"weight": OuterProduct(len(x), layer.weight, (use,))}
    if layer.bias is not None:
        bias = delta.flatten(1, -2).sum(1) if delta.ndim > 2 else delta
        factors["bias"] = Dense(len(x), layer.bias, bias)
    return factors


def convolution(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, delta: Tensor
) -> dict[str, Factors]:
    """A linear layer at each position of the output, on the patch of the input that it sees."""
    use = Use(x, delta, partial(_patches, layer), partial(_grouped, layer.groups))
    factors: dict[str, Factors] = {"weight": OuterProduct(len(x), layer.weight, (use,))}
    if layer.bias is not None:
        factors["bias"] = Dense(len(x), layer.bias, delta.flatten(2).sum(2))
    return factors


def embedding(layer: nn.Embedding, x: Tensor, delta: Tensor) -> dict[str, Factors]:
    """``y = W[x]``: the eligibility of a row is the sum of δ over its look-ups."""
    index = x.reshape(len(x), -1)
    deltas = delta.reshape(*index.shape, -1).to(layer.weight.dtype)
    if layer.padding_idx is not None:
        deltas = deltas * (index != layer.padding_idx)[:, :, None]
    return {"weight": Lookup(len(x), layer.weight, index, deltas)}


def layer_norm(layer: nn.LayerNorm, x: Tensor, delta: Tensor) -> dict[str, Factors]:
    """``y = w ⊙ x̂ + b``: ``e_w = Σ_p δ ⊙ x̂``."""
    normal = functional.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    positions = tuple(range(1, x.ndim - len(layer.normalized_shape)))
    return _scale_and_shift(layer, normal, delta, positions)


def group_norm(layer: nn.GroupNorm, x: Tensor, delta: Tensor) -> dict[str, Factors]:
    """``y = w_c x̂_c + b_c``: ``e_w = Σ_p δ_c x̂_c``."""
    normal = functional.group_norm(x, layer.num_groups, None, None, layer.eps)
    return _scale_and_shift(layer, normal, delta, tuple(range(2, x.ndim)))


def batch_norm(
    layer: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, x: Tensor, delta: Tensor
) -> dict[str, Factors]:
    """With fixed statistics, as a scale and a shift of each channel."""
    mean, variance = layer.running_mean, layer.running_var
    normal = functional.batch_norm(x, mean, variance, None, None, False, 0.0, layer.eps)
    return _scale_and_shift(layer, normal, delta, tuple(range(2, x.ndim)))


_CLOSED_FORMS: dict[type[nn.Module], ClosedForm] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
}


def _scale_and_shift(
    layer: Any, normal: Tensor, delta: Tensor, positions: tuple[int, ...]
) -> dict[str, Factors]:
    scale, shift = delta * normal, delta
    if positions:
        scale, shift = scale.sum(positions), shift.sum(positions)
    factors: dict[str, Factors] = {"weight": Dense(len(normal), layer.weight, scale)}
    if layer.bias is not None:
        factors["bias"] = Dense(len(normal), layer.bias, shift)
    return factors


def _positions(features: Tensor) -> Tensor:
    """``[n, *positions, D]`` → ``[n, 1, P, D]``."""
    return features.reshape(len(features), 1, -1, features.shape[-1])


def _grouped(groups: int, delta: Tensor) -> Tensor:
    """``[n, G·O, *positions]`` → ``[n, G, P, O]``."""
    return delta.reshape(len(delta), groups, delta.shape[1] // groups, -1).mT


def _patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """``[n, G·C, *size]`` → ``[n, G, P, C·kernel]``: what each output position sees."""
    patches = _padded(layer, x)
    axes = range(2, x.ndim)
    geometry = zip(axes, layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, kernel, stride, dilation in geometry:
        patches = patches.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    # [n, G·C, *positions, *kernel] → [n, G, *positions, C, *kernel]
    grouped = patches.reshape(len(x), layer.groups, -1, *patches.shape[2:])
    spatial = len(layer.kernel_size)
    return grouped.movedim(2, 2 + spatial).flatten(-spatial - 1).flatten(2, -2)


def _padded(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    sides: list[int] = []  # the last axis first, as pad takes it
    geometry = zip(layer.kernel_size, layer.dilation, range(x.ndim - 2), strict=True)
    for kernel, dilation, axis in reversed(list(geometry)):
        if isinstance(layer.padding, str):
            total = dilation * (kernel - 1) if layer.padding == "same" else 0
            sides += [total // 2, total - total // 2]
        else:
            sides += [layer.padding[axis]] * 2
    if not any(sides):
        return x
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(x, sides, mode=mode)
