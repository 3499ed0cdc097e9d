"""Checkpoints: the round trip, the same bytes for the same content, every kind of damage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch

from eligibility.errors import EligibilityError, OutputError
from eligibility.train.checkpoint import FILE_NAME, read_checkpoint, write_checkpoint
from eligibility.train.learner import Reinforce


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of a few tensors."""
    tensors = {"b": torch.arange(3.0), "a": torch.tensor(2.5, dtype=torch.float64)}
    return write_checkpoint(tmp_path / FILE_NAME, tensors, {"steps": 7, "recent": [0.1, 1 / 3]})


def test_tensors_and_facts_come_back_exactly(saved: Path) -> None:
    for path in (saved, saved.parent):
        tensors, facts = read_checkpoint(path)
        assert tensors["b"].tolist() == [0, 1, 2]
        assert tensors["a"] == torch.tensor(2.5, dtype=torch.float64)
        assert facts["recent"] == [0.1, 1 / 3]


def test_a_model_comes_back_with_everything_it_needs(tmp_path: Path) -> None:
    model = Reinforce("CartPole-v1", seed=3, hidden_sizes=(16,)).learn(total_steps=3000)
    model.save(tmp_path / "model")
    loaded = Reinforce.load(tmp_path / "model")
    assert loaded.config == model.config
    assert loaded.progress.steps == model.progress.steps
    assert loaded.evaluate(20) == model.evaluate(20)
    assert loaded.save(tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def refusal(path: Path, got: str, remedy: str) -> str:
    """The pattern of the whole message."""
    text = (
        f"the checkpoint `{path}`: got {got}, expected a checkpoint of format version 2; {remedy}"
    )
    return f"^{re.escape(text)}$"


def test_every_kind_of_damage_gives_one_clear_error(saved: Path) -> None:
    whole = saved.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    for damaged in (b"", whole[:20], whole[:-1], bytes(flipped), b"pickle" * 50):
        saved.write_bytes(damaged)
        message = refusal(
            saved, "a damaged or foreign file", "train again, or restore it from a copy"
        )
        with pytest.raises(EligibilityError, match=message):
            read_checkpoint(saved)


def test_a_foreign_safetensors_file_is_refused(saved: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(2)}, saved)
    message = refusal(saved, "a damaged or foreign file", "train again, or restore it from a copy")
    with pytest.raises(EligibilityError, match=message):
        read_checkpoint(saved)


def test_a_later_format_version_is_refused(saved: Path) -> None:
    header = json.dumps({"format_version": 3, "sha256": ""})
    safetensors.torch.save_file({"a": torch.zeros(2)}, saved, metadata={"eligibility": header})
    remedy = "load it with the version of eligibility that wrote it"
    with pytest.raises(EligibilityError, match=refusal(saved, "format version 3", remedy)):
        read_checkpoint(saved)


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    message = refusal(path, "no such file", "pass a run folder or a checkpoint file")
    with pytest.raises(EligibilityError, match=message):
        Reinforce.load(tmp_path)


def test_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    text = (
        f"cannot write `{tmp_path}/file/model`: got File exists, expected a writable place; "
        "choose another folder, free some space, or change the permissions"
    )
    with pytest.raises(OutputError, match=f"^{re.escape(text)}$"):
        Reinforce("CartPole-v1").save(tmp_path / "file" / "model")
