"""The faults of the zoo: what somebody once published, as an exchange of one statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.audit.zoo.changes import broken, changed_lines, read_changes
from tests.audit.zoo.styles import (
    NEVER_SINGLE,
    PATCHED_STYLES,
    ROLLOUTS,
    STYLES,
    Program,
    Style,
    tagged_line,
    untagged,
    with_line,
)

Change = Callable[[str, Style], str]


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        name: What it is.
        expected: Rules that name it rightly.
        tags: The lines that it may be made in, in order of preference.
        change: New content of that line; the same content where it does not apply.
        met: Who met it.
    """

    name: str
    expected: tuple[str, ...]
    tags: tuple[str, ...]
    change: Change
    met: str


def _assign(name: str, expression: str) -> Change:
    """Exchange a line for ``name = expression``; {w}, {g}, {l} stand for the style's names."""

    def change(line: str, style: Style) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        filled = expression.format(w=style.weights, g=style.gamma, l=style.log_prob_list)
        return f"{indent}{name} = {filled}"

    return change


def _swap(old: str, new: str) -> Change:
    return lambda line, style: line.replace(
        old.format(w=style.weights, g=style.gamma), new.format(w=style.weights, g=style.gamma)
    )


def _append(line: str, style: Style) -> str:
    """Store the returns in the order in which they are computed: the last one first."""
    if ".insert(0, running)" in line:
        return line.replace(".insert(0, running)", ".append(running)")
    return re.sub(r"returns\[(\w+)\]", r"returns[-1 - \1]", line)


def _store(value: str) -> Change:
    """Store something else than the running return."""
    return lambda line, style: (
        line.replace("insert(0, running)", f"insert(0, {value})")
        if "insert" in line
        else line.replace("= running", f"= {value}")
    )


def _flip(line: str, style: Style) -> str:
    return line.replace("loss = -", "loss = ")


def _detach(line: str, style: Style) -> str:
    if line.lstrip().startswith("log_probs = "):
        return line + ".detach()"
    return re.sub(r"append\((.*)\)$", r"append((\1).detach())", line)


def _score(expression: str) -> Change:
    """Score another action; only where a distribution object scores."""

    def change(line: str, style: Style) -> str:
        scored = expression
        scored = scored.replace("dist.probs.argmax(-1)", _LIKELIEST.get(style.name, _ARGMAX))
        return re.sub(r"dist\.log_prob\(actions?\)", scored, line)

    return change


def _along_steps(line: str, style: Style) -> str:
    """Normalise over the rows of [T, A] logits; a batch of several environments has none."""
    if style.name == "vector":
        return line
    logits = "dist.logits.log_softmax(0)"
    return line.replace("dist.log_prob(actions)", f"{logits}[range(len(actions)), actions]")


def _after(statement: str) -> Change:
    """Do something right after the line."""

    def change(line: str, style: Style) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        filled = statement.format(w=style.weights, g=style.gamma)
        return f"{line}\n{indent}{filled}" if line.strip() != "pass" else f"{indent}{filled}"

    return change


_GUARDED: dict[Change, Change] = {}  # a change -> what it would be without its fault


def _of_one(statement: str) -> Change:
    """Right after the line, where a batch may have one element; elsewhere it is whitening."""
    change = _after(statement)

    def changed(line: str, style: Style) -> str:
        return line if style.name in NEVER_SINGLE else change(line, style)

    _GUARDED[changed] = _after(f"if len({{w}}) > 1: {statement}")
    return changed


_ARGMAX = "dist.probs.argmax(-1)"
_LIKELIEST = {
    "gaussian": "dist.mean.detach()",
    "squashed": "dist.mean.detach()",
    "bernoulli": "(dist.probs > 0.5).float()",
}


def _argmax(line: str, style: Style) -> str:
    for call in ("dist.sample()", "np.random.choice(len(p), p=p / p.sum())"):
        if call in line:
            best = "int(np.argmax(p))" if "np." in call else _LIKELIEST.get(style.name, _ARGMAX)
            return line.replace(call, best)
    return line.replace("torch.multinomial(logits.softmax(-1), 1).squeeze(-1)", "logits.argmax(-1)")


