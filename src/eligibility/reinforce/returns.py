"""What an action is credited with: the discounted sum of the rewards that follow it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor

from eligibility.arguments import check_given, check_tensors
from eligibility.errors import ShapeError
from eligibility.scalars import check_numbers
from eligibility.shapes import check_shape


def rewards_to_go(
    rewards: Num[Tensor, T * batch],
    discount: float,
    *,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap: Tensor | None = None,
) -> Num[Tensor, T * batch]:
    r"""Rewards-to-go ``G_t = r_t + γ G_{t+1}`` within each episode.

    At the end of an episode ``G_{t+1}`` is 0 after a termination, because nothing follows, and
    ``bootstrap`` after a truncation, because something would have followed. A column may contain
    several episodes in sequence. An episode that is unfinished in the last row counts as truncated
    there.

    Args:
        rewards: r, shape ``[T, *batch]``, time first.
        discount: γ in [0, 1].
        terminated: True where the environment reached an end of the task, shape of ``rewards``.
        truncated: True where the episode was cut off (a time limit), shape of ``rewards``. Where
            both are True, the episode terminated.
        bootstrap: An estimate of the value after step t, V(s_{t+1}), shape of ``rewards``; read
            only where an episode was truncated. None: 0, which makes the time limit a part of
            the task.

    Returns:
        G, shape of ``rewards``, in their dtype (float32 for integers).

    Raises:
        ShapeError: The shapes differ; nothing is broadcast.
        InvalidTypeError: ``terminated`` or ``truncated`` is not boolean.
        InvalidValueError: ``discount`` is outside [0, 1].

    Notes:
        ⌈log₂ T⌉ tensor operations: after k of them each row holds the sum of its next 2ᵏ rewards.

    Example:
        >>> reward = torch.ones(4)
        >>> end = torch.tensor([False, False, False, True])
        >>> rewards_to_go(reward, 0.5, terminated=end, truncated=torch.zeros(4, dtype=torch.bool))
        tensor([1.8750, 1.7500, 1.5000, 1.0000])
        >>> rewards_to_go(reward, 0.5, terminated=~end & end, truncated=end,
        ...               bootstrap=torch.full((4,), 2.0))
        tensor([2., 2., 2., 2.])

    References:
        Sutton & Barto 2018, eq. (3.9); Pardo et al. 2018, "Time limits in reinforcement
        learning", for the two kinds of end.
    """
    _check(rewards, discount, bootstrap, terminated=terminated, truncated=truncated)
    total = rewards.clone() if rewards.is_floating_point() else rewards.float()
    cut = truncated & ~terminated
    cut[-1] |= ~terminated[-1]
    if bootstrap is not None:
        total = total + discount * torch.where(cut, bootstrap, 0).to(total.dtype)
    # The weight with which the sum that starts `stride` rows later enters this row's.
    weight = torch.full_like(total, discount).masked_fill(terminated | cut, 0)
    stride = 1
    while stride < len(total):
        later = torch.where(weight[:-stride] == 0, 0, weight[:-stride] * total[stride:])
        total = torch.cat([total[:-stride] + later, total[-stride:]])
        weight = torch.cat([weight[:-stride] * weight[stride:], torch.zeros_like(weight[-stride:])])
        stride *= 2
    return total


def generalized_advantages(
    rewards: Num[Tensor, T * batch],
    values: Float[Tensor, T * batch],
    next_values: Float[Tensor, T * batch],
    discount: float,
    lambda_: float,
    *,
    terminated: Tensor,
    truncated: Tensor,
) -> Float[Tensor, T * batch]:
    r"""``A_t = Σ_k (γλ)ᵏ δ_{t+k}`` with ``δ_t = r_t + γ V(s_{t+1}) − V(s_t)``, within each episode.

    λ = 1 is the reward-to-go minus V(s_t), unbiased for any V, as long as episodes end by
    termination. A smaller λ replaces later rewards by V: less variance, but the bias of V.

    Args:
        rewards: r, shape ``[T, *batch]``, time first.
        values: V(s_t), shape of ``rewards``.
        next_values: V(s_{t+1}), shape of ``rewards``; not read where the episode terminated.
        discount: γ in [0, 1].
        lambda_: λ in [0, 1].
        terminated: True where the environment reached an end of the task.
        truncated: True where the episode was cut off.

    Returns:
        A, shape of ``rewards``.

    Raises:
        ShapeError, InvalidTypeError, InvalidValueError: As `rewards_to_go`.

    Example:
        >>> no = torch.tensor([False, False])
        >>> end = torch.tensor([False, True])
        >>> generalized_advantages(torch.ones(2), torch.zeros(2), torch.ones(2), 1.0, 0.5,
        ...                        terminated=end, truncated=no)
        tensor([2.5000, 1.0000])

    References:
        Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
        estimation", eq. (16).
    """
    check_numbers(lambda_=lambda_)
    _check(rewards, discount, None, terminated=terminated, truncated=truncated)
    for name, given in (("values", values), ("next_values", next_values)):
        check_given(given, name, "pass an estimate for each step")
        check_tensors(rewards, "rewards", **{name: given})
        check_shape(given, rewards.shape, name, "the shape of rewards")
    errors = rewards + discount * torch.where(terminated, 0, next_values) - values
    return rewards_to_go(errors, discount * lambda_, terminated=terminated, truncated=truncated)


def _check(rewards: Tensor, discount: float, bootstrap: Tensor | None, **ends: Tensor) -> None:
    check_numbers(discount=discount)
    check_given(rewards, "rewards", "pass the rewards of each step")
    for name, end in ends.items():
        check_given(end, name, "pass False where nothing ends")
    check_tensors(rewards, "rewards", rewards=rewards, **ends, bootstrap=bootstrap)
    if rewards.ndim == 0 or rewards.shape[0] == 0:
        raise ShapeError(
            "`rewards`",
            f"shape {list(rewards.shape)}",
            "[T, *batch] with T >= 1",
            "put time on the first axis",
        )
    for name, given in {**ends, "bootstrap": bootstrap}.items():
        if given is not None:
            check_shape(given, rewards.shape, name, "the shape of rewards")
