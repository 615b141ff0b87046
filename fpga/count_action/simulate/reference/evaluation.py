"""The combinational part of a cycle: stalls, moving beats, fires and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from fpga.count_action.arbitration import find_pick_formula
from fpga.count_action.expressions import (
    STORED_OPERATORS,
    concatenate,
    decode_number,
    evaluate_operation,
    get_slice_width,
)
from fpga.count_action.graph import Graph, get_stream_key
from fpga.count_action.model import (
    Count,
    CountKind,
    Datapath,
    Module,
    Operand,
    Ref,
    Signal,
    SignalKind,
    is_formula_ref,
)
from fpga.count_action.simulate.bit_slices import (
    BitSlice,
    PartOfModule,
    find_driven_streams,
    find_sample_slice,
    find_valid_slice,
    sort_by_stalls,
)
from fpga.count_action.simulate.reference.state import CountCycle, Cycle, State, apply_buffers, has_space


class ConnectionCache:
    """Connections of a datapath, cached because they are the same in every cycle."""

    def __init__(self, datapath: Datapath) -> None:
        self.datapath = datapath
        self.graph = Graph(datapath)
        self.modules_in_stall_order = sort_by_stalls(self.graph)
        self.consumed_streams = datapath.consumed
        self._slice_by_ref: dict[Ref, BitSlice] = {}
        self._is_stream_by_ref: dict[Ref, bool] = {}
        self._streams_by_ref: dict[Ref, tuple[Ref, ...]] = {}

    def get_slice(self, ref: Ref) -> BitSlice:
        """Return the bits of a sample, flag or number."""
        if ref not in self._slice_by_ref:
            self._slice_by_ref[ref] = find_sample_slice(self.graph, ref)
        return self._slice_by_ref[ref]

    def is_stream(self, ref: Ref) -> bool:
        """Return whether a reference is a stream."""
        if ref not in self._is_stream_by_ref:
            self._is_stream_by_ref[ref] = self.graph.is_stream(ref)
        return self._is_stream_by_ref[ref]

    def find_streams(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the streams whose beats must move for a sample to be counted (R11)."""
        if ref not in self._streams_by_ref:
            self._streams_by_ref[ref] = self.graph.find_streams(ref)
        return self._streams_by_ref[ref]

    @cached_property
    def rivals_by_count(self) -> dict[PartOfModule, tuple[Count, ...]]:
        """For each count, the preceding level counts that take one of the count's streams (R26)."""
        return {
            (module.name, count.name): self.graph.find_rivals(module, count)
            for module, count in self.datapath.list_counts()
        }

    @cached_property
    def clearing_counts(self) -> dict[PartOfModule, list[PartOfModule]]:
        """The counts whose fires clear each count."""
        clears: dict[PartOfModule, list[PartOfModule]] = {}
        for module in self.datapath.modules:
            for action in module.actions:
                if action.clears is not None:
                    clears.setdefault(action.clears, []).append((module.name, action.on))
        return clears


Stream = tuple[str | None, str, int]


