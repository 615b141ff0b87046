"""Faults that are planted to see whether the verification finds them, and which rung of the ladder does.

A fault in the RTL is a replacement in a copy of a hand-written block; one in the emitter is a replaced function;
one in the simulator is a replacement in the program that it compiles. Each names the first rung that finds it: `lint`
(Verilator, Verible and Icarus on the top of the worked tables), `unit` (the worked tables) or `co-simulation` (random
modules, simulator against RTL under Icarus).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from fpga.count_action.model import CountKind, Datapath, Module
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.compiled import simulator
from fpga.count_action.simulate.compiled.generator import CycleProgram, make_program
from fpga.count_action.verilog import actions, counts, text, top, wiring
from fpga.count_action.verilog.wiring import Slice, Wiring
from fpga.hdl import Design, make_design


@dataclass(frozen=True)
class RtlFault:
    """A piece of a block replaced by another one."""

    name: str
    block: str
    old: str
    new: str
    found_by: str

    def design(self, datapath: Datapath) -> Design:
        sound = make_design(datapath)
        sources = dict(sound.sources)
        file = f"{self.block}.sv"
        assert sources[file].count(self.old) == 1, f"{self.name}: {self.old!r} stands once in {file}"
        sources[file] = sources[file].replace(self.old, self.new)
        return replace(sound, sources=tuple(sources.items()))


@dataclass(frozen=True)
class EmitterFault:
    """A function of the emitter replaced by another one, in every module that has imported it."""

    name: str
    modules: tuple[Any, ...]
    function: str
    faulty: Callable[[Callable[..., Any]], Callable[..., Any]]
    found_by: str

    def design(self, datapath: Datapath) -> Design:
        with self.planted():
            return make_design(datapath)

    @contextmanager
    def planted(self) -> Iterator[None]:
        sound = getattr(self.modules[0], self.function)
        faulty = self.faulty(sound)
        patches = [mock.patch.object(module, self.function, faulty) for module in self.modules]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()


@dataclass(frozen=True)
class SimulatorFault:
    """Statements of the fast simulator's program replaced, wherever the pattern fits."""

    name: str
    pattern: str
    faulty: str
    found_by: str

    def run(self, datapath: Datapath, inputs: Rows) -> Rows:
        with mock.patch.object(simulator, "make_program", self._program_of):
            return simulator.simulate(datapath, inputs)

    def _program_of(self, datapath: Datapath) -> CycleProgram:
        program = make_program(datapath)
        statements = [re.sub(self.pattern, self.faulty, each) for each in program.statements]
        assert statements != program.statements, f"{self.name}: {self.pattern!r} fits a statement"
        return replace(program, statements=statements)


