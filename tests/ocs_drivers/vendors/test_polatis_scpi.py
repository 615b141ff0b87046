"""The Polatis SCPI driver: golden dialogues against a scripted peer, misbehaviour against the twin."""

from __future__ import annotations

import socket

import pytest
from libraries import skip_without
from needs import needs

from ocs_drivers import Capabilities, CrossConnects, PortState, Power, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    PartialApply,
    PortDisabled,
    PortFailed,
    ProtocolDesync,
    Unsupported,
    VerifyMismatch,
)
from ocs_drivers.transports.transport import SocketTransport
from ocs_drivers.vendors.polatis.scpi_driver import PolatisScpi

pytestmark = pytest.mark.socket

skip_without("pyvisa_py")

READ = b":oxc:swit:conn:stat?"
READ_BACK = b":oxc:swit:conn:stat?;:syst:err?"


def address_of(peer) -> str:
    return f"polatis+scpi://127.0.0.1:{peer.port}"


@pytest.fixture
def dialogue(peer, lines):
    """Make a switch on a scripted 24x24, and a list of what it was asked after the opening."""

    def start(answers, **options):
        script = lines(answers)
        switch = open_switch(address_of(peer(script)), **options)
        opened.append(switch)
        return switch, script.asked

    opened = []
    yield start
    for switch in opened:
        switch.close()


def test_the_opening_asks_identity_size_monitors_states_and_boot_mode(dialogue):
    switch, asked = dialogue({})
    assert asked == [
        b"*IDN?",
        b"*CLS;:oxc:swit:size?;:syst:err?",
        b":pmon:pow? (@1);:syst:err?",
        b":syst:err?",  # until the queue says that it is empty
        b":pmon:pow? (@25);:syst:err?",
        b":syst:err?",
        b":oxc:swit:port:stat?;:syst:err?",
        b":syst:err?",
        b":oxc:boot:mode?;:syst:err?",
        b":syst:err?",
    ]
    assert switch.identity().serial == "002414"
    assert switch.capabilities == Capabilities(24, 24, atomic_whole=True, bulk_add=True, shutter=True)
    assert switch.power([1, 25]) == {1: None, 25: None}


def test_the_whole_configuration_takes_three_round_trips(dialogue):
    answers = iter([b'(@1,2),(@33,34);0, "No error"\r\n'])
    switch, asked = dialogue(
        {
            READ: b"(@),(@)\r\n",
            b":oxc:swit:conn:only (@1,2),(@33,34);*OPC?": b"1\r\n",
            READ_BACK: lambda connection: connection.sendall(next(answers)),
        }
    )
    del asked[:]
    report = switch.apply(CrossConnects({2: 34, 1: 33}))
    assert report.complete
    assert asked == [READ, b":oxc:swit:conn:only (@1,2),(@33,34);*OPC?", READ_BACK]


def test_the_empty_configuration_disconnects_all(dialogue):
    switch, asked = dialogue(
        {
            READ: b"(@1),(@33)\r\n",
            b":oxc:swit:disc:all;*OPC?": b"1\r\n",
            READ_BACK: b'(@),(@);0, "No error"\r\n',
        }
    )
    assert switch.apply(CrossConnects()).complete
    assert asked[-2] == b":oxc:swit:disc:all;*OPC?"


def test_a_scoped_change_subtracts_then_adds(dialogue):
    states = iter([b"(@2),(@34)", b"(@1,2),(@35,34)"])
    switch, asked = dialogue(
        {
            READ: b"(@1,2),(@33,34)\r\n",
            b":oxc:swit:conn:sub (@1),(@33);*OPC?": b"1\r\n",
            b":oxc:swit:conn:add (@1),(@35);*OPC?": b"1\r\n",
            READ_BACK: lambda connection: connection.sendall(next(states) + b';0, "No error"\r\n'),
        }
    )
    del asked[:]
    assert switch.connect({1: 35}).complete
    assert asked == [
        READ,
        b":oxc:swit:conn:sub (@1),(@33);*OPC?",
        READ_BACK,
        b":oxc:swit:conn:add (@1),(@35);*OPC?",
        READ_BACK,
    ]


