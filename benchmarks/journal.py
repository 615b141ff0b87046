"""Cost of the journal: of one step, and of a verified change of 48 circuits beside the same change without a journal.

A step costs the commit of its intent and the commit of its outcome, each of which waits for the disk that the directory
for temporary files lies on. A change is planned, applied and proven by light; both ways take turns on one simulated
switch, whose own time is taken away. Leases are requested by processes that all begin at once; each request is one
transaction, and the database is on the same disk.
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
from testbed.lab.control import control
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.leases.listing import read_leases
from testbed.leases.store import LeaseStore
from testbed.operate.design import Design, design_for
from testbed.operate.journal import Journal, journal_in
from testbed.operate.session import LabSession, open_lab
from testbed.storage.database import Database

LAB = Path(__file__).parent.parent / "labs" / "testbed12.yaml"
STEPS = 1000
LEASES, PROCESSES = 100, 8
REPEATS = 40


def step_costs_ms(journal: Journal) -> list[float]:
    """Return the time in ms of the two commits of each of `STEPS` steps of 48 circuits."""
    circuits = CrossConnects({port: 48 + port for port in range(1, 49)})
    step = Step("replace", circuits, CrossConnects(), circuits)
    outcome = Outcome(Status.DONE, {}, Snapshot(circuits, 0.0))
    costs = []
    with journal.operation("lab") as operation:
        for ordinal in range(STEPS):
            begin = time.perf_counter()
            journal.intend(operation, "ocs1", ordinal, "polatis+scpi://10.99.0.2:5025", step)
            journal.record(operation, "ocs1", ordinal, outcome)
            costs.append((time.perf_counter() - begin) * 1e3)
    return costs


def without_journal(session: LabSession, design: Design) -> None:
    """Plan, apply by the drivers alone, and prove."""
    plan = session.plan(design)
    for part in plan.switches:
        session.switches[part.switch].apply(part.target, scope=part.scope)
    assert session.verify(plan).ok


def with_journal(session: LabSession, design: Design) -> None:
    """Plan, apply with an intent for every step, and prove."""
    assert session.bring_up(design).verified.ok


def request_leases(path: Path, mine: int, together: Barrier, times: Queue[list[float]]) -> None:
    """Request this process's share of the leases; tell the time in ms of each."""
    database, spent = Database(path), []
    store = LeaseStore(database, "lab")
    together.wait()
    for number in range(mine, LEASES, PROCESSES):
        begin, board = time.perf_counter(), f"board:{number % 10}"
        store.request((board,), frozenset({board}))
        spent.append((time.perf_counter() - begin) * 1e3)
    database.close()
    times.put(spent)


def lease_costs(path: Path) -> dict[str, float]:
    """Return the time until all leases were requested, that of one, and how many were lost or are double."""
    forking = multiprocessing.get_context("fork")
    Database(path).prepare()
    together, times = forking.Barrier(PROCESSES + 1), forking.Queue()
    asking = [
        forking.Process(target=request_leases, args=(path, mine, together, times))
        for mine in range(PROCESSES)
    ]
    for process in asking:
        process.start()
    together.wait()
    begin = time.perf_counter()
    spent = sorted(one for _ in asking for one in times.get(timeout=120))
    all_s = time.perf_counter() - begin
    for process in asking:
        process.join()
    kept = read_leases(path, "lab")
    held = [part for one in kept if one.is_held for part in one.parts]
    return {
        "leases": LEASES,
        "processes": PROCESSES,
        "leases_s": round(all_s, 2),
        "lease_ms_p50": round(spent[len(spent) // 2], 1),
        "lease_ms_p99": round(spent[len(spent) * 99 // 100], 1),
        "leases_lost": LEASES - len({one.arrival for one in kept}),
        "leases_double": len(held) - len(set(held)),
    }


def software_ms(change: Callable[[], None], address: str) -> float:
    """Return the time in ms that a change takes beyond that of the switch."""
    before, begin = busy_s(address), time.perf_counter()
    change()
    return (time.perf_counter() - begin - (busy_s(address) - before)) * 1e3


def busy_s(address: str) -> float:
    return float(control(address, {"do": "truth"})["busy_s"])


def main() -> None:
    changes: dict[str, list[float]] = {"with_journal": [], "without_journal": []}
    with (
        tempfile.TemporaryDirectory() as scratch,
        start_lab(load_lab(LAB), hosts="model", move=True) as lab,
        journal_in(scratch) as journal,
        open_lab(lab.lab, journal, model_hosts=True) as session,
    ):
        costs = sorted(step_costs_ms(journal))
        designs = [design_for(lab.lab), design_for(lab.lab, simplex=True)]
        ways = {"with_journal": with_journal, "without_journal": without_journal}
        for repeat in range(2 * REPEATS):
            name = ("with_journal", "without_journal")[repeat // 2 % 2]
            design = designs[repeat % 2]
            spent = software_ms(lambda: ways[name](session, design), lab.control["ocs1"])  # noqa: B023 - called at once
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
