"""Policies: what is sampled, and every closed form against torch's distributions by autograd."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    TransformedDistribution,
    kl_divergence,
    register_kl,
)
from torch.distributions.transforms import TanhTransform

from eligibility.errors import InvalidTypeError, InvalidValueError
from eligibility.spaces import kind_of
from eligibility.spaces.counts import Counts
from eligibility.train.learner import Reinforce
from eligibility.train.policies import BernoulliPolicy, CategoricalPolicy, Policy, policy_for
from eligibility.train.policies.policy import policy_of

HERE = "tests.train.environments:"


class EnumeratedMultinomial(Distribution):
    """A multinomial whose entropy and divergence are sums over all outcomes."""

    arg_constraints = {}  # noqa: RUF012  # as torch has it

    def __init__(self, total: int, logits: Tensor) -> None:
        self.total, self.log_probs = total, logits.log_softmax(-1)
        super().__init__(logits.shape[:-1], logits.shape[-1:])
        self.support_list = all_counts(total, logits.shape[-1])

    def log_prob(self, value: Tensor) -> Tensor:
        """ln n! − Σ ln y_k! + Σ y_k ln π_k."""
        choices = math.lgamma(self.total + 1) - torch.lgamma(value.double() + 1).sum(-1)
        return choices + (value * self.log_probs).sum(-1)

    def every_log_prob(self) -> Tensor:
        """Of each outcome, outcomes first."""
        return torch.stack([self.log_prob(torch.tensor(y)) for y in self.support_list])

    def entropy(self) -> Tensor:
        """−Σ p ln p."""
        log_probs = self.every_log_prob()
        return -(log_probs.exp() * log_probs).sum(0)


@register_kl(EnumeratedMultinomial, EnumeratedMultinomial)
def _divergence(p: EnumeratedMultinomial, q: EnumeratedMultinomial) -> Tensor:
    old, new = p.every_log_prob(), q.every_log_prob()
    return (old.exp() * (old - new)).sum(0)


def all_counts(total: int, bins: int) -> list[tuple[int, ...]]:
    """Every way to put ``total`` units into ``bins`` bins."""
    ways = itertools.product(range(total + 1), repeat=bins)
    return [way for way in ways if sum(way) == total]


@dataclass(frozen=True)
class Case:
    """A space, and the same policy written with torch's distributions.

    One a factor, with the columns of the action that are its value; None: the action itself.
    """

    space: spaces.Space
    factors: Callable[[Tensor], list[tuple[Distribution, Any]]]

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """log π(a), ``[N]``."""
        return sum(
            factor.log_prob((action if columns is None else action[:, columns]).to(outputs))
            for factor, columns in self.factors(outputs)
        )

    def entropy(self, outputs: Tensor) -> Tensor:
        """H, ``[N]``."""
        return sum(factor.entropy() for factor, _ in self.factors(outputs))


def _multi(z: Tensor) -> list[tuple[Distribution, Any]]:
    parts = z.split([2, 3, 4], -1)
    return [(Categorical(logits=part), place) for place, part in enumerate(parts)]


def _nested(z: Tensor) -> list[tuple[Distribution, Any]]:
    index, mean, counts, bits, log_scale = z.split([3, 2, 4, 2, 2], -1)
    return [
        (Categorical(logits=index), 0),
        (Independent(Normal(mean, log_scale.exp()), 1), slice(1, 3)),
        (EnumeratedMultinomial(3, counts), slice(3, 7)),
        (Independent(Bernoulli(logits=bits), 1), slice(7, 9)),
    ]


CASES = {
    "Discrete": Case(spaces.Discrete(4), lambda z: [(Categorical(logits=z), None)]),
    "MultiDiscrete": Case(spaces.MultiDiscrete([2, 3, 4]), _multi),
    "MultiBinary": Case(
        spaces.MultiBinary(3), lambda z: [(Independent(Bernoulli(logits=z), 1), None)]
    ),
    "Box": Case(
        spaces.Box(-1, 1, (2,)),
        lambda z: [(Independent(Normal(z[:, :2], z[:, 2:].exp()), 1), None)],
    ),
    "Counts": Case(Counts(5, 3), lambda z: [(EnumeratedMultinomial(5, z), None)]),
    "one unit": Case(Counts(1, 3), lambda z: [(EnumeratedMultinomial(1, z), None)]),
    "Dict": Case(
        spaces.Dict(
            {
                "a": spaces.Discrete(3, start=-1),
                "b": spaces.Box(-1, 1, (2,)),
                "c": spaces.Tuple([Counts(3, 4), spaces.MultiBinary(2)]),
            }
        ),
        _nested,
    ),
    "Tuple": Case(
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
        lambda z: [(Categorical(logits=z[:, :3]), 0), (Categorical(logits=z[:, 3:]), 1)],
    ),
}


def test_every_policy_has_a_case() -> None:
    tested = {type(kind_of(case.space)) for case in CASES.values()}
    assert not {*policy_of.registry} - {object} - tested, "add a Case to CASES"


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Case, Policy, Tensor, Tensor]:
    """A case, its policy, outputs in float64, and actions drawn for them."""
    case = CASES[request.param]
    policy = policy_for(case.space)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, policy.size, generator=generator, dtype=torch.float64)
    noise = torch.empty(50, *policy.noise_shape, dtype=policy.noise_dtype)
    policy.fill_noise(noise, generator)
    actions = policy.sample(outputs, noise)
    assert actions.shape == (50, *policy.action_shape)
    return case, policy, outputs, actions


def test_eligibility_is_the_gradient_of_log_prob(case: tuple) -> None:
    written, policy, outputs, actions = case
    leaf = outputs.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(written.log_prob(leaf, actions).sum(), leaf)
    torch.testing.assert_close(policy.eligibility(outputs, actions), wanted, rtol=1e-12, atol=1e-13)


def test_the_fisher_product_is_the_hessian_of_the_divergence(case: tuple) -> None:
    written, policy, outputs, _ = case
    generator = torch.Generator().manual_seed(1)
    tangent = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
    leaf = outputs.clone().requires_grad_()
    pairs = zip(written.factors(outputs), written.factors(leaf), strict=True)
    divergence = sum(kl_divergence(old, new) for (old, _), (new, _) in pairs)
    (slope,) = torch.autograd.grad(divergence.sum(), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad(slope, leaf, tangent)
    got = policy.fisher(outputs)(tangent)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_the_divergence_is_that_of_torch(case: tuple) -> None:
    written, policy, outputs, _ = case
    other = outputs.flip(0)
    pairs = zip(written.factors(outputs), written.factors(other), strict=True)
    wanted = sum(kl_divergence(old, new) for (old, _), (new, _) in pairs)
    torch.testing.assert_close(policy.divergence(outputs, other), wanted, rtol=1e-10, atol=1e-12)
    assert not policy.divergence(outputs, outputs).any()


def test_what_is_forbidden_in_both_adds_nothing_to_the_divergence() -> None:
    logits = torch.tensor([[0.5, -torch.inf, 1.0]]).double()
    free = policy_for(spaces.Discrete(2)).divergence(logits[:, ::2], logits[:, ::2].flip(-1))
    masked = policy_for(spaces.Discrete(3)).divergence(logits, logits.flip(-1))
    torch.testing.assert_close(masked, free)
    forced = torch.tensor([[torch.inf, -torch.inf, 0.0]])
    assert float(policy_for(spaces.MultiBinary(3)).divergence(forced, forced)) == 0


def test_entropy_and_its_gradient_are_those_of_autograd(case: tuple) -> None:
    written, policy, outputs, _ = case
    leaf = outputs.clone().requires_grad_()
    wanted = written.entropy(leaf)
    (gradient,) = torch.autograd.grad(wanted.sum(), leaf)
    entropy, entropy_gradient = policy.entropy(outputs)
    torch.testing.assert_close(entropy, wanted.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(entropy_gradient, gradient, rtol=1e-12, atol=1e-13)


def test_the_mode_is_the_most_probable_action(case: tuple) -> None:
    written, policy, outputs, actions = case
    best = written.log_prob(outputs, policy.mode(outputs))
    assert (best >= written.log_prob(outputs, actions)).all()


def test_actions_for_the_environment_are_in_its_space(case: tuple) -> None:
    written, policy, _, actions = case
    batch = policy.to_environment(actions)
    rows = list(iterate(batch_space(written.space, len(actions)), batch))
    assert len(rows) == len(actions)
    for action in [*rows, policy.first(batch)]:
        assert written.space.contains(action)


def test_the_largest_entropy_is_that_of_equal_outputs(case: tuple) -> None:
    written, policy, outputs, _ = case
    if policy.largest_entropy is None:
        return
    uniform = written.entropy(torch.zeros(1, policy.size, dtype=torch.float64))
    assert policy.largest_entropy == pytest.approx(float(uniform), rel=1e-6)
    assert (written.entropy(outputs) <= policy.largest_entropy).all()


def test_forbidden_outputs_have_no_share_in_anything(case: tuple) -> None:
    """With an output at −∞, all is as if it were not there, and nothing is NaN."""
    _, policy, outputs, _ = case
    if policy.constants:
        return
    outputs = outputs.clone()
    outputs[:, 0] = -math.inf
    noise = torch.empty(50, *policy.noise_shape, dtype=policy.noise_dtype)
    policy.fill_noise(noise, torch.Generator().manual_seed(2))
    actions = policy.sample(outputs, noise)
    entropy, gradient = policy.entropy(outputs)
    results = [policy.eligibility(outputs, actions), gradient]
    results.append(policy.fisher(outputs)(torch.ones_like(outputs)))
    assert entropy.isfinite().all()
    for result in results:
        assert result.isfinite().all()
        assert (result[:, 0] == 0).all()
    low = outputs.clone()
    low[:, 0] = -1000.0
    assert torch.equal(policy.sample(low, noise), actions)
    torch.testing.assert_close(policy.entropy(low)[0], entropy)
    assert torch.equal(policy.mode(low), policy.mode(outputs))


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Pearson's statistic."""
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_gumbel_max_draws_each_category_as_often_as_its_probability() -> None:
    policy, draws = CategoricalPolicy(4), 100_000
    logits = torch.tensor([2.0, 0.0, -1.0, -3.0])
    noise = torch.empty(draws, 4)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    counts = torch.bincount(policy.sample(logits.expand(draws, 4), noise), minlength=4)
    assert chi_square(counts, logits.softmax(-1)) < 16.27  # the 0.999 quantile, 3 degrees


