"""Search for failing assertions: a proof, then random stimulus, then a deeper search for undecided assertions.

Induction proves all assertions together. If some fail or are undecided, the others are proven without them; undecided
assertions are then examined with long runs of random stimulus, and with the solver over more cycles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fpga.count_action.simulate import ReferenceSimulator
from fpga.formal import sby
from fpga.formal.properties import DATA_PROPERTY, PROPERTIES
from fpga.formal.replay import Difference, find_differences
from fpga.formal.specification import Specification
from fpga.formal.subjects import find_subjects, list_assertions, list_subjects
from fpga.hdl import icarus
from fpga.hdl.design import Design
from fpga.hdl.stimulus import generate_stimulus
from fpga.hdl.tools import BadOutput, ToolMissing, ToolTimeout

BUDGET_S = 60.0
"""Processor time for each property of a module, in seconds."""
SEARCH_CYCLES = 50
"""Cycles in which counterexamples for undecided assertions are searched for."""
_MAX_ROUNDS = 8
_DEEPER_SEARCH_S = 60.0
_EPISODE_CYCLES, _EPISODE_COUNT = 400, 4


@dataclass(frozen=True)
class Findings:
    """Result of a search: failing and undecided assertions, and differences under random stimulus.

    The earliest differences come first; the others may be their consequences.
    """

    failures: tuple[sby.Failure, ...] = ()
    undecided_assertions: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    timed_out_properties: frozenset[str] = frozenset()
    """Names of the properties for which the budget was too small."""
    reached_covers: tuple[str, ...] = ()
    unreached_covers: tuple[str, ...] = ()
    are_others_proven: bool = True
    """True if every assertion outside `failures` and `undecided_assertions` is proven."""

    @property
    def vcd_text(self) -> str:
        """The counterexample of the earliest failure as VCD text; empty if there is none."""
        return min(self.failures, key=lambda failure: failure.cycle).vcd_text if self.failures else ""


def search(
    specification: Specification,
    *,
    include_cover: bool = True,
    depth: int = sby.DEPTH_CYCLES,
    budget_s: float = BUDGET_S,
) -> Findings:
    """Search for failing assertions of a specification. Raise ToolMissing or ToolFailed.

    All properties are proven together, so each run of the prover may use `budget_s` of processor time for each of them.
    """
    sources, top = specification.build_sources(), specification.top
    run_budget_s = budget_s * max(len(list_subjects(specification)), 1)
    try:
        first_result = sby.run(
            sources, top, include_cover=include_cover, include_traces=True, depth=depth, budget_s=run_budget_s
        )
    except ToolTimeout:
        return _search_without_data(specification, depth, run_budget_s)
    if first_result.is_proven:
        return Findings(
            reached_covers=first_result.reached_covers, unreached_covers=first_result.unreached_covers
        )
    failures, undecided, are_others_proven = _prove_remaining(sources, top, first_result, depth, run_budget_s)
    differences = simulate_differences(specification) if undecided or not are_others_proven else ()
    visible_subjects = {(difference.module, difference.property) for difference in differences}
    # A deeper search pays only for failures that the simulation does not show.
    unshown_assertions = [
        name for name in undecided if not visible_subjects & find_subjects(specification, name)
    ]
    if unshown_assertions and not differences:
        excluded_assertions = [failure.name for failure in failures] + [
            name for name in undecided if name not in unshown_assertions
        ]
        failures += _search_deeper(
            sources, top, excluded_assertions, max(depth, SEARCH_CYCLES), min(run_budget_s, _DEEPER_SEARCH_S)
        )
    failed_names = {failure.name for failure in failures}
    return Findings(
        failures,
        tuple(name for name in undecided if name not in failed_names),
        differences,
        reached_covers=first_result.reached_covers,
        unreached_covers=first_result.unreached_covers,
        are_others_proven=are_others_proven,
    )


def _search_without_data(specification: Specification, depth: int, run_budget_s: float) -> Findings:
    """Return the findings without the samples of beats, whose arithmetic takes a solver most of its time."""
    differences, all_properties = (
        simulate_differences(specification),
        frozenset(property_.name for property_ in PROPERTIES),
    )
    try:
        result = sby.run(
            specification.build_sources(),
            specification.top,
            include_cover=False,
            include_traces=True,
            depth=depth,
            budget_s=run_budget_s,
            excluded_assertions=list_assertions(specification, DATA_PROPERTY),
        )
    except ToolTimeout:
        return Findings(differences=differences, timed_out_properties=all_properties, are_others_proven=False)
    return Findings(
        result.failures,
        result.undecided_assertions,
        differences,
        timed_out_properties=frozenset({DATA_PROPERTY}),
        are_others_proven=result.is_proven,
    )


def _prove_remaining(
    sources: dict[str, str], top: str, first_result: sby.SbyResult, depth: int, run_budget_s: float
) -> tuple[tuple[sby.Failure, ...], tuple[str, ...], bool]:
    """Remove failing and undecided assertions until the others are proven, for up to 8 rounds of `run_budget_s` each.

    Return the failures, the undecided assertions, and whether the others are proven.
    """
    failures, undecided = list(first_result.failures), list(first_result.undecided_assertions)
    for _ in range(_MAX_ROUNDS):
        excluded_assertions = [failure.name for failure in failures] + undecided
        try:
            result = sby.run(
                sources,
                top,
                include_cover=False,
                include_traces=True,
                depth=depth,
                budget_s=run_budget_s,
                excluded_assertions=excluded_assertions,
            )
        except ToolTimeout:
            break
        if result.is_proven:
            return tuple(failures), tuple(undecided), True
        if not result.failures and not result.undecided_assertions:
            break
        failures += result.failures
        undecided += result.undecided_assertions
    return tuple(failures), tuple(undecided), False


def _search_deeper(
    sources: dict[str, str], top: str, excluded_assertions: Iterable[str], depth: int, run_budget_s: float
) -> tuple[sby.Failure, ...]:
    """Return the failures of a bounded search over `depth` cycles; none if it needs more than `run_budget_s`."""
    try:
        return sby.run(
            sources,
            top,
            include_cover=False,
            include_traces=True,
            depth=depth,
            budget_s=run_budget_s,
            excluded_assertions=excluded_assertions,
            is_bounded=True,
        ).failures
    except ToolTimeout:
        return ()


def simulate_differences(specification: Specification) -> tuple[Difference, ...]:
    """Return the differences between the design and the language under random stimulus; none without Icarus."""
    try:
        return compare_with_reference(specification, specification.design)
    except (ToolMissing, BadOutput):
        return ()  # BadOutput: the simulator found an X, for which the solver assumes any value


def compare_with_reference(
    specification: Specification, design: Design, seed: int = 0
) -> tuple[Difference, ...]:
    """Return the differences of a design from the reference simulator, over several runs from reset."""
    datapath = specification.datapath
    episode_inputs = [
        generate_stimulus(datapath, _EPISODE_CYCLES, seed + episode) for episode in range(_EPISODE_COUNT)
    ]
    actual = icarus.run(design, np.concatenate(episode_inputs), episode_cycles=_EPISODE_CYCLES)
    expected_episodes = [ReferenceSimulator(datapath).run(inputs) for inputs in episode_inputs]
    all_differences = find_differences(datapath, np.concatenate(expected_episodes), actual)
    module_differences = (
        difference for difference in all_differences if specification.only_module in {None, difference.module}
    )
    return tuple(
        replace(difference, cycle=difference.cycle % _EPISODE_CYCLES) for difference in module_differences
    )


_VARIABLE_PATTERN = re.compile(r"\$var \w+ (\d+) (\S+) (\S+)")


def read_vcd(text: str, signals: Iterable[str], period_ticks: int = 10) -> dict[str, tuple[int, ...]]:
    """Return the value of each of the `signals` in every cycle, from a dump of the solver.

    The name of a signal below the outermost scope begins with its scopes: `check_0.count_o`.

    A cycle takes `period_ticks` units of time; the value at its end is used. X and Z are read as 0. Signals not in
    the dump are left out.
    """
    names = set(signals)
    names_by_code: dict[str, list[str]] = {}
    scopes: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$scope"):
            scopes.append(line.split()[2])
        elif line.startswith("$upscope"):
            scopes.pop()
        elif scopes and (match := _VARIABLE_PATTERN.match(line)):
            name = ".".join([*scopes[1:], match[3]])
            if name in names:
                names_by_code.setdefault(match[2], []).append(name)
        elif line.startswith("$enddefinitions"):
            break
    return _parse_values(lines, names_by_code, period_ticks)


def _parse_values(
    lines: Iterable[str], names_by_code: Mapping[str, list[str]], period_ticks: int
) -> dict[str, tuple[int, ...]]:
    current_values = dict.fromkeys((name for names in names_by_code.values() for name in names), 0)
    series: dict[str, list[int]] = {name: [] for name in current_values}
    for line in lines:
        if line.startswith("#"):
            while len(next(iter(series.values()), ())) < int(line[1:]) // period_ticks:
                for name, value in current_values.items():
                    series[name].append(value)
        elif (match := re.match(r"b?([01xz]+) ?(\S+)", line)) and match[2] in names_by_code:
            current_values |= dict.fromkeys(names_by_code[match[2]], int(re.sub("[xz]", "0", match[1]), 2))
    return {name: tuple(values) for name, values in series.items()}


def format_table(series: Mapping[str, tuple[int, ...]], first_cycle: int, end_cycle: int) -> list[str]:
    """Return a table of cycles `first_cycle` to `end_cycle` - 1: a header, then a line per signal, in decimal."""
    rows = {"cycle": tuple(range(first_cycle, end_cycle)), **series}
    name_width = max(map(len, rows))
    texts = {name: [str(value) for value in values] for name, values in rows.items()}
    widths = [max(len(text[column]) for text in texts.values()) for column in range(end_cycle - first_cycle)]
    return [
        "  ".join(
            [
                f"{name:<{name_width}}",
                *(f"{value:>{width}}" for value, width in zip(text, widths, strict=True)),
            ]
        )
        for name, text in texts.items()
    ]
