"""Known subgraphs: ``Categorical(probs=).log_prob`` is sum, division, clamp, log and selection.

A pattern is written as the expression that it recognises. It matches when every node inside is
used by nothing outside, so that folding it hides no edge; what matches nothing stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eligibility.explanation import autograd_internals
from eligibility.explanation.calls import Call, Kind, Match, matches_of_calls
from eligibility.explanation.graph import Graph, Node, Place, inputs_of, users_of
from eligibility.explanation.recorder import base_name

# They move numbers to other places and change none; a pattern looks through them.
_TRANSPARENT = frozenset(
    (
        "alias", "clone", "expand", "permute", "reshapealias", "squeeze", "t", "tocopy",
        "transpose", "unsafeview", "unsqueeze", "view",
    )
)  # fmt: skip
# Through these a loss stays a weighted sum of what goes in.
LINEAR = _TRANSPARENT | frozenset(
    ("add", "cat", "div", "mean", "mul", "neg", "select", "slice", "stack", "sub", "sum")
)


@dataclass(frozen=True)
class Var:
    """Stands for anything; the same name twice stands for the same place."""

    name: str


@dataclass(frozen=True)
class Op:
    """A node by its base name, or one of several, and what its first inputs must be."""

    names: tuple[str, ...]
    inputs: tuple[Pattern | None, ...]
    any_axis: bool = False


@dataclass(frozen=True)
class Outside:
    """An input that must be what ``pattern`` says, but belongs to another match."""

    name: str
    pattern: Pattern


# Of several patterns, the first that matches.
Either = tuple["Pattern", ...]
Pattern = Var | Op | Outside | Either
# The nodes that a match claims, and the places that its variables stand for.
_Claim = tuple[list[Node], dict[str, Place]]


def _op(names: str, *inputs: Pattern | None) -> Op:
    return Op(tuple(names.split("|")), inputs)


_X = Var("x")
_LOC, _SCALE = Var("loc"), Var("scale")
_SOFTMAX = _op("softmax", _X)
_LOG_SOFTMAX = _op("logsoftmax", _X)
_NORMALISED_LOGITS = _op("sub", _X, _op("logsumexp", _X))
_NORMALISED_PROBS = _op("div", _X, _op("sum", _X))
_CLAMPED_LOG = _op("log", _op("clamp", _X))
_COIN = _op("sub", _CLAMPED_LOG, _op("log1p", _op("neg", _op("clamp", _X))))
_EXP_SHARE = _op("div", _op("exp", _X), _op("sum", _op("exp", _X)))
_ONE_MINUS = (_op("rsub", _X), _op("sub", None, _X))
_LOG_OF_REST = (_op("log1p", _op("neg", _X)), _op("log", _ONE_MINUS))


def _times(inner: Pattern) -> Either:
    """A product with a constant on either side."""
    return (_op("mul", inner), _op("mul", None, inner))


_LOG_RATIO = (_op("sub", None, Var("l")), _op("sub", Var("l"), None))
_SQUARE = _op("pow", _op("sub", Var("value"), _LOC))
_SQUARED_SCORE = _op("pow", _op("div", _op("sub", Var("value"), _LOC), _SCALE))
_HALF_SQUARE = (
    _op("div", _op("neg", _SQUARE), _op("mul", _op("pow", _SCALE))),
    _op("neg", _op("div", _SQUARE, _op("mul", _op("pow", _SCALE)))),
    _times(_SQUARED_SCORE),
    _op("div", _op("neg", _SQUARED_SCORE)),
    _op("neg", _op("div", _SQUARED_SCORE)),
)
_LOG_SCALE = _op("log", _SCALE)


def _log_probs(z: Pattern, w: Pattern) -> Either:
    """The log-probabilities of all categories, from logits or from weights."""
    return (
        _op("sub", z, _op("logsumexp", z)),
        _op("logsoftmax", z),
        _op("log", _op("clamp", _op("div", w, _op("sum", w)))),
    )


_LOG_PROBS, _OTHER_LOG_PROBS = _log_probs(Var("z"), Var("w")), _log_probs(Var("v"), Var("v"))


def _selected(inner: Pattern) -> Either:
    """One entry of each row, picked in any of torch's ways."""
    picked = "gather|index|select"
    return (_op(picked, inner), _op(picked, Op(("select",), (inner,), any_axis=True)))


