"""Answers about expected gradients, backward passes and losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from eligibility.explanation.checks import check_that
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.questions.question import (
    Question,
    answer,
    equal,
    gradient_of,
    log_prob_of,
    table,
    value_of,
)
from eligibility.explanation.wording import number, vector
from eligibility.rules.registry import supported_distributions


def all_actions(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    pi = z.softmax(-1).detach()
    scores = torch.stack([gradient_of(log_prob_of(Categorical(logits=z), a), z) for a in range(3)])
    weighted = pi @ scores
    useful = (pi * rewards) @ scores
    exact = gradient_of((z.softmax(-1) * rewards).sum(), z)
    return answer(
        question,
        (
            "Probabilities sum to 1 whatever the parameters are, so their gradients sum to 0: "
            "Σ π_a e_a = Σ ∂π_a = ∂1 = 0. Summed over all actions, weighted by probability and "
            "with equal rewards, the gradient is 0.",
            "That is not a fault. It is why baselines add no bias: only differences of rewards "
            f"count. With rewards {vector(rewards.tolist())} the same sum is "
            f"{vector(useful.tolist())}, the exact gradient of the expected reward.",
        ),
        table("eligibility of each action, ∂ log π(a) / ∂ logits", "category", {"π": pi,
               "a = 0": scores[0], "a = 1": scores[1], "a = 2": scores[2], "Σ π_a e_a": weighted,
               "Σ π_a r_a e_a": useful}),
        (
            equal("Σ π_a e_a = 0", weighted, 0.0),
            equal("Σ π_a r_a e_a = ∂ Σ π_a r_a", useful, exact),
        ),
    )  # fmt: skip


def two_ways(question: Question) -> Explanation:
    classes = supported_distributions()
    both = [cls.__name__ for cls in classes if cls.has_rsample]
    one = [cls.__name__ for cls in classes if not cls.has_rsample]
    loc = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    dist: Any = Normal(loc, 1.0)
    noise = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    pathwise = gradient_of((loc + noise).mean(), loc)
    drawn: Any = Categorical(logits=torch.zeros(3, requires_grad=True))
    return answer(
        question,
        (
            f"Through log_prob, all {len(classes)} that have a rule here, except for parameters "
            "that move the support. That is REINFORCE, and it works with any reward. A gradient "
            "through the sample itself (rsample, pathwise) needs one that moves smoothly with the "
            "parameters, and a reward with a derivative.",
            f"rsample too ({len(both)}): {', '.join(both)}.",
            f"log_prob only ({len(one)}): {', '.join(one)}.",
        ),
        None,
        (
            check_that("Normal: rsample() requires a gradient", dist.rsample().requires_grad),
            check_that("Normal: sample() does not", not dist.sample().requires_grad),
            check_that("Categorical: sample() does not", not drawn.sample().requires_grad),
            equal("pathwise: ∂(μ + σ z)/∂μ = 1", pathwise, 1.0),
        ),
    )


def second_backward(question: Question) -> Explanation:
    probs = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64, requires_grad=True)
    log_prob: Any = log_prob_of(Categorical(probs=probs), 0)
    log_prob.backward(retain_graph=True)
    once = _grad_of(probs)
    log_prob.backward()
    twice = _grad_of(probs)
    try:
        log_prob.backward()
        refused = False
    except RuntimeError as error:
        refused = "second time" in str(error)
    return answer(
        question,
        (
            "backward() frees the tensors that the forward pass saved, so a graph can be used only "
            "once. The usual reason is a distribution or a hidden state that is built once and "
            "used in every iteration. Recompute it inside the loop, or detach() what carries over.",
            "If two losses share a part, call backward() once, on their sum. retain_graph=True "
            "keeps the graph, and each further call adds to .grad: here twice the gradient.",
        ),
        table("probs.grad after each call", "category", {"probs": probs, "first": once,
               "second, retained": twice}),
        (
            check_that("a call after the graph was freed is refused", refused),
            equal("the second call doubled .grad", twice, 2 * once),
        ),
    )  # fmt: skip


def value_of_the_loss(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    pi = z.softmax(-1).detach()
    exact = -gradient_of((z.softmax(-1) * rewards).sum(), z)
    columns: dict[str, Tensor] = {"π": pi, "reward": rewards}
    checks, losses = [], []
    for baseline in (0.0, float(pi @ rewards), 10.0):
        loss = -(pi * (rewards - baseline) * z.log_softmax(-1)).sum()
        losses.append(value_of(loss))
        gradient = gradient_of(loss, z)
        columns[f"gradient, baseline {number(baseline)}"] = gradient
        statement = f"baseline {number(baseline)}: gradient = −∂(expected reward)"
        checks.append(equal(statement, gradient, exact))
    return answer(
        question,
        (
            "Nothing: the loss −A log π(a) is built so that its gradient is that of the expected "
            "reward; its value is not the expected reward, and not an error that should reach 0.",
            f"Here the expected loss is {', '.join(losses)}, with a baseline of 0, of the mean "
            "reward, and of 10, and the gradient is the same each time. Watch the return instead.",
        ),
        table("gradient of the expected loss at the logits", "category", columns),
        tuple(checks),
    )


def _grad_of(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad.clone()
