"""A program that goes on from a checkpoint overwrites the parameters that the audit has moved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.audit.writing import PROGRAM, audit_here

_COPIED = """import copy
acting = copy.deepcopy(net)
net.load_state_dict(torch.load({path!r}))
for episode"""
_SYNC = "    acting.load_state_dict(net.state_dict())\n    obs, _ = env.reset()\n"
_SCORED = "Categorical(logits=net(torch.as_tensor(state))).log_prob(action)"


def changed(*changes: tuple[str, str]) -> str:
    """The program after the changes."""
    text = PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("acts", ["net", "acting"])
def test_a_checkpoint_that_is_loaded_when_the_optimizer_is_there(acts: str, tmp_path: Path) -> None:
    stored = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    torch.save(stored.state_dict(), tmp_path / "last.pt")
    text = changed(
        ("for episode", _COPIED.format(path=str(tmp_path / "last.pt"))),
        ("    obs, _ = env.reset()\n", _SYNC),
        ("dist = Categorical(logits=net(", f"dist = Categorical(logits={acts}("),
        ("log_probs, rewards, done = [],", "seen, rewards, done = [],"),
        ("log_probs.append(dist.log_prob(action))", "seen.append((obs, action))"),
        ("torch.stack(log_probs)", f"torch.stack([{_SCORED} for state, action in seen])"),
    )
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    report = audit_here(tmp_path / "program.py", 60)
    assert report.verdict == "unbiased", report.text()