# Larger patterns first: a node belongs to the first that takes it.
_PATTERNS: tuple[tuple[str, Kind, Pattern, str], ...] = (
    ("Categorical(probs=).log_prob", "log_prob",
     _selected(_op("log", _op("clamp", _NORMALISED_PROBS))),
     "log(x_a / Σx)"),
    ("Categorical(logits=).log_prob", "log_prob", _selected(_NORMALISED_LOGITS),
     "x_a − log Σ exp(x)"),
    ("log_softmax and selection", "log_prob", _selected(_LOG_SOFTMAX),
     "x_a − log Σ exp(x)"),
    ("log of softmax and selection", "log_prob",
     (_selected(_op("log", _SOFTMAX)), _op("log", _selected(_SOFTMAX))),
     "log softmax(x)_a"),
    ("log of a share of exponentials", "log_prob",
     (_op("log", _selected(_EXP_SHARE)), _selected(_op("log", _EXP_SHARE))),
     "x_a − log Σ exp(x)"),
    ("log of a share, probs", "log_prob",
     (_op("log", _selected(_NORMALISED_PROBS)), _selected(_op("log", _NORMALISED_PROBS))),
     "log(x_a / Σx)"),
    ("nll_loss of log of softmax", "log_prob", _op("nllloss", _op("log", _SOFTMAX)),
     "−(x_a − log Σ exp(x))"),
    ("cross_entropy", "log_prob", _op("nllloss", _LOG_SOFTMAX),
     "−(x_a − log Σ exp(x))"),
    ("Bernoulli(probs=).log_prob", "log_prob",
     _op("neg", _op("binarycrossentropywithlogits", _COIN)),
     "y log x + (1 − y) log(1 − x)"),
    ("Bernoulli(logits=).log_prob", "log_prob", _op("neg", _op("binarycrossentropywithlogits", _X)),
     "y x − log(1 + eˣ)"),
    ("binary cross-entropy of Bernoulli logits", "log_prob",
     _op("binarycrossentropywithlogits", _X), "log(1 + eˣ) − y x"),
    ("Bernoulli probs by hand", "log_prob",
     _op("add", _times(_op("log", _X)), _times(_LOG_OF_REST)),
     "y log x + (1 − y) log(1 − x)"),
    ("Normal.log_prob", "log_prob",
     (_op("sub", _op("sub", _HALF_SQUARE, _LOG_SCALE), None),
             _op("sub", _op("sub", _HALF_SQUARE, None), _LOG_SCALE),
             _op("sub", _HALF_SQUARE, _LOG_SCALE)),
     "−(y − μ)²/(2σ²) − log σ − log √(2π)"),
    ("Gaussian log-density of fixed scale", "log_prob",
     _op("sub", _op("sub", _op("div", _op("neg", _SQUARE), None), None), None),
     "−(y − μ)²/c − constants"),
    ("Categorical.entropy", "entropy",
     _op("neg", _op("sum", _op("mul", _op("clamp", Outside("logs", _LOG_PROBS)),
                               _op("softmax", Var("logs"))))),
     "−Σ π log π"),
    ("Categorical.entropy", "entropy",
     _op("neg", _op("sum", _op("mul", _op("clamp", _op("log", _op("clamp", _X))),
                               Outside("x", _op("div", Var("w"), _op("sum", Var("w"))))))),
     "−Σ π log π"),
    ("entropy", "entropy",
     _op("neg", _op("sum", (
         _op("mul", _SOFTMAX, _LOG_SOFTMAX), _op("mul", _LOG_SOFTMAX, _SOFTMAX),
         _op("mul", Outside("p", _SOFTMAX), _op("log", Var("p")))))),
     "−Σ π log π"),
    ("kl_divergence of two Categoricals", "divergence",
     _op("sum", _op("indexput", _op("indexput", (
         _op("mul", _op("softmax", Outside("p", _LOG_PROBS)),
             _op("sub", Var("p"), Outside("q", _OTHER_LOG_PROBS))),
         _op("mul", Outside("p", _op("div", Var("w"), _op("sum", Var("w")))),
             _op("sub", _op("log", _op("clamp", Var("p"))), Outside("q", _OTHER_LOG_PROBS))))))),
     "Σ p (log p − log q)"),
    ("product with one-hot", "log_prob",
     Op(("sum",), (_times(_LOG_SOFTMAX),), any_axis=True),
     "Σ y (x − log Σ exp(x))"),
    ("selected log-probability", "log_prob", _selected(Outside("logs", _LOG_PROBS)),
     "x_a"),
    ("KL estimate k3", "divergence",
     (_op("sub", _op("sub", _op("exp", _LOG_RATIO), _LOG_RATIO)),
             _op("sub", _op("sub", _op("exp", _LOG_RATIO)), _LOG_RATIO)),
     "r − 1 − log r"),
    ("Categorical(logits=)", "other", _NORMALISED_LOGITS,
     "x − log Σ exp(x)"),
    ("normalisation", "other", _NORMALISED_PROBS, "x / Σx"),
    ("clamped logarithm", "other", _CLAMPED_LOG, "log(x held between bounds)"),
    ("linear layer", "other", _op("addmm", Var("bias"), _X, _op("t", Var("weight"))),
     "x Wᵀ + b"),
    ("linear layer", "other", _op("mm", _X, _op("t", Var("weight"))), "x Wᵀ"),
)  # fmt: skip


