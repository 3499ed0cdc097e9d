"""RULE: a closed form as a statement, with the reader's numbers in it."""

from __future__ import annotations

from operator import attrgetter

import torch

from eligibility.explanation.elements import RuleStatement, Term
from eligibility.explanation.problem import Part
from eligibility.explanation.wording import numbers_of


def statement_of(part: Part) -> RuleStatement:
    """The rule of one parameter, with the factor that multiplies it."""
    rule = part.rule
    symbol = next(
        (s for s, read in rule.symbols.items() if read in (part.name, f"base_dist.{part.name}")),
        None,
    )
    if symbol is not None and f"{symbol}_k" in rule.equation:
        symbol += "_k"
    left, factor = _SIDES.get(part.asked or "", (part.of, "g"))
    body = f"{factor} · ({rule.equation})" if factor else rule.equation
    if part.bonus is not None:
        body += " − h π (log π + H)"
    return RuleStatement(
        name=rule.name,
        parameter=part.called,
        coordinates=rule.coordinates or "",
        equation=f"∂ {left}/∂{symbol or part.name} = {body}",
        terms=_terms(part, factor),
        result=numbers_of(part.result),
        reference=rule.reference,
    )


# What is differentiated -> how the equation writes it, and the factor that it puts before the rule.
_SIDES = {"log_prob": ("log p", ""), "prob": ("p", "p")}


def _terms(part: Part, factor: str) -> tuple[Term, ...]:
    """The symbols of the rule, its summands, and the factor before it."""
    problem, dist = part.problem, part.problem.distribution()
    terms = []
    for symbol, read in part.rule.symbols.items():
        if read in (part.name, f"base_dist.{part.name}"):
            terms.append(Term(symbol, "symbol", part.called, numbers_of(part.parameter)))
            continue
        tensor = problem.value if read == "value" else torch.as_tensor(attrgetter(read)(dist))
        terms.append(Term(symbol, "symbol", read, numbers_of(tensor)))
    if factor:
        meaning = "probability" if part.asked == "prob" else f"∂ {part.of}/∂ log p"
        terms.append(Term(factor, "factor", meaning, numbers_of(part.factor)))
    if part.bonus is not None:
        terms.append(Term("h", "factor", f"∂ {part.of}/∂ entropy", numbers_of(part.bonus)))
    summands = part.rule.terms_at(problem.read(part.rule), problem.value)
    return (*terms, *(Term(s, "summand", "", numbers_of(t)) for s, t in summands.items()))
