"""A Glimmerglass switch over TL1: one removal and one addition for any change, each with lists.

Commands for a change: 1 `dlt-crs-fiber`, 1 `ent-crs-fiber`; a read is `rtrv-crs-fiber` and, for ports that
cannot be used, `RTRV-CFG-FIBER`; the proof by reading back is `rtrv-crs-fiber` alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

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
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.glimmerglass import codec
from ocs_drivers.vendors.tl1_driver import Tl1Driver

OPERATION_MODES: Mapping[str, str] = {"": "", "sync": "OPMODE=Sync", "async": "OPMODE=Async"}
"""What is sent with every connection, by the option of the address."""

DIALECT = Dialect(
    login_text=re.compile(r"log ?in (is )?(required|needed|not active)|not logged", re.IGNORECASE), short=True
)

LONGEST_MOVE_S = 0.5


class GlimmerglassTl1(Tl1Driver):
    """One Glimmerglass over TL1, on any transport; `open` before use.

    A circuit in the state `fault` is connected, but dark. `operation_mode` is one of `OPERATION_MODES`.
    """

    dialect = DIALECT
    poll_s = 0.1
    after_loss = "watch"
    _inputs = 0
    _arriving: frozenset[tuple[int, int]] = frozenset()
    _settled_s = 0.0

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
        super().__init__(address, transport, credentials=credentials, timeout_s=timeout_s, clock=clock)
        self._mode = OPERATION_MODES[operation_mode]

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
        """Return all ports with health and label now."""
        rows = self._port_rows()
        capabilities = self.capabilities
        missing = sorted(set(range(1, capabilities.inputs + capabilities.outputs + 1)) - rows.keys())
        if missing:
            raise self._desync("the list of ports leaves some out", missing)
        return {number: self._info(number, row) for number, row in sorted(rows.items())}

    def _info(self, number: int, row: codec.Port) -> PortInfo:
        name = codec.input_name(row.number) if row.is_input else codec.output_name(row.number)
        return PortInfo(
            number,
            Side.IN if row.is_input else Side.OUT,
            PortState.ENABLED if row.healthy else PortState.FAILED,
            row.label,
            has_power_monitor=True,
            name=name,
        )

    def _port_rows(self) -> dict[int, codec.Port]:
        """Return rows by our number; ports that the licence does not cover are left out."""
        rows = self._session.ask_again("RTRV-CFG-FIBER", codec.decode_ports, aid="all")
        outputs = self.capabilities.outputs
        return {
            row.number + (0 if row.is_input else self._inputs): row
            for row in rows
            if row.number <= (self._inputs if row.is_input else outputs)
        }

    def _read(self) -> Snapshot:
        """Return what is connected, and the ports that cannot be used."""
        with self._session.lock():
            connections = self._connections()
            with self._same_line():
                rows = self._port_rows()
        unfit = {number: PortState.FAILED for number, row in rows.items() if not row.healthy}
        return Snapshot(connections, self._clock.now(), unfit)

    def _look_again(self, step: Step) -> Snapshot:
        """Count what the step was to make when its mirrors have arrived; every other circuit when it is reported."""
        connections, arriving = self._noted(self._circuits)
        self._arriving = arriving & step.after.pairs & step.pairs.pairs
        return Snapshot(CrossConnects(connections.pairs - self._arriving), self._clock.now())

    def _connections(self) -> CrossConnects:
        return self._circuits()[0]

    def _circuits(self) -> tuple[CrossConnects, frozenset[tuple[int, int]]]:
        """Return all circuits, and those of them whose mirrors are still on their way."""
        return self._session.ask_again("rtrv-crs-fiber", self._decode, aid="all")

    def _decode(self, lines: tuple[str, ...]) -> tuple[CrossConnects, frozenset[tuple[int, int]]]:
        circuits = codec.decode_circuits(lines)
        pairs = {(circuit.source, circuit.output + self._inputs): circuit for circuit in circuits}
        connections = self._check_possible(list(pairs), " | ".join(lines)[:200])
        return connections, frozenset(pair for pair, circuit in pairs.items() if not circuit.made)

    # -- changing

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._unsupported("the whole configuration at once")
        adding = step.kind == "add"
        self._settled_s = 0.0
        try:
            self._session.ask(
                "ent-crs-fiber" if adding else "dlt-crs-fiber",
                tl1.ignore,
                aid=codec.fibre_pairs(self._own(step.pairs.items())),
                keywords=self._mode if adding else "",
                timeout_s=self._timeout_s + step.estimated_s,
                before_resending=guard,
            )
        except TransportError:  # it may have been received all the same
            self._settled_s = self._clock.now() + LONGEST_MOVE_S
            raise
        self._settled_s = self._clock.now() + LONGEST_MOVE_S

    def _own(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(source, output - self._inputs) for source, output in pairs]

    def _still_moving(self, step: Step, read_back: Snapshot) -> bool:
        """Return True while mirrors move, or may have yet to begin: an asynchronous command is answered before."""
        del step, read_back
        return bool(self._arriving) or self._clock.now() < self._settled_s

    # -- light and events

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm, from the rows of circuits and, for other ports, from those of ports."""
        planning.check_known(ports, self.capabilities, device=self.address)
        if not ports:
            return {}
        with self._session.lock():
            circuits = self._session.ask_again("rtrv-crs-fiber", codec.decode_circuits, aid="all")
            known = {number: row.power for number, row in self._port_rows().items()}
        for circuit in circuits:
            known[circuit.source] = circuit.input_power or known.get(circuit.source)
            output = circuit.output + self._inputs
            known[output] = circuit.output_power or known.get(output)
        return {port: known.get(port) for port in ports}

    def _desync(self, what: str, ports: Iterable[int]) -> ProtocolDesync:
        self._session.disconnect()
        return ProtocolDesync(what, device=self.address, ports=ports)
