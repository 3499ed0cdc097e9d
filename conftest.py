"""Test-wide setup: shapes in annotations are checked while the tests run."""

from __future__ import annotations

import gc
import os
import tempfile
from contextlib import suppress

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from tests import slow

# The Triton kernels run under its interpreter, which it decides when it is first imported. On a
# machine with a GPU, `TRITON_INTERPRET=0 pytest tests/ops/test_triton*.py` tests the compiled ones.
os.environ.setdefault("TRITON_INTERPRET", "1")
with suppress(ImportError):
    # Before the hook: Triton translates the text of these functions, decorators and all.
    import eligibility.ops.backends.triton_kernels
    import eligibility.ops.backends.triton_sampling  # noqa: F401  # translated here, and used nowhere in this file

# The packages whose functions take tensors with shapes in their signatures.
install_import_hook(
    ["eligibility.shapes", "eligibility.rules", "eligibility.ops", "eligibility.reinforce"],
    "beartype.beartype",
)
# Every run tries the same cases, and a busy machine must not fail one.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
# The suite runs its files in parallel processes; more threads in each, or in the commands that they
# start, would only fight.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Two hundred thousand objects of libraries are alive from here on. The collector would walk them
# every time; that took a sixth of the suite's time.
gc.set_threshold(100_000, 50, 50)
gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    slow.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow.leave_out(config, items)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_end_with_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loggers and launchers of other packages leave folders where temporary files go."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))
