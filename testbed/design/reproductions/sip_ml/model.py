"""Iterations of hybrid strategies on SiP-OCS, SiP-Ring and fat-trees.

A strategy dp:mp has dp copies of a model, each on mp consecutive GPUs. Each operator is cut into up to mp pieces, and
each piece needs the whole output of the preceding operators. Pieces are placed in topological order. A piece goes to
the GPU that is free first, among those with enough memory and at most `max_distance` away from all GPUs that hold its
inputs (section 4.2). The simulation lets a GPU compute one piece at a time, and a circuit or a port of a fat-tree carry
one message at a time. The backward pass runs the same placement in reverse. At the end, gradients are summed in a ring
over the copies.

| constant | value | source |
|---|---|---|
| wavelength | 25 Gbit/s | released scripts |
| optical circuit switches | 20, each with 1/20 of the wavelengths | released scripts |
| longest arc of SiP-Ring | 16 | released scripts |
| reconfiguration and decision interval of SiP-Ring | 20 us; 100 us | released scripts |
| reconfiguration of optical circuit switches | 30 ms by default, 20 us in the scripts' runs | released scripts |
| message | 1 us | released scripts: latency of PCIe |
| memory of a GPU | 100 GB | released scripts |
| computing times | roofline of an A100 | assumed: the measured profiles are not public |

SiP-OCS connects once for all traffic of an iteration, so its switches need not be fast. SiP-Ring reconfigures between
model-parallel and data-parallel traffic. With too few wavelengths for one circuit per pair, its pairs take turns. A
linear programme gives the mean number of circuits of a pair, and each decision interval loses the time of a
reconfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from testbed.design.circuits.shots import allocate_switch_circuits
from testbed.design.circuits.wavelengths import allocate_ring_circuits, solve_bound
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import A100, Cluster, compute_operator_seconds
from testbed.errors import OutOfMemory

Floats = NDArray[np.float64]

WAVELENGTH_GBPS = 25.0
SWITCH_COUNT = 20
MAX_ARC_LENGTH = 16
RECONFIGURATION_S = 20e-6
DECISION_INTERVAL_S = 100e-6
MESSAGE_LATENCY_S = 1e-6
MIN_MODELLED_COPIES = 8
"""Copies for which circuits are computed, because all copies are alike. Narrow copies need a longer ring, so that arcs
of length `MAX_ARC_LENGTH` in both directions do not meet."""

GPU = Cluster(1, replace(A100, name="SiP-ML", memory_bytes=100_000_000_000), devices_per_server=1)


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of one copy of a model.

    `gpus_by_operator` holds for each operator the GPU (from 0) of each of its pieces.
    """

    workload: Workload
    samples_per_copy: float
    width: int
    gpus_by_operator: tuple[tuple[int, ...], ...]

    @property
    def gradient_bytes(self) -> Floats:
        """Bytes of gradients on each GPU, shape (width,)."""
        held_bytes = np.zeros(self.width)
        for operator, gpus in zip(self.workload.operators, self.gpus_by_operator, strict=True):
            np.add.at(held_bytes, list(gpus), operator.gradient_bytes / len(gpus))
        return held_bytes

    def compute_piece_seconds(self, operator_index: int) -> tuple[float, float]:
        """Return the forward and backward seconds of one piece of an operator."""
        return compute_operator_seconds(
            self.workload.operators[operator_index],
            self.samples_per_copy,
            len(self.gpus_by_operator[operator_index]),
            GPU,
        )

    def compute_message_bytes(self, edge: tuple[int, int], *, is_backward: bool = False) -> float:
        """Return the bytes that a piece of the producer sends to each GPU that holds a piece of the consumer.

        With `is_backward`, the consumer sends gradients to the producer. If the pieces of an operator sum their
        outputs, they send twice as much: a part of the sum, then the sum.
        """
        producer, consumer = edge
        piece_count = len(self.gpus_by_operator[producer])
        operator = self.workload.operators[consumer if is_backward else producer]
        sums_outputs = len(
            self.gpus_by_operator[consumer if is_backward else producer]
        ) > 1 and _sums_outputs(operator, is_backward=is_backward)
        return (
            (1 + sums_outputs) * self.workload.compute_edge_bytes(edge) * self.samples_per_copy / piece_count
        )

    def compute_traffic(self) -> Floats:
        """Return the model-parallel bytes of an iteration, as an array (source GPU, target GPU)."""
        sent_bytes = np.zeros((self.width, self.width))
        for edge in self.workload.edges:
            sources, targets = (sorted(set(self.gpus_by_operator[operator_index])) for operator_index in edge)
            for source in sources:
                for target in targets:
                    if source != target:
                        piece_count = self.gpus_by_operator[edge[0]].count(source)
                        sent_bytes[source, target] += piece_count * self.compute_message_bytes(edge)
                        sent_bytes[target, source] += piece_count * self.compute_message_bytes(
                            edge, is_backward=True
                        )
        return sent_bytes


