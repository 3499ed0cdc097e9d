"""Tokens that are never drawn where the policy could say them, as with `top_p`.

A program that scores what it has drawn from gives such a state no gradient: only one token is left.
"""

from __future__ import annotations

from dataclasses import replace

from eligibility.audit.trainers.answers import answers, outcomes, states
from eligibility.audit.trainers.record import Policies, Record, Table

_NEVER = -40.0  # a logit: a probability that is rounding
_NOTHING = 1e-9  # share of the largest gradient


def with_scored_cuts(record: Record) -> Record:
    """The record with the policies as they are scored: without the tokens that are cut off."""
    if not any(0.0 in state for p in record.policies for rows in p.drawn for state in rows):
        return record
    every = outcomes(record.ordered, record.prompts, record.group, record.length)
    policies = []
    for number, policy in enumerate(record.policies):
        block = record.gradients[number * len(every) : (number + 1) * len(every)]
        reached = _reached(record, block, [chosen for chosen, _ in every], policy)
        policies.append(replace(policy, logits=_cut(policy, reached)))
    return replace(record, policies=policies)


def _reached(
    record: Record, block: list[Table], every: list[tuple[int, ...]], policy: Policies
) -> list[list[float]]:
    """[P, S] the largest gradient in each state that is reached, relative to that in any state."""
    known, listed = states(record.length), answers(record.length)
    found = [[0.0] * len(known) for _ in range(record.prompts)]
    for table, chosen in zip(block, every, strict=True):
        for row, number in enumerate(chosen):
            prompt, answer = row // record.group, listed[number]
            for t, token in enumerate(answer):
                state = known.index(answer[:t])
                if policy.drawn[prompt][state][token]:
                    largest = max(abs(each) for each in table[row][t])
                    found[prompt][state] = max(found[prompt][state], largest)
                else:
                    break  # what comes next is never drawn
    whole = max((each for rows in found for each in rows), default=0.0) or 1.0
    return [[each / whole for each in rows] for rows in found]


def _cut(policy: Policies, reached: list[list[float]]) -> Table:
    return [
        [
            [z if p else _NEVER for z, p in zip(logits, drawn, strict=True)]
            if 0.0 in drawn and gradient < _NOTHING
            else logits
            for logits, drawn, gradient in zip(*rows, strict=True)
        ]
        for rows in zip(policy.logits, policy.drawn, reached, strict=True)
    ]
