"""The service and its clients on one machine: event streams, reads of a lab, and a command compared with a direct one.

Each prints one line. A separate process writes events into the journal, ten per commit. Each event holds the time just
before its commit, so the time to a client includes the commit. Streams and reads use the Python client in one process.
Reads are scheduled in advance, and their time counts from the scheduled time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from testbed.client import connect_async
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.engine.planned import format_now
from testbed.storage.address import get_database_address
from testbed.storage.database import Database
from testbed.storage.schema import step_events
from testbed.storage.tokens import TokenStore

ROOT = Path(__file__).parents[1]
LAB = ROOT / "labs" / "testbed12.yaml"
NAME = "of-the-benchmark"
STREAMS, RUNS = 100, 10
EVENTS_PER_S, EVENTS_S = 1_000, 15
READS_PER_S, READS_S, READERS = 500, 15, 16
COMMANDS = 9


@contextmanager
def service(lab_file: Path, runs: Path) -> Iterator[str]:
    """Start `testbed serve` as a process, and yield its URL."""
    words = [sys.executable, "-m", "testbed.cli", "serve", "--lab", str(lab_file), "--port", "0", "--json"]
    with subprocess.Popen([*words, f"--runs-dir={runs}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def write_events(runs: Path, events: int, begin_s: float) -> None:
    """Write events into the journal at `EVENTS_PER_S`; each commit holds one event of each of the `RUNS` runs."""
    database = Database(get_database_address(runs))
    for at in range(events // RUNS):
        wait_s = begin_s + at * RUNS / EVENTS_PER_S - time.time()
        if wait_s > 0:
            time.sleep(wait_s)
        common = {"operation": "", "switch": "", "ordinal": 0, "event": "tick", "data": "{}", "lab": NAME}
        moment = format_now()
        rows = [{**common, "at": moment, "run": f"run{which}"} for which in range(RUNS)]
        with database.open_transaction() as connection:
            connection.execute(sa.insert(step_events), rows)
    database.close()


async def follow(
    url: str, context: ssl.SSLContext, which: int, many: int, ready: asyncio.Event
) -> list[float]:
    """Follow the events of one run until `many` have arrived; return the time in ms from journal to client of each."""
    times, last = [], 0
    async with connect_async(url, verify=context) as client:
        async for event in client.events(run=f"run{which}", after_number=None):
            if event.kind == "snapshot":
                ready.set()
                continue
            times.append((time.time() - datetime.fromisoformat(event.document["at"]).timestamp()) * 1e3)
            assert event.number > last, "an event was sent twice"
            last = event.number
            if len(times) == many:
                return times
    return times


async def streams(url: str, runs: Path) -> dict[str, object]:
    """Measure `STREAMS` concurrent streams: events received and lost, and the times from journal to client."""
    context, events = ssl.create_default_context(), EVENTS_PER_S * EVENTS_S
    ready = [asyncio.Event() for _ in range(STREAMS)]
    followers = [
        asyncio.create_task(follow(url, context, at % RUNS, events // RUNS, one))
        for at, one in enumerate(ready)
    ]
    await asyncio.gather(*(one.wait() for one in ready))
    words = [sys.executable, __file__, "--write", str(runs), str(events), str(time.time() + 2)]
    writer = await asyncio.create_subprocess_exec(*words)
    begin, spent = time.time() + 2, time.process_time()
    done, pending = await asyncio.wait(followers, timeout=2 + 3 * EVENTS_S)
    await writer.wait()
    for one in pending:
        one.cancel()
    times = sorted(ms for one in done for ms in one.result())
    return {
        "benchmark": "service_streams",
        "streams": STREAMS,
        "events_per_s": round(events / (time.time() - begin)),
        "asked_events_per_s": EVENTS_PER_S,
        "received": len(times),
        "lost": events // RUNS * STREAMS - len(times),
        "asked_lost": 0,
        **quantiles(times),
        "client_cpu_s": round(time.process_time() - spent, 1),
    }


async def reads(url: str) -> dict[str, object]:
    """Measure reads of a lab's state at `READS_PER_S`, distributed over `READERS` connections."""
    context = ssl.create_default_context()
    labs = [connect_async(url, verify=context).lab(NAME) for _ in range(READERS)]
    for lab in labs:
        await lab.read_state()
    begin, spent = time.perf_counter() + 0.1, time.process_time()

    async def reader(which: int) -> list[float]:
        times = []
        for at in range(which, READS_PER_S * READS_S, READERS):
            due_s = begin + at / READS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            await labs[which].read_state()
            times.append((time.perf_counter() - due_s) * 1e3)
        return times

    every = await asyncio.gather(*(reader(which) for which in range(READERS)))
    times = sorted(ms for each in every for ms in each)
    return {
        "benchmark": "service_reads",
        "reads": len(times),
        "reads_per_s": round(len(times) / (time.perf_counter() - begin)),
        "asked_reads_per_s": READS_PER_S,
        **quantiles(times),
        "asked_ms_p99": 50,
        "client_cpu_s": round(time.process_time() - spent, 1),
    }


