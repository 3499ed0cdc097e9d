"""What a program asks of distributions: which log-probability belongs to which parameters.

A distribution forgets what it was given (``Categorical`` keeps probs / Σ probs), so the tensors are
noted when it is constructed, and each result when it is computed.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from eligibility.explanation.graph import Graph, Node, Place
from eligibility.rules.registry import supported_distributions


@dataclass(frozen=True, eq=False)
class Call:
    """One question to a distribution, and the answer."""

    kind: Literal["log_prob", "entropy", "divergence"]  # what was asked for
    dist: Distribution  # the distribution; of a divergence, the first one
    # The tensors that it was constructed with, by the names of its parameters.
    given: Mapping[str, Tensor]
    value: Tensor | None  # the outcome whose log-probability was asked for; else None
    result: Tensor
    # The outcome itself, where it has a graph: nothing cut it off from what it was computed from;
    # else None.
    attached: Tensor | None = None


# What holds a distribution inside another one, by the argument of its constructor -> the prefix
# that the names of its parameters get there.
_INNER = {
    "base_distribution": "",
    "mixture_distribution": "mixture_distribution.",
    "component_distribution": "component_distribution.",
}


class Calls:
    """Collects `Call` while it watches."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self.found: list[Call] = []
        self._is_wanted = is_wanted
        self._given: weakref.WeakKeyDictionary[Any, dict[str, Tensor]] = weakref.WeakKeyDictionary()
        self._depth = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Call through the methods of torch's distributions, and note what they answer."""
        with ExitStack() as stack:
            for cls in supported_distributions():
                for name in vars(cls).keys() & {"__init__", "log_prob", "entropy"}:
                    wrap = self._constructing if name == "__init__" else self._noting(name)
                    stack.enter_context(_replaced(cls, name, wrap))
            for module in (torch.distributions, torch.distributions.kl):
                stack.enter_context(_replaced(module, "kl_divergence", self._noting("divergence")))
            yield

    def _constructing(self, construct: Any) -> Any:
        signature = inspect.signature(construct)

        @functools.wraps(construct)
        def constructed(dist: Any, *args: Any, **options: Any) -> None:
            construct(dist, *args, **options)
            tensors: dict[str, Tensor] = {}
            for name, argument in signature.bind(dist, *args, **options).arguments.items():
                if isinstance(argument, Tensor):
                    tensors[name] = argument
                elif name in _INNER and isinstance(argument, Distribution):
                    inner = self._given.get(argument, {})
                    tensors |= {_INNER[name] + key: tensor for key, tensor in inner.items()}
            self._given[dist] = {**self._given.get(dist, {}), **tensors}

        return constructed

    def _noting(self, kind: Any) -> Callable[[Any], Any]:
        def wrap(ask: Any) -> Any:
            @functools.wraps(ask)
            def asked(dist: Any, *args: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    result = ask(dist, *args, **options)
                finally:
                    self._depth -= 1
                is_outermost = self._depth == 0 and self._is_wanted()
                if is_outermost and isinstance(result, Tensor) and result.grad_fn is not None:
                    value = next((item for item in (*args, *options.values())), None)
                    outcome = value.detach() if isinstance(value, Tensor) else None
                    attached = value if isinstance(value, Tensor) and value.requires_grad else None
                    given = self._given.get(dist, {})
                    self.found.append(Call(kind, dist, given, outcome, result, attached))
                return result

            return asked

        return wrap


@contextmanager
def _replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` as ``wrap`` makes it, until the end of the block."""
    original = vars(owner)[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


Kind = Literal["log_prob", "entropy", "divergence", "other", "loss"]


@dataclass(frozen=True)
class Match:
    """A recognised subgraph."""

    name: str  # what it is called: "Categorical(probs=).log_prob"
    kind: Kind  # what its value is
    nodes: tuple[Node, ...]  # the nodes inside, in forward order; the last one makes its value
    inputs: Mapping[str, Place]  # where its named inputs come from
    formula: str = ""  # what it computes
    call: Call | None = None  # the question to a distribution that made it, if one was recorded


# (class, what it was given) -> the formula of its log_prob; (class, question) -> of the answer
_FORMULAS = {
    ("Categorical", "probs="): "log(x_a / Σx)",
    ("Categorical", "logits="): "x_a − log Σ exp(x)",
    ("Categorical", "entropy"): "−Σ π log π",
    ("Categorical", "divergence"): "Σ p (log p − log q)",
    ("Bernoulli", "probs="): "y log x + (1 − y) log(1 − x)",
    ("Bernoulli", "logits="): "y x − log(1 + eˣ)",
}


def matches_of_calls(
    graph: Graph,
    calls: Sequence[Call],
    users: Mapping[Node, set[Node]],
    order: Mapping[Node, int],
    ends: set[Node],
) -> list[Match]:
    """What distributions were asked for: each with the operations that serve nothing else."""
    found: dict[Node, Match] = {}
    for call in calls:
        root = call.result.grad_fn
        if root not in order or root in found or root in ends:
            continue
        outside = {place_of(tensor)[0] for tensor in call.given.values() if tensor.requires_grad}
        inside: set[Node] = set()
        for node in reversed(graph.nodes[: order[root] + 1]):
            serves = node is root or (users.get(node) and users[node] <= inside)
            if (
                serves
                and node not in outside | ends
                and not any(node in m.nodes for m in found.values())
            ):
                inside.add(node)
        name = type(call.dist).__name__
        given = ", ".join(f"{key}=" for key, tensor in call.given.items() if tensor.requires_grad)
        title = f"{name}({given}).{call.kind}" if call.kind != "divergence" else f"KL of {name}"
        nodes = tuple(sorted(inside, key=order.__getitem__))
        asked = given if call.kind == "log_prob" else call.kind
        formula = _FORMULAS.get((name, asked), "")
        found[root] = Match(title, call.kind, nodes, {}, formula, call)
    return list(found.values())


def place_of(tensor: Tensor) -> Place:
    """Where gradients of ``tensor`` arrive."""
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return (edge.node, edge.output_nr)