def test_logistic_noise_draws_each_bit_as_often_as_its_probability() -> None:
    policy, draws = BernoulliPolicy((3,)), 100_000
    logits = torch.tensor([2.0, 0.0, -3.0])
    noise = torch.empty(draws, 3)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    ones = policy.sample(logits.expand(draws, 3), noise).long().sum(0)
    for count, probability in zip(ones, logits.sigmoid(), strict=True):
        counts = torch.stack([count, draws - count])
        both = torch.stack([probability, 1 - probability])
        assert chi_square(counts, both) < 10.83  # the 0.999 quantile, 1 degree


def test_inversion_draws_each_way_to_share_as_often_as_its_probability() -> None:
    policy, draws = policy_for(Counts(3, 3)), 100_000
    logits = torch.tensor([1.0, 0.0, -1.5])
    noise = torch.empty(draws, 3, dtype=torch.float64)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    sampled = policy.sample(logits.expand(draws, 3), noise)
    ways = all_counts(3, 3)
    index = {way: place for place, way in enumerate(ways)}
    places = torch.tensor([index[tuple(way)] for way in sampled.tolist()])
    counts = torch.bincount(places, minlength=len(ways))
    probabilities = EnumeratedMultinomial(3, logits.double()).every_log_prob().exp()
    assert chi_square(counts, probabilities) < 27.88  # the 0.999 quantile, 9 degrees


