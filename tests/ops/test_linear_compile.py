"""The linear operations under torch.compile, without graph breaks.

They run in a process of their own: the shape checks that the test suite puts around every function
are nothing that a compiler should trace.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
import eligibility as el

torch.manual_seed(0)
hidden, weight = torch.randn(6, 4), torch.randn(9, 4)
token, advantage = torch.tensor([0, 8, 2, -100, 4, 4]), torch.randn(6)
old = torch.randn(6) - 2
mask = torch.ones(9, dtype=torch.bool)
mask[3] = False
functions = {
    "statistics": lambda h, w: el.linear_statistics(h, w, token, mask=mask).entropy.sum(),
    "clipped": lambda h, w: el.linear_clipped_policy_loss(
        h, w, token, advantage, old, softcap=3.0, entropy_coef=0.1
    ),
}
for name, plain in functions.items():
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    left_inputs, right_inputs = (
        [x.clone().requires_grad_() for x in (hidden, weight)] for _ in range(2)
    )
    left, right = compiled(*left_inputs), plain(*right_inputs)
    torch.testing.assert_close(left, right)
    torch.testing.assert_close(
        torch.autograd.grad(left, left_inputs), torch.autograd.grad(right, right_inputs)
    )
    print(name)
"""


def test_linear_operations_compile_without_graph_breaks() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["statistics", "clipped"]
