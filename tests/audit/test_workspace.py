"""The folder that a program runs in is after each run as it was before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eligibility.audit.running.outside_numbers import numbers_outside
from eligibility.sandbox import Workspace
from eligibility.sandbox.workspace import root_around

CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is written over": lambda folder: (folder / "main.py").write_text("2"),
    "a file is new": lambda folder: (folder / "new.txt").write_text("2"),
    "a link is exchanged": lambda folder: exchanged(folder.parent / "sibling"),
    "a file is a folder": lambda folder: turned_into_folder(folder / "main.py"),
    "a folder is a link": lambda folder: turned_into_link(folder),
    "a file cannot be read": lambda folder: (folder / "main.py").chmod(0),
    "nothing is left": lambda folder: shutil.rmtree(folder.parent),
}


def exchanged(link: Path) -> None:
    assert link.is_symlink()
    link.unlink()
    link.symlink_to("/elsewhere")


def turned_into_folder(file: Path) -> None:
    file.unlink()
    (file / "deep").mkdir(parents=True)
    (file / "deep" / "new.txt").write_text("2")


def turned_into_link(folder: Path) -> None:
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.symlink_to(moved)


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_run_changes_is_made_again(change: str, tmp_path: Path) -> None:
    own, sibling, scratch = (tmp_path / name for name in ("all/own", "all/sibling", "scratch"))
    for folder in (own, sibling, scratch):
        folder.mkdir(parents=True)
    (own / "main.py").write_text("1")
    workspace = Workspace(own / "main.py", own, scratch, links=True)
    CHANGES[change](workspace.folder)
    workspace.restore()
    assert [path.name for path in workspace.folder.iterdir()] == ["main.py"]
    assert (workspace.folder / "main.py").read_text() == "1"
    assert (workspace.folder / "main.py").stat().st_mode & 0o777 == 0o644
    assert not workspace.folder.is_symlink()
    assert (workspace.folder.parent / "sibling").readlink() == sibling


def test_what_a_run_leaves_alone_is_not_copied_again(tmp_path: Path) -> None:
    own, scratch = tmp_path / "own", tmp_path / "scratch"
    for folder in (own, scratch):
        folder.mkdir()
    for name in ("main.py", "data.json"):
        (own / name).write_text("1")
    workspace = Workspace(own / "main.py", own, scratch, links=True)
    kept, changed = workspace.folder / "data.json", workspace.folder / "main.py"
    before = kept.stat().st_ino
    for _ in range(2):
        changed.write_text("2")
        (workspace.folder / "figure.png").write_text("2")
        workspace.restore()
        assert (kept.stat().st_ino, changed.read_text()) == (before, "1")
        assert not (workspace.folder / "figure.png").exists()


def test_a_program_runs_where_the_user_is_standing_above_it(tmp_path: Path) -> None:
    """As a repository that was downloaded without its history."""
    folder, scratch = tmp_path / "project", tmp_path / "scratch"
    for name in ("scripts/train.py", "data/train.json"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("1")
    scratch.mkdir()
    workspace = Workspace(folder / "scripts/train.py", folder, scratch, links=True)
    assert (workspace.folder / "data/train.json").read_text() == "1"
    assert folder in workspace.import_path


def test_a_file_of_settings_is_there_and_hidden_folders_are_not(tmp_path: Path) -> None:
    own, scratch = tmp_path / "own", tmp_path / "scratch"
    for folder in (own / ".venv", scratch):
        folder.mkdir(parents=True)
    for name in ("main.py", ".env", ".venv/pyvenv.cfg"):
        (own / name).write_text("1")
    workspace = Workspace(own / "main.py", own, scratch, links=True)
    assert {path.name for path in workspace.folder.iterdir()} == {"main.py", ".env"}


def test_configurations_are_found_below_where_the_user_stands(tmp_path: Path) -> None:
    """A downloaded folder has no marks of a repository: it is what the user stands in."""
    script, config = tmp_path / "src" / "train.py", tmp_path / "configs" / "base.yaml"
    for file, text in ((script, "CONFIG = 'configs/base.yaml'\n"), (config, "group: 64\n")):
        file.parent.mkdir()
        file.write_text(text)
    named = ["configs/base.yaml"]
    for standing, found in ((tmp_path, [("base.yaml", 1, 7, 64)]), (script.parent, [])):
        root = root_around(script.parent, standing)
        assert numbers_outside(script, root, named, ()) == found
