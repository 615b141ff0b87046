"""HTML and SVG built by nested calls: `tag("p", "a < b", class_="note")`. Text is escaped, markup is not."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

Content: TypeAlias = "Markup | str | Iterable[Markup]"
Attribute: TypeAlias = "str | int | float | bool | None"

_VOID_TAGS = frozenset({"meta", "br", "col", "img"})


class Markup(str):
    """Text that is already markup and must not be escaped again."""

    __slots__ = ()


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return one element. `class_` becomes `class`, `stroke_width` becomes `stroke-width`, and floats are rounded.

    `True` gives an attribute without a value; `False` and `None` omit the attribute.

    >>> tag("a", "x < y", href="?a&b", class_="link")
    '<a href="?a&amp;b" class="link">x &lt; y</a>'
    >>> tag("g", tag("circle", r=2.0), (tag("path", d=d) for d in "ab"))
    '<g><circle r="2"></circle><path d="a"></path><path d="b"></path></g>'
    """
    opening = f"<{name}{''.join(_render_attribute(key, value) for key, value in attributes.items())}>"
    if name in _VOID_TAGS:
        return Markup(opening)
    return Markup(f"{opening}{''.join(map(_render_content, content))}</{name}>")


def join(*content: Content) -> Markup:
    """Return several pieces joined as markup."""
    return Markup("".join(map(_render_content, content)))


def _render_content(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return escape(content, quote=False)
    return "".join(content)


def _render_attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
