"""What a loss over tokens is given: one step of a trainer of language models, on the probe."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

# One number or one matrix for the whole batch; everything else has a row an answer.
_SHARED = ("group_size", "max_length", "temperature", "unembedding")


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """The answers of one step, one per row; the rows of a prompt are adjacent.

    ``B`` answers (``prompts`` × ``group_size``), ``T`` positions (the longest answer of the batch,
    or ``pad_to``), ``V`` tokens of the vocabulary, ``D`` features. Everything is in double
    precision. Only ``log_probs``, ``logits``, ``sequence_logits``, ``hidden`` and
    ``unembedding`` carry gradients. Position t holds the t-th token of the answer and what predicts
    it: nothing has to be shifted but what begins with ``sequence``.
    Beyond an answer's length the fields hold what a real trainer's hold there: tokens of the
    padding, and logits that depend on the parameters.

    Attributes:
        tokens: [B, T] integers in [0, V); 0 ends an answer, and pads.
        mask: [B, T] 1.0 up to the answer's last token and with it, 0.0 on the padding.
        lengths: [B] integers, the number of tokens with the end.
        logits: [B, T, V] of the policy, before any temperature; position t predicts
            ``tokens[:, t]``.
        log_probs: [B, T] log π(token | what precedes it), of ``logits``, in nats.
        old_log_probs: [B, T] the same when the rollout began: equal to ``log_probs``, without a
            gradient, unless the behaviour is "old".
        rollout_log_probs: [B, T] log-probabilities with which the tokens were drawn.
        ref_log_probs: [B, T] of the reference policy.
        ref_logits: [B, T, V] of the reference policy.
        rewards: [B] of whole answers.
        token_rewards: [B, T] the same, at the last token of each answer; 0 elsewhere.
        prompt: [B] integers: which prompt a row answers.
        ended: [B] booleans: whether the answer has an end, or was cut at ``max_length``.
        prompt_tokens: [B, S] tokens of the prompt, padded on the left.
        prompt_mask: [B, S] 1.0 on the prompt, 0.0 on the padding to its left.
        sequence_tokens: [B, S + T] prompt and answer together.
        sequence_mask: [B, S + T] 1.0 on both, 0.0 on all padding.
        sequence_logits: [B, S + T, V] as a model returns them: position t predicts token t + 1.
        answer_mask: [B, S + T] 1.0 on the answer's tokens.
        hidden: [B, T, D] features with ``logits = hidden @ unembedding.T``.
        unembedding: [V, D] rows of the vocabulary.
        group_size: Answers to each prompt.
        max_length: The most tokens of an answer.
        temperature: With which the tokens were drawn.

    Example:
        >>> from eligibility.audit.language.languages import Language, example_batch
        >>> batch = example_batch(Language(prompts=2, group_size=2, length=3, vocabulary=2))
        >>> batch.tokens.shape, batch.mask.sum(1).tolist() == batch.lengths.tolist()
        (torch.Size([4, 3]), True)
    """

    tokens: Tensor
    mask: Tensor
    lengths: Tensor
    logits: Tensor
    log_probs: Tensor
    old_log_probs: Tensor
    rollout_log_probs: Tensor
    ref_log_probs: Tensor
    ref_logits: Tensor
    rewards: Tensor
    token_rewards: Tensor
    prompt: Tensor
    ended: Tensor
    prompt_tokens: Tensor
    prompt_mask: Tensor
    sequence_tokens: Tensor
    sequence_mask: Tensor
    sequence_logits: Tensor
    answer_mask: Tensor
    hidden: Tensor
    unembedding: Tensor
    group_size: int
    max_length: int
    temperature: float

    def rows(self, index: Tensor | slice) -> TokenBatch:
        """The batch of some of its rows, in this order; as wide as before."""
        chosen = {
            field.name: getattr(self, field.name)[index]
            for field in fields(self)
            if field.name not in _SHARED
        }
        return replace(self, **chosen)


def at_last_token(rewards: Tensor, lengths: Tensor, width: int) -> Tensor:
    """[..., B] rewards at the last token of each answer, 0 elsewhere: [..., B, T]."""
    placed = torch.arange(width) == (lengths - 1)[..., None]
    return rewards[..., None] * placed
