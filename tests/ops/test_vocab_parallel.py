"""A sharded vocabulary in two and four real processes equals the whole in one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError
from tests.ops import vocab_parallel_rank
from tests.ops.vocab_parallel_rank import CASES, D, N, V, losses, problem, shards, total, values
from tests.ranks import together

ROUNDING = {"rtol": 1e-12, "atol": 1e-13}
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """What four processes found, the first two of them also as a pair."""
    folder = tmp_path_factory.mktemp("ranks")
    together(4, vocab_parallel_rank.main, [str(folder)])
    return [torch.load(folder / f"{rank}.pt") for rank in range(4)]


def found_by(results: list[dict[Any, Any]], ranks: int) -> list[tuple[slice, dict[str, Any]]]:
    return [(part, found[ranks]) for part, found in zip(shards(ranks), results, strict=False)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_statistics_equal_the_whole_forward_and_backward(
    results: list[dict[Any, Any]], ranks: int
) -> None:
    given = problem()
    leaves = [given[name].requires_grad_() for name in ("hidden", "weight")]
    whole = el.linear_statistics(*leaves, given["token"])
    hidden, weight = torch.autograd.grad(total(whole, given["upstream"]), leaves)
    for part, found in found_by(results, ranks):
        pairs = [
            (found["values"], values(whole)),
            (found["gradients"][0], hidden),
            (found["gradients"][1], weight[part]),
        ]
        for a, b in pairs:
            torch.testing.assert_close(a, b, **ROUNDING)


@pytest.mark.parametrize("ranks", [2, 4])
def test_statistics_of_logits_equal_the_whole(results: list[dict[Any, Any]], ranks: int) -> None:
    given = problem()
    logits = (given["hidden"] @ given["weight"].T).requires_grad_()
    counts = given["token"] != -100
    part = el.categorical_statistics(logits, torch.where(counts, given["token"], 0))
    parts = torch.stack([part.log_prob, part.entropy, logits.logsumexp(-1)]) * counts
    (gradient,) = torch.autograd.grad((parts * given["upstream"]).sum(), logits)
    for columns, found in found_by(results, ranks):
        torch.testing.assert_close(found["logits_values"], parts.detach(), **ROUNDING)
        torch.testing.assert_close(found["logits"], gradient[:, columns], **ROUNDING)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_losses_equal_the_whole_forward_and_backward(
    results: list[dict[Any, Any]], ranks: int, name: str, whole: dict[str, list[Tensor]]
) -> None:
    for part, found in found_by(results, ranks):
        compare(found["losses"][name], whole[name], part, **ROUNDING)
        # In float32, a few roundings of numbers below 16.
        compare(found["float32"][name], whole[name], part, rtol=1e-5, atol=5e-6)


@pytest.fixture(scope="module")
def whole() -> dict[str, list[Tensor]]:
    """The losses and gradients of one process with all of the vocabulary."""
    return losses(slice(0, V), None)


def compare(found: list[Tensor], wanted: list[Tensor], part: slice, **tolerance: float) -> None:
    loss, hidden, *others = wanted
    expected = [loss, hidden, *(gradient[part] for gradient in others)]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, **tolerance)


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_process_spends_its_part_of_six_products(
    results: list[dict[Any, Any]], ranks: int
) -> None:
    for part, found in found_by(results, ranks):
        own = N * (part.stop - part.start) * D
        assert found["products"] == [6 * own, 8 * own]


def test_a_dtensor_brings_its_processes_along(results: list[dict[Any, Any]]) -> None:
    given = problem()
    leaves = [given[name].requires_grad_() for name in ("hidden", "weight", "bias")]
    loss = el.linear_reinforce_loss(
        *leaves[:2], given["token"], given["advantage"], bias=leaves[2], entropy_coef=0.1,
        reference=el.LinearReference(given["ref_hidden"], given["ref_weight"]), kl_coef=0.2,
    )  # fmt: skip
    wanted = [loss.detach(), *torch.autograd.grad(loss, leaves)]
    for found in results[:2]:
        for a, b in zip(found["dtensors"], wanted, strict=True):
            torch.testing.assert_close(a, b, **ROUNDING)


def test_without_processes_it_says_what_to_do() -> None:
    with pytest.raises(InvalidValueError) as caught:
        el.vocab_parallel_statistics(torch.zeros(1, 2), torch.tensor([0]))
    assert str(caught.value) == (
        "`group`: got no process group, expected one, with a rank for each part of the vocabulary; "
        "call torch.distributed.init_process_group first, or start with torchrun"
    )
