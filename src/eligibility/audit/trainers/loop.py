"""A program's own loop on transformers, led through every group of answers.

The program runs up to the first token that it samples. From there it goes on once for every
outcome, each time in a process of its own, up to its optimizer's first step.
"""

from __future__ import annotations

from typing import Any

import torch

from eligibility.audit.trainers.answers import Tokens, answers, outcomes
from eligibility.audit.trainers.draws import (
    Draws,
)
from eligibility.audit.trainers.gradients import StateWeights
from eligibility.audit.trainers.record import Policies
from eligibility.audit.trainers.refused import Finished, Refused
from eligibility.audit.trainers.runs import PATTERN, Runs
from eligibility.audit.trainers.scores import Source
from eligibility.audit.trainers.sizes import MOST, longest, temperature_of
from eligibility.audit.trainers.tiny import LENGTH, VOCABULARY
from eligibility.audit.trainers.trl import WithoutAdapter, wake_adapters

_FEW = 60  # outcomes with which there is time for a second policy
_EXACT = 1e-9


class Loop(Runs):
    """Leads one program: it stands where the first token is sampled, and never goes on."""

    def _lead(self) -> None:
        found = self._go(Draws(PATTERN, LENGTH))
        if found is None:
            return
        if found.get("error"):
            raise Refused(f"the program stopped at {found['error']}")
        prompts = [tuple(prompt) for prompt in found["prompts"]]
        record, model = self._record, self._models.by_id(found["trained"])
        if model is None:
            raise Refused(
                "the program makes the model that it trains after another one has run; audit its "
                "loss with audit_token_loss"
            )
        record.rows = len(prompts)
        record.file, record.line = found["place"]
        seen = sorted(set(prompts), key=len)
        record.prompts, record.group = len(seen), len(prompts) // len(seen)
        if any(prompts.count(prompt) != record.group for prompt in seen):
            raise Refused("the program samples different numbers of answers to its prompts")
        self._order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        record.length = longest(record.prompts, record.group)
        if self.only_rows:
            raise Finished
        if not record.length:
            raise Refused(
                f"the program samples {record.group} answers to each of {record.prompts} prompts "
                "before its optimizer steps, more groups than the audit can list; give it fewer"
            )
        self.scores.length = record.length
        for listed in found["sources"]:
            source = Source(**listed)
            self.scores.found[source.place] = source
        wake_adapters(model)
        self._states = StateWeights(model, seen, record.length)
        record.parameters = self._states.parameters
        reference = self._reference(found, model)
        if not self._choose([Source(**listed) for listed in found["sources"]], model, reference):
            return
        self._enumerate(model, reference)

    def _choose(self, sources: list[Source], model: Any, reference: Any) -> bool:
        """Find what the rewards are, by their effect; False in a branch."""
        self._enter(0, model, reference)
        plan = tuple(PATTERN[i % len(PATTERN)] for i in range(self._record.rows))
        for source in sources:
            trial = self.scores.silent if self.scores.chosen else None
            if trial is None:
                self.scores.chosen[source.place] = source
            pair = []
            for sign in (1.0, -1.0):
                self._sign = sign
                found = self._go(Draws(plan, self._record.length, bounded=True))
                if found is None:
                    return False
                pair.append(torch.tensor(found.get("table") or [0.0]))
            differs = float((pair[0] - pair[1]).norm()) > _EXACT * float(pair[0].norm())
            if trial is None and not differs:
                del self.scores.chosen[source.place]
        self._sign = 1.0
        if not self.scores.chosen:
            raise Refused(
                "no reward was found, as no function of the program's that is given an answer "
                "returns numbers that move the gradient; audit its loss with audit_token_loss"
            )
        names = " + ".join(source.described() for source in self.scores.chosen.values())
        self._record.note(f"the rewards are those of {names}: called, and replaced by the probe's")
        return True

    def _enumerate(self, model: Any, reference: Any) -> None:
        record = self._record
        symmetric = self._symmetric(model)
        if symmetric is None:
            return
        record.ordered = not symmetric
        sizes = (record.prompts, record.group, record.length)
        if record.ordered and len(answers(record.length)) ** record.rows > MOST:
            raise Refused(
                "the order of a prompt's answers changes the gradient, and there are too many "
                "orders to list; give the program fewer answers to a prompt"
            )
        every = outcomes(record.ordered, *sizes)
        pairs = 2 if len(every) <= _FEW else 1
        for world in range(2 * pairs):
            self._enter(world, model, reference)
            for number, (chosen, _) in enumerate(every):
                found = self._go(Draws(self._in_program(chosen), record.length, bounded=True))
                if found is None:
                    return
                self._keep(found, world)
                self._announce(world * len(every) + number + 1, 2 * pairs * len(every))
            self._complete(world)
        if reference is not None and not self._compare_references(reference):
            return
        raise Finished

    def _symmetric(self, model: Any) -> bool | None:
        """Whether the order of a prompt's answers does not matter; None in a branch."""
        rows, group = self._record.rows, self._record.group
        first = tuple(PATTERN[(i + i // group) % len(PATTERN)] for i in range(rows))
        turned = [i // group * group + (i + 1) % group for i in range(rows)]
        tables = []
        for plan in (first, tuple(first[i] for i in turned)):
            found = self._go(Draws(self._in_program(plan), self._record.length, bounded=True))
            if found is None:
                return None
            tables.append(torch.tensor(found.get("table") or [[0.0]] * rows))
        change = (tables[1] - tables[0][turned]).norm() / tables[0].norm().clamp(min=1e-30)
        return float(change) < 1e-6

    def _in_program(self, chosen: Tokens) -> Tokens:
        """The plan in the program's order of rows, of one prompt by prompt."""
        plan = [0] * len(chosen)
        for number, row in enumerate(self._order):
            plan[row] = chosen[number]
        return tuple(plan)

    def _enter(self, world: int, model: Any, reference: Any) -> None:
        """The next policy, or the same with the rewards of the other sign."""
        self._sign = -1.0 if world % 2 else 1.0
        states, record = self._states, self._record
        assert states is not None
        if world % 2 == 0:
            if isinstance(reference, torch.nn.Module):
                StateWeights(reference, states.prompts, record.length).fit(seed=world + 1)
            states.fit(seed=world)
            if self._sampling is not model and self._sampling is not reference:
                self._sampling.load_state_dict(model.state_dict())  # it samples, the other learns
        if len(record.policies) > world:
            return
        made = Policies(states.logits(model))
        if self._options:
            made.drawn = [
                [
                    self._one_token(model, (*prompt, *state), self._options)
                    for state in states.states
                ]
                for prompt in states.prompts
            ]
        made.reference = states.logits(reference) if reference is not None else []
        rewards = [self._reward(answer) for answer in answers(record.length)]
        made.rewards = [rewards for _ in states.prompts]
        record.policies.append(made)

    def _keep(self, found: dict[str, Any], world: int) -> None:
        record = self._record
        if found.get("error"):
            raise Refused(f"the program stopped at {found['error']}")
        zeros = torch.zeros(record.rows, record.length, VOCABULARY).tolist()
        record.gradients.append(found.get("table") or zeros)
        record.leak = max(record.leak, found.get("leak", 0.0))
        record.prompt_share = max(record.prompt_share, found.get("prompt_share", 0.0))
        for prompt, state, share in found["probabilities"]:
            self.draws.probabilities[tuple(prompt), tuple(state)] = share

    def _complete(self, world: int) -> None:
        """What a program drew with itself is known once every outcome has been drawn."""
        states, known = self._states, self.draws.probabilities
        assert states is not None
        if known:
            table = [[known[p, s] for s in states.states] for p in states.prompts]
            self._record.policies[world].drawn = table
            self._record.temperature = temperature_of(self._record.policies[world].logits, table)

    def _reference(self, found: dict[str, Any], model: Any) -> Any:
        """The other model that scores the answers, or the model without its adapters."""
        used = {int(which): off for which, off in found["used"]}
        if used.get(id(model)):
            return WithoutAdapter(model)
        others = [
            self._models.by_id(which)
            for which in used
            if which not in (id(model), id(self._sampling))
        ]
        return next((other for other in others if other is not None), None)

    def _compare_references(self, reference: Any) -> bool:
        """Whether another reference changes the loss; False in a branch."""
        plan = tuple(PATTERN[i % len(PATTERN)] for i in range(self._record.rows))
        values, states = [], self._states
        assert states is not None
        for seed in (1, 2):
            if isinstance(reference, torch.nn.Module):
                StateWeights(reference, states.prompts, self._record.length).fit(seed)
            found = self._go(Draws(plan, self._record.length, bounded=True))
            if found is None:
                return False
            values.append(found.get("value", 0.0))
        if abs(values[0] - values[1]) > _EXACT * max(map(abs, values)):
            self._record.kl_coefficient = 1.0
        return True
