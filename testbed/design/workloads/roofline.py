"""Computing times of a server by a roofline, and its memory.

A pass over an operator takes the arithmetic time or the memory time, whichever is longer, plus a fixed overhead
(Williams, Waterman and Patterson, 2009). A server counts as one device with the total arithmetic, bandwidth and memory
of its devices. The sum among its devices is added before each AllReduce that leaves the server.

| constant | value | source |
|---|---|---|
| A100 arithmetic | 156 TFLOP/s | data sheet, TF32 matrix units, dense: PyTorch's and cuDNN's choice for 4-byte floats |
| A100 BF16 | 312 TFLOP/s | data sheet, dense |
| memory | 40 GB at 1,555 GB/s; 80 GB at 2,039 GB/s | data sheet, SXM4 |
| attained arithmetic | 0.5 | large models reach 44 to 52 % of the peak (Narayanan et al., 2021, table 1) |
| attained bandwidth | 0.8 | assumed: copies reach about 0.9, gathers less |
| overhead | 10 us per pass | assumed: two or three kernels with a launch time of about 4 us each |
| NVLink | 300 GB/s each way | data sheet, third generation: 600 GB/s both ways together |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from testbed.design.workloads.model import CACHE_KIND, READ_BY_ROWS, Operator, Workload, is_whole
from testbed.design.workloads.profile import Profile
from testbed.design.workloads.sharding import Sharding, Strategy, count_row_samples
from testbed.errors import OutOfMemory, WorkloadError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: its peak rates, the attained fractions of these, and the overhead of a pass."""

    name: str
    peak_flops: float
    memory_bytes_per_s: float
    memory_bytes: int
    attained_flops: float = 0.5
    attained_bandwidth: float = 0.8
    overhead_s: float = 10e-6

    def __post_init__(self) -> None:
        rates = (self.peak_flops, self.memory_bytes_per_s, self.attained_flops, self.attained_bandwidth)
        if not all(isfinite(rate) and rate > 0 for rate in rates) or self.memory_bytes < 1:
            raise WorkloadError(
                f"device {self.name}: peaks, their attainable shares, and memory must be above 0"
            )
        if not isfinite(self.overhead_s) or self.overhead_s < 0:
            raise WorkloadError(f"device {self.name}: an overhead of {self.overhead_s} s: give 0 or more")

    def compute_pass_seconds(self, flops: float, moved_bytes: float, devices: int) -> float:
        """Return the seconds of one pass that is split over `devices` devices.

        156 GFLOP at half of 156 TFLOP/s take 2 ms, plus 10 us of overhead:

        >>> round(A100.compute_pass_seconds(156e9, 0, devices=1) * 1e3, 3)
        2.01
        """
        arithmetic_s = flops / (self.peak_flops * self.attained_flops)
        memory_s = moved_bytes / (self.memory_bytes_per_s * self.attained_bandwidth)
        return max(arithmetic_s, memory_s) / devices + self.overhead_s


