"""An explanation by graph: any tensor, edge by edge down to its leaves."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.explanation import autograd_internals, expectations, reasons
from eligibility.explanation.asked import LiveProblem, Scene
from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.calls import Match
from eligibility.explanation.checks import (
    check_equal,
    check_zero,
    rounding_of,
    why_autograd_differs,
)
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.elements import Check, Leaf, Subject, Table
from eligibility.explanation.graph import Graph, graph_between
from eligibility.explanation.layers import Layer, layers_of
from eligibility.explanation.names import Names
from eligibility.explanation.patterns import recognise
from eligibility.explanation.problem import Part, check_of, like_rows, statement_of
from eligibility.explanation.recognised import log_probs_of, parts_of
from eligibility.explanation.recorder import Recording, latest_recording
from eligibility.explanation.steps import Writer
from eligibility.explanation.tables import conventions_table, leaf_summary, leaf_table, table_of
from eligibility.explanation.terms import outcomes_table, split_at, terms_of
from eligibility.explanation.wording import numbers_of

# Leaves of more entries than this, or more leaves than this, are summarised in one table.
_FULL_TABLE_ENTRIES, _FULL_TABLES = 24, 3


def explain_tensor(
    tensor: Tensor, wrt: Sequence[Tensor] | None, names: Names, gradient: Tensor | None = None
) -> Explanation:
    """Explain where the gradient of ``tensor`` at ``wrt`` comes from; None: at every leaf."""
    _check_has_graph(tensor, names)
    graph = graph_between(tensor.grad_fn, wrt)
    _check_reached(graph, wrt, names)
    start = torch.ones_like(tensor) if gradient is None else gradient
    with _retained_gradients_kept():
        return _explain_graph(tensor, graph, names, start)


def _explain_graph(tensor: Tensor, graph: Graph, names: Names, start: Tensor) -> Explanation:
    """Run the backward pass under watch and write down what is known of it."""
    targets = [end.tensor for end in graph.ends]
    with graph.watch():
        gradients = _run(tensor, targets, start)
    recording = _recording_of(graph)
    writer = Writer(graph, names.unique(targets), recording, names.places)
    matches = recognise(graph, recording.calls if recording is not None else ())
    leaves = writer.leaves()
    of = names.of(tensor) or "output"
    by_tensor = dict(zip(map(id, targets), leaves, strict=True))
    found = parts_of(Scene(graph, matches, by_tensor, names, of))
    agreements = [_agreement(part) for part in found]
    terms = terms_of(graph, matches)
    parts = [
        replace(part, agrees=check.passed, split=split_at(terms, part))
        for part, check in zip(found, agreements, strict=True)
    ]
    outcomes = outcomes_table(graph, matches, parts, terms, of)
    layers = layers_of(graph, matches, by_tensor, of)
    by_rule, multiple = _by_rule(parts, leaves)
    return Explanation(
        title=f"∂ {of} / ∂ {_listed([leaf.name for leaf in leaves])}",
        subject=_subject(of, leaves, parts, matches),
        tables=(
            *([outcomes] if outcomes is not None else ()),
            *_tables(parts, leaves, of),
        ),
        why=_why(parts, layers, leaves, matches, _weights(graph, matches), of),
        steps=writer.steps(matches),
        leaves=leaves,
        rules=(
            *(replace(statement_of(part), conventions=conventions_table(part)) for part in parts),
            *(rule for rule, _ in layers),
        ),
        checks=(
            _check_edges(graph, gradients),
            *agreements,
            *(check for part in parts for check in _checks(part)),
            *(check for _, check in layers),
        ),
        expected=(
            *dict.fromkeys(item for part in parts for item in expectations.expected(part)),
            *expectations.of_ratio(outcomes, of),
            *expectations.of_graph(matches, leaves, of),
            *expectations.of_non_leaves(names, graph),
        ),
        by_rule=by_rule,
        multiple=multiple,
        notes=_notes(tensor, recording, outcomes is None and len(log_probs_of(graph, matches)) > 1),
    )


def _by_rule(parts: Sequence[Part], leaves: Sequence[Leaf]) -> tuple[Explanation | None, float]:
    """The probability or log-probability of one leaf that the tensor is a multiple of."""
    if len(parts) != 1 or len(leaves) != 1 or parts[0].leaf.id != leaves[0].id:
        return None, 1.0
    (part,) = parts
    is_whole = part.bonus is None and part.through_outcome is None and not part.split
    if not is_whole or part.factor.numel() != 1 or isinstance(part.problem, LiveProblem):
        return None, 1.0
    factor, probability = float(part.factor), float(part.problem.log_prob().exp())
    rounding = torch.finfo(part.autograd.dtype).eps
    is_probability = abs(factor - probability) <= 8 * rounding * probability
    of = check_of("prob" if is_probability else "log_prob")
    inside = explain_problem(part.problem, (part.name,), of=of)
    return inside, 1.0 if is_probability else factor


def _subject(
    of: str, leaves: Sequence[Leaf], parts: Sequence[Part], matches: Sequence[Match]
) -> Subject:
    """What was asked: the tensor and its leaves, and the distribution that was found inside."""
    names = tuple(leaf.name for leaf in leaves)
    if not parts:
        return Subject("graph", of, names)
    problem = parts[0].problem
    asked = next((m.call for m in matches if m.call is not None and m.kind == "log_prob"), None)
    dist = asked.dist if asked is not None else problem.distribution()
    outcome = None if asked is None else asked.value
    if outcome is None or outcome.numel() != problem.value.numel():
        outcome = problem.value
    return Subject(
        "graph",
        of,
        names,
        family=type(dist).__name__,
        parameters=tuple((part.called, numbers_of(part.parameter)) for part in parts),
        outcome=numbers_of(outcome),
    )


def _recording_of(graph: Graph) -> Recording | None:
    """The latest recording, if the graph was made inside it."""
    recording = latest_recording()
    made_inside = recording is not None and any(map(recording.find, graph.nodes[-3:]))
    return recording if made_inside else None


def _check_has_graph(tensor: Tensor, names: Names) -> None:
    if tensor.grad_fn is not None:
        return
    got = "a leaf: nothing computed it" if tensor.requires_grad else "a tensor without a graph"
    raise InvalidValueError(
        f"`{names.of(tensor) or 'subject'}`",
        got,
        "a tensor that was computed from one with requires_grad=True",
        "explain what you call .backward() on; detach(), .item(), no_grad() and integer "
        "operations end a graph; and so does sample(), see eligibility explain --question 8",
    )


def _check_reached(graph: Graph, wrt: Sequence[Tensor] | None, names: Names) -> None:
    for tensor in wrt or ():
        if not any(end.tensor is tensor for end in graph.ends):
            raise InvalidValueError(
                f"`wrt` = `{names.of(tensor) or 'a tensor'}`",
                "a tensor that the explained one does not depend on",
                "a leaf or an intermediate result of its graph",
                "look for a detach() between them, or for a copy made afterwards",
            )


def _run(tensor: Tensor, targets: Sequence[Tensor], start: Tensor) -> tuple[Tensor | None, ...]:
    try:
        return autograd_internals.gradients([tensor], targets, [start])
    except RuntimeError as error:
        if "second time" in str(error):
            raise InvalidValueError(
                "the graph",
                "freed by an earlier backward pass",
                "an intact graph",
                "explain before calling .backward(), or call .backward(retain_graph=True); more: "
                "eligibility explain --question 9",
            ) from error
        if "inplace operation" in str(error):
            raise InvalidValueError(
                "the graph",
                "a saved tensor that was changed in place afterwards",
                "the values of the forward pass",
                "replace the in-place operation, for instance x += 1 by x = x + 1",
            ) from error
        raise


@contextmanager
def _retained_gradients_kept() -> Iterator[None]:
    """Put back what ``retain_grad()`` writes: explaining changes no ``.grad``."""
    # Not `isinstance`, which asks the objects themselves: proxies may raise.
    tensors = [item for item in gc.get_objects() if issubclass(type(item), Tensor)]
    kept = [(tensor, tensor.grad) for tensor in tensors if tensor.retains_grad]
    for tensor, _ in kept:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in kept:
            tensor.grad = gradient


def _tables(parts: Sequence[Part], leaves: Sequence[Leaf], of: str) -> tuple[Table, ...]:
    """The parameters of known distributions first, then the other leaves."""
    first = [table_of(part, part.leaf.gradient) for part in parts if part.leaf.gradient is not None]
    shown = {part.leaf.id for part in parts}
    rest = [leaf for leaf in leaves if leaf.id not in shown]
    are_short = all(leaf.value.size <= _FULL_TABLE_ENTRIES for leaf in rest)
    if len(rest) <= _FULL_TABLES and are_short:
        return (*first, *(leaf_table(leaf, of) for leaf in rest))
    return (*first, leaf_summary(rest, of))


def _weights(graph: Graph, matches: Sequence[Match]) -> Tensor:
    """The gradient that arrives at each log-probability."""
    arrived = [graph.flows[m.nodes[-1]].arrived[0] for m in log_probs_of(graph, matches)]
    known = [weight.reshape(-1) for weight in arrived if weight is not None]
    return torch.cat(known) if known else torch.zeros(0)


def _why(
    parts: Sequence[Part],
    layers: Sequence[Layer],
    leaves: Sequence[Leaf],
    matches: Sequence[Match],
    weights: Tensor,
    of: str,
) -> tuple[str, ...]:
    sentences: list[str] = []
    if parts and any(match.kind == "loss" for match in matches):
        sentences += reasons.loss(of, weights)
    for part in parts:
        sentences += reasons.why(part)
    if parts and layers:
        sentences += reasons.into_weights([rule.parameter for rule, _ in layers])
    return tuple(sentences) or reasons.paths(leaves)


def _check_edges(graph: Graph, gradients: Sequence[Tensor | None]) -> Check:
    """Whether at each leaf the gradients of its edges add up to what autograd returns."""
    worst = Check("at every leaf, the edges add up to autograd's gradient", True, 0.0, 0.0)
    for end, gradient in zip(graph.ends, gradients, strict=True):
        if gradient is None:
            continue
        arrived = torch.stack([_widened(g) for _, g in graph.arrivals(end.place)])
        epsilon = torch.finfo(gradient.dtype).eps
        check = check_equal(
            worst.statement,
            arrived.sum(0),
            _widened(gradient),
            rounding_of(arrived.abs().sum(0), len(arrived), epsilon),
            "a hook on the tensor changes what arrives",
        )
        if not check.passed:
            return check
        worst = check if check.deviation > worst.deviation else worst
    return worst


def _widened(tensor: Tensor) -> Tensor:
    """``tensor`` in double precision, real or complex, dense."""
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return dense.to(torch.promote_types(tensor.dtype, torch.float64))


def _agreement(part: Part) -> Check:
    """The rule against autograd."""
    scale = (like_rows(part.factor, part.eligibility) * part.eligibility).abs()
    scale = scale.sum_to_size(part.parameter.shape)
    if part.through_outcome is not None:  # autograd's side is what is left without it
        scale = scale + part.through_outcome.abs()
    largest = scale.amax(-1, keepdim=True)
    epsilon = torch.finfo(part.autograd.dtype).eps
    return check_equal(
        f"rule = autograd, at {part.called}",
        part.result,
        part.autograd.double(),
        rounding_of(largest, part.parameter.shape[-1:].numel(), epsilon),
        why_autograd_differs(part),
    )


def _checks(part: Part) -> list[Check]:
    """What the entries of one gradient add up to."""
    epsilon, autograd = torch.finfo(part.autograd.dtype).eps, part.autograd.double()
    found: list[Check] = []
    if part.rule.coordinates == "weights":
        products = part.parameter.double() * autograd
        found = check_zero(f"{part.called} · gradient = 0", products, epsilon)
    elif part.name == "logits" and part.has_categories:
        found = check_zero("Σ over the categories = 0", autograd, epsilon)
    return found


def _notes(tensor: Tensor, recording: Recording | None, has_unlisted: bool) -> tuple[str, ...]:
    notes = []
    if tensor.numel() > 1:
        notes.append(
            f"The explained tensor has {tensor.numel()} entries; its gradient here is that of "
            "their sum."
        )
    if has_unlisted:
        notes.append(
            "The graph has several log-probabilities; the first one of each kind is explained by "
            "its rule, the others repeat it."
        )
    missing = autograd_internals.missing_names()
    if missing:
        notes.append(
            f"torch {torch.__version__} lacks {', '.join(missing)}: nothing can be recorded, and "
            "the values are those that autograd saved."
        )
    elif recording is None:
        notes.append(
            "Nothing was recorded: the values are those that autograd saved. Compute inside "
            "`with eligibility.record():` to see every value and the lines that made it."
        )
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
