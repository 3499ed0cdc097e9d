"""Errors in units in the last place: the rules, and autograd through stock torch, on one grid."""

from __future__ import annotations

import math
import statistics
import warnings
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import mpmath as mp
import torch
from mpmath import mpf
from torch import Tensor
from torch.distributions import Distribution

import eligibility as el
from benchmarks.exactness.family import Family
from benchmarks.exactness.reference import DIGITS, condition, slopes
from eligibility.rules.registry import constructed_parameters

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# From here on, half a unit in the last place of every input moves the result by a whole one.
ILL_CONDITIONED = 2.0
FEW = 4.0  # ulp: the goal
_NEGLIGIBLE = mpf("1e-38")
_PRECISION = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}


@dataclass(frozen=True)
class Errors:
    """Errors of one way to compute an eligibility, in units in the last place (ulp).

    Attributes:
        entries: How many numbers were compared.
        worst, median: Over those that the inputs determine.
        ill: How many are worse than `FEW` ulp and ill-conditioned.
        ill_worst: The worst of those, divided by its condition number.
        bad: How many are NaN, infinite or 0 where the exact value is not, or the reverse.
        where: The inputs of the worst.
    """

    entries: int
    worst: float
    median: float
    ill: int
    ill_worst: float
    bad: int
    where: str


@dataclass(frozen=True)
class Accuracy:
    """What was measured of one rule in one dtype, and of autograd through stock torch.

    Attributes:
        label, parameter, given: The distribution, the parameter, and what it was constructed with.
        dtype: Of the inputs and the result.
        rule: The rule's errors.
        stock: Autograd's, over all entries; None where stock torch has no such gradient.
    """

    label: str
    parameter: str
    given: str
    dtype: torch.dtype
    rule: Errors
    stock: Errors | None


def measure(family: Family, dtype: torch.dtype, points: int, seed: int = 0) -> list[Accuracy]:
    """The accuracy of every rule of ``family`` at the grid in ``dtype``; none if torch has none."""
    try:
        columns = _valid(family, {k: c.to(dtype) for k, c in family.columns(points, seed).items()})
    except NotImplementedError:  # no Cholesky factorisation in half precision: no such object
        return []
    if not len(columns["value"]):
        return []  # nothing of the grid exists in this dtype
    arguments = {name: c for name, c in columns.items() if name != "value"}
    value = _outcome(family, columns["value"])
    dist = _build(family, arguments)
    given = constructed_parameters(dist)
    stored = {name: _stored(dist, name, arguments) for name in given}
    stored |= {name: arguments[name] for name in family.fixed}
    wanted = {**{name: None for name in given if name not in family.fixed}, **family.converted}
    results = []
    for name, conversion in wanted.items():
        found = el.eligibility(dist, value, wrt=name, allow_parameter_dependent_support=True)[name]
        stock = None if conversion else _autograd(family, stored, value, name)
        results.append(_compare(family, name, found, stock, {**stored, "value": columns["value"]}))
    return results


def _stored(dist: Distribution, name: str, arguments: dict[str, Tensor]) -> Tensor:
    """What ``dist`` holds: a Categorical has divided its probs by their sum."""
    try:
        held: Tensor = attrgetter(name)(dist)
    except AttributeError:  # inside a TransformedDistribution
        return arguments[name]
    return held


