"""A Calient over REST: any change is one bulk deletion and one bulk addition.

    what                             requests
    add any number of pairs          1: POST ?id=badd
    remove any number of circuits    1: POST ?id=bdel
    delete blocking provisioned ones 1 for all: POST ?id=bdel
    a read                           2: the circuits, and the summary of the ports
    reading back                     1 for each read: the circuits

If the summary omits powers or states, they are queried port by port, but not in a read. Every item of a bulk change
has its own result, even under HTTP 200. The driver checks each result and reports failures per pair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import DeviceError, PermissionDenied
from ocs_drivers.model import Capabilities, Identity, Step
from ocs_drivers.protocols.http_session import HttpSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.calient import rest_codec
from ocs_drivers.vendors.calient.circuits import CircuitTable
from ocs_drivers.vendors.calient.driver import ACTIVATION_S, CalientSwitch, Port, Powers
from ocs_drivers.vendors.calient.ports import Circuit, Pair, PortNames, format_circuit_name

_T = TypeVar("_T")

GROUP_NAME = "SYSTEM"
"""The connection group of our circuits."""

_CIRCUITS, _PORTS_PATH = "/rest/crossconnects/", "/rest/ports/"


class CalientRest(CalientSwitch):
    """Driver of one Calient over REST, on any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer, plus the device's own switching time for a change;
    `activation_s` is the longest time from activation to an active circuit.
    """

    _session: HttpSession
    provision_prefix = f"POST {_CIRCUITS}?id=badd"

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        activation_s: float = ACTIVATION_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session = HttpSession(
            transport, device=address, credentials=credentials, timeout_s=timeout_s, clock=clock
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock, activation_s=activation_s)

    def _discover(self) -> tuple[Identity, Capabilities]:
        version = self._ask_node("/rest/info/?id=restversion")
        self._names = self._session.get_json(
            f"{_PORTS_PATH}?id=summary", lambda document: PortNames(rest_codec.decode_summary(document))
        )
        size = len(self._names)
        return self._identify(version.get("restversion", "")), Capabilities(
            size,
            size,
            bulk_add=True,
            power_monitor=True,
            login=True,
            switch_time_s=(0.2, self._activation_s),
        )

    def _identify(self, version: str) -> Identity:
        """Return the identity, with defaults for fields that the device does not report."""
        node = self._ask_optional_node("/rest/node/?id=summary&detail=SYSCFG")
        software = self._ask_optional_node("/rest/info/?id=softwareversion")
        return Identity(
            "Calient",
            node.get("partnumber") or "S-series",
            node.get("serialnumber", ""),
            software.get("version") or f"REST {version}".rstrip(),
        )

    def _ask_optional_node(self, target: str) -> dict[str, str]:
        try:
            return self._ask_node(target)
        except DeviceError:  # an older interface
            return {}

    def _ask_node(self, target: str) -> dict[str, str]:
        return self._session.get_json(target, rest_codec.decode_node)

    # -- reading

    def _ask_circuits(self) -> CircuitTable:
        return self._session.get_json(
            f"{_CIRCUITS}?id=list",
            lambda document: CircuitTable(self._names, rest_codec.decode_circuits(document)),
        )

    def _ask_ports(self) -> Mapping[str, Port]:
        return self._decode_ports(None, rest_codec.STATE_FIELDS, rest_codec.decode_port)

    def _ask_port_summary(self) -> Mapping[str, Port]:
        summary = self._ask_summary().items()
        return {
            name: rest_codec.decode_port(item)
            for name, item in summary
            if rest_codec.has_fields(item, rest_codec.STATE_FIELDS)
        }

    def _ask_summary(self) -> Mapping[str, rest_codec.Item]:
        return self._session.get_json(
            f"{_PORTS_PATH}?id=summary",
            lambda document: self._names.check_complete(rest_codec.decode_summary(document)),
        )

    def _ask_powers(self, names: Collection[str]) -> Powers:
        return self._decode_ports(names, rest_codec.POWER_FIELDS, rest_codec.decode_powers)

    def _decode_ports(
        self, names: Collection[str] | None, fields: Collection[str], decode: Callable[[rest_codec.Item], _T]
    ) -> dict[str, _T]:
        """Decode fields of these ports (None: all), from the summary or else from the details of each port."""
        return {
            name: decode(item) if rest_codec.has_fields(item, fields) else self._ask_details(name, decode)
            for name, item in self._ask_summary().items()
            if names is None or name in names
        }

    def _ask_details(self, name: str, decode: Callable[[rest_codec.Item], _T]) -> _T:
        return self._session.get_json(
            f"{_PORTS_PATH}?id=detail&port={name}",
            lambda document: decode(rest_codec.decode_detail(document)),
        )

    # -- changing

    def _send_commands(self, step: Step, guard: Guard) -> None:
        pairs = list(step.pairs.items())
        if step.kind == "remove":
            self._delete([(self._find_name(pair), pair) for pair in pairs], guard)
            return
        deletable_circuits = [
            (circuit.name, pair) for pair in pairs for circuit in self._find_deletable_circuits(pair)
        ]
        if deletable_circuits:
            self._delete(deletable_circuits, guard)
            guard()
        self._expect_pairs(step.pairs.pairs)
        self._send_bulk(
            "badd", [self._make_item(pair) for pair in pairs], [frozenset(pair) for pair in pairs], guard
        )

    def _find_deletable_circuits(self, pair: Pair) -> list[Circuit]:
        """Return the provisioned circuits on the ports of a pair, including the pair's own, which is created again."""
        own_circuit = self._circuits.find_provisioned_circuit(pair)
        return [*self._circuits.find_blocking_circuits(pair), *([own_circuit] if own_circuit else [])]

    def _make_item(self, pair: Pair) -> dict[str, str]:
        source, target = self._names.get_port_names(pair)
        return {
            "in": source,
            "out": target,
            "group": GROUP_NAME,
            "conn": format_circuit_name(source, target),
            "dir": "uni",
        }

    def _delete(self, circuits: Sequence[tuple[str, Pair]], guard: Guard) -> None:
        """Delete circuits, given as (name, pair). The name of a two-way circuit, which occurs twice, is sent once."""
        ports: dict[str, frozenset[int]] = {}
        for name, pair in circuits:
            ports[name] = ports.get(name, frozenset()) | frozenset(pair)
        self._send_bulk("bdel", [{"conn": name} for name in ports], list(ports.values()), guard)

    def _send_bulk(
        self,
        operation: str,
        items: Sequence[Mapping[str, str]],
        ports: Sequence[frozenset[int]],
        guard: Guard,
    ) -> None:
        """Send one bulk request; `ports` holds the ports of each item. Raise `DeviceError` if items failed."""
        target = f"{_CIRCUITS}?id={operation}"
        try:
            reply = self._session.send_json(
                "POST",
                target,
                items,
                timeout_s=self._timeout_s + self.capabilities.switch_time_s[1],
                before_resending=guard,
            )
        except PermissionDenied as denial:
            denial.hint = "This account may only read over REST: use another account, or calient+tl1."
            denial.locate(device=self.address)
            raise
        if reply.status != 200:
            raise self._session.make_refusal(reply, f"POST {target}")
        failures = rest_codec.decode_failures(reply.json(), len(items))
        failed_indices = [index for index, reason in enumerate(failures) if reason]
        if failed_indices:
            raise DeviceError(
                f"{len(failed_indices)} of {len(items)} connections failed: "
                + "; ".join(f"{items[index]['conn']}: {failures[index]}" for index in failed_indices),
                device_code="0",
                device=self.address,
                ports=sorted({port for index in failed_indices for port in ports[index]}),
                sent=f"POST {target}",
            )
