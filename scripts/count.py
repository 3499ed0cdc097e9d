"""Counts files, lines and functions of ``src``, and the calls of ours behind three public calls."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import eligibility as el

SOURCE = Path(el.__file__).parent


@dataclass(frozen=True)
class Calls:
    """What one public call sets off in this package, once everything is loaded.

    Attributes:
        frames: Function calls of ours.
        files: Files that they lie in.
        depth: The deepest stack of them.
    """

    frames: int
    files: int
    depth: int


def calls_of(work: Callable[[], object]) -> Calls:
    """Counted on the second run: the first one imports and fills caches."""
    work()
    entered: list[str] = []
    depth = deepest = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth, deepest
        file = frame.f_code.co_filename
        if not file.startswith(str(SOURCE)):
            return
        if event == "call":
            entered.append(file)
            depth += 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Calls(len(entered), len(set(entered)), deepest)


def main() -> None:
    """Print the counts."""
    lines: dict[Path, int] = {}
    bodies: list[int] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines[path] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                bodies.append((node.end_lineno or node.lineno) - node.body[0].lineno + 1)
    long, total = sum(count > 300 for count in lines.values()), sum(lines.values())
    print(f"files of Python   {len(lines)}, {total} lines")
    print(f"longest file      {max(lines.values())} lines; {long} over 300")
    print(f"functions         {len(bodies)}, median body {statistics.median(bodies):g} lines")
    for unit in sorted({path.relative_to(SOURCE).parts[0] for path in lines}):
        own = [count for path, count in lines.items() if path.is_relative_to(SOURCE / unit)]
        print(f"  {unit:16s}{len(own):4d} files {sum(own):6d} lines")
    logits = torch.randn(64, 6, requires_grad=True)
    action, advantage = torch.zeros(64, dtype=torch.long), torch.ones(64)
    mask = torch.ones(64, 6, dtype=torch.bool)
    policy = torch.distributions.Categorical(logits=torch.zeros(4))
    asked: dict[str, Callable[[], object]] = {
        "el.eligibility(Categorical, 0)": lambda: el.eligibility(policy, torch.tensor(0)),
        "el.reinforce_loss(64 × 6)": lambda: el.reinforce_loss(logits, action, advantage),
        "el.reinforce_loss(…, mask)": lambda: el.reinforce_loss(
            logits, action, advantage, mask=mask
        ),
    }
    for name, work in asked.items():
        found = calls_of(work)
        print(f"{name:32s}{found.frames:4d} calls in {found.files:2d} files, {found.depth} deep")


if __name__ == "__main__":
    main()
