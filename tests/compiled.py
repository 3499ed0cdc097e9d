"""What torch.compile makes of the public functions: without graph breaks, and with equal results.

``python -m tests.compiled`` runs every case and prints, as JSON, name -> what went wrong, or "".
It is a process of its own because the shape checks that the test suite puts around every function
are nothing that a compiler should trace; it is one because torch's compiler takes seconds to load.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import eligibility as el
from eligibility.errors import InvalidValueError

Function = Callable[..., Tensor]
ADVANTAGE = torch.linspace(-1.5, 2.0, 6)
OLD = -ADVANTAGE.abs()


def logits(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


ACTION, MASK = torch.tensor([0, 1, 2, 3]), torch.arange(5) < 4
OPERATIONS: dict[str, Function] = {  # of logits [4, 5]
    "log_prob": lambda z: el.categorical_log_prob(z, ACTION, mask=MASK).sum(),
    "entropy": lambda z: el.categorical_entropy(z, mask=MASK).sum(),
    "statistics": lambda z: el.categorical_statistics(z, ACTION).entropy.sum(),
    "kl": lambda z: el.categorical_kl(z, z.detach().flip(0), mask=MASK).sum(),
    "exact kl": lambda z: el.clipped_policy_loss(
        z, ACTION, ADVANTAGE[:4], OLD[:4], ref_logits=z.detach().flip(0), kl_coef=0.1,
        kl_estimator="exact", weight=-OLD[:4], temperature=0.7, softcap=3.0, ignore_index=2,
        z_loss_coef=0.01,
    ),
    "loss": lambda z: el.reinforce_loss(
        z, ACTION, ADVANTAGE[:4], mask=MASK, entropy_coef=0.1
    ),
}  # fmt: skip

ACTION_30, MASK_30 = torch.tensor([7, 28, 0, 3, 28, 11]), torch.arange(30) < 29
COUNTS_30 = torch.arange(180).reshape(6, 30) % 3
FUSED: dict[str, Function] = {  # of logits [6, 30]; the native kernel takes them either way
    "masked": lambda z: el.reinforce_loss(
        z, ACTION_30, ADVANTAGE, mask=MASK_30, entropy_coef=0.1
    ),
    "ignored": lambda z: el.reinforce_loss(
        z, ACTION_30, ADVANTAGE, ignore_index=28, temperature=0.7, softcap=3.0, z_loss_coef=0.1
    ),
    "half": lambda z: 2 * el.reinforce_loss(z.bfloat16(), ACTION_30, ADVANTAGE),
    "counts": lambda z: el.reinforce_loss(
        z, None, ADVANTAGE, counts=COUNTS_30, reduction="sum"
    ),
    "clipped": lambda z: el.clipped_policy_loss(
        z * 2, ACTION_30, ADVANTAGE, OLD, ref_log_prob=OLD, kl_coef=0.1, weight=-OLD
    ),
}  # fmt: skip

TOKEN, TOKEN_MASK = torch.tensor([0, 8, 2, -100, 4, 4]), torch.arange(9) != 3
LINEAR: dict[str, Function] = {  # of hidden states [6, 4] and an unembedding [9, 4]
    "linear statistics": lambda h, w: el.linear_statistics(
        h, w, TOKEN, mask=TOKEN_MASK
    ).entropy.sum(),
    "linear log_prob": lambda h, w: el.linear_log_prob(h, w, TOKEN, temperature=0.7).sum(),
    "linear loss": lambda h, w: el.linear_reinforce_loss(
        h, w, TOKEN, ADVANTAGE, mask=TOKEN_MASK, entropy_coef=0.1
    ),
    "linear clipped": lambda h, w: el.linear_clipped_policy_loss(
        h, w, TOKEN, ADVANTAGE, OLD - 2, softcap=3.0, entropy_coef=0.1
    ),
}

DISTRIBUTIONS: dict[str, tuple[tuple[int, ...], dict[str, int], Tensor]] = {
    "Bernoulli": ((3,), {}, torch.tensor([0.0, 1.0, 1.0])),
    "Binomial": ((3,), {"total_count": 4}, torch.tensor([0.0, 1.0, 4.0])),
    "Categorical": ((3, 4), {}, torch.tensor([0, 1, 3])),
    "OneHotCategorical": ((3, 4), {}, torch.eye(4)[:3]),
    "Multinomial": ((3, 4), {"total_count": 2}, 2 * torch.eye(4)[:3]),
}


def of_distribution(name: str, by: str, raw: Tensor) -> Tensor:
    _, count, value = DISTRIBUTIONS[name]
    dist = getattr(el, name)(**count, **{by: raw})
    log_prob: Tensor = dist.log_prob(value).sum()
    return log_prob if count else log_prob + dist.entropy().sum()


def compare(function: Function, *given: Tensor, is_same_kernel: bool = False) -> None:
    """Raise unless value and gradients are those of the function as it is."""
    # Cases share lambdas' shapes: what was compiled for one must not count as the next one's.
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    tolerance = {"rtol": 0.0, "atol": 0.0} if is_same_kernel else {"rtol": None, "atol": None}
    found = []
    for which in (compiled, function):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        value = which(*leaves)
        found.append((value.detach(), *torch.autograd.grad(value, leaves)))
    torch.testing.assert_close(*found, **tolerance)


def refuse() -> None:
    """An action out of range raises when the compiled function runs."""
    torch._dynamo.reset()
    loss = torch.compile(
        lambda z, action: el.reinforce_loss(z, action, ADVANTAGE),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    with pytest.raises(InvalidValueError, match=re.escape("indices in [0, 30)")):
        loss(logits(6, 30).requires_grad_(), ACTION_30 + 30)


def cases() -> dict[str, Callable[[], None]]:
    """Name -> what raises if something is wrong."""
    found: dict[str, Callable[[], None]] = {}
    for name, function in OPERATIONS.items():
        found[name] = partial(compare, function, logits(4, 5))
    for name, function in LINEAR.items():
        found[name] = partial(compare, function, logits(6, 4), logits(9, 4))
    for name, (shape, _, _) in DISTRIBUTIONS.items():
        for by in ("probs", "logits"):
            raw = logits(*shape).sigmoid()
            found[f"{name} by {by}"] = partial(compare, partial(of_distribution, name, by), raw)
    for name, function in FUSED.items():
        found[name] = partial(compare, function, logits(6, 30), is_same_kernel=True)
    found["an action out of range"] = refuse
    return found


def outcome(case: Callable[[], None]) -> str:
    try:
        case()
    except Exception:  # whatever the compiler raises: the test shows it
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    json.dump({name: outcome(case) for name, case in cases().items()}, sys.stdout)
