"""The styles whose faults, settings and conventions are written beside them, as small patches.

``styles/NAME.changes.txt`` goes with ``styles/NAME.py.txt``. It is a list of changes::

    clean: gamma-t-dropped                     the conventions of the program as it is written

    fault wrong-sign                           a fault of the catalogue in ``mutations``
    -    loss = -total
    +    loss = total
    @    loss.backward()                       another line that it may rightly be seen in

    fault kept-buffer: stale-batch             any other fault, and the rules that name it
    setting undiscounted                       a clean program
    convention whitened: whitened, gamma-t-dropped

The lines of ``-`` stand together, and once, in the program; those of ``+`` take their place.
Several such pairs make one change. A setting and a convention also make a program together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product

from tests.audit.zoo.styles import FOLDER, Program, Style

AS_WRITTEN = "as-written"
# Conventions that a setting leaves without effect: γ^t is 1; one episode is all of them.
_MOOT = {
    "undiscounted": ("gamma-t-dropped",),
    "one-episode": ("mean-over-episodes", "mean-over-each-episode"),
}


@dataclass(frozen=True)
class Change:
    """One change of a program.

    Attributes:
        kind: "fault", "setting" or "convention".
        name: What it is.
        labels: Rules that name the fault rightly, or conventions that the program then has.
        pairs: Lines that go, and lines that come.
        seen: Other lines that the fault may be seen in.
    """

    kind: str
    name: str
    labels: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    seen: tuple[str, ...] = ()

    def made(self, text: str) -> str | None:
        """The program with the change; None if its lines have gone with another change."""
        for old, new in self.pairs:
            if ("\n" + text).count("\n" + old) != 1:
                return None
            text = ("\n" + text).replace("\n" + old, "\n" + new)[1:]
        return text


def read_changes(style: Style, known: dict[str, tuple[str, ...]]) -> tuple[Change, ...]:
    """The changes of a style; ``known`` gives the rules of the catalogue's faults."""
    text = (FOLDER / f"{style.name}.changes.txt").read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.split("\n\n") if block.strip()]
    changes = [_change(block, known) for block in blocks]
    for change in changes:
        if change.pairs and change.made(style.text) in (None, style.text):
            raise ValueError(f"{style.name}: {change.kind} {change.name} does not apply")
    return tuple(changes)


def _change(block: list[str], known: dict[str, tuple[str, ...]]) -> Change:
    head, _, labels = block[0].partition(":")
    kind, _, name = head.partition(" ")
    rules = tuple(label.strip() for label in labels.split(",") if label.strip())
    if kind == "fault" and not rules:
        rules = known[name]
    pairs: list[tuple[list[str], list[str]]] = []
    before = ""
    for line in block[1:]:
        sign, content = line[:1], line[1:]
        if sign == "-" and before != "-":
            pairs.append(([], []))
        if sign in "-+":
            pairs[-1][sign == "+"].append(content)
        elif sign != "@":
            raise ValueError(f"{block[0]}: a line starts with {sign!r}; expected -, + or @")
        before = sign
    joined = tuple((_lines(old), _lines(new)) for old, new in pairs)
    seen = tuple(line[1:].strip() for line in block[1:] if line.startswith("@"))
    return Change(kind, name, rules, joined, seen)


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def broken(style: Style, changes: tuple[Change, ...]) -> Iterator[Program]:
    """The style with each of its faults."""
    for change in changes:
        text = change.made(style.text) if change.kind == "fault" else None
        if text is not None:
            lines = changed_lines(style.text, text) | {
                number
                for number, line in enumerate(text.splitlines(), 1)
                if line.strip() in change.seen
            }
            yield Program(
                f"{style.name}/{change.name}", style, text, frozenset(lines), change.labels
            )


def clean(style: Style, changes: tuple[Change, ...]) -> Iterator[Program]:
    """The style with each pair of a setting and a convention that go together."""
    (plain,) = (change for change in changes if change.kind == "clean")
    settings = [None, *(change for change in changes if change.kind == "setting")]
    conventions = [None, *(change for change in changes if change.kind == "convention")]
    for setting, convention in product(settings, conventions):
        text: str | None = style.text
        for change in (setting, convention):
            if text is not None and change is not None:
                text = change.made(text)
        if text is None:
            continue
        labels = (convention or plain).labels
        moot = _MOOT.get(setting.name, ()) if setting else ()
        labels = tuple(label for label in labels if label not in moot)
        name = f"{style.name}/{setting.name if setting else AS_WRITTEN}"
        name += f"/{convention.name if convention else 'plain'}"
        yield Program(name, style, text, conventions=labels)


def changed_lines(before: str, after: str) -> set[int]:
    """Numbers of the lines of ``after`` that are not in ``before`` at their place."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return {
        number + 1
        for kind, _, _, start, end in matcher.get_opcodes()
        if kind != "equal"
        for number in range(start, max(end, start + 1))
    }
