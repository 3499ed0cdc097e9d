"""The parts of which a token's weight is made: divisor, scale, baseline, factor, pattern, score.

Each is a small function of a `Sample`. A reading is one choice of each; which one a loss has made
is decided by fitting all enumerated batches, never by the text of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eligibility.audit.arrays import Array
from eligibility.audit.language.sample import Sample

NUMBERED = "answers with its number"  # the rows of one prompt in turn, read as those of one group

RowLaw = Callable[[Sample], Array]  # [M, B]
TokenLaw = Callable[[Sample], Array]  # [M, B, W]


def _ones(sample: Sample) -> Array:
    return np.ones(sample.lengths.shape)


def _of_ended(sample: Sample, values: Array) -> Array:
    """[M, B] values of the answers with an end; 0 for those that were cut."""
    return np.where(sample.ended, values, 0.0)


def _per(total: Array) -> Array:
    """1/total, and 0 where nothing is counted."""
    return np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)


def _batch(values: Array) -> Array:
    """[M, B] the mean over the batch, at each row."""
    return np.broadcast_to(values.mean(1, keepdims=True), values.shape)


def _width(sample: Sample) -> Array:
    return np.broadcast_to(1.0 / sample.width[:, None], sample.lengths.shape)


def _differs(sample: Sample) -> Array:
    """[M, B] 1.0 for the answers of a group whose rewards are not all the same."""
    squares = (sample.rewards - sample.by_group(sample.rewards)) ** 2
    return np.asarray(sample.by_group(squares) > 1e-18, dtype=float)


# Tokens of each answer without the end or the first one, as masks and slices that drop it count;
# or without the batch's last column, as a mask counts that is cut at the wrong side.
LEFT_OUT: dict[str, RowLaw] = {
    " without ends": lambda s: np.asarray(s.lengths - s.ended, dtype=float),
    " without firsts": lambda s: np.asarray(s.lengths - 1, dtype=float),
    " without the last column": lambda s: np.minimum(s.lengths, s.width[:, None] - 1.0),
}


def _counted_without(rest: str) -> dict[str, RowLaw]:
    """The divisors by the numbers of tokens that are left."""
    count = LEFT_OUT[rest]
    return {
        f"own-length{rest}": lambda s: _per(count(s)),
        f"batch-tokens{rest}": lambda s: _per(_batch(count(s))),
        f"group-tokens{rest}": lambda s: _per(s.by_group(count(s))),
    }


# What the sum over the tokens of an answer is divided by.
DIVISORS: dict[str, RowLaw] = {
    "constant": _ones,
    "own-length": lambda s: 1.0 / s.lengths,
    "batch-tokens": lambda s: _per(_batch(s.lengths.astype(float))),
    # before the groups', which micro-batches may be as large as
    "slice-tokens": lambda s: _per(s.by_slice(s.lengths.astype(float))),
    "group-tokens": lambda s: _per(s.by_group(s.lengths.astype(float))),
    **_counted_without(" without ends"),
    "width": _width,
    "own-length, width": lambda s: _width(s) / s.lengths,
    "tokens of groups that differ": lambda s: _per(_batch(s.lengths * _differs(s))),
    "ended": lambda s: _of_ended(s, _ones(s)),
    "ended, own-length": lambda s: _of_ended(s, 1.0 / s.lengths),
    "ended, batch-tokens": lambda s: _of_ended(s, _per(_batch(s.lengths.astype(float)))),
    "ended, tokens of the ended": lambda s: _of_ended(
        s, _per(_batch(_of_ended(s, s.lengths.astype(float))))
    ),
    "ended, number of the ended": lambda s: _of_ended(s, _per(_batch(s.ended.astype(float)))),
    "ended, own-length, number of the ended": lambda s: _of_ended(
        s, _per(_batch(s.ended.astype(float))) / s.lengths
    ),
    "ended, width": lambda s: _of_ended(s, _width(s)),
    **_counted_without(" without firsts"),
    **_counted_without(" without the last column"),
}


def token_weighted_mean(sample: Sample, values: Array) -> Array:
    """[M, B] the mean over all tokens of the batch of what each answer has."""
    return _batch(values * sample.lengths) / _batch(sample.lengths.astype(float))


def _deviation(values: Array, mean: Callable[[Array], Array]) -> Array:
    return np.sqrt(np.maximum(mean((values - mean(values)) ** 2), 0.0))


def _of_tokens(sample: Sample, values: Array) -> Array:
    """[M, B] the deviation over the tokens of the batch."""
    return _deviation(values, lambda v: token_weighted_mean(sample, v))


def _bessel(sample: Sample) -> Array:
    """[M, 1] √(n/(n−1)) for n tokens in the batch: no constant, unlike that for n rows."""
    count = sample.lengths.sum(1, keepdims=True).astype(float)
    return np.asarray(np.sqrt(count / np.maximum(count - 1.0, 1.0)))


def _others_deviation(sample: Sample) -> Array:
    """The deviation of the other answers of the group."""
    size = sample.group_size
    if size < 3:
        return np.zeros_like(sample.rewards)
    total, squares = (
        sample.by_group(sample.rewards) * size,
        sample.by_group(sample.rewards**2) * size,
    )
    mean = (total - sample.rewards) / (size - 1)
    return np.sqrt(np.maximum((squares - sample.rewards**2) / (size - 1) - mean**2, 0.0))


def _crossed_deviation(sample: Sample) -> Array:
    """The deviation from the mean of another group, of another group."""
    if not sample.square:
        return np.zeros_like(sample.rewards)
    centred = sample.rewards - sample.crossed(sample.rewards)
    return np.sqrt(sample.crossed(centred**2))


# What the advantages are divided by, up to a constant factor: Bessel's correction is one for rows.
SCALES: dict[str, RowLaw] = {
    "none": _ones,
    "group": lambda s: _deviation(s.rewards, s.by_group),
    "batch": lambda s: _deviation(s.rewards, _batch),
    "batch of the centred": lambda s: _deviation(s.rewards - s.by_group(s.rewards), _batch),
    "tokens": lambda s: _of_tokens(s, s.rewards),
    "tokens, corrected": lambda s: _of_tokens(s, s.rewards) * _bessel(s),
    "tokens of the centred": lambda s: _of_tokens(s, s.rewards - s.by_group(s.rewards)),
    "tokens of the centred, corrected": lambda s: (
        _of_tokens(s, s.rewards - s.by_group(s.rewards)) * _bessel(s)
    ),
    "others of the group": _others_deviation,
    "wrong group": _crossed_deviation,
    NUMBERED: lambda s: _deviation(s.rewards, s.by_number),
    "largest of the group": lambda s: _block_max(np.abs(s.rewards - s.by_group(s.rewards)), s),
    "mean size of the group": lambda s: s.by_group(np.abs(s.rewards - s.by_group(s.rewards))),
    "range of the group": lambda s: _block_max(s.rewards, s) + _block_max(-s.rewards, s),
    "largest of the batch": lambda s: np.broadcast_to(
        np.abs(s.rewards).max(1, keepdims=True), s.rewards.shape
    ),
}


def _dealt_out(values: Array, sample: Sample, backwards: bool) -> Array:
    """[M, B] what each row has if [P, G] values are read as [G, P]; prompts may be in any order."""
    size, rows = sample.group_size, values.shape[1]
    table = values.reshape(-1, rows // size, size)[:, :: -1 if backwards else 1]
    dealt = table.swapaxes(1, 2).reshape(table.shape)
    return np.asarray(dealt[:, :: -1 if backwards else 1].reshape(values.shape))


def _rearranged(sample: Sample, backwards: bool, with_groups: bool) -> Sample:
    """The sample in which answers have the rewards of others; or others' advantages as well."""
    rewards = _dealt_out(sample.rewards, sample, backwards)
    if not with_groups:
        return replace(sample, rewards=rewards)
    number = np.floor(np.arange(rewards.shape[1]) / sample.group_size)
    return replace(sample, rewards=rewards, groups=_dealt_out(number[None], sample, backwards)[0])


