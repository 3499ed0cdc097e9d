"""Questions that people really asked, each with a worked answer in its own numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from eligibility.errors import InvalidValueError
from eligibility.explanation.by_rule import explain_problem
from eligibility.explanation.checks import check_equal, check_that, rounding_of
from eligibility.explanation.derivation import Check, Column, Explanation, Role, Subject, Table
from eligibility.explanation.problem import make_problem
from eligibility.explanation.wording import number, vector
from eligibility.ops.categorical import categorical_entropy
from eligibility.rules.registry import supported_distributions


@dataclass(frozen=True)
class Question:
    """A question and how to work out its answer.

    Attributes:
        number: What the command line calls it.
        asked: The question in one line.
        where: Where people asked it.
        answer: Computes the answer.
    """

    number: int
    asked: str
    where: str
    answer: Callable[[Question], Explanation]


def answer_question(number: int) -> Explanation:
    """The worked answer to question ``number``.

    Raises:
        InvalidValueError: There is no such question.
    """
    question = next((item for item in QUESTIONS if item.number == number), None)
    if question is None:
        raise InvalidValueError(
            "`--question`",
            str(number),
            f"a number from 1 to {len(QUESTIONS)}",
            "`eligibility explain --question` lists them",
        )
    return question.answer(question)


def _not_drawn(question: Question) -> Explanation:
    weights = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64)
    problem = make_problem(Categorical, {"probs": weights}, {}, torch.tensor(0))
    return replace(explain_problem(problem, of="prob"), title=_title(question))


def _hand_written_kl(question: Question) -> Explanation:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    by_torch = _gradient(kl_divergence(Categorical(probs=p), Categorical(probs=q)), p)
    by_hand = _gradient((p * (p / q).log()).sum(), p)
    difference = by_hand - by_torch
    kl = float((p * (p / q).log()).sum().detach())
    at_logits = [p * (g - (p * g).sum()) for g in (by_torch, by_hand)]
    return _answer(
        question,
        (
            "torch divides probs by their sum before it takes the divergence; Σ p log(p/q) written "
            "by hand does not, so it also counts that moving p off the simplex changes Σ p.",
            f"The two differ by the same number everywhere, KL + 1 = {number(kl + 1)}, which no "
            "move along the simplex can feel: after a softmax both give the same gradient of the "
            "logits. Both are right, torch's is the projected one.",
        ),
        _table("∂ KL(p‖q) / ∂ p", "category", {"p": p, "q": q, "by hand": by_hand,
               "torch": by_torch, "difference": difference, "at the logits": at_logits[0]}),
        (
            _equal("by hand − torch = KL + 1, in every entry", difference, kl + 1.0),
            _equal("after a softmax both are equal", at_logits[0], at_logits[1]),
            _equal("torch's is the rule log(p/q) − KL", by_torch, (p / q).log() - kl),
        ),
    )  # fmt: skip


def _detached_normaliser(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    action, pi = 0, torch.softmax(z, -1).detach()
    whole = _gradient((z - z.logsumexp(-1))[action], z)
    detached = _gradient((z - z.logsumexp(-1).detach())[action], z)
    softmax_whole = _gradient((z.softmax(-1) / z.softmax(-1).sum()).log()[action], z)
    softmax_detached = _gradient((z.softmax(-1) / z.softmax(-1).sum().detach()).log()[action], z)
    eye = torch.eye(3, dtype=torch.float64)
    return _answer(
        question,
        (
            "Yes for the normaliser that makes probabilities out of logits: without its gradient "
            f"only the drawn logit moves, {vector(detached.tolist())} instead of "
            f"{vector(whole.tolist())}, and the mean over all actions is π instead of 0: biased.",
            "No for a sum that is 1 whatever the parameters are, as Σ softmax(z): its gradient at "
            "the logits is 0, detached or not.",
        ),
        _table("∂ log π(0) / ∂ logits", "category", {"logits": z, "π": pi, "whole": whole,
               "log-sum-exp detached": detached, "Σ softmax": softmax_whole,
               "Σ softmax detached": softmax_detached}),
        (
            _equal("whole = one_hot − π", whole, eye[action] - pi),
            _equal("detached: Σ π e over all actions = π, not 0", pi @ eye, pi),
            _equal("Σ softmax: detached or not", softmax_whole, softmax_detached),
        ),
    )  # fmt: skip


def _logits_are_not_log_probs(question: Question) -> Explanation:
    z = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    shifted, both = z + 5, []
    for logits in (z, shifted):
        leaf = logits.clone().requires_grad_()
        both.append(_gradient(_log_prob(Categorical(logits=leaf), 0), leaf))
    stored = Categorical(logits=shifted).logits
    return _answer(
        question,
        (
            "They need not be: logits are log-probabilities up to a constant, and any constant may "
            "be added. torch subtracts log Σ exp(z) on construction, so that dist.logits are "
            "log-probabilities, and those are not the numbers you passed.",
            f"Here [2 0 -1] and [7 5 4] are the same policy, with dist.logits = "
            f"{vector(stored.tolist())} and the same gradient one_hot − π.",
        ),
        _table("the same policy", "category", {"logits": z, "logits + 5": shifted,
               "dist.logits": stored, "π": stored.exp(), "∂ log π(0)/∂ logits": both[0]}),
        (
            _equal("dist.logits = log softmax(logits)", stored, z.log_softmax(-1)),
            _equal("Σ exp(dist.logits) = 1", stored.exp().sum(), 1.0),
            _equal("same gradient for both", both[0], both[1]),
        ),
    )  # fmt: skip


def _entropy_of_masked_logits(question: Question) -> Explanation:
    z = torch.tensor([0.5, -0.5, -torch.inf], dtype=torch.float64, requires_grad=True)
    log_probs = z.log_softmax(-1)
    by_hand = -(log_probs.exp() * log_probs).sum()
    exact = categorical_entropy(z)
    stock: Any = Categorical(logits=z)
    pi = z.softmax(-1).detach()
    wanted = torch.where(pi > 0, -pi * (pi.log() + exact.detach()), torch.zeros_like(pi))
    gradients = {
        "by hand": _gradient(by_hand, z),
        "torch": _gradient(stock.entropy(), z),
        "eligibility": _gradient(exact, z),
    }
    nan = bool(gradients["by hand"].isnan().any())
    return _answer(
        question,
        (
            "A category that cannot happen contributes 0 · log 0 = 0 · (−∞), which is NaN in "
            f"floating point, though its limit is 0: by hand the entropy is {_value(by_hand)}, "
            f"exactly it is {_value(exact)}. In the gradient the same product appears again.",
            "Leave such categories out of the sum, value and gradient: that is what "
            "eligibility.categorical_entropy does, with −∞ as a logit or with a mask. A large "
            "negative number such as -1e9 in place of −∞ works too.",
        ),
        _table("∂ entropy / ∂ logits", "category", {"logits": z, "π": pi, **gradients}),
        (
            check_that("by hand, the gradient has a NaN", nan),
            _equal("eligibility = −π (log π + H), 0 where π = 0", gradients["eligibility"], wanted),
        ),
    )  # fmt: skip


def _saturation(question: Question) -> Explanation:
    z = torch.tensor([20.0, 0.0, 0.0], requires_grad=True)
    by_probs = _gradient(_log_prob(Categorical(probs=z.softmax(-1)), 1), z)
    by_logits = _gradient(_log_prob(Categorical(logits=z), 1), z)
    pi = z.softmax(-1).detach()
    epsilon = torch.finfo(z.dtype).eps
    return _answer(
        question,
        (
            f"The policy is saturated: π(1) = {number(float(pi[1]))} is below the ε = "
            f"{number(epsilon)} to which torch clamps probs=, and outside its bounds a clamp has "
            "derivative 0. Whatever is drawn there teaches nothing, so the agent repeats itself.",
            "Pass logits= instead: they are not clamped, and the gradient is one_hot − π, here "
            f"{vector(by_logits.tolist())}. An entropy bonus and smaller steps keep a policy from "
            "getting there.",
        ),
        _table("∂ log π(1) / ∂ logits, in float32", "category", {"logits": z, "π": pi,
               "probs=softmax(z)": by_probs, "logits=z": by_logits}),
        (
            check_that("through probs= every entry is exactly 0", bool((by_probs == 0).all())),
            _equal("through logits= it is one_hot − π", by_logits, torch.eye(3)[1] - pi),
        ),
    )  # fmt: skip


def _all_actions(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    pi = z.softmax(-1).detach()
    scores = torch.stack([_gradient(_log_prob(Categorical(logits=z), a), z) for a in range(3)])
    weighted = pi @ scores
    useful = (pi * rewards) @ scores
    exact = _gradient((z.softmax(-1) * rewards).sum(), z)
    return _answer(
        question,
        (
            "Probabilities sum to 1 whatever the parameters are, so their gradients sum to 0: "
            "Σ π_a e_a = Σ ∂π_a = ∂1 = 0. Adding up every action with its probability as the "
            "weight, and the same reward for all, leaves nothing.",
            "That is no fault but what makes baselines free: only differences of rewards count. "
            f"With rewards {vector(rewards.tolist())} the same sum is {vector(useful.tolist())}, "
            "the exact gradient of the expected reward.",
        ),
        _table("eligibility of each action, ∂ log π(a) / ∂ logits", "category", {"π": pi,
               "a = 0": scores[0], "a = 1": scores[1], "a = 2": scores[2], "Σ π_a e_a": weighted,
               "Σ π_a r_a e_a": useful}),
        (
            _equal("Σ π_a e_a = 0", weighted, 0.0),
            _equal("Σ π_a r_a e_a = ∂ Σ π_a r_a", useful, exact),
        ),
    )  # fmt: skip


def _two_ways(question: Question) -> Explanation:
    classes = supported_distributions()
    names = {True: [], False: []}  # type: dict[bool, list[str]]
    for cls in classes:
        names[bool(cls.has_rsample)].append(cls.__name__)
    loc = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    dist: Any = Normal(loc, 1.0)
    noise = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    pathwise = _gradient((loc + noise).mean(), loc)
    drawn: Any = Categorical(logits=torch.zeros(3, requires_grad=True))
    return _answer(
        question,
        (
            f"Through log_prob all {len(classes)} that have a rule here, but for parameters that "
            "move the support: that is REINFORCE, and it asks nothing of the reward. A gradient "
            "through the sample itself (rsample, pathwise) needs one that moves smoothly with the "
            "parameters, and a reward with a derivative.",
            f"rsample too ({len(names[True])}): {', '.join(names[True])}.",
            f"log_prob only ({len(names[False])}): {', '.join(names[False])}.",
        ),
        None,
        (
            check_that("Normal: rsample() requires a gradient", dist.rsample().requires_grad),
            check_that("Normal: sample() does not", not dist.sample().requires_grad),
            check_that("Categorical: sample() does not", not drawn.sample().requires_grad),
            _equal("pathwise: ∂(μ + σ z)/∂μ = 1", pathwise, 1.0),
        ),
    )


def _second_backward(question: Question) -> Explanation:
    probs = torch.tensor([0.69, 0.1, 0.2, 0.01], dtype=torch.float64, requires_grad=True)
    log_prob: Any = _log_prob(Categorical(probs=probs), 0)
    log_prob.backward(retain_graph=True)
    once = _grad_of(probs)
    log_prob.backward()
    twice = _grad_of(probs)
    try:
        log_prob.backward()
        refused = False
    except RuntimeError as error:
        refused = "second time" in str(error)
    return _answer(
        question,
        (
            "backward() frees what the forward pass had saved, so the same graph serves once. The "
            "usual reason is a distribution or a hidden state that is built once and used in every "
            "iteration: compute it anew inside the loop, or detach() what carries over.",
            "If two losses share a part, call backward() once, on their sum. retain_graph=True "
            "keeps the graph, and each further call adds to .grad: here twice the gradient.",
        ),
        _table("probs.grad after each call", "category", {"probs": probs, "first": once,
               "second, retained": twice}),
        (
            check_that("a call after the graph was freed is refused", refused),
            _equal("the second call doubled .grad", twice, 2 * once),
        ),
    )  # fmt: skip


def _value_of_the_loss(question: Question) -> Explanation:
    z = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    pi = z.softmax(-1).detach()
    exact = -_gradient((z.softmax(-1) * rewards).sum(), z)
    columns: dict[str, Tensor] = {"π": pi, "reward": rewards}
    checks, losses = [], []
    for baseline in (0.0, float(pi @ rewards), 10.0):
        loss = -(pi * (rewards - baseline) * z.log_softmax(-1)).sum()
        losses.append(_value(loss))
        gradient = _gradient(loss, z)
        columns[f"gradient, baseline {number(baseline)}"] = gradient
        statement = f"baseline {number(baseline)}: gradient = −∂(expected reward)"
        checks.append(_equal(statement, gradient, exact))
    return _answer(
        question,
        (
            "Nothing: the loss −A log π(a) is built so that its gradient is that of the expected "
            "reward; its value is not the expected reward, and not an error that should reach 0.",
            f"Here the expected loss is {', '.join(losses)}, with a baseline of 0, of the mean "
            "reward, and of 10, and the gradient is the same each time. Watch the return instead.",
        ),
        _table("gradient of the expected loss at the logits", "category", columns),
        tuple(checks),
    )


def _answer(
    question: Question, why: tuple[str, ...], table: Table | None, checks: Sequence[Check]
) -> Explanation:
    return Explanation(
        title=_title(question),
        subject=Subject("question", str(question.number), ()),
        tables=() if table is None else (table,),
        why=why,
        steps=(),
        leaves=(),
        checks=tuple(checks),
        notes=(f"Asked in {question.where}.",),
    )


def _title(question: Question) -> str:
    return f"{question.number}. {question.asked}"


def _table(title: str, axis: str, columns: dict[str, Tensor]) -> Table:
    """One column a tensor, a row an entry."""
    size = max(tensor.numel() for tensor in columns.values())
    roles: dict[str, Role] = {"π": "probability", "p": "probability", "q": "probability"}
    return Table(
        title=title,
        axis=axis,
        rows=tuple(map(str, range(size))),
        columns=tuple(
            Column(name, roles.get(name, "gradient"), tuple(tensor.reshape(-1).tolist()))
            for name, tensor in columns.items()
        ),
    )


def _gradient(output: Tensor, leaf: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(output, leaf, retain_graph=True)
    return gradient


def _value(tensor: Tensor) -> str:
    return number(float(tensor.detach()))


def _log_prob(dist: Any, action: int) -> Tensor:
    result: Tensor = dist.log_prob(torch.tensor(action))
    return result


def _grad_of(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad.clone()


def _equal(statement: str, left: Tensor, right: Tensor | float) -> Check:
    """Whether both sides agree to the rounding of their dtype."""
    left = left.detach()
    other = torch.as_tensor(right, dtype=left.dtype).detach().expand(left.shape)
    scale = torch.maximum(left.abs(), other.abs()).amax().clamp(min=1.0)
    rounding = rounding_of(scale, 3, torch.finfo(left.dtype).eps)
    return check_equal(statement, left, other, rounding, "the two sides differ")


QUESTIONS = (
    Question(1, "Why -0.69 for what was not sampled?",
             "discuss.pytorch.org/t/117395 and pytorch#61727", _not_drawn),
    Question(2, "Why does my KL gradient differ from the hand-written one?",
             "pytorch#30090", _hand_written_kl),
    Question(3, "Does detaching the normaliser change the gradient?",
             "pytorch#62473", _detached_normaliser),
    Question(4, "Are logits log-probabilities?", "pytorch#50378", _logits_are_not_log_probs),
    Question(5, "Why is the entropy, or its gradient, NaN with -inf logits?",
             "pytorch#40553 and trl#7221", _entropy_of_masked_logits),
    Question(6, "Why is the gradient exactly 0, and my agent repeats one action?",
             "many threads on saturated policies", _saturation),
    Question(7, "Why does accumulating the gradient over all actions give 0?",
             "pytorch#75948", _all_actions),
    Question(8, "Which distributions have a gradient through log_prob, which through rsample?",
             "pytorch#152703", _two_ways),
    Question(9, "Why \"trying to backward through the graph a second time\"?",
             "pytorch#11192", _second_backward),
    Question(10, "The loss is 0, or negative, or goes up: what does its value mean?",
             "many threads on REINFORCE", _value_of_the_loss),
)  # fmt: skip
