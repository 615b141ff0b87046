"""The worked tables of docs/reference/count-action.md, and a few more of their kind, as facts for the RTL.

One datapath holds a small group of modules for every table, so that all are run at once. Everything here is
written by hand from the page: no simulator has a say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)
from fpga.count_action.ports import Port, Rows, make_ports

LEVEL, ACCUMULATE = CountKind.LEVEL, CountKind.ACCUMULATE
CYCLES = 6


@dataclass(frozen=True)
class Table:
    """Modules and their inputs; what ports (`name_i`, `name_o`) and counts (`fire m.c`, `count m.c`) show.

    Series are continued with their last value; inputs that are not named are 0.
    """

    rule: str
    inputs: tuple[Signal, ...]
    modules: tuple[Module, ...]
    driven: Mapping[str, Sequence[int]]
    seen: Mapping[str, Sequence[int]]
    shadow: Mapping[str, int] = field(default_factory=dict)


def number(name: str, width: int = 2) -> Signal:
    return Signal(name, SignalKind.NUMBER, width=width)


def flag(name: str) -> Signal:
    return Signal(name, SignalKind.FLAG)


def stream(name: str, size: int = 1, width: int = 8, lanes: int = 1, signed: bool = False) -> Signal:
    return Signal(name, SignalKind.STREAM, size, lanes, width, signed)


def count(name: str, kind: CountKind, *terms: Ref, target: str = "t", **more) -> Count:
    return Count(name, kind, target, terms, **more)


def module(name: str, counts: Sequence[Count], target: int | Sequence[Target], *actions: Action) -> Module:
    targets = (Target("t", target),) if isinstance(target, int) else tuple(target)
    return Module(name, tuple(counts), targets, actions)


def single(name: str, kind: CountKind, source: str, target: int, *actions: Action, **more) -> Module:
    """Return a module of one count `c` over one input."""
    return module(name, [count("c", kind, Ref(source), **more)], target, *actions)


def beat(on: str, output: str, *refs: Ref, width: int = 8) -> Action:
    return Action(ActionKind.STREAM, on, output, refs, width)


TABLES = (
    Table(
        "R1: a level count compares this cycle's sum",
        (number("r1l"),),
        (single("level", LEVEL, "r1l", 2),),
        {"r1l_i": [1, 0, 2, 1, 0]},
        {"fire level.c": [0, 0, 1, 0], "count level.c": [0]},
    ),
    Table(
        "R1: an accumulating count includes this cycle's increment",
        (number("r1a"),),
        (single("accumulate", ACCUMULATE, "r1a", 3),),
        {"r1a_i": [1, 0, 2, 1, 0]},
        {"fire accumulate.c": [0, 0, 1, 0], "count accumulate.c": [0, 1, 1, 0, 1]},
    ),
    Table(
        "R2: only an enabled count counts",
        (flag("r2x"), flag("r2on"), flag("r2off")),
        (
            single(
                "gated",
                ACCUMULATE,
                "r2x",
                2,
                gate=(Condition(Ref("r2on")), Condition(Ref("r2off"), negated=True)),
            ),
        ),
        {"r2x_i": [1], "r2on_i": [1, 0, 1, 1, 0], "r2off_i": [0, 0, 1, 0]},
        {"fire gated.c": [0, 0, 0, 1, 0], "count gated.c": [0, 1, 1, 1, 0]},
    ),
    Table(
        "R3: a target of 0 is never reached",
        (number("r3"),),
        (single("latency", ACCUMULATE, "r3", 0),),
        {"r3_i": [0, 1, 2, 0]},
        {"fire latency.c": [0], "count latency.c": [0, 0, 1, 3], "overshoot latency.c": [0]},
    ),
    Table(
        "R4, R12: an overshoot stays until it is cleared",
        (number("r4"),),
        (single("jump", ACCUMULATE, "r4", 5),),
        {"r4_i": [2, 2, 2, 0], "clear_status_i": [0, 0, 0, 0, 1, 0]},
        {"fire jump.c": [0], "count jump.c": [0, 2, 4, 6], "overshoot jump.c": [0, 0, 0, 1, 1, 0]},
    ),
    Table(
        "R12: an overshoot in the cycle in which the status is cleared wins",
        (number("r12"),),
        (single("again", ACCUMULATE, "r12", 5),),
        {"r12_i": [2, 2, 2, 0, 2, 0]},
        {"overshoot again.c": [0, 0, 0, 1, 1, 1]},
    ),
    Table(
        "R5: a clear empties the base; the next increment is the first",
        (flag("r5x"), flag("r5k")),
        (
            single("cleared", ACCUMULATE, "r5x", 2),
            single("clears", LEVEL, "r5k", 1, Action(ActionKind.CLEAR_COUNT, "c", clears=("cleared", "c"))),
        ),
        {"r5x_i": [1, 1, 1, 0], "r5k_i": [1, 0]},
        {"fire cleared.c": [0, 0, 1, 0], "count cleared.c": [0, 0, 1, 0]},
    ),
    Table(
        "R6: a fire is seen in the next cycle, for one cycle",
        (flag("r6"),),
        (
            single("a", ACCUMULATE, "r6", 2, Action(ActionKind.PULSE, "c", "done")),
            module("b", [count("c", ACCUMULATE, Ref("done", "a"))], 1),
        ),
        {"r6_i": [1, 1, 0, 0]},
        {"fire a.c": [0, 1, 0, 0], "a_done_o": [0, 0, 1, 0], "fire b.c": [0, 0, 1, 0]},
    ),
    Table(
        "R7: a stalled module takes nothing and fires nothing",
        (stream("r7"),),
        (single("stalls", ACCUMULATE, "r7", 1, beat("c", "out", Ref("r7"))),),
        {"r7_valid_i": [1], "r7_data_i": [10, 11, 12, 13, 14], "stalls_out_ready_i": [1, 0, 0, 1]},
        {
            "r7_ready_o": [1, 0, 0, 1],
            "fire stalls.c": [1, 0, 0, 1],
            "stalls_out_valid_o": [0, 1, 1, 1],
            "stalls_out_data_o": [0, 10, 10, 10, 13, 14],
        },
    ),
    Table(
        "R7: a level count lets the first beats wait for the others",
        (stream("dac", 2, 4),),
        (
            module(
                "waits",
                [count("c", LEVEL, Ref("dac"), Ref("dac", index=1))],
                2,
                beat("c", "out", Ref("dac"), Ref("dac", index=1), width=4),
            ),
        ),
        {"dac_valid_i": [1, 2, 3, 0], "dac_data_i": [0x11, 0x22, 0x53, 0x44], "waits_out_ready_i": [1]},
        {
            "dac_ready_o": [0, 0, 3, 0],
            "waits_out_valid_o": [0, 0, 0, 1, 0],
            "waits_out_data_o": [0, 0, 0, 0x53],
        },
    ),
    Table(
        "R7: a stream that two modules take moves when both are ready",
        (stream("both"),),
        (
            single("counts", ACCUMULATE, "both", 0),
            single("slow", ACCUMULATE, "both", 1, beat("c", "out", Ref("both"))),
        ),
        {"both_valid_i": [1], "slow_out_ready_i": [1, 0, 1, 0, 1]},
        {"both_ready_o": [1, 0, 1, 0, 1], "count counts.c": [0, 1, 1, 2, 2, 3]},
    ),
    Table(
        "R7: a beat leaves when it is taken, though another one stalls its module",
        (stream("left"), stream("right")),
        (
            module(
                "two",
                [count("l", ACCUMULATE, Ref("left")), count("r", ACCUMULATE, Ref("right"))],
                1,
                beat("l", "lo", Ref("left")),
                beat("r", "ro", Ref("right")),
            ),
        ),
        {
            "left_valid_i": [1, 0],
            "right_valid_i": [1, 0],
            "two_lo_ready_i": [0, 1],
            "two_ro_ready_i": [0, 0, 1],
        },
        {"two_lo_valid_o": [0, 1, 0], "two_ro_valid_o": [0, 1, 1, 0]},
    ),
    Table(
        "R8: a committed target is in force in the next cycle",
        (flag("r8"),),
        (single("commits", ACCUMULATE, "r8", 2),),
        {"r8_i": [1, 1, 1, 1, 1, 0], "commit_i": [0, 1, 0]},
        {"fire commits.c": [0, 1, 0, 0, 1, 0], "count commits.c": [0, 1, 0, 1, 2, 0]},
        shadow={"commits.t": 3},
    ),
    Table(
        "R8, R4: a count above its new target overshoots at its next increment",
        (flag("r8b"),),
        (single("lowered", ACCUMULATE, "r8b", 3),),
        {"r8b_i": [1, 1, 1, 0]},
        {"fire lowered.c": [0], "count lowered.c": [0, 1, 2, 3], "overshoot lowered.c": [0, 0, 0, 1, 1, 0]},
        shadow={"lowered.t": 2},
    ),
    Table(
        "R9: a flag that is set and cleared in one cycle is set",
        (flag("r9s"), flag("r9c")),
        (
            module(
                "holds",
                [count("s", LEVEL, Ref("r9s")), count("c", LEVEL, Ref("r9c"))],
                1,
                Action(ActionKind.CLEAR_FLAG, "c", "it"),
                Action(ActionKind.SET, "s", "it"),
            ),
        ),
        {"r9s_i": [1, 0, 1, 0, 0], "r9c_i": [0, 1, 1, 0, 1]},
        {"holds_it_o": [0, 1, 0, 1, 1, 0]},
    ),
    Table(
        "R10: a count saturates, and says so",
        (number("r10"),),
        (module("narrow", [count("c", ACCUMULATE, Ref("r10"), width=2)], [Target("t", 9, 4)]),),
        {"r10_i": [2, 2, 2, 0]},
        {"count narrow.c": [0, 2, 3, 3], "saturated narrow.c": [0, 0, 1, 1, 1, 0]},
    ),
    Table(
        "R10: the comparison is made before anything is lost",
        (number("r10b"),),
        (module("exact", [count("c", ACCUMULATE, Ref("r10b"), width=2)], [Target("t", 4, 4)]),),
        {"r10b_i": [2, 2, 0]},
        {"fire exact.c": [0, 1, 0], "count exact.c": [0, 2, 0], "saturated exact.c": [0]},
    ),
    Table(
        "R10: a narrow sample is extended by its own sign, a wide one loses its upper bits",
        (stream("thin", 1, 4, signed=True), stream("plain", 1, 4), stream("thick", 1, 12)),
        (
            module(
                "fits",
                [count("c", LEVEL, Ref("thin"), Ref("plain"), Ref("thick"))],
                3,
                beat("c", "out", Ref("thin"), Ref("plain"), Ref("thick")),
            ),
        ),
        {
            "thin_valid_i": [1, 0],
            "plain_valid_i": [1, 0],
            "thick_valid_i": [1, 0],
            "thin_data_i": [0x9],
            "plain_data_i": [0xA],
            "thick_data_i": [0xBCD],
        },
        {"fits_out_data_o": [0, 0xCD0AF9]},
    ),
    Table(
        "R10, R11: a sum of signed samples, shifted; only those of valid streams",
        (stream("adc", 2, 4, signed=True),),
        (
            module(
                "adds",
                [count("c", ACCUMULATE, Ref("adc"))],
                2,
                Action(
                    ActionKind.EMIT, "c", "total", (Ref("adc"), Ref("adc", index=1)), 8, signed=True, shift=1
                ),
            ),
            single("takes", ACCUMULATE, "adc", 0),
            module("second", [count("c", ACCUMULATE, Ref("adc", index=1))], 0),
        ),
        # -3 and (-2, 7 of no valid stream), then (1, 4) and 2.
        {
            "adc_valid_i": [1, 1, 3, 1, 0],
            "adc_data_i": [0x0D, 0x7E, 0x41, 0x02, 0],
            "adds_total_ready_i": [1],
        },
        {"adds_total_valid_o": [0, 0, 1, 0, 1, 0], "adds_total_data_o": [0, 0, 0xFD, 0xFD, 3, 3]},
    ),
    Table(
        "R11: a clear begins the sum again",
        (stream("the__part"), flag("r11k")),
        (
            single(
                "fresh",
                ACCUMULATE,
                "the__part",
                2,
                Action(ActionKind.EMIT, "c", "total", (Ref("the__part"),), 8),
            ),
            single("restarts", LEVEL, "r11k", 1, Action(ActionKind.CLEAR_COUNT, "c", clears=("fresh", "c"))),
        ),
        {
            "the__part_valid_i": [1],
            "the__part_data_i": [1, 2, 4, 8, 16],
            "r11k_i": [1, 0],
            "fresh_total_ready_i": [1],
        },
        {"fire fresh.c": [0, 0, 1, 0, 1, 0], "fresh_total_data_o": [0, 0, 0, 6, 6, 24]},
    ),
    Table(
        "A number goes up and begins again",
        (flag("goes"),),
        (single("turns", LEVEL, "goes", 1, Action(ActionKind.ADVANCE, "c", "at", width=2, modulo=3)),),
        {"goes_i": [1, 1, 1, 0, 1, 0]},
        {"turns_at_o": [0, 1, 2, 0, 0, 1]},
    ),
)


def datapath() -> Datapath:
    """Return the modules of all tables."""
    return joined_with(Datapath("worked_tables", (), ()))


def joined_with(other: Datapath) -> Datapath:
    """Return the modules of all tables together with those of another datapath: one build for both."""
    inputs = tuple(signal for table in TABLES for signal in table.inputs)
    modules = tuple(module for table in TABLES for module in table.modules)
    return Datapath(other.name, other.inputs + inputs, other.modules + modules)


def _at(series: Sequence[int], cycle: int) -> int:
    return series[min(cycle, len(series) - 1)]


def inputs(made: Datapath) -> Rows:
    """Return the rows of all tables, for a datapath that holds their modules.

    In the shadow bank stands every target's reset value unless a table says otherwise.
    """
    ports = make_ports(made)
    driven = {name: series for table in TABLES for name, series in table.driven.items()}
    shadows = {name: value for table in TABLES for name, value in table.shadow.items()}
    bank, low = 0, 0
    for owner, target in made.list_targets():
        bank |= shadows.get(f"{owner.name}.{target.name}", target.reset) << low
        low += target.width
    rows = np.zeros((CYCLES, ports.input_column_count), np.uint64)
    for cycle in range(CYCLES):
        for name, series in driven.items():
            write(rows[cycle], ports.find_input(name), _at(series, cycle))
        write(rows[cycle], ports.find_input("target_shadow_i"), bank)
    return rows


def write(row: Rows, port: Port, value: int) -> None:
    for word in range(port.word_count):
        row[port.column + word] = value >> (64 * word) & (2**64 - 1)


def wrong(made: Datapath, outputs: Rows) -> list[str]:
    """Return what the outputs show otherwise than the tables, in words."""
    assert len(outputs) == CYCLES
    findings = []
    for table in TABLES:
        for name, series in table.seen.items():
            expected = [_at(series, cycle) for cycle in range(CYCLES)]
            actual = [seen(made, row, name) for row in outputs]
            if expected != actual:
                findings.append(f"{table.rule}: {name} is {actual}, expected {expected}")
    return findings


def seen(made: Datapath, row: Rows, name: str) -> int:
    """Return what a port or a count shows in a row of outputs."""
    ports = make_ports(made)
    if " " not in name:
        return read(row, ports.find_output(name))
    what, where = name.split()
    value, place, low = read(row, ports.find_output(f"{what}_o")), 0, 0
    for owner, each in made.list_counts():
        if f"{owner.name}.{each.name}" == where:
            return value >> low & (2**each.width - 1) if what == "count" else value >> place & 1
        place, low = place + 1, low + each.width
    raise KeyError(where)


def read(row: Rows, port: Port) -> int:
    return sum(int(row[port.column + word]) << (64 * word) for word in range(port.word_count))