def _sums_outputs(operator: Operator, *, is_backward: bool) -> bool:
    return (operator.backward_reduce_bytes if is_backward else operator.forward_reduce_bytes) > 0


@lru_cache(maxsize=256)
def place_operators(
    workload: Workload, samples_per_copy: float, gpus_per_copy: int, piece_count: int, max_distance: int
) -> Placement:
    """Place a copy of a model on `gpus_per_copy` GPUs, with each operator cut into `piece_count` pieces.

    Raises `OutOfMemory` if no GPU within reach has memory for a piece.
    """
    gpu_free_s, used_bytes = np.zeros(gpus_per_copy), np.zeros(gpus_per_copy)
    end_times_s: list[float] = []
    placed_gpus: list[tuple[int, ...]] = []
    for op_index, operator in enumerate(workload.operators):
        producers = [producer for producer, consumer in workload.edges if consumer == op_index]
        inputs = sorted({gpu for producer in producers for gpu in placed_gpus[producer]})
        near_gpus = [
            gpu
            for gpu in range(gpus_per_copy)
            if all(abs(gpu - input_gpu) <= max_distance for input_gpu in inputs)
        ]
        ready_s = max((end_times_s[producer] for producer in producers), default=0.0)
        seconds = compute_operator_seconds(operator, samples_per_copy, piece_count, GPU)[0]
        # Weights and optimiser state, and outputs that the backward pass needs.
        held_bytes = (
            operator.parameter_bytes + operator.state_bytes + operator.output_bytes * samples_per_copy
        )
        gpus = []
        for _ in range(piece_count):
            fitting_gpus = [
                gpu for gpu in near_gpus if used_bytes[gpu] + held_bytes / piece_count <= GPU.memory_bytes
            ]
            if not fitting_gpus:
                raise OutOfMemory(
                    f"{workload.name}: no GPU within {max_distance} of its inputs has memory for a piece of "
                    f"{operator.name}: place it on more GPUs"
                )
            gpu = min(fitting_gpus, key=lambda candidate: (max(gpu_free_s[candidate], ready_s), candidate))
            gpu_free_s[gpu] = max(gpu_free_s[gpu], ready_s) + seconds
            used_bytes[gpu] += held_bytes / piece_count
            gpus.append(gpu)
        placed_gpus.append(tuple(gpus))
        end_times_s.append(max(float(gpu_free_s[gpu]) for gpu in gpus))
    return Placement(workload, samples_per_copy, gpus_per_copy, tuple(placed_gpus))


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a fabric in Gbit/s.

    Model-parallel traffic uses circuits of the rates `circuit_gbps`, shape (width, width), or, if `circuit_gbps` is
    None, ports of the rate `port_gbps`. Gradients have the rates `gradient_gbps`, shape (width,). No traffic flows for
    `outage_s` of an iteration.
    """

    circuit_gbps: Floats | None
    port_gbps: float
    gradient_gbps: Floats
    outage_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Iteration:
    """Seconds of an iteration: `passes_s` for both passes, `gradient_sum_s` for the sum of gradients."""

    passes_s: float
    gradient_sum_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the iteration."""
        return self.passes_s + self.gradient_sum_s


def make_fat_tree_rates(rate_gbps: float, cap_gbps: float = np.inf) -> Rates:
    """Return the rates of a fat-tree. Gradients between copies have at most `cap_gbps`."""
    return Rates(None, rate_gbps, np.array(min(rate_gbps, cap_gbps)))


