"""One host of an iteration that runs as a job: computing as a wait, tensors as bytes on the planned routes.

    python3 iteration.py RANK

says `{"event": "ready", "rank", "port"}` when it listens, and then waits for one line of input, its part of the job:

    {"addresses": [["10.100.1.100", "198.18.5.145"], ...], "ports": [40123, ...], "barrier": "10.99.0.11:40123",
     "nics": ["nic1", ...], "nodes": 12, "warm_up": 1, "iterations": 3, "timeout_s": 60,
     "tasks": [{"id": 0, "computes": true, "seconds": 0.01, "after": []}, ...],
     "chains": [{"task": 1, "id": 7,
                 "phases": [{"phase": 0, "rounds": 1, "send": [[3, 0, 1000], [3, 1, 500]], "receive": 2}]}]}

A task that computes has the host's one device for its seconds, first come, first served; any other waits for its
seconds and is done when its chains are. A phase of a chain sends `[target, set, bytes]` in each round; a round ends
when its bytes are handed over and what it receives is there. Each pair of hosts has one connection for each set of
routes, between the addresses of that set, so that the kernel keeps it on the routes of the set.

Prints JSON lines: `ready`; `row` (seconds of each iteration, counters of the NICs before and after, bytes that TCP sent
again by target and set, use of the processors); `done` or `error`. Barriers between iterations take the management
network. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HELLO = struct.Struct("!cI")
"""First bytes of a connection: `d` for data or `b` for barriers, and the rank that it comes from."""
HEADER = struct.Struct("!IHHI")
"""Chain, phase, round, and bytes that follow."""
PIECE = 1 << 18
ZEROS = memoryview(bytes(PIECE))
SEND_BUFFER = 1 << 18
_BYTES_RETRANSMITTED, _INFO_BYTES = 208, 232
"""Place of `tcpi_bytes_retrans` in `struct tcp_info` (linux/tcp.h), since Linux 4.19."""

FAILED, NO_JOB = 1, 1


def say(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


class Outgoing:
    """Messages on their way to one host in one set, one after another."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.waiting: deque[tuple[bytes, int, Callable[[], None]]] = deque()
        self.header = b""
        self.left = 0

    def put(self, header: bytes, size: int, sent: Callable[[], None]) -> None:
        """Send a message after those that wait; `sent` is called when the kernel has its last byte."""
        if not self.waiting:
            self.header, self.left = header, size
        self.waiting.append((header, size, sent))

    def write(self) -> None:
        """Give the kernel as much as it takes."""
        while self.waiting:
            try:
                count = self.connection.sendmsg([self.header, ZEROS[: self.left]])
            except BlockingIOError:
                return
            of_header = min(count, len(self.header))
            self.header, self.left = self.header[of_header:], self.left - (count - of_header)
            if self.header or self.left:
                continue
            sent = self.waiting.popleft()[2]
            if self.waiting:
                self.header, self.left, _ = self.waiting[0]
            sent()

    def retransmitted(self) -> int:
        """Return the bytes that TCP has sent again so far."""
        info = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        place = _BYTES_RETRANSMITTED
        return int(struct.unpack_from("=Q", info, place)[0]) if len(info) >= place + 8 else 0


class Incoming:
    """Messages that come over one connection."""

    room = memoryview(bytearray(PIECE))

    def __init__(self, connection: socket.socket, arrived: Callable[[int, int, int], None]) -> None:
        self.connection = connection
        self.arrived = arrived
        self.header = b""
        self.left = -1

    def read(self) -> None:
        """Take what is there. Raises `ConnectionError` when the other side has ended."""
        try:
            count = self.connection.recv_into(self.room)
        except BlockingIOError:
            return
        if not count:
            raise ConnectionError("another host has ended its connection")
        place = 0
        while place < count or not self.left:
            if self.left < 0:
                taken = min(HEADER.size - len(self.header), count - place)
                self.header += bytes(self.room[place : place + taken])
                place += taken
                if len(self.header) < HEADER.size:
                    return
                self.left = HEADER.unpack(self.header)[3]
            taken = min(self.left, count - place)
            self.left -= taken
            place += taken
            if not self.left:
                self.arrived(*HEADER.unpack(self.header)[:3])
                self.header, self.left = b"", -1


