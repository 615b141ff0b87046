"""Our timings as documents of nccl-tests (JSON, version 3), so that tools which read those read ours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from testbed.lab.model import Lab
from testbed.measure.model import Timing
from testbed.measure.nccl.table import JSON_VERSION

BYTES_PER_ELEMENT = 4


def nccl_document(lab: Lab, timings: Sequence[Timing], versions: dict[str, str]) -> dict[str, Any]:
    """Return one configuration's rows; bandwidths in GB/s as nccl-tests has them, times in microseconds.

    `experiment_name` and `lightbed` say what nccl-tests cannot: topology, configuration, SIMULATED.
    """
    ran = any(timing.iterations for timing in timings)
    wrong = sum(timing.wrong for timing in timings)
    okay = ("false" if wrong else "true") if ran else "unchecked"
    busbws = [timing.busbw_mbps / 8000 for timing in timings]
    return {
        "version": JSON_VERSION,
        "args": ["all_reduce", "-g", "1"],
        "env": [],
        "nccl_version": None,
        "lightbed": {
            "simulated": lab.simulated,
            "marking": "SIMULATED" if lab.simulated else "",
            "hosts": timings[0].hosts if timings else "",
            "represents_gbps": lab.link.represents_gbps,
            "rate_mbps": lab.link.rate_mbps,
            "versions": versions,
        },
        "config": _config(lab, timings, versions.get("collective_backend", ""), ran=ran),
        "results": [_row(timing) for timing in timings],
        "out_of_bounds": {"count": wrong, "okay": okay},
        "average_bus_bandwidth": {
            "bandwidth": sum(busbws) / len(busbws) if busbws else 0.0,
            "okay": "unchecked",
        },
        "errors": "0",
        "end_time": datetime.now(UTC).isoformat(),
    }


def _config(lab: Lab, timings: Sequence[Timing], backend: str, *, ran: bool) -> dict[str, Any]:
    device = backend if ran else "modelled, nothing ran"
    sizes = [timing.size_bytes for timing in timings]
    return {
        "nthreads": 1,
        "ngpus": 1,
        "ranks": timings[0].ranks if timings else len(lab.hosts),
        "minimum_bytes": min(sizes, default=0),
        "maximum_bytes": max(sizes, default=0),
        "step_factor": 2,
        "warmup_iters": int(ran),
        "validation": int(ran),
        "devices": [
            {"rank": node, "group": 0, "pid": 0, "hostname": host.name, "device": 0, "device_info": device}
            for node, host in enumerate(lab.hosts)
        ],
    }


def _row(timing: Timing) -> dict[str, Any]:
    return {
        "size": timing.size_bytes,
        "count": max(1, timing.size_bytes // BYTES_PER_ELEMENT),
        "type": "float",
        "redop": "sum",
        "root": "-1",
        "out_of_place": None,
        "in_place": {
            "time": timing.time_us,
            "alg_bw": timing.algbw_mbps / 8000,
            "bus_bw": timing.busbw_mbps / 8000,
            "nwrong": timing.wrong,
        },
        "actual_iterations": timing.iterations,
        "experiment_name": f"{timing.topology}/{timing.configuration}",
    }
