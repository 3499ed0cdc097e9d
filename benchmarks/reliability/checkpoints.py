"""Checkpoints and run folders that are damaged, or forged under a checksum that is right.

Damage: bits, bytes and blocks of a genuine file change, go, or come. Forgery: every fact is
replaced by every kind of nonsense, every tensor goes, changes its shape, its type or its numbers,
and the checksum is made to fit. Each must be refused by one error, or, where the change is one that
can be true (another seed), load and play an episode. No module that only the file names may be
imported.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.reliability.row import Row, row_of
from benchmarks.reliability.scratch import scratch_folder
from eligibility.errors import EligibilityError

TITLE = "Damaged and forged checkpoints"
REFUSED = "refused by one error, or a model that plays; nothing imported"
_IMPORTED = "imported"  # what the stranger's module makes

NONSENSE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 10**30, -0.5, 1e308, float("nan"), float("inf"), "", "text",
    "\x1b]0;title\x07", "x" * 10_000, "stranger:CartPole-v1", [], [1, "a"], [[]] * 1000, {},
    {"a": {"b": {}}}, 300_000,
)  # fmt: skip


def run() -> Iterator[Row]:
    """The rows of this part."""
    from eligibility.train.learner import Reinforce

    dice = random.Random(20261122)
    with scratch_folder() as folder:
        (folder / "stranger.py").write_text(f"open({str(folder / _IMPORTED)!r}, 'w')\n")
        path = folder / "checkpoint.safetensors"
        model = Reinforce(
            "CartPole-v1", environments=4, hidden_sizes=(8,),
            baseline="state-value+per-weight", normalize_observations=True,
        )  # fmt: skip
        whole = model.learn(total_steps=200).save(folder / "whole").read_bytes()
        for attack, contents in _damages(whole, dice):
            yield _row(attack, folder, [lambda c=c: path.write_bytes(c) for c in contents])
        yield _row("a fact that is nonsense, its checksum right", folder, _forged_facts(folder))
        yield _row("a tensor that is nonsense, its checksum right", folder, _forged_tensors(folder))
        yield _row("a header that is nonsense", folder, _headers(path))
        yield _folders(folder, model)


def _row(attack: str, folder: Path, makers: Any) -> Row:
    """Write each, load it, and say what went wrong; memory and time beside."""
    outcomes, played, slowest, before = [], 0, 0.0, _resident()
    for make in makers:
        make()
        started = time.perf_counter()
        outcome = _load(folder / "checkpoint.safetensors")
        slowest = max(slowest, time.perf_counter() - started)
        played += outcome == "played"
        outcomes.append("" if outcome == "played" else outcome)
        if (folder / _IMPORTED).exists():
            outcomes[-1] = "the stranger's module was imported"
            (folder / _IMPORTED).unlink()
    grown = max(0, _resident() - before) / 1024
    note = (
        f"{played} were valid and played; slowest {slowest:.1f} s; memory grew by {grown:.0f} MiB"
    )
    return row_of(attack, REFUSED, outcomes, note)


def _load(path: Path) -> str:
    """Empty: refused by one error of ours; ``played``: it loaded and plays; else what happened."""
    from eligibility.train.learner import Reinforce

    try:
        model = Reinforce.load(path)
    except EligibilityError as error:
        return "" if "\n" not in str(error) and len(str(error)) < 2000 else f"said {error!s:.200}"
    except BaseException as error:  # anything but one clear error is a finding
        return f"{type(error).__name__}: {error!s:.200}"
    try:
        model.play(1)
    except EligibilityError as error:
        return f"loaded, and then {error!s:.200}"
    except BaseException as error:  # whatever a forged file raises is the finding
        return f"loaded, and then {type(error).__name__}: {error!s:.200}"
    return "played"


def _damages(whole: bytes, dice: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    size, header = len(whole), 8 + struct.unpack("<Q", whole[:8])[0]

    def flipped(start: int, end: int) -> bytes:
        content = bytearray(whole)
        content[dice.randrange(start, end)] ^= 1 << dice.randrange(8)
        return bytes(content)

    def without() -> bytes:
        start = dice.randrange(size)
        return whole[:start] + whole[start + dice.randint(1, 64) :]

    def with_more() -> bytes:
        start = dice.randrange(size)
        return whole[:start] + dice.randbytes(dice.randint(1, 64)) + whole[start:]

    def overwritten() -> bytes:
        start, length = dice.randrange(size), dice.randint(2, 512)
        return (whole[:start] + dice.randbytes(length) + whole[start + length :])[:size]

    yield "one bit of the header flipped", [flipped(0, header) for _ in range(250)]
    yield "one bit of the tensors flipped", [flipped(header, size) for _ in range(150)]
    yield "cut off", [whole[: dice.randrange(size)] for _ in range(150)]
    yield "bytes missing in the middle", [without() for _ in range(100)]
    yield "bytes added in the middle", [with_more() for _ in range(100)]
    yield "a block overwritten", [overwritten() for _ in range(100)]
    yield "random bytes", [dice.randbytes(dice.randint(0, 4096)) for _ in range(100)]


def _forged_facts(folder: Path) -> Iterator[Callable[[], object]]:
    from eligibility.train.checkpoint import read_checkpoint, write_checkpoint

    tensors, facts = read_checkpoint(folder / "whole")
    for keys in _leaves(facts):
        for value in NONSENSE:
            forged = json.loads(json.dumps(facts))
            inner = forged
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = value
            yield lambda forged=forged: write_checkpoint(
                folder / "checkpoint.safetensors", tensors, forged
            )


def _leaves(facts: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all facts, groups of them included; of a list, its first entry."""
    entries: Any = facts.items() if isinstance(facts, dict) else enumerate(facts[:1])
    for key, value in entries:
        yield (*above, key)
        if isinstance(value, (dict, list)):
            yield from _leaves(value, (*above, key))


