"""The switch that `testbed switch ADDRESS ...` works on, and how it is named to people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from ocs_drivers import OpticalSwitch, open_switch
from ocs_drivers.transports.recording import recording
from testbed.cli.on_demand import load_on_demand


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments before the command: which switch, and how to talk to it."""

    address: str
    timeout_s: float
    record: Path | None


@contextmanager
def opened(context: typer.Context) -> Iterator[OpticalSwitch]:
    """Provide the switch that was chosen, recorded if asked for."""
    wanted: Wanted = context.obj
    load_on_demand("numpy", "psutil")
    with ExitStack() as stack:
        if wanted.record is not None:
            stack.enter_context(recording(wanted.record))
        yield stack.enter_context(open_switch(wanted.address, timeout_s=wanted.timeout_s))


def is_simulated(switch: OpticalSwitch) -> bool:
    """Return True for a twin, which names itself in its serial number."""
    return switch.identity().serial.startswith("SIM")


def about(switch: OpticalSwitch) -> dict[str, Any]:
    """Return what every document begins with: which switch, and whether it is real."""
    return {"address": switch.address, "simulated": is_simulated(switch)}


def heading(switch: OpticalSwitch) -> str:
    """Return the title of what people read."""
    return f"{'SIMULATED ' if is_simulated(switch) else ''}{switch.address}"
