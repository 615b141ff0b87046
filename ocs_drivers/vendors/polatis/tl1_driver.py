"""A Polatis switch over TL1: it has a login, reports changes, and supports attenuators and labels.

TL1 has no command for the whole configuration, so a change is one removal and one addition, each with a list of ports.
A removal names only the inputs and would remove any circuit on them, so one more read precedes it. A read includes the
shutters, to detect closed ports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import planning
from ocs_drivers.errors import DeviceError, ProtocolDesync, Unsupported
from ocs_drivers.model import (
    Attenuation,
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
from ocs_drivers.protocols import tl1
from ocs_drivers.protocols.tl1 import format_port_list, format_port_range
from ocs_drivers.vendors.polatis import tl1_codec
from ocs_drivers.vendors.polatis.readings import make_power_reading, split_ports
from ocs_drivers.vendors.tl1_driver import Tl1Driver

MAX_PORTS_PER_QUERY = 256


class PolatisTl1(Tl1Driver):
    """Driver of one Polatis over TL1, on any transport. Call `open` first."""

    connection_loss_recovery = "settle"
    _monitored_ports: frozenset[int] = frozenset()
    _reports_shutters = True

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read identity, size, power monitors and attenuators."""
        identity = self._ask_identity()
        inputs, outputs = self._session.ask(
            "RTRV-EQPT", tl1_codec.decode_size, aid="SYSTEM", keywords="PARAMETER=SIZE"
        )
        self._monitored_ports = self._read_equipped_ports("PMON")
        return identity, Capabilities(
            inputs,
            outputs,
            bulk_add=True,
            power_monitor=bool(self._monitored_ports),
            attenuator=bool(self._read_equipped_ports("ATTEN")),
            shutter=True,
            async_events=True,
            login=True,
            max_ports_per_query=MAX_PORTS_PER_QUERY,
        )

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state and label."""
        capabilities = self.capabilities
        states = self._read_states()
        labels = self._read_labels(self._port_range)
        return {
            number: PortInfo(
                number,
                Side.IN if number <= capabilities.inputs else Side.OUT,
                state,
                labels.get(number, ""),
                number in self._monitored_ports,
            )
            for number, state in sorted(states.items())
        }

    @property
    def _port_range(self) -> str:
        return format_port_range(1, self.capabilities.inputs + self.capabilities.outputs)

    def _read_states(self) -> dict[int, PortState]:
        """Return the state of every port, read from its shutter."""
        states = self._session.ask_with_retry(
            "RTRV-PORT-SHUTTER", tl1_codec.decode_shutters, aid=self._port_range
        )
        self._check_complete(range(1, self.capabilities.inputs + self.capabilities.outputs + 1), states)
        return states

    def _read_labels(self, aid: str) -> dict[int, str]:
        try:
            return self._session.ask_with_retry("RTRV-PORT-LABEL", tl1_codec.decode_port_values, aid=aid)
        except Unsupported:
            return {}

    def _read(self) -> Snapshot:
        """Read the circuits and the unfit ports."""
        with self._session.lock():
            connections = self._connections()
            with self._require_same_connection():
                unfit_states = self._read_unfit_states()
        return Snapshot(connections, self._clock.now(), unfit_states)

    def _connections(self) -> CrossConnects:
        return self._session.ask_with_retry(
            "RTRV-PATCH", lambda lines: self._check_possible(tl1_codec.decode_pairs(lines).items())
        )

    def _read_unfit_states(self) -> dict[int, PortState]:
        try:
            states = self._read_states() if self._reports_shutters else {}
        except Unsupported:
            self._reports_shutters, states = False, {}
        return {port: state for port, state in states.items() if state is not PortState.ENABLED}

    def _needs_read(self, step: Step) -> bool:
        """Return True before every removal, because it would also remove circuits that somebody else made."""
        return step.kind == "remove" or super()._needs_read(step)

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        inputs, outputs = format_port_list(step.pairs), format_port_list(step.pairs.values())
        verb, aid = ("ENT-PATCH", f"{inputs},{outputs}") if step.kind == "add" else ("DLT-PATCH", inputs)
        timeout_s = self._timeout_s + step.estimated_s
        self._session.ask(verb, tl1.ignore, aid=aid, timeout_s=timeout_s, before_resending=guard)

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm, in as few commands as the device allows."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        readings: dict[int, Power | None] = dict.fromkeys(ports)
        monitored_ports = [port for port in readings if port in self._monitored_ports]
        for chunk in split_ports(monitored_ports, MAX_PORTS_PER_QUERY):
            powers = self._session.ask_with_retry(
                "RTRV-PORT-POWER", tl1_codec.decode_powers, aid=format_port_list(chunk)
            )
            self._check_complete(chunk, powers)
            readings.update((port, make_power_reading(powers[port])) for port in chunk)
        return readings

    def attenuation(self, port: int) -> Attenuation:
        """Return the setting of the attenuator of an output port."""
        self._check_attenuator(port)
        return self._session.ask_with_retry("RTRV-PORT-ATTEN", tl1_codec.decode_attenuation, aid=str(port))

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Set the attenuator of an output port and verify it by reading back. Raise `DeviceError`."""
        self._check_attenuator(port)
        self._write("SET-PORT-ATTEN", str(port), guard, keywords=tl1_codec.encode_attenuation(attenuation))
        actual = self.attenuation(port)
        if actual != attenuation:
            raise self._make_mismatch((port,), f"{actual} is set, not {attenuation}")

    def _check_attenuator(self, port: int) -> None:
        planning.check_outputs((port,), self.capabilities, device=self.address)
        if not self.capabilities.attenuator:
            raise self._make_unsupported("attenuators", (port,))

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Open or close the shutters of these ports and verify them by reading back. Raise `DeviceError`."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        if not ports:
            return
        self._write("RLS-PORT-SHUTTER" if is_open else "OPR-PORT-SHUTTER", format_port_list(ports), guard)
        ports_after = self.ports()
        target_state = PortState.ENABLED if is_open else PortState.DISABLED
        wrong_ports = [port for port in ports if ports_after[port].state is not target_state]
        if wrong_ports:
            raise self._make_mismatch(wrong_ports, f"not {target_state.value}")

    def _write(self, verb: str, aid: str, guard: Guard, *, keywords: str = "") -> None:
        with self._write_lock, self._session.lock():
            self._session.make_ready()
            guard()
            self._session.ask(verb, tl1.ignore, aid=aid, keywords=keywords, before_resending=guard)

    def _make_mismatch(self, ports: Collection[int], problem: str) -> DeviceError:
        return DeviceError(
            f"the device reported success, but reads back: {problem}",
            device=self.address,
            ports=ports,
            hint="Check these ports on the device.",
        )

    def _ask_identity(self) -> Identity:
        network_element = self._session.ask("RTRV-NETYPE", tuple)
        return tl1_codec.decode_identity(network_element, self._session.ask("RTRV-INV", tuple, aid="OCS"))

    def _read_equipped_ports(self, equipment: str) -> frozenset[int]:
        """Return the ports with this equipment, or no ports if the switch refuses the query."""
        try:
            return self._session.ask(
                "RTRV-EQPT",
                tl1_codec.decode_configured_ports,
                aid=equipment,
                keywords="PARAMETER=CONFIG",
            )
        except (Unsupported, DeviceError):
            return frozenset()

    def _check_complete(self, expected_ports: Collection[int], received_ports: Collection[int]) -> None:
        missing_ports = [port for port in expected_ports if port not in received_ports]
        if missing_ports:
            self._session.disconnect()
            raise ProtocolDesync("ports are missing from the reply", device=self.address, ports=missing_ports)
