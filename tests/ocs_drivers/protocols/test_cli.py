"""The prompt codec: golden screens, the same events however split, and bounded memory whatever comes."""

from __future__ import annotations

import re

import pytest
from growth import ratio_of_costs
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.protocols.cli import MAX_LINE_LENGTH, Decoder, Line, Prompt, encode_command

pytestmark = pytest.mark.codec

PROMPT = re.compile(r"[\w@]+(?:\[\w+\])?[>#]")
READY = Prompt("optic@ocs>")

GOLDEN = {
    "a prompt needs no line end": (b"optic@ocs>", [READY]),
    "blanks after a prompt are its own": (b"optic@ocs> show\r\n", [READY, Line("show")]),
    "CRLF": (b"a\r\nb\r\noptic@ocs>", [Line("a"), Line("b"), READY]),
    "CR alone": (b"a\rb\roptic@ocs>", [Line("a"), Line("b"), READY]),
    "LF alone": (b"a\nb\noptic@ocs>", [Line("a"), Line("b"), READY]),
    "CR CR LF, as telnet servers do": (b"a\r\r\nb\r\n", [Line("a"), Line("b")]),
    "CR NUL, as telnet has it": (b"a\r\x00b\r\x00", [Line("a"), Line("b")]),
    "empty lines": (b"\r\n  \r\n\r\na\r\n", [Line("a")]),
    "indents stay, trailing blanks go": (b"  a  b  \r\n", [Line("  a  b")]),
    "tabs stay": (b"a\tb\r\n", [Line("a\tb")]),
    "a coloured prompt": (b"\x1b[1;34moptic@ocs>\x1b[0m \r\n", [READY]),
    "a colour within CRLF": (b"a\r\x1b[0m\nb\r\n", [Line("a"), Line("b")]),
    "a window title": (b"\x1b]0;optic@ocs>\x07optic@ocs>", [READY]),
    "a window title that ends with ST": (b"\x1b]0;ocs\x1b\\a\r\n", [Line("a")]),
    "bracketed paste": (b"\x1b[?2004hoptic@ocs>", [READY]),
    "a character set": (b"\x1b(Ba\x1b=b\r\n", [Line("ab")]),
    "a sequence cut short by a line end": (b"a\x1b[1\r\nb\r\n", [Line("a"), Line("b")]),
    "a pager that wipes itself away": (b"--More--" + b"\b \b" * 8 + b"a\r\n", [Line("a")]),
    "more backspaces than text": (b"ab\b\b\b\bc\r\n", [Line("c")]),
    "bells": (b"\x07a\x07\r\n", [Line("a")]),
    "not UTF-8": (b"a\xffb\r\n", [Line("a�b")]),
    "UTF-8": ("Größe\r\n".encode(), [Line("Größe")]),
    "something unsolicited behind the prompt": (
        b"ROME[OPER]# 08-05-2019 09:20 CONNECTING...\r\n08-05-2019 09:21 DONE\r\n",
        [Prompt("ROME[OPER]#"), Line("08-05-2019 09:20 CONNECTING..."), Line("08-05-2019 09:21 DONE")],
    ),
    "a prompt is the beginning of a line": (b"see optic@ocs> here\r\n", [Line("see optic@ocs> here")]),
    "banners before the first prompt": (b"Welcome\r\noptic@ocs>", [Line("Welcome"), READY]),
}


@pytest.mark.parametrize(("screen", "events"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden_screens(screen, events):
    assert Decoder(PROMPT).feed(screen) == events


@pytest.mark.parametrize(("screen", "events"), GOLDEN.values(), ids=GOLDEN.keys())
def test_golden_screens_byte_by_byte(screen, events):
    decoder = Decoder(PROMPT)
    assert [event for byte in screen for event in decoder.feed(bytes([byte]))] == events


PIECES = st.sampled_from(
    [
        b"optic@ocs>",
        b"\r",
        b"\n",
        b"\x1b",
        b"[",
        b"]",
        b"0;",
        b"m",
        b"\x07",
        b"\b",
        b"row",
        b" ",
        b"\\",
        b"\xc3",
        b"\xbc",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=4), max_size=30), st.data())
def test_any_split_gives_the_same_events(pieces, data):
    screen = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(screen)), max_size=6)))
    decoder = Decoder(PROMPT)
    parts = [screen[start:end] for start, end in zip([0, *cuts], [*cuts, len(screen)], strict=True)]
    assert [event for part in parts for event in decoder.feed(part)] == Decoder(PROMPT).feed(screen)


@pytest.mark.slow
def test_the_split_property_meets_lines_prompts_and_escapes():
    met = {"prompts": 0, "lines": 0, "escapes": 0}

    @settings(max_examples=100)
    @given(st.lists(PIECES, max_size=30))
    def count(pieces):
        events = Decoder(PROMPT).feed(b"".join(pieces))
        met["prompts"] += any(isinstance(event, Prompt) for event in events)
        met["lines"] += any(isinstance(event, Line) for event in events)
        met["escapes"] += b"\x1b" in pieces

    count()
    assert min(met.values()) >= 5, met


@given(st.binary(max_size=2000))
def test_any_bytes_give_printable_events(data):
    for event in Decoder(PROMPT).feed(data):
        assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", event.text)


@pytest.mark.slow
@pytest.mark.parametrize("beginning", [b"", b"\x1b]0;"], ids=["a line", "an escape sequence"])
def test_what_never_ends_is_a_desync_for_good(beginning):
    decoder = Decoder(PROMPT)
    with pytest.raises(ProtocolDesync, match="without end"):
        decoder.feed(beginning + b"x" * (MAX_LINE_LENGTH + 1))
    with pytest.raises(ProtocolDesync):
        decoder.feed(b"optic@ocs>")


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"optic@ocs>" * 300, b"a\0" * 1000], ids=["prompts", "noise"])
def test_the_cost_of_a_flood_grows_with_its_length_and_not_with_its_square(piece):
    assert ratio_of_costs(lambda data: Decoder(PROMPT).feed(data), piece, piece * 16) < 64


def test_a_command_is_typed_with_the_line_end_of_the_device():
    assert encode_command("label 3 Köln", b"\r\n") == b"label 3 K\xc3\xb6ln\r\n"


@pytest.mark.parametrize("command", ["a\rb", "a\nb", "a\x03", "a\x1b[A", "a\tb", "a\x00", "a\x7f", "a\x85"])
def test_no_value_becomes_a_command(command):
    with pytest.raises(ValueError, match="cannot be sent"):
        encode_command(command, b"\r")
