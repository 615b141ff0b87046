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
    cores: int
    ghz: float
    latency_ns: Mapping[str, float]


_LAYERS = {
    "AlexNet": 8, "ResNet-18": 21, "VGG-16": 16, "VGG-19": 19, "BERT": 1 + 7 * 24, "GPT-2": 2 + 7 * 48, "DLRM": 8
}  # fmt: skip
"""Number of successive layers, as published. Parallel heads of attention and embeddings count once."""
_DATAPATH_NS = 115
"""Latency of Lightning's datapath for one layer."""
LIGHTNING = Processor("Lightning", 576, 97, {name: _DATAPATH_NS * count for name, count in _LAYERS.items()})
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

    model: int
    ns: float


def draw_arrivals(requests: int, gbps: float, seed: int) -> tuple[Arrival, ...]:
    """Return a Poisson schedule of requests for random networks, at the rate of a link of `gbps`.

    The mean gap before a request is the transmission time of its bits.
    """
    generator = np.random.default_rng(seed)
    time_ns, arrivals = 0.0, []
    for model in generator.integers(len(MODELS), size=requests):
        time_ns += generator.exponential(MODELS[model].request_bytes * 8 / gbps)
        arrivals.append(Arrival(int(model), time_ns))
    return tuple(arrivals)


def simulate(processor: Processor, arrivals: Sequence[Arrival]) -> dict[str, float]:
    """Return the mean time in ns from arrival to answer, by network."""
    tables = _Tables.of(MODELS)
    latency = [math.ceil(processor.latency_ns.get(model.name, 0.0) * processor.ghz) for model in MODELS]
    end_cycles = _simulate_compiled(
        np.array([arrival.model for arrival in arrivals], np.int64),
        np.array([math.ceil(arrival.ns * processor.ghz) for arrival in arrivals], np.int64),
        np.array(latency, np.int64),
        tables.first,
        tables.length,
        tables.count,
        tables.waits,
        tables.next_from,
        tables.next,
        processor.cores,
    )
    times: dict[str, list[float]] = {}
    for arrival, end in zip(arrivals, end_cycles.tolist(), strict=True):
        times.setdefault(MODELS[arrival.model].name, []).append(end / processor.ghz - arrival.ns)
    return {name: sum(model_times) / len(model_times) for name, model_times in times.items()}