def test_an_error_in_the_queue_names_the_port_that_is_unfit(dialogue):
    errors = iter([b'-222, "Data out of range"', b'0, "No error"'])
    switch, _ = dialogue(
        {
            READ: b"(@),(@)\r\n",
            b":oxc:swit:conn:add (@1),(@25);*OPC?": b"1\r\n",
            READ_BACK: b'(@),(@);-221, "Settings conflict"\r\n',
            b":syst:err?": lambda connection: connection.sendall(next(errors, b'0, "No error"') + b"\r\n"),
            b":pmon:pow? (@1);:syst:err?": b'(-3.0);0, "No error"\r\n',
            b":pmon:pow? (@25);:syst:err?": b'(-3.0);0, "No error"\r\n',
            b":oxc:swit:port:stat?": b"(D" + b",E" * 47 + b")\r\n",
        }
    )
    with pytest.raises(PortDisabled) as caught:
        switch.connect({1: 25})
    error = caught.value
    assert error.ports == (1,)
    assert "-221, Settings conflict" in error.received
    assert error.sent == ":oxc:swit:conn:add (@1),(@25);*OPC?"
    assert "disabled [port 1]" in str(error)
    assert error.report.pairs == {(1, 25): Status.FAILED}


def test_power_is_asked_for_256_ports_at_a_time(peer, lines):
    def ports(first, last):
        return b"(@" + b",".join(b"%d" % port for port in range(first, last + 1)) + b")"

    script = lines(
        {
            b"*IDN?": b"Polatis,I-OST-192x192-LU1-DMHNS-801,1,6\r\n",
            b"*CLS;:oxc:swit:size?;:syst:err?": b'192,192;0, "No error"\r\n',
            b":pmon:pow? (@1);:syst:err?": b'(-1.00);0, "No error"\r\n',
            b":pmon:pow? (@193);:syst:err?": b'(-1.00);0, "No error"\r\n',
            b":pmon:pow? " + ports(1, 256) + b";:syst:err?": (
                b"(" + b",".join([b"-29.55"] * 256) + b');0, "No error"\r\n'
            ),
            b":pmon:pow? " + ports(257, 384) + b";:syst:err?": (
                b"(" + b",".join([b"-60.00"] * 128) + b');0, "No error"\r\n'
            ),
        }
    )
    with open_switch(address_of(peer(script))) as switch:
        readings = switch.power(range(1, 385))
    assert len(readings) == 384
    assert readings[256] == Power(-29.55)
    assert readings[257] == Power(-60.0, below_floor=True)


def test_only_the_monitored_side_is_asked(dialogue):
    switch, asked = dialogue({b":pmon:pow? (@1);:syst:err?": b'(-29.55);0, "No error"\r\n'})
    del asked[:]
    assert switch.power([1, 25]) == {1: Power(-29.55), 25: None}
    assert asked == [b":pmon:pow? (@1);:syst:err?"]
    assert switch.capabilities.power_monitor


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({b"*CLS;:oxc:swit:size?;:syst:err?": b'16,16;0, "No error"\r\n'}, "product code"),
        ({b"*IDN?": b"SSH-2.0-OpenSSH_9.2\r\n"}, "identity"),
        ({b"*CLS;:oxc:swit:size?;:syst:err?": b'0, "No error"\r\n'}, "neither an answer nor an error"),
    ],
)
def test_what_does_not_look_like_a_polatis_is_refused_at_open(peer, lines, answers, why):
    with pytest.raises(ProtocolDesync, match=why):
        open_switch(address_of(peer(lines(answers))))


def test_the_product_code_serves_where_size_is_unknown(dialogue):
    switch, _ = dialogue({b"*CLS;:oxc:swit:size?;:syst:err?": b'-113, "Undefined header"\r\n'})
    assert (switch.capabilities.inputs, switch.capabilities.outputs) == (24, 24)


def test_contradictions_are_a_desync(dialogue):
    switch, _ = dialogue({READ: b"(@1),(@49)\r\n", b":oxc:swit:port:stat?": b"(E,E)\r\n"})
    with pytest.raises(ProtocolDesync, match="impossible circuits for this switch"):
        switch.read()
    with pytest.raises(ProtocolDesync, match="2 port states for 48 ports"):
        switch.ports()


def test_another_device_behind_the_address_is_not_taken_for_the_same(peer, lines):
    serials = iter([b"1", b"2", b"1"])
    script = lines({READ: b"(@),(@)\r\n"})
    script.answers[b"*IDN?"] = lambda c: c.sendall(b"Polatis,I-OST-24x24-X," + next(serials) + b",6\r\n")
    served = peer(script)
    with open_switch(address_of(served)) as switch:
        served.connections[0].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectError, match="another device answers: serial number 2, not 1"):
            switch.read()
        assert switch.read().connections == CrossConnects()


def test_lost_before_opening_says_open_first():
    switch = PolatisScpi("x://y", SocketTransport("127.0.0.1", 1, device="x://y"), timeout_s=1)
    for use in (switch.read, switch.identity, lambda: switch.capabilities):
        with pytest.raises(ConnectionLost):
            use()


