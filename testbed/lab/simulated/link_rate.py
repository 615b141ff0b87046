"""The rate that this machine can carry on all links of a simulated lab at once.

The processors of one machine move all packets of a simulated lab. If they are the limit, a measurement says nothing
about the links. Links of a lower rate that represent the same real links can be filled.
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
COPY_OVER_CARRIED = 7.5
# Above this share of the processors, links are no longer full, because the rings wait for each other.
USED_SHARE = 0.6
# The hosts get about this share even of a busy processor, because they use it in short slices.
MIN_FREE = 0.5
# Rates come in coarse steps, so that two starts on one machine give the same rate.
STEPS = (1.0, 0.75, 0.5, 0.375, 0.25)

_OBSERVATION_S = 0.5
_COPY_S = 0.03
_COPY_RUNS = 3
_PIECE_BYTES = 1 << 16
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


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
    """The rate of the links, the requested rate (`asked_mbps`), and the rate that the machine carries on every NIC."""

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


def fit_rate(asked_mbps: float, machine: Machine, nics: int) -> LinkRate:
    """Return the highest step of the requested rate that a machine carries on `nics` NICs at once, or the lowest step.

    >>> fit_rate(100, Machine(processors=2, free=2, copy_mbps=37000), nics=48).rate_mbps
    100
    >>> fit_rate(100, Machine(processors=2, free=1, copy_mbps=37000), nics=48).rate_mbps
    50.0
    """
    free = max(machine.free, MIN_FREE * machine.processors)
    carried_mbps = USED_SHARE * free * machine.copy_mbps / COPY_OVER_CARRIED / nics
    step = next((step for step in STEPS if step * asked_mbps <= carried_mbps), STEPS[-1])
    return LinkRate(asked_mbps if step == 1 else step * asked_mbps, asked_mbps, carried_mbps, machine)


def measure_machine() -> Machine:
    """Measure the capacity of this machine, in about 0.7 s."""
    own_processors = os.sched_getaffinity(0)
    ticks_before = read_ticks(Path("/proc/stat").read_text(encoding="ascii"))
    time.sleep(_OBSERVATION_S)
    ticks_after = read_ticks(Path("/proc/stat").read_text(encoding="ascii"))
    processors = min(float(len(own_processors)), read_quota())
    free = min(
        processors,
        sum(
            compute_idle_share(ticks_before[processor], ticks_after[processor])
            for processor in own_processors
            if processor in ticks_before
        ),
    )
    return Machine(processors, free, max(copy_mbps(time.process_time) for _ in range(_COPY_RUNS)))


def read_ticks(stat: str) -> Mapping[int, tuple[int, int]]:
    r"""Return idle ticks and all ticks of each processor, from the text of /proc/stat; iowait counts as idle.

    >>> read_ticks("cpu  9 9\ncpu1 10 0 20 65 5 0 0 0 0 0\nintr 5\n")
    {1: (70, 100)}
    """
    lines = (line.split() for line in stat.splitlines())
    ticks = {
        int(words[0][3:]): [int(word) for word in words[1:9]]
        for words in lines
        if words and words[0].startswith("cpu") and words[0][3:].isdigit()
    }
    return {processor: (values[3] + values[4], sum(values)) for processor, values in ticks.items()}


def compute_idle_share(ticks_before: tuple[int, int], ticks_after: tuple[int, int]) -> float:
    """Return the share of an interval in which a processor was idle, or 1 if no tick has passed.

    >>> compute_idle_share((10, 100), (40, 200))
    0.3
    """
    total_ticks = ticks_after[1] - ticks_before[1]
    return (ticks_after[0] - ticks_before[0]) / total_ticks if total_ticks > 0 else 1.0


def read_quota(path: Path = _CPU_QUOTA) -> float:
    """Return the number of processors that this process's control group may use, or infinity without a limit."""
    with suppress(OSError, ValueError):
        quota, period = path.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    return float("inf")


def copy_mbps(processor_time: Callable[[], float]) -> float:
    """Return the Mbit that one processor moves between two sockets per second of processor time."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as source,
        server.accept()[0] as target,
    ):
        chunk, buffer, total_bytes = bytes(_PIECE_BYTES), bytearray(_PIECE_BYTES), 0
        begin = processor_time()
        while (used_s := processor_time() - begin) < _COPY_S:
            in_flight = source.send(
                chunk
            )  # as much as the buffers hold, so that one thread can serve both ends
            total_bytes += in_flight
            while in_flight:
                in_flight -= target.recv_into(buffer, in_flight)
    return total_bytes * 8 / 1e6 / used_s
