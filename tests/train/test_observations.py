"""Observations of every kind: what is kept, what the network sees of it, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from eligibility.errors import EligibilityError
from eligibility.reinforce.state_value import StateTable
from eligibility.spaces import kind_of
from eligibility.train.advantages import AdvantageEstimator
from eligibility.train.config import Config
from eligibility.train.learner import Reinforce
from eligibility.train.network import Network
from eligibility.train.observations import Image, Observations, observations_for
from eligibility.train.observations.observations import encoding_of
from eligibility.train.policies import policy_for

BOX = spaces.Box(-5, 5, (2, 3))
IMAGE = spaces.Box(0, 255, (8, 7, 3), np.uint8)
KINDS = {
    "Box": BOX,
    "Box of one number": spaces.Box(-1, 1, ()),
    "Box of float64": spaces.Box(-1, 1, (2,), np.float64),
    "Box of bytes": spaces.Box(0, 255, (5,), np.uint8),
    "Box of whole numbers": spaces.Box(-9, 9, (3,), np.int32),
    "image": IMAGE,
    "Discrete": spaces.Discrete(4, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([[2], [3]], start=[[5], [-1]]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "Tuple": spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2, start=1)]),
    "Dict": spaces.Dict(
        {
            "picture": IMAGE,
            "inner": spaces.Tuple([spaces.Discrete(3, start=7), BOX]),
            "bits": spaces.MultiBinary(2),
        }
    ),
}


def samples(space: spaces.Space, number: int) -> tuple[list[Any], Any]:
    """Several observations, one by one and as a vector environment returns them."""
    space.seed(0)
    single = [space.sample() for _ in range(number)]
    batch_space(space, number)
    return single, concatenate(space, single, create_empty_array(space, number))


def flattened(space: spaces.Space, observation: Any) -> np.ndarray:
    """The features by another route: Gymnasium's own flattening, with bytes divided by 255."""
    if isinstance(space, spaces.Dict):
        parts = [flattened(part, observation[key]) for key, part in space.spaces.items()]
        return np.concatenate(parts)
    if isinstance(space, spaces.Tuple):
        return np.concatenate(
            [flattened(p, o) for p, o in zip(space.spaces, observation, strict=True)]
        )
    flat = spaces.flatten(space, observation).astype(np.float32)
    bytes_ = isinstance(space, spaces.Box) and space.dtype == np.uint8
    return flat / np.float32(255) if bytes_ else flat


def kept_and_read(space: spaces.Space) -> tuple[Observations, np.ndarray, list[Any]]:
    """The encoding, five observations as a rollout keeps them, and themselves."""
    single, batch = samples(space, 5)
    observations = observations_for(space)
    kept = np.empty((5, *observations.shape), observations.dtype)
    np.copyto(kept, observations.keep(batch), casting="same_kind")
    return observations, kept, single


def test_every_encoding_has_a_space_here() -> None:
    tested = {type(kind_of(space)) for space in KINDS.values()}
    assert not {*encoding_of.registry} - {object} - tested, "add a space of it to KINDS"


@pytest.mark.parametrize("kind", KINDS)
def test_the_features_are_those_of_gymnasiums_flattening(kind: str) -> None:
    observations, kept, single = kept_and_read(KINDS[kind])
    features = observations.encode(torch.from_numpy(kept))
    assert features.dtype == torch.float32
    assert features.shape == (5, observations.features)
    wanted = np.stack([flattened(KINDS[kind], observation) for observation in single])
    assert np.array_equal(features.numpy(), wanted)
    again = observations.encode(torch.from_numpy(np.stack([kept, kept])))
    assert torch.equal(again[1], features)


