"""A service as a process, with a simulated lab: runs, events, clients, and its death in the middle of work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

import itertools

import httpx

from testbed.cli.app import run_app
from testbed.client import ServiceRefused, ServiceUnreachable, connect, connect_async
from testbed.lab.control import send_request

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def client(running):
    with connect(running.url, running.token("operator")) as client:
        yield client


@pytest.fixture(scope="module")
def name(client):
    (lab,) = client.list_labs()
    return lab["name"]


def numbers(events):
    return [event.number for event in events if event.kind != "snapshot"]


def test_a_run_from_its_request_to_its_end(running, client, name):
    lab = client.lab(name)
    run = lab.run("apply", why="a first topology", hosts="model")

    assert (run.state, run.exit_code, run.who) == ("done", 0, "operator")
    assert run.result["verified"] is True
    assert lab.read_state()["topology"]["epoch"] == run.result["epoch"]
    epoch = lab.read("history")["epochs"][0]
    assert (epoch["who"], epoch["verified"]) == ("operator", True)
    (switch,) = lab.read("switches")["switches"]
    assert len(switch["circuits"]) == run.result["circuits"]
    assert lab.run("drift", hosts="model").exit_code in (0, 2)
    assert any(port["power"] for port in lab.read("switches")["switches"][0]["ports"])


def test_what_a_proof_found_is_what_the_service_tells(running, up, client, name):
    """A circuit that somebody removes at the switch is no longer told as one that is there, once it was looked for."""
    lab = client.lab(name)
    applied = lab.run("apply", hosts="model")
    topology, (before,) = lab.read("topology"), lab.read("switches")["switches"]
    assert (topology["state"], topology["seen"]["as_planned"]) == ("verified", True)
    assert (topology["seen"]["by"], topology["seen"]["id"]) == ("apply", applied.id)

    gone = before["circuits"][0]["input"]
    send_request(up[0].control_addresses[before["name"]], {"do": "operator", "disconnect": [gone]})
    verified = lab.run("verify", hosts="model")

    seen = {"at": verified.document["finished"], "by": "verify", "id": verified.id}
    topology, (after,) = lab.read("topology"), lab.read("switches")["switches"]
    assert topology["state"] == lab.read_state()["topology"]["state"] == "deviating"
    assert topology["seen"] == seen | {"as_planned": False}
    assert after["seen"] == seen
    assert after["circuits"] == before["circuits"][1:]
    found = lab.read("findings")
    assert [finding["kind"] for finding in found["findings"]] == ["missing_circuit"]
    assert found["findings"] == verified.result["findings"] == lab.read_state()["findings"]
    assert (
        f'testbed_findings{{lab="{name}",kind="missing_circuit"}} 1'
        in httpx.get(f"{running.url}/metrics").text
    )

    lab.run("apply", hosts="model")
    assert lab.read("topology")["state"] == "verified"
    assert lab.read("findings")["findings"] == []
    assert len(lab.read("switches")["switches"][0]["circuits"]) == len(before["circuits"])


@pytest.mark.long
def test_an_error_of_a_command_is_that_of_the_command_line(client, name):
    run = client.lab(name).run("apply", epoch=99)

    assert (run.state, run.exit_code, run.result["error"]["code"]) == ("failed", 1, "intent")


@pytest.mark.long
def test_runs_that_move_a_lab_follow_one_another(client, name):
    runs = [client.submit(name, "apply", simplex=bool(at % 2), hosts="model") for at in range(2)]
    ended = [client.wait(run) for run in runs]

    assert [run.exit_code for run in ended] == [0, 0]
    begun = [(run.document["started"], run.document["finished"]) for run in ended]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(begun))


@pytest.mark.long
def test_a_run_that_waits_is_withdrawn(client, name):
    first, second = client.submit(name, "apply", hosts="model"), client.submit(name, "apply", simplex=True)

    assert client.cancel(second.id).state in ("cancelled", "running")
    assert client.wait(first).state == "done"
    assert client.wait(second).state in ("cancelled", "interrupted")
    with pytest.raises(ServiceRefused) as refused:
        client.cancel(first.id)
    assert (refused.value.status, refused.value.code, refused.value.who) == (409, "service.ended", "conflict")


@pytest.mark.long
def test_events_go_on_exactly_where_a_client_left_off(client, name):
    client.lab(name).run("apply", hosts="model", simplex=True)
    start = newest(client)
    client.lab(name).run("apply", hosts="model", method="geometric")  # another one than what stands
    everything = until_done(client.events(after=start), "done")
    assert numbers(everything) == list(range(start + 1, start + len(everything) + 1))
    kinds = {event.kind for event in everything}
    assert kinds == {"run", "step"}

    for left_off in (1, 3, len(everything) - 1):
        left = until_done(client.events(after=start + left_off), "done")
        assert numbers(left) == numbers(everything[left_off:])
    of_runs = until_done(client.events(after=start, lab=name, kind="run"), "done")
    assert [event.event for event in of_runs] == ["queued", "started", "done"]


def is_other_simplex(client, name):
    """Return the option of the topology that does not stand, so that something is to be done."""
    standing = client.lab(name).read("topology")
    return "--simplex" not in standing.get("stated", "")


def newest(client):
    """Return the number of the newest event: that of the snapshot."""
    return next(client.events()).number


def until_done(stream, event):
    found = []
    for one in stream:
        found.append(one)
        if one.event == event:
            return found
    return found


@pytest.mark.long
def test_the_asynchronous_client_sees_the_same(running, client, name):
    async def ask():
        async with connect_async(running.url, running.token("operator")) as other:
            run = await other.lab(name).run("plan")
            found = []
            async for event in other.events(after=0, run=run.id):
                found.append(event)
                if event.event == "done":
                    return run, await other.list_labs(), found
        return None

    run, labs, found = asyncio.run(ask())

    assert run == client.read_run(run.id)
    assert [lab["name"] for lab in labs] == [name]
    assert [event.event for event in found] == ["queued", "started", "done"]


@pytest.mark.long
@pytest.mark.parametrize("at", ["service", "both"])
def test_a_service_that_is_killed_finds_its_run_again(running, client, name, at):
    """Three clients follow all the while; each sees every event once, and the run ends as it should."""
    start = newest(client)
    seen: list[list[int]] = [[], [], []]
    token = running.token("viewer")

    def follow(mine):
        with connect(running.url, token, retry_s=120) as other:
            for event in other.events(after=start):
                mine.append(event.number)
                if event.event in ("done", "failed"):
                    return

    followers = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
    for follower in followers:
        follower.start()
    run = client.submit(name, "apply", hosts="model", simplex=is_other_simplex(client, name))
    owner = wait_for(lambda: owner_of(running, run.id))
    running.kill()
    if at == "both":
        os.kill(int(owner.split()[0]), signal.SIGKILL)
    running.start()

    ended = client.wait(run.id)
    for follower in followers:
        follower.join(timeout=100)

    assert (ended.state, ended.exit_code) == ("done", 0)
    assert seen == [list(range(start + 1, max(seen[0]) + 1))] * 3
    assert client.lab(name).read("topology")["state"] == "verified"


def owner_of(running, run_id):
    from testbed.storage.address import get_database_address
    from testbed.storage.reading import read_rows

    rows = read_rows(
        get_database_address(running.runs), "select owner, state from submitted_runs where id = ?", (run_id,)
    )
    return rows[0]["owner"] if rows and rows[0]["owner"] else ""


def wait_for(look, at_most_s=60.0):
    deadline = time.monotonic() + at_most_s
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def test_a_lab_is_stopped_through_the_service_at_once(running, name, up, capsys, monkeypatch):
    monkeypatch.setenv("LIGHTBED_SERVER", running.url)
    monkeypatch.setenv("LIGHTBED_TOKEN", running.token("operator"))

    assert run_app(["stop", str(up[1]), "--reason", "hands", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped"] is True
    assert run_app(["apply", str(up[1]), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "operation.stopped"
    assert run_app(["stop", name, "--release", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["was_stopped"] is True


def test_a_lease_of_somebody_else_keeps_a_run_out(running, client, name):
    with connect(running.url, running.token("developer")) as other:
        lease = other.lab(name).request_lease(reason="mine")
        refused = client.lab(name).run("apply", simplex=True, hosts="model")
        granted = other.lab(name).run("apply", simplex=True, hosts="model", lease=lease["id"])
        other.lab(name).release_lease(lease["id"])

    assert (refused.exit_code, refused.result["error"]["code"]) == (1, "lease.denied")
    assert granted.exit_code == 0


def test_a_token_is_in_no_log_and_in_no_list_of_processes(running, client, name):
    secret = running.token("operator")
    with connect(running.url, secret) as other:
        run = other.submit(name, "apply", hosts="model")
        lists = [
            subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        ]
        other.wait(run)
    with pytest.raises(ServiceRefused), connect(running.url, secret + "0") as wrong:
        wrong.submit(name, "plan")

    told = [path.read_bytes() for path in running.runs.parent.rglob("*") if path.is_file()]
    assert len(told) > 3
    assert not any(secret.rpartition("_")[2].encode() in text for text in told)
    assert all(secret not in text for text in lists)


@pytest.mark.socket
def test_a_service_that_is_away_is_told_with_what_to_do():
    with pytest.raises(ServiceUnreachable, match="testbed serve"), connect("http://127.0.0.1:9") as client:
        client.list_labs()
    with pytest.raises(ServiceUnreachable, match="URL"):
        connect("lab:8080")


@pytest.mark.long
@pytest.mark.process
def test_serve_refuses_half_of_tls(tmp_path):
    words = [sys.executable, "-m", "testbed.cli", "serve", "--lab", str(ROOT / "labs" / "testbed12.yaml")]
    words += ["--tls-key", "key.pem", "--json"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "service.request"
