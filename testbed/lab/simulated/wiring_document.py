"""The wiring document of a lab, the input of `python -m sim.lab`, whose folder contains the schema."""

from __future__ import annotations

from typing import Any, Literal

from ocs_drivers.families import twin_family_name
from testbed.lab.checks import LANGUAGE_PORTS, Endpoint, endpoint
from testbed.lab.model import FibreEnd, Lab, LabHost, LabSwitch, SwitchTwin

HostsMode = Literal["kernel", "model"]
PLANT_CONTROL_PORT = 7000


def burst_kb(rate_mbps: float) -> int:
    """Return the burst of an idle link in KiB: about 10 ms, between the largest segment and 128 KiB.

    >>> burst_kb(100), burst_kb(50), burst_kb(1000)
    (128, 66, 128)
    """
    return max(66, min(128, round(1.28 * rate_mbps)))


def wiring_document(lab: Lab, *, hosts: HostsMode = "kernel", public_key: str = "") -> dict[str, Any]:
    """Return the lab as the document that `python -m sim.lab` reads."""
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
            "burst_kb": burst_kb(lab.link.rate_mbps),
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
    return {
        "name": switch.name,
        "kind": twin_family_name(place.language),
        "inputs": switch.inputs,
        "outputs": switch.outputs,
        **_frontends(place, twin),
        "control": f"{place.host}:{twin.control_port}",
        **({} if twin.switch_time_s is None else {"switch_time_s": twin.switch_time_s}),
        "speed": twin.speed,
        "options": dict(twin.options),
        "boot_mode": twin.boot_mode,
        "insertion_loss_db": switch.insertion_loss_db,
    }


def _frontends(place: Endpoint, twin: SwitchTwin) -> dict[str, Any]:
    """Return the frontends of a twin with their addresses: both protocols of a Polatis, else that of the lab file."""
    if place.language not in LANGUAGE_PORTS:
        return {"frontends": {place.language: f"{place.host}:{place.port}"}}
    ports = {**LANGUAGE_PORTS, "polatis+tl1": twin.tl1_port}
    if place.port is not None:
        ports[place.language] = place.port
    return {language.rpartition("+")[2]: f"{place.host}:{port}" for language, port in ports.items()}


def _host_entry(host: LabHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "management": str(host.management),
        "ssh_port": host.ssh_port,
        "address": str(host.address),
        "nics": [
            {
                "name": nic.name,
                "address": str(nic.address),
                "transmit": _fibre_entry(nic.transmit),
                "receive": _fibre_entry(nic.receive),
            }
            for nic in host.nics
        ],
    }


def _fibre_entry(fibre: FibreEnd) -> dict[str, Any]:
    return {"switch": fibre.switch, "port": fibre.port, "loss_db": fibre.loss_db}
