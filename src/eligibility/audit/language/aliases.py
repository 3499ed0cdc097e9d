"""The names that trainers of language models give to the fields of a batch."""

from __future__ import annotations

from collections.abc import Collection

# Field of `TokenBatch` <- its names in the sources of verl, OpenRLHF, TRL, NeMo-RL, slime,
# prime-rl, SkyRL, open-instruct, ROLL, AReaL, torchtune and Liger, each of which was looked up.
ALIASES: dict[str, tuple[str, ...]] = {
    "tokens": (
        "token_ids", "completion_ids", "response_ids", "response_id", "responses", "response",
        "actions", "labels", "targets", "selected_token_ids",
    ),
    "mask": (
        "response_mask", "completion_mask", "action_mask", "loss_mask", "loss_masks", "eos_mask",
        "token_mask", "attention_mask", "padding_masks", "final_response_mask", "response_masks",
        "masks",
    ),
    "lengths": ("response_lengths", "completion_lengths", "seq_lengths", "response_length"),
    "logits": ("pi_logits", "new_logits", "next_token_logits", "student_logits"),
    "log_probs": (
        "log_prob", "logprobs", "logprob", "logps", "per_token_logps", "pi_logprobs",
        "new_logprobs", "curr_logprobs", "next_token_logprobs", "logprobs_policy",
        "trainer_logprobs", "action_log_probs", "per_token_log_probs", "token_log_probs",
        "student_log_probs",
    ),
    "old_log_probs": (
        "old_log_prob", "old_logprobs", "old_logprob", "old_per_token_logps", "old_logps",
        "prev_logprobs", "pi_old_logprobs", "old_action_log_probs", "proximal_logprobs",
        "prox_logp", "old_logp",
    ),
    "rollout_log_probs": (
        "rollout_log_prob", "rollout_logprobs", "generation_logprobs", "generation_log_probs",
        "sampling_per_token_logps", "sampling_logprobs", "inference_logprobs", "vllm_logprobs",
        "infer_logprobs", "infer_log_probs",
    ),
    "ref_log_probs": (
        "ref_log_prob", "ref_logprobs", "ref_logprob", "ref_per_token_logps", "ref_logps",
        "ref_logp", "reference_logprobs", "reference_log_probs", "reference_logps",
        "reference_policy_logprobs", "logprobs_reference", "base_action_log_probs",
        "log_probs_base", "base_log_probs", "teacher_log_probs", "teacher_logprobs",
    ),
    "ref_logits": ("teacher_logits",),
    "rewards": ("reward", "scores", "score", "returns", "raw_rewards"),
    "token_rewards": ("token_level_rewards", "token_level_scores", "per_token_rewards"),
    "prompt": ("index", "group_index", "group_ids", "uids", "uid"),
    "prompt_tokens": ("prompt_ids",),
    "ended": ("finished", "is_eos", "terminated"),
    "hidden": ("hidden_states", "last_hidden_state", "_input"),
    "unembedding": ("lm_head_weight", "weight", "lin_weight", "lm_head"),
    "group_size": (
        "num_generations", "samples_per_prompt", "n_samples_per_prompt", "num_samples_per_prompt",
        "grpo_size", "n_samples", "rollout_n",
    ),
    "max_length": (
        "max_completion_length", "max_response_length", "max_tokens", "max_new_tokens",
    ),
    "sequence_tokens": ("input_ids", "sequences"),
    "sequence_logits": (),
    "sequence_mask": (),
    "answer_mask": ("assistant_masks",),
    "temperature": (),
}  # fmt: skip
# What an ``advantage`` function returned; without one, the rewards stand for it.
ADVANTAGES = ("advantages", "advantage", "per_token_advantages", "token_advantages")
_FIELD_OF = {alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)}
# In a function that has one of the first, the others are those of prompt and answer together.
_WHOLE = ("input_ids", "sequences", "sequence_tokens")
_OF_WHOLE = {"logits": "sequence_logits", "attention_mask": "sequence_mask"}
# AReaL's decoupled loss: next to a proximal policy, the old one is that of the rollout.
_PROXIMAL = ("proximal_logprobs", "prox_logp")
_BEHAVIOUR = {"old_logprobs": "rollout_log_probs", "old_logp": "rollout_log_probs"}


def field_of(name: str, beside: Collection[str] = ()) -> str | None:
    """The field that a parameter stands for; None if the name is not known.

    Args:
        name: Name of the parameter.
        beside: Names of all parameters of its function, on which some names depend.

    Example:
        >>> field_of("old_logprobs"), field_of("old_logprobs", beside=["proximal_logprobs"])
        ('old_log_probs', 'rollout_log_probs')
    """
    if any(whole in beside for whole in _WHOLE) and name in _OF_WHOLE:
        return _OF_WHOLE[name]
    if any(proximal in beside for proximal in _PROXIMAL) and name in _BEHAVIOUR:
        return _BEHAVIOUR[name]
    return _FIELD_OF.get(name)


def table() -> str:
    """Fields and their other names, as the table of the how-to."""
    rows = [
        f"| `{field}` | {', '.join(f'`{name}`' for name in names)} |"
        for field, names in ALIASES.items()
        if names
    ]
    return "\n".join(["| field | other names |", "|---|---|", *rows])