class Host:
    """Connections of this host, and an event loop that serves them and its timers."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.server = socket.create_server(("", 0), backlog=1024)
        self.incoming: dict[int, Incoming] = {}
        self.outgoing: dict[tuple[int, int], Outgoing] = {}
        self.timers: list[tuple[float, int, Callable[[float], None]]] = []
        self.barriers: list[socket.socket] = []
        self.numbers = 0
        self.arrived: Counter[tuple[int, int, int]] = Counter()
        self.on_arrival: Callable[[int], None] = lambda _chain: None

    def at(self, moment_s: float, call: Callable[[float], None]) -> None:
        """Call with `moment_s` when it has come."""
        self.numbers += 1
        heapq.heappush(self.timers, (moment_s, self.numbers, call))

    def turn(self, until: float) -> None:
        """Serve what is ready, waiting for it. Raises `TimeoutError` from `until` on."""
        now = time.monotonic()
        if now >= until:
            raise TimeoutError("the job did not end in time")
        if self.timers and self.timers[0][0] <= now:
            moment_s, _, call = heapq.heappop(self.timers)
            call(moment_s)
            return
        writing = {one.connection.fileno(): one for one in self.outgoing.values() if one.waiting}
        wake = min(until, self.timers[0][0]) if self.timers else until
        readable, writable, _ = select.select(list(self.incoming), list(writing), [], max(0.0, wake - now))
        for number in writable:
            writing[number].write()
        for number in readable:
            self.incoming[number].read()

    def took(self, chain: int, phase: int, number: int) -> None:
        """Count a message that is there."""
        self.arrived[chain, phase, number] += 1
        self.on_arrival(chain)

    def connect(self, job: dict[str, Any]) -> None:
        """Open a connection to each host and set that this host sends to, and take those of the others."""
        pairs = sorted(
            {
                (to, number)
                for chain in job["chains"]
                for phase in chain["phases"]
                for to, number, _ in phase["send"]
            }
        )
        addresses, timeout_s = job["addresses"], job["timeout_s"]
        for target, number in pairs:
            source = (addresses[self.rank][number], 0)
            connection = socket.create_connection(
                (addresses[target][number], job["ports"][target]), timeout_s, source
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            connection.sendall(HELLO.pack(b"d", self.rank))
            connection.setblocking(False)
            self.outgoing[target, number] = Outgoing(connection)
        address, _, port = job["barrier"].rpartition(":")
        self.barrier_line = socket.create_connection((address, int(port)), timeout_s)
        self.barrier_line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.barrier_line.sendall(HELLO.pack(b"b", self.rank))
        self.server.settimeout(timeout_s)
        expected = job["incoming"] + (0 if self.rank else job["nodes"])
        for _ in range(expected):
            self._accept(timeout_s)

    def _accept(self, timeout_s: float) -> None:
        connection, _ = self.server.accept()
        connection.settimeout(timeout_s)
        kind, _ = HELLO.unpack(connection.recv(HELLO.size, socket.MSG_WAITALL))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == b"b":
            self.barriers.append(connection)
        else:
            connection.setblocking(False)
            self.incoming[connection.fileno()] = Incoming(connection, self.took)

    def barrier(self) -> None:
        """Wait until all hosts are here; no data is on its way then."""
        self.barrier_line.sendall(b".")
        if self.rank == 0:
            for line in self.barriers:
                _receive_mark(line)
            for line in self.barriers:
                line.sendall(b".")
        _receive_mark(self.barrier_line)


def _receive_mark(line: socket.socket) -> None:
    if not line.recv(1):
        raise ConnectionError("another host has ended before a barrier")


class Iteration:
    """One iteration of this host's part: tasks that wait for tasks, chains of rounds."""

    def __init__(self, host: Host, job: dict[str, Any]) -> None:
        self.host = host
        self.tasks = {task["id"]: task for task in job["tasks"]}
        self.waits = {number: len(task["after"]) for number, task in self.tasks.items()}
        self.next: dict[int, list[int]] = {}
        for number, task in self.tasks.items():
            for before in task["after"]:
                self.next.setdefault(before, []).append(number)
        self.chains = {chain["id"]: Chain(self, chain) for chain in job["chains"]}
        self.of_task: dict[int, list[Chain]] = {}
        for chain in self.chains.values():
            self.of_task.setdefault(chain.task, []).append(chain)
        self.unfinished = {number: len(of_task) for number, of_task in self.of_task.items()}
        self.left = len(self.tasks)
        self.ready: list[tuple[float, int]] = []
        self.is_busy = False

    def run(self, until: float) -> float:
        """Return the seconds that it took. Raises `TimeoutError`, `OSError`."""
        self.host.on_arrival = self._look
        begin_s = time.monotonic()
        for number, waits in list(self.waits.items()):
            if not waits:
                self._start(number, begin_s)
        while self.left:
            self.host.turn(until)
        return time.monotonic() - begin_s

    def _look(self, chain: int) -> None:
        self.chains[chain].go_on()

    def _start(self, number: int, now_s: float) -> None:
        task = self.tasks[number]
        if task["computes"]:
            heapq.heappush(self.ready, (now_s, number))
            if not self.is_busy:
                self._compute(now_s)
        elif task["seconds"]:
            self.host.at(now_s + task["seconds"], lambda _moment_s: self._open(number))
        else:
            self._open(number)

    def _compute(self, now_s: float) -> None:
        """Give the device to the first that waits for it, from `now_s` on: late timers do not add up."""
        if self.ready:
            ready_s, number = heapq.heappop(self.ready)
            self.is_busy = True
            end_s = max(now_s, ready_s) + self.tasks[number]["seconds"]
            self.host.at(end_s, lambda moment_s: self._computed(number, moment_s))

    def _computed(self, number: int, moment_s: float) -> None:
        self.is_busy = False
        self.ended(number, moment_s)
        if not self.is_busy:
            self._compute(moment_s)

    def _open(self, number: int) -> None:
        chains = self.of_task.get(number, ())
        for chain in chains:
            chain.begin()
        if not chains:
            self.ended(number, time.monotonic())

    def ended_chain(self, number: int) -> None:
        """Note that a chain of a task has ended."""
        self.unfinished[number] -= 1
        if not self.unfinished[number]:
            self.ended(number, time.monotonic())

    def ended(self, number: int, now_s: float) -> None:
        """Note that a task has ended, and start those that waited for it alone."""
        self.left -= 1
        for after in self.next.get(number, ()):
            self.waits[after] -= 1
            if not self.waits[after]:
                self._start(after, now_s)


