"""`apply` under leases: nothing is sent without one, under a stale one, or during maintenance."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import ApplyFailed, ClockError, JournalError, LeaseDenied, UnderMaintenance
from testbed.leases.choice import select_lease
from testbed.leases.listing import read_leases
from testbed.leases.model import find_parts
from testbed.leases.store import LeaseStore
from testbed.operate.design import build_design
from testbed.operate.journal import open_journal
from testbed.operate.session import LabSession
from testbed.storage.address import choose_database
from testbed.storage.database import Database


@pytest.fixture
def switch(memory_switch):
    return memory_switch()


@pytest.fixture
def bench(tmp_path, testbed12, switch, database_address):
    """Provide the 12-host lab on a switch in memory, and the leases of another person with connections of its own."""
    if isinstance(database_address, str):
        choose_database(database_address)
    with open_journal(tmp_path / "runs") as journal:
        other = Database(journal.path)
        store = LeaseStore(other, testbed12.name, owner="ben@h")
        yield LabSession(testbed12, {"ocs1": switch}, None, journal), store
        other.close()
    choose_database("")


@pytest.mark.long
def test_one_operator_without_a_lease_works_under_an_implicit_one(bench, testbed12):
    session, store = bench
    session.bring_up(build_design(testbed12))
    (lease,) = read_leases(store.database.address, testbed12.name, includes_ended=True)
    assert (lease.state, lease.is_implicit, lease.token) == ("released", True, 1)
    assert find_parts(testbed12, ["host:a", "host:l"]) <= lease.parts


def test_what_somebody_else_holds_is_not_moved(bench, testbed12, switch):
    session, store = bench
    store.request(["host:c"], find_parts(testbed12, ["host:c"]))
    switch.obey = lambda step: pytest.fail("something was sent")
    with pytest.raises(LeaseDenied, match=r"of ben@h holds host:c; nothing was sent"):
        session.bring_up(build_design(testbed12))


@pytest.mark.long
def test_what_a_proof_found_at_fault_is_not_granted_until_a_proof_passes_it(bench, testbed12, switch):
    session, store = bench
    lit = switch.power([1])[1]
    switch.readings = {1: replace(lit, dbm=-60.0, below_floor=True)}
    assert not session.bring_up(build_design(testbed12)).verify_report.ok
    dark = store.request(["host:a"], find_parts(testbed12, ["host:a"]))
    whole = store.request(["host:f"], find_parts(testbed12, ["host:f"]))
    assert (dark.state, whole.state) == ("queued", "granted")
    store.release(whole.id)
    store.release(dark.id)
    switch.readings = {}
    assert session.bring_up(build_design(testbed12)).verify_report.ok
    assert store.request(["host:a"], find_parts(testbed12, ["host:a"])).state == "granted"


def test_a_lease_is_named_and_used(bench, testbed12):
    session, store = bench
    lease = store.request(
        [], find_parts(testbed12, []), allowed_owners=["root", LeaseStore(store.database, "x").owner]
    )
    select_lease(lease.id)
    try:
        session.bring_up(build_design(testbed12))
    finally:
        select_lease("")
    assert [one.id for one in read_leases(store.database.address, testbed12.name)] == [lease.id]


def test_a_lease_that_is_broken_on_the_way_stops_the_apply_before_the_next_byte(bench, testbed12, switch):
    session, store = bench
    design, sent = build_design(testbed12), []
    plan = session.plan(design)
    read = switch.read

    def broken_now():
        for one in read_leases(store.database.address, testbed12.name):
            store.break_lease(one.id, "a fire")
        return read()

    switch.read = broken_now
    switch.obey = lambda step: sent.append(step) or step.after
    with pytest.raises(ApplyFailed, match=r"is broken: a fire .*nothing was sent"):
        session.carry_out(design, plan)
    assert sent == []


def test_during_maintenance_nothing_moves_and_looking_works(bench, testbed12, switch):
    session, store = bench
    store.set_maintenance("hands in the rack")
    switch.obey = lambda step: pytest.fail("something was sent")
    with pytest.raises(UnderMaintenance, match="is under maintenance by ben@h"):
        session.bring_up(build_design(testbed12))
    assert session.plan(build_design(testbed12)).has_changes
    store.clear_maintenance()


def test_a_database_that_others_lock_moves_nothing_and_is_looked_at(bench, testbed12, switch):
    session, store = bench
    design = build_design(testbed12)
    session.bring_up(design)
    plan = session.plan(build_design(testbed12, simplex=True))
    switch.obey = lambda step: pytest.fail("something was sent")
    session.journal.database.close()
    session.journal.database = Database(session.journal.path, busy_timeout_s=0.02)
    with store.database.open_transaction():
        with pytest.raises(JournalError, match="another program writes to it"):
            session.carry_out(design, plan)
        assert len(read_leases(store.database.address, testbed12.name, includes_ended=True)) == 1


def test_a_clock_that_steps_back_moves_nothing(bench, testbed12, switch, monkeypatch):
    session, store = bench
    design = build_design(testbed12)
    store.write_checks({"host:a": ""})
    switch.obey = lambda step: pytest.fail("something was sent")
    now_s = time.time()
    monkeypatch.setattr("testbed.leases.fence.LeaseStore", partial(LeaseStore, now=lambda: now_s - 3600))
    with pytest.raises(
        ClockError, match="behind the newest entry of the database, so leases cannot be judged"
    ):
        session.bring_up(design)
    assert session.plan(design).has_changes