class Evaluation:
    """One cycle before its clock edge."""

    def __init__(self, wiring: ConnectionCache, state: State, inputs: Mapping[str, int]) -> None:
        self.wiring, self.state, self.inputs = wiring, state, inputs
        self._buffered_inputs = apply_buffers(wiring.datapath, state.buffers, inputs)
        self._stalled: dict[str, bool] = {}
        self.counts: dict[PartOfModule, CountCycle] = {}
        # The stall of a module depends on the stalls and level counts of the readers of its streams: the readers come
        # first.
        for module in wiring.modules_in_stall_order:
            self._stalled[module.name] = any(
                self.is_backpressured(stream) for stream in find_driven_streams(module)
            )
            self._compare(module, CountKind.LEVEL)
        for module in wiring.datapath.modules:
            self._compare(module, CountKind.ACCUMULATE)

    # Signals and streams (R7)

    def _read_bits(self, bit_slice: BitSlice) -> int:
        word = (
            self._buffered_inputs.get(bit_slice.port, 0)
            if bit_slice.port
            else self.state.outputs[bit_slice.register]
        )
        return word >> bit_slice.low & (1 << bit_slice.width) - 1

    def _is_valid(self, ref: Ref) -> bool:
        if ref.module is not None:
            return self.state.valid_bits[ref.module, ref.name]
        return bool(self._read_bits(find_valid_slice(ref)))

    def _is_ready(self, stream: Stream) -> bool:
        """Return whether the takers of a stream are ready: a level count fires or, without one, no taker stalls."""
        module, name, _ = stream
        if module is not None and (module, name) not in self.wiring.consumed_streams:
            return bool(self.inputs.get(f"{module}_{name}_ready_i", 0))
        consumers = self.wiring.graph.consumers.get(stream, ())
        level_consumers = [consumer for consumer in consumers if consumer[1].kind is CountKind.LEVEL]
        if level_consumers:
            return any(
                self.fires(taker.name, count.name) and self._takes(count, stream)
                for taker, count in level_consumers
            )
        return not any(self._stalled[taker.name] for taker, _ in consumers)

    def moves(self, ref: Ref) -> bool:
        """Return whether a beat of a stream is taken in this cycle (R7)."""
        return self._is_valid(ref) and self._is_ready(get_stream_key(ref))

    def is_backpressured(self, stream: PartOfModule) -> bool:
        """Return whether a module has a beat that is not taken in this cycle (R7)."""
        return self.state.valid_bits[stream] and not self._is_ready((*stream, 0))

    def fires(self, module_name: str, count_name: str) -> bool:
        """Return whether a count fires in this cycle (R1)."""
        return self.counts[module_name, count_name].fires

    # Counts (R1 to R4, R10)

    def _compare(self, module: Module, kind: CountKind) -> None:
        for count in module.counts:
            if count.kind is kind:
                self.counts[module.name, count.name] = self._compare_count(module, count)

    def _compare_count(self, module: Module, count: Count) -> CountCycle:
        key = (module.name, count.name)
        is_unrivalled = not any(
            self.fires(module.name, rival.name) for rival in self.wiring.rivals_by_count[key]
        )
        enabled, stalled = is_unrivalled and self._is_enabled(count), self._stalled[module.name]
        increment = self._compute_increment(count) if enabled and not stalled else 0
        start_value = self.state.counts[key]
        formula_value = None if count.aim is None else self.read_sample(count.aim)
        target = self.state.targets[module.name, count.target] if formula_value is None else formula_value
        value = start_value + increment
        target_settings = module.target(count.target)
        fires = increment != 0 and value == target != 0
        if target_settings.at_least:
            fires = increment != 0 and 0 < target <= value
        is_accumulating = count.kind is CountKind.ACCUMULATE
        unlimited_value = value
        if fires:
            unlimited_value = value - target if target_settings.carry else 0
        limited_value = min(max(unlimited_value, 0), self._compute_limit(count)) if increment else start_value
        return CountCycle(
            module=module.name,
            count=count.name,
            is_enabled=enabled,
            is_stalled=stalled,
            start_value=start_value,
            increment=increment,
            value=value,
            target=target,
            fires=fires,
            next_value=limited_value,
            overshoots=is_accumulating and not fires and increment != 0 and target != 0 and value > target,
            saturates=is_accumulating and increment != 0 and limited_value != unlimited_value,
        )

    def _compute_limit(self, count: Count) -> int:
        """Return the largest possible value of a count: the maximum of its register, or a smaller bound (R10, R17)."""
        max_value = (1 << count.width) - 1
        return max_value if count.bound is None else min(max_value, self.read_sample(count.bound))

    def _is_enabled(self, count: Count) -> bool:
        return all(self._holds(condition.ref) != condition.negated for condition in count.gate)

    def _holds(self, ref: Ref) -> bool:
        return self._is_valid(ref) if self.wiring.is_stream(ref) else self.read_sample(ref) != 0

    def _compute_increment(self, count: Count) -> int:
        added_total = sum(self._read_term(count, ref) for ref in count.terms)
        return count.constant + added_total - sum(self._read_term(count, ref) for ref in count.taken)

    def _read_term(self, count: Count, ref: Ref) -> int:
        """Return the value of a term: level counts add waiting beats, accumulating counts add moving beats."""
        if not self.wiring.is_stream(ref):
            return self._read_bits(self.wiring.get_slice(ref))
        if count.kind is not CountKind.LEVEL:
            return self.moves(ref)
        return self._is_valid(ref) and self._takes(count, get_stream_key(ref))

    def _takes(self, count: Count, stream: Stream) -> bool:
        """Return whether a count takes this stream when it fires; an arbitrating count takes one stream (R19)."""
        pick = find_pick_formula(count, Ref(stream[1], stream[0], stream[2])) if count.order else None
        return pick is None or self.read_sample(pick) != 0

    # Formulas (R13)

    def _evaluate(self, operand: Operand) -> int:
        """Return the exact value of a formula."""
        if isinstance(operand, int):
            return operand
        if isinstance(operand, Ref):
            return self.read_sample(operand)
        first_operand = operand.operands[0]
        if isinstance(first_operand, Ref) and operand.operator == "valid":
            return int(self._is_valid(first_operand))
        if isinstance(first_operand, Ref) and operand.operator in STORED_OPERATORS:
            registers = self.state.counts if operand.operator == "count" else self.state.targets
            return registers[first_operand.module or "", first_operand.name]
        values = [self._evaluate(part) for part in operand.operands]
        if operand.operator == "concat":
            return concatenate(list(zip(values, map(get_slice_width, operand.operands), strict=True)))
        return evaluate_operation(operand.operator, values)

    def find_violations(self) -> Iterator[tuple[str, str, str]]:
        """Yield (module, kind, name) of each property that does not hold in this cycle (R21)."""
        for module in self.wiring.datapath.modules:
            for claim in module.claims:
                if (self._evaluate(claim.holds) != 0) == (claim.kind == "never"):
                    yield module.name, claim.kind, claim.name

    # Outputs

    def make_cycle(self) -> Cycle:
        """Return the values of ports and counts before the clock edge."""
        counts = tuple(
            self.counts[module.name, count.name] for module, count in self.wiring.datapath.list_counts()
        )
        return Cycle(self.inputs, dict(self._list_outputs()), counts)

    def _list_outputs(self) -> Iterator[tuple[str, int]]:
        for signal in self.wiring.datapath.inputs:
            if signal.kind is SignalKind.STREAM:
                ready_bits = [self._accepts(signal, index) for index in range(signal.size)]
                yield f"{signal.name}_ready_o", pack((bit, 1) for bit in ready_bits)
        for (module, name), value in self.state.outputs.items():
            if (module, name) in self.state.valid_bits:
                yield f"{module}_{name}_valid_o", int(self.state.valid_bits[module, name])
                yield f"{module}_{name}_data_o", value
            else:
                yield f"{module}_{name}_o", value
        counts = [
            (module.name, count.name, count.width) for module, count in self.wiring.datapath.list_counts()
        ]
        yield "fire_o", pack((self.fires(module, count), 1) for module, count, _ in counts)
        yield (
            "count_o",
            pack((self.state.counts[module, count], width) for module, count, width in counts),
        )
        yield (
            "overshoot_o",
            pack((self.state.overshoot_flags[module, count], 1) for module, count, _ in counts),
        )
        yield (
            "saturated_o",
            pack((self.state.saturation_flags[module, count], 1) for module, count, _ in counts),
        )

    def _accepts(self, signal: Signal, index: int) -> bool:
        """Return the ready bit at the port; for a buffered stream, whether its buffer has room (R20)."""
        if signal.buffered:
            return has_space(self.state.buffers[signal.name, index])
        return self._is_ready((None, signal.name, index))

    def read_sample(self, ref: Ref) -> int:
        """Return the value of a sample, a flag, a number or a formula in this cycle."""
        if is_formula_ref(ref):
            return self._evaluate(self.wiring.graph.find_formula(ref))
        bit_slice = self.wiring.get_slice(ref)
        return decode_number(self._read_bits(bit_slice), bit_slice.width, signed=bit_slice.signed)


def pack(fields: Iterable[tuple[int, int]]) -> int:
    """Return the concatenation of (value, width) fields, the first in the lowest bits."""
    packed_bits = low = 0
    for value, width in fields:
        packed_bits |= (value & (1 << width) - 1) << low
        low += width
    return packed_bits
