"""One host's part of a training iteration: computation is a wait, and tensors are bytes on the planned routes.

    python3 iteration.py RANK

prints `{"event": "ready", "rank", "port"}` when it listens, and then waits for one line of input, its part of the job:

    {"addresses": [["10.100.1.100", "198.18.5.145"], ...], "ports": [40123, ...], "barrier": "10.99.0.11:40123",
     "nics": ["nic1", ...], "nodes": 12, "warm_up": 1, "iterations": 3, "timeout_s": 60,
     "pace_bytes": 12500000, "checkpoint_bytes": 0, "checkpoint_every": 1,
     "tasks": [{"id": 0, "computes": true, "seconds": 0.01, "after": [], "send": [], "receive": 0},
               {"id": 1, "computes": false, "seconds": 0, "after": [0], "send": [[3, 0, 1000], [3, 1, 500]], ...}]}

A task that computes occupies the host's one device for its seconds; tasks get the device first come, first served. Any
other task waits for its seconds, then sends each `[target, set, bytes]`. It is done when the kernel has accepted these
bytes and `receive` parts have arrived. Each pair of hosts has one connection per set of routes. It is between the
addresses of that set, so that the kernel keeps it on the routes of the set.

With a checkpoint, every `checkpoint_every`-th iteration also writes `checkpoint_bytes` to a file in `checkpoint_folder`
(default: /var/tmp), and ends when they are on the disk. Otherwise a small write after each iteration measures the disk.

The program prints JSON lines: `ready`; `row` (seconds of each iteration, counters of the NICs before and after,
bytes that TCP retransmitted by target and set, use of the processors, and what the host has `seen`); `done` or `error`.
Barriers between iterations use the management network. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from testbed.node.messages import HEADER, PIECE_BYTES, ZEROS, HostConnections
    from testbed.node.watch import (
        RankWatch,
        find_disk_folder,
        probe_disk,
        read_moment,
        read_others_processor_s,
        subtract_moments,
        write_durably,
    )
except ModuleNotFoundError:  # a copy on a host, beside copies of these files
    sys.path.insert(0, str(Path(__file__).parent))
    from messages import HEADER, PIECE_BYTES, ZEROS, HostConnections  # type: ignore[import-not-found,no-redef]
    from watch import (  # type: ignore[import-not-found,no-redef]
        RankWatch,
        find_disk_folder,
        probe_disk,
        read_moment,
        read_others_processor_s,
        subtract_moments,
        write_durably,
    )

EXIT_FAILED, EXIT_NO_JOB = 1, 1


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


class Iteration:
    """One iteration of this host's part: tasks that wait for other tasks, and for data."""

    def __init__(self, host: HostConnections, job: dict[str, Any]) -> None:
        self.host = host
        self.task_by_number = {task["id"]: task for task in job["tasks"]}
        self.open_dependency_counts = {
            task_number: len(task["after"]) for task_number, task in self.task_by_number.items()
        }
        self.successors_by_number: dict[int, list[int]] = {}
        for task_number, task in self.task_by_number.items():
            for dependency in task["after"]:
                self.successors_by_number.setdefault(dependency, []).append(task_number)
        self.open_part_count_by_number = {
            task_number: len(task["send"]) + task["receive"]
            for task_number, task in self.task_by_number.items()
        }
        self.unfinished_count = len(self.task_by_number)
        self.ready_tasks: list[tuple[float, int]] = []
        self.is_busy = False
        self.computing_s = 0.0
        self.compute_start_s = 0.0

    def run(self, deadline_s: float) -> float:
        """Run the iteration and return its seconds. Raises `TimeoutError`, `OSError`."""
        self.host.on_arrival = self._count_part
        begin_s = time.monotonic()
        for number, open_dependency_count in list(self.open_dependency_counts.items()):
            if not open_dependency_count:
                self._start_task(number, begin_s)
        while self.unfinished_count:
            self.host.serve_once(deadline_s)
        return time.monotonic() - begin_s

    def _start_task(self, number: int, now_s: float) -> None:
        task = self.task_by_number[number]
        if task["computes"]:
            heapq.heappush(self.ready_tasks, (now_s, number))
            if not self.is_busy:
                self._start_computing(now_s)
        elif task["seconds"]:
            self.host.schedule_call(now_s + task["seconds"], lambda _due_s: self._send_parts(number))
        else:
            self._send_parts(number)

    def _start_computing(self, now_s: float) -> None:
        """Give the device to the first waiting task. Its time counts from `now_s`, so that delays do not add up."""
        if self.ready_tasks:
            ready_s, number = heapq.heappop(self.ready_tasks)
            self.is_busy, self.compute_start_s = True, time.monotonic()
            end_s = max(now_s, ready_s) + self.task_by_number[number]["seconds"]
            self.host.schedule_call(end_s, lambda due_s: self._finish_computing(number, due_s))

    def _finish_computing(self, number: int, due_s: float) -> None:
        self.is_busy = False
        self.computing_s += time.monotonic() - self.compute_start_s
        self._end_task(number, due_s)
        if not self.is_busy:
            self._start_computing(due_s)

    def _send_parts(self, number: int) -> None:
        """Send the parts of a task. A task without parts to send or receive is done."""
        if not self.open_part_count_by_number[number]:
            self._end_task(number, time.monotonic())
        for target, route_set, size in self.task_by_number[number]["send"]:
            outgoing = self.host.outgoing[target, route_set]
            outgoing.queue_message(HEADER.pack(number, size), size, lambda: self._count_part(number))
            outgoing.write()

    def _count_part(self, number: int) -> None:
        """Count a part that has arrived or that the kernel has accepted. Raise `ValueError` if too many arrive."""
        self.open_part_count_by_number[number] -= 1
        if self.open_part_count_by_number[number] < 0:
            raise ValueError(f"more data of task {number} arrived than planned")
        if not self.open_part_count_by_number[number]:
            self._end_task(number, time.monotonic())

    def _end_task(self, number: int, now_s: float) -> None:
        """End a task, and start the tasks that waited only for it."""
        self.unfinished_count -= 1
        for successor in self.successors_by_number.get(number, ()):
            self.open_dependency_counts[successor] -= 1
            if not self.open_dependency_counts[successor]:
                self._start_task(successor, now_s)