def make_ocs_rates(
    placement: Placement, copy_count: int, wavelength_count: int, reconfiguration_s: float | None = None
) -> Rates:
    """Return the rates of SiP-OCS, whose circuits serve both kinds of traffic in a single shot.

    With `reconfiguration_s`, each kind of traffic has its own circuits, and the switches change twice per iteration.
    """
    model_bytes, data_bytes = _compute_demands(placement, copy_count)
    gbps_per_circuit = wavelength_count * WAVELENGTH_GBPS / SWITCH_COUNT
    if reconfiguration_s is None:
        model_circuits = data_circuits = allocate_switch_circuits(model_bytes + data_bytes, SWITCH_COUNT)
    else:
        model_circuits, data_circuits = (
            allocate_switch_circuits(demands, SWITCH_COUNT) for demands in (model_bytes, data_bytes)
        )
    return Rates(
        _select_first_copy(model_circuits, placement) * gbps_per_circuit,
        0.0,
        _find_gradient_rates(data_circuits, placement) * gbps_per_circuit,
        _compute_outage_s(model_bytes, data_bytes, reconfiguration_s or 0.0),
    )


def _compute_outage_s(model_bytes: Floats, data_bytes: Floats, reconfiguration_s: float) -> float:
    """Return the time of two reconfigurations, or 0 if there is only one kind of traffic."""
    return 2 * reconfiguration_s if model_bytes.any() and data_bytes.any() else 0.0


def make_ring_rates(placement: Placement, copy_count: int, wavelength_count: int) -> Rates:
    """Return the rates of SiP-Ring, which reconfigures before and after the sum of gradients."""
    model_bytes, data_bytes = _compute_demands(placement, copy_count)
    rates = [_compute_ring_rates(demands, wavelength_count) for demands in (model_bytes, data_bytes)]
    outage_s = _compute_outage_s(model_bytes, data_bytes, RECONFIGURATION_S)
    return Rates(
        _select_first_copy(rates[0], placement), 0.0, _find_gradient_rates(rates[1], placement), outage_s
    )


def _compute_ring_rates(demands: Floats, wavelength_count: int) -> Floats:
    """Return the rates of pairs in Gbit/s, with fixed circuits or with circuits in turn.

    Take the circuits with the larger share. The share is the smallest ratio of a pair's circuits to its demand.
    """
    has_demand = demands > 0
    if not has_demand.any():
        return np.zeros(demands.shape)
    fixed_circuits = np.where(
        has_demand, allocate_ring_circuits(demands, wavelength_count, MAX_ARC_LENGTH), 0
    ).astype(float)
    alternating_circuits = solve_bound(
        demands / demands.max(), wavelength_count, MAX_ARC_LENGTH
    ).circuits.sum(axis=0)
    alternating_circuits *= 1 - RECONFIGURATION_S / DECISION_INTERVAL_S
    shares = [
        (circuits[has_demand] / demands[has_demand]).min()
        for circuits in (fixed_circuits, alternating_circuits)
    ]
    return WAVELENGTH_GBPS * (fixed_circuits if shares[0] >= shares[1] else alternating_circuits)


