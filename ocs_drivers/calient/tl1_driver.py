"""A Calient over TL1: every circuit is provisioned (`ENT-CRS`), then activated (`ACT-CRS`), then polled.

Commands for one made pair: 2; for one removed circuit: 2 (`CANC-CRS`, `DLT-CRS`). A read is `RTRV-CRS` and, for the
ports that cannot be used, `RTRV-PORT`; the proof by reading back is `RTRV-CRS` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ocs_drivers.calient import tl1_words
from ocs_drivers.calient.names import Circuit, Names, Pair
from ocs_drivers.calient.switch import CalientSwitch, States
from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import DeviceError, PortBusy
from ocs_drivers.model import Capabilities, Event, Identity, Step
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.tl1_session import Dialect, Tl1Session
from ocs_drivers.transport import Transport

GROUP = "SYSTEM"
"""The connection group that our circuits are booked in."""

DIALECT = Dialect(
    login_text=re.compile(r"Login Not Active", re.IGNORECASE),
    welcome=re.compile(r"Already logged in", re.IGNORECASE),
)
_INVALID = re.compile(r"Invalid Connection", re.IGNORECASE)
_CHANGED = ("DBCHG", "DBGH")  # the second is how one firmware was seen to spell it


class CalientTl1(CalientSwitch):
    """One Calient over TL1, raw or interactive, on any transport; `open` before use.

    `timeout_s` bounds every wait for an answer; a circuit is given the device's switching time on top.
    """

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session = Tl1Session(
            transport,
            device=address,
            credentials=credentials,
            timeout_s=timeout_s,
            dialect=DIALECT,
            clock=clock,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)

    def _discover(self) -> tuple[Identity, Capabilities]:
        identity = self._session.ask("RTRV-NE", tl1_words.decode_identity)
        self._names = Names(tuple(self._ask_ports()))
        return identity, Capabilities(
            len(self._names),
            len(self._names),
            two_step_activate=True,
            power_monitor=True,
            async_events=True,
            login=True,
            switch_time_s=(0.05, 10.0),
        )

    def _ask_circuits(self) -> list[Circuit]:
        return self._session.ask_again("RTRV-CRS", tl1_words.decode_circuits, positional="ALL")

    def _ask_ports(self) -> States:
        return self._session.ask_again("RTRV-PORT", tl1_words.decode_ports, aid="0")

    def _ask_powers(self) -> Mapping[str, tuple[float | None, float | None]]:
        return self._session.ask_again("RTRV-PORT-SUM", tl1_words.decode_powers, aid="0")

    # -- changing

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._unsupported("the whole configuration at once")
        if step.kind == "remove":
            for name in sorted({self._circuit_of(pair).name for pair in step.pairs.items()}):
                self._remove(name, guard)
            return
        for pair in step.pairs.items():
            self._make(pair, guard)

    def _circuit_of(self, pair: Pair) -> Circuit:
        circuit = self._seen.of(pair)
        if circuit is None:  # never read by us: then it can only be one way
            source, target = self._names.one_way(pair)
            return Circuit(source, target, two_way=False, state="made", lit=True)
        return circuit

    def _remove(self, name: str, guard: Guard) -> None:
        self._write("CANC-CRS", guard, positional=name)
        guard()
        self._write("DLT-CRS", guard, positional=name)

    def _make(self, pair: Pair, guard: Guard) -> None:
        for circuit in self._seen.in_the_way(pair, device=self.address):
            self._write("DLT-CRS", guard, positional=circuit.name)
            guard()
        source, target = self._names.one_way(pair)
        aid, name = f"{source},{target}", f"{source}>{target}"
        booked = self._seen.of(pair)
        if booked is None:
            self._provision(pair, aid, guard)
            guard()
        self._write("ACT-CRS", guard, aid=aid, positional=f"{booked.name if booked else name},{GROUP}")

    def _provision(self, pair: Pair, aid: str, guard: Guard) -> None:
        try:
            self._write("ENT-CRS", guard, aid=aid, positional=f"{GROUP},1WAY")
        except DeviceError as refusal:
            if _INVALID.search(refusal.what):
                raise PortBusy(
                    "the device says that one of these ports is in use",
                    device=self.address,
                    ports=pair,
                    sent=refusal.sent,
                    received=refusal.what,
                    cure="Read the switch: somebody else made or booked a circuit there.",
                ) from refusal
            raise

    def _write(self, verb: str, guard: Guard, *, aid: str = "", positional: str = "") -> None:
        self._session.ask(verb, tl1_words.nothing, aid=aid, positional=positional, before_resending=guard)

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Alarms and changes that the device reported after number `since`."""
        return self._session.events(since)

    def _tells_of_change(self, event: Event) -> bool:
        return any(word in event.kind for word in _CHANGED)
