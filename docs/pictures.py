"""Draws what the verbs print, for README.md: ``python docs/pictures.py``.

Each picture is the output of the command in its title bar, run now, cut after as many lines as fit.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

FOLDER = Path(__file__).parent / "images"
WIDTH = 84
# The fault that stood in a widely read tutorial, Gymnasium#1336.
PROGRAM = """\
import gymnasium as gym
import torch

env = gym.make("CartPole-v1")
policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)

for episode in range(500):
    log_probs, rewards, done = [], [], False
    observation, _ = env.reset()
    while not done:
        dist = torch.distributions.Categorical(logits=policy(torch.as_tensor(observation)))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        observation, reward, terminated, truncated, _ = env.step(action.item())
        rewards.append(reward)
        done = terminated or truncated
    returns, g = [], 0.0
    for reward in reversed(rewards):
        g = reward + 0.99 * g
        returns.insert(0, g)
    loss = -torch.stack(log_probs).mean() * sum(returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Picture:
    """One command and how much of its output is shown."""

    name: str
    command: str
    lines: int


PICTURES = (
    Picture(
        "explain",
        "eligibility explain categorical --probs 0.69,0.1,0.2,0.01 --action 0 --of prob",
        17,
    ),
    Picture("audit", "eligibility audit reinforce.py", 30),
    Picture("train", "eligibility train CartPole-v1 --out runs/cartpole", 12),
    Picture("evaluate", "eligibility evaluate runs/cartpole", 12),
)


def main() -> None:
    """Run the commands in one scratch folder and write the pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "reinforce.py").write_text(PROGRAM)
        for picture in PICTURES:
            output = printed(picture.command, scratch)
            (FOLDER / f"{picture.name}.svg").write_text(drawn(picture, output))


def printed(command: str, folder: str) -> str:
    """Both output streams of a command."""
    finished = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env=os.environ | {"COLUMNS": str(WIDTH)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return finished.stdout


def drawn(picture: Picture, output: str) -> str:
    """A terminal window as SVG, with the fonts of the reader's own machine."""
    lines = output.rstrip().splitlines()
    shown = lines[: picture.lines] + (["…"] if len(lines) > picture.lines else [])
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (picture.command, "bold")))
    console.print(Text("\n".join(shown)))
    svg = console.export_svg(title="", theme=MONOKAI, unique_id=picture.name)
    start, end = svg.index("@font-face"), svg.index(f".{picture.name}-matrix")
    return svg[:start] + svg[end:]  # no font is fetched from another machine


if __name__ == "__main__":
    main()
