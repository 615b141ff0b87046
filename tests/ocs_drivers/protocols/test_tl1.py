"""The TL1 codec: golden frames, reports in between, and the same events however split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.protocols.tl1 import (
    LONGEST_BLOCK_BYTES,
    LONGEST_LINE_BYTES,
    Acknowledgement,
    AutonomousMessage,
    Command,
    Decoder,
    Reply,
    format_port_list,
    format_port_range,
)

pytestmark = pytest.mark.codec

HEADER = b"\r\n   NAME 26-01-31 12:00:00\r\n"
COMPLETED = HEADER + b'M  123 COMPLD\r\n   "1,17"\r\n   "2,18"\r\n;'
DENIED = HEADER + b"M  123 DENY\r\n   IIAC\r\n   /* no such port; really */\r\n;"
REPORT = (
    b'\r\n\n   sid 26-01-31 12:00:01\r\n** 0042.01 REPT ALM  OPM\r\n   "1:MN,LOS,NSA:\\"dark; very\\""\r\n;'
)

GOLDEN = [
    (COMPLETED, Reply("123", "COMPLD", "", ("1,17", "2,18"))),
    (DENIED, Reply("123", "DENY", "IIAC", (), ("no such port; really",))),
    (REPORT, AutonomousMessage("**", "0042.01", "REPT ALM OPM", ('1:MN,LOS,NSA:"dark; very"',))),
    (HEADER + b"A  7 REPT DBCHG\r\n;", AutonomousMessage("A", "7", "REPT DBCHG")),
    (b"\r\n   ( nil ) 26-01-31 12:00:00\r\nM  5 COMPLD\r\n;", Reply("5", "COMPLD")),
    (HEADER + b'M  0 COMPLD\r\n"a;b"\r\n>', Reply("0", "COMPLD", "", ("a;b",), (), has_more=True)),
    (HEADER + b"M  9 PRTL\r\n   /* 1 of\r\n 2 */\r\n;", Reply("9", "PRTL", "", (), ("1 of 2",))),
    (HEADER + b"M  9 DELAY\r\n;", Reply("9", "DELAY")),
    (HEADER + b'M  9 COMPLD\r\n   "/* text */"\r\n;', Reply("9", "COMPLD", "", ("/* text */",))),
    (HEADER + b'M  9 COMPLD\r\n   /* "half */\r\n;', Reply("9", "COMPLD", "", (), ('"half',))),
    (HEADER + b'M  9 COMPLD\r\n   "x" /* why */\r\n;', Reply("9", "COMPLD", "", ("x",), ("why",))),
    (HEADER + b'M  9 COMPLD\r\n   /*/ ;*/"x";', Reply("9", "COMPLD", "", ("x",), ("/ ;",))),
    (HEADER + b"M  9 COMPLD\r\n   plain\r\n;", Reply("9", "COMPLD", "", ("plain",))),
    (HEADER + b"M  9 COMPLD\r\n   a>b\r\n;", Reply("9", "COMPLD", "", ("a>b",))),
    (b"IP 123\r\n<", Acknowledgement("IP", "123")),
    (b"RL 5\n<", Acknowledgement("RL", "5")),
]


@pytest.mark.parametrize(("wire", "event"), GOLDEN)
def test_golden_frames(wire, event):
    assert Decoder().feed(wire) == [event]


@pytest.mark.parametrize("prompt", [b"<", b"agent>", b"\r\n< ", b"\r\nagent> \r\n", b";"])
def test_prompts_and_stray_terminators_are_skipped(prompt):
    assert Decoder().feed(COMPLETED + prompt + DENIED) == [GOLDEN[0][1], GOLDEN[1][1]]


@pytest.mark.parametrize(
    "wire",
    [
        b"#%~^{}\r\n",
        b"24,24\r\n",
        HEADER + b"COMPLD\r\n",
        HEADER + b"M  1 COMPLETELY\r\n",
        HEADER + b'M  1\r\n   "M  1 COMPLD"\r\n;',
        HEADER + b";",
        b"\r\n   NAME yesterday noon\r\n",
    ],
)
def test_whatever_is_not_tl1_is_a_desync_for_good(wire):
    decoder = Decoder()
    for data in (wire, COMPLETED):
        with pytest.raises(ProtocolDesync):
            decoder.feed(data)


def test_an_endless_line_is_a_desync():
    decoder = Decoder()
    decoder.feed(HEADER + b"M  1 COMPLD\r\n" + b'"%s"\r\n' % (b"x" * (LONGEST_LINE_BYTES - 3)))
    with pytest.raises(ProtocolDesync, match="a line without end"):
        decoder.feed(b'"%s"' % (b"x" * (LONGEST_LINE_BYTES - 1)))


@pytest.mark.parametrize(("text", "found"), [(b'"a" "b', '"a" "b'), (b'"a /* b */', '"a /* b */')])
def test_a_quotation_that_nobody_closes_goes_on_to_the_end_of_its_line(text, found):
    (reply,) = Decoder().feed(HEADER + b"M  1 COMPLD\r\n" + text + b"\r\n;")
    assert (reply.lines, reply.comments) == ((found,), ())


def test_an_endless_block_is_a_desync():
    decoder = Decoder()
    with pytest.raises(ProtocolDesync, match="without end"):
        for _ in range(20):
            decoder.feed(
                HEADER + b"M  1 COMPLD\r\n" + b'"%s"\r\n' % (200 * b"x") * (LONGEST_BLOCK_BYTES // 4000)
            )


frames = st.lists(st.sampled_from(GOLDEN), min_size=1, max_size=6)


@pytest.mark.slow
def test_events_are_the_same_however_split():
    interrupted = 0

    @settings(max_examples=100)
    @given(frames, st.lists(st.integers(0, 10_000), max_size=8))
    def check(parts, cuts):
        nonlocal interrupted
        wire = b"".join(data for data, _ in parts)
        kinds = [type(event) for _, event in parts]
        interrupted += AutonomousMessage in kinds and Reply in kinds[kinds.index(AutonomousMessage) :]
        expected = [event for _, event in parts]
        for pieces in (cuts, range(len(wire))):
            decoder, events, start = Decoder(), [], 0
            for cut in [*sorted(cut % (len(wire) + 1) for cut in pieces), len(wire)]:
                events += decoder.feed(wire[start:cut])
                start = cut
            assert events == expected

    check()
    assert interrupted >= 10


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_any_bytes_give_events_or_a_desync_however_split(noise, cuts):
    wire = HEADER + noise

    def outcome(pieces):
        decoder, events, start = Decoder(), [], 0
        try:
            for cut in [*sorted(cut % (len(wire) + 1) for cut in pieces), len(wire)]:
                events += decoder.feed(wire[start:cut])
                start = cut
        except ProtocolDesync as error:
            return error.problem
        return events

    assert outcome(cuts) == outcome([])


GOLDEN_COMMANDS = [
    (Command("ACT-USER", 1, aid="user", positional_block="password"), "ACT-USER::user:1::password;"),
    (Command("CANC-USER", 1, aid="user"), "CANC-USER::user:1:;"),
    (Command("RTRV-NETYPE", 1), "RTRV-NETYPE:::1:;"),
    (Command("RTRV-INV", 1, aid="OCS"), "RTRV-INV::OCS:1:;"),
    (
        Command("RTRV-EQPT", 1, aid="SYSTEM", keyword_block="PARAMETER=SIZE"),
        "RTRV-EQPT::SYSTEM:1:::PARAMETER=SIZE;",
    ),
    (Command("ENT-PATCH", 1, aid="1&2,17&18"), "ENT-PATCH::1&2,17&18:1:;"),
    (Command("DLT-PATCH", 1, aid="1&17"), "DLT-PATCH::1&17:1:;"),
    (Command("RTRV-PATCH", 5, tid="NAME"), 'RTRV-PATCH:"NAME"::5:;'),
    (Command("RTRV-PORT-POWER", 1, aid=format_port_range(1, 32)), "RTRV-PORT-POWER::1&&32:1:;"),
    (Command("OPR-PORT-SHUTTER", 1, aid=format_port_list([1, 4, 10])), "OPR-PORT-SHUTTER::1&4&10:1:;"),
    (
        Command("SET-PORT-ATTEN", 1, aid="33", keyword_block="MODE=ABSOLUTE,LEVEL=-10.0"),
        "SET-PORT-ATTEN::33:1:::MODE=ABSOLUTE,LEVEL=-10.0;",
    ),
]


@pytest.mark.parametrize(("command", "text"), GOLDEN_COMMANDS)
def test_commands_are_as_the_manual_has_them(command, text):
    assert command.text == text


@given(st.sampled_from([";", ":", '"', "\n", "\r", "\\", "/*", "\x00", "é"]), st.text("abc", max_size=3))
def test_no_field_can_become_a_command(end, around):
    for name in ("aid", "tid", "positional_block", "keyword_block"):
        with pytest.raises(ValueError, match="cannot be sent"):
            Command("RTRV-PATCH", 1, **{name: around + end + around})
