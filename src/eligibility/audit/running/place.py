"""Where an audited program runs: a copy of its folder, which it cannot get out of."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from eligibility.audit.job import Program
from eligibility.audit.running.preloading import make_room
from eligibility.audit.user_code import imported_by
from eligibility.sandbox import COPY, Workspace, confine


def workspace_of(program: Program) -> Workspace:
    """A copy of the program's folders, for a user who stands in this process's folder."""
    scratch = Path(program.scratch, "run")
    scratch.mkdir()
    return Workspace(Path(program.origin), Path.cwd(), scratch, links=program.guard != COPY)


def settle_in(program: Program, workspace: Workspace) -> None:
    """From now on this process is the program's: its arguments, modules, folder and bounds."""
    copied = workspace.copy_of(Path(program.path).resolve())
    sys.argv = [str(copied or program.path), *program.arguments]
    sys.path.insert(0, str(Path(program.origin).parent))
    make_room(Path(program.origin).parent)
    sys.path += map(str, workspace.import_path)
    sys.meta_path.insert(0, _Copies(workspace))
    sys.dont_write_bytecode = True
    confine(Path(program.scratch), program.guard, "an audited program")
    os.chdir(workspace.folder)


def run_program(script: Path) -> None:
    """Run a script; one that imports from its own package as a module of it, which it must be."""
    package = [script.stem]
    root = script.parent
    while (root / "__init__.py").exists():
        package.insert(0, root.name)
        root = root.parent
    if len(package) > 1 and _imports_from(package[0], script):
        sys.path.insert(0, str(root))
        runpy.run_module(".".join(package), run_name="__main__", alter_sys=True)
        return
    main = ModuleType("__main__")
    main.__file__ = sys.argv[0]  # where it can write
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), str(script), "exec", dont_inherit=True), vars(main))


def _imports_from(package: str, script: Path) -> bool:
    """Whether a script imports from the package that it lies in, relatively or by its name."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8", errors="replace"))):
            if any(name.partition(".")[0] in ("", package) for name in imported_by(node)):
                return True
    return False


class _Copies:
    """The program's own modules say by ``__file__`` that they lie in the copy of its folder.

    There they can write next to themselves. Their code keeps the names of the user's own files.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of the program; None for all others."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not spec.has_location:
            return None
        found = Path(spec.origin).resolve()
        original = self._workspace.original_of(found)  # by a path made of another's `__file__`
        copied = self._workspace.copy_of(original or found)
        if copied is None:
            return None
        if original is not None:
            inside = spec.submodule_search_locations
            own = spec_from_file_location(name, original, submodule_search_locations=inside)
            spec = own or spec
        spec.origin = str(copied)
        return spec
