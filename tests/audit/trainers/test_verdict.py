"""What is said of scripts that the probe of language models cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import transformers

from eligibility.audit.interception.language import LanguageProgram, _Finder
from eligibility.audit.reporting.report import AuditReport, Finding
from eligibility.audit.scripts import audit_script
from eligibility.audit.trainers.sampling import OWN_LOOP, in_user_loop
from eligibility.audit.trainers.verdict import _with_second

HEAD = "from datasets import load_dataset\nfrom trl import GRPOConfig, GRPOTrainer\n"
LINE = (
    'python -c "import eligibility as el; print(el.audit_token_loss('
    'lambda log_probs, rewards, mask: -(log_probs * rewards[:, None] * mask).sum()))"'
)
BY_HAND = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

def policy_loss(log_probs, rewards, mask):
    return -(log_probs * rewards[:, None] * mask).sum()

def main():
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    while True:
        ids = tokenizer("Once", return_tensors="pt")["input_ids"]
        logits = model(input_ids=ids).logits[:, -1]
        token = torch.multinomial(logits.softmax(-1), 1)
        log_probs = logits.log_softmax(-1).gather(1, token)
        loss = policy_loss(log_probs, torch.ones(1), torch.ones(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
REFUSED = {
    "the program trained with neither GRPOTrainer nor RLOOTrainer of TRL; audit its loss with "
    "audit_token_loss": "print(load_dataset)",
    OWN_LOOP: "import torch\n"
    "from transformers import AutoModelForCausalLM\n"
    "AutoModelForCausalLM.from_pretrained('gpt2').generate(torch.tensor([[1]]))",
    "the program loads AutoModelForImageTextToText, and the probe has no images or sound; audit "
    "its loss with audit_token_loss": "from transformers import AutoModelForImageTextToText\n"
    "AutoModelForImageTextToText.from_pretrained('x')",
    "the program loads AutoModelForSeq2SeqLM, and the probe's model has no encoder; audit its loss "
    "with audit_token_loss": "from transformers import AutoModelForSeq2SeqLM\n"
    "AutoModelForSeq2SeqLM.from_pretrained('x')",
    "the program loads T5ForConditionalGeneration, and the probe's model has no encoder; audit "
    "its loss with audit_token_loss": "from transformers import T5ForConditionalGeneration\n"
    "T5ForConditionalGeneration.from_pretrained('x')",
    "the trainer has no reward function": "GRPOTrainer(model='x', reward_funcs=[], "
    "train_dataset=load_dataset('y'))",
    "the program calls tools while it answers, and the probe has only single answers; audit its "
    "loss with audit_token_loss": "GRPOTrainer(model='x', reward_funcs=[len], tools=[len], "
    "train_dataset=load_dataset('y'))",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_audited_is_refused_in_one_sentence(said: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + REFUSED[said] + "\n", encoding="utf-8")
    report = audit_script(script)
    shown = f"{said}: {LINE}" if said.endswith("audit_token_loss") else said
    assert (report.verdict, report.summary) == ("inconclusive", shown)


def test_a_model_of_tokens_of_its_own_class_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import torch
model = torch.nn.Sequential(torch.nn.Embedding(5, 8), torch.nn.Linear(8, 5))
adam = torch.optim.Adam(model.parameters())
for _ in range(200):
    said = [torch.zeros(2, dtype=torch.long)]
    log_probs = 0.0
    for _ in range(3):
        policy = torch.distributions.Categorical(logits=model(said[-1]))
        said.append(policy.sample())
        log_probs = log_probs + policy.log_prob(said[-1])
    loss = -(log_probs * torch.stack(said).double().mean(0)).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
""",
        encoding="utf-8",
    )
    _has_no_environment(audit_script(script))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("", id="tokens"),
        pytest.param(
            "for _ in range(300):\n    model(start).sum().backward()\n    adam.step()",
            id="pretraining",
        ),
    ],
)
def test_a_long_run_of_a_model_of_its_own_class_is_cut_short(head: str, tmp_path: Path) -> None:
    """A generation, or training without rewards, which would take hours by itself."""
    script = tmp_path / "script.py"
    text = f"""
import torch
model = torch.nn.Sequential(torch.nn.Embedding(5, 8), torch.nn.Linear(8, 5))
adam = torch.optim.Adam(model.parameters())
start = torch.zeros(2, dtype=torch.long)
{head}
while True:
    with torch.no_grad():
        start = torch.multinomial(model(start).softmax(-1), 1).squeeze(-1)
"""
    script.write_text(text, encoding="utf-8")
    _has_no_environment(audit_script(script))


