"""Agent of one host for periodic jobs, which compute and send in turn. The agent keeps each job to its period.

    python3 periodic_job.py

reads two lines. The first, `{"members": [{"job": "x", "listen": "10.100.2.1", "transport": "tcp"}, ...]}`, names the
jobs that run here; `listen` is null where nothing arrives. The answer is `{"event": "ready", "ports": {"x": 40123}}`.
The second, `{"epoch": 1700000000.5, "jobs": {"x": {...}}}`, holds for each job:

    next, port        address and port of the member that it sends to, null where it only receives
    source, mark      own address of what it sends, and priority of its packets
    phases            [[seconds of computing, bytes, bytes a second at most], ...], and `rest_s` after the last
    steps             parts of a burst: each is sent when the previous part has arrived (AllReduce: 2 (k - 1))
    iterations, start_s, slot_s, tolerance, most_alignments
    control, slope, intercept     congestion control; slope and intercept only over UDP
    give_up_s         time limit of an iteration

`start_s` counts from `epoch`, in seconds since 1970; the hosts' clocks must agree to a millisecond. With a `slot_s`
above 0, iteration k begins at `start_s + k * slot_s`. An iteration that is late by more than `tolerance` (a share of
the slot) waits for the next slot.

Prints `ready`; a `row` for each job (`job`, `begins_s` from `epoch`, `computed_s`, `alignments`, `retransmits`);
`done` or `error`. Each job has its own process. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from testbed.node.transfers import EventLoop, ReceivingEnd, SendingEnd, open_incoming, open_outgoing
except ModuleNotFoundError:  # a copy on a host, beside a copy of that file
    sys.path.insert(0, str(Path(__file__).parent))
    from transfers import (  # type: ignore[import-not-found,no-redef]
        EventLoop,
        ReceivingEnd,
        SendingEnd,
        open_incoming,
        open_outgoing,
    )

EXIT_FAILED = 1
SCHED_PRIORITY = 1


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


class SlotSchedule:
    """The times at which iterations of a job may begin."""

    def __init__(self, job: dict[str, Any], start_s: float) -> None:
        self.start_s, self.slot_s = start_s, job["slot_s"]
        self.slot_tolerance, self.max_alignments = job["tolerance"], job["most_alignments"]
        self.slot_index = self.alignments = 0

    def compute_wait_s(self, now_s: float) -> float:
        """Return the seconds until the next iteration. An iteration that is too late skips slots (an alignment).

        >>> slots = SlotSchedule({"slot_s": 1.0, "tolerance": 0.05, "most_alignments": 1}, 10.0)
        >>> [round(slots.compute_wait_s(now), 2) for now in (10.9, 12.04, 13.5, 15.5)], slots.alignments
        ([0.1, 0.0, 0.5, 0.0], 1)
        """
        if self.slot_s <= 0:
            return 0.0
        self.slot_index += 1
        wait_s: float = self.start_s + self.slot_index * self.slot_s - now_s
        if -wait_s > self.slot_tolerance * self.slot_s and self.alignments < self.max_alignments:
            skipped_slot_count = math.ceil(-wait_s / self.slot_s)
            self.slot_index += skipped_slot_count
            self.alignments += 1
            wait_s += skipped_slot_count * self.slot_s
        return max(wait_s, 0.0)


class PeriodicJob:
    """One job on this host, with its sending and receiving ends."""

    def __init__(
        self, job: dict[str, Any], outgoing: SendingEnd | None, incoming: ReceivingEnd | None, loop: EventLoop
    ) -> None:
        self.job, self.outgoing, self.incoming, self.loop = job, outgoing, incoming, loop
        self.compute_time_s = 0.0

    def run(self, epoch_s: float) -> dict[str, object]:
        """Run all iterations and return the row of this job. Raises `TimeoutError`, `OSError`."""
        job_start_s = time.monotonic() + epoch_s + self.job["start_s"] - time.time()
        slots, start_times_s = SlotSchedule(self.job, job_start_s), [job_start_s]
        self.loop.serve_until(job_start_s)
        for _ in range(self.job["iterations"]):
            self._run_iteration(time.monotonic())
            self.loop.serve_until(time.monotonic() + slots.compute_wait_s(time.monotonic()))
            start_times_s.append(time.monotonic())
        return {
            "begins_s": [start_s - job_start_s + self.job["start_s"] for start_s in start_times_s],
            "computed_s": self.compute_time_s,
            "alignments": slots.alignments,
            "retransmits": self.outgoing.retransmit_count if self.outgoing else 0,
        }

    def _run_iteration(self, start_s: float) -> None:
        deadline_s = start_s + self.job["give_up_s"]
        for phase_index, (compute_s, burst_bytes, pace_bytes_per_s) in enumerate(self.job["phases"]):
            self._compute(start_s if phase_index == 0 else time.monotonic(), compute_s)
            self._send_burst(burst_bytes, pace_bytes_per_s, deadline_s)
        self._compute(time.monotonic(), self.job["rest_s"])

    def _compute(self, start_s: float, seconds: float) -> None:
        self.compute_time_s += seconds
        self.loop.serve_until(start_s + seconds)

    def _send_burst(self, size: int, pace_bytes_per_s: float, deadline_s: float) -> None:
        """Send the parts of a burst. Each waits until the previous parts, of this and the other host, have arrived."""
        step_count = self.job["steps"]
        part_size = -(-size // step_count)
        for _ in range(step_count):
            if self.outgoing:
                self.outgoing.begin(part_size, pace_bytes_per_s)
            if self.incoming:
                self.incoming.expect(part_size)
            self.loop.run(self._is_delivered, deadline_s)

    def _is_delivered(self) -> bool:
        return (self.outgoing is None or self.outgoing.is_done) and (
            self.incoming is None or self.incoming.is_done
        )


def run_host_job(job: dict[str, Any], incoming: ReceivingEnd | None, epoch_s: float) -> dict[str, object]:
    """Run one job of this host; return its row. Raises `TimeoutError`, `OSError`."""
    outgoing = open_outgoing(job) if job["next"] else None
    endpoints = [endpoint for endpoint in (outgoing, incoming) if endpoint]
    loop = EventLoop(endpoints)
    try:
        row = PeriodicJob(job, outgoing, incoming, loop).run(epoch_s)
        loop.linger(job["give_up_s"])
    finally:
        for endpoint in endpoints:
            endpoint.close()
    return row


def run_in_processes(
    jobs: dict[str, dict[str, Any]], incoming_endpoints: dict[str, ReceivingEnd | None], epoch_s: float
) -> int:
    """Run each job in its own process; print its row. Return the exit status."""
    job_pipes = []
    for name, job in jobs.items():
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            os.close(read_end)
            os._exit(_run_child(job, incoming_endpoints[name], epoch_s, write_end))
        os.close(write_end)
        job_pipes.append((name, read_end))
    status = 0
    for name, read_end in job_pipes:
        with os.fdopen(read_end) as pipe:
            row = json.loads(pipe.read() or '{"error": "it was killed"}')
        if "error" in row:
            status = EXIT_FAILED
            print_event("error", message=f"job {name}: {row['error']}")
        else:
            print_event("row", job=name, **row)
    return status


def _run_child(job: dict[str, Any], incoming: ReceivingEnd | None, epoch_s: float, write_end: int) -> int:
    try:
        row = run_host_job(job, incoming, epoch_s)
    except (OSError, ValueError, KeyError) as error:
        row = {"error": (str(error).strip() or type(error).__name__).splitlines()[0][:500]}
    with os.fdopen(write_end, "w") as pipe:
        pipe.write(json.dumps(row))
    return EXIT_FAILED if "error" in row else 0


def main() -> int:
    """Run the jobs of this host; return the exit status."""
    # Real-time priority: an agent that waits for a processor would measure the load of the machine.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(SCHED_PRIORITY))
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return EXIT_FAILED
    incoming_endpoints = {member["job"]: open_incoming(member) for member in json.loads(line)["members"]}
    print_event(
        "ready", ports={name: endpoint.port for name, endpoint in incoming_endpoints.items() if endpoint}
    )
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return EXIT_FAILED
    batch = json.loads(line)
    status = run_in_processes(batch["jobs"], incoming_endpoints, batch["epoch"])
    if not status:
        print_event("done")
    return status


if __name__ == "__main__":
    sys.exit(main())
