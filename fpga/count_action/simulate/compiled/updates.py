"""Statements for the clock edge: every register as it is in the next cycle.

Registers that other actions look at change after those that look: sums and beats before flags, pulses and numbers.
Beats may look at each other, hence what they were is kept under names that end in `_before`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpga.count_action.graph import STREAMS
from fpga.count_action.model import Action, ActionKind, CountKind, Module, Ref
from fpga.count_action.simulate.bit_slices import Key
from fpga.count_action.simulate.compiled.buffers import buffer_lines
from fpga.count_action.simulate.compiled.expressions import (
    Field,
    all_of,
    any_of,
    literal,
    negative,
    number,
    packed,
    unsigned,
    when,
    whole,
    zeros,
)
from fpga.count_action.simulate.compiled.names import Names

Lines = Iterator[str]


@dataclass(frozen=True)
class Updates:
    """The second half of a cycle."""

    names: Names

    def lines(self) -> Lines:
        """Return the statements, in order."""
        for key in self.names.outputs:
            if key in self.names.quoted:
                yield from (f"{word}_before = {word}" for word in self.names.beat(key))
        for module, action in self.names.actions(ActionKind.EMIT):
            if action.reduction != "sum":
                yield from self._extreme(module, action)
            elif self.names.adds(module, action):
                yield self._added(module, action)
        for module, action in self.names.actions(*STREAMS):
            yield from self._beat(module, action)
        for key, place in self.names.outputs.items():
            if self.names.driver(key).kind not in STREAMS:
                yield from self._effect(key, f"r{place}")
        yield from self._counts()
        yield from self._commit()
        yield from buffer_lines(self.names)

    # ------------------------------------------------------------------------------ sums of data (R11)
    def _added(self, module: Module, action: Action) -> str:
        name = f"a{self.names.outputs[module.name, action.output]}"
        on = self.names.on(module, module.count(action.on))
        return when(on, [f"{name} = {self._total(action, name)}"])

    def _total(self, action: Action, base: str = "") -> str:
        """Return the sum with those samples of this cycle that are counted, in the width of the action."""
        groups: dict[str, list[str]] = {}
        for ref in action.refs:
            groups.setdefault(self.names.counted(ref), []).append(self._sample(ref))
        parts = [base] if base else []
        for counted, samples in groups.items():
            total = " + ".join(samples)
            parts.append(total if counted == "1" else f"(({total}) & {negative(counted)})")
        return f"({' + '.join(parts)}) & {_mask(action.width)}"

    def _sample(self, ref: Ref) -> str:
        return number(self.names.field(ref), signed=self.names.graph.source(ref).signed)

    # ------------------------------------------------------------------------------- beats (R6, R7, R10)
    def _beat(self, module: Module, action: Action) -> Lines:
        key = (module.name, action.output)
        place, fire = self.names.outputs[key], self.names.fire(module.name, action.on)
        yield when(
            fire,
            list(
                self._streamed(key, action)
                if action.kind is ActionKind.STREAM
                else self._emitted(module, action)
            ),
        )
        clears = self.names.clears(module.name, action.on)
        if clears and self.names.adds(module, action):
            for name in self.names.sum_registers(module, action):
                yield f"{name} = {name} & (({any_of(clears)}) - 1)"
        yield f"v{place} = {fire} | v{place} & (y{place} ^ 1)"

    def _streamed(self, key: Key, action: Action) -> Lines:
        words = packed(self._fitted(ref, action.width) for ref in action.refs)
        return (f"{name} = {text}" for name, text in zip(self.names.beat(key), words, strict=True))

    def _fitted(self, ref: Ref, width: int) -> Field:
        """Return a sample in the width of a beat: cut, or extended by its own sign."""
        sample = self.names.field(ref)
        if sample.width >= width:
            return sample.part(0, width)
        if self.names.graph.source(ref).signed:
            return whole(f"({self._sample(ref)} & {_mask(width)})", width)
        return whole(unsigned(sample), width)

    def _emitted(self, module: Module, action: Action) -> Lines:
        """Return the statements by which the sum leaves, shifted.

        A level count has counted no beats before this cycle.
        """
        key = (module.name, action.output)
        if action.reduction != "sum":
            yield from self._emitted_extreme(module, action)
            return
        total, (beat,) = f"a{self.names.outputs[key]}", self.names.beat(key)
        adds = self.names.adds(module, action)
        if not adds:
            yield f"{total} = {self._total(action)}"
        if action.shift:
            value = number(Field((total,), 0, action.width), signed=action.signed)
            yield f"{beat} = {value} >> {action.shift} & {_mask(action.width)}"
        else:
            yield f"{beat} = {total}"
        if adds:
            yield f"{total} = 0"

    # ------------------------------------------------------------------- largest and smallest samples (R14)
    def _extreme(self, module: Module, action: Action) -> Lines:
        place, count = self.names.outputs[module.name, action.output], module.count(action.on)
        best, found, index, counted = self.names.sum_registers(module, action)
        if not self.names.adds(module, action):
            yield from (f"{name} = 0" for name in (best, found, index, counted))
        for ref in action.refs:
            taken = all_of([self.names.on(module, count), self.names.counted(ref)])
            yield f"z{place} = {number(self._fitted(ref, action.width), signed=action.signed)}"
            yield f"u{place} = {taken}"
            relation = f"z{place} > {best}" if action.reduction == "max" else f"{best} > z{place}"
            chosen = [f"{best} = z{place}", f"{index} = {counted} & {_mask(action.width)}", f"{found} = 1"]
            yield when(f"u{place} & (({found} ^ 1) | ({relation}))", chosen)
            yield f"{counted} = {counted} + u{place}"

    def _emitted_extreme(self, module: Module, action: Action) -> Lines:
        key = (module.name, action.output)
        best, found, index, counted = self.names.sum_registers(module, action)
        fields = [whole(f"({best} >> {action.shift} & {_mask(action.width)})", action.width)]
        fields += [whole(index, action.width)] if action.with_index else []
        yield from (
            f"{name} = {text}" for name, text in zip(self.names.beat(key), packed(fields), strict=True)
        )
        if self.names.adds(module, action):
            yield from (f"{name} = 0" for name in (best, found, index, counted))

    # --------------------------------------------------------------------- pulses, flags, numbers (R6, R9)
    def _effect(self, key: Key, name: str) -> Lines:
        drivers = [
            (action, self.names.fire(module.name, action.on))
            for module, action in self.names.graph.drivers[key]
        ]
        action, fire = drivers[0]
        if action.kind is ActionKind.PULSE:
            yield f"{name} = {fire}"
        elif action.kind is ActionKind.STORE:
            yield when(fire, [f"{name} = {unsigned(self._fitted(action.refs[0], action.width))}"])
        elif action.kind is ActionKind.ADVANCE:
            yield f"next_{name} = {name} + {fire}"
            yield f"{name} = next_{name} & ((next_{name} == {action.modulo}) - 1)"
        else:
            sets = [fire for action, fire in drivers if action.kind is ActionKind.SET]
            clears = [fire for action, fire in drivers if action.kind is ActionKind.CLEAR_FLAG]
            if any(action.wins and action.kind is ActionKind.CLEAR_FLAG for action, _ in drivers):
                yield f"{name} = ({any_of([*sets, name])}) & (({any_of(clears)}) ^ 1)"
            else:
                yield f"{name} = {any_of([*sets, f'{name} & (({any_of(clears)}) ^ 1)'])}"

    # ------------------------------------------------------------------- counts, status, targets (R4 to R12)
    def _counts(self) -> Lines:
        over: list[Field] = []
        full: list[Field] = []
        for module, count in self.names.datapath.counts():
            place = self.names.count(module.name, count.name)
            level = count.kind is CountKind.LEVEL
            over.append(zeros(1) if level else whole(f"b{place}", 1))
            full.append(zeros(1) if level else whole(f"s{place}", 1))
            if not level:
                fires = [] if module.target(count.target).carry else [f"f{place}"]
                begins = any_of([*fires, *self.names.clears(module.name, count.name)])
                held = f"(x{place} | -s{place}) & {_mask(count.width)}"
                yield f"c{place} = {f'x{place}' if count.goes_down else held} & (({begins}) - 1)"
        yield f"keep = {unsigned(self.names.input_bit('clear_status_i'))} - 1"
        for register, bits in (("over", over), ("full", full)):
            for word, events in enumerate(packed(bits)):
                yield f"{register}{word} = {events} | {register}{word} & keep"

    def _commit(self) -> Lines:
        low, words = 0, self.names.words(self.names.ports.input("target_shadow_i"))
        lines = []
        for module, target in self.names.datapath.targets():
            name = self.names.target(module.name, target.name)
            lines.append(f"{name} = {unsigned(Field(words, low, target.width))}")
            low += target.width
        if lines:
            yield when(unsigned(self.names.input_bit("commit_i")), lines)


def _mask(width: int) -> str:
    return literal((1 << width) - 1)
