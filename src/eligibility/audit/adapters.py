"""Audits of a part of a program: an agent's class, a loss function, a loss module."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from eligibility.audit.episodes import FILLED, concatenated, episode_of, play
from eligibility.audit.examine import examine
from eligibility.audit.judgement.audited_program import AuditedProgram
from eligibility.audit.judgement.constants import GIVEN, Constants
from eligibility.audit.judgement.source import Source, read_source
from eligibility.audit.language.token_loss import audit_token_loss, return_place
from eligibility.audit.reporting.report import AuditReport
from eligibility.audit.running.runner import CallableRunner
from eligibility.audit.running.survey import silent
from eligibility.audit.tensordicts import takes_tensordict, training_of
from eligibility.errors import InvalidTypeError
from eligibility.scalars import check_callable, check_count, check_numbers, described

_SAMPLES = 200
_TOKEN_PATHS = 3000  # of a loss over tokens, which cannot be sampled


def audit_agent(
    factory: Callable[..., Any],
    act: str = "act",
    update: str = "update",
    *,
    environment: str = "CartPole-v1",
    episodes: int = 1,
    discount: float | None = None,
    max_paths: int = 600,
) -> AuditReport:
    """Whether an agent's ``update`` computes the policy gradient.

    The agent plays ``episodes`` episodes of the probe and updates; in this process; the audit
    restores everything that it intercepted.

    Args:
        factory: Makes a fresh agent; called with the environment if it takes an argument.
        act: Name of the method that takes an observation and returns an action, or a tuple whose
            first item is the action.
        update: Name of the method that learns. Its parameters are filled by name: ``rewards``,
            ``observations``, ``actions``, ``terminated``, ``truncated``, lists over all steps. If
            it takes none of them, rewards are appended to the agent's list ``rewards``.
        environment: The probe takes the sizes of this environment.
        episodes: Episodes before each update.
        discount: γ of the return; None: found in the agent's file.
        max_paths: Maximum number of paths to enumerate; beyond it, paths are sampled.

    Returns:
        The report.

    Raises:
        InvalidTypeError: The agent has no such method, or there is no way to give it rewards.

    Example:
        >>> import torch
        >>> class Agent:
        ...     def __init__(self):
        ...         self.net = torch.nn.Linear(4, 2)
        ...         self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        ...         self.log_probs, self.rewards = [], []
        ...     def act(self, observation):
        ...         dist = torch.distributions.Categorical(
        ...             logits=self.net(torch.as_tensor(observation)))
        ...         action = dist.sample()
        ...         self.log_probs.append(dist.log_prob(action))
        ...         return action.item()
        ...     def update(self):
        ...         loss = -sum(self.log_probs) * sum(self.rewards)
        ...         self.optimizer.zero_grad()
        ...         loss.backward()
        ...         self.optimizer.step()
        ...         self.log_probs.clear()
        ...         self.rewards.clear()
        >>> audit_agent(Agent, discount=1.0).verdict
        'unbiased'

    References:
        Williams 1992, Theorem 2.
    """
    check_callable(factory, "factory", "pass the class of the agent, or a function that makes one")
    _check_probe(environment, episodes, discount, max_paths)

    def program() -> None:
        made = gymnasium.make(environment)
        agent = _made(factory, made)
        learn = _method(agent, update)
        while True:
            played = [play(made, agent, _method(agent, act)) for _ in range(episodes)]
            record = {name: list(chain(*(e[name] for e in played))) for name in played[0]}
            wanted = {name: record[name] for name in _parameters(learn) if name in record}
            learn(**wanted)

    _check_agent(factory, act, update, environment)
    return _audit(program, factory, None, discount, max_paths)


def audit_loss(
    function: Callable[..., Tensor],
    *,
    environment: str = "CartPole-v1",
    episodes: int = 1,
    discount: float | None = None,
    max_paths: int = 600,
) -> AuditReport:
    """Whether a loss function's gradient is the policy gradient.

    A linear softmax policy plays the probe, and the audit calls ``function`` with the arguments
    that it names.

    Args:
        function: Returns the scalar loss. Its parameters are filled by name, tensors over the steps
            of all episodes [T]: ``log_probs`` (or ``log_prob``), ``logits`` [T, K], ``actions``,
            ``rewards``, ``returns`` or ``advantages`` (reward-to-go), ``entropy``,
            ``old_log_probs``, ``terminated``, ``truncated``, ``dones``. With a parameter ``mask``
            it is a loss over tokens, [B, T] with an answer a row, and ``rewards``, ``returns`` or
            ``advantages`` are [B]: then this is `audit_token_loss` of one prompt with ``episodes``
            answers.
        environment: The probe takes the sizes of this environment.
        episodes: Episodes in a batch.
        discount: γ of the returns; None: 1, or found in the function's file.
        max_paths: Maximum number of paths to enumerate; beyond it, paths are sampled.

    Returns:
        The report.

    Raises:
        InvalidTypeError: The function has a parameter that cannot be filled.

    Example:
        >>> audit_loss(lambda log_probs, returns: -(log_probs * returns).sum()).verdict
        'unbiased'
        >>> report = audit_loss(lambda log_probs, returns: -log_probs.mean() * returns.sum())
        >>> [finding.rule for finding in report.findings]
        ['mean-log-prob-times-sum-of-returns']

    References:
        Williams 1992, Theorem 2.
    """
    check_callable(function, "function", "pass a function that returns the loss")
    _check_probe(environment, episodes, discount, max_paths)
    names = _parameters(function)
    if "mask" in names:
        return audit_token_loss(
            function, prompts=1, group_size=episodes, max_paths=max(max_paths, _TOKEN_PATHS)
        )
    unknown = [name for name in names if name not in FILLED]
    if unknown:
        raise InvalidTypeError(
            f"parameter `{unknown[0]}` of the loss",
            "a name that the audit does not know",
            f"some of {', '.join(sorted(FILLED))}",
            "wrap the loss in a function with these names",
        )
    gamma = 1.0 if discount is None else discount

    def program() -> None:
        made: Any = gymnasium.make(environment)
        loss_module = copy.deepcopy(function)
        inputs = math.prod(made.observation_space.shape or (1,))
        policy = nn.Linear(inputs, int(made.action_space.n))
        extra = list(loss_module.parameters()) if isinstance(loss_module, nn.Module) else []
        optimizer = torch.optim.SGD([*policy.parameters(), *extra], lr=1e-2)
        while True:
            batch = [episode_of(made, policy, gamma) for _ in range(episodes)]
            filled = concatenated(batch)
            loss: Any = loss_module(**{name: filled[name] for name in names})
            if not isinstance(loss, Tensor):
                raise InvalidTypeError(
                    "the result of `function`", type(loss).__name__, "a tensor", "return the loss"
                )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            optimizer.step()

    return _audit(program, function, return_place(function), gamma, max_paths)


def audit_module(
    module: nn.Module,
    *,
    environment: str = "CartPole-v1",
    episodes: int = 1,
    discount: float | None = None,
    max_paths: int = 600,
) -> AuditReport:
    """Whether a loss module's gradient is the policy gradient: `audit_loss` of its ``forward``.

    A loss module of TorchRL, whose ``forward`` takes ``tensordict``, plays with its own actor.

    Args:
        module: Its ``forward`` takes what `audit_loss` fills in and returns the scalar loss.
        environment: The probe takes the sizes of this environment.
        episodes: Episodes in a batch.
        discount: γ of the returns; None: 1.
        max_paths: Maximum number of paths to enumerate; beyond it, paths are sampled.

    Returns:
        The report.

    Raises:
        InvalidTypeError: Not a module, or ``forward`` has a parameter that cannot be filled.

    Example:
        >>> class Loss(nn.Module):
        ...     def forward(self, log_probs, returns):
        ...         return (log_probs * returns).sum()
        >>> audit_module(Loss(), discount=1.0).verdict
        'wrong-sign'
    """
    if not isinstance(module, nn.Module):
        raise InvalidTypeError(
            "`module`", type(module).__name__, "a torch.nn.Module", "use audit_loss for a function"
        )
    if takes_tensordict(module):
        _check_probe(environment, episodes, discount, max_paths)
        program = training_of(module, environment, episodes)
        return _audit(program, module, None, discount, max_paths)
    return audit_loss(
        module, environment=environment, episodes=episodes, discount=discount, max_paths=max_paths
    )


def _audit(
    program: Callable[[], None],
    audited: Callable[..., Any],
    place: tuple[str, int] | None,
    discount: float | None,
    max_paths: int,
) -> AuditReport:
    started = time.perf_counter()
    source = _source_of(audited)
    constants = source.constants(()) if source else Constants()
    if discount is not None:
        constants = replace(constants, discounts=(discount,), origin=GIVEN)
    name = getattr(audited, "__qualname__", type(audited).__name__)
    report = examine(
        CallableRunner(program),
        max_paths,
        _SAMPLES,
        silent,
        lambda observed: AuditedProgram(observed, source, name, constants, place),
    )
    return replace(report, seconds=time.perf_counter() - started)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Parameters to be filled by name: those of ``forward`` for a module, without defaults."""
    called = function.forward if isinstance(function, nn.Module) else function
    return [
        name
        for name, each in inspect.signature(called).parameters.items()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and (each.default is each.empty or name in FILLED)
    ]


