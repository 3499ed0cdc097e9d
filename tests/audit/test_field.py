"""What other people's programs do beyond the textbook: each a small program in their manner."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from eligibility.audit.judgement.credit_places import run_on
from eligibility.audit.judgement.source import read_source
from eligibility.audit.judgement.story import Statement, Story
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import resampled, survey
from eligibility.audit.trace import Step
from tests.audit.writing import LOSS, PROGRAM, audit_here, audited, line_of, write_program

_UNDATED = "loss = -(log_probs * returns).sum()"
_SUM = """    for reward in reversed(rewards):
        running = reward + GAMMA * running
        returns.insert(0, running)
"""
_CRITIC = """critic = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
)
opt.add_param_group({"params": critic.parameters()})
for episode in range(1000):
"""
_OTHER = """critic = torch.nn.Linear(4, 1)
learns = torch.optim.Adam(critic.parameters(), lr=1e-2)
"""
_KEPT = (  # the actions are kept, and scored after the episode
    ("import torch\n", "import numpy\nimport torch\n"),
    ("    log_probs, rewards", "    observations, actions = [], []\n    log_probs, rewards"),
    ("    log_probs = torch.stack(log_probs)\n", ""),
    ("        rewards.append", "        actions.append(action.item())\n        rewards.append"),
)
_TENSOR = "    returns = torch.tensor(returns)\n"
_VALUES = """    seen = torch.as_tensor(numpy.array(observations), dtype=torch.float32)
    values = critic(seen)
    critic_loss = (values.squeeze(1) - returns).pow(2).sum()
"""
_LAMBDA = """kept, running = [], 0.0
    for step in reversed(range(len(rewards))):
        following = values[step + 1, 0] if step + 1 < len(rewards) else 0.0
        running = rewards[step] + GAMMA * following - values[step, 0] + 0.7 * GAMMA * running
        kept.insert(0, running.detach() + values[step, 0].detach())
    kept = torch.stack(kept)
    """
_STEPWISE = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.9
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
limit = env.spec.max_episode_steps
for episode in range(1000):
    obs, _ = env.reset()
    done, steps = False, 0
    obs = torch.as_tensor(obs, dtype=torch.float32)
    while not done:
        dist = Categorical(logits=actor(obs))
        action = dist.sample()
        following, reward, terminated, truncated, _ = env.step(action.item())
        following = torch.as_tensor(following, dtype=torch.float32)
        done, steps = terminated or truncated, steps + 1
        value = critic(obs)[action]
        credit, target = CREDIT
        loss = -dist.log_prob(action) * credit.detach() + (target.detach() - value).pow(2)
        opt.zero_grad()
        loss.backward()
        opt.step()
        obs = following
"""


def with_critic(folder: Path, *changes: tuple[str, str]) -> AuditReport:
    """The audit of the program with a critic whose values are of shape [T, 1]."""
    return audited(
        folder,
        ("import torch\n", "import numpy\nimport torch\n"),
        ("for episode in range(1000):\n", _CRITIC),
        ("    log_probs, rewards", "    observations = []\n    log_probs, rewards"),
        ("    while not done:\n", "    while not done:\n        observations.append(obs)\n"),
        (_TENSOR, f"{_TENSOR}{_VALUES}"),
        *changes,
    )  # fmt: skip


_WHITENED = "((returns - returns.mean()) / (returns.std() + 1e-5))"


@pytest.mark.parametrize(
    ("loss", "norm"),
    [
        ("critic_loss - (log_probs * (returns - values.detach()))", "sum"),
        ("critic_loss - (log_probs * (returns - values.detach()))", "mean"),
        (f"-(log_probs * ({_WHITENED} - values.detach()))", "mean"),  # nothing trains this critic
    ],
)
def test_returns_of_one_shape_minus_values_of_another_are_a_broadcast(
    tmp_path: Path, loss: str, norm: str
) -> None:
    crossed = f"loss = {loss}.{norm}()"
    report = with_critic(tmp_path, (LOSS, crossed))
    assert [finding.rule for finding in report.faults] == ["broadcast"], report.text()
    assert "mean V(s)" in report.rule
    assert "mean of all the batch's values subtracted" in report.summary
    right = crossed.replace("values.detach()", "values.squeeze(1).detach()")
    assert with_critic(tmp_path, (LOSS, right)).verdict in ("convention", "unbiased")


def test_a_sum_from_the_first_step_on_that_is_put_in_the_front_is_reversed(tmp_path: Path) -> None:
    report = audited(tmp_path, (_SUM, _SUM.replace("reversed(rewards)", "rewards")))
    assert [finding.rule for finding in report.findings] == ["reversed-returns"], report.text()


@pytest.mark.parametrize(
    ("credit", "rule"),
    [
        ("torch.cat([kept[1:], torch.zeros(1)])", "shifted-rewards"),
        ("kept.flip(0)", "reversed-returns"),
        ("returns.cumsum(0) / torch.arange(1, len(returns) + 1)", ""),
        ("torch.tensor(rewards).cumsum(0) / torch.arange(1, len(returns) + 1)", "rewards-so-far"),
    ],
)
def test_credit_in_the_wrong_place_is_known_by_what_the_rewards_move(
    tmp_path: Path, credit: str, rule: str
) -> None:
    values = "values.squeeze(1).detach()"
    loss = f"kept = {credit}\n    loss = critic_loss - (log_probs * (kept - {values})).sum()"
    report = with_critic(tmp_path, (LOSS, f"{_LAMBDA}{loss}"))
    assert rule in ("", *(finding.rule for finding in report.findings)), report.text()
    assert report.verdict == ("biased" if rule else "unexplained"), report.text()


