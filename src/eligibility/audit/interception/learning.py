"""Watches what the program gives its optimizers, and lets no parameter move."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from eligibility.audit.interception import graph
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.patches import Patches
from eligibility.audit.raised import precision_note
from eligibility.audit.trace import CLIPPED, RATIO, SIDE, Fact
from eligibility.audit.user_code import user_place

_WRITE_PARAMETERS = ("torch.nn.", "torch.optim.")  # modules that need no graph of what they write
_SMALL = 2.0**-40  # of a gradient's size: without rounding, and nobody clips it


def watch_optimizers(patches: Patches, recorder: Recorder) -> None:
    """Note every parameter, every ``backward`` or ``grad``; keep the parameters still."""
    _registration(patches, recorder)
    _copying(patches, recorder)
    _stepping(patches, recorder)
    _backward(patches, recorder)
    if recorder.job.inspected:
        _remember_lines(patches)
    _clipping(patches, recorder)
    if recorder.job.slopes:
        _keep_graphs(patches, recorder)


def _keep_graphs(patches: Patches, recorder: Recorder) -> None:
    """A policy that acts without gradients is differentiated all the same."""

    def enter(self: torch.no_grad) -> None:
        stock(self)
        by = sys._getframe(1).f_globals.get("__name__", "")
        if recorder.running and not by.startswith(_WRITE_PARAMETERS):
            torch.set_grad_enabled(self.prev)

    def numpy(self: torch.Tensor, *args: Any, **options: Any) -> Any:
        return stock_numpy(self.detach(), *args, **options)

    def array(self: torch.Tensor, *args: Any, **options: Any) -> Any:
        return stock_array(self.detach(), *args, **options)

    stock = patches.set(torch.no_grad, "__enter__", enter)
    stock_numpy = patches.set(torch.Tensor, "numpy", numpy)
    stock_array = patches.set(torch.Tensor, "__array__", array)


def _registration(patches: Patches, recorder: Recorder) -> None:
    def initialise(self: Optimizer, params: Iterable[Any], *args: Any, **options: Any) -> None:
        stock(self, params, *args, **options)
        recorder.has_optimizer([p for group in self.param_groups for p in group["params"]])

    def keep(self: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        stock_keep(self, name, parameter)
        if parameter is not None:
            recorder.parameters.of_modules.append(parameter)

    stock = patches.set(Optimizer, "__init__", initialise)
    stock_keep = patches.set(torch.nn.Module, "register_parameter", keep)
    wanted = recorder.job.trained

    def register_early(*_: Any) -> None:
        """Before a module runs: what a later optimizer trains."""
        made = recorder.parameters.of_modules
        if not recorder.parameters.tensors and len(made) > max(wanted):
            recorder.register([made[number] for number in wanted])

    if wanted:
        patches.callback(register_module_forward_pre_hook(register_early).remove)


def _copying(patches: Patches, recorder: Recorder) -> None:
    """A copy that was made before its optimizer is moved with what it is a copy of."""

    def deepcopy(self: torch.nn.Parameter, memo: Any) -> Any:
        made = stock_copy(self, memo)
        recorder.parameters.copied(self, made)
        return made

    def load(self: torch.nn.Module, state_dict: Any, *args: Any, **options: Any) -> Any:
        loaded = stock_load(self, state_dict, *args, **options)
        for name, made in self.named_parameters():
            if isinstance(state_dict.get(name), torch.Tensor):
                recorder.parameters.copied(state_dict[name], made)
        return loaded

    stock_copy = patches.set(torch.nn.Parameter, "__deepcopy__", deepcopy)
    stock_load = patches.set(torch.nn.Module, "load_state_dict", load)


def _stepping(patches: Patches, recorder: Recorder) -> None:
    """An optimizer of torch skips parameters without a gradient, so the gradients hide meanwhile.

    One of the program's own may not: what it moves is put back.
    """
    hidden: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def before(optimizer: Optimizer, args: Any, options: Any) -> Any:
        given = _with_closure_called(args, options)
        with torch._C.DisableTorchFunction():  # the audit's own operations, of which no mode learns
            recorder.updated(optimizer)
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        if type(optimizer).step.__module__.startswith("torch.optim"):
            for parameter in trained:
                hidden.append((parameter, parameter.grad))
                parameter.grad = None
        else:
            kept.extend((parameter, parameter.detach().clone()) for parameter in trained)
        return given

    def after(optimizer: Optimizer, args: Any, options: Any) -> None:
        while hidden:
            parameter, gradient = hidden.pop()
            parameter.grad = gradient
        while kept:
            parameter, still = kept.pop()
            parameter.data.copy_(still)
        recorder.stepped(optimizer)

    patches.callback(register_optimizer_step_pre_hook(before).remove)
    patches.callback(register_optimizer_step_post_hook(after).remove)


def _with_closure_called(args: Any, options: Any) -> tuple[Any, Any] | None:
    """The arguments of ``step`` once its closure has made the gradients; None without one."""
    optimizer, *rest = args
    closure = rest[0] if rest else options.get("closure")
    if not callable(closure):
        return None
    with torch.enable_grad():
        loss = closure()
    if rest:
        return (optimizer, lambda: loss, *rest[1:]), options
    return args, {**options, "closure": lambda: loss}


def _backward(patches: Patches, recorder: Recorder) -> None:
    def backward(self: torch.Tensor, *args: Any, **options: Any) -> None:
        recorder.backward_place = user_place()
        recorder.accumulated.before_backward()
        look_into([self])
        if recorder.job.inspected and self.grad_fn is not None:  # `grad` is of what falls or rises
            graph.watch_extremes(self.grad_fn, tell_side)
        stock(self, *args, **options)

    def grad(outputs: Any, *args: Any, **options: Any) -> Any:
        look_into([outputs] if isinstance(outputs, torch.Tensor) else outputs)
        return stock_grad(outputs, *args, **options)

    def look_into(losses: Iterable[torch.Tensor]) -> None:
        for loss in losses:
            if loss.grad_fn is not None:
                nodes = list(graph.nodes_below(loss.grad_fn))
                for fact in _facts_of_graph(nodes):
                    recorder.note(fact)
                leaves = [node.variable for node in nodes if hasattr(node, "variable")]
                recorder.hand_updates.differentiates(leaves, user_place())
                if recorder.job.inspected:
                    update, tensors = len(recorder.updates), recorder.parameters.tensors
                    recorder.facts += graph.inspect_graph(loss.grad_fn, update, tensors)

    def tell_side(node: Any, right: bool) -> None:
        fact = Fact(SIDE, graph.place_of_node(node), 1.0 if right else -1.0, len(recorder.updates))
        recorder.facts.append(fact)

    stock = patches.set(torch.Tensor, "backward", backward)
    stock_grad = patches.set(torch.autograd, "grad", grad)


def _remember_lines(patches: Patches) -> None:
    """Each node of a graph keeps the line that made it, as for the detection of anomalies."""
    # in place of the whole stack, whose text takes longer than the operation
    patches.set(torch.fx.traceback, "format_stack", lambda: [graph.line_text(*user_place())])
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.set_anomaly_enabled(True, False)
    patches.callback(torch.set_anomaly_enabled, *before)


def _facts_of_graph(nodes: Iterable[Any]) -> set[str]:
    """Whether the graph has exp(a − b) of two probabilities, and clips it; the lowest precision."""
    facts: set[str] = set()
    for node in nodes:
        if graph.exponentiated_difference(node) or graph.divides_by_probabilities(node):
            facts.add(RATIO)
        if graph.clips_ratio(node):
            facts.add(CLIPPED)
        facts |= {precision_note(made.dtype) for made in node._input_metadata}
    return facts - {""}


def _clipping(patches: Patches, recorder: Recorder) -> None:
    """Clipping is noted, and left out: it would hide the gradient's own size."""

    def clip_norm(parameters: Any, max_norm: float, *args: Any, **options: Any) -> torch.Tensor:
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        gradients = [p.grad.norm() for p in tensors if p.grad is not None]
        total = torch.stack(gradients).norm() if gradients else torch.tensor(0.0)
        if total > max_norm:
            recorder.note("gradient-clipping")
        return total

    def clip_value(parameters: Any, clip_value: float, *args: Any, **options: Any) -> None:
        recorder.note("gradient-clipping")

    def register_hook(tensor: torch.Tensor, hook: Callable[[Any], Any]) -> Any:
        if not tensor.is_leaf:
            return stock_hook(tensor, hook)

        def unclipped(gradient: torch.Tensor) -> Any:
            given = hook(gradient)
            if given is None or torch.equal(given, gradient):
                return given
            small = gradient * _SMALL
            if not torch.equal(hook(small), small):
                return given
            recorder.note("gradient-clipping")
            return None

        return stock_hook(tensor, unclipped)

    stock_hook: Callable[..., Any] = patches.set(torch.Tensor, "register_hook", register_hook)
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        patches.set(module, "clip_grad_norm_", clip_norm)
        patches.set(module, "clip_grad_value_", clip_value)
