"""A data set with any column that a program asks for, in place of a download."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from eligibility.audit.trainers.record import Record

_CONVERSATIONS = ("conversations", "messages")  # columns that hold lists of messages
_MANY = 128  # rows: a program may draw several at once, or set a hundredth of them apart
_SAID = 1000  # rows that the data are said to have: a program may ask for some hundreds


class AnyText(str):
    """A text that also answers as a list of texts, as a message, as a number, or as an array."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        """Two texts: a column may hold several, or several numbers."""
        return iter((self, self))

    def __float__(self) -> float:
        return float(self._last())

    def __int__(self) -> int:
        return int(self._last())

    def numpy(self) -> AnyText:
        """What a column of numbers says, after ``set_format``."""
        return self

    def _last(self) -> str:
        """The last number in it, which is the answer to the question."""
        numbers: list[str] = re.findall(r"\d+", self)
        return numbers[-1] if numbers else "0"

    def __getitem__(self, key: Any) -> Any:
        return str.__getitem__(self, key) if isinstance(key, slice) else self

    def split(self, *separator: Any, **options: Any) -> Any:
        """At least two parts, so that what is after a mark is there."""
        parts = super().split(*separator, **options)
        return [AnyText(part) for part in parts] if len(parts) > 1 else [self, self]


class _Row(dict[str, Any]):
    """A row with every column.

    Each has a separate type, because libraries rebuild a mapping from its type alone.
    """

    number = 0  # of the row; each has a different text

    def __missing__(self, key: str) -> Any:
        n = self.number
        question = f"What is {n} + {3 * n + 4}?"
        if key in _CONVERSATIONS:
            return [_message("user", question), _message("assistant", f"#### {4 * n + 4}")]
        return AnyText(f"{question} #### {4 * n + 4}")


def _stored(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns as a data set keeps them, without tensors."""
    return {
        name: value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value
        for name, value in columns.items()
    }


def _tensor(value: Any) -> Any:
    """Numbers, or lists of them, as a tensor; anything else as it is."""
    with suppress(TypeError, ValueError):
        return value if isinstance(value, str | torch.Tensor) else torch.tensor(value)
    return value


def _message(role: str, text: str) -> dict[str, str]:
    """One of a conversation, in the two forms in which data sets have them."""
    return {"role": role, "content": text, "from": role, "value": text}


def _row(values: dict[str, Any], number: int) -> _Row:
    return cast(_Row, type("Row", (_Row,), {"number": number})(values))


class _Batch(dict[str, Any]):
    """Rows that a loader has put together: a list of each column."""

    rows: tuple[_Row, ...] = ()

    def __missing__(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows]


def _batch(rows: list[_Row]) -> _Batch:
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return cast(_Batch, type("Batch", (_Batch,), {"rows": tuple(rows)})(columns))


def collate_rows() -> None:
    """Let torch's loaders put such rows together."""

    def collate(rows: list[_Row], **options: Any) -> _Batch:
        return _batch(rows)

    default_collate_fn_map[_Row] = collate


class _AnyColumns(list[str]):
    """Column names, where any other name counts as one too."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


class AnyRows:
    """Rows of different texts, with every column; what a program maps on it is kept.

    Args:
        record: Where failures of the program's own functions are noted.
        rows: The columns that are known already.
        split: Whether it is one split, so that a name is that of a column.
        length: How many rows it says it has; some are the same.
    """

    def __init__(
        self,
        record: Record,
        rows: list[dict[str, Any]] | None = None,
        *,
        split: bool = False,
        length: int = _SAID,
    ) -> None:
        self._record, self._split, self._length = record, split, length
        self._rows = [_row(row, k) for k, row in enumerate(rows or [{}] * _MANY)]

    def map(self, function: Callable[..., Any], *args: Any, **options: Any) -> AnyRows:
        """The columns that ``function`` returns, for each row; or for the batch of them."""
        extra = {**(options.get("fn_kwargs") or {})}
        if options.get("batched"):
            return self._map_batch(function, extra, bool(options.get("with_indices")))
        made = []
        for index, row in enumerate(self._rows):
            try:
                copied = _row(row, index)
                given = (copied, index) if options.get("with_indices") else (copied,)
                made.append({**row, **_stored(function(*given, **extra) or {})})
            except Exception as error:  # the user's function, on rows that it never saw
                self._record.note(f"a function mapped on the data failed: {type(error).__name__}")
                made.append(dict(row))
        return self._with(made)

    def _map_batch(
        self, function: Callable[..., Any], extra: dict[str, Any], with_indices: bool
    ) -> AnyRows:
        """The columns that ``function`` returns for all rows at once, if each has as many."""
        indices = (list(range(len(self._rows))),) if with_indices else ()
        try:
            columns = _stored(function(_batch(self._rows), *indices, **extra) or {})
            cells = zip(*columns.values(), strict=True)
            added = [dict(zip(columns, row, strict=True)) for row in cells]
        except Exception as error:  # the user's function, on rows that it never saw
            self._record.note(f"a function mapped on the data failed: {type(error).__name__}")
            return self
        if len(added) != len(self._rows):
            return self
        made = [{**row, **new} for row, new in zip(self._rows, added, strict=True)]
        return self._with(made)

    def with_format(self, type: Any = None, *args: Any, **options: Any) -> AnyRows:
        """For "torch", numbers are tensors."""
        if type not in ("torch", "pt"):
            return self
        made = [{name: _tensor(value) for name, value in row.items()} for row in self._rows]
        return self._with(made)

    def set_format(self, type: Any = None, *args: Any, **options: Any) -> None:
        """The same, in place."""
        self._rows = self.with_format(type)._rows

    def __getitem__(self, key: Any) -> Any:
        """A split, a row, or a column."""
        if isinstance(key, int):
            return self._rows[key % len(self._rows)]
        if isinstance(key, str):
            if self._split or any(key in row for row in self._rows):
                return [row[key] for row in self._rows]
            return AnyRows(self._record, list(self._rows), split=True, length=self._length)
        return self

    def __delitem__(self, key: str) -> None:
        """A split that the program does without."""

    def _with(self, rows: list[dict[str, Any]]) -> AnyRows:
        return AnyRows(self._record, rows, split=self._split, length=self._length)

    def select(self, indices: Iterable[int], *args: Any, **options: Any) -> AnyRows:
        """As many rows as there are indices, if there are any."""
        count = len(list(indices)) or self._length
        rows: list[dict[str, Any]] = list(self._rows[:count])
        return AnyRows(self._record, rows, split=self._split, length=count)

    def take(self, count: int) -> AnyRows:
        """The first ones."""
        return self.select(range(count))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: object) -> bool:
        return True

    @property
    def column_names(self) -> list[str]:
        """The columns that the program made; any other name counts as one too."""
        return _AnyColumns(self._rows[0])

    @property
    def features(self) -> dict[str, Any]:
        """The same, as the keys of a dictionary."""
        return dict.fromkeys(self._rows[0])

    def train_test_split(self, *args: Any, **options: Any) -> dict[str, AnyRows]:
        """The same rows twice."""
        return {"train": self, "test": self}

    def keys(self) -> list[str]:
        """The usual splits."""
        return ["train", "test"]

    def items(self) -> list[tuple[str, AnyRows]]:
        """The usual splits, each with these rows."""
        return [(name, self) for name in self.keys()]

    def __getattr__(self, name: str) -> Any:
        """Shuffling, selecting, filtering, renaming and the rest change nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: self

    def to_list(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        return [dict(row) for row in self._rows]