# -- misbehaviour of a whole device


@pytest.fixture
@needs("socket")
def switch(twin):
    with open_switch(twin.scpi) as switch:
        yield switch


def full(shift: int = 0) -> CrossConnects:
    return CrossConnects({n + 1: 9 + (n + shift) % 8 for n in range(8)})


def commands_of(twin) -> list[str]:
    entries = twin.do("transcript")["entries"]
    text = "".join(entry["data"] for entry in entries if entry["direction"] == "in")
    return text.splitlines()


def test_a_silently_dropped_command_is_a_mismatch(twin, switch):
    twin.do("set_fault", fault="drop_command")
    with pytest.raises(VerifyMismatch) as caught:
        switch.apply(full())
    assert caught.value.missing == dict(full())
    assert twin.truth() == {}


def test_a_stuck_pair_is_named(twin, switch):
    twin.do("set_fault", fault="stuck", pair=[2, 10])
    with pytest.raises(VerifyMismatch) as caught:
        switch.apply(full())
    assert (caught.value.missing, caught.value.ports) == ({2: 10}, (2, 10))
    assert caught.value.report.pairs[1, 9] is Status.DONE
    assert twin.truth() == {i: o for i, o in full().items() if i != 2}


def test_a_port_that_fails_after_the_read_is_named(twin, switch):
    with pytest.raises(PortFailed) as caught:
        switch.apply(full(), guard=lambda: twin.do("set_fault", fault="fail_port", port=11))
    assert caught.value.ports == (11,)
    assert "-240" in caught.value.received
    assert switch.ports()[11].state is PortState.FAILED
    assert twin.truth() == {}


@pytest.mark.long
@pytest.mark.parametrize("executed", [True, False])
def test_a_line_lost_in_a_write_is_judged_by_reading_and_never_sent_again(twin, switch, executed):
    switch.read()
    twin.do("transcript", clear=True)
    twin.do("set_fault", fault="close_connection", after_commands=2, executed=executed)
    if executed:
        report = switch.apply(full())
        assert report.complete
        assert isinstance(report.outcomes[0].error, ConnectionLost)
    else:
        with pytest.raises(PartialApply) as caught:
            switch.apply(full())
        assert isinstance(caught.value.__cause__, ConnectionLost)
        assert set(caught.value.report.pairs.values()) == {Status.FAILED}
    assert sum("conn:only" in line for line in commands_of(twin)) == 1
    assert twin.truth() == (dict(full()) if executed else {})


@pytest.mark.long
def test_a_device_that_is_gone_after_a_write_leaves_it_unknown(twin, switch):
    twin.do("set_fault", fault="close_connection", after_commands=2)

    with pytest.raises(PartialApply) as caught:
        switch.apply(full(), guard=lambda: twin.do("set_fault", fault="refuse"))
    assert set(caught.value.report.pairs.values()) == {Status.UNKNOWN}
    assert caught.value.who == "unknown"
    assert caught.value.report.read_back is None


def test_a_garbled_answer_to_a_write_is_judged_by_reading(twin, switch):
    switch.read()
    report = switch.apply(full(), guard=lambda: twin.do("set_fault", fault="garbage"))
    assert report.complete
    assert isinstance(report.outcomes[0].error, ProtocolDesync)
    assert twin.truth() == dict(full())


def test_power_follows_the_light(twin, switch):
    switch.connect({1: 9})
    twin.do("set_fault", fault="lossy", pair=[1, 9], loss_db=3.0)
    before, after = switch.power([1])[1].dbm, switch.power([9])[9].dbm
    assert before - after > 3.0
    assert switch.power([10])[10].below_floor


def test_attenuators_are_beyond_scpi(switch):
    with pytest.raises(Unsupported):
        switch.attenuation(9)


def test_the_same_driver_runs_over_a_plain_socket(twin):
    address = parse_address(twin.scpi)
    transport = SocketTransport(address.host, address.port, device=twin.scpi)
    with PolatisScpi(twin.scpi, transport, timeout_s=5) as switch:
        assert switch.connect({1: 9}).complete


def test_the_product_code_of_a_twin_is_what_the_driver_reads(world, open_in_memory):
    made = world("polatis", size=(8, 8), product="N-VST-8x8-HU1-DMHNS-112")
    for scheme, front in (("polatis+scpi", "scpi"), ("polatis+tl1", "tl1"), ("polatis+rest", "rest")):
        assert open_in_memory(made, scheme, front).identity().model == "N-VST-8x8-HU1-DMHNS-112"
