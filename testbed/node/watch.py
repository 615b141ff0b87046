"""Observations that a rank makes of its own process: connections, processor, disk, and times when it was stopped.

`collective.py` and `iteration.py` use this file, and all are copied to the hosts. Hosts need no common clock, because
all values are durations, or sums since the start of this process. Standard library only.
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
"""Time between two wake-ups. A late wake-up that did not wait for a processor shows that the rank was stopped."""
WINDOW_TICKS = 5
"""Ticks per window of a connection's rate: in 0.1 s, bursts of a shaped link matter little."""
MIN_DELAY_S = 0.02
"""Shortest delay that counts. Timers and the interpreter's lock delay a wake-up by some milliseconds."""
BUSY_SHARE = 0.9
"""A window measures the network if data was in flight, and the peer was reading, for this share of the window."""
DISK_FOLDER = Path("/var/tmp")  # noqa: S108 - file names contain process id and host
DISK_PROBE = bytes(1 << 16)
"""Content of the write that measures the disk for a rank that writes nothing else."""

_INFO_BYTES, _RTT_OFFSET, _ACKED_OFFSET, _BUSY_OFFSET = 216, 68, 120, 168
"""Length and offsets of `struct tcp_info` (linux/tcp.h, since Linux 4.19): round-trip time, bytes, and times."""


@dataclass(frozen=True)
class FlowTotals:
    """Sums of a connection since its start: bytes acknowledged, sent and retransmitted; seconds with data in flight.

    `limited_s` is the part of `busy_s` in which the peer's receive buffer was the limit. `rtt_s` is current.
    """

    acked_bytes: int = 0
    sent_bytes: int = 0
    retransmitted_bytes: int = 0
    busy_s: float = 0.0
    limited_s: float = 0.0
    rtt_s: float = 0.0

    def __sub__(self, earlier: FlowTotals) -> FlowTotals:
        return FlowTotals(
            self.acked_bytes - earlier.acked_bytes,
            self.sent_bytes - earlier.sent_bytes,
            self.retransmitted_bytes - earlier.retransmitted_bytes,
            self.busy_s - earlier.busy_s,
            self.limited_s - earlier.limited_s,
            self.rtt_s,
        )


def read_flow(connection: socket.socket) -> FlowTotals:
    """Return the sums of a TCP connection, or zeros if it is closed or the kernel is too old."""
    with suppress(OSError):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        if len(info) == _INFO_BYTES:
            busy_us, peer_us, _own_us, _, _, sent_bytes, retransmitted_bytes = struct.unpack_from(
                "=QQQIIQQ", info, _BUSY_OFFSET
            )
            return FlowTotals(
                acked_bytes=struct.unpack_from("=Q", info, _ACKED_OFFSET)[0],
                sent_bytes=sent_bytes,
                retransmitted_bytes=retransmitted_bytes,
                busy_s=busy_us / 1e6,
                limited_s=peer_us / 1e6,
                rtt_s=struct.unpack_from("=I", info, _RTT_OFFSET)[0] / 1e6,
            )
    return FlowTotals()


def find_connections() -> list[tuple[str, socket.socket]]:
    """Return (peer address, duplicate socket) of each TCP connection of this process. The caller closes the sockets.

    Gloo and NCCL do not expose their sockets, so this searches the descriptors of the process.
    """
    peer_connections = []
    for path in list(Path("/proc/self/fd").iterdir()):
        # An error means a closed descriptor (the listing's own), no socket, or a socket without a peer.
        with suppress(OSError):
            if not str(path.readlink()).startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(path.name)))
            try:
                peer = str(connection.getpeername()[0])
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            except (OSError, IndexError):
                connection.close()
                continue
            peer_connections.append((peer, connection))
    return peer_connections


def read_thread_waits(thread: str = "") -> dict[str, float]:
    """Return the seconds that each thread of this process, or only `thread`, has waited for a processor, by thread id.

    The result is empty if the kernel does not count them.
    """
    wait_by_thread_s = {}
    for name in [thread] if thread else os.listdir("/proc/self/task"):  # noqa: PTH208 - read at every tick
        with (
            suppress(OSError, ValueError, IndexError),  # the thread has just ended
            open(f"/proc/self/task/{name}/schedstat", "rb") as file,  # noqa: PTH123
        ):
            wait_by_thread_s[name] = int(file.read().split()[1]) / 1e9
    return wait_by_thread_s


