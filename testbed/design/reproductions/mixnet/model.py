"""Formulas for the iteration time of a mixture of experts on four networks. A server has eight GPUs and eight NICs.

A microbatch passes the layers of a stage one after the other:

    attention, AllReduce of the tensor-parallel group, dispatch, experts, AllReduce, combine

The backward pass takes the same steps with twice the arithmetic. A pipeline of `pp` stages takes as long as
`microbatches + pp - 1` microbatches. Hops between stages add time only while the pipeline fills and drains. Dispatch
and combine are all-to-alls within a region: the servers of an expert-parallel group. The gradients of a layer are
summed as soon as its last backward pass is done, in parallel with the remaining layers. Nothing else overlaps.

| design | all-to-all of a region | rings of gradients, pipeline |
|---|---|---|
| fat-tree | the bytes into or out of the busiest server, over 8 NICs | 8 NICs |
| rail-optimised | as fat-tree: switches above the rails do not block, and messages change rails in servers | 8 NICs |
| MixNet | `allocate_region_circuits` with 6 NICs, and packets with 2 | the 2 packet NICs |
| TopoOpt | static circuits with 6 NICs for the mean traffic; servers forward for pairs without one | 1 NIC each |

MixNet changes its circuits during attention, between the combine of a layer and the dispatch of the next. If the dark
time is longer than attention, the job waits for the rest, in every layer, microbatch and direction. The policy "faster"
(`Setting.policy`) compares these changing circuits with fixed circuits for the mean traffic of a stage's layers, and
takes the faster of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from testbed.design.circuits.regions import allocate_region_circuits, compute_exchange_s
from testbed.design.reproductions.mixnet.models import SERVER_GPUS, MoeJob, Setting
from testbed.design.workloads.gates import draw_expert_traffic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FAT_TREE, MIXNET, RAILS, TOPOOPT = "Fat-tree", "MixNet", "Rail-optimized", "TopoOpt"
DESIGNS = (FAT_TREE, MIXNET, RAILS, TOPOOPT)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of one layer for one microbatch in the forward pass, without all-to-alls.

    `attention_sum_s` and `experts_sum_s` are the AllReduces. In the backward pass arithmetic takes twice as long, and
    AllReduces take the same time.
    """

    attention_s: float
    attention_sum_s: float
    experts_s: float
    experts_sum_s: float

    @property
    def computing_s(self) -> float:
        """Seconds of the forward and the backward pass."""
        return 3 * (self.attention_s + self.experts_s) + 2 * (self.attention_sum_s + self.experts_sum_s)


@lru_cache(maxsize=256)
def compute_server_traffic(job: MoeJob, setting: Setting, layer: int) -> Floats:
    """Return the bytes that each server of a region dispatches to each other server, as an array (source, target)."""
    token_bytes = setting.bytes_per_value * job.hidden
    traffic = _compute_member_traffic(job, setting, layer) * token_bytes
    members_per_server = job.ep // job.region
    server_bytes: Floats = traffic.reshape(
        job.region, members_per_server, job.region, members_per_server
    ).sum(axis=(1, 3))
    return server_bytes


def _compute_member_traffic(job: MoeJob, setting: Setting, layer: int) -> Floats:
    return draw_expert_traffic(
        job.tokens,
        job.experts,
        job.routed,
        job.ep,
        skew=job.skew,
        layer=layer,
        seed=setting.seed,
        by_member=setting.by_member,
    )