RTL_FAULTS = (
    RtlFault(
        "the target is compared with the base, without the increment of the cycle",
        "count_action",
        "(base ^ increment ^ target) == (wanted << 1)",
        "base == (target | (wanted & '0))",
        "unit",
    ),
    RtlFault(
        "a count without `at least` also fires above its target",
        "count_action",
        "(AtLeast && is_above",
        "(is_above",
        "unit",
    ),
    RtlFault(
        "a count counts while its module is stalled",
        "count_action",
        "enable_i && !stall_i &&",
        "enable_i &&",
        "lint",
    ),
    RtlFault(
        "a clear takes effect only with the next increment",
        "count_action",
        "rst_i || clear_i || (fire_o",
        "rst_i || (clear_i && counts) || (fire_o",
        "co-simulation",
    ),
    RtlFault(
        "a count does not restart after a fire",
        "count_action",
        "(fire_o && !Carry)",
        "(fire_o && Carry)",
        "unit",
    ),
    RtlFault(
        "a count wraps instead of saturating",
        "count_action",
        "is_full ? '1 : rest[Width-1:0]",
        "rest[Width-1:0]",
        "unit",
    ),
    RtlFault(
        "the overshoot bit stays set for one cycle only",
        "count_action",
        "overshoots || (overshoot_q && !clear_status_i)",
        "overshoots",
        "unit",
    ),
    RtlFault(
        "clearing the status overrides an event of the same cycle",
        "count_action",
        "saturates || (saturated_q && !clear_status_i)",
        "!clear_status_i && (saturates || saturated_q)",
        "co-simulation",
    ),
    RtlFault(
        "a count that is above its target overshoots without an increment",
        "count_action",
        "counts && !AtLeast && is_above",
        "!AtLeast && is_above",
        "unit",
    ),
    RtlFault(
        "a commit does not change the highest bit of a target",
        "count_action_targets",
        "target_q <= shadow_i;",
        "target_q <= {target_q[Width-1], shadow_i[Width-2:0]};",
        "lint",
    ),
    RtlFault(
        "a commit takes effect one cycle late",
        "count_action_targets",
        "  always_ff @(posedge clk_i) begin\n    if (commit_i) target_q",
        "  logic commit_q;\n  always_ff @(posedge clk_i) commit_q <= commit_i;\n\n"
        "  always_ff @(posedge clk_i) begin\n    if (commit_q) target_q",
        "unit",
    ),
    RtlFault(
        "the last bit of a group is not counted",
        "count_action_ones",
        "n % 2 == 1 ?",
        "n % 2 == 1 && n > 1 ?",
        "unit",
    ),
    RtlFault(
        "a waiting beat is lost",
        "count_action_beat",
        "fire_i || stalled_o",
        "fire_i",
        "unit",
    ),
    RtlFault(
        "a beat stays after the receiver has taken it",
        "count_action_beat",
        "fire_i || stalled_o",
        "fire_i || valid_q",
        "unit",
    ),
    RtlFault(
        "the data of a waiting beat change with the input",
        "count_action_beat",
        "if (fire_i) data_q",
        "data_q",
        "unit",
    ),
    RtlFault(
        "a sum does not restart after a fire",
        "count_action_sum",
        "rst_i || clear_i",
        "rst_i",
        "lint",
    ),
    RtlFault(
        "all signed samples are extended with ones",
        "count_action_sum",
        "SampleSigned && samples_i",
        "SampleSigned || samples_i",
        "unit",
    ),
    RtlFault(
        "a signed sum is shifted as an unsigned sum",
        "count_action_sum",
        "fill  = Signed &&",
        "fill  = !Signed &&",
        "unit",
    ),
    RtlFault(
        "a clear overrides a set of the same cycle",
        "count_action_flag",
        "set_i || (flag_q && !clear_i)",
        "!clear_i && (set_i || flag_q)",
        "unit",
    ),
    RtlFault(
        "a number of `advance` wraps one step too late",
        "count_action_advance",
        "number_q == Last ?",
        "number_q > Last ?",
        "unit",
    ),
)


def _terms_by_valid(sound: Callable[..., Slice]) -> Callable[..., Slice]:
    return lambda wiring_, count, ref: sound(wiring_, replace(count, kind=CountKind.LEVEL), ref)


def _first_taker_only(sound: Callable[..., str]) -> Callable[..., str]:
    return lambda wiring_, stream: sound(wiring_, stream).split(" && ")[0]


def _always_valid(sound: Callable[..., Slice | None]) -> Callable[..., Slice | None]:
    return lambda wiring_, count, ref: None


def _narrow(sound: Callable[..., int]) -> Callable[..., int]:
    return lambda *given: max(1, sound(*given) - 1)


def _first_target(sound: Callable[..., Slice]) -> Callable[..., Slice]:
    return lambda datapath, module, name: sound(datapath, module, module.targets[0].name)


def _clears_of_own_module(sound: Callable[..., str]) -> Callable[..., str]:
    def write_clear(wiring_: Wiring, module: Any, count: Any) -> str:
        alone = replace(wiring_.datapath, modules=(module,))
        clearing = [action for action in module.actions if action.clears == (module.name, count.name)]
        return sound(wiring_, module, count) if clearing or not alone.modules else "1'b0"

    return write_clear


