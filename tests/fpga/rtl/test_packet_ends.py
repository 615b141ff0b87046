"""Frames in, frames out: `packet_request` and `packet_answer` under Verilator.

What has to become of a frame says `witnesses.packet_ends.fate`; scapy builds frames and parses the replies.
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from libraries import skip_without
from witnesses.packet_ends import (
    OUTCOMES,
    REQUEST,
    Answer,
    Bench,
    fate,
    ones_sum,
    packet_ends_design,
)

from lightning.serving.packets.codec import decode_answer, parse

pytestmark = pytest.mark.hdl


@pytest.fixture(scope="module")
def ends(verilator):
    return verilator.build(packet_ends_design(), optimise_flag="-O1")


@pytest.fixture(scope="module")
def scapy():
    skip_without("scapy")
    from witnesses.wire_frames import Scapy

    return Scapy()


@pytest.fixture
def bench(ends):
    def make(seed=1, **options):
        ends.reset()
        return Bench(ends, random.Random(seed), **options)

    return make


@pytest.fixture
def frames(scapy):
    from witnesses.wire_frames import Frames

    return lambda seed=1: Frames(scapy, seed)


def assert_right(seen, sent, scapy):
    """Every frame has the fate that it should have, and all that was sent is asked for and right."""
    fates = [fate(frame, bad=bad) for frame, bad in sent]
    assert seen.fates == [each.outcome for each in fates]
    assert seen.received == len(sent) == sum(seen.counts.values())
    assert [request for request, _ in seen.requests] == [each.request for each in fates if each.request]
    replies = [each.reply for each in fates if each.reply]
    answers = [each.frame() for each in seen.answers]
    assert len(answers) == len(seen.requests)
    for frame, now in seen.frames:
        time_us, plain = without_time(frame)
        # Answers keep their order, and so do replies, but not the one among the other.
        queue = answers if answers and plain == answers[0] else replies
        assert queue
        assert plain == queue.pop(0)
        assert_checksums(frame, scapy)
        assert time_us <= (now - 0xFFFFFF00) % 2**32
    assert (answers, replies) == ([], [])


def without_time(frame):
    """Return the time in an inference packet, and the frame without it and without the checksum that covers it."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17:
        return 0, frame
    assert frame[40:42] != b"\0\0"
    plain = frame[:40] + b"\0\0" + frame[42:54] + bytes(4) + frame[58:]
    return int.from_bytes(frame[54:58], "big"), plain


def assert_checksums(frame, scapy):
    """Check that the frame has the checksums that scapy computes."""
    parsed = scapy.Ether(frame)
    if scapy.IP not in parsed:
        assert parsed[scapy.ARP].op == 2
        return
    assert (parsed[scapy.IP].ttl, parsed[scapy.IP].id, str(parsed[scapy.IP].flags)) == (64, 0, "DF")
    whole = bytes(parsed)
    layer = scapy.UDP if scapy.UDP in parsed else scapy.ICMP
    seen = parsed[layer].chksum
    del parsed[scapy.IP].chksum, parsed[layer].chksum
    again = scapy.Ether(bytes(parsed))
    # 0 and 0xFFFF are the same number; in ICMP either may stand.
    assert again[layer].chksum % 0xFFFF == seen % 0xFFFF
    assert whole[:24] + whole[26:34] == frame[:24] + frame[26:34]
    assert again[scapy.IP].chksum == int.from_bytes(frame[24:26], "big")
    if layer is scapy.UDP:
        packet = parse(bytes(parsed[scapy.UDP].payload))
        assert packet.kind == 3 or len(decode_answer(packet.payload).scores) >= 1


def run_random(bench, frames, scapy, seed, number, **options):
    made = frames(seed)
    sent = [made.any() for _ in range(number)]
    seen = bench(seed, **options).run(sent)
    assert_right(seen, sent, scapy)
    return seen.counts


MIXES = [
    {},
    {"gaps": 0.5, "stalls": 0.1},
    {"gaps": 0.05, "stalls": 0.7, "patience": 0.3},
    {"buffers": 2, "patience": 0.0},
]


def test_both_blocks_are_clean(lint, yosys_accepts):
    design = packet_ends_design()
    assert lint.lint(design) == ()
    assert yosys_accepts(design) == ()


def test_every_frame_has_one_outcome_or_becomes_a_request(bench, frames, scapy):
    counts = Counter()
    for seed, options in enumerate(MIXES):
        counts += run_random(bench, frames, scapy, seed, 100, **options)
    assert set(counts) == {*OUTCOMES, REQUEST}
    assert min(counts.values()) >= 8
    assert counts[REQUEST] >= 80


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 108))
def test_thousands_of_frames(bench, frames, scapy, seed):
    counts = run_random(bench, frames, scapy, seed, 2500, **MIXES[seed % 4])
    assert min(counts[name] for name in (*OUTCOMES, REQUEST)) >= 50