def _build(family: Family, arguments: dict[str, Tensor]) -> Distribution:
    """The distribution, also inside it unvalidated: in half precision no probs sum to 1."""
    Distribution.set_default_validate_args(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Wishart's, about small df
            return family.build(**arguments, validate_args=False)
    finally:
        Distribution.set_default_validate_args(__debug__)


def _outcome(family: Family, value: Tensor) -> Tensor:
    return value.long() if family.label == "Categorical" else value


def _valid(family: Family, columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """The rows that are parameters and outcomes after they were rounded to the dtype."""
    for name in family.symmetric:
        columns[name] = (columns[name] + columns[name].mT) / 2
    finite = torch.ones(len(columns["value"]), dtype=torch.bool)
    for name, column in columns.items():
        flat = column.reshape(len(column), -1)
        usable = ~flat.isnan() if name == "logits" else flat.isfinite()
        finite &= usable.all(-1)
    columns = {name: column[finite] for name, column in columns.items()}
    arguments = {name: column for name, column in columns.items() if name != "value"}
    for name in family.symmetric:
        positive = torch.linalg.cholesky_ex(columns[name].double())[1] == 0
        columns = {key: column[positive] for key, column in columns.items()}
        arguments = {key: column for key, column in columns.items() if key != "value"}
    dist = _build(family, arguments)
    rows = len(columns["value"])
    inside = dist.support.check(_outcome(family, columns["value"]))
    for name, constraint in dist.arg_constraints.items():
        if name in arguments:
            inside = inside & constraint.check(getattr(dist, name)).reshape(rows, -1).all(-1)
    if family.label == "Uniform":
        inside &= arguments["low"] < arguments["high"]
    return {name: column[inside] for name, column in columns.items()}


def _autograd(family: Family, stored: dict[str, Tensor], value: Tensor, name: str) -> Tensor | None:
    leaves = {key: tensor.detach().clone() for key, tensor in stored.items()}
    leaves[name].requires_grad_()
    try:
        log_prob = _build(family, leaves).log_prob(value)
        (gradient,) = torch.autograd.grad(log_prob.sum(), leaves[name])
    except RuntimeError:  # no kernel for this dtype
        return None
    return gradient


def _compare(
    family: Family, name: str, found: Tensor, stock: Tensor | None, inputs: dict[str, Tensor]
) -> Accuracy:
    movable = [key for key in inputs if key not in family.whole]
    rule, autograd = _Tally(), _Tally()
    for row in range(len(found)):
        point = {key: _exact(column[row]) for key, column in inputs.items()}
        if not _is_possible(family, point):
            continue
        mine = found[row].reshape(-1).tolist()
        theirs = stock[row].reshape(-1).tolist() if stock is not None else []
        for entry, exact in enumerate(_gradient(family, name, point)):
            if not mp.isfinite(exact):
                continue
            if theirs:
                autograd.add(ulps(theirs[entry], exact, found.dtype))
            error = ulps(mine[entry], exact, found.dtype)
            kappa = 0.0
            if error > FEW:
                slope = partial(_entry, family, name, entry)
                kappa = float(condition(slope, point, movable))
            where = f"entry {entry} at " + ", ".join(f"{k}={_short(v)}" for k, v in point.items())
            rule.add(error, kappa, torch.finfo(found.dtype).eps, where)
    return Accuracy(
        label=family.label,
        parameter=name,
        given=", ".join(key for key in inputs if key != "value"),
        dtype=found.dtype,
        rule=rule.summary(),
        stock=autograd.summary() if stock is not None else None,
    )


class _Tally:
    """Errors as they come in; `summary` is what is kept of them."""

    def __init__(self) -> None:
        self._errors: list[float] = []
        self._ill: list[float] = []
        self._bad = 0
        self._worst, self._where = -1.0, ""

    def add(self, error: float, kappa: float = 0.0, eps: float = 0.0, where: str = "") -> None:
        """Count one entry; an ill-conditioned one by its error over its condition number."""
        if kappa > ILL_CONDITIONED and (math.isfinite(error) or kappa * eps > 1):
            self._ill.append(error / kappa if math.isfinite(error) else 0.0)
        elif math.isinf(error):
            self._bad += 1
            self._worst, self._where = error, where
        else:
            self._errors.append(error)
            if error > self._worst:
                self._worst, self._where = error, where

    def summary(self) -> Errors:
        return Errors(
            entries=len(self._errors) + len(self._ill) + self._bad,
            worst=max(self._errors, default=0.0),
            median=statistics.median(self._errors or [0.0]),
            ill=len(self._ill),
            ill_worst=max(self._ill, default=0.0),
            bad=self._bad,
            where=self._where,
        )


def _is_possible(family: Family, point: dict[str, Any]) -> bool:
    """Whether the outcome has a probability: where it is 0, there is no slope."""
    try:
        with mp.workdps(DIGITS):
            return bool(mp.isfinite(family.density(**point)))
    except (ZeroDivisionError, TypeError, ValueError):  # a logarithm of 0 or of less
        return False


def _entry(family: Family, name: str, entry: int, point: dict[str, Any]) -> mpf:
    return _gradient(family, name, point)[entry]


def _gradient(family: Family, name: str, point: dict[str, Any]) -> list[mpf]:
    density = family.density
    if name in family.converted:
        convert, density = family.converted[name]
        with mp.workdps(DIGITS):
            target = convert(**point)
            gaps = [gap for number in _flat(target) for gap in (abs(number), abs(1 - number))]
            if any(0 < gap < _NEGLIGIBLE for gap in gaps):
                return [mp.nan]  # so near to 0 or 1 that a step would cross it
        (old,) = {"probs", "logits"} - {name}
        point = {**{key: held for key, held in point.items() if key != old}, name: target}
    return slopes(density, point, name, symmetric=name in family.symmetric)


def ulps(got: float, exact: mpf, dtype: torch.dtype) -> float:
    """The error of ``got`` in units in the last place of ``exact``; ∞ for NaN and the like."""
    info, precision = torch.finfo(dtype), _PRECISION[dtype]
    smallest = mpf(info.smallest_normal) * mpf(2) ** (1 - precision)
    exponent = mp.floor(mp.log(abs(exact), 2)) if exact else -mp.inf
    unit = max(mpf(2) ** (exponent + 1 - precision), smallest) if exact else smallest
    if abs(exact) >= mpf(info.max) + unit / 2:
        return 0.0 if got == (float("inf") if exact > 0 else -float("inf")) else float("inf")
    if got != got or abs(got) == float("inf"):
        return float("inf")
    if got == 0 and abs(exact) > smallest:
        return float("inf")
    return float(abs(mpf(got) - exact) / unit)


def _exact(tensor: Tensor) -> Any:
    """The numbers of a tensor in mpmath, in nested lists."""
    held = tensor.tolist()

    def convert(item: Any) -> Any:
        return [convert(inner) for inner in item] if isinstance(item, list) else mpf(item)

    return convert(held)


def _flat(held: Any) -> list[mpf]:
    return (
        [number for inner in held for number in _flat(inner)] if isinstance(held, list) else [held]
    )


def _short(held: Any) -> str:
    if isinstance(held, list):
        return "[" + ", ".join(map(_short, held)) + "]"
    return mp.nstr(held, 6)
