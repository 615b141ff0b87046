"""Twins of the switches of a wiring document, of any family that answers on a network."""

from __future__ import annotations

from sim.lab.errors import LabError
from sim.lab.model import Address, SwitchDocument
from sim.models.clock import RealClock, ScaledClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import SwitchTwin


def switch_twin(switch: SwitchDocument, plant: Plant) -> SwitchTwin:
    """Return the twin that an entry describes, not yet serving. Raises `LabError`."""
    settings = TwinSettings(
        switch.name,
        switch.inputs,
        switch.outputs,
        plant=plant,
        clock=RealClock() if switch.speed == 1.0 else ScaledClock(switch.speed),
        switch_time_s=switch.switch_time_s,
        boot_mode=switch.boot_mode,
        user=switch.user,
        password=switch.password,
        options=switch.options,
    )
    try:
        return make_twin(switch.family, settings)
    except SettingError as error:
        raise _wrong_twin(switch, str(error)) from None


def addresses_of(twin: SwitchTwin, switch: SwitchDocument) -> dict[str, Address]:
    """Return the addresses by name of the frontend. Raises `LabError` for a scheme that the twin does not serve."""
    names = {twin.frontends[name].scheme: name for name in twin.needs_socket}
    for scheme in switch.frontends:
        if scheme not in names:
            raise _wrong_twin(switch, f"it speaks no {scheme}, but {', '.join(names)}")
    return {names[scheme]: address for scheme, address in switch.frontends.items()}


def _wrong_twin(switch: SwitchDocument, what: str) -> LabError:
    return LabError(f"the simulated switch {switch.name}: {what}", hint="Correct its entry", code="document")
