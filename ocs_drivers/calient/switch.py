"""What a Calient is in either of its languages: ports, readings, and when a circuit counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

from ocs_drivers import planning
from ocs_drivers.calient.circuits import Circuits, power_reading, unfit_ports
from ocs_drivers.calient.names import Circuit, Names
from ocs_drivers.driver import Session, SwitchDriver
from ocs_drivers.errors import OcsError
from ocs_drivers.model import PortInfo, PortState, Power, Side, Snapshot, Step
from ocs_drivers.timing import Clock

States = dict[str, tuple[PortState, PortState]]
"""The states of the fibre in and the fibre out, by the name of the port."""


class CalientSwitch(SwitchDriver):
    """The half of a Calient that does not depend on the language; `_names` is set when it is opened."""

    poll_s = 1.0

    def __init__(self, address: str, session: Session, *, timeout_s: float, clock: Clock) -> None:
        super().__init__(address, session, timeout_s=timeout_s, clock=clock)
        self._names = Names(())
        self._seen = Circuits(self._names, ())

    @abstractmethod
    def _ask_circuits(self) -> list[Circuit]:
        """All circuits, provisioned ones included."""

    @abstractmethod
    def _ask_ports(self) -> States:
        """All ports, in the device's order."""

    @abstractmethod
    def _ask_powers(self) -> Mapping[str, tuple[float | None, float | None]]:
        """Power in and out in dBm by port; None is no light."""

    def ports(self) -> Mapping[int, PortInfo]:
        """All ports with their state now; the two fibres of a port bear one name."""
        states, size = self._ask_ports(), len(self._names)
        infos = [
            PortInfo(self._names.number(name) + shift, side, pair[index], has_power_monitor=True, name=name)
            for index, side, shift in ((0, Side.IN, 0), (1, Side.OUT, size))
            for name, pair in states.items()
        ]
        return {info.number: info for info in infos}

    def _read(self) -> Snapshot:
        with self._conversation.turn():
            self._look()
            states = self._ask_ports()
        return self._seen.snapshot(self._clock.now(), unfit_ports(self._names, states))

    def _look(self) -> None:
        """Take note of all circuits."""
        self._seen = Circuits(self._names, self._ask_circuits())

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """A circuit that was to be made counts when its mirrors have arrived."""
        events = self._conversation.event_count
        self._retried(self._look)
        self._events_at_read = events
        snapshot = self._seen.snapshot(self._clock.now(), {})
        return self._seen.arrived(snapshot, step.pairs.items() if step.kind == "add" else ()), None

    def _still_moving(self, step: Step, read_back: Snapshot) -> bool:
        """Whether mirrors are on their way; what is merely provisioned will never move by itself."""
        return any(self._seen.is_moving(pair) for pair in step.pairs.items())

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Optical power in dBm; a port that reads `NONE` is dark."""
        planning.check_known(ports, self.capabilities, device=self.address)
        if not ports:
            return {}
        told, size = self._ask_powers(), len(self._names)
        readings: dict[int, Power | None] = {}
        for port in ports:
            powers = told.get(self._names.name(port))
            readings[port] = None if powers is None else power_reading(powers[port > size])
        return readings