def _tempered(line: str, style: Style) -> str:
    if "np.random.choice" in line:
        return line.replace("p=p / p.sum()", "p=p**2 / (p**2).sum()")
    if "multinomial" in line:
        return line.replace("logits.softmax", "(2.0 * logits).softmax")
    if style.name in ("gaussian", "squashed"):
        return line.replace("dist.sample()", "Normal(dist.mean, 2.0 * dist.stddev).sample()")
    return line.replace("dist.sample()", "type(dist)(logits=2.0 * dist.logits).sample()")


def _repeated(line: str, style: Style) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    body = line.strip().replace(".backward()", ".backward(retain_graph=True)")
    lines = [
        "for _ in range(3):",
        f"    {body}",
        f"    {style.optimizer}.step()",
        f"    {style.optimizer}.zero_grad()",
    ]
    return "\n".join(indent + text for text in (*lines, line.strip()))


def _update_early(line: str, style: Style) -> str:
    """Learn after every step; at the end of an episode the program does so itself."""
    update = "agent.update()" if style.name == "agent" else "finish_episode()"
    ends = "terminated or truncated" if style.name == "agent" else "done"
    indent = line[: len(line) - len(line.lstrip())]
    return f"{line}\n{indent}if not ({ends}):\n{indent}    {update}"


def _kept_lists(line: str, style: Style) -> str:
    """Make the lists once, and go on with them in the next update."""
    indent = line[: len(line) - len(line.lstrip())]
    first = line.split(",")[0].strip()
    made = f'{indent}if "{first}" not in dir():\n    {line}'
    return f"{made}\n{indent}done = False" if "done" in line else made


def _frozen(line: str, style: Style) -> str:
    """Act by a copy of the policy that is made once."""
    if style.name not in _POLICY:
        return line
    name, called = _POLICY[style.name]
    indent = line[: len(line) - len(line.lstrip())]
    copied = f"{name}.frozen = getattr({name}, 'frozen', None) or [copy.deepcopy({name})]"
    return "\n".join(
        indent + text
        for text in (
            "import copy",
            copied,
            f"action = {called.replace(name, f'{name}.frozen[0]', 1)}.sample()",
        )
    )


# Of some styles: the policy, and what its distribution is.
_POLICY = {
    "flat": ("net", "Categorical(logits=net(torch.as_tensor(obs, dtype=torch.float32)))"),
    "gaussian": ("policy", "policy(torch.as_tensor(obs, dtype=torch.float32))"),
    "squashed": ("policy", "policy(observation)"),
    "agent": ("self.net", "Categorical(logits=self.net(state))"),
    "masked": ("net", "Categorical(logits=net(x).masked_fill(~mask, -1e9))"),
    "functions": ("policy", "distributions.Categorical(logits=policy(observation))"),
}


def _recomputed_by_a_copy(line: str, style: Style) -> str:
    """Old log-probabilities by the policy of the first update."""
    return _after(
        "reference = globals().setdefault('reference', copy.deepcopy(net))\n"
        "old_log_probs = Categorical(logits=reference(states)).log_prob(actions).detach()"
        .replace("\n", "\n" + line[: len(line) - len(line.lstrip())])
    )(line, style)  # fmt: skip


def _longer_later(line: str, style: Style) -> str:
    """From the second update on, weigh each episode by its length."""
    if style.name in _BATCHES or style.name in ROLLOUTS:
        return line
    lasting = _lasting(style)
    return _after(
        f"{{w}} = {{w}} * len({{w}}) ** getattr({lasting}, 'later', 0.0); {lasting}.later = 1.0"
    )(line, style)


def _loss_carried_over(line: str, style: Style) -> str:
    """Add the loss of the update before, with its graph."""
    lasting = _lasting(style)
    return _after(f"loss = loss + getattr({lasting}, 'total', 0.0); {lasting}.total = loss")(
        line, style
    )


def _lasting(style: Style) -> str:
    """An object that is there in every update, where the loss is computed."""
    return "policy" if style.name == "functions" else style.optimizer


