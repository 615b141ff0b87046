"""The switch behind its wire languages: what was commanded, what is lit, and how long moving takes.

A change takes effect in the books at once; every circuit it touches goes dark at once and has light again
when `switch_time_s` have passed on the clock. Reads in between show what was commanded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sim.models.clock import Clock
from sim.models.light import DARK_FLOOR_DBM, Attenuator
from sim.twins.plant import Plant
from sim.twins.switch.matrix import Connections, Matrix, Pair, Reason
from sim.twins.wire.line import LineFaults

BootMode = Literal["DARK", "RESTORE", "AUTOSAVE"]
BOOT_MODES: tuple[BootMode, ...] = ("DARK", "RESTORE", "AUTOSAVE")

_FAULT_OF_A_PORT: Mapping[Reason, str] = {
    Reason.FAILED: "fail_port",
    Reason.LOCKED: "lock_port",
    Reason.DISABLED: "disable_port",
}


@dataclass(slots=True)
class SwitchFaults(LineFaults):
    """Faults that a test or a demonstration may set on a switch.

    `dropped_commands` counts the next changes that are ignored without an error. `stuck` pairs are never made,
    `lossy_db` pairs lose that much more light, no light comes in at `dark_inputs`, and `swapped` inputs have one
    another's fibre.
    """

    dropped_commands: int = 0
    stuck: set[Pair] = field(default_factory=set)
    lossy_db: dict[Pair, float] = field(default_factory=dict)
    dark_inputs: set[int] = field(default_factory=set)
    swapped: dict[int, int] = field(default_factory=dict)

    def take_dropped_command(self) -> bool:
        """Return True if this change is to be ignored, and count it."""
        if not self.dropped_commands:
            return False
        self.dropped_commands -= 1
        self.fired["drop_command"] += 1
        return True


@dataclass(frozen=True, slots=True)
class Change:
    """Change of the configuration by one command, whoever gave it."""

    removed: tuple[Pair, ...]
    made: tuple[Pair, ...]


class SwitchDevice:
    """State and motion of one simulated switch.

    `hitless` says whether circuits that a whole-configuration command keeps keep their light; nobody has
    confirmed that of the real device, so it is off unless asked for. `boot_mode` says what a power cycle
    leaves: nothing, what was connected when the mode was chosen, or what was connected last. A `latching`
    device (a patch panel: fibres stay plugged) keeps circuits and light without power, whatever the mode.
    """

    def __init__(
        self,
        name: str,
        matrix: Matrix,
        *,
        plant: Plant,
        clock: Clock,
        switch_time_s: float,
        hitless: bool,
        boot_mode: BootMode,
        faults: SwitchFaults,
        latching: bool = False,
    ) -> None:
        self.name = name
        self.matrix = matrix
        self.plant = plant
        self.clock = clock
        self.switch_time_s = switch_time_s
        self.hitless = hitless
        self.faults = faults
        self.latching = latching
        self.attenuators: dict[int, Attenuator] = {}
        self.labels: dict[int, str] = {}
        self.changes = 0
        self.busy_s = 0.0
        self.last_busy_s = 0.0
        self._boot_mode = boot_mode
        self._saved: Connections = {}
        self._settled: Connections = {}  # pairs whose mirrors have arrived
        self._moving: dict[int, int] = {}  # input -> number of the change that moves it
        self._busy_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._motions: set[asyncio.Task[None]] = set()
        self.wear: Counter[int] = Counter()
        self._held: set[int] = set()  # inputs whose fibre is in somebody's hand
        self._listeners: list[Callable[[Change], None]] = []
        self._when_powerless: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []

    # -- what may be asked

    @property
    def boot_mode(self) -> BootMode:
        """Mode that says what a power cycle leaves."""
        return self._boot_mode

    @property
    def lit(self) -> Connections:
        """The cross-connects that pass light now."""
        dark = self._held | {s for s in self._settled if self.fibre(s) in self.faults.dark_inputs}
        return {
            source: output
            for source, output in self._settled.items()
            if source not in dark and self.matrix.passes((source, output))
        }

    def fibre(self, source: int) -> int:
        """Return the input whose light really comes in at `source`: another one where two fibres were swapped."""
        return self.faults.swapped.get(source, source)

    @property
    def really(self) -> Connections:
        """Output that the light of each input really reaches: the configuration, seen through swapped fibres."""
        return {self.fibre(source): output for source, output in self.lit.items()}

    def is_moving(self, source: int) -> bool:
        """Return True if the mirrors of an input are still on their way."""
        return source in self._moving

    def power_dbm(self, port: int) -> float:
        """Return the reading of the power monitor of a port reads. Raises `Refused` for an unknown port."""
        if self.matrix.is_input(port):
            if self.fibre(port) in self.faults.dark_inputs:
                self.faults.fired["dark_input"] += 1
                return DARK_FLOOR_DBM
            return self.plant.input_power_dbm(self.name, self.fibre(port))
        if port in {self.matrix.connections.get(source) for source in self.faults.dark_inputs}:
            self.faults.fired["dark_input"] += 1
        return self.plant.output_power_dbm(self.name, port)

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` for every change of the configuration."""
        self._listeners.append(listener)

    def call_when_powerless(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the power goes; motions that `start` began have been stopped then."""
        self._when_powerless.append(callback)

    @property
    def fired(self) -> Counter[str]:
        """Number of times that each fault took effect, by name; a port that refuses counts for its fault."""
        refusals = {name: self.matrix.refusals[reason] for reason, name in _FAULT_OF_A_PORT.items()}
        return self.faults.fired + Counter(refusals)

    async def wait_idle(self) -> None:
        """Return when nothing moves."""
        await self._idle.wait()

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` when nothing moves: now, or at the end of the motion."""
        if self._idle.is_set():
            callback()
        else:
            self._when_idle.append(callback)

    # -- what may be commanded

    def change(self, after: Connections, *, whole: bool = False) -> asyncio.Task[None] | None:
        """Go to `after`; gives the motion, or None when nothing had to move.

        `whole` marks a command that names the whole configuration and therefore disturbs all of it.
        """
        before = self.matrix.connections
        if any(pair in self.faults.stuck for pair in after.items() - before.items()):
            self.faults.fired["stuck"] += 1
        made = {
            pair[0]: pair[1]
            for pair in after.items()
            if pair not in self.faults.stuck or pair in before.items()
        }
        if made == before:
            return None
        self.matrix.connections = made
        if self._boot_mode == "AUTOSAVE":
            self._saved = dict(self.matrix.connections)
        self._announce(before, made)
        disturbed = before.items() ^ made.items()
        if whole and not self.hitless:
            disturbed = before.items() | made.items()
        return self._move({pair[0] for pair in disturbed})

    def hold(self, source: int) -> None:
        """Take the fibre of an input in the hand: its circuit is dark until `release`."""
        self._held.add(source)
        self.republish()

    def release(self, source: int) -> None:
        """Release the fibre of an input; it is where the books say."""
        self._held.discard(source)
        self.republish()

    def start(self, motion: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a motion that ends when the power does."""
        task = asyncio.get_running_loop().create_task(motion)
        self._motions.add(task)
        task.add_done_callback(self._motions.discard)
        return task

    def set_disabled(self, ports: set[int], *, disabled: bool) -> None:
        """Close or open shutters."""
        (self.matrix.disabled.update if disabled else self.matrix.disabled.difference_update)(ports)
        self.republish()

    def set_boot_mode(self, mode: BootMode) -> None:
        """Choose what a power cycle leaves; RESTORE also saves what is connected now."""
        self._boot_mode = mode
        self._saved = dict(self.matrix.connections)

    def republish(self) -> None:
        """Tell the plant what passes now."""
        attenuators: dict[int, Attenuator] = {
            output: self._attenuator((source, output)) for source, output in self.lit.items()
        }
        self.plant.switch_changed(self.name, self.really, attenuators)

    def power_off(self) -> None:
        """Lose power: motions stop, and all light goes unless the device is latching."""
        for motion in self._motions:
            motion.cancel()
        self._moving.clear()
        if not self.latching:
            self._settled.clear()
        for callback in self._when_powerless:
            callback()
        self._end_busy()
        self.republish()

    def boot(self) -> None:
        """Come back with what the boot mode keeps; the circuits get light after the switch time."""
        if self.latching:
            self._settled = dict(self.matrix.connections)
            self.republish()
            return
        self.matrix.connections = dict(self._saved) if self._boot_mode != "DARK" else {}
        if self.matrix.connections:
            self._move(set(self.matrix.connections))

    async def stop(self) -> None:
        """Stop all motion for good."""
        for motion in list(self._motions):
            motion.cancel()
        await asyncio.gather(*self._motions, return_exceptions=True)

    # -- inside

    def _announce(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        change = Change(
            tuple(sorted(before.items() - after.items())), tuple(sorted(after.items() - before.items()))
        )
        for pair in (*change.removed, *change.made):
            self.wear.update(pair)
        for listener in self._listeners:
            listener(change)

    def _attenuator(self, pair: Pair) -> Attenuator:
        attenuator = self.attenuators.get(pair[1], Attenuator())
        return attenuator.with_extra_loss(self.faults.lossy_db.get(pair, 0.0))

    def _move(self, inputs: set[int]) -> asyncio.Task[None]:
        self.changes += 1
        if self._idle.is_set():
            self._busy_since = self.clock.now()
            self._idle.clear()
        arrival_s = self.clock.now() + self.switch_time_s
        for source in inputs:
            self._moving[source] = self.changes
            self._settled.pop(source, None)
        motion = self.start(self._arrive(self.changes, arrival_s))
        self.republish()
        return motion

    async def _arrive(self, change: int, arrival_s: float) -> None:
        """Pass the light of one change at its time, unless a later change moves the port again."""
        await self.clock.sleep(arrival_s - self.clock.now())
        for source in [source for source, mover in self._moving.items() if mover == change]:
            del self._moving[source]
            if source in self.matrix.connections:
                self._settled[source] = self.matrix.connections[source]
        try:
            self.republish()
        finally:
            if not self._moving:
                self._end_busy()

    def _end_busy(self) -> None:
        if not self._idle.is_set():
            self.last_busy_s = self.clock.now() - self._busy_since
            self.busy_s += self.last_busy_s
            self._idle.set()
            waiting, self._when_idle = self._when_idle, []
            for callback in waiting:
                callback()