def _made(factory: Callable[..., Any], environment: Any) -> Any:
    """A fresh agent."""
    wanted = inspect.signature(factory).parameters.values()
    return factory(environment) if any(p.default is p.empty for p in wanted) else factory()


def _method(agent: Any, name: str) -> Callable[..., Any]:
    method = getattr(agent, name, None)
    if not callable(method):
        raise InvalidTypeError(
            f"the agent ({type(agent).__name__})",
            f"no method `{name}`",
            "methods that act and update",
            "pass their names: audit_agent(factory, act=…, update=…)",
        )
    return method  # type: ignore[no-any-return]  # callable() does not tell the result


def _check_agent(factory: Callable[..., Any], act: str, update: str, environment: str) -> None:
    """Make one agent outside the audit, so that mistakes in its interface raise."""
    made = gymnasium.make(environment)
    with torch.random.fork_rng(devices=[]):
        agent = _made(factory, made)
    made.close()
    _method(agent, act)
    takes_rewards = "rewards" in _parameters(_method(agent, update))
    if not takes_rewards and not isinstance(getattr(agent, "rewards", None), list):
        raise InvalidTypeError(
            f"the agent ({type(agent).__name__})",
            f"neither a list `rewards` nor a parameter `rewards` of `{update}`",
            "one of them",
            f"give `{update}` a parameter `rewards` that takes the list of the batch's rewards",
        )


def _check_probe(environment: str, episodes: int, discount: float | None, max_paths: int) -> None:
    if not isinstance(environment, str):
        raise InvalidTypeError(
            "`environment`", described(environment), "the id of an environment", "'CartPole-v1'"
        )
    check_count(episodes, "episodes")
    check_count(max_paths, "max_paths")
    if discount is not None:
        check_numbers(discount=discount)


def _source_of(audited: Callable[..., Any]) -> Source | None:
    target = type(audited) if isinstance(audited, nn.Module) else audited
    try:
        file = inspect.getsourcefile(target)
    except (OSError, TypeError):  # a class of a console has no file
        file = None
    if file is None or not file.endswith(".py") or not Path(file).is_file():
        return None  # typed in a console, or a block of a page
    return read_source(Path(file))
