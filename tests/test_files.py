"""A reader of a file sees the old one or the new one, never half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eligibility.errors import OutputError
from eligibility.files import write_atomically


def test_writes_text_and_bytes_and_makes_folders(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a" / "b.txt", "γ = 0.99").read_text("utf-8") == "γ = 0.99"
    assert write_atomically(tmp_path / "c.bin", b"\x00\xff").read_bytes() == b"\x00\xff"


def test_replaces_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    target = tmp_path / "curve.csv"
    write_atomically(target, "old")
    write_atomically(target, "new")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["curve.csv"]


def test_keeps_the_old_file_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_atomically(tmp_path / "checkpoint", "old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OutputError) as caught:
        write_atomically(target, "new")
    assert str(caught.value) == (
        f"cannot write `{target}`: got No space left on device, expected a writable place; "
        "choose another folder, free some space, or change the permissions"
    )
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_a_file_in_the_way_of_a_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"^cannot write .* expected a writable place"):
        write_atomically(tmp_path / "file" / "x", "")


def test_honours_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_atomically(tmp_path / "x", "")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
