"""The agent of a host: its slots, and jobs on the loopback network over both transports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.node import periodic_job
from testbed.node.periodic_job import SlotSchedule

PROGRAM = Path(periodic_job.__file__)
PERIOD_S = 0.05


def test_an_iteration_that_is_early_waits_and_one_that_is_late_skips_slots():
    slots = SlotSchedule({"slot_s": 1.0, "tolerance": 0.05, "most_alignments": 2}, 10.0)

    waits = [slots.compute_wait_s(now) for now in (10.9, 12.04, 13.5, 17.2, 19.3)]
    assert waits == pytest.approx([0.1, 0.0, 0.5, 0.8, 0.0])
    assert slots.alignments == 2  # the last is late, too, and begins at once


def test_without_a_slot_nobody_waits():
    slots = SlotSchedule({"slot_s": 0.0, "tolerance": 0.05, "most_alignments": 2}, 10.0)

    assert (slots.compute_wait_s(3.0), slots.compute_wait_s(30.0), slots.alignments) == (0.0, 0.0, 0)


def a_job(target: str | None, source: str, port: int, **further: object) -> dict:
    job = {
        "next": target,
        "port": port,
        "source": source,
        "mark": 0,
        "phases": [[0.01, 50_000, 0.0], [0.01, 20_000, 4e6]],
        "rest_s": 0.005,
        "steps": 1,
        "iterations": 3,
        "start_s": 0.0,
        "slot_s": PERIOD_S,
        "tolerance": 5.0,
        "most_alignments": 0,
        "control": "reno",
        "slope": 0.0,
        "intercept": 1.0,
        "give_up_s": 30.0,
    }
    return job | further


class Agent:
    """An agent that talks over pipes."""

    def __init__(self, members: list[dict]) -> None:
        words = [sys.executable, "-IS", str(PROGRAM)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps({"members": members}) + "\n")
        self.process.stdin.flush()
        self.ports = json.loads(self.process.stdout.readline())["ports"]

    def begin(self, jobs: dict[str, dict], epoch: float) -> None:
        self.process.stdin.write(json.dumps({"epoch": epoch, "jobs": jobs}) + "\n")
        self.process.stdin.flush()

    def said(self) -> list[dict]:
        return [json.loads(line) for line in self.process.communicate(timeout=60)[0].splitlines()]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.socket
@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_bulk_job_and_an_allreduce_of_three_share_agents(transport):
    """Job `x` goes from the first agent to the second; `y` is a ring of three, in four parts a burst."""
    addresses = ["127.0.0.11", "127.0.0.12", "127.0.0.13"]
    members = [
        [{"job": "x", "listen": None}, {"job": "y", "listen": addresses[0]}],
        [{"job": "x", "listen": addresses[1]}, {"job": "y", "listen": addresses[1]}],
        [{"job": "y", "listen": addresses[2]}],
    ]
    agents = [Agent([one | {"transport": transport} for one in own]) for own in members]
    epoch = time.time() + 0.2
    for number, agent in enumerate(agents):
        after = (number + 1) % 3
        ring = a_job(addresses[after], addresses[number], agents[after].ports["y"], steps=4)
        jobs = {"y": ring | {"transport": transport}}
        if number == 0:
            out = a_job(addresses[1], addresses[0], agents[1].ports["x"])
            jobs["x"] = out | {"transport": transport}
        if number == 1:
            jobs["x"] = a_job(None, "", 0) | {"transport": transport}
        agent.begin(jobs, epoch)

    for agent, jobs in zip(agents, (["x", "y"], ["x", "y"], ["y"]), strict=True):
        *rows, done = agent.said()
        assert done == {"event": "done"}
        assert sorted(row["job"] for row in rows) == jobs
        for row in rows:
            times = [
                after - before for before, after in zip(row["begins_s"], row["begins_s"][1:], strict=False)
            ]
            assert len(times) == 3
            assert row["begins_s"][3] - row["begins_s"][0] >= 3 * PERIOD_S - 1e-4
            assert row["computed_s"] == pytest.approx(3 * 0.025)
        assert agent.process.returncode == 0


@pytest.mark.process
@pytest.mark.socket
def test_a_job_that_nobody_answers_ends_with_an_error():
    agent = Agent([{"job": "x", "listen": None, "transport": "udp"}])
    job = a_job("127.0.0.1", "127.0.0.1", 9, give_up_s=0.05, transport="udp")
    agent.begin({"x": job}, time.time())

    message = "job x: a burst did not end in time: check the other hosts of the job"
    assert agent.said() == [{"event": "error", "message": message}]
    assert agent.process.returncode == 1
