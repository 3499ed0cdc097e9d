"""The names of baselines, alone or joined by ``+``, and which of them go together."""

from __future__ import annotations

from typing import Any, ClassVar

from eligibility.errors import InvalidValueError
from eligibility.train.domains import shown, suggestion, wrong


class BaselineNames:
    """``a``, or ``a+b``: b is subtracted from what a has left.

    ``state-value`` comes first, because it looks at returns and states; ``per-weight`` last,
    because it is subtracted from the gradient and no longer from the returns.
    """

    names: ClassVar[tuple[str, ...]] = (
        "none",
        "moving-average",
        "leave-one-out",
        "time-dependent-leave-one-out",
        "state-value",
        "per-weight",
    )

    expected: ClassVar[str] = "names joined by +"

    def __call__(self, name: str, value: Any) -> str:
        """The names without blanks.

        Raises:
            InvalidValueError: An unknown name, or an order that means nothing.
        """
        parts = [part.strip() for part in value.split("+")] if isinstance(value, str) else [value]
        for part in parts:
            if part not in self.names:
                known = " or ".join(self.names)
                raise InvalidValueError(
                    f"`{name}`", shown(part), known, suggestion(str(part), self.names)
                )
        if len({*parts}) < len(parts) or (len(parts) > 1 and "none" in parts):
            raise wrong(name, value, "different baselines", "leave out what is none or repeated")
        if "state-value" in parts[1:] or "per-weight" in parts[:-1]:
            expected = "state-value as the first and per-weight as the last of several"
            raise wrong(name, value, expected, "change their order")
        return "+".join(parts)