def test_a_uniform_number_chooses_the_bin_that_it_falls_in() -> None:
    """The law of inversion by its intervals, their ends included."""
    policy = policy_for(Counts(1, 4))
    logits = torch.tensor([0.5, 0.25, 0.0, 0.25], dtype=torch.float64).log()
    for uniform, wanted in [(0.0, 0), (0.4999, 0), (0.5, 1), (0.7499, 1), (0.75, 3), (1.0, 3)]:
        noise = torch.full((1, 1), uniform, dtype=torch.float64)
        assert policy.sample(logits.unsqueeze(0), noise).argmax() == wanted


@pytest.mark.parametrize(("total", "bins"), [(1, 3), (4, 3), (7, 2), (6, 4)])
def test_the_mode_of_counts_is_the_best_of_all_ways(total: int, bins: int) -> None:
    policy = policy_for(Counts(total, bins))
    generator = torch.Generator().manual_seed(0)
    outputs = 2 * torch.randn(30, bins, generator=generator, dtype=torch.float64)
    outputs = torch.cat([outputs, torch.zeros(1, bins)])
    law = EnumeratedMultinomial(total, outputs)
    best = law.every_log_prob().amax(0)
    torch.testing.assert_close(law.log_prob(policy.mode(outputs)), best)


def test_parts_of_a_composite_are_drawn_as_alone() -> None:
    """The joint law of a Tuple is the product of its parts' laws."""
    policy, draws = policy_for(spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(1)])), 100_000
    outputs = torch.tensor([1.0, 0.0, -1.0, 0.7])
    noise = torch.empty(draws, *policy.noise_shape)
    policy.fill_noise(noise, torch.Generator().manual_seed(1))
    index, bit = policy.sample(outputs.expand(draws, 4), noise).unbind(-1)
    counts = torch.bincount(2 * index + bit, minlength=6)
    one = outputs[3].sigmoid()
    joint = torch.outer(outputs[:3].softmax(-1), torch.stack([1 - one, one])).reshape(-1)
    assert chi_square(counts, joint) < 20.52  # the 0.999 quantile, 5 degrees


