"""Observations of a rank about itself while it runs: connections, processor, disk, and times when it stood still.

For `collective.py` and `iteration.py`, with which this file is copied to the hosts. Nothing here needs a clock that
hosts share: all values are durations, or sums since the start of this process. Standard library only.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TICK_S = 0.02
"""Time between two wakes. One that comes late, but waited for no processor, shows that the rank stood still."""
WINDOW_TICKS = 5
"""Ticks of a window in which the rate of a connection is measured: at 0.1 s, bursts of a shaped link matter little."""
LATE_S = 0.02
"""A later wake than this counts; timers and the interpreter's lock delay a wake by some milliseconds."""
BUSY_SHARE = 0.9
"""A window measures the rate of the network if data waited for acknowledgement, and the peer read, this part of it."""
DISK = Path("/var/tmp")  # noqa: S108 - the name holds our process number and host
PROBE = bytes(1 << 16)
"""A write to the disk with which a rank that writes nothing else measures it."""

_INFO_BYTES, _RTT_US, _ACKED, _BUSY_US = 216, 68, 120, 168
"""Length and offsets of `struct tcp_info` (linux/tcp.h, since Linux 4.19): round-trip time, bytes, and times."""


@dataclass(frozen=True)
class Flow:
    """Sums of a connection since its start: bytes acknowledged, sent and retransmitted; seconds with data in flight.

    `limited_s` is the part of `busy_s` in which the peer's buffer, or ours, was the limit; `rtt_s` is current.
    """

    acked: int = 0
    sent: int = 0
    retransmitted: int = 0
    busy_s: float = 0.0
    limited_s: float = 0.0
    rtt_s: float = 0.0

    def __sub__(self, earlier: Flow) -> Flow:
        return Flow(
            self.acked - earlier.acked,
            self.sent - earlier.sent,
            self.retransmitted - earlier.retransmitted,
            self.busy_s - earlier.busy_s,
            self.limited_s - earlier.limited_s,
            self.rtt_s,
        )


def read_flow(connection: socket.socket) -> Flow:
    """Return the sums of a TCP connection; zeros if it is closed, or the kernel is too old."""
    with suppress(OSError):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        if len(info) == _INFO_BYTES:
            busy_us, peer_us, _own_us, _, _, sent, again = struct.unpack_from("=QQQIIQQ", info, _BUSY_US)
            return Flow(
                acked=struct.unpack_from("=Q", info, _ACKED)[0],
                sent=sent,
                retransmitted=again,
                busy_s=busy_us / 1e6,
                limited_s=peer_us / 1e6,
                rtt_s=struct.unpack_from("=I", info, _RTT_US)[0] / 1e6,
            )
    return Flow()


def find_connections() -> list[tuple[str, socket.socket]]:
    """Return duplicates of the TCP connections of this process with the address of the peer; the caller closes them.

    Gloo and NCCL do not expose their sockets, so we search the descriptors of the process.
    """
    found = []
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(
            OSError
        ):  # the descriptor with which the folder was listed, not a socket, or not connected
            if not str(path.readlink()).startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(path.name)))
            try:
                peer = str(connection.getpeername()[0])
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            except (OSError, IndexError):
                connection.close()
                continue
            found.append((peer, connection))
    return found


def thread_waits(thread: str = "") -> dict[str, float]:
    """Return the seconds that each of our threads, or one of them, has waited for a processor, by its number.

    Empty if the kernel does not count them.
    """
    waits_s = {}
    for name in [thread] if thread else os.listdir("/proc/self/task"):  # noqa: PTH208 - read at every tick
        with (
            suppress(OSError, ValueError, IndexError),  # the thread has just ended
            open(f"/proc/self/task/{name}/schedstat", "rb") as file,  # noqa: PTH123
        ):
            waits_s[name] = int(file.read().split()[1]) / 1e9
    return waits_s