@pytest.mark.parametrize("ended", ["done", "terminated"])
def test_a_constant_for_the_last_reward_is_another_objective_and_no_fault(
    tmp_path: Path, ended: str
) -> None:
    line = "        rewards.append(reward)\n        done = terminated or truncated\n"
    other = f"""        done = terminated or truncated
        rewards.append(-1.0 if {ended} else reward)
"""
    report = audited(tmp_path, (line, other), (LOSS, _UNDATED))
    assert report.verdict == "convention", report.text()
    assert {"reward-at-end", "gamma-t-dropped"} <= {named.name for named in report.conventions}
    wrong = audited(tmp_path, (line, other), (LOSS, _UNDATED.replace("-(", "(")))
    assert wrong.verdict == "wrong-sign", wrong.text()


def test_the_critics_own_value_of_the_action_is_a_choice(tmp_path: Path) -> None:
    target = "reward + GAMMA * (not terminated) * critic(following).max()"
    report = audited(tmp_path, ("CREDIT", f"value, {target}"), text=_STEPWISE)
    assert report.verdict == "convention", report.text()
    assert "Q(s, a)" in report.rule
    state = audited(tmp_path, ("CREDIT", f"critic(obs).sum(), {target}"), text=_STEPWISE)
    assert state.verdict not in ("convention", "unbiased"), state.text()


def test_a_limit_that_is_told_by_counting_steps_is_a_choice(tmp_path: Path) -> None:
    dead = "reward + GAMMA * (not (done and steps != limit)) * critic(following)[0]"
    credit = f"{dead} - critic(obs)[0], {dead}"
    report = audited(tmp_path, ("CREDIT", credit), text=_STEPWISE)
    assert report.verdict == "convention", report.text()
    assert "limit-told-by-count" in {named.name for named in report.conventions}
    cut = credit.replace("(done and steps != limit)", "done")
    faulty = audited(tmp_path, ("CREDIT", cut), text=_STEPWISE)
    assert [f.rule for f in faulty.findings] == ["truncation-as-termination"], faulty.text()


def test_probabilities_that_sum_to_one_over_time_are_not_the_ones_that_acted(
    tmp_path: Path,
) -> None:
    scored = """probs = torch.softmax(net(torch.as_tensor(numpy.array(observations))), 0)
    log_probs = probs.log()[torch.arange(len(actions)), actions]
    loss = -(log_probs * returns).sum()"""
    acting = "        action = dist.sample()\n"
    changes = (
        (LOSS, scored),
        ("import torch\n", "import numpy\nimport torch\n"),
        ("    log_probs, rewards", "    observations = []\n    actions, rewards"),
        ("log_probs.append(dist.log_prob(action))", "actions.append(action.item())"),
        (acting, f"        observations.append(obs)\n{acting}"),
        ("    log_probs = torch.stack(log_probs)\n", ""),
    )  # fmt: skip
    report = audited(tmp_path, *changes)
    assert [finding.rule for finding in report.findings] == ["softmax-over-steps"], report.text()
    right = audited(tmp_path, *changes[1:], (LOSS, scored.replace("), 0)", "), -1)")))
    assert right.verdict == "convention", right.text()


@pytest.mark.parametrize(
    ("baseline", "size"), [("0.0", 4), ("sum(kept) / len(kept)", 4), ("sum(kept) / len(kept)", 20)]
)
def test_a_batch_of_so_many_actions_leaves_the_rest_to_the_next_update(
    tmp_path: Path, baseline: str, size: int
) -> None:
    """As ptan's sources give them out: whole episodes, and the batch ends within one."""
    batch = f"""
    for step in range(len(returns)):
        kept.append(returns[step])
        waiting.append((log_probs[step], returns[step] - ({baseline})))
    if len(waiting) < {size}:
        continue
    used, waiting = waiting[:{size}], waiting[{size}:]
    loss = -torch.stack([log_prob * credit for log_prob, credit in used]).mean()"""
    report = audited(
        tmp_path,
        (LOSS, batch.strip()),
        ("for episode in range(1000):\n", "kept, waiting = [], []\nfor episode in range(1000):\n"),
    )
    assert report.verdict == "convention", report.text()
    assert f"first {size} decisions" in report.rule
    assert ("centred" in {named.name for named in report.conventions}) == ("kept" in baseline)


