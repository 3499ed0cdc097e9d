"""The one thing that pyproject.toml cannot say: a compiled part that may be missing.

Without a C++ compiler the installation succeeds all the same, and torch's own operations serve.
"""

from setuptools import Extension, setup

rows = Extension(
    "eligibility.ops._rows",
    sources=["src/eligibility/ops/native/rows.cpp"],
    depends=[
        "src/eligibility/ops/native/row_template.h",
        "src/eligibility/ops/native/row_function.h",
    ],
    extra_compile_args=[
        "-O3",
        "-fno-math-errno",
        "-ffp-contract=fast",
        "-fno-exceptions",
        "-fno-rtti",
        "-fvisibility=hidden",
        "-Wno-maybe-uninitialized",  # GCC 12 warns about its own AVX-512 header
    ],
    optional=True,
)

setup(ext_modules=[rows])
