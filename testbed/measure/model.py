"""What was measured: timings of collectives, per size and configuration. Frozen; the columns of `timings.parquet`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """One row: one message size of one configuration of one run.

    `time_us` is the mean over `iterations` of the slowest rank; `busbw_mbps` is
    size_bytes * 8 / time_us * 2(n-1)/n (nccl-tests' bus bandwidth, in Mbit/s), `limit_mbps` the link limit.
    `cpu_limited` says that the hosts' processor, not the link, bounded this size.
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


@dataclass(frozen=True, slots=True)
class NicBytes:
    """Bytes a NIC sent during the timed iterations of one row, and what the ring arithmetic expects."""

    topology: str
    configuration: str
    size_bytes: int
    host: str
    nic: str
    sent_bytes: int
    expected_bytes: float


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """One launch: rows in the order measured, the bytes that prove the rings, versions of what ran."""

    timings: tuple[Timing, ...]
    nic_bytes: tuple[NicBytes, ...]
    versions: dict[str, str]
