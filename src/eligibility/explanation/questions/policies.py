"""Answers about probabilities, logits and the gradients of a categorical policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.distributions import Categorical, kl_divergence

from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.checks import check_that
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.problem import make_problem
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
from eligibility.ops.categorical import categorical_entropy


def not_drawn(question: Question) -> Explanation:
    weights = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64)
    problem = make_problem(Categorical, {"probs": weights}, {}, torch.tensor(0))
    return replace(explain_problem(problem, of="prob"), title=question.title)


def hand_written_kl(question: Question) -> Explanation:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    by_torch = gradient_of(kl_divergence(Categorical(probs=p), Categorical(probs=q)), p)
    by_hand = gradient_of((p * (p / q).log()).sum(), p)
    difference = by_hand - by_torch
    kl = float((p * (p / q).log()).sum().detach())
    at_logits = [p * (g - (p * g).sum()) for g in (by_torch, by_hand)]
    return answer(
        question,
        (
            "torch divides probs by their sum before it takes the divergence; Σ p log(p/q) written "
            "by hand does not, so it also counts that moving p off the simplex changes Σ p.",
            f"The two differ by the same number everywhere, KL + 1 = {number(kl + 1)}, which no "
            "move along the simplex changes: after a softmax both give the same gradient of the "
            "logits. Both are right; torch's is the projected one.",
        ),
        table("∂ KL(p‖q) / ∂ p", "category", {"p": p, "q": q, "by hand": by_hand,
               "torch": by_torch, "difference": difference, "at the logits": at_logits[0]}),
        (
            equal("by hand − torch = KL + 1, in every entry", difference, kl + 1.0),
            equal("after a softmax both are equal", at_logits[0], at_logits[1]),
            equal("torch's is the rule log(p/q) − KL", by_torch, (p / q).log() - kl),
        ),
    )  # fmt: skip


def detached_normaliser(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    action, pi = 0, torch.softmax(z, -1).detach()
    whole = gradient_of((z - z.logsumexp(-1))[action], z)
    detached = gradient_of((z - z.logsumexp(-1).detach())[action], z)
    softmax_whole = gradient_of((z.softmax(-1) / z.softmax(-1).sum()).log()[action], z)
    softmax_detached = gradient_of((z.softmax(-1) / z.softmax(-1).sum().detach()).log()[action], z)
    eye = torch.eye(3, dtype=torch.float64)
    return answer(
        question,
        (
            "Yes for the normaliser that makes probabilities out of logits: without its gradient "
            f"only the drawn logit moves, {vector(detached.tolist())} instead of "
            f"{vector(whole.tolist())}, and the mean over all actions is π instead of 0: biased.",
            "No for a sum that is 1 whatever the parameters are, as Σ softmax(z): its gradient at "
            "the logits is 0, detached or not.",
        ),
        table("∂ log π(0) / ∂ logits", "category", {"logits": z, "π": pi, "whole": whole,
               "log-sum-exp detached": detached, "Σ softmax": softmax_whole,
               "Σ softmax detached": softmax_detached}),
        (
            equal("whole = one_hot − π", whole, eye[action] - pi),
            equal("detached: Σ π e over all actions = π, not 0", pi @ eye, pi),
            equal("Σ softmax: detached or not", softmax_whole, softmax_detached),
        ),
    )  # fmt: skip


def logits_are_not_log_probs(question: Question) -> Explanation:
    z = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    shifted, both = z + 5, []
    for logits in (z, shifted):
        leaf = logits.clone().requires_grad_()
        both.append(gradient_of(log_prob_of(Categorical(logits=leaf), 0), leaf))
    stored = Categorical(logits=shifted).logits
    return answer(
        question,
        (
            "They need not be: logits are log-probabilities up to a constant, and any constant may "
            "be added. torch subtracts log Σ exp(z) on construction, so that dist.logits are "
            "log-probabilities, and those are not the numbers you passed.",
            f"Here [2 0 -1] and [7 5 4] are the same policy, with dist.logits = "
            f"{vector(stored.tolist())} and the same gradient one_hot − π.",
        ),
        table("the same policy", "category", {"logits": z, "logits + 5": shifted,
               "dist.logits": stored, "π": stored.exp(), "∂ log π(0)/∂ logits": both[0]}),
        (
            equal("dist.logits = log softmax(logits)", stored, z.log_softmax(-1)),
            equal("Σ exp(dist.logits) = 1", stored.exp().sum(), 1.0),
            equal("same gradient for both", both[0], both[1]),
        ),
    )  # fmt: skip


def entropy_of_masked_logits(question: Question) -> Explanation:
    z = torch.tensor([0.5, -0.5, -torch.inf], dtype=torch.float64, requires_grad=True)
    log_probs = z.log_softmax(-1)
    by_hand = -(log_probs.exp() * log_probs).sum()
    exact = categorical_entropy(z)
    stock: Any = Categorical(logits=z)
    pi = z.softmax(-1).detach()
    wanted = torch.where(pi > 0, -pi * (pi.log() + exact.detach()), torch.zeros_like(pi))
    gradients = {
        "by hand": gradient_of(by_hand, z),
        "torch": gradient_of(stock.entropy(), z),
        "eligibility": gradient_of(exact, z),
    }
    nan = bool(gradients["by hand"].isnan().any())
    return answer(
        question,
        (
            "A category that cannot happen contributes 0 · log 0 = 0 · (−∞), which is NaN in "
            f"floating point, though its limit is 0: by hand the entropy is {value_of(by_hand)}, "
            f"exactly it is {value_of(exact)}. In the gradient the same product appears again.",
            "Exclude such categories from the sum, in value and gradient. "
            "eligibility.categorical_entropy does that, with −∞ as a logit or with a mask. A large "
            "negative number such as -1e9 in place of −∞ works too.",
        ),
        table("∂ entropy / ∂ logits", "category", {"logits": z, "π": pi, **gradients}),
        (
            check_that("by hand, the gradient has a NaN", nan),
            equal("eligibility = −π (log π + H), 0 where π = 0", gradients["eligibility"], wanted),
        ),
    )  # fmt: skip


def saturation(question: Question) -> Explanation:
    z = torch.tensor([20.0, 0.0, 0.0], requires_grad=True)
    by_probs = gradient_of(log_prob_of(Categorical(probs=z.softmax(-1)), 1), z)
    by_logits = gradient_of(log_prob_of(Categorical(logits=z), 1), z)
    pi = z.softmax(-1).detach()
    epsilon = torch.finfo(z.dtype).eps
    return answer(
        question,
        (
            f"The policy is saturated: π(1) = {number(float(pi[1]))} is below the ε = "
            f"{number(epsilon)} to which torch clamps probs=, and outside its bounds a clamp has "
            "derivative 0. No draw there teaches anything, so the agent repeats itself.",
            "Pass logits= instead: they are not clamped, and the gradient is one_hot − π, here "
            f"{vector(by_logits.tolist())}. An entropy bonus and smaller steps keep a policy from "
            "getting there.",
        ),
        table("∂ log π(1) / ∂ logits, in float32", "category", {"logits": z, "π": pi,
               "probs=softmax(z)": by_probs, "logits=z": by_logits}),
        (
            check_that("through probs= every entry is exactly 0", bool((by_probs == 0).all())),
            equal("through logits= it is one_hot − π", by_logits, torch.eye(3)[1] - pi),
        ),
    )  # fmt: skip
