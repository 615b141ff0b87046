"""For any sequence of applies, faults, operators and power cuts: the switch holds the target, or the report is true.

Driver and twin are joined in memory on the twin's virtual clock; the control side of the twin tells what is
really connected. Each family is driven by every one of its protocols.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from schemes import BANKS, SCHEMES

from ocs_drivers import CrossConnects, OcsError, Status
from ocs_drivers.errors import Conflict, PortError, Unsupported

SIZE = 8
STEPS, STEPS_AT_LEAST = 50, 36
"""Longest sequence of steps, and what one has on the average at least."""
FAMILY_STEPS = 2050
"""So many steps are taken by the protocols of each family together in `make test-long`."""
SEQUENCES_IN_SHORT = 2
"""So many sequences are taken by each daily protocol in `make test`."""
DAILY = ("calient+rest", "polatis+tl1", "telescent+cli", "manual")
"""A switch of mirrors over HTTP and one over TL1, a robot, and a panel that a person patches."""

SELDOM = {"poll_s": "20"}
"""A robot's move of a minute is looked at three times, which is as good as twenty times here."""

PROTOCOLS = {scheme: twin for scheme, twin in SCHEMES.items() if scheme not in BANKS}
OPTIONS = dict.fromkeys(("telescent", "rome", "afm"), SELDOM)
"""Options of the addresses of a family."""
ONE_FAMILY = {name: {"rome", "afm"} for name in ("rome", "afm")}
"""Wave2Wave ROME and FiberZone AFM are one driver with two dialects."""

UNDER_WAY_S = 300.0
"""Time after which a robot has done what it had received when its line was lost."""

CUTS = {"close_connection", "half_open", "delay_reply", "refuse"}
"""Faults that cut the link, after which a pair may be unknown."""

DARKENING = {"dark_input", "lossy", "swap_fibres", "fail_port", "disable_port", "lock_port"}
"""Faults after which a circuit that is there may carry no light."""

CANNOT_FIRE = {"lossy", "dark_input", "refuse", "max_sessions"}
"""Faults that cannot fire in this test: it has no fibres, and a line in memory makes no new connections."""
CANNOT_FIRE_BY_SCHEME: dict[str, set[str]] = {
    "polatis+scpi": {"expire_session"},
    "polatis+serial": {"expire_session"},
    "polatis+rest": {"expire_session"},
    "manual": {"expire_session"},
    "calient+tl1": {"deny_writes", "fail_item"},
    "calient+rest": {"page_rows", "report_noise"},
    "telescent+cli": {"lock_port"},
}
"""Faults of the other protocols of the family, or of states that this protocol reports in another way."""

FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "close_connection": st.one_of(
        st.builds(lambda n, e: {"after_commands": n, "executed": e}, st.integers(1, 3), st.booleans()),
        st.builds(lambda n: {"after_bytes": n}, st.integers(0, 40)),
    ),
    "delay_reply": st.sampled_from([{"seconds": 0.2}, {"seconds": 8.0}]),
    "half_open": st.just({}),
    "refuse": st.just({}),
    "expire_session": st.just({}),
    "max_sessions": st.just({"count": 1}),
}
ports = st.integers(1, 2 * SIZE)
pairs = st.tuples(st.integers(1, SIZE), st.integers(SIZE + 1, 2 * SIZE)).map(list)
inputs_pair = st.lists(st.integers(1, SIZE), min_size=2, max_size=2, unique=True)
MAIN_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "port": ports,
    "pair": pairs,
    "count": st.integers(1, 2),
    "item": st.integers(1, 4),
    "seconds": st.sampled_from([0.1, 1.0]),
}
configurations = st.permutations(range(SIZE + 1, 2 * SIZE + 1)).flatmap(
    lambda outputs: st.sets(st.integers(1, SIZE)).map(
        lambda inputs: CrossConnects({source: outputs[source - 1] for source in inputs})
    )
)


