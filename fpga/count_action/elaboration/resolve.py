"""What the names of a text mean: from unrolled modules to the one representation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fpga.count_action.diagnostics import Refused, Report, did_you_mean, quoted, remark
from fpga.count_action.elaboration.elaborate import (
    FlatAction,
    FlatCount,
    FlatInput,
    FlatModule,
    FlatTarget,
    Spot,
)
from fpga.count_action.elaboration.inputs import Externals, lane_base
from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    Datapath,
    Location,
    Module,
    Ref,
    SignalKind,
    Target,
)

EMIT_WIDTH = 32
"""Bits of an emitted sum that does not say."""

_KINDS = {
    "stream": SignalKind.STREAM,
    "emit": SignalKind.STREAM,
    "pulse": SignalKind.FLAG,
    "set": SignalKind.FLAG,
    "advance": SignalKind.NUMBER,
}
_ACTIONS = {
    "stream": ActionKind.STREAM,
    "emit": ActionKind.EMIT,
    "pulse": ActionKind.PULSE,
    "set": ActionKind.SET,
    "advance": ActionKind.ADVANCE,
}

Context: TypeAlias = Literal["sum", "condition", "sample"]


@dataclass(frozen=True, slots=True)
class _Driven:
    """What a spot means: an output of a module."""

    module: str
    output: str


@dataclass(frozen=True, slots=True)
class _Beat:
    """What a beat of a stream carries."""

    lanes: int
    width: int
    signed: bool


class Resolver:
    """Gives names their meaning. Errors go to the report, several at a time."""

    def __init__(self, modules: list[FlatModule], inputs: list[FlatInput], report: Report) -> None:
        self._modules = {module.name: module for module in modules}
        self._file_inputs = inputs
        self._report = report
        self._externals = Externals()
        self._lanes: dict[_Driven, set[int]] = {}
        self._drivers: dict[_Driven, FlatAction] = {}
        self._beats: dict[_Driven, _Beat | None] = {}
        self._counts = {module.name: frozenset(each.name for each in module.counts) for module in modules}
        self._owners: dict[str, str] = {}
        self._declared = {module.name: frozenset(_declared_names(module, inputs)) for module in modules}
        for module in modules:
            for action in module.actions:
                if action.verb in _KINDS:
                    self._drivers.setdefault(_Driven(module.name, action.name), action)
                    self._owners.setdefault(action.name, module.name)

    def datapath(self, name: str) -> Datapath:
        """The datapath. Raises `CountActionError` with everything that does not resolve."""
        self._note_inputs()
        self._report.settle()
        self._externals.settle(self._report, [driven.output for driven in self._drivers])
        self._report.settle()
        self._check_wires()
        modules = [self._module(module) for module in self._modules.values()]
        self._report.settle()
        return Datapath(name, self._externals.signals(), tuple(modules))

    # ------------------------------------------------------------------------- what stands where

    def _note_inputs(self) -> None:
        for declared in self._file_inputs:
            with self._report.part():
                self._externals.declare(declared)
        for module in self._modules.values():
            self._note_declared(module)
            for spot in _spots(module):
                with self._report.part():
                    self._note(module, spot)
            self._note_unknown_wires(module)

    def _note_declared(self, module: FlatModule) -> None:
        declared: dict[str, FlatInput] = {}
        for each in module.inputs:
            with self._report.part():
                if each.name in declared:
                    message = (
                        f"input {quoted(each.name)} is declared twice, first at {declared[each.name].at}"
                    )
                    raise Refused(each.at, message, "Leave one away.")
                declared[each.name] = each
                self._refuse_taken(module, each.name, each.at)
                if each.name not in module.wires:
                    self._externals.declare(each)
                    continue
                spot, _ = module.wires[each.name]
                if not spot.module:
                    renamed = replace(each, name=spot.name, span=each.span if spot.index is None else None)
                    self._externals.declare(renamed, element=spot.index)

    def _refuse_taken(self, module: FlatModule, name: str, at: Location) -> None:
        if _Driven(module.name, name) in self._drivers or name in self._counts[module.name]:
            message = (
                f"{quoted(name)} is an input of {quoted(module.name)}, and a count or an output of it, too"
            )
            raise Refused(at, message, "Rename one of them.")
        if name in module.parameters:
            raise Refused(at, f"{quoted(name)} is an input and a parameter", "Rename one of them.")

    def _note(self, module: FlatModule, spot: Spot) -> None:
        found = self._meaning(module, spot)
        if isinstance(found, _Driven):
            if spot.lane is not None:
                self._lanes.setdefault(found, set()).add(spot.lane)
            return
        if found.name not in self._declared[module.name] | _wired_names(module):
            self._refuse_driven_elsewhere(module, found)
        self._externals.use(found)

    def _refuse_driven_elsewhere(self, module: FlatModule, spot: Spot) -> None:
        if spot.name in self._modules:
            outputs = [each.output for each in self._drivers if each.module == spot.name]
            hint = f"Write {spot.name}.{outputs[0]}." if outputs else "It drives nothing."
            raise Refused(spot.at, f"{quoted(spot.name)} is a module, not a signal", hint)
        owner = self._owners.get(spot.label)
        if owner is not None and spot.name not in self._externals:
            message = (
                f"{quoted(str(spot))} is declared nowhere; module {quoted(owner)} drives one of that name"
            )
            hint = f"Write {owner}.{spot.label}, or declare an input of that name in `inputs`."
            raise Refused(spot.at, message, hint)

    def _note_unknown_wires(self, module: FlatModule) -> None:
        names = dict.fromkeys([each.name for each in module.inputs])
        names |= dict.fromkeys(spot.name for spot in _spots(module) if spot.module is None)
        for name, (_, wire) in module.wires.items():
            if name not in names:
                message = f"{quoted(module.name)} has no input {quoted(name)} that could be wired"
                self._report.error(remark(wire.at, message, did_you_mean(name, names)))

    # --------------------------------------------------------------------------------- meanings

    def _meaning(self, module: FlatModule, spot: Spot) -> _Driven | Spot:
        """What drives a spot, or the external input that it is (with its name there)."""
        if spot.module is not None:
            return self._foreign(spot)
        own = _Driven(module.name, spot.label)
        if own in self._drivers and not (spot.index is not None and spot.name in self._declared[module.name]):
            return own
        if spot.name in module.wires:
            return self._wired(module, spot)
        if spot.name in self._declared[module.name]:
            return spot
        if spot.label in self._counts[module.name]:
            message = f"{quoted(str(spot))} is a count; its value is no signal"
            raise Refused(spot.at, message, "Use what its actions drive: a pulse, a flag or a number.")
        if spot.name in module.parameters and spot.index is None and not spot.suffix:
            raise Refused(spot.at, f"{quoted(spot.name)} is a parameter, not a signal", "Name a signal.")
        return spot

    def _foreign(self, spot: Spot) -> _Driven:
        assert spot.module is not None
        if spot.module not in self._modules:
            hint = did_you_mean(spot.module, self._modules)
            raise Refused(spot.at, f"there is no module {quoted(spot.module)}", hint)
        found = _Driven(spot.module, spot.label)
        if found in self._drivers:
            return found
        if spot.label in self._counts[spot.module]:
            message = f"{quoted(str(spot))} is a count; its value is no signal"
            raise Refused(spot.at, message, "Use what its actions drive: a pulse, a flag or a number.")
        outputs = [each.output for each in self._drivers if each.module == spot.module]
        hint = did_you_mean(spot.label, outputs) or "It drives nothing."
        raise Refused(spot.at, f"module {quoted(spot.module)} drives no {quoted(spot.label)}", hint)

    def _wired(self, module: FlatModule, spot: Spot) -> _Driven | Spot:
        target, wire = module.wires[spot.name]
        if target.suffix:
            raise Refused(target.at, "a wire carries the whole stream", f"Leave `.{target.suffix}` away.")
        one_element = target.module is not None or target.index is not None
        if one_element and spot.index not in {None, 0, 1}:
            message = f"{quoted(spot.name)} is wired to {target}, one signal, and element {spot.index} of it is used"
            raise Refused(wire.at, message, "Wire it to an external input that has as many elements.")
        if target.module is not None:
            return self._foreign(target)
        index = spot.index if target.index is None else target.index
        return replace(spot, name=target.name, index=index)

    def _check_wires(self) -> None:
        for module in self._modules.values():
            for declared in module.inputs:
                if declared.name in module.wires:
                    with self._report.part():
                        self._check_wire(declared, *module.wires[declared.name])

    def _check_wire(self, declared: FlatInput, spot: Spot, wire: object) -> None:
        if spot.module is None:
            return
        driven = self._foreign(spot)
        kind = _KINDS[self._drivers[driven].verb]
        if kind is not declared.kind:
            message = f"{quoted(declared.name)} is a {declared.kind.value} and {spot} is a {kind.value}"
            raise Refused(spot.at, message, "Wire it to something of its kind.")
        if declared.span is not None and len(declared.span) > 1:
            message = f"{quoted(declared.name)} has {len(declared.span)} elements and {spot} is one"
            raise Refused(spot.at, message, "Wire it to an external input that has as many elements.")
        beat = self._beat(driven)
        if beat != _Beat(declared.lanes, declared.width, declared.signed):
            here = _Beat(declared.lanes, declared.width, declared.signed)
            message = f"{quoted(declared.name)} has {_shape(here)}, and {spot} has {_shape(beat)}"
            raise Refused(spot.at, message, "Change one of them.")

    # ------------------------------------------------------------------------------------ beats

    def _beat(self, driven: _Driven) -> _Beat:
        """Lanes, width and sign of what a module drives; of flags and numbers the width."""
        if driven not in self._beats:
            self._beats[driven] = None
            self._beats[driven] = self._new_beat(driven, self._drivers[driven])
        beat = self._beats[driven]
        if beat is None:
            at = self._drivers[driven].at
            message = f"the samples of {driven.module}.{driven.output} come from itself: streams run in a circle (R7)"
            raise Refused(at, message, "Take one of the streams from outside.")
        return beat

    def _new_beat(self, driven: _Driven, action: FlatAction) -> _Beat:
        if action.verb == "advance":
            width = number_width(action.modulo) if action.width is None else action.width
            return _Beat(1, width, signed=False)
        if action.verb in {"pulse", "set"}:
            return _Beat(1, 1, signed=False)
        module = self._modules[driven.module]
        sources = [self._source(module, spot) for spot in action.samples]
        signed = beat_signed(source.signed for source in sources) if action.sign is None else action.sign
        if action.verb == "emit":
            return _Beat(1, EMIT_WIDTH if action.width is None else action.width, signed)
        lanes = sum(
            source.lanes if spot.lane is None else 1
            for spot, source in zip(action.samples, sources, strict=True)
        )
        width = beat_width(source.width for source in sources) if action.width is None else action.width
        return _Beat(lanes, width, signed)

    def _source(self, module: FlatModule, spot: Spot) -> _Beat:
        found = self._meaning(module, spot)
        if isinstance(found, _Driven):
            return self._beat(found)
        signal = self._externals.signal(found.name)
        assert signal is not None
        return _Beat(signal.lanes, signal.width, signal.signed)

    # -------------------------------------------------------------------------------- references

    def _refs(self, module: FlatModule, spot: Spot, context: Context) -> Iterator[Ref]:
        """The references that a spot stands for: several when it names all lanes of a beat."""
        found = self._meaning(module, spot)
        if isinstance(found, _Driven):
            kind, index = _KINDS[self._drivers[found].verb], 0
            name, owner, base = found.output, found.module, lane_base(self._lanes.get(found, set()))
        else:
            signal = self._externals.signal(found.name)
            assert signal is not None
            kind, index = signal.kind, self._externals.place(found)
            name, owner, base = found.name, None, self._externals.lane_base(found.name)
        _check_suffix(spot, kind, context)
        if context != "sample" or kind is not SignalKind.STREAM:
            yield Ref(name, owner, index, 0, spot.at)
            return
        lanes = self._source(module, spot).lanes
        if spot.lane is None:
            yield from (Ref(name, owner, index, lane, spot.at) for lane in range(lanes))
            return
        if not base <= spot.lane < base + lanes:
            message = f"{quoted(str(spot))} has lanes {base} to {base + lanes - 1}, and no {spot.lane}"
            raise Refused(spot.at, message, "Lanes are declared: stream NAME of 16 lanes of 8 bits.")
        yield Ref(name, owner, index, spot.lane - base, spot.at)

    # ----------------------------------------------------------------------------------- modules

    def _module(self, module: FlatModule) -> Module:
        counts: list[Count] = []
        actions: list[Action] = []
        for place, count in enumerate(module.counts):
            with self._report.part():
                counts.append(self._count(module, count, place))
        for place, action in enumerate(module.actions):
            with self._report.part():
                actions.append(self._action(module, action, place))
        targets = [_target(target, counts) for target in module.targets]
        return Module(module.name, tuple(counts), tuple(targets), tuple(actions), module.at)

    def _count(self, module: FlatModule, count: FlatCount, place: int) -> Count:
        terms = [ref for spot in count.terms for ref in self._refs(module, spot, "sum")]
        gate = [
            Condition(ref, negated)
            for spot, negated in count.gate
            for ref in self._refs(module, spot, "condition")
        ]
        return Count(
            name=count.name,
            kind=count.kind,
            target=_target_of(module, count, place),
            terms=tuple(terms),
            constant=count.constant,
            gate=tuple(gate),
            width=count.width,
            at=count.at,
        )

    def _action(self, module: FlatModule, action: FlatAction, place: int) -> Action:
        on = _count_of(module, action, place)
        if action.cleared is not None:
            return self._clear(module, action.cleared, on, action.at)
        refs = [ref for spot in action.samples for ref in self._refs(module, spot, "sample")]
        beat = self._beat_of(module, action)
        return Action(
            kind=_ACTIONS[action.verb],
            on=on,
            output=action.name,
            refs=tuple(refs),
            width=beat.width,
            signed=beat.signed,
            shift=action.shift,
            modulo=action.modulo,
            at=action.at,
        )

    def _beat_of(self, module: FlatModule, action: FlatAction) -> _Beat:
        driven = _Driven(module.name, action.name)
        return self._beat(driven) if self._drivers[driven] is action else self._new_beat(driven, action)

    def _clear(self, module: FlatModule, spot: Spot, on: str, at: Location) -> Action:
        if spot.suffix:
            raise Refused(
                spot.at, f"{quoted(str(spot))} is a stream and cannot be cleared", "Clear a count or a flag."
            )
        driver = self._drivers.get(_Driven(module.name, spot.label))
        if spot.module is None and driver is not None and driver.verb == "set":
            return Action(ActionKind.CLEAR_FLAG, on, spot.label, at=at)
        owner = module if spot.module is None else self._modules.get(spot.module)
        if owner is None:
            hint = did_you_mean(str(spot.module), self._modules)
            raise Refused(spot.at, f"there is no module {quoted(str(spot.module))}", hint)
        if spot.label in self._counts[owner.name]:
            return Action(ActionKind.CLEAR_COUNT, on, clears=(owner.name, spot.label), at=at)
        flags = [each.name for each in module.actions if each.verb == "set"] if owner is module else []
        hint = did_you_mean(spot.label, [*(count.name for count in owner.counts), *flags])
        if owner is not module and _Driven(owner.name, spot.label) in self._drivers:
            hint = f"Pulse, count the pulse in {owner.name}, and let that clear {spot.label}."
        message = f"{quoted(str(spot))} is neither a count nor a flag that {quoted(module.name)} sets"
        raise Refused(spot.at, message, hint)


def _declared_names(module: FlatModule, file_inputs: list[FlatInput]) -> Iterator[str]:
    """Inputs that the text of a module, or that of the file, declares."""
    return (each.name for each in (*module.inputs, *file_inputs))


def _wired_names(module: FlatModule) -> set[str]:
    return {spot.name for spot, _ in module.wires.values()}


def number_width(modulo: int) -> int:
    """Bits of a number that counts to `modulo` and does not say how many it has."""
    return max(1, (modulo - 1).bit_length())


def beat_width(widths: Iterable[int]) -> int:
    """Bits of the samples of a beat that does not say: those of the widest."""
    return max(widths, default=1)


def beat_signed(signs: Iterable[bool]) -> bool:
    """Whether a beat or a sum is signed: when one of its samples is."""
    return any(signs)


def _spots(module: FlatModule) -> Iterator[Spot]:
    for count in module.counts:
        yield from count.terms
        yield from (spot for spot, _ in count.gate)
    for action in module.actions:
        yield from action.samples


def _shape(beat: _Beat) -> str:
    lanes = f"{beat.lanes} lanes of " if beat.lanes > 1 else ""
    return f"{lanes}{beat.width} bits{' signed' if beat.signed else ''}"


def _check_suffix(spot: Spot, kind: SignalKind, context: Context) -> None:
    shown = quoted(str(spot))
    if kind is not SignalKind.STREAM:
        if spot.suffix:
            message = f"{shown} is a {kind.value} and has no `.{spot.suffix}`"
            raise Refused(spot.at, message, "Write its name alone, or declare it as a stream.")
        return
    if context == "sample" and spot.suffix != "data":
        raise Refused(spot.at, f"{shown} is a stream; its samples are sent", f"Write {spot}.data.")
    if context != "sample" and spot.suffix != "valid":
        what = "counts beats" if context == "sum" else "looks at a bit"
        raise Refused(spot.at, f"{shown} is a stream, and `{_WORD[context]}` {what}", f"Write {spot}.valid.")


_WORD = {"sum": "sum", "condition": "while"}


def _target_of(module: FlatModule, count: FlatCount, place: int) -> str:
    names = [target.name for target in module.targets]
    if count.target is not None:
        if count.target not in names:
            message = f"{quoted(module.name)} has no target {quoted(count.target)}"
            raise Refused(count.target_at, message, did_you_mean(count.target, names))
        return count.target
    if not names:
        message = f"{quoted(module.name)} has no target for count {quoted(count.name)}"
        raise Refused(
            count.at, message, "Add `targets: { 4 }`, or `targets: { never }` for a count that is only read."
        )
    if len(names) == 1:
        return names[0]
    if len(names) != len(module.counts):
        message = f"{quoted(module.name)} has {len(module.counts)} counts and {len(names)} targets"
        raise Refused(count.at, message, "Write one target, one for each count, or `to TARGET` in the count.")
    return names[place]


def _count_of(module: FlatModule, action: FlatAction, place: int) -> str:
    names = [count.name for count in module.counts]
    if action.on is not None:
        if action.on not in names:
            message = f"{quoted(module.name)} has no count {quoted(action.on)}"
            raise Refused(action.on_at, message, did_you_mean(action.on, names))
        return action.on
    if len(names) == 1:
        return names[0]
    if not names:
        raise Refused(
            action.at, f"{quoted(module.name)} counts nothing that this could follow", "Add `counts: {...}`."
        )
    if len(names) != len(module.actions):
        message = f"which of {len(names)} counts is this action on? There are {len(module.actions)} actions"
        raise Refused(action.at, message, f"Write `on {names[0]}:` before it, with the count that is meant.")
    return names[place]


def _target(target: FlatTarget, counts: list[Count]) -> Target:
    widths = [count.width for count in counts if count.target == target.name]
    width = target.width if target.width is not None else max(widths, default=16)
    return Target(target.name, target.reset, width, target.at)
