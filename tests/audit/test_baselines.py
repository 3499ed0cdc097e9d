"""Baselines that know what they are subtracted from, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import eligibility as el
from tests.audit.test_second_update import KEPT, LOSS, audit, line_of
from tests.audit.writing import LOSS as PLAIN_LOSS
from tests.audit.writing import PROGRAM, audited

_USED = LOSS.replace("returns)", "(returns - mean))")
_MOVED = {
    "average of returns": "    mean = 0.9 * mean + 0.1 * returns.mean().item()\n",
    "first of the returns": "    mean += 0.1 * (returns[0].item() - mean)\n",
    "sum of rewards": "    mean += (float(np.sum(rewards)) - mean) / (episode + 2)\n",
}
_START = ("for episode in", "import numpy as np\nmean = 0.0\nfor episode in")


@pytest.mark.parametrize("kind", _MOVED)
def test_a_baseline_that_has_taken_in_the_own_return_is_found_where_it_did(
    kind: str, tmp_path: Path
) -> None:
    report = audit(tmp_path, KEPT, _START, (LOSS, _MOVED[kind] + _USED))
    assert [finding.rule for finding in report.findings] == ["baseline-sees-own-return"]
    assert report.findings[0].line == line_of(tmp_path / "program.py", _MOVED[kind].strip())
    assert report.verdict == "biased"
    share = "0.5" if kind == "sum of rewards" else "0.1"
    assert f"reward-to-go minus {share} × the batch's own mean" in report.rule


def test_a_baseline_that_takes_it_in_afterwards_is_none_of_them(tmp_path: Path) -> None:
    report = audit(tmp_path, KEPT, _START, (LOSS, _USED + _MOVED["first of the returns"]))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings


@pytest.mark.parametrize(
    "average",
    ["    kept.append(total)\n    mean = sum(kept) / len(kept)\n",
     "    mean += (total - mean) / (episode + 1)\n"],
)  # fmt: skip
def test_an_average_that_begins_with_the_own_return_leaves_nothing_to_the_first_update(
    average: str, tmp_path: Path
) -> None:
    used = "    total = sum(rewards)\n" + average + "    loss = -log_probs.sum() * (total - mean)"
    start = ("for episode in", "mean, kept = 0.0, []\nfor episode in")
    report = audited(tmp_path, start, (f"    {PLAIN_LOSS}", used))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings
    assert report.updates == 2
    assert any("the first update has no gradient" in note for note in report.notes)
    assert report.rule.startswith("0.5 × whole episode return"), report.rule


@pytest.mark.parametrize("kept_by", ["t", "round(float(obs[0]), 2)"])
def test_an_average_of_past_returns_at_each_time_or_state_is_a_baseline(
    kept_by: str, tmp_path: Path
) -> None:
    used = """    keys, returns = [KEYS for t, obs in enumerate(seen)], returns.tolist()
    means = [past[key][0] / max(past[key][1], 1) for key in keys]
    for key, each in zip(keys, returns):
        past[key] = past[key][0] + each, past[key][1] + 1
    loss = -(gamma_t * log_probs * (torch.tensor(returns) - torch.tensor(means))).sum()
""".replace("KEYS", kept_by)
    start = (
        "for episode in",
        "import collections\npast = collections.defaultdict(lambda: (0.0, 0))\nfor episode in",
    )
    begins = (
        "    log_probs, rewards, done = [], [], False\n",
        "    log_probs, rewards, done, seen = [], [], False, []\n",
    )
    sees = ("        dist =", "        seen.append(obs)\n        dist =")
    report = audited(tmp_path, start, begins, sees, (f"    {PLAIN_LOSS}\n", used))
    assert report.verdict == "unbiased", report.text()
    assert not report.findings
    assert report.updates == 2


def test_no_update_with_a_gradient_is_a_fault(tmp_path: Path) -> None:
    used = "    mean = sum(rewards)\n    loss = -log_probs.sum() * (sum(rewards) - mean)"
    report = audited(tmp_path, (f"    {PLAIN_LOSS}", used))
    assert report.verdict == "no-gradient", report.text()
    assert [finding.rule for finding in report.findings] == ["no-gradient"]


# One-step actor-critic: the advantage is taken before or after the critic's step, or cut off.
_CRITIC = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
of_actor = torch.optim.Adam(actor.parameters())
of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
for episode in range(1000):
    obs, _ = env.reset()
    done = False
    while not done:
        state = torch.as_tensor(obs)
        dist = Categorical(logits=actor(state))
        action = dist.sample()
        obs, reward, terminated, truncated, _ = env.step(action.item())
        done = terminated or truncated
        target = reward + 0.99 * critic(torch.as_tensor(obs)).detach() * (1 - terminated)
        advantage = (target - critic(state)).detach()
        of_critic.zero_grad()
        (target - critic(state)).pow(2).sum().backward()
        of_critic.step()
        AFTER
        of_actor.zero_grad()
        (-advantage * dist.log_prob(action)).sum().backward()
        of_actor.step()
"""


