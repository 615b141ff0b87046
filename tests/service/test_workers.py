"""Runs: their lanes, processes that end early, a database that is away, and several people who change one lab."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")

from testbed.cli import submitted
from testbed.service.access import Identity
from testbed.service.requests import find_lane
from testbed.service.runs import MAX_QUEUED_RUNS
from testbed.service.workers import LANE_CAPACITY, MAX_ATTEMPTS, Workers
from testbed.service_errors import NotFound, TooManyRuns
from testbed.storage.address import get_database_address
from testbed.storage.audit import read_audit

ANN = Identity("ann", "operator")
REQUEST = '{"command": "apply", "lab": "testbed12"}'


@pytest.fixture
def work(service):
    """Return a function that lets workers carry runs out with this function until all have ended."""
    running = []

    def start(carry, *commands):
        runs = [
            service.runs.submit(Identity(f"user {number}", "operator"), "testbed12", command, REQUEST)[0]
            for number, command in enumerate(commands)
        ]
        ended = threading.Event()

        def carried(run):
            code = carry(run)
            return 0 if code is None else code

        def look():
            while not all(service.runs.get(run.id).has_ended for run in runs):
                if ended.wait(0.02):
                    return
            ended.set()

        workers = Workers(service.runs, ("testbed12",), carried)
        running.append((workers, ended))
        workers.start()
        threading.Thread(target=look, daemon=True).start()
        assert ended.wait(60)
        return [service.runs.get(run.id) for run in runs]

    yield start
    for workers, ended in running:
        ended.set()
        workers.stop()


def test_runs_that_move_come_one_by_one_in_the_order_of_their_requests(service, work):
    order = []

    def carry(run):
        order.append(run.id)
        service.runs.claim_run(run.id)
        service.runs.store_finished(run.id, 0, "{}\n", "")

    ended = work(carry, "apply", "rollback", "resume")

    assert order == [run.id for run in ended]
    assert {run.state for run in ended} == {"done"}


def test_a_process_that_is_killed_before_it_takes_its_run_is_started_again(service, work):
    codes = [-9, -9]

    def carry(run):
        if codes:
            return codes.pop()
        service.runs.claim_run(run.id)
        service.runs.store_finished(run.id, 2, "", "")
        return 0

    (run,) = work(carry, "apply")

    assert (run.state, run.exit_code, run.attempts) == ("done", 2, 1)


@pytest.mark.parametrize(("code", "starts"), [(1, 1), (-9, MAX_ATTEMPTS)])
def test_a_process_that_never_takes_its_run_fails_it(work, code, starts):
    begun = []

    def carry(run):
        begun.append(run.id)
        return code

    (run,) = work(carry, "apply")

    assert (run.state, len(begun)) == ("failed", starts)
    assert run.json()["result"]["error"]["who"] == "ourselves"


@pytest.mark.slow
def test_a_database_that_is_away_for_a_moment_loses_nothing(service, work, monkeypatch):
    find_unfinished, failures = service.runs.find_unfinished, [OSError("disk I/O error")] * 3

    def read(**without):
        if failures:
            raise failures.pop()
        return find_unfinished(**without)

    def carry(run):
        service.runs.claim_run(run.id)
        service.runs.store_finished(run.id, 0, "", "")

    monkeypatch.setattr(service.runs, "find_unfinished", read)
    (run,) = work(carry, "apply")

    assert (run.state, failures) == ("done", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "holders", [["lease request"] * 4, ["maintenance"] * 4, ["verify"] * 4, ["apply"] * 4]
)
def test_what_is_urgent_and_what_reads_waits_for_no_other_run(service, work, holders):
    urgent = ("confirm", "lease release", "lease extend", "history", "journal", "lease list")
    done = Counter()

    def carry(run):
        if run.command in holders:
            assert all_urgent.wait(30)
        service.runs.claim_run(run.id)
        service.runs.store_finished(run.id, 0, "{}\n", "")
        done[run.command] += 1
        if all(done[command] for command in urgent):
            all_urgent.set()

    all_urgent = threading.Event()
    ended = work(carry, *holders, *urgent)
    assert {run.state for run in ended} == {"done"}


@pytest.mark.slow
def test_a_lab_carries_out_no_more_runs_of_a_lane_than_it_has_room_for(service, work):
    busy, most, lock, full = Counter(), Counter(), threading.Lock(), threading.Event()

    def carry(run):
        lane = find_lane(run.command)
        with lock:
            busy[lane] += 1
            most[lane] = max(most[lane], busy[lane])
            if busy.total() == LANE_CAPACITY["moving"] + LANE_CAPACITY["looking"] + LANE_CAPACITY["reading"]:
                full.set()
        assert full.wait(30)
        service.runs.claim_run(run.id)
        service.runs.store_finished(run.id, 0, "{}\n", "")
        with lock:
            busy[lane] -= 1

    work(carry, *["apply", "verify", "history"] * 4)
    assert dict(most) == {lane: LANE_CAPACITY[lane] for lane in ("moving", "looking", "reading")}


def test_a_user_has_eight_runs_that_wait_and_others_have_their_own(service):
    for _ in range(MAX_QUEUED_RUNS):
        run, _ = service.runs.submit(ANN, "testbed12", "history", REQUEST, idempotency_key="")
    with pytest.raises(TooManyRuns, match="8 runs of ann are already waiting: wait for them, or cancel some"):
        service.runs.submit(ANN, "testbed12", "history", REQUEST)
    service.runs.submit(Identity("bob", "viewer"), "testbed12", "history", REQUEST)
    service.runs.claim_run(run.id)
    service.runs.submit(ANN, "testbed12", "history", REQUEST)


@pytest.mark.slow
def test_the_ninth_waiting_run_is_refused_with_429(ask, token_of):
    token = token_of("viewer")
    body = {"command": "history", "lab": "testbed12"}
    answers = [ask("POST", "/v1/runs", token, json=body) for _ in range(9)]
    assert [one.status_code for one in answers] == [202] * 8 + [429]
    assert answers[-1].json()["code"] == "service.busy"


def test_a_run_that_nobody_has_asked_for_is_not_found(service):
    with pytest.raises(NotFound):
        service.runs.get("none")


# ------------------------------------------------------------------------------------------ changes by several
def test_of_two_changes_of_one_topology_the_second_fails_when_its_turn_comes(
    ask, token_of, service, monkeypatch, capsys
):
    token, commands = token_of("operator"), []
    tag = ask("GET", "/v1/labs/testbed12/topology", token).headers["etag"]
    answers = [
        ask("PUT", "/v1/labs/testbed12/topology", token, json={}, headers={"If-Match": tag}) for _ in range(2)
    ]
    assert [one.status_code for one in answers] == [202, 202]
    first, second = (service.runs.get(one.json()["id"]) for one in answers)
    monkeypatch.setattr(submitted, "run_app", lambda words: commands.append(words) or 0)
    files = {"testbed12": Path("lab.yaml")}

    assert submitted.carry_out(first, files, service.runs_dir) == 0
    monkeypatch.setattr(submitted, "load_topology_document", lambda *_: {"epoch": 1})
    assert submitted.carry_out(second, files, service.runs_dir) == 1

    assert [words[0] for words in commands] == ["apply"]
    assert "if" not in " ".join(commands[0])
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "service.changed"


@pytest.mark.slow
def test_a_run_is_cancelled_by_its_user_an_admin_and_who_holds_a_lease(ask, token_of, service):
    def submit():
        body = {"command": "history", "lab": "testbed12"}
        return ask("POST", "/v1/runs", viewer, json=body).json()["id"]

    def cancel(run, token):
        return ask("POST", f"/v1/runs/{run}/cancel", token).status_code

    viewer, operator, admin = (token_of(role) for role in ("viewer", "operator", "admin"))
    runs = [submit() for _ in range(3)]
    assert cancel(runs[0], viewer) == 202
    assert (cancel(runs[1], operator), cancel(runs[1], admin)) == (403, 202)
    lease = ask("POST", "/v1/labs/testbed12/leases", operator, json={"resources": ["host:a"]}).json()
    assert lease["state"] == "granted"
    assert cancel(runs[2], operator) == 202
    ask("DELETE", f"/v1/labs/testbed12/leases/{lease['id']}", operator, headers={"If-Match": "*"})
    assert cancel(submit(), operator) == 403
    assert "refused: run" in read_audit(get_database_address(service.runs_dir))[-1]["outcome"]
