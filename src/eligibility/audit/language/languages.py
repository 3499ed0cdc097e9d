"""Tiny languages: policies over a few tokens whose answers can all be listed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import factorial, prod
from typing import Any

import torch
from torch import Tensor

from eligibility.audit.language.behaviour import Behaviour, drawn_log_probs
from eligibility.audit.language.token_batch import TokenBatch, at_last_token
from eligibility.errors import InvalidValueError

END = 0  # the token that ends an answer, and pads
# Standard deviations of the probe's logits, and of what the other policies differ by.
_SPREAD, _REFERENCE = 0.8, 0.5
# State after state: most differ a little, some by so much that bounds of a ratio are passed.
_DRIFT, _MISMATCH = (0.4, 1.2, 0.1), (0.05, 0.2, 1.2)


@dataclass(frozen=True)
class Language:
    """The sizes of the probe.

    Attributes:
        prompts: Prompts in a batch, each of its own length.
        group_size: Answers to each prompt.
        length: The most tokens of an answer.
        vocabulary: Tokens, of which one ends an answer.
        pad_to: Width that batches are padded to; None: their longest answer.
        pad_token: What is written beyond an answer's end.

    Example:
        >>> Language(prompts=2, group_size=2, length=3, vocabulary=2).answers
        ((0,), (1, 0), (1, 1, 0), (1, 1, 1))
    """

    prompts: int
    group_size: int
    length: int
    vocabulary: int
    pad_to: int | None = None
    pad_token: int = END

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            InvalidValueError: A size below its minimum.
        """
        least = {"prompts": 1, "group_size": 1, "length": 1, "vocabulary": 2}
        for name, minimum in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < minimum:
                raise InvalidValueError(
                    f"`{name}`", f"{value}", f"an integer of at least {minimum}", "pass one"
                )
        if self.pad_to is not None and self.pad_to < self.length:
            raise InvalidValueError(
                "`pad_to`",
                f"{self.pad_to}",
                f"at least the answers' length {self.length}",
                "omit it to pad to the longest answer of each batch",
            )

    @property
    def width(self) -> int:
        """The widest batch."""
        return self.pad_to or self.length

    @cached_property
    def answers(self) -> tuple[tuple[int, ...], ...]:
        """Every answer, short ones first: with an end, or cut at the length."""
        return tuple(sorted(self._grown(()), key=lambda answer: (len(answer), answer)))

    def _grown(self, prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for token in range(self.vocabulary):
            grown = (*prefix, token)
            finished = token == END or len(grown) == self.length
            yield from [grown] if finished else self._grown(grown)

    @cached_property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Every beginning of an answer that a token can follow."""
        return tuple(sorted({a[:t] for a in self.answers for t in range(len(a))}))

    @cached_property
    def tokens(self) -> Tensor:
        """[A, W] the answers, padded."""
        rows = [(*a, *[self.pad_token] * (self.width - len(a))) for a in self.answers]
        return torch.tensor(rows)

    @cached_property
    def lengths(self) -> Tensor:
        """[A] tokens of each answer."""
        return torch.tensor([len(answer) for answer in self.answers])

    @cached_property
    def positions(self) -> Tensor:
        """[A, W] row of the policy's table at each position: a state, or one for padding."""
        index = {state: number for number, state in enumerate(self.states)}
        padding = len(index)
        rows = [
            [index[a[:t]] if t < len(a) else padding + t for t in range(self.width)]
            for a in self.answers
        ]
        return torch.tensor(rows)

    @property
    def table_rows(self) -> int:
        """Rows of a policy's table for one prompt: its states, then one for each padded column."""
        return len(self.states) + self.width

    @cached_property
    def prompt_texts(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of each prompt; no two are of the same length."""
        return tuple(
            tuple(1 + (p + i) % (self.vocabulary - 1) for i in range(p + 1))
            for p in range(self.prompts)
        )

    @cached_property
    def prompt_logits(self) -> Tensor:
        """[P, S, V] of a model at the prompts' positions: what it would have said there."""
        generator = torch.Generator().manual_seed(7)
        shape = (self.prompts, max(map(len, self.prompt_texts)), self.vocabulary)
        return torch.randn(*shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class World:
    """A language with policies and rewards: generic numbers, and no two states alike.

    Attributes:
        language: Its sizes.
        logits: [P, S, V] of the policy, a row a state; the last rows are those of padding.
        ref_logits: [P, S, V] of the reference.
        old_logits: [P, S, V] of the policy when the rollout began.
        rollout_logits: [P, S, V] of the inference engine.
        rewards: [P, A] of each answer.
        unembedding: [V, V] invertible, so features stand for logits.
        behaviour: From what is drawn.
        measured: [P, S, V] log-probabilities of the draw, where a sampler's own are known.
    """

    language: Language
    logits: Tensor
    ref_logits: Tensor
    old_logits: Tensor
    rollout_logits: Tensor
    rewards: Tensor
    unembedding: Tensor
    behaviour: Behaviour
    measured: Tensor | None = None

    @cached_property
    def drawn(self) -> Tensor:
        """[P, S, V] log-probabilities with which tokens are drawn."""
        if self.measured is not None:
            return self.measured
        sources = {"policy": self.logits, "old": self.old_logits, "rollout": self.rollout_logits}
        return drawn_log_probs(sources[self.behaviour.source], self._seen, self.behaviour)

    @cached_property
    def _seen(self) -> Tensor:
        """[P, S, V] which tokens precede a state."""
        language = self.language
        seen = torch.zeros(self.logits.shape, dtype=torch.bool)
        for prompt, text in enumerate(language.prompt_texts):
            for row, state in enumerate(language.states):
                seen[prompt, row, list({*text, *state})] = True
        return seen

    @cached_property
    def probabilities(self) -> Tensor:
        """[P, A] probability that a prompt gets an answer."""
        language = self.language
        rows = torch.arange(language.width) < language.lengths[:, None]
        steps = _taken(self.drawn[:, language.positions], language.tokens)
        return steps.masked_fill(~rows, 0.0).sum(-1).exp()

    def with_tables(self, change: Callable[[str, Tensor], Tensor]) -> World:
        """The same with other logits, by the name of each policy's table and the table."""
        names = ("logits", "ref_logits", "old_logits", "rollout_logits")
        changed: dict[str, Any] = {name: change(name, getattr(self, name)) for name in names}
        return replace(self, **changed)

    def negated(self) -> World:
        """The same with every reward of the other sign."""
        return replace(self, rewards=-self.rewards)

    def batches(self, chosen: Tensor) -> tuple[Tensor, list[TokenBatch]]:
        """The batches of several outcomes of one width, whose graphs begin at one leaf.

        Args:
            chosen: [N, B] which answer each row is.

        Returns:
            The leaf [N, B, T + S, V], logits by which to differentiate: those that predict the
            answers, then those of the prompts' positions; and the batches.
        """
        language = self.language
        width = language.pad_to or int(language.lengths[chosen].max())
        prompt = torch.arange(language.prompts).repeat_interleave(language.group_size)
        where = (prompt[:, None], language.positions[chosen, :width])
        before = language.prompt_logits[prompt].expand(len(chosen), -1, -1, -1)
        leaf = torch.cat([self.logits[where], before], dim=2).requires_grad_()
        logits = leaf[:, :, :width] * 1.0  # a loss may divide them in place
        constant = self._constants(chosen, prompt, where, width)
        log_probs = _taken(logits.log_softmax(-1), constant["tokens"])
        constant["log_probs"] = log_probs
        constant["logits"] = logits
        constant["sequence_logits"] = torch.cat(
            [leaf[:, :, width:-1], leaf[:, :, :width], leaf[:, :, -1:]], dim=2
        )
        constant["hidden"] = logits @ torch.linalg.inv(self.unembedding).T
        if self.behaviour.source != "old":
            constant["old_log_probs"] = log_probs.detach()
        texts, text_mask = _left_padded(language.prompt_texts, prompt)
        constant |= _sequences(texts, text_mask, constant["tokens"], constant["mask"])
        shared: dict[str, Any] = {
            "prompt": prompt,
            "prompt_tokens": texts,
            "prompt_mask": text_mask,
            "unembedding": self.unembedding.clone().requires_grad_(),
            "group_size": language.group_size,
            "max_length": language.length,
            "temperature": self.behaviour.temperature,
        }
        rows = zip(*(values.unbind() for values in constant.values()), strict=True)
        return leaf, [TokenBatch(**dict(zip(constant, row, strict=True)), **shared) for row in rows]

    def _constants(
        self, chosen: Tensor, prompt: Tensor, where: tuple[Tensor, Tensor], width: int
    ) -> dict[str, Tensor]:
        """[N, B, ...] the fields that carry no gradient."""
        language = self.language
        tokens, lengths = language.tokens[chosen, :width], language.lengths[chosen]
        # what is never drawn stands on padding all the same, as something finite
        drawn = self.drawn[where]
        possible = torch.where(drawn.isinf(), self.logits[where].log_softmax(-1), drawn)
        rollout = _taken(possible, tokens)
        rewards = self.rewards[prompt, chosen]
        return {
            "tokens": tokens,
            "mask": (torch.arange(width) < lengths[..., None]).double(),
            "lengths": lengths,
            "old_log_probs": rollout,
            "rollout_log_probs": rollout.clone(),
            "ref_log_probs": _taken(self.ref_logits[where].log_softmax(-1), tokens),
            "ref_logits": self.ref_logits[where],
            "rewards": rewards,
            "token_rewards": at_last_token(rewards, lengths, width),
            "ended": tokens.gather(-1, lengths[..., None] - 1)[..., 0] == END,
        }

    def batch(self, chosen: Tensor) -> TokenBatch:
        """The batch of one outcome, [B] which answer each row is."""
        return self.batches(chosen[None])[1][0]

    def example(self) -> TokenBatch:
        """A batch with answers of several lengths, the longest first."""
        rows = self.language.prompts * self.language.group_size
        return self.batch(torch.arange(rows - 1, -1, -1) % len(self.language.answers))


def make_world(language: Language, seed: int, behaviour: Behaviour) -> World:
    """A world of generic numbers."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (language.prompts, language.table_rows, language.vocabulary)
    turns = torch.arange(shape[0])[:, None, None] + torch.arange(shape[1])[:, None]
    logits = _SPREAD * numbers(*shape)
    return World(
        language=language,
        logits=logits,
        ref_logits=logits + _REFERENCE * numbers(*shape),
        old_logits=logits + torch.tensor(_DRIFT)[turns % 3] * numbers(*shape),
        rollout_logits=logits + torch.tensor(_MISMATCH)[turns % 3] * numbers(*shape),
        rewards=numbers(language.prompts, len(language.answers)) + 0.3,
        unembedding=torch.eye(language.vocabulary, dtype=torch.float64)
        + 0.3 * numbers(language.vocabulary, language.vocabulary),
        behaviour=behaviour,
    )


def example_batch(language: Language) -> TokenBatch:
    """A batch with answers of several lengths, for examples and tests."""
    return make_world(language, 0, Behaviour()).example()


def every_batch(language: Language, ordered: bool) -> list[tuple[tuple[int, ...], int]]:
    """Every choice of answers for all rows, and how many orders within groups it stands for."""
    answers, size = range(len(language.answers)), language.group_size
    if ordered:
        groups = [(group, 1) for group in itertools.product(answers, repeat=size)]
    else:
        unordered = itertools.combinations_with_replacement(answers, size)
        groups = [(group, _orders(group)) for group in unordered]
    return [
        (tuple(a for group, _ in batch for a in group), prod(orders for _, orders in batch))
        for batch in itertools.product(groups, repeat=language.prompts)
    ]


def _orders(group: Sequence[int]) -> int:
    return factorial(len(group)) // prod(factorial(n) for n in Counter(group).values())


def _taken(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """[..., T] what ``log_probs`` [..., T, V] has for the tokens [..., T]."""
    index = tokens.expand(log_probs.shape[:-1])[..., None]
    return log_probs.gather(-1, index)[..., 0]


def _sequences(texts: Tensor, text_mask: Tensor, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """[N, B, S + T] prompt and answer together, from [B, S] and [N, B, T]."""
    texts, text_mask = (x.expand(len(tokens), -1, -1) for x in (texts, text_mask))
    return {
        "sequence_tokens": torch.cat([texts, tokens], dim=2),
        "sequence_mask": torch.cat([text_mask, mask], dim=2),
        "answer_mask": torch.cat([torch.zeros_like(text_mask), mask], dim=2),
    }


def _left_padded(texts: Sequence[tuple[int, ...]], prompt: Tensor) -> tuple[Tensor, Tensor]:
    width = max(map(len, texts))
    rows = torch.tensor([[*[END] * (width - len(text)), *text] for text in texts])
    sizes = torch.tensor([len(text) for text in texts])
    mask = torch.arange(width) >= (width - sizes)[:, None]
    return rows[prompt], mask.double()[prompt]