def _forged_tensors(folder: Path) -> Iterator[Callable[[], object]]:
    from eligibility.train.checkpoint import read_checkpoint, write_checkpoint

    tensors, facts = read_checkpoint(folder / "whole")
    for name, tensor in tensors.items():
        for other in _nonsense_for(tensor):
            forged = {key: value for key, value in tensors.items() if key != name}
            if other is not None:
                forged[name] = other
            yield lambda forged=forged: write_checkpoint(
                folder / "checkpoint.safetensors", forged, facts
            )
        renamed = {f"{key}.x" if key == name else key: value for key, value in tensors.items()}
        yield lambda forged=renamed: write_checkpoint(
            folder / "checkpoint.safetensors", forged, facts
        )


def _nonsense_for(tensor: Tensor) -> list[Tensor | None]:
    return [
        None,
        tensor.bfloat16(),
        torch.zeros(tensor.shape, dtype=torch.int64),
        tensor.new_zeros(*tensor.shape, 2),
        tensor.new_zeros(0),
        tensor.new_zeros(0, 2**40),
        tensor.new_zeros(1000),
        torch.full_like(tensor, torch.nan),
        torch.full_like(tensor, -torch.inf),
    ]


def _headers(path: Path) -> Iterator[Callable[[], object]]:
    import safetensors.torch

    deep = "[" * 200_000 + "]" * 200_000
    facts = json.dumps({"format_version": 2, "sha256": "", "facts": "HERE"})
    headers = [deep, "{" * 9, "[]", "null", "7", "NaN", '"text"', "{}", facts]
    headers += [facts.replace('"HERE"', value) for value in (deep, "[]", "1e999", "9" * 5000)]
    headers += [json.dumps({"format_version": value, "sha256": ""}) for value in NONSENSE]
    for header in headers:
        content = safetensors.torch.save({"a": torch.zeros(2)}, metadata={"eligibility": header})
        yield lambda content=content: path.write_bytes(content)
    for length in (2**63, 2**40, 2**24 + 1, 100_000_000):
        yield lambda length=length: path.write_bytes(struct.pack("<Q", length) + b"{}")
    layout = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(layout).encode()

    def sparse() -> None:
        """A file that claims 4 TiB, and as far as the file system goes has them."""
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(path, min(8 + len(text) + 2**42, 2**43))

    yield sparse


def _folders(folder: Path, model: Any) -> Row:
    """The other files of a run, each replaced by nonsense, and the run resumed."""
    from eligibility.train.run_folder import RunFolder, load_run

    record = RunFolder(folder / "run", model)
    model.learn(total_steps=400, callback=record)
    record.finish()
    genuine = {file.name: file.read_bytes() for file in (folder / "run").iterdir()}
    config = json.loads(genuine["config.json"])
    result = json.loads(genuine["result.json"])
    curve = genuine["curve.csv"].decode()
    texts = ["", "[]", "null", "[" * 200_000, "\x00", "{}", "x" * 1_000_000]
    changes = [("config.json", text) for text in texts]
    changes += [("config.json", json.dumps({**config, k: v})) for k in config for v in NONSENSE]
    changes += [("result.json", text) for text in texts]
    changes += [("result.json", json.dumps({**result, k: v})) for k in result for v in NONSENSE]
    changes += [("curve.csv", text) for text in texts]
    changes += [
        ("curve.csv", curve.replace(",", separator, 7)) for separator in (";", ",,", ",-", ",9")
    ]
    outcomes = []
    for name, text in changes:
        for file, content in genuine.items():
            (folder / "run" / file).write_bytes(content)
        (folder / "run" / name).write_text(text)
        if name == "config.json":  # as it is before the first checkpoint
            (folder / "run" / "checkpoint.safetensors").unlink()
        try:
            RunFolder(folder / "run", load_run(folder / "run", {}), resume=True).finish()
            outcomes.append("")
        except EligibilityError as error:
            outcomes.append(f"said {error!s:.200}" if "\n" in str(error) else "")
        except BaseException as error:  # whatever a forged file raises is the finding
            outcomes.append(f"{name} {text[:60]}: {type(error).__name__}: {error!s:.200}")
        if (folder / _IMPORTED).exists():
            outcomes[-1] = "the stranger's module was imported"
    return row_of(
        "config.json, result.json or curve.csv is nonsense, and the run is resumed",
        "refused by one error, or the run goes on; nothing imported",
        outcomes,
    )


def _resident() -> int:
    """The most memory that this process has had so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
