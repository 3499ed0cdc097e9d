"""Double precision on one core, whatever a program asks for, and no clipped gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from eligibility.audit.interception.surroundings import quieten
from eligibility.audit.patches import Patches
from eligibility.audit.processor import PROCESSOR, cuda_is_available, made_near
from eligibility.audit.trainers.record import Record

_SHORTER = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
HIGHEST = {torch.topk, torch.Tensor.topk}
_LEGACY = ("FloatTensor", "HalfTensor", "BFloat16Tensor")
GENERAL = (
    "one core, double precision; trackers, saving, compilation, dropout, gradient clipping, the "
    "learning rate and the optimizer's rule have no effect"
)


class InDouble(TorchFunctionMode):
    """Turns floating-point numbers with fewer digits into double precision.

    Args:
        met: Told of every call of torch's after it was made, but for those that read no tensor from
            one: function, arguments, result; what it returns is the result.
        backward: Told of every loss before it goes backward.
    """

    def __init__(
        self, met: Callable[[Any, Any, Any, Any], Any], backward: Callable[[Any], None]
    ) -> None:
        super().__init__()
        self._met, self._backward = met, backward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":  # half of all calls: a shape, a dtype, …
            read = func(*args)
            return self._met(func, args, {}, read) if isinstance(read, torch.Tensor) else read
        options = made_near({name: _long(value) for name, value in (kwargs or {}).items()})
        if func in _CASTS:
            return self._met(torch.Tensor.double, args[:1], {}, args[0].double())
        if func is torch.Tensor.backward:
            self._backward(args[0])
        given = tuple(map(_long, args))
        if func in HIGHEST:  # a program asks for 50 tokens, and the probe has four
            given, options = _within(given, options)
        return self._met(func, given, options, func(*given, **options))


def _within(given: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of `topk`, asking for no more numbers than there are."""
    numbers, *rest = given or (options["input"],)
    most = numbers.shape[-1] if numbers.dim() else 1
    if rest:
        return (numbers, min(rest[0], most), *rest[1:]), options
    return given, options | {"k": min(options["k"], most)}


def _long(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _SHORTER else value


def settle(
    record: Record, met: Callable[[Any, Any, Any, Any], Any], backward: Callable[[Any], None]
) -> None:
    """From now on this process computes in double precision, and shows and saves nothing."""
    quieten(Patches())
    torch.set_default_dtype(torch.float64)
    torch.set_default_dtype = lambda d: None
    for name in _LEGACY:
        setattr(torch, name, torch.DoubleTensor)

    def stay(module: Any, *args: Any, **options: Any) -> Any:
        return module

    for name in ("to", "cuda", "half", "bfloat16", "float"):
        setattr(torch.nn.Module, name, stay)

    def unclipped(parameters: Any, *args: Any, **options: Any) -> Any:
        return torch.zeros(())

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        setattr(torch.nn.utils, name, unclipped)
        setattr(torch.nn.utils.clip_grad, name, unclipped)
    torch.nn.Dropout.forward = lambda self, input: input  # type: ignore[method-assign]
    torch.cuda.get_device_name = lambda *args, **options: "cpu"
    torch.cuda.is_available = cuda_is_available
    torch.cuda.get_device_properties = lambda *args, **options: PROCESSOR  # type: ignore[assignment]
    record.note(GENERAL)
    ExitStack().enter_context(InDouble(met, backward))
