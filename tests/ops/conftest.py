"""The ways that a call over logits on the processor can go."""

from __future__ import annotations

import pytest

from eligibility.ops.backends import cpu, plain, selection


@pytest.fixture(params=["composition", "rows", "native"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test on torch's composed nodes, the row functions in tiny chunks, and the kernel."""
    if request.param == "native":
        if not cpu.is_built():
            pytest.skip("the native kernel was not built")
        monkeypatch.setattr(selection, "_SMALL_FOR_NATIVE", 0)
    else:
        monkeypatch.setattr(cpu, "_library", None)
        least = 0 if request.param == "rows" else 1 << 60
        monkeypatch.setattr(selection, "_SMALL_FOR_PLAIN", least)
        monkeypatch.setattr(plain, "_CHUNK_ELEMENTS", 7)
    return str(request.param)
