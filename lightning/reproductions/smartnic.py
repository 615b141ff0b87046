"""The figures of Lightning (SIGCOMM 2023) as rows: a published number, ours, and the difference.

Published ratios are from the abstract. The processors and the event simulator are from the released artifact. Numbers
from memory, without a source, are marked "recalled".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fpga.hdl import explain_missing
from fpga.photonic_mac.cycles import CLOCK_HZ, MEMORY_CYCLES, calculate_cycles
from fpga.photonic_mac.network import LENET_SHAPES
from lightning.reproductions.event_simulator import LIGHTNING, PROCESSORS, draw_arrivals, simulate
from lightning.reproductions.published_models import MODELS
from lightning.serving.nic import make_request

LENET_BEATS_PER_OUTPUT = (49, 19, 7)
"""Beats of one output in each layer of LeNet-300-100, in the released RTL."""
SPEED_GBPS = 0.06
"""Speed of the network in the published runs."""
SWEEP_GBPS = (0.001, 0.01, 0.02, 0.04, 0.06, 0.3)
"""Speeds of the network at which ratios are computed."""
PUBLISHED_SERVE_TIME_RATIOS = {"A100": 337.0, "A100X": 329.0, "Brainwave": 42.0}
"""Published ratios of the mean serve time to Lightning's."""
PUBLISHED_ENERGY_RATIOS = {"A100": 352.0, "A100X": 419.0, "Brainwave": 54.0}
"""Published ratios of the energy of an inference to Lightning's."""
POWER_W_BY_PROCESSOR = {"Lightning": 91.875, "A100": 250.0, "A100X": 300.0, "Brainwave": 125.0}
"""The powers of Lightning and the A100 are from the released artifact, the others recalled from the paper."""
ENERGY_CORE_COUNT = 1024
"""Cores of Lightning in the published energies. The published schedules use 576 cores."""


@dataclass(frozen=True, slots=True)
class Row:
    """A quantity of a figure: the published number, or None, and our number."""

    figure: int
    quantity: str
    published: float | None
    ours: float
    note: str = ""

    @property
    def difference_percent(self) -> float | None:
        """Relative difference of our number from the published one, in per cent; None without a published number."""
        return None if not self.published else 100 * (self.ours / self.published - 1)


@dataclass(frozen=True, slots=True)
class ReproductionScale:
    """The size of a reproduction: traces at each network speed, requests in a trace, and whether the RTL runs."""

    trace_count: int
    request_count: int
    sweep_gbps: Sequence[float]
    runs_rtl: bool


FULL_SCALE = ReproductionScale(trace_count=10, request_count=100, sweep_gbps=SWEEP_GBPS, runs_rtl=True)
QUICK_SCALE = ReproductionScale(trace_count=1, request_count=10, sweep_gbps=(0.01, 0.06), runs_rtl=False)
TITLE_BY_FIGURE = {
    1: "cycles of LeNet-300-100",
    2: "mean serve time of seven networks on five processors",
    3: "energy of an inference",
    4: "serve time over the speed of the network",
}
ServeTimes = Mapping[str, Mapping[str, float]]
"""Mean serve times of a trace in ns, by processor and network."""


def reproduce(scale: ReproductionScale, report: Callable[[str], None]) -> tuple[Row, ...]:
    """Return the rows of all figures. Call `report` with the name of each part of the work."""
    report(TITLE_BY_FIGURE[1])
    rows = [*_count_cycles()]
    if scale.runs_rtl:
        if reason := explain_missing("verilator", "make", "g++"):
            report(f"without the RTL: {reason}")
        else:
            report("cycles of LeNet-300-100 in the RTL of the smartNIC")
            rows += _measure_rtl_cycles()
    report(TITLE_BY_FIGURE[2])
    times_by_trace = _simulate_traces(scale, SPEED_GBPS)
    rows += [*_compare_serve_times(times_by_trace), *_compare_energies(times_by_trace)]
    for speed_gbps in scale.sweep_gbps:
        report(f"{TITLE_BY_FIGURE[4]}: {speed_gbps:g} Gbit/s")
        rows += _compare_ratios_at_speed(
            speed_gbps, times_by_trace if speed_gbps == SPEED_GBPS else _simulate_traces(scale, speed_gbps)
        )
    return tuple(rows)


