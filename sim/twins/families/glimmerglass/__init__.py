"""A simulated Glimmerglass System 100: TL1 behind a `<` prompt.

Options for what the published material leaves open: `opmode` (`sync`: a connection without OPMODE is answered
when the light is there; `async`: at once), `moving` (the CONNSTATE of a row until then), `port_power=no` (rows of
ports do not tell the power), `reports=no` (changes are not reported), `when_occupied` (`reject` or `replace`).
"""

from __future__ import annotations

from typing import cast

from sim.twins.families.glimmerglass.tl1_frontend import GlimmerglassTl1, Quirks
from sim.twins.families.glimmerglass.tl1_syntax import PROMPT
from sim.twins.switch.matrix import WhenOccupied
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Glimmerglass. Raises `SettingError` for an option that it does not know."""
    settings.only("opmode", "moving", "port_power", "reports", "when_occupied")
    occupied = cast("WhenOccupied", settings.choice("when_occupied", "reject", "replace"))
    device = settings.device(switch_time_s=DEFAULT_SWITCH_TIME_S, when_occupied=occupied)
    tl1 = GlimmerglassTl1(
        device,
        account=settings.account("admin", "admin"),
        system={
            "SystemType": "System100",
            "ChassisType": "GG100",
            "SerialNumber": settings.serial_number,
            "SoftwareActiveVersion": "4.2.1",
            "LicensedPortMatrix": f"{settings.inputs}x{settings.outputs}",
        },
        quirks=Quirks(
            waits=settings.choice("opmode", "sync", "async") == "sync",
            moving=settings.options.get("moving", "moving"),
            port_power=settings.choice("port_power", "yes", "no") == "yes",
            reports=settings.choice("reports", "yes", "no") == "yes",
        ),
    )
    greeting = PROMPT.encode()
    frontends = {
        "tl1": Frontend(
            "glimmerglass+tl1", lambda line: tl1.serve(line, greeting=greeting), max_sessions_here=False
        )
    }
    return SwitchTwin(device, frontends, expire=tl1.expire, faults=tl1.faults())
