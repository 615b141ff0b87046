"""Drawings of an explanation, as SVG (inputs at the left, modules in columns) and as text (modules in one column)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from fpga.count_action.explanation.explain import (
    Connection,
    CountFacts,
    Explanation,
    ModuleFacts,
)

# Sizes in pixels.
_CHAR_WIDTH = 7.3
_ROW_HEIGHT = 18
_BOX_WIDTH = 46 * _CHAR_WIDTH
_GAP = 150
_MARGIN = 24
_STYLE = """
  text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; fill: #1f2933 }
  .name { font-weight: bold; font-size: 13px; fill: #ffffff }
  .quiet { fill: #5b6770 }
  .label { font-size: 11px; fill: #0b5394; paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .box { fill: #ffffff; stroke: #34495e; stroke-width: 1.2 }
  .head { fill: #34495e }
  .input { fill: #eaf2f8; stroke: #5b8db8 }
  .line { fill: none; stroke: #0b5394; stroke-width: 1.4 }
""".strip("\n")
_ARROWHEAD = """<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4.5" orient="auto">
<path d="M0,0 L9,4.5 L0,9 z" fill="#0b5394"/></marker></defs>"""


@dataclass(frozen=True, slots=True)
class _Rectangle:
    x: float
    y: float
    height: float
    rows: tuple[tuple[str, str], ...]
    width: float = _BOX_WIDTH


def draw_svg(explanation: Explanation) -> str:
    """Return the drawing as a complete SVG document."""
    columns = _arrange_columns(explanation)
    inputs = list(_list_inputs(explanation))
    rectangles = dict(_place_inputs(inputs))
    inputs_width = (
        (max((len(name) for name, _ in inputs), default=0) * _CHAR_WIDTH + 2 * _MARGIN + _GAP)
        if inputs
        else _MARGIN
    )
    modules_by_name = {module.name: module for module in explanation.modules}
    for column_index, names in enumerate(columns):
        y = float(_MARGIN + 24)
        for name in names:
            rows = tuple(_format_rows(modules_by_name[name]))
            rectangle = _Rectangle(
                inputs_width + column_index * (_BOX_WIDTH + _GAP), y, (len(rows) + 2) * _ROW_HEIGHT, rows
            )
            rectangles[name] = rectangle
            y += rectangle.height + 40
    width = max(rectangle.x + rectangle.width for rectangle in rectangles.values()) + _MARGIN + 60
    height = max(rectangle.y + rectangle.height for rectangle in rectangles.values()) + _MARGIN + 60
    body = [
        *_draw_lines(explanation, rectangles),
        *(_draw_rectangle(name, rectangle, modules_by_name) for name, rectangle in rectangles.items()),
    ]
    size_attributes = f'width="{width:.0f}" height="{height:.0f}"'
    title = escape(f"{explanation.name} (digest {explanation.digest})")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size_attributes} viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{title}</title>",
            f"<style>\n{_STYLE}\n</style>",
            _ARROWHEAD,
            f'<rect {size_attributes} fill="#ffffff"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN}" class="quiet">{title}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _arrange_columns(explanation: Explanation) -> list[list[str]]:
    """Return the modules in columns, by the longest chain of connections to them. Backward connections are ignored."""
    names = [module.name for module in explanation.modules]
    depths = dict.fromkeys(names, 0)
    forward_connections = [
        connection
        for connection in explanation.lines
        if connection.driver and names.index(connection.driver) < names.index(connection.reader)
    ]
    for name in names:
        for connection in forward_connections:
            if connection.driver == name:
                depths[connection.reader] = max(depths[connection.reader], depths[name] + 1)
    return [[name for name in names if depths[name] == column] for column in range(max(depths.values()) + 1)]


def _list_inputs(explanation: Explanation) -> Iterator[tuple[str, str]]:
    for text in explanation.inputs:
        is_memory = text.startswith("memory ")
        yield text if is_memory else text.replace(" of ", ", ", 1), _parse_input_name(text)


def _parse_input_name(text: str) -> str:
    """Return the name in the declaration of an input, or `MODULE.NAME` of a memory."""
    return text.split()[1].partition("[")[0].removesuffix(":")


def _place_inputs(inputs: list[tuple[str, str]]) -> Iterator[tuple[str, _Rectangle]]:
    for number, (text, name) in enumerate(inputs):
        y = _MARGIN + 24 + number * 2.2 * _ROW_HEIGHT
        width = len(text) * _CHAR_WIDTH + 20
        yield f" {name}", _Rectangle(_MARGIN, y, 1.5 * _ROW_HEIGHT, (("input", text),), width)


def _format_rows(module: ModuleFacts) -> Iterator[tuple[str, str]]:
    for count in module.counts:
        yield from _wrap_text("", f"{count.name}: {count.text}")
        yield from _wrap_text("quiet", f"  {_describe_target(count)}")
        for effect in count.effects:
            yield from _wrap_text("", f"  \N{RIGHTWARDS ARROW} {effect.text}  +{effect.latency_cycles}")


def _wrap_text(style: str, text: str) -> Iterator[tuple[str, str]]:
    indent = " " * (len(text) - len(text.lstrip()))
    for line in textwrap.wrap(text, 44, subsequent_indent=indent + "    ", drop_whitespace=True):
        yield style, line


def _draw_rectangle(name: str, rectangle: _Rectangle, modules_by_name: dict[str, ModuleFacts]) -> str:
    if name not in modules_by_name:
        return (
            f'<rect class="input" x="{rectangle.x:.0f}" y="{rectangle.y:.0f}" width="{rectangle.width:.0f}"'
            f' height="{rectangle.height:.0f}" rx="12"/>'
            f'<text x="{rectangle.x + 10:.0f}" y="{rectangle.y + _ROW_HEIGHT:.0f}">'
            f"{escape(rectangle.rows[0][1])}</text>"
        )
    box_attributes = f'x="{rectangle.x:.0f}" y="{rectangle.y:.0f}" width="{rectangle.width:.0f}"'
    lines = [
        f'<rect class="box" {box_attributes} height="{rectangle.height:.0f}" rx="4"/>',
        f'<rect class="head" {box_attributes} height="{1.4 * _ROW_HEIGHT:.0f}" rx="4"/>',
        f'<text class="name" x="{rectangle.x + 10:.0f}" y="{rectangle.y + _ROW_HEIGHT:.0f}">{escape(name)}</text>',
    ]
    for number, (style, text) in enumerate(rectangle.rows):
        y = rectangle.y + (number + 2.3) * _ROW_HEIGHT
        lines.append(
            f'<text class="{style}" x="{rectangle.x + 10:.0f}" y="{y:.0f}" xml:space="preserve">{escape(text)}</text>'
        )
    return "\n".join(lines)


def _draw_lines(explanation: Explanation, rectangles: dict[str, _Rectangle]) -> Iterator[str]:
    connections_by_ends: dict[tuple[str, str], list[Connection]] = {}
    for connection in explanation.lines:
        connections_by_ends.setdefault(
            (connection.driver or f" {connection.name}", connection.reader), []
        ).append(connection)
    arrow_counts: dict[str, int] = {}
    bottom_y = max(rectangle.y + rectangle.height for rectangle in rectangles.values())
    for (driver, reader), connections in connections_by_ends.items():
        arrow_counts[reader] = arrow_counts.get(reader, 0) + 1
        label = (
            ""
            if driver.startswith(" ")
            else ", ".join(dict.fromkeys(connection.name for connection in connections))
        )
        yield _draw_arrow(rectangles[driver], rectangles[reader], arrow_counts[reader], label, bottom_y)


def _draw_arrow(
    driver: _Rectangle, reader: _Rectangle, arrow_number: int, label: str, bottom_y: float
) -> str:
    x1, y1 = driver.x + driver.width, driver.y + min(driver.height / 2, 1.5 * _ROW_HEIGHT)
    x2, y2 = reader.x, reader.y + 10 + 12 * arrow_number
    if 0 < x2 - x1 < _BOX_WIDTH + _GAP:
        bend = (x2 - x1) / 2
        path = f"M{x1:.0f},{y1:.0f} C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
        middle = (x1 + x2) / 2, (y1 + y2) / 2 - 5
    else:
        y_below = bottom_y + 6 + 10 * arrow_number
        path = (
            f"M{x1:.0f},{y1:.0f} h{16 + 6 * arrow_number} V{y_below:.0f}"
            f" H{x2 - 16 - 6 * arrow_number:.0f} V{y2:.0f} H{x2:.0f}"
        )
        middle = (x1 + x2) / 2, y_below - 4
    return f'<path class="line" marker-end="url(#tip)" d="{path}"/>' + (
        _draw_label(label, *middle) if label else ""
    )


def _draw_label(text: str, x: float, y: float) -> str:
    return f'\n<text class="label" text-anchor="middle" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


_ASCII = str.maketrans("─│╭╮╰╯▼▶├└", "-|++++v>+`")


def draw(explanation: Explanation, width: int = 100, *, ascii_only: bool = False) -> str:
    """Return the drawing as text, `width` characters wide (at least 40)."""
    width = max(width, 40)
    size_text = (
        f"{_pluralise(len(explanation.modules), 'module')}, {_pluralise(len(explanation.inputs), 'input')}"
    )
    lines = [
        f"{explanation.name}: {size_text}, digest {explanation.digest}",
        "",
        *_format_inputs(explanation, width),
    ]
    for index, module in enumerate(explanation.modules):
        lines += _format_module(module, width)
        next_name = explanation.modules[index + 1].name if index + 1 < len(explanation.modules) else ""
        lines += _format_arrow(explanation, module, next_name)
    text = "\n".join(lines) + "\n"
    return text.translate(_ASCII) if ascii_only else text


def _pluralise(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _format_inputs(explanation: Explanation, width: int) -> Iterator[str]:
    for text in explanation.inputs:
        name = _parse_input_name(text)
        readers = dict.fromkeys(
            connection.reader
            for connection in explanation.lines
            if not connection.driver and connection.name == name
        )
        yield from textwrap.wrap(
            f"{text}  ──▶ {', '.join(readers) or 'nothing'}", width, subsequent_indent="    "
        )
    if explanation.inputs:
        yield ""


def _format_module(module: ModuleFacts, width: int) -> Iterator[str]:
    content_width = width - 4
    yield f"╭─ {module.name} ".ljust(width - 1, "─") + "╮"
    for count in module.counts:
        for line in _format_count(count, content_width):
            yield f"│ {line.ljust(content_width)} │"
    yield "╰" + "─" * (width - 2) + "╯"


def _format_count(count: CountFacts, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{count.name}: {count.text}", width, subsequent_indent="    ")
    yield f"  {_describe_target(count)}" + ("" if count.effects else "; nothing follows: it is read")
    for index, effect in enumerate(count.effects):
        is_last = index == len(count.effects) - 1
        cycles_text = _pluralise(effect.latency_cycles, "cycle")
        readers_text = f"  ──▶ {', '.join(effect.triggers)}" if effect.triggers else ""
        wrapped_lines = textwrap.wrap(f"{effect.text}  (+{cycles_text}){readers_text}", width - 5)
        yield f"  {'└' if is_last else '├'}─ {wrapped_lines[0]}"
        for line in wrapped_lines[1:]:
            yield f"  {' ' if is_last else '│'}     {line}"


def _describe_target(count: CountFacts) -> str:
    """Return the target of a count as text."""
    return f"reaches {'nothing, ever' if count.value is None else count.value} ({count.target})"


def _format_arrow(explanation: Explanation, module: ModuleFacts, next_name: str) -> Iterator[str]:
    """Yield the arrow from a module to the module below it, or an empty line if they are not connected."""
    connections = [
        connection
        for connection in explanation.lines
        if connection.driver == module.name and connection.reader == next_name
    ]
    if not connections:
        yield ""
        return
    yield f"      │ {_describe_links(connections)}"
    yield "      ▼ 1 cycle later"


def _describe_links(connections: list[Connection]) -> str:
    uses: dict[str, dict[str, None]] = {}
    for connection in connections:
        uses.setdefault(connection.name, {})[connection.how] = None
    return "; ".join(
        f"{name} ({', '.join(how)})" if "clears" not in how else name for name, how in uses.items()
    )
