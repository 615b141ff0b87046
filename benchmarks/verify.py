"""Time of `testbed verify` on twelve hosts and 48 circuits, 132 pairs of hosts included; prints one JSON line.

The command is timed as a whole process, and its proof alone inside one session. The switch's own time is that of its
reads and of its power readings, as a bare session takes for them.
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
from testbed.operate.journal import Journal
from testbed.operate.light import read_light
from testbed.operate.plan import circuits_of
from testbed.operate.session import Design, LabSession, design_for, open_lab

ROOT = Path(__file__).parents[1]
ROUNDS = 5
ASKED_S = 3.0


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


def verified(path: Path) -> None:
    """Run the command, and demand that it finds everything as planned."""
    command = [sys.executable, "-m", "testbed.cli", "verify", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    document = json.loads(done.stdout)
    assert (document["links_heard"], document["pairs_reached"]) == (48, 132), document


def measured(session: LabSession, design: Design, path: Path) -> dict[str, float]:
    """Return the times of one lab that is as planned."""
    circuits = circuits_of(session.lab, design.wiring)
    switch_s = median_s(lambda: read_light(circuits, session.switches))
    command_s = median_s(lambda: verified(path))
    proof_s = median_s(lambda: session.prove(design))
    return {
        "command_s": round(command_s, 3),
        "proof_s": round(proof_s, 3),
        "switch_s": round(switch_s, 4),
        "beyond_switch_s": round(command_s - switch_s, 3),
        "asked_beyond_switch_s": ASKED_S,
    }


def main() -> None:
    """Start the lab, bring the default topology up, time, print."""
    with (
        lab_file() as path,
        start_lab(load_lab(path), hosts="kernel", move=True) as up,
        Journal(path.parent / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        design = design_for(up.lab)
        session.bring_up(design)
        print(json.dumps({"hosts": 12, "circuits": 48, "pairs": 132, **measured(session, design, path)}))


if __name__ == "__main__":
    main()
