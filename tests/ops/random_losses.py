"""Random losses, in every memory layout, against their definition in float64:

    python -m tests.ops.random_losses 4000

prints for each function how many there were, of which kinds, and the largest error as a share of
what is allowed.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from typing import Any

import torch
from torch import Tensor

import eligibility as el

Arguments = dict[str, Any]
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
FUNCTIONS = ("reinforce_loss", "clipped_policy_loss", "reinforce_gradient", "linear_reinforce_loss",
             "linear_clipped_policy_loss")  # fmt: skip
LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "offset", "negative", "subclass")


class Own(Tensor):
    """A subclass that means by its operations what torch does."""


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same numbers, lying differently."""
    if layout == "transposed" and tensor.ndim > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and tensor.ndim:
        return torch.stack([tensor, torch.full_like(tensor, 1)], -1)[..., 0]
    if layout == "offset" and tensor.ndim:
        return torch.cat([tensor.reshape(-1)[:1], tensor.reshape(-1)])[1:].view(tensor.shape)
    if layout == "negative" and tensor.is_floating_point():
        return torch._neg_view(-tensor)
    if layout == "subclass":
        return tensor.as_subclass(Own)
    if layout == "expanded" and tensor.ndim and bool((tensor == tensor[:1]).all()):
        return tensor[:1].expand(tensor.shape)
    return tensor.contiguous()


def drawn(seed: int) -> tuple[str, Arguments, str]:
    """A function, its arguments, and the layout of one of them."""
    pick = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    function = pick.choice(FUNCTIONS)
    is_linear, is_clipped = function.startswith("linear"), "clipped" in function
    dtype = DTYPES[pick.choice(["float64", "float32"] if is_linear else list(DTYPES))]
    wide = torch.promote_types(dtype, torch.float32)
    batch = pick.choice([(), (1,), (5,), (3, 4), (2, 1, 3)])
    own = () if is_linear else pick.choice([(), (), (2,), (3, 1)])
    categories = pick.choice([1, 2, 3, 4, 7, 8, 9, 16, 33, 70])
    shape = (*own, *batch)
    action = torch.randint(categories, shape, generator=generator)
    given: Arguments = {"advantage": normal(*shape).to(wide)}
    if is_linear:
        given |= {"hidden": normal(*batch, 3).to(dtype), "weight": normal(categories, 3).to(dtype)}
        if pick.random() < 0.5:
            given["bias"] = normal(categories).to(dtype)
    else:
        given["logits"] = (3 * normal(*batch, categories)).to(dtype)
        if own and pick.random() < 0.3:
            given["advantage"] = normal(*batch).to(wide)
    is_counted = not is_linear and not is_clipped and not own and pick.random() < 0.15
    if is_counted:
        given |= {
            "action": None,
            "counts": torch.randint(4, (*batch, categories), generator=generator),
        }
    else:
        given["token" if is_linear else "action"] = action
    if pick.random() < 0.4:
        mask = torch.rand(*batch, categories, generator=generator) < 0.6
        rows = mask.expand(*shape, categories).clone()
        rows.scatter_(-1, action.unsqueeze(-1), True)
        mask = rows.flatten(0, len(own) - 1).any(0) if own else rows
        mask[..., 0] = True
        given["mask"] = mask | bool(is_counted)
    if pick.random() < 0.4:
        weight = torch.rand(shape, generator=generator, dtype=torch.float64).to(wide)
        given["token_weight" if is_linear else "weight"] = weight * (weight > 0.3)
    if not is_counted and pick.random() < 0.3:
        ignore = pick.choice([-1, -100])
        skip = torch.rand(shape, generator=generator) < 0.3
        name = "token" if is_linear else "action"
        given |= {name: torch.where(skip, ignore, given[name]), "ignore_index": ignore}
    for name, choices in {
        "entropy_coef": (0.0, 0.0, 0.1),
        "z_loss_coef": (0.0, 0.0, 0.2),
        "temperature": (1.0, 1.0, 0.7),
        "softcap": (None, None, 4.0),
        "reduction": ("mean", "sum", "none", "sequence")[: 4 if batch else 3],
    }.items():
        given[name] = pick.choice(choices)
    if function == "reinforce_gradient":
        given["reduction"] = pick.choice(["mean", "sum"])
    if is_clipped:
        given["old_log_prob"] = (normal(*shape) - 1.5).to(wide)
        given["clip"] = pick.choice([(0.2, 0.2), (0.1, 0.3), (1.0, math.inf)])
        if pick.random() < 0.4:
            given |= {"ref_log_prob": (normal(*shape) - 1.5).to(wide), "kl_coef": 0.3}
            given["kl_estimator"] = pick.choice(["k1", "k2", "k3"])
    layout = pick.choice(LAYOUTS)
    changed = pick.choice([name for name, part in given.items() if isinstance(part, Tensor)])
    given[changed] = laid_out(given[changed], layout)
    return function, given, layout


