"""Simulated switches for tests: served by an event loop in a thread, asked over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from sim.models.clock import RealClock, VirtualClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant, Renderer
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import SwitchTwin
from sim.twins.wire.listener import bind_socket

PATIENCE_S = 60.0
_COMMON = {"switch_time_s", "boot_mode", "user", "password"}


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Scpi:
    """A client of the SCPI frontend that knows nothing but lines."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address)
        self._stream = self.socket.makefile("rb")

    def send(self, line: str, ending: str = "\n") -> None:
        self.socket.sendall((line + ending).encode())

    def line(self) -> str:
        """Return the next line with its ending taken off, '' at the end of the connection."""
        raw = self._stream.readline()
        assert not raw or raw.endswith(b"\r\n"), raw
        return raw[:-2].decode()

    def ask(self, line: str, ending: str = "\n") -> str:
        self.send(line, ending)
        return self.line()

    def rest(self) -> bytes:
        """Return everything until the connection ends."""
        try:
            return self._stream.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


class Tl1:
    """A client of the TL1 frontend that knows nothing but frames."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address)
        self._rest = b""

    def send(self, command: str) -> None:
        self.socket.sendall(command.encode() + b"\r\n")

    def frame(self) -> str:
        """Return the next frame, '' at the end of the connection."""
        while b"\r\n;" not in self._rest:
            data = self.socket.recv(65536)
            if not data:
                return ""
            self._rest += data
        frame, _, self._rest = self._rest.partition(b"\r\n;")
        return frame.decode("latin-1")

    def answer(self, command: str) -> str:
        """Return the answer to one command, reports on the way skipped."""
        self.send(command)
        while (frame := self.frame()).startswith("\r\n") and "\r\nA  " in frame:
            pass
        return frame

    def ask(self, command: str) -> list[str]:
        """Return the data lines of a completed command."""
        frame = self.answer(command)
        assert re.search(r"^M  \S+ COMPLD\r?$", frame, re.MULTILINE), frame
        return re.findall(r'^   "(.*)"\r?$', frame, re.MULTILINE)

    def denied(self, command: str) -> str:
        """Return the code with which a command is denied."""
        frame = self.answer(command)
        found = re.search(r"^M  \S+ DENY\r\n   (\w{4})\r\n", frame, re.MULTILINE)
        assert found, frame
        return found[1]

    def login(self) -> Tl1:
        assert self.ask("ACT-USER::admin:1::root;") == []
        return self

    def close(self) -> None:
        self.socket.close()


class LiveTwin:
    """A twin that answers on three addresses of this machine."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, twin: SwitchTwin, plant: Plant, stack: ExitStack
    ) -> None:
        self.twin = twin
        self.plant = plant
        self._loop = loop
        self._stack = stack
        names = (*twin.socket_frontends, "control")
        self.run(twin.serve({name: bind_socket("127.0.0.1", 0) for name in names}))
        self.scpi_address, self.tl1_address, self.control_address = (
            twin.list_addresses()[name].rpartition("/")[2] for name in ("scpi", "tl1", "control")
        )

    def run(self, doing: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(PATIENCE_S)

    def scpi(self) -> Scpi:
        client = Scpi(self.scpi_address)
        self._stack.callback(client.close)
        return client

    def tl1(self) -> Tl1:
        client = Tl1(self.tl1_address)
        self._stack.callback(client.close)
        return client

    def open_control(self) -> Any:
        """Return a file of lines to and from the control socket."""
        connection = connect(self.control_address)
        stream = connection.makefile("rwb")
        self._stack.callback(connection.close)
        self._stack.callback(stream.close)
        return stream

    def control(self, do: str, **fields: Any) -> dict[str, Any]:
        with connect(self.control_address) as client:
            client.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
            with client.makefile("rb") as stream:
                return json.loads(stream.readline())

    def set_fault(self, fault: str, **fields: Any) -> None:
        assert self.control("set_fault", fault=fault, **fields) == {"ok": True}

    def clear_fault(self, fault: str, **fields: Any) -> None:
        assert self.control("clear_fault", fault=fault, **fields) == {"ok": True}

    def truth(self) -> dict[str, Any]:
        return self.control("truth")

    def until(self, fact: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the truth as soon as `fact` holds of it; fails when that takes too long."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not fact(truth := self.truth()):
            assert time.monotonic() < deadline_s, truth
        return truth


@pytest.fixture(scope="session")
def twin_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def start_twin(twin_loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., LiveTwin]]:
    """Start twins: settings and options of the family, a wiring document, and `virtual=True` for its clock."""
    with ExitStack() as stack:

        def start(
            inputs: int = 8,
            outputs: int = 8,
            *,
            wiring: dict[str, Any] | None = None,
            renderers: Sequence[Renderer] = (),
            virtual: bool = False,
            **options: Any,
        ) -> LiveTwin:
            plant = Plant(wiring or {"hosts": [], "switches": [{"name": "ocs1"}]}, renderers)
            clock = VirtualClock() if virtual else RealClock()
            settings = {"switch_time_s": 0.02 if virtual else 0.001, **options}
            own = {name: settings.pop(name) for name in list(settings) if name not in _COMMON}
            made = make_twin(
                "polatis",
                TwinSettings("ocs1", inputs, outputs, plant, clock, **settings, options=own),
            )
            live = LiveTwin(twin_loop, made, plant, stack)
            stack.callback(lambda: live.run(live.twin.close()))
            return live

        yield start
