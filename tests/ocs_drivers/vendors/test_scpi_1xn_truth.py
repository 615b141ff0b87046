"""Banks of 1xN switches: after any applies and faults the device stands where it was sent, or as the report says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemes
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ocs_drivers import CrossConnects, OcsError, Status
from ocs_drivers.errors import Conflict, PortError, Unsupported

BANKS, CHANNELS = 2, 6
STEPS = 50

SIZE = {"banks": str(BANKS), "channels": str(CHANNELS)}
SPELT_OUT = {"set": ":ROUT{bank}:CHAN {channel}", "query": ":ROUT{bank}:CHAN?"}
OPTIONS = {"scpi-1xn": {**SPELT_OUT, "errors": ":SYST:ERR?"}, "scpi-1xn+serial": SPELT_OUT}
"""Options of the addresses, on top of the size."""
SEQUENCES = {scheme: 8 if scheme.endswith("+serial") else 54 for scheme in schemes.BANKS}
"""Sequences of at most `STEPS` steps; in memory a serial line is the same session as a TCP connection."""
SEQUENCES_IN_SHORT = 4
"""The same in `make test`."""
DAILY = ("scpi-1xn", "dicon+serial")

CUTS = {"close_connection", "half_open", "delay_reply", "refuse", "max_sessions"}
"""Faults that cut the link, after which a pair may be unknown."""

banks = st.integers(1, BANKS)
channels = st.integers(1, CHANNELS)


def output(bank: int, channel: int) -> int:
    return BANKS + (bank - 1) * CHANNELS + channel


pairs = st.builds(lambda bank, channel: [bank, output(bank, channel)], banks, channels)
targets = st.dictionaries(banks, channels, min_size=1).map(
    lambda standing: CrossConnects({bank: output(bank, channel) for bank, channel in standing.items()})
)
FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "close_connection": st.one_of(
        st.builds(lambda n, e: {"after_commands": n, "executed": e}, st.integers(1, 3), st.booleans()),
        st.builds(lambda n: {"after_bytes": n}, st.integers(0, 4)),
    ),
    "delay_reply": st.sampled_from([{"seconds": 0.2}, {"seconds": 8.0}]),
    "half_open": st.just({}),
    "refuse": st.just({}),
    "expire_session": st.just({}),
    "max_sessions": st.just({"count": 0}),
    "swap_fibres": st.lists(banks, min_size=2, max_size=2, unique=True).map(lambda two: {"pair": two}),
    "lossy": pairs.map(lambda pair: {"pair": pair, "loss_db": 9.0}),
    "stuck": st.just({}),
    "dark_input": banks.map(lambda port: {"port": port}),
}
PORTS = st.integers(1, BANKS * (1 + CHANNELS)).map(lambda port: {"port": port})


def fields_of(name: str, main: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the fields that may come with a fault."""
    if main == "port" and name not in FIELDS:
        return PORTS
    return FIELDS.get(name, st.integers(1, 2).map(lambda count: {"count": count}))


class BankMachine(RuleBasedStateMachine):
    """One device, an operator, faults; subclassed for each protocol with `make` and a place to count in."""

    make: Any
    met: Counter[str]

    @initialize()
    def begin(self) -> None:
        self.world, self.switch = self.make()
        faults = self.world.twin.faults
        self.known_faults = {
            name: fields_of(name, fault.main_field) for name, fault in sorted(faults.items())
        }

    def teardown(self) -> None:
        if hasattr(self, "world"):
            for name, times in self.world.do("truth")["fired"].items():
                self.met[f"fault {name}"] += times
            self.switch.close()
            self.world.close()

    @rule(what=st.sampled_from(["apply", "apply", "apply", "select", "open", "power"]), draw=st.data())
    def step(self, what: str, draw: Any) -> None:
        self.met["steps"] += 1
        if what == "apply":
            self.apply(draw.draw(targets), draw)
            return
        if what == "power":
            self.world.do("power_cycle", off_s=0.0)
            self.world.advance(draw.draw(st.sampled_from([0.0, 0.3])))
        else:
            pair = draw.draw(pairs)
            self.world.do(
                "operator", **({"connect": [pair]} if what == "select" else {"disconnect": pair[:1]})
            )
        assert dict(self.switch.read().connections) == self.world.truth()

    def apply(self, wanted: CrossConnects, fault: Any) -> None:
        name = fault.draw(st.sampled_from(["", "", *self.known_faults]))
        fields = fault.draw(self.known_faults[name]) if name else {}
        if "port" in fields or name == "stuck":  # what nobody asks for would never bite
            pair = fault.draw(st.sampled_from(sorted(wanted.items())))
            fields = {"pair": list(pair)} if name == "stuck" else {"port": pair[name != "dark_input"]}
        before = self.world.truth()
        armed = []

        def arm() -> None:  # once a write is about to go out, so that reads before it are not what fails
            if name and not armed:
                armed.append(self.world.do("set_fault", fault=name, **fields))

        try:
            report = self.switch.apply(wanted, guard=arm, scope=frozenset(wanted))
        except OcsError as error:
            report = error.report
            self.met["refused" if report is None else "failed"] += 1
            if report is None and not isinstance(error, PortError | Conflict | Unsupported):
                raise
        else:
            self.met["done"] += 1
        self.check(report, wanted, before, name)
        self.world.do("clear_fault", fault="all")

    def check(self, report: Any, target: CrossConnects, before: dict[int, int], fault: str) -> None:
        truth = self.world.truth()
        if report is None:
            assert truth == before
            return
        for pair, status in report.pairs.items():
            if status is Status.UNKNOWN:
                self.met["unknown"] += 1
                assert fault in CUTS, f"{pair} is unknown after {fault!r}"
            else:
                assert (status is Status.DONE) == (pair in truth.items()), (
                    f"{pair} {status} {truth} {fault!r}"
                )
        untouched = {bank: out for bank, out in before.items() if bank not in target}
        assert untouched.items() <= truth.items()


def drive(scheme: str, world: Any, open_in_memory: Any, sequences: int) -> Counter[str]:
    """Run so many sequences on a bank; return what was met, and how often."""
    family, front = schemes.SCHEMES[scheme]
    options = SIZE | OPTIONS.get(scheme, {})
    met: Counter[str] = Counter()

    def make(self: BankMachine) -> tuple[Any, Any]:
        made = world(family, size=(BANKS, BANKS * CHANNELS))
        return made, open_in_memory(made, scheme, front, **options)

    machine = type("Machine", (BankMachine,), {"make": make, "met": met})
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, marks=() if scheme in DAILY else pytest.mark.long)
        for scheme in sorted(schemes.BANKS)
    ],
)
def test_every_bank_stands_where_it_was_sent_or_the_report_tells_the_truth(scheme, world, open_in_memory):
    met = drive(scheme, world, open_in_memory, SEQUENCES_IN_SHORT)
    assert met["steps"] >= 60
    assert met["done"] >= met["steps"] / 10
    assert met["failed"] >= met["steps"] / 50


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scheme", sorted(schemes.BANKS))
def test_every_bank_does_so_for_two_thousand_steps(scheme, world, open_in_memory):
    met = drive(scheme, world, open_in_memory, SEQUENCES[scheme])
    share = SEQUENCES[scheme] / 54
    assert met["steps"] >= 2000 * share
    assert met["done"] >= 200 * share
    assert met["failed"] >= 80 * share
    assert met["fault stuck"] >= 10 * share
    assert sum(times for what, times in met.items() if what.startswith("fault ")) >= 300 * share
