"""REINFORCE with a leave-one-out baseline on a causal language model, from random weights.

    python train.py                            # learns to sort four digits
    python train.py --compare                  # one step, ours and through plain logits
    torchrun --nproc-per-node 2 train.py       # the same batch, shared between two processes

The model is a small Llama built from a configuration; any causal model of Hugging Face whose output
layer is ``lm_head`` without a bias will do.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.distributed as dist
from sorting import Sorting
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import eligibility as el


@dataclass(frozen=True)
class Config:
    """What decides a run."""

    symbols: int = 10  # different digits
    length: int = 4  # digits to sort
    vocabulary: int = 32  # tokens the model knows; only digits may be answered
    width: int = 64  # features of a hidden state
    layers: int = 2
    prompts: int = 64  # in a batch, over all processes
    samples: int = 8  # answers to each prompt; the baseline of one is the mean of the others
    learning_rate: float = 1e-3  # at first; it falls linearly to 0
    entropy_coef: float = 0.01
    steps: int = 800
    seed: int = 0


def build(config: Config) -> LlamaForCausalLM:
    """A Llama with random weights, the same in every process."""
    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            intermediate_size=2 * config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=4,
            max_position_embeddings=2 * config.length + 1,
        )
    )


def allowed(config: Config) -> Tensor:
    """Which tokens may be answered: the digits, ``[V]``."""
    return torch.arange(config.vocabulary) < config.symbols


@torch.no_grad()
def answer(
    model: LlamaForCausalLM, prompts: Tensor, config: Config, noise: Tensor | None = None
) -> Tensor:
    """Answers ``[count, length]``: the most probable tokens, or with noise sampled ones.

    The token whose exponential noise ``[count, length, V]``, divided by its probability, comes
    first has that probability to be chosen.
    """
    tokens, cache = prompts, None
    answers: list[Tensor] = []
    for place in range(config.length):
        output = model.model(tokens, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits = model.lm_head(output.last_hidden_state[:, -1]).float()
        probs = logits.masked_fill(~allowed(config), float("-inf")).softmax(-1)
        if noise is not None:
            probs = probs / noise[:, place]
        tokens = probs.argmax(-1, keepdim=True)
        answers.append(tokens)
    return torch.cat(answers, 1)


def advantages(rewards: Tensor) -> Tensor:
    """Each reward minus the mean of the others to the same prompt, ``[prompts, samples]``."""
    return rewards - el.LeaveOneOut(rows="groups")(rewards)


def policy_loss(
    model: LlamaForCausalLM, prompts: Tensor, answers: Tensor, advantage: Tensor, config: Config
) -> Tensor:
    """The REINFORCE loss of all tokens of the answers, without their logits in memory."""
    sequence = torch.cat([prompts, answers[:, :-1]], 1)
    hidden = model.model(sequence).last_hidden_state[:, config.length :]
    return el.linear_reinforce_loss(
        hidden,
        model.lm_head.weight,
        answers,
        advantage.unsqueeze(1).expand_as(answers),
        mask=allowed(config),
        entropy_coef=config.entropy_coef,
    )


def plain_loss(
    model: LlamaForCausalLM, prompts: Tensor, answers: Tensor, advantage: Tensor, config: Config
) -> Tensor:
    """The same number the usual way: logits of every token, their softmax, a gather."""
    sequence = torch.cat([prompts, answers[:, :-1]], 1)
    logits = model(sequence).logits[:, config.length :]
    log_probs = logits.masked_fill(~allowed(config), float("-inf")).log_softmax(-1)
    finite = log_probs.masked_fill(~allowed(config), 0.0)
    entropy = -(finite.exp() * finite * allowed(config)).sum(-1)
    log_prob = log_probs.gather(-1, answers.unsqueeze(-1)).squeeze(-1)
    return -(advantage.unsqueeze(1) * log_prob + config.entropy_coef * entropy).mean()


@dataclass(frozen=True)
class Progress:
    """One batch, averaged over all processes."""

    step: int
    seconds: float
    reward: float
    right: float  # share of answers that are right as a whole


def rollout(
    model: LlamaForCausalLM, task: Sorting, config: Config, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts of this process, each repeated, with sampled answers and their rewards.

    Every process draws the whole batch and its noise, and takes its share of them: so the batch
    does not depend on how many they are.
    """
    count = config.prompts * config.samples
    everything = task.prompts(config.prompts, generator).repeat_interleave(config.samples, 0)
    noise = torch.empty(count, config.length, config.vocabulary).exponential_(generator=generator)
    share = count // processes()
    own = slice(rank() * share, (rank() + 1) * share)
    prompts = everything[own]
    answers = answer(model, prompts, config, noise[own])
    return prompts, answers, task.reward(prompts, answers)