@dataclass(frozen=True)
class _Tables:
    """The layers of all networks in sequence. `first[m]` is the first layer of network m.

    Layer l has `count[l]` pieces of `length[l]` products and waits for `waits[l]` layers. The layers
    `next[next_from[l]:next_from[l + 1]]` wait for layer l; these indices count within the network.
    """

    first: NDArray[np.int64]
    length: NDArray[np.int64]
    count: NDArray[np.int64]
    waits: NDArray[np.int64]
    next_from: NDArray[np.int64]
    next: NDArray[np.int64]

    @classmethod
    def of(cls, models: Sequence[PublishedModel]) -> _Tables:
        pieces, waits, following, first_layers = [], [], [], [0]
        for model in models:
            children: list[list[int]] = [[] for _ in model.layers]
            for layer_index, layer in enumerate(model.layers):
                for predecessor in layer.predecessors:
                    children[predecessor].append(layer_index)
                pieces.append(
                    (layer.length, layer.count)
                    if layer.length >= PIECE_PRODUCTS
                    else (PIECE_PRODUCTS, -(-layer.products // PIECE_PRODUCTS))
                )
                waits.append(len(layer.predecessors))
            following += children
            first_layers.append(len(waits))
        length, count = np.array(pieces, np.int64).T.copy()
        starts = np.cumsum([0, *map(len, following)])
        flat = [child for children in following for child in children]
        return cls(
            *(np.array(column, np.int64) for column in (first_layers, length, count, waits, starts, flat))
        )


def _cut_range(begins: NDArray[np.int64], free: NDArray[np.int64], ranges: int, core: int) -> int:
    """Split a range so that one begins at `core`, and return the number of ranges."""
    index = np.searchsorted(begins[:ranges], core)
    if index < ranges and begins[index] == core:
        return ranges
    for moved in range(ranges, index, -1):
        begins[moved], free[moved] = begins[moved - 1], free[moved - 1]
    begins[index], free[index] = core, free[index - 1]
    return ranges + 1


def _add_load(
    begins: NDArray[np.int64],
    free: NDArray[np.int64],
    ranges: int,
    first_core: int,
    end: int,
    cycle: int,
    cycles: int,
    last_cycle: int,
) -> tuple[int, int]:
    """Add cycles of work to the cores `first_core` to `end` - 1.

    Return (number of ranges, cycle in which the last of these cores ends, or `last_cycle` if later).
    """
    ranges = _cut_range_compiled(begins, free, ranges, first_core)
    if end < len(free):
        ranges = _cut_range_compiled(begins, free, ranges, end)
    kept_ranges = 0
    for index in range(ranges):
        value = free[index]
        if first_core <= begins[index] < end:
            value = max(value, cycle) + cycles
            last_cycle = max(last_cycle, value)
        if kept_ranges and free[kept_ranges - 1] == value:
            continue
        begins[kept_ranges], free[kept_ranges] = begins[index], value
        kept_ranges += 1
    return kept_ranges, last_cycle


_cut_range_compiled = compile_function(_cut_range)
add_load = compile_function(_add_load)


def _simulate(
    models: NDArray[np.int64],
    arrivals: NDArray[np.int64],
    latency: NDArray[np.int64],
    first_layers: NDArray[np.int64],
    length: NDArray[np.int64],
    count: NDArray[np.int64],
    waits: NDArray[np.int64],
    next_from: NDArray[np.int64],
    successors: NDArray[np.int64],
    cores: int,
) -> NDArray[np.int64]:
    """Return the cycle in which each request ends.

    Events are (cycle, request, kind, layer), where kind 0 begins a layer and kind 1 ends it. Neighbouring cores are
    mostly free from the same cycle on. `free` therefore has one value for each range of cores; `begins` has the first
    core of each range.
    """
    begins, free = np.zeros(cores, np.int64), np.zeros(cores, np.int64)
    ranges, next_core = 1, 0
    end_cycles = np.zeros(len(models), np.int64)
    max_layers = (first_layers[1:] - first_layers[:-1]).max()
    open_layers = np.zeros((len(models), max_layers), np.int64)
    layers_left = np.zeros(len(models), np.int64)
    events = [(arrivals[0], 0, 0, 0)]  # numba infers the type of all events from this event
    events.clear()
    for request in range(len(models)):
        begin, end = first_layers[models[request]], first_layers[models[request] + 1]
        layers_left[request] = end - begin
        for layer_index in range(end - begin):
            open_layers[request, layer_index] = waits[begin + layer_index]
            if waits[begin + layer_index] == 0:
                heappush(events, (arrivals[request] + latency[models[request]], request, 0, layer_index))
    while events:
        cycle, request, kind, layer_index = heappop(events)
        layer = first_layers[models[request]] + layer_index
        if kind == 0:
            full, single_cores = count[layer] // cores, count[layer] % cores
            last_cycle = 0
            if full:
                ranges, last_cycle = add_load(
                    begins, free, ranges, 0, cores, cycle, full * length[layer], last_cycle
                )
            wrapped_cores = max(next_core + single_cores - cores, 0)
            if single_cores:
                ranges, last_cycle = add_load(
                    begins,
                    free,
                    ranges,
                    next_core,
                    next_core + single_cores - wrapped_cores,
                    cycle,
                    length[layer],
                    last_cycle,
                )
            if wrapped_cores:
                ranges, last_cycle = add_load(
                    begins, free, ranges, 0, wrapped_cores, cycle, length[layer], last_cycle
                )
            next_core = (next_core + count[layer]) % cores
            heappush(events, (last_cycle, request, 1, layer_index))
        else:
            layers_left[request] -= 1
            if layers_left[request] == 0:
                end_cycles[request] = cycle
            for index in range(next_from[layer], next_from[layer + 1]):
                child = successors[index]
                open_layers[request, child] -= 1
                if open_layers[request, child] == 0:
                    heappush(events, (cycle, request, 0, child))
    return end_cycles


_simulate_compiled = compile_function(_simulate)
