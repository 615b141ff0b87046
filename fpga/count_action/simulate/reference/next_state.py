"""The registers after a clock edge: counts, targets, sums of data, and what actions drive."""

from __future__ import annotations

from fpga.count_action.graph import clear_wins
from fpga.count_action.model import Action, ActionKind, CountKind, Module, Ref
from fpga.count_action.simulate.bit_slices import Key, extended
from fpga.count_action.simulate.reference.buffers import next_buffers
from fpga.count_action.simulate.reference.evaluation import Evaluation, packed
from fpga.count_action.simulate.reference.state import Extreme, State


def next_state(evaluation: Evaluation) -> State:
    """Return the registers after the clock edge: all replaced at once."""
    return _NextState(evaluation).state()


class _NextState:
    """New values of the registers, from the cycle as it is now."""

    def __init__(self, now: Evaluation) -> None:
        self._now = now

    def state(self) -> State:
        """Return the registers, each from the cycle alone."""
        keys = list(self._now.counts)
        keep_status = not self._now.inputs.get("clear_status_i", 0)
        return State(
            counts={key: self._next_count(key) for key in keys},
            overshoot={
                key: self._now.counts[key].overshoots or (self._now.state.overshoot[key] and keep_status)
                for key in keys
            },
            saturated={
                key: self._now.counts[key].saturates or (self._now.state.saturated[key] and keep_status)
                for key in keys
            },
            targets=self._next_targets(),
            sums=self._next_sums(),
            extremes=self._next_extremes(),
            valid={beat: self._made(beat) or self._now.backpressured(beat) for beat in self._now.state.valid},
            outputs=self._next_outputs(),
            buffers=next_buffers(
                self._now.wiring.datapath, self._now.state.buffers, self._now.inputs, self._now.moves
            ),
        )

    # Counts and targets (R5, R8, R10, R12)

    def _cleared(self, key: Key) -> bool:
        return any(self._now.fires(*by) for by in self._now.wiring.clears.get(key, ()))

    def _next_count(self, key: Key) -> int:
        now = self._now.counts[key]
        count = self._now.wiring.datapath.module(key[0]).count(key[1])
        if count.kind is CountKind.LEVEL or self._cleared(key):
            return 0
        return now.rest

    def _next_targets(self) -> dict[Key, int]:
        if not self._now.inputs.get("commit_i", 0):
            return dict(self._now.state.targets)
        shadow, targets = self._now.inputs.get("target_shadow_i", 0), {}
        for module, target in self._now.wiring.datapath.targets():
            targets[module.name, target.name] = shadow & (1 << target.width) - 1
            shadow >>= target.width
        return targets

    # Actions (R6, R9)

    def _next_outputs(self) -> dict[Key, int]:
        outputs = dict(self._now.state.outputs)
        for module in self._now.wiring.datapath.modules:
            for action in module.actions:
                key = (module.name, action.output)
                if action.kind is ActionKind.PULSE:
                    outputs[key] = int(self._now.fires(module.name, action.on))
                elif self._now.fires(module.name, action.on):
                    outputs.update(self._effect(module, action))
        return outputs

    def _effect(self, module: Module, action: Action) -> dict[Key, int]:
        """Return what an action whose count fires makes of its output."""
        key = (module.name, action.output)
        if action.kind in {ActionKind.STREAM, ActionKind.STORE}:
            samples = (self._now.sample(ref) for ref in action.refs)
            return {key: packed((sample, action.width) for sample in samples)}
        if action.kind is ActionKind.EMIT:
            return {key: self._emitted(module, action)}
        if action.kind is ActionKind.ADVANCE:
            return {key: (self._now.state.outputs[key] + 1) % action.modulo}
        if action.kind is ActionKind.SET:
            return {key: int(not self._cleared_for_good(module, action.output))}
        if action.kind is ActionKind.CLEAR_FLAG and not self._set(module, action.output):
            return {key: 0}
        return {}

    def _emitted(self, module: Module, action: Action) -> int:
        """Return the beat in which a sum or an extreme sample leaves."""
        if action.reduction == "sum":
            total = extended(self._sum(module, action), action.width, signed=action.signed)
            return total >> action.shift & (1 << action.width) - 1
        found = self._extreme(module, action)
        samples = [found.value >> action.shift, found.index][: 2 if action.with_index else 1]
        return packed((sample, action.width) for sample in samples)

    def _set(self, module: Module, flag: str) -> bool:
        """Return whether a set wins in this cycle: it does unless a clear of the flag says otherwise (R9)."""
        if clear_wins(module, flag):
            return False
        setting = (each for each in module.drives(ActionKind.SET) if each.output == flag)
        return any(self._now.fires(module.name, each.on) for each in setting)

    def _cleared_for_good(self, module: Module, flag: str) -> bool:
        clearing = (each for each in module.drives(ActionKind.CLEAR_FLAG) if each.output == flag)
        fired = any(self._now.fires(module.name, each.on) for each in clearing)
        return fired and clear_wins(module, flag)

    def _made(self, beat: Key) -> bool:
        module = self._now.wiring.datapath.module(beat[0])
        return any(self._now.fires(beat[0], each.on) for each in module.actions if each.output == beat[1])

    # Sums of data (R11)

    def _next_sums(self) -> dict[Key, int]:
        sums = {}
        for module in self._now.wiring.datapath.modules:
            for action in module.drives(ActionKind.EMIT):
                begins = self._begins(module, action)
                sums[module.name, action.output] = 0 if begins else self._sum(module, action)
        return sums

    def _begins(self, module: Module, action: Action) -> bool:
        """Return whether a sum, or the search for an extreme sample, begins in the next cycle."""
        on = (module.name, action.on)
        level = module.count(action.on).kind is CountKind.LEVEL
        return level or self._now.fires(*on) or self._cleared(on)

    def _sum(self, module: Module, action: Action) -> int:
        """Return the sum with the samples of this cycle, in the action's width."""
        total = self._now.state.sums[module.name, action.output]
        now = self._now.counts[module.name, action.on]
        if now.enabled and not now.stalled:
            total += sum(self._now.sample(ref) for ref in action.refs if self._counted(ref))
        return total & (1 << action.width) - 1

    # Largest and smallest samples (R14)

    def _next_extremes(self) -> dict[Key, Extreme]:
        found = {}
        for module in self._now.wiring.datapath.modules:
            for action in module.drives(ActionKind.EMIT):
                if action.reduction != "sum":
                    begins = self._begins(module, action)
                    kept = Extreme() if begins else self._extreme(module, action)
                    found[module.name, action.output] = kept
        return found

    def _extreme(self, module: Module, action: Action) -> Extreme:
        """Return the extreme sample with those of this cycle, in the action's width and sign."""
        best = self._now.state.extremes[module.name, action.output]
        now = self._now.counts[module.name, action.on]
        if not now.enabled or now.stalled:
            return best
        mask = (1 << action.width) - 1
        for ref in action.refs:
            if self._counted(ref):
                sample = extended(self._now.sample(ref) & mask, action.width, signed=action.signed)
                further = sample > best.value if action.reduction == "max" else sample < best.value
                first = best.counted == 0
                value, index = (sample, best.counted & mask) if first or further else (best.value, best.index)
                best = Extreme(value, index, best.counted + 1)
        return best

    def _counted(self, ref: Ref) -> bool:
        return all(self._now.moves(stream) for stream in self._now.wiring.streams_of(ref))
