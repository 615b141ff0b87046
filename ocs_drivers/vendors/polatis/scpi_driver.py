"""A Polatis switch over SCPI.

A whole apply is three round trips: a read of circuits and port states, which detects unfit ports before a write;
`only ...;*OPC?`; and a read with the error queue. Set commands have no reply, so a step is done only after it was read
back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import planning
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import DeviceError, OcsError, ProtocolDesync
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Identity,
    PortInfo,
    PortState,
    Power,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.protocols import scpi
from ocs_drivers.protocols.scpi_session import ScpiSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.polatis import scpi_codec
from ocs_drivers.vendors.polatis.readings import make_power_reading, split_ports

MAX_PORTS_PER_QUERY = 256

_FORMATTERS = {
    "replace": scpi_codec.format_replace,
    "add": scpi_codec.format_add,
    "remove": scpi_codec.format_remove,
}


def _format_command(step: Step) -> str:
    return f"{_FORMATTERS[step.kind](step.pairs)};{scpi.COMPLETION_QUERY}"


class PolatisScpi(SwitchDriver):
    """Driver of one Polatis over SCPI, on any transport. Call `open` first.

    SCPI has no login, no attenuators and no unsolicited messages. `timeout_s` bounds every wait for an
    answer, plus the device's own switching time for a write.
    """

    _session: ScpiSession
    connection_loss_recovery = "settle"

    def __init__(
        self, address: str, transport: Transport, *, timeout_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._session = ScpiSession(transport, device=address, timeout_s=timeout_s, clock=clock)
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self._monitored_sides: frozenset[Side] = frozenset()
        self._reports_states = False

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read identity, size and boot mode; clear the error queue; test for port states and power monitors."""
        identity = self._session.identity
        inputs, outputs = self._ask_size(identity)
        self._monitored_sides = frozenset(
            side for side, port in ((Side.IN, 1), (Side.OUT, inputs + 1)) if self._has_monitor(port)
        )
        states, _ = self._session.ask_with_errors(scpi_codec.PORT_STATES, scpi_codec.decode_port_states)
        self._reports_states = states is not None
        boot_mode, _ = self._session.ask_with_errors(scpi_codec.BOOT_MODE, scpi_codec.decode_boot_mode)
        return identity, Capabilities(
            inputs,
            outputs,
            atomic_whole=True,
            bulk_add=True,
            boot_mode=boot_mode,
            power_monitor=bool(self._monitored_sides),
            shutter=True,
            max_ports_per_query=MAX_PORTS_PER_QUERY,
        )

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state; SCPI has no labels."""
        states = self._session.ask_with_retry(scpi_codec.PORT_STATES, self._decode_states)
        sides = {number: self._find_side(number) for number in states}
        return {
            number: PortInfo(number, side, states[number], has_power_monitor=side in self._monitored_sides)
            for number, side in sides.items()
        }

    def _find_side(self, port: int) -> Side:
        return Side.IN if port <= self.capabilities.inputs else Side.OUT

    def _read(self) -> Snapshot:
        if not self._reports_states:
            return Snapshot(
                self._session.ask_with_retry(scpi_codec.CONNECTIONS, self._decode_connections),
                self._clock.now(),
            )
        return self._session.ask_all_with_retry(
            (scpi_codec.CONNECTIONS, scpi_codec.PORT_STATES), self._decode_snapshot
        )

    def _decode_snapshot(self, replies: Sequence[str]) -> Snapshot:
        connections, states = self._decode_connections(replies[0]), self._decode_states(replies[1])
        unfit_states = {port: state for port, state in states.items() if state is not PortState.ENABLED}
        return Snapshot(connections, self._clock.now(), unfit=unfit_states)

    def _decode_states(self, reply: str) -> dict[int, PortState]:
        states = scpi_codec.decode_port_states(reply)
        port_count = self.capabilities.inputs + self.capabilities.outputs
        if len(states) != port_count:
            raise ProtocolDesync(
                f"the device gave {len(states)} port states for {port_count} ports", received=reply
            )
        return dict(enumerate(states, 1))

    def _decode_connections(self, reply: str) -> CrossConnects:
        return self._check_possible(scpi_codec.decode_connections(reply).items(), reply)

    def _perform(self, step: Step, guard: Guard) -> None:
        timeout_s = self._timeout_s + step.estimated_s
        self._session.ask(_format_command(step), scpi.check_completion, timeout_s=timeout_s)

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Read configuration and error queue in one exchange. Only the error queue reports a refused set command."""
        connections, refusals = self._session.ask_with_errors(
            scpi_codec.CONNECTIONS, self._decode_connections
        )
        if refusals:
            refusals[0].sent = _format_command(step)
        snapshot = None if connections is None else Snapshot(connections, self._clock.now())
        return snapshot, refusals[0] if refusals else None

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm, in as few queries as the device allows."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        readings: dict[int, Power | None] = dict.fromkeys(ports)
        monitored_ports = [port for port in readings if self._find_side(port) in self._monitored_sides]
        for chunk in split_ports(monitored_ports, MAX_PORTS_PER_QUERY):
            values, refusals = self._session.ask_with_errors(
                scpi_codec.format_power_query(chunk), scpi_codec.decode_powers
            )
            if values is None:
                raise refusals[0]
            if len(values) != len(chunk):
                raise self._make_desync(f"it gave {len(values)} power readings for {len(chunk)} ports")
            readings.update(zip(chunk, map(make_power_reading, values), strict=True))
        return readings

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Enable or disable ports and verify them by reading their states back.

        Raises `DeviceError` if a port has another state afterwards.
        """
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        command = scpi_codec.format_shutters(ports, is_open=is_open)
        with self._write_lock, self._session.lock():
            self._session.make_ready()
            guard()
            self._session.ask(f"{command};{scpi.COMPLETION_QUERY}", scpi.check_completion)
            refusals = self._session.drain_errors(command)
            ports_after = self.ports()
        target_state = PortState.ENABLED if is_open else PortState.DISABLED
        wrong_ports = [port for port in ports if ports_after[port].state is not target_state]
        if wrong_ports:
            raise DeviceError(
                f"the device accepted the command, but these ports are not {target_state.value}",
                device=self.address,
                ports=wrong_ports,
                sent=command,
                device_code=refusals[0].device_code if refusals else "",
            )

    def _ask_size(self, identity: Identity) -> tuple[int, int]:
        size, refusals = self._session.ask_with_errors(
            f"{scpi.CLEAR_COMMAND};{scpi_codec.SIZE}", scpi_codec.decode_size
        )
        size_in_code = scpi_codec.parse_product_size(identity.model)
        if size is None and size_in_code is None:
            raise refusals[0]
        if size is not None and size_in_code is not None and size != size_in_code:
            raise self._make_desync(
                f"its size is {size[0]}x{size[1]}, but its product code is {identity.model}"
            )
        actual_size = size or size_in_code
        assert actual_size is not None
        return actual_size

    def _has_monitor(self, port: int) -> bool:
        values, _ = self._session.ask_with_errors(
            scpi_codec.format_power_query([port]), scpi_codec.decode_powers
        )
        return values is not None

    def _make_desync(self, problem: str) -> ProtocolDesync:
        self._session.disconnect()
        return ProtocolDesync(
            f"the device contradicts itself: {problem}",
            device=self.address,
            hint="Check that this address is a Polatis and that its firmware is not busy starting.",
        )