@pytest.mark.parametrize(
    ("after", "verdict", "rules"),
    [
        ("pass", "convention", []),
        ("advantage = (target - critic(state)).detach()", "biased", ["baseline-sees-own-return"]),
        ("advantage = advantage.clamp(-1, 1)", "unexplained", ["unexplained"]),
    ],
)
def test_a_critic_learns_after_its_values_are_read(
    after: str, verdict: str, rules: list[str], tmp_path: Path
) -> None:
    """And weights that are cut off are no generalised advantages with a large entropy bonus."""
    script = tmp_path / "train.py"
    script.write_text(_CRITIC.replace("AFTER", after), encoding="utf-8")
    report = el.audit_script(script)
    assert (report.verdict, [f.rule for f in report.findings]) == (verdict, rules), report.text()
    if verdict == "biased":
        assert report.findings[0].line == line_of(script, "of_critic.step()")


_EPOCHS = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
of_actor, of_critic = (torch.optim.Adam(net.parameters()) for net in (actor, critic))
while True:
    states, actions, rewards, done = [], [], [], False
    obs, _ = env.reset()
    while not done:
        states.append(torch.as_tensor(obs, dtype=torch.float32))
        actions.append(Categorical(logits=actor(states[-1])).sample())
        obs, reward, terminated, truncated, _ = env.step(actions[-1].item())
        rewards.append(reward)
        done = terminated or truncated
    states, actions = torch.stack(states), torch.stack(actions)
    returns = torch.tensor([sum(rewards[t:]) for t in range(len(rewards))], dtype=torch.float32)
    old = Categorical(logits=actor(states)).log_prob(actions).detach()
    for epoch in range(3):
        values = critic(states).squeeze(-1)
        advantages = returns - values.detach()
        ratio = (Categorical(logits=actor(states)).log_prob(actions) - old).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        of_actor.zero_grad()
        loss.backward()
        of_actor.step()
        of_critic.zero_grad()
        (returns - values).pow(2).mean().backward()
        of_critic.step()
