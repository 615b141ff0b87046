"""Overhead of an apply to a whole switch, beyond the time of the switch: 48 cross-connects in one SCPI command.

Two topologies of the 12-node lab are applied alternately, by `LabSession.apply` (three round trips, journal first) and
by the `apply` of the driver. The busy time of the twin, which its control socket reports, is subtracted. The disk sync
of the journal is reported separately.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import build_design
from testbed.operate.journal import open_journal
from testbed.operate.session import LabSession, open_lab

LAB = Path(__file__).parent.parent / "labs" / "testbed12.yaml"
REPEATS = 60
ASKED_SOFTWARE_MS = 5.0


def busy_ms(address: str) -> float:
    return 1e3 * float(send_request(address, {"do": "truth"})["busy_s"])


def measure(session: LabSession, address: str) -> dict[str, list[float]]:
    """Measure the times in ms of `REPEATS` applies with the journal, and of as many by the driver alone."""
    lab = session.lab
    designs = [build_design(lab), build_design(lab, simplex=True)]
    times: dict[str, list[float]] = {"total": [], "device": [], "journal": [], "software": [], "driver": []}
    for repeat in range(REPEATS):
        plan = session.plan(designs[repeat % 2])
        before = busy_ms(address)
        result = session.apply(plan)
        device, journal = busy_ms(address) - before, result.journal_s * 1e3
        times["total"].append(result.total_s * 1e3)
        times["device"].append(device)
        times["journal"].append(journal)
        times["software"].append(result.total_s * 1e3 - device - journal)
    (switch,) = session.switches.values()
    targets = [session.plan(design).switches[0].target for design in designs]
    for repeat in range(REPEATS):
        before, begin = busy_ms(address), time.perf_counter()
        switch.apply(targets[repeat % 2])
        times["driver"].append((time.perf_counter() - begin) * 1e3 - (busy_ms(address) - before))
    return times


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        start_lab(load_lab(LAB), hosts="model", may_move=True) as lab,
        open_journal(scratch) as journal,
        open_lab(lab.lab, journal, model_hosts=True) as session,
    ):
        times = measure(session, lab.control_addresses["ocs1"])
    medians = {f"{name}_ms_median": round(statistics.median(values), 3) for name, values in times.items()}
    print(
        json.dumps(
            {
                "benchmark": "apply",
                "simulated": True,
                "entries": 48,
                "repeats": REPEATS,
                **medians,
                "software_ms_p90": round(statistics.quantiles(times["software"], n=10)[-1], 3),
                "asked_software_ms_median_below": ASKED_SOFTWARE_MS,
            }
        )
    )


if __name__ == "__main__":
    main()
