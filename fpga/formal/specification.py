"""The proof of a datapath: its generated top with the checks of every part, as SystemVerilog.

Of the emitter nothing is used but the names of three registers and wires inside the top that no port shows: the
targets in force (`target`), a sum and its register. A name that is not there would leave the checks without a value,
and the proof would fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fpga.count_action.model import Action, ActionKind, Count, CountKind, Datapath, Module, Ref
from fpga.formal.blocks import BEGINNING, checks_sources
from fpga.formal.buffers import buffers_of, hidden_wires
from fpga.formal.choices import choice
from fpga.formal.claims import assumption_lines, claims_of
from fpga.formal.instances import CLOCKED, Check, bit, hidden
from fpga.formal.meaning import ALWAYS, FORMULA_WIDTH, INCREMENT_WIDTH, STREAMS, Meaning, concatenated
from fpga.hdl.design import Design, design_of

_EXTREME = {"any": 1, "best": 0, "index": 0, "counted": 0}
"""Registers of an extreme sample with their bits; 0: those of the sample."""


@dataclass(frozen=True)
class Specification:
    """Text and table of the proof of a datapath; with `only`, the checks of that module and of the targets.

    `delivered` is the design that is proven in the place of the one that would be generated now. `renamed` are wires
    inside the top that are called otherwise in it, by the names that they have in a generated one.
    """

    datapath: Datapath
    only: str | None = None
    claims: frozenset[tuple[str, str]] | None = None
    """Properties that the text states (module and name), proven with what it assumes (R21)."""
    delivered: Design | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def meaning(self) -> Meaning:
        """Expressions over the ports."""
        return Meaning(self.datapath)

    @cached_property
    def checks(self) -> dict[str, Check]:
        """The instances of checks, by their names in the proof."""
        chosen = [module for module in self.datapath.modules if self.only in {None, module.name}]
        every = [_targets(self.datapath), *buffers_of(self.meaning)]
        every += [each for module in chosen for each in self._of(module)]
        if self.claims is not None:
            every += claims_of(self.meaning, self.claims)
        return {f"check_{place}": check for place, check in enumerate(every)}

    @cached_property
    def design(self) -> Design:
        """The design that is proven."""
        return self.delivered or design_of(self.datapath)

    @property
    def top(self) -> str:
        """The module that is proven."""
        return f"{self.datapath.name}_proof"

    def sources(self) -> dict[str, str]:
        """Return all files, the top of the proof last."""
        blocks = [check.block for check in self.checks.values()]
        return {**dict(self.design.sources), **checks_sources(blocks), f"{self.top}.sv": self.text()}

    def text(self) -> str:
        """Return the top of the proof. Its inputs are those of the datapath."""
        ports = self.meaning.ports
        inputs = [f"  input logic [{port.width - 1}:0] {port.name}" for port in ports.inputs]
        width = sum(target.width for _, target in self.datapath.targets())
        lines = [f"logic [{port.width - 1}:0] {port.name};" for port in ports.outputs]
        lines += [f"{self.datapath.name} dut (.*);", hidden("target", width)]
        lines += [*hidden_wires(self.meaning), *self.meaning.shared_lines()]
        if self.claims is not None:
            lines += assumption_lines(self.meaning)
        for name, check in self.checks.items():
            lines += check.lines(name)
        head = [
            f"module {self.top} (",
            ",\n".join(["  input logic clk_i", "  input logic rst_i", *inputs]),
            ");",
        ]
        text = "\n".join([*head, *BEGINNING, *(f"  {line}" for line in lines), "endmodule", ""])
        for name, delivered in self.renamed.items():
            text = text.replace(f"\\dut.{name} ", f"\\dut.{delivered} ")
        return text

    def _of(self, module: Module) -> Iterator[Check]:
        for count in module.counts:
            yield self._count(module, count)
            streams = [ref for ref in count.counted if ref.module is None and self.meaning.is_stream(ref)]
            if streams:
                yield self._ready(module, count, streams)
            if count.order:
                yield choice(self.meaning, module, count)
        flags: set[str] = set()
        for action in module.actions:
            if action.kind is ActionKind.EMIT:
                sums = action.reduction == "sum"
                yield self._sum(module, action) if sums else self._extreme(module, action)
            if action.kind in STREAMS:
                yield self._beat(module, action)
            elif action.kind is ActionKind.ADVANCE:
                yield self._number(module, action)
            elif action.kind is ActionKind.STORE:
                yield self._stored(module, action)
            elif action.kind is not ActionKind.CLEAR_COUNT and action.output not in flags:
                flags.add(action.output)
                yield self._flag(module, action)

    def _count(self, module: Module, count: Count) -> Check:
        meaning = self.meaning
        place = meaning.place(module, count.name)
        target = meaning.reached(module, count)
        increment = f"increment_{place}"
        parameters = {
            "Accumulate": bit(count.kind is CountKind.ACCUMULATE),
            "Width": count.width,
            "IncrementWidth": INCREMENT_WIDTH,
            "TargetWidth": target.width,
            "AtLeast": bit(module.target(count.target).at_least),
            "Carry": bit(module.target(count.target).carry),
        }
        before = (
            f"logic [{INCREMENT_WIDTH - 1}:0] {increment};",
            f"assign {increment} = {meaning.increment(count)};",
        )
        ports = {
            **CLOCKED,
            "enable_i": meaning.enabled(count),
            "stall_i": f"stall_{module.name}",
            "clear_i": meaning.cleared(module, count),
            "clear_status_i": "clear_status_i[0]",
            "increment_i": increment,
            "target_i": target,
            "fire_o": f"fire_o[{place}]",
            "count_o": meaning.base(module, count),
            "overshoot_o": f"overshoot_o[{place}]",
            "saturated_o": f"saturated_o[{place}]",
        }
        if count.goes_down:
            return self._up_and_down(module, count, Check("", "", "", parameters, ports, before))
        return Check("count_action", module.name, count.name, parameters, ports, before)

    def _up_and_down(self, module: Module, count: Count, check: Check) -> Check:
        """Return the checks of a count between bounds, made of what every count has (R17)."""
        decrement = f"decrement_{self.meaning.place(module, count.name)}"
        parameters = {**check.parameters, "BoundWidth": FORMULA_WIDTH}
        ports = {
            **check.ports,
            "up_i": check.ports["increment_i"],
            "down_i": decrement,
            "bound_i": self.meaning.bound(count),
        }
        del parameters["Accumulate"], ports["increment_i"]
        before = (
            *check.before,
            f"logic [{INCREMENT_WIDTH - 1}:0] {decrement};",
            f"assign {decrement} = {self.meaning.increment(count, down=True)};",
        )
        return Check("count_action_up_down", module.name, count.name, parameters, ports, before)

    def _ready(self, module: Module, count: Count, streams: list[Ref]) -> Check:
        ports = {
            "ready_o": concatenated(self.meaning.accepted(ref) for ref in streams),
            "expected_i": concatenated(f"({self.meaning.ready(ref)})" for ref in streams),
        }
        return Check("count_action_ready", module.name, count.name, {"Streams": len(streams)}, ports)

    def _sum(self, module: Module, action: Action) -> Check:
        """Return the checks of a sum.

        That of a level count is looked at when it fires: at no other time does a beat move.
        """
        meaning, count = self.meaning, module.count(action.on)
        level = count.kind is CountKind.LEVEL
        name = f"{module.name}_{action.output}"
        register = f"u_{name}_sum.gen_accumulate.sum_q"
        fire = meaning.fire(module, count.name)
        parameters = {
            "Samples": len(action.refs),
            "SampleWidth": action.width,
            "Width": action.width,
            "Accumulate": bit(not level),
            "Shift": action.shift,
            "Signed": bit(action.signed),
        }
        ports = {
            **CLOCKED,
            "clear_i": f"{fire} || {meaning.cleared(module, count)}",
            "take_i": concatenated(f"({meaning.taken(module, count, ref)})" for ref in action.refs),
            "samples_i": concatenated(meaning.sample(ref).fitted(action.width) for ref in action.refs),
            "sum_o": f"\\dut.{name}_sum ",
            "base_i": f"{action.width}'d0" if level else f"\\dut.{register} ",
            "check_i": fire if level else ALWAYS,
            "expected_o": f"expected_{name}",
        }
        before = [f"logic [{action.width - 1}:0] expected_{name};", hidden(f"{name}_sum", action.width)]
        before += [] if level else [hidden(register, action.width)]
        return Check("count_action_sum", module.name, action.output, parameters, ports, tuple(before))

    def _extreme(self, module: Module, action: Action) -> Check:
        """Return the checks of a largest or smallest sample, looked at as those of a sum."""
        meaning, count = self.meaning, module.count(action.on)
        level = count.kind is CountKind.LEVEL
        name = f"{module.name}_{action.output}"
        width = meaning.ports.output(f"{name}_data_o").width
        parameters = {
            "Samples": len(action.refs),
            "Width": action.width,
            "Accumulate": bit(not level),
            "Shift": action.shift,
            "Signed": bit(action.signed),
            "Minimum": bit(action.reduction == "min"),
            "WithIndex": bit(action.with_index),
        }
        fire = meaning.fire(module, count.name)
        ports: dict[str, object] = {
            **CLOCKED,
            "clear_i": f"{fire} || {meaning.cleared(module, count)}",
            "take_i": concatenated(f"({meaning.taken(module, count, ref)})" for ref in action.refs),
            "samples_i": concatenated(meaning.sample(ref).fitted(action.width) for ref in action.refs),
            "beat_o": f"\\dut.{name}_extreme ",
            "check_i": fire if level else ALWAYS,
            "expected_o": f"expected_{name}",
        }
        before = [f"logic [{width - 1}:0] expected_{name};", hidden(f"{name}_extreme", width)]
        for port, bits in _EXTREME.items():
            register = f"u_{name}_extreme.gen_accumulate.{port}_q"
            ports[f"{port}_i"] = f"{bits or action.width}'d0" if level else f"\\dut.{register} "
            before += [] if level else [hidden(register, bits or action.width)]
        return Check("count_action_extreme", module.name, action.output, parameters, ports, tuple(before))

    def _beat(self, module: Module, action: Action) -> Check:
        name = f"{module.name}_{action.output}"
        samples = concatenated(self.meaning.sample(ref).fitted(action.width) for ref in action.refs)
        parameters = {"Width": self.meaning.ports.output(f"{name}_data_o").width, "Alone": bit(False)}
        ports = {
            **CLOCKED,
            "fire_i": self.meaning.fire(module, action.on),
            "data_i": f"expected_{name}" if action.kind is ActionKind.EMIT else samples,
            "ready_i": f"ready_{name}",
            "valid_o": f"{name}_valid_o",
            "data_o": f"{name}_data_o",
            "stalled_o": f"{name}_valid_o[0] && !ready_{name}",
        }
        return Check("count_action_beat", module.name, action.output, parameters, ports)

    def _number(self, module: Module, action: Action) -> Check:
        parameters = {"Width": action.width, "Last": f"{action.width}'d{action.modulo - 1}"}
        ports = {
            **CLOCKED,
            "advance_i": self.meaning.fire(module, action.on),
            "number_o": f"{module.name}_{action.output}_o",
        }
        return Check("count_action_advance", module.name, action.output, parameters, ports)

    def _stored(self, module: Module, action: Action) -> Check:
        ports = {
            **CLOCKED,
            "fire_i": self.meaning.fire(module, action.on),
            "data_i": self.meaning.sample(action.refs[0]).fitted(action.width),
            "number_o": f"{module.name}_{action.output}_o",
        }
        return Check("count_action_store", module.name, action.output, {"Width": action.width}, ports)

    def _flag(self, module: Module, action: Action) -> Check:
        """Return a flag, or a pulse, which is cleared in every cycle."""
        driving = [each for each in module.actions if each.output == action.output]
        clears = [(module, each) for each in driving if each.kind is ActionKind.CLEAR_FLAG]
        sets = [(module, each) for each in driving if each.kind is not ActionKind.CLEAR_FLAG]
        ports = {
            **CLOCKED,
            "set_i": self.meaning.any_fire(sets),
            "clear_i": ALWAYS if action.kind is ActionKind.PULSE else self.meaning.any_fire(clears),
            "flag_o": f"{module.name}_{action.output}_o",
        }
        wins = any(each.wins for _, each in clears)
        return Check("count_action_flag", module.name, action.output, {"ClearWins": bit(wins)}, ports)


def _targets(datapath: Datapath) -> Check:
    targets = [target for _, target in datapath.targets()]
    reset = concatenated(f"{target.width}'d{target.reset}" for target in targets)
    parameters = {"Width": sum(target.width for target in targets), "Reset": reset}
    ports = {
        **CLOCKED,
        "commit_i": "commit_i",
        "shadow_i": "target_shadow_i",
        "target_o": "\\dut.target ",
    }
    return Check("count_action_targets", "", "targets", parameters, ports)
