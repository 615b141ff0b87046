"""The Glimmerglass driver: published dialogues, rows, faults on a virtual clock, and the contract over TCP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    AddressError,
    Conflict,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    NoLight,
    PartialApply,
    PortFailed,
    ProtocolDesync,
    Timeout,
    Unsupported,
    VerifyMismatch,
)
from ocs_drivers.model import PortState, Power, Side, Step
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.glimmerglass import GlimmerglassTl1, codec, tl1_switch

pytestmark = pytest.mark.codec

ACCOUNT = Credentials("admin", "admin")
SIZE = 8


class Script:
    """A transport that expects commands, tags left out, and answers each with the lines given."""

    def __init__(self, *turns: tuple[str, str]) -> None:
        self._turns = list(turns)
        self._waiting = b""
        self.is_open = False

    def open(self, timeout_s: float) -> None:
        self.is_open = True
        self._waiting = b"\r\n<"

    def close(self) -> None:
        self.is_open = False

    def has_input(self) -> bool:
        return False

    def send(self, data: bytes, deadline: object) -> None:
        sent = data.decode()
        assert sent.endswith(";\r\n")
        tag = sent.rstrip(";\r\n").split(":")[3]
        expected, body = self._turns.pop(0) if self._turns else ("CANC-USER::admin:#;", "")
        assert re.sub(rf":{tag}(?=[:;])", ":#", sent.strip(), count=1) == expected
        self._waiting += f" GGN 26-01-31 12:00:00\r\nM  {tag} COMPLD\r\n{body};\r\n<".encode()

    def receive(self, deadline: object) -> bytes:
        data, self._waiting = self._waiting, b""
        return data

    @property
    def finished(self) -> bool:
        return not self._turns


LOGIN = ("ACT-USER::admin:#::admin;", "")
SYSTEM = (
    "rtrv-system-info:::#;",
    '   "SystemType=System100,ChassisType=C,SerialNumber=GG7,SoftwareActiveVersion=4.2,LicensedPortMatrix=64x64"\r\n',
)
CIRCUITS = "rtrv-crs-fiber::all:#;"
PORTS = "RTRV-CFG-FIBER::all:#;"
ROW = (
    '   "GGN:IPORTID=10046,IPORTNAME=,OPORTID=20047,OPORTNAME=,CONNID=0,CONNSTATE=steady,CONNCAUSE=none,'
    'INPWR=-5.873,OUTPWR=-6.762,PWRLOSS=0.889"\r\n'
)


def row(source: int, output: int, state: str = "steady") -> str:
    return f'   "GGN:IPORTID={10000 + source},OPORTID={20000 + output},CONNID=0,CONNSTATE={state}"\r\n'


def scripted(*turns: tuple[str, str], operation_mode: str = "") -> tuple[GlimmerglassTl1, Script]:
    script = Script(LOGIN, SYSTEM, *turns)
    switch = GlimmerglassTl1(
        "glimmerglass+tl1://script", script, credentials=ACCOUNT, timeout_s=5, operation_mode=operation_mode
    )
    switch.open()
    return switch, script


# -- what is said and understood (published)


def test_published_system_info():
    switch, _ = scripted()
    assert (switch.capabilities.inputs, switch.capabilities.outputs) == (64, 64)
    assert switch.identity().serial == "GG7"
    assert switch.identity().model == "System100"
    assert switch.identity().firmware == "4.2"


def test_published_row_is_a_connection_with_powers():
    switch, script = scripted((CIRCUITS, ROW), (PORTS, ""), (CIRCUITS, ROW))
    assert switch.read().connections == CrossConnects({46: 64 + 47})
    assert switch.power([46, 64 + 47, 1]) == {46: Power(-5.873), 64 + 47: Power(-6.762), 1: None}
    assert script.finished


def test_published_connection():
    switch, script = scripted(
        (CIRCUITS, ""), (PORTS, ""), ("ent-crs-fiber::10001,20017:#;", ""), (CIRCUITS, row(1, 17))
    )
    assert switch.connect({1: 64 + 17}).complete
    assert script.finished


def test_published_duplex_connection_is_one_command():
    switch, script = scripted(
        (CIRCUITS, ""),
        (PORTS, ""),
        ("ent-crs-fiber::10001&10002,20002&20001:#;", ""),
        (CIRCUITS, row(1, 2) + row(2, 1)),
    )
    assert switch.connect({1: 66, 2: 65}).complete
    assert script.finished


@pytest.mark.parametrize(("mode", "keyword"), [("sync", "OPMODE=Sync"), ("async", "OPMODE=Async")])
def test_published_operation_modes(mode, keyword):
    switch, script = scripted(
        (CIRCUITS, ""),
        (PORTS, ""),
        (f"ent-crs-fiber::10001,20017:#:::{keyword};", ""),
        (CIRCUITS, row(1, 17)),
        operation_mode=mode,
    )
    assert switch.connect({1: 81}).complete
    assert script.finished


def test_published_disconnection_names_both_ends():
    switch, script = scripted(
        (CIRCUITS, row(1, 17)), (PORTS, ""), ("dlt-crs-fiber::10001,20017:#;", ""), (CIRCUITS, "")
    )
    assert switch.disconnect([1]).complete
    assert script.finished


def test_published_rows_of_ports():
    (port,) = codec.decode_ports(("PORTID=10001,PORTTYPE=x,PORTNAME=IN1,PORTHEALTH=bad",))
    assert port == codec.PortRow(is_input=True, number=1, label="IN1", is_healthy=False)


def test_a_fault_is_connected_and_a_row_that_moves_holds_its_ports():
    switch, _ = scripted((CIRCUITS, row(1, 17, "fault") + row(2, 18, "moving")), (PORTS, ""))
    assert switch.read().connections == CrossConnects({1: 81, 2: 82})


def test_none_is_darkness():
    (circuit,) = codec.decode_circuits(("IPORTID=10001,OPORTID=20001,CONNSTATE=fault,INPWR=NONE,OUTPWR=",))
    assert circuit.input_power == Power(-90.0, below_floor=True)
    assert circuit.output_power is None


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "IPORTID=10001,OPORTID=20001",
        "IPORTID=20001,OPORTID=10001,CONNSTATE=steady",
        "IPORTID=10000,OPORTID=20001,CONNSTATE=steady",
        "IPORTID=30001,OPORTID=20001,CONNSTATE=steady",
        "IPORTID=1,OPORTID=20001,CONNSTATE=steady",
        "IPORTID=10001,OPORTID=20001,CONNSTATE=steady,INPWR=bright",
        "IPORTID=10001,OPORTID=20001,CONNSTATE=steady,INPWR",
        "IPORTID=10001,OPORTID=20001,CONNSTATE=steady=fault",
        "IPORTID=0,OPORTID=0,CONNSTATE=single",
    ],
)
def test_rows_that_are_no_circuits(line):
    with pytest.raises(ProtocolDesync, match="not TL1 as Glimmerglass speaks it"):
        codec.decode_circuits((line,))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("SerialNumber=1",),
        ("LicensedPortMatrix=0x8",),
        ("LicensedPortMatrix=8",),
        ("LicensedPortMatrix",),
    ],
)
def test_a_system_without_size(lines):
    with pytest.raises(ProtocolDesync):
        codec.decode_system(lines)


@pytest.mark.parametrize("line", ["PORTID=10001", "PORTID=1,PORTHEALTH=good", "PORTID=10001,PORTHEALTH=fair"])
def test_rows_that_are_no_ports(line):
    with pytest.raises(ProtocolDesync):
        codec.decode_ports((line,))


@pytest.mark.parametrize("rows", [row(1, 1) + row(2, 1), row(1, 1) + row(1, 2)])
def test_circuits_that_the_switch_cannot_have(rows):
    switch, _ = scripted((CIRCUITS, rows))
    switch._retry = lambda ask: ask()
    with pytest.raises(ProtocolDesync, match="impossible circuits for this switch"):
        switch.read()


@pytest.mark.parametrize(("rows", "ours"), [(row(1, 65), 1), (row(65, 1), 64 + 1)])
def test_a_port_that_is_connected_beyond_the_matrix_is_locked(rows, ours):
    switch, _ = scripted((CIRCUITS, rows + row(2, 2)), (PORTS, ""))
    seen = switch.read()
    assert seen.connections == CrossConnects({2: 66})
    assert seen.unfit == {ours: PortState.LOCKED}


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_line_is_decoded_or_out_of_step(text, cut):
    line = f"GGN:IPORTID=10046,OPORTID=20047,CONNSTATE=steady,{text}"[cut:]
    for decode in (codec.decode_circuits, codec.decode_ports, codec.decode_system):
        try:
            decode((line,))
        except ProtocolDesync:
            continue


@given(st.lists(st.tuples(st.integers(1, 999), st.integers(1, 999)), min_size=1, max_size=20))
def test_pairs_are_sent_as_they_are_read_back(pairs):
    inputs, outputs = (text.split("&") for text in codec.format_fibre_pairs(pairs).split(","))
    rows = tuple(f"IPORTID={i},OPORTID={o},CONNSTATE=steady" for i, o in zip(inputs, outputs, strict=True))
    assert [(circuit.source, circuit.output) for circuit in codec.decode_circuits(rows)] == pairs


# -- addresses


def test_port_and_options_of_an_address():
    assert (
        str(tl1_switch(parse_address("glimmerglass+tl1://host")).address) == "glimmerglass+tl1://host:10034"
    )
    older = tl1_switch(parse_address("glimmerglass+tl1://me:pw@host:10033?opmode=async"))
    assert older.address == "glimmerglass+tl1://host:10033?opmode=async"
    for wrong in ("?opmode=later", "?colour=red"):
        with pytest.raises(AddressError):
            tl1_switch(parse_address(f"glimmerglass+tl1://host{wrong}"))


# -- on the virtual clock


@pytest.fixture
def frame(world) -> Iterator[Callable[..., tuple[GlimmerglassTl1, Any]]]:
    """Make a driver on a twin in memory."""
    opened = []

    def make(*, operation_mode: str = "", **options: Any) -> tuple[GlimmerglassTl1, Any]:
        made = world("glimmerglass", size=(SIZE, SIZE), **options)
        switch = GlimmerglassTl1(
            made.device,
            made.transport("tl1"),
            credentials=ACCOUNT,
            timeout_s=5.0,
            operation_mode=operation_mode,
            clock=made.clock,
        )
        switch.open()
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


def commands(made: Any, verb: str) -> list[str]:
    entries = made.do("transcript")["entries"]
    text = "".join(entry["data"] for entry in entries if entry["direction"] == "in")
    return [line for line in text.split() if line.lower().startswith(verb)]


def armed_once(made: Any, **fault: Any) -> Callable[[], None]:
    """Return a guard that sets a fault before the first write."""
    armed: list[Any] = []
    return lambda: armed or armed.append(made.do("set_fault", **fault))


def test_any_change_is_one_removal_and_one_addition(frame):
    switch, made = frame()
    full = {n: SIZE + n for n in range(1, SIZE + 1)}
    shifted = {n: SIZE + 1 + n % SIZE for n in range(1, SIZE + 1)}
    switch.apply(CrossConnects(full))
    made.do("transcript", clear=True)
    switch.apply(CrossConnects(shifted))
    assert made.truth() == shifted
    assert len(commands(made, "dlt-crs-fiber")) == len(commands(made, "ent-crs-fiber")) == 1
    assert len(commands(made, "rtrv-crs-fiber")) == 3  # before, and behind each of the two


@pytest.mark.parametrize("mode", ["", "sync", "async"])
def test_done_is_when_the_mirrors_have_arrived(frame, mode):
    switch, made = frame(operation_mode=mode, opmode="async")
    before_s = made.clock.now()
    assert switch.connect({1: SIZE + 1}).complete
    assert [1, SIZE + 1] in made.do("truth")["lit"]
    assert 0.02 <= made.clock.now() - before_s < 0.1


def test_ports_have_names_labels_and_health(frame):
    switch, made = frame()
    made.do("set_fault", fault="fail_port", port=SIZE + 2)
    ports = switch.ports()
    assert (ports[1].name, ports[1].label, ports[1].side) == ("10001", "IN1", Side.IN)
    assert (ports[SIZE + 2].name, ports[SIZE + 2].label) == ("20002", "OUT2")
    assert [number for number, port in ports.items() if port.state is PortState.FAILED] == [SIZE + 2]


def test_a_bad_port_is_refused_before_a_command_is_sent(frame):
    switch, made = frame()
    made.do("set_fault", fault="fail_port", port=SIZE + 2)
    with pytest.raises(PortFailed) as caught:
        switch.connect({1: SIZE + 2})
    assert caught.value.ports == (SIZE + 2,)
    assert commands(made, "ent-crs-fiber") == []


@pytest.mark.parametrize(("fault", "error"), [("fail_port", PortFailed), ("lock_port", DeviceError)])
def test_a_denial_is_reported_with_its_ports(frame, fault, error):
    switch, made = frame()
    with pytest.raises(error) as caught:
        switch.apply(CrossConnects({1: SIZE + 2}), guard=armed_once(made, fault=fault, port=SIZE + 2))
    assert SIZE + 2 in caught.value.ports
    assert "ent-crs-fiber::10001,20002" in caught.value.sent
    assert made.truth() == {}


def test_an_ignored_command_is_a_mismatch_in_time(frame):
    switch, made = frame()
    before_s = made.clock.now()
    with pytest.raises(VerifyMismatch) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10}), guard=armed_once(made, fault="drop_command"))
    assert caught.value.missing == {1: 9, 2: 10}
    assert made.clock.now() - before_s < 1.0


def test_a_stuck_mirror_fails_alone(frame):
    switch, made = frame()
    made.do("set_fault", fault="stuck", pair=[1, 9])
    with pytest.raises(OcsError) as caught:
        switch.connect({1: 9, 2: 10})
    assert caught.value.report.pairs == {(1, 9): Status.FAILED, (2, 10): Status.DONE}


@pytest.mark.parametrize("executed", [True, False])
def test_a_cut_line_is_judged_by_reading_and_nothing_is_sent_twice(frame, executed):
    switch, made = frame()
    guard = armed_once(made, fault="close_connection", after_commands=1, executed=executed)
    if executed:
        assert switch.apply(CrossConnects({1: 9}), guard=guard).complete
    else:
        with pytest.raises(PartialApply) as caught:
            switch.apply(CrossConnects({1: 9}), guard=guard)
        assert isinstance(caught.value.__cause__, ConnectionLost)
    assert made.truth() == ({1: 9} if executed else {})
    assert len(commands(made, "ent-crs-fiber")) == 1


def test_a_line_cut_within_the_answer(frame):
    switch, made = frame()
    assert switch.apply(
        CrossConnects({1: 9}), guard=armed_once(made, fault="close_connection", after_bytes=20)
    ).complete


def test_a_late_answer_meets_nobody(frame):
    switch, made = frame()
    assert switch.apply(
        CrossConnects({1: 9}), guard=armed_once(made, fault="delay_reply", seconds=1.0)
    ).complete
    made.do("set_fault", fault="delay_reply", seconds=8.0)
    with pytest.raises(Timeout):
        switch.read()
    made.do("clear_fault", fault="all")
    assert switch.read().connections == CrossConnects({1: 9})


def test_a_half_open_line_leaves_the_outcome_open(frame):
    switch, made = frame()
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="half_open"))
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    made.do("clear_fault", fault="all")
    assert switch.read().connections == CrossConnects()


@pytest.mark.parametrize("fault", ["garbage", "wrong_tag"])
def test_what_is_no_answer_is_asked_again_and_never_believed(frame, fault):
    switch, made = frame()
    made.do("operator", connect=[[1, 9]])
    made.do("set_fault", fault=fault)
    assert switch.read().connections == CrossConnects({1: 9})
    assert switch.apply(CrossConnects({1: 10}), guard=armed_once(made, fault=fault)).complete
    assert made.do("truth")["fired"][fault] == 2


def test_reports_between_command_and_answer_are_events(frame):
    switch, made = frame()
    made.do("set_fault", fault="report_noise", count=2)
    assert switch.read().connections == CrossConnects()
    assert [event.kind for event in switch.events()] == ["REPT ALM FIBER"] * 2


def test_an_expired_login_is_renewed(frame):
    switch, made = frame()
    made.do("set_fault", fault="expire_session")
    assert switch.read().connections == CrossConnects()
    assert switch.apply(CrossConnects({1: 9}), guard=armed_once(made, fault="expire_session")).complete
    assert made.truth() == {1: 9}


def test_no_session_left(frame):
    _, made = frame()
    made.do("set_fault", fault="max_sessions", count=1)
    other = GlimmerglassTl1(
        "glimmerglass+tl1://other", made.transport("tl1"), credentials=ACCOUNT, timeout_s=5, clock=made.clock
    )
    with pytest.raises(DeviceError, match="maximum number of sessions"):
        other.open()


@pytest.mark.parametrize("credentials", [Credentials("admin", "wrong"), Credentials("nobody", "admin")])
def test_a_wrong_login(world, credentials):
    made = world("glimmerglass", size=(SIZE, SIZE))
    switch = GlimmerglassTl1(
        made.device, made.transport("tl1"), credentials=credentials, timeout_s=5, clock=made.clock
    )
    with pytest.raises(LoginFailed) as caught:
        switch.open()
    assert "wrong" not in str(caught.value)


def test_another_controllers_change_is_a_conflict(frame):
    switch, made = frame()
    (step,) = switch.plan(CrossConnects({1: 9}), switch.read(), {1})
    made.do("operator", connect=[[2, 9]])
    with pytest.raises(Conflict) as caught:
        switch.execute(step)
    assert caught.value.actual == {2: 9}
    assert commands(made, "ent-crs-fiber") == []


def test_a_whole_configuration_at_once_is_beyond_it(frame):
    switch, _ = frame()
    step = Step("replace", CrossConnects({1: 9}), CrossConnects(), CrossConnects({1: 9}))
    outcome = switch.execute(step)
    assert outcome.status is Status.FAILED
    assert isinstance(outcome.error, Unsupported)


def test_connected_but_dark(frame):
    switch, made = frame()
    made.do("set_fault", fault="dark_input", port=1)
    with pytest.raises(NoLight) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10}), require_light=True)
    assert caught.value.ports == (9,)
    assert made.truth() == {1: 9, 2: 10}
    assert switch.power([1])[1].below_floor


def test_swapped_fibres_do_not_show_in_the_configuration(frame):
    switch, made = frame()
    switch.connect({1: 9, 2: 10})
    made.do("set_fault", fault="swap_fibres", pair=[1, 2])
    made.do("set_fault", fault="dark_input", port=1)
    assert switch.read().connections == CrossConnects({1: 9, 2: 10})
    readings = switch.power([1, 2, 9, 10])
    assert [port for port, power in readings.items() if power.below_floor] == [2, 10]


def test_ports_without_a_circuit_have_a_power_too(frame):
    switch, made = frame()
    made.do("set_fault", fault="dark_input", port=2)
    assert switch.power([1, 2, 9]) == {
        1: Power(-0.3),
        2: Power(-50.4, below_floor=True),
        9: Power(-49.7, below_floor=True),
    }


@pytest.mark.parametrize(("mode", "left"), [("DARK", {}), ("RESTORE", {}), ("AUTOSAVE", {1: 9})])
def test_a_power_cycle_is_seen_by_the_next_read(frame, mode, left):
    switch, made = frame(settings={"boot_mode": mode})
    switch.connect({1: 9})
    made.do("power_cycle")
    assert dict(switch.read().connections) == left


def test_a_list_of_ports_that_leaves_some_out(frame):
    switch, _ = frame()
    switch._read_port_rows = lambda: {1: codec.PortRow(is_input=True, number=1, label="", is_healthy=True)}
    with pytest.raises(ProtocolDesync, match="the list of ports is incomplete"):
        switch.ports()
    assert switch.read().connections == CrossConnects()


# -- over TCP


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    return shared_twin("glimmerglass", "--size=8x8", "--speed=20")


@pytest.fixture
@needs("socket")
def switch(twin) -> Iterator[GlimmerglassTl1]:
    with open_switch(twin.urls["tl1"]) as switch:
        yield switch


class TestContract(SwitchContract):
    """The contract over TCP to a twin in its own process."""


REAL = [
    ({"fault": "drop_command"}, VerifyMismatch),
    ({"fault": "stuck", "pair": [1, 9]}, VerifyMismatch),
    ({"fault": "fail_port", "port": 9}, PortFailed),
    ({"fault": "lock_port", "port": 9}, DeviceError),
    ({"fault": "close_connection", "after_commands": 1, "executed": True}, None),
    ({"fault": "close_connection", "after_commands": 1, "executed": False}, PartialApply),
    ({"fault": "close_connection", "after_bytes": 10}, None),
    ({"fault": "half_open"}, PartialApply),
    ({"fault": "delay_reply", "seconds": 0.4}, None),
    ({"fault": "garbage"}, None),
    ({"fault": "wrong_tag"}, None),
    ({"fault": "report_noise", "count": 1}, None),
    ({"fault": "expire_session"}, None),
]


@pytest.mark.parametrize(("fault", "error"), REAL, ids=lambda value: str(value)[:60])
def test_faults_over_tcp(twin, fault, error):
    with open_switch(twin.urls["tl1"], timeout_s=1.5) as switch:
        try:
            report = switch.apply(CrossConnects({1: 9}), guard=armed_once(twin, **fault))
        except OcsError as raised:
            assert error is not None, raised  # noqa: PT017
            assert isinstance(raised, error)  # noqa: PT017
            report = raised.report
        else:
            assert error is None
        for pair, status in report.pairs.items():
            assert status is Status.UNKNOWN or (status is Status.DONE) == (pair in twin.truth().items())
        twin.do("clear_fault", fault="all")
        assert dict(switch.read().connections) == twin.truth()
