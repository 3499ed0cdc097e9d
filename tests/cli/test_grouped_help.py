"""The help of the verbs with many options."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("verb", "last"),
    [("train", "The process and its files"), ("sweep", "The seeds and their files")],
)
def test_options_stand_in_groups(eligibility: Command, verb: str, last: str) -> None:
    status, output, _ = eligibility(verb, "--help")
    assert status == 0
    titles = re.findall(r"^(\S.*):$", output, re.MULTILINE)
    assert titles[:3] == ["Arguments", "The run", "The weight of each action"]
    assert titles[-1] == last
    assert "by the preset" not in output


def test_the_defaults_are_those_that_will_be_used(eligibility: Command) -> None:
    _, output, _ = eligibility("train", "CartPole-v1", "--help")
    said = " ".join(output.split())
    assert "Step size of Adam; not used with natural_gradient. Default, by the preset: 0.06" in said
    assert "γ in [0, 1] of the rewards-to-go. Default: 0.99." in said
    assert said.count("by the preset:") == 4


def test_no_command_at_all_gets_the_help(eligibility: Command) -> None:
    assert eligibility() == eligibility("--help")
