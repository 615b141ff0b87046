"""Beats that the streams of a datapath carry, and the references to their samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from fpga.count_action.actions import VERBS
from fpga.count_action.actions.kind import Shape
from fpga.count_action.diagnostics import Refused, Report, quoted
from fpga.count_action.elaboration.choices import streams_of
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatFormula,
    FlatInput,
    FlatModule,
    FlatOperand,
    FlatReference,
    Output,
    Stored,
)
from fpga.count_action.elaboration.names import Names
from fpga.count_action.elaboration.targets import width_of_target
from fpga.count_action.expressions import Interval, bits_for, combined, interval_of_bits
from fpga.count_action.model import Ref, SignalKind

Context: TypeAlias = Literal["sum", "condition", "sample"]

_WORD = {"sum": "sum", "condition": "while"}


class Beats:
    """Lanes, width and sign of everything that the modules of a datapath look at."""

    def __init__(self, names: Names, report: Report) -> None:
        self._names = names
        self._report = report
        self._beats: dict[Output, Shape | None] = {}

    def check_wires(self) -> None:
        """Check that every wire connects signals of one kind and shape. Errors go to the report."""
        for module in self._names.modules.values():
            for declared in module.inputs:
                if declared.name in module.wires:
                    with self._report.part():
                        self._check_wire(declared, *module.wires[declared.name])

    def _check_wire(self, declared: FlatInput, reference: FlatReference, wire: object) -> None:
        if reference.module is None:
            return
        driven = self._names.output(reference)
        kind = self._kind(driven)
        if kind is not declared.kind:
            message = f"{quoted(declared.name)} is a {declared.kind.value} and {reference} is a {kind.value}"
            raise Refused(reference.at, message, "Wire it to something of its kind.")
        if declared.span is not None and len(declared.span) > 1:
            message = f"{quoted(declared.name)} has {len(declared.span)} elements and {reference} is one"
            raise Refused(reference.at, message, "Wire it to an external input that has as many elements.")
        beat = self._beat(driven)
        if beat != Shape(declared.lanes, declared.width, declared.signed):
            here = Shape(declared.lanes, declared.width, declared.signed)
            message = f"{quoted(declared.name)} has {_shape(here)}, and {reference} has {_shape(beat)}"
            raise Refused(reference.at, message, "Change one of them.")

    def beat_of(self, module: FlatModule, action: FlatAction) -> Shape:
        """Return what an action sends. Raises `Refused` when its samples come from itself."""
        driven = Output(module.name, action.name)
        return self._beat(driven) if self._names.drivers[driven] is action else self._new_beat(driven, action)

    def _beat(self, driven: Output) -> Shape:
        """Return the lanes, width and sign of what a module drives; of flags and numbers the width."""
        if driven not in self._beats:
            self._beats[driven] = None
            self._beats[driven] = self._new_beat(driven, self._names.drivers[driven])
        beat = self._beats[driven]
        if beat is None:
            at = self._names.drivers[driven].at
            message = (
                f"the samples of {driven.module}.{driven.name} come from itself: streams run in a circle (R7)"
            )
            raise Refused(at, message, "Take one of the streams from outside.")
        return beat

    def _kind(self, driven: Output) -> SignalKind:
        kind = VERBS[self._names.drivers[driven].verb].kind.drives
        assert kind is not None
        return kind

    def _new_beat(self, driven: Output, action: FlatAction) -> Shape:
        module = self._names.modules[driven.module]

        def samples() -> list[Shape]:
            if action.verb == "merge":
                return self._merged(module, action)
            if action.part_of:
                return [self._beat(Output(driven.module, action.part_of))]
            return [self._shape_of(module, operand) for operand in action.samples]

        return VERBS[action.verb].shape(action, samples)

    def _merged(self, module: FlatModule, action: FlatAction) -> list[Shape]:
        """Return the shapes of the streams of which one is chosen: all have as many lanes (R19)."""
        streams = streams_of(module, action)
        shapes = [self._source(module, each) for each in streams]
        for each, shape in zip(streams, shapes, strict=True):
            if shape.lanes != shapes[0].lanes:
                first = f"{quoted(str(streams[0]))} has {shapes[0].lanes}"
                message = f"{quoted(str(each))} has {shape.lanes} lanes and {first}"
                raise Refused(each.at, message, "Merge streams of as many lanes.")
        return shapes

    def _shape_of(self, module: FlatModule, operand: FlatOperand) -> Shape:
        """Return the lanes, width and sign of a sample: those of a formula follow from what it can come to."""
        if isinstance(operand, FlatReference) and self._names.stored(module, operand, inner=False) is None:
            source = self._source(module, operand)
            return source if operand.lane is None else replace(source, lanes=1)
        width, signed = bits_for(*self._interval(module, operand))
        return Shape(1, width, signed)

    def _interval(self, module: FlatModule, operand: FlatOperand) -> Interval:
        if isinstance(operand, int):
            return operand, operand
        if isinstance(operand, FlatFormula):
            return combined(operand.operator, [self._interval(module, each) for each in operand.operands])
        if stored := self._names.stored(module, operand, inner=True):
            return interval_of_bits(_stored_width(self._names.modules[stored.module], stored), signed=False)
        if operand.suffix == "valid":
            return 0, 1
        if lanes := self._names.kept_lanes(module, operand):
            return interval_of_bits(lanes, signed=False)
        source = self._source(module, operand)
        return interval_of_bits(source.width, signed=source.signed)

    def _source(self, module: FlatModule, reference: FlatReference) -> Shape:
        found = self._names.meaning(module, reference)
        if isinstance(found, Output):
            return self._beat(found)
        signal = self._names.externals.signal(found.name)
        assert signal is not None
        return Shape(signal.lanes, signal.width, signal.signed)

    def refs(self, module: FlatModule, reference: FlatReference, context: Context) -> Iterator[Ref]:
        """Return the references that a reference stands for: several when it names all lanes of a beat."""
        found = self._names.meaning(module, reference)
        if isinstance(found, Output):
            kind, index = self._kind(found), 0
            name, owner, base = found.name, found.module, self._names.lane_base(found)
        else:
            signal = self._names.externals.signal(found.name)
            assert signal is not None
            kind, index = signal.kind, self._names.externals.bit_of(found)
            name, owner, base = found.name, None, self._names.externals.lane_base(found.name)
        _check_suffix(reference, kind, context)
        if context != "sample" or kind is not SignalKind.STREAM:
            yield Ref(name, owner, index, 0, reference.at)
            return
        lanes = self._source(module, reference).lanes
        if reference.lane is None:
            yield from (Ref(name, owner, index, lane, reference.at) for lane in range(lanes))
            return
        if not base <= reference.lane < base + lanes:
            message = (
                f"{quoted(str(reference))} has lanes {base} to {base + lanes - 1}, and no {reference.lane}"
            )
            raise Refused(reference.at, message, "Lanes are declared: stream NAME of 16 lanes of 8 bits.")
        yield Ref(name, owner, index, reference.lane - base, reference.at)


def _stored_width(module: FlatModule, stored: Stored) -> int:
    if stored.operator == "count":
        return next(each.width for each in module.counts if each.name == stored.name)
    target = next(each for each in module.targets if each.name == stored.name)
    return width_of_target(target, module)


def _shape(beat: Shape) -> str:
    lanes = f"{beat.lanes} lanes of " if beat.lanes > 1 else ""
    return f"{lanes}{beat.width} bits{' signed' if beat.signed else ''}"


def _check_suffix(reference: FlatReference, kind: SignalKind, context: Context) -> None:
    shown = quoted(str(reference))
    if kind is not SignalKind.STREAM:
        if reference.suffix:
            message = f"{shown} is a {kind.value} and has no `.{reference.suffix}`"
            raise Refused(reference.at, message, "Write its name alone, or declare it as a stream.")
        return
    if context == "sample" and reference.suffix != "data":
        raise Refused(reference.at, f"{shown} is a stream; its samples are sent", f"Write {reference}.data.")
    if context != "sample" and reference.suffix != "valid":
        what = "counts beats" if context == "sum" else "looks at a bit"
        raise Refused(
            reference.at, f"{shown} is a stream, and `{_WORD[context]}` {what}", f"Write {reference}.valid."
        )
