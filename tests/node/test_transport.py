"""The transport over UDP: its machines byte by byte, its controls, and jobs on one simulated link."""

from __future__ import annotations

import itertools
import random
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.sharing.packet_level import PacketLink, SendingJob, run_packets
from testbed.node.transport import (
    ACK_FORMAT,
    DATA_FORMAT,
    PAYLOAD_BYTES,
    Cubic,
    MltcpGain,
    Receiver,
    Reno,
    RoundTripEstimate,
    acknowledge_packets,
    make_sender,
    transfer,
)

PERIOD_S = 0.3


def test_packets_as_they_are_on_the_wire():
    sending, receiver = make_sender("reno"), Receiver()
    sending.begin(2)
    first, second = sending.poll(1.0)

    assert first[:28].hex() == "01000000" + "00" * 8 + "00" * 8 + "3ff0000000000000"
    assert len(first) == DATA_FORMAT.size + PAYLOAD_BYTES
    answer = receiver.on_packet(second)
    assert answer.hex() == "02000000" + "00" * 7 + "01" + "00" * 8 + "3ff0000000000000"
    assert ACK_FORMAT.unpack(receiver.on_packet(first))[1:3] == (1, 1)
    sending.on_packet(answer, 1.01)
    assert (sending.is_done, sending.congestion_control.window) == (False, 11)
    sending.on_packet(receiver.on_packet(first), 1.02)
    assert (sending.is_done, sending.deadline_s, receiver.duplicate_count) == (True, None, 1)


@pytest.mark.parametrize("packet", [b"", b"\x02", b"\x07" * 40, b"\x01" * 27])
def test_foreign_packets_are_ignored(packet):
    sending = make_sender("cubic")
    sending.begin(1)
    sending.on_packet(packet, 0.0)

    assert Receiver().on_packet(packet) is None
    assert not sending.is_done


def test_reno_adds_one_segment_a_round_trip_and_halves():
    control = Reno(window=10.0, threshold=10.0)
    for _ in range(10):
        control.on_ack(1.0, 0.0, 0.0)

    assert control.window == pytest.approx(11.0, abs=0.06)
    control.on_loss(0.0)
    assert control.window == pytest.approx(5.5, abs=0.03)
    control.on_timeout(0.0)
    assert (control.window, control.threshold) == (1.0, pytest.approx(2.75, abs=0.02))


def test_cubic_returns_to_its_largest_window_after_k():
    """RFC 9438: K is the cube root of (W_max - cwnd) / C; here (100 - 70) / 0.4, 4.217 s."""
    control = Cubic(window=100.0, threshold=50.0)
    control.on_loss(0.0)
    assert control.window == pytest.approx(70.0)
    at = {}
    for step in range(4500):
        control.on_ack(1.0, step * 1e-3, 0.0)
        at[step] = control.window
    assert at[4217] == pytest.approx(100.0, abs=1.5)
    assert at[2100] > 90


def test_the_gain_scales_growth_by_what_has_been_sent():
    slow, fast = Reno(10.0, 5.0), Reno(10.0, 5.0)
    gain = MltcpGain(1.75, 0.25)
    slow.on_ack(gain.evaluate(0.0), 0.0, 0.0)
    fast.on_ack(gain.evaluate(1.0), 0.0, 0.0)

    assert (slow.window, fast.window) == (10.025, 10.2)
    assert gain.evaluate(7.0) == 2.0


def test_the_timeout_follows_the_round_trip_and_doubles():
    trip = RoundTripEstimate()
    for _ in range(60):
        trip.add_sample(0.05)

    assert trip.timeout_s == pytest.approx(0.05, abs=1e-3)
    trip.backoff = 2
    assert trip.timeout_s == pytest.approx(0.2, abs=4e-3)


def test_what_is_lost_is_sent_again_after_three_later_or_after_the_timeout():
    sending, receiver = make_sender("reno"), Receiver()
    sending.begin(6)
    packets = sending.poll(0.0)
    for packet in packets[1:5]:
        sending.on_packet(receiver.on_packet(packet), 0.01)
    (again,) = sending.poll(0.01)

    assert (sending.retransmit_count, DATA_FORMAT.unpack_from(again)[1:3]) == (1, (6, 0))
    sending.on_packet(receiver.on_packet(again), 0.02)
    (sixth,) = sending.poll(0.02)  # only one number behind, but sent long before
    assert (sending.retransmit_count, DATA_FORMAT.unpack_from(sixth)[1:3]) == (2, (7, 5))
    (probe,) = sending.on_time(sending.deadline_s)
    assert (sending.probe_count, sending.retransmit_count, DATA_FORMAT.unpack_from(probe)[1:3]) == (
        1,
        2,
        (8, 5),
    )
    assert sending.on_time(sending.deadline_s) == []
    assert (sending.timeout_count, sending.congestion_control.window) == (1, 1.0)
    sending.on_packet(receiver.on_packet(sending.poll(5.0)[0]), 5.01)
    assert sending.is_done


def test_a_loss_at_the_end_of_a_burst_is_found_by_a_probe_before_the_timeout():
    sending, receiver = make_sender("reno"), Receiver()
    sending.begin(4)
    packets = sending.poll(0.0)
    for packet in packets[:2]:
        sending.on_packet(receiver.on_packet(packet), 0.002)
    due = sending.deadline_s
    (probe,) = sending.on_time(due)
    assert due == pytest.approx(0.002 + 2 * 0.002 + 0.001)
    sending.on_packet(receiver.on_packet(probe), due + 0.002)

    (third,) = sending.poll(due + 0.002)  # the fourth arrived as the probe
    assert (sending.timeout_count, sending.retransmit_count, DATA_FORMAT.unpack_from(third)[2]) == (0, 1, 2)


