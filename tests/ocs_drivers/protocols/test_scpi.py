"""The SCPI codec: golden lines from drivers that cite the vendor's manual, and the same events however split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, Identity, PortState
from ocs_drivers.protocols import scpi
from ocs_drivers.vendors.polatis import scpi_codec

pytestmark = pytest.mark.codec

GOLDEN_COMMANDS = [
    (scpi_codec.add(CrossConnects({1: 17, 2: 18, 3: 19})), ":oxc:swit:conn:add (@1,2,3),(@17,18,19)"),
    (scpi_codec.replace_all(CrossConnects({1: 17, 2: 18})), ":oxc:swit:conn:only (@1,2),(@17,18)"),
    (scpi_codec.replace_all(CrossConnects()), ":oxc:swit:disc:all"),
    (scpi_codec.remove(CrossConnects({1: 17})), ":oxc:swit:conn:sub (@1),(@17)"),
    (scpi_codec.set_shutters([2, 4], is_open=True), ":oxc:swit:port:enab (@2,4)"),
    (scpi_codec.set_shutters([2, 4], is_open=False), ":oxc:swit:port:dis (@2,4)"),
    (scpi_codec.power([193, 194, 197]), ":pmon:pow? (@193,194,197)"),
]


@pytest.mark.parametrize(("command", "expected"), GOLDEN_COMMANDS)
def test_commands_are_as_the_manual_has_them(command, expected):
    assert command == expected


GOLDEN_REPLIES = [
    (scpi_codec.decode_connections, "(@1,2,3),(@19,18,22)", CrossConnects({1: 19, 2: 18, 3: 22})),
    (scpi_codec.decode_connections, "(@),(@)", CrossConnects()),
    (scpi_codec.decode_peer, '"18"', 18),
    (scpi_codec.decode_peer, '""', None),
    (
        scpi_codec.decode_port_states,
        "(D,E,F)",
        (PortState.DISABLED, PortState.ENABLED, PortState.FAILED),
    ),
    (scpi_codec.decode_powers, "(-29.55,-30.05,-29.85)", (-29.55, -30.05, -29.85)),
    (scpi_codec.decode_powers, "(9.91E37)", (None,)),
    (scpi_codec.decode_size, "16,16", (16, 16)),
    (scpi.decode_error, '0, "No error"', scpi.QueuedError(0, "No error")),
    (scpi.decode_error, '-113,"Undefined header"', scpi.QueuedError(-113, "Undefined header")),
    (
        scpi.decode_identity,
        "Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18",
        Identity("Polatis", "I-OST-24x24-LU1-DMHNS", "002414", "6.5.2.18"),
    ),
    (scpi.decode_complete, "1", None),
]


@pytest.mark.parametrize(("decode", "reply", "expected"), GOLDEN_REPLIES)
def test_replies_are_understood(decode, reply, expected):
    assert decode(reply) == expected


GARBAGE = [
    (
        scpi_codec.decode_connections,
        ["", "1", "(@1,2),(@17)", "(@1,1),(@17,18)", "(@1,2),(@17,17)", "(@1,),(@17,)"],
    ),
    (scpi_codec.decode_connections, ["(1),(17)", "(@1),(@17),(@2)", "(@-1),(@17)", '"(@1),(@17)"']),
    (scpi_codec.decode_peer, ["18", "'18'", '"x"', ""]),
    (scpi_codec.decode_port_states, ["(X)", "E,D", "(E", "(E,,D)"]),
    (scpi_codec.decode_powers, ["(-29.55,)", "(dark)", "-29.55"]),
    (scpi_codec.decode_size, ["16", "0,16", "16x16", "16,-16"]),
    (scpi.decode_error, ["No error", "0", "0, No error", 'x, "y"']),
    (scpi.decode_identity, ["Polatis", "a,b,c", ",,,", "a,b,c,d,e"]),
    (scpi_codec.decode_boot_mode, ["LIGHT", ""]),
    (scpi_codec.decode_size, ["00,16", "16,99999"]),
    (scpi.decode_complete, ["0", "", "1,1", "(1)"]),
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


permutations = st.integers(0, 40).flatmap(
    lambda count: st.permutations(range(101, 101 + count)).map(
        lambda outputs: CrossConnects(zip(range(1, count + 1), outputs, strict=True))
    )
)


@given(permutations)
def test_a_configuration_survives_the_wire(target):
    written = f"{scpi_codec.port_list(target)},{scpi_codec.port_list(target.values())}"
    assert scpi_codec.decode_connections(written) == target


replies = st.one_of(
    permutations.map(lambda c: f"{scpi_codec.port_list(c)},{scpi_codec.port_list(c.values())}"),
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


def test_replies_are_the_same_however_split_joined_and_ended():
    split_inside_a_line_end = 0

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


def test_the_size_is_in_the_product_code():
    assert scpi_codec.size_in_product_code("I-OST-192x192-LU1-DMHNS") == (192, 192)
    assert scpi_codec.size_in_product_code("OSM-16") is None