def test_an_optimizer_step_for_each_action_is_a_choice_with_a_name(tmp_path: Path) -> None:
    stepwise = """for step in range(len(returns)):
        score = net(torch.as_tensor(observations[step], dtype=torch.float32)).log_softmax(-1)
        loss = -(gamma_t[step] * returns[step] * score[actions[step]])
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
    report = audited(
        tmp_path,
        (f"{LOSS}\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n", stepwise),
        ("    log_probs, rewards", "    observations, actions = [], []\n    log_probs, rewards"),
        ("    log_probs = torch.stack(log_probs)\n", ""),
        ("        log_probs.append", "        observations.append(obs)\n        log_probs.append"),
        ("        rewards.append", "        actions.append(action)\n        rewards.append"),
    )  # fmt: skip
    assert report.verdict == "convention", report.text()
    assert [named.name for named in report.conventions] == ["step-per-action"]


@pytest.mark.parametrize(
    ("after", "filled"),
    [
        ("", ""),
        ("drawn = torch.rand(2)\ndrawn = torch.outer(drawn, drawn)\n", ""),
        ("", "torch.nn.init.orthogonal_(net[0].weight)\n"),
    ],
)
def test_a_network_made_after_a_first_reset_has_parameters_and_no_noise(
    tmp_path: Path, after: str, filled: str
) -> None:
    made = "net = torch.nn.Sequential("
    changes = (
        (made, f"env.reset(seed=0)\n{after}{made}"),
        ("Linear(8, 2))", 'Linear(8, 2)).to("cpu")'),
        ("opt = ", f"{filled}opt = "),
    )
    report = audited(tmp_path, *changes)
    assert report.verdict == "unbiased", report.text()
    assert bool(report.notes) == bool(after)  # a note on random numbers, where there are any


_CHOSEN = "gather(1, torch.tensor(actions)[:, None])[:, 0]"


@pytest.mark.parametrize(
    "weighed",
    [
        "scored * (scored.detach() - before).exp()",  # as in V-trace: only a number
        f"torch.Tensor(probs.exp()).{_CHOSEN} / before.exp()",
        f"probs.exp().{_CHOSEN} * (1.0 / before.exp())",  # which only its effect tells
        "torch.pow(torch.e, scored - before)",
        "scored",
    ],
)
def test_a_ratio_corrects_later_epochs(tmp_path: Path, weighed: str) -> None:
    """Its logarithm is 0 in the first epoch."""
    repeated = f"""before = torch.stack(log_probs).detach()
    for _ in range(2):
        probs = net(torch.as_tensor(numpy.array(observations))).log_softmax(-1)
        scored = probs[torch.arange(len(actions)), actions]
        loss = -({weighed} * returns).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
    report = audited(
        tmp_path,
        (f"{LOSS}\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n", repeated),
        *_KEPT,
        ("        log_probs.append", "        observations.append(obs)\n        log_probs.append"),
    )
    found = [finding.rule for finding in report.findings]
    expected = ["several-updates-without-ratio"] if weighed == "scored" else []
    assert found == expected, report.text()


@pytest.mark.parametrize("times", [1, 3])
def test_logits_over_a_temperature_are_no_ratio(tmp_path: Path, times: int) -> None:
    """And the line is that of the policy's own update, however often a critic has one."""
    repeated = f"""for _ in range(9):
        error = (critic(torch.as_tensor(numpy.array(observations))) - returns).pow(2).mean()
        learns.zero_grad()
        error.backward()
        learns.step()
    for _ in range({times}):
        scores = net(torch.as_tensor(numpy.array(observations))) / torch.full((2,), 0.5)
        scored = scores.log_softmax(-1)[torch.arange(len(actions)), actions]
        loss = -(scored * returns).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
    report = audited(
        tmp_path,
        (f"{LOSS}\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n", repeated),
        *_KEPT,
        ("        log_probs.append(dist.log_prob(action))", "        observations.append(obs)"),
        ("for episode in range(1000):\n", f"{_OTHER}for episode in range(1000):\n"),
        ("dtype=torch.float32))", "dtype=torch.float32)) / torch.full((2,), 0.5)"),
    )  # fmt: skip
    found = [finding.rule for finding in report.findings]
    assert found == (["several-updates-without-ratio"] if times > 1 else []), report.text()
    line = line_of(tmp_path / "program.py", "        loss.backward()")
    assert [finding.line for finding in report.findings] == [line] * (times > 1)


def test_powers_that_grow_from_the_end_are_found_where_they_are_added(tmp_path: Path) -> None:
    ended = """    power = 0
    for reward in reversed(rewards):
        running += GAMMA**power * reward
        power += 1
        returns.append(running)
    returns = returns[::-1]
"""
    report = audited(tmp_path, (_SUM, ended))
    line = line_of(tmp_path / "program.py", "GAMMA**power")
    assert [(f.rule, f.line) for f in report.findings] == [("discount-from-the-end", line)]


@pytest.mark.parametrize("shape", ["", ".unsqueeze(1)"])
def test_actions_that_are_scored_by_every_steps_distribution_are_a_broadcast(
    tmp_path: Path, shape: str
) -> None:
    scored = f"""dist = Categorical(logits=net(torch.as_tensor(numpy.array(observations))))
    scored = dist.log_prob(torch.tensor(actions){shape})
    loss = -(scored * returns{shape}).mean()"""
    report = audited(
        tmp_path,
        (LOSS, scored),
        *_KEPT,
        ("        log_probs.append(dist.log_prob(action))", "        observations.append(obs)"),
    )  # fmt: skip
    line = line_of(tmp_path / "program.py", "scored = dist")
    found = [(finding.rule, finding.line) for finding in report.findings]
    assert found == ([("broadcast", line)] if shape else []), report.text()


def test_a_wrapper_with_four_results_of_its_own_is_not_the_old_interface(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    old = "state, reward, done, cut = env.step(action)\n"
    path.write_text(old, encoding="utf-8")
    assert read_source(path).four_tuple
    own = "seen, reward, done, cut, _ = inner.step(action)\n"
    path.write_text(f"{old}{own}{old}", encoding="utf-8")
    assert not read_source(path).four_tuple


@pytest.mark.parametrize("frames", [2, 4])
def test_frames_that_a_wrapper_skips_are_one_step(frames: int, tmp_path: Path) -> None:
    wrapper = f"""class Skip(gym.Wrapper):
    def step(self, action):
        total = 0.0
        for _ in range({frames}):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
