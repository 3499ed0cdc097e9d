"""The language-model example: learns a two-letter task, and both ways give the same gradients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[2] / "examples" / "language_model"
TINY = [
    *("--symbols", "2", "--length", "2", "--vocabulary", "5", "--width", "16", "--layers", "1"),
    *("--prompts", "8", "--samples", "8", "--learning-rate", "1e-2"),
]


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=200, cwd=FOLDER
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def rewards(folder: Path) -> list[float]:
    lines = (folder / "curve.csv").read_text().splitlines()
    assert lines[0] == "step,seconds,reward,right"
    return [float(line.split(",")[2]) for line in lines[1:]]


def test_it_learns_to_sort_two_letters_and_agrees_with_plain_logits(tmp_path: Path) -> None:
    learn, compare = [*TINY, "--steps", "60", "--out", str(tmp_path)], [*TINY, "--compare"]
    output = run("-c", f"import train; train.main({learn!r}); train.main({compare!r})")
    found = rewards(tmp_path)
    assert len(found) == 60
    assert sum(found[-5:]) / 5 > sum(found[:5]) / 5 + 0.5
    assert "of 1000 fresh prompts" in output
    assert (tmp_path / "curve.png").stat().st_size > 1000
    largest_difference = float(output.split()[-1])
    assert largest_difference < 1e-5


RANK = """
import sys
import torch
import torch.distributed as dist
import train

def run():
    model = train.build(config).double()
    seen = [(p.reward, p.right) for p in train.train(model, config)]
    return torch.tensor(seen), torch.cat([p.detach().flatten() for p in model.parameters()])

config = train.Config(**%r)
dist.init_process_group("gloo")
is_first = train.rank() == 0
shared = run()
dist.destroy_process_group()
if is_first:
    torch.save((shared, run()), sys.argv[1])
"""


def test_two_processes_make_the_steps_of_one(tmp_path: Path) -> None:
    names = [name.removeprefix("--").replace("-", "_") for name in TINY[::2]]
    numbers = [float(text) if "e" in text else int(text) for text in TINY[1::2]]
    program, result = tmp_path / "rank.py", tmp_path / "result.pt"
    config = {**dict(zip(names, numbers, strict=True)), "steps": 5}
    program.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + RANK % config)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run(*launcher, str(program), str(result))
    (seen, weights), (seen_alone, weights_alone) = torch.load(result)
    assert seen.shape == (5, 2)
    assert len(set(seen[:, 0].tolist())) > 1  # the batches differ
    torch.testing.assert_close(seen, seen_alone, rtol=1e-6, atol=0)  # float32 means
    torch.testing.assert_close(weights, weights_alone, rtol=1e-9, atol=1e-10)
