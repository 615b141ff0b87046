"""Actions in SystemVerilog: an instance for each output, and the connections for kinds of actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fpga.count_action.actions import KINDS
from fpga.count_action.model import Action, Module, Ref
from fpga.count_action.verilog.counts import find_move_bit, write_clear, write_enable
from fpga.count_action.verilog.text import (
    CLOCK_CONNECTIONS,
    concatenate,
    declare_wire,
    extend_expression,
    join_or,
    replicate,
    write_bit,
    write_instance,
)
from fpga.count_action.verilog.wiring import Slice, Wiring, join_slices


def write_action(wiring: Wiring, module: Module, action: Action) -> Iterator[str]:
    """Yield the lines that drive the output of an action.

    Of several actions that drive one flag, the first yields the lines for all of them.
    """
    if module.map_outputs().get(action.output) is action:
        yield from KINDS[action.kind].build(HardwareWriter(wiring), module, action)


@dataclass(frozen=True)
class HardwareWriter:
    """Wires of the top for kinds of actions. Implements `actions.kind.Hardware`."""

    wiring: Wiring

    def write_fire(self, module: Module, action: Action) -> str:
        """Return the wire that is 1 if the count of an action fires."""
        return self.wiring.find_fire_wire(module.name, action.on)

    def write_any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return the condition that the count of any of the actions fires."""
        return join_or(self.write_fire(module, action) for action in actions)

    def write_clear(self, module: Module, action: Action) -> str:
        """Return the condition that restarts the sum of an action: its count fires or is cleared."""
        clear_condition = write_clear(self.wiring, module, module.count(action.on))
        return join_or(
            [self.write_fire(module, action), *([] if clear_condition == write_bit(0) else [clear_condition])]
        )

    def write_block(
        self, block: str, name: str, parameters: Mapping[str, object], ports: Mapping[str, str]
    ) -> Iterator[str]:
        """Yield an instance of a block of `fpga/rtl`, connected to clock and reset."""
        return write_instance(block, name, parameters, {**CLOCK_CONNECTIONS, **ports})

    def declare_wire(self, name: str, width: int) -> str:
        """Return the declaration of a wire."""
        return declare_wire(name, width)

    def write_bit(self, value: object) -> str:
        """Return a constant of one bit: 1 if `value` is true."""
        return write_bit(value)

    def find_beat_width(self, module: Module, action: Action) -> int:
        """Return the number of bits of a beat."""
        return self.wiring.ports.find_output(f"{module.name}_{action.output}_data_o").width

    def write_beat(self, module: Module, action: Action, data: str) -> Iterator[str]:
        """Yield the output register of a beat."""
        name = f"{module.name}_{action.output}"
        is_internal = (module.name, action.output) in self.wiring.consumed_streams
        ports = {
            "fire_i": self.write_fire(module, action),
            "data_i": data,
            "ready_i": f"{name}_ready" if is_internal else f"{name}_ready_i",
            "valid_o": f"{name}_valid_o",
            "data_o": f"{name}_data_o",
            "stalled_o": f"{name}_stalled",
        }
        return self.write_block(
            "count_action_beat", f"u_{name}_beat", {"Width": self.find_beat_width(module, action)}, ports
        )

    def find_sample_type(self, action: Action) -> tuple[int, bool]:
        """Return the width and the sign that all samples have.

        Return the action's width and False if the samples differ, or if they are wider than the action.
        """
        types = {(source.width, source.signed) for source in map(self.wiring.find_source, action.refs)}
        width, signed = types.pop()
        return (width, signed) if not types and width <= action.width else (action.width, False)

    def write_samples(self, action: Action, width: int | None = None) -> str:
        """Return the concatenated samples, the first in the lowest bits. The action's width is the default."""
        width = action.width if width is None else width
        sources = [self.wiring.find_source(ref) for ref in action.refs]
        slices = [
            source.slice_sample(ref.index, ref.lane) for source, ref in zip(sources, action.refs, strict=True)
        ]
        if all(bit_slice.width == width for bit_slice in slices):
            return join_slices(slices)
        fitted_samples = [
            _resize_slice(bit_slice, source.signed, width)
            for bit_slice, source in zip(slices, sources, strict=True)
        ]
        return concatenate(fitted_samples)

    def resize_sample(self, ref: Ref, width: int) -> str:
        """Return a sample in `width` bits: extended by its own sign, or truncated (R10)."""
        source = self.wiring.find_source(ref)
        return _resize_slice(source.slice_sample(ref.index, ref.lane), source.signed, width)

    def write_range_check(self, ref: Ref, bound: int) -> str:
        """Return the condition that a sample is from 0 to `bound` - 1."""
        source = self.wiring.find_source(ref)
        sample = source.slice_sample(ref.index, ref.lane)
        magnitude_width = sample.width - source.signed
        conditions = (
            [f"!{Slice(sample.wire, sample.wire_width, sample.low + magnitude_width)}"]
            if source.signed
            else []
        )
        if magnitude_width and bound < 1 << magnitude_width:
            value = Slice(sample.wire, sample.wire_width, sample.low, magnitude_width)
            conditions.append(f"{value} < {magnitude_width}'d{bound}")
        return " && ".join(conditions) or write_bit(1)

    def write_counted_mask(self, module: Module, action: Action) -> str:
        """Return a bit vector: bit i is 1 if sample i is counted in this cycle.

        A sample is counted if its beat moves while the count is enabled and not stalled. A level count keeps no sum,
        and its beat is read only in the cycle of its fire, so its valid bit is enough.
        """
        count = module.count(action.on)
        counting_condition = f"!{self.wiring.find_stall_wire(module.name)}"
        if count.gate:
            counting_condition = f"{counting_condition} && {write_enable(self.wiring, count)}"
        move_bits = [find_move_bit(self.wiring, count, ref) for ref in action.refs]
        gate_bits = (
            replicate(counting_condition, len(move_bits)) if len(move_bits) > 1 else f"({counting_condition})"
        )
        stream_move_bits = [move_bit for move_bit in move_bits if move_bit is not None]
        if len(stream_move_bits) == len(move_bits):
            return f"{join_slices(stream_move_bits)} & {gate_bits}"
        bits = [write_bit(1) if move_bit is None else str(move_bit) for move_bit in move_bits]
        return f"{concatenate(bits)} & {gate_bits}"


def _resize_slice(sample: Slice, signed: bool, width: int) -> str:
    """Return a sample in `width` bits: extended by its own sign, or truncated (R10)."""
    if sample.width >= width:
        return str(Slice(sample.wire, sample.wire_width, sample.low, width))
    sign = (
        str(Slice(sample.wire, sample.wire_width, sample.low + sample.width - 1)) if signed else write_bit(0)
    )
    return extend_expression(str(sample), sample.width, width, sign)
