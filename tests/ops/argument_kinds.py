"""Tensors of every kind given to the operations, in a process that may die of a signal:

    python -m tests.ops.argument_kinds 600

Each call either raises, or gives the numbers that plain tensors of the same values give; where
there are no values (on the meta device, for fake tensors) the shape is all that is asked for.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import eligibility as el
from eligibility.errors import EligibilityError
from tests.ops.random_losses import LAYOUTS, drawn, laid_out

STRANGE: dict[str, Callable[[Tensor], Any]] = {
    "meta": lambda x: x.to("meta"),
    "fake": lambda x: FakeTensorMode().from_tensor(x),
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.reshape(-1, max(1, x.shape[-1] if x.ndim else 1)).to_sparse_csr(),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "complex": lambda x: x.to(torch.cfloat),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "uint16": lambda x: x.to(torch.uint16),
    "zero": lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
    "list": lambda x: x.tolist(),
}
WITHOUT_VALUES = {"meta", "fake", "zero"}
AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "another default device": lambda: torch.device("meta"),
    "a mode": lambda: FlopCounterMode(display=False),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}
SAMPLES = {"categorical_log_prob", "categorical_statistics", "categorical_entropy"}


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return call()
    except EligibilityError as error:
        return error
    except Exception as error:  # judged by the caller
        return error


def attempt(seed: int) -> tuple[str, str]:
    """The kind of the call, and what is wrong with what came of it; nothing if all is well."""
    pick = random.Random(-seed)
    function, given, _ = drawn(seed)
    name = pick.choice([name for name, part in given.items() if isinstance(part, Tensor)])
    kind = pick.choice([*STRANGE, *LAYOUTS])
    around = pick.choice([*AROUND])
    text = f"{function}({name}: {kind}) within {around}"
    sys.stderr.write(f"{seed} {text}\n")
    sys.stderr.flush()
    try:
        changed = laid_out(given[name], kind) if kind in LAYOUTS else STRANGE[kind](given[name])
    except Exception:  # no such tensor can be made of these numbers
        return kind, ""
    leaf = "hidden" if "hidden" in given else "logits"
    if pick.random() < 0.5:
        given[leaf] = given[leaf].detach().clone().requires_grad_()
    plain = outcome(lambda: getattr(el, function)(**given))
    with AROUND[around]():
        found = outcome(lambda: getattr(el, function)(**(given | {name: changed})))
        if isinstance(found, Tensor) and found.requires_grad and found.numel():
            found_slope = outcome(lambda: found.sum().backward())
            if isinstance(found_slope, EligibilityError):
                return kind, ""
    if isinstance(found, EligibilityError):
        return kind, "" if kind in STRANGE else f"{text}: refused: {found}"
    if isinstance(found, Exception):
        ours = kind in WITHOUT_VALUES or around == "another default device"
        return kind, "" if ours else f"{text}: {type(found).__name__}: {str(found)[:100]}"
    if kind in WITHOUT_VALUES:
        return kind, ""
    ours, theirs = (x[0] if isinstance(x, tuple) else x for x in (found, plain))
    same = isinstance(theirs, Tensor) and torch.allclose(
        ours.detach().as_subclass(Tensor).double(), theirs.detach().as_subclass(Tensor).double(),
        rtol=1e-3, atol=1e-4, equal_nan=True,
    )  # fmt: skip
    return kind, "" if same else f"{text}: another number"


def main(count: int) -> dict[str, Any]:
    """How many calls there were, of which kinds, and what was wrong."""
    warnings.simplefilter("ignore")
    kinds, wrong = Counter[str](), []
    for seed in range(count):
        kind, problem = attempt(seed)
        kinds[kind] += 1
        if problem:
            wrong.append(f"{seed}: {problem}")
    return {"calls": count, "wrong": wrong} | kinds


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]))) + "\n")
