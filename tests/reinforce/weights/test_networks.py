"""Every weight's eligibility equals the loop of backward calls, by whichever route it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional

from eligibility import per_sample_eligibilities

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


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_loop_of_backward_calls(
    name: str, by_backward: Callable[..., Any], assert_same: Callable[..., Any]
) -> None:
    module, inputs, action = build(name)
    got = per_sample_eligibilities(module, inputs, action)
    assert set(got.routes.values()) == NETWORKS[name][2]
    assert_same(got.materialize(), by_backward(module, inputs, action))
    log_prob = Categorical(logits=module(inputs).detach()).log_prob(action)
    torch.testing.assert_close(got.log_prob, log_prob.reshape(N, -1).sum(1))


@pytest.mark.parametrize("chunk_bytes", [1, 32 * 2**20], ids=["one sample a chunk", "one chunk"])
@pytest.mark.parametrize("name", NETWORKS)
def test_moments_and_norms_equal_those_of_the_loop(
    name: str,
    chunk_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
    by_backward: Callable[..., Any],
    assert_same: Callable[..., Any],
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


def test_weighted_mean_is_the_gradient_of_the_reinforce_loss(
    assert_same: Callable[..., Any],
) -> None:
    module, inputs, action = build("conv2d grouped")
    advantage = torch.randn(N, dtype=torch.float64)
    loss = -(advantage * Categorical(logits=module(inputs)).log_prob(action)).mean()
    loss.backward()
    got = per_sample_eligibilities(module, inputs, action).mean(advantage)
    assert_same(got, {name: -p.grad for name, p in module.named_parameters() if p.grad is not None})
