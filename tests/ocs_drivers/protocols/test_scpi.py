"""The SCPI codec: golden lines from drivers that cite the vendor's manual, and the same events however split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity
from ocs_drivers.protocols import scpi

pytestmark = pytest.mark.codec


GOLDEN_REPLIES = [
    (scpi.decode_error, '0, "No error"', scpi.QueuedError(0, "No error")),
    (scpi.decode_error, '-113,"Undefined header"', scpi.QueuedError(-113, "Undefined header")),
    (
        scpi.decode_identity,
        "Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18",
        Identity("Polatis", "I-OST-24x24-LU1-DMHNS", "002414", "6.5.2.18"),
    ),
    (scpi.check_completion, "1", None),
]


@pytest.mark.parametrize(("decode", "reply", "expected"), GOLDEN_REPLIES)
def test_replies_are_understood(decode, reply, expected):
    assert decode(reply) == expected


GARBAGE = [
    (scpi.decode_error, ["No error", "0", "0, No error", 'x, "y"']),
    (scpi.decode_identity, ["Polatis", "a,b,c", ",,,", "a,b,c,d,e"]),
    (scpi.check_completion, ["0", "", "1,1", "(1)"]),
]


@pytest.mark.parametrize(
    ("decode", "reply"), [(decode, reply) for decode, replies in GARBAGE for reply in replies]
)
def test_whatever_is_not_the_language_is_a_desync(decode, reply):
    with pytest.raises(ProtocolDesync):
        decode(reply)


def test_only_the_form_makes_a_queued_error():
    assert scpi.is_queued_error('-222, "Data out of range"')
    assert not scpi.is_queued_error("(@1),(@17)")
    assert not scpi.is_queued_error('"-222"')


port_lists = st.lists(st.integers(1, 140), max_size=40).map(lambda ports: f"(@{','.join(map(str, ports))})")
replies = st.one_of(
    st.tuples(port_lists, port_lists).map(",".join),
    st.sampled_from(
        ['0, "No error"', '-350, "Queue overflow; really"', '"18"', '""', "(D,E,F)", "1", "16,16"]
    ),
)
lines = st.lists(st.lists(replies, min_size=1, max_size=3), min_size=1, max_size=4)
ends = st.sampled_from(["\r\n", "\n", "\r"])


def feed_in_pieces(make, data: bytes, cuts: list[int]) -> list:
    reader, events, start = make(), [], 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        events += reader.feed(data[start:cut])
        start = cut
    return events


@pytest.mark.slow
def test_replies_are_the_same_however_split_joined_and_ended():
    split_inside_a_line_end = 0

    @settings(max_examples=100)
    @given(lines, st.data())
    def check(groups, data):
        nonlocal split_inside_a_line_end
        joined = st.booleans()
        text = "".join(
            (";" if data.draw(joined) else data.draw(ends)).join(group) + data.draw(ends) for group in groups
        )
        wire = text.encode()
        cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=8))
        split_inside_a_line_end += b"\r\n" in wire  # one byte at a time, below
        expected = [reply for group in groups for reply in group]
        assert feed_in_pieces(scpi.ReplyReader, wire, cuts) == expected
        assert feed_in_pieces(scpi.ReplyReader, wire, list(range(len(wire)))) == expected

    check()
    assert split_inside_a_line_end >= 50


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_any_bytes_give_replies_or_a_desync_however_split(wire, cuts):
    def outcome(pieces):
        try:
            return feed_in_pieces(scpi.ReplyReader, wire, pieces)
        except ProtocolDesync as error:
            return str(error)

    assert outcome(cuts) == outcome([])


def test_bytes_that_are_not_text_are_a_desync_for_good():
    reader = scpi.ReplyReader()
    for data in (b"#%~\x15\x7f\xfe\r\n", b"1\r\n"):
        with pytest.raises(ProtocolDesync):
            reader.feed(data)


@pytest.mark.parametrize("line", ['"never closed', "(@1,2", "1)", '"a"b;"'])
def test_what_is_opened_is_closed(line):
    with pytest.raises(ProtocolDesync, match="unbalanced"):
        scpi.split_replies(line)


def test_an_endless_line_is_a_desync():
    reader = scpi.ReplyReader()
    with pytest.raises(ProtocolDesync, match="without end"):
        for _ in range(20):
            reader.feed(b"x" * (scpi.LONGEST_LINE_BYTES // 16))
