"""Where in a loss something happens: the line of the operation, found by what the data does.

A loss is run once with every operation recorded: what it read, of which fields of the batch that
was made, and the line that called it. Names of variables play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eligibility.audit.language.recording import NOWHERE, Operation, Place

_POLICY = frozenset({"log_probs", "logits", "sequence_logits", "hidden", "unembedding"})
_REWARDS = frozenset({"rewards", "token_rewards"})
_REFERENCE = frozenset({"ref_log_probs", "ref_logits"})
_BEHAVIOUR = frozenset({"old_log_probs", "rollout_log_probs"})
Test = Callable[[Operation], bool]


def place_of(rule: str, done: Sequence[Operation]) -> Place:
    """Where a fault or a convention is; `NOWHERE` if no operation stands for it."""
    for test in _TESTS.get(rule, ()):
        found = [operation.place for operation in done if test(operation)]
        if found:
            return found[0]
    return done[-1].place if done else NOWHERE


def _scores_rewards(op: Operation) -> bool:
    """A reward meets what carries a gradient."""
    rewarded = any(tags & _REWARDS for tags in op.read)
    return rewarded and any(op.graded) and op.differentiable


def _meets_policy(fields: frozenset[str]) -> Test:
    """The policy and one of these fields meet."""
    return lambda op: len(op.read) > 1 and bool(op.made & fields) and bool(op.made & _POLICY)


def _named(*names: str) -> Callable[[Operation], bool]:
    return lambda op: op.name.strip("_") in names


def _chooses(op: Operation) -> bool:
    """One of two scored rewards is taken."""
    return _named("minimum", "maximum", "min", "max", "where")(op) and _of_scored_rewards(op)


def _bounds(op: Operation) -> bool:
    """A ratio of policy and behaviour is compared with something."""
    names = ("clamp", "clip", "minimum", "maximum", "min", "max", "where", "gt", "ge", "lt", "le")
    return _named(*names)(op) and bool(op.made & _BEHAVIOUR) and not op.made & _REWARDS


def ratio_of_one(op: Operation) -> bool:
    """A ratio of the policy and itself, which is 1 and has the gradient of one."""
    return _named("exp")(op) and op.ones and op.differentiable and not op.made & _BEHAVIOUR


def _both(*tests: Test) -> Test:
    return lambda op: all(test(op) for test in tests)


def _of_rewards(op: Operation) -> bool:
    return bool(op.made & _REWARDS) and not op.differentiable


def _of_scored_rewards(op: Operation) -> bool:
    return bool(op.made & _REWARDS) and op.differentiable


def _shrinks(op: Operation) -> bool:
    return bool(op.sizes) and op.size < max(op.sizes)


def _grows(op: Operation) -> bool:
    return len(op.sizes) > 1 and op.size > max(op.sizes) > 1


def _ungraded(op: Operation) -> bool:
    return any(op.graded) and op.floating and not op.differentiable


def _adds_terms(op: Operation) -> bool:
    """A term with rewards and one without, both with a gradient."""
    graded = [tags for tags, has in zip(op.read, op.graded, strict=True) if has]
    return len(graded) > 1 and len({bool(tags & _REWARDS) for tags in graded}) > 1


def _picks(op: Operation) -> bool:
    return (
        bool(op.made & {"tokens", "sequence_tokens"})
        and bool(op.made & _POLICY)
        and op.differentiable
    )


def _joins(part: str) -> Test:
    """Tokens of a part meet others in one number."""
    return lambda op: part in op.reach and op.size < op.positions


def _loses(end: str) -> Test:
    return lambda op: end in op.lost


def _of_each_token(op: Operation) -> bool:
    """There is one number for each token, not one for each entry of the vocabulary."""
    return op.size <= op.positions


def _adds_penalty(op: Operation) -> bool:
    """Rewards without the reference meet what has it."""
    return any(tags & _REWARDS and not tags & _REFERENCE for tags in op.read) and any(
        tags & _REFERENCE for tags in op.read
    )


def _of_sequences(op: Operation) -> bool:
    return "sequence_logits" in op.made


_compares, _weighs = _meets_policy(_REFERENCE), _meets_policy(_BEHAVIOUR)
_divides = _named("div", "truediv", "true_divide", "divide", "rtruediv", "rdiv")
_averages = _named("mean", "nanmean")
_reorders = _named("t", "transpose", "swapaxes", "permute", "reshape", "view")
_deviates = _named("std", "var", "std_mean", "var_mean", "sqrt", "rsqrt")
_subtracts = _named("sub", "rsub", "subtract")
_indexes = _named("getitem", "narrow", "select", "roll", "slice")
_shortens = _both(_indexes, _shrinks, lambda op: bool(op.made & _POLICY))


def _divisor(op: Operation) -> bool:
    """What a sum over scored rewards is divided by depends on the batch's lengths."""
    counts = op.read[-1] & {"mask", "lengths", "tokens", "ended"} if len(op.read) > 1 else False
    return _of_scored_rewards(op) and (_averages(op) or (_divides(op) and bool(counts)))


