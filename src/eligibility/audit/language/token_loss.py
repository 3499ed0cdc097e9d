"""`audit_token_loss`: the exact expected gradient of a loss over tokens, and what it is."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from eligibility.audit.language.behaviour import behaviour_named
from eligibility.audit.language.invariances import order_matters
from eligibility.audit.language.judgement import judge
from eligibility.audit.language.languages import Language, World, make_world
from eligibility.audit.language.measured import measure
from eligibility.audit.language.outcomes import plan
from eligibility.audit.language.parameters import bind
from eligibility.audit.reporting.report import AuditReport
from eligibility.scalars import check_callable


def audit_token_loss(
    loss: Callable[..., Any],
    *,
    advantage: Callable[..., Any] | None = None,
    prompts: int = 2,
    group_size: int = 2,
    length: int = 3,
    vocabulary: int = 2,
    behaviour: str = "policy",
    temperature: float = 1.0,
    pad_to: int | None = None,
    micro_batch: int | None = None,
    max_paths: int = 3000,
) -> AuditReport:
    """Whether a loss over the tokens of a language model computes the policy gradient.

    The loss is called on every batch that a trainer can meet in a tiny language, so its expected
    gradient is a finite sum, and exact.

    Args:
        loss: Returns the scalar loss, or a tuple or mapping that has it first. With one parameter
            it is given a `TokenBatch`; with several, they are filled by the names that the fields
            have in verl, OpenRLHF, TRL, NeMo-RL, slime, prime-rl, SkyRL, open-instruct, ROLL, AReaL
            and Liger.
        advantage: Returns the advantages, [B] or [B, T], where another function than the loss
            makes them; filled likewise. Without it ``advantages`` are the rewards.
        prompts: Prompts in a batch.
        group_size: Answers to each prompt.
        length: The most tokens of an answer.
        vocabulary: Tokens, of which one ends an answer.
        behaviour: From what the answers are drawn: "policy"; "old", the policy of some steps ago;
            "rollout", an engine whose log-probabilities differ, much at a few tokens; or the policy
            with "top-k", "top-p", "min-p" or "repetition-penalty".
        temperature: With which the answers are drawn; the logits are given as they are.
        pad_to: Width that answers are padded to; None: the batch's longest.
        micro_batch: Rows of each call of the loss, over which the gradient is averaged; None: all.
        max_paths: The most batches to run.

    Returns:
        The report. ``components`` has the coefficients of the named directions in the expected
        gradient, ``invariances`` its relative change under what should not matter, ``credit`` how
        each token's weight moves with each reward.

    Raises:
        InvalidTypeError: A parameter cannot be filled, or the result is not a scalar.
        InvalidValueError: A size or a name is out of its domain, or there are too many batches.

    Example:
        >>> def grpo(batch):
        ...     groups = batch.rewards.view(-1, batch.group_size)
        ...     advantages = (groups - groups.mean(1, keepdim=True)).flatten()
        ...     each = (batch.log_probs * batch.mask).sum(1) / batch.lengths
        ...     return -(each * advantages).mean()
        >>> report = audit_token_loss(grpo)
        >>> report.verdict, [(c.name, f"{c.bias:.1%}") for c in report.conventions if c.bias]
        ('convention', [('mean-over-each-episode', '24.1%')])

    References:
        Williams 1992, Theorem 1; Shao et al. 2024 (GRPO); Liu et al. 2025 (its normalisers).
    """
    check_callable(loss, "loss", "pass the function or the module that returns the loss")
    started = time.perf_counter()
    language = Language(prompts, group_size, length, vocabulary, pad_to)
    drawn = behaviour_named(behaviour, temperature, vocabulary)
    with _one_thread():
        world = make_world(language, 0, drawn)
        bound = bind(loss, advantage, micro_batch, world.example())

        def symmetric(of: World) -> bool:
            every = torch.randint(
                len(language.answers),
                (64, prompts * group_size),
                generator=torch.Generator().manual_seed(0),
            )
            return not order_matters(bound, of, every)

        outcomes = plan(language, drawn, max_paths, symmetric)
        report = judge(
            measure(bound, outcomes),
            getattr(loss, "__qualname__", type(loss).__qualname__),
            return_place(loss) or ("", 0),
        )
    return replace(report, seconds=time.perf_counter() - started)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors of a few numbers are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def return_place(function: Callable[..., Any]) -> tuple[str, int] | None:
    """File and line of the last ``return`` of a function, or of its first line; None: no source."""
    called = function.forward if isinstance(function, nn.Module) else inspect.unwrap(function)
    called = called.func if isinstance(called, partial) else called
    try:
        lines, first = inspect.getsourcelines(called)
        file = inspect.getsourcefile(called) or ""
    except (OSError, TypeError):
        return None
    returns = [number for number, line in enumerate(lines) if line.lstrip().startswith("return")]
    return str(Path(file).absolute()), first + (returns[-1] if returns else 0)