def _compute_demands(placement: Placement, copy_count: int) -> tuple[Floats, Floats]:
    """Return the model-parallel and the data-parallel bytes between GPUs.

    They cover at most `MIN_MODELLED_COPIES` copies, or more if copies are narrow.
    """
    modelled_copy_count = min(copy_count, max(MIN_MODELLED_COPIES, 2 * MAX_ARC_LENGTH // placement.width + 1))
    node_count = modelled_copy_count * placement.width
    model_bytes: Floats = np.kron(np.eye(modelled_copy_count), placement.compute_traffic()).astype(float)
    data_bytes = np.zeros((node_count, node_count))
    if copy_count > 1:
        sent_bytes = np.tile(compute_ring_bytes(placement.gradient_bytes, copy_count), modelled_copy_count)
        for step in (placement.width, -placement.width):
            # Half of the gradients go around the ring in each direction.
            data_bytes[np.arange(node_count), (np.arange(node_count) + step) % node_count] += sent_bytes / 2
    return model_bytes, data_bytes


def _select_first_copy(rates: NDArray[np.generic], placement: Placement) -> Floats:
    return np.asarray(rates[: placement.width, : placement.width], float)


def _find_gradient_rates(rates: NDArray[np.generic], placement: Placement) -> Floats:
    """Return the total rate of each GPU to the next and the previous copy: twice the lower of both rates."""
    node_count, width = len(rates), placement.width
    first_gpus = np.arange(width)
    if node_count == 2 * width:
        return np.asarray(rates[first_gpus, first_gpus + width], float)
    both_rates = [
        np.asarray(rates[first_gpus, (first_gpus + step) % node_count], float) for step in (width, -width)
    ]
    doubled_rates: Floats = 2 * np.minimum(*both_rates)
    return doubled_rates


def compute_ring_bytes(size_bytes: Floats, copy_count: int) -> Floats:
    """Return the bytes that each GPU sends to sum `size_bytes` in a ring of `copy_count` GPUs.

    >>> float(compute_ring_bytes(np.array(1e9), 4))
    1500000000.0
    """
    return 2 * (copy_count - 1) / copy_count * size_bytes


def compute_iteration(placement: Placement, copy_count: int, rates: Rates) -> Iteration:
    """Return the seconds of an iteration. They are infinite if a pair that communicates has no circuit."""
    sent_bytes = compute_ring_bytes(placement.gradient_bytes, copy_count)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(sent_bytes > 0, sent_bytes * 8e-9 / rates.gradient_gbps, 0.0)
    gradient_sum_s = float(seconds.max()) + 2 * (copy_count - 1) * MESSAGE_LATENCY_S
    return Iteration(_simulate(placement, rates) + rates.outage_s, gradient_sum_s)


def _simulate(placement: Placement, rates: Rates) -> float:
    """Return the seconds of the forward and the backward pass."""
    gpu_free_s = np.zeros(placement.width)
    # Time at which the next message may start, for each circuit, or for each sending and receiving port.
    channel_free_s: dict[tuple[int, int], float] = {}

    def send(source: int, target: int, size: float, ready_s: float) -> float:
        if rates.circuit_gbps is not None:
            channels, rate = [(source, target)], float(rates.circuit_gbps[source, target])
        else:
            channels, rate = [(source, -1), (-1, target)], rates.port_gbps
        start_s = max(ready_s, *(channel_free_s.get(end, 0.0) for end in channels))
        end_s = start_s + (size * 8e-9 / rate if rate else float("inf"))
        channel_free_s.update(dict.fromkeys(channels, end_s))
        return end_s + MESSAGE_LATENCY_S

    operator_count = len(placement.workload.operators)
    for is_backward in (False, True):
        start_s = float(gpu_free_s.max())
        gpu_free_s[:] = start_s
        end_times_by_operator: dict[int, tuple[float, ...]] = {}
        edges = [edge[::-1] if is_backward else edge for edge in placement.workload.edges]
        for op_index in reversed(range(operator_count)) if is_backward else range(operator_count):
            arrival_times_s = np.full(placement.width, start_s)
            targets = sorted(set(placement.gpus_by_operator[op_index]))
            for producer in (
                producer_index for producer_index, consumer_index in edges if consumer_index == op_index
            ):
                edge = (op_index, producer) if is_backward else (producer, op_index)
                size = placement.compute_message_bytes(edge, is_backward=is_backward)
                sources = placement.gpus_by_operator[producer]
                for shift in range(placement.width):
                    # Sources take turns, so that no port of a fat-tree receives from all at once.
                    for source, end_s in zip(sources, end_times_by_operator[producer], strict=True):
                        target = (source + shift) % placement.width
                        if target in targets:
                            arrival_s = end_s if not shift else send(source, target, size, end_s)
                            arrival_times_s[target] = max(arrival_times_s[target], arrival_s)
            seconds = placement.compute_piece_seconds(op_index)[is_backward]
            end_times_s = []
            for gpu in placement.gpus_by_operator[op_index]:
                gpu_free_s[gpu] = max(gpu_free_s[gpu], arrival_times_s[gpu]) + seconds
                end_times_s.append(float(gpu_free_s[gpu]))
            end_times_by_operator[op_index] = tuple(end_times_s)
    return float(gpu_free_s.max())
