"""Which refusals did no test meet? From a measurement of coverage:

    scripts/coverage

One line for each ``raise`` that was never reached; exit status 1 if there is one. What is raised
again, and what an abstract method raises, does not count.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

_NO_REFUSAL = {"NotImplementedError"}


def raises(source: str) -> Iterator[tuple[int, str]]:
    """The line and the exception, as it is written, of each ``raise`` with one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if (name := ast.unparse(called)) not in _NO_REFUSAL:
                yield node.lineno, name


def unmet(report: Path, root: Path) -> list[str]:
    """``file:line exception`` of those that were not reached."""
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return [
        f"{name}:{line} {exception}"
        for name, measured in files.items()
        for line, exception in sorted(raises((root / name).read_text(encoding="utf-8")))
        if line in measured["missing_lines"]
    ]


if __name__ == "__main__":
    found = unmet(Path(sys.argv[1]), Path.cwd())
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.exit(1 if found else 0)
