"""A Glimmerglass switch over TL1: any change is at most one removal and one addition, each with a list of ports.

A change sends `dlt-crs-fiber` and `ent-crs-fiber`; a read sends `rtrv-crs-fiber` and, for the unfit ports,
`RTRV-CFG-FIBER`; reading back and power readings send `rtrv-crs-fiber` alone.

The device also lists ports outside the licensed matrix, which split light (named MC-1, MC-1-1). We ignore these ports.
A matrix port that is connected to one of them is reported as locked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.engine import planning
from ocs_drivers.errors import ProtocolDesync, TransportError
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
from ocs_drivers.protocols import tl1
from ocs_drivers.protocols.tl1_session import Dialect
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline
from ocs_drivers.transports.echo import EchoCanceller
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.glimmerglass import codec
from ocs_drivers.vendors.tl1_driver import Tl1Driver

OPERATION_MODES: Mapping[str, str] = {"": "", "sync": "OPMODE=Sync", "async": "OPMODE=Async"}
"""Keyword of every connection command, by the option `opmode` of the address."""

DIALECT = Dialect(
    login_required_text=re.compile(r"log ?in (is )?(required|needed|not active)|not logged", re.IGNORECASE),
    omits_trailing_blocks=True,
)

LONGEST_MOVE_S = 0.5

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-Z\\-~])")
_LONGEST_SEQUENCE = 32
"""Maximum length of a terminal control sequence, in bytes."""


@dataclass(frozen=True, slots=True)
class CircuitReading:
    """Circuits of one read.

    `moving_pairs` are still moving; `locked_ports` are connected to ports outside the matrix.
    """

    connections: CrossConnects
    moving_pairs: frozenset[tuple[int, int]]
    locked_ports: frozenset[int]


class GlimmerglassTl1(Tl1Driver):
    """Driver of one Glimmerglass over TL1, on any transport. Call `open` first.

    A circuit in the state `fault` is connected, but dark. `operation_mode` is one of `OPERATION_MODES`.
    """

    dialect = DIALECT
    poll_s = 0.1
    connection_loss_recovery = "watch"
    _inputs = 0
    _moving_pairs: frozenset[tuple[int, int]] = frozenset()
    _settling_end_s = 0.0

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        operation_mode: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            address, PlainTextTransport(transport), credentials=credentials, timeout_s=timeout_s, clock=clock
        )
        self._mode_keyword = OPERATION_MODES[operation_mode]

    def _discover(self) -> tuple[Identity, Capabilities]:
        identity, self._inputs, outputs = self._session.ask("rtrv-system-info", codec.decode_system)
        return identity, Capabilities(
            self._inputs,
            outputs,
            bulk_add=True,
            power_monitor=True,
            async_events=True,
            login=True,
            switch_time_s=(0.025, LONGEST_MOVE_S),
        )

    # -- reading

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with health and label. A port that is connected to one outside the matrix is locked."""
        with self._session.lock():
            locked_ports = self._read_circuits().locked_ports
            with self._require_same_connection():
                rows = self._read_port_rows()
        capabilities = self.capabilities
        missing_ports = sorted(set(range(1, capabilities.inputs + capabilities.outputs + 1)) - rows.keys())
        if missing_ports:
            self._session.disconnect()
            raise ProtocolDesync("the list of ports is incomplete", device=self.address, ports=missing_ports)
        return {
            number: self._make_port_info(number, row, is_locked=number in locked_ports)
            for number, row in sorted(rows.items())
        }

    def _make_port_info(self, number: int, row: codec.PortRow, *, is_locked: bool) -> PortInfo:
        name = codec.format_input(row.number) if row.is_input else codec.format_output(row.number)
        state = PortState.LOCKED if is_locked else PortState.ENABLED
        return PortInfo(
            number,
            Side.IN if row.is_input else Side.OUT,
            state if row.is_healthy else PortState.FAILED,
            row.label,
            has_power_monitor=True,
            name=name,
        )

    def _read_port_rows(self) -> dict[int, codec.PortRow]:
        """Return the rows by port number, without ports that the licence does not cover."""
        rows = self._session.ask_with_retry("RTRV-CFG-FIBER", codec.decode_ports, aid="all")
        outputs = self.capabilities.outputs
        return {
            row.number + (0 if row.is_input else self._inputs): row
            for row in rows
            if row.number <= (self._inputs if row.is_input else outputs)
        }

    def _read(self) -> Snapshot:
        """Read the circuits and the unfit ports."""
        with self._session.lock():
            circuits = self._read_circuits()
            with self._require_same_connection():
                rows = self._read_port_rows()
        unfit = dict.fromkeys(circuits.locked_ports, PortState.LOCKED)
        unfit |= {number: PortState.FAILED for number, row in rows.items() if not row.is_healthy}
        return Snapshot(circuits.connections, self._clock.now(), unfit)

    def _read_after_step(self, step: Step) -> Snapshot:
        """Read the circuits. A circuit of the step counts once its mirrors have settled, any other immediately."""
        circuits = self._query_circuits(self._read_circuits)
        self._moving_pairs = circuits.moving_pairs & step.after.pairs & step.pairs.pairs
        return Snapshot(CrossConnects(circuits.connections.pairs - self._moving_pairs), self._clock.now())

    def _connections(self) -> CrossConnects:
        return self._read_circuits().connections

    def _read_circuits(self) -> CircuitReading:
        return self._session.ask_with_retry("rtrv-crs-fiber", self._decode_circuits, aid="all")

    def _decode_circuits(self, lines: tuple[str, ...]) -> CircuitReading:
        """Decode the circuits. The device lists each circuit twice, once for each end."""
        is_settled_by_pair: dict[tuple[int, int], bool] = {}
        locked_ports: set[int] = set()
        for row in codec.decode_circuits(lines):
            if row.source is None or row.output is None:
                continue
            source, output = (
                self._convert_port(row.source, is_input=True),
                self._convert_port(row.output, is_input=False),
            )
            if source is not None and output is not None:
                is_settled_by_pair[source, output] = (
                    is_settled_by_pair.get((source, output), True) and row.is_settled
                )
            else:
                locked_ports.update(port for port in (source, output) if port is not None)
        connections = self._check_possible(list(is_settled_by_pair), " | ".join(lines)[:200])
        return CircuitReading(
            connections,
            frozenset(pair for pair, is_settled in is_settled_by_pair.items() if not is_settled),
            frozenset(locked_ports),
        )

    def _convert_port(self, number: int | None, *, is_input: bool) -> int | None:
        """Return our number of a port, or None for None and for a port outside the licensed matrix."""
        size, base = (self._inputs, 0) if is_input else (self.capabilities.outputs, self._inputs)
        return number + base if number is not None and number <= size else None

    # -- changing

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        is_addition = step.kind == "add"
        self._settling_end_s = 0.0
        try:
            self._session.ask(
                "ent-crs-fiber" if is_addition else "dlt-crs-fiber",
                tl1.ignore,
                aid=codec.format_fibre_pairs(
                    [(source, output - self._inputs) for source, output in step.pairs.items()]
                ),
                keywords=self._mode_keyword if is_addition else "",
                timeout_s=self._timeout_s + step.estimated_s,
                before_resending=guard,
            )
        except TransportError:  # the device may have received the command
            self._settling_end_s = self._clock.now() + LONGEST_MOVE_S
            raise
        self._settling_end_s = self._clock.now() + LONGEST_MOVE_S

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True while mirrors move, or may start to move after the answer to an asynchronous command."""
        del step, snapshot
        return bool(self._moving_pairs) or self._clock.now() < self._settling_end_s

    # -- light and events

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm, from the rows of all ports; None if the device has no reading."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        if not ports:
            return {}
        readings: dict[int | None, Power | None] = {}
        for row in self._session.ask_with_retry("rtrv-crs-fiber", codec.decode_circuits, aid="all"):
            readings[self._convert_port(row.source, is_input=True)] = row.input_power
            readings[self._convert_port(row.output, is_input=False)] = row.output_power
        return {port: readings.get(port) for port in ports}


class PlainTextTransport(EchoCanceller):
    """A transport that removes the echo of commands, and terminal control sequences (ECMA-48).

    Released software repeats every command, and older software sets up a terminal when a client connects.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._incomplete_sequence = b""

    def open(self, timeout_s: float) -> None:
        """Connect."""
        self._incomplete_sequence = b""
        super().open(timeout_s)

    def receive(self, deadline: Deadline) -> bytes:
        """Return the plain text that has arrived, possibly empty."""
        text = _SEQUENCE.sub(b"", self._incomplete_sequence + super().receive(deadline))
        start = text.rfind(b"\x1b")
        if start < 0 or len(text) - start > _LONGEST_SEQUENCE:
            start = len(text)
        self._incomplete_sequence = text[start:]
        return text[:start]