@pytest.mark.parametrize("kind", ["request", "ping", "arp"])
def test_no_bit_may_be_wrong(bench, frames, scapy, kind):
    made = frames(3)
    frame = {"request": lambda: made.request(model=0), "ping": lambda: made.ping(30), "arp": made.arp}[kind]()
    flipped = []
    for bit in range(8 * len(frame)):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append((bytes(changed), False))
    seen = bench().run(flipped)
    assert_right(seen, flipped, scapy)
    # A sender's MAC is in no checksum, but its lowest bit says that it is a group. ARP has no checksum: the two
    # addresses of the sender, the target's MAC and what the frame is padded with may be anything.
    harmless = 47 if kind != "arp" else 48 + 47 + 32 + 48 + 8 * (len(frame) - 42)
    assert seen.counts[kind] == harmless
    assert seen.counts["corrupt"] + seen.counts["ignored"] == len(flipped) - harmless


@pytest.mark.parametrize("kind", ["request", "ping"])
def test_a_frame_that_was_cut_is_corrupt_and_one_that_is_padded_is_not(bench, frames, scapy, kind):
    made = frames(4)
    frame = made.request(model=6) if kind == "request" else made.ping(95)
    cut = [(frame, False)] + [(frame[:size], False) for size in range(1, len(frame))]
    padded = [
        (frame.ljust(size, b"\x99"), False) for size in [len(frame) + 1, 192, 193, 1514, 1515, 1600, 2100]
    ]
    seen = bench().run(cut + padded)
    assert_right(seen, cut + padded, scapy)
    assert seen.fates[61:] == ["corrupt"] * (len(frame) - 61) + [kind] * 4 + ["corrupt"] * 3


def test_lengths_that_contradict_the_frame_are_corrupt_though_all_checksums_are_right(bench, frames, scapy):
    made = frames(5)
    frame = made.request(model=9)
    sent = []
    for place, size in [(16, 2), (38, 2)]:
        right = int.from_bytes(frame[place : place + size], "big")
        for wrong in [0, 1, 7, 8, 19, 20, 27, right - 1, right + 1, right + 256, 65535]:
            changed = frame[:place] + wrong.to_bytes(size, "big") + frame[place + size :]
            sent.append((made.with_checksums(changed), False))
    seen = bench().run(sent)
    assert_right(seen, sent, scapy)
    assert set(seen.fates) == {"corrupt"}


def test_images_of_every_length_around_the_edges_of_words_and_beats(bench, frames, scapy):
    made = frames(6)
    sizes = [1, 9, 10, 11, 53, 54, 55, 63, 64, 65, 117, 118, 119, 127, 128, 129, 1439, 1440]
    sent = [(made.request(model=number, size=size), False) for number, size in enumerate(sizes)]
    models = dict(enumerate(sizes))
    seen = bench(models=models).run(sent)
    assert seen.counts == {REQUEST: len(sizes)}
    expected = [fate(frame, models=models).request for frame, _ in sent]
    assert [request for request, _ in seen.requests] == expected
    assert [len(request.payload) for request, _ in seen.requests] == sizes


def test_the_table_decides_which_models_and_lengths_are_served(bench, frames, scapy):
    made = frames(7)
    sent = [(made.request(model=number, size=size), False) for number in range(12) for size in (3, 54, 1440)]
    seen = bench().run(sent)
    assert_right(seen, sent, scapy)
    assert seen.counts == {REQUEST: 3, "refused": 15, "unknown_model": 18}


@pytest.mark.translates
def test_small_frames_are_received_one_a_cycle(bench, frames, scapy):
    made = frames(8)
    sent = [(made.ping(type=0, size=18), False) for _ in range(200)]
    seen = bench().run(sent)
    assert_right(seen, sent, scapy)
    assert seen.moments["end"] == list(range(200))


def test_pings_of_every_length_come_back(bench, frames, scapy):
    made = frames(9)
    sizes = [*range(90), 1471, 1472, 1472, 1472, 1470]
    sent = [(made.ping(size), False) for size in sizes]
    seen = bench(stalls=0.2).run(sent)
    assert_right(seen, sent, scapy)
    assert [len(frame) for frame, _ in seen.frames] == [max(60, 42 + size) for size in sizes]


