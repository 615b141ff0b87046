"""Timings of hosts that are only modelled: the flow model's estimate, marked as such in every row."""

from __future__ import annotations

import platform

from testbed.design.model import Routes, Wiring
from testbed.lab.model import Lab
from testbed.measure.collectives.ranks import Progress
from testbed.measure.collectives.spec import CollectiveSpec
from testbed.measure.model import CollectiveResult, Timing


def model_collectives(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, on_progress: Progress
) -> CollectiveResult:
    """Return what `run_collectives` would measure, as the flow model estimates it; `iterations` is 0: nothing ran."""
    cases = [(configuration, size) for configuration in spec.configurations for size in configuration.sizes]
    timings = []
    for number, (configuration, size) in enumerate(cases, start=1):
        collective, link = configuration.collective, lab.link
        time_us = collective.time_s(wiring, routes, configuration, size, link.rate_mbps, link.mtu) * 1e6
        algbw = size * 8 / time_us
        timings.append(
            Timing(
                run_id=spec.run_id,
                topology=spec.topology,
                configuration=configuration.name,
                collective=collective.name,
                ranks=configuration.ranks,
                rings=configuration.rings_per_node,
                size_bytes=size,
                iterations=0,
                time_us=time_us,
                min_us=time_us,
                max_us=time_us,
                algbw_mbps=algbw,
                busbw_mbps=algbw * collective.bus_factor(configuration.ranks),
                limit_mbps=collective.limit_mbps(wiring, routes, configuration, link.rate_mbps),
                wrong=0,
                cpu_limited=False,
                simulated=True,
                hosts="model",
                low_us=time_us,
                high_us=time_us,
            )
        )
        on_progress(number, len(cases), f"{spec.topology}, {configuration.name}, {size} B (modelled)")
    return CollectiveResult(tuple(timings), (), {"host_python": f"model ({platform.python_version()})"})
