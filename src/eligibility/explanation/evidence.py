"""What a script's own text says about the question behind it."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """What a script looks at."""

    gradients: bool = False  # whether it reads or compares a gradient
    # The names whose value it prints, or takes with ``.item()``.
    values: frozenset[str] = frozenset()
    is_compiled: bool = False  # whether it calls ``torch.compile``

    def supports(self, evidence: str, name: str) -> bool:
        """Whether an expectation that needs ``evidence`` may be the one behind the script."""
        known = {"": True, "gradient": self.gradients, "value": name in self.values}
        return known.get(evidence, False)


def evidence_in(code: str) -> Evidence:
    """Read the text of a script; nothing is found in one that cannot be parsed."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return Evidence()
    gradients, compiled, values = False, False, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            reads = node.attr == "grad" and isinstance(node.ctx, ast.Load)
            gradients |= reads and ast.unparse(node) not in ("torch.autograd.grad", "autograd.grad")
            compiled |= ast.unparse(node) == "torch.compile"
            if node.attr == "item":
                values |= _names(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            values |= {name for argument in node.args for name in _names(argument)}
        elif isinstance(node, ast.Assert):
            gradients |= "grad" in ast.unparse(node.test)
    return Evidence(gradients, frozenset(values), compiled)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
