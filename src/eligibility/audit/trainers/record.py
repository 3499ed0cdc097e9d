"""What one training run left behind: the gradient at the logits, for every group of answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from eligibility.audit.trainers.refused import Finished, Refused
from eligibility.audit.trainers.tiny import GROUP, LENGTH, PROMPTS
from eligibility.audit.user_code import caught_in, raised_at

Table = list[list[list[float]]]


@dataclass
class Policies:
    """One policy with its reference, what it draws from, and the rewards.

    Attributes:
        logits: [P, S, V] of the policy.
        reference: [P, S, V] of the reference; empty if there is none.
        drawn: [P, S, V] probabilities that tokens are drawn with.
        rewards: [P, A] of each answer.
    """

    logits: Table = field(default_factory=list)
    reference: Table = field(default_factory=list)
    drawn: Table = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)


@dataclass
class Record:
    """The measurements of one run, in plain lists that can go through a pipe.

    Attributes:
        outcome: "measured", "refused" (``detail`` says why) or "error".
        detail: One sentence.
        file: Where the training began, or an error was raised.
        line: Likewise.
        trainer: What trains: "GRPOTrainer", "RLOOTrainer", …, or "a loop".
        version: Version of the training library.
        policies: One for each block of outcomes; every second one is that before it with the
            rewards of the other sign.
        rows: Rows that the program samples before its optimizer steps.
        constants: Whole numbers in its text: file, line, column and value.
        mixed: Whether the rewards of one prompt's answers move the gradients of the other's.
        mixed_elsewhere: Likewise, where a group has another size than there are prompts.
        one_prompt: Whether all of its texts are to be read as the same prompt.
        classifies: Whether it loads a classifier of texts.
        labels: How many labels the classifier has.
        early: Where its rewards may come from, if it makes no step unless they differ.
        prompts: Prompts of an update.
        group: Answers to each.
        length: Tokens of the longest answer.
        ordered: Whether groups were run in every order of their answers.
        gradients: [N, B, W, V] of the loss at the logits of each row's positions, block by block.
        made: [N] steps that the program has made on each; after none, it has sampled again.
        all_steps: Whether only those groups are read on which it has made all its steps.
        stopped: Where the program stopped with an error, and with which one.
        overwritten: File and line where the end takes a drawn token's place, and is scored there.
        later: The policies after some steps, if a group of answers is trained on again.
        gradients_again: As ``gradients``, of those policies.
        leak: Largest relative part of a parameters' gradient that ``gradients`` do not explain.
        prompt_share: Largest part of a gradient that is at the logits of a prompt.
        temperature: The one that the program's configuration names; else 1.
        kl_coefficient: Likewise; for a program's own loop, 1 if the reference changes its loss;
            else 0.
        reference_moves: Whether the reference changes the gradient; None: it is not known.
        unseen: How it draws otherwise than it scores, where the probe's tokens do not show it, and
            what to write instead; empty: it does not.
        drawn_at: File and line where it draws; empty if that is not known.
        scored_otherwise: Whether the model itself gives other probabilities where they are scored.
        micro_batches: Into how many an update is split.
        parameters: Trained numbers.
        steps: Optimizer steps on each group of answers, each time that it is trained on.
        drift: By how much log π(token) may differ when it trains on them again; 0: it does not.
        seconds: Duration of the training in seconds.
        operations: What the loss of a program's own loop does, with rewards of both signs.
        kept: File and line of a step whose gradients are still there when the next ones are added.
        other_text: How its answers are scored after another text than they are drawn after.
        supposed: What stands for the rewards without being called one; it may be a cost.
        notes: What was set aside.
    """

    outcome: str = "error"
    detail: str = ""
    file: str = ""
    line: int = 0
    trainer: str = ""
    version: str = ""
    policies: list[Policies] = field(default_factory=list)
    rows: int = 0
    constants: list[Any] = field(default_factory=list)
    mixed: bool = False
    mixed_elsewhere: bool = False
    one_prompt: bool = False
    classifies: bool = False
    labels: int = 1
    early: list[Any] = field(default_factory=list)
    prompts: int = len(PROMPTS)
    group: int = GROUP
    length: int = LENGTH
    ordered: bool = False
    gradients: Any = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    all_steps: bool = False
    stopped: list[str] = field(default_factory=list)
    overwritten: list[Any] = field(default_factory=list)
    later: list[Policies] = field(default_factory=list)
    gradients_again: Any = field(default_factory=list)
    leak: float = 0.0
    prompt_share: float = 0.0
    temperature: float = 1.0
    kl_coefficient: float = 0.0
    reference_moves: bool | None = None
    unseen: list[str] = field(default_factory=list)
    drawn_at: list[Any] = field(default_factory=list)
    scored_otherwise: bool = False
    micro_batches: int = 1
    parameters: int = 0
    steps: int = 1
    drift: float = 0.0
    seconds: float = 0.0
    operations: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    other_text: str = ""
    supposed: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def broke_off(self) -> bool:
        """Whether the program itself stopped, as where two of its numbers must fit each other."""
        return self.outcome == "error" or self.detail.startswith("the program stopped")

    @property
    def left_out(self) -> list[bool]:
        """[N] which groups of answers are left out."""
        least = max(self.made, default=0) if self.all_steps else 1
        return [made < least for made in self.made]

    @property
    def fits(self) -> bool:
        """Whether its numbers fit each other: it neither broke off nor ended without a step."""
        return not self.broke_off and (self.outcome != "refused" or self.rows > 0)

    def note(self, text: str) -> None:
        """Remember it once."""
        if text not in self.notes:
            self.notes.append(text)

    def to_line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))


def record_from(data: dict[str, Any]) -> Record:
    """The record that a dictionary was made of."""
    for name in ("policies", "later"):
        data[name] = [Policies(**each) for each in data[name]]
    return Record(**data)


def run_to_end(record: Record, program: Callable[[], str]) -> None:
    """Run a program; if it comes to its own end, what it returns says why nothing was measured."""
    started = time.process_time()
    try:
        record.outcome, record.detail = "refused", program()
    except Finished:
        record.outcome = "measured"
    except Refused as refusal:
        record.outcome, record.detail = "refused", str(refusal)
        record.other_text = refusal.other_text
        if refusal.other_text:
            record.file, record.line = refusal.where
    except BaseException as end:  # whatever the program ends by
        error = caught_in(end)
        record.outcome, record.detail = "error", f"{type(error).__name__}: {error}"[:2000]
        record.file, record.line = raised_at(error)
    record.seconds = time.process_time() - started
