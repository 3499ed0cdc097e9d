"""What a program does in a run of its own loop, and what is read of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from eligibility.audit.trainers.answers import Tokens
from eligibility.audit.trainers.branch import Branch, branch_off, found_by
from eligibility.audit.trainers.doubles import HIGHEST
from eligibility.audit.trainers.draws import (
    Draws,
    drawn_before,
    draws_tokens,
    has_one_length,
    with_a_certain_end,
    without_padding,
)
from eligibility.audit.trainers.gradients import AtStates, Pass, StateWeights
from eligibility.audit.trainers.gumbel import Noise
from eligibility.audit.trainers.kept_gradients import KeptGradients
from eligibility.audit.trainers.models import Models, is_without_adapters
from eligibility.audit.trainers.operations import BEHAVIOUR, POLICY, REFERENCE, SAMPLED, Recorder
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.sampling import (
    as_asked_for,
    asked_for,
    masks_padding,
    one_token_probabilities,
    padded,
    with_likeliest,
)
from eligibility.audit.trainers.scores import Scores
from eligibility.audit.trainers.spelling import pad_on_the_usual_side
from eligibility.audit.trainers.tiny import LENGTH, NAME, SYMBOLS
from eligibility.audit.trainers.trl import generic_reward
from eligibility.audit.user_code import user_place

PATTERN = (1, 2)  # answers of different lengths, each with a word
_GREEDY = "`generate` is called without sampling, so no answer has a probability"
_NO_ANSWERS = (
    "the program samples no answers with `generate` or torch.multinomial, so there is no policy "
    "gradient to audit"
)
_NO_STEP = (
    "the program ends before its optimizer steps; if it trains only on some answers, let a "
    "function that takes the answer and returns a number tell which, so that the audit can "
    "replace its results"
)
_MANY = 1024  # rows that a program may sample before its optimizer steps


class _InBranch(BaseException):
    """This process is a branch: it goes on where the lead began, and leads nothing."""


class Runs:
    """One program, whose first run leads the others.

    Args:
        record: Where the measurements go.
        announce: Called with the outcomes done and their number.
        most_rows: With more rows, their number is all that is found out.
        grouping: Whether only the grouping of the answers is wanted.
    """

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
        self.generate: Callable[..., Any] | None = None  # transformers' own
        self.models = Models()
        self._latest: Any = None  # the model that ran last
        self._sampling: Any = None
        self._greedy_alone = False  # whether answers were given, and none of them was sampled
        self._busy = False  # whether the audit itself asks transformers for a token
        self._unmasked = False  # whether `generate` has read the padding before a prompt
        self._certain_end = False  # whether models say nothing but the end after an end
        self._cuts = False  # whether the program itself looks for the likeliest tokens
        self._again = False  # whether the answers are trained on twice
        self._options: dict[str, Any] = {}
        self._used: dict[int, bool] = {}  # models after sampling: whether without adapters
        self._sign, self._moved = 1.0, 0.0  # of rewards; of logits where there are no adapters
        self._raised: frozenset[Tokens] = frozenset()  # answers with other rewards
        self._perturbed = False  # whether branches begin with other trained parameters
        self._crossed = False  # whether answers at the same place of two prompts must differ
        self._order: list[int] = []  # rows of the program, prompt by prompt
        self._states: StateWeights | None = None
        self._values: list[float] = []
        self._noise = Noise()
        self._skipped = 0  # calls whose answers teach nothing: the lead passes them by
        self._pass = Pass()
        self._tables: list[Any] = []  # of each time that the answers were trained on
        self._logits: tuple[AtStates, AtStates] = ({}, {})  # with which they were scored each time
        self._twice = 0  # steps after which the answers are trained on again, by a later policy
        self._trained, self._place = 0, ("", 0)
        self._leak = self._prompt_share = 0.0
        self._recorder: Recorder | None = None
        self._following = False  # whether branches go on to the optimizer's next step
        self._kept: KeptGradients | None = None
        self._inside = False  # whether a model runs
        register_optimizer_step_pre_hook(self._before_step)

    # What the program does.

    def met(self, func: Any, args: Any, options: Any, result: Any) -> Any:
        """A call of torch's: a draw, or a tensor of rewards."""
        if func in (torch.multinomial, torch.Tensor.multinomial):
            return self._drawn(args[0] if args else options["input"], result)
        if self.branch is not None:
            self._noise.met(func, args, result)
        if func in HIGHEST and args and not self._busy:  # else transformers asks, not the program
            self._cuts |= args[0].shape[-1:] == (len(SYMBOLS),)
        if func in (torch.argmax, torch.Tensor.argmax):
            logits = self._noise.logits(args[0] if args else None)
            if logits is not None:
                kept = (*logits.shape[:-1], 1)
                return self._drawn(logits.softmax(-1), result.reshape(kept)).reshape(result.shape)
        if func in (torch.tensor, torch.as_tensor):
            result = self.scores.of_tensor(args[0] if args else options.get("data"), result)
        elif func is torch.Tensor.__setitem__:
            self.scores.of_item(*args)
        if self._recorder is not None and not self._inside and not self._busy:
            self._recorder.met(func, args, options, result)
        return result

    def goes_backward(self, loss: Tensor) -> None:
        """A loss, before its gradient is computed."""
        if loss.numel() == 1:
            self._values.append(float(loss.detach()))
        if self._recorder is not None:
            self._recorder.goes_backward(loss)

    def forwards(self, model: Any) -> None:
        """A model of the probe's is about to run."""
        self._latest = model
        self.models.follow(model)
        if self.branch is None and self._sampling is None and not self._busy:
            self._arrive({})  # before what it computes is kept for the gradient
        if self.draws.given:
            off = is_without_adapters(model)
            self._used[id(model)] = self._used.get(id(model), False) or off
        self._inside = True

    def has_run(self, model: Any, output: Any) -> None:
        """Its pass is over."""
        self._inside = False
        rows = self.models.rows(model)
        if self._certain_end and rows is not None and rows.last is not None:
            output.logits = with_a_certain_end(output.logits, rows.last)
        if self._moved and is_without_adapters(model):
            output.logits = output.logits + self._moved * torch.arange(output.logits.shape[-1])
        if self._recorder is None or self._busy or rows is None:
            return
        logits = getattr(output, "logits", None)
        if id(model) == self._trained and not is_without_adapters(model):
            attached = logits is not None and logits.requires_grad
            self._recorder.scored(logits, POLICY if attached else BEHAVIOUR, rows.last)
        else:
            self._recorder.scored(
                logits, BEHAVIOUR if model is self._sampling else REFERENCE, rows.last
            )

    def generated(self, model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """In place of transformers' ``generate``."""
        if model.config._name_or_path != NAME:
            raise Refused(
                f"the program builds its {type(model).__name__} from a configuration, and the "
                "audit replaces only models that are loaded by name; load it with "
                "from_pretrained, or audit its loss with audit_token_loss"
            )
        ids, given = asked_for(args, options)
        settings = given.get("generation_config")
        if given.get("do_sample", getattr(settings, "do_sample", None)) is False:
            if (given.get("num_return_sequences") or 1) > 1:
                raise Refused(_GREEDY)
            return self._greedy(model, ids, given)
        self._latest = model
        self._certain_end |= has_one_length(given, settings)
        usual = model.generation_config.pad_token_id
        pad = given.get("pad_token_id", getattr(settings, "pad_token_id", None))
        pad = usual if pad is None else pad
        self._unmasked |= not masks_padding(args, options, pad)
        self._arrive(given)
        chosen = self.draws.next_rows([without_padding(row) for row in ids.tolist()])
        if self.branch is not None and not self._options:  # the lead has not seen the call
            self._note_probabilities(model, given)
        pad = usual if self._certain_end else pad
        sequences = padded(ids, chosen, pad)
        if self._recorder is not None:
            self._recorder.given(sequences, SAMPLED)
        return as_asked_for(model, sequences, ids.shape[1], given)

    def _greedy(self, model: Any, ids: Tensor, options: Any) -> Any:
        """The likeliest tokens: nothing is drawn, so no answer of the outcome is given."""
        self._greedy_alone = not self.draws.given
        self._busy = True
        rows = with_likeliest(model, ids)
        self._busy = False
        return as_asked_for(model, rows, ids.shape[1], options)

    def _note_probabilities(self, model: Any, options: dict[str, Any]) -> None:
        draws = self.draws
        rows = zip(draws.prompts[-draws.called :], draws.given[-draws.called :], strict=True)
        self._busy = True
        for prompt, answer in set(rows):
            for state in (answer[:t] for t in range(len(answer))):
                if (prompt, state) not in draws.probabilities:
                    share = self._one_token(model, (*prompt, *state), options)
                    draws.probabilities[prompt, state] = share
        self._busy = False

    def _one_token(self, model: Any, tokens: Tokens, options: dict[str, Any]) -> list[float]:
        assert self.generate is not None
        return one_token_probabilities(self.generate, model, tokens, options)

    def _drawn(self, probs: Tensor, result: Tensor) -> Tensor:
        known = self.models.rows(self._latest)
        leading = self._busy or (self.branch is None and self._sampling is not None)
        last = known.last if known is not None else None
        if leading or last is None or not draws_tokens(last, probs) or result.shape[-1] != 1:
            return result
        if drawn_before(last) == 0:
            self._arrive({})
        tokens = self.draws.tokens(last, probs).reshape(result.shape)
        if self._recorder is not None:
            self._recorder.given(tokens, SAMPLED)
        return tokens

    def _given(self) -> tuple[list[Tokens], list[Tokens]]:
        draws = self.draws
        return draws.given, draws.given[len(draws.given) - draws.called :]

    def _reward(self, answer: Tokens) -> float:
        more = 0.5 if answer in self._raised else 0.0
        return self._sign * generic_reward(0, 0, answer) + more

    # The process that leads: it stands where the first token is sampled, and never goes on.

    def _arrive(self, options: dict[str, Any]) -> None:
        """Rows are about to be sampled: leave this to branches; in one, go on, or end it."""
        draws = self.draws
        if self.branch is not None:
            if draws.complete or self._pass.steps or self._tables:
                self._send()  # without a step the program makes no update from these answers
            if len(draws.given) > _MANY:
                self._send(idle=f"the program samples more than {_MANY} answers without a step")
            return
        if len(draws.calls) < self._skipped or not draws.between_calls:
            return
        self._options, self._sampling = options, self._latest
        pad_on_the_usual_side()
        with suppress(_InBranch):
            self._lead()

    def _lead(self) -> None:
        raise NotImplementedError

    # One branch.

    def _go(self, draws: Draws, recorder: Recorder | None = None) -> dict[str, Any]:
        """What a branch finds with these answers."""
        return self._start(draws, recorder)()

    def _start(
        self, draws: Draws, recorder: Recorder | None = None
    ) -> Callable[[], dict[str, Any]]:
        """Begin a branch, which leaves the lead and goes on; what it finds is waited for."""
        way = branch_off()
        if isinstance(way, Branch):
            self.branch, self.draws, self._recorder = way, draws, recorder
            self._latest = self._sampling  # the audit itself may have run a reference since
            self._pass, self._tables, self._values = Pass(), [], []
            self._kept = KeptGradients() if self._following else None
            self.models.forget()
            self.scores.said = {}
            if self._perturbed:
                self.models.perturb()
            raise _InBranch
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
        for parameter in parameters:
            parameter.grad = None

    def _read(self, model: Any, sign: float) -> None:
        rows = self.models.rows(model)
        assert rows is not None
        rows.expect_rows(list(zip(self.draws.prompts, self.draws.given, strict=True)))
        table, prompts = rows.collected(1, self.draws.length)
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
            table = table[self._order]
            self._states.expect([self.draws.given[i] for i in self._order])
            table, leak = self._states.as_trained(gradient, table)
            self._leak = max(self._leak, leak)
        self._tables.append(table.tolist())
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
            again=self._again,
            cuts=self._cuts,
            table=self._tables[0] if self._tables else None,
            table_again=self._tables[1] if len(self._tables) > 1 else None,
            trained=self._trained,
            place=self._place,
            used=list(self._used.items()),
            sources=[vars(source) for source in self.scores.candidates()],
            said=[[*place, values] for place, values in self.scores.said.items()],
            logits=[[(*key, said) for key, said in each.items()] for each in self._logits],
            probabilities=[(*key, share) for key, share in self.draws.probabilities.items()],
            leak=self._leak,
            prompt_share=self._prompt_share,
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
        self._send(idle=_GREEDY if self._greedy_alone else _NO_ANSWERS)

    def failed(self, what: str) -> None:
        """The program has stopped; what it did before its optimizer stepped is known."""
        if self.branch is None:
            return
        if self._pass.steps or self._tables:
            self._send()
        self.branch.send(error=what)
