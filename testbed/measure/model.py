"""Records of measurements: timings of collectives, byte counts of NICs, and observations of ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """One row of `timings.parquet`: one message size of one configuration of one run.

    The time of an iteration is the time of its slowest rank. `time_us` is the median over `iterations`; `low_us` and
    `high_us` are the quartiles (0 in runs of an earlier version). `busbw_mbps` is nccl-tests' bus bandwidth in Mbit/s:
    for AllReduce size_bytes * 8 / time_us * 2(n-1)/n. `limit_mbps` is its limit by the links. `cpu_limited` is True if
    the hosts' processors, not the links, limited this size. `processor_s` is the processor time of all ranks for one
    iteration.
    """

    run_id: str
    topology: str
    configuration: str
    collective: str
    ranks: int
    rings: int
    size_bytes: int
    iterations: int
    time_us: float
    min_us: float
    max_us: float
    algbw_mbps: float
    busbw_mbps: float
    limit_mbps: float
    wrong: int
    cpu_limited: bool
    simulated: bool
    hosts: str
    low_us: float = 0.0
    high_us: float = 0.0
    processor_s: float = 0.0

    @property
    def busbw_spread_mbps(self) -> tuple[float, float]:
        """Bus bandwidths at the upper and the lower quartile of the times, or zeros without quartiles."""
        if not self.low_us:
            return (0.0, 0.0)
        return self.busbw_mbps * self.time_us / self.high_us, self.busbw_mbps * self.time_us / self.low_us


@dataclass(frozen=True, slots=True)
class NicBytes:
    """Bytes that a NIC sent in the timed iterations of one row, and the bytes that the plan puts on its link.

    `retransmitted_bytes` were sent again by TCP connections over its link.
    """

    topology: str
    configuration: str
    size_bytes: int
    host: str
    nic: str
    sent_bytes: int
    expected_bytes: float
    retransmitted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RankFigures:
    """Measurements of a rank about itself in one iteration of one row, in seconds.

    | field | seconds |
    |---|---|
    | `seconds` | since the end of the rank's previous iteration |
    | `waiting_s` | wait for other ranks, for the network or for the rank's device |
    | `processor_s` | processor time of all threads of the rank |
    | `queued_s` | wait for a processor, of the thread that waited longest |
    | `stopped_s` | the rank stood still |
    | `computing_s`, `planned_s` | computing of a job, measured and planned |
    | `disk_s` | writes to the disk, of which `writes_s` are part of the iteration |
    | `others_s` | processor time of other processes on the host |
    """

    topology: str
    configuration: str
    size_bytes: int
    iteration: int
    rank: int
    host: str
    seconds: float
    waiting_s: float
    processor_s: float
    queued_s: float
    stopped_s: float
    computing_s: float = 0.0
    planned_s: float = 0.0
    writes_s: float = 0.0
    disk_s: float = 0.0
    others_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """Measurements of a sender about its connections to one rank, on one set of routes, in the iterations of a row.

    Data waited for acknowledgement during `busy_s` seconds. The receiver did not read during `limited_s` of these. The
    sender counted `windows` of 0.1 s in which only the network was the limit. Over these windows, `rate_mbps` is the
    median rate, `peak_mbps` the 90th percentile, and `rtt_s` the median round-trip time. `path` lists the links from
    source to target, separated by commas. Each link can carry `limit_mbps`.
    """

    topology: str
    configuration: str
    size_bytes: int
    source: int
    target: int
    route_set: int
    path: str
    acked_bytes: int
    sent_bytes: int
    retransmitted_bytes: int
    busy_s: float
    limited_s: float
    windows: int
    rate_mbps: float
    peak_mbps: float
    rtt_s: float
    limit_mbps: float


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Measurements of a sender about a link in the iterations of a row, in `windows` of 0.1 s.

    `peak_mbps` is the 95th percentile of the rates in these windows. The link can carry `limit_mbps`.
    """

    topology: str
    configuration: str
    size_bytes: int
    rank: int
    link: str
    windows: int
    peak_mbps: float
    limit_mbps: float


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """Result of one launch: timings in the order measured, byte counts that prove the routes, software versions.

    `processor_s` is the processor time of all ranks, including their start and the checks of results.
    """

    timings: tuple[Timing, ...]
    nic_bytes: tuple[NicBytes, ...]
    versions: dict[str, str]
    processor_s: float = 0.0
    ranks: tuple[RankFigures, ...] = ()
    flows: tuple[FlowFigures, ...] = ()
    links: tuple[LinkFigures, ...] = ()