def others_processor_s() -> float:
    """Return the processor seconds of all other processes that this host shows, since their starts."""
    ticks, ours = 0, {os.getpid(), os.getppid()}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) not in ours:
            with suppress(OSError, ValueError, IndexError):  # the process has just ended
                words = (
                    (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
                ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def write_durably(path: Path, content: Iterable[bytes | memoryview]) -> float:
    """Write a file until the disk has it; return the seconds. Raises `OSError`."""
    begin = time.monotonic()
    with path.open("wb", buffering=0) as file:
        for piece in content:
            file.write(piece)
        os.fsync(file.fileno())
    return time.monotonic() - begin


def disk_folder() -> Path:
    """Return the folder that stands for the disk of this host: `/var/tmp` outlives a boot, a home may be in memory."""
    return DISK if os.access(DISK, os.W_OK) else Path(__file__).parent


def probe_disk() -> float:
    """Return the median seconds in which the disk takes `PROBE`, of three tries; 0 if it takes nothing."""
    path = disk_folder() / f"lightbed-probe-{os.getpid()}-{platform.node()}"
    try:
        return sorted(write_durably(path, [PROBE]) for _ in range(3))[1]
    except OSError:
        return 0.0
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@dataclass
class Link:
    """Rates of one connection, in bytes/s, in the windows in which the network was its limit."""

    rates: list[float] = field(default_factory=list)
    rtts_s: list[float] = field(default_factory=list)

    def add_window(self, flow: Flow, seconds: float) -> None:
        """Add what the connection did in a window, if the network was its limit."""
        if flow.busy_s - flow.limited_s >= BUSY_SHARE * seconds:
            self.rates.append(flow.acked / seconds)
            self.rtts_s.append(flow.rtt_s)


class Watch:
    """A thread that observes this process between `begin` and `end`, at some 30 microseconds a tick."""

    def __init__(self, connections: Sequence[tuple[Any, socket.socket]], nics: Sequence[str] = ()) -> None:
        self.connections = connections
        self.links = [Link() for _ in connections]
        self.nics = {nic: f"/sys/class/net/{nic}/statistics/tx_bytes" for nic in nics}
        self.nic_rates: dict[str, list[float]] = {nic: [] for nic in nics}
        self.stopped_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._first = self._flows()

    def begin(self) -> None:
        """Start observing."""
        self._thread.start()

    def end(self) -> list[tuple[Any, dict[str, float]]]:
        """Stop observing; return the figures of each connection that sent data, with the connection's name."""
        self._ending.set()
        self._thread.join()
        return [
            (name, _figures(now - first, link))
            for (name, _), first, now, link in zip(
                self.connections, self._first, self._flows(), self.links, strict=True
            )
            if now.sent > first.sent
        ]

    def nic_figures(self) -> dict[str, dict[str, float]]:
        """Return for each NIC the number of windows, and the 95th percentile of its rates, in bytes/s."""
        return {
            nic: {
                "windows": len(rates),
                "peak": sorted(rates)[int(0.95 * (len(rates) - 1))] if rates else 0.0,
            }
            for nic, rates in self.nic_rates.items()
        }

    def _sent(self) -> list[int]:
        sent = []
        for path in self.nics.values():
            with open(path, encoding="ascii") as file:  # noqa: PTH123 - ten times a second
                sent.append(int(file.read()))
        return sent

    def _flows(self) -> list[Flow]:
        return [read_flow(connection) for _, connection in self.connections]

    def _run(self) -> None:
        own = str(threading.get_native_id())
        before, sent, since, ticks = self._flows(), self._sent(), time.monotonic(), 0
        queued_s = thread_waits(own).get(own, 0.0)
        while True:
            begin = time.monotonic()
            if self._ending.wait(TICK_S):
                return
            now = time.monotonic()
            queued_before_s, queued_s = queued_s, thread_waits(own).get(own, 0.0)
            late_s = now - begin - TICK_S - (queued_s - queued_before_s)
            self.stopped_s += late_s if late_s > LATE_S else 0.0
            ticks += 1
            if ticks % WINDOW_TICKS == 0:
                flows = self._flows()
                for link, first, last in zip(self.links, before, flows, strict=True):
                    link.add_window(last - first, now - since)
                sent_now = self._sent()
                for rates, first_bytes, last_bytes in zip(
                    self.nic_rates.values(), sent, sent_now, strict=True
                ):
                    rates.append((last_bytes - first_bytes) / (now - since))
                before, sent, since = flows, sent_now, now


def _figures(flow: Flow, link: Link) -> dict[str, float]:
    rates, middle = sorted(link.rates), len(link.rates) // 2
    return {
        "bytes": flow.acked,
        "sent": flow.sent,
        "retransmitted": flow.retransmitted,
        "busy_s": round(flow.busy_s, 6),
        "limited_s": round(flow.limited_s, 6),
        "windows": len(rates),
        "rate": rates[middle] if rates else 0.0,
        "peak": rates[int(0.9 * (len(rates) - 1))] if rates else 0.0,
        "rtt_s": sorted(link.rtts_s)[middle] if rates else 0.0,
    }


@dataclass(frozen=True)
class Moment:
    """Sums of this process at a moment: processor seconds, waits of its threads, and time that it stood still."""

    processor_s: float
    waits_s: dict[str, float]
    stopped_s: float


def read_moment(watch: Watch) -> Moment:
    """Return the sums now."""
    return Moment(time.process_time(), thread_waits(), watch.stopped_s)


def between(before: Moment, after: Moment) -> dict[str, float]:
    """Return what an iteration between two moments used; `queued_s` is that of the thread that waited longest."""
    queued_s = max(
        (waited_s - before.waits_s.get(thread, 0.0) for thread, waited_s in after.waits_s.items()),
        default=0.0,
    )
    return {
        "processor_s": round(after.processor_s - before.processor_s, 6),
        "queued_s": round(queued_s, 6),
        "stopped_s": round(after.stopped_s - before.stopped_s, 6),
    }
