"""Telnet on the client's side: what is left of the bytes, what is answered, however they were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers.errors import ConnectionLost, ProtocolDesync, Timeout
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.telnet import (
    DO,
    DONT,
    ECHO,
    IAC,
    SB,
    SE,
    SUPPRESS_GO_AHEAD,
    WILL,
    WONT,
    Negotiator,
    TelnetTransport,
)
from ocs_drivers.transports.transport import make_connection_lost

pytestmark = pytest.mark.codec

WINDOW_SIZE, TERMINAL_TYPE = 31, 24


def says(*values: int) -> bytes:
    return bytes([IAC, *values])


GOLDEN = {
    "plain": (b"login: ", b"login: ", b""),
    "the device repeats": (says(WILL, ECHO), b"", says(DO, ECHO)),
    "the device speaks at any time": (says(WILL, SUPPRESS_GO_AHEAD), b"", says(DO, SUPPRESS_GO_AHEAD)),
    "said twice, answered once": (says(WILL, ECHO) * 2, b"", says(DO, ECHO)),
    "the device takes it back": (says(WILL, ECHO) + says(WONT, ECHO), b"", says(DO, ECHO) + says(DONT, ECHO)),
    "any other option": (says(WILL, 5), b"", says(DONT, 5)),
    "our window": (says(DO, WINDOW_SIZE) + b"a", b"a", says(WONT, WINDOW_SIZE)),
    "what changes nothing": (says(DONT, WINDOW_SIZE) + says(WONT, 5), b"", b""),
    "a byte 255": (b"a" + says(IAC) + b"b", b"a\xffb", b""),
    "are you there": (says(246) + b"a", b"a", b""),
    "a negotiation": (b"a" + says(SB, TERMINAL_TYPE, 1, IAC, IAC, IAC, SE) + b"b", b"ab", b""),
}


@pytest.mark.parametrize(("wire", "text", "answer"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden(wire, text, answer):
    assert Negotiator().feed(wire) == (text, answer)


@pytest.mark.parametrize(("wire", "text", "answer"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden_byte_by_byte(wire, text, answer):
    negotiator = Negotiator()
    parts = [negotiator.feed(bytes([byte])) for byte in wire]
    assert (b"".join(part[0] for part in parts), b"".join(part[1] for part in parts)) == (text, answer)


@given(st.binary(max_size=300).map(lambda data: data.replace(bytes([IAC, SB]), b"")))
def test_every_answer_is_a_refusal_or_one_of_two_consents(data):
    _, answer = Negotiator().feed(data)
    for iac, verb, option in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
        assert iac == IAC
        assert verb in {WONT, DONT} or (verb == DO and option in {ECHO, SUPPRESS_GO_AHEAD})


def test_a_negotiation_without_end_is_a_desync():
    with pytest.raises(ProtocolDesync, match="without end"):
        Negotiator().feed(says(SB) + b"x" * 5000)


class Carrier:
    """Bytes in both directions, from a list."""

    is_open = True

    def __init__(self, *arrives: bytes) -> None:
        self.arrives = list(arrives)
        self.sent = b""

    def open(self, timeout_s):
        pass

    def close(self):
        self.is_open = False

    def has_input(self):
        return True

    def send(self, data, deadline):
        self.sent += data

    def receive(self, deadline):
        if not self.arrives:
            raise make_connection_lost("telnet://ocs", "the device closed the connection")
        return self.arrives.pop(0)


def test_the_transport_answers_by_itself_and_gives_the_rest():
    carrier = Carrier(says(WILL, ECHO), b"log" + says(DO, WINDOW_SIZE), b"in:")
    telnet = TelnetTransport(carrier)
    assert (telnet.receive(Deadline(1)), telnet.receive(Deadline(1))) == (b"log", b"in:")
    assert carrier.sent == says(DO, ECHO) + says(WONT, WINDOW_SIZE)


def test_negotiation_alone_is_no_input_but_a_disconnect_is():
    carrier = Carrier(says(WILL, ECHO))
    telnet = TelnetTransport(carrier)
    assert telnet.has_input()  # the end of the connection behind it
    with pytest.raises(ConnectionLost):
        telnet.receive(Deadline(1))
    assert carrier.sent == says(DO, ECHO)


def test_negotiations_without_end_are_not_listened_to_for_ever(monkeypatch):
    carrier = Carrier()
    monkeypatch.setattr(Carrier, "receive", lambda *_: says(WONT, ECHO) * 9)
    monkeypatch.setattr("ocs_drivers.transports.telnet.LONGEST_NEGOTIATION_S", 0.01)
    telnet = TelnetTransport(carrier)
    assert not telnet.has_input()
    with pytest.raises(Timeout):
        telnet.receive(Deadline(0.01))


def test_every_connection_negotiates_again():
    carrier = Carrier(says(WILL, ECHO) + b"x", says(WILL, ECHO) + b"y")
    telnet = TelnetTransport(carrier)
    assert telnet.is_open
    telnet.receive(Deadline(1))
    telnet.close()
    assert not telnet.is_open
    telnet.open(1.0)
    assert telnet.has_input()
    assert telnet.receive(Deadline(1)) == b"y"
    assert carrier.sent == 2 * says(DO, ECHO)


def test_a_byte_255_is_doubled():
    carrier = Carrier()
    TelnetTransport(carrier).send(b"a\xffb", Deadline(1))
    assert carrier.sent == b"a\xff\xffb"
