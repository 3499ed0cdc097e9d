"""Imports go downwards only: the architecture, read from the imports themselves."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "eligibility"
# From the bottom to the top; those on one line do not import each other.
ORDER = [
    {"errors"},
    {"files", "notebooks", "sandbox", "scalars", "shapes", "spaces"},
    {"arguments"},
    {"rules"},
    {"ops"},
    {"distributions", "reinforce"},
    {"explanation", "audit", "train", "bench", "integrations"},
    {"cli"},
    {"__main__"},
]
LAYERS = {unit: layer for layer, units in enumerate(ORDER) for unit in units}
# The same within the audit, whose parts are many.
AUDIT_ORDER = [
    {
        "arrays",
        "costs",
        "faults",
        "patches",
        "precision",
        "quadrature",
        "side_by_side",
        "trace",
        "user_code",
    },
    {"choices", "job", "processor", "raised", "rewritten", "sections"},
    {"noise"},
    {"interception"},
    {"running"},
    {"reporting"},
    {"judgement"},
    {"episodes", "examine", "language", "tensordicts"},
    {"trainers"},
    {"adapters", "scripts"},
]
AUDIT_LAYERS = {unit: layer for layer, units in enumerate(AUDIT_ORDER) for unit in units}
# The only files that may import a heavy or optional package.
CONFINED = {
    "triton": ("ops/backends/triton",),  # the files of kernels
    "gymnasium": ("spaces/", "train/", "audit/"),
    "torch.distributed": (
        "audit/interception/one_process.py",
        "ops/_processes.py",
        "ops/_vocab_shard.py",
        "train/distributed.py",
    ),
}
FILES = sorted(SOURCE.rglob("*.py"))


def imported_modules(path: Path, for_types: bool = True) -> set[str]:
    """Every module that ``path`` imports anywhere, also inside functions, and for types alone."""
    package = ("eligibility", *path.relative_to(SOURCE).parts[:-1])
    modules: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    left_out = {node for block in blocks for node in ast.walk(block) if not for_types}
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            modules |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return modules


def unit_of(module: str) -> str | None:
    """``eligibility.rules.bernoulli`` -> ``rules``; None for other packages and the root."""
    parts = module.split(".")
    return parts[1] if parts[0] == "eligibility" and len(parts) > 1 else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_downwards_only(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "__init__":
        return  # the root names modules as strings and loads them lazily; tested in test_public_api
    for module in imported_modules(path):
        unit = unit_of(module)
        if unit is None or unit not in LAYERS or unit == own:
            continue
        assert LAYERS[unit] < LAYERS[own], f"{own} (layer {LAYERS[own]}) imports {module}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.is_relative_to(SOURCE / "audit") and path.stem != "__init__"],
    ids=lambda p: str(p.relative_to(SOURCE / "audit")),
)
def test_imports_within_the_audit_go_downwards_only(path: Path) -> None:
    own = path.relative_to(SOURCE / "audit").parts[0].removesuffix(".py")
    for module in imported_modules(path):
        parts = module.split(".")
        unit = parts[2] if parts[:2] == ["eligibility", "audit"] and len(parts) > 2 else own
        if unit != own:
            assert AUDIT_LAYERS[unit] < AUDIT_LAYERS[own], f"{own} imports {module}"


def test_no_two_modules_need_each_other() -> None:
    names = {
        ".".join(("eligibility", *p.relative_to(SOURCE).with_suffix("").parts)): p for p in FILES
    }
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {
        name: (imported_modules(path, for_types=False) & names.keys()) - {name, "eligibility"}
        for name, path in names.items()
    }
    for name, below in graph.items():  # `from package import module` needs the module alone
        graph[name] = {m for m in below if not any(other.startswith(f"{m}.") for other in below)}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_every_unit_has_a_layer() -> None:
    audit = {path.name.removesuffix(".py") for path in (SOURCE / "audit").iterdir()}
    assert audit - {"__init__", "__pycache__"} == set(AUDIT_LAYERS)
    units = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES}
    assert units - {"__init__"} <= set(LAYERS)


@pytest.mark.parametrize("package", sorted(CONFINED))
def test_heavy_packages_are_confined(package: str) -> None:
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if any(name.startswith(allowed) for allowed in CONFINED[package]):
            continue
        offenders = {
            module
            for module in imported_modules(path)
            if module == package or module.startswith(f"{package}.")
        }
        assert not offenders, f"{name} imports {offenders}"


def test_no_file_of_the_package_is_longer_than_400_lines() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not [f"{path}: {count}" for path, count in lines.items() if count > 400], (
        "split it by what is in it"
    )


def test_no_benchmark_hides_a_package_from_the_scripts_beside_it() -> None:
    benchmarks = {path.stem for path in (SOURCE.parents[1] / "benchmarks").glob("*.py")}
    packages = set(packages_distributions()) | {"triton"}  # which not every machine has
    assert not benchmarks & packages - {"__init__"}


def test_no_name_of_a_file_stands_three_times() -> None:
    names = Counter(path.name for path in SOURCE.rglob("*.py"))
    assert [name for name, count in names.items() if count > 2] == ["__init__.py"]