def squashed() -> tuple[Policy, Tensor]:
    """The policy of a bounded box of two numbers, and outputs with σ from 0.2 to 1.2."""
    policy = policy_for(spaces.Box(-1, 1, (2,)), squash=True)
    outputs = torch.tensor(
        [[0.0, 0.3, -1.6, 0.2], [1.0, -2.0, 0.0, -0.5], [-0.4, 0.1, -0.1, -1.0]],
        dtype=torch.float64,
    )
    return policy, outputs


def test_the_eligibility_of_a_squashed_number_is_that_of_its_density() -> None:
    policy, outputs = squashed()
    noise = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).double().clamp(-2, 2)
    numbers = outputs[:, :2] + outputs[:, 2:].exp() * noise
    leaf = outputs.clone().requires_grad_()
    density = TransformedDistribution(
        Normal(leaf[:, :2], leaf[:, 2:].exp()), [TanhTransform()], validate_args=False
    )
    (wanted,) = torch.autograd.grad(density.log_prob(numbers.tanh()).sum(), leaf)
    torch.testing.assert_close(policy.eligibility(outputs, numbers), wanted, rtol=1e-9, atol=1e-9)


def test_the_entropy_of_a_squashed_number_is_that_of_its_density() -> None:
    """−∫ p(y) ln p(y) dy over a fine grid, differentiated by autograd."""
    policy, outputs = squashed()
    leaf = outputs.clone().requires_grad_()
    grid = torch.linspace(-14, 14, 40_001, dtype=torch.float64)
    law = Normal(leaf[:, :2].unsqueeze(-1), leaf[:, 2:].exp().unsqueeze(-1))
    slope = (4 * torch.cosh(grid) ** -2 / 4).log()  # ln dy/du
    log_density = law.log_prob(grid) - slope
    wanted = -torch.trapezoid(law.log_prob(grid).exp() * log_density, grid, dim=-1).sum(-1)
    (gradient,) = torch.autograd.grad(wanted.sum(), leaf)
    entropy, entropy_gradient = policy.entropy(outputs)
    torch.testing.assert_close(entropy, wanted.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(entropy_gradient, gradient, rtol=1e-5, atol=1e-5)


def test_squashed_numbers_stay_within_their_bounds() -> None:
    space = spaces.Box(np.array([0, -10], "f"), np.array([2, 10], "f"))
    policy = policy_for(space, squash=True)
    numbers = torch.tensor([[0.0, 0.5], [50.0, -50.0]])
    actions = policy.to_environment(numbers)
    np.testing.assert_allclose(actions, [[1.0, 10 * np.tanh(0.5)], [2, -10]], rtol=1e-6)
    assert all(space.contains(action) for action in actions)


def test_a_discrete_space_that_does_not_start_at_zero_is_shifted() -> None:
    policy = policy_for(spaces.Discrete(3, start=-1))
    assert policy.to_environment(torch.tensor([0, 1, 2])).tolist() == [-1, 0, 1]
    several = policy_for(spaces.MultiDiscrete([[2], [3]], start=[[5], [7]]))
    assert several.to_environment(torch.tensor([[1, 2]])).tolist() == [[[6], [9]]]


def test_a_box_is_measured_from_its_middle_and_clipped_at_its_ends() -> None:
    policy = policy_for(spaces.Box(np.array([-2, 0, -np.inf], "f"), np.array([2, 10, 1], "f")))
    numbers = torch.tensor([[0.5, 0.5, 0.5], [-3.0, 3.0, 30.0]])
    assert policy.to_environment(numbers).tolist() == [[1.0, 7.5, 0.5], [-2.0, 10.0, 1.0]]


@pytest.mark.parametrize(
    ("env", "optimum", "action"),
    [("Indices", 2.0, [2, 1]), ("Bits", 3.0, [[1], [0], [1]])],
)
def test_the_optimum_of_a_one_step_task_is_found(
    env: str, optimum: float, action: list[object]
) -> None:
    model = Reinforce(HERE + f"{env}-v0", steps=40_000, stop_at=optimum - 0.02).learn()
    assert model.progress.solved
    assert model.predict(np.array([1, 0], np.float32)).tolist() == action
    assert model.evaluate(10).mean_return == optimum


def test_the_optimum_of_a_continuous_one_step_task_is_found() -> None:
    model = Reinforce(HERE + "Target-v0", steps=40_000, stop_at=-0.02, learning_rate=0.01).learn()
    assert model.progress.solved
    assert model.predict(np.array([1, 0], np.float32)).tolist() == pytest.approx([1.5, -3], abs=0.3)
    log_scale = model.network.constants.detach()
    assert (log_scale < math.log(0.5)).all()  # the noise costs return: it is learned away


def test_a_gaussian_policy_comes_back_from_its_checkpoint(tmp_path) -> None:
    model = Reinforce(HERE + "Target-v0").learn(total_steps=500)
    model.save(tmp_path / "model")
    observation = np.array([1, 0], np.float32)
    loaded = Reinforce.load(tmp_path / "model", allow_modules=[HERE.partition(":")[0]])
    assert loaded.predict(observation).tolist() == model.predict(observation).tolist()
    assert loaded.predict(observation).dtype == np.float32


def test_an_unsupported_action_space_is_refused() -> None:
    text = spaces.Text(3, charset="a")
    for space, place in [(text, ""), (spaces.Dict({"a": spaces.Tuple([text])}), " at `a.0`")]:
        message = (
            f"the action space{place}: got Text(1, 3, charset=a), expected Discrete, "
            "MultiDiscrete, MultiBinary, Counts, Box of floating-point numbers, or a Dict or Tuple "
            "of these; wrap the environment, for instance in gymnasium.wrappers.TransformAction"
        )
        with pytest.raises(InvalidTypeError, match=f"^{re.escape(message)}$"):
            policy_for(space)


def test_there_must_be_something_to_squash() -> None:
    message = (
        "`squash_actions`: got True, expected a Box among the actions; Discrete(2) has none: "
        "omit it"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(message)}$"):
        policy_for(spaces.Discrete(2), squash=True)
    message = (
        "`squash_actions`: got Box(0.0, inf, (1,), float32), expected lower and upper bounds on "
        "every number; omit it, or bound the numbers with gymnasium.wrappers.TransformAction"
    )
    with pytest.raises(InvalidValueError, match=f"^{re.escape(message)}$"):
        policy_for(spaces.Box(0, np.inf, (1,)), squash=True)


@pytest.mark.parametrize("own", [False, True])
def test_the_noise_is_as_wide_at_first_as_asked_for(own: bool) -> None:
    """3,200 draws around their means: the standard error of their deviation is 1.3 %."""
    network = (lambda outputs: torch.nn.Linear(3, outputs)) if own else None
    model = Reinforce("Pendulum-v1", network=network, environments=16, initial_deviation=0.3)
    rollout = model.shards.collect(model.network, 0)
    with torch.no_grad():
        means = model.network(rollout.observations[rollout.alive])[:, :1]
    deviation = float((rollout.actions[rollout.alive] - means).std())
    assert deviation == pytest.approx(0.3, rel=0.05)
