"""By script: the user's program runs unmodified, and every gradient of it is explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eligibility.errors import InvalidValueError
from eligibility.explanation.script import explain_script

SCRIPTS = Path(__file__).parent / "scripts"


def write(folder: Path, program: str) -> Path:
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return path


def test_forum_snippet_with_backward_works_as_posted() -> None:
    found = explain_script(SCRIPTS / "forum_with_backward.py")
    (call,) = found.calls
    assert (call.line, call.code, call.times) == (24, "prob.backward()", 1)
    (leaf,) = call.explanation.leaves
    assert leaf.gradient.values == pytest.approx([0.31, -0.69, -0.69, -0.69], abs=1e-6)
    assert {part.through for part in leaf.contributions} == {
        "through the sum",
        "through the division",
    }
    assert [step.variable for step in call.explanation.steps] == ["log_prob", "prob"]
    assert all(check.passed for check in call.explanation.checks)
    assert found.missing == ()
    # The script itself sees exactly what it would have seen alone.
    assert "probs-grad: tensor([[ 0.3100, -0.6900, -0.6900, -0.6900]])" in found.output
    assert "log_prob-grad: tensor([0.6900])" in found.output
    assert "prob-grad: tensor([1.])" in found.output


def test_forum_snippet_without_backward_says_why_each_grad_is_none() -> None:
    found = explain_script(SCRIPTS / "forum_without_backward.py")
    assert {item.name: item.line for item in found.missing} == {
        "probs": 24,
        "log_prob": 25,
        "prob": 26,
    }
    assert found.missing[0].reason == (
        "nothing has called backward() up to here: a gradient exists only after that."
    )
    assert "call log_prob.retain_grad() after computing it" in found.missing[1].reason
    (call,) = found.calls
    assert (call.line, call.code) == (0, "prob.backward()")
    assert call.explanation.leaves[0].gradient.values == pytest.approx(
        [0.31, -0.69, -0.69, -0.69], abs=1e-6
    )
    text = found.text()
    assert text.index("WHY .grad IS None") < text.index("never called; it would give")
    assert max(map(len, text.splitlines())) <= 80


LOOP = """
import sys
import torch

torch.manual_seed(int(sys.argv[1]))
policy = torch.nn.Linear(3, 2)
for episode in range(4):
    dist = torch.distributions.Categorical(logits=policy(torch.ones(5, 3)))
    action = dist.sample()
    loss = -(dist.log_prob(action) * action).mean()
    policy.zero_grad()
    loss.backward()
extra = policy.weight.sum()
extra.backward()
policy.zero_grad()
print(policy.weight.grad, torch.ones(2).grad)
"""


def test_each_line_is_explained_once_and_counted(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, LOOP), ["7"])
    assert [(call.line, call.times) for call in found.calls] == [(12, 4), (14, 1)]
    first = found.calls[0].explanation
    assert [leaf.name for leaf in first.leaves] == ["policy.weight", "policy.bias"]
    assert first.steps[-1].name == "REINFORCE loss"
    reasons = {item.name: item.reason for item in found.missing}
    assert reasons["policy.weight"].startswith("it was set to None after the backward pass")
    assert reasons["a tensor"].startswith("it does not require a gradient")
    assert json.loads(found.to_json())["calls"][0]["explanation"]["title"] == first.title


def test_a_tensor_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, LOOP)
    assert [call.line for call in explain_script(path, ["7"], tensor="extra").calls] == [14]


def test_a_line_without_a_backward_pass_names_those_with_one(tmp_path: Path) -> None:
    path = write(tmp_path, LOOP)
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path, ["7"], line=2)
    assert str(raised.value) == (
        f"`{path}`: got no backward pass of line 2, expected one of its own: loss.backward() in "
        "line 12, extra.backward() in line 14; choose one of them"
    )


DETACHED = """
import torch
x = torch.ones(2, requires_grad=True)
y = torch.ones(2, requires_grad=True)
print(torch.autograd.grad(x.exp().sum(), x))
(x.detach() * y).sum().backward()
print(x.grad)
"""


def test_autograd_grad_is_explained_and_leaves_no_grad(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, DETACHED))
    assert [call.line for call in found.calls] == [5, 6]
    gradient = found.calls[0].explanation.leaves[0].gradient
    assert gradient.values == pytest.approx([2.71828, 2.71828])
    (item,) = found.missing
    assert (item.line, item.name) == (7, "x")
    assert item.reason.startswith("no backward pass has reached it")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "import torch\nprint(1 / 0)\n",
            "got ZeroDivisionError in line 2: division by zero, expected a script that runs to its "
            "end; run it alone to see the traceback",
        ),
        (
            "import torch\nif\n",
            "got SyntaxError in line 2: invalid syntax (program.py, line 2), expected a script "
            "that runs to its end; run it alone to see the traceback",
        ),
        (
            "import sys\nsys.exit(3)\n",
            "got exit status 3, expected a script that runs to its end; run it alone to see the "
            "traceback",
        ),
        (
            "import os\nos._exit(0)\n",
            "got an end without a report, expected a script that runs to its end; it was killed, "
            "perhaps for memory: give it smaller work or a larger `--memory`",
        ),
    ],
)
def test_a_script_that_fails_is_one_clear_error(tmp_path: Path, program: str, message: str) -> None:
    path = write(tmp_path, program)
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == f"`{path}`: {message}"


def test_a_script_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    path = write(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path, timeout=0.5)
    assert str(raised.value) == (
        f"`{path}`: got no backward pass within 0.5 s, expected a script that reaches one in time; "
        "give it smaller work or a larger `--timeout`"
    )


def test_memory_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path, "data = bytearray(4 * 2**30)\n")
    with pytest.raises(InvalidValueError, match="MemoryError in line 1"):
        explain_script(path, memory=3)


def test_a_missing_script_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "nope.py"
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == (
        f"`{path}`: got no such file, expected a Python script; check the name and the folder"
    )