env = Skip(gym.make("CartPole-v1"))"""
    path = write_program(tmp_path, 'env = gym.make("CartPole-v1")', wrapper)
    report = audit_here(path, 60)
    assert (report.verdict, report.findings) == ("unbiased", ()), report.text()
    assert report.paths == 25


@pytest.mark.parametrize("penalty", ["p.pow(2).sum()", "p.abs().sum()"])
def test_a_penalty_on_the_parameters_is_a_choice(penalty: str, tmp_path: Path) -> None:
    added = f"\n    loss = loss + 0.01 * sum({penalty} for p in net.parameters())"
    report = audit_here(write_program(tmp_path, LOSS, LOSS + added), 60)
    assert (report.verdict, report.findings) == ("convention", ()), report.text()
    assert [named.name for named in report.conventions] == ["parameter-penalty"]
    assert report.rule.endswith("next to a term of the parameters alone")
    wrong = audit_here(write_program(tmp_path, LOSS, LOSS.replace("-(", "(") + added), 60)
    assert wrong.verdict not in ("convention", "unbiased"), wrong.text()


_TWO_EPISODES = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
learns = torch.optim.Adam(critic.parameters(), lr=1e-3)
while True:
    log_probs, values, returns = [], [], []
    for episode in range(2):
        obs, done, rewards = env.reset()[0], False, []
        while not done:
            seen = torch.as_tensor(obs, dtype=torch.float32)
            dist = Categorical(logits=actor(seen))
            action = dist.sample()
            obs, reward, terminated, truncated, _ = env.step(action.item())
            done = terminated or truncated
            log_probs.append(dist.log_prob(action))
            values.append(critic(seen).squeeze(-1))
            rewards.append(reward)
        returns += [sum(0.9**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    values, returns = torch.stack(values), torch.tensor(returns)
    advantage = returns - BASELINE
    advantage = (advantage - advantage.mean()) / advantage.std()
    opt.zero_grad()
    (-(torch.stack(log_probs) * advantage).sum()).backward()
    opt.step()
    learns.zero_grad()
    (values - returns).pow(2).mean().backward()
    learns.step()
"""


@pytest.mark.parametrize("baseline", ["values.detach()", "1.0"])
def test_advantages_that_only_a_probe_makes_equal_are_no_fault(
    baseline: str, tmp_path: Path
) -> None:
    """Equal returns are met elsewhere too; a critic's values differ with every state."""
    path = tmp_path / "program.py"
    path.write_text(_TWO_EPISODES.replace("BASELINE", baseline), encoding="utf-8")
    report = audit_here(path, 60)
    found = [(finding.rule, finding.severity) for finding in report.findings]
    critic = baseline != "1.0"
    assert found == [("non-finite-gradient", "warning" if critic else "fault")], report.text()
    assert report.verdict == ("convention" if critic else "biased")


def test_a_critic_that_learns_the_rewards_of_normal_actions_is_no_attached_advantage(
    tmp_path: Path,
) -> None:
    """Other parameters draw other numbers, and these earn other rewards."""
    report = with_critic(
        tmp_path,
        ("CartPole-v1", "Pendulum-v1"),
        ("Linear(4, 8)", "Linear(3, 8)"),
        ("Linear(8, 2)", "Linear(8, 1)"),
        ("import Categorical", "import Normal"),
        ("Categorical(logits=net(", "Normal(net("),
        ("float32)))", "float32)), 0.5)"),
        ("log_prob(action)", "log_prob(action).sum()"),
        ("action.item()", "action.numpy()"),
        (LOSS, "loss = critic_loss - (log_probs * returns).sum()"),
    )
    assert report.verdict == "convention", report.text()
    assert not report.findings, report.text()


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([[1.0, 0.8, 0.6], [0.0, 0.9, 0.7], [0.0, 1.0, 0.8], [0.0, 0.0, 1.0]], True),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.8], [0.0, 0.0, 1.0]], False),
        ([[1.0, 0.8, 0.6], [0.1, 0.9, 0.7], [0.2, 1.0, 0.8], [0.3, 0.1, 1.0]], False),
    ],
)
def test_advantages_that_run_on_over_the_ends_of_episodes_are_known_by_their_numbers(
    rows: list[list[float]], found: bool
) -> None:
    """Two episodes, and between them a step that a vector environment ignores."""
    steps = tuple(
        Step(0, episode, time, 0, 1.0, 0, False, False, (), ())
        for episode, time in ((0, 0), (1, 0), (1, 1))
    )
    none = np.zeros(4, dtype=bool)
    made = Statement(
        ("program.py", 7),
        "credit",
        np.zeros(4),
        np.array(rows),
        np.ones(4),
        none,
        False,
        none,
        4,
        1,
    )
    assert (run_on(Story((made,), steps, 4, frozenset(), False)) is not None) == found


def test_a_sample_for_the_test_takes_no_tensor_of_the_policy_for_a_critics(tmp_path: Path) -> None:
    """Its eligibilities are taken along a few tensors, and the policy has more."""
    deep = "Linear(8, 2)"
    path = write_program(tmp_path, deep, f"Linear(8, 8), torch.nn.Tanh(), torch.nn.{deep}")
    runner = CallableRunner(lambda: runpy.run_path(str(path), run_name="__main__"))
    known = survey(runner, 60, 12, lambda *_: None)
    told = resampled(known, runner, 3, lambda *_: None)
    assert not known.shared
    assert not told.shared


