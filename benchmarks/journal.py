"""Cost of the journal: of one step, and of a verified change of 48 circuits with and without a journal.

A step costs the commit of its intent and the commit of its outcome, and each commit waits for the disk with the
directory for temporary files. A change is planned, applied and verified by light; both variants alternate on one
simulated switch, whose own time is subtracted. Several processes start at the same time and request leases; each
request is one transaction, and the database is on the same disk.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from ocs_drivers.model import CrossConnects, Outcome, Snapshot, Status, Step
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.leases.listing import read_leases
from testbed.leases.store import LeaseStore
from testbed.operate.design import Design, build_design
from testbed.operate.journal import Journal, open_journal
from testbed.operate.session import LabSession, open_lab
from testbed.storage.database import Database

LAB = Path(__file__).parent.parent / "labs" / "testbed12.yaml"
STEPS = 1000
LEASES, PROCESSES = 100, 8
REPEATS = 40


def step_costs_ms(journal: Journal) -> list[float]:
    """Measure the two commits of each of `STEPS` steps with 48 circuits, in ms."""
    circuits = CrossConnects({port: 48 + port for port in range(1, 49)})
    step = Step("replace", circuits, CrossConnects(), circuits)
    outcome = Outcome(Status.DONE, {}, Snapshot(circuits, 0.0))
    costs = []
    with journal.open_operation("lab") as operation:
        for ordinal in range(STEPS):
            begin = time.perf_counter()
            journal.store_intent(operation, "ocs1", ordinal, "polatis+scpi://10.99.0.2:5025", step)
            journal.store_outcome(operation, "ocs1", ordinal, outcome)
            costs.append((time.perf_counter() - begin) * 1e3)
    return costs


def without_journal(session: LabSession, design: Design) -> None:
    """Plan a change, apply it with the drivers alone, and verify it."""
    plan = session.plan(design)
    for part in plan.switches:
        session.switches[part.switch].apply(part.target, scope=part.scope)
    assert session.verify(plan).ok


def with_journal(session: LabSession, design: Design) -> None:
    """Plan a change, apply it with an intent for every step, and verify it."""
    assert session.bring_up(design).verify_report.ok


def request_leases(path: Path, process: int, start: Barrier, times: Queue[list[float]]) -> None:
    """Request the leases of one process, and put the time in ms of each into the queue."""
    database, spent = Database(path), []
    store = LeaseStore(database, "lab")
    start.wait()
    for number in range(process, LEASES, PROCESSES):
        begin, board = time.perf_counter(), f"board:{number % 10}"
        store.request((board,), frozenset({board}))
        spent.append((time.perf_counter() - begin) * 1e3)
    database.close()
    times.put(spent)


def lease_costs(path: Path) -> dict[str, float]:
    """Measure concurrent lease requests: the time of all and of one, and the numbers of lost and duplicate leases."""
    forking = multiprocessing.get_context("fork")
    Database(path).prepare()
    start, times = forking.Barrier(PROCESSES + 1), forking.Queue()
    processes = [
        forking.Process(target=request_leases, args=(path, number, start, times))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    start.wait()
    begin = time.perf_counter()
    spent = sorted(one for _ in processes for one in times.get(timeout=120))
    all_s = time.perf_counter() - begin
    for process in processes:
        process.join()
    leases = read_leases(path, "lab")
    held = [part for one in leases if one.is_held for part in one.parts]
    return {
        "leases": LEASES,
        "processes": PROCESSES,
        "leases_s": round(all_s, 2),
        "lease_ms_p50": round(spent[len(spent) // 2], 1),
        "lease_ms_p99": round(spent[len(spent) * 99 // 100], 1),
        "leases_lost": LEASES - len({one.arrival for one in leases}),
        "leases_double": len(held) - len(set(held)),
    }


def software_ms(change: Callable[[], None], address: str) -> float:
    """Return the time of a change without that of the switch, in ms."""
    before, begin = busy_s(address), time.perf_counter()
    change()
    return (time.perf_counter() - begin - (busy_s(address) - before)) * 1e3


def busy_s(address: str) -> float:
    return float(send_request(address, {"do": "truth"})["busy_s"])


def main() -> None:
    changes: dict[str, list[float]] = {"with_journal": [], "without_journal": []}
    with (
        tempfile.TemporaryDirectory() as scratch,
        start_lab(load_lab(LAB), hosts="model", may_move=True) as lab,
        open_journal(scratch) as journal,
        open_lab(lab.lab, journal, model_hosts=True) as session,
    ):
        costs = sorted(step_costs_ms(journal))
        designs = [build_design(lab.lab), build_design(lab.lab, simplex=True)]
        ways = {"with_journal": with_journal, "without_journal": without_journal}
        for repeat in range(2 * REPEATS):
            name = ("with_journal", "without_journal")[repeat // 2 % 2]
            design = designs[repeat % 2]
            spent = software_ms(lambda: ways[name](session, design), lab.control_addresses["ocs1"])  # noqa: B023 - called at once
            changes[name].append(spent)
    with tempfile.TemporaryDirectory() as scratch:
        leases = lease_costs(Path(scratch) / "lightbed.sqlite")
    medians = {f"{name}_ms_median": round(statistics.median(spent), 2) for name, spent in changes.items()}
    print(
        json.dumps(
            {
                "benchmark": "journal",
                "simulated": True,
                "steps": STEPS,
                "step_ms_p50": round(costs[len(costs) // 2], 2),
                "step_ms_p99": round(costs[len(costs) * 99 // 100], 2),
                "circuits": 48,
                "repeats": REPEATS,
                **medians,
                **leases,
            }
        )
    )


if __name__ == "__main__":
    main()
