"""Why a Polatis refused a step: which of its ports the device says are closed or broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ocs_drivers.errors import DeviceError, OcsError
from ocs_drivers.model import PortInfo, PortState, Step


def explain(refusal: DeviceError, step: Step, ports: Callable[[], Mapping[int, PortInfo]]) -> DeviceError:
    """The refusal with the ports it is most likely about; asks the device for port states."""
    named = sorted({port for pair in step.pairs.items() for port in pair})
    unfit = _unfit(named, ports)
    refusal.ports = tuple(unfit or named)
    if unfit:
        said = ", ".join(f"port {port} is {state.value}" for port, state in unfit.items())
        refusal.cure = f"The device says that {said}."
    else:
        refusal.cure = "Read the switch and compare with what was asked; a port may be held or locked."
    return refusal.locate(device=refusal.device)


def _unfit(named: list[int], ports: Callable[[], Mapping[int, PortInfo]]) -> dict[int, PortState]:
    try:
        now = ports()
    except OcsError:  # the refusal itself matters more than why it cannot be explained
        return {}
    return {port: now[port].state for port in named if now[port].state is not PortState.ENABLED}
