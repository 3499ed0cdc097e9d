"""Actions that a space of gymnasium draws, and policies that wait for their critic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.writing import LOSS, audited

SAMPLED = "        action = dist.sample()\n"
EXPLORES = """        dist = Categorical(probs=0.75 * dist.probs + 0.125)
        explores = bool(torch.rand(()) < 0.25)
        action = torch.tensor(env.action_space.sample()) if explores else DIST.sample()
"""


@pytest.mark.parametrize(
    ("mixed", "rules"),
    [
        pytest.param(True, [], id="scored as the mixture that it is"),
        pytest.param(False, ["behaviour-not-scored"], id="scored as the policy alone"),
    ],
)
def test_what_a_space_draws_is_a_choice_of_its_own(
    mixed: bool, rules: list[str], tmp_path: Path
) -> None:
    before = "        own = dist\n"
    text = before + EXPLORES.replace("DIST", "own")
    scored = "log_probs.append(dist.log_prob(action))"
    report = audited(
        tmp_path, (SAMPLED, text), (scored, scored if mixed else scored.replace("dist", "own"))
    )
    assert [finding.rule for finding in report.faults] == rules, report.text()
    assert report.verdict == ("unbiased" if mixed else "biased"), report.text()


@pytest.mark.parametrize(
    "drawn",
    ["random.randrange(2)", "random.randint(0, 1)", "random.choice([0, 1])", "np.random.randint(2)",
     "int(torch.randint(2, (1,)))", "env.action_space.sample()"],
)  # fmt: skip
def test_every_way_to_explore_is_part_of_the_policy(drawn: str, tmp_path: Path) -> None:
    """Without γ^t only each path tells that it is right: the ways to an action are one path."""
    explores = EXPLORES.replace("DIST", "own").replace("env.action_space.sample()", drawn)
    report = audited(
        tmp_path,
        ("import torch\n", "import random\nimport numpy as np\nimport torch\n"),
        (SAMPLED, "        own = dist\n" + explores),
        ("gamma_t * ", ""),
    )
    assert (report.verdict, report.findings) == ("convention", ()), report.text()


def test_numbers_of_a_box_are_the_same_in_every_run(tmp_path: Path) -> None:
    start = (
        'shift = float(gym.spaces.Box(0.0, 1.0, (1,)).sample()[0])\nenv = gym.make("CartPole-v1")'
    )
    report = audited(
        tmp_path, ('env = gym.make("CartPole-v1")', start), ("logits=", "logits=shift * ")
    )
    assert report.verdict == "unbiased", report.text()


CRITIC = """critic = torch.nn.Linear(4, 1)
fits = torch.optim.Adam(critic.parameters(), lr=1e-2)
waiting = []
for episode in"""
LATER = """    values = critic(torch.stack(seen))[:, 0]
    waiting.append(-(log_probs * (returns - values.detach())).sum())
    fits.zero_grad()
    (values - returns).pow(2).mean().backward()
    fits.step()
    if len(waiting) == 2:
        opt.zero_grad()
        sum(waiting).backward()
        opt.step()
        waiting.clear()
"""
STEP = "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"


@pytest.mark.parametrize(
    ("credit", "verdict"),
    [
        pytest.param("(returns - values.detach())", "convention", id="its own return"),
        pytest.param("(returns.flip(0) - values.detach())", "biased", id="reversed"),
    ],
)
def test_a_policy_that_waits_for_its_critic_is_judged_by_its_own_first_update(
    credit: str, verdict: str, tmp_path: Path
) -> None:
    report = audited(
        tmp_path,
        ("for episode in", CRITIC),
        (
            "log_probs, rewards, done = [], [], False",
            "log_probs, rewards, seen, done = [], [], [], False",
        ),
        (
            "        action = dist",
            "        seen.append(torch.as_tensor(obs))\n        action = dist",
        ),
        (f"    {LOSS}\n", ""),
        (STEP, LATER.replace("(returns - values.detach())", credit)),
    )
    assert report.verdict == verdict, report.text()


def test_a_policy_that_no_optimizer_trains_has_no_gradient(tmp_path: Path) -> None:
    report = audited(
        tmp_path,
        ("for episode in", "critic = torch.nn.Linear(4, 1)\nfor episode in"),
        (LOSS, f"{LOSS} + critic(torch.ones(4)).sum()"),
        ("opt.step()", "fits.step()"),
        (
            "critic = torch.nn.Linear(4, 1)\n",
            "critic = torch.nn.Linear(4, 1)\nfits = torch.optim.SGD(critic.parameters(), 0.1)\n",
        ),
    )
    assert report.verdict == "no-gradient", report.text()
