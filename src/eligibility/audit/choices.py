"""Every random choice of a program asks here, and a depth-first search visits all the answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from eligibility.audit.quadrature import COARSE, beta_rule, beta_value, off_the_nodes, rule
from eligibility.audit.trace import Density, Draw, Trace

MAX_CHOICES = 40_000  # a batch of 10,000 steps, with the problem's own choices
# Work is counted, not timed: what a run comes to must not depend on the machine's other work.
MAX_STEPS = 40_000
MAX_OPERATIONS = 500_000  # of torch
MAX_UPDATES = 256  # of one round: 80 steps of a policy and 80 of its critic are customary

MOST_PATHS = 10**18  # "more than can be counted"
MAX_TOKENS = 100  # drawn by a program with an optimizer before it makes an environment

BY_ITSELF = (
    "it moves its parameters itself, and the audit reads the gradients that an optimizer is given; "
    "let `torch.optim.SGD` make the step"
)


class TooManyChoicesError(BaseException):
    """The program makes more random choices before its first update than the audit follows.

    Not an ``Exception``: a program's own ``except Exception`` must not swallow it.
    """


class TooMuchWorkError(BaseException):  # for the same reason
    """The program does more before its first update than the audit follows; it says of what."""


class NoEnvironmentError(BaseException):  # for the same reason
    """The program trains on what it draws itself, as a model of tokens does."""


class UpdatedByHandError(BaseException):  # for the same reason
    """The program moves its parameters itself; ``file`` and ``line`` say what it differentiates."""

    def __init__(self, file: str, line: int) -> None:
        self.place = file, line
        super().__init__(BY_ITSELF)


class PathComplete(BaseException):  # the normal end of a run, no error
    """The run has reached what it was started for."""


class Choices:
    """Answers the choices of one run: first as prescribed, then the first possible outcome.

    Args:
        prescribed: Outcomes of the first choices.
        seed: Draw the later ones at random instead, with this seed.
        stop_after: Stop the run after this many choices.
        nodes: Values that stand for a continuous draw.
        off_nodes: Give continuous draws other values instead, at random.
    """

    def __init__(
        self,
        prescribed: Sequence[int] = (),
        seed: int | None = None,
        stop_after: int | None = None,
        nodes: int = COARSE,
        off_nodes: bool = False,
    ) -> None:
        self._prescribed = prescribed
        self._random = None if seed is None else random.Random(seed)
        self._stop_after = stop_after
        self._nodes = nodes
        self._off_nodes = off_nodes
        self.draws: list[Draw] = []
        self.closed = False  # the next choice ends the run
        self.asked: Callable[[], None] = lambda: None  # called before each choice

    def choose(self, probs: Sequence[float], source: str) -> int:
        """The outcome of the next choice; outcomes of probability 0 are never taken."""
        picked = self._pick(self._next_position(), probs)
        self.draws.append(Draw(source, tuple(probs), picked))
        return picked

    def choose_normal(self, loc: float, scale: float) -> float:
        """The next choice: z of a normal number ``loc + scale z``.

        A value off the nodes is a last outcome, of probability 0: no sum contains it.
        """
        probs, picked, node = self._node(*rule(self._nodes))
        self.draws.append(Draw("action", probs, picked, loc, scale, loc + scale * node))
        return node

    def choose_beta(
        self, alpha: float, beta: float, density_at: Callable[[float], Density]
    ) -> float:
        """The next choice: a number with a beta distribution, and its ``density_at`` that value."""
        nodes, weights = beta_rule(self._nodes, alpha, beta)
        probs, picked, node = self._node(nodes, weights)
        value = beta_value(node, alpha, beta) if picked == len(nodes) else node
        self.draws.append(Draw("action", probs, picked, alpha, beta, value, density_at(value)))
        return value

    def _node(
        self, nodes: Sequence[float], weights: Sequence[float]
    ) -> tuple[tuple[float, ...], int, float]:
        """Probabilities of the next choice, its outcome, and its node; or one off the nodes."""
        position = self._next_position()
        probs = (*weights, 0.0)
        if self._off_nodes and position >= len(self._prescribed):
            assert self._random is not None
            return probs, len(nodes), off_the_nodes(self._random.random())
        picked = self._pick(position, probs)
        return probs, picked, nodes[picked]

    def settle(self, position: int) -> None:
        """Nothing depends on this choice: its other outcomes are not visited."""
        draw = self.draws[position]
        certain = tuple(float(outcome == draw.picked) for outcome in range(len(draw.probs)))
        self.draws[position] = replace(draw, probs=certain)

    def _next_position(self) -> int:
        self.asked()
        position = len(self.draws)
        if self.closed or position == self._stop_after:
            raise PathComplete
        if position >= MAX_CHOICES:
            raise TooManyChoicesError
        return position

    def _pick(self, position: int, probs: Sequence[float]) -> int:
        if position < len(self._prescribed):
            return self._prescribed[position]
        possible = [index for index, prob in enumerate(probs) if prob > 0]
        if not possible:
            raise ValueError(f"a distribution whose probabilities are {list(probs)[:8]}")
        if self._random is None:
            return possible[0]
        return self._random.choices(possible, [probs[index] for index in possible])[0]


def count_of_paths(found: Iterable[float]) -> int:
    """The number of paths, from the probabilities p of some drawn by them: E[1/p] counts them."""
    inverse = [1.0 / prob if prob > 1.0 / MOST_PATHS else float(MOST_PATHS) for prob in found]
    return round(min(sum(inverse) / len(inverse), MOST_PATHS))


def paths_after(trace: Trace, given: int = 0) -> Iterator[tuple[int, ...]]:
    """The beginnings of the paths after ``trace`` in depth-first order, as far as it tells.

    The first ``given`` choices stay as they are.
    """
    for position in reversed(range(given, len(trace.draws))):
        draw = trace.draws[position]
        for outcome in range(draw.picked + 1, len(draw.probs)):
            if draw.probs[outcome] > 0:
                yield (*(earlier.picked for earlier in trace.draws[:position]), outcome)