def train(model: LlamaForCausalLM, config: Config) -> Iterator[Progress]:
    """Steps of REINFORCE, each with a fresh batch."""
    task = Sorting(config.symbols, config.length)
    generator = torch.Generator().manual_seed(config.seed * 1009)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / config.steps)
    start = time.perf_counter()
    for step in range(1, config.steps + 1):
        prompts, answers, rewards = rollout(model, task, config, generator)
        advantage = advantages(rewards.view(-1, config.samples)).flatten()
        optimizer.zero_grad()
        policy_loss(model, prompts, answers, advantage, config).backward()
        average([p.grad for p in model.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        right = task.right(prompts, answers).all(1).float().mean()
        seen = torch.stack([rewards.mean(), right, torch.tensor(time.perf_counter() - start)])
        average([seen])
        yield Progress(step, float(seen[2]), float(seen[0]), float(seen[1]))


def processes() -> int:
    """How many take part."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is."""
    return dist.get_rank() if dist.is_initialized() else 0


def average(tensors: list[Tensor]) -> None:
    """The mean over processes, in place: every process has equally many samples."""
    if processes() == 1:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    parts = (flat / processes()).split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def learn(config: Config, out: Path) -> list[Progress]:
    """Train, print every fiftieth batch, write the curve."""
    model = build(config)
    history: list[Progress] = []
    for progress in train(model, config):
        history.append(progress)
        if progress.step % 50 == 1 and rank() == 0:
            print(
                f"step {progress.step:5}  {progress.seconds:6.1f} s  "
                f"reward {progress.reward:.3f}  right {progress.right:.3f}",
                flush=True,
            )
    if rank() == 0:
        task = Sorting(config.symbols, config.length)
        fresh = task.prompts(1000, torch.Generator().manual_seed(config.seed + 1))
        greedy = task.right(fresh, answer(model, fresh, config)).all(1).float().mean()
        first, last = history[0], history[-1]
        print(
            f"reward {first.reward:.3f} -> {last.reward:.3f} of 2 in {last.step} steps and "
            f"{last.seconds / 60:.1f} minutes; right on {float(greedy):.1%} of 1000 fresh prompts"
        )
        write_curve(history, out)
    return history


def write_curve(history: list[Progress], out: Path) -> None:
    """The curve as CSV and as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    out.mkdir(parents=True, exist_ok=True)
    names = [field.name for field in fields(Progress)]
    with (out / "curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for progress in history:
            writer.writerow(f"{getattr(progress, name):.6g}" for name in names)
    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot([p.seconds for p in history], [p.reward for p in history], label="mean reward, of 2")
    axes.plot([p.seconds for p in history], [p.right for p in history], label="right answers")
    axes.set(xlabel="seconds", ylim=(0, 2.05), title="Sorting digits by REINFORCE")
    axes.legend(loc="upper left")
    figure.savefig(out / "curve.png", dpi=110)
    pyplot.close(figure)


def compare(config: Config) -> None:
    """One step both ways from the same weights and samples: time, memory, gradients.

    The peak only ever grows, so the method that needs less comes first.
    """
    model = build(config)
    task = Sorting(config.symbols, config.length)
    generator = torch.Generator().manual_seed(config.seed)
    prompts, answers, rewards = rollout(model, task, config, generator)
    advantage = advantages(rewards.view(-1, config.samples)).flatten()
    found: dict[str, list[Tensor]] = {}
    for name, loss in (("eligibility", policy_loss), ("plain logits", plain_loss)):
        loss(model, prompts, answers, advantage, config).backward()  # warms up
        model.zero_grad()
        start = time.process_time()
        loss(model, prompts, answers, advantage, config).backward()
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found[name] = [p.grad for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        print(f"{name:13} {seconds:7.3f} s   peak so far {peak / 1024:6.0f} MiB")
    a, b = (torch.cat([g.flatten() for g in grads]) for grads in found.values())
    print(f"largest difference of the gradients {float((a - b).abs().max() / b.abs().max()):.1e}")


def main(argv: list[str] | None = None) -> None:
    """The command line: every field of `Config`, ``--compare`` and ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Config):
        kind = type(field.default)
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=kind,
            default=field.default,
            help="%(default)s",
        )
    parser.add_argument("--compare", action="store_true", help="one step, two ways")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="for the curve")
    arguments = vars(parser.parse_args(argv))
    wants_comparison, out = arguments.pop("compare"), arguments.pop("out")
    config = Config(**arguments)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if config.prompts % processes() or config.symbols >= config.vocabulary:
        parser.error(
            f"{config.prompts} prompts must divide among {processes()} processes, and the "
            f"vocabulary must hold {config.symbols} digits and a separator"
        )
    if wants_comparison:
        compare(config)
    else:
        learn(config, out)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
