"""Programs whose batches are so long that numbers of their text are made small."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from eligibility.audit.judgement.source import read_source
from eligibility.audit.running.runner import ScriptRunner
from eligibility.audit.running.smaller import FIRST, small_batches
from tests.audit.writing import PROGRAM, line_of

# As a parser of dataclasses needs it, an annotation is a type.
_MODULE = """
STEPS: int = 512
PART = 64
assert __annotations__ == {"STEPS": int}
"""
_LONG = """
SETTINGS
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    log_probs, credit = [], []
    while len(credit) < STEPS:
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        credit += [CREDIT for t in range(len(rewards))]
    USED
    log_probs, credit = torch.stack(log_probs), torch.tensor(credit)
    loss = -(log_probs * credit)[:LAST].sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
# Of a module, and of a configuration file or the command line.
_IMPORTED = "import random\nfrom settings import PART, STEPS"
_READ = """
import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
settings = json.loads((Path(__file__).parent / "settings.json").read_text())
STEPS, PART = parser.parse_args().steps or settings["steps"], 8
"""


def _written(
    folder: Path,
    settings: str = _READ,
    credit: str = "sum(rewards[t:])",
    used: str = "pass",
    last: str = "STEPS + 3",
) -> Path:
    script = folder / "train.py"
    text = _LONG.replace("SETTINGS", settings).replace("CREDIT", credit)
    script.write_text(text.replace("USED", used).replace("LAST", last), encoding="utf-8")
    return script


def test_a_long_batch_is_read_as_a_short_one(tmp_path: Path) -> None:
    """The program could not draw 64 of six."""
    (tmp_path / "settings.py").write_text(_MODULE, encoding="utf-8")
    used = "assert random.sample(range(len(credit)), PART)"
    report = el.audit_script(_written(tmp_path, _IMPORTED, "rewards[t]", used), max_paths=70)
    assert [fault.rule for fault in report.faults] == ["immediate-reward"], report.text()
    assert report.exhaustive
    made = "512 is 6 at settings.py:2, 64 is 6 at settings.py:3"
    assert f"reduced, so that a batch can be enumerated: {made}" in report.notes, report.notes


def test_modules_on_a_path_of_the_program_s_own_are_the_user_s_files(tmp_path: Path) -> None:
    """The path leads to the copy that a program runs in, as `__file__` says."""
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    for name in ("scripts", "src"):
        (tmp_path / name).mkdir()
    path = "sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'src'))"
    imported = f"import sys\nfrom pathlib import Path\n{path}\n{_IMPORTED}"
    mean = "log_probs.mean() * credit.sum()"
    module = f"{_MODULE}\ndef weighed(log_probs, credit):\n    return {mean}\n"
    settings = tmp_path / "src" / "settings.py"
    settings.write_text(module, encoding="utf-8")
    script = _written(tmp_path / "scripts", imported)
    text = script.read_text(encoding="utf-8").replace(
        "(log_probs * credit)[:STEPS + 3].sum()", "weighed(log_probs, credit)"
    )
    script.write_text(text.replace("PART, STEPS", "PART, STEPS, weighed"), encoding="utf-8")
    report = el.audit_script(script, max_paths=70)
    [finding] = report.faults
    assert finding.rule == "mean-log-prob-times-sum-of-returns"
    assert (Path(finding.file), finding.line) == (settings, line_of(settings, mean))
    assert any("512 is 6 at settings.py:2" in note for note in report.notes), report.notes


