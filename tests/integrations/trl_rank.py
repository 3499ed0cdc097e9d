"""One of several processes that train a policy together, with TRL's loss and with the recipe's."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch
import trl

from tests.integrations.tiny_trainers import LinearGRPO, made, tiny


def train_both(arguments: list[str]) -> None:
    """Save what two steps change in the parameters, by each trainer, from the first process."""
    folder = Path(arguments[0])
    warnings.simplefilter("ignore")
    os.environ["LOCAL_RANK"] = rank = os.environ["RANK"]  # accelerate asks for it
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"]
    for name, trainer in (("plain", trl.GRPOTrainer), ("fused", LinearGRPO)):
        built = made(
            trainer,
            trl.GRPOConfig,
            folder,
            tiny(),
            loss_type="dapo",  # whose divisor is that of all processes
            max_steps=2,
            learning_rate=0.5,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
        )
        assert built.accelerator.num_processes == 2
        before = torch.cat([p.detach().flatten() for p in built.model.parameters()])
        built.train()
        after = torch.cat([p.detach().flatten() for p in built.model.parameters()])
        if rank == "0":
            torch.save(after - before, folder / f"{name}.pt")
