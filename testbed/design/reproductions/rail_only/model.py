"""Formulas of rail-only networks (Wang et al., 2023): collectives, parts of Clos networks, iteration time, traffic.

A group of GPUs spreads over y domains of high bandwidth and has x GPUs in each. Rates are per GPU and one way.
The formulas of collectives and the counts of table II come from the authors' slides, parameters and operations of a
GPT from Narayanan et al. (2021). The rest is derived here.
"""

from __future__ import annotations

from dataclasses import dataclass

GIGABITS_PER_BYTE = 8e-9
"""Gigabits per byte: bytes * GIGABITS_PER_BYTE / (rate in Gbit/s) is in seconds."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Domains of `domain` GPUs. Each GPU has the rate `domain_gbps` in its domain and `rail_gbps` on its rail."""

    name: str
    domain: int
    domain_gbps: float
    rail_gbps: float
    peak_tflops: float = 312.0


DGX_A100 = Platform("DGX A100", 8, 2400.0, 200.0)
DGX_H100 = Platform("DGX H100", 8, 3600.0, 400.0, 989.0)


def compute_all_gather_s(size_bytes: float, x: int, y: int, platform: Platform) -> float:
    """Return the time in which every member of a group receives the whole buffer of `size_bytes`.

    First each rail gathers, and every domain then holds each part once. Then each domain gathers.

    64 Gbit: 1/16 at 200 Gbit/s, then 7/8 at 2,400 Gbit/s.

    >>> round(compute_all_gather_s(8e9, 8, 2, DGX_A100), 4)
    0.0433
    """
    rail_part = (y - 1) / (x * y) / platform.rail_gbps
    return (rail_part + (x - 1) / x / platform.domain_gbps) * size_bytes * GIGABITS_PER_BYTE


def compute_all_reduce_s(size_bytes: float, x: int, y: int, platform: Platform) -> float:
    """Return the time of an AllReduce: a ReduceScatter and an AllGather, which take equally long."""
    return 2 * compute_all_gather_s(size_bytes, x, y, platform)


def compute_all_to_all_s(pair_bytes: float, x: int, y: int, platform: Platform, *, has_spine: bool) -> float:
    """Return the time in which each GPU sends `pair_bytes` to every other GPU.

    Without a spine, each GPU first fetches all messages for its domain over its rail, then the domain spreads them.
    The published model adds the times of both steps.
    """
    over_rail_s = x * (y - 1) * pair_bytes * GIGABITS_PER_BYTE / platform.rail_gbps
    inside_s = (x - 1) * pair_bytes * GIGABITS_PER_BYTE / platform.domain_gbps
    return max(over_rail_s, inside_s) if has_spine else over_rail_s + y * inside_s


def compute_slowdown(x: int, y: int, platform: Platform) -> float:
    """Return the extra time of an all-to-all without a spine, as a fraction of its time with a spine.

    For large groups this fraction approaches the rate of a rail divided by the rate in a domain.
    """
    with_spine = compute_all_to_all_s(1.0, x, y, platform, has_spine=True)
    return compute_all_to_all_s(1.0, x, y, platform, has_spine=False) / with_spine - 1


