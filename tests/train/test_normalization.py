"""Running normalisation: exact over any batches, on-policy, frozen when nothing is learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from eligibility.train.learner import Reinforce
from eligibility.train.network_layers import RunningNormalization


def test_merged_batches_have_the_moments_of_all_rows() -> None:
    rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * 5 + 1000
    normalization = RunningNormalization(torch.tensor([True, True, False]))
    for batch in rows.split([1, 2, 30, 67]):
        normalization.update(batch)
    exact = rows.double()
    assert normalization.count == 100
    torch.testing.assert_close(normalization.mean, exact.mean(0), rtol=1e-13, atol=0)
    variance = normalization.squares / 100
    torch.testing.assert_close(variance, exact.var(0, correction=0), rtol=1e-10, atol=0)
    normalised = normalization(rows)
    assert torch.equal(normalised[:, 2], rows[:, 2])
    assert normalised[:, :2].mean(0).abs().max() < 1e-4
    torch.testing.assert_close(normalised[:, :2].std(0, correction=0), torch.ones(2))


def test_before_the_first_update_features_pass_and_later_outliers_are_cut_off() -> None:
    normalization = RunningNormalization(torch.tensor([True]))
    assert normalization(torch.tensor([[1e9]])) == 1e9
    normalization.update(torch.zeros(3, 1))  # it has not moved yet: variance 0
    assert normalization(torch.tensor([[5.0], [-5.0], [0.0]])).squeeze(1).tolist() == [10, -10, 0]


def test_training_normalises_by_what_it_has_seen_and_evaluation_does_not() -> None:
    model = Reinforce("CartPole-v1", normalize_observations=True, environments=8)
    seen = []
    collect = model.shards.collect

    def remembering(*arguments):
        rollout = collect(*arguments)
        seen.append(rollout.observations[rollout.alive].clone())
        return rollout

    model.shards.collect = remembering
    model.learn(total_steps=500)
    normalization = model.network.normalization
    everything = torch.cat(seen).double()
    assert normalization.count == model.progress.steps == len(everything)
    torch.testing.assert_close(normalization.mean, everything.mean(0))
    before = {name: tensor.clone() for name, tensor in normalization.state_dict().items()}
    model.evaluate(5)
    model.predict(np.zeros(4, np.float32))
    assert all(torch.equal(t, before[name]) for name, t in normalization.state_dict().items())


def test_a_rollout_is_learned_from_as_it_was_acted() -> None:
    """The outputs that are differentiated are those that chose the actions."""
    model = Reinforce("CartPole-v1", normalize_observations=True, environments=8)
    counts = []
    forward = type(model.network.normalization).forward

    def counting(self, features):
        counts.append(int(self.count))
        return forward(self, features)

    model.network.normalization.forward = counting.__get__(model.network.normalization)
    model.learn(callback=lambda progress: progress.updates < 2)
    first = model.progress.steps - counts[-1]
    assert set(counts) == {0, counts[-1]}
    assert first > 0


@pytest.mark.parametrize("stop", [300, 900])
def test_a_resumed_run_with_normalisation_is_the_run_that_never_stopped(
    tmp_path: Path, stop: int
) -> None:
    options = {"normalize_observations": True, "environments": 8}
    whole = Reinforce("CartPole-v1", **options).learn(total_steps=2000)
    part = Reinforce("CartPole-v1", **options).learn(total_steps=stop)
    resumed = Reinforce.load(part.save(tmp_path / "part")).learn(total_steps=2000)
    assert resumed.save(tmp_path / "a").read_bytes() == whole.save(tmp_path / "b").read_bytes()