def test_numbers_of_a_program_with_short_batches_stay(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    report = el.audit_script(script, max_paths=6, samples=12)
    assert not any("reduced" in note for note in report.notes)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [(("--steps=512",), "512 is 6 on the command line"), ((), "1024 is 6 at settings.json:2")],
)
def test_the_length_of_a_batch_is_found_outside_of_the_text(
    arguments: tuple[str, ...], where: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{\n"steps": 1024,\n"seed": 1024}', encoding="utf-8")
    report = el.audit_script(_written(tmp_path), arguments, max_paths=6, samples=12)
    assert report.verdict == "unbiased", report.text()
    assert f"reduced, so that a batch can be enumerated: {where}" in report.notes, report.notes
    assert "1024" in settings.read_text(encoding="utf-8")


def test_a_program_that_learns_nothing_from_a_short_batch_is_read_as_it_is(tmp_path: Path) -> None:
    """It scores nothing there: a fault of the short batch, not of the program."""
    (tmp_path / "settings.json").write_text('{"steps": 512}', encoding="utf-8")
    script = _written(tmp_path, last="STEPS // PART * PART")
    report = el.audit_script(script, max_paths=2, samples=2)
    assert report.verdict != "no-gradient", report.text()
    assert not any("reduced" in note for note in report.notes)


_SEVERAL = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

ENVIRONMENTS, STEPS = 4, 128
envs = gym.make_vec("CartPole-v1", num_envs=ENVIRONMENTS, vectorization_mode="sync",
                    vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP})
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
obs, _ = envs.reset()
for batch in range(1000):
    log_probs, rewards, ends = [], [], []
    for step in range(STEPS):
        dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        rewards.append(torch.as_tensor(reward))
        ends.append(torch.as_tensor(terminated | truncated))
    loss, running = 0.0, torch.zeros(ENVIRONMENTS)
    for log_prob, reward, ended in zip(log_probs[::-1], rewards[::-1], ends[::-1]):
        running = reward + 0.9 * running * ENDED
        loss = loss - (log_prob * running).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("ended", "rules"), [("~ended", []), ("1.0", ["return-carried-over-episodes"])]
)
def test_many_environments_are_two(ended: str, rules: list[str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SEVERAL.replace("ENDED", ended), encoding="utf-8")
    report = el.audit_script(script, max_paths=6, samples=12)
    assert [fault.rule for fault in report.faults] == rules, report.text()
    made = "4 is 2 at train.py:6, 128 is 6 at train.py:6"
    assert f"reduced, so that a batch can be enumerated: {made}" in report.notes, report.notes


def test_the_rows_of_a_batch_are_found_among_the_widths_of_layers(tmp_path: Path) -> None:
    wide = "torch.nn.Tanh(), torch.nn.Linear(64, 64), "
    net = "torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)"
    wider = f"torch.nn.Linear(4, 64), {4 * wide}torch.nn.Linear(64, 2)"
    script = tmp_path / "train.py"
    text = _SEVERAL.replace("ENDED", "~ended").replace("STEPS = 4, 128", "STEPS = 4, 32")
    assert net in text
    script.write_text(text.replace(net, wider), encoding="utf-8")
    report = el.audit_script(script, max_paths=6, samples=12)
    made = "4 is 2 at train.py:6, 32 is 6 at train.py:6"
    assert f"reduced, so that a batch can be enumerated: {made}" in report.notes, report.notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_there", "it imports `not_there`"),
        ("def train(): ...", "the program made no optimizer step"),
    ],
)
def test_a_program_without_a_batch_is_not_run_with_other_numbers(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    run = ScriptRunner.start
    monkeypatch.setattr(ScriptRunner, "start", lambda *args: runs.append(args) or run(*args))
    script = tmp_path / "program.py"
    script.write_text(f"{text}\nSTEPS, PARTS, ROWS, MORE = 2048, 512, 64, 32\n")
    assert said in el.audit_script(script).summary
    assert len(runs) <= 2, "the first run, and the one in the other precision"


def test_a_program_that_leaves_tells_what_it_caught(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\ntry:\n    int('four')\nexcept ValueError:\n    print('!')\n    sys.exit(3)\n"
    )
    summary = el.audit_script(script).summary
    assert "(line 3)" in summary
    assert "exit status 3 after ValueError: invalid literal for int()" in summary


_PARTS = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(1000):
    obs, _ = env.reset()
    states, actions, rewards, done = [], [], [], False
    while not done:
        states.append(torch.as_tensor(obs))
        actions.append(Categorical(logits=net(states[-1])).sample())
        obs, reward, terminated, truncated, _ = env.step(actions[-1].item())
        rewards.append(reward)
        done = terminated or truncated
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    for part in range(len(states) // 30):  # an episode of fewer steps teaches nothing
        kept = slice(30 * part, 30 * part + 30)
        scores = Categorical(logits=net(torch.stack(states[kept]))).log_prob(
            torch.stack(actions[kept])
        )
        loss = -(scores * returns[kept]).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
""".replace("30", "ROWS")

# a baseline that is fitted with as many steps as ROWS, if a batch of 32 episodes has them
_FITTED = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
value = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
value_opt = torch.optim.SGD(value.parameters(), lr=1e-2)
for batch in range(100):
    states, scores, returns = [], [], []
    for episode in range(32):
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            states.append(torch.as_tensor(obs))
            policy = Categorical(logits=net(states[-1]))
            action = policy.sample()
            scores.append(policy.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        returns += torch.tensor(rewards).flip(0).cumsum(0).flip(0).tolist()
    states, returns = torch.stack(states), torch.tensor(returns)
    for part in range(len(states) // ROWS):
        rows = slice(ROWS * part, ROWS * part + ROWS)
        value_opt.zero_grad()
        (value(states[rows])[:, 0] - returns[rows]).pow(2).mean().backward()
        value_opt.step()
    loss = -(torch.stack(scores) * (returns - value(states)[:, 0].detach())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_batch_is_not_so_short_that_a_baseline_is_never_fitted(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(_FITTED.replace("ROWS", "8"), encoding="utf-8")
    report = el.audit_script(path, max_paths=1, samples=8)
    assert "32 is 2" not in " ".join(report.notes), report.notes
    assert [finding.rule for finding in report.findings] == ["baseline-sees-own-return"]


def test_a_batch_that_stays_long_at_six_is_tried_at_two(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(_FITTED.replace("ROWS", "2"), encoding="utf-8")
    with ScriptRunner(path, (), 100.0, 2048, False) as runner:
        numbers = small_batches(runner, runner.run(FIRST), read_source(path).whole_numbers)
    assert [number[3:] for number in numbers] == [(32, 2)]


def test_parts_of_an_episode_are_shorter_than_the_probe_s(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"ROWS = 30\n{_PARTS}", encoding="utf-8")
    with ScriptRunner(path, (), 100.0, 2048, False) as runner:
        numbers = small_batches(runner, runner.run(FIRST), read_source(path).whole_numbers)
    assert [number[3:] for number in numbers] == [(30, 2)]