def count_tiers(endpoints: int, radix: int) -> int:
    """Return the number of tiers of a Clos network with full bisection.

    >>> count_tiers(32768, 64), count_tiers(128, 128)
    (3, 1)
    """
    tiers = 1
    while 2 * (radix // 2) ** tiers < endpoints:
        tiers += 1
    return tiers


def count_parts(gpu_count: int, endpoints: int, radix: int) -> tuple[int, int]:
    """Return the numbers of switches and transceivers if Clos networks of `endpoints` GPUs each connect all GPUs.

    A network of L tiers has (2L - 1) / radix switches per GPU, and L links per GPU with two transceivers each.
    """
    tiers = count_tiers(endpoints, radix)
    return (2 * tiers - 1) * gpu_count // radix, 2 * tiers * gpu_count


def compute_saving(gpu_count: int, domain_size: int, radix: int, port_cost_in_transceivers: float) -> float:
    """Return the fraction of price or power that a rail-only network saves.

    A switch port costs (or draws) `port_cost_in_transceivers` times as much as a transceiver.
    """

    def compute_total_cost(endpoints: int) -> float:
        switches, transceivers = count_parts(gpu_count, endpoints, radix)
        return switches * radix * port_cost_in_transceivers + transceivers

    return 1 - compute_total_cost(gpu_count // domain_size) / compute_total_cost(gpu_count)


@dataclass(frozen=True, slots=True)
class Megatron:
    """A GPT, its parallelism and its batch. `tflops` is the published rate per GPU, or None."""

    name: str
    layers: int
    hidden: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    tflops: float | None = None
    sequence: int = 2048
    vocabulary: int = 51200
    microbatch: int = 1

    @property
    def replica_count(self) -> int:
        """Number of copies of the model."""
        return self.gpus // (self.tensor * self.pipeline)

    @property
    def parameters(self) -> float:
        """Number of parameters (Narayanan et al., 2021, section 5.1).

        >>> round(GPT_1T.parameters / 1e9)
        1008
        """
        n, h = self.layers, self.hidden
        return 12 * n * h**2 * (1 + 13 / (12 * h) + (self.vocabulary + self.sequence) / (12 * n * h))

    @property
    def operations(self) -> float:
        """Floating-point operations of an iteration, with recomputation (Narayanan et al., 2021, appendix)."""
        n, h, s = self.layers, self.hidden, self.sequence
        return 96 * self.batch * s * n * h**2 * (1 + s / (6 * h) + self.vocabulary / (16 * n * h))

    @property
    def activation_bytes(self) -> float:
        """Bytes of a layer's output for one microbatch, in half precision."""
        return 2.0 * self.microbatch * self.sequence * self.hidden

    @property
    def microbatches(self) -> int:
        """Microbatches of one copy in an iteration."""
        return self.batch // (self.replica_count * self.microbatch)

    @property
    def published_s(self) -> float | None:
        """Time of an iteration at the published rate, or None without a published rate."""
        return None if self.tflops is None else self.operations / (self.gpus * self.tflops * 1e12)


GPT_146B = Megatron("GPT 145.6B", 80, 12288, 8, 8, 1536, 2304, 148)
GPT_310B = Megatron("GPT 310.1B", 96, 16384, 8, 16, 1920, 2160, 155)
GPT_530B = Megatron("GPT 529.6B", 105, 20480, 8, 35, 2520, 2520, 163)
GPT_1T = Megatron("GPT 1T", 128, 25600, 8, 64, 3072, 3072, 163)
JOBS = (GPT_146B, GPT_310B, GPT_530B, GPT_1T)
"""Rows of table 1 of Narayanan et al. (2021), quoted from memory; the rate of the last is from the abstract. The slides
call the third model 539.6B, but its layers and width give 529.6B parameters."""


@dataclass(frozen=True, slots=True)
class Accounting:
    """Free parameters of the iteration model.

    `efficiency` is the attained fraction of the peak. `allreduces_per_layer` counts the AllReduces per layer and
    microbatch: 4, or 6 with recomputation. `chunks_per_stage` counts the chunks per stage of an interleaved schedule;
    more chunks shorten the pipeline's bubble.
    """

    efficiency: float
    allreduces_per_layer: int = 6
    chunks_per_stage: int = 2


def compute_iteration_s(job: Megatron, platform: Platform, assumptions: Accounting) -> float:
    """Return the time of an iteration: microbatches in a pipeline, its bubble and hops, and the sum of gradients."""
    p, m = job.pipeline, job.microbatches
    tensor_gpus_per_domain = min(job.tensor, platform.domain)
    microbatch_flops = job.operations * job.microbatch / job.batch / (job.tensor * p)
    compute_s = microbatch_flops / (assumptions.efficiency * platform.peak_tflops * 1e12)
    allreduce_s = compute_all_reduce_s(
        job.activation_bytes, tensor_gpus_per_domain, job.tensor // tensor_gpus_per_domain, platform
    )
    microbatch_s = compute_s + assumptions.allreduces_per_layer * job.layers / p * allreduce_s
    hops_s = 2 * (p - 1) * job.activation_bytes * GIGABITS_PER_BYTE / (job.tensor * platform.rail_gbps)
    replicas_per_domain = max(min(job.replica_count, platform.domain // tensor_gpus_per_domain), 1)
    gradient_bytes = 2 * job.parameters / (job.tensor * p)
    sum_s = compute_all_reduce_s(
        gradient_bytes, replicas_per_domain, -(-job.replica_count // replicas_per_domain), platform
    )
    return (m + (p - 1) / assumptions.chunks_per_stage) * microbatch_s + hops_s + sum_s


def fit_efficiency(
    job: Megatron, platform: Platform, allreduces_per_layer: int, chunks_per_stage: int
) -> float:
    """Return the efficiency at which the model gives the published time. Raises `ValueError` without such a time."""
    if job.published_s is None:
        raise ValueError(f"{job.name} has no published time")
    low, high = 1e-3, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        is_faster = (
            compute_iteration_s(job, platform, Accounting(middle, allreduces_per_layer, chunks_per_stage))
            < job.published_s
        )
        low, high = (low, middle) if is_faster else (middle, high)
    return (low + high) / 2
