"""Every public callable, called wrongly: which wrong calls are not refused in our words?

    python -m tests.wrong_calls

prints JSON: the calls by their kind, and those that raised something else or nothing. It runs in
a process of its own, so that a signal is a failure of one test, and without the import hook that
checks annotations before the library sees the arguments.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import eligibility as el
from eligibility.arguments import TENSORS
from eligibility.errors import EligibilityError
from eligibility.scalars import CHOICES, NUMBERS

K, B, V, D, T = 4, 5, 6, 3, 4
NAN, INF = math.nan, math.inf


def _base() -> dict[str, dict[str, Any]]:
    """Name -> arguments with which the call is right."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    action = torch.tensor([0, 1, 2, 3, 0])
    rows = {"logits": normal(B, K), "action": action}
    shaping = {"mask": torch.ones(B, K, dtype=torch.bool), "temperature": 1.5, "softcap": 9.0}
    loss = rows | shaping | {
        "advantage": normal(B), "weight": normal(B).abs(), "entropy_coef": 0.1, "z_loss_coef": 0.1,
        "reduction": "mean", "ignore_index": -1,
    }  # fmt: skip
    clipped = {
        "old_log_prob": normal(B), "clip": (0.2, 0.2), "ref_log_prob": normal(B), "kl_coef": 0.1,
        "kl_estimator": "k3",
    }  # fmt: skip
    head = {
        "hidden": normal(B, D), "weight": normal(V, D), "token": action, "bias": normal(V),
        "temperature": 1.5, "softcap": 9.0, "mask": torch.ones(B, V, dtype=torch.bool),
        "ignore_index": -100,
    }  # fmt: skip
    head_loss = head | {
        "advantage": normal(B), "token_weight": normal(B).abs(), "entropy_coef": 0.1,
        "z_loss_coef": 0.1, "reduction": "mean",
    }  # fmt: skip
    ends = {"terminated": torch.zeros(T, B, dtype=torch.bool)}
    ends["truncated"] = ends["terminated"]
    rewards = {"rewards": normal(T, B), "discount": 0.9} | ends
    values = {"values": normal(T, B), "next_values": normal(T, B), "lambda_": 0.9}
    weights = {"probs": normal(B, K).abs()}
    return {
        "categorical_log_prob": rows | shaping | {"ignore_index": -1},
        "categorical_statistics": rows | shaping | {"ignore_index": -1},
        "categorical_entropy": {"logits": rows["logits"]} | shaping,
        "categorical_kl": {"logits": rows["logits"], "other": normal(B, K)} | shaping,
        "categorical_sample": {"logits": rows["logits"], "sample_shape": (2,)} | shaping,
        "reinforce_loss": loss,
        "reinforce_gradient": loss,
        "clipped_policy_loss": loss | clipped,
        "linear_log_prob": head,
        "linear_statistics": head,
        "linear_reinforce_loss": head_loss | {"kl_coef": 0.0},
        "linear_clipped_policy_loss": head_loss | clipped,
        "vocab_parallel_statistics": {
            "logits": normal(B, V),
            "token": action,
            "ignore_index": -100,
        },
        "vocab_parallel_linear_statistics": head,
        "rewards_to_go": rewards | {"bootstrap": normal(T, B)},
        "generalized_advantages": rewards | values,
        "MovingAverage": {"rate": 0.1},
        "PerWeight": {"rate": 0.1},
        "StateValue": {"ridge": 1e-6, "units": 4, "time": False},
        "LeaveOneOut": {"rows": "time"},
        "Bernoulli": {"probs": torch.rand(B, generator=generator)},
        "Binomial": {"probs": torch.rand(B, generator=generator), "total_count": 3},
        "Categorical": weights | {"mask": shaping["mask"]},
        "OneHotCategorical": weights | {"mask": shaping["mask"]},
        "Multinomial": weights | {"total_count": 3, "mask": shaping["mask"]},
    }


BASE = _base()
# Without arguments, or records of results; and those whose wrong calls are written out below.
ELSEWHERE = {
    "CategoricalStatistics", "LinearStatistics", "LinearReference", "Explanation", "AuditReport",
    "release_memory", "supported_distributions", "record", "NoBaseline", "Callback",
    "TimeDependentLeaveOneOut",
    "eligibility", "fisher_information", "per_sample_eligibilities", "register_eligibility",
    "explain", "Reinforce", "KeepBest", "Counts", "TokenBatch", "audit_agent", "audit_loss",
    "audit_module", "audit_script", "audit_token_loss",
}  # fmt: skip
# The shape that holds for all rows is right as well.
BROADCAST = {"mask", "probs"}
OPTIONAL = {"mask", "weight", "token_weight", "bias", "ref_log_prob", "bootstrap", "alive"}


