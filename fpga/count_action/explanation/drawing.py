"""An explanation drawn with characters: one box a module, arrows to the next one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fpga.count_action.explanation.explain import (
    ActionFacts,
    Connection,
    CountFacts,
    Explanation,
    ModuleFacts,
)

_ASCII = str.maketrans("─│╭╮╰╯▼▶├└", "-|++++v>+`")


def draw(explanation: Explanation, width: int = 100, *, ascii_only: bool = False) -> str:
    """Return the drawing, at most `width` characters wide (but not below 40)."""
    width = max(width, 40)
    size = f"{_plural(len(explanation.modules), 'module')}, {_plural(len(explanation.inputs), 'input')}"
    lines = [f"{explanation.name}: {size}, digest {explanation.digest}", "", *_inputs(explanation, width)]
    for place, part in enumerate(explanation.modules):
        lines += _box(part, width)
        following = explanation.modules[place + 1].name if place + 1 < len(explanation.modules) else ""
        lines += _arrows(explanation, part, following)
    text = "\n".join(lines) + "\n"
    return text.translate(_ASCII) if ascii_only else text


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _inputs(explanation: Explanation, width: int) -> Iterator[str]:
    for text in explanation.inputs:
        name = text.split()[1].partition("[")[0]
        readers = dict.fromkeys(
            line.reader for line in explanation.lines if not line.driver and line.name == name
        )
        yield from textwrap.wrap(
            f"{text}  ──▶ {', '.join(readers) or 'nobody'}", width, subsequent_indent="    "
        )
    if explanation.inputs:
        yield ""


def _box(part: ModuleFacts, width: int) -> Iterator[str]:
    inner = width - 4
    yield f"╭─ {part.name} ".ljust(width - 1, "─") + "╮"
    for counter in part.counts:
        for line in _counter(counter, inner):
            yield f"│ {line.ljust(inner)} │"
    yield "╰" + "─" * (width - 2) + "╯"


def _counter(counter: CountFacts, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{counter.name}: {counter.text}", width, subsequent_indent="    ")
    yield f"  {goal(counter)}" + ("" if counter.effects else "; nothing follows: it is read")
    for place, effect in enumerate(counter.effects):
        last = place == len(counter.effects) - 1
        yield from _effect(effect, width, last=last)


def goal(counter: CountFacts) -> str:
    """Return the target in words."""
    return f"reaches {'nothing, ever' if counter.value is None else counter.value} ({counter.target})"


def _effect(effect: ActionFacts, width: int, *, last: bool) -> Iterator[str]:
    cycles = _plural(effect.latency_cycles, "cycle")
    seen = f"  ──▶ {', '.join(effect.triggers)}" if effect.triggers else ""
    lines = textwrap.wrap(f"{effect.text}  (+{cycles}){seen}", width - 5)
    yield f"  {'└' if last else '├'}─ {lines[0]}"
    for line in lines[1:]:
        yield f"  {' ' if last else '│'}     {line}"


def _arrows(explanation: Explanation, part: ModuleFacts, following: str) -> Iterator[str]:
    """Return the lines from a module to the one drawn below it; or an empty line."""
    down = [line for line in explanation.lines if line.driver == part.name and line.reader == following]
    if not down:
        yield ""
        return
    yield f"      │ {_carried(down)}"
    yield "      ▼ 1 cycle later"


def _carried(lines: list[Connection]) -> str:
    uses: dict[str, dict[str, None]] = {}
    for line in lines:
        uses.setdefault(line.name, {})[line.how] = None
    return "; ".join(
        f"{name} ({', '.join(how)})" if "clears" not in how else name for name, how in uses.items()
    )
