"""The rate that this machine can carry on all links of a simulated lab at once.

The processors of one machine move all packets of a simulated lab. If they are the limit, a measurement says nothing
about the links. Links with a lower rate, which represent the same real links, can be filled.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Throughput of a processor between two sockets, divided by the AllReduce traffic that it carries on four rings
# (`benchmarks/collectives.py`: copy_over_carried).
COPY_TO_CARRIED_RATIO = 7.5
# Above this share of the processors, links are no longer full, because the rings wait for each other.
MAX_USED_SHARE = 0.6
# Even on a busy processor, the hosts get about this share, because they use the processor in short slices.
MIN_FREE_SHARE = 0.5
# Rates come in coarse steps, so that two starts on one machine give the same rate.
RATE_STEPS = (1.0, 0.75, 0.5, 0.375, 0.25)

_OBSERVATION_TIME_S = 0.5
_COPY_TIME_S = 0.03
_COPY_RUN_COUNT = 3
_CHUNK_BYTES = 1 << 16
_CPU_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class Machine:
    """Capacity of a machine to move packets.

    `processors` is the number of processors that this process may use, and `free` the number of idle ones. `copy_mbps`
    is the throughput of one processor between two sockets.
    """

    processors: float
    free: float
    copy_mbps: float


@dataclass(frozen=True, slots=True)
class LinkRate:
    """The chosen rate of links, the requested rate (`asked_mbps`), and the rate that the machine carries per NIC."""

    rate_mbps: float
    asked_mbps: float
    carried_mbps: float
    machine: Machine

    @property
    def is_lowered(self) -> bool:
        """True if the links run slower than requested."""
        return self.rate_mbps < self.asked_mbps

    def describe(self) -> str:
        """Return the choice as one sentence."""
        machine = self.machine
        reason = (
            f"{machine.free:.1f} of {machine.processors:g} processors free, "
            f"which carry {self.carried_mbps:.0f} Mbit/s on every NIC at once"
        )
        if self.is_lowered:
            return f"links at {self.rate_mbps:g} Mbit/s instead of {self.asked_mbps:g}: {reason}"
        return f"links at {self.rate_mbps:g} Mbit/s: {reason}"


def fit_rate(asked_mbps: float, machine: Machine, nic_count: int) -> LinkRate:
    """Return the highest step of a rate that a machine carries on `nic_count` NICs at once, or the lowest step.

    >>> fit_rate(100, Machine(processors=2, free=2, copy_mbps=37000), nic_count=48).rate_mbps
    100
    >>> fit_rate(100, Machine(processors=2, free=1, copy_mbps=37000), nic_count=48).rate_mbps
    50.0
    """
    free_count = max(machine.free, MIN_FREE_SHARE * machine.processors)
    carried_mbps = MAX_USED_SHARE * free_count * machine.copy_mbps / COPY_TO_CARRIED_RATIO / nic_count
    rate_step = next(
        (rate_step for rate_step in RATE_STEPS if rate_step * asked_mbps <= carried_mbps), RATE_STEPS[-1]
    )
    return LinkRate(
        asked_mbps if rate_step == 1 else rate_step * asked_mbps, asked_mbps, carried_mbps, machine
    )


def measure_machine() -> Machine:
    """Measure the capacity of this machine, in about 0.7 s."""
    own_processors = os.sched_getaffinity(0)
    ticks_before = read_ticks(Path("/proc/stat").read_text(encoding="ascii"))
    time.sleep(_OBSERVATION_TIME_S)
    ticks_after = read_ticks(Path("/proc/stat").read_text(encoding="ascii"))
    processor_count = min(float(len(own_processors)), read_quota())
    free_count = min(
        processor_count,
        sum(
            compute_idle_share(ticks_before[processor], ticks_after[processor])
            for processor in own_processors
            if processor in ticks_before
        ),
    )
    return Machine(
        processor_count, free_count, max(measure_copy_mbps(time.process_time) for _ in range(_COPY_RUN_COUNT))
    )


def read_ticks(stat: str) -> Mapping[int, tuple[int, int]]:
    r"""Return idle ticks and all ticks of each processor, from the text of /proc/stat; iowait counts as idle.

    >>> read_ticks("cpu  9 9\ncpu1 10 0 20 65 5 0 0 0 0 0\nintr 5\n")
    {1: (70, 100)}
    """
    lines = (line.split() for line in stat.splitlines())
    ticks_by_processor = {
        int(words[0][3:]): [int(word) for word in words[1:9]]
        for words in lines
        if words and words[0].startswith("cpu") and words[0][3:].isdigit()
    }
    return {processor: (ticks[3] + ticks[4], sum(ticks)) for processor, ticks in ticks_by_processor.items()}


def compute_idle_share(ticks_before: tuple[int, int], ticks_after: tuple[int, int]) -> float:
    """Return the share of an interval in which a processor was idle, or 1 if no tick has passed.

    >>> compute_idle_share((10, 100), (40, 200))
    0.3
    """
    total_ticks = ticks_after[1] - ticks_before[1]
    return (ticks_after[0] - ticks_before[0]) / total_ticks if total_ticks > 0 else 1.0


def read_quota(path: Path = _CPU_QUOTA_FILE) -> float:
    """Return the number of processors that this process's control group may use, or infinity without a limit."""
    with suppress(OSError, ValueError):
        quota, period = path.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    return float("inf")


def measure_copy_mbps(read_processor_time_s: Callable[[], float]) -> float:
    """Return the Mbit that one processor moves between two sockets per second of processor time."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as receiver,
    ):
        chunk, buffer, total_bytes = bytes(_CHUNK_BYTES), bytearray(_CHUNK_BYTES), 0
        begin_s = read_processor_time_s()
        while (used_s := read_processor_time_s() - begin_s) < _COPY_TIME_S:
            # As much as the buffers hold, so that one thread can serve both ends.
            in_flight_bytes = sender.send(chunk)
            total_bytes += in_flight_bytes
            while in_flight_bytes:
                in_flight_bytes -= receiver.recv_into(buffer, in_flight_bytes)
    return total_bytes * 8 / 1e6 / used_s
