"""Checkpoints: one file, tensors in safetensors format with a JSON header. Loading runs no code.

The header holds the format version, the configuration, the counters, and a checksum of these and
of the tensors. The file is replaced whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.files import write_atomically
from eligibility.train.domains import shown
from eligibility.train.environments import required

FORMAT_VERSION = 2
FILE_NAME = "checkpoint.safetensors"
# One key, because the format's header is unordered.
_KEY = "eligibility"
# The name of what `checkpoint_header` reads, in files of this format version.
_HEADER = "facts"
# Bytes; a network of ten thousand tensors has 4 million.
_LARGEST_HEADER = 2**24


def write_checkpoint(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> Path:
    """Write tensors and header to ``path``: the same input gives the same bytes."""
    required("safetensors", "safetensors")
    from safetensors.torch import save

    tensors = _apart({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    checksum = _checksum(tensors, header)
    envelope = {"format_version": FORMAT_VERSION, "sha256": checksum, _HEADER: header}
    return write_atomically(path, save(tensors, metadata={_KEY: json.dumps(envelope)}))


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a checkpoint file, or of the run folder that holds one.

    The tensors are views of the file: memory is taken only for what is copied from them.
    """
    safe_open = required("safetensors", "safetensors").safe_open
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    if not path.exists():
        raise _refused(path, "no such file", "pass a run folder or a checkpoint file")
    try:
        _check_size(path)
        with safe_open(path, framework="pt") as file:
            envelope = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        version, checksum = envelope["format_version"], envelope["sha256"]
        header: dict[str, Any] = envelope.get(_HEADER, {})
        whole = version != FORMAT_VERSION or checksum == _checksum(tensors, header)
    except Exception as error:  # anybody may have written it: every kind of nonsense, at any depth
        raise damaged(path) from error
    if version != FORMAT_VERSION:
        remedy = "load it with the version of eligibility that wrote it"
        raise _refused(path, f"format version {shown(version)}", remedy)
    if not whole:
        raise damaged(path)
    return tensors, header


def _check_size(path: Path) -> None:
    """Raise ``ValueError`` for what is not a file, or has a header that is too large to be one."""
    if not path.is_file():  # to open a pipe would wait for ever
        raise ValueError("no regular file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > _LARGEST_HEADER:
        raise ValueError("a header that is too long")


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same in separate memory: a network may have one weight under several names."""
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in taken else tensor
        taken.add(place)
    return apart


def _checksum(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refused(path: Path, got: str, remedy: str) -> EligibilityError:
    expected = f"a checkpoint of format version {FORMAT_VERSION}"
    return InvalidValueError(f"the checkpoint `{path}`", got, expected, remedy)


def damaged(path: Path, reason: str = "") -> EligibilityError:
    """The error for a file that this program cannot have written."""
    got = f"a damaged or foreign file ({reason})" if reason else "a damaged or foreign file"
    return _refused(path, got, "train again, or restore it from a copy")


def named(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under ``part.name`` each."""
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def part_of(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of a part, under their names in it."""
    prefix = f"{part}."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
