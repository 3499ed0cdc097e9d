"""Whole numbers outside a program's source: on its command line, and in configuration files."""

from __future__ import annotations

import builtins
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from eligibility.audit.job import COMMAND_LINE, WholeNumber

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_WHOLE = re.compile(r"(?<![\w.+-])(?:0|[1-9]\d*)(?![\w.+-])")


def numbers_outside(
    script: Path, root: Path | None, strings: Iterable[str], arguments: Sequence[str]
) -> list[WholeNumber]:
    """The whole numbers on a program's command line, and in configuration files that it names.

    They lie next to the script or below the ``root`` of its repository, or one folder deeper.
    """
    named = {Path(string.rpartition("=")[2]).name for string in (*strings, *arguments)}
    found = list(_numbers_in(arguments, COMMAND_LINE))
    folders = dict.fromkeys((script.parent, root or script.parent))
    around = (folder.glob(pattern) for folder in folders for pattern in ("*.*", "*/*.*"))
    for path in chain.from_iterable(around):
        if path.suffix in _CONFIGURATIONS and named & {path.name, path.stem}:
            with suppress(OSError, ValueError):
                found += _numbers_in(path.read_text(encoding="utf-8").split("\n"), path.name)
    return found


def place_of(number: WholeNumber) -> str:
    """Where it stands, in words."""
    file, line, _, _ = number
    return f"on {file}" if file == COMMAND_LINE else f"at {Path(file).name}:{line}"


def read_small(sizes: Mapping[WholeNumber, int]) -> None:
    """From now on the command line, and configuration files as they are read, have these sizes."""
    sys.argv[1:] = _with_small(sys.argv[1:], COMMAND_LINE, sizes)
    names = {number[0] for number in sizes if number[0].endswith(_CONFIGURATIONS)}
    stock = builtins.open

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        stream = stock(file, mode, *args, **options)
        name = "" if isinstance(file, int) else os.path.basename(os.fsdecode(file))
        if mode not in ("r", "rt", "rb") or name not in names:
            return stream
        with stream:
            read = stream.read()
        text = read if isinstance(read, str) else read.decode()
        text = "\n".join(_with_small(text.split("\n"), name, sizes))
        return io.StringIO(text) if isinstance(read, str) else io.BytesIO(text.encode())

    builtins.open = io.open = opened


def _numbers_in(lines: Sequence[str], name: str) -> Iterator[WholeNumber]:
    for row, line in enumerate(lines, start=1):
        for match in _WHOLE.finditer(line):
            yield name, row, match.start(), int(match[0])


def _with_small(lines: Sequence[str], name: str, sizes: Mapping[WholeNumber, int]) -> Iterator[str]:
    """The lines of this name, in which the numbers are small."""
    for row, line in enumerate(lines, start=1):
        changed = line
        for number, small in sorted(sizes.items(), reverse=True):
            file, at, column, value = number
            if (file, at) == (name, row):
                changed = f"{changed[:column]}{small}{changed[column + len(str(value)) :]}"
        yield changed
