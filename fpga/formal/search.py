"""Search for assertions that do not hold: proof, then random stimulus, then a deeper search for those left open.

A proof by induction says of all assertions together that they hold. Where one does not, it is left out and the
others are proven without it; those that the induction cannot decide are left out next, and looked for with long
runs of stimulus, and with the solver in more cycles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fpga.count_action.simulate import Reference
from fpga.formal import sby
from fpga.formal.replay import Difference, differences
from fpga.formal.specification import Specification
from fpga.formal.subjects import subjects
from fpga.hdl import icarus
from fpga.hdl.design import Design
from fpga.hdl.stimulus import generate_stimulus
from fpga.hdl.tools import BadOutput, ToolMissing, ToolTimeout

SEARCH_DEPTH = 50
"""Cycles in which a counterexample of what induction leaves open is looked for."""
_ROUNDS = 8
_DEEPER_S = 60.0
_EPISODE, _EPISODES = 400, 4


@dataclass(frozen=True)
class Found:
    """Result of a search: assertions that fail or are open, and differences that random stimulus has shown.

    The differences begin with those that come first; the others may follow from them.
    """

    failures: tuple[sby.Failure, ...] = ()
    open: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    timed_out: bool = False
    reached: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    others_proven: bool = True
    """True if every assertion that is not listed is proven."""

    @property
    def trace(self) -> str:
        """The counterexample of the earliest failure, as a value change dump."""
        return min(self.failures, key=lambda each: each.cycle).trace if self.failures else ""


def search(
    specification: Specification, *, cover: bool = True, depth: int = sby.DEPTH, timeout_s: float = 300
) -> Found:
    """Return what holds of a specification. Raises ToolMissing, ToolFailed."""
    sources, top = specification.sources(), specification.top
    try:
        first = sby.run(sources, top, cover=cover, traces=True, depth=depth, timeout_s=timeout_s)
    except ToolTimeout:
        shown = simulate_differences(specification)
        return Found(differences=shown, timed_out=True, others_proven=False)
    if first.proven:
        return Found(reached=first.reached, unreached=first.unreached)
    failures, undecided, settled = _rest(sources, top, first, depth, timeout_s)
    shown = simulate_differences(specification) if undecided or not settled else ()
    visible = {(each.module, each.property) for each in shown}
    unshown = [name for name in undecided if not visible & subjects(specification, name)]
    if unshown and not shown:
        known = [each.name for each in failures] + [name for name in undecided if name not in unshown]
        failures += _deeper(sources, top, known, max(depth, SEARCH_DEPTH), min(timeout_s, _DEEPER_S))
    failed = {each.name for each in failures}
    return Found(
        failures,
        tuple(name for name in undecided if name not in failed),
        shown,
        reached=first.reached,
        unreached=first.unreached,
        others_proven=settled,
    )


def _rest(
    sources: dict[str, str], top: str, first: sby.SbyResult, depth: int, timeout_s: float
) -> tuple[tuple[sby.Failure, ...], tuple[str, ...], bool]:
    """Prove what is left when the failing and the undecided assertions are taken away, again and again."""
    failures, undecided = list(first.failures), list(first.open)
    ends = time.monotonic() + timeout_s
    for _ in range(_ROUNDS):
        without = [each.name for each in failures] + undecided
        try:
            left = max(1.0, ends - time.monotonic())
            found = sby.run(
                sources, top, cover=False, traces=True, depth=depth, timeout_s=left, without=without
            )
        except ToolTimeout:
            break
        if found.proven:
            return tuple(failures), tuple(undecided), True
        if not found.failures and not found.open:
            break
        failures += found.failures
        undecided += found.open
    return tuple(failures), tuple(undecided), False


def _deeper(
    sources: dict[str, str], top: str, without: Iterable[str], depth: int, timeout_s: float
) -> tuple[sby.Failure, ...]:
    """Look for counterexamples in more cycles, as long as there is time."""
    try:
        return sby.run(
            sources,
            top,
            cover=False,
            traces=True,
            depth=depth,
            timeout_s=timeout_s,
            without=without,
            bounded=True,
        ).failures
    except ToolTimeout:
        return ()


def simulate_differences(specification: Specification) -> tuple[Difference, ...]:
    """Return what differs first between the design and the language under random stimulus."""
    try:
        return run_differences(specification, specification.design)
    except (ToolMissing, BadOutput):
        return ()  # a bit without a value is any value for the solver


def run_differences(specification: Specification, design: Design, seed: int = 0) -> tuple[Difference, ...]:
    """Run a design and the plain simulator side by side, from reset again and again."""
    datapath = specification.datapath
    parts = [generate_stimulus(datapath, _EPISODE, seed + place) for place in range(_EPISODES)]
    seen = icarus.run(design, np.concatenate(parts), episode=_EPISODE)
    expected = [Reference(datapath).run(part) for part in parts]
    found = differences(datapath, np.concatenate(expected), seen)
    only = (each for each in found if specification.only in {None, each.module})
    return tuple(replace(each, cycle=each.cycle % _EPISODE) for each in only)


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
