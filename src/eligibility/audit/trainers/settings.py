"""A trainer's configuration on one core: what is kept, set aside, and made small."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from typing import Any

from eligibility.audit.trainers.record import Record
from eligibility.audit.trainers.tiny import GROUP, LENGTH, PROMPTS

# What no gradient on a processor depends on: option, and what it is set to.
_ASIDE: dict[str, Any] = {
    "bf16": False,
    "fp16": False,
    "tf32": None,
    "use_vllm": False,
    "deepspeed": None,
    "fsdp": None,
    "use_liger_kernel": False,
    "use_liger_loss": False,
    "torch_compile": False,
    "optim": "sgd",
    "max_grad_norm": 0.0,
    "cast_lm_head_to_fp32": False,
    "use_transformers_paged": False,
    "use_transformers_continuous_batching": False,
    "sync_ref_model": False,
    "cache_implementation": None,
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "auto_find_batch_size": False,
    "model_init_kwargs": None,
    "parallelism_config": None,
    "max_prompt_length": None,
    "ds3_gather_for_generation": False,
    "router_aux_loss_coef": None,
}
# What only shows, saves or evaluates: set aside without a word about each.
_QUIET: dict[str, Any] = {
    "use_cpu": True,
    "gradient_checkpointing": False,
    "report_to": "none",
    "logging_strategy": "no",
    "logging_dir": None,
    "save_strategy": "no",
    "eval_strategy": "no",
    "do_eval": False,
    "eval_on_start": False,
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "log_completions": False,
    "log_completions_hub_repo": None,
    "wandb_log_unique_prompts": False,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "output_dir": ".",
    "max_steps": 1_000_000,
    "resume_from_checkpoint": None,
}
GENERAL = (
    "one core, double precision; trackers, saving, evaluation, gradient checkpointing, the "
    "learning rate and the optimizer's rule have no effect"
)


def fit(settings: Any, record: Record) -> None:
    """Change a configuration, before it checks itself, to one that the probe can run."""
    set_aside(settings, record)
    _make_small(settings, record)
    record.note(GENERAL)


def set_aside(settings: Any, record: Record) -> None:
    """Turn off what cannot be here; also what a program has turned on since the check."""
    defaults = {field.name: _default(field) for field in fields(settings)}
    for name, value in _ASIDE.items():
        if name in defaults:
            asked = getattr(settings, name)
            if asked not in (value, defaults[name]) and asked:
                record.note(f"set aside: {name}={asked!r}")
            setattr(settings, name, defaults[name] if name in _OWN_DEFAULT else value)
    for name, value in _QUIET.items():
        if name in defaults:
            checked = isinstance(getattr(settings, name), list)  # older releases: a list of none
            setattr(settings, name, [] if checked else value)


_LEAST_BETA = 0.05  # below it single precision leaves too few digits of the term
_PAST = 5.0  # a later policy's log π(token) differs by up to that many times a ratio's bound
_FARTHEST = 2.5  # but by no more: a wider bound is never reached
_OWN_DEFAULT = {"fsdp", "parallelism_config"}


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _make_small(settings: Any, record: Record) -> None:
    """Two answers of at most three tokens to each of two prompts, in one or two micro-batches."""
    asked = getattr(settings, "num_generations", None)
    length = getattr(settings, "max_completion_length", None)
    record.note(
        f"{GROUP} answers of at most {LENGTH} tokens to each of {len(PROMPTS)} prompts, where the "
        f"program asks for {asked} of up to {length}"
    )
    accumulation = min(getattr(settings, "gradient_accumulation_steps", 1) or 1, 2)
    several = _steps_per_generation(settings)
    micro_batches = 2 if accumulation > 1 or several > 1 else 1
    values: dict[str, Any] = {
        "num_generations": GROUP,
        "num_generations_eval": GROUP,
        "max_completion_length": LENGTH,
        "generation_batch_size": None,
        "gradient_accumulation_steps": accumulation,
        "per_device_train_batch_size": GROUP * len(PROMPTS) // micro_batches,
        "per_device_eval_batch_size": GROUP,
        "steps_per_generation": micro_batches if several > 1 else None,
        "num_iterations": min(getattr(settings, "num_iterations", 1) or 1, 2),
    }
    for name, value in values.items():
        if hasattr(settings, name):
            setattr(settings, name, value)
    record.micro_batches = micro_batches
    record.steps = micro_batches if several > 1 else 1
    record.drift = _drift(settings) if values["num_iterations"] > 1 else 0.0
    record.temperature = float(getattr(settings, "temperature", None) or 1.0)
    beta = float(getattr(settings, "beta", None) or 0.0)
    if 0.0 < beta < _LEAST_BETA:
        record.note(
            f"beta={beta:g} is raised to {_LEAST_BETA} here, to exceed the rounding of single "
            "precision"
        )
        settings.beta = beta = _LEAST_BETA
    record.kl_coefficient = beta


def _drift(settings: Any) -> float:
    """How far a later policy may be: so that the ratio passes each bound on some answers only."""
    low = getattr(settings, "epsilon", None) or 0.2
    high = getattr(settings, "epsilon_high", None) or low
    bounds = [math.log1p(high), -math.log1p(-low) if low < 1 else 0.0]
    if (delta := getattr(settings, "delta", None)) is not None and delta > 1:
        bounds.append(math.log(delta))
    return min(_PAST * max(bounds), _FARTHEST)


def _steps_per_generation(settings: Any) -> int:
    """How many updates the program makes of one generation."""
    accumulation = getattr(settings, "gradient_accumulation_steps", 1) or 1
    steps = getattr(settings, "steps_per_generation", None)
    if steps is None and getattr(settings, "generation_batch_size", None):
        steps = settings.generation_batch_size // max(settings.per_device_train_batch_size, 1)
    return int((steps or accumulation) // accumulation)
