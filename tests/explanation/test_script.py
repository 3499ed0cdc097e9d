"""By script: the user's program runs unmodified, and every gradient of it is explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eligibility.errors import InvalidValueError
from eligibility.explanation.script import explain_script

SCRIPTS = Path(__file__).parent / "scripts"
SMALL = "import torch\nx = torch.ones(2, requires_grad=True)\n(x * x).sum().backward()\n"


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


def test_the_gradient_of_an_intermediate_result_is_answered_once_and_where_it_is_read() -> None:
    found = explain_script(SCRIPTS / "grad_of_intermediate.py")
    ((line, name),) = [(item.line, item.name) for item in found.missing]
    assert (line, name) == (9, "log_prob")
    (call,) = found.calls
    assert not any("log_prob.grad" in item.expected for item in call.explanation.expected)


MANY = """
import torch

leaves = [torch.ones(1, requires_grad=True) for _ in range(1025)]
torch.autograd.backward([(leaf * leaf).sum() for leaf in leaves])
last = leaves[-1]
last.grad = None
print(last.grad)
"""


def test_every_tensor_of_one_backward_pass_is_seen(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, MANY))
    assert [call.times for call in found.calls] == [1025]
    (item,) = found.missing
    assert item.reason.startswith("it was set to None after the backward pass")


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
        f"`{path}`: got no backward pass of line 2, expected one of its backward passes: "
        "loss.backward() in "
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


def test_what_ran_before_an_error_is_explained_and_the_error_is_whole(tmp_path: Path) -> None:
    found = explain_script(write(tmp_path, BEFORE))
    assert [call.line for call in found.calls] == [4]
    assert found.failure.startswith("Traceback (most recent call last):\n")
    assert f'{tmp_path / "program.py"}", line 5, in <module>\n    print(1 / 0)' in found.failure
    assert found.failure.endswith("ZeroDivisionError: division by zero")
    text = found.text()
    assert text.index("one_hot(a) − softmax(z)") < text.index("ZeroDivisionError")
    assert max(map(len, text.splitlines())) <= 80


BEFORE = """import torch
z = torch.zeros(3, requires_grad=True)
log_prob = torch.distributions.Categorical(logits=z).log_prob(torch.tensor(1))
log_prob.backward()
print(1 / 0)
"""
LAYER = "import torch\nlayer = torch.nn.Linear(3, 2)\n"
FAILURES = {
    "second backward": (
        LAYER + "p = torch.distributions.Categorical(logits=layer(torch.ones(3)))\n"
        "for _ in range(2):\n    (-p.log_prob(torch.tensor(1))).backward()\n",
        "line 5, `(-p.log_prob(torch.tensor(1))).backward()` goes through operations that were "
        "computed only once and whose graph was freed by the same line, an iteration earlier: ",
        "--question 9",
    ),
    "two losses": (
        LAYER + "hidden = layer(torch.ones(3))\nfirst = hidden.exp().sum()\n"
        "second = hidden.sin().sum()\nfirst.backward()\nsecond.backward()\n",
        "line 7, `second.backward()` goes through operations that were computed only once and "
        "whose graph was freed by line 6, `first.backward()`: hidden. Compute them again",
        "--question 9",
    ),
    "in place": (
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = x.exp()\ny += 1\n"
        "y.sum().backward()\n",
        "line 5, `y.sum().backward()` needs a tensor of shape [3] as it was in the "
        "forward pass, and line 4, `y += 1`, has written into it since.",
        "x = x + 1",
    ),
    "optimizer step": (
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))\n"
        "step = torch.optim.SGD(net.parameters(), lr=0.1).step\nout = net(torch.ones(5, 3))\n"
        "out.sum().backward(retain_graph=True)\nstep()\nout.exp().sum().backward()\n",
        "and line 6, `step()`, has written into it since.",
        "compute the loss again after an optimizer step",
    ),
    "no graph": (
        LAYER + "p = torch.distributions.Categorical(logits=layer(torch.ones(3)))\n"
        "loss = p.sample() * 2.0\nloss.backward()\n",
        "line 5, `loss.backward()` starts from loss, which has no graph",
        "It is made in line 4, `loss = p.sample() * 2.0`.",
    ),
    "nan": (
        LAYER + "x = torch.log(torch.ones(3) - 2)\nlogits = layer(x)\n"
        "torch.distributions.Categorical(logits=logits)\n",
        "line 5, `torch.distributions.Categorical(logits=logits)` was given a NaN",
        "The first NaN was computed in line 3, `x = torch.log(torch.ones(3) - 2)` (log).",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_of_autograd_is_told_with_the_users_lines(tmp_path: Path, name: str) -> None:
    program, *said = FAILURES[name]
    failure = explain_script(write(tmp_path, program)).failure
    assert failure.startswith("WHAT HAPPENED\n")
    for words in said:
        assert words in failure
    assert "Traceback (most recent call last):" in failure
    assert "torch/autograd" not in failure


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "import sys\nprint('usage: program.py --seed N')\nsys.exit(3)\n",
            "got exit status 3; its last line: usage: program.py --seed N, expected a script that "
            "runs to its end; pass the arguments that it requires after `--`",
        ),
        (
            "import os\nos._exit(0)\n",
            "got an end without a report, expected a script that runs to its end; it was killed, "
            "perhaps for lack of memory; reduce its work or raise `--memory`",
        ),
    ],
)
def test_a_script_that_gives_up_is_one_clear_error(
    tmp_path: Path, program: str, message: str
) -> None:
    path = write(tmp_path, program)
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == f"`{path}`: {message}"


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("broken.py", "a = 1\nb = (\n", " (line 2)"),
        ("zero.py", "a = '\0'\n", ""),
        (
            "broken.ipynb",
            '{"cells": [{"cell_type": "code", "source": "a = 1"},'
            ' {"cell_type": "code", "source": "c = 2\\nb = ("}]}',
            " (cell 2, line 2)",
        ),
    ],
)
def test_a_script_that_is_not_python_is_one_clear_error(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == (
        f"`{path}`: got text that is not Python{place}, expected a Python program; "
        "correct it, or pass the script that trains the policy"
    )


@pytest.mark.parametrize("option", ["timeout", "memory"])
@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_one_clear_error(tmp_path: Path, option: str, limit: float) -> None:
    with pytest.raises(InvalidValueError) as raised:
        explain_script(write(tmp_path, ""), **{option: limit})  # type: ignore[arg-type]
    assert str(raised.value) == (
        f"`--{option}`: got {limit:g}, expected a finite number > 0; omit it to use the default"
    )


def test_a_script_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    path = write(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path, timeout=0.5)
    assert str(raised.value) == (
        f"`{path}`: got no backward pass within 0.5 s, expected a script that reaches one in time; "
        "reduce its work or raise `--timeout`"
    )


@pytest.mark.parametrize(
    "greedy", ["bytearray(4 * 2**30)", "torch.zeros(2**30, dtype=torch.float64)"]
)
def test_memory_is_limited_and_what_came_before_is_explained(tmp_path: Path, greedy: str) -> None:
    path = write(tmp_path, f"{SMALL}data = {greedy}\n")
    found = explain_script(path, memory=3)
    at = 1 + SMALL.count("\n")
    said = (
        f"WHAT HAPPENED\nline {at}, `data = {greedy}` wants more memory than `--memory` allows.\n"
    )
    assert found.failure.startswith(said)
    assert f"line {at}, in <module>" in found.failure
    assert [call.line for call in found.calls] == [at - 1]


def test_a_script_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    path = write(tmp_path, "while True:\n    print('x' * 4095)\n")
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == (
        f"`{path}`: got no backward pass within 64 MiB of output, expected a script that reaches "
        "one in time; reduce its work or print less"
    )


def test_what_was_explained_before_a_limit_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, f"{SMALL}while True:\n    print('x' * 4095)\n")
    found = explain_script(path)
    assert len(found.calls) == 1
    assert found.notes == ("The script was stopped after 64 MiB of output.",)
    assert len(found.output) <= 1_000_000


def test_a_missing_script_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "nope.py"
    with pytest.raises(InvalidValueError) as raised:
        explain_script(path)
    assert str(raised.value) == (
        f"`{path}`: got no such file, expected a Python script; check the name and the folder"
    )
