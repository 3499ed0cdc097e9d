"""A program's own loop on transformers, led through every group of answers.

The program runs up to the first token that it samples. From there it goes on once for every
outcome, each time in a new process, up to its optimizer's first step.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from eligibility.audit.side_by_side import in_order
from eligibility.audit.trainers.answers import MOST, answers, longest, outcomes
from eligibility.audit.trainers.branches import PATTERN
from eligibility.audit.trainers.draws import Draws, calls_without_a_part, unseen_in
from eligibility.audit.trainers.gradients import AtStates, StateWeights
from eligibility.audit.trainers.many_tokens import ManyTokens
from eligibility.audit.trainers.next_token import nucleus_of, temperature_of
from eligibility.audit.trainers.operations import LoopRecorder
from eligibility.audit.trainers.record import Policies, Table
from eligibility.audit.trainers.refused import Finished, Refused
from eligibility.audit.trainers.reward_choice import RewardChoice, alike
from eligibility.audit.trainers.sampling import note_policy
from eligibility.audit.trainers.scores import FUNCTION, Source
from eligibility.audit.trainers.tiny import LENGTH
from eligibility.audit.trainers.trl import WithoutAdapter, wake_adapters
from eligibility.audit.user_code import asking_place

_PUBLISHED = (
    "`generate` takes what the program does not ask for from the model's generation_config.json"
)
_FEW = 60  # outcomes with which there is time for a second policy
_EXACT = 1e-9
_OTHERWISE = 1e-5  # difference of probabilities that is more than rounding
_PLANS = 6  # more groups of answers whose order is turned
_MOST_STOP = 0.5  # share of the groups of answers on which a program may stop with an error
_DRIFT = 1.1  # by how much a later policy's log π(token) differs, past a ratio's usual bounds


class Loop(RewardChoice):
    """Leads one program: it stands where the first token is sampled, and never goes on."""

    def _lead(self) -> None:
        found = self._explored()
        if unused := calls_without_a_part(found):
            self._skipped += unused
            return
        prompts = self._prompts = [tuple(prompt) for prompt in found["prompts"]]
        record, model = self._record, self.models.by_id(found["trained"])
        if model is None and self.models.known() - self._passed:  # as after supervised training
            self._passed |= self.models.known()
            return
        if model is None:
            raise Refused(
                "the program creates the model it trains after it has run another one; audit its "
                "loss with audit_token_loss"
            )
        record.rows = len(prompts)
        self._trained = found["trained"]
        self._twice = found["steps"] if found["again"] else 0
        record.drift = _DRIFT if found["again"] else 0.0
        record.file, record.line = found["place"]
        if self._options:
            record.drawn_at = [*asking_place()]
            if drawn_by := getattr(self._sampling, "draws_by", ""):
                record.note(f"{_PUBLISHED}, {drawn_by}")
            record.unseen = [] if self._certain_end else unseen_in(self._options)
        seen = sorted(set(prompts), key=len)
        record.prompts, record.group = len(seen), len(prompts) // len(seen)
        if any(prompts.count(prompt) != record.group for prompt in seen):
            record.one_prompt = True
            raise Refused("the program samples different numbers of answers to its prompts")
        self._order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        few = longest(record.prompts, record.group)
        record.length = LENGTH if self._grouping_alone else few
        if record.rows > self._most_rows:
            raise Finished
        if not record.length:
            raise Refused(
                f"the program samples {record.group} answers to each of {record.prompts} prompts "
                "before its optimizer steps, more groups than the audit can list; use fewer"
            )
        if found["by_token"]:
            self._certain_end |= bool(self._go_on((0,) * record.rows, LENGTH).get("goes_on"))
        if self._certain_end:
            record.note(
                "the program continues after the end of an answer; there the model repeats the "
                "end token with probability 1"
            )
        wake_adapters(model)
        followers = map(self.models.by_id, found["followers"])  # one may be another copy each time
        self._followers = [model for model in followers if model is not None]
        reference = self._reference(found, model)
        sources = self._known(found)
        for length in range(record.length, 1, -1):
            record.length = self.scores.length = length
            self._states = StateWeights(model, seen, record.length)
            record.parameters = self._states.parameters
            record.policies.clear()
            record.later.clear()
            self._enter(0, model, reference)
            if not self.scores.chosen:
                self._choose(sources)
            if self._may_mix:
                self._look_at_the_other_prompt()
            if self._grouping_alone:
                raise Finished
            symmetric = self._is_symmetric()
            record.ordered = not symmetric
            if symmetric or len(answers(record.length)) ** record.rows <= MOST:
                self._record_operations()
                self._note_never_drawn()
                self._follow()
                self._enumerate(model, reference)
        raise Refused(
            "the order of a prompt's answers changes the gradient, and there are too many "
            "orders to list; use fewer answers per prompt"
        )

    def _explored(self) -> dict[str, Any]:
        """What the program does up to the end of its training on some answers.

        If it makes no step, as no reward tells its answers apart, it goes again with the probe's.
        """
        found = {} if self._record.early else self._go(Draws(PATTERN, LENGTH))
        if self._record.early or (found.get("idle") and found["sources"]):
            if found:
                known = self._known(found)
                functions = [s for s in known if s.kind == FUNCTION and not s.doubtful]
                early = [s for s in functions or known if not s.whole] or functions
                self._record.early = [vars(source) for source in early]
            early = [Source(**listed) for listed in self._record.early]
            self.scores.chosen = {source.place: source for source in early}
            self.scores.found |= self.scores.chosen
            self.scores.length = LENGTH
            found = self._go(Draws(PATTERN, LENGTH))
        self.scores.chosen = {}
        if found.get("error"):
            raise Refused(f"the program stopped at {found['error']}")
        if found.get("idle"):
            raise Refused(found["idle"])
        return found

    @property
    def _may_mix(self) -> bool:
        """Whether it matters that answers to different prompts may share a group."""
        record = self._record
        square = record.group == record.prompts == 2 and record.length == LENGTH
        return square or (self._grouping_alone and record.prompts == 2)

    def _look_at_the_other_prompt(self) -> None:
        """Note whether its answers' rewards move the gradients of the first."""
        group = self._record.group
        plan = [(1, 3)[i % 2] for i in range(group)] + [(2, 0)[i % 2] for i in range(group)]
        others, tables = frozenset(answers()[each] for each in plan[group:]), []
        for self._raised in (frozenset(), others):
            tables.append(self._gradient(tuple(plan), LENGTH)[:group])
        self._raised = frozenset()
        self._record.mixed = not alike(*tables)

    def _enumerate(self, model: Any, reference: Any) -> None:
        record = self._record
        every = outcomes(record.ordered, record.prompts, record.group, record.length)
        pairs = 2 if len(every) <= _FEW else 1
        for world in range(2 * pairs):
            self._enter(world, model, reference)
            branches = (self._start(self._plan(self._in_program(chosen))) for chosen, _ in every)
            for number, found in enumerate(in_order(branches)):
                self._keep(self._of_same_prompts(found))
                self._announce(world * len(every) + number + 1, 2 * pairs * len(every))
            self._complete(world)
        usual = max(max(record.made), 1)
        record.gradients = (torch.tensor(record.gradients).double() / usual).tolist()
        if len(record.stopped) > _MOST_STOP * len(record.gradients):
            raise Refused(f"the program stopped at {record.stopped[0]}")
        if reference is not None:
            self._compare_references(reference)
        raise Finished

    def _is_symmetric(self) -> bool:
        """Whether the order of a prompt's answers does not matter."""
        rows, group, first = self._record.rows, self._record.group, self._spoken()
        # each prompt's answers by another number of places: some programs pair those of two prompts
        turned = [i // group * group + (i + 1 + i // group) % group for i in range(rows)]
        # sorted, like answers stand side by side: then groups within a group show as well
        plans = [first] if group < 4 else [first, tuple(sorted(first))]
        if self._crossed:  # rewards are dealt out to other answers: some orders do not show it
            draw, count = random.Random(0), len(answers(self._record.length))
            plans += [tuple(draw.randrange(count) for _ in range(rows)) for _ in range(_PLANS)]
        for plan in plans:
            plain, other = self._gradient(plan), self._gradient(tuple(plan[i] for i in turned))
            change = (other - plain[turned]).norm() / plain.norm().clamp(min=1e-30)
            if float(change) >= 1e-6:
                return False
        return True

    def _record_operations(self) -> None:
        """Record the loss of one plan, with rewards of both signs."""
        both = []
        for self._sign in (1.0, -1.0):
            found = self._go_on(self._in_program(self._spoken()), recorder=LoopRecorder())
            both.append(found.get("recorded"))
        self._record.operations = both if all(both) else []

    def _follow(self) -> None:
        """Let a branch go on to its next step: does it still have the gradients of this one?"""
        self._following = True
        found = self._go(Draws(self._in_program(self._spoken()), self._record.length))
        self._following, self._record.kept = False, found.get("kept") or []

    def _enter(self, world: int, model: Any, reference: Any) -> None:
        """The next policy, or the same with the rewards of the other sign."""
        self._sign = -1.0 if world % 2 else 1.0
        states, record = self._states, self._record
        assert states is not None
        if len(record.policies) > world:
            return  # another fit would move the policy away from what was noted of it
        if world % 2 == 0:
            if isinstance(reference, torch.nn.Module):
                StateWeights(reference, states.prompts, record.length).fit(seed=world + 1)
            alone = len(states.prompts) == 1 and not world  # then each answer is drawn, in time
            nucleus = 1.0 if alone else nucleus_of(self._options)
            states.fit(seed=world, drift=record.drift, nucleus=nucleus)
            for other in (self._sampling, *self._followers):
                if other is not model and other is not reference:  # one samples, the other learns
                    other.load_state_dict(model.state_dict())
        rewards = [self._reward(answer) for answer in answers(record.length)]
        made = Policies(rewards=[rewards for _ in states.prompts])
        if self._options:
            draw = partial(self._one_token, model, options=self._options)
            made.drawn = states.table(draw)
            record.temperature = temperature_of(states.logits(model), made.drawn)
        note_policy(record, states, model, reference, made)

    def _keep(self, found: dict[str, Any]) -> None:
        record = self._record
        if found.get("error"):
            record.stopped.append(found["error"])
        record.made.append((found.get("made") or [0])[0])
        record.gradients.append((self._table(found) * record.made[-1]).tolist())
        record.overwritten = record.overwritten or found.get("overwritten") or []
        if record.drift:
            record.gradients_again.append(self._table(found, "table_again").tolist())
        record.leak = max(record.leak, found.get("leak", 0.0))
        record.prompt_share = max(record.prompt_share, found.get("prompt_share", 0.0))
        for prompt, state, share in found.get("probabilities", ()):
            self.draws.probabilities[tuple(prompt), tuple(state)] = share
        for known, listed in zip(self._logits, found.get("logits", ([], [])), strict=True):
            known.update({(tuple(prompt), tuple(state)): said for prompt, state, said in listed})

    def _complete(self, world: int) -> None:
        """Note what the program itself drew and scored with, now that every outcome was drawn."""
        states, known = self._states, self.draws.probabilities
        assert states is not None
        if known:
            table = [[known[p, s] for s in states.states] for p in states.prompts]
            self._record.policies[world].drawn = table
            if self._record.later:
                self._record.later[world].drawn = table
            self._record.temperature = temperature_of(self._record.policies[world].logits, table)
        for policies, said in zip(
            (self._record.policies, self._record.later), self._logits, strict=True
        ):
            if policies and not self._unmasked:
                policies[world].logits = self._as_scored(policies[world].logits, said)
            said.clear()

    def _as_scored(self, logits: Table, said: AtStates) -> Table:
        """[P, S, V] the logits with which a program scores its answers.

        Where padding before a prompt is masked in drawing alone, they are others.
        """
        states = self._states
        assert states is not None
        table = [[said.get((p, s), []) for s in states.states] for p in states.prompts]
        if not all(all(rows) for rows in table):
            return logits
        scored, own = (torch.tensor(each).softmax(-1) for each in (table, logits))
        if float((scored - own).abs().max()) <= _OTHERWISE:
            return logits
        self._record.note(
            "where the answers are scored the model gives other probabilities than where they are "
            "drawn, as without an attention mask for the padding before a prompt"
        )
        self._record.scored_otherwise = True
        return table

    def _note_never_drawn(self) -> None:
        """Note what a program never draws, which the probe's few tokens do not show."""
        with suppress(Refused):  # a program may be made for the tokens that its tokenizer has
            found = self._go_on(self._in_program(self._spoken()), many=ManyTokens())
            for name, value in (found.get("many") or {}).items():
                setattr(self._record, name, value)

    def _reference(self, found: dict[str, Any], model: Any) -> Any:
        """The other model that scores the answers, or the model without its adapters."""
        used = {int(which): off for which, off in found["used"]}
        if used.get(id(model)):
            return WithoutAdapter(model)
        known = (model, self._sampling, *self._followers)
        others = [self.models.by_id(which) for which in used if which not in map(id, known)]
        return next((other for other in others if other is not None), None)

    def _compare_references(self, reference: Any) -> None:
        """Note whether another reference changes the loss, and whether it changes its gradient."""
        values, tables, states = [], [], self._states
        assert states is not None
        for seed in (1, 2):
            if isinstance(reference, torch.nn.Module):
                StateWeights(reference, states.prompts, self._record.length).fit(seed)
            else:
                self._moved = float(seed)
            found = self._go_on(self._spoken())
            values.append(found.get("value", 0.0))
            tables.append(self._table(found))
        self._record.reference_moves = not alike(*tables)
        if abs(values[0] - values[1]) > _EXACT * max(map(abs, values)):
            self._record.kl_coefficient = 1.0
