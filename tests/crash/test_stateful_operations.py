"""Operators, faults, deaths and a clock that steps, in any order: what the journal says is what the twins hold.

Every operation is a process of its own, which may be killed at any write; another operator edits the switch, and the
device has faults. Truth is read from the twin.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crash_harness import KILLED, MEMORY, Scene
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("pyvisa_py")

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab

TESTBED12 = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"
OURS = 24
"""Inputs of our six hosts; the others are somebody else's, and may change under our feet."""

FAULTS = (
    {"fault": "drop_command"},
    {"fault": "garbage"},
    {"fault": "close_connection", "after_commands": 8},
    {"fault": "close_connection", "after_commands": 9, "executed": False},
    {"fault": "stuck", "pair": [1, 53]},
)

FLOORS = {
    "applied": 40,
    "change applied": 5,
    "change stale": 5,
    "killed": 15,
    "resume: verified": 3,
    "resume: none": 5,
    "rolled back": 3,
    "leased": 5,
    "refused: lease.denied": 5,
    "refused: clock": 3,
    "another operator edits": 30,
    "edit beside us": 5,
    "fault met": 5,
    "clock stepped back": 5,
}
"""Times that each must have happened in 1,000 rules."""

FLOORS_IN_SHORT = dict.fromkeys(("applied", "killed", "another operator edits", "fault met"), 1)
"""The same in the few rules of `make test`."""


@dataclass
class Bench:
    """The lab and the process that the machine works with, and what has happened."""

    scene: Scene
    goals: dict[bool, frozenset[tuple[int, int]]]
    seen: Counter[str] = field(default_factory=Counter)


