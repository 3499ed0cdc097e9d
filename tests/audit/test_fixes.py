"""The FIX of a fault, applied: its line of code in place of the faulty one acquits the program."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from eligibility.audit.faults import FAULTS
from eligibility.audit.reporting.report import AuditReport
from tests.audit.writing import audit_here

DISCRETE = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

gamma = 0.9
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
critic = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam([*net.parameters(), *critic.parameters()])
for episode in range(1000):
    obs, _ = env.reset()
    observations, actions, log_probs, entropies, rewards, done = [], [], [], [], [], False
    while not done:
        observations.append(torch.as_tensor(obs, dtype=torch.float32))
        logits = net(observations[-1])
        probs = logits.softmax(-1)
        dist = Categorical(logits=logits)
        action = dist.sample()
        log_prob = dist.log_prob(action)
        actions.append(action)
        log_probs.append(log_prob)
        entropies.append(dist.entropy())
        obs, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    log_probs = torch.stack(log_probs)
    loss = -(log_probs * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
GAUSSIAN = DISCRETE
for part, own in (
    ("CartPole-v1", "MountainCarContinuous-v0"),
    ("Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)", "Linear(2, 1)"),
    ("Linear(4, 8)", "Linear(2, 8)"),
    ("optimizer =", "log_scale = torch.nn.Parameter(torch.zeros(1))\noptimizer ="),
    ("*critic.parameters()]", "*critic.parameters(), log_scale]"),
    ("        probs = logits.softmax(-1)\n", ""),
    (
        "dist = Categorical(logits=logits)",
        "dist = torch.distributions.Normal(logits, log_scale.exp())",
    ),
    ("dist.log_prob(action)", "dist.log_prob(action).sum()"),
    ("action.item()", "action.detach().numpy()"),
):
    assert part in GAUSSIAN
    GAUSSIAN = GAUSSIAN.replace(part, own)
LOSS = "loss = -(log_probs * returns).sum()"
SCORED_LATE = f"""action = torch.stack(actions)
    dist = Categorical(logits=net(torch.stack(observations)))
    log_probs = dist.log_prob(action)
    {LOSS}"""
NORMALISED_LATE = f"""logits = net(torch.stack(observations))
    probs = torch.softmax(logits, 1)
    log_probs = probs.log()[range(len(actions)), torch.stack(actions)]
    {LOSS}"""
WITH_ENTROPY = """policy_loss, entropy = -(log_probs * returns).sum(), torch.stack(entropies).sum()
    entropy_coef = 0.05
    loss = policy_loss - entropy_coef * entropy"""
WITH_CRITIC = """values = critic(torch.stack(observations)).squeeze(-1)
    advantage = (returns - values).detach()
    loss = -(log_probs * advantage).sum() + (returns - values).pow(2).sum()"""
CRITIC_AFTER = (
    DISCRETE.replace(LOSS, WITH_CRITIC.removesuffix(" + (returns - values).pow(2).sum()"))
    .replace("[*net.parameters(), *critic.parameters()]", "net.parameters()")
    .replace("for episode", "critic_optimizer = torch.optim.Adam(critic.parameters())\nfor episode")
    + "    critic_optimizer.zero_grad()\n    (values - returns).pow(2).mean().backward()\n"
    "    critic_optimizer.step()\n"
)
CONTINUOUS = (
    DISCRETE.replace("CartPole-v1", "LunarLanderContinuous-v3")
    .replace("Linear(4, 8)", "Linear(8, 8)")
    .replace("Categorical(logits=logits)", "Normal(logits, 0.5)")
    .replace("import Categorical", "import Normal")
    .replace("log_prob = dist.log_prob(action)", "log_prob = dist.log_prob(action).sum(-1)")
    .replace("action.item()", "action.numpy()")
)


def changed(text: str, *pairs: str) -> str:
    """The text with every second of the pairs in the place of the one before it."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the program"
        text = text.replace(old, new)
    return text


SAMPLED = "action = dist.sample()"
STEPPED = "obs, reward, terminated, truncated, _ = env.step(action.item())"
RETURNS = """returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.insert(0, running)
    returns = torch.tensor(returns)"""
