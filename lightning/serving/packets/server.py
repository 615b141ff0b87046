"""The packet server. Like a smartNIC, it takes a datagram per request and per answer, without batching.

A thread receives all pending datagrams, answers them one after the other, and repeats. Deadlines start when the kernel
receives a request, so time in the queue counts. A repeated request is answered again, because the first answer may have
been lost. Both answers are equal, because an answer depends only on the request and its number. Only requests that
begin with the magic `LBIP` get refusals. Other datagrams are counted but get no reply, so that nobody can make the
server send packets to a third party.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Self

from lightning.errors import ServingError
from lightning.serving.packets.counts import PacketCounts
from lightning.serving.packets.mmsg import RECEIVE_BUFFER_BYTES
from lightning.serving.packets.packet_loop import PacketLoop
from lightning.serving.packets.reassembly import FragmentReassembler, ReplayCache
from lightning.serving.repository import Repository

MAX_SLEEP_MS = 50
"""Longest sleep of the thread. After it, the thread checks for a stop and for old fragments."""

SHUTDOWN_S = 1.0
"""Longest time for which a closing server still answers pending packets."""


class DatagramServer:
    """A server of inference packets for the models of a repository, with its own thread.

        with DatagramServer(repository, port=9000) as server:
            server.address, server.counts()

    An HTTP server may share the `repository`. Without `is_fast_path_enabled` every datagram goes through Python, with
    the same results. `buffer_bytes` is the size of the socket's receive buffer. With `realtime` the thread has priority
    over other programs and ordinary kernel threads (SCHED_FIFO, sched(7)), but other threads of this process can still
    hold the global interpreter lock. Raise `ServingError` if the port is in use. `start` raises it if real-time
    priority is not permitted.
    """

    def __init__(
        self,
        repository: Repository,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        reassembly: FragmentReassembler | None = None,
        is_fast_path_enabled: bool = True,
        buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        realtime: bool = False,
    ) -> None:
        self._socket = _bind(host, port, buffer_bytes)
        self._loop = PacketLoop(
            self._socket,
            repository,
            reassembly or FragmentReassembler(),
            ReplayCache(),
            is_fast_path_enabled=is_fast_path_enabled,
        )
        self._is_realtime = realtime
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inference-packets", daemon=True)
        self._startup: Future[None] = Future()
        bound_address = self._socket.getsockname()
        self.address: tuple[str, int] = (str(bound_address[0]), int(bound_address[1]))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread. Raise `ServingError` if it may not have real-time priority."""
        self._loop.prepare()
        self._thread.start()
        try:
            self._startup.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Answer pending packets, and stop."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.deferred_requests.close()
        self._socket.close()

    def counts(self) -> PacketCounts:
        """Return a copy of the counters of packets."""
        return self._loop.copy_counts()

    def _run(self) -> None:
        try:
            if self._is_realtime:
                set_realtime_priority()
        except ServingError as error:  # `start` raises it again
            self._startup.set_exception(error)
            return
        self._startup.set_result(None)
        self.serve()

    def serve(self) -> None:
        """Answer until `close`. The thread calls this. A process that does nothing else may call it directly."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        next_clean_up_s = monotonic()
        while not self._stop.is_set():
            is_idle = not self._loop.answer_pending()
            if monotonic() - next_clean_up_s > MAX_SLEEP_MS / 1000:
                self._loop.clean_up()
                next_clean_up_s = monotonic()
            if is_idle:
                poll.poll(MAX_SLEEP_MS)
        shutdown_deadline_s = monotonic() + SHUTDOWN_S
        while (
            self._loop.answer_pending() or len(self._loop.deferred_requests)
        ) and monotonic() < shutdown_deadline_s:
            poll.poll(1)


def set_realtime_priority() -> None:
    """Give this thread, but not its children, priority over all ordinary threads. Raise `ServingError`."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        raise ServingError(
            f"packets cannot be served with real-time priority ({error.strerror})",
            hint="Grant CAP_SYS_NICE or RLIMIT_RTPRIO (prlimit --rtprio=1), or leave real time out",
        ) from error


def _bind(host: str, port: int, buffer_bytes: int) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        server.bind((host, port))
    except OSError as error:
        server.close()
        raise ServingError(
            f"packets cannot be received on {host}:{port} ({error.strerror})",
            hint="Use another port, or an IPv4 address of this machine",
        ) from error
    return server
