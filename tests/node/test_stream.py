"""The two ends of the TCP stream, on this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from needs import needs

STREAM = Path(__file__).parents[2] / "testbed" / "node" / "stream.py"
ADDRESS = "127.77.0.8"
"""Of these tests alone: a port that was free here is not given to a connection that somebody else opens."""


class End:
    """One end of the stream as a process."""

    def __init__(self, stack, *words):
        command = [sys.executable, "-IS", str(STREAM), *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = stack.enter_context(subprocess.Popen(command, **pipes))
        stack.callback(self.process.kill)

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def close_input(self):
        self.process.stdin.close()

    def runs_on_for(self, seconds):
        with pytest.raises(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)


@pytest.fixture
@needs("process", "socket")
def receiver_and_send():
    with socket.create_server((ADDRESS, 0)) as held:
        port = str(held.getsockname()[1])
    with ExitStack() as stack:
        receiver = End(stack, "receive", ADDRESS, port)
        assert receiver.hear() == {"event": "listening"}
        yield receiver, lambda: End(stack, "send", ADDRESS, port, ADDRESS)


@pytest.mark.long
def test_a_stream_that_is_held_up_says_for_how_long(receiver_and_send):
    receiver, send = receiver_and_send
    sender = send()
    assert receiver.hear() == {"event": "flowing"}
    os.kill(sender.process.pid, signal.SIGSTOP)
    receiver.runs_on_for(0.4)
    os.kill(sender.process.pid, signal.SIGCONT)
    receiver.runs_on_for(0.3)
    receiver.close_input()
    stall = receiver.hear()
    assert stall["longest_gap_s"] >= 0.39
    assert 0 < stall["median_gap_s"] < stall["longest_gap_s"] / 4
    assert stall["received_bytes"] >= 20 * 256
    assert (sender.process.wait(timeout=60), receiver.process.wait(timeout=60)) == (0, 0)


def test_a_stream_that_never_comes_back_has_stalled_until_the_end(receiver_and_send):
    receiver, send = receiver_and_send
    sender = send()
    assert receiver.hear() == {"event": "flowing"}
    os.kill(sender.process.pid, signal.SIGSTOP)
    receiver.runs_on_for(0.5)
    receiver.close_input()
    assert receiver.hear()["longest_gap_s"] >= 0.45


def test_a_receiver_that_nobody_calls_ends_with_its_input(receiver_and_send):
    receiver, _ = receiver_and_send
    receiver.close_input()
    assert receiver.process.wait(timeout=60) == 0


def test_a_sender_whose_stream_is_stuck_ends_with_its_input(receiver_and_send):
    receiver, send = receiver_and_send
    sender = send()
    assert receiver.hear() == {"event": "flowing"}
    os.kill(receiver.process.pid, signal.SIGSTOP)
    try:
        sender.runs_on_for(0.3)
        sender.close_input()
        assert sender.process.wait(timeout=60) == 0
    finally:
        os.kill(receiver.process.pid, signal.SIGCONT)