# Of which answer a row has the reward.
REWARDS: dict[str, Callable[[Sample], Sample]] = {
    "its own": lambda s: s,
    "dealt out by turns": lambda s: _rearranged(s, False, False),
    "dealt out by turns, backwards": lambda s: _rearranged(s, True, False),
    "dealt out by turns, each with the mean of its own group": lambda s: _rearranged(
        s, False, True
    ),
    "dealt out by turns, backwards, each with the mean of its own group": lambda s: _rearranged(
        s, True, True
    ),
}


def arrangements(sample: Sample) -> tuple[str, ...]:
    """Those that can differ: by turns, if there are several prompts and answers to each."""
    several = 1 < sample.group_size < sample.rewards.shape[1]
    return tuple(REWARDS) if several else ("its own",)


COMMON_SCALES = ("none", "group", "batch", "tokens")  # also tried where something else is odd


def _block_max(values: Array, sample: Sample) -> Array:
    starts = np.arange(0, values.shape[1], sample.group_size)
    return np.repeat(np.maximum.reduceat(values, starts, axis=1), sample.group_size, axis=1)


# Which means an advantage may have: unusual ones only where no usual one fits, since with them one
# composition can pass for another.
USUAL, UNUSUAL, OF_NUMBERS = "usual", "unusual", "of numbers"


def baseline_columns(sample: Sample, means: str = "") -> dict[str, Array]:
    """[M, B] each: what an advantage is a sum of.

    Args:
        sample: With the rewards.
        means: Which: unusual ones are over tokens, in which a long answer counts more,
            and of the wrong group; all of them if empty.
    """
    rewards = sample.rewards
    columns = {"own": rewards}
    several = 1 < sample.group_size < rewards.shape[1]
    if means in ("", OF_NUMBERS) and several:
        columns[NUMBERED] = sample.by_number(rewards)
    if means == OF_NUMBERS:
        return columns
    if sample.group_size > 1:
        columns["group"] = sample.by_group(rewards)
    if rewards.shape[1] > sample.group_size:
        columns["batch"] = _batch(rewards)
    if means != USUAL and rewards.shape[1] > 1:
        columns["tokens"] = token_weighted_mean(sample, rewards)
        if several:
            columns["tokens of group means"] = token_weighted_mean(sample, sample.by_group(rewards))
        if sample.square:
            columns["wrong group"] = sample.crossed(rewards)
        columns["group tokens"] = sample.by_group(rewards * sample.lengths) / sample.by_group(
            sample.lengths.astype(float)
        )
    return columns


