"""Tensors of every kind: a refusal or the right number, never a signal or a silent zero."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidTypeError
from eligibility.ops.backends import cpu

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


@pytest.mark.skipif(not cpu.is_built(), reason="torch itself reads such memory")
def test_memory_that_is_gone_is_refused() -> None:
    result = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == 2 * [
        "`logits`, or a tensor passed with them: got one without memory, expected dense "
        "tensors whose storage is there; gather a parameter that FSDP has freed; do not resize_ "
        "storage that is still in use"
    ]


Call = Callable[[Tensor], Any]
CALLS: dict[str, Call] = {
    "short": lambda z: el.reinforce_loss(z, ACTION, ONES),
    "long": lambda z: el.reinforce_loss(z, ACTION, ONES, weight=ONES),
    "gradient": lambda z: el.reinforce_gradient(z, ACTION, ONES)[0],
    "statistics": lambda z: el.categorical_statistics(z, ACTION).entropy,
    "sample": lambda z: el.categorical_sample(z, generator=torch.Generator().manual_seed(0))[1],
}
ACTION, ONES = torch.tensor([0, 1]), torch.ones(2)


@pytest.mark.parametrize("call", CALLS.values(), ids=[*CALLS])
@pytest.mark.parametrize("wants_gradient", [False, True])
def test_what_a_transform_left_behind_is_the_tensor_in_it(call: Call, wants_gradient: bool) -> None:
    left: list[Tensor] = []
    z = torch.randn(2, 3, requires_grad=wants_gradient)

    def remember(logits: Tensor) -> Tensor:
        left.append(logits)
        return logits.sum()

    torch.func.grad(remember)(z)
    # Where none is wanted, torch's own operations serve the one and the kernel the other.
    torch.testing.assert_close(call(left[0]), call(z), rtol=4e-7, atol=2e-7)


@pytest.mark.parametrize("call", CALLS.values(), ids=[*CALLS])
def test_a_layout_without_addresses_is_refused_by_its_name(call: Call) -> None:
    with pytest.raises(InvalidTypeError) as raised:
        call(torch.randn(2, 3).to_mkldnn())
    assert str(raised.value) == (
        "`logits`: got a tensor of layout _mkldnn, expected a dense tensor; call logits.to_dense()"
    )
