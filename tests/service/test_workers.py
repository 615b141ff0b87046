"""Workers: what a process that ends early means, and that a database that is away loses nothing."""

from __future__ import annotations

import threading

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")

from testbed.service.access import Identity
from testbed.service.errors import NotFound
from testbed.service.workers import ATTEMPTS, Workers

ANN = Identity("ann", "operator")
REQUEST = '{"command": "apply", "lab": "testbed12"}'


@pytest.fixture
def work(service):
    """Return a function that lets workers carry runs out with this function until all have ended."""
    running = []

    def start(carry, *commands):
        runs = [service.runs.submit(ANN, "testbed12", command, REQUEST)[0] for command in commands]
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
    following, failures = service.runs.next, [OSError("disk I/O error")] * 3

    def next_run(*arguments):
        if failures:
            raise failures.pop()
        return following(*arguments)

    def carry(run):
        service.runs.begin(run.id)
        service.runs.finish(run.id, 0, "", "")

    monkeypatch.setattr(service.runs, "next", next_run)
    (run,) = work(carry, "apply")

    assert (run.state, failures) == ("done", [])


def test_a_run_that_nobody_has_asked_for_is_not_found(service):
    with pytest.raises(NotFound):
        service.runs.get("none")
