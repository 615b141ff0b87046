"""Two operators, a journal and a switch that misbehaves: whatever happens, the account is the truth.

A state machine plans and applies on the 12-host lab (a real twin on real sockets) while a second operator edits
the switch and faults come and go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from libraries import skip_without

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

from ocs_drivers.errors import OcsError
from ocs_drivers.model import Status
from testbed.errors import ApplyFailed, DriftError
from testbed.operate.apply import apply_plan
from testbed.operate.design import build_design
from testbed.operate.journal import Journal
from testbed.operate.plan import plan_lab

FAULTS = (
    {"fault": "drop_command"},
    {"fault": "garbage"},
    {"fault": "garbage", "count": 40},  # more than a read is tried
    {"fault": "close_connection", "after_commands": 1},
    {"fault": "close_connection", "after_commands": 2, "executed": False},
    {"fault": "stuck", "pair": [1, 53]},
)


@dataclass
class Bench:
    """Fixture that all runs of the machine share: the lab, its open switch, its control socket, and a tally."""

    lab: Any
    switches: Any
    ask: Any
    journal: Journal
    wirings: Any
    seen: Counter[str]


class TwoOperators(RuleBasedStateMachine):
    """Ours plans and applies; the other one edits; the device has its moods."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.plan: Any = None
        self.drifted = False

    def truth(self) -> frozenset[tuple[int, int]]:
        return frozenset((a, b) for a, b in self.bench.ask("truth")["connections"])

    @rule(which=st.integers(0, 2))
    def make_a_plan(self, which):
        try:
            self.plan = plan_lab(self.bench.lab, self.bench.wirings[which], self.bench.switches)
        except OcsError:  # a fault met the read: nothing was to move
            self.bench.seen["unreadable"] += 1
            return
        self.drifted = False

    @rule(ports=st.lists(st.integers(1, 48), min_size=1, max_size=3, unique=True))
    def the_other_operator_disconnects(self, ports):
        before = self.truth()
        self.bench.ask("operator", disconnect=ports)
        self.drifted = self.drifted or self.truth() != before

    @rule(fault=st.sampled_from(FAULTS))
    def the_device_gets_a_fault(self, fault):
        self.bench.ask("set_fault", **fault)

    @rule()
    def the_device_recovers(self):
        self.bench.ask("clear_fault", fault="all")

    @rule(
        which=st.integers(0, 2),
        edited=st.lists(st.integers(1, 48), max_size=2, unique=True),
        fault=st.sampled_from((None, *FAULTS)),
    )
    def plan_and_apply_with_something_between(self, which, edited, fault):
        self.the_device_recovers()
        self.make_a_plan(which)
        if edited:
            self.the_other_operator_disconnects(edited)
        if fault:
            self.the_device_gets_a_fault(fault)
        if self.plan:
            self.apply_the_plan()

    @precondition(lambda self: self.plan is not None)
    @rule()
    def apply_the_plan(self):
        before, plan, self.plan = self.truth(), self.plan, None
        try:
            apply_plan(self.bench.lab, plan, self.bench.switches, self.bench.journal)
        except DriftError:
            assert self.drifted
            assert self.truth() == before
            self.bench.seen["drift"] += 1
        except ApplyFailed as failed:
            self.check_account(failed)
            self.bench.seen["failed"] += 1
        except OcsError:
            assert self.truth() == before, "a switch that could not be read was not moved"
            self.bench.seen["unreadable"] += 1
        else:
            assert self.truth() == plan.switches[0].target.pairs
            self.bench.seen["changed" if plan.has_changes else "unchanged"] += 1

    def check_account(self, failed):
        """Check that done pairs are as wanted and failed ones are not, by the twin's own word."""
        truth = self.truth()
        (report,) = failed.result.reports.values()
        for pair, became in report.pairs.items():
            as_wanted = (pair in truth) == (pair in report.target.pairs)
            assert became is Status.UNKNOWN or as_wanted == (became is Status.DONE), (pair, became)

    @invariant()
    def every_intent_has_an_outcome(self):
        assert self.bench.journal.find_open_steps() == ()

    def teardown(self):
        self.bench.ask("clear_fault", fault="all")


@pytest.fixture
def bench(modelled, switches, ask_twin, tmp_path):
    designs = [
        build_design(modelled.lab, simplex=simplex, method=method)
        for simplex, method in ((False, "geometric"), (True, "geometric"))
    ]
    wirings = [design.wiring for design in designs]
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield Bench(modelled.lab, switches, ask_twin, journal, [*wirings, wirings[0]], Counter())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whatever_two_operators_and_a_moody_device_do_the_account_is_the_truth(bench):
    TwoOperators.bench = bench
    run_state_machine_as_test(
        TwoOperators,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

    assert min(bench.seen[kind] for kind in ("changed", "failed", "drift", "unchanged", "unreadable")) >= 10
