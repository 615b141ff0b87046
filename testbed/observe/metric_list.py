"""The table of metrics: name, type, labels and help. Dashboards and documentation are held against it.

Labels are bounded by what a lab is made of (switches, ports, stretches of glass between them, message sizes of one run)
and by fixed words: runs, operations, people and leases are never labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    help: str


_LAB = ("lab",)
_PLACE = ("lab", "place")
_SIZE = ("lab", "simulated", "collective", "configuration", "ranks", "size_bytes")
_SWITCH = ("lab", "switch")

METRICS: tuple[Metric, ...] = (
    Metric("testbed_operations_total", "counter", ("lab", "kind", "state"), "Operations in the journal."),
    Metric("testbed_steps_total", "counter", ("lab", "device", "change", "state"), "Steps of operations."),
    Metric(
        "testbed_step_seconds",
        "gauge",
        ("lab", "change", "quantile"),
        "Time from intent to outcome of the newest 200 steps.",
    ),
    Metric("testbed_epoch", "gauge", _LAB, "Number of the newest epoch."),
    Metric("testbed_epoch_verified", "gauge", _LAB, "1 if the newest epoch is proven, 0 if not."),
    Metric("testbed_leases", "gauge", ("lab", "state"), "Leases that live, by state."),
    Metric("testbed_maintenance", "gauge", _LAB, "1 while hands are in the rack."),
    Metric("testbed_faulty_parts", "gauge", _LAB, "Hosts, NICs and ports that failed their last check."),
    Metric("testbed_findings", "gauge", ("lab", "kind"), "Findings of the newest look that a service took."),
    Metric("testbed_runs_total", "counter", ("lab", "status"), "Runs in the results."),
    Metric("testbed_last_run_timestamp_seconds", "gauge", _LAB, "Start of the newest run."),
    Metric("testbed_bus_bandwidth_mbps", "gauge", _SIZE, "Bus bandwidth that the newest run measured."),
    Metric("testbed_link_limit_mbps", "gauge", _SIZE, "Bus bandwidth that the links allowed in that run."),
    Metric(
        "testbed_optical_power_dbm",
        "gauge",
        _PLACE,
        "Power at the end of a stretch of glass, newest reading.",
    ),
    Metric("testbed_optical_loss_db", "gauge", _PLACE, "Loss of a stretch of glass, newest reading."),
    Metric("testbed_optical_excess_loss_db", "gauge", _PLACE, "Loss beyond that of the lab file."),
    Metric("testbed_optical_reading_timestamp_seconds", "gauge", _LAB, "Time of the newest reading."),
    Metric("testbed_switch_up", "gauge", _SWITCH, "1 if the switch answers; read when the metrics are."),
    Metric("testbed_circuits", "gauge", _SWITCH, "Cross-connects that the switch holds now."),
    Metric("testbed_port_power_dbm", "gauge", (*_SWITCH, "port"), "Power at a port of the lab's hosts now."),
    Metric(
        "testbed_dark_ports", "gauge", _SWITCH, "Ports in circuits that are below the floor of their monitor."
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
