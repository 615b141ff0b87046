"""Counterexamples as tables: the signals of a value change dump, one row a signal and one column a cycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_VARIABLE = re.compile(r"\$var \w+ (\d+) (\S+) (\S+)")


def read_vcd(text: str, signals: Iterable[str], period: int = 10) -> dict[str, tuple[int, ...]]:
    """Return the values of `signals`, one a cycle, as the solver's dumps have them.

    A signal of the outermost scope has its name alone, one below it those of its scopes before it: `check_0.count_o`.

    A cycle takes `period` units of time; what stands at its end counts. Bits without a value are 0. Signals that are
    not in the dump are left out.
    """
    wanted = set(signals)
    codes: dict[str, list[str]] = {}
    scopes: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$scope"):
            scopes.append(line.split()[2])
        elif line.startswith("$upscope"):
            scopes.pop()
        elif scopes and (found := _VARIABLE.match(line)):
            name = ".".join([*scopes[1:], found[3]])
            if name in wanted:
                codes.setdefault(found[2], []).append(name)
        elif line.startswith("$enddefinitions"):
            break
    return _values(lines, codes, period)


def _values(lines: Iterable[str], codes: Mapping[str, list[str]], period: int) -> dict[str, tuple[int, ...]]:
    now = dict.fromkeys((name for names in codes.values() for name in names), 0)
    series: dict[str, list[int]] = {name: [] for name in now}
    for line in lines:
        if line.startswith("#"):
            while len(next(iter(series.values()), ())) < int(line[1:]) // period:
                for name, value in now.items():
                    series[name].append(value)
        elif (found := re.match(r"b?([01xz]+) ?(\S+)", line)) and found[2] in codes:
            now |= dict.fromkeys(codes[found[2]], int(re.sub("[xz]", "0", found[1]), 2))
    return {name: tuple(values) for name, values in series.items()}


def table(series: Mapping[str, tuple[int, ...]], first: int, last: int) -> list[str]:
    """Return cycles `first` to `last` - 1 as lines: a head, then one line a signal, numbers in decimal."""
    rows = {"cycle": tuple(range(first, last)), **series}
    left = max(map(len, rows))
    texts = {name: [str(value) for value in values] for name, values in rows.items()}
    widths = [max(len(text[place]) for text in texts.values()) for place in range(last - first)]
    return [
        "  ".join(
            [f"{name:<{left}}", *(f"{value:>{width}}" for value, width in zip(text, widths, strict=True))]
        )
        for name, text in texts.items()
    ]
