"""Every semi-private name of torch's autograd that this package reads, and nothing else.

Each function answers None or nothing where its torch lacks the name; `missing_names` says so, and
explanations then carry a note instead of forward values.
"""

from __future__ import annotations

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


def saved_values(node: Any) -> dict[str, Any]:
    """What the forward pass saved for the backward: ``{"result": tensor, "dim": -1}``.

    Raises:
        RuntimeError: The graph was freed by an earlier backward pass.
    """
    names = [name for name in dir(node) if name.startswith("_saved_")]
    return {name.removeprefix("_saved_"): getattr(node, name) for name in names}