SQUASHED = changed(
    CONTINUOUS,
    SAMPLED, "u = dist.sample()\n        action = torch.tanh(u)",
    "log_prob = dist.log_prob(action).sum(-1)", "log_prob = dist.log_prob(u)",
    "log_probs.append(log_prob)", "log_probs.append(log_prob.sum(-1))",
)  # fmt: skip
FILLED = changed(
    DISCRETE, "import torch\n", "import numpy as np\nimport torch\n", RETURNS,
    """returns = np.zeros(len(rewards), dtype=np.float64)
    running = 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running
        returns[t] = running
    returns = torch.as_tensor(returns, dtype=torch.float32)""",
)  # fmt: skip
UNDISCOUNTED = changed(
    DISCRETE, RETURNS,
    """rewards = torch.tensor(rewards)
    returns = rewards.flip(0).cumsum(0).flip(0)""",
)  # fmt: skip
DISCOUNTED = changed(
    DISCRETE, RETURNS,
    """discounts = gamma ** torch.arange(len(rewards))
    returns = (discounts * torch.tensor(rewards)).flip(0).cumsum(0).flip(0)""",
)  # fmt: skip
MARKED = changed(
    DISCRETE,
    "rewards.append(reward)\n        done = terminated or truncated",
    "done = terminated or truncated\n        rewards.append(reward)",
)
TWO_EPISODES = """
import gymnasium as gym
import torch
from torch.distributions import Categorical

gamma = 0.9
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters())
while True:
    log_probs, rewards, dones = [], [], []
    for episode in range(2):
        obs, _ = env.reset()
        done = False
        while not done:
            dist = Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            done = terminated or truncated
            rewards.append(reward)
            dones.append(float(done))
    returns, running = [], 0.0
    for reward, done in zip(reversed(rewards), reversed(dones)):
        running = reward + gamma * running * (1 - done)
        returns.insert(0, running)
    loss = -(torch.stack(log_probs) * torch.tensor(returns)).sum() / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MASKED = changed(
    DISCRETE.replace("CartPole-v1", "Acrobot-v1").replace("(4, 8)", "(6, 8)")
    .replace("(8, 2)", "(8, 3)"),
    "logits = net(observations[-1])",
    """mask = torch.tensor([True, bool(obs[0] > 0), bool(obs[0] <= 0)])
        masks.append(mask)
        logits = net(observations[-1]).detach().masked_fill(~mask, -torch.inf)""",
    "observations, actions,", "masks, observations, actions,",
    "[], [], [], [], [], False", "[], [], [], [], [], [], False",
    LOSS,
    f"""mask, logits = torch.stack(masks), net(torch.stack(observations))
    logits = logits.masked_fill(~mask, -torch.inf)
    log_probs = Categorical(logits=logits).log_prob(torch.stack(actions))
    {LOSS}""",
)  # fmt: skip
MOVING = changed(
    DISCRETE,
    "gamma = 0.9\n", "gamma, rate, baseline = 0.9, 0.1, 0.0\n",
    LOSS,
    """advantage = returns - baseline
    baseline += rate * (returns.mean().item() - baseline)
    loss = -(log_probs * advantage).sum()""",
)  # fmt: skip
TEMPORAL = changed(
    DISCRETE,
    "observations, actions,", "targets, observations, actions,",
    "[], [], [], [], [], False", "[], [], [], [], [], [], False",
    "rewards.append(reward)",
    """rewards.append(reward)
        next_value = critic(torch.as_tensor(obs, dtype=torch.float32)).squeeze(-1)
        target = reward + gamma * next_value.detach() * (1 - terminated)
        targets.append(target)""",
    LOSS,
    """values, targets = critic(torch.stack(observations)).squeeze(-1), torch.stack(targets)
    advantage = (targets - values).detach()
    loss = -(log_probs * advantage).sum() + (values - targets).pow(2).sum()""",
)  # fmt: skip
WITHOUT_GRADIENT = changed(
    TEMPORAL,
    "target = reward + gamma * next_value.detach() * (1 - terminated)",
    "next_value = next_value.detach()\n"
    "        target = reward + gamma * next_value * (1 - terminated)",
)
WHITENING = "returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-8)"
WHITENED = changed(DISCRETE, LOSS, f"{WHITENING}\n    {LOSS}")
LASTING = changed(
    DISCRETE,
    "for episode in", "log_probs, rewards = [], []\nfor episode in",
    "observations, actions, log_probs, entropies, rewards, done = [], [], [], [], [], False",
    "observations, actions, entropies, done = [], [], [], False",
    "    log_probs = torch.stack(log_probs)\n", "",
    LOSS, "loss = -(torch.stack(log_probs) * returns).sum()",
    "optimizer.step()", "optimizer.step()\n    log_probs.clear(); rewards.clear()",
)  # fmt: skip
EPOCH = """for epoch in range(2):
        log_probs = Categorical(logits=net(observations)).log_prob(actions)"""
EPOCHS = changed(
    DISCRETE,
    LOSS,
    f"""actions, observations = torch.stack(actions), torch.stack(observations)
    old_log_probs = log_probs.detach()
    {EPOCH}
        ratio = (log_probs - old_log_probs).exp()
        loss = -torch.min(ratio * returns, ratio.clamp(0.8, 1.2) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()""",
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n" , "",
)  # fmt: skip

CLIP = "clipped = torch.clamp(ratio, 1 - eps, 1 + eps)"
CLIPS = changed(
    EPOCHS,
    "loss = -torch.min(ratio * returns, ratio.clamp(0.8, 1.2) * returns).sum()",
    f"eps = 0.2\n        {CLIP}\n"
    "        loss = -torch.min(ratio * returns, clipped * returns).sum()",
)

# fault -> (a right program, what stands in the place of the fault, the faulty text): the FIX takes
# the place of the faulty text, or of {} in a fourth one.
APPLIED: dict[str, tuple[str, ...]] = {
    "mean-log-prob-times-sum-of-returns": (
        DISCRETE, LOSS, "loss = -log_probs.mean() * returns.sum()",
    ),
    "broadcast": (DISCRETE, LOSS, "loss = -(log_probs * returns[:, None]).sum()"),
    "wrong-sign": (DISCRETE, LOSS, "loss = (log_probs * returns).sum()"),
    "returns-unused": (DISCRETE, LOSS, "loss = -log_probs.sum()"),
    "last-step-dropped": (DISCRETE, LOSS, "loss = -(log_probs[:-1] * returns[:-1]).sum()"),
    "only-last-step": (DISCRETE, LOSS, "loss = -log_probs[-1] * returns[-1]"),
    "immediate-reward": (DISCRETE, "running = reward + gamma * running", "running = reward"),
    "reversed-returns": (DISCRETE, "returns.insert(0, running)", "returns.append(running)"),
    "rewards-centred": (
        UNDISCOUNTED,
        "returns = rewards.flip(0).cumsum(0).flip(0)",
        "rewards = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-8)\n"
        "    returns = rewards.flip(0).cumsum(0).flip(0)",
        "returns = rewards.flip(0).cumsum(0).flip(0)\n    {}",
    ),
    "shuffled-apart": (
        changed(
            DISCRETE, "    loss =", "    order = torch.randperm(len(returns))\n    loss ="
        ),
        "loss = -(log_probs * returns).sum()",
        "loss = -(log_probs * returns[order]).mean()",
    ),
    "shifted-rewards": (
        changed(DISCRETE, "[], False\n", "[], False\n    reward = 0.0\n"),
        f"{STEPPED}\n        rewards.append(reward)",
        f"rewards.append(reward)\n        {STEPPED}",
        STEPPED + "\n        {}",
    ),
    "rewards-so-far": (
        UNDISCOUNTED, "returns = rewards.flip(0).cumsum(0).flip(0)", "returns = rewards.cumsum(0)",
    ),
    "discount-from-the-end": (
        DISCOUNTED,
        "discounts = gamma ** torch.arange(len(rewards))",
        "discounts = gamma ** torch.arange(len(rewards) - 1, -1, -1)",
    ),
    "last-reward-dropped": (
        MARKED, "rewards.append(reward)", "rewards.append(0.0 if done else reward)",
    ),
    "integer-returns": (
        FILLED,
        "returns = np.zeros(len(rewards), dtype=np.float64)",
        "returns = np.zeros(len(rewards), dtype=int)",
    ),
    "return-carried-over-episodes": (
        TWO_EPISODES,
        "running = reward + gamma * running * (1 - done)",
        "running = reward + gamma * running",
    ),
    "probability-not-log-probability": (
        changed(DISCRETE, LOSS, SCORED_LATE), LOSS, "loss = -(log_probs.exp() * returns).sum()",
    ),
    "most-likely-action-scored": (
        DISCRETE, "log_prob = dist.log_prob(action)", "log_prob = dist.log_prob(probs.argmax())",
    ),
    "scored-other-action": (
        DISCRETE, "log_prob = dist.log_prob(action)", "log_prob = dist.log_prob(dist.sample())",
    ),
    "transformed-action-scored": (
        SQUASHED, "log_prob = dist.log_prob(u)", "log_prob = dist.log_prob(action)",
    ),
    "component-not-scored": (
        CONTINUOUS,
        "log_prob = dist.log_prob(action).sum(-1)",
        "log_prob = dist.log_prob(action)[..., 0]",
    ),
    "behaviour-not-scored": (
        DISCRETE, SAMPLED, "action = Categorical(logits=logits / 2).sample()",
    ),
    "softmax-over-steps": (
        changed(DISCRETE, LOSS, NORMALISED_LATE),
        "probs = torch.softmax(logits, 1)",
        "probs = torch.softmax(logits, 0)",
    ),
    "mask-in-acting-only": (
        MASKED, "    logits = logits.masked_fill(~mask, -torch.inf)\n", "", "    {}\n",
    ),
    "argmax-action": (DISCRETE, SAMPLED, "action = logits.argmax(-1)"),
    "probs-as-logits": (
        DISCRETE, "dist = Categorical(logits=logits)", "dist = Categorical(logits=probs)",
    ),
    "entropy-sign": (
        changed(DISCRETE, LOSS, WITH_ENTROPY),
        "loss = policy_loss - entropy_coef * entropy",
        "loss = policy_loss + entropy_coef * entropy",
    ),
    "no-gradient": (
        DISCRETE,
        "log_probs = torch.stack(log_probs)",
        "log_probs = torch.tensor(log_probs, requires_grad=True)",
    ),
    "baseline-sees-own-return": (
        MOVING,
        """advantage = returns - baseline
    baseline += rate * (returns.mean().item() - baseline)""",
        """baseline += rate * (returns.mean().item() - baseline)
    advantage = returns - baseline""",
        "{}\n    baseline += rate * (returns.mean().item() - baseline)",
    ),
    "advantage-not-detached": (
        changed(DISCRETE, LOSS, WITH_CRITIC),
        "advantage = (returns - values).detach()",
        "advantage = returns - values",
    ),
    "truncation-as-termination": (
        WITHOUT_GRADIENT,
        "target = reward + gamma * next_value * (1 - terminated)",
        "target = reward + gamma * next_value * (1 - (terminated or truncated))",
    ),
    "bootstrapped-after-termination": (
        WITHOUT_GRADIENT,
        "target = reward + gamma * next_value * (1 - terminated)",
        "target = reward + gamma * next_value",
    ),
    "bootstrapped-from-last-state": (
        changed(
            DISCRETE, RETURNS,
            """stacked = torch.stack(observations)
    with torch.no_grad():
        values = critic(stacked)[:, 0]
        next_obs = torch.as_tensor(obs, dtype=torch.float32)
    running = critic(next_obs).detach() * (1 - terminated)
    returns = []
    for reward in reversed(rewards):
        running = reward + gamma * running
        returns.insert(0, running)
    returns = torch.cat(returns)
    critic_loss = (critic(stacked)[:, 0] - returns).pow(2).sum()
    returns = returns - values""",
        ).replace("loss = -(log_probs", "loss = critic_loss - (log_probs"),
        "running = critic(next_obs).detach() * (1 - terminated)",
        "running = values[-1:] * (1 - terminated)",
    ),
    "critic-target-not-detached": (
        TEMPORAL,
        "target = reward + gamma * next_value.detach() * (1 - terminated)",
        "target = reward + gamma * next_value * (1 - terminated)",
    ),
    "std-of-one-element": (
        WHITENED, WHITENING,
        "returns = (returns - returns.mean()) / (returns.std() + 1e-8)",
    ),
    "gradients-not-zeroed": (DISCRETE, "optimizer.zero_grad()", "pass"),
    "stale-batch": (
        changed(
            LASTING, "loss = -(torch.stack(log_probs) * returns).sum()",
            "loss = -sum(score * credit for score, credit in zip(log_probs, returns))",
        ),
        "log_probs.clear(); rewards.clear()", "log_probs.clear()",
    ),
    "stale-graph": (
        LASTING, "log_probs.clear(); rewards.clear()", "rewards.clear()",
        "{}\n    rewards.clear()",
    ),
    "graph-used-twice": (
        CRITIC_AFTER,
        "advantage = (returns - values).detach()",
        "advantage = returns - values",
    ),
    "ratio-always-one": (
        EPOCHS,
        f"    old_log_probs = log_probs.detach()\n    {EPOCH}",
        f"    {EPOCH}\n        old_log_probs = log_probs.detach()",
        f"    {{}}\n    {EPOCH}",
    ),
    "clip-on-the-wrong-side": (
        CLIPS,
        "loss = -torch.min(ratio * returns, clipped * returns).sum()",
        "loss = -torch.max(ratio * returns, clipped * returns).sum()",
        "advantages = returns\n        {}\n        loss = loss.sum()",
    ),
    "clip-bounds-swapped": (CLIPS, CLIP, "clipped = torch.clamp(ratio, 1 + eps, 1 - eps)"),
    "action-keeps-its-graph": (GAUSSIAN, "action = dist.sample()", "action = dist.rsample()"),
}  # fmt: skip
# Their FIX is an instruction, or a line of another kind of program than these: nobody has applied
# it here. A fault that is new belongs above.
NOT_APPLIED = {
    "acting-policy-stale", "autoreset-step-trained-on", "immediate-reward-twice",
    "fails-on-some-episodes", "non-finite-gradient",
    "old-log-prob-stale", "return-carried-over-actors", "second-update-differs",
    "second-update-fails", "several-updates-without-ratio", "unexplained",
    # of language models: tests/audit/language
    "first-token-dropped", "prompt-scored", "kl-forward", "kl-sign",
    "kl-without-gradient", "off-policy-uncorrected", "padding-counted",
    "reward-of-another-answer",
}  # fmt: skip


@cache
def judged(folder: Path, text: str) -> AuditReport:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return audit_here(path, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixes")


def test_every_fix_is_applied_or_listed() -> None:
    missing = set(FAULTS) - set(APPLIED) - NOT_APPLIED
    assert not missing, "apply its fix in APPLIED, or list it in NOT_APPLIED"
    assert set(APPLIED) | NOT_APPLIED <= set(FAULTS)
    assert not set(APPLIED) & NOT_APPLIED


@pytest.mark.parametrize("rule", sorted(APPLIED))
def test_the_fix_of_a_fault_acquits(rule: str, folder: Path) -> None:
    text, right, wrong, *template = APPLIED[rule]
    faulty = judged(folder, changed(text, right, wrong))
    named = [finding for finding in faulty.findings if finding.rule == rule]
    assert named, faulty.text()
    fix = named[0].fix.partition("  #")[0]
    fixed = judged(folder, changed(text, right, template[0].format(fix) if template else fix))
    assert fixed.verdict in ("unbiased", "convention"), fixed.text()
    assert not fixed.findings, fixed.text()
