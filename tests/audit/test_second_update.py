"""Faults that only the second update shows, and programs that carry something over by right."""

from __future__ import annotations

import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from eligibility.audit.job import SIZES, Job
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.rounds import observe_rounds
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import Survey
from eligibility.audit.trace import RATIO
from tests.audit.writing import PROGRAM, audit_here, line_of
from tests.audit.zoo.inspection import audit_program
from tests.audit.zoo.mutations import mutants

# One agent in two forms: log-probabilities kept from acting, and a batch that is scored again.
# What the faults carry over stands before the loop.
KEPT = PROGRAM
for part, own in (
    (
        "torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))",
        "torch.nn.Linear(4, 2)",
    ),
    ("for episode in", "before, baseline = None, 0.0\nlog_probs, rewards = [], []\nfor episode in"),
    ("    log_probs = torch.stack", "    scores = torch.stack"),
    ("gamma_t * log_probs", "gamma_t * scores"),
):
    assert part in KEPT
    KEPT = KEPT.replace(part, own)
SCORED = """
import copy
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.9
env = gym.make("CartPole-v1")
net = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
other = copy.deepcopy(net)
for update in range(1000):
    batch = []
    obs, _ = env.reset()
    rewards, done = [], False
    while not done:
        obs = torch.as_tensor(obs, dtype=torch.float32)
        with torch.no_grad():
            dist = Categorical(logits=net(obs))
            action = dist.sample()
        following, reward, terminated, truncated, _ = env.step(action.item())
        batch.append([obs, action, dist.log_prob(action), 0.0])
        rewards.append(reward)
        obs, done = following, terminated or truncated
    running = 0.0
    for back in range(1, len(rewards) + 1):
        running = rewards[-back] + GAMMA * running
        batch[-back][3] = running
    states = torch.stack([row[0] for row in batch])
    actions = torch.stack([row[1] for row in batch])
    old = torch.stack([row[2] for row in batch])
    returns = torch.tensor([row[3] for row in batch])
    for epoch in range(2):
        log_probs = Categorical(logits=net(states)).log_prob(actions)
        ratio = (log_probs - old).exp()
        loss = -torch.min(ratio * returns, ratio.clamp(0.8, 1.2) * returns).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
# Four steps an update, within an episode of up to three, with the critic's value of the rest.
CRITIC = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

GAMMA = 0.9
env = gym.make("CartPole-v1")
actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
opt = torch.optim.Adam(actor.parameters(), lr=1e-2)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-2)
obs = torch.as_tensor(env.reset()[0], dtype=torch.float32)
while True:
    log_probs, seen, following, rewards, stops, ends = [], [], [], [], [], []
    for _ in range(4):
        dist = Categorical(logits=actor(obs))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        seen.append(obs)
        new, reward, terminated, truncated, _ = env.step(action.item())
        following.append(torch.as_tensor(new, dtype=torch.float32))
        rewards.append(reward)
        stops.append(float(terminated))
        ends.append(terminated or truncated)
        obs = torch.as_tensor(env.reset()[0] if ends[-1] else new, dtype=torch.float32)
    rewards, stops = torch.tensor(rewards), torch.tensor(stops)
    values = critic(torch.stack(seen)).squeeze(-1)
    next_values = critic(torch.stack(following)).squeeze(-1)
    target = rewards + GAMMA * (1 - stops) * next_values.detach()
    advantage = (target - values).detach()
    opt.zero_grad()
    (-(torch.stack(log_probs) * advantage).sum()).backward()
    opt.step()
    for _ in range(2):
        critic_opt.zero_grad()
        (critic(torch.stack(seen)).squeeze(-1) - target).pow(2).mean().backward(retain_graph=True)
        critic_opt.step()
"""
# Two steps of two environments; what is cut off is taken for terminated.
ACTORS = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

