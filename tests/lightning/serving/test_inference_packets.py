"""The codec of inference packets: what is written is read, and any bytes are a packet or a named refusal."""

import random
import re
import struct
import textwrap
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning.serving import Repository
from lightning.serving.packets.codec import (
    HEADER,
    MAGIC,
    MAX_DATAGRAM_BYTES,
    MAX_PAYLOAD_BYTES,
    Datatype,
    Kind,
    Packet,
    PacketError,
    RefusalCode,
    decode_answer,
    encode_answer,
    parse,
    serialise,
    split,
)
from lightning.serving.packets.server import DatagramServer

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "inference-packets.md"
REASONS = {"magic", "version", "kind", "datatype", "code", "fragment", "length", "spare"}


@st.composite
def packets(draw):
    kind = draw(st.sampled_from(Kind))
    fragments = draw(st.integers(1, 0xFFFF) | st.integers(1, 3))
    fragment = draw(st.integers(0, fragments - 1))
    full = fragment + 1 < fragments
    payload = (
        bytes(MAX_PAYLOAD_BYTES) if full else draw(st.binary(max_size=64) | st.just(bytes(MAX_PAYLOAD_BYTES)))
    )
    return Packet(
        kind,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        payload,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(Datatype)),
        draw(st.sampled_from(RefusalCode)) if kind is Kind.REFUSAL else 0,
        fragment,
        fragments,
    )


@given(packets())
def test_what_is_written_is_read(packet):
    datagram = serialise(packet)
    assert parse(datagram) == packet
    assert len(datagram) <= MAX_DATAGRAM_BYTES


def damaged(chance):
    """Return a packet with a byte changed, bytes taken away, or bytes added; or as it was."""
    fields = (
        chance.choice(list(Kind)),
        1,
        chance.getrandbits(64),
        chance.randbytes(chance.choice([0, 5, MAX_PAYLOAD_BYTES])),
    )
    packet = Packet(*fields, code=1 if fields[0] is Kind.REFUSAL else 0)
    datagram = bytearray(serialise(packet))
    kind = chance.randrange(4)
    if kind == 1:
        datagram[chance.randrange(32)] = chance.randrange(256)
    elif kind == 2:
        del datagram[chance.randrange(len(datagram)) :]
    elif kind == 3:
        datagram += chance.randbytes(chance.randrange(MAX_DATAGRAM_BYTES))
    return bytes(datagram)


def test_any_bytes_are_a_packet_or_a_named_refusal():
    chance, seen = random.Random(1), Counter()
    for _ in range(4000):
        datagram = damaged(chance)
        try:
            assert serialise(parse(datagram)) == datagram
            seen["packet"] += 1
        except PacketError as error:
            seen[error.reason] += 1
    assert set(seen) == REASONS | {"packet"}
    assert min(seen.values()) >= 10


@given(st.binary(max_size=2000))
def test_noise_is_refused(datagram):
    with pytest.raises(PacketError):
        parse(datagram)


def test_lenet_fits_one_packet_and_floats_take_three():
    assert len(split(Kind.REQUEST, 1, 1, bytes(784))) == 1
    parts = split(Kind.REQUEST, 1, 1, bytes(range(256)) * 12 + bytes(64), datatype=Datatype.FLOAT32)
    assert [(each.fragment, each.fragments, len(each.payload)) for each in parts] == [
        (0, 3, 1440),
        (1, 3, 1440),
        (2, 3, 256),
    ]
    assert b"".join(each.payload for each in parts) == bytes(range(256)) * 12 + bytes(64)
    with pytest.raises(PacketError):
        split(Kind.REQUEST, 1, 1, bytes(0x10000 * MAX_PAYLOAD_BYTES))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50), st.integers(0, 2**64 - 1))
def test_answers_come_back(scores, cycles):
    found = decode_answer(encode_answer(np.array(scores, np.float32), cycles))
    assert found.scores.tolist() == scores
    expected = scores[0] > 0 if len(scores) == 1 else np.argmax(scores)
    assert found.class_index == int(expected)
    assert found.cycles == cycles


@pytest.mark.parametrize(
    "damage", [lambda m: m[:15], lambda m: m[:-1], lambda m: m + b"0", lambda m: b"\1" + m[1:]]
)
def test_damaged_answers_are_refused(damage):
    with pytest.raises(PacketError):
        decode_answer(damage(encode_answer(np.ones(3, np.float32), 1)))


def test_the_page_has_the_table_and_a_true_example():
    page = PAGE.read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) \|", page, re.MULTILINE)
    places = [(int(start), int(size)) for start, size in rows][:13]
    assert places[0] == (0, len(MAGIC))
    assert all(start + size == after for (start, size), (after, _) in pairwise(places))
    assert sum(places[11]) == HEADER.size
    sizes = [size for _, size in places[:12]]
    assert struct.calcsize(">" + "".join({1: "B", 2: "H", 4: "I", 8: "Q"}[size] for size in sizes)) == 32
    request, answer, refusal = (
        parse(bytes.fromhex(each)) for each in re.findall(r"^    ((?:[0-9a-f]{2,8} ?)+)$", page, re.MULTILINE)
    )
    assert (request.kind, request.model, request.request, request.time_us) == (
        Kind.REQUEST,
        1,
        7,
        2000,
    )
    assert request.payload == bytes([0, 128, 255])
    assert decode_answer(answer.payload).scores.tolist() == [1.0, 3.0]
    assert (decode_answer(answer.payload).class_index, decode_answer(answer.payload).cycles) == (1, 104)
    assert (refusal.kind, refusal.code) == (Kind.REFUSAL, RefusalCode.LATE)
    assert all(f"| {code.value} | `{code.name}` |" in page for code in RefusalCode)


@pytest.mark.socket
def test_the_program_of_the_page_asks_and_reads(capsys, opened, model):
    page = PAGE.read_text()
    program = textwrap.dedent(
        page[page.index("    import socket\n") : page.index("This program sends an image")]
    )
    repository = Repository(opened)
    repository.load("small", model)
    with DatagramServer(repository) as server:
        exec(program.replace("9000", str(server.address[1])).replace("bytes(64)", "bytes(20)"), {})
        exec(program.replace("9000", str(server.address[1])), {})
    repository.close()
    assert capsys.readouterr().out.splitlines() == ["class 0 of 2 scores", "refused with code 4"]
