"""The journal: intent before motion, outcome from read-back, and what is left of a process that was killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.engine.transaction import judge_step
from ocs_drivers.model import CrossConnects, Snapshot, Status, Step
from testbed.errors import JournalError
from testbed.operate.engine.planned import ROUTES_CHANGE, PlannedStep
from testbed.operate.journal import Journal, open_journal

ROOT = Path(__file__).parents[2]
BEFORE, AFTER = CrossConnects({1: 49}), CrossConnects({1: 50, 2: 49})
STEP = Step("replace", AFTER, BEFORE, AFTER)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "deep" / "journal.sqlite") as journal:
        yield journal


def test_an_operation_is_kept_step_by_step(journal):
    with journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        assert journal.read_state(operation) == "running"
        assert journal.read_steps(operation)[0]["outcome"] is None
        journal.store_outcome(operation, "ocs1", 0, judge_step(STEP, Snapshot(AFTER, 0.0)))
    (step,) = journal.read_steps(operation)
    assert journal.read_state(operation) == "done"
    assert (step["kind"], step["outcome"], step["read_back"]) == ("replace", "done", '{"1": 50, "2": 49}')
    assert step["intent_at"] < step["outcome_at"]
    assert journal.find_open_steps() == ()


def test_an_intent_is_on_disk_when_it_returns(journal):
    with journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        with sqlite3.connect(f"file:{journal.path}?mode=ro", uri=True) as other:
            rows = other.execute("select operation, before, after from steps").fetchall()
        other.close()
    assert rows == [(operation, '{"1": 49}', '{"1": 50, "2": 49}')]


def test_commits_reach_the_disk_and_are_timed(journal):
    with journal._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    before_s = journal.commit_s
    with journal.open_operation("lab"):
        pass
    assert journal.commit_s > before_s


@pytest.mark.parametrize(("error", "state"), [(RuntimeError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_an_operation_ends_as_what_was_raised(journal, error, state):
    with pytest.raises(error), journal.open_operation("lab") as operation:
        raise error
    assert journal.read_state(operation) == state


def test_an_interrupted_step_is_unknown_at_once(journal):
    with pytest.raises(KeyboardInterrupt), journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        raise KeyboardInterrupt
    (step,) = journal.find_open_steps()
    assert (step.operation, step.switch, step.status) == (operation, "ocs1", Status.UNKNOWN)
    assert (step.before, step.after) == (BEFORE, AFTER)


def test_a_host_that_was_left_in_the_middle_is_no_step_of_a_switch(journal):
    """Its texts are digests and no circuits: whoever reads switches passes it over."""
    with pytest.raises(KeyboardInterrupt), journal.open_operation("lab") as operation:
        journal.step_log.store_intents(
            operation, [PlannedStep("a", 0, "10.0.0.1", "configure", "", "digest", ROUTES_CHANGE)]
        )
        raise KeyboardInterrupt
    assert journal.find_open_steps() == ()
    assert journal.settle("lab", "10.0.0.1", Snapshot(BEFORE, 0.0)) == ()


def test_a_step_of_a_living_process_is_not_unfinished(journal):
    with journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        assert journal.find_open_steps() == ()


def test_an_operation_never_begun_has_no_state(journal):
    with pytest.raises(KeyError, match="nothing"):
        journal.read_state("nothing")


CRASH = """
import os, signal, sys
from ocs_drivers.model import CrossConnects, Snapshot, Step
from ocs_drivers.engine.transaction import judge_step
from testbed.operate.journal import Journal
after = CrossConnects({1: 50, 2: 49})
step = Step("replace", after, CrossConnects({1: 49}), after)
path, until = sys.argv[1:]
def die_if(point):
    if point == until:
        os.kill(os.getpid(), signal.SIGKILL)
journal = Journal(path)
die_if("opened")
with journal.open_operation("lab") as operation:
    die_if("begun")
    journal.store_intent(operation, "ocs1", 0, "memory://ocs1", step)
    die_if("intended")
    journal.store_outcome(operation, "ocs1", 0, judge_step(step, Snapshot(after, 0.0)))
    die_if("recorded")
die_if("ended")
"""


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("point", "unknown"), [("opened", 0), ("begun", 0), ("intended", 1), ("recorded", 0), ("ended", 0)]
)
def test_a_killed_process_leaves_unknown_exactly_what_is_unknown(tmp_path, point, unknown):
    path = tmp_path / "journal.sqlite"
    killed = subprocess.run([sys.executable, "-c", CRASH, path, point], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        unfinished = journal.find_open_steps()
        assert len(unfinished) == unknown
        assert all(step.status is Status.UNKNOWN and step.after == AFTER for step in unfinished)


@pytest.mark.process
def test_a_process_killed_in_the_middle_is_recognised_while_its_number_is_still_taken(tmp_path):
    """A zombie keeps its number: it must not pass for a living owner."""
    path = tmp_path / "journal.sqlite"
    child = subprocess.Popen([sys.executable, "-c", CRASH, path, "intended"], cwd=ROOT)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        with Journal(path) as journal:
            assert len(journal.find_open_steps()) == 1
    finally:
        child.wait()


def test_a_process_whose_number_another_one_has_now_does_not_live(journal):
    with journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        with sqlite3.connect(journal.path) as database:
            database.execute("update operations set owner = ?", (f"{os.getpid()} another-boot/1",))
        database.close()
        (step,) = journal.find_open_steps()
        assert step.operation == operation


@pytest.mark.parametrize(
    ("found", "status"),
    [(AFTER, Status.DONE), (BEFORE, Status.FAILED), (CrossConnects({7: 60}), Status.UNKNOWN)],
)
def test_a_read_settles_what_was_left_open(journal, found, status):
    with pytest.raises(KeyboardInterrupt), journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        raise KeyboardInterrupt
    read_back = Snapshot(found, 0.0)
    assert journal.settle("other", "memory://ocs1", read_back) == ()
    assert journal.settle("lab", "memory://ocs2", read_back) == ()
    ((step, became),) = journal.settle("lab", "memory://ocs1", read_back)
    assert (step.operation, became) == (operation, status)
    assert journal.read_steps(operation)[0]["outcome"] == status.value
    assert journal.find_open_steps() == ()


@pytest.mark.slow
def test_two_journals_on_one_file_wait_for_one_another(tmp_path):
    """Threads stand for processes here: each has its own connections."""
    path = tmp_path / "journal.sqlite"

    def write() -> None:
        with Journal(path) as mine:
            for _ in range(5):
                with mine.open_operation("lab") as operation:
                    mine.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
                    mine.store_outcome(operation, "ocs1", 0, judge_step(STEP, Snapshot(AFTER, 0.0)))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(deadline - time.monotonic())
    with sqlite3.connect(path) as database:
        states = database.execute("select state, count(*) from operations group by state").fetchall()
    database.close()
    assert states == [("done", 20)]


def test_a_journal_that_cannot_be_written_says_so(journal):
    """A file that nobody may write, for root too: SQLite itself refuses."""
    with journal.open_operation("lab") as operation:
        with journal._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
        with pytest.raises(
            JournalError, match=r"journal\.sqlite cannot be written \(.*readonly.*\); make it writable"
        ):
            journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        journal.close()  # a new connection may write again


def test_the_journal_of_runs_lies_beside_their_results(tmp_path):
    with open_journal(tmp_path / "runs") as journal:
        assert journal.path == tmp_path / "runs" / "lightbed.sqlite"
        assert journal.path.exists()