@pytest.mark.parametrize("kind", KINDS)
def test_a_users_observations_are_kept_as_the_environments_are(kind: str) -> None:
    observations, kept, single = kept_and_read(KINDS[kind])
    for row, observation in zip(kept, single, strict=True):
        read, several = observations.read(observation)
        assert not several
        assert np.array_equal(read[0], row)
    read, several = observations.read(samples(KINDS[kind], 5)[1])
    assert several
    assert np.array_equal(read, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_network_sees_every_kind(kind: str) -> None:
    observations, kept, _ = kept_and_read(KINDS[kind])
    policy = policy_for(spaces.Discrete(3))
    for normalize in (False, True):
        generator = torch.Generator().manual_seed(0)
        network = Network(observations, (8,), policy, generator, normalize=normalize)
        network.observe(torch.from_numpy(kept))
        outputs = network(torch.from_numpy(kept))
        assert outputs.shape == (5, 3)
        outputs.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("space", [spaces.Discrete(200, start=3), spaces.MultiDiscrete([150, 60])])
def test_looking_weights_up_is_multiplying_by_one_hot_rows(space: spaces.Space) -> None:
    observations, kept, _ = kept_and_read(space)
    generator = torch.Generator().manual_seed(0)
    network = Network(observations, (8,), policy_for(spaces.Discrete(3)), generator)
    network.double()
    seen = torch.from_numpy(kept)
    upstream = torch.randn(5, 3, dtype=torch.float64)
    got = torch.autograd.grad(network(seen), list(network.parameters()), upstream)
    plain = network.layers(observations.encode(seen).double())
    torch.testing.assert_close(network(seen), plain)
    wanted = torch.autograd.grad(plain, list(network.parameters()), upstream)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_arranged_observations_have_the_form_of_their_space() -> None:
    observations, kept, single = kept_and_read(KINDS["Dict"])
    stored = torch.from_numpy(kept)
    arranged = observations.arrange(stored, observations.encode(stored))
    for i, observation in enumerate(single):
        picture = torch.from_numpy(observation["picture"]) / 255
        assert torch.equal(arranged["picture"][i], picture)
        index, numbers = arranged["inner"]
        assert index.dtype == torch.int64
        assert int(index[i]) == observation["inner"][0] - 7
        assert torch.equal(numbers[i], torch.from_numpy(observation["inner"][1]))
        assert torch.equal(arranged["bits"][i], torch.from_numpy(observation["bits"]).float())


@pytest.mark.parametrize(
    ("shape", "dtype", "channel_axis"),
    [
        ((84, 84, 3), np.uint8, 2),
        ((4, 84, 84), np.uint8, 0),
        ((84, 84, 1), np.float32, 2),
        ((84, 84), np.uint8, None),
        ((7, 7, 3), np.uint8, 2),
    ],
)
def test_images_are_recognised_and_turned_channels_first(
    shape: tuple[int, ...], dtype: type, channel_axis: int | None
) -> None:
    (image,) = observations_for(spaces.Box(0, 255, shape, dtype)).images
    assert image == Image(0, shape, channel_axis)
    features = torch.arange(float(np.prod(shape))).unsqueeze(0)
    wanted = features.reshape(shape).numpy()
    wanted = wanted[None] if channel_axis is None else np.moveaxis(wanted, channel_axis, 0)
    assert np.array_equal(image.channels_first(features)[0].numpy(), wanted)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((84, 84), np.float32), ((4, 84, 3), np.uint8), ((128,), np.uint8)]
)
def test_other_boxes_are_flat_numbers(shape: tuple[int, ...], dtype: type) -> None:
    assert observations_for(spaces.Box(0, 255, shape, dtype)).images == ()


def test_keys_choose_what_the_network_sees() -> None:
    space = spaces.Dict({"a": BOX, "text": spaces.Text(5), "b": spaces.Discrete(2)})
    observations = observations_for(space, ("b", "a"))
    kept, _ = observations.read({"text": "what?", **{k: space[k].sample() for k in "ab"}})
    assert kept.shape == (1, 7)


@pytest.mark.parametrize(
    ("space", "keys", "text"),
    [
        (
            spaces.Text(3, charset="a"),
            None,
            "the observation space: got Text(1, 3, charset=a), expected Box, Discrete, "
            "MultiDiscrete, MultiBinary, or a Dict or Tuple of these; exclude it with "
            "observation_keys, or wrap the environment in "
            "gymnasium.wrappers.TransformObservation",
        ),
        (
            spaces.Dict({"a": spaces.Tuple([BOX, spaces.Text(9)])}),
            None,
            "the observation space at `a.1`: got Text, expected Box, Discrete, "
            "MultiDiscrete, MultiBinary, or a Dict or Tuple of these; exclude it with "
            "observation_keys, or wrap the environment in "
            "gymnasium.wrappers.TransformObservation",
        ),
        (
            spaces.Dict({"a": BOX}),
            ("b",),
            "`observation_keys`: got 'b', expected a; choose keys of the observation space",
        ),
        (
            BOX,
            ("b",),
            "`observation_keys`: got 'b', expected no keys: the observation space is not a Dict; "
            "choose keys of the observation space",
        ),
    ],
)
def test_a_space_is_refused(space: spaces.Space, keys: tuple[str, ...], text: str) -> None:
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        observations_for(space, keys)


