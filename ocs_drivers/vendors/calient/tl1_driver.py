"""A Calient over TL1: every circuit is provisioned (`ENT-CRS`), then activated (`ACT-CRS`), then polled.

    what                             commands
    one pair made                    2: ENT-CRS, ACT-CRS (1 when it was provisioned already)
    one circuit removed              2: CANC-CRS, DLT-CRS (a two-way circuit is one)
    something provisioned in the way 1 each: DLT-CRS
    a read                           2: RTRV-CRS, RTRV-PORT (for the ports that cannot be used)
    the proof by reading back        1 for each read: RTRV-CRS

Reports are not silenced (`INH-MSG`): they tell of other people's changes. A step that fails between its commands
leaves its circuit provisioned: a read shows it, and the next apply activates or deletes it.
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
from ocs_drivers.transports.echo import EchoCancelled
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.calient import tl1_codec
from ocs_drivers.vendors.calient.circuits import Circuits
from ocs_drivers.vendors.calient.driver import ACTIVATION_S, CalientSwitch, Port, Powers
from ocs_drivers.vendors.calient.ports import Names, Pair, circuit_name

_T = TypeVar("_T")

GROUP = "SYSTEM"
"""The connection group that our circuits are provisioned in."""

DIALECT = Dialect(
    login_text=re.compile(r"Login Not Active", re.IGNORECASE),
    welcome=re.compile(r"Already logged in", re.IGNORECASE),
)
_CHANGED = ("DBCHG", "DBGH")  # the second is how one public driver spells it


class CalientTl1(CalientSwitch):
    """One Calient over TL1, raw or interactive, on any transport; `open` before use.

    `timeout_s` bounds every wait for an answer; `activation_s` is how long an activation may take to show.
    """

    _session: Tl1Session
    provisions = "ENT-CRS"

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
            EchoCancelled(transport),
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
            "RTRV-PORT", lambda lines: Names(tl1_codec.decode_ports(lines)), aid="0"
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

    def _ask_circuits(self) -> Circuits:
        return self._session.ask_again(
            "RTRV-CRS",
            lambda lines: Circuits(self._names, tl1_codec.decode_circuits(lines)),
            positional="ALL",
        )

    def _ask_ports(self) -> Mapping[str, Port]:
        return self._about_ports("RTRV-PORT", tl1_codec.decode_ports)

    def _ask_labelled_ports(self) -> Mapping[str, Port]:
        with self._session.lock():
            ports, aliases = self._ask_ports(), self._about_ports("RTRV-PORT-SUM", tl1_codec.decode_aliases)
        return {name: replace(port, alias=aliases[name]) for name, port in ports.items()}

    def _ask_powers(self, names: Collection[str]) -> Powers:
        return self._about_ports("RTRV-PORT-SUM", tl1_codec.decode_powers)

    def _about_ports(
        self, verb: str, decode: Callable[[tuple[str, ...]], Mapping[str, _T]]
    ) -> Mapping[str, _T]:
        """Ask something about all ports, which must be those of the beginning."""
        return self._session.ask_again(verb, lambda lines: self._names.of_all(decode(lines)), aid="0")

    def _reports_change(self, event: Event) -> bool:
        return any(word in event.kind for word in _CHANGED)

    # -- changing

    def _carry_out(self, step: Step, guard: Guard) -> None:
        for number, (verb, aid, positional) in enumerate(self._commands(step)):
            if number:
                guard()
            if verb == "ACT-CRS":
                self._await(step.pairs.pairs)
            self._session.ask(verb, tl1.ignore, aid=aid, positional=positional, before_resending=guard)

    def _commands(self, step: Step) -> list[tuple[str, str, str]]:
        """Return verb, access identifier and positional parameters of each command of a step."""
        if step.kind == "add":
            return [command for pair in step.pairs.items() for command in self._making(pair)]
        names = sorted({self._name_of(pair) for pair in step.pairs.items()})
        return [(verb, "", name) for name in names for verb in ("CANC-CRS", "DLT-CRS")]

    def _making(self, pair: Pair) -> list[tuple[str, str, str]]:
        source, target = self._names.one_way(pair)
        aid, booked = f"{source},{target}", self._seen.find_booked(pair)
        commands = [("DLT-CRS", "", circuit.name) for circuit in self._seen.in_the_way(pair)]
        if booked is None:
            commands.append(("ENT-CRS", aid, f"{GROUP},1WAY"))
        name = booked.name if booked else circuit_name(source, target)
        return [*commands, ("ACT-CRS", aid, f"{name},{GROUP}")]