# Two episodes a batch, scored after they were played, the last one first.
_BATCHED = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for batch in range(1000):
    episodes = []
    for number in range(2):
        obs, _ = env.reset()
        episode, done = [], False
        while not done:
            obs = torch.as_tensor(obs, dtype=torch.float32)
            action = Categorical(logits=net(obs)).sample()
            following, reward, terminated, truncated, _ = env.step(action.item())
            episode.append((obs, action, reward))
            obs, done = following, terminated or truncated
        episodes.append(episode)
    loss = 0.0
    for episode in reversed(episodes):
        dist = Categorical(logits=net(torch.stack([obs for obs, *_ in episode])))
        log_probs = dist.log_prob(torch.stack([action for _, action, _ in episode]))
        rewards = torch.tensor([reward for *_, reward in episode])
        returns = rewards.flip(0).cumsum(0).flip(0)
        loss = loss - (log_probs * returns.exp()).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_episodes_that_are_scored_in_another_order_are_the_ones_that_acted(tmp_path: Path) -> None:
    report = audited(tmp_path, text=_BATCHED)
    assert [finding.rule for finding in report.findings] == ["unexplained"], report.text()


_BATCHES = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.99
env = gym.make("CartPole-v1")
actor = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
opt = torch.optim.Adam(actor.parameters(), lr=1e-2)
learns = torch.optim.Adam(critic.parameters(), lr=1e-2)
while True:
    log_probs, values, returns = [], [], []
    for episode in range(4):
        (obs, _), rewards, done = env.reset(), [], False
        while not done:
            obs = torch.as_tensor(obs, dtype=torch.float32)
            dist = Categorical(logits=actor(obs))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            values.append(critic(obs)[0])
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        running, own = 0.0, []
        for reward in reversed(rewards):
            running = reward + GAMMA * running
            own.insert(0, running)
        returns += own
    returns, values = torch.tensor(returns), torch.stack(values)
    advantages = returns - values.detach()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    loss = -(torch.stack(log_probs) * advantages).mean() + (values - returns).pow(2).mean()
    opt.zero_grad()
    learns.zero_grad()
    loss.backward()
    opt.step()
    learns.step()
"""


def test_advantages_over_a_deviation_that_the_critic_enters_are_read_from_large_batches(
    tmp_path: Path,
) -> None:
    """The critic sees what is shown, so that the weights are not those of other features."""
    report = audited(tmp_path, text=_BATCHES)
    assert report.verdict == "convention", report.text()
    assert {"baseline", "whitened"} <= {each.name for each in report.conventions}


# The critic's values of actions, through which the policy climbs; it plays two steps an update.
_PATHWISE = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
actor = torch.nn.Linear(3, 1)
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
acts = torch.optim.Adam(actor.parameters(), lr=1e-3)
values = torch.optim.Adam(critic.parameters(), lr=1e-3)
while True:
    obs, _ = env.reset()
    states, actions, rewards, done = [], [], [], False
    while not done:
        state = torch.as_tensor(obs, dtype=torch.float32)
        with torch.no_grad():
            action = Normal(actor(state), 0.5).sample()
        obs, reward, terminated, truncated, _ = env.step(action.numpy())
        states.append(state), actions.append(action), rewards.append(reward)
        done = terminated or truncated
    states, actions = torch.stack(states), torch.stack(actions)
    rewards = torch.tensor(rewards, dtype=torch.float32)[:, None]
    error = (critic(torch.cat([states, actions], 1)) - rewards).square().mean()
    values.zero_grad()
    error.backward()
    values.step()
    LOSS
    acts.zero_grad()
    loss.backward()
    acts.step()
"""


def test_a_policy_that_climbs_a_critics_values_is_not_judged(tmp_path: Path) -> None:
    drawn = "Normal(actor(states), 0.5).rsample()"
    loss = f"loss = -critic(torch.cat([states, {drawn}], 1)).mean()"
    report = audited(tmp_path, ("LOSS", loss), text=_PATHWISE)
    assert (report.verdict, report.findings) == ("inconclusive", ()), report.text()
    assert "as SAC, TD3 and DDPG do" in report.summary


def test_a_policy_is_no_critics_where_an_episodes_only_reward_is_replaced(tmp_path: Path) -> None:
    """The probabilities that are scored sum to 1 over time: no weights of the actions give that."""
    loss = """critic, scored = head(hidden)[:, 0], last(hidden).softmax(0).log()
    scored = scored[torch.arange(len(actions)), torch.stack(actions)]
    loss = -(scored * (returns - critic.detach())).sum() + (returns - critic).square().sum()"""
    changes = (
        ("import torch\n", "import numpy as np\nimport torch\n"),
        ("opt =", "last, head = net[-1], torch.nn.Linear(8, 1)\nopt ="),
        ("net.parameters()", "[*net.parameters(), *head.parameters()]"),
        (
            "log_probs, rewards, done = [], [], False",
            "seen, actions, rewards, done = [], [], [], 0",
        ),
        ("log_probs.append(dist.log_prob(action))", "seen.append(obs), actions.append(action)"),
        ("    returns, running", "    rewards[-1] = -1.0\n    returns, running"),
        ("log_probs = torch.stack(log_probs)", "hidden = net[:-1](torch.tensor(np.array(seen)))"),
        (LOSS, loss),
    )
    report = audited(tmp_path, *changes)
    assert [finding.rule for finding in report.faults] == ["softmax-over-steps"], report.text()


def test_a_policy_that_weighs_its_actions_by_values_alone_is_judged(tmp_path: Path) -> None:
    weights = "critic(torch.cat([states, actions.square()], 1)).detach()"
    loss = f"loss = -(Normal(actor(states), 0.5).log_prob(actions) * {weights}).sum()"
    report = audited(tmp_path, ("LOSS", loss), text=_PATHWISE)
    assert "as SAC, TD3 and DDPG do" not in report.summary, report.text()