def quantiles(times: Sequence[float]) -> dict[str, float]:
    """Return the median, p99 and maximum of sorted times in ms."""
    if not times:
        return {}
    return {
        "ms_p50": round(times[len(times) // 2], 1),
        "ms_p99": round(times[len(times) * 99 // 100], 1),
        "ms_max": round(times[-1], 1),
    }


def commands(url: str, lab_file: Path, runs: Path) -> dict[str, object]:
    """Measure `testbed plan` as a process, alternately direct and through the service."""
    ways = {"direct": [f"--runs-dir={runs}"], "through": [f"--server={url}"]}
    environment = os.environ | {"LIGHTBED_TOKEN": token_of(runs)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    answers = set()
    for _ in range(COMMANDS):
        for way, options in ways.items():
            words = [sys.executable, "-m", "testbed.cli", "plan", str(lab_file), "--json", *options]
            begin = time.perf_counter()
            process = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            times[way].append((time.perf_counter() - begin) * 1e3)
            answers.add((process.returncode, stable_part(json.loads(process.stdout))))
    medians = {f"{way}_ms_median": round(statistics.median(each)) for way, each in times.items()}
    return {
        "benchmark": "service_command",
        "command": "plan",
        "repeats": COMMANDS,
        **medians,
        "different_answers": len(answers) - 1,
        "asked_different_answers": 0,
    }


def token_of(runs: Path) -> str:
    """Create a token of an operator."""
    database = Database(get_database_address(runs))
    _, text = TokenStore(database).create("ann", "operator", lifetime=timedelta(hours=1))
    database.close()
    return text


def stable_part(document: Mapping[str, object]) -> str:
    """Return a document as text, without the values that each reading changes."""
    stable = {
        name: value for name, value in document.items() if name not in ("revision", "taken", "expected")
    }
    return json.dumps(stable, sort_keys=True)


def measure(name: str, url: str, lab_file: Path, runs: Path) -> dict[str, object]:
    """Run a measurement, and return its line."""
    if name == "command":
        return commands(url, lab_file, runs)
    return asyncio.run(streams(url, runs) if name == "streams" else reads(url))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("streams", "reads", "command"))
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        folder, events, begin_s = arguments.write
        write_events(Path(folder), int(events), float(begin_s))
        return
    lab = replace(load_lab(LAB), name=NAME)
    with tempfile.TemporaryDirectory() as scratch, start_lab(lab, hosts="model", may_move=True) as up:
        lab_file, runs = Path(scratch) / "lab.yaml", Path(scratch) / "runs"
        lab_file.write_text(render_lab(up.lab), encoding="utf-8")
        with service(lab_file, runs) as url:
            for name in ("streams", "reads", "command"):
                if arguments.only in (None, name):
                    load = os.getloadavg()[0]
                    line = measure(name, url, lab_file, runs)
                    print(
                        json.dumps(line | {"load_before": round(load, 1), "cores": os.cpu_count()}),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
