"""What one run of the audited program is asked to do; and the program itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.quadrature import COARSE
from eligibility.audit.trace import frozen


@dataclass(frozen=True)
class ProbeSize:
    """How much of the problem is there; smaller ones have fewer paths.

    Attributes:
        horizon: Steps after which an episode is truncated.
        random_start: Whether the first state is drawn.
        random_transitions: Whether the first transition is drawn.
    """

    horizon: int
    random_start: bool
    random_transitions: bool


# From the richest to the smallest; the audit takes the first whose paths it can afford.
SIZES = (
    ProbeSize(horizon=3, random_start=True, random_transitions=True),
    ProbeSize(horizon=3, random_start=False, random_transitions=False),
    ProbeSize(horizon=2, random_start=False, random_transitions=False),
)
STATES = 3  # of the probe, without the terminal one
OWN_STATES = 64  # of the problem of a program without an environment, with it

WholeNumber = tuple[str, int, int, int]  # of a text: the file, line, column, and the number
SmallNumber = tuple[str, int, int, int, int]  # the same, and what it is in its place
Statement = tuple[str, int, str]  # of a text: the file, the line, and what is given a number
COMMAND_LINE = "the command line"  # in place of the file; an argument is a line


@dataclass(frozen=True)
class OwnProblem:
    """What a program without an environment acts for.

    Attributes:
        begins: Number of optimizers that it creates before it acts.
        by_hand: Whether its random numbers may be actions drawn by hand; else they are only noise.
        reward: What gives its reward, if it is known.
        cost: Whether that is what a reward costs: the reward times −1.
        contexts: Whether its policy sees random numbers; then the probe has two sets of them.
    """

    begins: int
    by_hand: bool = False
    reward: Statement | None = None
    cost: bool = False
    contexts: bool = False


# Of a job: what says which program is run on which problem, and in what precision.
_OF_THE_PROBLEM = (
    "size", "directions", "raised", "nodes", "awaited", "trained", "at_ends", "smaller", "problem",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What one run is asked to do.

    Attributes:
        prescribed: Outcomes of the first choices.
        size: How much of the probe there is.
        directions: Probing directions of each parameter tensor.
        seed: Draw the choices after the prescribed ones at random; None: take the first outcome.
        stop_after: Stop after this many choices.
        tensor: The parameter tensor to move before the run, or None.
        also: More tensors to move.
        direction: Along which of their directions.
        distance: How far.
        moved_after: Move them after this many optimizer steps instead.
        slopes: Differentiate the probabilities of every choice along all directions.
        everywhere: Move every tensor, along a fixed mixture of its directions.
        jitter: Which extra features to give every observation shown; 0: none.
        raised: Run in double precision whatever the program asks for.
        noise: Seed of the random numbers that are not enumerated, from the first reset on; None:
            they are the same in every run.
        held: Optimizer steps before the update that is looked at; the run ends after that one.
        perturbed: After each of these optimizer steps, counted from 1, move a little what that
            optimizer trains.
        inspected: Look into the graph of every loss, and remember the line of each of its nodes.
        nodes: Values that stand for a normal number.
        turned: What the program shuffles comes in reversed order, instead of as it was.
        off_nodes: Give continuous draws other values, at random; with a seed.
        other_end: Show another observation where an episode is "terminated" or "truncated".
        rewards: Rewards of the executed steps, in order; later steps earn the problem's own.
        awaited: The run does not end before an update of one of these tensors, if any are named.
        trained: Numbers, among the parameters of all modules, of those that an optimizer will train
            which the program makes only after it has acted.
        at_ends: Rewards are 0 but for the last step of an episode.
        followed: Note what each statement of the user's makes.
        smaller: Whole numbers from the program's source that are small in this run.
        problem: What a program without an environment acts for; None: it has an environment.
    """

    prescribed: tuple[int, ...]
    size: ProbeSize
    directions: int = 3
    seed: int | None = None
    stop_after: int | None = None
    tensor: int | None = None
    also: tuple[int, ...] = ()
    direction: int = 0
    distance: float = 0.0
    moved_after: int = 0
    slopes: bool = False
    everywhere: bool = False
    jitter: int = 0
    raised: bool = True
    noise: int | None = None
    held: int = 0
    perturbed: tuple[int, ...] = ()
    inspected: bool = False
    nodes: int = COARSE
    off_nodes: bool = False
    turned: bool = False
    other_end: str = ""
    rewards: tuple[float, ...] = ()
    awaited: tuple[int, ...] = ()
    trained: tuple[int, ...] = ()
    at_ends: bool = False
    followed: bool = False
    smaller: tuple[SmallNumber, ...] = ()
    problem: OwnProblem | None = None

    def plain(self) -> Job:
        """The first path of the same program and problem, with nothing moved or looked into."""
        same = {name: getattr(self, name) for name in _OF_THE_PROBLEM}
        return Job((), **same)


def mixture_of(columns: Sequence[int]) -> Array:
    """How far the job ``everywhere`` moves along each of the directions, numbered over all."""
    mixture: Array = np.cos(1.0 + 2.0 * np.asarray(columns, dtype=float))
    return mixture


@dataclass(frozen=True)
class Program:
    """The script and its limits.

    Attributes:
        path: The script.
        origin: The user's own file; another one than the script for a notebook.
        arguments: Its command line.
        scratch: The only folder that it can change.
        guard: What holds it there, one of `eligibility.sandbox.GUARDS`.
        seconds: Limit on the processor's time in one run.
        megabytes: Memory limit of one run.
        four_tuple: Whether it speaks the interface of gym before 0.26.
    """

    path: str
    origin: str
    arguments: tuple[str, ...]
    scratch: str
    guard: str
    seconds: float
    megabytes: int
    four_tuple: bool


OPEN_LANE = "open lane"  # the line of a worker that is to run jobs of another lane as well


def encoded(record: Job | Program) -> str:
    """What a worker reads: a program first, then jobs; each is one line of JSON."""
    return json.dumps(asdict(record))


def decode_job(line: str) -> Job:
    """The job in a line of JSON."""
    data = json.loads(line)
    size, own = ProbeSize(**data.pop("size")), data.pop("problem")
    problem = own and OwnProblem(**{name: frozen(value) for name, value in own.items()})
    return Job(size=size, problem=problem, **{k: frozen(value) for k, value in data.items()})


def decode_program(line: str) -> Program:
    """The program in a line of JSON."""
    return Program(**{name: frozen(value) for name, value in json.loads(line).items()})
