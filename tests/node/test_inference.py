"""The inference client: what it counts for each thing that a board may do with a request."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from needs import needs

from lightning.serving.packets.codec import Kind, Packet, encode_answer, parse, serialise
from testbed.node import inference
from testbed.node.inference import RequestTrial, read_reply, split_answer

TIMEOUT_S = 0.1
CYCLES = 104
Board = Callable[[Packet, int], list[bytes]]
"""What a board sends for the n-th datagram of a request, counted from 0."""


def make_answer(number: int, chosen: int = 1) -> bytes:
    """Return the answer with scores 1 and 3, or for class 0 the other way round."""
    scores = np.array([1, 3] if chosen else [3, 1], np.float32)
    return serialise(Packet(Kind.ANSWER, 0, number, encode_answer(scores, CYCLES)))


def make_refusal(number: int, code: int) -> bytes:
    return serialise(Packet(Kind.REFUSAL, 0, number, b"", code=code))


def make_request(number: int) -> tuple[int, bytes, bytes]:
    """Return a request and its expected answer: class 1, two scores."""
    expected = struct.pack(">IIff", 1, 2, 1.0, 3.0)
    return number, serialise(Packet(Kind.REQUEST, 0, number, bytes([number]))), expected


@contextmanager
def serve(board: Board) -> Iterator[tuple[str, int]]:
    """Run a board in a thread; yield its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind(("127.0.0.1", 0))
        seen: dict[int, int] = {}

        def answer() -> None:
            while (arrival := ours.recvfrom(2048))[0]:
                datagram, client = arrival
                packet = parse(datagram)
                turn = seen.get(packet.request, 0)
                seen[packet.request] = turn + 1
                for reply in board(packet, turn):
                    ours.sendto(reply, client)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield ours.getsockname()
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
                stop.sendto(b"", ours.getsockname())
            thread.join()


def ask(board: Board, numbers: range, *, tries: int = 3, deadline_s: float = 30.0) -> dict[str, object]:
    """Return the report of a client that sends these requests to a board."""
    with serve(board) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(address)
        trial = RequestTrial(client, TIMEOUT_S, tries, deadline_s)
        for number in numbers:
            trial.send_request(*make_request(number))
    return trial.make_report()


@pytest.fixture
@needs("socket")
def network() -> None:
    """Say that a test opens sockets."""


