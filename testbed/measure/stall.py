"""Stall of a TCP stream during a change of circuits."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from testbed.errors import HostError
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import LabHost

STREAM_PORT = 29600
EVENT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest and the median time between two arrivals of data, and the bytes received."""

    longest_gap_s: float
    median_gap_s: float
    received_bytes: int


class Stream:
    """A running TCP stream."""

    def __init__(self, receiver: Launch, name: str) -> None:
        self._receiver = receiver
        self._stream_name = name

    def finish(self) -> Stall:
        """End the stream and return its stall. Raise `HostError` if the receiver does not answer."""
        self._receiver.close_input()
        message = await_event(self._receiver, "stall", self._stream_name)
        return Stall(message["longest_gap_s"], message["median_gap_s"], message["received_bytes"])


@contextmanager
def run_tcp_stream(fleet: Fleet, source: LabHost, target: LabHost) -> Iterator[Stream]:
    """Run a steady stream between the node addresses of two hosts. Data is flowing when the block starts.

    Raises `HostError` if the stream does not start.
    """
    program = resources.files("testbed.node").joinpath("stream.py").read_bytes()
    path = f"{fleet.put({'stream.py': program})}/stream.py"
    endpoint = [str(target.address), str(STREAM_PORT)]
    receive_command = shlex.join([target.python, "-IS", path, "receive", *endpoint])
    send_command = shlex.join([source.python, "-IS", path, "send", *endpoint, str(source.address)])
    name = f"the TCP stream from {source.name} to {target.name}"
    with ExitStack() as stack:
        receiver = stack.enter_context(fleet.start({target.name: receive_command}))
        await_event(receiver, "listening", name)
        stack.enter_context(fleet.start({source.name: send_command}))
        await_event(receiver, "flowing", name)
        yield Stream(receiver, name)


def await_event(launch: Launch, event: str, stream_name: str) -> dict[str, Any]:
    """Return the first message of this event. Raise `HostError` if none arrives within `EVENT_TIMEOUT_S`."""
    for _host, line in launch.read_lines(EVENT_TIMEOUT_S):
        message: dict[str, Any] = json.loads(line)
        if message.get("event") == event:
            return message
    raise HostError(
        f"{stream_name} is not {event} within {EVENT_TIMEOUT_S:g} s: are the routes installed? Run `testbed apply`"
    )