@pytest.mark.parametrize("control", ["reno", "cubic"])
def test_every_transfer_arrives_over_a_line_that_loses_doubles_and_reorders(control):
    seen = {"lost": 0, "doubled": 0, "reordered": 0}

    @settings(max_examples=40, derandomize=True, database=None, deadline=None)
    @given(st.integers(1, 60), st.integers(0, 10**6))
    def check(chunks, seed):
        draw = random.Random(seed)
        sending, receiver, now = make_sender(control, 1.75, 0.25), Receiver(), 0.0
        for _ in range(2):
            sending.begin(chunks)
            for _ in range(5000):
                if sending.is_done:
                    break
                packets = sending.poll(now)
                draw.shuffle(packets)
                seen["reordered"] += len(packets) > 1
                for packet in packets:
                    copies = draw.choice((0, 1, 1, 1, 2))
                    seen["lost"] += copies == 0
                    for _ in range(copies):
                        answer = receiver.on_packet(packet)
                        if draw.random() < 0.8:
                            sending.on_packet(answer, now)
                seen["doubled"] += receiver.duplicate_count > 0
                now += 0.005
                sending.on_time(now)
            assert sending.is_done
        assert receiver.received_count == 2 * chunks

    check()
    assert min(seen.values()) >= 30


def two_jobs(control: str, gain: MltcpGain, offset_s: float, iterations: int = 12):
    link = PacketLink()
    packets = int(0.5 * PERIOD_S / link.compute_time_s(bytes(DATA_FORMAT.size + PAYLOAD_BYTES)))
    jobs = [
        SendingJob(0.5 * PERIOD_S, packets, make_sender(control, gain.slope, gain.intercept), start)
        for start in (0.0, offset_s)
    ]
    return run_packets(jobs, iterations, link)


def test_a_job_alone_takes_its_period():
    link = PacketLink()
    job = SendingJob(
        0.15, int(0.15 / link.compute_time_s(bytes(DATA_FORMAT.size + PAYLOAD_BYTES))), make_sender("reno")
    )

    assert run_packets([job], 6, link).iteration_s / PERIOD_S == pytest.approx(1.0, abs=0.01)


def first_of_three(run) -> int | None:
    """Return after how many iterations both jobs take at most 1.05 of their period three times in a row."""
    apart = (run.iteration_s <= 1.05 * PERIOD_S).all(axis=0)
    return next((at for at in range(len(apart) - 2) if apart[at : at + 3].all()), None)


@pytest.mark.long
def test_mltcp_moves_jobs_apart_where_reno_stays_in_overlap():
    """Two jobs of c = 0.5 on 100 Mbit/s, queue of 16, three starts: iterations until three in a row are undisturbed."""
    starts = (0.003, 0.009, 0.015)
    mltcp = [two_jobs("reno", MltcpGain(1.75, 0.25), start, 12) for start in starts]
    reno = [two_jobs("reno", MltcpGain(), start, 10) for start in starts]

    assert sorted(first_of_three(run) for run in mltcp)[1] <= 6
    assert all(sender.timeout_count == 0 for run in mltcp for sender in run.senders)
    assert [first_of_three(run) for run in reno] == [None] * 3


@pytest.mark.long
def test_mltcp_on_cubic_moves_jobs_apart_too():
    assert two_jobs("cubic", MltcpGain(1.75, 0.25), 0.009).iteration_s[:, 6:].mean() / PERIOD_S < 1.1


@pytest.mark.long
def test_shifted_by_half_a_period_jobs_lose_no_time():
    apart = two_jobs("reno", MltcpGain(), 0.15)

    assert apart.iteration_s.mean() / PERIOD_S < 1.05
    assert apart.dropped_count == sum(apart.retransmit_counts)


def udp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@pytest.mark.socket
def test_a_transfer_over_real_sockets():
    """Two iterations between two sockets of this machine; the receiving end answers in a thread until it is closed."""
    with udp_socket() as far, udp_socket() as near:
        far.bind(("127.0.0.1", 0))
        near.connect(far.getsockname())
        receiver, sending, stop = Receiver(), make_sender("cubic", 1.75, 0.25), threading.Event()
        thread = threading.Thread(target=acknowledge_packets, args=(far, receiver, stop.is_set))
        thread.start()
        try:
            for _ in range(2):
                sending.begin(300)
                transfer(near, sending, timeout_s=20.0)
        finally:
            stop.set()
            thread.join()

    assert (sending.is_done, receiver.received_count) == (True, 600)


@pytest.mark.socket
def test_a_transfer_that_nobody_answers_ends_with_an_error():
    with udp_socket() as silent, udp_socket() as near:
        silent.bind(("127.0.0.1", 0))
        near.connect(silent.getsockname())
        sending = make_sender("reno")
        sending.begin(3)
        times = itertools.count()

        with pytest.raises(
            TimeoutError, match="3 of 3 packets were not acknowledged within 5 s: check the other host"
        ):
            transfer(near, sending, timeout_s=5.0, clock=lambda: float(next(times)))
