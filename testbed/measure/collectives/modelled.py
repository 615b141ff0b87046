"""Timings of hosts that are only modelled: the flow model's estimate, marked as such in every row."""

from __future__ import annotations

import platform
from dataclasses import replace

from testbed.design.model import Routes, Wiring
from testbed.lab.model import Lab
from testbed.measure.collectives.ranks import Progress
from testbed.measure.collectives.rows import timing_of
from testbed.measure.collectives.spec import CollectiveSpec
from testbed.measure.model import CollectiveResult

_TIMES = ("time_us", "min_us", "max_us", "low_us", "high_us")
_IDLE = dict.fromkeys(("processor_s", "processor_busy", "processor_stolen", "processor_waited"), 0.0)


def model_collectives(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, on_progress: Progress
) -> CollectiveResult:
    """Return what `run_collectives` would measure, as the flow model estimates it; `iterations` is 0: nothing ran."""
    cases = [(configuration, size) for configuration in spec.configurations for size in configuration.sizes]
    timings = []
    for number, (configuration, size) in enumerate(cases, start=1):
        link = lab.link
        time_s = configuration.collective.time_s(
            wiring, routes, configuration, size, link.rate_mbps, link.mtu
        )
        row = {"configuration": configuration.name, "size": size, "iterations": 0, "wrong": (), **_IDLE}
        row |= dict.fromkeys(_TIMES, time_s * 1e6)
        timings.append(replace(timing_of(lab, wiring, routes, spec, row), simulated=True, hosts="model"))
        on_progress(number, len(cases), f"{spec.topology}, {configuration.name}, {size} B (modelled)")
    return CollectiveResult(tuple(timings), (), {"host_python": f"model ({platform.python_version()})"})
