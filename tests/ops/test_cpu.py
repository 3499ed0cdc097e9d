"""The native row kernel against its definition in torch and against float64."""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility import ops
from eligibility.errors import InvalidValueError
from eligibility.ops.backends import cpu, plain, selection
from eligibility.ops.backends.row_task import Task

HAS_COMPILER = shutil.which("g++") is not None
needs_library = pytest.mark.skipif(
    not HAS_COMPILER and not cpu.is_built(), reason="no C++ compiler was there to build it"
)
SIZES = [1, 2, 3, 4, 7, 8, 16, 17, 31, 33, 64, 65, 129, 1000, 4099]
DTYPES = [torch.float32, torch.bfloat16]


def problem(
    rows: int, categories: int, dtype: torch.dtype, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Logits with some −∞, legal actions, a mask, and derivatives of an objective."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn((rows, categories), generator=generator)
    logits[torch.rand((rows, categories), generator=generator) < 0.1] = -torch.inf
    mask = torch.rand((rows, categories), generator=generator) < 0.7
    action = torch.randint(categories, (rows,), generator=generator)
    everyone = torch.arange(rows)
    logits[everyone, action], mask[everyone, action] = 0.5, True
    upstream = torch.randn((2, rows), generator=generator)
    return logits.to(dtype), action, mask, upstream[0], upstream[1]


def in_float64(
    logits: Tensor, action: Tensor, mask: Tensor | None, g: Tensor, h: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, on the very same numbers in float64."""
    logits = logits.double()
    log_prob, entropy = plain.row_statistics(logits, action, mask, True)
    h = None if h is None else h.double()
    return (
        log_prob,
        entropy,
        plain.row_gradient(logits, action, mask, entropy, g.double(), h),
    )


def error(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).abs().max()) if exact.numel() else 0.0


@pytest.fixture(params=["portable", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test with each instruction set that this processor has."""
    name = str(request.param)
    if name not in cpu.INSTRUCTION_SETS:
        pytest.skip(f"this processor has no {name}")
    index = cpu.INSTRUCTION_SETS.index(name)
    monkeypatch.setattr(cpu, "_instruction_set", lambda _: index)
    return name


@pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler")
def test_library_was_built_where_a_compiler_is_there() -> None:
    assert cpu.is_built()
    assert cpu.INSTRUCTION_SETS[0] == "portable"
    assert cpu.INSTRUCTION_SETS[-1] in selection.describe()["cpu"]


def test_a_library_from_other_sources_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = Task._fields
    for known, is_used in ((fields, True), (fields[:-1], False), (fields[::-1], False)):
        library = SimpleNamespace(FIELDS=known, INSTRUCTION_SETS=("portable",))
        monkeypatch.setattr(ops, "_rows", library, raising=False)
        monkeypatch.setitem(sys.modules, "eligibility.ops._rows", library)
        spec = importlib.util.spec_from_file_location("another_cpu", cpu.__file__)
        assert spec is not None
        assert spec.loader is not None
        another = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(another)
        assert another.is_built() is is_used
        assert (("portable",) if is_used else ()) == another.INSTRUCTION_SETS


@needs_library
@pytest.mark.parametrize("categories", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_error_is_at_most_the_plain_definitions_or_its_own_roundings(
    instruction_set: str, categories: int, dtype: torch.dtype, masked: bool, with_entropy: bool
) -> None:
    logits, action, mask, g, h = problem(5, categories, dtype)
    arguments = (logits, action, mask if masked else None, g, h if with_entropy else None)
    exact = in_float64(*arguments)
    defined = plain.row_objective(*arguments)
    out = torch.full_like(logits, torch.nan)  # what is not written shows
    native = cpu.row_objective(*arguments, out=out)
    # e^d is good to one unit, its coefficient, their product and the sum to half a unit each: less
    # than 3 units of the largest entry, which is granted where plain torch is luckily exact.
    unit = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}
    for index, name in enumerate(("log_prob", "entropy", "gradient")):
        ours, theirs, truth = native[index], defined[index], exact[index]
        if ours is None or theirs is None:
            assert name == "entropy"
            assert not with_entropy
            continue
        grain = 3 * unit[ours.dtype] * max(1.0, float(truth.abs().max()))
        assert error(ours, truth) <= max(error(theirs, truth), grain), name


@needs_library
@pytest.mark.parametrize("categories", [4099, 50_257])
def test_is_more_accurate_than_the_plain_definition_on_long_rows(
    instruction_set: str, categories: int
) -> None:
    arguments = problem(20, categories, torch.float32)
    exact = in_float64(*arguments)
    defined, native = plain.row_objective(*arguments), cpu.row_objective(*arguments)
    for ours, theirs, truth in zip(native, defined, exact, strict=True):
        assert ours is not None
        assert theirs is not None
        assert (ours.double() - truth).norm() < (theirs.double() - truth).norm()


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
def test_takes_strided_misaligned_and_shared_memory(
    instruction_set: str, dtype: torch.dtype
) -> None:
    logits, action, mask, g, h = problem(6, 37, dtype)
    expected = cpu.row_objective(logits, action, mask, g, h)
    wide = torch.zeros(6, 41, dtype=dtype)
    wide[:, 3:40] = logits
    shared = cpu.row_objective(wide[:, 3:40], action, mask, g, h)
    turned = cpu.row_objective(logits.t().contiguous().t(), action, mask, g, h)
    memory = logits.clone()
    in_place = cpu.row_objective(memory, action, mask, g, h, out=memory)
    for other in (shared, turned):
        for a, b in zip(other, expected, strict=True):
            assert torch.equal(a, b)
    assert in_place[2] is memory
    # In place, a float32 row takes its exponentials anew, with the same function: no difference.
    assert torch.equal(memory, expected[2])


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("categories", [7, 16, 37, 64, 4099])
def test_writing_past_the_caches_changes_nothing(
    instruction_set: str, dtype: torch.dtype, categories: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, action, mask, g, h = problem(6, categories, dtype)
    expected = cpu.row_objective(logits, action, mask, g, h)[2]
    monkeypatch.setattr(cpu, "_LARGE", 1)
    memory = torch.full((6, categories + 9), torch.nan, dtype=dtype)
    for shift in range(9):  # rows that begin anywhere in a line of the cache
        out = memory[:, shift : shift + categories]
        assert torch.equal(cpu.row_objective(logits, action, mask, g, h, out=out)[2], expected)
        beside = torch.cat((memory[:, :shift], memory[:, shift + categories :]), 1)
        assert beside.isnan().all()
        out.fill_(torch.nan)
    assert torch.equal(cpu.row_objective(logits, action, mask, g, h)[2], expected)


@needs_library
@pytest.mark.parametrize("wrong", [-1, 37, 2**40])
@pytest.mark.parametrize("threads", [1, 2])
def test_action_out_of_range_is_refused_before_anything_is_read(
    instruction_set: str, wrong: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_ELEMENTS_PER_THREAD", 1)
    logits, action, _, g, _ = problem(6, 37, torch.float32)
    action[4] = wrong
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    got = "minimum of -1" if wrong < 0 else f"maximum of {wrong}"
    message = (
        f"`action`: got a {got}, expected indices in [0, 37); "
        "there are K = 37 categories, counted from 0"
    )
    try:
        with pytest.raises(InvalidValueError) as caught:
            cpu.row_objective(logits, action, None, g, None)
    finally:
        torch.set_num_threads(before)
    assert str(caught.value) == message


@needs_library
def test_one_mask_row_serves_all_rows(instruction_set: str) -> None:
    logits, action, _, g, h = problem(6, 37, torch.float32)
    mask = torch.ones(37, dtype=torch.bool)
    mask[5:9] = False
    action = action.masked_fill((action >= 5) & (action < 9), 0)
    one = cpu.row_objective(logits, action, mask.unsqueeze(0), g, h)
    many = cpu.row_objective(logits, action, mask.expand(6, 37), g, h)
    for a, b in zip(one, many, strict=True):
        assert torch.equal(a, b)
    assert not one[2][:, 5:9].any()


@needs_library
def test_nan_and_impossible_actions_are_what_they_are(instruction_set: str) -> None:
    logits = torch.tensor([[0.0, torch.nan, 1.0], [0.0, -torch.inf, 1.0]])
    log_prob, entropy, gradient = cpu.row_objective(
        logits, torch.tensor([0, 1]), None, torch.ones(2), torch.ones(2)
    )
    assert log_prob[0].isnan()
    assert gradient[0].isnan().all()
    assert log_prob[1] == -torch.inf
    assert entropy is not None
    assert entropy[1].isfinite()
    assert gradient[1].isfinite().all()


@needs_library
def test_probabilities_below_the_smallest_normal_number_are_kept(instruction_set: str) -> None:
    logits = torch.tensor([[0.0, -90.0, -100.0, -200.0]])
    _, _, gradient = cpu.row_objective(logits, torch.tensor([0]), None, -torch.ones(1), None)
    exact = torch.softmax(logits.double(), -1)[0, 1:3]
    assert torch.allclose(gradient[0, 1:3].double(), exact, rtol=0, atol=2.0**-149)
    assert gradient[0, 2] > 0


@needs_library
def test_threads_change_nothing() -> None:
    logits, action, mask, g, h = problem(64, 4099, torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = cpu.row_objective(logits, action, mask, g, h)
        torch.set_num_threads(3)
        three = cpu.row_objective(logits, action, mask, g, h)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one, three, strict=True):
        assert torch.equal(a, b)


@needs_library
def test_a_forked_process_can_use_threads_too() -> None:
    logits, action, _, g, _ = problem(64, 4099, torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cpu.row_objective(logits, action, None, g, None)
        child = multiprocessing.get_context("fork").Process(
            target=cpu.row_objective, args=(logits, action, None, g, None)
        )
        child.start()
        child.join(30)
        assert child.exitcode == 0
    finally:
        torch.set_num_threads(before)
        if child.is_alive():
            child.kill()


def test_no_rows_are_fine() -> None:
    logits = torch.empty(0, 5, requires_grad=True)
    empty = torch.empty(0)
    if cpu.is_built():
        assert cpu.row_objective(logits.detach(), empty.long(), None, empty, None)[0].numel() == 0
    el.reinforce_loss(logits, empty.long(), empty).backward()
    assert logits.grad is not None
    assert logits.grad.shape == (0, 5)


def test_without_the_library_plain_torch_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, action, mask, g, _ = problem(40, 400, torch.float32)
    logits.requires_grad_()

    def gradient() -> Tensor:
        (result,) = torch.autograd.grad(el.reinforce_loss(logits, action, g, mask=mask), logits)
        return result

    with_library = gradient()
    monkeypatch.setattr(cpu, "_library", None)
    monkeypatch.setattr(cpu, "INSTRUCTION_SETS", ())
    assert not cpu.serves(logits)
    assert "was not built" in selection.describe()["cpu"]
    without = gradient()
    assert torch.allclose(with_library, without, atol=1e-7)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_fused_loss_equals_the_sum_of_its_rows(entropy_coef: float, reduction: str) -> None:
    logits, action, mask, advantage, weight = problem(40, 400, torch.float32)
    weight = weight.abs()
    weight[3] = 0
    logits.requires_grad_()
    options = {"mask": mask, "weight": weight, "entropy_coef": entropy_coef}
    fused = el.reinforce_loss(logits, action, advantage, reduction=reduction, **options)
    rows = el.reinforce_loss(logits, action, advantage, reduction="none", **options)
    loss = rows.mean() if reduction == "mean" else rows.sum()
    assert fused.grad_fn is not None
    assert "LossBackward" in fused.grad_fn.name()
    assert torch.allclose(fused, loss, rtol=1e-5)
    upstream = torch.tensor(-2.5)
    (expected,) = torch.autograd.grad(loss, logits, upstream, retain_graph=True)
    (first,) = torch.autograd.grad(fused, logits, upstream, retain_graph=True)
    (second,) = torch.autograd.grad(fused, logits, upstream)
    assert torch.allclose(first, expected, atol=1e-6)
    assert torch.equal(first, second)


def test_fused_loss_is_differentiable_twice() -> None:
    logits, action, _, advantage, _ = problem(40, 400, torch.float32)
    logits = logits.clamp(min=-5).double().float().requires_grad_()
    vector = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))

    def curvature(loss: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        (result,) = torch.autograd.grad((slope * vector).sum(), logits)
        return result

    fused = curvature(el.reinforce_loss(logits, action, advantage, entropy_coef=0.1))
    rows = el.reinforce_loss(logits, action, advantage, entropy_coef=0.1, reduction="none")
    assert torch.allclose(fused, curvature(rows.mean()), atol=1e-6)


def test_inputs_are_left_alone() -> None:
    logits, action, mask, advantage, _ = problem(40, 400, torch.float32)
    logits.requires_grad_()
    before = logits.detach().clone(), action.clone(), advantage.clone()
    el.reinforce_loss(logits, action, advantage, mask=mask).backward()
    for tensor, copy in zip((logits, action, advantage), before, strict=True):
        assert torch.equal(tensor, copy)
