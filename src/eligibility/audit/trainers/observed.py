"""The record of a training run, as the audit of token losses observes one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from eligibility.audit.language.behaviour import Behaviour
from eligibility.audit.language.languages import Language, World
from eligibility.audit.language.measurement import Observed, observed_of
from eligibility.audit.language.outcomes import Outcomes
from eligibility.audit.trainers.answers import outcomes
from eligibility.audit.trainers.record import Policies, Record, Table
from eligibility.audit.trainers.tiny import VOCABULARY


def observed_from(record: Record, temperature: float, again: bool = False) -> Observed:
    """The gradients by the logits divided by a temperature, with what they belong to.

    Args:
        record: A measured one.
        temperature: At which the policy is the softmax of its logits.
        again: The second training step on the answers, by a later policy.
    """
    language = Language(record.prompts, record.group, record.length, VOCABULARY)
    now = record.later if again else record.policies
    pairs = zip(now, record.policies, strict=True)
    worlds = tuple(_world(language, new, old, temperature, again) for new, old in pairs)
    listed = outcomes(record.ordered, record.prompts, record.group, record.length)
    chosen = torch.tensor([answers for answers, _ in listed])
    run = Outcomes(
        language=language,
        worlds=worlds,
        chosen=chosen,
        orders=torch.tensor([orders for _, orders in listed]).double(),
        ordered=record.ordered,
    )
    measured = record.gradients_again if again else record.gradients
    gradients = torch.tensor(measured, dtype=torch.float64)
    ascent = -temperature * gradients.reshape(len(worlds), *chosen.shape, record.length, VOCABULARY)
    observed = observed_of(run, ascent)
    if any(record.left_out):  # a part of the sampling, which goes on, and not of the training
        drawn = np.where(record.left_out, 0.0, observed.probability)
        observed = replace(observed, probability=drawn)
    return observed


def _world(
    language: Language, now: Policies, old: Policies, temperature: float, again: bool
) -> World:
    logits = _table(language, now.logits) / temperature
    old_logits = _table(language, old.logits) / temperature
    reference = now.reference or now.logits
    return World(
        language=language,
        logits=logits,
        ref_logits=_table(language, reference) / temperature,
        old_logits=old_logits,
        rollout_logits=old_logits,
        rewards=torch.tensor(now.rewards, dtype=torch.float64),
        unembedding=torch.eye(VOCABULARY, dtype=torch.float64),
        behaviour=Behaviour("old" if again else "policy"),
        measured=_table(language, now.drawn).log(),
    )


def _table(language: Language, rows: Table) -> torch.Tensor:
    """[P, S, V] with rows of ones for the padding, whose logits no answer needs."""
    values = torch.tensor(rows, dtype=torch.float64)
    return torch.cat([values, torch.ones(len(values), language.width, VOCABULARY).double()], 1)
