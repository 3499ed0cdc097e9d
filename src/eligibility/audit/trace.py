"""What one run of the user's program leaves behind: plain records, checked when they arrive.

They cross a pipe as JSON from a process that ran somebody's program, so nothing in them is trusted:
`parse_trace` takes numbers, strings and lists, and refuses everything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any

# How a note begins that names random numbers which the audit could not enumerate.
UNREAD = "unread:"
DENSE = "dense-rewards"  # a note: a well-known environment whose rewards are hardly ever 0
PAYS_ONCE = "pays-once"  # a note: one that pays nothing before the end of an episode
ENDLESS = "endless"  # a note: a well-known environment whose episodes only a time limit ends
SHUFFLED = "identity-shuffle"  # a note: a program's shuffle keeps the order, or reverses it
LATE = "optimizer-after-acting:"  # a note has the numbers of its parameters, by their making
OWN_CLASS = "environment of the program's own:"  # a note begins with it, and has its name
TIME_LIMIT = "time limit:"  # a note ends with the one that an environment is registered with
LACKING = "the probe's info lacks:"  # a note ends with the key that a program looked up
OWN_REWARD = "reward of the program's own:"  # a note has its kind, file, line and name
OPTIMIZERS = "optimizers before the first update:"  # of a run without an environment, their number
BY_HAND = "moved by hand:"  # and one with the line of a loss whose parameters no optimizer steps
NO_ENVIRONMENT = "no environment"  # outcome of a run that learned or drew, and made none
LANGUAGE = "language"  # outcome of a run that trains a language model


@dataclass(frozen=True)
class Density:
    """What is known of a density with two parameters, at the value that was drawn.

    Attributes:
        log: Its logarithm.
        score: The derivatives of the logarithm by the parameters.
        entropy: The derivatives of its entropy.
    """

    log: float
    score: tuple[float, float]
    entropy: tuple[float, float]


@dataclass(frozen=True)
class Draw:
    """One enumerated random choice.

    Attributes:
        source: "action" (the program's policy), "environment" (the probe) or "other".
        probs: Probability of each outcome.
        picked: The outcome taken.
        loc: Mean of a Gaussian draw, or the first concentration of a beta draw, else None; then
            ``probs`` are the quadrature weights.
        scale: Its standard deviation, or the second concentration.
        value: What was drawn.
        density: Density of a draw that is not Gaussian.
    """

    source: str
    probs: tuple[float, ...]
    picked: int
    loc: float | None = None
    scale: float | None = None
    value: float | None = None
    density: Density | None = None


@dataclass(frozen=True)
class Differentiated:
    """The slopes of one choice, differentiated by the program's own graph.

    Attributes:
        draw: Its position among the choices.
        rows: [outcomes][D] of ln p; of a continuous draw [2][D], of its two parameters.
    """

    draw: int
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Step:
    """One transition of the probe.

    Attributes:
        environment: Index of the environment, in order of creation.
        episode: Episode of this environment, from 0.
        time: Step of the episode, from 0.
        state: Where the action was taken.
        reward: What it earned.
        next_state: Where it led; the probe's terminal state has the highest index.
        terminated: The episode ended by the problem.
        truncated: The episode ended by the horizon.
        groups: The draws (indices) since the last step that may have made this action, by call.
        matches: Whether the values of each group are the action that arrived.
        executed: Whether it is one: False where a vector environment reset and ignored the action.
        action: The numbers of the action that arrived.
    """

    environment: int
    episode: int
    time: int
    state: int
    reward: float
    next_state: int
    terminated: bool
    truncated: bool
    groups: tuple[tuple[int, ...], ...]
    matches: tuple[bool, ...]
    executed: bool = True
    action: tuple[float, ...] = ()


@dataclass(frozen=True)
class Update:
    """One call of an optimizer's ``step``.

    Attributes:
        ascent: [tensors][directions] minus the gradient along each probing direction of each
            parameter tensor; None for a tensor without a gradient.
        place: File and line of the call.
        backward: File and line of the last ``backward``.
        steps_before: Transitions before this update.
        draws_before: Random choices before this update.
        scores_before: Calls of ``log_prob`` before this update.
        owned: Numbers of the tensors that the optimizer trains.
    """

    ascent: tuple[tuple[float, ...] | None, ...]
    place: tuple[str, int]
    backward: tuple[str, int]
    steps_before: int
    draws_before: int = 0
    scores_before: int = 0
    owned: tuple[int, ...] = ()

    def along(self, tensor: int) -> tuple[float, ...] | None:
        """The row of one tensor; None without a gradient, as before the tensor was seen."""
        return self.ascent[tensor] if tensor < len(self.ascent) else None


@dataclass(frozen=True)
class Fact:
    """Something that was seen in the gradients or in the graph of a loss.

    Attributes:
        kind: One of ``FACTS``.
        place: File and line.
        size: A number that says how much; its meaning depends on the kind.
        update: Index of the optimizer step that it leads to.
        tensors: Those of the optimizers' that it is about, by index.
    """

    kind: str
    place: tuple[str, int]
    size: float
    update: int
    tensors: tuple[int, ...] = ()


# Kinds of facts.
LEFT_OVER = "left-over-gradient"  # a gradient that was used before is used again; its share
RATIO = "ratio"  # π_new/π_old in a loss; its largest distance from 1
CLIPPED = "clipped-ratio"  # a note: such a ratio is clipped
SIDE = "clipped-side"  # a loss takes an extreme of a ratio's two objectives; −1: the wrong one
SWAPPED = "swapped-clip"  # such a clip has its lower bound above its upper one
SOFTMAX = "softmax-along-rows"  # a softmax whose last dimension has this size runs along another
PRODUCT = "attached-product"  # two factors with parameters of their own; how many the first has
SQUARE = "square-product"  # of a column and a row of this size, one of which carries no gradient
TARGET = "attached-target"  # the target of a squared error moves with its prediction


@dataclass(frozen=True)
class Score:
    """One call of ``log_prob`` by the user's program.

    Attributes:
        place: File and line of the call.
        differentiable: Whether the result carries a gradient.
        batch_shape: Batch shape of the distribution.
        value_shape: Shape of the argument.
        probs: The scored probabilities or Gaussian means, flattened; empty for other families.
        scales: The Gaussian's standard deviations, flattened.
        values: The scored actions, flattened; empty if there are many.
        steps_before: Transitions before this call.
    """

    place: tuple[str, int]
    differentiable: bool
    batch_shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    probs: tuple[float, ...]
    scales: tuple[float, ...]
    values: tuple[float, ...]
    steps_before: int


ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Made:
    """What one statement of the user's made.

    Attributes:
        place: File and line of the statement.
        scope: First line of the function that it is in, or of its module.
        name: What it assigned to or changed, as it is written; "return" for a result, ``ARGUMENTS``
            for what it gave to a function of the user's.
        numbers: The numbers in it, flattened; there are not many.
        attached: Whether each number carries a gradient.
        leads: The parameter tensors that its gradients reach.
        steps_before: Transitions before it.
        identity: The same number for the same object.
    """

    place: tuple[str, int]
    scope: int
    name: str
    numbers: tuple[float, ...]
    attached: tuple[bool, ...]
    leads: tuple[int, ...]
    steps_before: int
    identity: int


@dataclass(frozen=True)
class Trace:
    """One run of the program.

    Attributes:
        outcome: "updated" (it went past its first update), "finished", "choices" (too many),
            "work" (too much), "no environment", "error", "exited", "killed" or "time".
        detail: The error's text, or what happened.
        file: Where, as a path; empty if unknown.
        line: Where.
        draws: Every random choice, in order.
        steps: Every transition, in order.
        updates: Every optimizer step, in order.
        scores: The calls of ``log_prob``.
        shapes: Shapes of the parameter tensors, in order.
        notes: Facts that the diagnosis reads, such as "identity-shuffle".
        noise: Seed of the random numbers that were not enumerated, if they had a separate seed.
        facts: What was seen in gradients and graphs.
        known: So many choices were made before the last parameter was known to be trained.
        given: So many of the choices are conditions: the same on every path.
        made: What the user's statements made, in order, if the job asked for it.
        slopes: Slopes of the choices that have a graph, if the job requested them.
    """

    outcome: str
    detail: str = ""
    file: str = ""
    line: int = 0
    draws: tuple[Draw, ...] = ()
    steps: tuple[Step, ...] = ()
    updates: tuple[Update, ...] = ()
    scores: tuple[Score, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    noise: int | None = None
    facts: tuple[Fact, ...] = ()
    known: int = 0
    given: int = 0
    made: tuple[Made, ...] = ()
    slopes: tuple[Differentiated, ...] = ()

    @property
    def picked(self) -> tuple[int, ...]:
        """The outcomes of its choices."""
        return tuple(draw.picked for draw in self.draws)

    @property
    def probability(self) -> float:
        """The probability of this run: the product over its choices, conditions left out."""
        product = 1.0
        for draw in self.draws[self.given :]:
            product *= draw.probs[draw.picked]
        return product


_RECORDS: dict[str, Callable[..., Any]] = {
    "draws": Draw, "steps": Step, "updates": Update, "scores": Score, "facts": Fact, "made": Made,
    "slopes": Differentiated,
}  # fmt: skip


def encode_trace(trace: Trace) -> str:
    """A trace as JSON; the records inside as lists of their fields."""
    records = {name: [astuple(record) for record in getattr(trace, name)] for name in _RECORDS}
    return json.dumps(vars(trace) | records)


def parse_trace(data: Any) -> Trace:
    """The record in ``data``, as it came from JSON; raises ``ValueError`` if it is not one."""
    try:
        records: dict[str, Any] = {
            name: tuple(_record(kind, item) for item in data[name])
            for name, kind in _RECORDS.items()
        }
        return Trace(
            outcome=_text(data["outcome"]),
            detail=_text(data["detail"])[:2000],
            file=_text(data["file"]),
            line=int(data["line"]),
            shapes=frozen(data["shapes"]),
            notes=tuple(_text(note) for note in data["notes"]),
            known=int(data["known"]),
            **records,
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a trace: {error!r}") from error


def _record(kind: Callable[..., Any], values: Any) -> Any:
    if len(values) != len(fields(kind)):  # type: ignore[arg-type]  # kind is a dataclass
        raise TypeError(f"{len(values)} values for {kind}")
    has_density = kind is Draw and values[-1] is not None
    last = _record(Density, values[-1]) if has_density else frozen(values[-1])
    return kind(*map(frozen, values[:-1]), last)


def frozen(value: Any) -> Any:
    """Tuples in place of the lists of JSON; anything but these, numbers and texts is refused."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} in a record")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a string")
    return value
