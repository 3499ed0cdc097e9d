"""The runs that branch off from a program's first run, and what each of them shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.branch import Branch, branch_off, found_by
from eligibility.audit.trainers.draws import Draws
from eligibility.audit.trainers.gradients import AtStates, Pass, StateWeights
from eligibility.audit.trainers.gumbel import Noise
from eligibility.audit.trainers.in_order import Order
from eligibility.audit.trainers.kept_gradients import KeptGradients
from eligibility.audit.trainers.many_tokens import ManyTokens
from eligibility.audit.trainers.models import Models, perturb
from eligibility.audit.trainers.operations import LoopRecorder
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.scores import Scores
from eligibility.audit.trainers.tiny import LENGTH
from eligibility.audit.trainers.trl import generic_reward
from eligibility.audit.user_code import user_place

PATTERN = (1, 2)  # answers of different lengths, each with a word
GREEDY = "`generate` is called without sampling, so no answer has a probability"
_NO_ANSWERS = (
    "the program samples no answers with `generate` or torch.multinomial, so there is no policy "
    "gradient to audit"
)
_NO_STEP = (
    "the program ends before its optimizer steps; if it trains only on some answers, let a "
    "function that takes the answer and returns a number tell which, so that the audit can "
    "replace its results"
)


class InBranch(BaseException):
    """This process is a branch: it goes on where the lead stands."""


class Branches:
    """One program, whose first run leads the others: these are the others.

    Args:
        record: Where the measurements go.
        announce: Called with the outcomes done and their number.
        most_rows: With more rows, their number is all that is found out.
        grouping: Whether only the grouping of the answers is wanted.
    """

    generate: Callable[..., Any]  # transformers' own

    def __init__(
        self,
        record: Record,
        announce: Callable[[int, int], None],
        most_rows: float = math.inf,
        grouping: bool = False,
    ) -> None:
        self._record, self._announce = record, announce
        self._most_rows, self._grouping_alone = most_rows, grouping
        self.branch: Branch | None = None
        self.draws = Draws(PATTERN, LENGTH)
        self.scores = Scores(self._reward, self._given)
        self.models = Models()
        self._latest: Any = None  # the model that ran last
        self._sampling: Any = None
        self._greedy_alone = False  # whether answers were given, and none of them was sampled
        self._busy = False  # whether the audit itself asks transformers for a token
        self._unmasked = False  # whether `generate` has read the padding before a prompt
        self._certain_end = False  # whether models say nothing but the end after an end
        self._many: ManyTokens | None = None
        self._order_of_tokens = Order()
        self._again = False  # whether the answers are trained on twice
        self._options: dict[str, Any] = {}
        self._used: dict[int, bool] = {}  # models after sampling: whether without adapters
        self._followers: list[Any] = []  # models that the program gives the trained one's weights
        self._sign, self._moved = 1.0, 0.0  # of rewards; of logits where there are no adapters
        self._raised: frozenset[Tokens] = frozenset()  # answers with other rewards
        self._perturbed = False  # whether branches begin with other trained parameters
        self._crossed = False  # whether answers at the same place of two prompts must differ
        self._order: list[int] = []  # rows of the program, prompt by prompt
        self._states: StateWeights | None = None
        self._values: list[float] = []
        self._noise = Noise()
        self._skipped = 0  # calls whose answers teach nothing: the lead passes them by
        self._passed: set[int] = set()  # models that have run before the trained one is made
        self._pass = Pass()
        self._tables: list[Any] = []  # of each time that the answers were trained on
        self._made: list[int] = []  # how many steps each of them took
        self._logits: tuple[AtStates, AtStates] = ({}, {})  # with which they were scored each time
        self._twice = 0  # steps after which the answers are trained on again, by a later policy
        self._trained, self._place = 0, ("", 0)
        self._leak = self._prompt_share = 0.0
        self._written: tuple[str, int] = ("", 0)  # where an end was put in a drawn token's place
        self._overwritten: list[Any] = []  # the same, if the end is scored there
        self._recorder: LoopRecorder | None = None
        self._following = False  # whether branches go on to the optimizer's next step
        self._kept: KeptGradients | None = None
        self._inside = False  # whether a model runs
        register_optimizer_step_pre_hook(self._before_step)

    def _go(self, draws: Draws, **watching: Any) -> dict[str, Any]:
        """What a branch finds with these answers."""
        return self._start(draws, **watching)()

    def _start(
        self, draws: Draws, recorder: LoopRecorder | None = None, many: ManyTokens | None = None
    ) -> Callable[[], dict[str, Any]]:
        """Begin a branch; the call that is returned waits for what it finds.

        Args:
            draws: The answers that it is given.
            recorder: Records its loss.
            many: Gives its models more tokens than answers have.
        """
        way = branch_off()
        if isinstance(way, Branch):
            self.branch, self.draws = way, draws
            self._recorder, self._many = recorder, many
            self._latest = self._sampling  # the audit itself may have run a reference since
            self._pass, self._tables, self._values = Pass(), [], []
            self._made = []
            self._kept = KeptGradients() if self._following else None
            self.models.forget()
            self.scores.said = {}
            if self._perturbed:
                self.models.perturb()
            raise InBranch
        return partial(found_by, way)

    def _before_step(self, optimizer: Any, args: Any, options: Any) -> None:
        """Read the gradient; without one, no optimizer moves a parameter."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        trained = self.models.of_parameters(parameters)
        if trained is None:
            return
        if self._kept is not None and self.branch is not None:
            if self._kept.marked:
                self._send(kept=[*user_place()] if self._kept.kept else [])
            self._kept.about_to_step(parameters)
        elif self.branch is not None and self.draws.given:
            self._read(trained, -1.0 if optimizer.param_groups[0].get("maximize") else 1.0)
            if self._states is None:  # a first look: which models does the program keep alike?
                perturb(optimizer.param_groups)
        for parameter in parameters:
            parameter.grad = None

    def _read(self, model: Any, sign: float) -> None:
        rows = self.models.rows(model)
        assert rows is not None
        rows.expect_rows(list(zip(self.draws.prompts, self.draws.given, strict=True)))
        rows.outcome.overwrites = bool(self._written[0])
        table, prompts = rows.collected(self.draws.length)
        if rows.outcome.overwritten:
            self._overwritten = [*self._written]
        if not self.draws.bounded and rows.scored & self._pass.scored:
            self._again = True
            self._send()
        if len(self._tables) < 2:
            self._logits[len(self._tables)].update(rows.logits)
        states = self._states
        gradient = states.gradient() if states is not None else torch.zeros(1)
        self._pass.add(sign * table, sign * gradient, rows.scored, prompts)
        self._trained, self._place = id(model), user_place()
        if self._pass.steps == self._twice:
            self._close_pass()
            if len(self._tables) == 2:
                self._send()
            assert states is not None
            states.take(1)

    def _close_pass(self) -> None:
        """The mean of the steps in which the answers were trained on."""
        table, gradient = self._pass.mean()
        self._prompt_share = max(self._prompt_share, self._pass.prompt_share)
        if self._states is not None:
            if len(table) != len(self._order):
                raise Refused(
                    "how many answers the program trains on depends on the answers; audit its "
                    "loss with audit_token_loss"
                )
            given = [self.draws.given[i] for i in self._order]
            table, leak = self._states.as_trained(gradient, table[self._order], given)
            self._leak = max(self._leak, leak)
        self._tables.append(table.tolist())
        self._made.append(self._pass.steps)
        self._pass = Pass()
        if self._recorder is not None:
            self._recorder.live = False

    def _send(self, **more: Any) -> None:
        """What this branch has found."""
        assert self.branch is not None
        steps, scored = self._pass.steps, sorted(self._pass.scored)
        if steps and len(self._tables) < 2:
            self._close_pass()
        self.branch.send(
            **more,
            prompts=self.draws.prompts,
            given=self.draws.given,
            calls=self.draws.calls,
            goes_on=self.draws.goes_on,
            by_token=self.draws.count > 0,
            scored=scored,
            steps=steps,
            made=self._made,
            again=self._again,
            many=self._many and self._many.found(),
            table=self._tables[0] if self._tables else None,
            table_again=self._tables[1] if len(self._tables) > 1 else None,
            trained=self._trained,
            place=self._place,
            used=list(self._used.items()),
            followers=self.models.alike(self._trained) if self._states is None else [],
            sources=[vars(source) for source in self.scores.candidates()],
            said=[[*place, values] for place, values in self.scores.said.items()],
            logits=[[(*key, said) for key, said in each.items()] for each in self._logits],
            probabilities=[(*key, share) for key, share in self.draws.probabilities.items()],
            leak=self._leak,
            prompt_share=self._prompt_share,
            overwritten=self._overwritten,
            value=sum(self._values),
            recorded=self._recorder and self._recorder.listed(self.draws.given),
        )

    def ended(self) -> None:
        """The program has come to its end."""
        if self.branch is None:
            return
        if self.draws.bounded or self._pass.steps or self._tables:
            self._send()
        if self.draws.given:
            self._send(idle=_NO_STEP)
        self._send(idle=GREEDY if self._greedy_alone else _NO_ANSWERS)

    def failed(self, what: str) -> None:
        """The program has stopped; what it did before its optimizer stepped is known."""
        if self.branch is None:
            return
        if self._pass.steps or self._tables:
            self._send()
        self.branch.send(error=what)

    def _given(self) -> tuple[list[Tokens], list[Tokens]]:
        draws = self.draws
        return draws.given, draws.given[len(draws.given) - draws.called :]

    def _reward(self, answer: Tokens) -> float:
        more = 0.5 if answer in self._raised else 0.0
        return self._sign * generic_reward(0, 0, answer) + more
