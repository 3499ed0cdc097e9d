"""Test-wide setup: shapes in annotations are checked while the tests run."""

from __future__ import annotations

import torch
from jaxtyping import install_import_hook

# The packages whose functions take tensors with shapes in their signatures.
install_import_hook(
    ["eligibility.shapes", "eligibility.rules", "eligibility.ops", "eligibility.reinforce"],
    "beartype.beartype",
)
# The suite runs its files in parallel processes; more threads in each would only fight.
torch.set_num_threads(1)
