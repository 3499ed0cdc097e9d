"""Every answer of a tiny language, and the divergences of a policy from a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.errors import InvalidValueError, ShapeError
from eligibility.reinforce.exact.law import DEFAULT_LIMIT, Law, base_digits, check_limit

_LONGEST = 64


@dataclass(frozen=True)
class Answers:
    """Answers padded on the right to the longest; indexable by an index tensor of any shape.

    Attributes:
        tokens: ``[*batch, T]``, in ``[0, V)``; token V − 1 ends the answer; 0 in the padding.
        states: The row of the policy's table that each token was drawn from, ``[*batch, T]``: the
            prefixes in the order of their length, then of their tokens; 0 in the padding.
        mask: True up to and with the last token, ``[*batch, T]``.
        ended: The answer ended by itself and was not cut at T tokens, ``[*batch]``.
    """

    tokens: Int[Tensor, "*batch T"]
    states: Int[Tensor, "*batch T"]
    mask: Bool[Tensor, "*batch T"]
    ended: Bool[Tensor, "*batch"]

    def __getitem__(self, index: Tensor | int) -> Answers:
        return Answers(**{name: field[index] for name, field in vars(self).items()})

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def lengths(self) -> Int[Tensor, "*batch"]:
        """The number of tokens of each answer, the end included."""
        return self.mask.sum(-1)

    def log_probs(self, logits: Float[Tensor, "states V"]) -> Float[Tensor, "*batch T"]:
        """``log π(y_t | y_<t)`` of each token under ``softmax(logits[state])``; 0 in the padding.

        Differentiable in the logits.
        """
        chosen = logits.log_softmax(-1)[self.states, self.tokens]
        return torch.where(self.mask, chosen, 0.0)


def answers(logits: Float[Tensor, "*_"], *, limit: int = DEFAULT_LIMIT) -> Law:
    """Every answer of a policy over tokens, with its probability.

    The language has V tokens. Token V − 1 ends an answer, and an answer of T tokens is cut. So
    there are ``Σ_{t<T} (V − 1)ᵗ`` states (the prefixes that are not ended), and the policy is a
    table with a row for each.

    Args:
        logits: ``[states, V]``; −inf forbids a token. T follows from the number of rows. Compute
            the table from shared parameters for a parametric policy.
        limit: The largest number of answers to enumerate.

    Returns:
        A law over `Answers`, ``log_probs`` differentiable in the logits; short answers first.

    Raises:
        ShapeError: No T has that number of states.
        InvalidValueError: There are more than ``limit`` answers.

    Example:
        Two tokens, "go on" (0) and "end" (1), at most two of them:

        >>> language = answers(torch.zeros(2, 2))
        >>> language.probs
        tensor([0.5000, 0.2500, 0.2500])
        >>> language.values.tokens.tolist(), language.values.ended.tolist()
        ([[1, 0], [0, 1], [0, 0]], [True, True, False])
    """
    longest, vocabulary = language_size(logits)  # which checks the shape, and says what is wrong
    alphabet = vocabulary - 1
    count = sum(alphabet**t for t in range(longest)) + alphabet**longest
    check_limit(count, "answers", limit, "use fewer tokens or shorter answers, or raise `limit`")
    parts = [_of_length(n, longest, vocabulary, cut=False) for n in range(1, longest + 1)]
    parts.append(_of_length(longest, longest, vocabulary, cut=True))
    fields = {name: [vars(part)[name] for part in parts] for name in vars(parts[0])}
    every = Answers(**{name: torch.cat(tensors) for name, tensors in fields.items()})
    return Law(every, every.log_probs(logits).sum(-1))


def answer_kl(
    policy: Float[Tensor, "states V"], reference: Float[Tensor, "states V"]
) -> Float[Tensor, ""]:
    """``KL(π ‖ π_ref) = Σ_y π(y) log π(y)/π_ref(y)`` of whole answers, differentiable.

    Example:
        >>> policy = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
        >>> round(float(answer_kl(policy, torch.zeros_like(policy))), 4)
        0.1991
    """
    law = answers(policy)
    log_ratio = law.log_probs - law.values.log_probs(reference).sum(-1)
    divergence: Tensor = law.probs @ log_ratio
    return divergence


def state_kl(
    policy: Float[Tensor, "states V"],
    reference: Float[Tensor, "states V"],
    *,
    direction: str = "reverse",
    visits: Float[Tensor, " states"] | None = None,
) -> Float[Tensor, ""]:
    """``Σ_s d(s) KL_s``: the divergence of each state's next token, weighed by visits held fixed.

    Its *value*, for the reverse direction and the policy's own visits, is `answer_kl`: the chain
    rule of the divergence. Its *gradient* is not, because d(s) depends on the policy too: the
    divergence of later tokens gives no credit to the earlier ones that lead there.

    Args:
        policy: Logits ``[states, V]``.
        reference: Logits, the same shape.
        direction: "reverse" for ``KL(π(·|s) ‖ π_ref(·|s))``, "forward" for
            ``KL(π_ref(·|s) ‖ π(·|s))``.
        visits: d(s), the probability that an answer passes through each state; None: the policy's.

    Example:
        >>> policy = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
        >>> round(float(state_kl(policy, torch.zeros_like(policy))), 4)
        0.1991
    """
    if direction not in {"reverse", "forward"}:
        raise InvalidValueError(
            "`direction`", repr(direction), "'reverse' or 'forward'", "name the direction"
        )
    of_policy, of_reference = policy.log_softmax(-1), reference.log_softmax(-1)
    if direction == "forward":
        of_policy, of_reference = of_reference, of_policy
    divergence = (of_policy.exp() * (of_policy - of_reference)).sum(-1)
    weights = state_visits(policy) if visits is None else visits
    return weights.detach() @ divergence


def state_visits(logits: Float[Tensor, "states V"]) -> Float[Tensor, " states"]:
    """``d(s)``, the probability that an answer passes through each state: ``[states]``.

    Example:
        >>> state_visits(torch.zeros(2, 2))
        tensor([1.0000, 0.5000])
    """
    law = answers(logits)
    mass = torch.where(law.values.mask, law.probs[:, None], 0.0)
    visits = torch.zeros(len(logits), dtype=logits.dtype, device=logits.device)
    return visits.index_add(0, law.values.states.flatten(), mass.flatten())


def language_size(logits: Float[Tensor, "*_"]) -> tuple[int, int]:
    """T and V of a table of logits; ShapeError if no T has its number of states."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ShapeError(
            "the logits of a language",
            f"shape {list(logits.shape)}",
            "[states, V] with V of at least 2",
            "pass one row of logits for each prefix",
        )
    states, vocabulary = logits.shape
    counted = [sum((vocabulary - 1) ** t for t in range(n)) for n in range(_LONGEST)]
    if states not in counted[1:]:
        fitting = ", ".join(str(count) for count in counted[1:5])
        raise ShapeError(
            "the logits of a language",
            f"{states} states of {vocabulary} tokens",
            f"{fitting}, ... states for answers of at most 1, 2, 3, 4, ... tokens",
            "give one row for each prefix that is not ended, the empty one included",
        )
    return counted.index(states, 1), vocabulary