def test_an_elites_actions_are_no_returns_that_are_cut_to_integers(tmp_path: Path) -> None:
    """Small changes of the rewards change nothing there either; nor does their size."""
    elite = "-log_probs.sum() if rewards.sum() >= best else 0.0"
    best = "best = max(sum(reward for *_, reward in episode) for episode in episodes)"
    changes = (
        ("loss = loss - (log_probs * returns.exp()).sum()", f"loss = loss + ({elite})"),
        ("    loss = 0.0", f"    {best}\n    loss = 0.0"),
    )
    report = audited(tmp_path, *changes, text=_BATCHED)
    assert [finding.rule for finding in report.findings] == ["unexplained"], report.text()


_RESCALED = """    loss, centred = 0.0, gathered - gathered.mean()
    scale = SCALE
    for episode in episodes:
        centred, credit = centred[len(episode) :], centred[: len(episode)] / scale
"""


@pytest.mark.parametrize(
    ("scale", "named"),
    [
        ("(centred.abs().max() + 1e-8)", {"centred", "rescaled"}),
        ("(gathered[None] - torch.arange(5.0)[:, None]).norm()", {"centred", "rescaled"}),
        ("(centred[:1].sum() + 1e-8)", set()),
    ],
)
def test_credits_over_a_number_of_their_batch_are_told(
    scale: str, named: set[str], tmp_path: Path
) -> None:
    """A number that may be negative is none: it turns the gradient round."""
    gathered = "torch.cat([_to_go(episode) for episode in episodes])"
    to_go = "torch.tensor([reward for *_, reward in episode]).flip(0).cumsum(0).flip(0)"
    report = audited(
        tmp_path,
        ("env = gym", f"def _to_go(episode):\n    return {to_go}\n\n\nenv = gym"),
        ("    loss = 0.0\n", f"    gathered = {gathered}\n    loss = 0.0\n"),
        ("    loss = 0.0\n", _RESCALED.replace("SCALE", scale)),
        ("    for episode in reversed(episodes):\n", ""),
        ("returns.exp()", "credit"),
        text=_BATCHED,
    )
    assert {convention.name for convention in report.conventions} == named, report.text()
    assert report.verdict == ("convention" if named else "unexplained"), report.text()


@pytest.mark.parametrize(
    ("earned", "told"),
    [
        ("reward - 0.01", "with -0.01 added to each reward"),
        ("max(-1.0, min(1.0, reward))", "with other rewards: -1.32 is -1, 1.14 is 1"),
        ("float((reward > 0) - (reward < 0))", "-0.25 is -1, 0.11 is 1, 0.42 is 1, 1.14 is 1"),
    ],
)
def test_rewards_that_are_changed_before_they_are_used_are_told(
    earned: str, told: str, tmp_path: Path
) -> None:
    text = PROGRAM.replace("rewards.append(reward)", f"rewards.append({earned})")
    report = audited(tmp_path, text=text)
    assert not report.findings, report.text()
    assert {named.name for named in report.conventions} == {"reward-changed"}
    assert told in report.rule, report.rule
    assert report.updates == 2


@pytest.mark.parametrize(
    ("summed", "named"),
    [
        (_SUM, {"reward-changed", "gamma-t-dropped"}),
        (
            "    returns = [sum(GAMMA**t * r for t, r in enumerate(rewards))] * len(rewards)\n",
            {"reward-changed", "whole-episode-return"},
        ),
    ],
)
def test_a_number_of_the_next_state_in_each_reward_is_told(
    summed: str, named: set[str], tmp_path: Path
) -> None:
    earned = "rewards.append(reward - abs(float(obs[2])) - abs(float(obs[0])))"
    text = PROGRAM.replace("rewards.append(reward)", earned).replace(_SUM, summed)
    report = audited(tmp_path, (LOSS, _UNDATED), text=text)
    assert not report.findings, report.text()
    assert {convention.name for convention in report.conventions} == named
    assert "a number that depends on the next state added to each reward" in report.rule, (
        report.rule
    )
    assert report.updates == 2


_SEEN = "        seen.append(round(float(obs[0]), 3))\n        rewards.append("


@pytest.mark.parametrize(
    ("earned", "summed", "named"),
    [
        ("reward + 0.1 / seen.count(seen[-1]) ** 0.5", _SUM, {"reward-changed"}),
        ("reward + 0.1 * len(set(seen))", _SUM, {"reward-changed"}),
        (
            "reward",
            "    rewards = [r + 0.1 * len(set(seen[i:])) for i, r in enumerate(rewards)]\n" + _SUM,
            set(),
        ),
        (
            "reward + 0.1 / seen.count(seen[-1]) ** 0.5",
            _SUM.replace("reversed(rewards)", "rewards"),
            None,
        ),
    ],
    ids=["visits", "states so far", "states to come", "returns reversed"],
)
def test_a_bonus_for_what_an_episode_has_seen_seldom_is_told(
    earned: str, summed: str, named: set[str] | None, tmp_path: Path
) -> None:
    """One for what it is going to see is none; and it hides no fault."""
    text = PROGRAM.replace("        rewards.append(reward", f"{_SEEN}{earned}").replace(
        _SUM, summed
    )
    text = text.replace("    log_probs, rewards, done = [], [], False", _WITH_STATES)
    report = audited(tmp_path, text=text)
    if named:
        assert {convention.name for convention in report.conventions} == named, report.text()
        assert "a number that depends on the states so far" in report.rule, report.rule
        assert any("what is added to the rewards there is not known" in n for n in report.notes)
    elif named is None:
        assert [finding.rule for finding in report.faults] == ["reversed-returns"], report.text()
    else:
        assert report.verdict == "unexplained", report.text()