"""


def test_later_epochs_may_read_the_values_anew(tmp_path: Path) -> None:
    """As where one optimizer steps both; the first epoch has the values of before."""
    script = tmp_path / "train.py"
    script.write_text(_EPOCHS, encoding="utf-8")
    report = el.audit_script(script)
    assert (report.verdict, report.findings) == ("convention", ()), report.text()


def test_rewards_that_are_changed_may_have_a_critic(tmp_path: Path) -> None:
    """In both updates: what became of them is known from the first one."""
    parts = (
        ("opt =", "critic = torch.nn.Linear(4, 1)\n"
         "of_critic = torch.optim.Adam(critic.parameters())\nopt ="),
        ("log_probs, rewards, done", "states, log_probs, rewards, done"),
        ("= [], [], False", "= [], [], [], False"),
        ("        dist =", "        states.append(torch.as_tensor(obs, dtype=torch.float32))\n"
         "        dist ="),
        ("rewards.append(reward)", "rewards.append(max(-1.0, min(1.0, reward)))"),
        ("    gamma_t =", "    values = critic(torch.stack(states)).squeeze(-1)\n    gamma_t ="),
        ("* returns)", "* (returns - values.detach()))"),
        ("    opt.step()", "    opt.step()\n    of_critic.zero_grad()\n"
         "    (returns - values).pow(2).mean().backward()\n    of_critic.step()"),
    )  # fmt: skip
    text = PROGRAM
    for old, new in parts:
        assert old in text
        text = text.replace(old, new)
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    report = el.audit_script(script)
    assert not report.findings, report.text()
    assert {named.name for named in report.conventions} == {"reward-changed", "baseline"}
    assert report.rule.endswith("with other rewards: -1.32 is -1, 1.14 is 1"), report.rule
    assert report.updates == 2


@pytest.mark.parametrize(
    ("credit", "warned"),
    [
        ("torch.tensor(kept).flip(0).cumsum(0).flip(0)[: len(rewards)]", True),
        ("returns - sum(kept[: -len(rewards)]) / max(len(kept) - len(rewards), 1)", False),
        ("returns / (1.0 + abs(sum(kept[: -len(rewards)])))", False),
    ],
    ids=["added", "a baseline", "a divisor"],
)
def test_rewards_that_are_kept_and_added_are_no_bias_and_worth_a_word(
    credit: str, warned: bool, tmp_path: Path
) -> None:
    """Without a discount the sum to the end has all that an action earns, and much besides."""
    report = audited(
        tmp_path,
        ("GAMMA = 0.9", "GAMMA, kept = 1.0, []"),
        ("rewards.append(reward)", "rewards.append(reward)\n        kept.append(reward)"),
        (PLAIN_LOSS, f"loss = -(log_probs * ({credit})).sum()"),
    )
    assert report.verdict == "unbiased", report.text()
    assert [(f.rule, f.severity) for f in report.findings] == [("stale-batch", "warning")] * warned


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_moving_average_within_a_batch_is_a_baseline_next_to_an_entropy(
    when: str, tmp_path: Path
) -> None:
    moved = "    mean = 0.9 * mean + 0.1 * total\n"
    used = (
        "    loss = loss - log_probs.sum() * (total - mean) - 0.01 * sum(entropies)\n"
        "    count += 1\n"
    )
    report = audited(
        tmp_path,
        ("for episode in", "mean, loss, count = 0.0, 0.0, 0\nfor episode in"),
        (
            "log_probs, rewards, done = [], [], False",
            "log_probs, rewards, entropies, done = [], [], [], False",
        ),
        (
            "        action = dist.sample()\n",
            "        action = dist.sample()\n        entropies.append(dist.entropy())\n",
        ),
        (
            f"    {PLAIN_LOSS}\n",
            "    total = sum(rewards)\n"
            + (moved + used if when == "before" else used + moved)
            + "    if count < 2:\n        continue\n",
        ),
        ("    opt.step()\n", "    opt.step()\n    loss, count = 0.0, 0\n"),
    )
    assert report.verdict == "convention", report.text()
    assert not report.findings
    share = "0.9" if when == "before" else "1"
    assert report.rule.startswith(f"{share} × whole episode return"), report.rule
    assert report.rule.endswith("minus a baseline of earlier episodes' returns")


FITTED_BEFORE = (
    (
        "for episode in",
        "from_before = torch.full((5,), 0.3)\nfor episode in",
    ),
    ("    log_probs, rewards", "    seen = []\n    log_probs, rewards"),
    (
        "        action = dist.sample()\n",
        "        seen.append([*obs, 1.0])\n        action = dist.sample()\n",
    ),
    (
        PLAIN_LOSS,
        "seen = torch.tensor(seen)\n"
        "    loss = -(gamma_t * log_probs * (returns - seen @ from_before)).sum()\n"
        "    square = seen.T @ seen + 0.1 * torch.eye(5)\n"
        "    from_before = torch.linalg.solve(square, seen.T @ returns)",
    ),
)  # fmt: skip


def test_values_that_each_batch_fits_for_the_next_one_may_differ_in_it(tmp_path: Path) -> None:
    report = audited(tmp_path, *FITTED_BEFORE)
    assert (report.verdict, report.updates) == ("unbiased", 2), report.text()
    assert not report.findings


FITTED_AT_ONCE = (
    *FITTED_BEFORE[:3],
    (
        PLAIN_LOSS,
        "seen = torch.tensor(seen)\n"
        "    square = seen.T @ seen + 0.5 * torch.eye(5)\n"
        "    fitted = seen @ torch.linalg.solve(square, seen.T @ returns)\n"
        "    loss = -(log_probs * (returns - fitted)).sum()",
    ),
)


def test_values_that_are_fitted_to_the_batchs_own_returns_see_them(tmp_path: Path) -> None:
    report = audited(tmp_path, *FITTED_AT_ONCE)
    assert [fault.rule for fault in report.faults] == ["baseline-sees-own-return"], report.text()


_BACKWARDS = """
    later = 0.0
    VALUES
    for t in reversed(range(len(rewards))):
        later = rewards[t] + GAMMA * later
        loss = -GAMMA**t * log_probs[t] * (later - VALUE)
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        learns.zero_grad()
        (critic(seen[t]) - later).pow(2).sum().backward()
        learns.step()
"""


@pytest.mark.parametrize(
    ("values", "value", "rules"),
    [
        ("", "critic(seen[t]).item()", ["baseline-sees-own-return"]),
        ("values = [critic(each).item() for each in seen]", "values[t]", []),
    ],
)
def test_a_critic_that_learns_between_the_steps_of_an_episode_has_seen_its_return(
    values: str, value: str, rules: list[str], tmp_path: Path
) -> None:
    """From the last action to the first one, each with a step of its own."""
    begin = PROGRAM.split("    returns, running = [], 0.0", maxsplit=1)[0]
    kept = "        seen.append(torch.as_tensor(obs, dtype=torch.float32))\n"
    made = "critic = torch.nn.Linear(4, 1)\nlearns = torch.optim.Adam(critic.parameters())\n"
    report = audited(
        tmp_path,
        ("for episode in", f"{made}for episode in"),
        ("rewards, done = [], [], False", "rewards, seen, done = [], [], [], False"),
        ("        dist = ", f"{kept}        dist = "),
        ("VALUES", values),
        ("VALUE)", f"{value})"),
        text=begin + _BACKWARDS,
    )  # fmt: skip
    assert [finding.rule for finding in report.faults] == rules, report.text()
    assert report.verdict == ("biased" if rules else "convention"), report.text()
