"""What is said of scripts that the probe of language models cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")

from eligibility.audit.scripts import audit_script

HEAD = "from datasets import load_dataset\nfrom trl import GRPOConfig, GRPOTrainer\n"
REFUSED = {
    "the program trained with neither GRPOTrainer nor RLOOTrainer of TRL; audit its loss with "
    "audit_token_loss": "print(load_dataset)",
    "the program samples by `generate` in a loop of its own, whose rewards the audit cannot set; "
    "audit its loss with audit_token_loss": "import torch\n"
    "from transformers import AutoModelForCausalLM\n"
    "AutoModelForCausalLM.from_pretrained('gpt2').generate(torch.tensor([[1]]))",
    "the program loads AutoModelForImageTextToText, and the probe has no images or sound; audit "
    "its loss with audit_token_loss": "from transformers import AutoModelForImageTextToText\n"
    "AutoModelForImageTextToText.from_pretrained('x')",
    "the trainer has no reward function": "GRPOTrainer(model='x', reward_funcs=[], "
    "train_dataset=load_dataset('y'))",
    "the program calls tools while it answers, and the probe's answers are single ones; audit its "
    "loss with audit_token_loss": "GRPOTrainer(model='x', reward_funcs=[len], tools=[len], "
    "train_dataset=load_dataset('y'))",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_audited_is_refused_in_one_sentence(said: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + REFUSED[said] + "\n", encoding="utf-8")
    report = audit_script(script)
    assert (report.verdict, report.summary) == ("inconclusive", said)


def test_an_error_of_the_program_is_reported_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + "GRPOConfig(no_such_option=1)\n", encoding="utf-8")
    report = audit_script(script)
    assert report.verdict == "inconclusive"
    assert f"the program stopped at {script}:3: TypeError" in report.summary
