"""Measurements: timings of collectives, per size and configuration, and NIC byte counts. Frozen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """One row of `timings.parquet`: one message size of one configuration of one run.

    `time_us` is the median over `iterations` of the slowest rank, `low_us` and `high_us` are its quartiles (0 in a run
    of an earlier version); `busbw_mbps` is for AllReduce size_bytes * 8 / time_us * 2(n-1)/n (nccl-tests' bus
    bandwidth, in Mbit/s), `limit_mbps` the link limit. `cpu_limited` is True if the hosts' processors, not the links,
    limited this size; `processor_s` is the processor time of all ranks for one iteration.
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
        """The bus bandwidths at the upper and the lower quartile of the times; zeros without quartiles."""
        if not self.low_us:
            return (0.0, 0.0)
        return self.busbw_mbps * self.time_us / self.high_us, self.busbw_mbps * self.time_us / self.low_us


@dataclass(frozen=True, slots=True)
class NicBytes:
    """Bytes that a NIC sent during the timed iterations of one row, and the bytes expected from the ring arithmetic.

    `retransmitted_bytes` are those of TCP connections over its link.
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
class CollectiveResult:
    """Result of one launch: rows in the order measured, byte counts that prove the rings, versions of the software.

    `processor_s` is the processor time of all ranks, including their start and the checks of results.
    """

    timings: tuple[Timing, ...]
    nic_bytes: tuple[NicBytes, ...]
    versions: dict[str, str]
    processor_s: float = 0.0
