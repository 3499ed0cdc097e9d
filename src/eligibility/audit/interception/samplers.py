"""Every way in which programs draw an action, answered by the enumerator."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributions

from eligibility.audit.choices import MAX_TOKENS, NoEnvironmentError
from eligibility.audit.interception.continuous import enumerate_beta, enumerate_gaussian
from eligibility.audit.interception.numpy_samplers import (
    answer,
    enumerate_numpy,
    enumerate_spaces,
    floats,
    whole_number,
)
from eligibility.audit.interception.recorder import Recorder
from eligibility.audit.interception.scores import has_numbers
from eligibility.audit.noise.numpy_numbers import PYTHON, drawing
from eligibility.audit.patches import Patches, Standing, disguised
from eligibility.audit.raised import precision_note
from eligibility.audit.trace import UNREAD

# What torch draws for them by its own samplers; a mixture also draws what it does not choose.
NOT_ENUMERATED = (
    distributions.Binomial, distributions.Dirichlet, distributions.Gamma,
    distributions.MixtureSameFamily, distributions.Poisson, distributions.StudentT,
    distributions.VonMises,
)  # fmt: skip


_SCORED = (
    distributions.Categorical, distributions.Normal, distributions.Bernoulli,
    distributions.Multinomial, distributions.Beta, distributions.MultivariateNormal,
)  # fmt: skip


def enumerate_draws(patches: Patches, recorder: Recorder) -> None:
    """Those of torch, of NumPy, of the ``random`` module, and of the spaces of gymnasium."""
    _torch(patches, recorder)
    enumerate_numpy(patches, recorder)
    _random(patches, recorder)
    enumerate_spaces(patches, recorder)


def _torch(patches: Patches, recorder: Recorder) -> None:
    """Distributions and sampling functions."""
    _categorical(patches, recorder)
    _bernoulli(patches, recorder)
    enumerate_gaussian(patches, recorder)
    enumerate_beta(patches, recorder)
    for family in _SCORED:
        _note_scores(patches, recorder, family)
    _note_tables(patches, recorder)
    for unread in NOT_ENUMERATED:
        _note_unread(patches, recorder, unread)

    def randperm(n: int, *args: Any, **options: Any) -> Any:
        return torch.from_numpy(recorder.order(n))

    def randint(*args: Any, **options: Any) -> Any:
        *bounds, size = args if "size" not in options else (*args, options["size"])
        bounds += [options[name] for name in ("low", "high") if name in options]
        low, high = (0, *bounds)[-2:]
        rows = recorder.rows(high, tuple(size)) if low == 0 else None
        if rows is not None:
            return torch.as_tensor(rows)
        found = whole_number(recorder, low, high) if math.prod(size) == 1 else None
        if found is None:
            return NotImplemented
        return torch.full(tuple(size), found, dtype=options.get("dtype"))

    answer(patches, recorder, torch, "randperm", randperm)
    answer(patches, recorder, torch, "randint", randint)


def _draw_rows(recorder: Recorder, probs: torch.Tensor, times: int) -> list[int]:
    """``times`` draws of each row of ``probs`` [rows, K], times outermost."""
    first = len(recorder.choices.draws)
    recorder.note(precision_note(probs.dtype))
    rows = probs.detach().to(torch.float64).cpu()
    shares = (rows / rows.sum(-1, keepdim=True)).tolist()
    logs = _logs(recorder, probs)
    picked = []
    for number in range(times * len(shares)):
        picked.append(recorder.choices.choose(shares[number % len(shares)], "action"))
        recorder.differentiate(first + number, logs[number % len(shares)])
    recorder.sampled(picked)
    return picked


def _logs(recorder: Recorder, weights: torch.Tensor) -> torch.Tensor:
    """ln p of rows of weights [rows, K], with their graph, where a job asks for slopes."""
    if not recorder.job.slopes:
        return weights
    with torch.enable_grad():
        # where a log is infinite its slope is 0, and must not make the others NaN
        positive = torch.where(weights > 0, weights, torch.ones_like(weights))
        return positive.log() - weights.sum(-1, keepdim=True).log()


def _counted(recorder: Recorder, rows: torch.Tensor, total: int) -> torch.Tensor:
    """How often each of K outcomes is drawn [rows, K], one choice a unit."""
    recorder.note(precision_note(rows.dtype))
    shares = rows.detach().to(torch.float64).cpu()
    units: list[tuple[int, ...]] = []
    made = []
    for row in (shares / shares.sum(-1, keepdim=True)).tolist():
        first = len(recorder.choices.draws)
        picked = torch.tensor([recorder.choices.choose(row, "action") for _ in range(total)])
        units += [tuple(range(first, first + total)), *[()] * (len(row) - 1)]
        made.append(torch.bincount(picked, minlength=len(row)))
    recorder.sampled_in(units, torch.cat(made).tolist())
    return torch.stack(made)


def _categorical(patches: Patches, recorder: Recorder) -> None:
    tokens = itertools.count(1)

    def count_token() -> None:
        untold = recorder.parameters.tensors and not recorder.environments
        if untold and next(tokens) > MAX_TOKENS:
            raise NoEnvironmentError

    def sample(self: distributions.Categorical, sample_shape: Any = ()) -> Any:
        if not recorder.running:
            count_token()
            return stock(self, torch.Size(sample_shape))
        shape = torch.Size(sample_shape) + self.batch_shape
        times = math.prod(sample_shape)
        picked = _draw_rows(recorder, self.probs.reshape(-1, self.probs.shape[-1]), times)
        return torch.tensor(picked).reshape(shape)

    stock = patches.set(distributions.Categorical, "sample", sample)

    def initialise(
        self: distributions.Categorical, probs: Any = None, logits: Any = None, **options: Any
    ) -> None:
        stock_initialise(self, probs, logits, **options)
        if recorder.running and logits is not None and has_numbers(logits):
            recorder.note("logits-on-simplex" if _on_simplex(logits) else "logits-anywhere")

    stock_initialise = patches.set(distributions.Categorical, "__init__", initialise)

    def multinomial(
        weights: torch.Tensor, num_samples: int, replacement: bool = False, **options: Any
    ) -> Any:
        if not recorder.running:
            count_token()
            return stock_multinomial(weights, num_samples, replacement, **options)
        logs = _logs(recorder, weights.reshape(-1, weights.shape[-1]))
        rows = weights.detach().reshape(-1, weights.shape[-1])
        first = len(recorder.choices.draws)
        picked = []
        for row, log in zip(rows.to(torch.float64), logs, strict=True):
            left = row.clone()
            for number in range(num_samples):
                picked.append(recorder.choices.choose((left / left.sum()).tolist(), "action"))
                if number == 0 or replacement:
                    recorder.differentiate(first + len(picked) - 1, log)
                if not replacement:
                    left[picked[-1]] = 0.0
        recorder.sampled(picked)
        return torch.tensor(picked).reshape(*weights.shape[:-1], num_samples)

    def counts(self: distributions.Multinomial, sample_shape: Any = ()) -> Any:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        rows = self.probs.expand(shape).reshape(-1, shape[-1])
        return _counted(recorder, rows, self.total_count).reshape(shape).to(self.probs.dtype)

    answer(patches, recorder, distributions.Multinomial, "sample", counts)
    stock_multinomial = patches.set(torch, "multinomial", multinomial)
    patches.set(torch.Tensor, "multinomial", multinomial)


def _bernoulli(patches: Patches, recorder: Recorder) -> None:
    def draw(probs: torch.Tensor, times: int) -> torch.Tensor:
        flat = probs.reshape(-1)
        picked = _draw_rows(recorder, torch.stack([1.0 - flat, flat], dim=-1), times)
        return torch.tensor(picked, dtype=probs.dtype)

    def sample(self: distributions.Bernoulli, sample_shape: Any = ()) -> Any:
        drawn = draw(self.probs, math.prod(sample_shape))
        return drawn.reshape(torch.Size(sample_shape) + self.batch_shape)

    def bernoulli(probs: torch.Tensor, *args: Any, **options: Any) -> Any:
        if args or options.get("p") is not None:
            return NotImplemented
        return draw(probs, 1).reshape(probs.shape)

    answer(patches, recorder, distributions.Bernoulli, "sample", sample)
    for owner in (torch, torch.Tensor):
        answer(patches, recorder, owner, "bernoulli", bernoulli)


def _note_scores(
    patches: Patches, recorder: Recorder, family: type[distributions.Distribution]
) -> None:
    def log_prob(self: distributions.Distribution, value: torch.Tensor) -> Any:
        result = stock(self, value)
        if recorder.running:
            recorder.scores.add(self, value, result)
        return result

    stock: Callable[..., torch.Tensor] = patches.set(family, "log_prob", log_prob)


def _note_unread(
    patches: Patches, recorder: Recorder, family: type[distributions.Distribution]
) -> None:
    name = "rsample" if family.has_rsample else "sample"

    def draw(self: distributions.Distribution, sample_shape: Any = ()) -> Any:
        if not recorder.running:
            return stock(self, torch.Size(sample_shape))
        with recorder.unread(f"torch.distributions.{family.__name__}"):
            return stock(self, torch.Size(sample_shape))

    stock = patches.set(family, name, draw)


def _note_tables(patches: Patches, recorder: Recorder) -> None:
    """Hand-written scoring: a table of probabilities, or of their logarithms, with a gradient."""

    def watch(owner: Any, name: str, told: Callable[[torch.Tensor], None]) -> None:
        def noted(values: torch.Tensor, *args: Any, **options: Any) -> Any:
            result = stock(values, *args, **options)
            if recorder.running and result.requires_grad:
                told(result)
            return result

        stock = patches.set(owner, name, noted)

    for owner in (torch, torch.Tensor):  # torch.nn.functional's calls the method of the tensor
        watch(owner, "log_softmax", lambda table: recorder.scores.add_table(table.exp()))
        watch(owner, "softmax", recorder.scores.add_probabilities)

    def cross_entropy(input: torch.Tensor, target: torch.Tensor, *args: Any, **options: Any) -> Any:
        result = stock_loss(input, target, *args, **options)
        table = recorder.running and result.requires_grad and 0 < input.dim() <= 2
        if table and has_numbers(input):
            recorder.scores.add_labelled(input.detach().softmax(-1), target)
        return result

    stock_loss = patches.set(torch.nn.functional, "cross_entropy", cross_entropy)


def _on_simplex(logits: torch.Tensor) -> bool:
    """Whether they are probabilities."""
    given = logits.detach()
    return bool((given >= 0).all() and ((given.sum(-1) - 1).abs() < 1e-6).all())


def _random(patches: Patches, recorder: Recorder) -> None:
    choose = recorder.choices.choose

    def choices(
        population: Sequence[Any], weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> Any:
        if weights is None and cum_weights is None:
            return NotImplemented
        raw = floats(weights) if weights is not None else floats(np.diff(cum_weights, prepend=0))
        probs = [weight / sum(raw) for weight in raw]
        picked = [population[choose(probs, "action")] for _ in range(k)]
        if all(isinstance(value, (int, float)) for value in picked):
            recorder.sampled(picked)
        return picked

    def shuffle(values: Any) -> None:
        values[:] = [values[row] for row in recorder.order(len(values))]

    def sample(population: Any, k: int, **options: Any) -> Any:
        possible = not options and k <= len(population)
        rows = recorder.rows(len(population), (k,)) if possible else None
        return NotImplemented if rows is None else [population[row] for row in rows]

    for name, function in _whole_numbers(recorder, random).items():
        patches.set(random, name, function)
    for function in (choices, shuffle, sample):
        answer(patches, recorder, random, function.__name__, function)
    stock_random: type[Any] = random.Random

    class Own(random.Random, metaclass=Standing):
        """Generators that the program makes itself."""

        def __init__(self, seed: Any = None) -> None:
            super().__init__(seed)
            vars(self).update(choices=random.choices, shuffle=random.shuffle)
            vars(self).update(_whole_numbers(recorder, self))
            for name in PYTHON:
                stock = getattr(self, name)
                vars(self)[name] = drawing(name, stock, recorder.noise, lambda: recorder.running)

        def getrandbits(self, k: int) -> int:
            if recorder.running:
                recorder.note(f"{UNREAD} a generator of random")
            return super().getrandbits(k)

        def __reduce__(self) -> Any:
            return stock_random, (), self.getstate()

    patches.set(random, "Random", disguised(Own, stock_random))


def _whole_numbers(recorder: Recorder, generator: Any) -> dict[str, Callable[..., Any]]:
    """What draws whole numbers from Python's ``generator``, or the ``random`` module."""
    stock_range, stock_choice = generator.randrange, generator.choice

    def randrange(start: Any, stop: Any = None, step: Any = 1) -> Any:
        low, end = (0, start) if stop is None else (start, stop)
        found = whole_number(recorder, low, end) if step == 1 else None
        return stock_range(start, stop, step) if found is None else found

    def randint(a: Any, b: Any) -> Any:
        return randrange(a, b + 1)

    def choice(seq: Any) -> Any:
        found = whole_number(recorder, 0, len(seq))
        return stock_choice(seq) if found is None else seq[found]

    return {"randrange": randrange, "randint": randint, "choice": choice}
