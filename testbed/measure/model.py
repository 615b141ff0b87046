"""Measurements: timings of collectives, per size and configuration. Frozen; the columns of `timings.parquet`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """One row: one message size of one configuration of one run.

    `time_us` is the median over `iterations` of the slowest rank, `low_us` and `high_us` are its quartiles (0 where
    a run of an earlier version has none); `busbw_mbps` is size_bytes * 8 / time_us * 2(n-1)/n (nccl-tests' bus
    bandwidth, in Mbit/s), `limit_mbps` the link limit. `cpu_limited` says that the hosts' processors, not the link,
    bounded this size; `processor_s` is their time for one iteration, all ranks together.
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
        """The bus bandwidths at the upper and the lower quartile of the times; 0 where there are none."""
        if not self.low_us:
            return (0.0, 0.0)
        return self.busbw_mbps * self.time_us / self.high_us, self.busbw_mbps * self.time_us / self.low_us


@dataclass(frozen=True, slots=True)
class NicBytes:
    """Bytes a NIC sent during the timed iterations of one row, and what the ring arithmetic expects.

    `retransmitted_bytes` are those that TCP sent again on connections over its link.
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
    """One launch: rows in the order measured, the bytes that prove the rings, versions of what ran.

    `processor_s` is what all ranks have used, their start and the checks of all results included.
    """

    timings: tuple[Timing, ...]
    nic_bytes: tuple[NicBytes, ...]
    versions: dict[str, str]
    processor_s: float = 0.0
