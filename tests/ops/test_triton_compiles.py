"""Every kernel compiles for a GPU that is not here, which finds what the interpreter lets pass."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from eligibility.ops.backends import triton_kernels, triton_sampling

def build(name, warps, **values):
    module = triton_sampling if name == "sample_kernel" else triton_kernels
    kernel = getattr(module, name)
    signature, constants, hints = {}, {}, {}
    for position, argument in enumerate(kernel.arg_names):
        value = values.get(argument)
        if value is None or kernel.params[position].is_constexpr:
            signature[argument], constants[(position,)] = "constexpr", value
        else:
            kind = {int: "i32", float: "fp32"}.get(type(value), value)
            signature[argument] = kind
            if kind.startswith("*") or (kind == "i32" and value % 16 == 0):
                hints[(position,)] = [["tt.divisibility", 16]]
    built = triton.compile(
        ASTSource(kernel, signature, constants, hints),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": warps, "debug": True, "sanitize_overflow": False},
    )
    indent = None  # of the loop that a line is in
    for line in built.asm["ttgir"].splitlines():
        if indent is None and "scf.for" in line:
            indent = len(line) - len(line.lstrip())
        elif indent is not None:
            assert "ttg.convert_layout" not in line, line
            indent = None if line.startswith(" " * indent + "}") else indent
    assert len(built.asm["cubin"]) > 0
    print(name)

long = dict(logits="*bf16", logits_stride=151936, action="*i64", results="*fp32", rows=8192,
            categories=151936, block_rows=1, block=16384, group=8, one_tile=False, kl_estimator=0)
short = long | dict(logits="*fp32", logits_stride=1024, categories=1024, block_rows=4, block=1024,
                    group=1024, one_tile=True, gradient="*fp32", gradient_stride=1024)
build("rows_kernel", 32, **long)
build("rows_kernel", 32, **long, gradient="*bf16", gradient_stride=151936, factor="*fp32",
      advantage="*fp32", clip_low=0.2, clip_high=0.2, entropy_coef=0.1)
build("rows_kernel", 8, **(short | dict(kl_estimator=3)), factor="*fp32", advantage="*fp32",
      old_log_prob="*fp32", ref_log_prob="*fp32", kl_coef=0.1, clip_low=0.2, clip_high=0.2,
      softcap=30.0, temperature=0.7, mask="*u8", mask_stride=1024, z_loss_coef=0.1, own="*fp32")
build("rows_kernel", 8, **short, reference="*fp32", reference_stride=1024, factor="*fp32",
      advantage="*fp32", kl_coef=0.1, clip_low=0.2, clip_high=0.2)
build("gradient_kernel", 8, **(short | dict(block=1024)), by_log_prob="*fp32", by_entropy="*fp32",
      by_log_normalizer="*fp32")
build("sample_kernel", 32, **long, seed="*i64")
build("scale_kernel", 8, tensor="*bf16", factor="*fp32", count=10**9, block=4096)
"""


def test_kernels_compile_for_hopper_and_keep_their_loops_in_registers() -> None:
    pytest.importorskip("triton", reason="there is no triton for this system")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "0"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [
        *["rows_kernel"] * 4, "gradient_kernel", "sample_kernel", "scale_kernel"
    ]  # fmt: skip
