"""What a whole-switch apply costs beyond the switch itself: 48 cross-connects in one command, over SCPI.

The twin says on its control socket how long it was busy; that is taken away from the time of the apply.
The journal's disk sync is measured in a second series and reported apart.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ocs_drivers import open_switch
from ocs_drivers.model import CrossConnects
from testbed.lab.control import control
from testbed.operate.journal import Journal

SIZE = 48
REPEATS = 40
ASKED_SOFTWARE_MS = 5.0


@contextmanager
def twin() -> Iterator[dict[str, str]]:
    command = [sys.executable, "-m", "sim.twins.polatis", "--inputs", str(SIZE), "--outputs", str(SIZE)]
    places = ["--scpi", "127.0.0.1:0", "--tl1", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()


def shifted(by: int) -> CrossConnects:
    """Every input to an output, rotated by so many."""
    return CrossConnects({i + 1: SIZE + 1 + (i + by) % SIZE for i in range(SIZE)})


def busy_s(address: str) -> float:
    return float(control(address, {"do": "truth"})["busy_s"])


def series(address: str, apply: Callable[[CrossConnects], object]) -> tuple[list[float], list[float]]:
    """Total and device time of each apply, in ms."""
    totals, devices = [], []
    for repeat in range(REPEATS):
        before = busy_s(address)
        begin = time.perf_counter()
        apply(shifted(1 + repeat % (SIZE - 1)))
        totals.append((time.perf_counter() - begin) * 1e3)
        devices.append((busy_s(address) - before) * 1e3)
    return totals, devices


def main() -> None:
    with twin() as ready, tempfile.TemporaryDirectory() as scratch:
        with open_switch(f"polatis+scpi://{ready['scpi']}") as switch:
            totals, devices = series(ready["control"], switch.apply)
        with (
            open_switch(f"polatis+scpi://{ready['scpi']}") as switch,
            Journal(Path(scratch) / "j.sqlite") as journal,
        ):
            syncs: list[float] = []

            def journaled(target: CrossConnects) -> None:
                seen = switch.read()
                (step,) = switch.plan(target, seen)
                before = journal.commit_s
                with journal.operation("benchmark") as operation:
                    outcome = switch.execute(
                        step, lambda: journal.intend(operation, "ocs1", 0, switch.address, step)
                    )
                    journal.record(operation, "ocs1", 0, outcome)
                syncs.append((journal.commit_s - before) * 1e3)

            series(ready["control"], journaled)
    software = [total - device for total, device in zip(totals, devices, strict=True)]
    print(
        json.dumps(
            {
                "benchmark": "apply",
                "simulated": True,
                "entries": SIZE,
                "repeats": REPEATS,
                "total_ms_median": round(statistics.median(totals), 3),
                "device_ms_median": round(statistics.median(devices), 3),
                "software_ms_median": round(statistics.median(software), 3),
                "software_ms_worst": round(max(software), 3),
                "asked_software_ms_median_below": ASKED_SOFTWARE_MS,
                "journal_sync_ms_median": round(statistics.median(syncs), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
