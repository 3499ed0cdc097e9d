"""What every option of TRL does to the gradient, exactly: one script for each, audited.

    python -m benchmarks.trl_options            # measure, and write the page
    python -m benchmarks.trl_options --page     # only the page, from the last measurement

It writes ``benchmarks/results/trl_options.json``, ``docs/audit/trl_options.md`` and
``docs/images/trl_options.svg``. Each configuration takes 5 to 15 seconds of one core.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eligibility.audit.job import Program
from eligibility.audit.trainers import worker
from eligibility.audit.trainers.record import Record, record_from
from eligibility.audit.trainers.verdict import report_of
from eligibility.sandbox import guard_here

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/trl_options.json"
PAGE = ROOT / "docs/audit/trl_options.md"
PICTURE = ROOT / "docs/images/trl_options.svg"
SCRIPT = """
from datasets import load_dataset
from trl import {kind}Config, {kind}Trainer

def reward(completions, **columns):
    return [float(len(completion)) for completion in completions]

{kind}Trainer(
    model="Qwen/Qwen2.5-0.5B-Instruct",
    reward_funcs={rewards},
    args={kind}Config(output_dir="out", {options}),
    train_dataset=load_dataset("trl-lib/tldr", split="train"),
).train()
"""


@dataclass(frozen=True)
class Option:
    """One configuration.

    Attributes:
        name: As the page calls it.
        kind: "GRPO" or "RLOO".
        options: Arguments of the configuration.
        says: What it does, in a sentence.
        rewards: The reward functions.
    """

    name: str
    kind: str
    options: str
    says: str
    rewards: str = "reward"


NONE = 'scale_rewards="none"'
DR = f'loss_type="dr_grpo", {NONE}'
OPTIONS = (
    Option("RLOO", "RLOO", "beta=0.0", "The policy gradient, with the factor 1: the other answers are a baseline that one's own reward has no part in."),
    Option("RLOO, β = 0.5", "RLOO", "beta=0.5", "k1 in the reward: the gradient of E[R] − β KL(π‖ref) of whole answers, exactly. The bias is the KL, which is wanted."),
    Option("RLOO, normalize_advantages", "RLOO", "beta=0.0, normalize_advantages=True", "Divides by a deviation that depends on the rewards of the batch, one's own among them."),
    Option("GRPO as it comes (dapo)", "GRPO", "", "Mean over all tokens of the batch, divided by the group's deviation. Prompts on which answers differ little count more."),
    Option("grpo", "GRPO", 'loss_type="grpo"', "The paper's: mean over each answer, then over answers, divided by the group's deviation."),
    Option("grpo, none", "GRPO", f'loss_type="grpo", {NONE}', "Mean over each answer: a token of a short answer counts more than one of a long answer."),
    Option("bnpo, none", "GRPO", f'loss_type="bnpo", {NONE}', "Mean over the tokens of the micro-batch: the divisor depends on the lengths that were drawn."),
    Option("dapo, none", "GRPO", f'loss_type="dapo", {NONE}', "Mean over the tokens of the whole batch, whatever the micro-batches are."),
    Option("dr_grpo, none", "GRPO", DR, "The policy gradient times (G−1)/G, as the mean contains one's own reward, and 1/L by the longest answer allowed."),
    Option("luspo, sequence, none", "GRPO", f'loss_type="luspo", importance_sampling_level="sequence", {NONE}', "The mean of sums over tokens: no divisor that depends on what was drawn."),
    Option("cispo, none", "GRPO", f'loss_type="cispo", {NONE}', "That of dapo times 0.2: `epsilon_high` is the bound of the weight itself, by default 0.2, and on policy every weight is 1. The paper's bound is far above 1."),
    Option("cispo, none, epsilon_high 5", "GRPO", f'loss_type="cispo", {NONE}, epsilon_high=5.0', "On policy that of dapo: with a bound above 1 its weights are 1 there."),
    Option("sapo, none", "GRPO", f'loss_type="sapo", {NONE}', "On policy that of grpo: its soft gate has the slope 1 there."),
    Option("vespo, none", "GRPO", f'loss_type="vespo", {NONE}', "On policy that of dapo: its weight of the sequence is 1 there."),
    Option("grpo, sequence (GSPO), none", "GRPO", f'loss_type="grpo", importance_sampling_level="sequence", {NONE}', "The geometric mean of the ratios has the derivative of the mean over each answer."),
    Option("dr_grpo, group", "GRPO", 'loss_type="dr_grpo", scale_rewards="group"', "The group's deviation alone: with two answers only the sign of their difference is left."),
    Option("dr_grpo, batch", "GRPO", 'loss_type="dr_grpo", scale_rewards="batch"', "The batch's deviation: one factor for all, which depends on the rewards that were drawn."),
    Option("dr_grpo, none, mask_truncated", "GRPO", f"{DR}, mask_truncated_completions=True", "Answers without an end teach nothing, so their rewards do not count."),
    Option("dapo, none, mask_truncated", "GRPO", f'loss_type="dapo", {NONE}, mask_truncated_completions=True', "The same, and they do not count in the divisor either."),
    Option("dr_grpo, none, temperature 0.7", "GRPO", f"{DR}, temperature=0.7", "Drawn and scored at the same temperature: the gradient of the policy at 0.7."),
    Option("dr_grpo, none, top_p 0.7", "GRPO", f"{DR}, top_p=0.7", "Drawn from fewer tokens than are scored: what is cut off is never seen, and never made less likely."),
    Option("dr_grpo, none, repetition_penalty 1.3", "GRPO", f"{DR}, repetition_penalty=1.3", "Drawn from other probabilities than are scored, without a ratio."),
    Option("dr_grpo, none, β = 0.5", "GRPO", f"{DR}, beta=0.5", "k3 times the ratio: each state's own KL(π‖ref); later KL is not credited to earlier tokens."),
    Option("dr_grpo, none, β = 0.5, no correction", "GRPO", f"{DR}, beta=0.5, use_bias_correction_kl=False", "k3 has the value of KL(π‖ref) and the gradient of KL(ref‖π): it pulls towards all that the reference says."),
    Option("dr_grpo, none, entropy_coef 0.1", "GRPO", f"{DR}, entropy_coef=0.1", "Each state's own entropy, as a mean over tokens."),
    Option("bnpo, none, 2 micro-batches", "GRPO", f'loss_type="bnpo", {NONE}, gradient_accumulation_steps=2', "Each micro-batch has its own divisor: tokens among long answers count less."),
    Option("grpo, none, 2 micro-batches", "GRPO", f'loss_type="grpo", {NONE}, gradient_accumulation_steps=2', "The mean over answers is that of all of them, as micro-batches have equally many: accumulation changes nothing."),
    Option("dr_grpo, none, 2 micro-batches", "GRPO", f"{DR}, gradient_accumulation_steps=2", "The divisor is a constant: accumulation changes nothing."),
    Option("dapo, none, 2 micro-batches", "GRPO", f'loss_type="dapo", {NONE}, gradient_accumulation_steps=2', "The divisor is the whole batch's: accumulation changes nothing."),
    Option("dapo, none, 2 steps per generation", "GRPO", f'loss_type="dapo", {NONE}, steps_per_generation=2, gradient_accumulation_steps=1', "Two updates of half the answers each; the divisor is half the tokens of both."),
    Option("RLOO, num_iterations 2", "RLOO", "beta=0.0, num_iterations=2", "The second update of the same answers has the ratio of whole answers: the gradient of the later policy, exactly, but for clipping."),
    Option("RLOO, num_iterations 2, epsilon 100", "RLOO", "beta=0.0, num_iterations=2, epsilon=100.0", "The same with a bound that no ratio reaches: exact, as the first update is."),
    Option("dr_grpo, none, num_iterations 2", "GRPO", f"{DR}, num_iterations=2", "In the second update each token has its own ratio: what the tokens before it have become is not weighed. Far ones are clipped. Both biases grow with the distance."),
    Option("dr_grpo, none, num_iterations 2, epsilon 100", "GRPO", f"{DR}, num_iterations=2, epsilon=100.0", "The ratio of each token alone, without clipping."),
    Option("dr_grpo, none, num_iterations 2, delta 1.5", "GRPO", f"{DR}, num_iterations=2, delta=1.5", "A ratio above `delta` teaches nothing where the advantage is negative either (two-sided clipping)."),
    Option("grpo, sequence (GSPO), none, num_iterations 2", "GRPO", f'loss_type="grpo", importance_sampling_level="sequence", {NONE}, num_iterations=2', "In the second update all tokens of an answer have the geometric mean of its ratios, which is closer to 1 than their product."),
    Option("two rewards, normalize_then_sum", "GRPO", f'loss_type="dr_grpo", {NONE}, multi_objective_aggregation="normalize_then_sum"', "Each reward is divided by its own deviation in the group before they are added: a sum of two whitened advantages, for which the audit has no name.", "[reward, lambda completions, **columns: [0.0] * len(completions)]"),
)  # fmt: skip


def measured(option: Option) -> dict[str, Any]:
    """The audit of one option."""
    text = SCRIPT.format(kind=option.kind, options=option.options, rewards=option.rewards)
    pairs = 2 if "beta" in option.options or "entropy" in option.options else 1
    record = record_of(text, (), pairs)
    report = report_of(record, option.name)
    return {
        "name": option.name,
        "version": record.version,
        **json.loads(report.to_json()),
        "seconds": round(record.seconds, 1),
    }


def record_of(text: str, arguments: tuple[str, ...], pairs: int) -> Record:
    """The record of a script, run in a process that is forked from this one."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(text, encoding="utf-8")
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run(script, arguments, pairs, writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            line = pipe.read()
        os.waitpid(child, 0)
    return record_from(json.loads(line))


def _run(script: Path, arguments: tuple[str, ...], pairs: int, writing: int) -> None:
    """In the fork, which may write nowhere but in the script's folder once that has been run."""
    folder = str(script.parent)
    program = Program(str(script), str(script), arguments, folder, guard_here(), 300.0, 4096, False)
    record = worker.run(program, lambda done, expected: None, pairs)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        pipe.write(record.to_line())
    os._exit(0)


def page(rows: Sequence[dict[str, Any]], releases: Sequence[str]) -> str:
    """The page, in Markdown."""
    says = {option.name: option.says for option in OPTIONS}
    lines = [
        f"# What every option of TRL does to the gradient, exactly ({rows[0]['version']})",
        "",
        "Each row is a script with `GRPOTrainer` or `RLOOTrainer`, run unmodified by "
        "[`eligibility audit`](README.md) on a language of a few answers, in which the expected "
        "gradient is a finite sum. Two prompts, two answers of at most three tokens to each, on "
        "policy. *Bias* is the part of the expected gradient that is not along ∇E[R], in percent of "
        "it. *×* is the factor in front of ∇E[R] where that is all there is. Conventions are choices: "
        "most of them buy less variance or steadier steps for their bias "
        "([`el.exact`](../reference/reinforce.md) measures that side). The percentages belong to this "
        "probe; which terms are there does not. Advantages and losses in TRL are in single precision, "
        "so less than 0.0001 % is 0. *Seconds* are of one core's time, without loading the libraries.",
        "",
        "![The bias of each configuration, as bars](../images/trl_options.svg)",
        "",
        "| configuration | bias | × | verdict | what it does | seconds |",
        "|---|---:|---:|---|---|---:|",
    ]
    for row in rows:
        residual = row["residual"]
        bias = "–" if residual is None else f"{residual:.1%}"
        exact = residual is not None and residual < row["tolerance"]
        factor = f"{row['components'].get('reward', math.nan):.4g}" if exact else ""
        lines.append(
            f"| {row['name']} | {bias} | {factor} | {row['verdict']} | {says[row['name']]} | "
            f"{row['seconds']:.1f} |"
        )
    lines += ["", "## What each consists of", ""]
    lines += ["| configuration | components | conventions, each with the bias that it causes alone | weight of a token |", "|---|---|---|---|"]  # fmt: skip
    for row in rows:
        parts = ", ".join(f"{n} {v:+.4g}" for n, v in row["components"].items())
        biases = ", ".join(
            name if bias is None else f"{name} {bias:.1%}"
            for name, bias in row["convention_biases"].items()
        )
        faults = "".join(f"**{finding['rule']}** " for finding in row["findings"])
        again = [note for note in row["notes"] if note.startswith("second update")]
        weight = "; ".join([row["rule"], *again])
        lines.append(f"| {row['name']} | {parts} | {faults}{biases} | {weight} |")
    lines += [
        "",
        "The factor of `reward` next to a bias is the best multiple of ∇E[R], and not a part of its "
        "own. The bias of the first table is that of the first update, where every ratio is 1 and nothing "
        "is clipped. In a second one the policy has moved "
        "so far that the ratio passes the bounds on some answers and not on others; how many these "
        "are is the probe's, and so is the size of that bias. Two micro-batches are one group each. "
        "Not shown here: several processes, and what vLLM's other probabilities do.",
        "",
        *releases,
        "Made by `python -m benchmarks.trl_options`.",
    ]
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[dict[str, Any]]) -> None:
    """Bars of the biases."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    known = [row for row in rows if row["residual"] is not None]
    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(known) + 1))
    colours = {"unbiased": "#2a7d4f", "convention": "#3b73b9"}
    axes.barh(
        [row["name"] for row in known],
        [100 * row["residual"] for row in known],
        color=[colours.get(row["verdict"], "#b3423a") for row in known],
    )
    axes.invert_yaxis()
    axes.set_xlabel("bias: part of E[g] that is not along ∇E[R], in percent")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def known() -> dict[str, dict[str, Any]]:
    """What was measured so far, by name."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    return {row["name"]: row for row in rows}


