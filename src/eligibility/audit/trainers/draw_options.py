"""Where a program asks for a draw that is not the one it scores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CUTS_OFF = ("top_p", "top_k", "min_p", "typical_p", "epsilon_cutoff", "min_new_tokens")
_CHANGES_DRAW = ("temperature", *CUTS_OFF, "repetition_penalty")


def line_of_option(file: Path, line: int, options: tuple[str, ...] = _CHANGES_DRAW) -> int:
    """The line of the argument that changes the draw in a call of `generate`; else the call's.

    The arguments may stand in a dictionary or a configuration that the call's function makes.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError):  # it is gone, or is a notebook's
        return line
    around = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and _holds(call, line)]
    arguments = [each for call in around for each in call.keywords]
    asked = {each.arg: each.value for each in arguments if each.arg is not None}
    made = {
        each.value.id
        for each in arguments
        if each.arg in (None, "generation_config") and isinstance(each.value, ast.Name)
    }
    functions = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and _holds(f, line)]
    scope = max(functions, key=lambda function: function.lineno, default=tree)
    asked |= {key: value for name, key, value in _options(scope) if name in made}
    given = [asked[name] for name in options if name in asked]
    changes = [v for v in given if not (isinstance(v, ast.Constant) and v.value in (None, 0, 1))]
    return changes[0].lineno if changes else line


def _holds(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or line)


def _options(scope: ast.AST) -> Iterator[tuple[str, str, ast.expr]]:
    """Variable, option and value of what a function writes into dictionaries and configurations."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign):
            continue
        target, given = node.targets[0], node.value
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            if isinstance(target.slice, ast.Constant):
                yield target.value.id, str(target.slice.value), given
        elif isinstance(target, ast.Name) and isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield target.id, str(key.value), value
        elif isinstance(target, ast.Name) and isinstance(given, ast.Call):
            for each in given.keywords:  # GenerationConfig(temperature=…), dict(temperature=…)
                if each.arg is not None:
                    yield target.id, each.arg, each.value
