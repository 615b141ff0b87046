"""A job of 24 moves of a patch panel: its service is killed in the middle, and its process at its writes, or both."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs
from service_process import Process

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from testbed.client import connect
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

LABS = Path(__file__).resolve().parents[2] / "labs"
WRITES = [3, 4, 5, 8, 12, 20, 28, 36, 44, 52]
"""Numbers of writes to the database by the process of the run: its beginning, plan, steps, routes, proof."""

KILLER = """
import os, signal, sys
told = os.environ.get("LIGHTBED_TEST_KILL", "")
if told and "testbed.cli.submitted" in sys.orig_argv:
    number, when, killed, marker = told.split(" ")
    if not os.path.exists(marker):
        from contextlib import contextmanager
        from testbed.storage.database import Database
        transaction, count = Database.open_transaction, [0]

        def die():
            if killed == "both":
                os.kill(os.getppid(), signal.SIGKILL)  # the service, which started this process
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

        @contextmanager
        def counted(self):
            count[0] += 1
            is_last = count[0] == int(number)
            if is_last and when == "before":
                die()
            with transaction(self) as connection:
                yield connection
            if is_last:
                die()

        Database.open_transaction = counted
"""


@pytest.fixture
@needs("process", "socket")
def panel(tmp_path):
    """Provide the file of a lab of 12 hosts with two NICs behind an empty patch panel: 24 moves of its robot."""
    lab = load_lab(LABS / "testbed12-panel.yaml")
    hosts = tuple(replace(host, nics=host.nics[:2]) for host in lab.hosts)
    with start_lab(replace(lab, name=f"panel{os.getpid()}", hosts=hosts), hosts="model", may_move=True) as up:
        path = tmp_path / "lab.yaml"
        path.write_text(render_lab(up.lab), encoding="utf-8")
        yield path


@pytest.fixture
@needs("process", "socket")
def shared(panel, tmp_path):
    """Provide a function that starts a service whose runs are killed as it says."""
    (tmp_path / "sitecustomize.py").write_text(KILLER, encoding="utf-8")
    process = Process(panel, tmp_path / "runs")

    def start(kill=""):
        process.more = {
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(LABS.parent)]),
            "LIGHTBED_TEST_KILL": kill,
        }
        process.start()
        return process

    yield start
    process.end()


def follow(url, token, mine):
    """Note the numbers of all events until a run has ended."""
    with connect(url, token, retry_s=200) as client:
        for event in client.events(after=0):
            mine.append(event.number)
            if event.event in ("done", "failed"):
                return


def followed(process, token, act):
    """Do something while three clients follow; return what each of them saw, and what it came to."""
    seen: list[list[int]] = [[], [], []]
    followers = [threading.Thread(target=follow, args=(process.url, token, mine)) for mine in seen]
    for follower in followers:
        follower.start()
    came_to = act()
    for follower in followers:
        follower.join(timeout=200)
    return seen, came_to


def check(process, client, seen, run, moves):
    assert (run.state, run.exit_code) == ("done", 0), run.document
    assert seen == [list(range(1, max(seen[0]) + 1))] * 3
    (lab,) = client.list_labs()
    assert lab["topology"]["state"] == "verified"
    *idle, operation = client.lab(lab["name"]).read("operations")["operations"]
    assert all(
        step["state"] in ("planned", "failed") for one in idle for step in one["steps"]
    )  # it had sent nothing
    assert len([step for step in operation["steps"] if step["state"] == "verified"]) >= moves


@pytest.mark.long
def test_a_service_that_is_killed_in_a_job_of_24_moves(shared):
    process = shared()
    with connect(process.url, process.token("operator"), retry_s=200) as client:
        name = client.list_labs()[0]["name"]

        def act():
            run = client.submit(name, "apply", hosts="model", key="job")
            sent = (event for event in client.events(run=run.id, kind="step") if event.event == "SEND")
            for _ in range(3):
                next(sent)
            process.kill()
            time.sleep(1.0)
            process.start()
            assert client.submit(name, "apply", hosts="model", key="job").id == run.id
            return client.wait(run)

        seen, run = followed(process, process.token("viewer"), act)
        check(process, client, seen, run, 24)
        assert run.document["attempts"] == 1


@pytest.mark.long
@pytest.mark.parametrize("killed", ["run", "both"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", WRITES)
def test_a_run_whose_process_is_killed_is_finished(shared, tmp_path, number, when, killed):
    """The process of the run dies at one of 20 points, alone or with its service, which is started again."""
    marker = tmp_path / "killed"
    process = shared(f"{number} {when} {killed} {marker}")
    with connect(process.url, process.token("operator"), retry_s=200) as client:
        name = client.list_labs()[0]["name"]

        def act():
            run = client.submit(name, "apply", hosts="model", simplex=bool(number % 2))
            if killed == "both":
                process.lives[-1].wait(timeout=200)
                process.start()
            return client.wait(run)

        seen, run = followed(process, process.token("viewer"), act)
        assert marker.exists()
        assert run.document["attempts"] == 2
        check(process, client, seen, run, 0)
