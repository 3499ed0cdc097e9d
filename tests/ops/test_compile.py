"""The operations under torch.compile, without graph breaks.

They run in a process of their own: the shape checks that the test suite puts around every function
are nothing that a compiler should trace.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from eligibility.ops import _cpu

PROGRAM = """
import torch
import eligibility as el

torch.manual_seed(0)
z, other = torch.randn(4, 5), torch.randn(4, 5)
action, advantage = torch.tensor([0, 1, 2, 3]), torch.randn(4)
mask = torch.tensor([True, True, True, True, False])
functions = {
    "log_prob": lambda z: el.categorical_log_prob(z, action, mask=mask).sum(),
    "entropy": lambda z: el.categorical_entropy(z, mask=mask).sum(),
    "statistics": lambda z: el.categorical_statistics(z, action).entropy.sum(),
    "kl": lambda z: el.categorical_kl(z, other, mask=mask).sum(),
    "clipped": lambda z: el.clipped_policy_loss(
        z, action, advantage, -advantage.abs(), ref_logits=other, kl_coef=0.1, kl_estimator="exact",
        weight=advantage.abs(), temperature=0.7, softcap=3.0, ignore_index=2, z_loss_coef=0.01,
    ),
    "loss": lambda z: el.reinforce_loss(z, action, advantage, mask=mask, entropy_coef=0.1),
}
for name, plain in functions.items():
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    a, b = z.clone().requires_grad_(), z.clone().requires_grad_()
    left, right = compiled(a), plain(b)
    torch.testing.assert_close(left, right)
    left.backward()
    right.backward()
    torch.testing.assert_close(a.grad, b.grad)
    print(name)
"""


def test_operations_compile_without_graph_breaks() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["log_prob", "entropy", "statistics", "kl", "clipped", "loss"]


FUSED = """
import torch
import eligibility as el
from eligibility.errors import InvalidValueError

torch.manual_seed(0)
z, advantage = torch.randn(6, 30), torch.randn(6)
action, mask = torch.randint(29, (6,)), torch.ones(30).bool()
mask[29] = False
counts = torch.randint(3, (6, 30))
functions = {
    "masked": lambda z: el.reinforce_loss(z, action, advantage, mask=mask, entropy_coef=0.1),
    "ignored": lambda z: el.reinforce_loss(
        z, action, advantage, ignore_index=int(action[0]), temperature=0.7, softcap=3.0,
        z_loss_coef=0.1,
    ),
    "half": lambda z: 2 * el.reinforce_loss(z.bfloat16(), action, advantage),
    "counts": lambda z: el.reinforce_loss(z, None, advantage, counts=counts, reduction="sum"),
    "clipped": lambda z: el.clipped_policy_loss(
        z * 2, action, advantage, -advantage.abs(), ref_log_prob=-advantage.abs(), kl_coef=0.1,
        weight=advantage.abs(),
    ),
}
for name, plain in functions.items():
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    a, b = z.clone().requires_grad_(), z.clone().requires_grad_()
    left, right = compiled(a), plain(b)
    left.backward()
    right.backward()
    assert torch.equal(left, right) and torch.equal(a.grad, b.grad), name  # the same kernel
    print(name)
try:
    torch.compile(lambda z, a: el.reinforce_loss(z, a, advantage), fullgraph=True,
                  backend="aot_eager")(z.clone().requires_grad_(), action + 30)
except InvalidValueError as error:
    print("refused" if "indices in [0, 30)" in str(error) else error)
"""


@pytest.mark.skipif(not _cpu.is_built(), reason="the native kernel was not built")
def test_compiled_losses_are_taken_by_the_native_kernel() -> None:
    result = subprocess.run([sys.executable, "-c", FUSED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["masked", "ignored", "half", "counts", "clipped", "refused"]
