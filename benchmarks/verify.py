"""Time of `testbed verify` on twelve hosts and 48 circuits, 132 pairs of hosts included; prints one JSON line.

The topology was applied before, with its journal in a directory of runs of its own, and the command means the epoch
that is stored there. It is timed as a whole process, and its proof alone inside one session. The switch's own time is
that of its reads and of its power readings, as a bare session takes for them. Exit code 1 where the bar is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import Design, design_for
from testbed.operate.journal import journal_in
from testbed.operate.light import read_light
from testbed.operate.plan import circuits_of
from testbed.operate.session import LabSession, open_lab

ROOT = Path(__file__).parents[1]
ROUNDS = 5
BAR_S = 3.0


@contextmanager
def lab_file() -> Iterator[Path]:
    """Provide a copy of the twelve-host lab under a name of its own."""
    text = (ROOT / "labs" / "testbed12.yaml").read_text(encoding="utf-8")
    text = text.replace("name: testbed12", f"name: verify-{os.getpid()}")
    text = text.replace("../.venv-host", f"{ROOT}/.venv-host")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lab.yaml")
        path.write_text(text, encoding="utf-8")
        yield path


def median_s(work: Callable[[], object]) -> float:
    """Return the median wall time of several rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return statistics.median(times)


def verified(path: Path, runs: Path) -> None:
    """Run the command, and demand that it finds everything as the stored epoch says."""
    command = [sys.executable, "-m", "testbed.cli", "verify", str(path), "--runs-dir", str(runs), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    document = json.loads(done.stdout)
    seen = [document.get(key) for key in ("epoch", "ok", "links_heard", "pairs_reached")]
    assert seen == [1, True, 48, 132], document


def measured(session: LabSession, design: Design, path: Path, runs: Path) -> dict[str, float | bool]:
    """Return the times of one lab that is as planned."""
    circuits = circuits_of(session.lab, design.wiring)
    switch_s = median_s(lambda: read_light(circuits, session.switches))
    command_s = median_s(lambda: verified(path, runs))
    proof_s = median_s(lambda: session.prove(design))
    return {
        "command_s": round(command_s, 3),
        "proof_s": round(proof_s, 3),
        "switch_s": round(switch_s, 4),
        "beyond_switch_s": round(command_s - switch_s, 3),
        "bar_s": BAR_S,
        "met": command_s - switch_s <= BAR_S,
    }


def main() -> int:
    """Start the lab, bring the default topology up, time, print; return 1 where the bar is missed."""
    with (
        lab_file() as path,
        start_lab(load_lab(path), hosts="kernel", move=True) as up,
        journal_in(path.parent / "runs") as journal,
        open_lab(up.lab, journal) as session,
    ):
        design = design_for(up.lab)
        session.bring_up(design)
        times = measured(session, design, path, path.parent / "runs")
    print(json.dumps({"hosts": 12, "circuits": 48, "pairs": 132, **times}))
    return 0 if times["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
