"""What each function of torch means to a tensor of hand-made noise, by name."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from eligibility.audit.noise.symbol import EXPONENTIAL, Chain

# Functions by name, whether of torch, of tensors or of torch.nn.functional.
PASSIVE = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "element_size",
    "data_ptr", "is_floating_point", "requires_grad_", "__len__", "__repr__", "__hash__",
    "get_device", "untyped_storage",
    "zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_empty", "is_complex",
    "storage_offset", "is_same_size", "register_hook", "retain_grad", "result_type", "set_",
}  # fmt: skip
SAME = {
    "to", "type", "double", "float", "cpu", "detach", "detach_", "clone", "contiguous", "type_as",
    "as_tensor", "alias", "positive",
}  # fmt: skip
MOVING = {
    "__getitem__", "view", "reshape", "squeeze", "unsqueeze", "flatten", "ravel", "transpose", "t",
    "permute", "movedim", "swapaxes", "expand", "repeat", "split", "chunk", "unbind", "narrow",
    "select", "index_select", "unflatten", "flip", "tile", "squeeze_", "unsqueeze_", "view_as",
    "reshape_as", "expand_as", "broadcast_to", "__iter__",
}  # fmt: skip
CASTING = {"double", "to", "type"}
OVERWRITING = {"zero_", "fill_", "copy_"}
JOINING = {"cat", "concat", "stack", "hstack", "vstack"}
COMPARING: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt, "le": operator.lt, "gt": operator.gt, "ge": operator.gt,
    "less": operator.lt, "less_equal": operator.lt, "greater": operator.gt,
    "greater_equal": operator.gt,
}  # fmt: skip
BINARY = {
    "add": "add", "__radd__": "add", "sub": "sub", "subtract": "sub", "rsub": "rsub",
    "__rsub__": "rsub", "mul": "mul", "multiply": "mul", "__rmul__": "mul", "div": "div",
    "true_divide": "div", "divide": "div", "__rdiv__": "rdiv", "__rtruediv__": "rdiv",
}  # fmt: skip
# Makers of noise: whether it is normal, and what is done to the base number.
SOURCES: dict[str, tuple[bool, Chain]] = {
    "rand": (False, ()),
    "rand_like": (False, ()),
    "uniform_": (False, ()),
    "randn": (True, ()),
    "randn_like": (True, ()),
    "normal_": (True, ()),
    "exponential_": (False, EXPONENTIAL),
}


def fills_parameter(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a parameter gets its first numbers; some of `torch.nn.init` fill another tensor."""
    if not name.endswith("_") or name.startswith("__"):  # the latter read an attribute, mostly
        return False
    given = any(isinstance(value, torch.nn.Parameter) for value in (*args[:1], *kwargs.values()))
    return given or sys._getframe(2).f_globals.get("__name__") == "torch.nn.init"