def test_pings_do_not_hold_up_requests_while_nothing_is_sent(bench, frames, scapy):
    made = frames(10)
    pings = [(made.ping(1472), False)] + [(made.ping(40), False) for _ in range(6)]
    sent = [*pings, (made.request(model=1), False)]
    seen = bench(stalls=0.97).run(sent)
    assert_right(seen, sent, scapy)
    assert seen.moments[REQUEST][0] < 80
    assert seen.moments["sent"][-1] > 500


def test_checksums_at_the_edge(bench, frames, scapy):
    made = frames(11)
    none = made.request(model=5, udp={"chksum": 0})
    # A datagram whose sum comes out as 0 has 0xFFFF, by RFC 768; its number takes up what is missing.
    plain = made.request(model=5, number=0)
    number = int.from_bytes(plain[40:42], "big")
    full = made.with_checksums(plain[:58] + number.to_bytes(8, "big") + plain[66:])
    assert full[40:42] == b"\0\0"
    full = full[:40] + b"\xff\xff" + full[42:]
    # The checksum of this ping is 0xF7FF: its reply has 0xFFFF.
    ping = made.ping(size=0, id=0, seq=0)
    assert ping[36:38] == b"\xf7\xff"
    more = [made.ping(size=2, id=0, seq=number) for number in (1, 0xFFFF)]
    sent = [(frame, False) for frame in (none, full, ping, *more)]
    seen = bench().run(sent)
    assert_right(seen, sent, scapy)
    assert seen.counts == {REQUEST: 2, "ping": 3}


def test_a_checksum_of_an_answer_that_comes_out_as_0_is_sent_as_0xffff(bench, frames, scapy):
    sent = [(frames(12).request(model=9), False)] * 2

    def answer_of(request, arrival):
        def udp(cycles):
            frame = Answer(request, arrival, 0, 1, cycles, b"\1\2\3\4" * 5).frame()
            return ones_sum(frame[26:34] + b"\0\x11" + frame[38:40] + frame[34:])

        cycles = 0xFFFF - udp(0)
        assert udp(cycles) == 0xFFFF
        return Answer(request, arrival, 0, 1, cycles, b"\1\2\3\4" * 5)

    seen = bench(tick=0.0).run(sent, answer_of)
    assert [frame[40:42] for frame, _ in seen.frames] == [b"\xff\xff"] * 2
    assert_right(seen, sent, scapy)


@pytest.mark.parametrize("scores", [1, 9, 10, 25, 26, 42, 356])
def test_answers_of_any_length(bench, frames, scapy, scores):
    numbers = (np.arange(scores) - 2.5).astype(">f4")

    def answer_of(request, arrival):
        return Answer(request, arrival, 0, scores - 1, 12345678901234567890, numbers.tobytes())

    sent = [(frames(13).request(model=9), False)] * 3
    seen = bench(stalls=0.3, buffers=2).run(sent, answer_of)
    assert_right(seen, sent, scapy)
    for frame, _ in seen.frames:
        answer = decode_answer(parse(frame[42 : 42 + 48 + 4 * scores]).payload)
        assert (answer.class_index, answer.cycles) == (scores - 1, 12345678901234567890)
        assert answer.scores.tolist() == numbers.tolist()


def test_a_request_comes_seven_cycles_after_its_frame_and_a_frame_five_after_its_answer(bench, frames):
    made = frames(14)
    for size in (1, 54, 55, 1440):
        seen = bench(models={3: size}).run([(made.request(model=3, size=size), False)])
        assert seen.moments[REQUEST][0] - seen.moments["end"][0] == 7
        assert seen.moments["sent"][0] - seen.moments["answer"][0] == 5


def test_times_are_counted_from_the_first_beat_of_the_request(bench, frames):
    made = frames(19)
    request = made.request(model=2)
    sent = [(request, False), (made.request(model=7, size=0), False)]
    seen = bench(tick=1.0, gaps=0.3).run(
        sent, lambda request, arrival: Answer(request, arrival, scores=bytes(4))
    )
    (_, arrival), answered = seen.requests[0], seen.moments["answer"][0]
    first, second = seen.moments["begin"]
    assert arrival == 0xFFFFFF00 + first
    times = {frame[47]: int.from_bytes(frame[54:58], "big") for frame, _ in seen.frames}
    assert seen.fates == [REQUEST, "unknown_model"]
    assert times[2] == answered - first
    # A refusal is chosen eight cycles after the frame's last beat, unless an answer is being sent.
    assert times[3] == seen.moments["end"][1] + 8 - second