envs = gym.vector.SyncVectorEnv(
    [lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
)
actor = torch.nn.Linear(4, 2)
critic = torch.nn.Linear(4, 1)
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
obs = torch.as_tensor(envs.reset()[0], dtype=torch.float32)
while True:
    log_probs, values, rewards, kept = [], [], [], []
    for _ in range(2):
        dist = Categorical(logits=actor(obs))
        action = dist.sample()
        new, reward, terminated, truncated, _ = envs.step(action.numpy())
        log_probs.append(dist.log_prob(action))
        values.append(critic(obs).squeeze(-1))
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        kept.append(torch.as_tensor(~(terminated | truncated), dtype=torch.float32))
        obs = torch.as_tensor(new, dtype=torch.float32)
    running, returns = critic(obs).squeeze(-1), []
    for reward, keep in zip(reversed(rewards), reversed(kept)):
        running = reward + 0.9 * running * keep
        returns.insert(0, running)
    advantage = torch.stack(returns).detach() - torch.stack(values)
    loss = -(torch.stack(log_probs) * advantage.detach()).mean() + advantage.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
LOSS = "    loss = -(gamma_t * scores * returns).sum()\n"


def audit(
    folder: Path, program: str, *changes: tuple[str, str], max_paths: int = 60
) -> AuditReport:
    """The audit of a program with some of its parts exchanged, in this process."""
    for old, new in changes:
        assert old in program, old
        program = program.replace(old, new)
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return audit_here(path, max_paths)


FAULTS = {
    "gradients-not-zeroed": (KEPT, "loss.backward()", [("    opt.zero_grad()\n", "")]),
    "stale-graph": (
        KEPT,
        "log_probs.append(",
        [
            ("    log_probs, rewards, done = [], [], False", "    rewards, done = [], False"),
            ("scores = torch.stack(log_probs)", "scores = torch.stack(log_probs)[-len(returns):]"),
        ],
    ),
    "second-update-fails": (
        KEPT,
        "loss = ",
        [("    log_probs, rewards, done = [], [], False", "    log_probs, done = [], False")],
    ),
    "stale-batch": (
        SCORED,
        "batch.append",
        [("    batch = []\n", ""), ("other = copy", "batch = []\nother = copy")],
    ),
    "old-log-prob-stale": (
        SCORED,
        "old = Categorical",
        [("    old = torch.stack([row[2] for row in batch])",
          "    old = Categorical(logits=other(states)).log_prob(actions).detach()")],
    ),
    "ratio-always-one": (
        SCORED, "ratio = ", [("log_probs - old)", "log_probs - log_probs.detach())")]
    ),
    "acting-policy-stale": (
        SCORED,
        "other = copy",
        [("logits=net(obs)", "logits=other(obs)"),
         ("ratio = (log_probs - old).exp()", "ratio = log_probs"),
         ("ratio.clamp(0.8, 1.2)", "ratio"), ("range(2)", "range(1)")],
    ),
    "second-update-differs": (
        KEPT,
        "loss = ",
        [(LOSS, "    share = len(rewards) ** baseline\n"
                "    loss = -(gamma_t * scores * returns).sum() * share\n    baseline = 1.0\n")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_of_the_second_update_is_named_on_its_line(rule: str, tmp_path: Path) -> None:
    program, line, changes = FAULTS[rule]
    report = audit(tmp_path, program, *changes)
    assert [finding.rule for finding in report.findings] == [rule], report.text()
    assert report.findings[0].line == line_of(tmp_path / "program.py", line)
    known = rule != "second-update-differs"
    assert report.verdict == ("biased" if known else "unexplained")
    assert (report.updates, report.exit_status) == (2, 1 if known else 3)


def test_what_a_fault_says_of_a_line_is_not_said_to_be_unknown_as_well(tmp_path: Path) -> None:
    report = audit(tmp_path, SCORED, ("ratio.clamp(0.8, 1.2)", "ratio.clamp(1.2, 0.8)"))
    assert [finding.rule for finding in report.findings] == ["clip-bounds-swapped"], report.text()
    assert report.findings[0].line == line_of(tmp_path / "program.py", "clamp(1.2")
    assert report.verdict == "biased"


def test_a_program_that_stops_between_its_two_losses_is_told_why(tmp_path: Path) -> None:
    report = audit(
        tmp_path,
        CRITIC,
        ("(target - values).detach()", "target - values"),
        ("(critic(torch.stack(seen)).squeeze(-1) - target)", "(values - target)"),
    )
    assert [finding.rule for finding in report.findings] == ["graph-used-twice"], report.text()
    assert report.findings[0].line == line_of(tmp_path / "program.py", "(values - target)")
    assert (report.verdict, report.updates) == ("biased", 1)


EVALUATED = (
    "for episode in",
    """
def evaluate(env):
    obs, _ = env.reset(seed=1)
    done = False
    while not done:
        action = net(torch.as_tensor(obs, dtype=torch.float32)).argmax().item()
        obs, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated

other = gym.make("CartPole-v1")
for episode in""",
)
RIGHT = {
    "as it is": (KEPT, []),
    "clipped, two epochs": (SCORED, []),
    "clipped, with a dimension more before the exponential, as in TorchRL": (
        SCORED,
        [("(log_probs - old).exp()", "(log_probs - old).unsqueeze(-1).exp()"),
         ("for row in batch])\n    for", "for row in batch]).unsqueeze(-1)\n    for")],
    ),
    "a running baseline of the batches before": (
        KEPT,
        [(LOSS, "    loss = -(gamma_t * scores * (returns - baseline)).sum()\n"
                "    baseline = 0.9 * baseline + 0.1 * returns.mean()\n")],
    ),
    "gradients added up over micro-batches": (
        KEPT,
        [("    opt.zero_grad()\n    loss.backward()\n",
          "    for part in (0, 1):\n"
          "        (-(gamma_t * scores * returns)[part::2].sum()).backward(retain_graph=True)\n"),
         ("    opt.step()\n", "    opt.step()\n    opt.zero_grad(set_to_none=False)\n")],
    ),
    "a critic's step comes between the ratio and its loss's backward": (
        SCORED,
        [("net = torch.nn.Linear(4, 2)\n",
          "net = torch.nn.Sequential(\n"
          "    torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))\n"
          "critic = torch.nn.Linear(4, 1)\n"
          "learns = torch.optim.Adam(critic.parameters(), lr=1e-2)\n"),
         ("        opt.zero_grad()\n",
          "        learns.zero_grad()\n"
          "        (critic(states).squeeze(-1) - returns).pow(2).sum().backward()\n"
          "        learns.step()\n"
          "        opt.zero_grad()\n")],
    ),
    "a copy acts, is loaded every fourth update, and a ratio is clipped": (
        SCORED,
        [("logits=net(obs)", "logits=other(obs)"),
         ("    batch = []\n", "    batch = []\n    if update % 4 == 0:\n"
                              "        other.load_state_dict(net.state_dict())\n")],
    ),
    "lists of an object, emptied after the update": (
        KEPT,
        [("    log_probs, rewards, done = [], [], False", "    done = False"),
         ("    opt.step()\n", "    opt.step()\n    del log_probs[:]\n    rewards.clear()\n")],
    ),
    "an evaluation of the likeliest actions in an environment of its own, before every update": (
        KEPT,
        [EVALUATED,
         ("    log_probs, rewards, done", "    evaluate(other)\n    log_probs, rewards, done")],
    ),
    "the same after every update": (
        KEPT, [EVALUATED, ("    opt.step()\n", "    opt.step()\n    evaluate(other)\n")],
    ),
    "the same in the environment that is trained in": (
        KEPT,
        [EVALUATED,
         ("    obs, _ = env.reset()\n    log_", "    evaluate(env)\n"
                                              "    obs, _ = env.reset()\n    log_")],
    ),
    "a checkpoint that is written and loaded": (
        KEPT,
        [("    opt.step()\n", "    opt.step()\n    torch.save(net.state_dict(), 'last.pt')\n"
                              "    net.load_state_dict(torch.load('last.pt'))\n")],
    ),
    "an optimizer with a closure": (
        KEPT,
        [("    opt.zero_grad()\n    loss.backward()\n    opt.step()\n",
          "    def closure():\n        opt.zero_grad()\n        loss.backward()\n"
          "        return loss\n    assert opt.step(closure) is loss\n")],
    ),
    "an optimizer of the program's own that skips nothing": (
        KEPT,
        [("opt = torch.optim.Adam(",
          "class Descent(torch.optim.Optimizer):\n"
          "    def __init__(self, params, lr):\n"
          "        super().__init__(params, {'lr': lr})\n"
          "    def step(self):\n"
          "        for group in self.param_groups:\n"
          "            for p in group['params']:\n"
          "                p.data -= group['lr'] * p.grad\n"
          "opt = Descent(")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_carried_over_raises_no_alarm(name: str, tmp_path: Path) -> None:
    program, changes = RIGHT[name]
    report = audit(tmp_path, program, *changes)
    assert not report.findings, report.text()
    assert report.verdict in ("unbiased", "convention")
    assert report.updates == 2


@pytest.mark.parametrize(("clipped", "severity"), [(True, "fault"), (False, "warning")])
def test_a_copy_that_acts_and_is_never_loaded_is_not_acquitted(
    clipped: bool, severity: str, tmp_path: Path
) -> None:
    changes = [("logits=net(obs)", "logits=other(obs)")]
    changes += [] if clipped else [("ratio.clamp(0.8, 1.2)", "ratio")]
    report = audit(tmp_path, SCORED, *changes)
    assert [f.rule for f in report.findings] == ["acting-policy-stale"], report.text()
    assert report.findings[0].severity == severity
    assert report.verdict == ("biased" if clipped else "unexplained")
    assert report.findings[0].line == line_of(tmp_path / "program.py", "other = copy")


@pytest.mark.parametrize("horizon", [1, 2])
@pytest.mark.parametrize("ratio", ["of each action", "clipped", "of the path"])
def test_which_ratio_makes_the_gradient_of_a_kept_policy_exact(ratio: str, horizon: int) -> None:
    """By enumeration: two states, two actions; the second state and all rewards tell them apart."""
    score = torch.tensor([[0.9, -0.4], [-0.3, 0.8]], dtype=torch.float64, requires_grad=True)
    log_probs, kept = torch.log_softmax(score, -1), np.log(0.5)
    value, surrogate = torch.zeros(()), torch.zeros(())
    for actions in product((0, 1), repeat=horizon):
        new = torch.stack([log_probs[s, a] for s, a in zip((0, actions[0]), actions, strict=False)])
        rewards = torch.tensor([1.0 + a + 3.0 * t * actions[0] for t, a in enumerate(actions)])
        returns = rewards.flip(0).cumsum(0).flip(0)
        value = value + new.sum().exp() * rewards.sum()
        each = (new - kept).exp()
        terms = {
            "of each action": each * returns,
            "clipped": torch.min(each * returns, each.clamp(0.8, 1.2) * returns),
            "of the path": each.prod() * returns[:1],
        }
        surrogate = surrogate + 0.5**horizon * terms[ratio].sum()
    right, given = (torch.autograd.grad(t, score, retain_graph=True)[0] for t in (value, surrogate))
    exact = torch.allclose(right, given, rtol=1e-6)
    assert exact == (ratio == "of the path" or (ratio == "of each action" and horizon == 1))


@pytest.mark.parametrize(
    "read", ["open('video.mp4').close()", "torch.save(net, 'net.pt'); torch.load('net.pt')"]
)
def test_a_file_that_cannot_be_read_here_is_no_fault_of_the_update(
    read: str, tmp_path: Path
) -> None:
    missing = ("    opt.step()\n", f"    opt.step()\n    {read}\n")
    report = audit(tmp_path, KEPT, missing)
    assert not report.findings, report.text()
    assert (report.verdict, report.updates) == ("unbiased", 1)


def test_a_program_of_one_update_says_so(tmp_path: Path) -> None:
    report = audit(tmp_path, KEPT, ("range(1000)", "range(1)"))
    assert (report.verdict, report.updates) == ("unbiased", 1)


def test_a_critic_trained_twice_and_a_rollout_that_ends_within_an_episode_are_no_faults(
    tmp_path: Path,
) -> None:
    report = audit(tmp_path, CRITIC)
    assert not report.findings, report.text()
    assert (report.verdict, report.updates) == ("convention", 2)
    assert {"bootstrapped", "rollout-cut"} <= {c.name for c in report.conventions}


def test_a_target_that_moves_with_the_prediction_is_found_where_it_is_computed(
    tmp_path: Path,
) -> None:
    report = audit(
        tmp_path,
        CRITIC,
        ("next_values.detach()", "next_values"),
        ("range(2):\n        critic", "range(1):\n        critic"),
    )
    assert [finding.rule for finding in report.findings] == ["critic-target-not-detached"]
    assert report.findings[0].line == line_of(tmp_path / "program.py", "target = ")
    # it is the critic's gradient that is another one
    assert report.findings[0].severity == "warning"
    assert (report.verdict, report.exit_status) == ("convention", 0)


def test_a_critic_that_normalises_its_layer_by_hand_has_no_attached_target(tmp_path: Path) -> None:
    normalising = """
class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1)

    def forward(self, x):
        x = self.first(x)
        centred = x - x.mean(-1, keepdim=True)
        return self.last(centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt())
"""
    report = audit(
        tmp_path,
        CRITIC,
        ("critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)",
         "critic = torch.nn.Linear(4, 2), Critic()"),
        ("\nGAMMA = 0.9\n", f"{normalising}\nGAMMA = 0.9\n"),
    )  # fmt: skip
    assert not report.findings, report.text()
    assert report.verdict == "convention"


def test_the_density_of_a_number_that_moves_with_the_policy_has_no_target(tmp_path: Path) -> None:
    """As where an entropy is estimated: in TorchRL's tutorial of PPO."""
    moving = (
        "    (-(torch.stack(log_probs) * advantage).sum()).backward()",
        "    mean = actor(torch.stack(seen))\n"
        "    density = torch.distributions.Normal(mean, 1.0).log_prob(mean + 0.3).mean()\n"
        "    (density - (torch.stack(log_probs) * advantage).sum()).backward()",
    )
    report = audit(tmp_path, CRITIC, moving)
    assert not report.findings, report.text()
    assert report.verdict == "convention"


@pytest.mark.parametrize("whitened", [False, True])
def test_the_value_after_the_last_step_of_a_batch_is_a_choice_whatever_ended_there(
    whitened: bool, tmp_path: Path
) -> None:
    advantage = "advantage = (target - values).detach()"
    divided = "(advantage - advantage.mean()) / advantage.std(correction=0)"
    unused = "        if ends[-1]:\n            Categorical(logits=actor(following[-1])).sample()\n"
    report = audit(
        tmp_path,
        CRITIC,
        # an agent's step gives the value of the last state, and an action that nothing executes
        (
            "        obs = torch.as_tensor(env.reset()",
            f"{unused}        obs = torch.as_tensor(env.reset()",
        ),
        ("torch.tensor(stops)", "torch.tensor([*stops[:-1], 0.0])"),
        (advantage, f"{advantage}\n    advantage = {divided}" if whitened else advantage),
        max_paths=120,
    )
    assert (report.verdict, report.faults) == ("convention", ()), report.text()
    names = {convention.name for convention in report.conventions}
    assert {"bootstrapped", "limit-told-by-count"} <= names
    assert ("whitened" in names) == whitened


@pytest.mark.parametrize("program", ["critic", "actors"])
def test_a_fault_that_a_short_rollout_hides_is_named_with_the_second(
    program: str, tmp_path: Path
) -> None:
    """Of two steps, some V(s) explains the advantages without it; of both updates none does."""
    critic = ("range(4)", "range(2)"), ("float(terminated)", "float(terminated or truncated)")
    report = audit(tmp_path, CRITIC, *critic) if program == "critic" else audit(tmp_path, ACTORS)
    assert [finding.rule for finding in report.faults] == ["truncation-as-termination"]
    assert (report.verdict, report.updates) == ("biased", 2)


def test_a_ratio_is_followed_over_eighty_steps_of_a_policy_and_of_its_critic(
    tmp_path: Path,
) -> None:
    critic = "critic = torch.nn.Linear(4, 1)\nlearns = torch.optim.SGD(critic.parameters(), 0.1)\n"
    epoch = "    for epoch in range(2):\n"
    values = "        learns.zero_grad()\n"
    values += "        (critic(states).squeeze(-1) - returns).pow(2).mean().backward()\n"
    program = SCORED.replace(epoch, f"    for epoch in range(80):\n{values}        learns.step()\n")
    path = tmp_path / "program.py"
    path.write_text(program.replace("other = copy", f"{critic}other = copy"), encoding="utf-8")
    runner = CallableRunner(lambda: runpy.run_path(str(path)))
    size = SIZES[0]
    first = Survey((runner.run(Job((), size)),), False, 1, size, raised=True)
    rounds = observe_rounds(first, runner, False, lambda what, done, expected: None)
    assert rounds is not None
    assert rounds.repeated is not None
    assert rounds.held == 160
    ratios = [fact.size for fact in rounds.repeated.facts if fact.kind == RATIO]
    assert len(ratios) >= 80
    assert ratios[0] == 0.0 < ratios[-1]


def test_a_return_that_ends_at_the_update_is_a_convention_with_its_own_name(tmp_path: Path) -> None:
    returns = "target = rewards + GAMMA * (1 - stops) * next_values.detach()"
    plain = "returns = [0.0] * 5\n    for t in (3, 2, 1, 0):\n"
    plain += "        returns[t] = rewards[t] + GAMMA * (1 - ends[t]) * returns[t + 1]\n"
    plain += "    target = torch.tensor(returns[:4])"
    report = audit(tmp_path, CRITIC, (returns, plain))
    assert not report.findings, report.text()
    found = {convention.name: convention.bias for convention in report.conventions}
    bias = found["return-cut-at-update"]
    assert bias is not None
    assert 0.01 < bias < 1.0
    assert not report.ok()


def test_an_action_that_was_drawn_before_the_second_update_is_no_action_of_it(
    tmp_path: Path,
) -> None:
    """It is drawn with the value of the last state, and never executed."""
    drawn = "    Categorical(logits=net(torch.as_tensor(obs))).sample()\n    returns, running"
    report = audit(
        tmp_path,
        PROGRAM,
        ("    returns, running", drawn),
        ("(log_probs)\n", "(log_probs).detach()\n"),
        ("loss = -(", "loss = 0.0 * net(torch.as_tensor(obs)).sum() - ("),
    )
    assert report.verdict == "no-gradient", report.text()


def test_a_first_update_of_another_network_is_none_of_the_policys(tmp_path: Path) -> None:
    """As of a check of the gradient with a network that is thrown away."""
    begin, loop = PROGRAM.split("for episode in", 1)
    text = begin + "def trains(episodes, net, opt):\n    for episode in range(episodes):"
    text += loop.split(":", 1)[1].replace("\n", "\n    ")
    made = begin[begin.index("net =") :]
    text += f"\ntrains(1, net, opt)\n{made}trains(1000, net, opt)\n"
    report = audit(tmp_path, text)
    assert (report.verdict, report.findings, report.updates) == ("unbiased", (), 2), report.text()


def test_a_number_of_each_later_path_is_no_scale() -> None:
    """From the second update on each episode is weighed by its length."""
    wrong = next(each for each in mutants() if each.name == "hand_scored/length-weighed-later")
    report = audit_program(wrong)
    assert [finding.rule for finding in report.findings] == [*wrong.expected], report.text()
