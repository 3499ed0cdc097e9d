"""The folder that a program runs in: a copy of the script and of what lies next to it.

Small files are copied, so that a program may overwrite them. The others are links; the kernel
prevents writing through them. Without its help there are no links.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ENTRIES = 2000  # of all folders together
_COPIED, _COPIED_TOGETHER = 1 << 20, 32 << 20
_COPIED_ALONE = 256 << 20  # of all files, where there are no links
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_LEFT_OUT = {"__pycache__", "node_modules"}
_Seen = str | tuple[int, ...]  # where a link leads, or numbers of a folder or file


class Workspace:
    """A copy of the folders around a script, up to the repository's root, in an empty ``scratch``.

    The program runs in ``folder``: where the user is ``standing`` if the script lies below it,
    within the repository (see `root_around`); else in the script's own folder. ``import_path`` are
    more folders to import modules from: the originals, as is the repository's ``root``. With
    ``links``, files that are large, and folders that are too many, become links.
    """

    def __init__(self, script: Path, standing: Path, scratch: Path, *, links: bool) -> None:
        own = script.parent.resolve()
        place = standing.resolve()
        self.root = root = root_around(own, place)
        above = root or own.parent
        if not (root is not None and place.is_relative_to(root) and own.is_relative_to(place)):
            place = own
        self._own, self._above, self._place, self._links = own, above, place, links
        self._deep = root is not None
        around = above.parent if links and root is None and above.parent != above else None
        target = scratch if around is None else scratch / (around.name or "root")
        self._target = target / (above.name or "root")
        self.folder = self._target / place.relative_to(above)
        self.import_path = (root, root / "src") if root is not None else (own.parent,)
        self._fill()
        if around is not None:  # a script without a repository may look there for its modules
            _Copier(around, target, links).neighbours()

    def restore(self) -> None:
        """Make what is different in it again as it was."""
        now = _state(self._target)
        for path in now.keys() - self._before.keys():
            _remove(path)
        for path, seen in self._before.items():  # folders before what they hold
            if now.get(path) != seen:
                self._before[path] = self._again(path, seen)

    def copy_of(self, path: Path) -> Path | None:
        """Where the copy of a file is, if it has one."""
        if not path.is_relative_to(self._above):
            return None
        copied = self._target / path.relative_to(self._above)
        return copied if copied.exists() else None

    def original_of(self, path: Path) -> Path | None:
        """The user's own file of which ``path`` is an unchanged copy."""
        if not path.is_relative_to(self._target):
            return None
        original = self._above / path.relative_to(self._target)
        same = original.is_file() and filecmp.cmp(path, original, shallow=False)
        return original if same else None

    def _fill(self) -> None:
        copied = _Copier(self._above, self._target, self._links)
        copied.folder(self._own, deep=True)
        copied.folder(self._above, deep=self._deep)
        self._reach_own()
        self._before = _state(self._target)

    def _again(self, path: str, seen: _Seen) -> _Seen:
        """Make a link, a folder or a copy again as it was, and tell what it is like now."""
        with suppress(OSError):
            if isinstance(seen, str):
                _remove(path)
                os.symlink(seen, path)
            elif stat.S_ISDIR(seen[0]):
                if os.path.islink(path) or not os.path.isdir(path):
                    _remove(path)
                    os.mkdir(path)
                os.chmod(path, stat.S_IMODE(seen[0]))
            else:
                _remove(path)
                _copy(str(self._above / Path(path).relative_to(self._target)), path)
            return _seen(path)
        return seen

    def _reach_own(self) -> None:
        """A program that runs in a folder above still finds the files next to itself."""
        neighbours = self._target / self._own.relative_to(self._above)
        if self._place != self._own:
            for entry in neighbours.iterdir():
                here = self.folder / entry.name
                if not here.exists():
                    here.symlink_to(entry)


class _Copier:
    """Copies folders, within bounds on what they hold together."""

    def __init__(self, source: Path, target: Path, links: bool) -> None:
        self._source, self._target, self._links = source, target, links
        self._left = _ENTRIES
        self._bytes = _COPIED_TOGETHER if links else _COPIED_ALONE
        self._largest = _COPIED if links else _COPIED_ALONE

    def folder(self, start: Path, *, deep: bool) -> None:
        """A folder's files and, if ``deep``, its folders: the nearest first."""
        waiting = [start]
        while waiting:
            folder = waiting.pop(0)
            with suppress(OSError):
                target = self._at(folder)
                target.mkdir(parents=True, exist_ok=True)
                for entry in self._entries(folder):
                    if entry.is_dir(follow_symlinks=True):
                        if deep and self._left > 0 and not Path(entry.path, "pyvenv.cfg").exists():
                            waiting.append(Path(entry.path))
                        else:
                            self._link(entry)
                    else:
                        self._file(entry)

    def neighbours(self) -> None:
        """Links to what lies in the source folder."""
        with suppress(OSError):
            for entry in self._entries(self._source):
                self._link(entry)

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if self._left <= 0:
                return
            hidden = entry.name.startswith(".") and entry.is_dir()  # a file may be a `.env`
            if not hidden and entry.name not in _LEFT_OUT:
                self._left -= 1
                yield entry

    def _file(self, entry: os.DirEntry[str]) -> None:
        target, size = self._at(Path(entry.path)), entry.stat().st_size
        if target.exists():
            return
        if entry.is_file() and size <= min(self._largest, self._bytes):
            self._bytes -= size
            _copy(entry.path, str(target))
        else:
            self._link(entry)

    def _link(self, entry: os.DirEntry[str]) -> None:
        target = self._at(Path(entry.path))
        if self._links and not os.path.lexists(target):
            target.symlink_to(entry.path)

    def _at(self, path: Path) -> Path:
        return self._target / path.relative_to(self._source)


def root_around(folder: Path, standing: Path) -> Path | None:
    """The root of the repository that a script's folder is in, or else where the user stands above.

    None where the user stands elsewhere, at home or at the top.
    """
    above = standing in folder.parents and standing not in (Path.home(), Path(standing.anchor))
    return repository_root(folder) or (standing if above else None)


def repository_root(folder: Path) -> Path | None:
    """The nearest folder from here upwards with the marks of a repository; None without one."""
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in _ROOT_MARKS):
            return candidate
    return None


def _state(folder: Path) -> dict[str, _Seen]:
    """What would be different if anything in the folder had been changed, and the folder itself."""
    found: dict[str, _Seen] = {}
    with suppress(OSError):
        found[str(folder)] = _seen(str(folder))
    waiting = [str(folder)]
    while waiting:
        with suppress(OSError):
            for entry in os.scandir(waiting.pop()):
                found[entry.path] = _seen(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return found


def _seen(path: str) -> _Seen:
    """Where a link leads, the mode of a folder, and of a file what writing changes."""
    own = os.lstat(path)
    if stat.S_ISLNK(own.st_mode):
        return os.readlink(path)
    if stat.S_ISDIR(own.st_mode):
        return (own.st_mode,)
    return own.st_mode, own.st_ino, own.st_size, own.st_mtime_ns


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def _remove(path: str) -> None:
    """Remove a file, a link or a folder with all it holds, as far as that is possible."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