def defined(given: Arguments, leaf: Tensor) -> Tensor:
    """The loss in float64, written down once more."""
    if "hidden" in given:
        bias = given.get("bias")
        z = torch.nn.functional.linear(
            leaf, given["weight"].double(), None if bias is None else bias.double()
        )
    else:
        z = leaf
    if given["softcap"] is not None:
        z = given["softcap"] * torch.tanh(z / given["softcap"])
    z = z / given["temperature"]
    if "mask" in given:
        z = z.masked_fill(~given["mask"], -math.inf)
    normalizer = torch.logsumexp(z, -1)
    log_probs = z - normalizer.unsqueeze(-1)
    safe = log_probs.masked_fill(log_probs == -math.inf, 0.0)
    entropy = -(log_probs.exp() * safe).sum(-1)
    action = given.get("token", given.get("action"))
    advantage = given["advantage"].double()
    if action is None:
        kept = torch.ones(z.shape[:-1], dtype=torch.bool)
        log_prob = (given["counts"] * safe).sum(-1)
    else:
        kept = action != given.get("ignore_index", -12345)
        index = torch.where(kept, action, 0)
        rows = log_probs.expand(*action.shape, z.shape[-1])
        log_prob = rows.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    surrogate = advantage * log_prob
    if "old_log_prob" in given:
        ratio = (log_prob - given["old_log_prob"].double()).exp()
        low, high = given["clip"]
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    loss = -surrogate - given["entropy_coef"] * entropy + given["z_loss_coef"] * normalizer**2
    if "kl_coef" in given:
        d = log_prob - given["ref_log_prob"].double()
        estimate = {"k1": d, "k2": d**2 / 2, "k3": torch.exp(-d) - 1 + d}
        loss = loss + given["kl_coef"] * estimate[given["kl_estimator"]]
    weight = given.get("token_weight" if "hidden" in given else "weight")
    if weight is not None:
        loss, kept = loss * weight.double(), kept & (weight != 0).expand(kept.shape)
    loss = torch.where(kept, loss, 0.0)
    if given["reduction"] == "none":
        return loss
    if given["reduction"] == "sequence":
        return loss.sum(-1)
    counted = kept if weight is None else given_rows(given, action, kept)
    return loss.sum() / (max(1, int(counted.sum())) if given["reduction"] == "mean" else 1)


def given_rows(given: Arguments, action: Tensor | None, kept: Tensor) -> Tensor:
    """Which rows the mean counts: those that are not ignored, whatever their weight."""
    if action is None or "ignore_index" not in given:
        return torch.ones_like(kept)
    return action != given["ignore_index"]


def excess(function: str, given: Arguments) -> float:
    """The largest error of the loss and of its gradient, as a share of what is allowed."""
    name = "hidden" if "hidden" in given else "logits"
    leaf = given[name].detach().requires_grad_()
    exact = given[name].detach().as_subclass(Tensor).double().requires_grad_()
    plain = {k: v.as_subclass(Tensor) if isinstance(v, Tensor) else v for k, v in given.items()}
    if function == "reinforce_gradient":
        value, gradient = el.reinforce_gradient(**(given | {name: leaf}))
        upstream = torch.ones((), dtype=torch.float64)
    else:
        value = getattr(el, function)(**(given | {name: leaf}))
        upstream = torch.linspace(-1.5, 2, max(1, value.numel()), dtype=torch.float64)
        upstream = upstream[: value.numel()].reshape(value.shape)
        (gradient,) = torch.autograd.grad(value, leaf, upstream.to(value.dtype))
    wanted = defined(plain, exact)
    (slope,) = torch.autograd.grad(wanted, exact, upstream)
    worst = 0.0
    for ours, truth in ((value, wanted.detach()), (gradient, slope)):
        found = ours.detach().as_subclass(Tensor)
        # What is computed in is off by some roundings of the largest number that enters. In half
        # precision up to four terms (log π, entropy, normaliser, soft-cap) reach the logits on
        # torch's own way; each is rounded to their dtype, and so are their sums.
        inside = torch.finfo(torch.promote_types(given[name].dtype, torch.float32)).eps
        size = max(1.0, float(truth.abs().max()) if truth.numel() else 0.0)
        own = torch.finfo(found.dtype)
        allowed = (256 * inside + (4 * own.eps if own.eps > inside else 0.0)) * size
        representable = truth.abs() < own.max / 4
        error = (found.double() - truth).abs()[representable] / allowed
        if found.shape != truth.shape or not bool(error.isfinite().all()):
            return math.inf
        worst = max(worst, float(error.max()) if error.numel() else 0.0)
    return worst


def kinds_of(given: Arguments, layout: str) -> list[str]:
    """What is worth counting about a loss."""
    leaf = given["hidden" if "hidden" in given else "logits"]
    has = {
        "a mask": "mask" in given,
        "weights": ("token_weight" if "hidden" in given else "weight") in given,
        "ignored rows": "ignore_index" in given,
        "counts": "counts" in given,
        "entropy": given["entropy_coef"] != 0,
        "z-loss": given["z_loss_coef"] != 0,
        "a KL": "kl_coef" in given,
        "shaped logits": given["temperature"] != 1 or given["softcap"] is not None,
        "an unusual layout": layout != "contiguous",
        "several samples": "hidden" not in given and given["advantage"].ndim >= leaf.ndim,
    }
    dtype = str(leaf.dtype).removeprefix("torch.")
    return [f"in {dtype}", *(f"with {kind}" for kind, holds in has.items() if holds)]


def main(count: int) -> dict[str, Any]:
    """The summary of ``count`` losses, by function."""
    found: dict[str, Any] = {
        function: {"losses": 0, "wrong": [], "largest": 0.0, "kinds": Counter()}
        for function in FUNCTIONS
    }
    for seed in range(count):
        function, given, layout = drawn(seed)
        sys.stderr.write(f"{seed} {function} {layout}\n")
        share, own = excess(function, given), found[function]
        own["losses"] += 1
        own["kinds"].update(kinds_of(given, layout))
        own["largest"] = max(own["largest"], share)
        if not share <= 1:
            own["wrong"].append(seed)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]))) + "\n")
