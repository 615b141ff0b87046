"""A Calient over TL1: every circuit is provisioned (`ENT-CRS`), then activated (`ACT-CRS`), then polled.

    what                             commands
    add one pair                     2: ENT-CRS, ACT-CRS (1 if it was provisioned already)
    remove one circuit               2: CANC-CRS, DLT-CRS (a two-way circuit is one)
    delete one circuit in the way    1: DLT-CRS
    a read                           2: RTRV-CRS, RTRV-PORT (for the ports that cannot be used)
    reading back                     1 for each read: RTRV-CRS

The driver never silences reports (with `INH-MSG`), because they announce the changes of other users. A step that fails
between its commands leaves its circuit provisioned: a read shows it, and the next apply activates or deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.model import Capabilities, Event, Identity, Step
from ocs_drivers.protocols import tl1
from ocs_drivers.protocols.tl1_session import Dialect, Tl1Session
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.echo import EchoCanceller
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.calient import tl1_codec
from ocs_drivers.vendors.calient.circuits import CircuitTable
from ocs_drivers.vendors.calient.driver import ACTIVATION_S, CalientSwitch, Port, Powers
from ocs_drivers.vendors.calient.ports import Pair, PortNames, format_circuit_name

_T = TypeVar("_T")

GROUP_NAME = "SYSTEM"
"""The connection group of our circuits."""

DIALECT = Dialect(
    login_required_text=re.compile(r"Login Not Active", re.IGNORECASE),
    already_logged_in_text=re.compile(r"Already logged in", re.IGNORECASE),
)
_CHANGE_REPORTS = ("DBCHG", "DBGH")  # DBGH is the spelling in one public driver


class CalientTl1(CalientSwitch):
    """Driver of one Calient over TL1, raw or interactive, on any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer; `activation_s` is the longest time until a circuit is active.
    """

    _session: Tl1Session
    provision_prefix = "ENT-CRS"

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
        self._session = Tl1Session(
            EchoCanceller(transport),
            device=address,
            credentials=credentials,
            timeout_s=timeout_s,
            dialect=DIALECT,
            clock=clock,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock, activation_s=activation_s)

    def _discover(self) -> tuple[Identity, Capabilities]:
        identity = self._session.ask("RTRV-NE", tl1_codec.decode_identity)
        self._names = self._session.ask(
            "RTRV-PORT", lambda lines: PortNames(tl1_codec.decode_ports(lines)), aid="0"
        )
        return identity, Capabilities(
            len(self._names),
            len(self._names),
            two_step_activate=True,
            power_monitor=True,
            async_events=True,
            login=True,
            switch_time_s=(0.05, self._activation_s),
        )

    # -- reading

    def _ask_circuits(self) -> CircuitTable:
        return self._session.ask_with_retry(
            "RTRV-CRS",
            lambda lines: CircuitTable(self._names, tl1_codec.decode_circuits(lines)),
            positional="ALL",
        )

    def _ask_ports(self) -> Mapping[str, Port]:
        return self._ask_by_port("RTRV-PORT", tl1_codec.decode_ports)

    def _ask_labelled_ports(self) -> Mapping[str, Port]:
        with self._session.lock():
            ports, aliases = self._ask_ports(), self._ask_by_port("RTRV-PORT-SUM", tl1_codec.decode_aliases)
        return {name: replace(port, alias=aliases[name]) for name, port in ports.items()}

    def _ask_powers(self, names: Collection[str]) -> Powers:
        return self._ask_by_port("RTRV-PORT-SUM", tl1_codec.decode_powers)

    def _ask_by_port(
        self, verb: str, decode: Callable[[tuple[str, ...]], Mapping[str, _T]]
    ) -> Mapping[str, _T]:
        """Query all ports. Raise `ProtocolDesync` unless they are the ports that `open` read."""
        return self._session.ask_with_retry(
            verb, lambda lines: self._names.check_complete(decode(lines)), aid="0"
        )

    def _reports_change(self, event: Event) -> bool:
        return any(kind in event.kind for kind in _CHANGE_REPORTS)

    # -- changing

    def _send_commands(self, step: Step, guard: Guard) -> None:
        for number, (verb, aid, positional_block) in enumerate(self._list_commands(step)):
            if number:
                guard()
            if verb == "ACT-CRS":
                self._expect_pairs(step.pairs.pairs)
            self._session.ask(verb, tl1.ignore, aid=aid, positional=positional_block, before_resending=guard)

    def _list_commands(self, step: Step) -> list[tuple[str, str, str]]:
        """Return verb, access identifier and positional parameters of each command of a step."""
        if step.kind == "add":
            return [command for pair in step.pairs.items() for command in self._list_add_commands(pair)]
        names = sorted({self._find_name(pair) for pair in step.pairs.items()})
        return [(verb, "", name) for name in names for verb in ("CANC-CRS", "DLT-CRS")]

    def _list_add_commands(self, pair: Pair) -> list[tuple[str, str, str]]:
        source, target = self._names.get_port_names(pair)
        aid, own_circuit = f"{source},{target}", self._circuits.find_provisioned_circuit(pair)
        commands = [("DLT-CRS", "", circuit.name) for circuit in self._circuits.find_blocking_circuits(pair)]
        if own_circuit is None:
            commands.append(("ENT-CRS", aid, f"{GROUP_NAME},1WAY"))
        name = own_circuit.name if own_circuit else format_circuit_name(source, target)
        return [*commands, ("ACT-CRS", aid, f"{name},{GROUP_NAME}")]
