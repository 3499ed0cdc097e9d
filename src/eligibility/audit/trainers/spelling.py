"""A tokenizer that reads each of a program's texts as a prompt of a different length."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from eligibility.audit.trainers.tiny import END, PAD, PROMPT_ONLY, SYMBOLS, make_tokenizer

_OTHER = re.compile(f"[^{''.join(SYMBOLS)}]+")
_PROMPT = re.compile(f"{SYMBOLS[PROMPT_ONLY]}+")
# Families of models whose tokenizers come without a token for padding.
_WITHOUT_PADDING = re.compile("gpt2|gpt-neo|opt-|llama|mistral|pythia|tinystories|phi", re.I)


def has_padding(name: str) -> bool:
    """Whether models of this name come with a token for padding that is not the end."""
    return not _WITHOUT_PADDING.search(name)


def spelling_tokenizer(name: str, side: str | None, pads: Callable[[], None]) -> Any:
    """The tokenizer for a model of this name.

    Args:
        name: Name of the model.
        side: On which side it pads; None: the program has not said it yet.
        pads: Called when a program pads, and neither it nor the model's family names a token for
            it: a fine-tuned model often comes with one.
    """
    tokenizer = make_tokenizer(_class(pads))
    tokenizer.pad_token = None
    if has_padding(name):
        tokenizer.add_special_tokens({"pad_token": SYMBOLS[PAD]})
    if side is None:
        tokenizer.side_is_known = False
        _of_any_side.append(tokenizer)
    else:
        tokenizer.padding_side = side
    return tokenizer


_of_any_side: list[Any] = []


def pad_on_the_usual_side() -> None:
    """Pad on the right from now on, as most tokenizers do, unless the program has said the side.

    If it has padded prompts before it samples, its tokenizer must be one that pads on the left.
    """
    for tokenizer in _of_any_side:
        if not tokenizer.side_is_known:
            tokenizer.padding_side = "right"
    _of_any_side.clear()


_altered: list[str] = []  # texts that were cut off, or put together otherwise than they would be
_lengths = 90  # of prompts, in tokens, before they repeat
_texts: dict[str, int] = {}  # of the program's own, with how many tokens each is read as


def spelled(text: Any) -> Any:
    """A text, or lists of them, in the symbols that the tokenizer knows."""
    if isinstance(text, str):
        return _OTHER.sub(lambda found: SYMBOLS[PROMPT_ONLY] * _length(found[0]), text)
    if isinstance(text, (list, tuple)):
        return type(text)(map(spelled, text))
    return text


def written(text: str) -> str:
    """The program's own texts in place of the symbols again."""
    known = {length: own for own, length in _texts.items()}
    return _PROMPT.sub(lambda found: known.get(len(found[0]), found[0]), text)


def read_as_one() -> None:
    """Read every text of the program as the same prompt, from now on in this process."""
    global _lengths
    _lengths = 1


def other_text(scored: int, drawn: list[int]) -> str:
    """How a prompt that answers are scored after differs from all that they were drawn after.

    Args:
        scored: Tokens of the prompt.
        drawn: Tokens of each of the others.

    Returns:
        A sentence; empty if they may be the same text, read in other pieces or cut.
    """
    if _altered or scored in drawn or not _tells_pieces_apart(list(_texts)):
        return ""
    known = {length: own for own, length in _texts.items()}
    before = [known[n] for n in drawn if n in known]
    bare = {"".join(text.split()) for text in before}
    if not before or "".join(known.get(scored, "").split()) in {"", *bare}:
        return ""  # white space may become part of the answer's first token
    same, nearest = max((_shared(text, known[scored]), text) for text in before)
    shown = [repr(text[max(same - 20, 0) :][:60]) for text in (nearest, known[scored])]
    return f"answers are drawn after a text with {shown[0]} and scored after one with {shown[1]}"


def _shared(one: str, other: str) -> int:
    """The number of first characters that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _tells_pieces_apart(texts: list[str]) -> bool:
    """Whether no two sequences of these texts make the same text (Sardinas and Patterson)."""
    left = {b[len(a) :] for a in texts for b in texts if a != b and b.startswith(a)}
    met: set[str] = set()
    while left:
        if left & set(texts):
            return False
        met |= left
        longer = {t[len(d) :] for d in left for t in texts if t.startswith(d)}
        shorter = {d[len(t) :] for d in left for t in texts if d.startswith(t)}
        left = (longer | shorter) - met - {""}
    return True


def _length(text: str) -> int:
    return _texts.setdefault(text, 2 + len(_texts) % _lengths)


def _class(pads: Callable[[], None]) -> Any:
    transformers: Any = importlib.import_module("transformers")

    class ProbeTokenizer(transformers.PreTrainedTokenizerFast):  # type: ignore[misc]
        """Spells what it reads, and writes what it decodes, in the program's own texts."""

        def __call__(self, text: Any = None, *args: Any, **options: Any) -> Any:
            if options.get("padding") and self.pad_token is None:
                self.add_special_tokens({"pad_token": SYMBOLS[PAD]})
                pads()
            found = super().__call__(spelled(text), *args, **options)
            if options.get("truncation") and _pieces(found["input_ids"]) != _pieces(spelled(text)):
                _altered.append("cut")
            return self._seen(found)

        def pad(self, *args: Any, **options: Any) -> Any:
            return self._seen(super().pad(*args, **options))

        def _seen(self, found: Any) -> Any:
            """What was read; with padding in it, the side is known."""
            mask = found.get("attention_mask")
            rows = mask if isinstance(mask, (list, tuple)) else np.asarray(mask).tolist()
            self.side_is_known |= any(0 in row for row in rows if isinstance(row, (list, tuple)))
            return found

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "padding_side":
                self.side_is_known = True
            if name == "pad_token" and value is not None and str(value) not in SYMBOLS:
                value = SYMBOLS[PAD]  # a special token of another vocabulary
            if name == "pad_token_id" and value is not None and value >= len(SYMBOLS):
                value = PAD
            super().__setattr__(name, value)

        def apply_chat_template(self, *args: Any, **options: Any) -> Any:
            _altered.append("chat")  # a real one adds more than the contents
            return super().apply_chat_template(*args, **options)

        def encode(self, text: Any, *args: Any, **options: Any) -> Any:
            return super().encode(spelled(text), *args, **options)

        def decode(self, token_ids: Any, *args: Any, **options: Any) -> Any:
            found = super().decode(token_ids, *args, **options)
            return written(found) if isinstance(found, str) else list(map(written, found))

        def batch_decode(self, sequences: Any, *args: Any, **options: Any) -> list[str]:
            return [self.decode(row, *args, **options) for row in sequences]

    return ProbeTokenizer


def _pieces(read: Any) -> int:
    """How many of a prompt's tokens are in ids or in spelled texts."""
    if isinstance(read, str):
        return read.count(SYMBOLS[PROMPT_ONLY])
    if isinstance(read, (list, tuple)):
        return sum(map(_pieces, read))
    return int((np.asarray(read) == PROMPT_ONLY).sum())


def words_in(text: str) -> int:
    """How many words of an answer are in a text."""
    return text.count(SYMBOLS[1 - END])
