"""Hosts of a job as processes on loopback: computing takes its time, messages arrive whole, counters are there."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from needs import needs

PROGRAM = Path(__file__).parents[2] / "testbed" / "node" / "iteration.py"
MIB = 1 << 20


def task(number, *, computes=False, seconds=0.0, after=(), send=(), receive=0):
    """Return a task of a script."""
    waits = {"seconds": seconds, "after": list(after)}
    return {"id": number, "computes": computes, "send": list(send), "receive": receive, **waits}


class Hosts:
    """Hosts on addresses of loopback, each with two sets, whose one NIC is `lo`."""

    def __init__(self, stack, count):
        command = [sys.executable, "-IS", str(PROGRAM)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = [subprocess.Popen([*command, str(rank)], **pipes) for rank in range(count)]
        for process in self.processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        self.ports = [json.loads(process.stdout.readline())["port"] for process in self.processes]

    def run(self, *scripts, iterations=2, timeout_s=20.0):
        """Return the lines of every host."""
        shared = {
            "addresses": [[f"127.0.{rank}.1", f"127.0.{rank}.2"] for rank in range(len(scripts))],
            "ports": self.ports,
            "barrier": f"127.0.0.1:{self.ports[0]}",
            "nics": ["lo"],
            "nodes": len(scripts),
            "warm_up": 1,
            "pace_bytes": 12_500_000_000,  # 100 Gbit/s
            "iterations": iterations,
            "timeout_s": timeout_s,
        }
        for rank, (process, tasks) in enumerate(zip(self.processes, scripts, strict=True)):
            lines = {
                (source, number)
                for source, others in enumerate(scripts)
                for one in others
                for to, number, _ in one["send"]
                if to == rank
            }
            process.stdin.write(json.dumps({**shared, "tasks": tasks, "incoming": len(lines)}) + "\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=60)[0] for process in self.processes]
        return [[json.loads(line) for line in answer.splitlines()] for answer in answers]


@pytest.fixture
@needs("process", "socket")
def hosts():
    with ExitStack() as stack:
        yield lambda count: Hosts(stack, count)


def test_an_iteration_lasts_as_long_as_what_it_waits_for(hosts):
    """Host 0 computes twice on its one device and sends over two sets; host 1 computes then, and host 2 last."""
    rows = hosts(3).run(
        [
            task(0, computes=True, seconds=0.03),
            task(1, computes=True, seconds=0.03),
            task(2, after=[0, 1], send=[[1, 0, MIB], [1, 1, MIB // 2]]),
        ],
        [
            task(2, receive=2),
            task(3, computes=True, seconds=0.02, after=[2]),
            task(4, after=[3], send=[[2, 0, 0]]),
        ],
        [task(4, receive=1), task(5, seconds=0.01, after=[4])],
    )
    assert [[line["event"] for line in of_host] for of_host in rows] == [["row", "done"]] * 3
    for host, least_s in enumerate((0.06, 0.08, 0.09)):
        row = rows[host][0]
        assert len(row["times"]) == 2
        assert min(row["times"]) >= 0.9 * least_s  # hosts are a little apart when an iteration begins
        assert row["after"]["lo"][0] - row["before"]["lo"][0] >= 3 * MIB
        assert row["after"]["lo"][1] > row["before"]["lo"][1]
    assert [pair[:2] for pair in rows[0][0]["retransmitted"]] == [[1, 0], [1, 1]]


def test_many_messages_between_the_same_hosts_arrive_in_their_tasks(hosts):
    numbers = range(300)
    one = [task(2 * k, after=[2 * k - 1] if k else [], send=[[1, k % 2, 1000 + k]]) for k in numbers]
    one += [task(2 * k + 1, receive=1) for k in numbers]
    other = [task(2 * k, receive=1) for k in numbers]
    other += [task(2 * k + 1, after=[2 * k], send=[[0, 0, k]]) for k in numbers]
    rows = hosts(2).run(one, other, iterations=1)
    assert [line["event"] for of_host in rows for line in of_host] == ["row", "done"] * 2


@pytest.mark.long
def test_a_host_that_waits_in_vain_says_so(hosts):
    rows = hosts(2).run([task(0, receive=1)], [], timeout_s=1.0)
    assert rows[0][-1] == {"event": "error", "rank": 0, "message": "the job did not end in time"}
