"""Tables of the time that the test suite takes: `make test` prints that of the lanes, `make test-times` prints all.

python -m tools.test_times lanes              the table of lanes
python -m tools.test_times all [FILE]         lanes, and the slowest files, tests and fixtures with their shares
python -m tools.test_times run LANE COMMAND   run a command, and record it as a lane
python -m tools.test_times test LANE OPTIONS  run pytest as a lane, and failed tests a second time
python -m tools.test_times clear              delete the records of all lanes
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

TIMES = Path(__file__).resolve().parents[1] / "build" / "test-times.json"

MAX_FLAKY = 3
"""If more tests fail, the failure is not by chance, and there is no second run."""

Spent = tuple[float, float]
"""Wall and processor time in s."""


def read_lanes(path: Path = TIMES) -> dict[str, Any]:
    """Return the entries of the lanes by name; {} if nothing was recorded."""
    return json.loads(path.read_text()) if path.is_file() else {}


def format_lanes(lanes: dict[str, Any]) -> list[str]:
    """Return the table of the lanes with a total; the total wall time accounts for lanes that run in parallel."""
    rows = [(name, lane["tests"], lane["wall_s"], lane["processor_s"]) for name, lane in lanes.items()]
    tests, spent_s = (sum(row[column] for row in rows) for column in (1, 3))
    ends_s = [lane["ended_s"] for lane in lanes.values()]
    begins_s = [lane["ended_s"] - lane["wall_s"] for lane in lanes.values()]
    rows.append(("all", tests, max(ends_s, default=0.0) - min(begins_s, default=0.0), spent_s))
    lines = [f"{'lane':<12}{'tests':>8}{'wall':>10}{'processor':>12}"]
    lines += [f"{name:<12}{tests:>8}{wall:>8.0f} s{spent:>10.0f} s" for name, tests, wall, spent in rows]
    return lines + [f"FLAKY: {test}" for lane in lanes.values() for test in lane.get("flaky", ())]


def format_slowest(title: str, spent: dict[str, Spent], rows: int) -> list[str]:
    """Return the entries with the most processor time as lines, with their cumulative share of the total."""
    total_s = sum(processor for _, processor in spent.values()) or 1.0
    lines = ["", f"{title}: {len(spent)}, {total_s:.0f} s of processor time", "  processor      wall  so far"]
    so_far_s = 0.0
    for name, (wall, processor) in sorted(spent.items(), key=lambda item: -item[1][1])[:rows]:
        so_far_s += processor
        lines.append(f"{processor:>9.1f} s{wall:>8.1f} s{so_far_s / total_s:>7.0%}  {name}")
    return lines


def add_up(pairs: Iterable[tuple[str, Spent]]) -> dict[str, Spent]:
    """Return the total wall and processor time under each name."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, (wall, processor) in pairs:
        sums[name][0] += wall
        sums[name][1] += processor
    return {name: (wall, processor) for name, (wall, processor) in sums.items()}


def format_all(lanes: dict[str, Any], rows: int = 25) -> list[str]:
    """Return the table of lanes, then for each lane with tests its slowest rooms, files, tests and fixtures."""
    lines = format_lanes(lanes)
    for name, lane in lanes.items():
        spent_by_test = lane.get("each", {})
        if not spent_by_test:
            continue
        lines += ["", f"=== {name}"]
        rooms = add_up(
            ("/".join(test.partition("::")[0].split("/")[1:2]), spent)
            for test, spent in spent_by_test.items()
        )
        lines += format_slowest("rooms", rooms, rows)
        lines += format_slowest(
            "files", add_up((test.partition("::")[0], s) for test, s in spent_by_test.items()), rows
        )
        lines += format_slowest(
            "tests", add_up((test.partition("[")[0], s) for test, s in spent_by_test.items()), rows
        )
        fixtures = ((fixture, (wall, processor)) for fixture, _, wall, processor in lane["fixtures"])
        lines += format_slowest("fixtures", add_up(fixtures), rows)
    return lines


def run_lane(lane: str, command: list[str]) -> int:
    """Run a command other than pytest, record it as a lane, and return its exit code."""
    start, usage_before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    code = subprocess.run(command, check=False).returncode
    usage_after = getrusage(RUSAGE_CHILDREN)
    spent_s = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    entry = {
        "tests": 0,
        "wall_s": time.perf_counter() - start,
        "ended_s": time.time(),
        "processor_s": spent_s,
    }
    _record(lane, entry)
    return code


def _record(lane: str, entry: dict[str, Any]) -> None:
    TIMES.parent.mkdir(exist_ok=True)
    with TIMES.with_suffix(".lock").open("w") as lock:  # lanes run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        lanes = read_lanes(TIMES)
        TIMES.write_text(json.dumps(lanes | {lane: lanes.get(lane, {}) | entry}))


def run_tests(lane: str, options: list[str]) -> int:
    """Run pytest as a lane, and return its exit code.

    A test that fails among others but passes in the second run is flaky. It does not fail the run, because the tested
    change is not its cause; the table of lanes reports it.
    """
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*pytest, "--lane", lane, *options], check=False).returncode
    failed = read_lanes(TIMES).get(lane, {}).get("failed", [])
    if code != 1 or not 0 < len(failed) <= MAX_FLAKY:
        return code
    print("Second run of the failed tests:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([*pytest, *failed], check=False).returncode
    if code == 0:
        _record(lane, {"flaky": failed})
    return code


def main(arguments: list[str]) -> int:
    """Run the command of the arguments (see the module), and return the exit status."""
    match arguments:
        case ["lanes"]:
            print(*format_lanes(read_lanes()), sep="\n")
        case ["all", *path]:
            print(*format_all(read_lanes(Path(path[0]) if path else TIMES)), sep="\n")
        case ["run", lane, *command]:
            return run_lane(lane, command)
        case ["test", lane, *options]:
            return run_tests(lane, options)
        case ["clear"]:
            TIMES.unlink(missing_ok=True)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