def remember(row: dict[str, Any]) -> None:
    """Write one more result next to the others, also where several processes measure."""
    with RESULTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = known() | {row["name"]: row}
        ordered = [rows[option.name] for option in OPTIONS if option.name in rows]
        text = json.dumps(ordered, indent=1, ensure_ascii=False)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    RESULTS.with_suffix(".lock").unlink(missing_ok=True)


def write_page() -> None:
    """The page, of what was measured last: of this release, and of older ones."""
    from benchmarks import trl_versions

    rows = [known()[option.name] for option in OPTIONS if option.name in known()]
    PAGE.write_text(page(rows, trl_versions.lines()), encoding="utf-8")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--only", nargs="*", help="measure these configurations alone")
    arguments = parser.parse_args()
    if not arguments.page:
        torch.set_num_threads(1)  # threads of torch do not survive the forks
        trl: Any = importlib.import_module("trl")
        for name in ("GRPOTrainer", "RLOOTrainer", "GRPOConfig", "RLOOConfig"):
            getattr(trl, name)  # loaded once here, not in every fork
        for option in OPTIONS:
            if not arguments.only or option.name in arguments.only:
                row = measured(option)
                remember(row)
                print(row["name"], row["verdict"], row["residual"], row["seconds"], flush=True)
    write_page()
    picture([known()[option.name] for option in OPTIONS if option.name in known()])


if __name__ == "__main__":
    main()
