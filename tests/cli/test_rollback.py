"""Going back: by command, by a confirmation that nobody gave, and not at all while the lab is stopped."""

from __future__ import annotations

import os
import signal
import sqlite3
import time

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.lab.control import send_request


@pytest.fixture
def held(up):
    """Return a function that tells what the switch really holds."""

    def ask():
        truth = send_request(up[0].control_addresses["ocs1"], {"do": "truth"})
        return {tuple(pair) for pair in truth["connections"]}

    return ask


@pytest.fixture
def two_epochs(epochs, after):
    """Provide what the switch held with each of two topologies that were applied."""
    return epochs[1][1], after(2)


def eventually(is_so, timeout_s=30.0):
    """Wait until something is so; return whether it came."""
    deadline = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()


def test_the_verified_epoch_before_the_current_comes_back(testbed, lab_file, two_epochs, held):
    back = testbed("rollback", lab_file, "--json")
    assert (back.code, back.json["worked"]) == (0, True)
    assert (back.json["from_epoch"], back.json["to_epoch"], back.json["epoch"]) == (2, 1, 3)
    assert held() == two_epochs[0]
    newest, replaced, _ = testbed("history", lab_file, "--json").json["epochs"]
    assert (newest["kind"], newest["verified"]) == ("rollback", True)
    assert newest["why"] == "back to epoch 1 from epoch 2"
    journal = testbed("journal", lab_file, replaced["operation"], "--json").json
    assert {step["state"] for step in journal["operations"][0]["steps"]} == {"compensated"}
    assert testbed("verify", lab_file).code == 0, "without a name the epoch that came back is meant"


def test_an_epoch_that_was_never_verified_is_nothing_to_go_back_to(testbed, lab_file):
    refused = testbed("rollback", lab_file, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "rollback.none")
    assert testbed("apply", lab_file).code == 0
    refused = testbed("rollback", lab_file, 7, "--json")
    assert "epoch 7 is not a verified epoch before the current epoch 1" in refused.json["error"]["message"]


def test_a_stopped_lab_does_not_move_until_it_is_released(testbed, lab_file, two_epochs, held):
    stopped = testbed("stop", lab_file, "--reason", "hands in the rack", "--json")
    assert (stopped.code, stopped.json["stopped"], stopped.json["running"]) == (0, True, [])
    for command in (["apply", lab_file, "--epoch", 1], ["rollback", lab_file]):
        refused = testbed(*command, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "operation.stopped")
        assert "(hands in the rack)" in refused.json["error"]["message"]
    assert held() == two_epochs[1]
    assert testbed("verify", lab_file).code == 0, "looking still works"
    released = testbed("stop", lab_file, "--release", "--json")
    assert (released.code, released.json["was_stopped"]) == (0, True)
    assert testbed("apply", lab_file, "--epoch", 1).code == 0
    assert held() == two_epochs[0]


def test_the_stop_needs_no_lock_of_the_database(testbed, lab_file, runs, two_epochs):
    with sqlite3.connect(runs / "lightbed.sqlite") as other:
        other.execute("begin exclusive")
        assert testbed("stop", lab_file).code == 0
        other.rollback()
    other.close()
    assert testbed("stop", lab_file, "--release").code == 0


def test_an_apply_that_is_confirmed_stays(testbed, lab_file, two_epochs, held):
    applied = testbed("apply", lab_file, "--epoch", 1, "--confirm-within", "1h", "--json")
    assert (applied.code, applied.json["confirm"]["armed"], applied.json["confirm"]["back_to"]) == (
        0,
        True,
        2,
    )
    for command in (["apply", lab_file], ["apply", lab_file, "--confirm-within", "1h"]):
        refused = testbed(*command, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "confirm.pending")
    assert testbed("confirm", lab_file, "--json").json["epoch"] == 3
    assert held() == two_epochs[0]
    again = testbed("confirm", lab_file, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "confirm.none")
    assert testbed("apply", lab_file).code == 0


@pytest.mark.long
def test_an_apply_that_nobody_confirms_is_taken_back(testbed, lab_file, two_epochs, held, runs):
    applied = testbed("apply", lab_file, "--epoch", 1, "--confirm-within", "1s", "--json")
    assert applied.json["confirm"]["armed"]

    def state():
        with sqlite3.connect(runs / "lightbed.sqlite") as other:
            found = other.execute("select state, reason from confirmations").fetchone()
        other.close()
        return found

    assert eventually(lambda: state()[0] in ("fired", "failed")), state()
    assert state() == ("fired", "")
    assert held() == two_epochs[1]
    newest = testbed("history", lab_file, "--json").json["epochs"][0]
    assert (newest["kind"], newest["verified"]) == ("rollback", True)


def test_the_death_of_the_watcher_is_named_by_the_next_command(testbed, lab_file, two_epochs, runs):
    assert testbed("apply", lab_file, "--epoch", 1, "--confirm-within", "1h").code == 0
    with sqlite3.connect(runs / "lightbed.sqlite") as other:
        (watcher,) = other.execute("select watcher from confirmations").fetchone()
    other.close()
    os.kill(int(watcher.split()[0]), signal.SIGKILL)
    assert eventually(lambda: testbed("plan", lab_file, "--json").json["unfinished"])
    (told,) = testbed("plan", lab_file, "--json").json["unfinished"]
    assert "its watcher has died: there is no automatic rollback" in told["detail"]
    assert testbed("rollback", lab_file).code == 0, "by hand, which ends the waiting"
    assert testbed("plan", lab_file, "--json").json["unfinished"] == []


def test_nothing_to_go_back_to_is_no_apply_to_be_confirmed(testbed, lab_file, held):
    before = held()
    refused = testbed("apply", lab_file, "--confirm-within", "10m", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "rollback.none")
    assert held() == before