def compute_layer_times(job: MoeJob, setting: Setting, layer: int) -> LayerTimes:
    """Return the computing times of a layer, on the group member whose experts receive the most tokens."""
    hidden, tokens, bytes_per_value = job.hidden, job.tokens, setting.bytes_per_value
    projection_parameters = hidden * hidden * (2 + 2 * job.kv_share)
    score_flops_per_token = 2.0 * job.sequence * hidden  # a causal mask halves what each token attends to
    attention_flops = 2 * tokens * projection_parameters + tokens * score_flops_per_token
    attention_bytes = bytes_per_value * (projection_parameters + tokens * hidden * (4 + 2 * job.kv_share))
    received_tokens = float(_compute_member_traffic(job, setting, layer).sum(axis=0).max())
    experts_per_member = -(-job.experts // job.ep)
    expert_parameters = 3 * hidden * job.inner
    expert_flops = 2 * expert_parameters * (received_tokens + tokens * job.shared)
    expert_bytes = bytes_per_value * (
        expert_parameters * (experts_per_member + job.shared)
        + (received_tokens + tokens * job.shared) * (2 * hidden + 3 * job.inner)
    )

    def compute_reduce_s(summed_tokens: float) -> float:
        return (
            2 * (job.tp - 1) / job.tp * summed_tokens * hidden * bytes_per_value / setting.local_bytes_per_s
        )

    return LayerTimes(
        job.device.compute_pass_seconds(attention_flops, attention_bytes, job.tp),
        compute_reduce_s(tokens),
        job.device.compute_pass_seconds(expert_flops, expert_bytes, job.tp),
        compute_reduce_s(received_tokens),
    )


def list_stage_layers(job: MoeJob) -> tuple[int, ...]:
    """Return the layers of the first stage. It represents all stages, which differ only in their random traffic."""
    return tuple(range(job.layers // job.pp))


def compute_fat_tree_s(job: MoeJob, setting: Setting, gbps: float) -> float:
    """Return the seconds of a microbatch's all-to-alls in one stage, forward and backward, on all NICs."""
    rate = SERVER_GPUS * gbps * 1e9 / 8
    return sum(
        4 * _compute_busiest_server_bytes(compute_server_traffic(job, setting, layer)) / rate
        for layer in list_stage_layers(job)
    )


def _compute_busiest_server_bytes(traffic: Floats) -> float:
    external_bytes = traffic - np.diag(np.diag(traffic))
    return float(max(external_bytes.sum(axis=0).max(), external_bytes.sum(axis=1).max()))


def compute_mixnet_s(job: MoeJob, setting: Setting, gbps: float) -> float:
    """Return the seconds of a microbatch's all-to-alls in one stage, with the dark time that attention does not hide.

    The combine is the transpose of the dispatch, and circuits are symmetric. So one choice of circuits serves the four
    all-to-alls of a layer, two forward and two backward.
    """
    layers = list_stage_layers(job)
    per_layer_s = sum(4 * _compute_dispatch_s_on_own_circuits(job, setting, layer) / gbps for layer in layers)
    for layer in layers:
        times = compute_layer_times(job, setting, layer)
        forward_s = times.attention_s + times.attention_sum_s
        backward_s = 2 * times.attention_s + times.attention_sum_s
        per_layer_s += sum(
            max(setting.reconfiguration_s - hiding_s, 0.0) for hiding_s in (forward_s, backward_s)
        )
    per_iteration_s = 4 * _compute_dispatch_s_on_fixed_circuits(job, setting) / gbps
    return {
        "per-layer": per_layer_s,
        "per-iteration": per_iteration_s,
        "faster": min(per_layer_s, per_iteration_s),
    }[setting.policy]


@lru_cache(maxsize=1024)
def _compute_dispatch_s_on_own_circuits(job: MoeJob, setting: Setting, layer: int) -> float:
    """Return the seconds of a dispatch at 1 Gbit/s per NIC, on circuits for its layer.

    Circuits and packets scale alike with the rate of a NIC, so the best circuits do not depend on that rate.
    """
    matrix = compute_server_traffic(job, setting, layer)
    rates = 1e9, (SERVER_GPUS - setting.circuit_ports) * 1e9
    return compute_exchange_s(matrix, allocate_region_circuits(matrix, setting.circuit_ports, *rates), *rates)


@lru_cache(maxsize=256)
def _compute_dispatch_s_on_fixed_circuits(job: MoeJob, setting: Setting) -> float:
    """Return the seconds of all dispatches of a stage at 1 Gbit/s per NIC, on circuits for their mean traffic."""
    traffic = [compute_server_traffic(job, setting, layer) for layer in list_stage_layers(job)]
    rates = 1e9, (SERVER_GPUS - setting.circuit_ports) * 1e9
    circuits = allocate_region_circuits(np.mean(traffic, axis=0), setting.circuit_ports, *rates)
    return sum(compute_exchange_s(matrix, circuits, *rates) for matrix in traffic)


def compute_topoopt_s(job: MoeJob, setting: Setting, gbps: float) -> float:
    """Return the seconds of a microbatch's all-to-alls in one stage, on static circuits."""
    layers = list_stage_layers(job)
    traffic = [compute_server_traffic(job, setting, layer) for layer in layers]
    degree = SERVER_GPUS - setting.ring_ports - 1
    circuits = allocate_static_circuits(np.mean(traffic, axis=0), degree)
    load_bytes = (compute_forwarded_load(matrix, circuits) for matrix in traffic)
    return sum(4 * busiest_bytes / (gbps * 1e9 / 8) for busiest_bytes in load_bytes)


def allocate_static_circuits(traffic: Floats, degree: int) -> Integers:
    """Return the number of circuits of each pair: a ring, then greedily one for the pair with most bytes per circuit.

    The ring stands for TopoOpt's guarantee that every pair has a path.
    """
    server_count = len(traffic)
    demand = traffic + traffic.T - 2 * np.diag(np.diag(traffic))
    circuits = np.zeros(traffic.shape, dtype=np.int64)
    for server in range(server_count):
        if server_count > 2 or server == 0:
            circuits[server, (server + 1) % server_count] += 1
            circuits[(server + 1) % server_count, server] += 1
    while True:
        has_free_port = circuits.sum(axis=1) < degree
        gain = np.where(np.outer(has_free_port, has_free_port), demand / (circuits + 1), 0)
        np.fill_diagonal(gain, 0)
        if gain.max(initial=0) <= 0:
            return circuits
        pair = np.unravel_index(int(gain.argmax()), gain.shape)
        circuits[pair] += 1
        circuits[pair[::-1]] += 1


def compute_forwarded_load(traffic: Floats, circuits: Integers) -> float:
    """Return the bytes on the busiest circuit. A pair spreads its bytes over its shortest paths, by their circuits.

    In a ring of four, opposite servers send half of their bytes each way, over two circuits:

    >>> ring = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    >>> compute_forwarded_load(np.ones((4, 4)), ring)
    2.0
    """
    server_count = len(traffic)
    hops = np.where(circuits > 0, 1.0, np.inf)
    np.fill_diagonal(hops, 0)
    for middle in range(server_count):
        hops = np.minimum(hops, hops[:, middle, None] + hops[middle])
    load = np.zeros(traffic.shape)
    for target in range(server_count):
        arriving_bytes = traffic[:, target].astype(np.float64)
        arriving_bytes[target] = 0
        for node in np.argsort(-hops[:, target]):
            if node == target:
                continue
            nearer_circuits = np.where(hops[:, target] == hops[node, target] - 1, circuits[node], 0)
            forwarded_bytes = arriving_bytes[node] * nearer_circuits / nearer_circuits.sum()
            load[node] += forwarded_bytes
            arriving_bytes += forwarded_bytes
    return float(np.divide(load, circuits, out=np.zeros(load.shape), where=circuits > 0).max())


EXCHANGE_FUNCTIONS: dict[str, Callable[[MoeJob, Setting, float], float]] = {
    FAT_TREE: compute_fat_tree_s,
    MIXNET: compute_mixnet_s,
    RAILS: compute_fat_tree_s,
    TOPOOPT: compute_topoopt_s,
}


def compute_iteration_s(job: MoeJob, setting: Setting, gbps: float, design: str) -> float:
    """Return the seconds of an iteration on a design at `gbps` per NIC."""
    layers = list_stage_layers(job)
    times = [compute_layer_times(job, setting, layer) for layer in layers]
    microbatch_s = sum(layer_time.computing_s for layer_time in times) + EXCHANGE_FUNCTIONS[design](
        job, setting, gbps
    )
    nic_count = {MIXNET: SERVER_GPUS - setting.circuit_ports, TOPOOPT: setting.ring_ports}.get(
        design, SERVER_GPUS
    )
    bytes_per_s = nic_count * gbps * 1e9 / 8
    pipeline_bytes_per_s = (1 if design == TOPOOPT else nic_count) * gbps * 1e9 / 8
    members_per_server = SERVER_GPUS // job.tp
    hop_bytes = job.tokens * job.hidden * setting.bytes_per_value * members_per_server
    hops_s = 2 * (job.pp - 1) * hop_bytes / pipeline_bytes_per_s
    backward_s = microbatch_s * 2 / 3
    sum_s = compute_gradient_sum_s(job, setting, bytes_per_s)
    exposed_s = max(sum_s / len(layers), sum_s - backward_s * (len(layers) - 1) / len(layers))
    return (job.microbatches + job.pp - 1) * microbatch_s + hops_s + exposed_s


def compute_gradient_sum_s(job: MoeJob, setting: Setting, bytes_per_s: float) -> float:
    """Return the seconds in which rings of servers sum the gradients of a stage.

    `bytes_per_s` is in bytes/s per server.

    Experts have `dp` copies. All `dp * ep` members hold everything else; the members of a server sum first, over
    NVSwitch, which takes no time here.
    """
    bytes_per_value, layers_per_stage = setting.bytes_per_value, job.layers // job.pp
    members_per_server = SERVER_GPUS // job.tp
    expert_parameters = job.experts / job.ep * members_per_server * 3 * job.hidden * job.inner
    other_parameters = job.hidden**2 * (2 + 2 * job.kv_share) + job.shared * 3 * job.hidden * job.inner
    server_count = job.dp * job.ep // members_per_server
    expert_s = 2 * (job.dp - 1) / job.dp * expert_parameters * bytes_per_value / bytes_per_s
    other_s = 2 * (server_count - 1) / server_count * other_parameters * bytes_per_value / bytes_per_s
    return layers_per_stage * (expert_s + other_s)
