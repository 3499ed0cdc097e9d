"""DDP, FSDP2 and tensor parallelism: two real processes find the gradient of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops import processes_rank
from tests.ops.processes_rank import scripts
from tests.ranks import together


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("processes")
    together(2, processes_rank.main, [str(folder)])
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def by_one_process(ranks: tuple[int, ...]) -> dict[str, Tensor]:
    """The gradients of the mean loss of several batches, by autograd on the log-softmax."""
    namespace: dict[str, Any] = {"__name__": "policy"}
    exec(scripts()["policy"], namespace)
    torch.manual_seed(0)
    model = namespace["Policy"]()
    parts = [namespace["batch"](rank) for rank in ranks]
    prompt, token, advantage = (torch.cat(part) for part in zip(*parts, strict=True))
    log_probs = model.head(model.body(prompt)).log_softmax(-1)
    loss = -(advantage * log_probs[torch.arange(len(token)), token]).mean()
    loss.backward()
    return {name: part.grad for name, part in model.named_parameters()}


@pytest.mark.parametrize("name", ["ddp", "fsdp", "fsdp_outside", "tensor_parallel"])
def test_the_scripts_of_the_page_find_the_gradient_of_the_whole_batch(
    results: list[dict[str, Any]], name: str
) -> None:
    wanted = by_one_process((0,) if name == "tensor_parallel" else (0, 1))
    for found in results:
        gradients = found[name][1]
        if name == "fsdp_outside":  # nobody gathers the gradients of the body but its own FSDP
            assert gradients.keys() == wanted.keys()
        for parameter, gradient in wanted.items():
            torch.testing.assert_close(gradients[parameter], gradient, rtol=1e-5, atol=1e-7)


def test_every_script_of_the_page_was_run(results: list[dict[str, Any]]) -> None:
    assert {*scripts()} - {"policy"} <= {*results[0]}


def test_gradients_are_averaged_over_every_dimension_of_a_mesh(
    results: list[dict[str, Any]],
) -> None:
    wanted = by_one_process((0, 1))["head.weight"]
    for found in results:
        for gradient in found["meshes"].values():
            torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-7)


AGREE = (
    "got different values in process 1 and in process 0 of the group, expected equal values in all "
    "processes that share a vocabulary; omit group where each process has its own batch, as "
    "under DDP and FSDP; under tensor parallelism gather or sum the hidden states first"
)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("tokens", f"`token`: {AGREE}"),
        ("rows", f"`token`: {AGREE}"),
        ("hidden", f"`hidden`: {AGREE}"),
        (
            "mesh",
            "`group`: got a device mesh of 2 dimensions, expected the one that shares the "
            "vocabulary; pass it alone, for instance group=mesh['tp']",
        ),
        (
            "group",
            "`group`: got an object of type str, expected a process group, or a dimension of a "
            "device mesh, with this process in it; pass what torch.distributed.new_group returns, "
            "or mesh['tp']",
        ),
        (
            "replicated",
            "`weight`: got a DTensor with placements (Replicate(),), expected Shard(0) over the "
            "processes of the group; pass the mesh dimension that shares the vocabulary as group=; "
            "without a group a weight is gathered, as FSDP does",
        ),
        (
            "logits",
            "`logits`: got a DTensor, expected a tensor of this process; pass logits.to_local() "
            "where each process has whole rows, or logits.full_tensor(); for a sharded vocabulary "
            "see the how-to page on several processes",
        ),
    ],
)
def test_one_kind_of_sharing_is_not_taken_for_another(
    results: list[dict[str, Any]], what: str, text: str
) -> None:
    for found in results:
        assert found["refusals"][what] == text


def test_the_page_shows_what_is_said() -> None:
    assert f"`token`: {AGREE}" in processes_rank.PAGE.read_text("utf-8")
