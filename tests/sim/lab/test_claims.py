"""Claims: held by a process, free as soon as it is gone."""

from __future__ import annotations

import fcntl
import os

import pytest

from sim.lab import __main__ as command
from sim.lab.claims import Claim, Holder, find_holder, find_user
from sim.lab.inventory import LabEntry


@pytest.fixture
def own_claims(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.lab.claims.find_claims_folder", lambda: tmp_path)
    return tmp_path


def test_a_claim_is_exclusive_says_who_holds_it_and_leaves_no_file(own_claims):
    claim = Claim.try_acquire("lb000000")
    assert claim is not None
    claim.write(Holder(os.getpid(), "mine", "10.97.0.0/24"))
    assert Claim.try_acquire("lb000000") is None
    assert find_holder("lb000000") == Holder(os.getpid(), "mine", "10.97.0.0/24")
    claim.release()
    assert list(own_claims.iterdir()) == []
    assert find_holder("lb000000") is None


def test_a_file_without_a_lock_is_no_claim(own_claims):
    (own_claims / "lb000000.lock").write_text('{"pid": 1, "lab": "x", "subnet": ""}')
    assert find_holder("lb000000") is None
    claim = Claim.try_acquire("lb000000")
    assert claim is not None
    claim.release()


def test_a_holder_that_has_not_written_yet_holds_all_the_same(own_claims):
    with (own_claims / "lb000000.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert find_holder("lb000000") == Holder(0, "", "")


def test_a_lab_that_root_starts_by_sudo_is_of_who_asked(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ada")
    assert find_user() == "ada"
    monkeypatch.delenv("SUDO_USER")
    assert find_user() == "root"
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    assert find_user() == "4000000"


def test_down_all_ends_ones_own_labs_and_those_named_but_none_of_others(monkeypatch):
    found = (
        LabEntry("lb000001", "mine", "live", 1, "10.1.0.0/24", 2, user=find_user()),
        LabEntry("lb000002", "of another", "live", 2, "10.2.0.0/24", 2, user="somebody"),
        LabEntry("lb000003", "", "debris", None, "", 2),
        LabEntry("lb000004", "of a release that did not say", "live", 3, "10.4.0.0/24", 2),
    )
    monkeypatch.setattr(command, "find_labs", lambda: found)
    monkeypatch.setattr(command, "end_labs", tuple)
    assert command._take_down([], all_labs=True) == ["lb000001", "lb000003", "lb000004"]
    assert command._take_down(["lb000002"], all_labs=True) == [one.id for one in found]
