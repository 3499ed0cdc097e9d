"""The child process that trains once: the script runs here, and one record goes back."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from eligibility.audit.job import Program, decode_program
from eligibility.audit.running.place import run_program, settle_in, workspace_of
from eligibility.audit.trainers.own import run_own, trains_with_trl
from eligibility.audit.trainers.record import Record, run_to_end
from eligibility.audit.trainers.sampling import PAIRS, Sampler
from eligibility.audit.trainers.unsupported import reason_of
from eligibility.sandbox import limit


def prepare() -> None:
    """What every program needs, once for all of them: also what torch loads at its first step."""
    torch.set_num_threads(1)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight])
    (weight * weight).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    """Read the settings, run the program, and write progress and the record as lines."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    program = decode_program(sys.stdin.readline())
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    def announce(done: int, expected: int) -> None:
        print(json.dumps([done, expected]), file=results, flush=True)

    record = run(program, announce)
    print(record.to_line(), file=results, flush=True)
    results.close()
    os._exit(0)


def run(program: Program, announce: Callable[[int, int], None], pairs: int = PAIRS) -> Record:
    """Run a program to the end of its training, in this process, which serves for nothing else.

    Args:
        program: The script.
        announce: Called with the outcomes done and their number.
        pairs: Policies that a trainer of TRL is run with.
    """
    warnings.simplefilter("ignore")
    own = not trains_with_trl(Path(program.path))
    record = run_own(program, announce) if own else _run_trainer(program, announce, pairs)
    if record.broke_off and (reason := reason_of(Path(program.path))):
        record.outcome, record.detail = "refused", reason
    return record


def _run_trainer(program: Program, announce: Callable[[int, int], None], pairs: int) -> Record:
    record = Record()
    sampler = Sampler(record, announce, pairs)
    try:
        _install(record, sampler)
    except Exception as error:  # an installed trainer's own modules raise it: the user is told
        record.detail = f"{type(error).__name__}: {error}"
        return record
    workspace = workspace_of(program)
    limit(program.seconds, program.megabytes)
    settle_in(program, workspace)

    def trained() -> str:
        run_program(Path(program.path))
        return _nothing_trained(record)

    run_to_end(record, trained)
    sampler.close_outcome()
    return record


def _nothing_trained(record: Record) -> str:
    if record.gradients:
        return "the program ended before it had trained on every group of answers"
    return (
        "the program trained with neither GRPOTrainer nor RLOOTrainer of TRL; audit its loss with "
        "audit_token_loss"
    )


def _install(record: Record, sampler: Sampler) -> None:
    """The probe's stand-ins, in every library that is there."""
    generation: Any = importlib.import_module("transformers.generation.utils")
    from eligibility.audit.trainers.hub import Hub
    from eligibility.audit.trainers.trl import Trainers

    sampler.generate = generation.GenerationMixin.generate

    hub = Hub(record)
    hub.install()
    with suppress(ImportError):
        importlib.import_module("trl")
        Trainers(record, hub, sampler).install()
    generation.GenerationMixin.generate = lambda model, *args, **options: sampler.generated(
        model, args, options
    )