class Chain:
    """Phases of rounds, one after another: what this host sends and receives in each."""

    def __init__(self, iteration: Iteration, description: dict[str, Any]) -> None:
        self.iteration = iteration
        self.task: int = description["task"]
        self.number: int = description["id"]
        self.phases: list[dict[str, Any]] = description["phases"]
        self.phase, self.round, self.outgoing = 0, -1, 0
        self.has_begun = self.is_open = self.is_moving = self.has_ended = False

    def begin(self) -> None:
        """Send the first round."""
        self.has_begun = self.is_open = self.is_moving = True
        self._next_round()
        self.is_moving = False
        self.go_on()

    def go_on(self) -> None:
        """Go on to the next rounds as far as what they wait for is there."""
        if self.is_moving:
            return
        self.is_moving = True
        while self.is_open and not self.outgoing and self._has_arrived():
            self.is_open = not self._next_round()
        self.is_moving = False
        if self.has_begun and not self.is_open and not self.has_ended:
            self.has_ended = True
            self.iteration.ended_chain(self.task)

    def _has_arrived(self) -> bool:
        phase = self.phases[self.phase]
        expected: int = phase["receive"]
        return self.iteration.host.arrived[self.number, phase["phase"], self.round] >= expected

    def _next_round(self) -> bool:
        """Begin the next round; return True where there is none."""
        self.round += 1
        if self.round == self.phases[self.phase]["rounds"]:
            self.phase, self.round = self.phase + 1, 0
        if self.phase == len(self.phases):
            return True
        sends, phase = self.phases[self.phase]["send"], self.phases[self.phase]["phase"]
        self.outgoing = len(sends)
        lines = [self.iteration.host.outgoing[target, number] for target, number, _ in sends]
        for line, (_, _, size) in zip(lines, sends, strict=True):
            line.put(HEADER.pack(self.number, phase, self.round, size), size, self._sent)
        for line in lines:
            line.write()
        return False

    def _sent(self) -> None:
        self.outgoing -= 1
        if not self.outgoing:
            self.go_on()


def counters(nics: list[str]) -> dict[str, list[int]]:
    """Return bytes and packets that each NIC has sent since it came up."""
    folder = "/sys/class/net/{}/statistics/tx_{}"
    return {
        nic: [
            int(Path(folder.format(nic, what)).read_text(encoding="ascii")) for what in ("bytes", "packets")
        ]
        for nic in nics
    }


def busy_ticks() -> tuple[int, int]:
    """Return ticks in which the processors of this machine were busy, and all ticks."""
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123 - started a dozen times at once: no more imports
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def run_job(host: Host, job: dict[str, Any]) -> dict[str, object]:
    """Return the row of this host."""
    until = time.monotonic() + job["timeout_s"]
    host.connect(job)
    host.barrier()
    for _ in range(job["warm_up"]):
        _one(host, job, until)
    before, busy_before = counters(job["nics"]), busy_ticks()
    again = {pair: line.retransmitted() for pair, line in host.outgoing.items()}
    own_s = time.process_time()
    host.barrier()
    times = [_one(host, job, until) for _ in range(job["iterations"])]
    busy_after, after = busy_ticks(), counters(job["nics"])
    busy, whole = (late - early for early, late in zip(busy_before, busy_after, strict=True))
    return {
        "times": times,
        "before": before,
        "after": after,
        "retransmitted": [
            [*pair, line.retransmitted() - again[pair]] for pair, line in host.outgoing.items()
        ],
        "busy": busy / max(1, whole),
        "processor_s": time.process_time() - own_s,
    }


def _one(host: Host, job: dict[str, Any], until: float) -> float:
    """Run an iteration between two barriers; return its seconds on this host."""
    took_s = Iteration(host, job).run(until)
    host.arrived.clear()
    host.barrier()
    return took_s


def main() -> int:
    """Run this host's part; gives the exit status."""
    host = Host(int(sys.argv[1]))
    say("ready", rank=host.rank, port=host.server.getsockname()[1])
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return NO_JOB
    try:
        row = run_job(host, json.loads(line))
    except (OSError, ValueError, KeyError) as error:
        say(
            "error",
            rank=host.rank,
            message=(str(error).strip() or type(error).__name__).splitlines()[0][:500],
        )
        return FAILED
    say("row", rank=host.rank, **row)
    say("done", rank=host.rank)
    with suppress(OSError):
        host.barrier()  # whoever ends first would end the connections of the others
    return 0


if __name__ == "__main__":
    sys.exit(main())
