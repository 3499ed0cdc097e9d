"""Every semi-private name of torch's autograd that this package reads, and nothing else.

Each function answers None or nothing where its torch lacks the name; `missing_names` says so, and
explanations then carry a note instead of forward values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_autograd: Any = getattr(torch._C, "_autograd", None)
_get_sequence_nr = getattr(_autograd, "_get_sequence_nr", None)
_current_autograd_node = getattr(torch._C, "_current_autograd_node", None)


def missing_names() -> tuple[str, ...]:
    """The names that this version of torch lacks."""
    names = {
        "torch._C._autograd._get_sequence_nr": _get_sequence_nr,
        "torch._C._current_autograd_node": _current_autograd_node,
    }
    return tuple(name for name, function in names.items() if function is None)


def latest_sequence_number() -> int | None:
    """The sequence number of the node that autograd made last in this thread."""
    return None if _get_sequence_nr is None else int(_get_sequence_nr()) - 1


def sequence_number(node: Any) -> int | None:
    """When ``node`` was made, counted in nodes of its thread."""
    read = getattr(node, "_sequence_nr", None)
    return None if read is None else int(read())


def is_inside_backward() -> bool:
    """Whether a backward pass is running in this thread."""
    return _current_autograd_node is not None and _current_autograd_node() is not None


def variable_of(node: Any) -> Tensor | None:
    """The leaf tensor whose gradient ``node`` accumulates; None for any other node."""
    variable = getattr(node, "variable", None) if node.name().endswith("AccumulateGrad") else None
    return variable if isinstance(variable, Tensor) else None


def saved_value(node: Any, name: str) -> Any:
    """What the forward pass saved for the backward under ``name``; None if it saved no such thing.

    ``RuntimeError``: the graph was freed by an earlier backward pass.
    """
    return getattr(node, f"_saved_{name}", None)


def gradients(
    outputs: Sequence[Any], inputs: Sequence[Any], starts: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """∂ Σ start · output/∂ inputs, None where one is not reached; the graph stays whole.

    Outputs and inputs are tensors or edges of the graph. `torch.autograd.grad` does the same, but
    loads torch's symbolic shapes to compare ours, which takes longer than all the rest.
    """
    engine = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if engine is None:
        found = torch.autograd.grad(outputs, inputs, starts, retain_graph=True, allow_unused=True)
    else:
        found = engine(
            tuple(outputs), tuple(starts), True, False, tuple(inputs),
            allow_unreachable=True, accumulate_grad=False,
        )  # fmt: skip
    return tuple(found)


def is_zero_tensor(tensor: Tensor) -> bool:
    """Whether these are the zeros without memory that autograd passes on in some places."""
    read = getattr(tensor, "_is_zerotensor", None)
    return read is not None and bool(read())


def is_usual(node: Any, name: str) -> bool:
    """Whether an operation works as distributions use it: along the last axis, or as a square.

    A sum over another axis, say, normalises something else than the categories. What cannot be
    read is not usual.
    """
    read = _USUAL.get(name)
    try:
        return read is None or read(node)
    except AttributeError:
        return False


def _is_last(axes: Any, dimensions: int) -> bool:
    """Whether ``axes``, saved as unsigned numbers, is the last of ``dimensions`` alone."""
    chosen = axes if isinstance(axes, tuple) else (axes,)
    signed = [axis - 2**64 if axis >= 2**63 else axis for axis in chosen]
    return len(signed) == 1 and signed[0] in (-1, dimensions - 1)


def _sums_last(node: Any) -> bool:
    dimensions = len(node._saved_self_sym_sizes)
    return dimensions <= 1 or (
        hasattr(node, "_saved_dim") and _is_last(node._saved_dim, dimensions)
    )


def _picks_one_of_each(node: Any) -> bool:
    indices, dimensions = node._saved_indices, len(node._saved_self_sym_sizes)
    return len(indices) == dimensions and all(index is not None for index in indices)


_USUAL: dict[str, Callable[[Any], bool]] = {
    "sum": _sums_last,
    "logsumexp": lambda node: _is_last(node._saved_dim, node._saved_self.ndim),
    "softmax": lambda node: _is_last(node._saved_dim, node._saved_result.ndim),
    "logsoftmax": lambda node: _is_last(node._saved_dim, node._saved_result.ndim),
    "gather": lambda node: (
        _is_last(node._saved_dim, node._saved_self.ndim) and node._saved_index.shape[-1] == 1
    ),
    "select": lambda node: _is_last(node._saved_dim, len(node._saved_self_sym_sizes)),
    "index": _picks_one_of_each,
    "pow": lambda node: node._saved_exponent == 2,
}
