"""Time of `testbed verify` on twelve hosts, 48 circuits and 132 pairs of hosts; prints one JSON line.

The topology is applied first, with a journal in a separate directory of runs, and the command verifies the epoch that
is stored there. The command is timed as a process, and its proof alone within a session. The time of the switch is that
of reading its state and its powers in a session. Exit code 1 if the limit is exceeded.
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
from testbed.operate.design import Design, build_design
from testbed.operate.journal import open_journal
from testbed.operate.light import read_light
from testbed.operate.plan import list_circuits
from testbed.operate.session import LabSession, open_lab

ROOT = Path(__file__).parents[1]
ROUNDS = 5
LIMIT_S = 3.0


@contextmanager
def lab_file() -> Iterator[Path]:
    """Yield a copy of the twelve-host lab file with a unique lab name."""
    text = (ROOT / "labs" / "testbed12.yaml").read_text(encoding="utf-8")
    text = text.replace("name: testbed12", f"name: verify-{os.getpid()}")
    text = text.replace("../.venv-host", f"{ROOT}/.venv-host")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lab.yaml")
        path.write_text(text, encoding="utf-8")
        yield path


def median_s(work: Callable[[], object]) -> float:
    """Return the median wall time of `ROUNDS` calls."""
    times = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        work()
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def run_verify(path: Path, runs: Path) -> None:
    """Run the command, and assert that it finds the lab as the stored epoch defines it."""
    command = [sys.executable, "-m", "testbed.cli", "verify", str(path), "--runs-dir", str(runs), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    document = json.loads(process.stdout)
    outcome = [document.get(key) for key in ("epoch", "ok", "links_heard", "pairs_reached")]
    assert outcome == [1, True, 48, 132], document


def measure(session: LabSession, design: Design, path: Path, runs: Path) -> dict[str, float | bool]:
    """Measure the command, the proof and the switch on a lab that is as planned."""
    circuits = list_circuits(session.lab, design.wiring)
    switch_s = median_s(lambda: read_light(circuits, session.switches))
    command_s = median_s(lambda: run_verify(path, runs))
    proof_s = median_s(lambda: session.prove(design))
    return {
        "command_s": round(command_s, 3),
        "proof_s": round(proof_s, 3),
        "switch_s": round(switch_s, 4),
        "beyond_switch_s": round(command_s - switch_s, 3),
        "bar_s": LIMIT_S,
        "met": command_s - switch_s <= LIMIT_S,
    }


def main() -> int:
    """Measure on a lab with the default topology and print the result; return 1 if the limit is exceeded."""
    with (
        lab_file() as path,
        start_lab(load_lab(path), hosts="kernel", may_move=True) as up,
        open_journal(path.parent / "runs") as journal,
        open_lab(up.lab, journal) as session,
    ):
        design = build_design(up.lab)
        session.bring_up(design)
        times = measure(session, design, path, path.parent / "runs")
    print(json.dumps({"hosts": 12, "circuits": 48, "pairs": 132, **times}))
    return 0 if times["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
