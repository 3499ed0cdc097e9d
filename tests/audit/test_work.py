"""What a run may take is counted in work; too much of it is no verdict, and no fault."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from eligibility.audit.interception import evaluations, recorder
from eligibility.audit.job import SIZES, Job
from eligibility.audit.judgement.requirements import what_it_needs
from eligibility.audit.noise import torch_numbers
from eligibility.audit.running.execution import execute
from eligibility.audit.user_code import is_user_file


def test_endless_work_ends_at_the_same_place_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_numbers, "MAX_OPERATIONS", 1_000)
    for counting in (recorder, evaluations):
        monkeypatch.setattr(counting, "MAX_STEPS", 50)

    def computing() -> None:
        while True:
            torch.zeros(1).add(1)

    def stepping() -> None:
        environment = gym.make("CartPole-v1")
        environment.reset()
        while True:
            environment.step(0)

    for program, words in (
        (computing, "more than 1,000 operations of torch before its first update"),
        (stepping, "more than 50 steps of its environments before its first update"),
    ):
        trace = execute(program, Job((), SIZES[0]))
        assert trace.outcome == "work"
        assert words in what_it_needs(trace)


def test_parameters_that_are_made_after_the_first_reset_are_no_draws() -> None:
    def program() -> None:
        gym.make("CartPole-v1").reset()
        weight = nn.Parameter(torch.randn(4, 2))
        torch.optim.SGD([weight], lr=0.1)
        assert weight.detach().std() > 0

    trace = execute(program, Job((), SIZES[0]))
    assert trace.outcome == "finished", trace.detail
    assert [draw.source for draw in trace.draws] == ["environment"]
    assert not any("untyped_storage" in note for note in trace.notes)


def test_packages_are_not_the_users_wherever_they_lie() -> None:
    assert not is_user_file(torch.__file__)
    assert not is_user_file(np.__file__)
    assert not is_user_file("/elsewhere/lib/python3.12/site-packages/torch/nn/modules/module.py")
    assert not is_user_file("/usr/lib/python3/dist-packages/torch/_tensor.py")
    assert not is_user_file("<string>")
    assert is_user_file("/home/user/project/train.py")
