"""Event simulator of inference requests on a processor of many cores, as published with Lightning (SIGCOMM 2023).

A core computes one product per cycle. A layer is cut into pieces of at least `PIECE_PRODUCTS` products. The cores take
pieces in turn, and each core computes its pieces in the order of arrival. A layer begins when its predecessors are
done. A request waits for a fixed latency before its first layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function
from lightning.reproductions.published_models import MODELS, PublishedModel

PIECE_PRODUCTS = 2048
"""Products of the smallest piece of a layer."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor: its cores, their clock, and the fixed latency of a request in ns for each network."""

    name: str
    core_count: int
    clock_ghz: float
    latency_ns: Mapping[str, float]


_LAYER_COUNT_BY_MODEL = {
    "AlexNet": 8, "ResNet-18": 21, "VGG-16": 16, "VGG-19": 19, "BERT": 1 + 7 * 24, "GPT-2": 2 + 7 * 48, "DLRM": 8
}  # fmt: skip
"""Number of successive layers, as published. Parallel heads of attention and embeddings count once."""
_DATAPATH_NS_PER_LAYER = 115
"""Latency of Lightning's datapath for one layer."""
LIGHTNING = Processor(
    "Lightning",
    576,
    97,
    {name: _DATAPATH_NS_PER_LAYER * count for name, count in _LAYER_COUNT_BY_MODEL.items()},
)
PROCESSORS = (
    LIGHTNING,
    Processor(
        "A100",
        6912,
        1.41,
        {
            "AlexNet": 581_000, "ResNet-18": 615_000, "VGG-16": 607_000, "VGG-19": 596_000, "BERT": 1_176_000,
            "GPT-2": 6_605_000, "DLRM": 13_210_000,
        },
    ),
    Processor("A100X", 6912, 1.41, {}),
    Processor("Brainwave", 96_000, 0.25, {}),
    Processor(
        "P4",
        2560,
        1.114,
        {
            "AlexNet": 1_600_000, "ResNet-18": 1_532_000, "VGG-16": 1_555_000, "VGG-19": 1_552_000, "BERT": 3_702_000,
            "GPT-2": 12_761_000, "DLRM": 25_522_000,
        },
    ),
)  # fmt: skip
"""The processors, with the cores of the published schedules."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request for a network, given by its index in `MODELS`, and its arrival time in ns."""

    model_index: int
    time_ns: float


def draw_arrivals(request_count: int, rate_gbps: float, seed: int) -> tuple[Arrival, ...]:
    """Return a Poisson schedule of requests for random networks, at the rate of a link of `rate_gbps`.

    The mean gap before a request is the transmission time of its bits.
    """
    generator = np.random.default_rng(seed)
    time_ns, arrivals = 0.0, []
    for model_index in generator.integers(len(MODELS), size=request_count):
        time_ns += generator.exponential(MODELS[model_index].request_bytes * 8 / rate_gbps)
        arrivals.append(Arrival(int(model_index), time_ns))
    return tuple(arrivals)


def simulate(processor: Processor, arrivals: Sequence[Arrival]) -> dict[str, float]:
    """Return the mean time in ns from arrival to answer, by network."""
    tables = _Tables.from_models(MODELS)
    latency_cycles = [
        math.ceil(processor.latency_ns.get(model.name, 0.0) * processor.clock_ghz) for model in MODELS
    ]
    end_cycles = _simulate_compiled(
        np.array([arrival.model_index for arrival in arrivals], np.int64),
        np.array([math.ceil(arrival.time_ns * processor.clock_ghz) for arrival in arrivals], np.int64),
        np.array(latency_cycles, np.int64),
        tables.first_layers,
        tables.piece_lengths,
        tables.piece_counts,
        tables.predecessor_counts,
        tables.successor_offsets,
        tables.successors,
        processor.core_count,
    )
    times: dict[str, list[float]] = {}
    for arrival, end in zip(arrivals, end_cycles.tolist(), strict=True):
        times.setdefault(MODELS[arrival.model_index].name, []).append(
            end / processor.clock_ghz - arrival.time_ns
        )
    return {name: sum(model_times) / len(model_times) for name, model_times in times.items()}


