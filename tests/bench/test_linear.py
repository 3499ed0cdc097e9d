"""The benchmark through the linear layer: who takes part, and what is said of them."""

from __future__ import annotations

import sys
from contextlib import closing
from types import ModuleType
from unittest import mock

import pytest
import torch

from eligibility.bench import linear_contestants
from eligibility.bench.linear import (
    PRODUCTS,
    Size,
    StepHere,
    StepProcess,
    measure_linear,
    new_inputs,
    read_size,
)
from eligibility.bench.linear_contestants import METHODS, left_out, methods
from eligibility.errors import InvalidValueError


@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_method_computes_the_same_gradient(dtype: str, entropy_coef: float) -> None:
    size = Size(24, 30, 8)
    hidden, weight, token, advantage = new_inputs(size, getattr(torch, dtype))
    exact = hidden.detach().double().requires_grad_()
    log_probs = (exact @ weight.detach().double().t()).log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)
    gained = log_probs[torch.arange(24), token] * advantage + entropy_coef * entropy
    (-gained.mean()).backward()
    assert exact.grad is not None
    for name in methods(entropy_coef):
        here = StepHere(name, size, dtype, entropy_coef, "process time")
        here.step()
        error = (here.gradient() - exact.grad).norm() / exact.grad.norm()
        assert error < (1e-6 if dtype == "float32" else 2e-2), name


def test_methods_take_turns_and_are_compared_with_the_products_alone() -> None:
    found = measure_linear(Size(24, 30, 8), "float32", 0.01, rounds=2, only="logits")
    names = [figure.method for figure in found.figures]
    assert names == [PRODUCTS, "plain logits", "plain logits, float32 softmax"]
    for figure in found.figures:
        assert figure.gradient_error < 1e-6, figure.method
        assert figure.ratio > 0
        assert figure.rounds == 2
        assert figure.extra_peak_mib is None  # that of all methods together would mean nothing
    assert found.figures[0].ratio == 1


def test_memory_is_that_of_a_process_of_its_own() -> None:
    size = Size(256, 8192, 256)
    found = measure_linear(size, "float32", 0.0, rounds=1, only="linear_reinforce_loss")
    figure = found.figures[1]
    gradients = 4 * (256 * 256 + 8192 * 256) / 2**20
    assert figure.gradient_error < 1e-6
    if figure.extra_peak_mib is not None:  # where the system tells it
        assert 0.5 * gradients < figure.extra_peak_mib < gradients + 64


def test_what_a_method_raises_is_told_and_the_others_go_on() -> None:
    broken = StepProcess("plain logits", Size(4, 5, 3), "float32", 0.0, "no such clock")
    with closing(broken) as process:
        with pytest.raises(RuntimeError, match="KeyError: 'no such clock'"):
            process.step()
        with pytest.raises(RuntimeError, match="KeyError: 'no such clock'"):
            process.gradient()


def test_who_takes_no_part_has_a_reason() -> None:
    for beta in (0.0, 0.01):
        assert not set(methods(beta)) & set(left_out(beta))
        assert set(METHODS) <= set(methods(beta)) | set(left_out(beta))
    with mock.patch.object(linear_contestants, "find_spec", return_value=ModuleType("there")):
        assert left_out(0.01)["torch linear_cross_entropy"] == "it has no entropy"
        assert "TRL, chunked" in methods(0.01)
        assert "Triton" in left_out(0.0)["cut-cross-entropy, its own kernels"]
    with mock.patch.object(linear_contestants, "find_spec", return_value=None):
        assert left_out(0.0)["TRL, chunked"] == "not installed (pip install trl)"


def test_trl_is_called_as_its_fused_head_calls_it() -> None:
    calls = []

    class ChunkedLogProbFunction:
        @staticmethod
        def apply(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
            calls.append(arguments)
            return torch.tensor([-1.0, -2.0]), torch.tensor([0.5, 1.5])

    kernels = ModuleType("trl.kernels")
    kernels.ChunkedLogProbFunction = ChunkedLogProbFunction
    given = (torch.zeros(2, 3), torch.zeros(4, 3), torch.tensor([0, 1]), torch.tensor([1.0, 3.0]))
    with mock.patch.dict(sys.modules, {"trl": ModuleType("trl"), "trl.kernels": kernels}):
        assert float(linear_contestants.trl_chunked(*given, 0.0)) == 3.5
        assert float(linear_contestants.trl_chunked(*given, 0.1)) == pytest.approx(3.4)
    assert [call[-1] for call in calls] == [(), ("entropy",)]


def test_sizes_are_read_or_refused() -> None:
    assert read_size("512x8192×256") == Size(512, 8192, 256)
    for text in ("512x8192", "0x1x1", "ax1x1", ""):
        with pytest.raises(InvalidValueError, match="tokens x vocabulary x features"):
            read_size(text)
