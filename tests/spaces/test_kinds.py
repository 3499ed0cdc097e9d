"""What every kind of space promises to those who show it, encode it, and act in it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from eligibility.errors import InvalidTypeError
from eligibility.spaces import FREE, Counts, Numbers, kind_of, leaves_of, parts_of, put_together

SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([2, 3], start=[5, -6]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    Counts(5, 3),
    spaces.Box(-1, np.inf, (2, 2)),
]
EACH_SPACE = pytest.mark.parametrize("space", SPACES, ids=str)
CHOICES = [space for space in SPACES if not isinstance(space, spaces.Box)]


def all_but_one(values: int) -> np.ndarray[Any, Any]:
    return (np.arange(values) > 0).astype(np.int8)


def test_every_kind_has_a_space_here() -> None:
    missing = {*kind_of.registry} - {object} - {type(space) for space in SPACES}
    assert not missing, "add a space of it to SPACES"


@EACH_SPACE
def test_environments_agree_on_it_and_their_members_make_an_array(space: spaces.Space[Any]) -> None:
    assert copy.deepcopy(space) == space, f"{type(space).__name__} needs __eq__"
    batch = batch_space(space, 2)
    assert not isinstance(batch, spaces.Tuple), f"register batch_space of {type(space).__name__}"


@EACH_SPACE
def test_sizes_are_those_of_the_numbers_that_are_sampled(space: spaces.Space[Any]) -> None:
    kind = kind_of(space)
    assert kind is not None
    space.seed(0)
    numbers = np.array([np.ravel(space.sample()) for _ in range(300)])
    assert numbers.shape[1] == len(kind.sizes)
    for size, column in zip(kind.sizes, (numbers - np.ravel(kind.first)).T, strict=True):
        if size:
            assert set(column) == set(range(size))


@pytest.mark.parametrize("space", CHOICES, ids=str)
def test_members_in_turn_are_members(space: spaces.Space[Any]) -> None:
    kind = kind_of(space)
    assert kind is not None
    members = [kind.member(number).astype(space.dtype) for number in range(4)]
    assert all(member in space for member in members)
    assert len({repr(member) for member in members}) >= 3


@pytest.mark.parametrize("space", CHOICES, ids=str)
def test_a_mask_is_read_as_it_was_made(space: spaces.Space[Any]) -> None:
    kind = kind_of(space)
    assert kind is not None
    free, less = (kind.codes([kind.mask(allow)]) for allow in (lambda n: np.ones(n), all_but_one))
    assert (free == FREE).all()
    assert (less != FREE).any()
    assert not kind.stuck(free).any()
    assert not kind.stuck(less).any()


def test_numbers_have_no_mask() -> None:
    kind = kind_of(spaces.Box(-1, 1, (2,)))
    assert isinstance(kind, Numbers)
    assert kind.mask(np.ones) is None
    with pytest.raises(InvalidTypeError, match=r"^the action mask: got one for numbers of a Box"):
        kind.codes([np.ones(2)])


def test_a_composite_is_taken_apart_and_put_together() -> None:
    space = spaces.Dict(a=spaces.Tuple((SPACES[0], SPACES[3])), b=SPACES[-1])
    assert leaves_of(space) == [SPACES[0], SPACES[3], SPACES[-1]]
    assert kind_of(space) is None
    for whole in (space, space["a"]):
        member = whole.sample()
        assert put_together(whole, {key: member[key] for key in parts_of(whole)}) == member