@pytest.mark.parametrize(
    ("kind", "observation", "text"),
    [
        ("Box", np.zeros((3, 2)), "shape [3, 2], expected [2, 3], or several of them along a "
         "first axis"),
        ("Box", "three", "str of <U5, expected numbers of shape [2, 3]"),
        ("Box", [[1, 2], [3]], "list of object, expected numbers of shape [2, 3]"),
        ("Discrete", 3, "3, expected whole numbers in [-1, 3)"),
        ("Discrete", 0.5, "float of float64, expected whole numbers of shape []"),
        ("image", np.full((8, 7, 3), 256), "256, expected whole numbers in [0, 256)"),
        ("MultiDiscrete", [[6], [2]], "2, expected indices of the space"),
        ("MultiBinary", [[0, 1], [2, 0]], "2, expected whole numbers in [0, 2)"),
        ("Tuple", [1, 2], "list, expected a tuple of 2"),
        ("Tuple", (np.zeros(2, int), 1), "parts with 2, 1 rows, expected the same number of rows "
        "in each part"),
        ("Dict", {"bits": [0, 1]}, "dict with bits, expected a dict with bits, inner, picture"),
        ("Dict", {"bits": 0, 3: 1}, "dict with 3, bits, expected a dict with bits, inner, picture"),
        ("Dict", 7, "int, expected a dict with bits, inner, picture"),
    ],
)  # fmt: skip
def test_an_observation_is_refused(kind: str, observation: Any, text: str) -> None:
    whole = f"`observation`: got {text}; pass what the environment returned"
    with pytest.raises(EligibilityError, match=f"^{re.escape(whole)}$"):
        observations_for(KINDS[kind]).read(observation)


@pytest.mark.parametrize("convolution", [True, False])
def test_what_a_picture_shows_is_learned(convolution: bool) -> None:
    model = Reinforce(
        "tests.train.environments:Pictures-v0",
        convolution=convolution,
        steps=20_000,
        stop_at=0.99,
        entropy_coef=0.01,
    ).learn()
    assert model.progress.solved
    assert model.evaluate(20).mean_return == 1
    assert bool(model.network.convolutions) is convolution


def test_numbers_with_bounds_are_measured_as_if_they_were_uniform() -> None:
    low = np.array([-4, -np.inf, 1, -3.4e38], np.float32)
    high = np.array([4, np.inf, 3, 3.4e38], np.float32)
    space = spaces.Dict(numbers=spaces.Box(low, high), pixels=spaces.Box(0, 255, (2,), np.uint8))
    observations = observations_for(space, scale=True)
    seen = {"numbers": np.array([[2, 7, 3, 5]], "f"), "pixels": np.array([[0, 255]], np.uint8)}
    encoded = observations.encode(torch.from_numpy(observations.keep(seen)))
    wanted = torch.tensor([[2 / (8 / 12**0.5), 7, 3**0.5, 5, 0, 1]])
    torch.testing.assert_close(encoded, wanted)
    read, _ = observations.read({key: array[0] for key, array in seen.items()})
    assert torch.equal(observations.encode(torch.from_numpy(read)), encoded)


def test_the_state_value_of_large_pictures_is_refused() -> None:
    space = spaces.Box(0, 255, (84, 84), np.uint8)
    text = (
        "`baseline`: got state-value for observations of 7,056 numbers, expected at most 2,048: it "
        "solves a linear system of twice their number; choose another baseline, such as "
        "time-dependent-leave-one-out"
    )
    with pytest.raises(EligibilityError, match=f"^{re.escape(text)}$"):
        AdvantageEstimator(Config("any", baseline="state-value"), observations_for(space))


@pytest.mark.parametrize(
    "make", [lambda n: spaces.Discrete(n, start=3), lambda n: spaces.Tuple([spaces.Discrete(n)])]
)
def test_the_state_value_of_one_index_is_a_table_of_any_size(make: Any) -> None:
    made = AdvantageEstimator(Config("any", baseline="state-value"), observations_for(make(5000)))
    table = made.baselines["state-value"]
    assert isinstance(table, StateTable)
    assert table.counts.shape == (5000,)


def test_episodes_with_one_hot_parts_go_through_vmap_together() -> None:
    """As a baseline of weights has them; a missing batching rule would warn, and be slow."""
    model = Reinforce(
        "tests.train.environments:Pictures-v0", baseline="per-weight", environments=4
    ).learn(total_steps=16)
    assert model.progress.updates == 4