def _has_no_environment(report: AuditReport) -> None:
    assert report.verdict == "inconclusive"
    assert "before it creates an environment" in report.summary
    assert report.summary.endswith("audit_token_loss if it trains a language model")


def test_the_line_in_a_refusal_audits_the_loss_of_a_loop_by_hand(tmp_path: Path) -> None:
    """Token by token, with rewards that are always 1."""
    (tmp_path / "by_hand.py").write_text(BY_HAND, encoding="utf-8")
    report = audit_script(tmp_path / "by_hand.py")
    head, _, line = report.summary.partition(": ")
    assert report.verdict == "inconclusive"
    assert head.startswith("the audit found no reward")
    assert "from by_hand import policy_loss;" in line
    options = {"shell": True, "cwd": tmp_path, "capture_output": True, "text": True}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(line, **options, env=os.environ | {"PATH": path})
    assert done.stdout.startswith("UNBIASED  policy_loss"), done.stderr


@pytest.mark.parametrize("first", ["", "from datasets import load_dataset\nload_dataset('x')\n"])
def test_a_model_that_a_module_of_the_programs_loads_is_a_language_model(
    tmp_path: Path, first: str
) -> None:
    """Also where data are loaded by name before it."""
    loads = '    model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
    (tmp_path / "models.py").write_text(
        "from transformers import AutoModelForCausalLM\n"
        "def policy():\n    return AutoModelForCausalLM.from_pretrained('gpt2')\n",
        encoding="utf-8",
    )
    text = BY_HAND.replace(loads, "    model = policy()\n")
    text = text.replace(
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
        f"from models import policy\n{first}",
    )
    text = text.replace(
        "    tokenizer =", "    from transformers import AutoTokenizer\n    tokenizer ="
    )
    (tmp_path / "by_hand.py").write_text(text, encoding="utf-8")
    assert audit_script(tmp_path / "by_hand.py").summary.startswith("the audit found no reward")


def test_a_package_of_the_programs_may_be_called_as_the_library_of_data(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("QUESTIONS = ['Once']\n", encoding="utf-8")
    text = f"from datasets import QUESTIONS\n{BY_HAND}"
    (tmp_path / "by_hand.py").write_text(text, encoding="utf-8")
    assert audit_script(tmp_path / "by_hand.py").summary.startswith("the audit found no reward")


@pytest.mark.parametrize("place", [".venv/lib/python3.11/site-packages", "lib"])
def test_a_library_in_an_environment_beside_the_script_is_not_the_programs_own(
    place: str, tmp_path: Path
) -> None:
    package = tmp_path / place / "trl"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    finder = _Finder(tmp_path)
    if place == "lib":
        assert finder.find_spec("trl", [str(package.parent)]) is None
    else:
        with pytest.raises(LanguageProgram):
            finder.find_spec("trl", [str(package.parent)])


def test_a_trainer_of_transformers_before_trl_is_no_loop_of_the_program() -> None:
    """The optimizer's caller decides: this test is a user's file, a library is none."""
    assert in_user_loop()
    namespace = {"__name__": "transformers.trainer", "in_user_loop": in_user_loop}
    step = compile("answer = in_user_loop()", transformers.trainer.__file__, "exec")
    exec(step, namespace)
    assert not namespace["answer"]


@pytest.mark.parametrize("first", ["unbiased", "convention"])
def test_a_second_update_that_no_rule_explains_is_no_pass(first: str) -> None:
    seen = Finding("unexplained", "unexplained", "nobody knows", "", "train.py", 7, "")
    report = _with_second(
        AuditReport("train.py", first, "as it should be"),
        AuditReport("train.py", "unexplained", "nobody knows", findings=(seen,)),
        0.4,
    )
    assert report.verdict == "unexplained"
    assert report.summary == "in the second update, nobody knows"
    assert [finding.rule for finding in report.findings] == ["unexplained"]


def test_an_error_of_the_program_is_reported_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + "GRPOConfig(no_such_option=1)\n", encoding="utf-8")
    report = audit_script(script)
    assert report.verdict == "inconclusive"
    assert f"the program stopped at {script}:3: TypeError" in report.summary