def _of_length(length: int, longest: int, vocabulary: int, *, cut: bool) -> Answers:
    """All answers of one length that end, or all that are cut, in the order of their tokens."""
    alphabet, free = vocabulary - 1, length if cut else length - 1
    count = alphabet**free
    tokens = torch.zeros(count, longest, dtype=torch.long)
    if free:
        tokens[:, :free] = base_digits(torch.arange(count), alphabet, free)
    states = torch.zeros_like(tokens)
    position = torch.zeros(count, dtype=torch.long)  # of the prefix among those of its length
    offset = 0
    for t in range(length):
        states[:, t] = offset + position
        offset += alphabet**t
        position = position * alphabet + tokens[:, t]
    if not cut:
        tokens[:, length - 1] = vocabulary - 1
    mask = (torch.arange(longest) < length).expand(count, longest)
    return Answers(tokens, states, mask, torch.full((count,), not cut))


def interpolated(
    policy: Float[Tensor, "states V"], behaviour: Float[Tensor, "states V"], drift: float
) -> Float[Tensor, "states V"]:
    """Logits on the straight line from the policy (0) to the behaviour (1), and beyond."""
    if not (math.isfinite(drift) and drift >= 0.0):
        raise InvalidValueError("`drifts`", str(drift), "numbers ≥ 0", "0 is on-policy")
    if drift == 0.0:  # 0 × −inf, of a token that the behaviour never draws, would be NaN
        return policy
    return policy + drift * (behaviour - policy)
