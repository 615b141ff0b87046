"""The table of metrics, and their text for Prometheus (exposition format 0.0.4). Pure.

Tests compare dashboards and documentation with the table. The number of label values is bounded by the parts of a lab
(switches, ports, fibre sections, message sizes of one run) and fixed words: runs, operations, people and leases are
never labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, kind, label names and help text."""

    name: str
    kind: Literal["counter", "gauge"]
    label_names: tuple[str, ...]
    help: str


_LAB_LABELS = ("lab",)
_PLACE_LABELS = ("lab", "place")
_SIZE_LABELS = ("lab", "simulated", "collective", "configuration", "ranks", "size_bytes")
_SWITCH_LABELS = ("lab", "switch")
METRICS: tuple[Metric, ...] = (
    Metric("testbed_operations_total", "counter", ("lab", "kind", "state"), "Operations in the journal."),
    Metric("testbed_steps_total", "counter", ("lab", "device", "change", "state"), "Steps of operations."),
    Metric(
        "testbed_step_seconds",
        "gauge",
        ("lab", "change", "quantile"),
        "Seconds that a step takes: quantiles of the newest 200 steps.",
    ),
    Metric("testbed_epoch", "gauge", _LAB_LABELS, "Number of the newest epoch."),
    Metric("testbed_epoch_verified", "gauge", _LAB_LABELS, "1 if the newest epoch is verified, 0 if not."),
    Metric("testbed_leases", "gauge", ("lab", "state"), "Leases that have not ended, by state."),
    Metric("testbed_maintenance", "gauge", _LAB_LABELS, "1 while maintenance is on."),
    Metric(
        "testbed_faulty_parts", "gauge", _LAB_LABELS, "Hosts, NICs and ports that failed their last check."
    ),
    Metric("testbed_findings", "gauge", ("lab", "kind"), "Findings of the newest check by the service."),
    Metric("testbed_runs_total", "counter", ("lab", "status"), "Runs in the results."),
    Metric("testbed_last_run_timestamp_seconds", "gauge", _LAB_LABELS, "Start of the newest run."),
    Metric(
        "testbed_bus_bandwidth_mbps", "gauge", _SIZE_LABELS, "Bus bandwidth that the newest run measured."
    ),
    Metric(
        "testbed_link_limit_mbps", "gauge", _SIZE_LABELS, "Bus bandwidth that the links allowed in that run."
    ),
    Metric(
        "testbed_optical_power_dbm",
        "gauge",
        _PLACE_LABELS,
        "Power at the end of a fibre section, newest reading.",
    ),
    Metric("testbed_optical_loss_db", "gauge", _PLACE_LABELS, "Loss of a fibre section, newest reading."),
    Metric(
        "testbed_optical_excess_loss_db",
        "gauge",
        _PLACE_LABELS,
        "Loss of a fibre section minus the loss that the lab file predicts.",
    ),
    Metric("testbed_optical_reading_timestamp_seconds", "gauge", _LAB_LABELS, "Time of the newest reading."),
    Metric("testbed_switch_up", "gauge", _SWITCH_LABELS, "1 if the switch answers now, 0 if not."),
    Metric("testbed_circuits", "gauge", _SWITCH_LABELS, "Cross-connects that the switch holds now."),
    Metric(
        "testbed_port_power_dbm",
        "gauge",
        (*_SWITCH_LABELS, "port"),
        "Power now at a switch port that leads to a host of the lab.",
    ),
    Metric(
        "testbed_dark_ports",
        "gauge",
        _SWITCH_LABELS,
        "Ports in circuits whose power monitor reads less than its floor.",
    ),
)
METRIC_BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; `label_values` are the values of its labels in the order of the table."""

    metric_name: str
    label_values: tuple[str, ...]
    value: float

    def __post_init__(self) -> None:
        if len(self.label_values) != len(METRIC_BY_NAME[self.metric_name].label_names):
            raise ValueError(
                f"{self.metric_name} has the labels {METRIC_BY_NAME[self.metric_name].label_names}, not"
                f" {self.label_values}"
            )

    @property
    def labels_by_name(self) -> dict[str, str]:
        """The labels with their names."""
        return dict(zip(METRIC_BY_NAME[self.metric_name].label_names, self.label_values, strict=True))


def format_exposition(samples: Iterable[Sample]) -> str:
    r"""Return samples in the text format of Prometheus, ordered by metric and labels.

    >>> print(format_exposition([Sample("testbed_epoch", ('a "lab"',), 3.0)]), end="")
    # HELP testbed_epoch Number of the newest epoch.
    # TYPE testbed_epoch gauge
    testbed_epoch{lab="a \"lab\""} 3
    """
    samples_by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        samples_by_metric.setdefault(sample.metric_name, []).append(sample)
    return "".join(
        line
        for metric in METRICS
        for line in _format_lines(metric.name, samples_by_metric.get(metric.name, []))
    )


def _format_lines(name: str, samples: list[Sample]) -> Iterator[str]:
    if not samples:
        return
    metric = METRIC_BY_NAME[name]
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for sample in sorted(samples, key=lambda item: item.label_values):
        label_texts = (
            f'{label}="{_escape(value)}"'
            for label, value in zip(metric.label_names, sample.label_values, strict=True)
        )
        yield f"{name}{{{','.join(label_texts)}}} {sample.value:.12g}\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
