"""What `per_sample_eligibilities` leaves alone, what it keeps, and what it refuses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from eligibility import per_sample_eligibilities
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.reinforce.weights import PerSampleEligibilities

N = 5


def build(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network in float64, a batch of inputs, and actions."""
    torch.manual_seed(3)
    module = NETWORKS[name]().double()
    inputs = torch.randn(N, 6, dtype=torch.float64)
    return module, inputs, torch.arange(N) % 4


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 4),
    "mlp": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
    "prelu": lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 4)),
    "gru": lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), LastOutput(), nn.Linear(5, 4)),
}


class LastOutput(nn.Module):
    """A recurrent layer, which torch.func cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(3, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.memory(x)[0][:, -1]


@pytest.mark.parametrize("name", ["mlp", "prelu", "gru"])
def test_module_is_left_as_it_was(name: str) -> None:
    module, inputs, action = build(name)
    before = {layer: set(vars(layer)) for layer in module.modules()}
    given = inputs.clone()
    state = torch.get_rng_state()
    per_sample_eligibilities(module, inputs, action)
    for layer, attributes in before.items():
        assert set(vars(layer)) == attributes
        assert not layer._forward_hooks
    assert all(parameter.grad is None for parameter in module.parameters())
    assert inputs.equal(given)
    assert torch.get_rng_state().equal(state)


def test_hooks_are_removed_when_the_forward_fails() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 4))
    with pytest.raises(RuntimeError):
        per_sample_eligibilities(module, torch.zeros(N, 6), torch.zeros(N, dtype=torch.long))
    assert not any(layer._forward_hooks for layer in module.modules())


def test_result_does_not_follow_a_reused_input_buffer(
    by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    module, inputs, action = build("linear")
    wanted = by_backward(module, inputs, action)
    got = per_sample_eligibilities(module, inputs, action)
    inputs.zero_()
    assert_same(got.materialize(), wanted)


def test_materialized_tensors_are_the_callers_own() -> None:
    got = per_sample_eligibilities(*build("linear"))
    got["bias"].zero_()
    assert bool(got["bias"].any())


def test_factors_keep_no_autograd_graph_alive() -> None:
    class Marker(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            held.append(weakref.ref(ctx))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(Marker.apply(self.first(x)))

    held: list[Any] = []
    got = per_sample_eligibilities(Marked(), torch.zeros(N, 6), torch.zeros(N, dtype=torch.long))
    gc.collect()
    assert held
    assert held[0]() is None
    assert isinstance(got, PerSampleEligibilities)


def test_frozen_parameters_have_no_eligibility_and_do_not_disturb_the_others(
    by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    module, inputs, action = build("mlp")
    module[0].requires_grad_(False)
    got = per_sample_eligibilities(module, inputs, action)
    assert list(got) == ["2.weight", "2.bias"]
    assert_same(got.materialize(), by_backward(module, inputs, action))


def test_dropout_keeps_its_mask_in_closed_forms(assert_same: Callable[..., Any]) -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4)).double()
    x = torch.randn(N, 6, generator=torch.Generator().manual_seed(0)).double()
    action = torch.arange(N) % 4
    torch.manual_seed(11)
    got = per_sample_eligibilities(module, x, action)
    torch.manual_seed(11)
    log_prob = Categorical(logits=module(x)).log_prob(action)
    gradients = torch.autograd.grad(log_prob.mean(), list(module.parameters()))
    assert_same(got.mean(), dict(zip(dict(module.named_parameters()), gradients, strict=True)))


def test_works_under_no_grad_and_in_half_precision_by_autocast() -> None:
    module, inputs, action = build("mlp")
    module, inputs = module.float(), inputs.float()
    with torch.no_grad():
        exact = per_sample_eligibilities(module, inputs, action)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = per_sample_eligibilities(module, inputs, action)
    for name, wanted in exact.materialize().items():
        assert rounded[name].dtype == torch.float32
        # bfloat16 rounds each of the three layers' activations and deltas to 2⁻⁸.
        bound = 8 * 2**-8 * float(wanted.abs().max())
        torch.testing.assert_close(rounded[name], wanted, rtol=0, atol=bound)


def test_repr_names_parameters_shapes_and_routes() -> None:
    got = per_sample_eligibilities(*build("prelu"))
    assert repr(got) == (
        "PerSampleEligibilities(5 samples: 0.weight [8, 6] by closed form, 0.bias [8] by closed "
        "form, 1.weight [8] by torch.func, 2.weight [4, 8] by closed form, 2.bias [4] by closed "
        "form)"
    )


def test_a_single_sample_and_no_verification(
    by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    module, inputs, action = build("mlp")
    got = per_sample_eligibilities(module, inputs[:1], action[:1], verify=False)
    assert_same(got.materialize(), by_backward(module, inputs[:1], action[:1]))


# Mistakes -------------------------------------------------------------------------------------


class ChangesItsInput(nn.Module):
    """Overwrites an activation after a layer has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        output = self.last(hidden.detach())
        hidden.add_(output)
        return hidden