def recognise(graph: Graph, calls: Sequence[Call] = ()) -> list[Match]:
    """The known subgraphs of ``graph``, ``calls`` among them; no node is in two of them."""
    users = users_of({node: inputs_of(node) for node in graph.nodes})
    by_name: dict[str, list[Node]] = {}
    for node in reversed(graph.nodes):
        by_name.setdefault(base_name(node.name()), []).append(node)
    order = {node: index for index, node in enumerate(graph.nodes)}
    ends = {end.place[0] for end in graph.ends}
    found = matches_of_calls(graph, calls, users, order, ends)
    taken = {node for match in found for node in match.nodes}
    for name, kind, pattern, formula in _PATTERNS:
        for node in [node for root in _roots(pattern) for node in by_name.get(root, ())]:
            claim = None if node in taken else _match(pattern, (node, 0), {}, order)
            if claim is None:
                continue
            inside = sorted(_with_reshapes_above(node, claim[0], users), key=order.__getitem__)
            if taken.isdisjoint(inside) and _is_closed(inside, users, ends):
                taken |= set(inside)
                found.append(Match(name, kind, tuple(inside), claim[1], formula))
    return found + _loss(graph, found, users, order)


def _roots(pattern: Pattern) -> tuple[str, ...]:
    """The base names that a match of ``pattern`` can end in."""
    if isinstance(pattern, Op):
        return pattern.names
    options = pattern if isinstance(pattern, tuple) else ()
    return tuple(dict.fromkeys(name for option in options for name in _roots(option)))


def _match(
    pattern: Pattern | None, place: Place, bound: dict[str, Place], order: Mapping[Node, int]
) -> _Claim | None:
    """What ``place`` claims and binds beyond ``bound``; None if it is not what ``pattern`` says."""
    if pattern is None:
        return [], bound
    if isinstance(pattern, tuple):
        tried = (_match(option, place, bound, order) for option in pattern)
        return next((found for found in tried if found is not None), None)
    if isinstance(pattern, Op):
        return _match_operation(pattern, place[0], bound, order)
    if bound.get(pattern.name, place) != place:
        return None
    bound = {**bound, pattern.name: place}
    within = (
        _match(pattern.pattern, place, bound, order)
        if isinstance(pattern, Outside)
        else ([], bound)
    )
    return None if within is None else ([], within[1])


def _match_operation(
    pattern: Op, node: Node, bound: dict[str, Place], order: Mapping[Node, int]
) -> _Claim | None:
    """The same for ``node``, which may lie below reshapes, and its inputs."""
    claimed = []
    while node in order and base_name(node.name()) not in pattern.names:
        if base_name(node.name()) not in _TRANSPARENT:
            return None
        claimed.append(node)
        node = node.next_functions[0][0]
    if node not in order or len(node.next_functions) < len(pattern.inputs):
        return None
    if not (pattern.any_axis or autograd_internals.is_usual(node, base_name(node.name()))):
        return None
    claimed.append(node)
    for inner, target in zip(pattern.inputs, node.next_functions, strict=False):
        found = _match(inner, target, bound, order)
        if found is None:
            return None
        claimed, bound = claimed + found[0], found[1]
    return claimed, bound


def _with_reshapes_above(
    root: Node, inside: list[Node], users: Mapping[Node, set[Node]]
) -> set[Node]:
    """``inside`` and the reshapes that its value goes through next, if it goes nowhere else."""
    nodes = set(inside)
    above = users.get(root, set())
    while len(above) == 1 and base_name((node := next(iter(above))).name()) in _TRANSPARENT:
        nodes.add(node)
        above = users.get(node, set())
    return nodes


def _is_closed(inside: list[Node], users: Mapping[Node, set[Node]], ends: set[Node]) -> bool:
    """Whether only the last node is used from outside, and no gradient is collected inside."""
    within = set(inside)
    return ends.isdisjoint(within) and all(users.get(node, set()) <= within for node in inside[:-1])


def _loss(
    graph: Graph, found: list[Match], users: Mapping[Node, set[Node]], order: Mapping[Node, int]
) -> list[Match]:
    """The operations that make the explained tensor a weighted sum of log-probabilities."""
    tops = {match.nodes[-1]: match for match in found}
    inside: list[Node] = []
    terms: list[Match] = []
    pending = list(graph.nodes[-1:])
    while pending:
        node = pending.pop()
        if node in inside or tops.get(node) in terms:
            continue
        if node in tops and tops[node].kind != "other":
            terms.append(tops[node])
            continue
        carrying = inputs_of(node)
        name = base_name(node.name())
        product = name in ("mul", "div") and len(carrying) != 1
        if node not in order or name not in LINEAR or product:
            return []
        inside.append(node)
        pending += carrying
    inside.sort(key=order.__getitem__)
    kinds = {match.kind for match in terms}
    if not inside or "log_prob" not in kinds or not _is_closed(inside, users, set()):
        return []
    weighted = any(base_name(node.name()) in ("mul", "div") for node in inside)
    name = "REINFORCE loss" if weighted else "sum of log-probabilities"
    extra = "".join(f" + {word}" for kind, word in _BONUS.items() if kind in kinds)
    formula = f"Σ w log π(a){extra}"
    return [Match(name + extra, "loss", tuple(inside), {}, formula)]


_BONUS = {"entropy": "entropy", "divergence": "KL"}