def fields_of(name: str, main: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the fields that may come with a fault."""
    if name == "swap_fibres":
        return inputs_pair.map(lambda two: {"pair": two})
    if name == "lossy":
        return pairs.map(lambda pair: {"pair": pair, "loss_db": 9.0})
    if name == "dark_input":
        return st.integers(1, SIZE).map(lambda port: {"port": port})
    return FIELDS[name] if name in FIELDS else MAIN_FIELDS[main].map(lambda value: {main: value})


class TruthMachine(RuleBasedStateMachine):
    """One switch, an operator, faults; subclassed for each protocol with `make` and a place to count in."""

    make: Any
    met: Counter[str]

    @initialize(boot_mode=st.sampled_from(["DARK", "RESTORE", "AUTOSAVE"]))
    def begin(self, boot_mode: str) -> None:
        self.world, self.switch = self.make(boot_mode)
        if not self.watched():  # the caller's link test
            self.switch.probe = lambda pair: pair in self.world.truth().items()
        faults = self.world.twin.faults
        self.known_faults = {
            name: fields_of(name, fault.main_field) for name, fault in sorted(faults.items())
        }

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.met.update({f"fault {name}": 0 for name in self.known_faults})
            for name, times in self.world.do("truth")["fired"].items():
                self.met[f"fault {name}"] += times
            self.switch.close()
            self.world.close()

    # One rule, for hypothesis leaves out whole rules in some sequences: this mixture is the same in all.
    @rule(kind=st.sampled_from(["apply"] * 4 + ["operator", "power"]), data=st.data())
    def step(self, kind: str, data: Any) -> None:
        self.met["steps"] += 1
        if kind == "apply" or not self.watched():
            self.apply(data.draw(configurations), data, scoped=data.draw(st.booleans()))
        elif kind == "operator":
            self.operator_connects(data.draw(pairs))
        else:
            self.power_fails(data.draw(st.sampled_from([0.0, 0.3, 200.0])))

    def apply(self, wanted: CrossConnects, fault: Any, *, scoped: bool) -> None:
        name = fault.draw(st.sampled_from(["", "", *self.known_faults]))
        fields = fault.draw(self.known_faults[name]) if name else {}
        if name == "stuck" and wanted:  # a pair that will be asked for
            fields = {"pair": list(fault.draw(st.sampled_from(sorted(wanted.pairs))))}
        meddled = fault.draw(st.none() | pairs) if self.watched() and not name else None
        meddles_at = fault.draw(st.integers(1, 3)) if meddled else 0
        scope = frozenset(wanted) if scoped and wanted else None
        before = self.world.truth()
        writes = 0

        def arm() -> None:  # once a write is about to go out, so that reads before it are not what fails
            nonlocal writes
            writes += 1
            if name and writes == 1:
                self.world.do("set_fault", fault=name, **fields)
            if meddled and writes == meddles_at:  # somebody else, after all comparing and before the write
                self.met["meddled"] += 1
                self.world.do("operator", connect=[meddled])

        try:
            report = self.switch.apply(wanted, guard=arm, scope=scope)
        except OcsError as error:
            self.met["refused" if error.report is None else "failed"] += 1
            report = error.report
            if report is None and not isinstance(error, PortError | Conflict | Unsupported):
                raise
        else:
            self.met["done"] += 1
            self.hold(report, scope, name)
        truth = self.world.truth()
        if meddled and writes >= meddles_at:
            self.check_in_spite_of(meddled, report, wanted, truth)
        else:
            self.check(report, wanted, before, truth, name)
        self.world.do("clear_fault", fault="all")

    def hold(self, report: Any, scope: frozenset[int] | None, fault: str) -> None:
        """Check an apply that ends without an error: the switch holds the target, and what was made has its light."""
        truth, target = self.world.do("truth"), report.target
        held = {source: output for source, output in truth["connections"] if scope is None or source in scope}
        assert held == dict(target), f"done, and the switch holds {held}, {fault!r}"
        if fault not in DARKENING:
            made = target.pairs & set(report.pairs)
            assert {tuple(pair) for pair in truth["lit"]} >= made, f"done while mirrors move, {fault!r}"

    def check_in_spite_of(self, meddled: list[int], report: Any, target: CrossConnects, truth: Any) -> None:
        """Check with somebody else at work: nothing is called done that is not, nor failed but by what he touched."""
        for pair, status in report.pairs.items() if report else ():
            as_wanted = (pair in truth.items()) == (pair in target.pairs)
            assert status is not Status.UNKNOWN
            assert as_wanted or status is Status.FAILED, f"{pair} is not done, in spite of {meddled}"
            assert not as_wanted or status is Status.DONE or set(pair) & set(meddled), f"{pair} is done"

    def check(self, report: Any, target: CrossConnects, before: Any, truth: Any, fault: str) -> None:
        if report is None:
            assert truth == before
            return
        for pair, status in report.pairs.items():
            as_wanted = (pair in truth.items()) == (pair in target.pairs)
            if status is Status.UNKNOWN:
                self.met["unknown"] += 1
                assert fault in CUTS, f"{pair} is unknown after {fault!r}"
            else:
                assert (status is Status.DONE) == as_wanted, f"{pair} is {status}, truth {truth}, {fault!r}"
        if Status.UNKNOWN in report.pairs.values():
            self.world.advance(UNDER_WAY_S)  # what was sent may still be carried out: who knows it, waits
        if self.watched():
            assert set(truth.items()) ^ set(before.items()) <= set(report.pairs)
        if not self.watched() and Status.UNKNOWN not in report.pairs.values():
            assert truth == dict(report.read_back.connections)  # also where a cord went to the wrong place

    def watched(self) -> bool:
        """Return True if a read shows what others do; a panel that a person patches only knows what was confirmed."""
        return bool(self.switch.capabilities.reads_back)

    def operator_connects(self, pair: list[int]) -> None:
        self.world.do("operator", connect=[pair])
        assert dict(self.switch.read().connections) == self.world.truth()

    def power_fails(self, seconds: float) -> None:
        self.world.do("power_cycle", off_s=0.0)
        self.world.advance(seconds)
        assert dict(self.switch.read().connections) == self.world.truth()


def drive(scheme: str, world: Any, open_in_memory: Any, sequences: int) -> Counter[str]:
    """Run so many sequences on a protocol; return what was met, and how often."""
    family, front = PROTOCOLS[scheme]
    met: Counter[str] = Counter()

    def make(self: TruthMachine, boot_mode: str) -> tuple[Any, Any]:
        made = world(family, size=(SIZE, SIZE), settings={"boot_mode": boot_mode})
        return made, open_in_memory(made, scheme, front, **OPTIONS.get(family, {}))

    machine = type("Machine", (TruthMachine,), {"make": make, "met": met})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate],  # a failure is told by its first example, not after minutes of shrinking
        ),
    )
    print(scheme, dict(met))
    return met


def fired(met: Counter[str]) -> dict[str, int]:
    """Return how often each fault fired."""
    return {what.removeprefix("fault "): times for what, times in met.items() if what.startswith("fault ")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [pytest.param(scheme, marks=() if scheme in DAILY else pytest.mark.long) for scheme in PROTOCOLS],
)
def test_the_target_is_held_or_the_report_tells_the_truth(scheme, world, open_in_memory):
    met = drive(scheme, world, open_in_memory, SEQUENCES_IN_SHORT)

    assert met["steps"] >= 25
    assert met["done"] >= met["steps"] / 10
    assert met["failed"] >= met["steps"] / 50
    assert sum(fired(met).values()) >= met["steps"] / 10


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scheme", PROTOCOLS)
def test_the_same_for_two_thousand_steps_and_every_fault(scheme, world, open_in_memory):
    kin = ONE_FAMILY.get(PROTOCOLS[scheme][0], {PROTOCOLS[scheme][0]})
    protocols = sum(row[0] in kin for row in PROTOCOLS.values())
    enough = math.ceil(FAMILY_STEPS / protocols)

    met = drive(scheme, world, open_in_memory, math.ceil(enough / STEPS_AT_LEAST))

    assert met["steps"] * protocols >= 2000
    assert met["done"] >= enough / 10
    assert met["failed"] >= enough / 50
    assert sum(fired(met).values()) >= enough / 10
    never = {name for name, times in fired(met).items() if not times}
    assert never <= CANNOT_FIRE | CANNOT_FIRE_BY_SCHEME.get(scheme, set())