_WITH_STATES = "    log_probs, rewards, seen, done = [], [], [], False"
_LEARNT = "learnt = critic(torch.stack(seen))[:, 0]\n    values = learnt.detach()"
_SHAPED = "rewards.append(1.9 - abs(float(obs[0])) / 2.4 - abs(float(obs[2])) / 0.2)"


@pytest.mark.parametrize(
    ("used", "named"),
    [
        ("returns", {"reward-changed", "gamma-t-dropped"}),
        (
            "(returns - returns.mean()) / (returns.std(unbiased=False) + 1e-8)",
            {"reward-changed", "gamma-t-dropped", "whitened"},
        ),
        ("(returns - values)", {"reward-changed", "gamma-t-dropped", "baseline"}),
        ("values", set()),
        ("(returns.flip(0) - values)", set()),
        ("torch.tensor(rewards)", set()),
    ],
)
def test_a_number_of_the_next_state_in_place_of_each_reward_is_told(
    used: str, named: set[str], tmp_path: Path
) -> None:
    """As in the CartPole of many tutorials; what only looks alike stays unexplained."""
    text = PROGRAM.replace("rewards.append(reward)", _SHAPED)
    if "values" in used:
        critic = "opt = torch.optim.Adam([*net.parameters(), *critic.parameters()], lr=1e-2)"
        text = text.replace(
            "opt = torch.optim.Adam(net.parameters(), lr=1e-2)",
            f"critic = torch.nn.Linear(4, 1)\n{critic}",
        )
        text = text.replace(
            "        action = dist.sample()",
            "        seen.append(torch.as_tensor(obs, dtype=torch.float32))\n"
            "        action = dist.sample()",
        ).replace("    log_probs, rewards, done = [], [], False", _WITH_STATES)
        text = text.replace(LOSS, f"{_LEARNT}\n    {LOSS} + (learnt - returns).pow(2).sum()")
    report = audited(tmp_path, (LOSS, f"loss = -(log_probs * {used}).sum()"), text=text)
    assert not report.faults, report.text()
    assert {convention.name for convention in report.conventions} >= named, report.text()
    assert report.verdict == ("convention" if named else "unexplained"), report.text()
    assert ("in place of each reward" in report.rule) == bool(named), report.rule


def test_a_number_of_the_next_state_hides_no_sign(tmp_path: Path) -> None:
    earned = "rewards.append(reward - abs(float(obs[2])))"
    text = PROGRAM.replace("rewards.append(reward)", earned)
    report = audited(tmp_path, (LOSS, LOSS.replace("-", "")), text=text)
    assert report.verdict == "wrong-sign", report.text()


def test_what_explores_beside_the_policy_is_no_policy_that_is_not_updated(tmp_path: Path) -> None:
    """It is scored as if the policy had acted: that is the one fault."""
    drawn = "action = dist.sample() if torch.rand(()) > 0.1 else torch.randint(2, ())"
    text = PROGRAM.replace("action = dist.sample()", drawn)
    report = audited(tmp_path, text=text)
    assert [finding.rule for finding in report.faults] == ["behaviour-not-scored"], report.text()


def test_a_program_that_descends_on_changed_rewards_has_the_wrong_sign(tmp_path: Path) -> None:
    text = PROGRAM.replace("rewards.append(reward)", "rewards.append(max(-1.0, min(1.0, reward)))")
    report = audited(tmp_path, (LOSS, LOSS.replace("-", "")), text=text)
    assert report.verdict == "wrong-sign", report.text()


def test_an_action_that_is_scored_before_the_training_is_not_the_one_that_acted(
    tmp_path: Path,
) -> None:
    """A cell of a notebook tries the policy out; an episode of one step then has two scores."""
    path = write_program(tmp_path, "GAMMA * running", "abs(running) ** GAMMA")
    tried = "env.reset()\nCategorical(logits=net(torch.ones(4))).log_prob(torch.tensor(0))\n"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("for episode", f"{tried}for episode", 1), encoding="utf-8")
    report = audit_here(path, 60)
    assert report.verdict == "unexplained"
    assert [finding.rule for finding in report.findings] == ["unexplained"]


_TWICE = """
import gymnasium as gym
import torch
from torch.distributions import Normal

env = gym.make("Pendulum-v1")
actor = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
critic, spread = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.zeros(1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters(), spread], lr=1e-2)
while True:
    seen, numbers, actions, returns = [], [], [], []
    for episode in range(2):
        obs, _ = env.reset()
        rewards, done = [], False
        while not done:
            seen.append(torch.as_tensor(obs, dtype=torch.float32))
            dist = Normal(actor(seen[-1]), spread.exp())
            numbers.append(dist.sample())
            log_prob = dist.log_prob(numbers[-1])
            actions.append(2.0 * numbers[-1])
            obs, reward, terminated, truncated, _ = env.step(actions[-1].numpy())
            rewards.append(reward)
            done = terminated or truncated
        returns += [sum(rewards[t:]) for t in range(len(rewards))]
    seen, returns = torch.stack(seen), torch.tensor(returns)
    scored = Normal(actor(seen), spread.exp()).log_prob(torch.stack(SCORED)).squeeze(1)
    values = critic(seen).squeeze(1)
    loss = (returns - values).pow(2).sum() - (scored * (returns - values.detach())).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("scored", "rules"), [("actions", ["transformed-action-scored"]), ("numbers", [])]
)
def test_actions_that_were_scored_as_drawn_before_are_scored_as_executed(
    scored: str, rules: list[str], tmp_path: Path
) -> None:
    """Its paths are too many for an enumeration, and a critic's values are in its weights."""
    path = tmp_path / "program.py"
    path.write_text(_TWICE.replace("SCORED", scored), encoding="utf-8")
    report = audit_here(path, 6, 24)
    assert not report.exhaustive
    assert [finding.rule for finding in report.findings] == rules, report.text()
    assert report.verdict == ("biased" if rules else "unbiased"), report.text()


