"""A Polatis switch over RESTCONF, its only protocol with compare-and-set.

A whole apply is three round trips: read; `PUT` of the whole collection; read. Every write carries the ETag of the last
read (`If-Match`), so the device refuses it (412) if somebody else has changed the circuits. If the device sends no
ETag, one more read precedes each step. Pairs are sent with PUT, never with POST: in one lab, posted pairs vanished
after seconds.

Port states are a separate resource. The driver reads them at `open`, after a refusal, and in every read while a port
is unfit. A port that becomes unfit later leads to a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from lightbed.wording import list_some
from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.credentials import Credentials
from ocs_drivers.engine import planning, transaction
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import AnotherDevice, DeviceError, ProtocolDesync
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
from ocs_drivers.protocols.http import HttpReply
from ocs_drivers.protocols.http_session import HttpSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.polatis import rest_codec
from ocs_drivers.vendors.polatis.readings import make_power_reading
from ocs_drivers.vendors.polatis.scpi_codec import parse_product_size

_T = TypeVar("_T")

_NO_CONTENT = 204
_NO_EQUIPMENT = {"204", "404"}
_SUCCESS = frozenset({200, 201, 204})
_PRECONDITION_FAILED = 412
_NOT_FOUND = 404


class RestconfSession(HttpSession):
    """RESTCONF session that sends and requests one media type. It decodes answers of both media types."""

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        credentials: Credentials,
        timeout_s: float,
        encoding: rest_codec.Encoding,
        clock: Clock,
    ) -> None:
        super().__init__(transport, device=device, credentials=credentials, timeout_s=timeout_s, clock=clock)
        self._encoding: rest_codec.Encoding = encoding

    def get_document(self, target: str, decode: Callable[[Any], _T]) -> _T:
        """Return the decoded resource at `target`. Raise `DeviceError` for any status but 200."""
        return self.get(
            target,
            lambda reply: decode(rest_codec.decode_document(reply)),
            accept=rest_codec.MEDIA_TYPES[self._encoding],
        )

    def get_with_etag(self, target: str, decode: Callable[[Any], _T], default: _T) -> tuple[_T, str]:
        """Return the decoded resource at `target`, or `default` for an empty answer (204), and the ETag."""

        def decode_reply(reply: HttpReply) -> tuple[_T, str]:
            etag = reply.headers.get("etag", "")
            if reply.status == _NO_CONTENT:
                return default, etag
            return decode(rest_codec.decode_document(reply)), etag

        return self.get(
            target, decode_reply, accept=rest_codec.MEDIA_TYPES[self._encoding], statuses=(200, _NO_CONTENT)
        )

    def read_ports_at(self, target: str, decode: Callable[[Any], Collection[int]]) -> frozenset[int]:
        """Return the ports that a resource lists, or no ports if the switch does not have the equipment.

        Raises `DeviceError` for every other refusal.
        """
        try:
            return frozenset(self.get_document(target, decode))
        except DeviceError as refusal:
            if refusal.device_code not in _NO_EQUIPMENT:
                raise
            return frozenset()

    def send_document(
        self,
        method: str,
        target: str,
        document: Mapping[str, Any] | None,
        guard: Guard,
        timeout_s: float,
        *,
        etag: str = "",
    ) -> HttpReply:
        """Send a change once. With `etag`, the device refuses it unless the resource still has this ETag."""
        media_type = rest_codec.MEDIA_TYPES[self._encoding]
        headers = [("Accept", media_type), *([("If-Match", etag)] if etag else [])]
        body = None
        if document is not None:
            body = rest_codec.encode_document(document, self._encoding)
            headers = [("Content-Type", media_type), *headers]
        return self.request(
            method, target, body, headers, is_read=False, timeout_s=timeout_s, before_resending=guard
        )


class PolatisRest(SwitchDriver):
    """Driver of one Polatis over RESTCONF, on any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer, plus the device's own switching time for a write. `encoding` is the
    format of requests; answers may have either format.
    """

    _session: RestconfSession
    connection_loss_recovery = "settle"

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        encoding: rest_codec.Encoding = "json",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session = RestconfSession(
            transport,
            device=address,
            credentials=credentials,
            timeout_s=timeout_s,
            encoding=encoding,
            clock=clock,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self._monitored_ports: frozenset[int] = frozenset()
        self._attenuator_ports: frozenset[int] = frozenset()
        self._unfit_states: dict[int, PortState] = {}
        self._last_connection_count = 0
        self._revision_and_etag = ("", "")  # our revision of the last read, and the device's ETag

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read the product, the ports, and which of them have power monitors or attenuators."""
        identity = self._session.get_document(rest_codec.PRODUCT, rest_codec.decode_product)
        self._last_connection_count = self._session.connection_count
        ports = self._store_unfit_states(
            self._session.get_document(rest_codec.PORTS, rest_codec.decode_ports)
        )
        inputs, outputs = self._find_size(identity, ports)
        self._monitored_ports = self._session.read_ports_at(rest_codec.POWERS, rest_codec.decode_powers)
        self._attenuator_ports = self._session.read_ports_at(
            rest_codec.ATTENUATORS, rest_codec.decode_attenuators
        )
        return identity, Capabilities(
            inputs,
            outputs,
            atomic_whole=True,
            power_monitor=bool(self._monitored_ports),
            attenuator=bool(self._attenuator_ports),
            shutter=True,
            login=True,
            max_ports_per_query=inputs + outputs,
        )

    def _find_size(self, identity: Identity, ports: Collection[int]) -> tuple[int, int]:
        """Return the numbers of inputs and outputs from the model name, or else half of the ports (an assumption)."""
        port_count = len(ports)
        inputs, outputs = parse_product_size(identity.model) or (
            port_count // 2,
            port_count - port_count // 2,
        )
        if sorted(ports) != list(range(1, inputs + outputs + 1)) or not inputs or not outputs:
            raise self._make_desync(f"it lists {port_count} ports, but the model is {identity.model}")
        return inputs, outputs

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state and label."""
        inputs = self.capabilities.inputs
        return {
            number: PortInfo(
                number,
                Side.IN if number <= inputs else Side.OUT,
                port.state,
                port.label,
                number in self._monitored_ports,
            )
            for number, port in sorted(self._ask_ports().items())
        }

    def _ask_ports(self) -> dict[int, rest_codec.RestPort]:
        self._check_same_device()
        ports = self._session.get_document(rest_codec.PORTS, rest_codec.decode_ports)
        port_count = self.capabilities.inputs + self.capabilities.outputs
        if len(ports) != port_count:
            raise self._make_desync(f"it lists {len(ports)} ports, but {port_count} in the first reading")
        return self._store_unfit_states(ports)

    def _store_unfit_states(self, ports: dict[int, rest_codec.RestPort]) -> dict[int, rest_codec.RestPort]:
        self._unfit_states = {
            port: info.state for port, info in ports.items() if info.state is not PortState.ENABLED
        }
        return ports

    def _read(self) -> Snapshot:
        """Read the circuits, and also the port states if the last states contain an unfit port."""
        with self._session.lock():
            snapshot = self._read_once()
            if self._unfit_states:
                self._ask_ports()
            return replace(snapshot, unfit=self._unfit_states)

    def _read_after_step(self, step: Step) -> Snapshot:
        del step
        return self._query_circuits(self._read_once)

    def _read_once(self) -> Snapshot:
        self._check_same_device()
        connections, etag = self._session.get_with_etag(
            rest_codec.CROSS_CONNECTS,
            lambda document: self._check_possible(rest_codec.decode_pairs(document).items()),
            CrossConnects(),
        )
        snapshot = Snapshot(connections, self._clock.now())
        self._revision_and_etag = snapshot.revision, etag
        return snapshot

    def _prepare_step(self, step: Step, guard: Guard) -> None:
        self._check_same_device()
        super()._prepare_step(step, guard)

    def _perform(self, step: Step, guard: Guard) -> None:
        self._check_same_device()
        if step.kind == "replace":
            document = rest_codec.encode_pairs(step.after)
            self._send_change("PUT", rest_codec.CROSS_CONNECTS, document, step, guard)
            return
        ((source, output),) = step.pairs.items()
        target = rest_codec.format_pair_path(source)
        if step.kind == "add":
            self._send_change("PUT", target, rest_codec.encode_pair(source, output), step, guard)
        else:
            self._send_change("DELETE", target, None, step, guard)

    def _needs_read(self, step: Step) -> bool:
        """Return True if the device sends no ETag, so that it cannot detect a conflict itself."""
        return not self._revision_and_etag[1]

    def _send_change(
        self, method: str, target: str, document: Mapping[str, Any] | None, step: Step, guard: Guard
    ) -> None:
        """Send the write of a step. Raise `Conflict` if somebody else has changed the ports of the step."""
        timeout_s = self._timeout_s + step.estimated_s
        reply = self._session.send_document(
            method, target, document, guard, timeout_s, etag=self._find_etag(step)
        )
        if reply.status == _PRECONDITION_FAILED:
            transaction.check_ports_unmoved(step, self._read_once().connections, device=self.address)
            guard()  # only other ports changed, and the device refused the write, so it may be sent again
            reply = self._session.send_document(
                method, target, document, guard, timeout_s, etag=self._find_etag(step)
            )
        if method == "DELETE" and reply.status == _NOT_FOUND:
            return  # already gone; the read-back decides
        self._check_success(reply, f"{method} {target}")

    def _find_etag(self, step: Step) -> str:
        """Return the ETag of the current configuration. Raise `Conflict` if the ports of the step have changed."""
        if self._revision_and_etag[0] != step.before.digest:
            transaction.check_ports_unmoved(step, self._read_once().connections, device=self.address)
        return self._revision_and_etag[1]

    def _check_success(self, reply: HttpReply, request: str) -> None:
        if reply.status not in _SUCCESS:
            raise self._session.make_refusal(reply, request)

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm; one request reads all ports."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        readings: dict[int, Power | None] = dict.fromkeys(ports)
        if not self._monitored_ports & readings.keys():
            return readings
        self._check_same_device()
        powers = self._session.get_document(rest_codec.POWERS, rest_codec.decode_powers)
        missing_ports = sorted(self._monitored_ports - powers.keys())
        if missing_ports:
            raise self._make_desync(f"power readings are missing for ports {list_some(missing_ports)}")
        return {port: make_power_reading(powers.get(port)) for port in readings}

    def attenuation(self, port: int) -> Attenuation:
        """Return the attenuator setting of an output port. Raise `Unsupported` for an unknown mode."""
        self._check_attenuator(port)
        self._check_same_device()
        attenuation_by_port = self._session.get_document(
            rest_codec.ATTENUATORS, rest_codec.decode_attenuators
        )
        if port not in attenuation_by_port:
            raise self._make_desync(f"port {port} no longer has an attenuator")
        attenuation = attenuation_by_port[port]
        if attenuation is None:
            raise self._make_unsupported("the mode of this attenuator", (port,))
        return attenuation

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Set the attenuator of an output port and verify it by reading back. Raise `DeviceError`."""
        self._check_attenuator(port)
        with self._write_lock, self._session.lock():
            self._check_same_device()
            guard()
            document = rest_codec.encode_attenuation(port, attenuation)
            reply = self._session.send_document(
                "PATCH", rest_codec.ATTENUATORS, document, guard, self._timeout_s
            )
            self._check_success(reply, f"PATCH {rest_codec.ATTENUATORS}")
            actual = self.attenuation(port)
        if actual != attenuation:
            raise DeviceError(
                f"the device accepted the command, but {actual} is set, not {attenuation}",
                device=self.address,
                ports=(port,),
                hint="Check this port on the device.",
            )

    def _check_attenuator(self, port: int) -> None:
        planning.check_outputs((port,), self.capabilities, device=self.address)
        if port not in self._attenuator_ports:
            raise self._make_unsupported("an attenuator of this port", (port,))

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Enable or disable ports one by one and verify them by reading back. Raise `DeviceError`."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        with self._write_lock, self._session.lock():
            self._session.make_ready()
            ports_before = self._ask_ports()
            for port in ports:
                guard()
                document = rest_codec.encode_port(port, is_open=is_open, label=ports_before[port].label)
                target = rest_codec.format_port_path(port)
                reply = self._session.send_document("PUT", target, document, guard, self._timeout_s)
                self._check_success(reply, f"PUT {target}")
            ports_after = self._ask_ports()
        target_state = PortState.ENABLED if is_open else PortState.DISABLED
        wrong_ports = [port for port in ports if ports_after[port].state is not target_state]
        if wrong_ports:
            raise DeviceError(
                f"the device accepted the command, but these ports are not {target_state.value}",
                device=self.address,
                ports=wrong_ports,
                hint="Check these ports on the device.",
            )

    def _check_same_device(self) -> None:
        """Raise `AnotherDevice` if the serial number differs after a reconnection."""
        known_identity = self._identity
        if known_identity is None or self._session.connection_count == self._last_connection_count:
            self._session.make_ready()
        if known_identity is None or self._session.connection_count == self._last_connection_count:
            return
        identity = self._session.get_document(rest_codec.PRODUCT, rest_codec.decode_product)
        if identity.serial != known_identity.serial:
            self._session.disconnect()
            raise AnotherDevice(
                f"another device answers: serial number {identity.serial}, not {known_identity.serial}",
                device=self.address,
                hint="Check the network address, then make a new driver for this device.",
            )
        self._last_connection_count = self._session.connection_count

    def _make_desync(self, problem: str) -> ProtocolDesync:
        self._session.disconnect()
        return ProtocolDesync(
            f"the device contradicts itself: {problem}",
            device=self.address,
            hint="Check that this address is a Polatis and that its firmware is not busy starting.",
        )
