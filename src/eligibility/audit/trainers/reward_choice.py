"""Which of the numbers that a program computes from its answers are their rewards."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from eligibility.audit.trainers.answers import Tokens, answers
from eligibility.audit.trainers.draws import Draws
from eligibility.audit.trainers.refused import Refused
from eligibility.audit.trainers.runs import Runs
from eligibility.audit.trainers.scores import FUNCTION, MODEL, Place, Source
from eligibility.audit.trainers.tiny import VOCABULARY

_Numbers = list[tuple[float, str]]  # and of which answer each is; "" where this is unknown
_EXACT = 1e-9
_SAME = 1e-4  # relative difference of rewards that a model gives to the same answer


class RewardChoice(Runs):
    """Tries what may be rewards, in branches with the same answers and other numbers."""

    _prompts: list[Tokens]  # of the program's rows

    def _go_on(self, plan: Tokens, length: int = 0, **watching: Any) -> dict[str, Any]:
        """What a branch finds with the answers of a plan alone."""
        return self._of_same_prompts(self._go(self._plan(plan, length), **watching))

    def _of_same_prompts(self, found: dict[str, Any]) -> dict[str, Any]:
        """The same, if the answers are to the prompts that are known."""
        drawn = [tuple(prompt) for prompt in found.get("prompts", ())]
        if drawn and drawn != self._prompts:
            self._record.one_prompt = True
            raise Refused("the program draws other prompts in each run")
        return found

    def _plan(self, plan: Tokens, length: int = 0) -> Draws:
        return Draws(plan, length or self._record.length, bounded=True)

    def _gradient(self, plan: Tokens, length: int = 0) -> torch.Tensor:
        """[B, W, V] of a plan."""
        return self._table(self._go_on(self._in_program(plan), length))

    def _table(self, found: dict[str, Any], name: str = "table") -> torch.Tensor:
        """[B, W, V] the gradients that a branch has found; 0 where the program makes no step."""
        none = torch.zeros(self._record.rows, self._record.length, VOCABULARY)
        return torch.tensor(found.get(name) or none.tolist())

    def _known(self, found: dict[str, Any]) -> list[Source]:
        """What may be the rewards, as a branch has found."""
        sources = [Source(**listed) for listed in found["sources"]]
        self.scores.found.update({source.place: source for source in sources})
        return sources

    def _choose(self, sources: list[Source]) -> None:
        """Find what the rewards are, by their effect."""
        scores = self.scores
        certain = [source for source in sources if not source.doubtful]
        for listed, self._crossed in product((certain, sources), (False, True)):
            self._try(self._of_their_answers_alone(listed))
            if scores.chosen:
                self._follow_to_the_reward(sources)
                break
        self._sign = 1.0
        if not scores.chosen:
            raise Refused(
                "the audit found no reward, because nothing that the program computes from an "
                "answer changes the gradient as a reward would; audit its loss with "
                "audit_token_loss"
            )
        main = next(iter(scores.chosen.values()))
        self._record.supposed = main.described() if main.may_be_a_cost else ""
        named = " + ".join(source.described() for source in scores.chosen.values())
        self._record.note(f"the rewards are those of {named}: called, then replaced by the probe's")
        if scores.silent:
            others = " and ".join(source.described() for source in scores.silent.values())
            self._record.note(f"what {others} adds to them is 0 here")

    def _try(self, sources: list[Source]) -> None:
        """Choose those that move the gradient as rewards do."""
        scores = self.scores
        known: list[torch.Tensor] = []
        for source in sources:
            first = not scores.chosen
            if not first and (source.doubtful or source.kind not in (FUNCTION, MODEL)):
                continue
            tried = scores.chosen if first else scores.silent
            tried[source.place] = source
            if self._has_effect(source):
                found = self._gradients_with_and_without_words()
                if not known or not all(map(alike, known, found)):
                    known = found
                    continue
            del tried[source.place]  # it has no part in the rewards, or has them in it

    def _has_effect(self, source: Source) -> bool:
        """Whether the probe's rewards in place of these numbers move the gradient as rewards do."""
        try:
            plain, negated = self._with_sign(1.0), self._with_sign(-1.0)
        except Refused:  # the program cannot go on with other numbers there: no rewards
            return False
        once = plain - negated
        if alike(plain, negated) or not source.doubtful:
            return not alike(plain, negated)
        twice = self._with_sign(2.0) - self._with_sign(-2.0)
        if source.whole:  # a count may be a bound or a length: only a linear effect is a reward's
            return alike(twice, 2.0 * once)
        return not alike(2.0 * twice, once)  # else the loss is divided by it

    def _gradients_with_and_without_words(self) -> list[torch.Tensor]:
        """The gradients of answers that all have words, and of some that end at once."""
        plan = self._spoken()
        silent = tuple(answer * (row % 2) for row, answer in enumerate(plan))
        return [self._with_sign(1.0, given) for given in (plan, silent)]

    def _follow_to_the_reward(self, sources: list[Source]) -> None:
        """Choose, in place of a model's number, the last number that increases with it.

        A program may turn a model's logit into the reward, for instance by a sigmoid.
        """
        scores, (source, *_) = self.scores, list(self.scores.chosen.values())
        if not source.doubtful and source.kind != MODEL:
            return
        plan, said = self._spoken(), []
        for self._sign in (1.0, -1.0):
            said.append(_said(self._go_on(plan)))
        rewards = [self._reward(answers(self._record.length)[answer]) for answer in plan]
        known = {each.place: each for each in self._of_their_answers_alone(sources)}
        for place, values in reversed(said[1].items()):
            grows = values != said[0].get(place) and _grows([v for v, _ in values], rewards)
            if place != source.place and place in known and grows:
                scores.chosen = {place: known[place]}
                if self._has_effect(known[place]):
                    return
        scores.chosen = {source.place: source}

    def _of_their_answers_alone(self, sources: list[Source]) -> list[Source]:
        """Without the doubtful ones that depend on more than their own answer.

        What is computed from rewards depends on the other answers too, and what is computed from
        the policy or a critic depends on trained parameters.
        """
        doubtful = [source for source in sources if source.doubtful]
        if not doubtful:
            return sources
        plan, count = self._spoken(), len(answers(self._record.length)) - 1
        known, self._perturbed = _said(self._go_on(plan)), True
        pairs: dict[Place, list[tuple[float, float]]] = {each.place: [] for each in doubtful}
        for turn in (0, 1):
            kept = [row for row in range(len(plan)) if row % 2 == turn]
            others = tuple(a if row in kept else 1 + a % count for row, a in enumerate(plan))
            said = _said(self._go_on(others))
            for place, found in pairs.items():
                found += _pairs(known.get(place, []), said.get(place, []), kept, len(plan))
        self._perturbed = False
        alone = {place for place, found in pairs.items() if _are_same(found)}
        return [source for source in sources if not source.doubtful or source.place in alone]

    def _with_sign(self, sign: float, plan: Tokens = ()) -> torch.Tensor:
        """The gradient of a plan, in the program's order, with the rewards times ``sign``."""
        self._sign = sign
        return self._table(self._go_on(plan or self._spoken())).nan_to_num()

    def _spoken(self) -> Tokens:
        """A plan in which answers of a prompt differ, and each has a word.

        In the second one, of two prompts, those at the same place differ as well: a program may
        deal out the rewards to the answers at the same place.
        """
        rows, group = self._record.rows, self._record.group
        count = len(answers(self._record.length)) - 1
        turn = group if group > 1 else rows  # from which row on the pattern begins later
        later = 2 if self._crossed and (turn + 1) % count == 0 else 1
        return tuple(1 + (i + later * (i // turn)) % count for i in range(rows))

    def _in_program(self, chosen: Tokens) -> Tokens:
        """The plan in the program's order of rows, of one prompt by prompt."""
        plan = [0] * len(chosen)
        for number, row in enumerate(self._order):
            plan[row] = chosen[number]
        return tuple(plan)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two gradients are the same up to rounding."""
    return one.shape == other.shape and float((one - other).norm()) <= _EXACT * float(one.norm())


def _said(found: dict[str, Any]) -> dict[Place, _Numbers]:
    """What a branch has found, as `Scores` has it."""
    return {(k, file, n): [(v, of) for v, of in said] for k, file, n, said in found.get("said", ())}


def _grows(values: list[float], rewards: list[float]) -> bool:
    """Whether numbers of some answers are in the order of their rewards."""
    pairs = zip(values, rewards, strict=len(values) == len(rewards))
    ordered = [value for value, _ in sorted(pairs, key=lambda pair: pair[1])]
    return len(values) == len(rewards) and ordered == sorted(values)


def _pairs(one: _Numbers, other: _Numbers, kept: list[int], rows: int) -> list[tuple[float, float]]:
    """The numbers of two runs for the same answers, in the rows that are kept.

    Where a program leaves answers out, its functions' arguments tell which answers are meant.
    """
    if len(one) == len(other) == rows:
        return [(one[row][0], other[row][0]) for row in kept]
    return [(a, b) for a, name in one for b, same in other if name == same != ""]


def _are_same(pairs: list[tuple[float, float]]) -> bool:
    """Whether there are numbers, and those of each pair are equal."""
    bound = _SAME * max((abs(value) for value, _ in pairs), default=0.0)
    return bool(pairs) and all(abs(a - b) <= bound for a, b in pairs)
