"""State of a simulated switch, independent of its protocols: commanded connections, lit circuits and switching time.

A change updates the commanded connections at once. Every circuit that it affects goes dark at once and passes
light again `switch_time_s` later on the device's clock. A read in between returns the commanded connections.
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

    The switch ignores the next `dropped_commands` changes without an error. `stuck` pairs are never connected.
    `lossy_db` maps pairs to their additional loss in dB. No light enters at `dark_inputs`. `swapped` maps an input to
    the input whose fibre is plugged there; a swap has two entries.
    """

    dropped_commands: int = 0
    stuck: set[Pair] = field(default_factory=set)
    lossy_db: dict[Pair, float] = field(default_factory=dict)
    dark_inputs: set[int] = field(default_factory=set)
    swapped: dict[int, int] = field(default_factory=dict)

    def take_dropped_command(self) -> bool:
        """Return True if the current change must be ignored, and count it in `fired`."""
        if not self.dropped_commands:
            return False
        self.dropped_commands -= 1
        self.fired["drop_command"] += 1
        return True


@dataclass(frozen=True, slots=True)
class Change:
    """Pairs that one command, of any client, removed from the configuration, and pairs that it added; both sorted."""

    removed: tuple[Pair, ...]
    added: tuple[Pair, ...]


class SwitchDevice:
    """State and motion of one simulated switch.

    With `hitless`, a command that sets the whole configuration leaves unchanged circuits lit. This is not confirmed for
    real devices, so families default to False. `boot_mode` selects the connections after a power cycle: none (DARK),
    the connections when the mode was set (RESTORE), or the last connections (AUTOSAVE). A `latching` device (a patch
    panel, whose fibres stay plugged) keeps circuits and light without power in every mode.
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
        """Number of changes that moved something."""
        self.busy_s = 0.0
        """Time during which something moved."""
        self.last_busy_s = 0.0
        self._boot_mode = boot_mode
        self._saved: Connections = {}
        self._settled: Connections = {}  # pairs whose mirrors are in position
        self._moving: dict[int, int] = {}  # input -> number of the change that moves it
        self._busy_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._motions: set[asyncio.Task[None]] = set()
        self.moves_by_port: Counter[int] = Counter()
        """Number of circuits removed and added, by port."""
        self._unplugged_inputs: set[int] = set()  # a robot or person holds their fibre
        self._listeners: list[Callable[[Change], None]] = []
        self._when_powerless: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []

    # -- queries

    @property
    def boot_mode(self) -> BootMode:
        """Rule for the connections after a power cycle."""
        return self._boot_mode

    @property
    def lit(self) -> Connections:
        """Connections that pass light now, input to output."""
        dark = self._unplugged_inputs | {
            s for s in self._settled if self.find_plugged_input(s) in self.faults.dark_inputs
        }
        return {
            source: output
            for source, output in self._settled.items()
            if source not in dark and self.matrix.passes((source, output))
        }

    def find_plugged_input(self, source: int) -> int:
        """Return the input whose fibre is plugged at `source`: another input after the fault `swap_fibres`."""
        return self.faults.swapped.get(source, source)

    @property
    def light_paths(self) -> Connections:
        """The output that the light of each fibre reaches. It differs from `lit` only for swapped fibres."""
        return {self.find_plugged_input(source): output for source, output in self.lit.items()}

    def is_moving(self, source: int) -> bool:
        """Return True if the mirrors of an input are still moving."""
        return source in self._moving

    def power_dbm(self, port: int) -> float:
        """Return the reading of the power monitor of a port in dBm. Raise `Refused` if the port does not exist."""
        if self.matrix.is_input(port):
            if self.find_plugged_input(port) in self.faults.dark_inputs:
                self.faults.fired["dark_input"] += 1
                return DARK_FLOOR_DBM
            return self.plant.input_power_dbm(self.name, self.find_plugged_input(port))
        if port in {self.matrix.connections.get(source) for source in self.faults.dark_inputs}:
            self.faults.fired["dark_input"] += 1
        return self.plant.output_power_dbm(self.name, port)

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after every change of the configuration."""
        self._listeners.append(listener)

    def call_when_powerless(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every power loss, after all motions have been cancelled."""
        self._when_powerless.append(callback)

    @property
    def fired(self) -> Counter[str]:
        """Number of times that each fault took effect, by name, including refusals because of a faulty port."""
        refusals = {name: self.matrix.refusals[reason] for reason, name in _FAULT_OF_A_PORT.items()}
        return self.faults.fired + Counter(refusals)

    async def wait_idle(self) -> None:
        """Wait until nothing moves."""
        await self._idle.wait()

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when nothing moves: at once, or at the end of the current motion."""
        if self._idle.is_set():
            callback()
        else:
            self._when_idle.append(callback)

    # -- commands

    def change(self, after: Connections, *, whole: bool = False) -> asyncio.Task[None] | None:
        """Replace the connections by `after`, and return the task of the motion, or None if nothing changes.

        `whole` marks a command that sets the whole configuration: unless the device is `hitless`, it also darkens
        the circuits that stay. Stuck pairs that are not connected yet are left out.
        """
        before = self.matrix.connections
        if any(pair in self.faults.stuck for pair in after.items() - before.items()):
            self.faults.fired["stuck"] += 1
        result = {
            pair[0]: pair[1]
            for pair in after.items()
            if pair not in self.faults.stuck or pair in before.items()
        }
        if result == before:
            return None
        self.matrix.connections = result
        if self._boot_mode == "AUTOSAVE":
            self._saved = dict(self.matrix.connections)
        self._announce(before, result)
        disturbed = before.items() ^ result.items()
        if whole and not self.hitless:
            disturbed = before.items() | result.items()
        return self._move({pair[0] for pair in disturbed})

    def unplug(self, source: int) -> None:
        """Unplug the fibre of an input. The circuit of the input is dark until `plug_in`."""
        self._unplugged_inputs.add(source)
        self.report_light()

    def plug_in(self, source: int) -> None:
        """Plug the fibre of an input in again, at the output that the commanded connections give."""
        self._unplugged_inputs.discard(source)
        self.report_light()

    def start(self, motion: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a motion as a task, which `power_off` and `stop` cancel."""
        task = asyncio.get_running_loop().create_task(motion)
        self._motions.add(task)
        task.add_done_callback(self._motions.discard)
        return task

    def set_disabled(self, ports: set[int], *, disabled: bool) -> None:
        """Close (`disabled`) or open the shutters of ports."""
        (self.matrix.disabled.update if disabled else self.matrix.disabled.difference_update)(ports)
        self.report_light()

    def set_boot_mode(self, mode: BootMode) -> None:
        """Set the boot mode, and save the current connections for the next boot."""
        self._boot_mode = mode
        self._saved = dict(self.matrix.connections)

    def report_light(self) -> None:
        """Report the circuits that pass light, and their attenuation, to the plant."""
        attenuators: dict[int, Attenuator] = {
            output: self._attenuator((source, output)) for source, output in self.lit.items()
        }
        self.plant.switch_changed(self.name, self.light_paths, attenuators)

    def power_off(self) -> None:
        """Cut the power: cancel all motions and, unless the device is latching, darken all circuits."""
        for motion in self._motions:
            motion.cancel()
        self._moving.clear()
        if not self.latching:
            self._settled.clear()
        for callback in self._when_powerless:
            callback()
        self._end_busy()
        self.report_light()

    def boot(self) -> None:
        """Restore the connections that the boot mode keeps; they pass light after `switch_time_s`.

        A latching device restores all its connections, lit at once.
        """
        if self.latching:
            self._settled = dict(self.matrix.connections)
            self.report_light()
            return
        self.matrix.connections = dict(self._saved) if self._boot_mode != "DARK" else {}
        if self.matrix.connections:
            self._move(set(self.matrix.connections))

    async def stop(self) -> None:
        """Cancel all motions and wait for their end."""
        for motion in list(self._motions):
            motion.cancel()
        await asyncio.gather(*self._motions, return_exceptions=True)

    # -- inside

    def _announce(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        change = Change(
            tuple(sorted(before.items() - after.items())), tuple(sorted(after.items() - before.items()))
        )
        for pair in (*change.removed, *change.added):
            self.moves_by_port.update(pair)
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
        motion = self.start(self._finish_motion(self.changes, arrival_s))
        self.report_light()
        return motion

    async def _finish_motion(self, change: int, arrival_s: float) -> None:
        """Light the circuits of one change at `arrival_s`, except inputs that a later change has moved again."""
        await self.clock.sleep(arrival_s - self.clock.now())
        for source in [source for source, mover in self._moving.items() if mover == change]:
            del self._moving[source]
            if source in self.matrix.connections:
                self._settled[source] = self.matrix.connections[source]
        try:
            self.report_light()
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