def wrong_numbers(name: str) -> Iterator[Any]:
    domain = NUMBERS[name].domain
    yield from (NAN, -1.0, -INF, INF, "0.5", [0.5], torch.tensor(0.5), True, 1j)
    if not NUMBERS[name].may_be_none:
        yield None
    if not domain.holds(0.0):
        yield 0.0
    if domain.high == 1:
        yield 1.5


def wrong_tensors(name: str, right: Tensor, kind: str) -> Iterator[Any]:
    yield from (right.tolist(), "text", [3], object(), right.to(torch.cfloat))
    if name != "probs" or right.ndim > 1:  # alone a tensor may be anywhere
        yield right.to("meta")
    if name not in OPTIONAL:
        yield None
    if not (name == "mask" and right.shape[-1] == V):  # which the linear head takes sparse
        yield right.to_sparse()
    if name not in BROADCAST:
        yield right.unsqueeze(-1)
    yield right[..., :0] if kind == "floating" and right.ndim > 1 else right.to(torch.cdouble)
    if kind == "floating":
        yield from (3,) if name != "probs" else ()
        yield from (right.long(), right.to(torch.float8_e4m3fn), right > 0)
        yield torch.nested.nested_tensor([right, right])
    if kind == "integer":
        yield from (right.double(), right > 0, right - 9, right + 9, right.to(torch.uint32))
    if kind == "boolean":
        yield from (right.long(), right.float())


def wrong_arguments(name: str, right: Any) -> Iterator[Any]:
    """Values that no call takes for this argument."""
    if name in NUMBERS:
        yield from wrong_numbers(name)
    elif name in TENSORS or name == "probs":
        yield from wrong_tensors(name, right, TENSORS[name].kind if name in TENSORS else "floating")
    elif name in CHOICES or name == "rows":
        yield from ("average", 3, None, ["mean"], b"mean", "")
    elif name == "ignore_index":
        yield from ("-1", 0.5, [1], True, torch.tensor(1))
    elif name == "clip":
        yield from (0.2, (0.2,), (0.1, 0.2, 0.3), "0.2", None, (NAN, 0.2), (0.2, NAN), (-0.1, 0.2))
        yield from ((0.2, -0.1), (1.5, 0.2), ("a", "b"), {0.1, 0.2}, torch.tensor([0.1, 0.2]))
    elif name == "sample_shape":
        yield from (3, 3.0, "3", None, (1.5,), (-1,), torch.tensor([2]), (True,))
    elif name == "total_count":
        yield from ("3", -1, 2.5, None, [3], torch.full((B + 1,), 3), torch.full((B,), -1), NAN)
    elif name == "units":
        yield from (-1, 2.5, "4", None, [4], True, NAN)
    elif name == "time":
        yield from (1, 0.5, "yes", None, [True], torch.tensor(True))
    else:
        raise AssertionError(f"how can {name} be wrong? add its wrong values to wrong_arguments")


Call = tuple[str, Callable[[], object]]


def walked() -> Iterator[Call]:
    """Each argument of each callable with each value that is wrong for it, the others right."""
    for function, right in BASE.items():
        for name, value in right.items():
            for wrong in wrong_arguments(name, value):
                # In half precision the indicator is not the issue: only one argument is wrong.
                given = right | {name: wrong}

                def call(function: str = function, given: dict[str, Any] = given) -> object:
                    return getattr(el, function)(**given)

                yield f"{function}({name}={described(wrong)})", call


