"""Optical circuit switches and patch panels, whatever their maker, behind one contract.

    from ocs_drivers import open_switch

    with open_switch("polatis+scpi://10.99.0.2:5025") as switch:
        report = switch.connect({1: 49, 2: 50})

A configuration is a map from input ports to output ports, numbered alike for every family: inputs 1..N,
outputs N+1..N+M. What counts as done was read back from the device; what went wrong is one of
`ocs_drivers.errors`. Everything said on the wire is logged at DEBUG by the logger `ocs_drivers.wire`,
without passwords.
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