class Operations(RuleBasedStateMachine):
    """Operators of one lab, and what befalls them."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.scene, self.seen = self.bench.scene, self.bench.seen
        self.clock_s = self.newest_s = 0
        self.leased_until_s = None
        self.planned_on = None  # what a change file was written for: our circuits, and the newest epoch
        self.has_fault = False
        self.scene.ask("ocs1", do="clear_fault", fault="all")
        self.scene.ask("ocs1", do="operator", disconnect=list(range(1, 49)))
        shutil.rmtree(self.scene.runs, ignore_errors=True)
        self.scene.runs.mkdir()

    # -- what is so

    def truth(self):
        return self.scene.truth()["ocs1"]

    def ours(self):
        return frozenset(pair for pair in self.truth() if pair[0] <= OURS)

    def rows(self, query):
        if not (self.scene.runs / "lightbed.sqlite").exists():
            return []
        with sqlite3.connect(self.scene.runs / "lightbed.sqlite") as connection:
            found = connection.execute("select name from sqlite_master where name = 'intents'").fetchall()
            rows = connection.execute(query).fetchall() if found else []
        connection.close()
        return rows

    def epochs(self):
        """Return of each epoch whether its topology is one-way."""
        kept = self.rows("select epoch, topology from intents")
        return {epoch: json.loads(topology)["simplex"] for epoch, topology in kept}

    def newest_epoch(self):
        return max(self.epochs(), default=0)

    def run(self, **request):
        ended = self.scene.run(clock_s=self.clock_s, **request)
        self.newest_s = max(self.newest_s, self.clock_s)
        return ended

    # -- rules

    @rule(simplex=st.booleans())
    def apply(self, simplex):
        before = self.ours()
        self.check_ended(self.run(do="apply", simplex=simplex), simplex, "applied", before)

    @rule(simplex=st.booleans(), at=st.integers(20, 150))
    def apply_and_die(self, simplex, at):
        before, goal = self.ours(), self.bench.goals[simplex]
        ended = self.run(do="apply", simplex=simplex, kill=f"#{at}")
        if ended["code"] != KILLED:
            self.check_ended(ended, simplex, "applied", before)
            return
        self.seen["killed"] += 1
        assert before & goal <= self.ours() <= before | goal or self.has_fault, (before, goal, self.ours())

    @rule(simplex=st.booleans(), at=st.integers(20, 150))
    def apply_die_and_resume(self, simplex, at):
        self.the_device_recovers()
        self.apply_and_die(simplex, at)
        self.resume()

    @rule()
    def there_and_back(self):
        self.the_device_recovers()
        self.apply(False)
        self.apply(True)
        self.roll_back()

    @rule()
    def resume(self):
        before = self.ours()
        ended = self.run(do="resume")
        if ended["code"]:
            self.check_refused(ended, before, "operation.superseded")
            return
        self.seen[f"resume: {ended['state']}"] += 1
        if ended["state"] in ("none", "unknown"):
            assert self.ours() == before, f"nothing was to be done, and something moved: {ended}"
            assert ended["reason"]
        elif ended["state"] == "verified":
            assert self.has_fault or self.ours() in self.bench.goals.values()

    @rule()
    def roll_back(self):
        epochs, before = self.epochs(), self.ours()
        ended = self.run(do="rollback")
        if ended["code"]:
            self.check_refused(ended, before, "rollback.none")
            return
        assert self.has_fault or self.ours() == self.bench.goals[epochs[ended["to"]]]
        self.seen["rolled back"] += 1

    @rule()
    def somebody_asks_for_a_lease(self):
        ended = self.run(do="lease")
        if ended["code"]:
            assert ended["error"]["code"] == "clock", ended
            return
        if self.leased_until_s is None or self.clock_s >= self.leased_until_s:
            self.leased_until_s = self.clock_s + 1800
            self.seen["leased"] += 1

    @rule(simplex=st.booleans())
    def write_a_change(self, simplex):
        before = self.truth()
        ended = self.run(do="write", simplex=simplex, file=self.file)
        assert self.truth() == before, "a plan moves nothing"
        if ended["code"]:
            assert self.has_fault, ended
            self.seen["fault met"] += 1
            return
        self.planned_on, self.planned = (self.ours(), self.newest_epoch()), simplex

    @precondition(lambda self: self.planned_on is not None)
    @rule()
    def apply_the_change(self):
        is_stale = self.planned_on != (self.ours(), self.newest_epoch())
        before = self.ours()
        ended = self.run(do="apply_change", file=self.file)
        if ended["code"] and ended["error"]["code"] == "plan.stale":
            assert is_stale or self.has_fault, ended
            assert self.ours() == before, "a stale change moved something"
            self.seen["change stale"] += 1
        else:
            assert not is_stale or ended["code"], "a stale change was applied"
            self.check_ended(ended, self.planned, "change applied", before)

    @rule(simplex=st.booleans(), edited=st.lists(st.integers(1, OURS), max_size=1))
    def a_change_is_written_and_applied(self, simplex, edited):
        self.the_device_recovers()
        self.write_a_change(simplex)
        if edited:
            self.another_operator_disconnects(edited)
        self.apply_the_change()

    @rule(ports=st.lists(st.integers(1, OURS), min_size=1, max_size=3, unique=True))
    def another_operator_disconnects(self, ports):
        self.scene.ask("ocs1", do="operator", disconnect=ports)
        self.seen["another operator edits"] += 1

    @rule(source=st.integers(OURS + 1, 48), output=st.integers(49 + OURS, 96))
    def another_operator_edits_beside_us(self, source, output):
        before = self.ours()
        self.scene.ask("ocs1", do="operator", connect=[[source, output]])
        assert self.ours() == before
        self.seen["edit beside us"] += 1

    @rule(fault=st.sampled_from(FAULTS))
    def the_device_gets_a_fault(self, fault):
        self.scene.ask("ocs1", do="set_fault", **fault)
        self.has_fault = True

    @rule(simplex=st.booleans(), fault=st.sampled_from(FAULTS))
    def apply_meets_a_fault(self, simplex, fault):
        self.the_device_recovers()
        self.the_device_gets_a_fault(fault)
        self.apply(simplex)

    @rule()
    def the_device_recovers(self):
        self.scene.ask("ocs1", do="clear_fault", fault="all")
        self.has_fault = False

    @rule(hours=st.sampled_from((-1, 1)))
    def the_clock_steps(self, hours):
        self.clock_s += 3600 * hours
        self.seen["clock stepped back" if hours < 0 else "clock stepped on"] += 1

    # -- checks

    @property
    def file(self):
        return self.scene.runs.parent / "change.json"

    def check_ended(self, ended, simplex, kind, before):
        """Check that what succeeded is so, and that what failed had a reason to."""
        if ended["code"]:
            self.check_refused(ended, before)
            return
        assert not self.is_leased, "something moved under the lease of somebody else"
        assert self.has_fault or self.ours() == self.bench.goals[simplex]
        self.seen[kind] += 1

    def check_refused(self, ended, before, *codes):
        """Check that there was a reason, and that what was refused has moved nothing."""
        code = ended["error"]["code"]
        if code == "clock":
            assert self.clock_s < self.newest_s, ended
        elif code == "lease.denied":
            assert self.is_leased, ended
        else:
            assert self.has_fault or code in codes, ended
        if code in ("clock", "lease.denied", *codes):
            assert self.ours() == before, f"refused, and something moved: {ended}"
        self.seen[f"refused: {code}" if code in ("clock", "lease.denied", *codes) else "fault met"] += 1

    @property
    def is_leased(self):
        return self.leased_until_s is not None and self.clock_s < self.leased_until_s

    @invariant()
    def epochs_are_numbered_without_a_gap(self):
        assert sorted(self.epochs()) == list(range(1, len(self.epochs()) + 1))

    @invariant()
    def count_rules(self):
        self.seen["rules"] += 1


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(server):
    """Provide a lab of six hosts, beside others, on one switch."""
    lab = load_lab(TESTBED12)
    twins = {"ocs1": replace(lab.twins["ocs1"], switch_time_s=0.002)}
    lab = replace(lab, hosts=lab.hosts[:6], twins=twins)
    with (
        start_lab(lab, hosts="model", may_move=True) as up,
        TemporaryDirectory(prefix=f"lightbed-{os.getpid()}-", dir=MEMORY) as directory,
    ):
        scene = Scene.of(
            up, server, Path(directory), [{"do": "apply", "simplex": False}], do="apply", simplex=True
        )
        yield Bench(scene, {False: scene.start["ocs1"], True: scene.goal["ocs1"]})


def run(bench, examples, steps):
    bench.seen.clear()
    Operations.bench = bench
    run_state_machine_as_test(
        Operations,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def check_floors(seen, floors):
    rare = {kind: seen[kind] for kind, least in floors.items() if seen[kind] < least}
    assert not rare, f"{rare} of {seen}"


def test_whatever_happens_in_any_order_the_journal_is_the_truth(bench):
    run(bench, examples=3, steps=30)
    check_floors(bench.seen, FLOORS_IN_SHORT)
    assert bench.seen["rules"] >= 50


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_same_for_eight_thousand_rules(bench):
    run(bench, examples=240, steps=40)  # of 36 rules or so each
    check_floors(bench.seen, {kind: 8 * least for kind, least in FLOORS.items()})
    assert bench.seen["rules"] >= 8_000
