"""Checkpoints whose checksum is right and whose content is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from eligibility.train.checkpoint import read_checkpoint, write_checkpoint

Facts = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def forge(original: Path, path: Path, change: Callable[[Facts, Tensors], None]) -> Path:
    """``original`` with a change, under a checksum of its own."""
    tensors, facts = read_checkpoint(original)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(facts, tensors)
    return write_checkpoint(path, tensors, facts)


def with_header(path: Path, header: str) -> Path:
    """A file of one tensor whose header is this text."""
    safetensors.torch.save_file({"a": torch.zeros(2)}, path, metadata={"eligibility": header})
    return path


def deep(depth: int) -> str:
    """A header with a list within a list, and so on."""
    header = json.dumps({"format_version": 2, "sha256": "", "facts": "HERE"})
    return header.replace('"HERE"', "[" * depth + "]" * depth)
