"""Answers about the losses that language models are trained with."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from eligibility.explanation.checks import check_that
from eligibility.explanation.derivation import Explanation
from eligibility.explanation.questions.question import (
    Question,
    answer,
    equal,
    gradient_of,
    table,
    value_of,
)
from eligibility.explanation.wording import number, vector


def _float(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _logits(*values: float) -> Tensor:
    return _float(*values).requires_grad_()


def _clipped(ratio: Tensor, advantage: Tensor, low: float = 0.8, high: float = 1.2) -> Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def loss_of_zero(question: Question) -> Explanation:
    z = _logits(0.5, 0.0, -0.5)
    actions, rewards = torch.tensor([0, 0, 1, 2]), _float(1.0, 0.0, 0.0, 1.0)
    advantage = (rewards - rewards.mean()) / rewards.std()
    log_prob = z.log_softmax(-1)[actions]
    ratio = (log_prob - log_prob.detach()).exp()
    loss = _clipped(ratio, advantage).mean()
    plain = -(advantage * log_prob).mean()
    gradient, by_hand = gradient_of(loss, z), gradient_of(plain, z)
    return answer(
        question,
        (
            "The ratio is π/π_old, and on fresh samples both are the same policy: every ratio is "
            "1, the loss is −mean(A), and advantages that were centred in their group have the "
            f"mean 0. So its value is {value_of(loss)} whatever the rewards are.",
            "The derivative of the ratio is not 0: ∂(π/π_old) = π/π_old · ∂ log π. "
            f"The gradient is that of REINFORCE, here {vector(gradient.tolist())}. With a KL term "
            "the value is β KL, which starts at 0 and grows. It is 0 only if all advantages are.",
        ),
        table("gradient at the logits", "category", {"logits": z, "GRPO": gradient,
               "−mean(A log π)": by_hand}),
        (
            equal("the loss is 0", loss, 0.0),
            check_that("its gradient is not", bool((gradient != 0).any())),
            equal("it is the gradient of −mean(A log π)", gradient, by_hand),
        ),
    )  # fmt: skip


def ratio_of_one(question: Question) -> Explanation:
    z = _logits(0.5, 0.0, -0.5)
    old = z.detach().log_softmax(-1)
    advantage, step = 1.0, 0.5
    rows: dict[str, list[float]] = {"ratio": [], "slope of log π": []}
    for _ in range(3):
        log_prob = z.log_softmax(-1)[0]
        ratio = (log_prob - old[0]).exp()
        gradient = gradient_of(-(ratio * advantage), z)
        rows["ratio"].append(float(ratio.detach()))
        rows["slope of log π"].append(-float(gradient[0]))
        z = (z - step * gradient).detach().requires_grad_()
    same = _logits(0.5, 0.0, -0.5)
    log_prob = same.log_softmax(-1)[0]
    divided = gradient_of((log_prob - log_prob).exp(), same)
    kept = gradient_of((log_prob - log_prob.detach()).exp(), same)
    return answer(
        question,
        (
            "Not in the first update after sampling. Old and new policy are the same there, and a "
            "ratio that is not 1 would be the bug (dropout, another temperature, other padding). "
            f"In the following updates of the same samples it moves, here {vector(rows['ratio'])}.",
            "It is a bug if it stays 1 in later updates, or if the old log-probability was not "
            "detached: then numerator and denominator move together, and the gradient is "
            f"{vector(divided.tolist())} instead of {vector(kept.tolist())}. If every sample is "
            "used once, 1 is right and the clip does nothing.",
        ),
        table("three updates on one sample", "update",
              {name: _float(*values) for name, values in rows.items()}),
        (
            equal("the first ratio is 1", _float(rows["ratio"][0]), 1.0),
            check_that("the second is not", rows["ratio"][1] != 1.0),
            equal("old not detached: gradient 0", divided, 0.0),
            equal("detached: one_hot − π", kept, torch.eye(3)[0] - same.detach().softmax(-1)),
        ),
    )  # fmt: skip


def three_estimators(question: Question) -> Explanation:
    z, reference = _logits(1.0, 0.0, -1.0), _float(0.0, 0.5, 0.0).log_softmax(-1)
    log_pi = z.log_softmax(-1)
    pi = log_pi.detach().exp()
    ratio = log_pi - reference
    estimates = {"k1": ratio, "k2": ratio**2 / 2, "k3": (-ratio).exp() - 1 + ratio}
    exact = gradient_of((log_pi.exp() * ratio).sum(), z)
    forward = gradient_of(-(reference.exp() * log_pi).sum(), z)
    in_loss = {name: gradient_of((pi * k).sum(), z) for name, k in estimates.items()}
    in_reward = {
        name: gradient_of((pi * k.detach() * log_pi).sum(), z) for name, k in estimates.items()
    }
    found = {"∂ KL(π‖ref)": exact, "∂ KL(ref‖π)": forward}
    found |= {f"{name} in the loss": g for name, g in in_loss.items()}
    found |= {f"{name} in the reward": g for name, g in in_reward.items()}
    shown = torch.stack(list(found.values())).T
    return answer(
        question,
        (
            "With r = log π − log ref: k1 = r, k2 = r²/2, k3 = e^−r − 1 + r. In the loss, under "
            "samples of π, their expected gradients are: k1 nothing at all (E[e] = 0), k2 that of "
            "KL(π‖ref), k3 that of the other one, KL(ref‖π).",
            "In the reward, where only log π is differentiated, k1 gives KL(π‖ref). k2 and k3 do "
            "not: as a reward they descend neither. All three estimate the value of the same KL, "
            "but a good estimate of a value says nothing about its gradient.",
        ),
        table("expected gradient at the logits", "",
              {f"logit {k}": column for k, column in enumerate(shown)}, tuple(found)),
        (
            equal("k1 in the loss: 0", in_loss["k1"], 0.0),
            equal("k2 in the loss: ∂ KL(π‖ref)", in_loss["k2"], exact),
            equal("k3 in the loss: ∂ KL(ref‖π)", in_loss["k3"], forward),
            equal("k1 in the reward: ∂ KL(π‖ref)", in_reward["k1"], exact),
            check_that("k3 in the reward is neither", not torch.allclose(in_reward["k3"], exact)
                       and not torch.allclose(in_reward["k3"], forward)),
        ),
    )  # fmt: skip


def detached_weight(question: Question) -> Explanation:
    ratios, advantage = _float(0.5, 1.0, 1.5, 1.5), _float(1.0, 1.0, 1.0, -1.0)
    log_prob = ratios.log().requires_grad_()
    ratio = log_prob.exp()
    ppo = gradient_of(_clipped(ratio, advantage).sum(), log_prob)
    cispo = gradient_of(-(ratio.clamp(max=1.2).detach() * advantage * log_prob).sum(), log_prob)
    without = gradient_of(-(ratio.clamp(max=1.2) * advantage * log_prob).sum(), log_prob)
    one = gradient_of(-((log_prob - log_prob.detach()).exp() * advantage).sum(), log_prob)
    return answer(
        question,
        (
            "detach() turns it into a number: the clipped ratio is then only the weight of log π, "
            "and its own clamp cannot silence anything. In CISPO the token with ratio 1.5 and A = 1"
            f" keeps the weight {number(-float(cispo[2]))}, where the min of PPO gives "
            f"{number(-float(ppo[2]))}.",
            "Without detach() the product rule adds log π · ∂ ratio, which is not a policy "
            "gradient. In exp(log π − log π.detach()) the value is 1 and the gradient that of "
            "log π: detach() changes what is differentiated, not the value.",
        ),
        table("weight of each token, ∂ loss/∂ log π", "token", {"ratio": ratios,
               "advantage": advantage, "PPO": ppo, "CISPO": cispo, "CISPO, not detached": without,
               "exp(log π − detached)": one}),
        (
            equal("CISPO: −min(ratio, 1.2) A", cispo, -ratios.clamp(max=1.2) * advantage),
            equal("PPO silences ratio 1.5 with A > 0", ppo[2], 0.0),
            equal("exp(log π − detached): −A", one, -advantage),
            check_that("not detached, it is another gradient", not torch.allclose(without, cispo)),
        ),
    )  # fmt: skip


def silenced_tokens(question: Question) -> Explanation:
    ratios, advantage = _float(0.5, 0.5, 1.0, 1.0, 1.5, 1.5), _float(1, -1, 1, -1, 1, -1)
    log_prob = ratios.log().requires_grad_()
    weight = gradient_of(_clipped(log_prob.exp(), advantage).sum(), log_prob)
    high, low = (ratios > 1.2) & (advantage > 0), (ratios < 0.8) & (advantage < 0)
    silenced = high | low
    wanted = torch.where(silenced, torch.zeros_like(ratios), -ratios * advantage)
    return answer(
        question,
        (
            "Two of the four that are outside the bounds: a good token that has become more "
            "probable than 1 + ε, and a bad one that has become less probable than 1 − ε. Their "
            "weight is exactly 0. What went too far in the wrong direction keeps its gradient.",
            "So the share of ratios outside the bounds is not the share of tokens without a "
            f"gradient: here 4 of 6 are outside and {int(silenced.sum())} are silent. A bad token "
            f"with a large ratio keeps the weight {number(float(weight[5]))}, with no bound.",
        ),
        table("weight of each token, ∂ loss/∂ log π, ε = 0.2", "token", {"ratio": ratios,
               "advantage": advantage, "weight": weight}),
        (equal("0 for r > 1.2, A > 0 and r < 0.8, A < 0; else −r A", weight, wanted),),
    )  # fmt: skip


def divided_by_length(question: Question) -> Explanation:
    lengths, advantage = [2, 8, 2, 8], _float(1.0, 1.0, -1.0, -1.0)
    count = _float(*map(float, lengths))
    log_probs = [torch.zeros(n, dtype=torch.float64, requires_grad=True) for n in lengths]
    losses = [-(a * lp) for a, lp in zip(advantage, log_probs, strict=True)]
    total = torch.stack([loss.sum() for loss in losses]).sum()
    reduced = {
        "per response": torch.stack([loss.mean() for loss in losses]).mean(),
        "per batch": total / count.sum(),
        "by a constant": total / (len(lengths) * 8),
    }
    weights = {
        name: torch.stack([gradient_of(loss, lp)[0] for lp in log_probs])
        for name, loss in reduced.items()
    }
    return answer(
        question,
        (
            "It changes the weight of a token, not only the scale of the loss. The policy gradient "
            "gives each token of a response its advantage. Divided by the response's own length, a "
            f"token of 2 weighs {number(abs(float(weights['per response'][0])))} and one of 8 "
            f"{number(abs(float(weights['per response'][1])))}: a short good answer is "
            "reinforced more, a long bad one punished less. Long wrong answers become cheap.",
            "Dividing by all tokens of the batch gives each token the same weight, but one that "
            "depends on what was drawn, which is also biased, but less. Dividing by a constant "
            "only scales the gradient: it stays unbiased.",
        ),
        table("weight of one token, ∂ loss/∂ log π", "response",
              {"length": count, "advantage": advantage, **weights}),
        (
            equal("per response: −A/(N · length)", weights["per response"], -advantage / count / 4),
            equal("per batch: −A/Σ length", weights["per batch"], -advantage / count.sum()),
            equal("by a constant: −A/(N · 8)", weights["by a constant"], -advantage / 32),
        ),
    )  # fmt: skip


def leave_one_out(question: Question) -> Explanation:
    z, reward, group = _logits(0.5, -0.5), _float(1.0, 0.0), 3
    pi = z.detach().softmax(-1)
    exact = gradient_of((z.softmax(-1) * reward).sum(), z)
    scores = torch.eye(2, dtype=torch.float64) - pi
    mean, others = torch.zeros_like(exact), torch.zeros_like(exact)
    for drawn in product(range(2), repeat=group):
        actions = torch.tensor(drawn)
        r, probability = reward[actions], pi[actions].prod()
        centred = r - r.mean()
        left_out = r - (r.sum() - r) / (group - 1)
        mean += probability * (centred[:, None] * scores[actions]).mean(0)
        others += probability * (left_out[:, None] * scores[actions]).mean(0)
    sample = _float(1.0, 0.0, 0.0)
    return answer(
        question,
        (
            "Subtracting the group's mean subtracts 1/G of the sample's own reward as well, and "
            "that part depends on the sample: the expected gradient is (G − 1)/G = "
            f"{number((group - 1) / group)} of the right one, summed here over all {2**group} "
            "groups. Only the scale is wrong, the direction is not.",
            "Leave-one-out uses the mean of the others and is exact. The two are equivalent: r_i − "
            "mean of the others = G/(G − 1) · (r_i − mean), for the rewards [1 0 0] "
            f"{vector((sample - (sample.sum() - sample) / 2).tolist())} and "
            f"{vector((sample - sample.mean()).tolist())}. A learning rate absorbs the factor; "
            "dividing by the group's own standard deviation is not equivalent.",
        ),
        table(f"expected gradient of the reward at the logits, G = {group}", "category",
              {"exact": exact, "group mean": mean, "leave-one-out": others}),
        (
            equal("leave-one-out = exact", others, exact),
            equal("group mean = (G − 1)/G · exact", mean, exact * (group - 1) / group),
        ),
    )  # fmt: skip