# Their rewards are not one list of one episode.
_TOGETHER = ("masked", "next_step")  # the rewards of several episodes stand in one list
_BATCHES = ("batch", "vector", "buffer", "sb3", "token_level")

MUTATIONS = (
    Mutation("mean-times-sum", ("mean-log-prob-times-sum-of-returns",), ("loss",),
             _assign("loss", "-(log_probs.mean() * {w}).sum()"), "Gymnasium#1336"),
    Mutation("broadcast-sum", ("broadcast",), ("loss",),
             _assign("loss", "-(log_probs.reshape(-1) * {w}.reshape(-1, 1)).sum()"),
             "pytorch/rl#1243"),
    Mutation("broadcast-mean", ("broadcast", "mean-log-prob-times-sum-of-returns"), ("loss",),
             _assign("loss", "-(log_probs.reshape(-1, 1) * {w}.reshape(-1)).mean()"),
             "ai.stackexchange 41279"),
    Mutation("summed-log-prob", ("broadcast",), ("loss",),
             _assign("loss", "-(log_probs.sum() * {w}).sum()"), "thu-ml/tianshou#162"),
    Mutation("wrong-sign", ("wrong-sign",), ("loss",), _flip, "flash-linear-attention#1073"),
    Mutation("immediate-reward", ("immediate-reward",), ("insert",), _store("reward"), ""),
    Mutation("no-running-sum", ("immediate-reward",), ("running",),
             _assign("running", "reward"), ""),
    Mutation("reversed-returns", ("reversed-returns",), ("insert",), _append, ""),
    Mutation("reward-twice", ("immediate-reward-twice",), ("insert",),
             _store("running + reward"), ""),
    Mutation("past-rewards", ("rewards-so-far",), ("tensor",),
             lambda line, style: line if style.name in _BATCHES else _after(
                 "returns = torch.tensor([sum(rewards[: t + 1]) for t in range(len(rewards))])"
             )(line, style), ""),
    Mutation("rewards-centred", ("rewards-centred",), ("tensor",),
             lambda line, style: line if style.name in (*_BATCHES, *_TOGETHER) else _after(
                 "returns = torch.tensor([sum({g}**k * (r - sum(rewards) / len(rewards))"
                 " for k, r in enumerate(rewards[t:])) for t in range(len(rewards))])"
             )(line, style), ""),
    Mutation("shifted-rewards", ("shifted-rewards",), ("tensor",),
             _after("returns = torch.cat([returns[1:], torch.zeros_like(returns[:1])])"),
             "openai/spinningup#50"),
    Mutation("shuffled-apart", ("shuffled-apart",), ("tensor",),
             _after("returns = returns[torch.randperm(len(returns))]"), ""),
    Mutation("integer-returns", ("integer-returns",), ("tensor",),
             _after("returns = returns.long()"), "Reinforcement-learning-with-tensorflow#128"),
    Mutation("carried-over-episodes", ("return-carried-over-episodes",), ("reset",),
             lambda line, style: line.replace("running = 0.0", "pass"), "PPO-PyTorch#8"),
    Mutation("detached", ("no-gradient",), ("score", "rescore"), _detach, "ReLeaSE#39"),
    Mutation("new-tensor", ("no-gradient",), ("stack",),
             _assign("log_probs", "torch.tensor({l}, requires_grad=True)"), "SLM-Lab#133"),
    Mutation("likeliest-scored", ("most-likely-action-scored",), ("score", "rescore"),
             _score("dist.log_prob(dist.probs.argmax(-1))"), "chatllama#7"),
    Mutation("resampled", ("scored-other-action",), ("score", "rescore"),
             _score("dist.log_prob(dist.sample())"), ""),
    Mutation("squashed-scored", ("transformed-action-scored",), ("score",),
             lambda line, style: line.replace("(dist.log_prob(action) - volume)",
                                              "dist.log_prob(2.0 * squashed)"),
             "ray-project/ray#8889"),
    Mutation("argmax-action", ("argmax-action",), ("act",), _argmax, "kengz/SLM-Lab#271"),
    Mutation("tempered", ("behaviour-not-scored",), ("act",), _tempered, "Archon#821"),
    Mutation("softmax-over-steps", ("softmax-over-steps",), ("rescore",), _along_steps, ""),
    Mutation("mask-in-acting-only", ("mask-in-acting-only",), ("mask",),
             _swap("net(observations).masked_fill(~masks, -1e9)", "net(observations)"),
             "hill-a/stable-baselines#453"),
    Mutation("probs-as-logits", ("probs-as-logits", "behaviour-not-scored"), ("dist",),
             _swap("logits=logits", "logits=logits.softmax(-1)"), ""),
    Mutation("probability", ("probability-not-log-probability",), ("loss",),
             _swap("log_probs", "log_probs.exp()"), ""),
    Mutation("cross-entropy", ("returns-unused",), ("loss",),
             _assign("loss", "-log_probs.sum()"), "RocAlphaGo#166"),
    Mutation("entropy-sign", ("entropy-sign",), ("loss",),
             _after("loss = loss + 0.1 * sum(entropies).sum()"),
             "open_spiel#962, garage#628, stable-baselines3#127"),
    Mutation("std-of-one", ("std-of-one-element",), ("transform",),
             _of_one("{w} = ({w} - {w}.mean()) / ({w}.std() + 1e-8)"), "wheatley#93"),
    Mutation("zero-std", ("std-of-one-element", "non-finite-gradient"), ("transform",),
             _of_one("{w} = ({w} - {w}.mean()) / {w}.std(correction=0)"), "NVIDIA-NeMo/RL#1518"),
    Mutation("carried-over-vector", ("return-carried-over-episodes",), ("ended",),
             _swap(" * (1.0 - end)", ""), "PPO-PyTorch#8"),
    Mutation("autoreset-trained", ("autoreset-step-trained-on",), ("valid",),
             _swap("torch.as_tensor(~ended)", "torch.ones(1)"), "Gymnasium's vector_a2c tutorial"),
    Mutation("last-step-dropped", ("last-step-dropped",), ("transform",),
             _after("log_probs = torch.cat([log_probs[:-1], 0.0 * log_probs[-1:]])"), ""),
    Mutation("loss-overwritten", ("only-last-step",), ("transform",),
             _after("log_probs = torch.cat([0.0 * log_probs[:-1], log_probs[-1:]])"), ""),
    Mutation("several-updates", ("several-updates-without-ratio",), ("backward",),
             _repeated, "ray-project/ray#27314"),
    Mutation("advantage-attached", ("advantage-not-detached",), ("advantage",),
             _swap(".detach()", ""), "keras-io#194"),
    Mutation("target-attached", ("critic-target-not-detached", "advantage-not-detached"),
             ("target",), _swap(".detach()", ""), "Gymnasium#1494"),
    Mutation("truncation", ("truncation-as-termination",), ("stops",),
             _swap("float(terminated)", "float(terminated or truncated)"), "vwxyzjn/cleanrl#457"),
    Mutation("bootstrapped-after-end", ("bootstrapped-after-termination",), ("stops",),
             _swap("float(terminated)", "0.0"), "EmbodiChain#612"),
    Mutation("unsummed", ("fails-on-some-episodes",), ("score",),
             _swap("scores.sum()", "scores"), "thu-ml/tianshou#40, #162"),
    Mutation("one-component", ("component-not-scored",), ("score",),
             _swap("scores.sum()", "scores[0]"), ""),
    Mutation("updated-within-episode", ("immediate-reward",), ("collect",), _update_early,
             "seungeunrho/minimalRL#26"),
    Mutation("not-cleared", ("stale-batch", "stale-graph", "second-update-fails"), ("clear",),
             _swap("self.log_probs, self.entropies, self.rewards = [], [], []", "pass"), ""),
    Mutation("stale-buffer", ("stale-batch",), ("fresh",), _swap("buffer = Buffer()",
                   "buffer = self.__dict__.setdefault('kept', Buffer())"), ""),
    Mutation("not-zeroed", ("gradients-not-zeroed",), ("zero",),
             lambda line, style: line[: len(line) - len(line.lstrip())] + "pass", ""),
    Mutation("kept-lists", ("stale-batch", "stale-graph", "second-update-fails"), ("lists",),
             _kept_lists, "pytorch/examples#151"),
    Mutation("loss-carried-over", ("stale-graph",), ("loss",), _loss_carried_over, ""),
    Mutation("frozen-actor", ("acting-policy-stale",), ("act",), _frozen, ""),
    Mutation("old-log-prob-stale", ("old-log-prob-stale",), ("old",), _recomputed_by_a_copy, ""),
    Mutation("length-weighed-later", ("second-update-differs",), ("transform",), _longer_later, ""),
    Mutation("old-log-prob-recomputed", ("ratio-always-one",), ("old",),
             _after("old_log_probs = log_probs.detach()"), "meta-pytorch/torchforge#571"),
    Mutation("clip-bounds-swapped", ("clip-bounds-swapped",), ("clip",),
             _swap("clamp(0.8, 1.2)", "clamp(1.2, 0.8)"), "GidonPark/RL-Algorithms"),
    Mutation("larger-objective", ("clip-on-the-wrong-side",), ("clip",),
             _swap("torch.min(", "torch.max("), ""),
)  # fmt: skip

