"""Banks of 1xN switches: commands and answers, addresses, selections, and the many makes of one driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.address import Address, parse_address
from ocs_drivers.errors import (
    AddressError,
    DeviceError,
    PortError,
    ProtocolDesync,
    Timeout,
    UnknownPort,
    Unsupported,
    VerifyMismatch,
    WrongSide,
)
from ocs_drivers.model import Identity, Power, Side, Step
from ocs_drivers.vendors.banks.codec import CommandSet, decode_channel, decode_open_state, decode_power
from ocs_drivers.vendors.banks.driver import BankSwitch, read_size
from ocs_drivers.vendors.scpi_1xn import PRESETS, read_commands, tcp_switch

pytestmark = pytest.mark.codec

PLAIN = PRESETS["scpi"].commands
BANKED = CommandSet(":ROUT{bank}:CHAN {channel}", ":ROUT{bank}:CHAN?", error_query=":SYST:ERR?")


# -- commands and answers


def test_published_commands_of_a_leoni_eol():
    commands = PRESETS["leoni-eol"].commands
    assert (commands.format_select(1, 3), commands.format_query(1), commands.identity) == (
        "ch3",
        "ch?",
        "firmware?",
    )
    assert commands.terminator == b"\r\n"
    assert PRESETS["leoni-eol"].baud_rate == 57600
    assert decode_channel("2", 1, 8) == 2
    assert commands.decode_identity("ver3.27") == Identity("LEONI", "EOL 1xN", "", "ver3.27")


def test_every_question_names_the_bank():
    commands = CommandSet("ch{channel}", "ch?", power_query="P{bank}?", open_state="OPEN{bank}?")
    assert (commands.format_power_query(2), commands.format_open_query(3)) == ("P2?", "OPEN3?")


def test_an_identity_of_four_fields_is_taken_apart():
    assert PLAIN.decode_identity("a, b,c,d") == Identity("a", "b", "c", "d")


@pytest.mark.parametrize("reply", ["", "2", "1,2,3"])
def test_a_number_is_no_identity(reply):
    with pytest.raises(ProtocolDesync):
        PLAIN.decode_identity(reply)


@pytest.mark.parametrize(
    ("commands", "what"),
    [
        ({"select_command": ":ROUT 1", "channel_query": "?"}, "does not contain {channel}"),
        ({"select_command": "{channel} {colour}", "channel_query": "?"}, "other than {bank} and {channel}"),
        ({"select_command": "{channel}\n*RST", "channel_query": "?"}, "not printable ASCII"),
        ({"select_command": "{channel}", "channel_query": "chän?"}, "not printable ASCII"),
        ({"select_command": "{channel", "channel_query": "?"}, "expected '}'"),
    ],
)
def test_commands_that_cannot_be_sent(commands, what):
    with pytest.raises(ValueError, match=what):
        CommandSet(**commands)


@pytest.mark.parametrize("reply", ["9", "-1", "x", "", "2.5", "2,2", "1,2,2", "1,1,1,1", "1;2", "٣"])
def test_answers_that_are_no_channel(reply):
    with pytest.raises(ProtocolDesync):
        decode_channel(reply, 1, 8)


@given(st.integers(1, 64), st.integers(1, 1024), st.data())
def test_a_channel_is_understood_in_each_of_its_forms(bank, channels, data):
    channel = data.draw(st.integers(1, channels))
    for reply in (f"{channel}", f"+{channel}", f"{bank}, {channel}", f"{bank},1,{channel}"):
        assert decode_channel(reply, bank, channels) == channel


@given(st.text(max_size=20))
def test_any_answer_is_understood_or_out_of_step(reply):
    for decode in (
        lambda text: decode_channel(text, 1, 8),
        decode_open_state,
        decode_power,
        PLAIN.decode_identity,
    ):
        try:
            decode(reply)
        except ProtocolDesync:
            continue


@pytest.mark.parametrize("reply", ["", "0", "0,", "x, -8.0", "0, bright", "0, -8.0, 1"])
def test_answers_that_are_no_power(reply):
    with pytest.raises(ProtocolDesync):
        decode_power(reply)


def test_a_bank_is_open_or_not():
    assert decode_open_state("1")
    assert not decode_open_state("0")
    with pytest.raises(ProtocolDesync):
        decode_open_state("2")


# -- addresses


def address(text: str) -> Address:
    return parse_address(f"scpi-1xn://host{text}")


def test_size_is_in_the_address():
    assert read_size(address("?channels=8")) == (1, 8)
    assert read_size(address("?banks=2&channels=4")) == (2, 4)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "?banks=2",
        "?channels=0",
        "?channels=x",
        "?channels=8&banks=65",
        "?channels=8&colour=red",
        "?channels=8&preset=acme",
        "?channels=8&end=ff",
        "?channels=8&set=CH 1",
        "?channels=8&set=CH {channel} {x}",
        "?channels=8&baud=9600",
        "?channels=8&banks=2",
    ],
)
def test_addresses_without_sense(options):
    with pytest.raises(AddressError) as caught:
        tcp_switch(address(options))
    assert caught.value.hint


def test_commands_can_be_spelt_out():
    commands = read_commands(
        address("?channels=8&set=:SW {channel}&query=:SW?&idn=&errors=:ERR?&monitor=:P?&end=crlf")
    )
    assert commands == CommandSet(
        ":SW {channel}", ":SW?", identity="", error_query=":ERR?", power_query=":P?", terminator=b"\r\n"
    )


def test_the_port_is_a_default():
    assert tcp_switch(address("?channels=8")).address == "scpi-1xn://host:5025?channels=8"


# -- on the virtual clock


@pytest.fixture
def frame(world) -> Iterator[Callable[..., tuple[BankSwitch, Any]]]:
    """Make a driver on a twin in memory."""
    opened = []

    def make(
        commands: CommandSet = BANKED,
        *,
        banks: int = 2,
        channels: int = 4,
        front: str = "scpi",
        **options: Any,
    ) -> tuple[BankSwitch, Any]:
        made = world("scpi-1xn", size=(2, 8), **options)
        switch = BankSwitch(
            made.device,
            made.transport(front),
            commands,
            bank_count=banks,
            channel_count=channels,
            timeout_s=5.0,
            clock=made.clock,
        )
        switch.open()
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


def sent(made: Any) -> list[str]:
    entries = made.do("transcript")["entries"]
    return "".join(entry["data"] for entry in entries if entry["direction"] == "in").split("\n")


def armed_once(made: Any, **fault: Any) -> Callable[[], None]:
    """Return a guard that sets a fault before the first write."""
    armed: list[Any] = []
    return lambda: armed or armed.append(made.do("set_fault", **fault))


def test_inputs_are_common_ports_and_outputs_their_channels(frame):
    switch, _ = frame()
    ports = switch.ports()
    assert {number: port.name for number, port in ports.items() if port.side is Side.IN} == {1: "1", 2: "2"}
    assert [ports[number].name for number in range(3, 11)] == [
        f"{b}.{k}" for b in (1, 2) for k in (1, 2, 3, 4)
    ]
    assert switch.capabilities.bank_outputs == 4
    assert not switch.capabilities.disconnects


def test_a_selection_moves_one_bank_by_one_command(frame):
    switch, made = frame()
    assert switch.read().connections == CrossConnects({1: 3, 2: 7})
    made.do("transcript", clear=True)
    report = switch.connect({2: 9})
    assert report.complete
    assert [step.kind for step in report.steps] == ["add"]
    assert made.truth() == {1: 3, 2: 9}
    assert [line for line in sent(made) if "?" not in line and line] == [":ROUT2:CHAN 3"]


def test_all_banks_take_a_command_each(frame):
    switch, made = frame()
    assert switch.apply(CrossConnects({1: 6, 2: 10})).complete
    assert made.truth() == {1: 6, 2: 10}
    assert not switch.apply(CrossConnects({1: 6, 2: 10})).changed


def test_what_a_bank_cannot_do_is_refused_before_a_byte(frame):
    switch, made = frame()
    made.do("transcript", clear=True)
    with pytest.raises(PortError, match="cannot reach"):
        switch.connect({1: 7})
    with pytest.raises(Unsupported, match="always connected"):
        switch.disconnect([1])
    with pytest.raises(UnknownPort):
        switch.connect({1: 11})
    with pytest.raises(WrongSide):
        switch.connect({1: 2})
    assert [line for line in sent(made) if line and "?" not in line] == []


def test_steps_that_are_not_selections_are_not_done(frame):
    switch, made = frame()
    step = Step("remove", CrossConnects({1: 3}), CrossConnects({1: 3, 2: 7}), CrossConnects({2: 7}))
    outcome = switch.execute(step)
    assert isinstance(outcome.error, Unsupported)
    assert made.truth() == {1: 3, 2: 7}


def test_a_step_of_several_selections_asks_before_each(frame):
    switch, made = frame()
    target = CrossConnects({1: 6, 2: 10})
    asked = []
    step = Step("add", target, switch.read().connections, target)
    assert switch.execute(step, guard=lambda: asked.append(made.truth())).status is Status.DONE
    assert asked == [{1: 3, 2: 7}, {1: 6, 2: 7}]


def test_a_guard_that_stops_the_second_selection_leaves_the_first_time_to_arrive(frame, monkeypatch):
    switch, made = frame()
    target = CrossConnects({1: 6, 2: 10})
    before, read, slow_until_s = switch.read(), switch._read, made.clock.now() + 0.1
    monkeypatch.setattr(switch, "_read", lambda: before if made.clock.now() < slow_until_s else read())
    step = Step("add", target, before.connections, target)
    asked: list[int] = []

    def once() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise DeviceError("not this one")

    outcome = switch.execute(step, guard=once)
    assert outcome.pairs == {(1, 6): Status.DONE, (2, 10): Status.FAILED}
    assert made.truth() == {1: 6, 2: 7}
    assert "not this one" in str(outcome.error)


def test_a_bank_that_somebody_opened_is_nowhere_until_it_is_sent(frame):
    switch, made = frame()
    made.do("operator", disconnect=[1])
    assert switch.read().connections == CrossConnects({2: 7})
    assert switch.connect({1: 4}).complete


def test_an_ignored_command_is_a_mismatch_in_time(frame):
    switch, made = frame()
    before_s = made.clock.now()
    with pytest.raises(VerifyMismatch):
        switch.apply(CrossConnects({1: 4}), scope=[1], guard=armed_once(made, fault="drop_command"))
    assert made.clock.now() - before_s < 1.0
    assert made.truth() == {1: 3, 2: 7}


def test_a_refusal_is_reported_with_the_command(frame):
    switch, made = frame()
    made.do("set_fault", fault="fail_port", port=4)
    with pytest.raises(DeviceError, match="Hardware error") as caught:
        switch.connect({1: 4})
    assert caught.value.device_code == "-240"
    assert caught.value.sent == ":ROUT1:CHAN 2"
    assert caught.value.ports == (1, 4)


def test_an_old_error_is_not_ours(world):
    made = world("scpi-1xn", size=(2, 8))
    client = made.attach("scpi")
    client.send(b"FOO\nBAR\n")
    made.settle()
    switch = BankSwitch(
        made.device,
        made.transport("scpi"),
        BANKED,
        bank_count=2,
        channel_count=4,
        timeout_s=5,
        clock=made.clock,
    )
    with switch:
        assert switch.connect({1: 4}).complete


@pytest.mark.parametrize(
    ("commands", "banks", "channels", "what"),
    [
        (BANKED, 3, 4, "has no bank 3"),
        (CommandSet(":ROUT{bank}:CHAN {channel}", ":ROUT{bank}:CHAN?"), 3, 4, "no answer"),
    ],
)
def test_banks_that_the_device_does_not_have(frame, commands, banks, channels, what):
    with pytest.raises((AddressError, Timeout), match=what) as caught:
        frame(commands, banks=banks, channels=channels)
    assert "banks=" in caught.value.hint


def test_channels_that_the_address_does_not_have(world):
    made = world("scpi-1xn", size=(2, 8))
    made.do("operator", connect=[[1, 6]])
    switch = BankSwitch(
        made.device,
        made.transport("scpi"),
        BANKED,
        bank_count=2,
        channel_count=3,
        timeout_s=5,
        clock=made.clock,
    )
    with pytest.raises(AddressError, match="bank 1 is at channel 4, but has only 3"):
        switch.open()


def test_a_device_that_does_not_say_who_it_is(frame):
    nameless = CommandSet(
        BANKED.select_command, BANKED.channel_query, identity="", vendor="Acme", model="1x4"
    )
    switch, _ = frame(nameless, identity="no", errors="no")
    assert switch.identity() == Identity("Acme", "1x4", "", "")
    assert switch.connect({1: 4}).complete


def test_no_light_is_measured_without_a_monitor(frame):
    switch, _ = frame()
    assert switch.power([1, 3]) == {1: None, 3: None}
    assert not switch.capabilities.power_monitor
    with pytest.raises(UnknownPort):
        switch.power([99])


VENDORS = {
    "leoni-eol": "LEONI",
    "thorlabs-osw": "Thorlabs",
    "dicon-module": "DiCon",
    "jds-sb": "JDSU",
    "santec-sx1": "Santec",
}


def test_every_preset_is_tried():
    assert {*PRESETS} == {*VENDORS, "scpi"}


@pytest.mark.parametrize("make", VENDORS)
def test_other_makes(world, make):
    made = world("scpi-1xn", size=(1, 8), make=make)
    switch = BankSwitch(
        made.device,
        made.transport("serial"),
        PRESETS[make].commands,
        bank_count=1,
        channel_count=8,
        timeout_s=5,
        clock=made.clock,
    )
    with switch:
        assert switch.identity().vendor == VENDORS[make]
        assert switch.connect({1: 1 + 7}).complete
    assert made.truth() == {1: 8}


# -- faults on the virtual clock


@pytest.mark.parametrize("fault", ["garbage", "wrong_reply"])
def test_what_is_no_answer_is_asked_again_and_never_believed(frame, fault):
    switch, made = frame()
    made.do("set_fault", fault=fault)
    assert switch.read().connections == CrossConnects({1: 3, 2: 7})
    assert switch.apply(CrossConnects({1: 4}), scope=[1], guard=armed_once(made, fault=fault)).complete
    assert made.do("truth")["fired"][fault] == 2


@pytest.mark.parametrize("executed", [True, False])
def test_a_line_cut_at_a_selection_is_judged_by_reading(frame, executed):
    switch, made = frame()
    guard = armed_once(made, fault="close_connection", after_commands=1, executed=executed)
    try:
        report = switch.apply(CrossConnects({1: 4}), scope=[1], guard=guard)
    except OcsError as error:
        report = error.report
    assert report.pairs == {(1, 4): Status.DONE if executed else Status.FAILED}
    assert made.truth()[1] == (4 if executed else 3)
    assert sent(made).count(":ROUT1:CHAN 2") == 1


def test_a_silent_device_leaves_the_outcome_open(frame):
    switch, made = frame()
    with pytest.raises(OcsError) as caught:
        switch.apply(CrossConnects({1: 4}), scope=[1], guard=armed_once(made, fault="half_open"))
    assert caught.value.report.pairs == {(1, 4): Status.UNKNOWN}
    made.do("clear_fault", fault="all")
    assert switch.read().connections == CrossConnects({1: 3, 2: 7})


def test_a_late_answer_meets_nobody(frame):
    switch, made = frame()
    made.do("set_fault", fault="delay_reply", seconds=8.0)
    with pytest.raises(Timeout):
        switch.read()
    made.do("clear_fault", fault="all")
    assert switch.connect({1: 4}).complete


@pytest.mark.parametrize(("mode", "left"), [("DARK", 3), ("AUTOSAVE", 4)])
def test_a_power_cycle_is_seen_by_the_next_read(frame, mode, left):
    switch, made = frame(settings={"boot_mode": mode})
    switch.connect({1: 4})
    made.do("power_cycle")
    assert switch.read().connections[1] == left == made.truth()[1]


# -- over TCP and a serial line


@pytest.mark.parametrize("front", ["scpi", "serial"])
def test_the_printed_address_opens_it(shared_twin, front):
    pytest.importorskip("pyvisa_py" if front == "scpi" else "serial")
    twin = shared_twin("scpi-1xn", "--size=2x8", "--option=baud=115200")
    with open_switch(twin.urls[front]) as switch:
        assert switch.apply(CrossConnects({1: 5, 2: 8})).complete
        assert twin.truth() == {1: 5, 2: 8}
        assert switch.apply(CrossConnects({1: 3, 2: 10})).complete
    assert twin.truth() == {1: 3, 2: 10}


def test_a_leoni_eol_on_a_serial_line(shared_twin):
    pytest.importorskip("serial")
    twin = shared_twin("scpi-1xn", "--size=1x8", "--option=make=leoni-eol")
    with open_switch(twin.urls["serial"]) as switch:
        assert switch.identity().firmware == "ver3.27"
        assert switch.connect({1: 6}).complete
    assert twin.truth() == {1: 6}


def test_power_is_reported_in_dbm():
    assert decode_power("1,-100.000") == Power(-100.0, below_floor=True)
