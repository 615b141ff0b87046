"""Workers: what a process that ends early means, and that a database that is away loses nothing."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")

from testbed.service.access import Identity
from testbed.service.errors import NotFound, TooManyRuns
from testbed.service.requests import LANES
from testbed.service.runs import MOST_QUEUED
from testbed.service.workers import ATTEMPTS, ROOM, Workers

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
        service.runs.begin(run.id)
        service.runs.finish(run.id, 0, "{}\n", "")

    ended = work(carry, "apply", "rollback", "resume")

    assert order == [run.id for run in ended]
    assert {run.state for run in ended} == {"done"}


def test_a_process_that_is_killed_before_it_takes_its_run_is_started_again(service, work):
    codes = [-9, -9]

    def carry(run):
        if codes:
            return codes.pop()
        service.runs.begin(run.id)
        service.runs.finish(run.id, 2, "", "")
        return 0

    (run,) = work(carry, "apply")

    assert (run.state, run.exit_code, run.attempts) == ("done", 2, 1)


@pytest.mark.parametrize(("code", "starts"), [(1, 1), (-9, ATTEMPTS)])
def test_a_process_that_never_takes_its_run_fails_it(work, code, starts):
    begun = []

    def carry(run):
        begun.append(run.id)
        return code

    (run,) = work(carry, "apply")

    assert (run.state, len(begun)) == ("failed", starts)
    assert run.json()["result"]["error"]["who"] == "ourselves"


def test_a_database_that_is_away_for_a_moment_loses_nothing(service, work, monkeypatch):
    unfinished, failures = service.runs.unfinished, [OSError("disk I/O error")] * 3

    def read(**without):
        if failures:
            raise failures.pop()
        return unfinished(**without)

    def carry(run):
        service.runs.begin(run.id)
        service.runs.finish(run.id, 0, "", "")

    monkeypatch.setattr(service.runs, "unfinished", read)
    (run,) = work(carry, "apply")

    assert (run.state, failures) == ("done", [])


@pytest.mark.parametrize(
    "holders", [["lease request"] * 4, ["maintenance"] * 4, ["verify"] * 4, ["apply"] * 4]
)
def test_what_is_urgent_and_what_reads_waits_for_no_other_run(service, work, holders):
    urgent = ("confirm", "lease release", "lease extend", "history", "journal", "lease list")
    done = Counter()

    def carry(run):
        if run.command in holders:
            assert all_urgent.wait(30)
        service.runs.begin(run.id)
        service.runs.finish(run.id, 0, "{}\n", "")
        done[run.command] += 1
        if all(done[command] for command in urgent):
            all_urgent.set()

    all_urgent = threading.Event()
    ended = work(carry, *holders, *urgent)
    assert {run.state for run in ended} == {"done"}


def test_a_lab_carries_out_no_more_runs_of_a_lane_than_it_has_room_for(service, work):
    busy, most, lock, full = Counter(), Counter(), threading.Lock(), threading.Event()

    def carry(run):
        lane = LANES[run.command]
        with lock:
            busy[lane] += 1
            most[lane] = max(most[lane], busy[lane])
            if busy.total() == ROOM["moving"] + ROOM["looking"] + ROOM["reading"]:
                full.set()
        assert full.wait(30)
        service.runs.begin(run.id)
        service.runs.finish(run.id, 0, "{}\n", "")
        with lock:
            busy[lane] -= 1

    work(carry, *["apply", "verify", "history"] * 4)
    assert dict(most) == {lane: ROOM[lane] for lane in ("moving", "looking", "reading")}


def test_a_user_has_eight_runs_that_wait_and_others_have_their_own(service):
    for _ in range(MOST_QUEUED):
        run, _ = service.runs.submit(ANN, "testbed12", "history", REQUEST, key="")
    with pytest.raises(TooManyRuns, match="8 runs of ann wait already"):
        service.runs.submit(ANN, "testbed12", "history", REQUEST)
    service.runs.submit(Identity("bob", "viewer"), "testbed12", "history", REQUEST)
    service.runs.begin(run.id)
    service.runs.submit(ANN, "testbed12", "history", REQUEST)


def test_the_ninth_waiting_run_is_refused_with_429(ask, token_of):
    token = token_of("viewer")
    body = {"command": "history", "lab": "testbed12"}
    answers = [ask("POST", "/v1/runs", token, json=body) for _ in range(9)]
    assert [one.status_code for one in answers] == [202] * 8 + [429]
    assert answers[-1].json()["code"] == "service.busy"


def test_a_run_that_nobody_has_asked_for_is_not_found(service):
    with pytest.raises(NotFound):
        service.runs.get("none")
