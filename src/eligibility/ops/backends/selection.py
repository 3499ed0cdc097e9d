"""Which backend serves a tensor of logits, and from what size on its one node pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from eligibility.errors import InvalidTypeError
from eligibility.ops.backends import cpu, triton
from eligibility.shapes import are_values_readable, check_action

# Below this number of logits the time goes into calls, and torch's nodes cost less than Python's.
_SMALL_FOR_NATIVE = 1 << 16
_SMALL_FOR_PLAIN = 1 << 20

# How many modes watch or replace torch's operations (FakeTensorMode, FlopCounterMode, …), to which
# a kernel of our own would be invisible; there is no public name.
_modes = torch._C._len_torch_dispatch_stack


def check_actions(logits: Tensor, action: Tensor) -> None:
    """Raise for an index out of range; the native kernel does that itself."""
    # On a GPU the check would wait for the device; there torch's kernels refuse the index.
    if action.device.type == "cpu" and are_values_readable(logits, action):
        check_action(action, logits.shape[-1])


def pays(logits: Tensor, one_pass: bool) -> bool:
    """Whether a node of our own can take ``logits`` and is worth its overhead.

    ``one_pass``: it yields the gradient or the entropy along with log π(a); the native kernel then
    replaces enough calls that it always is.
    """
    # torch asks the same of itself before every operation; there is no public name.
    if forward_ad._current_level >= 0 or not are_values_readable(logits) or _modes() > 0:
        return False
    if not cpu.knows(logits):
        return logits.numel() >= _SMALL_FOR_PLAIN
    return one_pass or logits.numel() >= _SMALL_FOR_NATIVE


def direct(node: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``node.apply`` without its care for torch.func's transforms, which `pays` excludes."""
    quick = super(torch.autograd.Function, node).apply  # type: ignore[misc]  # in C

    def apply(*arguments: Any) -> Any:
        try:
            return quick(*arguments)
        except InvalidTypeError:  # perhaps a wrapper that a transform left behind: torch unwraps it
            return node.apply(*arguments)  # type: ignore[no-untyped-call]  # torch

    return apply


def is_only_traced() -> bool:
    """Whether torch.compile traces, and no transform of torch.func differentiates meanwhile."""
    return torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def describe() -> dict[str, str]:
    """What serves logits on each kind of device, for people."""
    plain = "plain torch, in pieces that stay in the cache"
    return {"cpu": _describe_cpu(plain), "cuda": _describe_cuda(plain), "other devices": plain}


def _describe_cpu(plain: str) -> str:
    sets = cpu.INSTRUCTION_SETS
    if not sets:
        reason = "the native kernel was not built, or from older sources: install with a compiler"
        return f"{plain} ({reason})"
    threads = torch.get_num_threads()
    noun = "thread" if threads == 1 else "threads"
    native = f"native kernel for floating-point logits ({sets[-1]}, {threads} {noun})"
    return f"{native}; else {plain}"


def _describe_cuda(plain: str) -> str:
    reason = triton.unavailable()
    if reason is not None:
        return f"{plain} ({reason})"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no such device here"
    kernels = f"experimental Triton {triton.version()} kernels for float32, bfloat16, float16"
    return f"{kernels} ({device}); else {plain}"