BOUND = "rewards above a bound"


def _above(values: Array) -> Array:
    return np.asarray(values > 0, dtype=float)


def _best(sample: Sample, bound: float) -> Array:
    """[M, B] 1.0 for the first of the highest rewards of each group."""
    groups = sample.rewards.reshape(len(sample.rewards), -1, sample.group_size)
    first: Array = np.eye(sample.group_size)[groups.argmax(-1)]
    return first.reshape(sample.rewards.shape)


_Kept = Callable[[Sample, float], Array]
_KEPT: dict[str, _Kept] = {
    "the best of each group": _best,
    "rewards above their group's mean": lambda s, _: _above(s.rewards - s.by_group(s.rewards)),
    "positive advantages": lambda s, _: np.maximum(s.rewards - s.by_group(s.rewards), 0.0),
    BOUND: lambda s, bound: _above(s.rewards - bound),
}


def _mean_of_kept(kept: _Kept, by_tokens: bool) -> _Kept:
    def weights(sample: Sample, bound: float) -> Array:
        own = kept(sample, bound)
        count = _above(own) * (sample.lengths if by_tokens else 1.0)
        return np.asarray(own * _per(count.sum(1, keepdims=True)))

    return weights


# The weight of each answer [M, B] where only some are trained on, given the bound.
SELECTED: dict[str, _Kept] = {
    **_KEPT,
    **{f"{name}, a mean of these": _mean_of_kept(kept, False) for name, kept in _KEPT.items()},
    **{f"{name}, a mean of their tokens": _mean_of_kept(k, True) for name, k in _KEPT.items()},
}


def _all(sample: Sample) -> Array:
    return np.ones(sample.mask.shape)


def _place(sample: Sample) -> Array:
    return np.broadcast_to(np.arange(sample.mask.shape[2]), sample.mask.shape)


def _last(sample: Sample) -> Array:
    return np.asarray(_place(sample) == sample.lengths[..., None] - 1, dtype=float)


# Which tokens of an answer are trained on.
PATTERNS: dict[str, TokenLaw] = {
    "all": _all,
    "last-dropped": lambda s: 1.0 - _last(s),
    "end-dropped": lambda s: 1.0 - _last(s) * s.ended[..., None],
    "first-dropped": lambda s: np.asarray(_place(s) > 0, dtype=float),
    "last-only": _last,
    "first-only": lambda s: np.asarray(_place(s) == 0, dtype=float),
}


def _of_answer(values: Array) -> Array:
    """[M, B, W] the sum over an answer's tokens, at each of them."""
    return np.broadcast_to(values.sum(-1, keepdims=True), values.shape)


# What else a weight is multiplied by.
FACTORS: dict[str, TokenLaw] = {
    "one": _all,
    "probability": lambda s: np.exp(s.log_probs),
    "probability of the answer": lambda s: np.exp(_of_answer(np.where(s.mask, s.log_probs, 0.0))),
    "ratio to the reference": lambda s: np.exp(s.log_ratio_to_ref),
    "ratio of the answer to the reference": lambda s: np.exp(_of_answer(s.log_ratio_to_ref)),
}
RATIOS: dict[str, TokenLaw] = {
    "token-ratio": lambda s: np.exp(s.log_ratio),
    "sequence-ratio": lambda s: np.exp(_of_answer(s.log_ratio)),
    "prefix-ratio": lambda s: np.exp(np.cumsum(s.log_ratio, axis=-1)),
    "geometric-mean-ratio": lambda s: np.exp(_of_answer(s.log_ratio) / s.lengths[..., None]),
}
MULTIPLIERS = FACTORS | RATIOS


def _token_before(sample: Sample) -> Array:
    """[M, B, W, V] as `scores_of` the tokens before; at the first, of a prompt's last token.

    That one is never drawn: its logit does not move.
    """
    scores = scores_of(sample, np.roll(sample.tokens, 1, axis=-1))
    scores[..., 0, :] = -sample.probs[..., 0, :]
    return scores


def scores_of(sample: Sample, tokens: Array) -> Array:
    """[M, B, W, V] ∂ log π(token)/∂logits for these tokens."""
    return np.asarray(np.eye(sample.probs.shape[-1])[tokens] - sample.probs)


# Which token's log-probability is differentiated at a position.
SCORED: dict[str, Callable[[Sample], Array]] = {
    "taken": lambda s: s.scores,
    "token before": lambda s: scores_of(s, np.roll(s.tokens, 1, axis=-1)),
    "token before it in the text": _token_before,
    "token after": lambda s: scores_of(s, np.roll(s.tokens, -1, axis=-1)),
    "most likely": lambda s: scores_of(s, s.probs.argmax(-1)),
}
