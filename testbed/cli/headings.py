"""First line and first keys of every look at a lab: which lab, how real it is, and which topology is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightbed.wording import counted

if TYPE_CHECKING:
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.choice import MeantDesign


def heading(meant: MeantDesign, hosts: HostsChoice = "auto") -> list[str]:
    """Return the line that says what is looked at, and what must be known of it."""
    from testbed.design.topology.circulants import as_json as topology_json
    from testbed.lab.simulated.lifecycle import hosts_of

    lab, topology = meant.lab, topology_json(meant.design.topology)
    kind = "one-way link" if topology["simplex"] else "link"
    only = f", only {', '.join(host.name for host in lab.hosts)}" if lab.others else ""
    first = (
        f"{'SIMULATED ' if lab.simulated else ''}lab {lab.name}{only}: strides "
        f"{', '.join(map(str, topology['strides']))}, {counted(len(topology['links']), kind)}, "
        f"diameter {topology['diameter']}{', hosts only modelled' if hosts_of(lab, hosts) == 'model' else ''}"
    )
    return [f"{first}; {meant.heading()}", *meant.lines()]


def about(meant: MeantDesign, hosts: HostsChoice = "auto") -> dict[str, Any]:
    """Return what every document begins with: which lab, how real it is, and which epoch is meant."""
    from testbed.lab.simulated.lifecycle import hosts_of

    lab = meant.lab
    return {"lab": lab.name, "simulated": lab.simulated, "hosts": hosts_of(lab, hosts)} | meant.json()