def _count_cycles() -> Iterator[Row]:
    """Yield the cycles of LeNet: for products, for the datapath around them, and for its memory."""
    layers = calculate_cycles(LENET_SHAPES)
    beat_count = sum(layer.beats for layer in layers)
    total_cycles = sum(layer.total for layer in layers)
    published_cycles = _compute_published_cycles()
    beats_text = ", ".join(map(str, LENET_BEATS_PER_OUTPUT))
    yield Row(
        1,
        "cycles of products",
        sum(published_cycles),
        beat_count,
        f"published: {beats_text} cycles an output, in the released RTL",
    )
    for number, (cycles, layer) in enumerate(zip(published_cycles, layers, strict=True), start=1):
        yield Row(1, f"cycles of products, layer {number}", cycles, layer.beats)
    datapath_cycles = total_cycles - beat_count
    yield Row(
        1,
        "latency of the datapath, ns a layer",
        115,
        datapath_cycles / len(layers) / CLOCK_HZ * 1e9,
        "published: a constant of the event simulator, for a clock of 97 GHz; ours: for 253.44 MHz, with "
        f"{layers[0].preamble} cycles of preamble and 7 cycles of the light's delay",
    )
    yield Row(1, "cycles of memory, a layer", None, MEMORY_CYCLES, "from an address to the converters")
    yield Row(
        1, "cycles in all", None, total_cycles, "by formula; the project's tests count as many in the RTL"
    )
    yield Row(
        1,
        "time of an inference, us",
        None,
        total_cycles / CLOCK_HZ * 1e6,
        "of which all but 0.4 are products",
    )


def _measure_rtl_cycles() -> Iterator[Row]:
    """Yield the cycles of a request for LeNet on the simulated smartNIC, with an ideal memory and with DRAM."""
    import numpy as np

    from fpga.smartnic.program import NicLayer, NicModel, NicProgram
    from fpga.smartnic.request_trace import trace_request
    from fpga.smartnic.simulator import SmartNic

    layers = [
        NicLayer(np.ones(shape, np.int16), np.zeros(shape[0], np.int32), np.ones(shape[0], np.float32))
        for shape in LENET_SHAPES
    ]
    nic = SmartNic()
    frame = make_request(nic.settings, bytes(LENET_SHAPES[0][1]))
    nic.load(NicProgram((NicModel("LeNet-300-100", tuple(layers), follows_published_datapath=True),)))
    for memory_kind in ("DRAM: 160 ns, refresh 4.5 %", "ideal memory"):
        if memory_kind == "ideal memory":
            nic.set_input("memory_latency", 0)
            nic.set_input("memory_refresh_every", 0)
        trace = trace_request(nic, frame).trace
        product_cycles = int(np.count_nonzero(np.diff(trace.counts["sequencer.send"])))
        waiting_cycles = int(np.count_nonzero(trace.signals["sending"])) - product_cycles
        total_cycles = int(trace.counts["latency.cycles"][-1])
        yield Row(
            1,
            f"RTL, {memory_kind}: cycles of products",
            sum(_compute_published_cycles()),
            product_cycles,
            "measured",
        )
        yield Row(1, f"RTL, {memory_kind}: cycles that wait for memory", None, waiting_cycles, "measured")
        yield Row(1, f"RTL, {memory_kind}: cycles in all", None, total_cycles, "measured, without packets")
    nic.close()


def _compute_published_cycles() -> list[int]:
    """Return the published cycles of products of LeNet, by layer."""
    return [beats * outputs for beats, (outputs, _) in zip(LENET_BEATS_PER_OUTPUT, LENET_SHAPES, strict=True)]


