"""A server process: its socket, its signals, and an end at which everybody has been answered."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from lightning.errors import ServingError
from lightning.serving.hot import Infer
from lightning.serving.http import Service
from lightning.serving.metrics import PacketCounts

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that it is they who close."""

LAST_ANSWERS_S = 30
"""After which requests that are still not answered are given up."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listening(host: str, port: int) -> socket.socket:
    """A socket that clients can reach; port 0 takes a free one. Raises `ServingError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise ServingError(
            f"cannot listen on {host} port {port} ({error.strerror or error})",
            cure="Choose an address of this machine and a free port, or --port 0",
        ) from error
    opened.listen(2048)
    opened.setblocking(False)
    return opened


def address_of(opened: socket.socket) -> Address:
    """Of a listening socket."""
    host, port = opened.getsockname()[:2]
    return Address(host, port)


def serve_http(
    infer: Infer,
    opened: socket.socket,
    ready: Callable[[], None],
    packets: PacketCounts | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM, and then those who have asked. `ready` is called when requests are answered.

    In the main thread: only there signals are heard.
    """
    config = uvicorn.Config(
        Service(infer, packets),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )
    Server(config, ready).run(sockets=[opened])


class Server(uvicorn.Server):
    """Uvicorn's, which says when it is ready, and for which a signal is a good end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets=sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as the wish to end, and do not die of them afterwards, as uvicorn would."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
