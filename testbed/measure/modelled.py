"""Timings of hosts that are only modelled: the flow model's estimate, marked as such in every row."""

from __future__ import annotations

import platform

from testbed.design.model import Routes, Wiring
from testbed.design.performance import Network, allreduce_time_s, link_limit_mbps
from testbed.lab.model import Lab
from testbed.measure.collective_spec import CollectiveSpec
from testbed.measure.collectives import Progress
from testbed.measure.model import CollectiveResult, Timing


def model_collectives(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, on_progress: Progress
) -> CollectiveResult:
    """What `run_collectives` would measure, as the flow model estimates it; `iterations` is 0: nothing ran."""
    network = Network(lab.link.rate_mbps)
    cases = [(configuration, size) for configuration in spec.configurations for size in configuration.sizes]
    timings = []
    for number, (configuration, size) in enumerate(cases, start=1):
        time_us = allreduce_time_s(wiring, routes, configuration.rings, size, network) * 1e6
        algbw = size * 8 / time_us
        timings.append(
            Timing(
                run_id=spec.run_id,
                topology=spec.topology,
                configuration=configuration.name,
                collective="all_reduce",
                ranks=configuration.ranks,
                rings=configuration.rings_per_node,
                size_bytes=size,
                iterations=0,
                time_us=time_us,
                min_us=time_us,
                max_us=time_us,
                algbw_mbps=algbw,
                busbw_mbps=algbw * 2 * (configuration.ranks - 1) / configuration.ranks,
                limit_mbps=link_limit_mbps(wiring, routes, configuration.rings, lab.link.rate_mbps),
                wrong=0,
                cpu_limited=False,
                simulated=True,
                hosts="model",
            )
        )
        on_progress(number, len(cases), f"{spec.topology}, {configuration.name}, {size} B (modelled)")
    return CollectiveResult(tuple(timings), (), {"host_python": f"model ({platform.python_version()})"})
