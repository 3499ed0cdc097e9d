"""Where an audited program runs: a copy of its folder, which it cannot get out of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eligibility.audit.job import Program
from eligibility.sandbox import COPY, Workspace, confine


def workspace_of(program: Program) -> Workspace:
    """A copy of the program's folders, for a user who stands in this process's folder."""
    scratch = Path(program.scratch, "run")
    scratch.mkdir()
    return Workspace(Path(program.origin), Path.cwd(), scratch, links=program.guard != COPY)


def settle_in(program: Program, workspace: Workspace) -> None:
    """From now on this process is the program's: its arguments, modules, folder and bounds."""
    sys.argv = [program.path, *program.arguments]
    sys.path.insert(0, str(Path(program.origin).parent))
    sys.path += map(str, workspace.import_path)
    sys.dont_write_bytecode = True
    confine(Path(program.scratch), program.guard, "an audited program")
    os.chdir(workspace.folder)
