"""All codecs: any bytes, split anywhere, give events or a protocol error, the same however split, and in time."""

from __future__ import annotations

import types

import codec_table
import fuzz_codecs
import pytest
from codec_table import CODECS, DESYNC, Codec
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.codec

MANY = 200_000
NUMBER = b"9" * 5000  # more digits than `int` takes from a text
W1 = b"W1[1AW1] Unlocked Enabled Disconnected 3"
SONIC = b"id  a_side  b_side\n%s  --  ------\n" % (b"-" * (len(NUMBER) + 4))
REPLY = b"\r\n   OCS1 26-01-31 12:00:00\r\nM  1 COMPLD\r\n"


@pytest.fixture(params=CODECS, scope="module")
def codec(request) -> Codec:
    found = CODECS[request.param]
    if found.needs:
        pytest.importorskip(found.needs)
    return found


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.slow
def test_what_devices_sent_is_decoded_the_same_whole_and_byte_by_byte(codec):
    found = [codec.decode([seed]) for seed in codec.seeds]
    assert sum(map(len, found)) >= len(found) > 0
    assert not any(DESYNC in events for events in found)
    assert repr(found) == repr([codec.decode(bytewise(seed)) for seed in codec.seeds])


def test_every_decoder_reads_something_of_what_devices_sent():
    for decoders, name in (
        (codec_table._TL1_DECODERS, "tl1"),
        (codec_table._SCPI_DECODERS, "scpi"),
        (codec_table._SCREEN_DECODERS, "cli"),
        (codec_table._JSON_DECODERS, "rest_json"),
    ):
        replies = [reply for seed in CODECS[name].seeds for reply in replies_of(name, seed)]
        for place in range(len(decoders)):
            assert any(reply[place] != "ProtocolDesync" for reply in replies), (name, place)


def replies_of(name: str, seed: bytes) -> list[list[object]]:
    """Return what the decoders made of each reply of a seed."""
    events = CODECS[name].decode([seed])
    if name == "rest_json":
        return [events]
    return [event[-1] for event in events if isinstance(event, tuple) and event[-1]]


@given(data=st.data())
def test_any_bytes_give_events_or_a_protocol_error_the_same_however_split(codec, data):
    seeds = st.sampled_from(codec.seeds)
    whole = b"".join(data.draw(st.lists(st.one_of(seeds, st.binary(max_size=8)), max_size=4)))
    cut = data.draw(st.integers(0, len(whole)))
    cuts = sorted(data.draw(st.lists(st.integers(0, cut), max_size=3)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, cut], strict=True)]
    fuzz_codecs.is_refused(codec.decode(pieces), codec.decode([whole[:cut]]))


