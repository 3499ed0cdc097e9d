"""What a program that could not be run asks for, and the probe has not: told from its text."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from eligibility.audit.user_code import imported_by

_BEFORE = {
    "rollout_func": "samples with its own rollout function",
    "environment_factory": "trains in an environment of several turns",
    "tools": "calls tools while it answers",
}
SAMPLES_OTHERWISE = {
    name: f"the program {what}, and the probe has only single answers; audit its loss with "
    "audit_token_loss"
    for name, what in _BEFORE.items()
}
_IMAGES = re.compile("ImageTextToText|Vision2Seq|VisionText|_vl\\b|[\"']images?[\"']|PIL")
_REMOTE = {"requests", "httpx", "aiohttp", "openai", "anthropic", "litellm"}


def reason_of(script: Path) -> str:
    """One sentence; empty if nothing in the text is known to be missing."""
    try:
        text = script.read_text("utf-8")
        nodes = list(ast.walk(ast.parse(text)))
    except (OSError, SyntaxError, ValueError):  # what it raised says more
        return ""
    given = {key.arg for node in nodes if isinstance(node, ast.Call) for key in node.keywords}
    asked = next((said for name, said in SAMPLES_OTHERWISE.items() if name in given), "")
    roots = {name.partition(".")[0] for node in nodes for name in imported_by(node)}
    if asked:
        return asked
    if _IMAGES.search(text):
        what = "trains on images, and the probe has none"
    elif remote := sorted(roots & _REMOTE):
        what = f"gets its rewards from a service ({remote[0]}), and the audit has no network"
    else:
        return ""
    return f"the program {what}; audit its loss with audit_token_loss"
