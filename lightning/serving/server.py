"""Server processes and threads: sockets, signals, and a shutdown after the last answer."""

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
"""Maximum number of connections that wait for acceptance."""

KEEP_ALIVE_S = 75
"""Time to keep an idle connection. Most clients keep it for less time, so the client closes it."""

SWITCH_INTERVAL_S = 0.0005
"""Switch interval of the interpreter with `realtime` packets. With the default of 5 ms, packets would wait longer."""

SHUTDOWN_S = 30
"""Time after which a closing server abandons pending requests."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket that does not accept connections yet. Port 0 selects a free port. Raise `ServingError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise _make_listen_error(f"{host} port {port}", error) from error
    return listener


def listen(listener: socket.socket) -> None:
    """Listen for clients. Raise `ServingError` if another process has taken the address since `bind_socket`."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        address = str(read_address(listener))
        listener.close()
        raise _make_listen_error(address, error) from error


def _make_listen_error(address: str, error: OSError) -> ServingError:
    return ServingError(
        f"cannot listen on {address} ({error.strerror or error})",
        hint="Choose an address of this machine and a free port, or --port 0",
    )


def read_address(listener: socket.socket) -> Address:
    """Return the address of a listening socket."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def serve(
    infer: Infer,
    listener: socket.socket,
    packets_port: int | None,
    report_ready: Callable[[Document], None],
    *,
    realtime: bool = False,
) -> None:
    """Serve over HTTP and, with a `packets_port`, in packets, until SIGINT or SIGTERM.

    Call this in the main thread, because signals arrive only there. Call `report_ready` with the addresses and
    models when requests can be sent. `realtime` gives priority to packets. Raise `ServingError` if a
    port is in use, or real-time priority is not permitted.
    """
    address = read_address(listener)
    listen(listener)
    gc.collect()
    gc.freeze()  # models stay loaded, and collecting them would stop the server for tens of milliseconds
    description: Document = {"http": f"http://{address}", "udp": None, "models": _describe_models(infer)}
    if packets_port is None:
        Server(infer, lambda: report_ready(description)).run(sockets=[listener])
        return
    if realtime:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    with DatagramServer(infer.repository, address.host, packets_port, realtime=realtime) as packet_server:
        description["udp"] = str(Address(*packet_server.address))
        Server(infer, lambda: report_ready(description), packet_server.counts).run(sockets=[listener])


class HttpServer:
    """An HTTP server in its own thread, for programs that do other things as well.

        with HttpServer(Infer(repository)) as server:
            print(server.address)

    Raise `ServingError` if the port is in use.
    """

    def __init__(
        self,
        infer: Infer,
        host: str = "127.0.0.1",
        port: int = 0,
        read_packets: ReadPackets | None = None,
    ) -> None:
        self._socket = bind_socket(host, port)
        self.address = read_address(self._socket)
        self._ready = threading.Event()
        self._server = Server(infer, self._ready.set, read_packets)
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
    """A uvicorn server that returns normally after a signal."""

    def __init__(
        self, infer: Infer, report_ready: Callable[[], None], read_packet_counts: ReadPackets | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                http_server.HeadAsGet(Service(infer, read_packet_counts)),
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
                timeout_graceful_shutdown=SHUTDOWN_S,
            ),
            report_ready,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on signals. Do not raise them again afterwards, as uvicorn would."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


def _describe_models(infer: Infer) -> list[Document]:
    return [
        {
            "name": instance.name,
            "version": instance.version,
            "number": instance.number,
            "file": str(instance.source or ""),
            "fidelity": instance.executor.fidelity,
        }
        for instance in infer.repository.list_serving()
    ]
