"""One run of a script with its own training loop, in the place of what it loads by name."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from eligibility.audit.interception.processes import load_here
from eligibility.audit.job import Program
from eligibility.audit.patches import Patches
from eligibility.audit.running.outside_numbers import numbers_outside
from eligibility.audit.running.place import run_program, settle_in, workspace_of
from eligibility.audit.running.preloading import preload
from eligibility.audit.running.smaller import shrink
from eligibility.audit.trainers.attempts import Attempts, Sizes
from eligibility.audit.trainers.doubles import settle
from eligibility.audit.trainers.engines import replace_engines
from eligibility.audit.trainers.hub import Hub, named_in
from eligibility.audit.trainers.loop import Loop
from eligibility.audit.trainers.record import Record, run_to_end
from eligibility.audit.trainers.rewriting import SMALL, Rewriting
from eligibility.audit.trainers.rows import collate_rows
from eligibility.audit.trainers.spelling import has_padding, read_as_one, spelling_tokenizer
from eligibility.audit.trainers.tiny import PAD
from eligibility.sandbox import Workspace, limit

_LIBRARIES = ("transformers", "datasets", "accelerate", "peft")


def run_own(program: Program, announce: Callable[[int, int], None]) -> Record:
    """The measurements of a script, which runs in separate processes."""
    workspace = workspace_of(program)
    for path in Path(program.path).parent.glob("*.py"):
        preload(path, _LIBRARIES)

    def run(record: Record, sizes: Sizes, most_rows: float, grouping: bool) -> None:
        _run(program, workspace, record, Loop(record, announce, most_rows, grouping), sizes)

    return Attempts(run).best()


def _run(program: Program, workspace: Workspace, record: Record, loop: Loop, sizes: Sizes) -> None:
    rewriting = Rewriting(
        loop.scores.watched, loop.scores.of_name, lambda before: loop.draws.over(before)
    )
    if record.one_prompt:
        read_as_one()
        record.note(
            "the program samples different numbers of answers to its prompts; the probe reads all "
            "of them as the same prompt"
        )
    _install(record, loop)
    limit(program.seconds, program.megabytes)
    settle_in(program, workspace)
    shrink([(*number, size) for number, size in sizes.items()])

    def sampled() -> str:
        run_program(Path(program.path))
        loop.ended()
        return (
            "the program makes no trainer of TRL and samples no answers with `generate` or "
            "torch.multinomial from a model of transformers; audit its loss with audit_token_loss"
        )

    run_to_end(record, sampled)
    if loop.branch is not None:
        if record.outcome == "refused":
            where = record.file, record.line
            text = record.other_text
            loop.branch.send(refused=record.detail, other_text=text, where=where)
        loop.failed(f"{record.file}:{record.line}: {record.detail}")
    for name in rewriting.variables:
        record.note(f"the environment variable {name} is not set: it is {os.environ[name]} here")
    beside = numbers_outside(
        Path(program.path), workspace.root, rewriting.strings, program.arguments
    )
    own = (*rewriting.constants, *(number for number in beside if number[3] >= SMALL))
    record.constants = [list(number) for number in own]


class _LoopHub(Hub):
    """What a program's own loop loads by name."""

    def __init__(self, record: Record, loop: Loop) -> None:
        super().__init__(record)
        self._loop = loop
        self._pads = False  # whether tokenizers have a token for padding, whatever the name

    def model(self, *args: Any, kind: type | None = None, **options: Any) -> Any:
        """A model that pads with what its tokenizer pads with."""
        made = super().model(*args, kind=kind, **options)
        if self._pads or has_padding(named_in(args, options)):
            _pad(made)
        return made

    def tokenizer(self, *args: Any, **options: Any) -> Any:
        """A tokenizer that tells the program's own texts from each other."""
        side = options.get("padding_side")
        return spelling_tokenizer(named_in(args, options), side, self._come_with_padding)

    def _come_with_padding(self) -> None:
        self._pads = True
        self._record.note(
            "the program pads without naming a padding token; the audit assumes that its "
            "tokenizer has one"
        )
        for model in self.models:
            _pad(model)

    def reward_model(self) -> Any:
        """A classifier that says the probe's rewards."""
        model, scores = super().reward_model(), self._loop.scores
        stock = model.forward

        def forward(input_ids: Any = None, *args: Any, **options: Any) -> Any:
            output = stock(input_ids, *args, **options)
            said = scores.of_model(input_ids)
            others = torch.zeros(len(said), self._record.labels - 1)
            output.logits = torch.cat([others, said], 1)
            return output

        model.forward = forward
        return model


def _pad(model: Any) -> None:
    model.generation_config.pad_token_id = model.config.pad_token_id = PAD


def _install(record: Record, loop: Loop) -> None:
    transformers: Any = importlib.import_module("transformers")
    transformers.PreTrainedModel.gradient_checkpointing_enable = lambda *args, **options: None
    generation: Any = importlib.import_module("transformers.generation.utils")
    record.trainer, record.version = "a loop", f"transformers {transformers.__version__}"
    torch.set_num_threads(1)
    loop.generate = generation.GenerationMixin.generate
    settle(record, loop.met, loop.goes_backward)
    collate_rows()
    load_here(Patches())
    hub = _LoopHub(record, loop)
    hub.install()
    replace_engines(hub.model, hub.tokenizer, record.note)
    llama: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    loop.models.watch(llama.LlamaForCausalLM)
    loop.models.watch_optimizers()
    stock = llama.LlamaForCausalLM.forward

    @functools.wraps(stock)  # its parameters tell transformers which columns of the data it reads
    def forward(model: Any, *args: Any, **options: Any) -> Any:
        loop.forwards(model)
        output = stock(model, *args, **options)
        loop.has_run(model, output)
        return output

    within = llama.LlamaModel.forward

    @functools.wraps(within)
    def forward_within(model: Any, *args: Any, **options: Any) -> Any:
        loop.scores.passes += 1
        return within(model, *args, **options)

    llama.LlamaForCausalLM.forward, llama.LlamaModel.forward = forward, forward_within
    generation.GenerationMixin.generate = lambda model, *args, **options: loop.generated(
        model, args, options
    )


def trains_with_trl(script: Path) -> bool:
    """Whether a script, or one next to it, imports one of TRL's trainers that can be audited."""
    text = script.read_text("utf-8", errors="replace")
    modules = [path for path in script.parent.glob("*.py") if path != script and path.stem in text]
    texts = [text, *(path.read_text("utf-8", errors="replace") for path in modules)]
    imports = any(re.search(r"^\s*(from|import)\s+trl\b", each, re.M) for each in texts)
    return imports and any("GRPO" in each or "RLOO" in each for each in texts)