def read_others_processor_s() -> float:
    """Return the processor seconds of all other processes that this host shows, since their starts."""
    other_ticks, own_pids = 0, {os.getpid(), os.getppid()}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) not in own_pids:
            with suppress(OSError, ValueError, IndexError):  # the process has just ended
                fields = (
                    (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
                other_ticks += int(fields[11]) + int(fields[12])
    return other_ticks / os.sysconf("SC_CLK_TCK")


def write_durably(path: Path, content: Iterable[bytes | memoryview]) -> float:
    """Write a file and wait until the disk has it; return the seconds. Raises `OSError`."""
    start_s = time.monotonic()
    with path.open("wb", buffering=0) as file:
        for piece in content:
            file.write(piece)
        os.fsync(file.fileno())
    return time.monotonic() - start_s


def find_disk_folder() -> Path:
    """Return a folder on the disk of this host: `/var/tmp` or, if that is not writable, the folder of this file."""
    return DISK_FOLDER if os.access(DISK_FOLDER, os.W_OK) else Path(__file__).parent


def probe_disk() -> float:
    """Return the median time (s) of three writes of `DISK_PROBE` to the disk, or 0 if a write fails."""
    path = find_disk_folder() / f"lightbed-probe-{os.getpid()}-{platform.node()}"
    try:
        return sorted(write_durably(path, [DISK_PROBE]) for _ in range(3))[1]
    except OSError:
        return 0.0
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@dataclass
class ConnectionRates:
    """Rates of one connection, in bytes/s, in the windows in which the network was its limit."""

    rates: list[float] = field(default_factory=list)
    rtts_s: list[float] = field(default_factory=list)

    def add_window(self, flow: FlowTotals, seconds: float) -> None:
        """Add the connection's rate in a window, if the network was its limit."""
        if flow.busy_s - flow.limited_s >= BUSY_SHARE * seconds:
            self.rates.append(flow.acked_bytes / seconds)
            self.rtts_s.append(flow.rtt_s)


class RankWatch:
    """A thread that observes this process between `begin` and `end`. A tick takes some 30 microseconds."""

    def __init__(self, connections: Sequence[tuple[Any, socket.socket]], nics: Sequence[str] = ()) -> None:
        self.connections = connections
        self.connection_rates = [ConnectionRates() for _ in connections]
        self.nics = {nic: f"/sys/class/net/{nic}/statistics/tx_bytes" for nic in nics}
        self.nic_rates: dict[str, list[float]] = {nic: [] for nic in nics}
        self.stopped_s = 0.0
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._first_flows = self._read_flows()

    def begin(self) -> None:
        """Start observing."""
        self._thread.start()

    def end(self) -> list[tuple[Any, dict[str, float]]]:
        """Stop observing; return the figures of each connection that sent data, with the connection's name."""
        self._stop_event.set()
        self._thread.join()
        return [
            (name, _summarise(last_flow - first_flow, connection_rates))
            for (name, _), first_flow, last_flow, connection_rates in zip(
                self.connections, self._first_flows, self._read_flows(), self.connection_rates, strict=True
            )
            if last_flow.sent_bytes > first_flow.sent_bytes
        ]

    def describe_nics(self) -> dict[str, dict[str, float]]:
        """Return for each NIC the number of windows, and the 95th percentile of its rates, in bytes/s."""
        return {
            nic: {
                "windows": len(rates),
                "peak": sorted(rates)[int(0.95 * (len(rates) - 1))] if rates else 0.0,
            }
            for nic, rates in self.nic_rates.items()
        }

    def _read_sent_bytes(self) -> list[int]:
        sent_bytes = []
        for path in self.nics.values():
            with open(path, encoding="ascii") as file:  # noqa: PTH123 - ten times a second
                sent_bytes.append(int(file.read()))
        return sent_bytes

    def _read_flows(self) -> list[FlowTotals]:
        return [read_flow(connection) for _, connection in self.connections]

    def _run(self) -> None:
        thread_id = str(threading.get_native_id())
        flows_before, bytes_before, window_start_s, tick_count = (
            self._read_flows(),
            self._read_sent_bytes(),
            time.monotonic(),
            0,
        )
        queued_s = read_thread_waits(thread_id).get(thread_id, 0.0)
        while True:
            tick_start_s = time.monotonic()
            if self._stop_event.wait(TICK_S):
                return
            now_s = time.monotonic()
            queued_before_s, queued_s = queued_s, read_thread_waits(thread_id).get(thread_id, 0.0)
            late_s = now_s - tick_start_s - TICK_S - (queued_s - queued_before_s)
            self.stopped_s += late_s if late_s > MIN_DELAY_S else 0.0
            tick_count += 1
            if tick_count % WINDOW_TICKS == 0:
                flows = self._read_flows()
                for connection_rates, first_flow, last_flow in zip(
                    self.connection_rates, flows_before, flows, strict=True
                ):
                    connection_rates.add_window(last_flow - first_flow, now_s - window_start_s)
                bytes_now = self._read_sent_bytes()
                for rates, first_bytes, last_bytes in zip(
                    self.nic_rates.values(), bytes_before, bytes_now, strict=True
                ):
                    rates.append((last_bytes - first_bytes) / (now_s - window_start_s))
                flows_before, bytes_before, window_start_s = flows, bytes_now, now_s


def _summarise(flow: FlowTotals, connection_rates: ConnectionRates) -> dict[str, float]:
    rates, middle_index = sorted(connection_rates.rates), len(connection_rates.rates) // 2
    return {
        "bytes": flow.acked_bytes,
        "sent": flow.sent_bytes,
        "retransmitted": flow.retransmitted_bytes,
        "busy_s": round(flow.busy_s, 6),
        "limited_s": round(flow.limited_s, 6),
        "windows": len(rates),
        "rate": rates[middle_index] if rates else 0.0,
        "peak": rates[int(0.9 * (len(rates) - 1))] if rates else 0.0,
        "rtt_s": sorted(connection_rates.rtts_s)[middle_index] if rates else 0.0,
    }


@dataclass(frozen=True)
class StallMoment:
    """Sums of this process at a moment: processor seconds, waits of its threads, and time that it was stopped."""

    processor_s: float
    waits_s: dict[str, float]
    stopped_s: float


def read_moment(watch: RankWatch) -> StallMoment:
    """Return the sums now."""
    return StallMoment(time.process_time(), read_thread_waits(), watch.stopped_s)


def subtract_moments(before: StallMoment, after: StallMoment) -> dict[str, float]:
    """Return what the process used between two moments. `queued_s` is the wait of the thread that waited longest."""
    queued_s = max(
        (waited_s - before.waits_s.get(thread, 0.0) for thread, waited_s in after.waits_s.items()),
        default=0.0,
    )
    return {
        "processor_s": round(after.processor_s - before.processor_s, 6),
        "queued_s": round(queued_s, 6),
        "stopped_s": round(after.stopped_s - before.stopped_s, 6),
    }
