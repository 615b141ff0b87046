"""Gain of four rings over one, and its processor time: AllReduce of 8 MiB on the simulated 12-host lab.

The lab starts once, and the circuits do not change. Each run measures one ring and then all four, so that the ratio is
that of one run. Process groups and connections are new in each run; the processes start once. Needs root.

Processor times are those of the ranks, including the packets that were processed while they ran; they are valid on a
busy machine. `machine_s` is the time of all processors meanwhile, which is meaningful only on an otherwise idle
machine. `--rate-mbps` fixes the rate of the links; by default the lab chooses it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from testbed.design.topology.strides import list_rings
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import set_link_rate, start_lab
from testbed.lab.simulated.link_rate import fit_rate, measure_machine
from testbed.measure.collectives.ranks import CollectiveSpec, Configuration, Ranks
from testbed.measure.collectives.rows import find_misplaced_traffic
from testbed.measure.gain import RingGain, find_ring_gain, select_largest_timings
from testbed.measure.model import CollectiveResult, Timing
from testbed.operate.design import build_design
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession, open_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
SIZE_BYTES = 8 << 20
RUNS = 5
ITERATIONS = 8
ASKED_RATIO = 3.8
ASKED_SHARE = 0.9


def runs(session: LabSession) -> list[CollectiveResult]:
    """Bring up the default topology, then measure it `RUNS` times."""
    design = build_design(session.lab)
    verified = session.bring_up(design).verify_report
    if not verified.ok or session.fleet is None:
        raise SystemExit(f"the lab is not as planned: {verified.findings}")
    rings = list_rings(design.topology)
    configurations = (
        Configuration("one ring", rings[:1], (SIZE_BYTES,)),
        Configuration("four rings", rings, (SIZE_BYTES,)),
    )
    with Ranks(session.fleet, session.lab, deadline_s=240) as ranks:
        return [
            ranks.measure(
                design.wiring,
                design.routes,
                CollectiveSpec(
                    f"benchmark-{run}",
                    design.name,
                    configurations,
                    min_iterations=ITERATIONS,
                    max_time_s=60.0,
                ),
            )
            for run in range(RUNS)
        ]


def of_configuration(results: list[CollectiveResult], name: str) -> list[Timing]:
    return [timing for result in results for timing in result.timings if timing.configuration == name]


def gains(results: list[CollectiveResult]) -> list[RingGain]:
    return [gain for result in results if (gain := find_ring_gain(select_largest_timings(result.timings)))]


def figures(results: list[CollectiveResult]) -> dict[str, object]:
    one, four = of_configuration(results, "one ring"), of_configuration(results, "four rings")
    report: dict[str, object] = {}
    for key, timings in (("one_ring", one), ("four_rings", four)):
        busbw = [timing.busbw_mbps for timing in timings]
        shares = [timing.busbw_mbps / timing.limit_mbps for timing in timings]
        report[f"{key}_busbw_mbps"] = [round(value, 1) for value in busbw]
        report[f"{key}_busbw_mbps_median"] = round(statistics.median(busbw), 1)
        report[f"{key}_limit_mbps"] = timings[0].limit_mbps
        report[f"{key}_share_of_limit_median"] = round(statistics.median(shares), 3)
        report[f"{key}_share_of_limit_worst"] = round(min(shares), 3)
        report[f"{key}_processor_s_each"] = round(statistics.median(t.processor_s for t in timings), 4)
        report[f"{key}_cpu_limited"] = sum(timing.cpu_limited for timing in timings)
    ratios = [gain.bandwidth_ratio for gain in gains(results)]
    report["ratio"] = [round(ratio, 3) for ratio in ratios]
    report["ratio_median"] = round(statistics.median(ratios), 3)
    report["ratio_worst"] = round(min(ratios), 3)
    report["ratio_spread"] = round(max(ratios) - min(ratios), 3)
    report["ratio_quartiles"] = [[round(value, 3) for value in gain.ratio_bounds] for gain in gains(results)]
    report["nics_off_plan"] = sum(len(find_misplaced_traffic(result.nic_bytes)) for result in results)
    report["wrong_elements"] = sum(timing.wrong for timing in one + four)
    return report


def costs(results: list[CollectiveResult], rate_mbps: float) -> dict[str, object]:
    """Return the processor time of the ranks in the first run (with their start), in a later run, and in all runs."""
    machine = measure_machine()
    four = of_configuration(results, "four rings")
    sent_mbit = SIZE_BYTES * 8 / 1e6 * 12 * 22 / 12
    carried = sent_mbit / statistics.median(timing.processor_s for timing in four)
    return {
        "processor_s_first_run": round(results[0].processor_s, 2),
        "processor_s_later_run": round(statistics.median(result.processor_s for result in results[1:]), 2),
        "processor_s_all_runs": round(sum(result.processor_s for result in results), 2),
        "copy_mbps": round(machine.copy_mbps),
        "copy_over_carried": round(machine.copy_mbps / carried, 2),
        "rate_now": asdict(fit_rate(rate_mbps, machine, nic_count=48)),
    }


def machine_s() -> float:
    """Return the seconds that all processors were not idle since the machine started."""
    ticks = [
        int(word) for word in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    ]
    return float(sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description="Gain of four rings over one.")
    parser.add_argument("--rate-mbps", type=float, help="fixed rate of the links")
    options = parser.parse_args()
    begin, load, used = time.monotonic(), os.getloadavg()[0], machine_s()
    with (
        start_lab(set_link_rate(load_lab(LAB), options.rate_mbps), hosts="kernel", may_move=True) as up,
        tempfile.TemporaryDirectory() as scratch,
        Journal(Path(scratch) / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        results = runs(session)
    line = {
        "benchmark": "collectives",
        "simulated": True,
        "hosts": "kernel",
        "nodes": len(up.lab.hosts),
        "size_bytes": SIZE_BYTES,
        "runs": RUNS,
        "a_run_is": "one measurement, with process groups of its own",
        "iterations": ITERATIONS,
        "rate_mbps": up.lab.link.rate_mbps,
        **figures(results),
        **costs(results, up.lab.link.rate_mbps),
        "machine_s": round(machine_s() - used, 1),
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
