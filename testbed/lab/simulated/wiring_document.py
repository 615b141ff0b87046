"""The lab file as a wiring document: what `python -m sim.lab` reads, by the schema that lies beside that module."""

from __future__ import annotations

from typing import Any, Literal

from testbed.lab.checks import endpoint
from testbed.lab.model import FibreEnd, Lab, LabHost, LabNic, LabSwitch

HostsMode = Literal["kernel", "model"]
PLANT_CONTROL_PORT = 7000
_LANGUAGE_PORTS = {"polatis+scpi": 5025, "polatis+tl1": 3082}


def wiring_document(lab: Lab, *, hosts: HostsMode = "kernel", public_key: str = "") -> dict[str, Any]:
    """Return the lab as the document that `python -m sim.lab` reads (its schema lies beside that module)."""
    document: dict[str, Any] = {
        "version": 1,
        "lab": lab.name,
        "hosts_mode": hosts,
        "management": str(lab.management),
        "control": f"{lab.management.network_address + 1}:{PLANT_CONTROL_PORT}",
        "link": {
            "rate_mbps": lab.link.rate_mbps,
            "represents_gbps": lab.link.represents_gbps,
            "mtu": lab.link.mtu,
            "transmit_power_dbm": lab.link.transmit_power_dbm,
        },
        "switches": [_switch_entry(lab, switch) for switch in lab.switches],
        "hosts": [_host_entry(host) for host in lab.hosts],
    }
    return document | ({"authorized_key": public_key} if public_key else {})


def _switch_entry(lab: Lab, switch: LabSwitch) -> dict[str, Any]:
    twin = lab.twins[switch.name]
    place = endpoint(switch.address)
    assert place is not None  # checked when the lab was loaded
    ports = _LANGUAGE_PORTS | {"polatis+tl1": twin.tl1_port}
    if place.port is not None:
        ports[place.language] = place.port
    return {
        "name": switch.name,
        "kind": "polatis",
        "inputs": switch.inputs,
        "outputs": switch.outputs,
        "scpi": f"{place.host}:{ports['polatis+scpi']}",
        "tl1": f"{place.host}:{ports['polatis+tl1']}",
        "control": f"{place.host}:{twin.control_port}",
        "switch_time_s": twin.switch_time_s,
        "boot_mode": twin.boot_mode,
        "insertion_loss_db": switch.insertion_loss_db,
    }


def _host_entry(host: LabHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "management": str(host.management),
        "ssh_port": host.ssh_port,
        "address": str(host.address),
        "nics": [_nic_entry(nic) for nic in host.nics],
    }


def _nic_entry(nic: LabNic) -> dict[str, Any]:
    fibres = {"transmit": _fibre_entry(nic.transmit), "receive": _fibre_entry(nic.receive)}
    return {"name": nic.name, "address": str(nic.address), **fibres}


def _fibre_entry(fibre: FibreEnd) -> dict[str, Any]:
    return {"switch": fibre.switch, "port": fibre.port, "loss_db": fibre.loss_db}
