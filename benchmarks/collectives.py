"""What four rings gain over one: AllReduce of 8 MiB on the simulated 12-host lab, in five launches.

The lab comes up once and the circuits stay; each run is a launch of its own (new processes, new connections), in
which one ring and then all four are measured, so that the ratio is taken within a run. Needs root.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from testbed.design.rings import rings_of
from testbed.lab.inventory import load_lab
from testbed.lab.simulated import start_lab
from testbed.measure.collective_rows import misplaced
from testbed.measure.collectives import CollectiveSpec, Configuration, run_collectives
from testbed.measure.model import CollectiveResult, Timing
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession, design_for, open_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
SIZE_BYTES = 8 << 20
RUNS = 5
# The usual two iterations of this size let one that the machine disturbed weigh half.
ITERATIONS = 8
ASKED_RATIO = 3.6
ASKED_SHARE = 0.9


def launches(session: LabSession) -> list[CollectiveResult]:
    """Bring the default topology into force, then measure it `RUNS` times."""
    design = design_for(session.lab)
    verified = session.bring_up(design).verified
    if not verified.ok or session.fleet is None:
        raise SystemExit(f"the lab is not as planned: {verified.findings}")
    rings = rings_of(design.topology)
    configurations = (
        Configuration("one ring", rings[:1], (SIZE_BYTES,)),
        Configuration("four rings", rings, (SIZE_BYTES,)),
    )
    parts = (session.fleet, session.lab, design.wiring, design.routes)
    return [
        run_collectives(
            *parts,
            CollectiveSpec(f"benchmark-{run}", design.name, configurations, min_iterations=ITERATIONS),
            deadline_s=120,
        )
        for run in range(RUNS)
    ]


def of_configuration(results: list[CollectiveResult], name: str) -> list[Timing]:
    return [timing for result in results for timing in result.timings if timing.configuration == name]


def figures(results: list[CollectiveResult]) -> dict[str, object]:
    one, four = of_configuration(results, "one ring"), of_configuration(results, "four rings")
    ratios = [b.busbw_mbps / a.busbw_mbps for a, b in zip(one, four, strict=True)]
    found: dict[str, object] = {}
    for key, timings in (("one_ring", one), ("four_rings", four)):
        busbw = [timing.busbw_mbps for timing in timings]
        shares = [timing.busbw_mbps / timing.limit_mbps for timing in timings]
        found[f"{key}_busbw_mbps"] = [round(value, 1) for value in busbw]
        found[f"{key}_busbw_mbps_median"] = round(statistics.median(busbw), 1)
        found[f"{key}_limit_mbps"] = timings[0].limit_mbps
        found[f"{key}_share_of_limit_median"] = round(statistics.median(shares), 3)
        found[f"{key}_share_of_limit_worst"] = round(min(shares), 3)
    found["ratio"] = [round(ratio, 3) for ratio in ratios]
    found["ratio_median"] = round(statistics.median(ratios), 3)
    found["ratio_worst"] = round(min(ratios), 3)
    found["ratio_spread"] = round(max(ratios) - min(ratios), 3)
    found["nics_off_plan"] = sum(len(misplaced(result.nic_bytes)) for result in results)
    found["wrong_elements"] = sum(timing.wrong for timing in one + four)
    return found


def main() -> None:
    begin, load = time.monotonic(), os.getloadavg()[0]
    with (
        start_lab(load_lab(LAB), hosts="kernel", move=True) as up,
        tempfile.TemporaryDirectory() as scratch,
        Journal(Path(scratch) / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        results = launches(session)
    line = {
        "benchmark": "collectives",
        "simulated": True,
        "hosts": "kernel",
        "nodes": len(up.lab.hosts),
        "size_bytes": SIZE_BYTES,
        "runs": RUNS,
        "a_run_is": "one launch",
        "iterations": ITERATIONS,
        **figures(results),
        "asked_ratio_at_least": ASKED_RATIO,
        "asked_share_of_limit_at_least": ASKED_SHARE,
        "processors": os.cpu_count(),
        "load_before": round(load, 2),
        "versions": results[0].versions,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