A100 = Device("A100", 156e12, 1.555e12, 40_000_000_000)
A100_80GB = Device("A100-80GB", 156e12, 2.039e12, 80_000_000_000)
A100_80GB_BF16 = Device("A100-80GB-BF16", 312e12, 2.039e12, 80_000_000_000)
DEVICES = {device.name.lower(): device for device in (A100, A100_80GB, A100_80GB_BF16)}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster of `nodes` equal servers with `devices_per_server` devices, linked at `local_bytes_per_s` each way.

    If `domain` is above 1, nodes are GPUs, and this number of consecutive GPUs form a high-bandwidth domain.
    """

    nodes: int
    device: Device = A100
    devices_per_server: int = 4
    local_bytes_per_s: float = 300e9
    profile: Profile | None = None
    domain: int = 1

    def __post_init__(self) -> None:
        if not all(is_whole(count) and count >= 1 for count in (self.nodes, self.devices_per_server)):
            raise WorkloadError(
                f"a cluster of {self.nodes} servers with {self.devices_per_server} devices each: give "
                "integers of at least 1"
            )
        if not self.local_bytes_per_s > 0:
            raise WorkloadError(f"{self.local_bytes_per_s} bytes/s within a server: give a rate above 0")

    @property
    def gpus(self) -> int:
        """Number of devices of all servers."""
        return self.nodes * self.devices_per_server

    def split(self) -> Cluster:
        """Return the cluster with each device as its own node, and the devices of a server as a domain."""
        return replace(self, nodes=self.gpus, devices_per_server=1, domain=self.devices_per_server)

    @property
    def memory_bytes(self) -> int:
        """Memory of one server."""
        return self.device.memory_bytes * self.devices_per_server

    def compute_local_reduce_seconds(self, size_bytes: int) -> float:
        """Return the seconds to sum `size_bytes` among the k devices of a server, which send 2(k-1)/k of it locally."""
        device_count = self.devices_per_server
        return 2 * (device_count - 1) / device_count * size_bytes / self.local_bytes_per_s


@lru_cache(maxsize=1 << 16)
def compute_operator_seconds(
    operator: Operator, sample_count: float, shards: int, cluster: Cluster
) -> tuple[float, float]:
    """Return the forward and backward seconds of one server for its shard of `sample_count` samples.

    The backward pass moves twice the bytes, because of gradients, and includes recomputation, see `choice`. Without
    samples or work, both are 0.
    """
    if not sample_count:
        return 0.0, 0.0
    forward_s, backward_s = _compute_pass_seconds(operator, sample_count, shards, cluster)
    return forward_s, backward_s + (forward_s if operator.segment else 0.0)


def _compute_pass_seconds(
    operator: Operator, sample_count: float, shards: int, cluster: Cluster
) -> tuple[float, float]:
    """Return the forward and backward seconds without recomputation, from the profile or the roofline."""
    if cluster.profile is not None and operator.name in cluster.profile.operators:
        forward_s, backward_s = cluster.profile.operators[operator.name].compute_seconds(sample_count)
        return forward_s / shards, backward_s / shards
    if not (operator.forward_flops or operator.moved_bytes or operator.parameter_bytes):
        return 0.0, 0.0
    parameter_reads = operator.shared_bytes + (
        0 if operator.kind in READ_BY_ROWS else operator.parameter_bytes
    )
    moved_bytes = (parameter_reads + operator.moved_bytes * sample_count) / shards
    device, device_count = cluster.device, cluster.devices_per_server
    forward_s = device.compute_pass_seconds(
        operator.forward_flops * sample_count / shards, moved_bytes, device_count
    )
    backward_s = device.compute_pass_seconds(
        operator.backward_flops * sample_count / shards, 2 * moved_bytes, device_count
    )
    return forward_s, backward_s


def compute_memory_use(workload: Workload, strategy: Strategy, cluster: Cluster) -> Floats:
    """Return the bytes on each server, shape (nodes,): parameters, state, and outputs for the backward pass.

    Serving keeps no outputs except caches of keys and values.
    """
    return compute_peak_bytes(workload, _list_memory(workload, strategy, cluster), strategy.microbatches)


def compute_peak_bytes(workload: Workload, operator_memory: Floats, microbatches: int) -> Floats:
    """Return the peak bytes of each server, shape (nodes,).

    `operator_memory`, shape (operators, 2, nodes), holds `compute_operator_memory` of each operator. Recomputed outputs
    exist for one segment and one microbatch at a time.
    """
    permanent_bytes: Floats = operator_memory[:, 0].sum(axis=0)
    segments = np.array([operator.segment for operator in workload.operators])
    recomputed_bytes = [
        operator_memory[segments == segment, 1].sum(axis=0)
        for segment in set(segments[segments > 0].tolist())
    ]
    return (
        permanent_bytes + np.max(recomputed_bytes, axis=0) / microbatches
        if recomputed_bytes
        else permanent_bytes
    )


def _list_memory(workload: Workload, strategy: Strategy, cluster: Cluster) -> Floats:
    """Return `compute_operator_memory` of all operators, shape (operators, 2, nodes)."""
    operator_memory = [
        compute_operator_memory(operator, sharding, workload.batch, cluster.nodes, training=workload.training)
        for operator, sharding in zip(workload.operators, strategy.shardings, strict=True)
    ]
    return np.array(operator_memory).reshape(-1, 2, cluster.nodes)


@lru_cache(maxsize=1 << 14)
def compute_operator_memory(
    operator: Operator, sharding: Sharding, batch: int, nodes: int, *, training: bool = True
) -> Floats:
    """Return the bytes of one operator on each server, shape (2, nodes). Do not write to the array.

    The first row holds permanent bytes, the second row outputs that are recomputed.
    """
    servers, samples = np.array(sharding.servers), count_row_samples(sharding, batch)
    is_output_cut = sharding.way in ("place", "expert") or operator.kind == CACHE_KIND
    output_bytes = (
        operator.output_bytes * operator.routed * samples / (sharding.shards if is_output_cut else 1)
    )
    is_output_kept = training or operator.kind == CACHE_KIND
    undivided_bytes = operator.parameter_bytes + operator.state_bytes - operator.divided_bytes
    bytes_by_server = np.zeros((2, nodes))
    bytes_by_server[0, servers] = (
        undivided_bytes + operator.divided_bytes / sharding.replicas
    ) / sharding.shards
    bytes_by_server[1 if operator.segment else 0, servers] += is_output_kept * output_bytes
    bytes_by_server.flags.writeable = False
    return bytes_by_server


def check_memory(workload: Workload, strategy: Strategy, cluster: Cluster) -> None:
    """Raise `OutOfMemory`, with the fullest server and its largest operators, if a strategy does not fit."""
    operator_memory = _list_memory(workload, strategy, cluster)
    bytes_by_server, bytes_by_operator = (
        compute_peak_bytes(workload, operator_memory, strategy.microbatches),
        operator_memory[:, 0],
    )
    fullest_server = int(bytes_by_server.argmax())
    if bytes_by_server[fullest_server] <= cluster.memory_bytes:
        return
    sizes = [
        (float(memory[fullest_server]), operator.name)
        for operator, memory in zip(workload.operators, bytes_by_operator, strict=True)
    ]
    largest_text = ", ".join(f"{name} {size / 1e9:.1f} GB" for size, name in sorted(sizes, reverse=True)[:3])
    raise OutOfMemory(
        f"{workload.name}: server {fullest_server} would hold {bytes_by_server[fullest_server] / 1e9:.1f} GB, but has "
        f"{cluster.memory_bytes / 1e9:.1f} GB (largest: {largest_text}): spread operators over "
        "more servers"
    )