def read_counters(nics: list[str]) -> dict[str, list[int]]:
    """Return [bytes, packets] that each NIC has sent since it came up."""
    path_format = "/sys/class/net/{}/statistics/tx_{}"
    return {
        nic: [
            int(Path(path_format.format(nic, unit)).read_text(encoding="ascii"))
            for unit in ("bytes", "packets")
        ]
        for nic in nics
    }


def read_busy_ticks() -> tuple[int, int]:
    """Return the busy ticks of all processors of this machine, and all ticks."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - a dozen of these processes start at once
        ticks = [int(count) for count in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def run_job(host_connections: HostConnections, job: dict[str, Any]) -> dict[str, object]:
    """Run all iterations and return the row of this host."""
    deadline_s = time.monotonic() + job["timeout_s"]
    host_connections.connect(job)
    host_connections.wait_for_all()
    for _ in range(job["warm_up"]):
        _run_iteration(host_connections, job, deadline_s)
    counters_before, ticks_before = read_counters(job["nics"]), read_busy_ticks()
    retransmitted_before = {
        pair: outgoing.count_retransmitted_bytes() for pair, outgoing in host_connections.outgoing.items()
    }
    own_before_s, others_before_s = time.process_time(), read_others_processor_s()
    watch = RankWatch(
        [(pair, outgoing.connection) for pair, outgoing in host_connections.outgoing.items()], job["nics"]
    )
    host_connections.wait_for_all()
    watch.begin()
    times_s, observations = [], []
    last_s = time.monotonic()
    for iteration_number in range(1, job["iterations"] + 1):
        totals_before, waiting_s = read_moment(watch), host_connections.waiting_s
        iteration = Iteration(host_connections, job)
        iteration_s, writes_s = iteration.run(deadline_s), 0.0
        if job.get("checkpoint_bytes") and iteration_number % job["checkpoint_every"] == 0:
            writes_s = _write_checkpoint(job)
        process_seconds, end_s = subtract_moments(totals_before, read_moment(watch)), time.monotonic()
        times_s.append(iteration_s + writes_s)
        probe_s = 0.0 if job.get("checkpoint_bytes") else probe_disk()
        observations.append(
            {
                **process_seconds,
                "seconds": end_s - last_s,
                "waiting_s": host_connections.waiting_s - waiting_s,
                "computing_s": iteration.computing_s,
                "planned_s": sum(task["seconds"] for task in job["tasks"] if task["computes"]),
                "writes_s": writes_s,
                "disk_s": writes_s + probe_s,
            }
        )
        host_connections.wait_for_all()
        last_s = time.monotonic()
    flows = watch.end()
    ticks_after, counters_after = read_busy_ticks(), read_counters(job["nics"])
    busy_ticks, all_ticks = (
        later_value - earlier_value
        for earlier_value, later_value in zip(ticks_before, ticks_after, strict=True)
    )
    return {
        "times": times_s,
        "before": counters_before,
        "after": counters_after,
        "retransmitted": [
            [*pair, outgoing.count_retransmitted_bytes() - retransmitted_before[pair]]
            for pair, outgoing in host_connections.outgoing.items()
        ],
        "busy": busy_ticks / max(1, all_ticks),
        "processor_s": time.process_time() - own_before_s,
        "seen": {
            "iterations": observations,
            "flows": [[*pair, figures] for pair, figures in flows],
            "nics": watch.describe_nics(),
            "others_s": read_others_processor_s() - others_before_s,
        },
    }


def _run_iteration(host_connections: HostConnections, job: dict[str, Any], deadline_s: float) -> float:
    """Run an iteration between two barriers; return its seconds on this host."""
    iteration_s = Iteration(host_connections, job).run(deadline_s)
    host_connections.wait_for_all()
    return iteration_s


def _write_checkpoint(job: dict[str, Any]) -> float:
    """Write a checkpoint to the disk of this host, remove it, and return the seconds of writing. Raise `OSError`."""
    folder = Path(job["checkpoint_folder"]) if job["checkpoint_folder"] else find_disk_folder()
    path, checkpoint_bytes = (
        folder / f"lightbed-checkpoint-{os.getpid()}-{platform.node()}",
        job["checkpoint_bytes"],
    )
    try:
        return float(
            write_durably(
                path,
                (ZEROS[: checkpoint_bytes - offset] for offset in range(0, checkpoint_bytes, PIECE_BYTES)),
            )
        )
    finally:
        path.unlink(missing_ok=True)


def main() -> int:
    """Run this host's part; return the exit status."""
    host_connections = HostConnections(int(sys.argv[1]))
    print_event("ready", rank=host_connections.rank, port=host_connections.server.getsockname()[1])
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return EXIT_NO_JOB
    try:
        row = run_job(host_connections, json.loads(line))
    except (OSError, ValueError, KeyError) as error:
        print_event(
            "error",
            rank=host_connections.rank,
            message=(str(error).strip() or type(error).__name__).splitlines()[0][:500],
        )
        return EXIT_FAILED
    print_event("row", rank=host_connections.rank, **row)
    print_event("done", rank=host_connections.rank)
    with suppress(OSError):
        host_connections.wait_for_all()  # an early exit would close connections that other hosts still use
    return 0


if __name__ == "__main__":
    sys.exit(main())