HOSTILE = [
    # numbers that are none
    ("tl1", REPLY + b'"SYSTEM:SIZE=' + NUMBER + b'x16"\r\n;'),
    ("tl1", REPLY + b'"' + NUMBER + b':OPEN"\r\n;'),
    ("tl1", REPLY + b'"PMON::PORT=' + NUMBER + b'"\r\n;'),
    ("scpi", NUMBER + b",16\n"),
    ("scpi", b"-" + NUMBER + b"x4\n"),
    ("scpi", b'"' + NUMBER + b'"\n'),
    ("scpi", NUMBER + b',"No error"\n'),
    ("cli", b"x\nR" + NUMBER + b"# AL1\nt>"),
    ("cli", b"x\nR0#N AL" + NUMBER + b"\nt>"),
    ("cli", b"x\nSTATE = ALLOCATED_AND_LOCKED\nOUTPUT = " + NUMBER + b"\nt>"),
    ("cli", b"x\n" + SONIC + b"1A-%sB  1A  %sB\nt>" % (NUMBER, NUMBER)),
    ("cli", b"x\nE1[1AE1] Unlocked Enabled Disconnected " + NUMBER + b"\n" + W1 + b"\nR[O]#"),
    ("cli", b"x\nE" + NUMBER + b"[1AE1] Unlocked Enabled Disconnected 3\n" + W1 + b"\nR[O]#"),
    ("cli", b"x\nE1 1 2 1 w1 W1 1 " + NUMBER + b"\nF[A]#"),
    ("cli", b"x\nROME TYPE x\nMale/West 1.." + NUMBER + b"\nAUTHENTICATION\nR[O]#"),
    ("rest_json", b'{"port-config": {"port": [{"port-id": "' + NUMBER + b'"}]}}'),
    # what takes the longer the more of it there is, by the square
    ("tl1", b"x" + b" " * MANY + b"\r\n"),
    ("tl1", b"OK" + b" " * MANY + b"\r\n"),
    ("tl1", REPLY + b'"' + b"a" * MANY + b'"\r\n;'),
    ("tl1", REPLY + b'"' + b'\\"' * MANY + b"\r\n;"),
    ("tl1", REPLY + b'"' * MANY + b"\r\n;"),
    ("tl1", REPLY + b" a" + b">" * MANY + b"\r\n;"),
    ("tl1", (REPLY + b'"' + b'\\"' * 8_000 + b"\r\n;") * 4),
    ("cli", b"x\nROME TYPE x" + b" " * 60_000 + b"y\nt>"),
    ("cli", b"x" + 4 * (b"\nSTATE" + b" " * 60_000 + b"y") + b"\nt>"),
]


@pytest.mark.slow
@pytest.mark.timeout(120)  # what is linear in its input takes a second at most; what is not takes hours
@pytest.mark.parametrize(
    ("name", "data"), HOSTILE, ids=[f"{name}-{number}" for number, (name, _) in enumerate(HOSTILE)]
)
def test_what_no_device_says_is_refused_or_passed_over_in_time(name, data):
    CODECS[name].decode([data])


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_document_nested_beyond_sense_is_refused_however_deep_python_can_go(brackets):
    opening, closing = brackets
    for depth in (10, *range(800, 1000), 100_000):
        events = codec_table.events_of_json([opening * depth + b"1" + closing * depth])
        assert (events == [DESYNC]) == (depth > 16)


def events_of_fault(pieces):
    """Act as a codec with a fault behind three conditions: only inputs kept on the way lead there."""
    text = b"".join(pieces)
    if text[:1] == b"<":
        if text[1:2] == b"<":
            if text[2:3] == b"<":
                raise IndexError
            return [2]
        return [1]
    return []


def test_the_fuzzer_finds_a_fault_that_it_has_to_approach_step_by_step(monkeypatch, capsys):
    here = types.SimpleNamespace(__file__=__file__)
    monkeypatch.setitem(CODECS, "faulty", Codec(events_of_fault, (here,), (b"a b", b"c <")))
    with pytest.raises(IndexError):
        fuzz_codecs.fuzz("faulty", quiet_s=0.0, least_inputs=100_000, seed=0)
    assert capsys.readouterr().out.startswith("FOUND in faulty: [b'")


def test_the_fuzzer_finds_that_it_matters_how_bytes_are_split(monkeypatch, capsys):
    monkeypatch.setitem(
        CODECS, "faulty", Codec(lambda pieces: [len(piece) for piece in pieces], (), (b"ab",))
    )
    with pytest.raises(AssertionError, match="how the bytes were split"):
        fuzz_codecs.fuzz("faulty", quiet_s=0.0, least_inputs=1000, seed=0)


def test_a_codec_without_fault_is_fuzzed_until_it_was_quiet_for_long_enough(monkeypatch):
    monkeypatch.setitem(CODECS, "sound", Codec(lambda pieces: [b"".join(pieces)], (), (b"ab",)))
    report = fuzz_codecs.fuzz("sound", quiet_s=0.05, least_inputs=10, seed=0)
    assert report["inputs"] >= 10
    assert report["ran_s"] >= 0
    assert report["refused"] == report["edges"] == 0
