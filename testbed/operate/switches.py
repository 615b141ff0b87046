"""Opening the switches of a lab."""

from __future__ import annotations

from contextlib import ExitStack

from ocs_drivers import OpticalSwitch, open_switch
from ocs_drivers.errors import TransportError
from testbed.errors import LabStartError
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import is_up


def open_switches(
    lab: Lab, stack: ExitStack, *, partial: bool
) -> tuple[dict[str, OpticalSwitch], dict[str, str]]:
    """Return the switches that answer, and why others do not; those raise `TransportError` unless `partial`."""
    switches: dict[str, OpticalSwitch] = {}
    off: dict[str, str] = {}
    for switch in lab.switches:
        try:
            switches[switch.name] = stack.enter_context(open_switch(switch.address))
        except TransportError as error:
            if not partial:
                raise
            off[switch.name] = str(error)
    return switches, off


def check_up(lab: Lab) -> None:
    """Raise `LabStartError` unless a lab that says `simulated` is one that we started: no real light by a slip."""
    if lab.simulated and not is_up(lab):
        raise LabStartError(
            f"simulated lab '{lab.name}' is not up at {lab.management}: start it with `testbed sim up {lab.path}`, "
            "or, if these are real devices, write `simulated: false`"
        )
