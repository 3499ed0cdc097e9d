"""A distribution and an outcome in the words of the command line, every number checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Multinomial,
    OneHotCategorical,
)

from eligibility import shapes
from eligibility.errors import InvalidValueError
from eligibility.explanation.problem import Problem, make_problem, problem_of
from eligibility.rules.registry import supported_distributions
from eligibility.train.domains import suggestion

_LARGEST_COUNT = 2**53  # beyond it, whole numbers are not exact in float64
_LARGEST_MATRIX = 100
# The families, and the option that says what was drawn.
_FAMILIES: dict[str, tuple[type[Distribution], str]] = {
    "categorical": (Categorical, "--action"),
    "onehotcategorical": (OneHotCategorical, "--action"),
    "multinomial": (Multinomial, "--counts"),
    "bernoulli": (Bernoulli, "--value"),
    "binomial": (Binomial, "--value"),
}


def read_problem(
    family: str,
    parameters: Mapping[str, str | None],
    outcomes: Mapping[str, str | None],
    total_count: str | None,
) -> Problem:
    """The problem that the options pose."""
    name = family.lower().replace("-", "").replace("_", "")
    others = {cls.__name__.lower(): cls for cls in supported_distributions()}
    if name not in _FAMILIES and name not in others:
        remedy = suggestion(name, {*_FAMILIES, *others})
        raise InvalidValueError(
            "the distribution",
            repr(family),
            "one of " + ", ".join(sorted({*_FAMILIES, *others})),
            f"{remedy}{'' if remedy.endswith('?') else '.'} A script's name ends in .py",
        )
    if name not in _FAMILIES:
        given = {key: text for key, text in parameters.items() if text is not None}
        text = _read_outcome(name, "--value", outcomes)
        _refuse_total_count(name, total_count)
        return _general(others[name], given, read_array("--value", text))
    cls, option = _FAMILIES[name]
    parameter, entries = _read_parameter(family, parameters)
    drawn = read_numbers(option, _read_outcome(name, option, outcomes))
    if cls not in (Binomial, Multinomial):
        _refuse_total_count(name, total_count)
    total = None if total_count is None else _read_whole("--total-count", total_count)
    if cls in (Bernoulli, Binomial):
        return _coin(cls, parameter, entries, drawn, total)
    return _categories(cls, parameter, entries, drawn, total)


def read_assignments(texts: Iterable[str]) -> dict[str, str]:
    """``loc=0`` as a name and its text."""
    assignments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(
                "`--param`", repr(text), "name=numbers", "for example --param loc=0 --param scale=1"
            )
        if name in assignments:
            raise InvalidValueError(
                "`--param`", f"{name} twice", "each parameter once", "pass only one of them"
            )
        assignments[name] = value
    return assignments


def read_array(option: str, text: str) -> Tensor:
    """A number, numbers separated by commas, or rows of them separated by semicolons."""
    rows = [read_numbers(option, row) for row in text.split(";")]
    if len({len(row) for row in rows}) != 1:
        raise InvalidValueError(
            f"`{option}`", "rows of different lengths", "a matrix", "for example 1,0;0,1"
        )
    array = torch.stack(rows) if len(rows) > 1 else rows[0]
    if bool(array.isinf().any()):
        raise InvalidValueError(f"`{option}`", "inf", "finite numbers", "correct it")
    return array[0] if array.numel() == 1 else array


def read_numbers(option: str, text: str) -> Tensor:
    """The numbers of an option, separated by commas, in float64."""
    try:
        numbers = [float(entry) for entry in text.split(",")]
    except ValueError:
        raise InvalidValueError(
            f"`{option}`",
            repr(text),
            "numbers separated by commas",
            "for example 0.69,0.1,0.2,0.01",
        ) from None
    return torch.tensor(numbers, dtype=torch.float64)


def _general(cls: type[Distribution], given: Mapping[str, str], value: Tensor) -> Problem:
    """One outcome of any other family, built from its own parameters."""
    signature = inspect.signature(cls).parameters
    known = [name for name in signature if name not in ("validate_args", "lims")]
    missing = [
        name for name in known if signature[name].default is inspect.Parameter.empty
        and name not in given
    ]  # fmt: skip
    unknown = [name for name in given if name not in known]
    if missing or unknown:
        lacking = "no " + ", ".join(missing) if missing else ""
        raise InvalidValueError(
            f"`--param` of {cls.__name__}",
            " and ".join(filter(None, [", ".join(unknown), lacking])),
            ", ".join(known),
            "give each as --param name=numbers",
        )
    arguments: dict[str, Any] = {n: read_array(f"--param {n}", text) for n, text in given.items()}
    if "dim" in arguments:
        arguments["dim"] = _read_whole("--param dim", given["dim"], _LARGEST_MATRIX)
    build: Any = cls
    try:
        dist: Distribution = build(**arguments, validate_args=True)
    except (ValueError, RuntimeError) as error:
        raise _refusal(cls, " ".join(str(error).split()), known) from None
    return problem_of(dist, value)


def _refusal(cls: type[Distribution], message: str, known: Iterable[str]) -> InvalidValueError:
    """What torch says about a parameter, without the tensors that it prints."""
    found = re.search(r"Expected parameter (\w+) .*to satisfy the constraint (.+?), but", message)
    if found is None:
        return InvalidValueError(
            f"`--param` of {cls.__name__}", message, ", ".join(known), "correct the numbers"
        )
    name, constraint = found.groups()
    return InvalidValueError(
        f"`--param {name}`", f"numbers outside {constraint}", "numbers inside it", "correct them"
    )


def _coin(
    cls: type[Distribution], parameter: str, entries: Tensor, drawn: Tensor, total: int | None
) -> Problem:
    """One Bernoulli or Binomial outcome."""
    check = shapes.check_unit_interval if parameter == "probs" else shapes.check_log_odds
    check(entries, f"--{parameter}")
    entry, value = _single(f"--{parameter}", entries), _single("--value", drawn)
    if cls is Bernoulli:
        shapes.check_whole(value, "--value", 1)
        return make_problem(cls, {parameter: entry}, {}, value)
    if total is None:
        raise InvalidValueError(
            "`--total-count`", "nothing", "the number of trials", "for example `--total-count 5`"
        )
    shapes.check_whole(value, "--value", total)
    trials = torch.tensor(float(total), dtype=torch.float64)
    return make_problem(cls, {parameter: entry}, {"total_count": trials}, value)


def _categories(
    cls: type[Distribution], parameter: str, entries: Tensor, drawn: Tensor, total: int | None
) -> Problem:
    """One outcome of the categorical family."""
    check = shapes.check_probs if parameter == "probs" else shapes.check_logits
    check(entries, f"--{parameter}")
    if cls is Multinomial:
        if len(drawn) != len(entries):
            raise InvalidValueError(
                "`--counts`",
                f"{len(drawn)} numbers",
                f"{len(entries)}, one for each category",
                "pass 0 for a category that was not drawn",
            )
        if bool((drawn > _LARGEST_COUNT).any()):  # sums of larger ones would not be exact
            raise InvalidValueError(
                "`--counts`", f"{drawn.max():g}", f"at most {_LARGEST_COUNT:,}", "pass counts"
            )
        shapes.check_counts(drawn, total, "--counts")
        return make_problem(cls, {parameter: entries}, {"total_count": int(drawn.sum())}, drawn)
    index = _single("--action", drawn)
    action = index.long()
    if action != index:
        raise InvalidValueError(
            "`--action`", f"{index:g}", "a whole number", "categories are numbered from 0"
        )
    shapes.check_action(action, len(entries), "--action")
    if cls is OneHotCategorical:
        value = torch.nn.functional.one_hot(action, len(entries)).double()
        return make_problem(cls, {parameter: entries}, {}, value)
    return make_problem(cls, {parameter: entries}, {}, action)


def _read_parameter(family: str, parameters: Mapping[str, str | None]) -> tuple[str, Tensor]:
    """The one parameter that was given."""
    given = {name: text for name, text in parameters.items() if text is not None}
    unknown = next((name for name in given if name not in ("probs", "logits")), None)
    if unknown is not None:
        raise InvalidValueError(
            f"`--param` of {family}", unknown, "`--probs` or `--logits`", "pass one of them instead"
        )
    if len(given) != 1:
        raise InvalidValueError(
            "`--probs` or `--logits`",
            "both" if given else "none",
            "one of them",
            "for example `--probs 0.69,0.1,0.2,0.01`",
        )
    ((name, text),) = given.items()
    return name, read_numbers(f"--{name}", text)


def _read_outcome(family: str, wanted: str, outcomes: Mapping[str, str | None]) -> str:
    """What was drawn, said by the option that the family has, and by no other."""
    given = {option: text for option, text in outcomes.items() if text is not None}
    if list(given) != [wanted]:
        example = "2,1,0" if wanted == "--counts" else "1"
        raise InvalidValueError(
            f"the outcome of {family}",
            " and ".join(f"`{option}`" for option in given) or "nothing",
            f"`{wanted}`",
            f"say what was drawn, for example `{wanted} {example}`",
        )
    return given[wanted]


def _single(option: str, numbers: Tensor) -> Tensor:
    if len(numbers) != 1:
        raise InvalidValueError(
            f"`{option}`", f"{len(numbers)} numbers", "one number", "explain one outcome at a time"
        )
    return numbers[0]


def _read_whole(option: str, text: str, largest: int = _LARGEST_COUNT) -> int:
    number = _single(option, read_numbers(option, text))
    shapes.check_whole(number, option)
    if number > largest:
        raise InvalidValueError(
            f"`{option}`", f"{number:g}", f"at most {largest:,}", "choose a smaller one"
        )
    return int(number)


def _refuse_total_count(family: str, total_count: str | None) -> None:
    if total_count is not None:
        raise InvalidValueError(
            "`--total-count`",
            total_count,
            f"none: {family} has no number of trials",
            "omit it, or explain binomial or multinomial",
        )
