"""A simulated Glimmerglass System 100: TL1 behind a `<` prompt, every command repeated, long answers in pages.

Options for what releases do differently: `rows` (`2016` or `2005`: whose rows are printed), `echo=no` (commands are
not repeated), `greeting=terminal` (a client is greeted with control sequences, as by older software).
For what the published material leaves open: `opmode` (`sync`: a connection without OPMODE is answered when the light
is there; `async`: at once), `moving` (the CONNSTATE of a row until then), `reports` (`others`: changes are reported
to the sessions that did not make them; `yes`: to all; `no`), `when_occupied` (`reject` or `replace`).
"""

from __future__ import annotations

from typing import cast

from sim.twins.families.glimmerglass.tl1_frontend import GlimmerglassTl1, Quirks, Reports
from sim.twins.families.glimmerglass.tl1_syntax import PROMPT, Release
from sim.twins.switch.matrix import WhenOccupied
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02
TERMINAL_SETUP = "".join(
    f"\x1b{sequence}"
    for sequence in ('[62;1"p', ">", "[?4l", "[?5l", "[?7h", "[?8h", "[1;50r", "[50;1H", "[50;0H", "[4l")
)
"""Control sequences that a client of 2007 saw after it had connected."""


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Glimmerglass. Raises `SettingError` for an option that it does not know."""
    settings.only("opmode", "moving", "rows", "echo", "greeting", "reports", "when_occupied")
    occupied = cast("WhenOccupied", settings.choice("when_occupied", "reject", "replace"))
    device = settings.device(switch_time_s=DEFAULT_SWITCH_TIME_S, when_occupied=occupied)
    tl1 = GlimmerglassTl1(
        device,
        account=settings.account("admin", "admin"),
        system={
            "SerialNumber": settings.serial_number,
            "SystemType": "System100",
            "ChassisType": "GG100",
            "SoftwareActiveVersion": "4.2.1",
            "LicensedPortMatrix": f"{settings.inputs}x{settings.outputs}",
        },
        quirks=Quirks(
            waits=settings.choice("opmode", "sync", "async") == "sync",
            moving=settings.options.get("moving", "moving"),
            reports=cast("Reports", settings.choice("reports", "others", "yes", "no")),
            release=cast("Release", settings.choice("rows", "2016", "2005")),
        ),
    )
    greeting = (
        TERMINAL_SETUP if settings.choice("greeting", "prompt", "terminal") == "terminal" else ""
    ) + PROMPT
    echo = settings.choice("echo", "yes", "no") == "yes"
    frontends = {
        "tl1": Frontend(
            "glimmerglass+tl1",
            lambda line: tl1.serve(line, greeting=greeting.encode(), echo=echo),
            max_sessions_here=False,
        )
    }
    return SwitchTwin(device, frontends, expire=tl1.expire, faults=tl1.faults())
