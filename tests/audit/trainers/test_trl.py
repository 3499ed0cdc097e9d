"""TRL's trainers in unmodified scripts: the expected gradient over every group of answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl")

from eligibility.audit import scripts
from eligibility.audit.language.directions import decompose
from eligibility.audit.language.measurement import true_directions
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.trainers.child import train_once
from eligibility.audit.trainers.observed import observed_from
from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.verdict import report_of

SCRIPT = """
from datasets import load_dataset
from trl import {kind}Config, {kind}Trainer

dataset = load_dataset("trl-lib/tldr", split="train")

def reward_length(completions, **kwargs):
    return [-abs(20 - len(completion)) for completion in completions]

settings = {kind}Config(output_dir="out", bf16=True, report_to="wandb", {options})
trainer = {kind}Trainer(
    model="Qwen/Qwen2-0.5B-Instruct",
    reward_funcs=reward_length,
    args=settings,
    train_dataset=dataset,
)
trainer.train()
"""


def trained(folder: Path, kind: str, options: str) -> Record:
    script = folder / "grpo.py"
    script.write_text(SCRIPT.format(kind=kind, options=options), encoding="utf-8")
    record = train_once(script, script, (), 200.0, 4096, lambda done, expected: None)
    assert record.outcome == "measured", record.detail
    return record


def coefficients(
    record: Record, *names: str, again: bool = False
) -> tuple[dict[str, float], float]:
    """Of the named directions in the expected gradient, and what they leave."""
    observed = observed_from(record, record.temperature, again)
    true = true_directions(observed.outcomes)
    expected = torch.tensor(observed.expected(observed.ascent)[::2]).flatten()
    named = {name: torch.tensor(true[name][::2]).flatten() for name in names}
    found = decompose(expected, named, tolerance=1e-5)
    return dict(found.coefficients), found.residual


# TRL's rewards and Llama's norm are in single precision, whose unit of rounding is 6e-8; a group's
# two differences and the divisions after them are a handful of roundings.
SINGLE = 1e-6


def test_a_script_of_trl_is_recognised_and_audited_as_it_is(tmp_path: Path) -> None:
    """dr_grpo without scaling: (G−1)/G, as a group's mean contains one's own reward, and 1/3."""
    script = tmp_path / "grpo.py"
    options = 'loss_type="dr_grpo", scale_rewards="none"'
    script.write_text(SCRIPT.format(kind="GRPO", options=options), encoding="utf-8")
    report = scripts.audit_script(script)
    assert report.verdict == "unbiased", report.summary
    assert report.residual < SINGLE
    assert report.components["reward"] == pytest.approx(1 / 6, rel=SINGLE)
    assert {c.name for c in report.conventions} == {"centred", "constant-scale"}
    assert not report.findings
    assert report.paths == 400
    assert report.probability == pytest.approx(1.0)
    assert "set aside: bf16=True" in report.notes
    assert report.notes[0].startswith("TRL ")


def test_rloo_has_the_divergence_of_whole_answers_in_its_reward(tmp_path: Path) -> None:
    record = trained(tmp_path, "RLOO", "beta=0.5")
    found, residual = coefficients(record, "reward", "kl-reverse", "kl-states", "kl-forward")
    assert residual < SINGLE
    assert found == pytest.approx({"reward": 1.0, "kl-reverse": -0.5}, rel=10 * SINGLE)


# The second update of a batch. A ratio's bound of 100 is never reached.
EXACT = 'loss_type="dr_grpo", scale_rewards="none", num_iterations=2'


@pytest.mark.parametrize(("epsilon", "gate"), [(0.2, {"clipped"}), (100.0, set())])
def test_the_second_update_of_each_batch_has_the_ratio_to_the_policy_that_drew(
    epsilon: float, gate: set[str], tmp_path: Path
) -> None:
    """dr_grpo: the first is exact; in the second each token has its own ratio, which is a bias."""
    report, said = second_update(tmp_path, "GRPO", f"{EXACT}, epsilon={epsilon}")
    assert report.verdict == "convention"
    assert report.summary.startswith("in the second update, ")
    assert report.updates == 2
    assert report.residual < SINGLE  # of the first
    biases = {c.name: c.bias for c in report.conventions}
    assert biases.keys() == {"centred", "constant-scale", "token-ratio"} | gate
    assert all(biases[name] > 1e-3 for name in {"token-ratio"} | gate)
    assert "× token-ratio" in said
    bounds = re.findall(r"a bound between ([\d.]+) and ([\d.]+)", said)
    assert len(bounds) == 2 * len(gate)
    for (low, high), bound in zip(bounds, (0.8, 1.2), strict=False):
        assert float(low) <= bound <= float(high)


def test_rloos_second_update_is_exact_as_the_first_where_nothing_is_clipped(
    tmp_path: Path,
) -> None:
    """It has the ratio of whole answers, which turns one expectation into the other."""
    options = "beta=0.0, num_iterations=2, epsilon=100.0"
    report, said = second_update(tmp_path, "RLOO", options)
    assert (report.verdict, report.updates) == ("unbiased", 2), report.summary
    assert "× sequence-ratio" in said
    assert "clipped where" not in said


def test_the_bias_of_clipping_is_the_whole_bias_of_rloos_second_update(tmp_path: Path) -> None:
    record = trained(tmp_path, "RLOO", "beta=0.0, num_iterations=2")
    _, residual = coefficients(record, "reward", again=True)
    report = report_of(record, "grpo.py")
    biases = {c.name: c.bias for c in report.conventions if c.bias}
    assert biases == {"clipped": pytest.approx(residual, rel=10 * SINGLE)}
    assert residual > 0.01


@pytest.mark.parametrize(
    ("options", "convention", "bound"),
    [
        ("delta=1.5", "token-ratio", "where the advantage is negative, above a bound between"),
        ("beta=0.5", "kl-per-token", "above a bound between"),
    ],
)
def test_a_bound_from_both_sides_and_a_divergence_beside_it_are_told_apart(
    options: str, convention: str, bound: str, tmp_path: Path
) -> None:
    report, said = second_update(tmp_path, "GRPO", f"{EXACT}, {options}")
    named = {c.name for c in report.conventions if c.bias}
    assert {"token-ratio", "clipped", convention} == named
    assert bound in said


def second_update(folder: Path, kind: str, options: str) -> tuple[AuditReport, str]:
    """The report of a script, and what it says of the second update."""
    script = folder / "twice.py"
    script.write_text(SCRIPT.format(kind=kind, options=options), encoding="utf-8")
    report = scripts.audit_script(script)
    return report, next(note for note in report.notes if note.startswith("second update"))


def test_the_recipe_is_acquitted_as_trls_own_trainer_is(tmp_path: Path) -> None:
    """With the loss of eligibility under it, in one pass: the same gradient of every outcome."""
    script = tmp_path / "recipe.py"
    text = SCRIPT.format(kind="GRPO", options='loss_type="dr_grpo", scale_rewards="none"')
    recipe = (
        "from eligibility.integrations.trl import LinearLoss\n"
        "class Recipe(LinearLoss, GRPOTrainer): ...\n"
        "trainer = Recipe("
    )
    script.write_text(text.replace("trainer = GRPOTrainer(", recipe), encoding="utf-8")
    report = scripts.audit_script(script)
    assert report.verdict == "unbiased", report.summary
    assert report.residual < SINGLE
    assert report.components["reward"] == pytest.approx(1 / 6, rel=SINGLE)
    assert {c.name for c in report.conventions} == {"centred", "constant-scale"}
    assert "Recipe: trained once" in report.notes[0]


def test_what_a_program_turns_on_after_the_check_is_set_aside_too(tmp_path: Path) -> None:
    """As TRL's example of continuous batching does; and its data come as a list of two splits."""
    script = tmp_path / "later.py"
    text = SCRIPT.format(kind="RLOO", options="beta=0.001")
    text = text.replace('split="train")', 'split=["train", "test"])[0].map(lambda row: row)')
    text = text.replace(
        "trainer = ", "settings.use_transformers_paged = True\nsettings.bf16 = True\ntrainer = "
    )
    script.write_text(text, encoding="utf-8")
    report = scripts.audit_script(script)
    assert report.verdict == "convention", report.summary
    assert [c.name for c in report.conventions if c.bias] == ["kl-in-reward"]
    assert report.components["kl-reverse"] == pytest.approx(-0.05, rel=1e-3)
    raised = "beta=0.001 is raised to 0.05 here, to exceed the rounding of single precision"
    assert raised in report.notes


def test_the_likeliest_tokens_alone_are_not_the_policy(tmp_path: Path) -> None:
    """TRL draws from all tokens unless it is asked otherwise, and scores among all."""
    report = report_of(trained(tmp_path, "GRPO", "top_k=50"), "grpo.py")
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("biased", "behaviour-not-scored")
    assert "tokens are drawn from the 50 likeliest (`top_k`)" in finding.evidence
