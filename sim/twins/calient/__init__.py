"""A simulated Calient S-series: TL1 raw and interactive, and REST, on one state.

Options for what the published material leaves open: `when_occupied` (`reject` or `replace`), `reports=no` (changes
are not reported), `page_rows` (rows after which a TL1 answer is continued in another block; 0 for never).
"""

from __future__ import annotations

import zlib
from typing import cast

from sim.twins.calient.circuits import CircuitBook
from sim.twins.calient.rest_front import RestFront
from sim.twins.calient.tl1_front import Tl1Front
from sim.twins.switch.http_server import HttpServer
from sim.twins.switch.matrix import WhenOccupied
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Front, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.05
MOST_PORTS = 320


def twin(settings: TwinSettings) -> SwitchTwin:
    """A simulated Calient; needs as many inputs as outputs, for a port has one fibre of each."""
    settings.only("when_occupied", "reports", "page_rows")
    occupied = cast("WhenOccupied", settings.choice("when_occupied", "reject", "replace"))
    device = settings.device(switch_time_s=DEFAULT_SWITCH_TIME_S, when_occupied=occupied)
    if settings.inputs != settings.outputs or settings.inputs > MOST_PORTS:
        raise SettingError(f"a Calient has as many inputs as outputs, {MOST_PORTS} at most")
    account = settings.account("admin", "admin")
    serial = f"SIM{zlib.crc32(settings.name.encode()) % 1_000_000:06d}"
    book = CircuitBook(device)
    tl1 = Tl1Front(
        device,
        book,
        account=account,
        serial=serial,
        page_rows=int(settings.number("page_rows", 0)),
        reports=settings.choice("reports", "yes", "no") == "yes",
    )
    rest = RestFront(device, book, serial=serial)
    server = HttpServer(rest.routes(), accounts=dict([account]))
    fronts = {
        "tl1": Front(
            "calient+tl1", lambda line: tl1.converse(line, interactive=False), max_sessions_here=False
        ),
        "tl1-interactive": Front(
            "calient+tl1", lambda line: tl1.converse(line, interactive=True), max_sessions_here=False
        ),
        "rest": Front("calient+rest", server.converse),
    }
    return SwitchTwin(
        device,
        fronts,
        expire=lambda: tl1.expire() + server.expire_sessions(),
        faults={**tl1.faults(), **rest.faults()},
    )
