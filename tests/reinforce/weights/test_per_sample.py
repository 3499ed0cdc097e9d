"""Every weight's eligibility equals the loop of backward calls, by whichever route it came."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal
from torch.nn import functional

import eligibility as el
from eligibility import per_sample_eligibilities
from eligibility.errors import InvalidTypeError, InvalidValueError, ShapeError
from eligibility.reinforce.weights import PerSampleEligibilities

N = 5


class Flattened(nn.Module):
    """Runs a body and reads 4 logits off whatever it returns, through a fixed map."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        flat = self.body(x).flatten(1)
        reader = torch.linspace(-1, 1, flat.shape[1] * 4, dtype=flat.dtype).view(-1, 4)
        return torch.tanh(flat) @ torch.sin(7 * reader)


class UsedTwice(nn.Module):
    """One linear layer at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class Tied(nn.Module):
    """An embedding whose table is the last layer's weight as well, by a Linear that shares it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.unembed = nn.Linear(4, 7, bias=False)
        self.unembed.weight = self.table.weight

    def forward(self, token: Tensor) -> Tensor:
        return self.unembed(torch.tanh(self.table(token)))


class TiedByFunction(Tied):
    """The same, by a functional call that no hook sees."""

    def forward(self, token: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.table(token)), self.table.weight)


class WithPositions(nn.Module):
    """A table of positions, looked up without a batch axis; T = N makes it look like one."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.head = nn.Embedding(N, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.positions(torch.arange(N))))


class TimeFirst(nn.Module):
    """Transposes to [T, N, D] around a layer; T = N."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x.transpose(0, 1)).transpose(0, 1)))


class MergedAxes(nn.Module):
    """Merges samples and time before a layer: its rows are not the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class InPlace(nn.Module):
    """Activations that overwrite the layers' outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mul_(2.0)


class Recurrent(nn.Module):
    """An LSTM, which torch.func cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.head = nn.LSTM(6, 3, batch_first=True), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.memory(x)[0])


def attention() -> nn.Module:
    return nn.Sequential(
        nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), nn.Linear(6, 4)
    )


def conv1d(**options: Any) -> nn.Module:
    return Flattened(nn.Conv1d(4, 6, 3, **options))


def conv2d(*kernel: int, **options: Any) -> nn.Module:
    return Flattened(nn.Conv2d(4, 6, kernel or 3, **options))


VECTOR, SEQUENCE = (6,), (N, 6)
# name -> (module, shape of one input; None: tokens, expected routes)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | None, set[str]]] = {
    "linear": (lambda: nn.Linear(6, 4), VECTOR, {"closed form"}),
    "linear without bias": (lambda: nn.Linear(6, 4, bias=False), VECTOR, {"closed form"}),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
        VECTOR,
        {"closed form"},
    ),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
        SEQUENCE,
        {"closed form"},
    ),
    "in place": (InPlace, VECTOR, {"closed form"}),
    "used twice": (UsedTwice, VECTOR, {"closed form"}),
    "used twice on sequences": (UsedTwice, SEQUENCE, {"closed form"}),
    "conv1d": (conv1d, (4, 9), {"closed form"}),
    "conv1d circular": (
        lambda: conv1d(padding=2, padding_mode="circular", dilation=2),
        (4, 9),
        {"closed form"},
    ),
    "conv2d": (conv2d, (4, 7, 6), {"closed form"}),
    "conv2d strided": (
        lambda: conv2d(stride=(2, 3), padding=(1, 0), dilation=(1, 2)),
        (4, 7, 8),
        {"closed form"},
    ),
    "conv2d grouped": (lambda: conv2d(groups=2, padding=1), (4, 5, 5), {"closed form"}),
    "conv2d same": (
        lambda: conv2d(2, 3, padding="same", bias=False, padding_mode="reflect"),
        (4, 5, 6),
        {"closed form"},
    ),
    "conv2d one position": (lambda: conv2d(5, 5), (4, 5, 5), {"closed form"}),
    "conv3d": (
        lambda: Flattened(nn.Conv3d(2, 4, (1, 2, 3), stride=(1, 2, 1), groups=2, padding=1)),
        (2, 3, 4, 5),
        {"closed form"},
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)),
        SEQUENCE,
        {"closed form"},
    ),
    "group norm": (lambda: Flattened(nn.GroupNorm(2, 4)), (4, 5), {"closed form"}),
    "batch norm": (lambda: Flattened(nn.BatchNorm2d(4)).eval(), (4, 3, 3), {"closed form"}),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 6, padding_idx=0), nn.Tanh(), nn.Linear(6, 7)),
        None,
        {"closed form"},
    ),
    "tied": (Tied, None, {"closed form"}),
    "tied by function": (TiedByFunction, None, {"torch.func"}),
    "positions": (WithPositions, SEQUENCE, {"closed form", "torch.func"}),
    "time first": (TimeFirst, SEQUENCE, {"closed form", "torch.func"}),
    "merged axes": (MergedAxes, SEQUENCE, {"torch.func"}),
    "prelu": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 4)),
        VECTOR,
        {"closed form", "torch.func"},
    ),
    "transposed conv": (
        lambda: Flattened(nn.Sequential(nn.Conv2d(4, 3, 2), nn.ConvTranspose2d(3, 2, 2))),
        (4, 4, 4),
        {"closed form", "torch.func"},
    ),
    "weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
        VECTOR,
        {"torch.func"},
    ),
    "attention": (attention, SEQUENCE, {"closed form", "torch.func"}),
    "lstm": (Recurrent, SEQUENCE, {"closed form", "backward loop"}),
}


def build(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network in float64, a batch of inputs, and sampled actions."""
    torch.manual_seed(3)
    make, shape, _ = NETWORKS[name]
    module = make().double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            nn.init.uniform_(buffer, 0.5, 1.5)
    inputs = torch.randint(7, (N, 3)) if shape is None else torch.randn(N, *shape).double()
    return module, inputs, Categorical(logits=module(inputs).detach()).sample()


