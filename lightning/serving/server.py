"""A server process: its socket, its signals, and an end at which everybody has been answered."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvicorn

from lightbed import http_server
from lightning.errors import ServingError
from lightning.serving.http.app import Service
from lightning.serving.http.fast_path import Infer
from lightning.serving.http.metrics import ReadPackets
from lightning.serving.http.v2 import Document
from lightning.serving.packets.server import DatagramServer

BACKLOG = 2048
"""Clients that may be waiting to be connected."""

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that it is they who close."""

SWITCH_S = 0.0005
"""How long a thread keeps Python's lock at most while packets wait that are answered in real time; else it is 5 ms."""

LAST_ANSWERS_S = 30
"""After which requests that are still not answered are given up."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address at which a server is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket that does not accept connections yet; port 0 selects a free port. Raise `ServingError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise _cannot_listen(f"{host} port {port}", error) from error
    return opened


def listen(opened: socket.socket) -> None:
    """Listen for clients. Raises `ServingError` where another has begun to listen since the socket was bound."""
    try:
        opened.listen(BACKLOG)
    except OSError as error:
        where = str(address_of(opened))
        opened.close()
        raise _cannot_listen(where, error) from error


def _cannot_listen(where: str, error: OSError) -> ServingError:
    return ServingError(
        f"cannot listen on {where} ({error.strerror or error})",
        hint="Choose an address of this machine and a free port, or --port 0",
    )


def address_of(opened: socket.socket) -> Address:
    """Return the address of a listening socket."""
    host, port = opened.getsockname()[:2]
    return Address(host, port)


def serve(
    infer: Infer,
    opened: socket.socket,
    packets_port: int | None,
    ready: Callable[[Document], None],
    *,
    realtime: bool = False,
) -> None:
    """Answer over HTTP, and in packets where they have a port, until SIGINT or SIGTERM.

    In the main thread: only there signals arrive. `ready` is given addresses and models when both can be asked.
    `realtime` is for packets. Raises `ServingError` where a port is taken, or real time is not permitted.
    """
    address = address_of(opened)
    listen(opened)
    gc.collect()
    gc.freeze()  # what is loaded stays; to look through all of it now and then would take tens of milliseconds
    found: Document = {"http": f"http://{address}", "udp": None, "models": _models(infer)}
    if packets_port is None:
        Server(infer, lambda: ready(found)).run(sockets=[opened])
        return
    if realtime:
        sys.setswitchinterval(SWITCH_S)
    with DatagramServer(infer.repository, address.host, packets_port, realtime=realtime) as packets:
        found["udp"] = str(Address(*packets.address))
        Server(infer, lambda: ready(found), packets.counts).run(sockets=[opened])


class HttpServer:
    """Answers over HTTP in a thread of its own, for programs that do other things as well.

        with HttpServer(Infer(repository)) as server:
            print(server.address)

    Raises `ServingError` when the port is taken.
    """

    def __init__(
        self, infer: Infer, host: str = "127.0.0.1", port: int = 0, packets: ReadPackets | None = None
    ) -> None:
        self._socket = bind_socket(host, port)
        self.address = address_of(self._socket)
        self._ready = threading.Event()
        self._server = Server(infer, self._ready.set, packets)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="inference-http"
        )

    def __enter__(self) -> Self:
        listen(self._socket)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer pending requests, then stop."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class Server(http_server.Server):
    """A server for which a signal is a good end."""

    def __init__(self, infer: Infer, ready: Callable[[], None], packets: ReadPackets | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                http_server.HeadAsGet(Service(infer, packets)),
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,  # logging belongs to the program
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=LAST_ANSWERS_S,
            ),
            ready,
        )

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


def _models(infer: Infer) -> list[Document]:
    return [
        {
            "name": each.name,
            "version": each.version,
            "number": each.number,
            "file": str(each.source or ""),
            "fidelity": each.executor.fidelity,
        }
        for each in infer.repository.serving()
    ]