@dataclass(frozen=True)
class _Tables:
    """The layers of all networks in sequence. `first_layers[m]` is the first layer of network m.

    Layer l has `piece_counts[l]` pieces of `piece_lengths[l]` products and waits for `predecessor_counts[l]` layers.
    The layers `successors[successor_offsets[l]:successor_offsets[l + 1]]` wait for layer l. They are numbered within
    the network.
    """

    first_layers: NDArray[np.int64]
    piece_lengths: NDArray[np.int64]
    piece_counts: NDArray[np.int64]
    predecessor_counts: NDArray[np.int64]
    successor_offsets: NDArray[np.int64]
    successors: NDArray[np.int64]

    @classmethod
    def from_models(cls, models: Sequence[PublishedModel]) -> _Tables:
        pieces, predecessor_counts, successors_by_layer, first_layers = [], [], [], [0]
        for model in models:
            model_successors: list[list[int]] = [[] for _ in model.layers]
            for layer_index, layer in enumerate(model.layers):
                for predecessor in layer.predecessors:
                    model_successors[predecessor].append(layer_index)
                pieces.append(
                    (layer.dot_product_length, layer.dot_product_count)
                    if layer.dot_product_length >= PIECE_PRODUCTS
                    else (PIECE_PRODUCTS, -(-layer.product_count // PIECE_PRODUCTS))
                )
                predecessor_counts.append(len(layer.predecessors))
            successors_by_layer += model_successors
            first_layers.append(len(predecessor_counts))
        piece_lengths, piece_counts = np.array(pieces, np.int64).T.copy()
        successor_offsets = np.cumsum([0, *map(len, successors_by_layer)])
        flat_successors = [
            successor for model_successors in successors_by_layer for successor in model_successors
        ]
        return cls(
            *(
                np.array(column, np.int64)
                for column in (
                    first_layers,
                    piece_lengths,
                    piece_counts,
                    predecessor_counts,
                    successor_offsets,
                    flat_successors,
                )
            )
        )


def _cut_range(
    first_cores: NDArray[np.int64], free_cycles: NDArray[np.int64], range_count: int, core: int
) -> int:
    """Split a range so that one begins at `core`, and return the number of ranges."""
    index = np.searchsorted(first_cores[:range_count], core)
    if index < range_count and first_cores[index] == core:
        return range_count
    for moved in range(range_count, index, -1):
        first_cores[moved], free_cycles[moved] = first_cores[moved - 1], free_cycles[moved - 1]
    first_cores[index], free_cycles[index] = core, free_cycles[index - 1]
    return range_count + 1


def _add_load(
    first_cores: NDArray[np.int64],
    free_cycles: NDArray[np.int64],
    range_count: int,
    first_core: int,
    end_core: int,
    start_cycle: int,
    cycles: int,
    last_cycle: int,
) -> tuple[int, int]:
    """Add cycles of work to the cores `first_core` to `end_core` - 1.

    Return (number of ranges, cycle in which the last of these cores ends, or `last_cycle` if later).
    """
    range_count = _cut_range_compiled(first_cores, free_cycles, range_count, first_core)
    if end_core < len(free_cycles):
        range_count = _cut_range_compiled(first_cores, free_cycles, range_count, end_core)
    kept_range_count = 0
    for index in range(range_count):
        free_cycle = free_cycles[index]
        if first_core <= first_cores[index] < end_core:
            free_cycle = max(free_cycle, start_cycle) + cycles
            last_cycle = max(last_cycle, free_cycle)
        if kept_range_count and free_cycles[kept_range_count - 1] == free_cycle:
            continue
        first_cores[kept_range_count], free_cycles[kept_range_count] = first_cores[index], free_cycle
        kept_range_count += 1
    return kept_range_count, last_cycle


_cut_range_compiled = compile_function(_cut_range)
add_load = compile_function(_add_load)


def _simulate(
    model_indices: NDArray[np.int64],
    arrival_cycles: NDArray[np.int64],
    latency_cycles: NDArray[np.int64],
    first_layers: NDArray[np.int64],
    piece_lengths: NDArray[np.int64],
    piece_counts: NDArray[np.int64],
    predecessor_counts: NDArray[np.int64],
    successor_offsets: NDArray[np.int64],
    successors: NDArray[np.int64],
    core_count: int,
) -> NDArray[np.int64]:
    """Return the cycle in which each request ends.

    Events are (cycle, request, kind, layer), where kind 0 begins a layer and kind 1 ends it. Neighbouring cores are
    mostly free from the same cycle on. `free_cycles` therefore has one value for each range of cores; `first_cores` has
    the first core of each range.
    """
    first_cores, free_cycles = np.zeros(core_count, np.int64), np.zeros(core_count, np.int64)
    range_count, next_core = 1, 0
    end_cycles = np.zeros(len(model_indices), np.int64)
    max_layer_count = (first_layers[1:] - first_layers[:-1]).max()
    pending_predecessor_counts = np.zeros((len(model_indices), max_layer_count), np.int64)
    remaining_layer_counts = np.zeros(len(model_indices), np.int64)
    events = [(arrival_cycles[0], 0, 0, 0)]  # numba infers the type of all events from this event
    events.clear()
    for request_index in range(len(model_indices)):
        begin, end = (
            first_layers[model_indices[request_index]],
            first_layers[model_indices[request_index] + 1],
        )
        remaining_layer_counts[request_index] = end - begin
        for layer_index in range(end - begin):
            pending_predecessor_counts[request_index, layer_index] = predecessor_counts[begin + layer_index]
            if predecessor_counts[begin + layer_index] == 0:
                heappush(
                    events,
                    (
                        arrival_cycles[request_index] + latency_cycles[model_indices[request_index]],
                        request_index,
                        0,
                        layer_index,
                    ),
                )
    while events:
        cycle, request_index, event_kind, layer_index = heappop(events)
        layer = first_layers[model_indices[request_index]] + layer_index
        if event_kind == 0:
            full_round_count, remaining_piece_count = (
                piece_counts[layer] // core_count,
                piece_counts[layer] % core_count,
            )
            last_cycle = 0
            if full_round_count:
                range_count, last_cycle = add_load(
                    first_cores,
                    free_cycles,
                    range_count,
                    0,
                    core_count,
                    cycle,
                    full_round_count * piece_lengths[layer],
                    last_cycle,
                )
            wrapped_core_count = max(next_core + remaining_piece_count - core_count, 0)
            if remaining_piece_count:
                range_count, last_cycle = add_load(
                    first_cores,
                    free_cycles,
                    range_count,
                    next_core,
                    next_core + remaining_piece_count - wrapped_core_count,
                    cycle,
                    piece_lengths[layer],
                    last_cycle,
                )
            if wrapped_core_count:
                range_count, last_cycle = add_load(
                    first_cores,
                    free_cycles,
                    range_count,
                    0,
                    wrapped_core_count,
                    cycle,
                    piece_lengths[layer],
                    last_cycle,
                )
            next_core = (next_core + piece_counts[layer]) % core_count
            heappush(events, (last_cycle, request_index, 1, layer_index))
        else:
            remaining_layer_counts[request_index] -= 1
            if remaining_layer_counts[request_index] == 0:
                end_cycles[request_index] = cycle
            for index in range(successor_offsets[layer], successor_offsets[layer + 1]):
                successor = successors[index]
                pending_predecessor_counts[request_index, successor] -= 1
                if pending_predecessor_counts[request_index, successor] == 0:
                    heappush(events, (cycle, request_index, 0, successor))
    return end_cycles


_simulate_compiled = compile_function(_simulate)
