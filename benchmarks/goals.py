"""What was aimed at and reached, and every comparison that a peer wins, from the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COPY, KERNEL, OURS = "a copy", "our kernel, reused memory", "eligibility"
NO_GRAPH, FLOOR = "reinforce_gradient", "an empty node"
YARDSTICKS = (OURS, NO_GRAPH, FLOOR, COPY, "a copy, new memory", KERNEL)  # no peers


def pairs(tables: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(size in words, figures by name without entropy, the same with)."""
    found = []
    for plain, bonus in zip(tables[::2], tables[1::2], strict=True):
        assert plain["size"] == bonus["size"]
        size = plain["size"]
        words = f"{size['dtype']} {size['rows']} × {size['categories']}"
        found.append((words, by_name(plain), by_name(bonus)))
    return found


def by_name(one: dict[str, Any]) -> dict[str, Any]:
    """Name -> figure."""
    return {figure["name"]: figure for figure in one["figures"]}


def names_in(cases: list[Any], without: tuple[str, ...] = ()) -> list[str]:
    return [name for name in cases[0][1] if name not in without]


def slowdown(of: dict[str, Any], name: str, by: str = OURS) -> float:
    """How many times as long as this library."""
    return float(of[name]["of_copy"] / of[by]["of_copy"])


def goals(tables: list[dict[str, Any]]) -> Iterator[list[str]]:
    """What was aimed at, the range that was measured, and whether all of it is there."""
    large = [one for one in tables if one["size"]["categories"] >= 1024]
    small = [one for one in tables if one["size"]["categories"] <= 64]
    plain = [by_name(one) for one in large if not one["entropy_coef"]]
    bonus = [by_name(one) for one in large if one["entropy_coef"]]
    float32 = [by_name(one) for one in large if one["size"]["dtype"] == "float32"]
    both = [*plain, *bonus]

    def of(cases: list[dict[str, Any]], name: str) -> list[float]:
        return [slowdown(case, name) for case in cases if name in case]

    peers = [name for name in by_name(tables[0]) if name not in YARDSTICKS]

    def best_peer(by: str) -> list[float]:
        cases = [case for case in map(by_name, small) if by in case]
        return [min(slowdown(case, name, by) for name in peers) for case in cases]

    kernel = [case[KERNEL]["of_copy"] for case in float32 if KERNEL in case]
    memory = [case[OURS]["extra_peak"] for case in both]
    yield goal("V ≥ 1024: at least 10 × as fast as Categorical", of(plain, "Categorical"), 10)
    yield goal("the same with entropy: 20 ×", of(bonus, "Categorical"), 20)
    yield goal("V ≥ 1024: at least 3 × as fast as torch.compile", of(both, "torch.compile"), 3)
    yield goal("V ≤ 64: at least 3 × as fast as the best peer", best_peer(OURS), 3)
    yield goal("the same by `reinforce_gradient`, without a graph", best_peer(NO_GRAPH), 3)
    yield goal("what an empty node would reach there", best_peer(FLOOR), 3)
    yield goal(
        "V ≥ 1024, float32: the kernel at most 2 × a copy, memory reused", kernel, 2, most=True
    )
    yield goal("V ≥ 1024: no memory beyond the gradient", memory, 1.05, most=True)


def goal(words: str, found: list[float], bound: float, most: bool = False) -> list[str]:
    """One row of the table of goals."""
    if not found:
        return [words, "not measured", "no"]
    reached = sum(value <= bound if most else value >= bound for value in found)
    span = f"{min(found):.2f} to {max(found):.2f}"
    verdict = "yes" if reached == len(found) else f"in {reached} of {len(found)} cases"
    return [words, span, "no" if not reached else verdict]


def lost_over_logits(result: dict[str, Any]) -> Iterator[list[str]]:
    """Where a peer is faster on logits."""
    for words, plain, bonus in pairs(result["tables"]):
        for of, what in ((plain, words), (bonus, f"{words}, entropy bonus")):
            for name in names_in([(words, of, of)], YARDSTICKS):
                if slowdown(of, name) < 1:
                    yield [what, name, f"{1 / slowdown(of, name):.2f}"]


def lost_through_linear(result: dict[str, Any]) -> Iterator[list[str]]:
    """Where a peer is faster through the linear layer."""
    for of in result["tables"]:
        seconds = {row["method"]: row["seconds"] for row in of["figures"]}
        size = " × ".join(str(of["size"][axis]) for axis in ("tokens", "vocabulary", "features"))
        bonus = ", entropy bonus" if of["entropy_coef"] else ""
        for ours in (name for name in seconds if name.startswith(OURS)):
            what = f"{ours.removeprefix(OURS).strip()}, {of['dtype']} {size}{bonus}"
            yield from slower(what, seconds, ours)


def lost_on_sampling(result: dict[str, Any]) -> Iterator[list[str]]:
    """Where a peer is faster from logits to a sample's gradient."""
    for size, figures in result.get("sampling", {}).items():
        times_as_fast = figures["times_as_fast"]
        yield from (
            [f"sampling, {size}", name, f"{1 / ratio:.2f}"]
            for name, ratio in times_as_fast.items()
            if ratio < 1
        )


def lost_per_sample(result: dict[str, Any]) -> Iterator[list[str]]:
    """Where a peer is faster on the eligibilities of every sample."""
    cases: dict[str, dict[str, float]] = {}
    for row in result["table"]:
        cases.setdefault(f"{row['network']}, {row['task']}", {})[row["method"]] = row["ms"]
    for what, milliseconds in cases.items():
        yield from slower(f"eligibilities per sample, {what}", milliseconds, OURS)


def slower(what: str, seconds: dict[str, float], ours: str) -> Iterator[list[str]]:
    """Where another method than ``ours`` is faster; bare products are a bound, not a method."""
    for name, theirs in seconds.items():
        if theirs < seconds[ours] and not name.startswith((OURS, "three bare")):
            yield [what, name, f"{seconds[ours] / theirs:.2f}"]


LOSSES = {
    "logits-*.json": lost_over_logits,
    "linear.json": lost_through_linear,
    "hot_path*.json": lost_on_sampling,
    "per_sample_eligibilities*.json": lost_per_sample,
}
