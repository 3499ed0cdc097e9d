"""A program that cannot be run is told what would help, in one sentence."""

from __future__ import annotations

import pytest

from eligibility.audit.judgement.requirements import what_it_needs
from eligibility.audit.trace import Trace


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (
            Trace("error", "ModuleNotFoundError: No module named 'ptan'", "a.py", 3),
            "the program could not be run (line 3): it imports `ptan`, which is not installed",
        ),
        (
            Trace("error", "PermissionError: an audited program may not start or signal processes"),
            "the program could not be run: it starts processes without `multiprocessing`",
        ),
        (
            Trace("error", "FileNotFoundError: [Errno 2] No such file or directory: 'net.pkl'"),
            "it reads the file `net.pkl`, which does not exist",
        ),
        (
            Trace("error", "the program left with exit status 2"),
            "it exited with status 2 before it learned anything",
        ),
        (
            Trace("error", "ImportError: cannot import name 'Monitor' from 'gym.wrappers' (x.py)"),
            "the installed `gym.wrappers` has no `Monitor`",
        ),
        (
            Trace("error", "NotImplementedError: observations of Dict in Maze-v0"),
            "`Maze-v0` has observations of type Dict, which the probe does not support",
        ),
        (
            Trace("error", "NotImplementedError: actions of Text in Chat-v0"),
            "`Chat-v0` has actions of type Text, which the probe does not support",
        ),
        (Trace("error", "EOFError: EOF when reading a line"), "it reads from the keyboard"),
        (Trace("error", "IndexError: list index out of range"), "pass its arguments after `--`"),
        (Trace("error", "KeyError: 'DATA_ROOT'"), "it looks up `DATA_ROOT`; if that is an env"),
        (Trace("error", "AssertionError: needs a GPU"), "it requires an accelerator"),
        (
            Trace("error", "NameNotFound: Environment `MyRobot` doesn't exist."),
            "its environment is not registered here",
        ),
        (Trace("choices"), "too many random choices before its first update"),
        (Trace("time", "one run used more than the limit of 2 s"), "raise `--time-limit`"),
        (Trace("error", "MemoryError: "), "raise `--memory-limit`"),
        (
            Trace("error", "PermissionError: an audited program may not write '/etc/motd'"),
            "it writes '/etc/motd', outside its folder",
        ),
        (Trace("error", "ZeroDivisionError: division by zero"), "ZeroDivisionError"),
    ],
)
def test_the_sentence_says_where_it_ended_and_what_would_help(trace: Trace, sentence: str) -> None:
    assert sentence in what_it_needs(trace)
    assert "\n" not in what_it_needs(trace)
