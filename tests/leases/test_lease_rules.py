"""Leases under everything that happens to them: a state machine on a virtual clock, with an oracle of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from testbed.errors import ClockError, LeaseDenied, LeaseHeld, LeaseStale
from testbed.leases.fence import Fence
from testbed.leases.listing import read_leases
from testbed.leases.model import HELD_STATES, LIVING_STATES, TRANSITIONS
from testbed.leases.rules import check_monotonic, sort_requests
from testbed.leases.store import LeaseStore
from testbed.storage.database import Database

PARTS = tuple(f"board:{letter}" for letter in "abcde")
SEEN: Counter[str] = Counter()
some_parts = st.sets(st.sampled_from(PARTS), min_size=1).map(frozenset)
MEMORY = Path("/dev/shm")


class Leases(RuleBasedStateMachine):
    """Requests, operations that are stopped or killed, breaks, faults, reservations, a clock that steps."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.database = Database(self.folder / "l.sqlite")
        self.now_s, self.offset_s = 1000.0, 0.0
        self.dead: set[str] = set()
        self.store = LeaseStore(
            self.database,
            "lab",
            owner="ann@h",
            now=lambda: self.now_s + self.offset_s,
            is_alive=lambda process: process not in self.dead,
        )
        self.sending: dict[str, ExitStack] = {}
        self.before: dict[str, str] = {}
        self.newest_token = 0
        self.faults: set[str] = set()

    def teardown(self) -> None:
        for stack in self.sending.values():
            stack.close()
        self.database.close()
        shutil.rmtree(self.folder)

    def all(self):
        return {one.id: one for one in read_leases(self.database.address, "lab", includes_ended=True)}

    def pick(self, data, states):
        found = [one for one in self.all().values() if one.state in states]
        return data.draw(st.sampled_from(found)) if found else None

    def held_up(self) -> bool:
        return self.offset_s < -5

    def attempt(self, name, action):
        """Do it, count how it ended, and see that a clock that was set back allows nothing."""
        try:
            found = action()
        except ClockError:
            assert self.held_up()
            SEEN["refused by the clock"] += 1
            return None
        except LeaseHeld:
            SEEN[f"{name} held"] += 1
            return None
        except LeaseDenied:
            SEEN[f"{name} denied"] += 1
            return None
        SEEN[name] += 1
        return found

    @rule(
        parts=some_parts, priority=st.sampled_from([0, 0, 0, 1]), ttl_s=st.sampled_from([30.0, 100.0, 1000.0])
    )
    def request(self, parts, priority, ttl_s):
        self.attempt("request", lambda: self.store.request((), parts, ttl_s=ttl_s, priority=priority))

    @rule(parts=some_parts, wait_s=st.floats(1, 200), ttl_s=st.sampled_from([30.0, 100.0]))
    def reserve(self, parts, wait_s, ttl_s):
        self.attempt(
            "reserve", lambda: self.store.request((), parts, ttl_s=ttl_s, starts_s=self.now_s + wait_s)
        )

    @rule(parts=some_parts)
    def implicit(self, parts):
        self.attempt("implicit", lambda: self.store.request_implicit(parts))

    @rule(data=st.data())
    def release(self, data):
        if lease := self.pick(data, LIVING_STATES):
            self.attempt("release", lambda: self.store.release(lease.id))

    @rule(data=st.data())
    def extend(self, data):
        if lease := self.pick(data, LIVING_STATES):
            self.attempt("extend", lambda: self.store.extend(lease.id))

    @rule(data=st.data())
    def break_(self, data):
        if lease := self.pick(data, LIVING_STATES):
            broken = self.attempt("break", lambda: self.store.break_lease(lease.id, "needed"))
            assert broken is None or lease.id not in self.sending

    @rule(data=st.data())
    def begin(self, data):
        if lease := self.pick(data, ["granted"]):
            self.attempt("begin", lambda: self.store.begin_operation(lease.id, lease.parts))

    @rule(data=st.data())
    def outlast(self, data):
        """Begin an operation that takes longer than its lease lasts."""
        lease = self.pick(data, ["granted"])
        if lease and self.attempt("begin", lambda: self.store.begin_operation(lease.id, lease.parts)):
            self.now_s += lease.ttl_s + 1
            self.attempt("wait", self.store.find_sending_leases)

    @rule(data=st.data())
    def end(self, data):
        if lease := self.pick(data, HELD_STATES):
            self.attempt("end", lambda: self.store.end_operation(lease.id))

    @rule(data=st.data())
    def send(self, data):
        """Begin to send, and be stopped there."""
        lease = self.pick(data, HELD_STATES)
        if lease and lease.token is not None and lease.id not in self.sending:
            stack = ExitStack()
            stack.enter_context(Fence(self.database, lease, lease.parts).guard_sending())
            self.sending[lease.id] = stack
            SEEN["sending"] += 1

    @rule(data=st.data())
    def send_too_late(self, data):
        """Send under a lease that has ended."""
        ended = [
            one for one in self.all().values() if one.state not in LIVING_STATES and one.token is not None
        ]
        if ended:
            lease = data.draw(st.sampled_from(ended))
            with pytest.raises(LeaseStale), Fence(self.database, lease, lease.parts).guard_sending():
                pass
            SEEN["stale"] += 1

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def sent(self, data):
        self.sending.pop(data.draw(st.sampled_from(sorted(self.sending)))).close()

    @rule(data=st.data())
    def die(self, data):
        """Kill the process of an operation; the kernel gives its locks back."""
        lease = self.pick(data, HELD_STATES)
        if lease and lease.operation and not self.held_up():
            if lease.id in self.sending:
                self.sending.pop(lease.id).close()
            self.dead.add(lease.operation)
            self.attempt("death", self.store.find_sending_leases)
            self.dead.clear()

    @rule(step_s=st.sampled_from([1.0, 20.0, 60.0, 500.0]))
    def wait(self, step_s):
        self.now_s += step_s
        self.attempt("wait", self.store.find_sending_leases)

    @rule(offset_s=st.sampled_from([0.0, 0.0, 0.0, -2.0, -3600.0]))
    def set_clock(self, offset_s):
        self.offset_s = offset_s

    @rule(part=st.sampled_from(PARTS), fault=st.sampled_from(["", "", "host_off"]))
    def check(self, part, fault):
        if not self.held_up():
            self.store.write_checks({part: fault})
            (self.faults.add if fault else self.faults.discard)(part)
            SEEN["fault"] += bool(fault)

    @invariant()
    def rules_hold(self):
        leases = self.all()  # read once: a read takes as long as all that is looked at
        self.nothing_is_held_twice(leases)
        self.only_known_transitions_happened(leases)
        self.tokens_only_grow(leases)
        self.nobody_waits_for_nothing_and_nobody_overtakes(leases)
        self.what_is_being_sent_is_still_allowed(leases)

    def nothing_is_held_twice(self, leases):
        held = [part for one in leases.values() if one.state in HELD_STATES for part in one.parts]
        assert len(held) == len(set(held))

    def only_known_transitions_happened(self, leases):
        """Several may happen in one transaction: a reservation is queued and granted at once."""
        for one in leases.values():
            was = self.before.get(one.id, "requested" if one.starts_s else "queued")
            reached, edge = {was}, {was}
            while edge:
                edge = {state for old in edge for state in TRANSITIONS[old]} - reached
                reached |= edge
            assert one.state in reached
            if one.state != was:
                SEEN[one.state] += 1
            self.before[one.id] = one.state

    def tokens_only_grow(self, leases):
        tokens = [one.token for one in leases.values() if one.token is not None]
        assert len(tokens) == len(set(tokens))
        new = [token for token in tokens if token > self.newest_token]
        assert len(tokens) == len([token for token in tokens if token <= self.newest_token]) + len(new)
        self.newest_token = max([self.newest_token, *tokens])

    def nobody_waits_for_nothing_and_nobody_overtakes(self, leases):
        """Grant a request that is first in all its parts, which are free and whole; let those behind it wait."""
        living = [one for one in leases.values() if one.state in LIVING_STATES]
        taken = {part for one in living if one.state in HELD_STATES for part in one.parts}
        ahead = {part for one in living if one.state == "requested" for part in one.parts}
        before: set[str] = set()
        for one in sort_requests(one for one in living if one.state == "queued"):
            is_free = one.parts.isdisjoint(taken | before | ahead | self.faults)
            assert not is_free, f"{one.id} waits for nothing"
            before |= one.parts

    def what_is_being_sent_is_still_allowed(self, leases):
        assert all(leases[lease].state in HELD_STATES for lease in self.sending)


OFTEN = (
    "request",
    "granted",
    "implicit",
    "implicit denied",
    "reserve",
    "release",
    "begin",
    "end",
    "expired",
    "broken",
)
SELDOM = (
    "reserve denied",
    "extend",
    "sending",
    "stale",
    "death",
    "draining",
    "released",
    "fault",
    "extend denied",
)
FLOORS = dict.fromkeys(OFTEN, 5) | dict.fromkeys(SELDOM, 1)


@pytest.mark.slow
def test_leases_keep_their_rules_whatever_happens():
    SEEN.clear()
    run_state_machine_as_test(Leases, settings=settings(max_examples=90, stateful_step_count=25))
    assert {name: SEEN[name] for name, floor in FLOORS.items() if SEEN[name] < floor} == {}


@pytest.mark.parametrize(("now_s", "newest_s", "time_s"), [(10, 5, 10), (5, 5, 5), (4, 5, 5), (0, 5, 5)])
def test_a_small_step_back_is_waited_out(now_s, newest_s, time_s):
    assert check_monotonic(now_s, newest_s) == time_s


def test_an_hour_back_is_told():
    with pytest.raises(ClockError, match="3600 s behind the newest entry"):
        check_monotonic(0.0, 3600.0)
