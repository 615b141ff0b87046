"""Claims: held by a process, free as soon as it is gone."""

from __future__ import annotations

import fcntl
import os

import pytest

from sim.lab.claims import Claim, Holder, holder_of


@pytest.fixture
def own_claims(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.lab.claims.claims_folder", lambda: tmp_path)
    return tmp_path


def test_a_claim_is_exclusive_says_who_holds_it_and_leaves_no_file(own_claims):
    claim = Claim.take("lb000000")
    assert claim is not None
    claim.write(Holder(os.getpid(), "mine", "10.97.0.0/24"))
    assert Claim.take("lb000000") is None
    assert holder_of("lb000000") == Holder(os.getpid(), "mine", "10.97.0.0/24")
    claim.release()
    assert list(own_claims.iterdir()) == []
    assert holder_of("lb000000") is None


def test_a_file_without_a_lock_is_no_claim(own_claims):
    (own_claims / "lb000000.lock").write_text('{"pid": 1, "lab": "x", "subnet": ""}')
    assert holder_of("lb000000") is None
    claim = Claim.take("lb000000")
    assert claim is not None
    claim.release()


def test_a_holder_that_has_not_written_yet_holds_all_the_same(own_claims):
    with (own_claims / "lb000000.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder_of("lb000000") == Holder(0, "", "")