def _first_condition(sound: Callable[..., str]) -> Callable[..., str]:
    return lambda wiring_, count: sound(wiring_, replace(count, gate=count.gate[:1]))


def _without_sign(sound: Callable[..., str]) -> Callable[..., str]:
    return lambda sample, signed, width: sound(sample, False, width)


def _one_setter(sound: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda module, flag: sound(module, flag)[:1]


def _swapped(sound: Callable[..., str]) -> Callable[..., str]:
    return lambda parts: sound(parts[::-1])


EMITTER_FAULTS = (
    EmitterFault(
        "a beat is counted while it is valid, instead of when it moves",
        (counts, top),
        "find_term_bits",
        _terms_by_valid,
        "unit",
    ),
    EmitterFault(
        "only the first of several counts can make a stream wait",
        (Wiring,),
        "write_ready_condition",
        _first_taker_only,
        "unit",
    ),
    EmitterFault(
        "samples are added even if their beat does not move",
        (counts, actions, top),
        "find_move_bit",
        _always_valid,
        "unit",
    ),
    EmitterFault("an increment has one bit too few", (counts,), "compute_increment_width", _narrow, "lint"),
    EmitterFault(
        "all counts of a module use its first target",
        (counts,),
        "find_target_bits",
        _first_target,
        "co-simulation",
    ),
    EmitterFault(
        "clears by other modules are ignored", (counts, actions), "write_clear", _clears_of_own_module, "unit"
    ),
    EmitterFault(
        "only the first condition of `while` is evaluated",
        (counts, actions),
        "write_enable",
        _first_condition,
        "unit",
    ),
    EmitterFault(
        "samples that are widened or narrowed lose their sign",
        (actions,),
        "_resize_slice",
        _without_sign,
        "unit",
    ),
    EmitterFault(
        "only the first action on a flag has an effect", (Module,), "list_drivers", _one_setter, "unit"
    ),
    EmitterFault(
        "joined values are in the reverse order",
        (text, actions, top, wiring),
        "concatenate",
        _swapped,
        "unit",
    ),
)

SIMULATOR_FAULTS = (
    SimulatorFault(
        "a count does not restart after a fire", r"^(c\d+ = .*) & \(\(f.*\) - 1\)$", r"\1", "unit"
    ),
    SimulatorFault("a count wraps instead of saturating", r"\(x(\d+) \| -s\1\)", r"x\1", "unit"),
    SimulatorFault(
        "a count saturates in the cycle of a fire", r"^(s\d+ = .*) & \(f\d+ \^ 1\)$", r"\1", "unit"
    ),
    SimulatorFault("a target of 0 causes an overshoot", r"^(b\d+ = .*) & \(t\d+ != 0\)", r"\1", "unit"),
    SimulatorFault("an overshoot bit is never cleared", r"over(\d+) & keep", r"over\1", "unit"),
    SimulatorFault(
        "a beat stays after the receiver has taken it", r"^(v(\d+) = f.* \| v\2) & .*$", r"\1", "unit"
    ),
    SimulatorFault("no module stalls", r"^(n\d+) = .*$", r"\1 = 1", "unit"),
    SimulatorFault("signed samples are read as unsigned", r"<< (\d+) >> \1\b", r"& -1", "unit"),
)

FAULTS = (*RTL_FAULTS, *EMITTER_FAULTS, *SIMULATOR_FAULTS)


def table() -> list[tuple[str, str, str]]:
    """Return where, what, and the rung: the rows of the page on verification."""
    places = {"RTL": RTL_FAULTS, "emitter": EMITTER_FAULTS, "simulator": SIMULATOR_FAULTS}
    return [(place, fault.name, fault.found_by) for place, faults in places.items() for fault in faults]