# Tests in order of preference; the first operation that passes the first test that any passes.
_TESTS: dict[str, tuple[Test, ...]] = {
    "padding-counted": (_joins("padding"), _both(_of_scored_rewards, _shrinks),
                        _both(_shrinks, _scores_rewards)),
    "prompt-scored": (_joins("prompt"), _both(_picks, _of_sequences),
                      _both(_shrinks, _scores_rewards)),
    "kl-without-gradient": (_both(_compares, _ungraded), _compares),
    "kl-forward": (_both(_named("exp", "exp2", "expm1", "kl_div"), _compares),
                   lambda op: op.name == "exp" and bool(op.made & _REFERENCE), _compares),
    "kl-sign": (_adds_terms, _adds_penalty, _compares),
    **dict.fromkeys(("entropy-sign", "entropy-bonus"), (_adds_terms,)),
    **dict.fromkeys(("off-policy-uncorrected", "immediate-reward", "advantage-not-detached",
                     "wrong-sign", "old-log-prob-stale"), (_scores_rewards,)),
    "behaviour-not-scored": (_picks, _of_each_token, _scores_rewards),
    "first-token-dropped": (_loses("first"), _shortens),
    "last-step-dropped": (_loses("last"), _shortens, _scores_rewards),
    "scored-other-action": (_picks, _of_each_token),
    "most-likely-action-scored": (_named("argmax", "max", "amax", "topk"),),
    "probability-not-log-probability": (
        _both(_named("exp"), lambda op: op.made <= _POLICY | {"tokens", "mask"}),
        _both(_named("softmax", "sigmoid"), lambda op: bool(op.made & _POLICY)),
    ),
    "broadcast": (_both(_grows, _scores_rewards), _scores_rewards),
    "reward-of-another-answer": (_both(_reorders, _of_rewards), _scores_rewards),
    "rewards-so-far": (_named("cumsum"), _scores_rewards),
    "clip-on-the-wrong-side": (_chooses, _bounds, _weighs),
    "no-gradient": (_ungraded,),
    "non-finite-gradient": (lambda op: not op.finite,),
    **dict.fromkeys(("mean-over-each-episode", "mean-over-time", "micro-batch-mean"),
                    (_divisor, _averages)),
    "padded-width": (_both(_averages, _of_scored_rewards),),
    **dict.fromkeys(("whitened", "batch-scaled", "scaled"),
                    (_both(_deviates, _of_rewards), _both(_divides, _of_rewards))),
    **dict.fromkeys(("centred", "leave-one-out", "groups-mixed"),
                    (_both(_subtracts, _of_rewards),)),
    "truncated-masked": (lambda op: "ended" in op.made and len(op.read) > 1,),
    **dict.fromkeys(("token-ratio", "sequence-ratio", "geometric-mean-ratio"), (_weighs,)),
    **dict.fromkeys(("clipped", "truncated-importance", "masked-importance"), (_bounds, _weighs)),
    "soft-clipped": (_both(_named("sigmoid"), _weighs), _weighs),
    "ratio-always-one": (ratio_of_one,),
    **dict.fromkeys(("kl-in-reward", "kl-per-token", "total-variation", "squared-log-ratio"),
                    (_compares,)),
    "chi-squared": (_both(_named("exp", "expm1"), _compares),
                    lambda op: op.name == "exp" and bool(op.made & _REFERENCE), _compares),
}  # fmt: skip
