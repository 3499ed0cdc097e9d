"""The named directions of a language model's gradient, for any differentiable policy.

A prompt's answers are listed, so every expectation is a sum: an objective is a number of the
enumerated log-probabilities, and its direction is its gradient by whatever parameters they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Answers:
    """Every answer to one prompt, as a policy and a reference see it.

    Attributes:
        log_probs: [A, T, V] log π(· | prompt, tokens before t); carries the gradient.
        ref_log_probs: [A, T, V] of the reference.
        tokens: [A, T] integers.
        mask: [A, T] 1.0 up to and with the last token.
        rewards: [A].
        drawn: [A] probability with which each answer is drawn; None: the policy's own.
    """

    log_probs: Tensor
    ref_log_probs: Tensor
    tokens: Tensor
    mask: Tensor
    rewards: Tensor
    drawn: Tensor | None = None


def objectives(answers: Answers) -> dict[str, Tensor]:
    """The numbers whose gradients have names; each is a scalar of one prompt.

    With s_t what precedes token t, and E over the answers (where it is not differentiated, those
    that are drawn):

    - ``reward``: E[R].
    - ``kl-reverse``: KL(π‖ref) of whole answers, E[log π(answer) − log ref(answer)].
    - ``kl-states``: Σ_t E[KL(π(·|s_t)‖ref(·|s_t))], the E not differentiated: the states' own.
    - ``kl-forward``: Σ_t E[KL(ref(·|s_t)‖π(·|s_t))], likewise.
    - ``entropy``: of whole answers, −E[log π(answer)].
    - ``entropy-states``: Σ_t E[H(π(·|s_t))], likewise of the states alone.

    Example:
        >>> logits = torch.zeros(2, 1, 2, dtype=torch.float64).log_softmax(-1)
        >>> both = Answers(logits, logits, torch.tensor([[0], [1]]), torch.ones(2, 1),
        ...                torch.tensor([1.0, 0.0], dtype=torch.float64))
        >>> round(objectives(both)["reward"].item(), 6), objectives(both)["kl-reverse"].item()
        (0.5, 0.0)

    References:
        The chain rule of the relative entropy: Cover and Thomas 2006, Theorem 2.5.3.
    """
    own, reference = answers.log_probs, answers.ref_log_probs
    taken, ref_taken = (_of_answers(x, answers) for x in (own, reference))
    prob = taken.exp()
    drawn = prob.detach() if answers.drawn is None else answers.drawn
    reverse = (own.exp() * (own - reference)).sum(-1)  # [A, T]
    forward = (reference.exp() * (reference - own)).sum(-1)
    entropy = -(own.exp() * own).sum(-1)

    def of_states(values: Tensor) -> Tensor:
        return drawn @ (values * answers.mask).sum(-1)

    return {
        "reward": prob @ answers.rewards,
        "kl-reverse": prob @ (taken - ref_taken),
        "kl-states": of_states(reverse),
        "kl-forward": of_states(forward),
        "entropy": -(prob @ taken),
        "entropy-states": of_states(entropy),
    }


def directions(prompts: Sequence[Answers], parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """The gradient of each objective, of the mean over the prompts, by all parameters together.

    Args:
        prompts: Every answer to each prompt.
        parameters: Tensors that the log-probabilities depend on.

    Returns:
        [N] by name, where N counts the numbers in ``parameters``.
    """
    each = [objectives(answers) for answers in prompts]
    found = {}
    for name in each[0]:
        mean = torch.stack([values[name] for values in each]).mean()
        gradients = torch.autograd.grad(
            mean, list(parameters), retain_graph=True, allow_unused=True
        )
        found[name] = flat(gradients, parameters)
    return found


def flat(gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """[N] the gradients by some parameters, one after the other; 0 where there is none."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


@dataclass(frozen=True)
class Decomposition:
    """An expected gradient as a sum of named directions.

    Attributes:
        coefficients: By name; those of directions that take no part are left out.
        residual: ‖what no name explains‖ / ‖the whole‖; 0 if the whole is 0.
    """

    coefficients: Mapping[str, float]
    residual: float


def decompose(
    expected: Tensor, named: Mapping[str, Tensor], tolerance: float = 1e-9
) -> Decomposition:
    """The least-squares coefficients of an expected ascent direction in the named ones.

    A direction that is a sum of those before it (on the probe) is left out, so the coefficients are
    unique; so is one whose share of the whole is below ``tolerance``.

    Args:
        expected: [N] the negative of the loss's expected gradient.
        named: [N] each, in order of preference.
        tolerance: Relative to the norm of ``expected``.

    Example:
        >>> named = {"reward": torch.tensor([1.0, 0.0]), "entropy": torch.tensor([1.0, 1.0])}
        >>> found = decompose(torch.tensor([3.0, 1.0]), named).coefficients
        >>> {name: round(value, 5) for name, value in found.items()}
        {'reward': 2.0, 'entropy': 1.0}
    """
    size = expected.norm()
    if size == 0:
        return Decomposition({}, 0.0)
    kept: dict[str, Tensor] = {}
    for name, direction in named.items():
        if direction.norm() > 0 and _beyond(direction, list(kept.values())) > 1e-8:
            kept[name] = direction
    if not kept:
        return Decomposition({}, 1.0)
    columns = torch.stack(list(kept.values()), dim=1)
    found = torch.linalg.lstsq(columns, expected[:, None], driver="gelsd").solution[:, 0]
    residual = ((expected - columns @ found).norm() / size).item()
    shares = found.abs() * columns.norm(dim=0) / size
    coefficients = {name: found[i].item() for i, name in enumerate(kept) if shares[i] > tolerance}
    return Decomposition(coefficients, residual)


def _of_answers(log_probs: Tensor, answers: Answers) -> Tensor:
    """[A] log-probability of each whole answer."""
    taken = log_probs.gather(-1, answers.tokens[..., None])[..., 0]
    return torch.where(answers.mask > 0, taken, 0.0).sum(-1)


def _beyond(direction: Tensor, others: Sequence[Tensor]) -> float:
    """The share of a direction that lies outside the span of others."""
    if not others:
        return 1.0
    columns = torch.stack(list(others), dim=1)
    found = torch.linalg.lstsq(columns, direction[:, None], driver="gelsd").solution[:, 0]
    return float((direction - columns @ found).norm() / direction.norm())
