"""A datapath in plain Python, straight from the rules R1 to R12 of `docs/reference/count-action.md`.

This is the meaning of the language in a form that runs: slow, exact, and to be read beside the page. `step` answers
what one cycle does; the registers are replaced all at once at its end. Everything else is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from fpga.count_action.graph import Graph, stream_of
from fpga.count_action.model import Action, ActionKind, Count, CountKind, Datapath, Module, Ref, SignalKind
from fpga.count_action.ports import Rows, consumed_streams, ports_of
from fpga.count_action.simulate.bit_slices import (
    Key,
    Place,
    beats_of,
    extended,
    sample_place,
    stall_order,
    valid_place,
)
from fpga.count_action.simulate.port_values import checked_inputs, row_of, values_of
from fpga.count_action.simulate.state import CountCycle, Cycle, State, reset_state

Stream = tuple[str | None, str, int]


class Reference:
    """A datapath and its registers. `run` may be called again and again; `reset` makes it as after power-on."""

    def __init__(self, datapath: Datapath) -> None:
        """Raises KeyError for references to nothing, ValueError for streams in a circle."""
        self.datapath = datapath
        self.ports = ports_of(datapath)
        self._wiring = _Wiring(datapath)
        self.reset()

    def reset(self) -> None:
        """All registers as R12 says."""
        self.state = reset_state(self.datapath)

    def run(self, rows: Rows) -> Rows:
        """Outputs of every cycle, read before its clock edge. Raises ValueError for rows of another width."""
        inputs = checked_inputs(self.ports, rows)
        outputs = [row_of(self.ports.outputs, cycle.outputs) for cycle in self.cycles(inputs)]
        return np.array(outputs, np.uint64).reshape(len(inputs), self.ports.output_columns)

    def cycles(self, rows: Rows) -> Iterator[Cycle]:
        """What happens in every cycle."""
        for row in checked_inputs(self.ports, rows).tolist():
            yield self.step(values_of(self.ports.inputs, row))

    def step(self, inputs: Mapping[str, int]) -> Cycle:
        """One cycle: `inputs` by port, ports that are not named being 0."""
        evaluation = _Evaluation(self._wiring, self.state, inputs)
        cycle, self.state = evaluation.cycle(), evaluation.next_state()
        return cycle


class _Wiring:
    """What does not change from cycle to cycle."""

    def __init__(self, datapath: Datapath) -> None:
        self.datapath = datapath
        self.graph = Graph(datapath)
        self.order = stall_order(self.graph)
        self.inside = consumed_streams(datapath)
        self._places: dict[Ref, Place] = {}
        self._streams: dict[Ref, bool] = {}

    def place(self, ref: Ref) -> Place:
        """Where the bits of a sample, flag or number stand."""
        if ref not in self._places:
            self._places[ref] = sample_place(self.graph, ref)
        return self._places[ref]

    def is_stream(self, ref: Ref) -> bool:
        if ref not in self._streams:
            self._streams[ref] = self.graph.is_stream(ref)
        return self._streams[ref]

    @cached_property
    def clears(self) -> dict[Key, list[Key]]:
        """The counts whose fires clear a count."""
        found: dict[Key, list[Key]] = {}
        for module in self.datapath.modules:
            for action in module.drives(ActionKind.CLEAR_COUNT):
                if action.clears is not None:
                    found.setdefault(action.clears, []).append((module.name, action.on))
        return found


class _Evaluation:
    """One cycle. Order: targets in force, signals, stalls, enables, increments, comparison, fire, next state."""

    def __init__(self, wiring: _Wiring, state: State, inputs: Mapping[str, int]) -> None:
        self._wiring, self._state, self._inputs = wiring, state, inputs
        self._stalled: dict[str, bool] = {}
        self._counts: dict[Key, CountCycle] = {}
        # Whether a module stalls depends on those that take its streams, and on which level counts fire there.
        for module in wiring.order:
            self._stalled[module.name] = any(self._kept_waiting(beat) for beat in beats_of(module))
            self._compare(module, CountKind.LEVEL)
        for module in wiring.datapath.modules:
            self._compare(module, CountKind.ACCUMULATE)

    # --------------------------------------------------------------------------- signals and streams (R7)
    def _bits(self, place: Place) -> int:
        word = self._inputs.get(place.port, 0) if place.port else self._state.outputs[place.register]
        return word >> place.low & (1 << place.width) - 1

    def _valid(self, ref: Ref) -> bool:
        if ref.module is not None:
            return self._state.valid[ref.module, ref.name]
        return bool(self._bits(valid_place(ref)))

    def _ready(self, stream: Stream) -> bool:
        """Whether all who take a stream are ready: a level count when it fires, others when they do not stall."""
        module, name, _ = stream
        if module is not None and (module, name) not in self._wiring.inside:
            return bool(self._inputs.get(f"{module}_{name}_ready_i", 0))
        return all(
            self._fires(taker.name, count.name)
            if count.kind is CountKind.LEVEL
            else not self._stalled[taker.name]
            for taker, count in self._wiring.graph.takers.get(stream, ())
        )

    def _moves(self, ref: Ref) -> bool:
        return self._valid(ref) and self._ready(stream_of(ref))

    def _kept_waiting(self, beat: Key) -> bool:
        return self._state.valid[beat] and not self._ready((*beat, 0))

    def _fires(self, module: str, count: str) -> bool:
        return self._counts[module, count].fires

    # ------------------------------------------------------------------------------ counts (R1 to R4, R10)
    def _compare(self, module: Module, kind: CountKind) -> None:
        for count in module.counts:
            if count.kind is kind:
                self._counts[module.name, count.name] = self._compared(module, count)

    def _compared(self, module: Module, count: Count) -> CountCycle:
        key = (module.name, count.name)
        enabled, stalled = self._enabled(count), self._stalled[module.name]
        increment = self._increment(count) if enabled and not stalled else 0
        base = self._state.counts[key]
        value, target = base + increment, self._state.targets[module.name, count.target]
        fires = increment != 0 and value == target
        accumulates = count.kind is CountKind.ACCUMULATE
        return CountCycle(
            module=module.name,
            count=count.name,
            enabled=enabled,
            stalled=stalled,
            base=base,
            increment=increment,
            value=value,
            target=target,
            fires=fires,
            overshoots=accumulates and increment != 0 and target != 0 and value > target,
            saturates=accumulates and not fires and value >= 1 << count.width,
        )

    def _enabled(self, count: Count) -> bool:
        return all(self._holds(condition.ref) != condition.negated for condition in count.gate)

    def _holds(self, ref: Ref) -> bool:
        return self._valid(ref) if self._wiring.is_stream(ref) else self._bits(self._wiring.place(ref)) != 0

    def _increment(self, count: Count) -> int:
        return count.constant + sum(self._term(count, ref) for ref in count.terms)

    def _term(self, count: Count, ref: Ref) -> int:
        """A level count looks at the beats that wait, an accumulating one at those that move."""
        if not self._wiring.is_stream(ref):
            return self._bits(self._wiring.place(ref))
        return self._valid(ref) if count.kind is CountKind.LEVEL else self._moves(ref)

    # --------------------------------------------------------------------------------------- what is seen
    def cycle(self) -> Cycle:
        """The cycle as it is before its clock edge."""
        counts = tuple(
            self._counts[module.name, count.name] for module, count in self._wiring.datapath.counts()
        )
        return Cycle(self._inputs, dict(self._outputs()), counts)

    def _outputs(self) -> Iterator[tuple[str, int]]:
        for signal in self._wiring.datapath.inputs:
            if signal.kind is SignalKind.STREAM:
                ready = [self._ready((None, signal.name, index)) for index in range(signal.size)]
                yield f"{signal.name}_ready_o", _packed((bit, 1) for bit in ready)
        for (module, name), value in self._state.outputs.items():
            if (module, name) in self._state.valid:
                yield f"{module}_{name}_valid_o", int(self._state.valid[module, name])
                yield f"{module}_{name}_data_o", value
            else:
                yield f"{module}_{name}_o", value
        counts = [(module.name, count.name, count.width) for module, count in self._wiring.datapath.counts()]
        yield "fire_o", _packed((self._fires(module, count), 1) for module, count, _ in counts)
        yield (
            "count_o",
            _packed((self._state.counts[module, count], width) for module, count, width in counts),
        )
        yield "overshoot_o", _packed((self._state.overshoot[module, count], 1) for module, count, _ in counts)
        yield "saturated_o", _packed((self._state.saturated[module, count], 1) for module, count, _ in counts)

    # ----------------------------------------------------------------------------------------- next state
    def next_state(self) -> State:
        """The registers after the clock edge: all replaced at once."""
        keys = list(self._counts)
        keep_status = not self._inputs.get("clear_status_i", 0)
        return State(
            counts={key: self._next_count(key) for key in keys},
            overshoot={
                key: self._counts[key].overshoots or (self._state.overshoot[key] and keep_status)
                for key in keys
            },
            saturated={
                key: self._counts[key].saturates or (self._state.saturated[key] and keep_status)
                for key in keys
            },
            targets=self._next_targets(),
            sums=self._next_sums(),
            valid={beat: self._made(beat) or self._kept_waiting(beat) for beat in self._state.valid},
            outputs=self._next_outputs(),
        )

    def _cleared(self, key: Key) -> bool:
        return any(self._fires(*by) for by in self._wiring.clears.get(key, ()))

    def _next_count(self, key: Key) -> int:
        now = self._counts[key]
        count = self._wiring.datapath.module(key[0]).count(key[1])
        if count.kind is CountKind.LEVEL or now.fires or self._cleared(key):
            return 0
        return min(now.value, (1 << count.width) - 1)

    def _next_targets(self) -> dict[Key, int]:
        if not self._inputs.get("commit_i", 0):
            return dict(self._state.targets)
        shadow, targets = self._inputs.get("target_shadow_i", 0), {}
        for module, target in self._wiring.datapath.targets():
            targets[module.name, target.name] = shadow & (1 << target.width) - 1
            shadow >>= target.width
        return targets

    # ------------------------------------------------------------------------------------ actions (R6, R9)
    def _next_outputs(self) -> dict[Key, int]:
        outputs = dict(self._state.outputs)
        for module in self._wiring.datapath.modules:
            for action in module.actions:
                key = (module.name, action.output)
                if action.kind is ActionKind.PULSE:
                    outputs[key] = int(self._fires(module.name, action.on))
                elif self._fires(module.name, action.on):
                    outputs.update(self._effect(module, action))
        return outputs

    def _effect(self, module: Module, action: Action) -> dict[Key, int]:
        """What an action whose count fires makes of its output."""
        key = (module.name, action.output)
        if action.kind is ActionKind.STREAM:
            samples = (self._sample(ref) for ref in action.refs)
            return {key: _packed((sample, action.width) for sample in samples)}
        if action.kind is ActionKind.EMIT:
            total = extended(self._sum(module, action), action.width, signed=action.signed)
            return {key: total >> action.shift & (1 << action.width) - 1}
        if action.kind is ActionKind.ADVANCE:
            return {key: (self._state.outputs[key] + 1) % action.modulo}
        if action.kind is ActionKind.SET:
            return {key: 1}
        if action.kind is ActionKind.CLEAR_FLAG and not self._set(module, action.output):
            return {key: 0}
        return {}

    def _set(self, module: Module, flag: str) -> bool:
        """Whether anything sets a flag in this cycle: set wins over clear (R9)."""
        setting = (each for each in module.drives(ActionKind.SET) if each.output == flag)
        return any(self._fires(module.name, each.on) for each in setting)

    def _made(self, beat: Key) -> bool:
        module = self._wiring.datapath.module(beat[0])
        return any(self._fires(beat[0], each.on) for each in module.actions if each.output == beat[1])

    def _sample(self, ref: Ref) -> int:
        place = self._wiring.place(ref)
        return extended(self._bits(place), place.width, signed=place.signed)

    # ---------------------------------------------------------------------------------- sums of data (R11)
    def _next_sums(self) -> dict[Key, int]:
        sums = {}
        for module in self._wiring.datapath.modules:
            for action in module.drives(ActionKind.EMIT):
                on = (module.name, action.on)
                begins = module.count(action.on).kind is CountKind.LEVEL or self._fires(*on)
                begins = begins or self._cleared(on)
                sums[module.name, action.output] = 0 if begins else self._sum(module, action)
        return sums

    def _sum(self, module: Module, action: Action) -> int:
        """The sum with the samples of this cycle, in the action's width."""
        total = self._state.sums[module.name, action.output]
        now = self._counts[module.name, action.on]
        if now.enabled and not now.stalled:
            total += sum(self._sample(ref) for ref in action.refs if self._counted(ref))
        return total & (1 << action.width) - 1

    def _counted(self, ref: Ref) -> bool:
        return not self._wiring.is_stream(ref) or self._moves(ref)


def _packed(fields: Iterator[tuple[int, int]]) -> int:
    """Values side by side, each in its width, the first in the lowest bits."""
    packed = low = 0
    for value, width in fields:
        packed |= (value & (1 << width) - 1) << low
        low += width
    return packed
