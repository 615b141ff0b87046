"""The base of drivers over TL1: a vendor adds its queries, its commands, and the decoders of their replies.

A vendor is a folder beside this file and a row of `ocs_drivers/families.py`; its twin is a module of
`sim/twins/families` and a row of `FAMILIES` there. `docs/how-to/change/add-a-vendor.md` names all files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ocs_drivers.credentials import Credentials
from ocs_drivers.engine import planning
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.model import CrossConnects, PortInfo, Snapshot, Step
from ocs_drivers.protocols.tl1_session import STANDARD_DIALECT, Dialect, Tl1Session
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport


class Tl1Driver(SwitchDriver):
    """Driver of one switch over TL1, on any transport. Call `open` first.

    `timeout_s` bounds every wait for an answer, plus the device's own switching time for a write.
    """

    _session: Tl1Session
    dialect: ClassVar[Dialect] = STANDARD_DIALECT

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        session = Tl1Session(
            transport,
            device=address,
            credentials=credentials,
            timeout_s=timeout_s,
            dialect=self.dialect,
            clock=clock,
        )
        super().__init__(address, session, timeout_s=timeout_s, clock=clock)

    @abstractmethod
    def _connections(self) -> CrossConnects:
        """Read the circuits once; see `_check_possible`."""

    def _read(self) -> Snapshot:
        return Snapshot(self._connections(), self._clock.now())

    def _read_after_step(self, step: Step) -> Snapshot:
        del step
        return Snapshot(self._query_circuits(self._connections), self._clock.now())

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports as enabled, for devices that report no states."""
        return planning.make_plain_ports(self.capabilities)