class CentredOverTheBatch(nn.Module):
    """Mixes the samples, where no type tells."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.last(hidden - hidden.mean(0))


TOGETHER = (
    "`module`: got a log-probability that differs between a sample alone and the same sample in "
    "its batch, expected a module that treats samples independently and deterministically; call "
    "module.eval() to switch "
    "off dropout and statistics of the batch"
)
MISTAKES: dict[str, tuple[nn.Module, type[Exception], str]] = {
    "batch norm": (
        nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)),
        InvalidValueError,
        "`module`, layer '0': got a batch norm with the statistics of the batch, expected one with "
        "fixed statistics; call module.eval(): batch statistics mix the samples, so no sample has "
        "a separate eligibility",
    ),
    "mixed samples": (CentredOverTheBatch(), InvalidValueError, TOGETHER),
    "dropout beside torch.func": (
        nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Dropout(0.5)),
        InvalidValueError,
        TOGETHER,
    ),
    "in place": (
        ChangesItsInput(),
        InvalidValueError,
        "the input of a Linear layer: got a tensor that the module changed in place afterwards, "
        "expected an input that nothing changes after the layer has read it; use the out-of-place "
        "operation; "
        "torch's own backward needs this as well",
    ),
    "all frozen": (
        nn.Linear(6, 4).requires_grad_(False),
        InvalidValueError,
        "`module`: got no parameter that requires a gradient, expected at least one; call "
        "module.requires_grad_(True)",
    ),
    "tuple": (
        nn.LSTM(6, 4),
        InvalidTypeError,
        "the output of `module`: got tuple, expected logits, or a torch.distributions object; pass "
        "distribution=, a function from the output to a distribution",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_has_no_eligibility_is_refused(name: str) -> None:
    torch.manual_seed(0)
    module, kind, text = MISTAKES[name]
    with pytest.raises(kind) as caught:
        per_sample_eligibilities(module, torch.randn(N, 6), torch.arange(N) % 4)
    assert str(caught.value) == text


def test_actions_and_weights_of_the_wrong_shape_are_refused() -> None:
    module = nn.Linear(6, 4)
    x, action = torch.zeros(N, 6), torch.zeros(N, dtype=torch.long)
    with pytest.raises(ShapeError) as caught:
        per_sample_eligibilities(module, x, action[:, None])
    assert str(caught.value) == (
        "`action`: got shape [5, 1], expected [5] for 5 samples; the policy is a Categorical with "
        "batch shape [5] and event shape []; its first axis must be that of the samples"
    )
    with pytest.raises(ShapeError) as caught:
        per_sample_eligibilities(module, (x, x[1:]), action)
    assert str(caught.value) == (
        "`inputs`: got shapes [[5, 6], [4, 6]], expected the same number of samples, at least 1, "
        "on the first axis of each; put the samples first"
    )
    with pytest.raises(ShapeError, match=r"`inputs`: got shapes \[\[0, 6\]\], expected the same"):
        per_sample_eligibilities(module, x[:0], action[:0])
    with pytest.raises(InvalidTypeError) as caught_type:
        per_sample_eligibilities(module, [x], action)
    assert str(caught_type.value) == (
        "`inputs`: got list, expected a tensor, or a tuple of tensors; wrap a module that takes "
        "anything else in one that takes tensors"
    )
    with pytest.raises(InvalidValueError, match="`action`: got a maximum of 4, expected indices"):
        per_sample_eligibilities(module, x, action + 4)
    with pytest.raises(ShapeError) as caught:
        per_sample_eligibilities(module, x, action).second_moment(torch.zeros(N, 1))
    assert str(caught.value) == (
        "`weights`: got shape [5, 1], expected [5], one number for each sample; reshape it; "
        "nothing is broadcast silently"
    )
