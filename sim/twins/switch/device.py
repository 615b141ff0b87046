"""State of a simulated switch, independent of its protocols: commanded connections, lit circuits and switching time.

A change updates the commanded connections at once. Every affected circuit goes dark at once, and passes light again
after `switch_time_s` on the device's clock. Meanwhile, reads return the commanded connections.
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

_FAULT_BY_REASON: Mapping[Reason, str] = {
    Reason.FAILED: "fail_port",
    Reason.LOCKED: "lock_port",
    Reason.DISABLED: "disable_port",
}


@dataclass(slots=True)
class SwitchFaults(LineFaults):
    """Faults that a test or a demonstration may set on a switch.

    - `dropped_commands`: number of changes that the switch will ignore without an error.
    - `stuck_pairs`: pairs that the switch cannot connect.
    - `extra_loss_db`: additional loss in dB, by pair.
    - `dark_inputs`: inputs that receive no light.
    - `swapped_inputs`: for each swapped input, the input whose fibre is plugged there. A swap has two entries.
    """

    dropped_commands: int = 0
    stuck_pairs: set[Pair] = field(default_factory=set)
    extra_loss_db: dict[Pair, float] = field(default_factory=dict)
    dark_inputs: set[int] = field(default_factory=set)
    swapped_inputs: dict[int, int] = field(default_factory=dict)

    def must_drop_command(self) -> bool:
        """Return True if the current change must be ignored, and count it in `fire_counts`."""
        if not self.dropped_commands:
            return False
        self.dropped_commands -= 1
        self.fire_counts["drop_command"] += 1
        return True


@dataclass(frozen=True, slots=True)
class Change:
    """Sorted pairs that one command of any client removed from the configuration, and added to it."""

    removed_pairs: tuple[Pair, ...]
    added_pairs: tuple[Pair, ...]


class SwitchDevice:
    """State and motion of one simulated switch.

    With `is_hitless`, a command that sets the whole configuration leaves unchanged circuits lit. No real device is
    known to do this, so families default to False. `boot_mode` selects the connections after a power cycle: none
    (DARK), the connections when the mode was set (RESTORE), or the last connections (AUTOSAVE). With `is_latching`, the
    device keeps circuits and light without power in every mode. An example is a patch panel, whose fibres stay plugged.
    """

    def __init__(
        self,
        name: str,
        matrix: Matrix,
        *,
        plant: Plant,
        clock: Clock,
        switch_time_s: float,
        is_hitless: bool,
        boot_mode: BootMode,
        faults: SwitchFaults,
        is_latching: bool = False,
    ) -> None:
        self.name = name
        self.matrix = matrix
        self.plant = plant
        self.clock = clock
        self.switch_time_s = switch_time_s
        self.is_hitless = is_hitless
        self.faults = faults
        self.is_latching = is_latching
        self.attenuators: dict[int, Attenuator] = {}
        self.labels: dict[int, str] = {}
        self.change_count = 0
        """Number of changes that moved mirrors."""
        self.busy_s = 0.0
        """Total time in which mirrors moved, without the current motion."""
        self.last_busy_s = 0.0
        self._boot_mode = boot_mode
        self._saved_connections: Connections = {}
        self._settled_connections: Connections = {}  # pairs whose mirrors are in position
        self._change_by_moving_input: dict[int, int] = {}  # input -> number of the change that moves it
        self._busy_start_s = 0.0
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._motions: set[asyncio.Task[None]] = set()
        self.move_count_by_port: Counter[int] = Counter()
        """Number of circuits removed and added, by port."""
        self._unplugged_inputs: set[int] = set()  # a robot or person holds their fibre
        self._listeners: list[Callable[[Change], None]] = []
        self._power_loss_callbacks: list[Callable[[], None]] = []
        self._idle_callbacks: list[Callable[[], None]] = []

    # -- queries

    @property
    def boot_mode(self) -> BootMode:
        """Rule for the connections after a power cycle."""
        return self._boot_mode

    @property
    def lit_connections(self) -> Connections:
        """Connections that pass light now, input to output."""
        dark_inputs = self._unplugged_inputs | {
            s for s in self._settled_connections if self.find_plugged_input(s) in self.faults.dark_inputs
        }
        return {
            source: output
            for source, output in self._settled_connections.items()
            if source not in dark_inputs and self.matrix.passes_light((source, output))
        }

    def find_plugged_input(self, source: int) -> int:
        """Return the input whose fibre is plugged at `source`: another input after the fault `swap_fibres`."""
        return self.faults.swapped_inputs.get(source, source)

    @property
    def light_paths(self) -> Connections:
        """Output that the light of a fibre reaches, by input. It is `lit_connections` unless fibres are swapped."""
        return {self.find_plugged_input(source): output for source, output in self.lit_connections.items()}

    def is_moving(self, source: int) -> bool:
        """Return True if the mirrors of an input are still moving."""
        return source in self._change_by_moving_input

    def read_power_dbm(self, port: int) -> float:
        """Return the power at the monitor of a port in dBm. Raise `MatrixRefusal` if the port does not exist."""
        if self.matrix.is_input(port):
            if self.find_plugged_input(port) in self.faults.dark_inputs:
                self.faults.fire_counts["dark_input"] += 1
                return DARK_FLOOR_DBM
            return self.plant.read_input_power_dbm(self.name, self.find_plugged_input(port))
        if port in {self.matrix.connections.get(source) for source in self.faults.dark_inputs}:
            self.faults.fire_counts["dark_input"] += 1
        return self.plant.read_output_power_dbm(self.name, port)

    def add_listener(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after every change of the configuration."""
        self._listeners.append(listener)

    def call_at_power_loss(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every power loss, after all motions have been cancelled."""
        self._power_loss_callbacks.append(callback)

    @property
    def fire_counts(self) -> Counter[str]:
        """Number of times that each fault took effect, by name. Refusals because of a faulty port count too."""
        refusals = {name: self.matrix.refusal_counts[reason] for reason, name in _FAULT_BY_REASON.items()}
        return self.faults.fire_counts + Counter(refusals)

    async def wait_idle(self) -> None:
        """Wait until nothing moves."""
        await self._idle_event.wait()

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once: now if nothing moves, otherwise at the end of the current motion."""
        if self._idle_event.is_set():
            callback()
        else:
            self._idle_callbacks.append(callback)

    # -- commands

    def change_connections(
        self, connections: Connections, *, is_full_configuration: bool = False
    ) -> asyncio.Task[None] | None:
        """Replace the connections, and return the task of the motion, or None if nothing changes.

        `is_full_configuration` is True for a command that sets the whole configuration. Unless `is_hitless` is True,
        it darkens unchanged circuits. The device skips a stuck pair that is not connected yet.
        """
        connections_before = self.matrix.connections
        if any(pair in self.faults.stuck_pairs for pair in connections.items() - connections_before.items()):
            self.faults.fire_counts["stuck"] += 1
        new_connections = {
            pair[0]: pair[1]
            for pair in connections.items()
            if pair not in self.faults.stuck_pairs or pair in connections_before.items()
        }
        if new_connections == connections_before:
            return None
        self.matrix.connections = new_connections
        if self._boot_mode == "AUTOSAVE":
            self._saved_connections = dict(self.matrix.connections)
        self._announce_change(connections_before, new_connections)
        disturbed_pairs = connections_before.items() ^ new_connections.items()
        if is_full_configuration and not self.is_hitless:
            disturbed_pairs = connections_before.items() | new_connections.items()
        return self._start_moving_inputs({pair[0] for pair in disturbed_pairs})

    def unplug(self, source: int) -> None:
        """Unplug the fibre of an input. The circuit of the input is dark until `plug_in`."""
        self._unplugged_inputs.add(source)
        self.report_light()

    def plug_in(self, source: int) -> None:
        """Plug the fibre of an input into the output that the commanded connections name."""
        self._unplugged_inputs.discard(source)
        self.report_light()

    def start_motion(self, motion: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a motion, and return its task. `power_off` and `stop` cancel the task."""
        task = asyncio.get_running_loop().create_task(motion)
        self._motions.add(task)
        task.add_done_callback(self._motions.discard)
        return task

    def set_disabled(self, ports: set[int], *, is_disabled: bool) -> None:
        """Close (`is_disabled`) or open the shutters of ports."""
        (self.matrix.disabled_ports.update if is_disabled else self.matrix.disabled_ports.difference_update)(
            ports
        )
        self.report_light()

    def set_boot_mode(self, mode: BootMode) -> None:
        """Set the boot mode, and save the current connections for the next boot."""
        self._boot_mode = mode
        self._saved_connections = dict(self.matrix.connections)

    def report_light(self) -> None:
        """Report the circuits that pass light, and their attenuation, to the plant."""
        attenuators: dict[int, Attenuator] = {
            output: self._make_attenuator((source, output)) for source, output in self.lit_connections.items()
        }
        self.plant.update_switch(self.name, self.light_paths, attenuators)

    def power_off(self) -> None:
        """Cut the power: cancel all motions and, unless the device is latching, darken all circuits."""
        for motion in self._motions:
            motion.cancel()
        self._change_by_moving_input.clear()
        if not self.is_latching:
            self._settled_connections.clear()
        for callback in self._power_loss_callbacks:
            callback()
        self._end_busy_period()
        self.report_light()

    def boot(self) -> None:
        """Restore the connections that the boot mode keeps. They pass light after `switch_time_s`.

        A latching device restores all connections, and they pass light at once.
        """
        if self.is_latching:
            self._settled_connections = dict(self.matrix.connections)
            self.report_light()
            return
        self.matrix.connections = dict(self._saved_connections) if self._boot_mode != "DARK" else {}
        if self.matrix.connections:
            self._start_moving_inputs(set(self.matrix.connections))

    async def stop(self) -> None:
        """Cancel all motions and wait for their end."""
        for motion in list(self._motions):
            motion.cancel()
        await asyncio.gather(*self._motions, return_exceptions=True)

    # -- inside

    def _announce_change(self, connections_before: Mapping[int, int], connections: Mapping[int, int]) -> None:
        change = Change(
            tuple(sorted(connections_before.items() - connections.items())),
            tuple(sorted(connections.items() - connections_before.items())),
        )
        for pair in (*change.removed_pairs, *change.added_pairs):
            self.move_count_by_port.update(pair)
        for listener in self._listeners:
            listener(change)

    def _make_attenuator(self, pair: Pair) -> Attenuator:
        attenuator = self.attenuators.get(pair[1], Attenuator())
        return attenuator.with_extra_loss(self.faults.extra_loss_db.get(pair, 0.0))

    def _start_moving_inputs(self, inputs: set[int]) -> asyncio.Task[None]:
        self.change_count += 1
        if self._idle_event.is_set():
            self._busy_start_s = self.clock.now()
            self._idle_event.clear()
        arrival_s = self.clock.now() + self.switch_time_s
        for source in inputs:
            self._change_by_moving_input[source] = self.change_count
            self._settled_connections.pop(source, None)
        motion = self.start_motion(self._finish_motion(self.change_count, arrival_s))
        self.report_light()
        return motion

    async def _finish_motion(self, change_number: int, arrival_s: float) -> None:
        """Wait until `arrival_s`, then light the circuits of one change, except those that a later change moves."""
        await self.clock.sleep(arrival_s - self.clock.now())
        for source in [
            source
            for source, moving_change in self._change_by_moving_input.items()
            if moving_change == change_number
        ]:
            del self._change_by_moving_input[source]
            if source in self.matrix.connections:
                self._settled_connections[source] = self.matrix.connections[source]
        try:
            self.report_light()
        finally:
            if not self._change_by_moving_input:
                self._end_busy_period()

    def _end_busy_period(self) -> None:
        if not self._idle_event.is_set():
            self.last_busy_s = self.clock.now() - self._busy_start_s
            self.busy_s += self.last_busy_s
            self._idle_event.set()
            callbacks, self._idle_callbacks = self._idle_callbacks, []
            for callback in callbacks:
                callback()