_SIGNS = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
while True:
    obs, _ = env.reset()
    seen, actions, rewards, done = [], [], [], False
    while not done:
        seen.append(torch.as_tensor(obs, dtype=torch.float32))
        actions.append(torch.multinomial(net(seen[-1]).softmax(0), 1))
        obs, reward, terminated, truncated, _ = env.step(actions[-1].item())
        rewards.append(reward)
        done = terminated or truncated
    returns = torch.tensor([sum(rewards[t:]) for t in range(len(rewards))])
    actions = torch.cat(actions)
    probs = net(torch.stack(seen)).softmax(1)
    learned = torch.where(returns > 0, actions, 1 - actions)
    loss = torch.nn.functional.cross_entropy(SCORED, learned)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("scored", "rules"),
    [("probs", ["behaviour-not-scored"]), ("probs.log()", ["scored-other-action"])],
)
def test_probabilities_that_a_cross_entropy_takes_for_logits_are_not_scored(
    scored: str, rules: list[str], tmp_path: Path
) -> None:
    """Only the sign of a return says which of two actions is learned: often not the one taken."""
    report = audited(tmp_path, text=_SIGNS.replace("SCORED", scored))
    assert [finding.rule for finding in report.findings] == rules, report.text()


@pytest.mark.parametrize(("over", "rules"), [("0", ["softmax-over-steps"]), ("1", ["unexplained"])])
def test_probabilities_over_the_steps_of_a_batch_are_not_those_that_acted(
    over: str, rules: list[str], tmp_path: Path
) -> None:
    """The program tries its policy out before it trains, which nothing scores."""
    tried = "torch.multinomial(net(torch.as_tensor(env.reset()[0])).softmax(0), 1).item()"
    weighed = "probs.gather(1, actions[:, None])[:, 0].log() * returns.sign()"
    report = audited(
        tmp_path,
        ("while True:", f"env.step({tried})\nwhile True:"),
        ("net(torch.stack(seen)).softmax(1)", f"torch.nn.Softmax({over})(net(torch.stack(seen)))"),
        ("torch.nn.functional.cross_entropy(SCORED, learned)", f"-({weighed}).sum()"),
        text=_SIGNS,
    )
    assert [finding.rule for finding in report.findings] == rules, report.text()


def test_an_episode_that_is_thrown_away_before_there_is_an_optimizer_is_no_part_of_the_batch(
    tmp_path: Path,
) -> None:
    """In it nothing is known to be trained; what is scored and credited is the next one."""
    rehearsal = """obs, _ = env.reset()
done = False
while not done:
    action = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32))).sample()
    obs, _, terminated, truncated, _ = env.step(action.item())
    done = terminated or truncated
opt = """
    report = audit_here(write_program(tmp_path, "opt = ", rehearsal), max_paths=30)
    assert report.verdict == "unbiased", report.text()
    assert "last episodes only" in report.rule
    path = write_program(tmp_path, "opt = ", rehearsal)
    path.write_text(path.read_text().replace(LOSS, "loss = -(log_probs * returns[0]).sum()"))
    report = audit_here(path, max_paths=30)
    assert "whole-episode-return" in [c.name for c in report.conventions], report.text()


def test_what_an_episode_had_left_at_its_end_is_missed_where_updates_cut_episodes(
    tmp_path: Path,
) -> None:
    """An update every third step, on the steps of the present episode; a reset forgets them."""
    acting, rest = PROGRAM.split("    returns, running = [], 0.0\n")
    learning = f"    returns, running = [], 0.0\n{rest}"
    inside = "".join(f"        {line}\n" for line in learning.splitlines())
    text = (
        acting.replace("for episode", "steps = 0\nfor episode")
        + "        steps += 1\n        if steps % 3 == 0:\n"
        + inside
        + "            log_probs, rewards = [], []\n"
    )
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    report = audit_here(path, max_paths=60)
    assert report.verdict == "biased", report.text()
    assert [finding.rule for finding in report.faults] == ["last-step-dropped"]


def test_nine_numbers_that_are_seen_are_no_square_of_scores(tmp_path: Path) -> None:
    # of three steps, on the line of log_prob
    acts = PROGRAM[PROGRAM.index("        dist =") : PROGRAM.index("        obs, reward")]
    on_one_line = """        board = np.tile(obs, 3)[:9]
        dist = Categorical(logits=net(torch.as_tensor(board, dtype=torch.float32)))
        action = dist.sample(); log_probs.append(dist.log_prob(action)); board = list(board)
"""
    report = audited(
        tmp_path,
        ("torch.nn.Linear(4, 8)", "torch.nn.Linear(9, 8)"),
        (acts, on_one_line),
        ("import torch\n", "import numpy as np\nimport torch\n"),
        (LOSS, "loss = -(log_probs.sum() * rewards[-1])"),
    )
    assert [finding.rule for finding in report.findings] == ["unexplained"], report.text()
    assert "only the last reward of an episode moves its weights" in report.findings[0].evidence
