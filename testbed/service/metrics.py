"""Metrics that only the service adds to those in the database: the switches and the findings of its labs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock

from ocs_drivers.errors import OcsError
from testbed.errors import TestbedError
from testbed.lab.simulated.lifecycle import find_running_lab
from testbed.observe.device_metrics import read_device_samples
from testbed.observe.exposition import Sample
from testbed.service.labs import LabView
from testbed.service.requests import find_lane

log = logging.getLogger(__name__)
MIN_INTERVAL_S = 10.0
"""Minimum time between two readings of a lab's switches."""


@dataclass
class SwitchMetrics:
    """The last samples of a lab's switches. The switches are not read while a run moves the lab."""

    _samples: tuple[Sample, ...] = ()
    _read_at_s: float = -1e9
    _lock: Lock = field(default_factory=Lock)

    def get_samples(self, view: LabView) -> tuple[Sample, ...]:
        """Return the samples of a lab, at most `MIN_INTERVAL_S` old unless a run moves it."""
        with self._lock:
            if time.monotonic() - self._read_at_s > MIN_INTERVAL_S and not _is_moving(view):
                self._samples = tuple(_read_switches(view))
                self._read_at_s = time.monotonic()
            return self._samples


def count_findings(view: LabView) -> list[Sample]:
    """Return the number of findings of each kind in the newest check of a lab, without kinds that have no findings."""
    check = view.find_last_check()
    count_by_kind = Counter(finding["kind"] for finding in check.findings) if check else Counter[str]()
    return [
        Sample("testbed_findings", (view.lab.name, kind), float(count))
        for kind, count in count_by_kind.items()
    ]


def _is_moving(view: LabView) -> bool:
    return any(
        find_lane(run.command) == "moving" for run in view.runs.list_runs(lab=view.lab.name, state="running")
    )


def _read_switches(view: LabView) -> Collection[Sample]:
    """Read the switches. If that fails for the whole lab, report all as down and log the reason."""
    reason = view.explain_outage() if view.lab.simulated else ""
    if not reason:
        try:
            return read_device_samples(find_running_lab(view.lab))
        except (TestbedError, OcsError) as error:
            log.warning("no metrics of the switches of lab %s: %s", view.lab.name, error)
    return [Sample("testbed_switch_up", (view.lab.name, switch.name), 0.0) for switch in view.lab.switches]
