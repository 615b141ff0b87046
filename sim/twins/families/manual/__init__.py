"""A patch panel and a scripted person in front of it, who is asked by lines of text over TCP.

He takes his time (30 s a cord), does what he is asked to, and says `done`; what he cannot do he refuses with `no` and
the reason. He errs when a fault says so, and tells the truth when asked where a cord goes. The panel's truth is the
matrix.
"""

from __future__ import annotations

from sim.twins.families.manual.person import Person
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

CORD_TIME_S = 30.0


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated panel; `switch_time_s` is what a cord takes him. It has no options."""
    settings.only()
    cord_time_s = CORD_TIME_S if settings.switch_time_s is None else settings.switch_time_s
    device = settings.device(switch_time_s=0.0)
    device.switch_time_s = 0.0  # a cord is dark only while he holds it
    person = Person(device, cord_time_s=cord_time_s)
    frontend = Frontend(
        "manual",
        person.serve,
        file="panel.json",
        options={"size": f"{settings.inputs}x{settings.outputs}", "name": f"SIM{settings.name}"},
    )
    return SwitchTwin(device, {"operator": frontend}, faults=person.faults())
