"""Adam against torch's own, and what it is there for: nothing heavy is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from eligibility.train.adam import Adam


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2), (4,), (), (5,)]
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_moves_as_torch_does_bit_for_bit_and_only_what_has_a_gradient() -> None:
    ours, theirs = parameters(), parameters()
    optimizers = [Adam(ours, lr=0.02), torch.optim.Adam(theirs, lr=0.02, foreach=False)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        for own, other in zip(ours[:-1], theirs[:-1], strict=True):
            own.grad = 10 ** own.detach().mean() * torch.randn(own.shape, generator=generator)
            other.grad = own.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        assert all(map(torch.equal, ours, theirs))
    assert torch.equal(ours[-1], parameters()[-1])


def test_a_closure_is_differentiated_and_its_loss_returned() -> None:
    parameter = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = Adam([parameter], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 9
    assert parameter.item() == pytest.approx(2.9)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_forgets_the_gradients(set_to_none: bool) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    Adam([parameter], lr=0.1).zero_grad(set_to_none)
    assert parameter.grad is None if set_to_none else not parameter.grad.any()


def test_training_loads_no_compiler(tmp_path: Path) -> None:
    program = (
        "import sys; from eligibility.train.learner import Reinforce; "
        "Reinforce('CartPole-v1', environments=2).learn(1).save(sys.argv[1]); "
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