@pytest.mark.usefixtures("network")
class TestOutcomes:
    def test_right_answers(self):
        report = ask(lambda packet, _turn: [make_answer(packet.request)], range(20))

        assert [report[name] for name in ("requests", "answered", "wrong", "lost", "repeated")] == [
            *(20, 20, 0, 0, 0)
        ]
        assert report["cycles"] == [CYCLES] * 20
        latencies = report["latencies_us"]
        assert isinstance(latencies, list)
        assert len(latencies) == 20
        assert all(0 < each < TIMEOUT_S * 1e6 for each in latencies)
        assert (report["refused"], report["error"], report["differences"]) == ({}, "", [])

    def test_wrong_answers_are_answers_and_the_first_are_shown(self):
        report = ask(lambda packet, _turn: [make_answer(packet.request, packet.request % 2)], range(20))

        assert (report["answered"], report["wrong"], report["lost"]) == (20, 10, 0)
        differences = report["differences"]
        assert isinstance(differences, list)
        assert [each["number"] for each in differences] == [0, 2, 4, 6, 8]
        assert differences[0] == {
            "number": 0,
            "expected": "00000001000000023f80000040400000",
            "answer": "0000000000000002404000003f800000",
        }

    def test_refusals_are_counted_by_name_and_not_repeated(self):
        codes = {0: 2, 1: 2, 2: 6, 3: 77}
        report = ask(
            lambda packet, _turn: [make_refusal(packet.request, codes[packet.request])],
            range(4),
        )

        assert report["refused"] == {"UNKNOWN_MODEL": 2, "BUSY": 1, "77": 1}
        assert (report["answered"], report["lost"], report["repeated"]) == (0, 0, 0)

    def test_a_lost_request_is_sent_again_with_the_same_number(self):
        report = ask(lambda packet, turn: [make_answer(packet.request)] if turn else [], range(3))

        assert (report["answered"], report["repeated"], report["lost"], report["wrong"]) == (3, 3, 0, 0)
        latencies = report["latencies_us"]
        assert isinstance(latencies, list)
        assert min(latencies) > TIMEOUT_S * 1e6, "it lasts from the first datagram"

    def test_a_board_that_is_silent_loses_every_request(self):
        asked: list[int] = []
        report = ask(lambda packet, _turn: asked.append(packet.request) or [], range(6), tries=2)

        assert (report["requests"], report["answered"], report["lost"], report["repeated"]) == (6, 0, 6, 3)
        assert asked == [0, 0, 1, 1, 2, 2], "the last three are not worth the wait"
        assert report["cycles"] == []

    def test_a_board_that_replied_once_is_waited_for(self):
        report = ask(
            lambda packet, _turn: [make_refusal(0, 3)] if packet.request == 0 else [],
            range(6),
            tries=1,
        )

        assert (report["refused"], report["lost"]) == ({"LATE": 1}, 5)
        assert report["repeated"] == 0

    def test_late_answers_of_repeated_requests_count_once(self):
        """Each request is answered twice, the second time while the next one waits."""
        report = ask(lambda packet, _turn: [make_answer(packet.request)] * 2, range(10))

        assert (report["answered"], report["wrong"], report["lost"]) == (10, 0, 0)

    def test_after_the_deadline_requests_are_lost_without_being_sent(self):
        asked: list[int] = []
        report = ask(lambda packet, _turn: asked.append(packet.request) or [], range(50), deadline_s=0.05)

        assert (report["requests"], report["lost"], report["repeated"]) == (50, 50, 0)
        assert asked == [0]

    def test_a_port_where_nobody_listens_is_named(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(address)
            trial = RequestTrial(client, 0.05, 2, 30)
            trial.send_request(*make_request(7))

        assert (trial.lost_count, trial.error) == (1, "Connection refused")


@pytest.mark.process
@pytest.mark.socket
@pytest.mark.parametrize("is_file", [False, True], ids=["standard input", "file"])
def test_the_program_reads_requests_and_prints_one_document(tmp_path, is_file):
    rows = [make_request(number) for number in range(5)]
    text = "".join(
        json.dumps({"number": number, "request": request.hex(), "answer": answer.hex()}) + "\n"
        for number, request, answer in rows
    )
    file = tmp_path / "requests.jsonl"
    file.write_text(text)
    with serve(lambda packet, _turn: [make_answer(packet.request)]) as (host, port):
        command = [sys.executable, "-IS", inference.__file__, "--to", f"{host}:{port}"]
        given = {"input": ""} if is_file else {"input": text}
        done = subprocess.run(
            [*command, str(file)] if is_file else command, capture_output=True, text=True, check=True, **given
        )

    report = json.loads(done.stdout)
    assert (report["requests"], report["answered"], report["wrong"]) == (5, 5, 0)


class TestReplies:
    def test_a_reply_is_told_from_everything_else(self):
        answer, refusal = make_answer(7), make_refusal(7, 3)

        assert read_reply(answer, 7) == (2, 0, answer[32:])
        assert read_reply(refusal, 7) == (3, 3, b"")
        assert read_reply(answer, 8) is None
        assert [read_reply(answer[:length], 7) for length in range(len(answer))] == [None] * len(answer)
        assert read_reply(make_request(7)[1], 7) is None
        assert read_reply(b"x" + answer[1:], 7) is None
        assert read_reply(answer + b"x", 7) is None
        short = serialise(Packet(Kind.ANSWER, 0, 7, bytes(15)))
        assert read_reply(short, 7) is None

    def test_cycles_are_read_and_not_compared(self):
        assert split_answer(make_answer(7)[32:]) == (make_request(7)[2], CYCLES)
