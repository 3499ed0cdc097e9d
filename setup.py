"""The one thing that pyproject.toml cannot say: a compiled part that may be missing.

Without a C++ compiler the installation succeeds all the same, and torch's own operations serve.
"""

from setuptools import Extension, setup

FOLDER = "src/eligibility/ops/native"

rows = Extension(
    "eligibility.ops._rows",
    sources=[f"{FOLDER}/module.cpp", f"{FOLDER}/rows.cpp"],
    depends=[
        f"{FOLDER}/{name}.h"
        for name in (
            "rows",
            "row_columns",
            "row_task",
            "row_vectors",
            "row_template",
            "row_passes",
            "row_function",
        )
    ],
    extra_compile_args=[
        "-O2",
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
