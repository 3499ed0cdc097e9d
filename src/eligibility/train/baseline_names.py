"""The baselines by name, alone or joined by ``+``, and what each of them needs. No torch.

A new baseline is a class in `eligibility.reinforce.baselines` and an entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eligibility.errors import InvalidValueError
from eligibility.train.domains import shown, suggestion, wrong


@dataclass(frozen=True)
class BaselineOption:
    """One baseline, as options of training see it."""

    name: str
    least_episodes: int = 1  # the number of episodes of a rollout that it needs
    # Whether it is told by the other episodes of the rollout. What it leaves of those depends on
    # this one, so that a second such baseline would be biased.
    compares: bool = False
    averages: bool = False  # whether it averages over rollouts, at ``baseline_rate``
    # Whether it predicts returns from states. It comes first, because it looks at returns and
    # states, and needs those of every process.
    predicts: bool = False
    # Whether it is subtracted from the gradient of each episode instead of from returns. It comes
    # last, and needs the episodes of every process in one.
    of_weights: bool = False


OPTIONS = {
    option.name: option
    for option in (
        BaselineOption("none"),
        BaselineOption("moving-average", averages=True),
        BaselineOption("leave-one-out", least_episodes=2, compares=True),
        BaselineOption("time-dependent-leave-one-out", least_episodes=2, compares=True),
        BaselineOption("state-value", predicts=True),
        BaselineOption("per-weight", averages=True, of_weights=True),
    )
}


class BaselineNames:
    """``a``, or ``a+b``: b is subtracted from what a has left."""

    names: ClassVar[tuple[str, ...]] = tuple(OPTIONS)

    expected: ClassVar[str] = "names joined by +"

    def __call__(self, name: str, value: Any) -> str:
        """The names without blanks; refuses an unknown name, or an order that means nothing."""
        parts = [part.strip() for part in value.split("+")] if isinstance(value, str) else [value]
        for part in parts:
            if part not in self.names:
                known = " or ".join(self.names)
                raise InvalidValueError(
                    f"`{name}`", shown(part), known, suggestion(str(part), self.names)
                )
        if len({*parts}) < len(parts) or (len(parts) > 1 and "none" in parts):
            raise wrong(name, value, "different baselines", "remove none and repeated names")
        options = [OPTIONS[part] for part in parts]
        late = any(option.predicts for option in options[1:])
        if late or any(option.of_weights for option in options[:-1]):
            expected = "state-value as the first and per-weight as the last of several"
            raise wrong(name, value, expected, "change their order")
        comparing = [option.name for option in options if option.compares]
        if len(comparing) > 1:
            expected = f"one of {' and '.join(comparing)}, because both look at the other episodes"
            raise wrong(name, value, expected, "remove one of them")
        return "+".join(parts)


def options_of(baseline: str) -> list[BaselineOption]:
    """The baselines that the value of the option ``baseline`` names, in order."""
    return [OPTIONS[name] for name in baseline.split("+")]