def by_backward(
    module: nn.Module,
    inputs: Tensor,
    action: Tensor,
    distribution: Callable[[Any], Distribution] = lambda logits: Categorical(logits=logits),
) -> dict[str, Tensor]:
    """The definition: one backward a sample."""
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for x, a in zip(inputs, action, strict=True):
        log_prob = distribution(module(x[None])).log_prob(a[None]).sum()
        gradients = torch.autograd.grad(
            log_prob, list(named.values()), allow_unused=True, materialize_grads=True
        )
        for name, gradient in zip(named, gradients, strict=True):
            rows[name].append(gradient)
    return {name: torch.stack(column) for name, column in rows.items()}


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """float64 rounding of sums over a few hundred terms of size 1."""
    assert got.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=1e-11, atol=1e-12, msg=name)


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_loop_of_backward_calls(name: str) -> None:
    module, inputs, action = build(name)
    got = per_sample_eligibilities(module, inputs, action)
    assert set(got.routes.values()) == NETWORKS[name][2]
    assert_same(got.materialize(), by_backward(module, inputs, action))
    log_prob = Categorical(logits=module(inputs).detach()).log_prob(action)
    torch.testing.assert_close(got.log_prob, log_prob.reshape(N, -1).sum(1))


@pytest.mark.parametrize("chunk_bytes", [1, 32 * 2**20], ids=["one sample a chunk", "one chunk"])
@pytest.mark.parametrize("name", NETWORKS)
def test_moments_and_norms_equal_those_of_the_loop(
    name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eligibility.reinforce.weights.factors._CHUNK_BYTES", chunk_bytes)
    module, inputs, action = build(name)
    got = per_sample_eligibilities(module, inputs, action)
    e = by_backward(module, inputs, action)
    reward = torch.randn(N, dtype=torch.float64)  # also negative
    shaped = {k: reward.view(-1, *[1] * (v.ndim - 1)) for k, v in e.items()}
    assert_same(got.mean(), {k: v.mean(0) for k, v in e.items()})
    assert_same(got.mean(reward), {k: (shaped[k] * v).mean(0) for k, v in e.items()})
    assert_same(got.second_moment(), {k: v.square().mean(0) for k, v in e.items()})
    assert_same(
        got.second_moment(reward), {k: (shaped[k] * v.square()).mean(0) for k, v in e.items()}
    )
    norms = torch.stack([v.flatten(1).square().sum(1) for v in e.values()]).sum(0)
    torch.testing.assert_close(got.squared_norm(), norms, rtol=1e-11, atol=1e-12)


def test_weighted_mean_is_the_gradient_of_the_reinforce_loss() -> None:
    module, inputs, action = build("conv2d grouped")
    advantage = torch.randn(N, dtype=torch.float64)
    loss = -(advantage * Categorical(logits=module(inputs)).log_prob(action)).mean()
    loss.backward()
    got = per_sample_eligibilities(module, inputs, action).mean(advantage)
    assert_same(got, {name: -p.grad for name, p in module.named_parameters() if p.grad is not None})


# Williams 1992 --------------------------------------------------------------------------------


def test_bernoulli_logistic_unit_is_equation_7() -> None:
    """e_ij = (y_i − p_i) x_j, for a layer of three units."""
    units = nn.Linear(4, 3).double()
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.randint(2, (N, 3), generator=torch.Generator().manual_seed(2)).double()
    got = per_sample_eligibilities(units, x, y, distribution=lambda z: Bernoulli(logits=z))
    error = y - torch.sigmoid(units(x)).detach()
    torch.testing.assert_close(got["weight"], error[:, :, None] * x[:, None, :])
    torch.testing.assert_close(got["bias"], error)


class GaussianUnit(nn.Module):
    """Williams' Gaussian unit: μ and σ are its adaptable parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
        self.spread = nn.Parameter(torch.tensor(0.8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Distribution:
        return Normal(self.mean.expand(len(x)), self.spread.expand(len(x)))


def test_gaussian_unit_is_equation_12() -> None:
    """e_μ = (y − μ)/σ², e_σ = ((y − μ)² − σ²)/σ³; a module that returns a distribution."""
    y = torch.linspace(-2, 3, N, dtype=torch.float64)
    got = per_sample_eligibilities(GaussianUnit(), torch.zeros(N, 1), y)
    assert set(got.routes.values()) == {"torch.func"}
    torch.testing.assert_close(got["mean"], (y - 0.3) / 0.64)
    torch.testing.assert_close(got["spread"], ((y - 0.3) ** 2 - 0.64) / 0.512)


class GaussianPolicy(nn.Module):
    """The usual continuous policy: a network for the mean, free log standard deviations."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
        self.log_spread = nn.Parameter(torch.tensor([0.1, -0.4]))

    def forward(self, x: Tensor) -> Distribution:
        return Independent(Normal(self.body(x), self.log_spread.exp()), 1)


def test_gaussian_policy_equals_the_loop_and_default_validation_comes_back() -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy().double()
    x, y = torch.randn(N, 6).double(), torch.randn(N, 2).double()
    got = per_sample_eligibilities(policy, x, y)
    assert got.routes["log_spread"] == "torch.func"
    assert got.routes["body.0.weight"] == "closed form"
    assert_same(got.materialize(), by_backward(policy, x, y, lambda policy: policy))
    assert Distribution._validate_args is True


# What it leaves alone -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "attention", "lstm"])
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


def test_result_does_not_follow_a_reused_input_buffer() -> None:
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


def test_frozen_parameters_have_no_eligibility_and_do_not_disturb_the_others() -> None:
    module, inputs, action = build("mlp")
    module[0].requires_grad_(False)
    got = per_sample_eligibilities(module, inputs, action)
    assert list(got) == ["2.weight", "2.bias"]
    assert_same(got.materialize(), by_backward(module, inputs, action))


def test_dropout_keeps_its_mask_in_closed_forms() -> None:
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


class MaskedPolicy(nn.Module):
    """Returns a drop-in distribution with a mask, and owns a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.temperature = nn.Linear(6, 4), nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Distribution:
        legal = torch.tensor([True, True, False, True])
        return el.Categorical(logits=self.body(x) / self.temperature, mask=legal)


def test_masked_policy_equals_the_loop() -> None:
    torch.manual_seed(0)
    policy, x = MaskedPolicy().double(), torch.randn(N, 6).double()
    action = policy(x).sample()
    got = per_sample_eligibilities(policy, x, action)
    assert got.routes["temperature"] == "torch.func"
    assert_same(got.materialize(), by_backward(policy, x, action, lambda policy: policy))


def test_repr_names_parameters_shapes_and_routes() -> None:
    got = per_sample_eligibilities(*build("prelu"))
    assert repr(got) == (
        "PerSampleEligibilities(5 samples: 0.weight [8, 6] by closed form, 0.bias [8] by closed "
        "form, 1.weight [8] by torch.func, 2.weight [4, 8] by closed form, 2.bias [4] by closed "
        "form)"
    )


def test_a_single_sample_and_no_verification() -> None:
    module, inputs, action = build("sequence")
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
    "`module`: got another log-probability for a sample by itself than in its batch, expected a "
    "module that treats each sample by itself and alike each time; call module.eval() to switch "
    "off dropout and statistics of the batch"
)
MISTAKES: dict[str, tuple[nn.Module, type[Exception], str]] = {
    "batch norm": (
        nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)),
        InvalidValueError,
        "`module`, layer '0': got a batch norm with the statistics of the batch, expected one with "
        "fixed statistics; call module.eval(): no sample has an eligibility of its own in a mixed "
        "batch",
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
        "expected an input that stays as the layer saw it; use the out-of-place operation; "
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
        "`weights`: got shape [5, 1], expected [5]; pass one number for each sample"
    )