def _simulate_traces(scale: ReproductionScale, speed_gbps: float) -> list[ServeTimes]:
    """Return the serve times of each trace."""
    traces = (draw_arrivals(scale.request_count, speed_gbps, seed) for seed in range(scale.trace_count))
    return [{processor.name: simulate(processor, trace) for processor in PROCESSORS} for trace in traces]


def _compute_ratios(times_by_trace: Sequence[ServeTimes], processor: str) -> list[list[float]]:
    """Return the serve times of a processor over Lightning's, by network, for each trace."""
    return [
        [ns / times[LIGHTNING.name][name] for name, ns in times[processor].items()]
        for times in times_by_trace
    ]


def _compare_serve_times(times_by_trace: Sequence[ServeTimes]) -> Iterator[Row]:
    """Yield the mean serve times, and their ratios to Lightning's: mean and largest over networks."""
    for processor in PROCESSORS:
        for model in MODELS:
            times = [
                trace_times[processor.name][model.name]
                for trace_times in times_by_trace
                if model.name in trace_times[processor.name]
            ]
            if times:
                yield Row(2, f"serve time of {model.name} on {processor.name}, ms", None, fmean(times) / 1e6)
    for name, published in PUBLISHED_SERVE_TIME_RATIOS.items():
        ratios = _compute_ratios(times_by_trace, name)
        quantity = f"serve time of {name} over Lightning's"
        yield Row(
            2,
            f"{quantity}, mean of networks",
            published,
            fmean(map(fmean, ratios)),
            "mean of traces; the abstract publishes a mean ratio, but does not say over what",
        )
        yield Row(
            2,
            f"{quantity}, largest of a network",
            published,
            fmean(map(max, ratios)),
            "mean of traces; the released script prints the largest ratio of each trace",
        )


def _compare_ratios_at_speed(speed_gbps: float, times_by_trace: Sequence[ServeTimes]) -> Iterator[Row]:
    for processor in PROCESSORS[1:]:
        ratios, quantity = (
            _compute_ratios(times_by_trace, processor.name),
            f"serve time of {processor.name} over Lightning's",
        )
        yield Row(
            4, f"{quantity} at {speed_gbps:g} Gbit/s, mean of networks", None, fmean(map(fmean, ratios))
        )
        yield Row(
            4, f"{quantity} at {speed_gbps:g} Gbit/s, largest of a network", None, fmean(map(max, ratios))
        )


def _compare_energies(times_by_trace: Sequence[ServeTimes]) -> Iterator[Row]:
    """Yield ratios of energy: by the released formula for products alone, and from power and serve time."""
    core_counts = {processor.name: processor.core_count for processor in PROCESSORS} | {
        LIGHTNING.name: ENERGY_CORE_COUNT
    }
    power_per_core_ghz = {
        processor.name: POWER_W_BY_PROCESSOR[processor.name]
        / (core_counts[processor.name] * processor.clock_ghz)
        for processor in PROCESSORS
        if processor.name in POWER_W_BY_PROCESSOR
    }
    for name, published in PUBLISHED_ENERGY_RATIOS.items():
        recalled_mark = " (recalled)" if name != "A100" else ""
        powers_text = (
            f"{POWER_W_BY_PROCESSOR[name]:g} W{recalled_mark} and {POWER_W_BY_PROCESSOR[LIGHTNING.name]:g} W"
        )
        yield Row(
            3,
            f"energy of {name} over Lightning's, products alone",
            published,
            power_per_core_ghz[name] / power_per_core_ghz[LIGHTNING.name],
            f"power over products a second, as the released script computes it; {powers_text}, {ENERGY_CORE_COUNT}"
            " cores",
        )
        yield Row(
            3,
            f"energy of {name} over Lightning's, power times serve time",
            published,
            POWER_W_BY_PROCESSOR[name]
            / POWER_W_BY_PROCESSOR[LIGHTNING.name]
            * fmean(map(fmean, _compute_ratios(times_by_trace, name))),
            f"{powers_text}; serve times of figure 2, with {LIGHTNING.core_count} cores",
        )
