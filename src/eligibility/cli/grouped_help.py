"""The help of a command with many options: in groups, with the defaults that will be used."""

from __future__ import annotations

from typing import Any

import typer.core

from eligibility.train.config import as_written
from eligibility.train.presets import preset

# The title of a group, by the first of its options.
_TITLES = {
    "env": "Arguments",
    "env_kwargs": "The run",
    "discount": "The weight of each action",
    "entropy_coef": "The step",
    "hidden_sizes": "The policy and what it sees",
    "threads": "The process and its files",
    "seeds": "The seeds and their files",
}


class GroupedHelp(typer.core.TyperCommand):
    """Options stand in the order of the config, under the titles of their groups.

    After the id of an environment with a preset, as in ``train CartPole-v1 --help``, its options
    are the defaults that are shown.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Notice the environment before the help is asked for."""
        ctx.meta[__name__] = next((preset(word) for word in args if preset(word)), {})
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write all groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        title = ""
        chosen = ctx.meta[__name__]
        for each in self.get_params(ctx):
            title = _TITLES.get(str(each.name), title)
            name, text = each.get_help_record(ctx) or ("", "")
            if each.name in chosen:
                own, _, _ = text.partition(" Default: ")
                text = f"{own} Default, by the preset: {as_written(chosen[each.name])}."
            groups.setdefault(title, []).append((name, text))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