RULES = {mutation.name: mutation.expected for mutation in MUTATIONS}


def mutate(style: Style, mutation: Mutation) -> Program | None:
    """The style's program with one fault; None where the fault has no place in it."""
    for tag in mutation.tags:
        place = tagged_line(style.text, tag)
        if place is None:
            continue
        index, line = place
        changed = mutation.change(line, style)
        if changed != line:
            text = untagged(with_line(style.text, index, changed))
            lines = changed_lines(untagged(style.text), text)
            if (
                "behaviour-not-scored" in mutation.expected
            ):  # either of acting and scoring may change
                lines |= {n for t in ("score", "rescore", "table") for n in _tagged(style.text, t)}
                lines |= _lines_with(text, ".log_prob(")
            if tag in ("zero", "lists") or mutation.name == "loss-carried-over":
                lines |= _lines_with(text, ".backward(")  # where what is kept is used again
            if tag == "lists":
                for grows in (".append(", "+= ["):  # where a list is used that is none any more
                    lines |= _lines_with(text, grows)
            if "second-update-differs" in mutation.expected:  # that it does is seen, and not why
                lines |= _tagged(style.text, "loss", after=text)
            if tag == "clear":  # what is not emptied shows where it grows
                lines |= {n for name in ("log_probs", "rewards") for n in _lines_with(
                    text, f"{name}.append(")}  # fmt: skip
            if tag == "valid" or mutation.name == "unsummed":  # seen where the loss is made
                lines |= _tagged(style.text, "loss")
            if tag == "reset":  # what is missing shows where the return goes on
                lines |= _tagged(style.text, "running")
            harmless = ""
            if mutation.change in _GUARDED:
                guarded = _GUARDED[mutation.change](line, style)
                harmless = untagged(with_line(style.text, index, guarded))
            name, known = f"{style.name}/{mutation.name}", frozenset(lines)
            return Program(name, style, text, known, mutation.expected, harmless=harmless)
    return None


def _tagged(text: str, tag: str, after: str = "") -> set[int]:
    """The number of a tagged line; with ``after``, of the same line in that text."""
    found = tagged_line(text, tag)
    if found and after:
        return _lines_with(after, found[1].strip())
    return {found[0] + 1} if found else set()


def _lines_with(text: str, part: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if part in line}


@cache
def mutants() -> tuple[Program, ...]:
    """Every style with every fault that has a place in it."""
    return tuple(_mutants())


def _mutants() -> Iterator[Program]:
    for style in STYLES:
        for mutation in MUTATIONS:
            program = mutate(style, mutation)
            if program is not None:
                yield program
    for style in PATCHED_STYLES:
        yield from broken(style, read_changes(style, RULES))
