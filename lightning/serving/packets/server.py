"""The smartNIC's form of serving: one datagram asks, one answers, nothing waits for a batch.

A thread takes all datagrams that have come, answers each before it looks at the next, and looks again. Deadlines count
from when the kernel received a request, so that time in the queue counts. A request that is repeated is answered
again: answers depend on the number of the request only, so that a repetition says the same, and a client whose answer
was lost gets it. Refusals are sent to requests that carry the magic; anything else is counted, and gets no answer, so
that nobody can make the server shout at a third party.
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
from lightning.serving.packets.mmsg import MEMORY
from lightning.serving.packets.packet_loop import PacketLoop
from lightning.serving.packets.reassembly import Reassembly, ReplayCache
from lightning.serving.repository import Repository

LISTEN_MS = 50
"""How long the thread sleeps at most when nothing comes: then it sees that it shall stop, or that fragments are old."""

LAST_S = 1.0
"""How long at its end the server still answers what has come, should it never cease to come."""


class DatagramServer:
    """Answers inference packets with the models of a repository, in a thread of its own.

        with DatagramServer(repository, port=9000) as server:
            server.address, server.counts()

    `repository` may be that of an HTTP server: models are swapped for both. Without `fast_path` every datagram goes
    through Python, to the same effect; `memory` is the socket's. With `realtime` other programs and ordinary threads of
    the kernel no longer take the core from the thread (SCHED_FIFO, sched(7)); threads of this process still hold
    Python's lock. Raises `ServingError` when the port is taken; `start`, where real time is not permitted.
    """

    def __init__(
        self,
        repository: Repository,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        reassembly: Reassembly | None = None,
        fast_path: bool = True,
        memory: int = MEMORY,
        realtime: bool = False,
    ) -> None:
        self._socket = _bind(host, port, memory)
        self._loop = PacketLoop(
            self._socket, repository, reassembly or Reassembly(), ReplayCache(), fast_path=fast_path
        )
        self._realtime = realtime
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inference-packets", daemon=True)
        self._begun: Future[None] = Future()
        bound = self._socket.getsockname()
        self.address: tuple[str, int] = (str(bound[0]), int(bound[1]))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Answer in a thread from now on."""
        self._loop.prepare()
        self._thread.start()
        try:
            self._begun.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Answer what has come, and stop."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._loop.deferred.close()
        self._socket.close()

    def counts(self) -> PacketCounts:
        """Return what became of packets; a copy."""
        return self._loop.copy_counts()

    def _run(self) -> None:
        try:
            if self._realtime:
                take_precedence()
        except ServingError as error:  # which `start` raises
            self._begun.set_exception(error)
            return
        self._begun.set_result(None)
        self.serve()

    def serve(self) -> None:
        """Answer until `close`: what the thread does. A process that does nothing else may call it itself."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        tidied = monotonic()
        while not self._stop.is_set():
            idle = not self._loop.serve()
            if monotonic() - tidied > LISTEN_MS / 1000:
                self._loop.housekeeping()
                tidied = monotonic()
            if idle:
                poll.poll(LISTEN_MS)
        end = monotonic() + LAST_S
        while (self._loop.serve() or len(self._loop.deferred)) and monotonic() < end:
            poll.poll(1)


def take_precedence() -> None:
    """Give this thread, but not those that it starts, priority over all ordinary threads. Raises `ServingError`."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        raise ServingError(
            f"packets cannot be served with real-time priority ({error.strerror})",
            hint="Grant CAP_SYS_NICE or RLIMIT_RTPRIO (prlimit --rtprio=1), or leave real time out",
        ) from error


def _bind(host: str, port: int, memory: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, memory)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ServingError(
            f"packets cannot be received on {host}:{port} ({error.strerror})",
            hint="Use another port, or an IPv4 address of this machine",
        ) from error
    return made
