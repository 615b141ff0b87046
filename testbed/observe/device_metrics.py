"""Samples from the current readings of a lab's switches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from testbed.lab.model import Lab
from testbed.observe.exposition import Sample
from testbed.operate.light import SwitchReading, read_ports
from testbed.operate.plan import list_lab_ports
from testbed.operate.session import open_lab


def read_device_samples(lab: Lab) -> tuple[Sample, ...]:
    """Read the switches of a lab and return their samples. For a switch that does not answer, the sample says down."""
    with open_lab(lab, None, model_hosts=True, skip_unreachable=True) as session:
        readings = read_ports(list_lab_ports(lab), session.switches)
        return tuple(make_samples(lab.name, readings, session.unreachable))


def make_samples(
    lab: str, readings: Mapping[str, SwitchReading], unreachable: Collection[str]
) -> Iterator[Sample]:
    """Yield the samples of the readings, and of switches that do not answer (`unreachable`). Pure."""
    for switch in unreachable:
        yield Sample("testbed_switch_up", (lab, switch), 0)
    for switch, reading in readings.items():
        pairs = reading.snapshot.connections.pairs
        used_ports = {port for pair in pairs for port in pair}
        dark_ports = [port for port, power in reading.power_by_port.items() if power and power.below_floor]
        yield Sample("testbed_switch_up", (lab, switch), 1)
        yield Sample("testbed_circuits", (lab, switch), len(pairs))
        yield Sample("testbed_dark_ports", (lab, switch), len(used_ports.intersection(dark_ports)))
        for port, power in reading.power_by_port.items():
            if power and not power.below_floor:
                yield Sample("testbed_port_power_dbm", (lab, switch, str(port)), power.dbm)
