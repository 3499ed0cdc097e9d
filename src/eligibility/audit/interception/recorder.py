"""Keeps the books of one run: which draw made which action, and what the optimizer was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from eligibility.audit.arrays import Array, Integers
from eligibility.audit.choices import (
    MAX_STEPS,
    MAX_UPDATES,
    Choices,
    PathComplete,
    TooMuchWorkError,
)
from eligibility.audit.interception import updates
from eligibility.audit.interception.calls import Calls, Group
from eligibility.audit.interception.evaluations import Evaluations
from eligibility.audit.interception.minibatches import Minibatches
from eligibility.audit.interception.observations import jittered
from eligibility.audit.interception.other_numbers import OtherNumbers, seed_generators
from eligibility.audit.interception.parameters import Parameters
from eligibility.audit.interception.probe import TERMINAL, Probe
from eligibility.audit.interception.scores import Scores
from eligibility.audit.job import Job
from eligibility.audit.noise.numbers import Noise
from eligibility.audit.raised import precision_note
from eligibility.audit.trace import (
    LATE,
    LEFT_OVER,
    RATIO,
    SHUFFLED,
    UNREAD,
    Differentiated,
    Fact,
    Made,
    Step,
    Update,
)
from eligibility.audit.user_code import user_place


class Recorder:
    """The books of one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.choices = Choices(job.prescribed, job.seed, job.stop_after, job.nodes, job.off_nodes)
        self.steps: list[Step] = []
        self.updates: list[Update] = []
        self.scores = Scores(lambda: len(self.steps))
        self.blind = False  # whether what happens is the audit's own look at something
        self.notes: dict[str, None] = {}
        self.facts: list[Fact] = []
        self.made: list[Made] = []
        self.parameters = Parameters(job)
        self.known = 0  # choices before the last of them was known
        self.slopes: list[Differentiated] = []
        self.accumulated = updates.AccumulatedGradients()
        self.hand_updates = updates.HandUpdates(self.parameters.tensors)
        self._seen = 0
        self.backward_place: tuple[str, int] = ("", 0)
        self.environments: list[Probe] = []
        self._episodes: dict[int, int] = {}
        self._between_episodes: dict[int, bool] = {}
        self._closed: set[int] = set()
        self._starts: dict[int, int] = {}  # by environment: the draw of its first state
        self._chosen: int | None = None  # the draw of a problem that is not told yet what for
        self.noise = Noise(self)
        self.is_parameter: Callable[[torch.Tensor], None] = lambda tensor: None
        self._others: OtherNumbers | None = None
        self.begin: Callable[[], None] = lambda: None
        self.optimizers = 0  # before the first update
        self._width = 1  # numbers of an action
        self.calls = Calls(self.choices)
        self._last: dict[int, Step] = {}
        self._evaluations = Evaluations(self.choices)
        self._minibatches = Minibatches(self.steps, self.updates)
        self.detached_ratios = updates.DetachedRatios(lambda: len(self.choices.draws))

    @property
    def running(self) -> bool:
        """Whether what happens is the program's: before it meets the problem, it initialises."""
        return not self.blind and bool(self._episodes or self._evaluations.steps)

    @property
    def follows_noise(self) -> bool:
        """Whether random numbers of the program may be actions that it draws by hand."""
        return self.running and (self.job.problem is None or self.job.problem.by_hand)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps; if no action was ever drawn, those that would else be an evaluation's."""
        return tuple(self.steps or self._evaluations.steps)

    # environments --------------------------------------------------------------------------------

    def shown(self, observation: Any, space: spaces.Space[Any]) -> Any:
        """What the program sees: as the job says, with separate features for every observation."""
        if not self.job.jitter:
            return observation
        self._seen += 1
        return jittered(observation, space, self._seen, self.job.jitter)

    def on_reset(self, environment: Probe) -> None:
        """An episode starts."""
        if self._lacks_last_update():
            self.choices.closed = True
            return
        self.stop_if_complete()
        if not self.steps and not self.updates:
            self.parameters.move_again()
        if not self.running:
            self._others = OtherNumbers(self.job.noise)
        elif self._others is not None and not self.steps:
            self._others.mark()  # the program may have set its seed after an earlier reset
        index = self._index(environment)
        self._closed.discard(index)
        if self._chosen is not None:
            self._starts[index], self._chosen = self._chosen, None
        last = self._last.get(index)
        # a second reset before any step starts the same episode
        self._episodes[index] = 0 if last is None else last.episode + 1
        self._between_episodes[index] = True
        if index in self._last and self.calls.groups and index not in self.calls.served:
            self._ignore(environment, index)
        if self.calls.stepped or not self.calls.groups:
            self._evaluations.waiting.add(index)

    def on_close(self, environment: Probe) -> None:
        """No action is for it any more; one that was only looked at has never been there."""
        index = self._index(environment)
        self._closed.add(index)
        if index not in self._last:
            self._episodes.pop(index, None)
            self._between_episodes.pop(index, None)
            if index in self._starts:
                self.choices.settle(self._starts.pop(index))

    def on_step(
        self,
        environment: Probe,
        components: Array,
        state: int,
        reward: float,
        next_state: int,
        terminated: bool,
        truncated: bool,
    ) -> float:
        """A transition was made; what it earns, by the job or else by the problem."""
        self.stop_if_complete()
        index, chosen, self._chosen = self._index(environment), self._chosen, None
        episode = self._episodes.setdefault(index, 0)  # a copy that was never reset
        step = Step(
            index, episode, environment.time - 1, state, reward, next_state, terminated, truncated,
            (), (), action=tuple(components.tolist()),
        )  # fmt: skip
        if index in self._evaluations.waiting:
            self._evaluations.add(step, (self._starts.pop(index, None), chosen))
            del self._episodes[index]
            self._between_episodes.pop(index, None)
            return reward
        number = sum(step.executed for step in self.steps)
        if self.job.at_ends and not (terminated or truncated):
            reward = 0.0
        elif number < len(self.job.rewards) and state != TERMINAL:
            reward = self.job.rewards[number]
        self._width = len(components)
        groups, matches = self._draws_of(environment, index, components)
        self._between_episodes[index] = terminated or truncated
        self._record(replace(step, reward=reward, groups=groups, matches=matches))
        return reward

    def _ignore(self, environment: Probe, index: int) -> None:
        """A vector environment resets in place of the step for which an action was drawn."""
        groups, matches = self._draws_of(environment, index, np.zeros(self._width))
        before = self._last[index].next_state
        unseen = tuple(False for _ in matches)
        episode = self._episodes[index]
        self._record(
            Step(index, episode, -1, before, 0.0, environment.state, False, False, groups, unseen,
                 executed=False)
        )  # fmt: skip

    def _record(self, step: Step) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise TooMuchWorkError(f"{MAX_STEPS:,} steps of its environments")
        self.steps.append(step)
        if self._minibatches.acts():
            self.note(f"{UNREAD} several whole numbers at once")
        self._last[step.environment] = step
        self.calls.serve(step.environment)

    def environment_choice(self, probs: list[float]) -> int:
        """The outcome of one of the problem's own random choices."""
        if self._lacks_last_update() and not self.choices.closed:
            return 0  # the start of an episode that is never played
        self.stop_if_complete()
        self._chosen = len(self.choices.draws)
        return self.choices.choose(probs, "environment")

    def _index(self, environment: Probe) -> int:
        return next(i for i, known in enumerate(self.environments) if known is environment)

    def stop_if_complete(self) -> None:
        """New data after an update: what the program learns from the old is known."""
        self.note(self.hand_updates.check())
        if self._complete():
            raise PathComplete

    def _complete(self) -> bool:
        own, awaited = self.updates[self.job.held :], set(self.job.awaited)
        if awaited:
            own = [update for update in own if awaited & set(update.owned)]
        if not own:
            return False
        before = self.updates[self.job.held - 1].steps_before if self.job.held else 0
        several = len(self._episodes) > 1
        # an update after one step of an episode is one of many; after several, it ends a rollout
        rollout = own[0].steps_before - before > 1
        return several or rollout or all(self._between_episodes.values())

    def _lacks_last_update(self) -> bool:
        """Whether a program that updates after each step resets before it does so once more."""
        return self._complete() and self.updates[-1].steps_before == len(self.steps) - 1 > 0

    # draws ---------------------------------------------------------------------------------------

    def sampled(self, values: Sequence[float]) -> None:
        """The program has drawn ``values``, each by one of the last choices."""
        end = len(self.choices.draws)
        self.sampled_in([(draw,) for draw in range(end - len(values), end)], values)

    def sampled_in(self, units: Sequence[tuple[int, ...]], values: Sequence[float]) -> None:
        """The program has drawn ``values``, each by the choices in its entry of ``units``."""
        self._evaluations.drawn()
        self.calls.add(Group(tuple(units), tuple(map(float, values))))

    def drawn(
        self, ids: Sequence[int], units: Sequence[tuple[int, ...]], values: Sequence[float]
    ) -> None:
        """The program has asked hand-made noise, so that these choices were made."""
        self._evaluations.drawn()
        self.calls.add_noise(Group(tuple(units), tuple(values), tuple(ids)))

    def settled(self, position: int, loc: float, scale: float, value: float) -> None:
        """A normal number was used as ``value`` of N(loc, scale²)."""
        self.calls.settle(position, loc, scale, value)

    def _draws_of(
        self, environment: Probe, index: int, components: Array
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[bool, ...]]:
        """For each call that may have drawn this action, its choices and whether the values fit."""
        active = sorted(self._episodes.keys() - (self._closed - {index}))
        units = sum(len(group.units) for group in self.calls.groups)
        drawn = units // max(len(components), 1)
        if units % len(active) and index in active[-drawn:]:
            active = active[-drawn:]  # those before are used no more, and were never closed
        widths = {len(components), environment.numbers.draws}
        return self.calls.of(active.index(index), len(active), components, widths)

    # learning ------------------------------------------------------------------------------------

    def register(self, parameters: Sequence[torch.Tensor]) -> None:
        """Parameters that an optimizer will train."""
        if self.blind:  # a reward's own model
            return
        for parameter in self.parameters.add(parameters):
            self.known = len(self.choices.draws)
            self.is_parameter(parameter)
            self.note(precision_note(parameter.dtype))

    def differentiate(self, draw: int, outputs: torch.Tensor) -> None:
        """Note the slopes of a choice whose numbers are ``outputs`` [n], if they have a graph."""
        if self.job.slopes and outputs.requires_grad and self.parameters.tensors:
            self.slopes.append(Differentiated(draw, self.parameters.slopes(outputs)))

    def has_optimizer(self, parameters: Sequence[torch.Tensor]) -> None:
        """The program has made one, of these parameters."""
        if self.choices.draws and not self.parameters.tensors:
            numbers = {id(one): number for number, one in enumerate(self.parameters.of_modules)}
            if all(id(parameter) in numbers for parameter in parameters):
                self.note(LATE + ",".join(str(numbers[id(p)]) for p in parameters))
        self.register(parameters)
        self.optimizers += not self.updates
        problem = self.job.problem
        if problem and problem.begins == self.optimizers and not self.environments:
            self.begin()

    def updated(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer was asked to step: note what it was given."""
        if self.blind:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.register(parameters)
        self.hand_updates.stepped(parameters)
        owned = {id(parameter) for parameter in parameters}
        rises = any(group.get("maximize", False) for group in optimizer.param_groups)
        if rises:
            self.facts = [updates.turned(fact, len(self.updates)) for fact in self.facts]
        gradients = self.parameters.gradients(owned)
        for kind in self._others.used() if self._others else ():
            self.note(f"{UNREAD} {kind}")
        if self.detached_ratios.are_used():
            self.note(RATIO)
        if self.noise.unasked:
            self.note(f"{UNREAD} random numbers by functions of the module math")
        share = self.accumulated.share(gradients)
        if share:
            self.facts.append(Fact(LEFT_OVER, self.backward_place, share, len(self.updates)))
        self.updates.append(
            Update(
                self.parameters.ascent(gradients, 1.0 if rises else -1.0),
                user_place(),
                self.backward_place,
                len(self.steps),
                len(self.choices.draws),
                len(self.scores),
                tuple(i for i, p in enumerate(self.parameters.tensors) if id(p) in owned),
            )
        )
        if len(self.updates) >= self.job.held + MAX_UPDATES:
            raise PathComplete

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has stepped, without moving anything.

        Numbers that are not enumerated, such as a dropout's, come again in the second update: with
        the same masks the policy is the same function as in the first one.
        """
        if self.blind:
            return
        if len(self.updates) == self.job.held and self._others is not None:
            self._others.rewind()
        if len(self.updates) == self.job.moved_after:
            self.parameters.move_late()
        if len(self.updates) in self.job.perturbed:
            owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self.parameters.perturb(owned)

    def reseed(self, seed: int) -> None:
        """From now on the numbers that are not enumerated are others."""
        with self.own_numbers():
            seed_generators(seed)

    def rows(self, count: Any, size: Any) -> Integers | None:
        """[size] rows of the program's batch of ``count`` in turn; None if it has no such batch."""
        rows = self._minibatches.rows(count, size) if self.running else None
        self.note("" if rows is None else SHUFFLED)
        return rows

    def order(self, count: int) -> Integers:
        """The order in which a shuffle leaves ``count`` rows: as they were, or reversed."""
        self.note(SHUFFLED)
        rows = np.arange(count)
        return rows[::-1].copy() if self.job.turned else rows

    def own_numbers(self) -> AbstractContextManager[None]:
        """Numbers that only stand for noise: they are not the program's."""
        return self._others.set_aside() if self._others else nullcontext()

    @contextmanager
    def unread(self, kind: str) -> Iterator[None]:
        """A draw of a ``kind`` that is not read: its parts are not separate choices."""
        self.note(f"{UNREAD} {kind}")
        self.blind = True
        try:
            yield
        finally:
            self.blind = False

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What is drawn within is not the program's: the audit looks at one of its classes."""
        before, self.blind = self.blind, True
        try:
            with self.own_numbers():
                yield
        finally:
            self.blind = before

    def note(self, fact: str) -> None:
        """Remember a fact once; none if it is empty."""
        if fact:
            self.notes[fact] = None