def described(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = "nested" if value.is_nested else list(value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}{shape} {value.layout} {value.device}"
    return repr(value)[:40]


def written_out() -> Iterator[Call]:
    """What is wrong together, or in callables that the table does not know."""
    z, a, r = torch.zeros(B, K), torch.zeros(B, dtype=torch.long), torch.zeros(B)
    meta, normal = z.to("meta"), torch.distributions.Normal(r, r + 1)
    categorical = torch.distributions.Categorical(logits=z)
    layer, inputs = nn.Linear(D, K), torch.zeros(B, D)
    yield from {
        "small: entropy_coef=-1": lambda: el.reinforce_loss(z, a, r, entropy_coef=-1.0),
        "small: entropy_coef=NaN": lambda: el.reinforce_loss(z, a, r, entropy_coef=NAN),
        "small: entropy_coef='x'": lambda: el.reinforce_loss(z, a, r, entropy_coef="x"),
        "small: reuse_logits='no'": lambda: el.reinforce_loss(z, a, r, reuse_logits="no"),
        "small: generator='3'": lambda: el.categorical_sample(z, generator="3"),
        "small: sample_shape=0": lambda: el.categorical_sample(z, sample_shape=0),
        "small: action on meta": lambda: el.reinforce_loss(z.requires_grad_(), a.to("meta"), r),
        "only logits on meta": lambda: el.reinforce_loss(meta, a, r),
        "neither action nor counts": lambda: el.reinforce_loss(z, None, r),
        "action and counts": lambda: el.reinforce_loss(z, a, r, counts=z),
        "counts as a list": lambda: el.reinforce_loss(z, None, r, counts=[1]),
        "counts < 0": lambda: el.reinforce_loss(z, None, r, counts=z - 1),
        "counts complex": lambda: el.reinforce_loss(z, None, r, counts=z.to(torch.cfloat)),
        "sequence without axes": lambda: el.reinforce_loss(z[0], a[0], r[0], reduction="sequence"),
        "sequence of no batch, linear": lambda: el.linear_reinforce_loss(
            inputs[0], layer.weight, a[0], r[0], reduction="sequence"
        ),
        "gradient of none": lambda: el.reinforce_gradient(z, a, r, reduction="none"),
        "exact without a reference": lambda: el.clipped_policy_loss(
            z, a, r, r, kl_coef=0.1, kl_estimator="exact"
        ),
        "ref_logits as a list": lambda: el.clipped_policy_loss(
            z, a, r, r, kl_coef=0.1, kl_estimator="exact", ref_logits=[1]
        ),
        "group='tp'": lambda: el.linear_log_prob(inputs, layer.weight, a, group="tp"),
        "reference=3": lambda: el.linear_statistics(inputs, layer.weight, a, reference=3),
        "lazy weight": lambda: el.linear_log_prob(inputs, nn.LazyLinear(K).weight, a),
        "eligibility of a list": lambda: el.eligibility([1], a),
        "eligibility of a tensor": lambda: el.eligibility(z, a),
        "eligibility of None": lambda: el.eligibility(None, a),
        "eligibility, value='x'": lambda: el.eligibility(normal, "x"),
        "eligibility, value=[0]": lambda: el.eligibility(categorical, [0]),
        "eligibility, value=None": lambda: el.eligibility(categorical, None),
        "eligibility, float value": lambda: el.eligibility(categorical, r + 0.5),
        "eligibility, sparse value": lambda: el.eligibility(normal, r.to_sparse()),
        "eligibility, value out of range": lambda: el.eligibility(categorical, a + 9),
        "eligibility, wrt=3": lambda: el.eligibility(normal, r, wrt=3),
        "eligibility, wrt='x'": lambda: el.eligibility(normal, r, wrt="x"),
        "eligibility, wrt=[None]": lambda: el.eligibility(normal, r, wrt=[None]),
        "eligibility, coordinates=3": lambda: el.eligibility(categorical, a, coordinates=3),
        "fisher of a list": lambda: el.fisher_information([1]),
        "fisher of None": lambda: el.fisher_information(None),
        "fisher, wrt=3": lambda: el.fisher_information(normal, wrt=3),
        "register a string": lambda: el.register_eligibility("Normal"),
        "register, parameter=3": lambda: el.register_eligibility(type(normal), 3),
        "per sample, module=3": lambda: el.per_sample_eligibilities(3, inputs, a),
        "per sample, action=[0]": lambda: el.per_sample_eligibilities(layer, inputs, [0]),
        "per sample, action=None": lambda: el.per_sample_eligibilities(layer, inputs, None),
        "per sample, meta action": lambda: el.per_sample_eligibilities(layer, inputs, a.to("meta")),
        "per sample, meta action of a Normal": lambda: el.per_sample_eligibilities(
            layer,
            inputs,
            z.to("meta"),
            distribution=lambda mean: torch.distributions.Normal(mean, 1.0),
        ),
        "per sample, distribution=3": lambda: el.per_sample_eligibilities(
            layer, inputs, a, distribution=3
        ),
        "explain a string": lambda: el.explain("x"),
        "explain a number": lambda: el.explain(3),
        "explain None": lambda: el.explain(None),
        "explain a leaf": lambda: el.explain(torch.tensor(1.0)),
        "explain, value=[0]": lambda: el.explain(categorical, value=[0]),
        "explain, of='x'": lambda: el.explain(categorical, value=a, of="x"),
        "explain, wrt=3": lambda: el.explain(categorical, value=a, wrt=3),
        "both parameters": lambda: el.Categorical(probs=z, logits=z),
        "no parameter": lambda: el.Bernoulli(),
        "Bernoulli(probs='x')": lambda: el.Bernoulli(probs="x"),
        "Bernoulli(probs=[0.5])": lambda: el.Bernoulli(probs=[0.5]),
        "Bernoulli(probs=2)": lambda: el.Bernoulli(probs=2.0),
        "Binomial(total_count='x')": lambda: el.Binomial("x", probs=0.5),
        "log_prob('x')": lambda: el.Categorical(logits=z).log_prob("x"),
        "log_prob([0])": lambda: el.Categorical(logits=z).log_prob([0]),
        "log_prob(float)": lambda: el.Categorical(logits=z).log_prob(r),
        "Bernoulli.log_prob([0])": lambda: el.Bernoulli(probs=r).log_prob([0]),
        "sample('x')": lambda: el.Categorical(logits=z).sample("x"),
        "sample(3)": lambda: el.Categorical(logits=z).sample(3),
        "sample, generator=3": lambda: el.Categorical(logits=z).sample(generator=3),
        "Bernoulli.sample(3)": lambda: el.Bernoulli(probs=r).sample(3),
        "Counts('x', 2)": lambda: el.Counts("x", 2),
        "Counts(2, None)": lambda: el.Counts(2, None),
        "Counts(-1, 2)": lambda: el.Counts(-1, 2),
        "Counts(2, 2.5)": lambda: el.Counts(2, 2.5),
    }.items()
    yield from baselines(r)
    yield from trained()
    yield from audited()


def baselines(returns: Tensor) -> Iterator[Call]:
    several: list[tuple[str, Callable[..., Any]]] = [
        (cls.__name__, cls())
        for cls in (el.NoBaseline, el.MovingAverage, el.LeaveOneOut, el.TimeDependentLeaveOneOut)
    ]
    for name, baseline in [*several, ("StateValue", el.StateValue())]:
        for wrong in ([1.0, 2.0], "x", None, returns.long(), returns.to_sparse()):
            yield f"{name}({described(wrong)})", lambda b=baseline, w=wrong: b(w)
        for wrong in ([True], "x", returns, returns[:2] > 0, (returns > 0).to("meta")):
            yield f"{name}(alive={described(wrong)})", lambda b=baseline, w=wrong: b(returns, w)
    for wrong in (None, [1], "x", torch.zeros(2, 2)):
        text = f"StateValue(observations={described(wrong)})"
        yield text, lambda w=wrong: el.StateValue()(returns, observations=w)
    yield "PerWeight()(3)", lambda: el.PerWeight()(3)
    yield "PerWeight().gradient(3)", lambda: el.PerWeight().gradient(3, returns)


def trained() -> Iterator[Call]:
    model = el.Reinforce("CartPole-v1", environments=2)
    yield from {
        "Reinforce(3)": lambda: el.Reinforce(3),
        "Reinforce(None)": lambda: el.Reinforce(None),
        "Reinforce(unknown)": lambda: el.Reinforce("NoSuchEnvironment-v0"),
        "Reinforce(network=3)": lambda: el.Reinforce("CartPole-v1", network=3),
        "Reinforce(learning_rate='x')": lambda: el.Reinforce("CartPole-v1", learning_rate="x"),
        "Reinforce(environments=-1)": lambda: el.Reinforce("CartPole-v1", environments=-1),
        "Reinforce(no_such_option=1)": lambda: el.Reinforce("CartPole-v1", no_such_option=1),
        "Reinforce(discount=2)": lambda: el.Reinforce("CartPole-v1", discount=2.0),
        "Reinforce(baseline=3)": lambda: el.Reinforce("CartPole-v1", baseline=3),
        "learn('x')": lambda: model.learn("x"),
        "learn(-1)": lambda: model.learn(-1),
        "learn(NaN)": lambda: model.learn(NAN),
        "learn([1])": lambda: model.learn([1]),
        "learn(callback=3)": lambda: model.learn(1, callback=3),
        "learn(callback='x')": lambda: model.learn(1, callback="x"),
        "predict('x')": lambda: model.predict("x"),
        "predict(None)": lambda: model.predict(None),
        "predict(wrong shape)": lambda: model.predict([0.0]),
        "save(3)": lambda: model.save(3),
        "load(3)": lambda: el.Reinforce.load(3),
        "load(nothing)": lambda: el.Reinforce.load("/no/such/folder"),
        "evaluate(episodes='x')": lambda: model.evaluate("x"),
        "evaluate(-1)": lambda: model.evaluate(-1),
        "KeepBest(3)": lambda: el.KeepBest(3),
        "KeepBest(every=0)": lambda: el.KeepBest("best.safetensors", every=0),
        "KeepBest(episodes='x')": lambda: el.KeepBest("best.safetensors", episodes="x"),
    }.items()


def audited() -> Iterator[Call]:
    yield from {
        "audit_script(3)": lambda: el.audit_script(3),
        "audit_script(None)": lambda: el.audit_script(None),
        "audit_script(nothing)": lambda: el.audit_script("/no/such/file.py"),
        "audit_script(discount='x')": lambda: el.audit_script(__file__, discount="x"),
        "audit_script(max_paths='x')": lambda: el.audit_script(__file__, max_paths="x"),
        "audit_script(max_paths=-1)": lambda: el.audit_script(__file__, max_paths=-1),
        "audit_script(samples=-1)": lambda: el.audit_script(__file__, samples=-1),
        "audit_script(time_limit=NaN)": lambda: el.audit_script(__file__, time_limit=NAN),
        "audit_script(memory_limit='x')": lambda: el.audit_script(__file__, memory_limit="x"),
        "audit_script(argv=3)": lambda: el.audit_script(__file__, argv=3),
        "audit_loss(3)": lambda: el.audit_loss(3),
        "audit_loss(None)": lambda: el.audit_loss(None),
        "audit_loss(environment=3)": lambda: el.audit_loss(lambda *_: None, environment=3),
        "audit_loss(episodes='x')": lambda: el.audit_loss(lambda *_: None, episodes="x"),
        "audit_loss(discount=7)": lambda: el.audit_loss(lambda *_: None, discount=7.0),
        "audit_token_loss(3)": lambda: el.audit_token_loss(3),
        "audit_token_loss(None)": lambda: el.audit_token_loss(None),
        "audit_token_loss(length='x')": lambda: el.audit_token_loss(lambda *_: None, length="x"),
        "audit_token_loss(group_size=0)": lambda: el.audit_token_loss(
            lambda *_: None, group_size=0
        ),
        "audit_agent(3)": lambda: el.audit_agent(3),
        "audit_module(3)": lambda: el.audit_module(3),
        "audit_module(None)": lambda: el.audit_module(None),
    }.items()


def outcome(call: Callable[[], object]) -> str:
    """What is wrong with how a wrong call ended; nothing if it was refused in our words."""
    try:
        call()
    except EligibilityError as error:
        parts = (error.what, error.got, error.expected, error.remedy)
        is_one_line = "\n" not in str(error) and len(str(error)) < 600
        return "" if all(parts) and is_one_line else f"an unclear message: {error}"
    except Exception as error:  # anything but one clear error is a finding
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
    return "accepted"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    kinds = {
        "one argument of a callable is wrong": [*walked()],
        "arguments contradict each other, or are objects of the wrong kind": [*written_out()],
    }
    names = {kind: [name for name, _ in calls] for kind, calls in kinds.items()}
    found = {"wrong": {}, "names": names, "calls": sum(map(len, names.values()))}
    for name, right in BASE.items():
        getattr(el, name)(**right)
    for name, call in (pair for calls in kinds.values() for pair in calls):
        sys.stderr.write(f"{name}\n")  # the last line is what a signal interrupted
        sys.stderr.flush()
        if problem := outcome(call):
            found["wrong"][name] = problem
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
