"""Laboratory instruments of a simulated photonic kit: laser, bias supply and optical power meter, on TCP sockets.

instrument   common parts: parameters, errors, settling time
laser        a tunable laser, with commands of Santec's TSL series
supply       a supply of four bias voltages, with Keysight's commands
meter        an optical power meter, with Thorlabs' commands

This module serves the three instruments on sockets, in a separate thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal

import numpy as np

from sim.models.clock import Clock, RealClock
from sim.twins.frontends.scpi import ErrorQueue, Handler, Instrument, Style
from sim.twins.rfsoc.kit.bench.instrument import SettlingKnobs
from sim.twins.rfsoc.kit.bench.laser import SETTLING_S, LaserTwin
from sim.twins.rfsoc.kit.bench.meter import MeterTwin
from sim.twins.rfsoc.kit.bench.supply import SupplyTwin
from sim.twins.rfsoc.kit.state import KitState
from sim.twins.wire.line import Line, LineFaults, Transcript
from sim.twins.wire.listener import Listener, bind_socket

__all__ = ["Bench"]


Role = Literal["laser", "bias", "meter"]
ROLES: tuple[Role, ...] = ("laser", "bias", "meter")

_STYLES: Mapping[Role, Style] = {
    "laser": Style(line_end_bytes=b"\r\n", answer_end="\r\n"),
    "bias": Style(answer_end="\n"),
    "meter": Style(answer_end="\n"),
}
_TIMEOUT_S = 10.0


class Bench:
    """Laser, bias supply and power meter of one kit.

    They serve on ports of the loopback interface, from the first call of `get_resources` until `close`. For tests,
    `faults` holds the line faults of each instrument by role, and `transcripts` the bytes of its sessions.
    """

    def __init__(self, state: KitState, serial: str, *, clock: Clock | None = None) -> None:
        self.faults: Mapping[Role, LineFaults] = {role: LineFaults() for role in ROLES}
        self._clock = RealClock() if clock is None else clock
        self.transcripts: Mapping[Role, Transcript] = {role: Transcript(self._clock) for role in ROLES}
        self._state = state
        self._serial = serial
        self._start_lock = threading.Lock()
        self._sockets: dict[Role, socket.socket] = {}
        self._listeners: dict[Role, Listener] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_event: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def get_resources(self) -> dict[str, str]:
        """Return the VISA resource of every instrument, by role. The first call starts the instruments."""
        with self._start_lock:
            if self._thread is None:
                self._start()
            ports = {role: sock.getsockname()[1] for role, sock in self._sockets.items()}
        return {role: f"TCPIP::127.0.0.1::{port}::SOCKET" for role, port in ports.items()}

    def close(self) -> None:
        """Disconnect all clients, stop serving, and wait until this is complete.

        The bench's own thread does not wait, because it cannot wait for itself. A later call of `get_resources` starts
        the instruments again, on other ports.
        """
        with self._start_lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self.request_stop()
                if thread is not threading.current_thread():
                    thread.join(_TIMEOUT_S)

    def request_stop(self) -> None:
        """Make the thread disconnect all clients and end, without waiting for it.

        A finalizer calls this method, at any time and in any thread.
        """
        loop, stop_event = self._loop, self._stop_event
        if loop is not None and stop_event is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stop_event.set)

    def unplug(self, role: Role) -> None:
        """Disconnect one instrument from the network: refuse new clients, and break all connections."""
        self._call_listener(role, _disconnect_clients)

    def plug_in(self, role: Role) -> None:
        """Connect an instrument to the network again, at the same address."""
        self._call_listener(role, _accept_clients)

    def _call_listener(self, role: Role, action: Callable[[Listener], Coroutine[Any, Any, None]]) -> None:
        self.get_resources()
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(action(self._listeners[role]), self._loop).result(_TIMEOUT_S)

    def _start(self) -> None:
        self._sockets = {role: bind_socket("127.0.0.1", 0) for role in ROLES}
        serving_event = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(serving_event)),
            name=f"bench of {self._serial}",
            daemon=True,
        )
        self._thread.start()
        if not serving_event.wait(_TIMEOUT_S):
            raise TimeoutError(f"the bench of {self._serial} did not start: is the machine overloaded?")

    async def _serve(self, serving_event: threading.Event) -> None:
        self._loop, self._stop_event = asyncio.get_running_loop(), asyncio.Event()
        self._listeners = {
            role: Listener(self._sockets[role], self._make_client_handler(role, instrument))
            for role, instrument in self._make_instruments(self._loop).items()
        }
        for listener in self._listeners.values():
            listener.open()
        serving_event.set()
        await self._stop_event.wait()
        for listener in self._listeners.values():
            await listener.close()
        await asyncio.sleep(0)  # aborted transports close their sockets in the next pass of the loop

    def _make_instruments(self, loop: asyncio.AbstractEventLoop) -> dict[Role, Instrument]:
        error_queues = {role: ErrorQueue() for role in ROLES}
        settling_knobs = SettlingKnobs(self._state, loop.call_later, SETTLING_S)
        seed = (self._state.snapshot.parameters.seed, 0x6D6574)
        handlers_by_role: dict[Role, Mapping[str, Handler]] = {
            "laser": LaserTwin(self._state, settling_knobs, error_queues["laser"]).make_handlers(
                self._serial
            ),
            "bias": SupplyTwin(self._state, error_queues["bias"]).make_handlers(self._serial),
            "meter": MeterTwin(self._state, np.random.default_rng(seed), error_queues["meter"]).make_handlers(
                self._serial
            ),
        }
        return {role: Instrument(handlers_by_role[role], _STYLES[role], error_queues[role]) for role in ROLES}

    def _make_client_handler(
        self, role: Role, instrument: Instrument
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        sessions = itertools.count(1)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = Line(
                role,
                next(sessions),
                (reader, writer),
                faults=self.faults[role],
                transcript=self.transcripts[role],
                clock=self._clock,
            )
            await instrument.serve(line)

        return serve


async def _disconnect_clients(listener: Listener) -> None:
    await listener.refuse()
    listener.drop_clients()


async def _accept_clients(listener: Listener) -> None:
    listener.open()
