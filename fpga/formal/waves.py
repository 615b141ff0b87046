"""Counterexamples as tables: the signals of a value change dump, one row a signal and one column a cycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_VARIABLE = re.compile(r"\$var \w+ (\d+) (\S+) (\S+)")


def read_vcd(text: str, signals: Iterable[str], period: int = 10) -> dict[str, tuple[int, ...]]:
    """Return the values of `signals` of the outermost scope, one a cycle, as the solver's dumps have them.

    A cycle takes `period` units of time; what stands at its end counts. Bits without a value are 0. Signals that are
    not in the dump are left out.
    """
    wanted = set(signals)
    codes: dict[str, str] = {}
    depth = 0
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$scope"):
            depth += 1
        elif line.startswith("$upscope"):
            depth -= 1
        elif depth == 1 and (found := _VARIABLE.match(line)) and found[3] in wanted:
            codes[found[2]] = found[3]
        elif line.startswith("$enddefinitions"):
            break
    return _values(lines, codes, period)


def _values(lines: Iterable[str], codes: Mapping[str, str], period: int) -> dict[str, tuple[int, ...]]:
    now = dict.fromkeys(codes.values(), 0)
    series: dict[str, list[int]] = {name: [] for name in now}
    for line in lines:
        if line.startswith("#"):
            while len(next(iter(series.values()), ())) < int(line[1:]) // period:
                for name, value in now.items():
                    series[name].append(value)
        elif (found := re.match(r"b?([01xz]+) ?(\S+)", line)) and found[2] in codes:
            now[codes[found[2]]] = int(re.sub("[xz]", "0", found[1]), 2)
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
