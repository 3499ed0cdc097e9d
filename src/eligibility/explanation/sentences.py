"""The sentences about one outcome of the categorical family, with named slots.

Python fills them for the record, and the script of the live page fills the same ones again for the
numbers that a reader enters; `page.live` hands them over.
"""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "title": "∂ {of} / ∂ {names} of {family}({given}) at {value}",
    "clamped": (
        "torch gives {torch}, and the rule {rule}. torch clamps probabilities to [ε, 1 − ε], "
        "ε = {epsilon} in {dtype}, before it takes the logarithm, and a clamp has derivative 0 "
        "outside its bounds. Without the clamp:"
    ),
    "weights": (
        "torch divides probs by their sum, π_{a} = probs[{a}] / Σ probs, so every entry also "
        "stands in the denominator: raising any of them makes what was drawn less likely, and "
        "through the sum each gets {down}."
    ),
    "weights_one": (
        "Only category {a}, which was drawn, stands in the numerator as well: through the division "
        "it gets {up} on top, and {up} + ({down}) = {result}."
    ),
    "weights_many": (
        "Only what was drawn stands in the numerator as well: through the division category {a}, "
        "drawn {count} times of {trials}, gets {up} on top, and {up} + ({down}) = {result}."
    ),
    "logits": (
        "The logits enter as log p = z − log Σ exp(z): the log-sum-exp pulls every logit down by "
        "the probability of its category."
    ),
    "logits_many": (
        "The logits enter as log p = z − log Σ exp(z): the log-sum-exp pulls every logit down by "
        "the probability of its category, {trials} times for {trials} draws."
    ),
    "logits_drawn": (
        "Each draw pushes its own logit up by 1, so category {a} gets {scale}({count} − "
        "{times}{probability}) = {result}: what happened minus what was expected."
    ),
    "ambient": (
        "In ambient coordinates the normaliser is left out: log p is taken to be Σ y log w, so "
        "category {a} gets {result} and what was not drawn gets 0."
    ),
    "ambient_torch": (
        "torch does not compute this: its probs are divided by their sum, and the sum depends on "
        "every entry."
    ),
    "free": (
        "The first {last} probabilities are free and the last one, category {last}, is what they "
        "leave: raising one of them lowers the last one by as much."
    ),
    "free_entries": (
        "So each entry is its own y/w minus the y/w of category {last}, and there is no entry for "
        "category {last}."
    ),
    "tangent": (
        "Only directions along the simplex count, in which the probabilities keep their sum: the "
        "mean is subtracted from y/w, so that the entries sum to 0."
    ),
    "tangent_same": (
        "Subtracting a constant from y/w first changes nothing, so torch's rule and the ambient "
        "one have this same projection."
    ),
    "note_prob": "This is prob times the characteristic eligibility, {eligibility}.",
    "note_log_prob": "The gradient of prob itself is prob times this: {scaled}.",
    "expected_zero": "0 for what was not drawn.",
    "answer_zero": (
        "That is the gradient of Σ y log w with the normaliser left out (`--coordinates "
        "ambient`{numbers}). Both are right, each for its own convention: they differ by a "
        "constant, and after a softmax they give the same gradient of the logits, y − n π."
    ),
    "expected_same": "the same numbers for logits as for probs.",
    "answer_same": (
        "A logit moves its probability by p times what the weight of the same name would: the "
        "chain rule multiplies the eligibility of probs by it, and the 1/p is gone. Logits need "
        "not be log-probabilities; any constant may be added to them."
    ),
    "expected_slope": "a gradient wherever the outcome is improbable.",
    "answer_slope": (
        "torch gives {torch} here: it clamps probabilities to [ε, 1 − ε], ε = {epsilon} in "
        "{dtype}, and a clamp has derivative 0 outside. Pass logits, which are not clamped."
    ),
}  # fmt: skip


def say(name: str, **slots: object) -> str:
    """The sentence ``name`` with its slots filled.

    Example:
        >>> say("note_log_prob", scaled="[0.7 -0.7]")
        'The gradient of prob itself is prob times this: [0.7 -0.7].'
    """
    return SENTENCES[name].format(**slots)
