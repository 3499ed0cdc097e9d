"""Tensors of every kind: a refusal or the right number, never a signal or a silent zero."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eligibility.ops import _cpu

ROOT = Path(__file__).parents[2]


def test_no_kind_of_tensor_crashes_the_kernel_or_is_read_as_zeros() -> None:
    command = [sys.executable, "-m", "tests.ops.argument_kinds", "600"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert result.returncode == 0, result.stderr[-1000:]  # the last line names the call
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["calls"] == 600


FREED = """
import torch
import eligibility as el
from eligibility.errors import InvalidTypeError

action, advantage = torch.tensor([0, 1]), torch.ones(2)
for function in (el.reinforce_loss, el.reinforce_gradient):
    logits = torch.randn(2, 3, requires_grad=True)
    logits.untyped_storage().resize_(0)  # as FSDP frees a parameter
    try:
        function(logits, action, advantage)
    except InvalidTypeError as error:
        print(error)
"""


@pytest.mark.skipif(not _cpu.is_built(), reason="torch itself reads such memory")
def test_memory_that_is_gone_is_refused() -> None:
    result = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == 2 * [
        "`logits`, or a tensor beside them: got one without memory, expected dense tensors whose "
        "storage is there; gather a parameter that FSDP has freed; resize_ no storage that is "
        "still in use"
    ]
