"""The Calient drivers on a twin in memory: both languages make, remove and judge alike; every fault, no real time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ocs_drivers import CrossConnects, OcsError, Status
from ocs_drivers.address import parse_address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    AddressError,
    Conflict,
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    NoLight,
    PartialApply,
    PermissionDenied,
    PortBusy,
    PortDisabled,
    PortFailed,
    PortLocked,
    ProtocolDesync,
    Timeout,
    Unsupported,
    VerifyMismatch,
)
from ocs_drivers.model import PendingMove, PortState, Power, Side, Step
from ocs_drivers.vendors.calient import REST_TIMEOUT_S, rest_switch, tl1_switch
from ocs_drivers.vendors.calient.rest_driver import CalientRest
from ocs_drivers.vendors.calient.tl1_driver import CalientTl1

ACCOUNT = Credentials("admin", "admin")
SIZE = 8
DRIVERS = {"tl1": CalientTl1, "tl1-interactive": CalientTl1, "rest": CalientRest}


@pytest.fixture
def bench(world) -> Any:
    """Make a driver on a twin in memory: `bench(front, **options of the twin)`."""
    opened = []

    def make(front: str = "tl1", *, settings: Any = None, **options: str) -> tuple[Any, Any]:
        made = world("calient", size=(SIZE, SIZE), settings=settings, **options)
        switch = open_on(made, front)
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


def open_on(made: Any, front: str, credentials: Credentials = ACCOUNT) -> Any:
    if front == "rest":
        pytest.importorskip("h11")
    switch = DRIVERS[front](
        made.device, made.transport(front), credentials=credentials, timeout_s=5.0, clock=made.clock
    )
    switch.open()
    return switch


both = pytest.mark.parametrize("front", ["tl1", "rest"])
all_fronts = pytest.mark.parametrize("front", list(DRIVERS))


def sent_commands(made: Any, *verbs: str) -> list[str]:
    """Return what was sent to the twin and begins with one of these words: commands, or the first line of requests."""
    entries = made.do("transcript")["entries"]
    lines = [line for e in entries if e["direction"] == "in" for line in e["data"].splitlines()]
    return [line for line in lines if line.startswith(verbs)]


def writes(made: Any) -> list[str]:
    return sent_commands(made, "ENT-", "ACT-CRS", "CANC-CRS", "DLT-", "POST", "DELETE")


def armed_once(made: Any, **fault: Any) -> Callable[[], None]:
    """Return a guard that sets a fault before the first write."""
    armed: list[Any] = []
    return lambda: armed or armed.append(made.do("set_fault", **fault))


def on_write(number: int, act: Callable[[], object]) -> Callable[[], None]:
    """Return a guard that does something before the n-th write command."""
    asked: list[int] = []

    def guard() -> None:
        asked.append(1)
        if len(asked) == number:
            act()

    return guard


class Engineer:
    """Somebody else at the TL1 port, who knows nothing but bytes."""

    def __init__(self, made: Any) -> None:
        self._world = made
        self._client = made.attach("tl1")
        assert "COMPLD" in self.say("ACT-USER::admin:1::admin;")

    def say(self, command: str) -> str:
        self._client.send(command.encode())
        self._world.advance(0.2)
        return self._client.receive().decode()

    def provision(self, source: str, target: str, way: str = "1WAY") -> None:
        assert "COMPLD" in self.say(f"ENT-CRS::{source},{target}:1::LAB,{way};")

    def rows(self) -> str:
        return self.say("RTRV-CRS:::2::ALL;")


# -- what a change costs


@pytest.mark.parametrize("front", ["tl1", "tl1-interactive"])
def test_tl1_makes_a_pair_with_two_commands_and_removes_it_with_two(bench, front):
    switch, made = bench(front)
    switch.connect({1: 10})
    switch.disconnect([1])
    verbs = [command.split(":")[0] for command in writes(made)]
    assert verbs == ["ENT-CRS", "ACT-CRS", "CANC-CRS", "DLT-CRS"]
    assert made.truth() == {}


def test_rest_makes_any_change_with_one_deletion_and_one_addition(bench):
    switch, made = bench("rest")
    switch.apply(CrossConnects({n: SIZE + n for n in range(1, SIZE + 1)}))
    made.do("transcript", clear=True)
    switch.apply(CrossConnects({n: SIZE + 1 + n % SIZE for n in range(1, SIZE + 1)}))
    assert writes(made) == [
        "POST /rest/crossconnects/?id=bdel HTTP/1.1",
        "POST /rest/crossconnects/?id=badd HTTP/1.1",
    ]
    assert made.truth() == {n: SIZE + 1 + n % SIZE for n in range(1, SIZE + 1)}


@both
def test_an_unchanged_target_sends_only_the_read(bench, front):
    switch, made = bench(front)
    switch.connect({1: 9})
    made.do("transcript", clear=True)
    assert not switch.apply(CrossConnects({1: 9})).changed
    assert writes(made) == []


@pytest.mark.parametrize("front", ["tl1", "tl1-interactive"])
def test_the_guard_is_asked_before_each_command(bench, front):
    switch, made = bench(front)
    sent: list[int] = []
    switch.apply(CrossConnects({1: 9}), guard=lambda: sent.append(len(writes(made))))
    switch.apply(CrossConnects(), guard=lambda: sent.append(len(writes(made))))
    assert sent == [0, 1, 2, 3]


# -- what is read


@all_fronts
def test_ports_have_names_aliases_and_states(bench, front):
    switch, made = bench(front)
    made.twin.device.labels[2] = "rack 4"
    made.do("set_fault", fault="fail_port", port=3)
    made.do("set_fault", fault="disable_port", port=SIZE + 3)
    made.do("set_fault", fault="lock_port", port=4)
    ports = switch.ports()
    assert list(ports) == list(range(1, 2 * SIZE + 1))
    assert (ports[2].name, ports[SIZE + 2].name) == ("1.1.2", "1.1.2")
    assert (ports[2].side, ports[SIZE + 2].side) == (Side.IN, Side.OUT)
    assert (ports[2].label, ports[SIZE + 2].label, ports[1].label) == ("rack 4", "rack 4", "")
    states = {number: port.state for number, port in ports.items() if port.state is not PortState.ENABLED}
    assert states == {3: PortState.FAILED, SIZE + 3: PortState.DISABLED, 4: PortState.LOCKED}


@all_fronts
def test_identity(bench, front):
    switch, _ = bench(front)
    identity = switch.identity()
    assert (identity.vendor, identity.model, identity.firmware) == ("Calient", "S8", "6.0-3")
    assert identity.serial.startswith("SIM")


def test_ports_are_numbered_alike_in_both_languages(world):
    made = world("calient", size=(80, 80))
    names = [[port.name for port in open_on(made, front).ports().values()] for front in ("tl1", "rest")]
    assert names[0] == names[1]
    assert names[0][0] == "1.1.1"
    assert names[0][79] == "2.2.8"


@pytest.mark.parametrize("front", ["tl1", "tl1-interactive"])
@pytest.mark.parametrize("rows", ["1", "3", "8"])
def test_pages_are_joined(bench, front, rows):
    switch, _ = bench(front, page_rows=rows)
    full = {n: SIZE + n for n in range(1, SIZE + 1)}
    switch.apply(CrossConnects(full))
    assert switch.read().connections == CrossConnects(full)
    assert len(switch.ports()) == 2 * SIZE


def test_an_interactive_port_may_repeat_nothing(bench):
    switch, made = bench("tl1-interactive", echo="no")
    assert switch.connect({1: 9}).complete
    assert made.truth() == {1: 9}


@both
def test_a_two_way_circuit_is_two_tied_pairs(bench, front):
    switch, made = bench(front)
    engineer = Engineer(made)
    engineer.provision("1.1.1", "1.1.2", "2WAY")
    engineer.say("ACT-CRS::1.1.1,1.1.2:3::1.1.1-1.1.2;")
    seen = switch.read()
    assert seen.connections == CrossConnects({1: 10, 2: 9})
    assert seen.tied == {frozenset({(1, 10), (2, 9)})}
    with pytest.raises(PortBusy, match="two-way"):
        switch.disconnect([1])
    made.do("transcript", clear=True)
    assert switch.disconnect([1, 2]).complete
    assert made.truth() == {}
    assert len(writes(made)) == (2 if front == "tl1" else 1)


@both
def test_a_two_way_circuit_is_removed_to_make_one_way_circuits(bench, front):
    switch, made = bench(front)
    engineer = Engineer(made)
    engineer.provision("1.1.1", "1.1.2", "2WAY")
    engineer.say("ACT-CRS::1.1.1,1.1.2:3::1.1.1-1.1.2;")
    assert switch.apply(CrossConnects({1: 10, 2: 11})).complete
    assert made.truth() == {1: 10, 2: 11}


# -- provisioned and not active


@both
def test_what_is_only_provisioned_is_not_connected_and_is_shown(bench, front):
    switch, made = bench(front)
    Engineer(made).provision("1.1.1", "1.1.2")
    seen = switch.read()
    assert seen.connections == CrossConnects()
    assert seen.pending == (
        PendingMove("connect", (1, 10), source="provisioned, not active", request="1.1.1>1.1.2"),
    )


@both
def test_the_wanted_circuit_is_used_as_it_is_provisioned(bench, front):
    switch, made = bench(front)
    Engineer(made).provision("1.1.1", "1.1.2")
    made.do("transcript", clear=True)
    assert switch.connect({1: 10}).complete
    assert made.truth() == {1: 10}
    expected = {
        "tl1": ["ACT-CRS"],
        "rest": ["POST /rest/crossconnects/?id=bdel", "POST /rest/crossconnects/?id=badd"],
    }
    assert [line.split(" HTTP")[0].split("::")[0] for line in writes(made)] == expected[front]


@both
@pytest.mark.parametrize(
    ("source", "target", "way"),
    [("1.1.1", "1.1.5", "1WAY"), ("1.1.5", "1.1.2", "1WAY"), ("1.1.1", "1.1.2", "2WAY")],
)
def test_what_is_provisioned_in_the_way_is_deleted(bench, front, source, target, way):
    switch, made = bench(front)
    engineer = Engineer(made)
    engineer.provision(source, target, way)
    engineer.provision("1.1.7", "1.1.7")
    assert switch.apply(CrossConnects({1: 10})).complete
    assert made.truth() == {1: 10}
    assert "UMA" in engineer.rows()  # what is in nobody's way stays
    assert [move.request for move in switch.read().pending] == ["1.1.7>1.1.7"]


@both
@pytest.mark.parametrize(
    ("source", "target", "way"), [("1.1.5", "1.1.2", "1WAY"), ("1.1.1", "1.1.2", "2WAY")]
)
def test_what_is_provisioned_by_inputs_outside_the_scope_is_refused_before_a_byte(
    bench, front, source, target, way
):
    switch, made = bench(front)
    Engineer(made).provision(source, target, way)
    made.do("transcript", clear=True)
    with pytest.raises(PortBusy, match="provisioned") as caught:
        switch.connect({1: 10})
    assert caught.value.peer == (5 if way == "1WAY" else 2)
    assert caught.value.ports == (1, 10)
    assert writes(made) == []


@both
def test_a_skipped_activation_is_waited_for_and_then_reported(bench, front):
    switch, made = bench(front)
    before_s = made.clock.now()
    with pytest.raises(
        DeviceError, match="the device accepted the command, but did not activate the provisioned"
    ) as caught:
        switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="skip_activate"))
    assert 10 <= made.clock.now() - before_s < 12
    assert caught.value.ports == (1, 9)
    assert caught.value.report.pairs == {(1, 9): Status.FAILED}
    assert made.truth() == {}
    assert switch.apply(CrossConnects({1: 9})).complete
    assert made.truth() == {1: 9}


@both
@pytest.mark.parametrize("moving", ["IS", "UMA"])
@pytest.mark.parametrize("rest_waits", ["yes", "no"])
def test_done_is_when_the_mirrors_have_arrived(bench, front, moving, rest_waits):
    switch, made = bench(front, moving=moving, rest_waits=rest_waits, settings={"switch_time_s": 3.0})
    before_s = made.clock.now()
    assert switch.connect({1: 9, 2: 10}).complete
    assert made.do("truth")["lit"] == [[1, 9], [2, 10]]
    assert 3 <= made.clock.now() - before_s < 9


@both
def test_mirrors_that_never_arrive_leave_it_unknown(bench, front):
    switch, _ = bench(front, rest_waits="no", settings={"switch_time_s": 100.0})
    with pytest.raises(PartialApply) as caught:
        switch.connect({1: 9})
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    assert isinstance(caught.value.__cause__, Timeout)


# -- denials


@both
@pytest.mark.parametrize(("foreign", "peer"), [([1, 16], 16), ([5, 9], 5)])
def test_a_port_taken_meanwhile_names_the_other_end(bench, front, foreign, peer):
    switch, made = bench(front)
    (step,) = switch.plan(CrossConnects({1: 9}), switch.read())
    outcome = switch.execute(step, lambda: made.do("operator", connect=[foreign]))
    assert outcome.pairs == {(1, 9): Status.FAILED}
    assert isinstance(outcome.error, PortBusy)
    assert "Invalid Connection" in str(outcome.error)
    assert (outcome.error.peer, outcome.error.ports) == (peer, (1, 9))
    assert dict([foreign]) == made.truth()


@both
def test_a_port_provisioned_meanwhile_names_the_other_end(bench, front):
    switch, made = bench(front)
    engineer = Engineer(made)
    with pytest.raises(PortBusy) as caught:
        switch.apply(CrossConnects({1: 9}), guard=on_write(1, lambda: engineer.provision("1.1.6", "1.1.1")))
    assert caught.value.peer == 6


@both
@pytest.mark.parametrize(
    ("fault", "error"), [("fail_port", PortFailed), ("disable_port", PortDisabled), ("lock_port", PortLocked)]
)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_unfit_ports_are_refused_with_their_numbers(bench, front, fault, error, meanwhile):
    switch, made = bench(front)
    guard = armed_once(made, fault=fault, port=SIZE + 2)
    if not meanwhile:
        guard()
    with pytest.raises(error) as caught:
        switch.apply(CrossConnects({1: SIZE + 2}), guard=guard)
    assert caught.value.ports == (SIZE + 2,)
    assert bool(writes(made)) == meanwhile
    assert made.truth() == {}


@both
def test_a_whole_configuration_at_once_is_beyond_it(bench, front):
    switch, _ = bench(front)
    step = Step("replace", CrossConnects({1: 9}), CrossConnects(), CrossConnects({1: 9}))
    assert isinstance(switch.execute(step).error, Unsupported)


@pytest.mark.parametrize("item", [1, 2, 3])
@pytest.mark.parametrize("rest_waits", ["yes", "no"])
def test_an_item_that_fails_under_200_is_reported_with_its_very_pair(bench, item, rest_waits):
    switch, made = bench("rest", rest_waits=rest_waits)
    target = {1: 9, 2: 10, 3: 11}
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects(target), guard=armed_once(made, fault="fail_item", item=item))
    failed = (item, SIZE + item)
    assert caught.value.ports == failed
    assert caught.value.report.pairs == {
        pair: Status.FAILED if pair == failed else Status.DONE for pair in target.items()
    }
    assert isinstance(caught.value.__cause__, DeviceError)
    assert caught.value.__cause__.ports == failed
    del target[item]
    assert made.truth() == target


@pytest.mark.parametrize("bulk_results", ["nested", "flat"])
def test_an_item_of_a_deletion_that_fails_leaves_its_circuit(bench, bulk_results):
    switch, made = bench("rest", bulk_results=bulk_results)
    switch.apply(CrossConnects({1: 9, 2: 10}))
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects(), guard=armed_once(made, fault="fail_item", item=2))
    assert caught.value.report.pairs == {(1, 9): Status.DONE, (2, 10): Status.FAILED}
    assert made.truth() == {2: 10}


def test_an_account_that_may_only_read_is_sent_to_tl1(bench):
    switch, made = bench("rest")
    made.do("set_fault", fault="deny_writes")
    assert switch.read().connections == CrossConnects()
    with pytest.raises(PermissionDenied, match=r"calient\+tl1") as caught:
        switch.connect({1: 9})
    assert caught.value.report.pairs == {(1, 9): Status.FAILED}


@both
def test_an_ignored_command_is_never_called_done(bench, front):
    switch, made = bench(front)
    with pytest.raises((DeviceError, VerifyMismatch)) as caught:
        switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="drop_command"))
    assert not isinstance(caught.value, PortBusy)
    assert caught.value.report.pairs == {(1, 9): Status.FAILED}
    switch.connect({1: 9})
    with pytest.raises((DeviceError, VerifyMismatch)):
        switch.apply(CrossConnects(), guard=armed_once(made, fault="drop_command", count=2))
    assert made.truth() == {1: 9}


@both
def test_a_stuck_mirror_fails_alone(bench, front):
    switch, made = bench(front)
    made.do("set_fault", fault="stuck", pair=[2, 10])
    with pytest.raises(OcsError) as caught:
        switch.connect({1: 9, 2: 10})
    assert caught.value.report.pairs == {(1, 9): Status.DONE, (2, 10): Status.FAILED}


# -- light


@both
def test_connected_but_dark(bench, front):
    switch, made = bench(front)
    made.do("set_fault", fault="oc_fail", pair=[1, 9])
    made.do("set_fault", fault="dark_input", port=3)
    with pytest.raises(NoLight) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10, 3: 11}), require_light=True)
    assert caught.value.ports == (9, 11)
    assert set(caught.value.report.pairs.values()) == {Status.DONE}
    assert made.truth() == {1: 9, 2: 10, 3: 11}
    readings = switch.power([1, 3, 9, 10])
    assert [port for port, power in readings.items() if power.below_floor] == [3, 9]
    assert readings[3] == Power(-90.0, below_floor=True)
    made.do("clear_fault", fault="all")
    assert switch.apply(CrossConnects({1: 9, 2: 10, 3: 11}), require_light=True).complete


@both
def test_a_circuit_that_the_device_calls_failed_is_dark_whatever_its_monitor_reads(bench, front, monkeypatch):
    switch, _ = bench(front)
    switch.connect({1: 9})
    monkeypatch.setattr(
        "sim.twins.families.calient.circuits.CircuitConfiguration.describe_circuit_states",
        lambda *_: ("IS", "IS", "FAIL"),
    )
    reading = switch.power([9])[9]
    assert reading.below_floor
    assert reading.dbm > -10


@both
def test_swapped_fibres_do_not_show_in_the_configuration(bench, front):
    switch, made = bench(front)
    switch.connect({1: 9, 2: 10})
    made.do("set_fault", fault="swap_fibres", pair=[1, 2])
    made.do("set_fault", fault="dark_input", port=1)
    assert switch.read().connections == CrossConnects({1: 9, 2: 10})
    assert [port for port, power in switch.power([9, 10]).items() if power.below_floor] == [10]


def test_details_are_asked_for_where_the_summary_is_short(bench):
    short, made = bench("rest", summary="short")
    made.do("set_fault", fault="fail_port", port=2)
    assert short.ports()[2].state is PortState.FAILED
    made.do("transcript", clear=True)
    assert set(short.power([1, 9, 10])) == {1, 9, 10}
    assert len(sent_commands(made, "GET /rest/ports/?id=detail&port=")) == 2
    made.do("transcript", clear=True)
    assert short.read().unfit == {}  # that would take a request for each port
    assert sent_commands(made, "GET /rest/ports/?id=detail") == []
    with pytest.raises(PortFailed):  # the device itself refuses
        short.connect({2: 9})


# -- lines, logins, other people


@both
@pytest.mark.parametrize("executed", [True, False])
def test_a_cut_line_is_judged_by_reading_and_nothing_is_sent_twice(bench, front, executed):
    switch, made = bench(front)
    last = 2 if front == "tl1" else 1

    def cut() -> None:
        made.do("set_fault", fault="close_connection", after_commands=1, executed=executed)

    if executed:
        assert switch.apply(CrossConnects({1: 9}), guard=on_write(last, cut)).complete
    else:
        with pytest.raises(PartialApply) as caught:
            switch.apply(CrossConnects({1: 9}), guard=on_write(last, cut))
        assert isinstance(caught.value.__cause__, ConnectionLost)
        assert caught.value.report.pairs == {(1, 9): Status.FAILED}
    assert made.truth() == ({1: 9} if executed else {})
    assert len(writes(made)) == last


def test_a_line_cut_between_the_two_commands_is_repaired_by_the_next_apply(bench):
    switch, made = bench("tl1")
    with pytest.raises(PartialApply):
        switch.apply(
            CrossConnects({1: 9}),
            guard=armed_once(made, fault="close_connection", after_commands=1, executed=True),
        )
    assert [move.pair for move in switch.read().pending] == [(1, 9)]
    assert switch.apply(CrossConnects({1: 9})).complete
    assert len(sent_commands(made, "ENT-CRS")) == 1


@all_fronts
@pytest.mark.parametrize("count", [0, 7, 30])
def test_a_line_cut_within_the_answer(bench, front, count):
    switch, made = bench(front)
    switch.connect({1: 9})
    made.do("set_fault", fault="close_connection", after_bytes=count)
    assert switch.read().connections == CrossConnects({1: 9})


@all_fronts
def test_a_late_answer_meets_nobody(bench, front):
    switch, made = bench(front)
    switch.connect({1: 9})
    made.do("set_fault", fault="delay_reply", seconds=8.0)
    with pytest.raises(Timeout):
        switch.read()
    made.do("clear_fault", fault="all")
    assert switch.read().connections == CrossConnects({1: 9})


@all_fronts
def test_a_half_open_line_leaves_the_outcome_open(bench, front):
    switch, made = bench(front)
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="half_open"))
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    made.do("clear_fault", fault="all")
    assert switch.read().connections == CrossConnects()


@all_fronts
def test_noise_is_asked_again_and_never_believed(bench, front):
    switch, made = bench(front)
    made.do("operator", connect=[[1, 9]])
    made.do("set_fault", fault="garbage")
    assert switch.read().connections == CrossConnects({1: 9})
    assert made.do("truth")["fired"]["garbage"] == 1


@pytest.mark.parametrize("front", ["tl1", "tl1-interactive"])
def test_reports_between_command_and_answer_are_events(bench, front):
    switch, made = bench(front)
    before = len(switch.events())
    made.do("set_fault", fault="report_noise", count=2)
    assert switch.apply(CrossConnects({1: 9})).complete
    kinds = [event.kind for event in switch.events()[before:]]
    assert kinds == ["REPT ALM CRS", "REPT ALM CRS", "REPT DBCHG"]
    assert "1.1.1>1.1.1" in switch.events()[-1].lines[0]


@all_fronts
def test_an_expired_login_is_renewed(bench, front):
    switch, made = bench(front)
    made.do("set_fault", fault="expire_session")
    assert switch.read().connections == CrossConnects()
    assert switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="expire_session")).complete
    assert made.do("truth")["fired"]["expire_session"] == 2
    assert made.truth() == {1: 9}


def test_no_session_left(bench):
    _, made = bench("tl1")
    made.do("set_fault", fault="max_sessions", count=1)
    with pytest.raises(DeviceError, match="maximum number of sessions"):
        open_on(made, "tl1")


def test_no_connection_left(bench):
    _, made = bench("rest")
    made.do("set_fault", fault="max_sessions", count=1)
    with pytest.raises(ConnectError):
        open_on(made, "rest")


@all_fronts
@pytest.mark.parametrize("account", [Credentials("admin", "secret-guess"), Credentials("nobody", "admin")])
def test_a_wrong_login(world, front, account):
    with pytest.raises(LoginFailed) as caught:
        open_on(world("calient", size=(SIZE, SIZE)), front, account)
    assert "secret-guess" not in str(caught.value)


@pytest.mark.parametrize("word", ["DBCHG", "DBGH"])
def test_another_controllers_change_is_a_conflict_however_it_is_spelt(bench, word):
    switch, made = bench("tl1", change_word=word)
    (step,) = switch.plan(CrossConnects({1: 9}), switch.read(), {1})
    made.do("operator", connect=[[2, 9]])
    with pytest.raises(Conflict) as caught:
        switch.execute(step)
    assert caught.value.actual == {2: 9}
    assert writes(made) == []


@both
def test_two_drivers_on_one_switch_see_one_another(bench, front):
    switch, made = bench(front)
    other = open_on(made, "rest" if front == "tl1" else "tl1")
    switch.connect({1: 9})
    other.connect({2: 10})
    assert switch.read().connections == other.read().connections == CrossConnects({1: 9, 2: 10})
    other.close()


@all_fronts
@pytest.mark.parametrize(("mode", "left"), [("DARK", {}), ("RESTORE", {}), ("AUTOSAVE", {1: 9})])
def test_a_power_cycle_is_seen_by_the_next_read(bench, front, mode, left):
    switch, made = bench(front, settings={"boot_mode": mode})
    switch.connect({1: 9})
    made.do("power_cycle")
    assert dict(switch.read().connections) == left


@both
def test_other_ports_than_at_first_are_a_desync(bench, front):
    switch, made = bench(front)
    made.twin.device.matrix.connections = {}
    switch._names = type(switch._names)([f"1.1.{port}" for port in range(1, SIZE)])
    with pytest.raises(ProtocolDesync, match="ports are missing, or differ from the first reading"):
        switch.read()


# -- any order of engineers and applies


PORTS = ("1.1.1", "1.1.2", "1.1.3", "1.1.4")
configurations = st.permutations(range(SIZE + 1, SIZE + 5)).flatmap(
    lambda outputs: st.sets(st.integers(1, 4)).map(
        lambda inputs: CrossConnects({source: outputs[source - 1] for source in inputs})
    )
)
FAULTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"fault": "skip_activate"},
    {"fault": "drop_command"},
    {"fault": "oc_fail", "pair": [1, SIZE + 1]},
    {"fault": "stuck", "pair": [2, SIZE + 2]},
    {"fault": "close_connection", "after_commands": 1, "executed": True},
    {"fault": "close_connection", "after_commands": 1, "executed": False},
)


class EngineersMachine(RuleBasedStateMachine):
    """An engineer provisions, activates and deletes one-way and two-way circuits between the applies of a driver."""

    make: Any
    met: Counter[str]

    @initialize()
    def begin(self) -> None:
        self.switch, self.world = self.make()
        self.engineer = Engineer(self.world)

    @rule(ends=st.permutations(PORTS), way=st.sampled_from(["1WAY", "2WAY"]), active=st.booleans())
    def engineer_makes(self, ends: list[str], way: str, active: bool) -> None:
        name = f"{ends[0]}{'-' if way == '2WAY' else '>'}{ends[1]}"
        accepted = "COMPLD" in self.engineer.say(f"ENT-CRS::{ends[0]},{ends[1]}:1::LAB,{way};")
        if active and accepted:
            self.engineer.say(f"ACT-CRS:::2::{name};")
        self.check_read()

    @rule(place=st.integers(0, 7), verb=st.sampled_from(["ACT", "CANC", "DLT"]))
    def engineer_changes(self, place: int, verb: str) -> None:
        names = self.circuit_names()
        if names:
            self.engineer.say(f"{verb}-CRS:::1::{names[place % len(names)]};")
        self.check_read()

    def circuit_names(self, states: str = "") -> list[str]:
        return re.findall(rf'"([^":]+):[^"]*{states}', self.engineer.rows())

    def check_read(self) -> None:
        seen = self.switch.read()
        assert dict(seen.connections) == self.world.truth()
        assert {move.request for move in seen.pending} == set(self.circuit_names("AS=UMA"))

    @rule(wanted=configurations, scoped=st.booleans(), fault=st.sampled_from(FAULTS))
    def apply(self, wanted: CrossConnects, scoped: bool, fault: dict[str, Any]) -> None:
        scope = frozenset(wanted) if scoped and wanted else frozenset(range(1, SIZE + 1))
        before, booked = self.world.truth(), self.outside(scope)
        guard = armed_once(self.world, **fault) if fault else lambda: None
        try:
            report = self.switch.apply(wanted, scope=scope, guard=guard)
        except OcsError as error:
            self.met["refused" if error.report is None else "failed"] += 1
            report = error.report
            assert report is not None or isinstance(error, PortBusy), repr(error)  # noqa: PT017
        else:
            self.met["done with booked ports" if report.initial.pending else "done"] += 1
            assert {i: o for i, o in self.world.truth().items() if i in scope} == dict(wanted)
        self.world.do("clear_fault", fault="all")
        self.check(report, wanted, before)
        assert self.outside(scope) >= booked
        self.check_read()

    def check(self, report: Any, target: CrossConnects, before: dict[int, int]) -> None:
        truth = self.world.truth()
        pairs = report.pairs if report else {}
        for pair, status in pairs.items():
            as_wanted = (pair in truth.items()) == (pair in target.pairs)
            assert (status is Status.DONE) == as_wanted, (pair, status, truth)
        assert set(truth.items()) ^ set(before.items()) <= set(pairs)

    def outside(self, scope: frozenset[int]) -> set[str]:
        """Return the provisioned circuits with an input that is not in the scope."""
        pending = self.switch.read().pending
        return {move.request for move in pending if move.pair[0] not in scope}


def engineers(bench: Any, front: str, sequences: int) -> Counter[str]:
    """Run so many sequences; return what was met, and how often."""
    met: Counter[str] = Counter()
    machine = type("Machine", (EngineersMachine,), {"make": lambda self: bench(front), "met": met})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
        ),
    )
    print(front, dict(met))
    return met


WHAT = ("done", "done with booked ports", "failed", "refused")


@pytest.mark.long
@pytest.mark.parametrize("front", ["tl1", "rest"])
def test_engineers_circuits_are_respected_or_reported(bench, front):
    met = engineers(bench, front, 8)
    assert min(met[what] for what in WHAT if what != "refused") >= 1, met  # that is seldom


@pytest.mark.long
@pytest.mark.parametrize("front", ["tl1", "rest"])
def test_engineers_circuits_are_respected_or_reported_in_many_sequences(bench, front):
    met = engineers(bench, front, 40)
    assert min(met[what] for what in WHAT) >= 10, met


# -- addresses


def test_ports_and_options_of_an_address():
    assert tl1_switch(parse_address("calient+tl1://host")).address == "calient+tl1://host:3082"
    assert rest_switch(parse_address("calient+rest://host")).address == "calient+rest://host:80"
    assert (
        rest_switch(parse_address("calient+rest://me:pw@host?tls=1")).address
        == "calient+rest://host:443?tls=1"
    )
    for wrong in ("?activation_s=soon", "?activation_s=0", "?activation_s=inf", "?colour=red"):
        with pytest.raises(AddressError):
            tl1_switch(parse_address(f"calient+tl1://host{wrong}"))
        with pytest.raises(AddressError):
            rest_switch(parse_address(f"calient+rest://host{wrong}"))


def test_rest_is_waited_for_longer_unless_somebody_chose():
    address = parse_address("calient+rest://host")
    assert rest_switch(address)._timeout_s == REST_TIMEOUT_S == 15
    assert rest_switch(address, timeout_s=2.0)._timeout_s == 2


def test_the_patience_for_an_activation_is_an_option(world, open_in_memory):
    made = world("calient", size=(SIZE, SIZE))
    switch = open_in_memory(made, "calient+tl1", "tl1", activation_s="2.5")
    before_s = made.clock.now()
    with pytest.raises(
        DeviceError, match="the device accepted the command, but did not activate the provisioned"
    ):
        switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="skip_activate"))
    assert 2.5 <= made.clock.now() - before_s < 4
    switch.close()
