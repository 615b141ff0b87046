"""Optical circuit switches and patch panels of several vendors behind one interface.

    from ocs_drivers import open_switch

    with open_switch("polatis+scpi://10.99.0.2:5025") as switch:
        report = switch.connect({1: 49, 2: 50})

A configuration maps input ports to output ports. Every family numbers its inputs 1..N and its outputs N+1..N+M.
A change counts as done once it has been read back from the device. Errors are those of `ocs_drivers.errors`. The logger
`ocs_drivers.wire` logs all traffic at DEBUG, without passwords.
"""

from ocs_drivers.address import Address, parse_address
from ocs_drivers.contract import Guard, OpticalSwitch, allow_all
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import OcsError
from ocs_drivers.families import known_schemes, open_switch
from ocs_drivers.model import (
    ApplyReport,
    Attenuation,
    Capabilities,
    CrossConnects,
    Event,
    Identity,
    Outcome,
    PortInfo,
    PortState,
    Power,
    Side,
    Snapshot,
    Status,
    Step,
)

__all__ = [
    "Address",
    "ApplyReport",
    "Attenuation",
    "Capabilities",
    "Credentials",
    "CrossConnects",
    "Event",
    "Guard",
    "Identity",
    "OcsError",
    "OpticalSwitch",
    "Outcome",
    "PortInfo",
    "PortState",
    "Power",
    "Side",
    "Snapshot",
    "Status",
    "Step",
    "allow_all",
    "known_schemes",
    "open_switch",
    "parse_address",
]
