"""Memory of large gradients: used again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import mmap
import os
import threading

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.ops import memory

PAGE = 1 << 21


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE", 4096)
    memory.release_memory()


def like(elements: int = 2048, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(elements, dtype=dtype)


def test_what_died_serves_the_next_of_its_size() -> None:
    first = memory.empty_like(like())
    where = first.data_ptr()
    del first
    again = memory.empty_like(like(1024, torch.float64))
    assert again.data_ptr() == where
    assert again.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_has_shape_and_dtype_and_can_be_written(dtype: torch.dtype) -> None:
    result = memory.empty_like(torch.zeros(64, 65, dtype=dtype).t())
    assert result.shape == (65, 64)
    assert result.dtype == dtype
    assert result.is_contiguous()
    assert torch.equal(result.fill_(3.0), torch.full((65, 64), 3.0, dtype=dtype))


@pytest.mark.parametrize(
    "alias",
    [lambda x: x.view(2, -1), lambda x: x.detach()[5:], lambda x: x.numpy(), lambda x: x.grad_fn],
)
def test_memory_is_not_given_to_another_while_an_alias_lives(alias: object) -> None:
    first = memory.empty_like(like())
    where = first.data_ptr()
    kept = alias(first)
    del first
    gc.collect()
    second = memory.empty_like(like())
    assert (second.data_ptr() == where) == (kept is None)


def test_much_smaller_tensors_do_not_sit_in_large_memory() -> None:
    first = memory.empty_like(like(3 * PAGE))
    where = first.data_ptr()
    del first
    assert memory.empty_like(like()).data_ptr() != where


def test_at_most_two_blocks_are_idle_and_release_gives_them_back() -> None:
    several = [memory.empty_like(like()) for _ in range(4)]
    assert memory.release_memory() == 0  # all of it is in use
    several.clear()
    gc.collect()
    assert memory.release_memory() == 2 * PAGE
    assert memory.release_memory() == 0


def test_small_tensors_come_from_torch() -> None:
    small = memory.empty_like(like(8))
    del small
    assert memory.release_memory() == 0


def test_gradients_of_successive_steps_lie_in_the_same_memory_and_are_right() -> None:
    z = torch.randn(64, 1290, requires_grad=True)
    action, advantage = torch.randint(1290, (64,)), torch.randn(64)
    places = set()
    for _ in range(3):
        z.grad = None
        # a weight, so that it goes the way of large losses
        el.reinforce_loss(z, action, advantage, weight=torch.ones(64)).backward()
        assert z.grad is not None
        places.add(z.grad.data_ptr())
        (wanted,) = torch.autograd.grad(
            -(advantage * z.log_softmax(-1)[range(64), action]).mean(), z
        )
        torch.testing.assert_close(z.grad, wanted)
    assert len(places) == 1


def test_gradients_that_accumulate_keep_what_they_have() -> None:
    z = torch.randn(64, 129, requires_grad=True)
    action, advantage = torch.randint(129, (64,)), torch.randn(64)
    for _ in range(2):
        el.reinforce_loss(z, action, advantage).backward()
    (once,) = torch.autograd.grad(el.reinforce_loss(z, action, advantage), z)
    torch.testing.assert_close(z.grad, 2 * once)


def test_threads_never_share_a_block() -> None:
    wrong: list[float] = []

    def work(number: float) -> None:
        for _ in range(50):
            mine = memory.empty_like(like()).fill_(number)
            if not bool((mine == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(float(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_serves_where_the_system_refuses_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    for advice in ("MADV_HUGEPAGE", "MADV_FREE"):
        monkeypatch.setattr(mmap, advice, 9999, raising=False)
    first = memory.empty_like(like())
    where = first.data_ptr()
    del first
    assert memory.empty_like(like()).data_ptr() == where


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_tensors_of_a_parent_are_left_alone_by_its_child() -> None:
    mine = memory.empty_like(like()).fill_(1.0)
    child = os.fork()
    if child == 0:
        os._exit(0 if bool((mine.fill_(2.0) == 2).all()) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert bool((mine == 1).all())
