"""Checkpoints: one file, tensors in safetensors format with a JSON header. Loading runs no code.

The header holds the format version, the configuration, the counters, and a checksum of these and
of the tensors. The file is replaced whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eligibility.errors import EligibilityError, InvalidValueError
from eligibility.files import write_atomically
from eligibility.train.environments import missing

FORMAT_VERSION = 2
FILE_NAME = "checkpoint.safetensors"
# One key, because the header of the format has no order of its own.
_KEY = "eligibility"


def write_checkpoint(path: str | Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    """Write tensors and facts to ``path``: the same input gives the same bytes."""
    safetensors = _safetensors()
    tensors = _apart({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    checksum = _checksum(tensors, facts)
    header = {"format_version": FORMAT_VERSION, "sha256": checksum, "facts": facts}
    content = safetensors.torch.save(tensors, metadata={_KEY: json.dumps(header)})
    return write_atomically(path, content)


def read_checkpoint(
    path: str | Path, needed: Iterable[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a checkpoint file, or of the run folder that holds one.

    Args:
        path: The file or the folder.
        needed: Facts that must be among them.

    Raises:
        InvalidValueError: There is none, it is damaged, or it is of another format version.
    """
    safetensors = _safetensors()
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version, checksum = header["format_version"], header["sha256"]
        facts: dict[str, Any] = header.get("facts", {})
    except FileNotFoundError as error:
        raise _refused(path, "no such file", "pass a run folder or a checkpoint file") from error
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error
    if version != FORMAT_VERSION:
        remedy = "load it with the version of eligibility that wrote it"
        raise _refused(path, f"format version {version}", remedy)
    if checksum != _checksum(tensors, facts) or {*needed} - {*facts}:
        raise _damaged(path)
    return tensors, facts


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with memory of their own: a network may have one weight under several names."""
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in taken else tensor
        taken.add(place)
    return apart


def _checksum(tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _refused(path: Path, got: str, remedy: str) -> EligibilityError:
    expected = f"a checkpoint of format version {FORMAT_VERSION}"
    return InvalidValueError(f"the checkpoint `{path}`", got, expected, remedy)


def _damaged(path: Path) -> EligibilityError:
    return _refused(path, "a damaged or foreign file", "train again, or restore it from a copy")


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise missing("safetensors") from error
    return safetensors
