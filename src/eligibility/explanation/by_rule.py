"""An explanation by rule: the closed form, the user's numbers, and torch's own steps."""

from __future__ import annotations

from dataclasses import replace

import torch

from eligibility.errors import InvalidValueError
from eligibility.explanation import autograd_internals, expectations, reasons
from eligibility.explanation.checks import (
    check_equal,
    check_finite_differences,
    check_mean,
    check_zero,
    rounding_of,
    why_autograd_differs,
)
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.elements import Check, Leaf, Numbers, RuleStatement, Step, Subject
from eligibility.explanation.graph import graph_between
from eligibility.explanation.problem import (
    Of,
    Part,
    Problem,
    check_of,
    like_rows,
    log_prob_in,
    start_in,
    statement_of,
)
from eligibility.explanation.recorder import Recording
from eligibility.explanation.steps import Writer
from eligibility.explanation.tables import conventions_table, table_of
from eligibility.explanation.wording import numbers_of
from eligibility.rules.registry import find_rule


def explain_problem(
    problem: Problem,
    wrt: tuple[str, ...] | None = None,
    coordinates: str | None = None,
    of: Of = "log_prob",
) -> Explanation:
    """Explain the gradient of ``log p(value)``, or of ``p(value)``, at the named parameters."""
    names = wrt or tuple(problem.parameters)
    rules = {name: find_rule(problem.distribution(), name, coordinates) for name in names}
    steps, leaves = _torch_steps(problem, names, of)
    found = [_part(problem, leaf, rules[leaf.name].coordinates, of) for leaf in leaves]
    agreements = [_agreement(part, len(steps)) for part in found]
    parts = [replace(p, agrees=c.passed) for p, c in zip(found, agreements, strict=True)]
    return Explanation(
        title=reasons.title(problem, names, of),
        subject=_subject(parts),
        tables=tuple(table_of(part, _gradient(part)) for part in parts),
        why=tuple(sentence for part in parts for sentence in reasons.why(part)),
        steps=steps,
        leaves=leaves,
        rules=tuple(map(_statement_with_others, parts)),
        checks=tuple(
            check
            for part, agreement in zip(parts, agreements, strict=True)
            for check in (agreement, *_checks(part))
        ),
        expected=tuple(item for part in parts for item in expectations.expected(part)),
    )


def _torch_steps(
    problem: Problem, names: tuple[str, ...], of: Of
) -> tuple[tuple[Step, ...], tuple[Leaf, ...]]:
    """What torch itself does: its operations, recorded and watched."""
    leaves = {name: start_in(problem, name, None).requires_grad_() for name in names}
    with Recording() as recording:  # not `record`: the user's own recording stays the latest
        output = problem.log_prob(**leaves)
        output = output.exp() if of == "prob" else output
    graph = graph_between(output.grad_fn, list(leaves.values()))
    with graph.watch():
        targets = [end.tensor for end in graph.ends]
        autograd_internals.gradients([output], targets, [torch.ones_like(output)])
    ordered = [next(n for n, t in leaves.items() if t is end.tensor) for end in graph.ends]
    writer = Writer(graph, ordered, recording)
    # The user's line asked for the explanation; it ran none of the steps.
    steps = tuple(
        replace(step, sources=tuple(s for s in step.sources if s.role == "library"))
        for step in writer.steps()
    )
    return steps, writer.leaves()


def _part(problem: Problem, leaf: Leaf, coordinates: str | None, of: Of) -> Part:
    name = leaf.name
    rule = find_rule(problem.distribution(), name, coordinates)
    eligibility = problem.eligibility(rule)
    start = start_in(problem, name, coordinates).requires_grad_()
    output = log_prob_in(problem, name, coordinates, start)
    (autograd,) = torch.autograd.grad(output.sum(), start)
    if name == "scale_tril":
        autograd = autograd.tril()  # stock Wishart gives a slope to entries that it does not read
    log_prob = problem.log_prob()
    factor = torch.ones_like(log_prob) if of == "log_prob" else log_prob.exp()
    if bool((factor == 0).any()):
        raise InvalidValueError(
            "`of`",
            "'prob' of an outcome of probability 0",
            "an outcome that can happen",
            "ask for the gradient of log_prob, which is defined there",
        )
    return Part(
        problem=problem,
        name=name,
        called=name,
        rule=rule,
        of=of,
        asked=of,
        factor=factor,
        eligibility=eligibility,
        parameter=problem.parameters[name],
        result=like_rows(factor, eligibility) * eligibility,
        autograd=like_rows(factor, autograd) * autograd,
        leaf=leaf,
    )


def _subject(parts: list[Part]) -> Subject:
    problem = parts[0].problem
    return Subject(
        kind="rule",
        of=parts[0].of,
        wrt=tuple(part.name for part in parts),
        family=problem.family.__name__,
        parameters=tuple((name, numbers_of(t)) for name, t in problem.parameters.items()),
        outcome=numbers_of(problem.value),
        coordinates=parts[0].rule.coordinates or "",
    )


def _statement_with_others(part: Part) -> RuleStatement:
    others = tuple(
        statement_of(_part(part.problem, part.leaf, name, check_of(part.of)))
        for name in part.conventions
        if name != part.rule.coordinates
    )
    return replace(statement_of(part), conventions=conventions_table(part), others=others)


def _gradient(part: Part) -> Numbers:
    """What torch gives, in the convention that it follows; in another one, what the rule gives."""
    return numbers_of(part.autograd if part.is_torchs and not part.agrees else part.result)


def _agreement(part: Part, operations: int) -> Check:
    """The rule against autograd, which rounds in each of torch's ``operations``."""
    terms = part.rule.terms_at(part.problem.read(part.rule), part.problem.value)
    summands = torch.stack(list(terms.values()))
    scale = like_rows(part.factor, part.result) * summands.abs().sum(0).amax()
    return check_equal(
        "rule = autograd through torch",
        part.result,
        part.autograd,
        rounding_of(scale, max(operations, *part.result.shape[-1:], 1)),
        why_autograd_differs(part),
    )


def _checks(part: Part) -> list[Check]:
    """The further checks of one parameter."""
    problem, coordinates = part.problem, part.rule.coordinates
    found = check_finite_differences(problem, part.name, coordinates, part.eligibility)
    is_categorical_logits = part.name == "logits" and part.has_categories
    if coordinates == "tangent" or (coordinates is None and is_categorical_logits):
        found += check_zero("Σ over the categories = 0", part.eligibility)
    if coordinates == "weights":
        zero = part.eligibility == 0
        products = problem.parameters[part.name] * part.eligibility
        products = torch.where(zero, part.eligibility, products)
        found += check_zero("probs · eligibility = 0", products)
    if coordinates != "ambient":
        found += check_mean(problem, part.rule)
    return found