def test_replies_and_answers_take_turns(bench, frames, scapy):
    made = frames(15)
    sent = [(each, False) for _ in range(8) for each in (made.request(model=9), made.ping(40), made.arp())]
    seen = bench(stalls=0.9, buffers=8, patience=0.0).run(sent)
    assert_right(seen, sent, scapy)
    kinds = [
        "answer" if frame[12:14] == b"\x08\x00" and frame[23] == 17 else "reply" for frame, _ in seen.frames
    ]
    assert kinds[:12] == ["reply", "answer"] * 6 or kinds[:12] == ["answer", "reply"] * 6


def test_nothing_is_sent_unasked(bench, frames, scapy):
    made = frames(16)
    sent = [(made.foreign(), False) for _ in range(60)] + [
        (made.request(), True),
        (made.ping(), True),
        (made.arp(), True),
    ]
    seen = bench().run(sent)
    assert_right(seen, sent, scapy)
    assert seen.frames == []


def test_icarus_sees_what_verilator_sees(bench, frames, icarus):
    made = frames(17)
    sent = [made.any() for _ in range(30)]
    seen = bench(17, gaps=0.2, stalls=0.3).run(sent, keeps=True)
    outputs = icarus.run(packet_ends_design(), np.concatenate(seen.rows))
    assert len(set(seen.fates)) >= 5
    assert (outputs == np.concatenate(seen.outputs)).all()


FAULTS = [
    ("packet_request", "(!plain_q || free_image)", "1'b1"),
    ("packet_request", "(!ping_q || echo_used <= EchoLimit)", "1'b1"),
    ("packet_request", "owed_q < Replies", "1'b1"),
    ("packet_request", "rx_keep_i[i] ? rx_data_i[8*i+:8] : 8'd0", "rx_data_i[8*i+:8]"),
    ("packet_request", "needed[i] ? beat_q[511-8*i-:8] : 8'd0", "beat_q[511-8*i-:8]"),
    ("packet_request", "lost_q      <= cut || too_long", "lost_q      <= cut"),
    ("packet_request", "fragment >= fragments", "fragment > fragments"),
    ("packet_request", "&& total_q != 16'd1500", ""),
    ("packet_request", "(ended_q ? new_q : take)", "take"),
    ("packet_request", "unsummed || total_sum_q == '1", "total_sum_q == '1"),
    ("packet_request", "begun_line_q[2] ? 16'd0 : total_sum_q", "total_sum_q"),
    ("packet_request", "push    = reply || (decided && fields_q[FieldBits-1])", "push    = reply"),
    ("packet_request", "wrong || lost ||", "lost ||"),
    ("packet_answer", "message_sum == '1 ? 16'hFFFF : ~message_sum", "~message_sum"),
    ("packet_answer", "echo_check[15:0] + {15'd0, echo_check[16]}", "echo_check[15:0]"),
    ("packet_answer", "next && !first ? word_q + 5'd1 : word_q", "next ? word_q + 5'd1 : word_q"),
    ("packet_answer", "arp_q || total < 11'd46 ?", "arp_q ?"),
    ("packet_answer", "keep[i] ? sample : 8'd0", "sample"),
]
"""Faults in the blocks that no proof is about: block, text and what replaces it."""


def run_edges(bench, frames, scapy):
    """Run the frames that are rare among random ones: long pings that wait, and checksums of 0 and 0xFFFF."""
    test_pings_do_not_hold_up_requests_while_nothing_is_sent(bench, frames, scapy)
    test_checksums_at_the_edge(bench, frames, scapy)
    test_a_checksum_of_an_answer_that_comes_out_as_0_is_sent_as_0xffff(bench, frames, scapy)
    test_lengths_that_contradict_the_frame_are_corrupt_though_all_checksums_are_right(bench, frames, scapy)
    test_a_frame_that_was_cut_is_corrupt_and_one_that_is_padded_is_not(bench, frames, scapy, "request")
    made = frames(18)
    crowd = [(made.ping(size), False) for size in [1472] * 6 + [10] * 40]
    assert_right(bench(stalls=0.95).run(crowd), crowd, scapy)


@pytest.mark.long
@pytest.mark.parametrize(("block", "old", "new"), FAULTS)
def test_a_planted_fault_is_found(verilator, frames, scapy, block, old, new):
    sound = packet_ends_design()
    assert dict(sound.sources)[f"{block}.sv"].count(old) == 1
    sources = [
        (name, text.replace(old, new) if name == f"{block}.sv" else text) for name, text in sound.sources
    ]
    faulty = verilator.build(replace(sound, sources=tuple(sources)), optimise_flag="-O0")

    def bench(seed=1, **options):
        faulty.reset()
        return Bench(faulty, random.Random(seed), **options)

    with pytest.raises(AssertionError):
        for seed, options in enumerate(MIXES):
            run_random(bench, frames, scapy, seed, 250, **options)
        run_edges(bench, frames, scapy)
