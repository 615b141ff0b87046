"""The contract of leases, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import ClockError, LeaseDenied, LeaseImpossible
from testbed.lab.inventory import load_lab
from testbed.leases.fence import Heartbeat, hold_fence
from testbed.leases.listing import describe_leases, read_leases
from testbed.leases.model import find_parts
from testbed.leases.store import LeaseStore
from testbed.storage.database import Database

ROOT = Path(__file__).parents[2]
START_S = 1_800_000_000.0
A, B, AB = frozenset({"host:a"}), frozenset({"host:b"}), frozenset({"host:a", "host:b"})


def states(store):
    return [one.state for one in read_leases(store.database.address, "lab", includes_ended=True)]


def test_all_or_nothing_in_the_order_of_arrival(stores):
    ann, ben = stores(), stores("ben@h")
    first = ann.request(["host:a"], A)
    both = ben.request(["host:a", "host:b"], AB)
    behind = ann.request(["host:b"], B)
    assert (first.state, both.state, behind.state) == ("granted", "queued", "queued")
    ann.release(first.id)
    assert states(ann) == ["released", "granted", "queued"]
    ben.release(both.id)
    granted = ann.get(behind.id)
    assert (granted.state, granted.token) == ("granted", 3)


def test_priority_goes_first_and_says_whom_others_wait_for(stores, clock):
    ann = stores()
    ann.request(["host:a"], A)
    ann.request(["host:a"], A)
    urgent = stores("ben@h").request(["host:a"], A, priority=5, reason="a demonstration")
    _, slow, fast = describe_leases(ann.database.address, "lab", clock.now_s)
    assert slow["waits_for"].startswith("lease ")
    assert (fast["id"], fast["reason"], fast["resources"]) == (urgent.id, "a demonstration", ["host:a"])


def test_a_list_tells_the_state_that_the_next_change_will_write(stores, clock, monkeypatch):
    ann = stores()
    used = ann.begin_operation(ann.request(["host:a"], A, ttl_s=60).id, A)
    ann.request(["host:b"], B, ttl_s=60)

    def told(at_s):
        return [one["state"] for one in describe_leases(ann.database.address, "lab", at_s)]

    assert used.operation
    assert told(clock.now_s + 59) == ["granted", "granted"]
    assert told(clock.now_s + 61) == ["draining", "expired"]
    monkeypatch.setattr("testbed.leases.listing.is_running", lambda _process: False)
    assert told(clock.now_s + 61) == ["expired", "expired"]


def test_leases_survive_a_restart_and_end_by_their_time(stores, clock):
    lease = stores().request(["host:a"], A, ttl_s=60)
    clock.now_s += 59
    again = stores()
    assert again.get(lease.id).state == "granted"
    again.extend(lease.id)
    clock.now_s += 59
    assert again.get(lease.id).token == lease.token
    clock.now_s += 2
    with pytest.raises(LeaseDenied, match=r"is expired \(its time is over\); request a new one"):
        again.get(lease.id)


@pytest.mark.parametrize("ttl_s", [0.0, 2e-119, 0.9])
def test_a_lease_that_would_have_ended_at_once_is_refused(stores, ttl_s):
    lease = stores().request(["host:a"], A, ttl_s=1)
    for ask in (
        lambda: stores().request(["host:b"], B, ttl_s=ttl_s),
        lambda: stores().extend(lease.id, ttl_s),
    ):
        with pytest.raises(LeaseDenied, match="lasts at least 1 s"):
            ask()


def test_an_operation_in_flight_is_drained(stores, clock):
    store = stores()
    lease = store.request(["host:a"], A, ttl_s=60)
    waiting = store.request(["host:a"], A)
    store.begin_operation(lease.id, A)
    clock.now_s += 100
    assert store.get(lease.id).state == "draining"
    assert store.get(waiting.id).state == "queued"
    with pytest.raises(LeaseDenied, match="it permits no changes"):
        store.begin_operation(lease.id, A)
    store.end_operation(lease.id)
    assert states(store) == ["expired", "granted"]


def test_an_operation_that_goes_on_keeps_its_lease_and_one_that_stands_still_does_not(stores, clock):
    store, steady = stores(), [0.0]
    lease = store.request(["host:a"], A, ttl_s=600)
    waiting = store.request(["host:a"], A)
    store.begin_operation(lease.id, A)
    beats = Heartbeat(store, lease, lambda: steady[0])
    for _step in range(20):
        clock.now_s, steady[0] = clock.now_s + 120, steady[0] + 120
        beats.extend_if_due()
        assert (store.get(lease.id).state, store.get(waiting.id).state) == ("granted", "queued")
    clock.now_s, steady[0] = clock.now_s + 601, steady[0] + 601
    assert store.get(lease.id).state == "draining"
    beats.extend_if_due()
    assert store.get(lease.id).state == "draining", "a beat that comes too late takes nothing back"
    store.end_operation(lease.id)
    assert states(store) == ["expired", "granted"]


def test_a_heartbeat_is_one_transaction_in_a_third_of_the_time_that_a_lease_lasts(stores):
    store, steady, extended = stores(), [0.0], []
    lease = store.request(["host:a"], A, ttl_s=600)
    store.extend = extended.append
    beats = Heartbeat(store, lease, lambda: steady[0])
    for _second in range(1800):
        steady[0] += 1
        beats.extend_if_due()
    assert extended == [lease.id] * 9


def test_the_fence_beats_before_each_write(stores):
    store, steady = stores(), [0.0]
    lease = store.request(["host:a"], A, ttl_s=600)
    with hold_fence(
        store.database, "lab", A, requested_lease_id=lease.id, make_store=lambda _database, _lab: store
    ) as fence:
        ours = replace(fence, extend_if_due=lambda: steady.append(1.0))
        for _write in range(3):
            with ours.guard_sending():
                pass
        assert steady == [0.0, 1.0, 1.0, 1.0]
        assert fence.extend_if_due.__self__._lease.id == lease.id


def test_only_who_holds_it_or_was_allowed_may_use_it(stores):
    lease = stores().request(["host:a"], A, allowed_owners=["ben"])
    stores("ben@h").begin_operation(lease.id, A)
    with pytest.raises(LeaseDenied, match="belongs to ann@h, and eve@h may not use it"):
        stores("eve@h").begin_operation(lease.id, A)
    with pytest.raises(LeaseDenied, match="does not cover host:b"):
        stores().begin_operation(lease.id, AB)


def test_a_forced_release_keeps_its_reason(stores):
    lease = stores().request(["host:a"], A)
    broken = stores("boss@h").break_lease(lease.id, "a fire")
    assert (broken.state, broken.reason) == ("broken", "a fire (by boss@h)")
    with pytest.raises(LeaseDenied, match=r"is broken \(a fire \(by boss@h\)\)"):
        stores().begin_operation(lease.id, A)


def test_a_part_that_failed_its_last_check_is_not_granted(stores, clock):
    store = stores()
    store.write_checks({"host:a": "host_off"})
    lease, other = store.request(["host:a"], A), store.request(["host:b"], B)
    assert (lease.state, other.state) == ("queued", "granted")
    (told, _) = describe_leases(store.database.address, "lab", clock.now_s)
    assert told["waits_for"] == "host:a failed its last check (host_off)"
    store.write_checks({"host:a": ""})
    assert store.get(lease.id).state == "granted"


def test_reservations_ahead_do_not_overlap_and_come_first(stores, clock):
    store = stores()
    ahead = store.request(["host:a"], A, ttl_s=100, starts_s=clock.now_s + 200)
    with pytest.raises(LeaseDenied, match=r"host:a is reserved then by lease"):
        store.request(["host:a"], AB, ttl_s=100, starts_s=clock.now_s + 299)
    assert store.request(["host:a"], A, ttl_s=100, starts_s=clock.now_s + 300).state == "requested"
    long = store.request(["host:a"], A, ttl_s=201)
    short = store.request(["host:a"], A, ttl_s=150)
    assert (ahead.state, long.state, short.state) == ("requested", "queued", "granted")
    assert store.extend(short.id, 5000).expires_s == clock.now_s + 200
    clock.now_s += 200
    assert store.get(ahead.id).state == "granted"


def test_a_clock_that_steps_back_an_hour_allows_nothing_and_loses_nothing(stores, clock):
    store = stores()
    lease = store.request(["host:a"], A)
    clock.now_s -= 3600
    for motion in (
        lambda: store.begin_operation(lease.id, A),
        lambda: store.request((), B),
        lambda: store.release(lease.id),
    ):
        with pytest.raises(ClockError, match="3600 s behind the newest entry of the database"):
            motion()
    assert [one["state"] for one in describe_leases(store.database.address, "lab", clock.now_s)] == [
        "granted"
    ]
    clock.now_s += 3600
    assert store.begin_operation(lease.id, A).state == "granted"


def test_an_implicit_lease_ends_with_its_operation_and_with_its_process(stores):
    alive = True
    store = stores(is_alive=lambda _process: alive)
    with hold_fence(store.database, "lab", A, make_store=lambda *_: store) as fence:
        assert fence.token == 1
        with pytest.raises(
            LeaseDenied, match=r"lease .* of ann@h holds host:a; nothing was sent\. Pass --lease"
        ):
            store.request_implicit(AB)
        with hold_fence(store.database, "lab", A) as inner:
            assert inner is fence
    assert states(store) == ["released"], "what was refused is not queued"
    store.request_implicit(B)
    alive = False
    assert store.request(["host:b"], B).state == "granted"


def test_what_a_lab_does_not_have_is_refused_at_once():
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    with pytest.raises(LeaseImpossible, match="has no host:zz, so this request can never be granted"):
        find_parts(lab, ["host:a", "host:zz"])
    of_host = find_parts(lab, ["host:a"])
    assert {"host:a", "nic:a/nic1", "port:ocs1/1", "port:ocs1/49"} <= of_host
    assert find_parts(lab, ["nic:a/nic1"]) < of_host
    assert find_parts(lab, []) > of_host
    assert find_parts(lab, ["board:kit1"]) == {"board:kit1"}


def ask(address, mine, barrier, answer):
    """Ask for every eighth of a hundred leases, as a process of its own."""
    database = Database(address)
    store = LeaseStore(database, "lab", owner=f"p{mine}@h", now=lambda: START_S)
    barrier.wait()
    boards = [f"board:{n % 10}" for n in range(mine, 100, 8)]
    answer.put([store.request([board], frozenset({board})).id for board in boards])
    database.close()


@pytest.mark.long
@pytest.mark.process
def test_a_hundred_leases_asked_for_by_eight_processes_at_once(stores, database_address):
    store = stores()
    store.set_maintenance("made, so that all begin with the same database")
    store.database.close()
    forking = multiprocessing.get_context("fork")
    barrier, answer = forking.Barrier(8), forking.Queue()
    asking = [
        forking.Process(target=ask, args=(database_address, mine, barrier, answer)) for mine in range(8)
    ]
    for process in asking:
        process.start()
    asked = [lease for _ in asking for lease in answer.get(timeout=60)]
    for process in asking:
        process.join(60)
    answer.close()
    kept = read_leases(database_address, "lab")
    assert len(asked) == 100
    assert {one.id for one in kept} == set(asked)
    assert sorted(one.arrival for one in kept) == list(range(1, 101))
    held = [one for one in kept if one.state == "granted"]
    assert sorted(part for one in held for part in one.parts) == [f"board:{n}" for n in range(10)]
    assert sorted(one.token for one in held) == list(range(1, 11))
    for board in range(10):
        ours = [one for one in kept if one.parts == {f"board:{board}"}]
        assert [one.state for one in ours] == ["granted"] + ["queued"] * 9
