"""HTML elements as strings: all text is escaped, unless it is `Markup` already."""

from __future__ import annotations

from html import escape

# Elements without an end tag.
_VOID = frozenset({"input", "meta", "rect", "path", "line", "circle", "br", "mspace"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Markup | None


def element(tag: str, /, *children: Child, **attributes: object) -> Markup:
    """``<tag attributes>children</tag>``.

    ``class_`` and ``for_`` lose their underscore, other underscores become hyphens; None and False
    leave an attribute out, True writes it bare.
    """
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    """The children one after the other, those that are plain text escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(child, quote=False)
            for child in children
            if child is not None
        )
    )


def _name(key: str) -> str:
    # SVG has attributes in mixed case and with underscores in none, so this is one to one.
    return key.rstrip("_").replace("_", "-")
