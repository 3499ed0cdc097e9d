"""Tabular Markov decision processes: every trajectory with its probability, and the exact return.

The expected return comes by two routes that share no code: `TabularMDP.law` lists the
trajectories, `TabularMDP.expected_return` solves the Bellman equation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from eligibility.errors import InvalidValueError
from eligibility.reinforce.exact.law import DEFAULT_LIMIT, Law, check_limit
from eligibility.shapes import check_shape


@dataclass(frozen=True)
class Trajectories:
    """Episodes, padded on the right to the longest; indexable by an index tensor of any shape.

    Attributes:
        states: The state in which each action was taken, ``[*batch, T]``.
        actions: ``[*batch, T]``.
        rewards: ``[*batch, T]``; 0 in the padding.
        taken: False in the padding, ``[*batch, T]``.
        final_state: The state after the last action, ``[*batch]``.
        terminated: The episode ended in a terminal state, not at the horizon, ``[*batch]``.
    """

    states: Int[Tensor, "*batch T"]
    actions: Int[Tensor, "*batch T"]
    rewards: Float[Tensor, "*batch T"]
    taken: Bool[Tensor, "*batch T"]
    final_state: Int[Tensor, "*batch"]
    terminated: Bool[Tensor, "*batch"]

    def __getitem__(self, index: Tensor | int) -> Trajectories:
        return Trajectories(**{name: field[index] for name, field in vars(self).items()})

    def __len__(self) -> int:
        return self.states.shape[0]

    def discounted_return(self, discount: float = 1.0) -> Float[Tensor, "*batch"]:
        """``Σ_t γᵗ r_t`` of each episode."""
        steps = torch.arange(self.rewards.shape[-1], device=self.rewards.device)
        return (discount**steps * self.rewards).sum(-1)


@dataclass(frozen=True)
class TabularMDP:
    """A Markov decision process with finitely many states and actions.

    Args:
        transition: ``p(s' | s, a)``, shape ``[states, actions, states]``.
        reward: The reward on each such arrow, same shape.
        initial: The distribution of the first state, ``[states]``; no mass on a terminal state.
        terminal: The states in which an episode ends, boolean ``[states]``.
        horizon: The number of steps after which an episode is cut; None: never.

    Raises:
        ShapeError, InvalidValueError: The tables do not describe a process.

    Example:
        One state, two actions: "stop" pays 1, "go" pays 0 and stays, at most two steps.

        >>> end = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
        >>> pay = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
        >>> mdp = TabularMDP(end, pay, torch.tensor([1.0, 0.0]), torch.tensor([False, True]), 2)
        >>> trajectories = mdp.law(torch.zeros(2, 2))
        >>> trajectories.probs
        tensor([0.5000, 0.2500, 0.2500])
        >>> trajectories.values.actions.tolist(), trajectories.values.terminated.tolist()
        ([[0, 0], [1, 0], [1, 1]], [True, True, False])
        >>> mdp.expected_return(torch.zeros(2, 2))
        tensor(0.7500)
    """

    # The sizes are checked below, with a message that names the table.
    transition: Float[Tensor, "*_"]
    reward: Float[Tensor, "*_"]
    initial: Float[Tensor, "*_"]
    terminal: Bool[Tensor, "*_"]
    horizon: int | None

    def __post_init__(self) -> None:
        arrows, states = torch.Size((*self.shape, self.shape[0])), torch.Size(self.shape[:1])
        wanted = {"transition": arrows, "reward": arrows, "initial": states, "terminal": states}
        for name, shape in wanted.items():
            why = "as the tables are over [states, actions, states]"
            check_shape(getattr(self, name), shape, name, why)
        _check_distribution(self.transition, "transition")
        _check_distribution(self.initial, "initial")
        if bool((self.initial[self.terminal] > 0).any()):
            raise InvalidValueError(
                "`initial`", "mass on a terminal state", "none", "an episode has at least one step"
            )
        if self.horizon is not None and self.horizon < 1:
            raise InvalidValueError("`horizon`", str(self.horizon), "at least 1, or None", "set it")

    def law(self, logits: Float[Tensor, "states actions"], *, limit: int = DEFAULT_LIMIT) -> Law:
        """Every possible trajectory under the policy ``softmax(logits[s])``.

        ``log p(τ) = log ρ(s_0) + Σ_t [log π(a_t | s_t) + log p(s_{t+1} | s_t, a_t)]``

        Args:
            logits: A table, differentiable; −inf forbids an action. Compute it from shared
                parameters for an aliased or a parametric policy.
            limit: The largest number of trajectories to enumerate.

        Returns:
            A law over `Trajectories`, ``log_probs`` differentiable in the logits; episodes in
            the order of their length.

        Raises:
            InvalidValueError: No horizon, or more than ``limit`` trajectories.
        """
        log_policy = self._log_policy(logits)
        possible = (self.transition > 0) & (log_policy.detach() > -math.inf)[:, :, None]
        horizon = self._check_enumerable(possible, limit)
        log_transition = self.transition.log().to(log_policy)
        state = self.initial.nonzero().squeeze(1)
        log_prob = self.initial[state].log().to(log_policy)
        # States, actions and rewards so far, ``[paths, steps]`` each.
        history = [like.new_zeros(len(state), 0) for like in (state, state, self.reward)]
        episodes, log_probs = [], []
        for step in range(horizon):
            path, action, following = possible[state].nonzero(as_tuple=True)
            origin = state[path]
            arrow = (origin, action, following)
            log_prob = log_prob[path] + log_policy[origin, action] + log_transition[arrow]
            history = [
                torch.cat([past[path], column[:, None]], 1)
                for past, column in zip(history, (origin, action, self.reward[arrow]), strict=True)
            ]
            state, over = following, self.terminal[following]
            for ended, is_terminal in ((over, True), (~over & (step == horizon - 1), False)):
                episodes.append(_pad(history, state, ended, horizon, is_terminal))
                log_probs.append(log_prob[ended])
            state, log_prob = state[~over], log_prob[~over]
            history = [past[~over] for past in history]
        fields = {name: [vars(e)[name] for e in episodes] for name in vars(episodes[0])}
        values = Trajectories(**{name: torch.cat(parts) for name, parts in fields.items()})
        return Law(values, torch.cat(log_probs))

    def state_values(
        self, logits: Float[Tensor, "states actions"], discount: float = 1.0
    ) -> Float[Tensor, " states"]:
        """``v(s) = E[Σ_t γᵗ r_t | s_0 = s]`` from the Bellman equation; 0 in terminal states.

        Args:
            logits: The policy's table, differentiable.
            discount: γ.

        Raises:
            InvalidValueError: No horizon, and the policy does not end its episodes.
        """
        policy = self._log_policy(logits).exp()
        running = ~self.terminal
        joint = policy[:, :, None] * self.transition.to(policy)
        onward = joint.sum(1) * (running[:, None] & running)
        paid = (joint * self.reward.to(policy)).sum((1, 2)) * running
        if self.horizon is None:
            identity = torch.eye(len(paid), dtype=paid.dtype, device=paid.device)
            solution: Tensor
            solution, singular = torch.linalg.solve_ex(identity - discount * onward, paid)
            if bool(singular):
                raise InvalidValueError(
                    "`logits`",
                    "a policy whose episodes never end",
                    "a terminal state reachable from every state, or a discount below 1",
                    "give the process a horizon",
                )
            return solution
        values = torch.zeros_like(paid)
        for _ in range(self.horizon):
            values = paid + discount * onward @ values
        return values

    def expected_return(
        self, logits: Float[Tensor, "states actions"], discount: float = 1.0
    ) -> Float[Tensor, ""]:
        """``J = Σ_s ρ(s) v(s)``, differentiable: its gradient is the exact policy gradient."""
        values = self.state_values(logits, discount)
        return self.initial.to(values) @ values

    @property
    def shape(self) -> tuple[int, int]:
        """The number of states and of actions."""
        return self.transition.shape[0], self.transition.shape[1]

    def _log_policy(self, logits: Tensor) -> Tensor:
        check_shape(logits, torch.Size(self.shape), "logits", "[states, actions]")
        return torch.log_softmax(logits, -1)

    def _check_enumerable(self, possible: Tensor, limit: int) -> int:
        """Raise unless the trajectories are finite and few enough; returns the horizon."""
        if self.horizon is None:
            raise InvalidValueError(
                "`horizon`", "None", "a number of steps", "there are infinitely many trajectories"
            )
        arrows = possible.sum(1).double()  # how many actions lead from s to s'
        at = (self.initial > 0).double()
        ended = 0.0
        for _ in range(self.horizon):
            at = at @ arrows
            ended += float(at[self.terminal].sum())
            at = at * ~self.terminal
        count = ended + float(at.sum())
        shown = int(count) if math.isfinite(count) else 10**308
        check_limit(shown, "trajectories", limit, "use a shorter horizon, or raise `limit`")
        return self.horizon


def _check_distribution(table: Tensor, name: str) -> None:
    """Raise unless the last axis holds probabilities."""
    totals = table.sum(-1)
    tolerance = math.sqrt(torch.finfo(table.dtype).eps)
    if bool((table < 0).any()) or bool(((totals - 1).abs() > tolerance).any()):
        raise InvalidValueError(
            f"`{name}`",
            f"a minimum of {float(table.min()):g} and sums from {float(totals.min()):g} to "
            f"{float(totals.max()):g}",
            "probabilities that sum to 1 along the last axis",
            "fill the rows of terminal states too, for instance with a step to themselves",
        )


def _pad(
    history: list[Tensor], state: Tensor, ended: Tensor, horizon: int, is_terminal: bool
) -> Trajectories:
    """The episodes that ended at this step, padded to the horizon."""
    steps = history[0].shape[1]
    states, actions, rewards = (
        torch.nn.functional.pad(past[ended], (0, horizon - steps)) for past in history
    )
    return Trajectories(
        states,
        actions,
        rewards,
        taken=(torch.arange(horizon, device=state.device) < steps).expand(states.shape),
        final_state=state[ended],
        terminated=torch.full_like(state[ended], is_terminal, dtype=torch.bool),
    )
