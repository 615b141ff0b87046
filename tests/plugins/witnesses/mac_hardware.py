"""The photonic datapath in SystemVerilog with simulated optics, for the simulators of `fpga.hdl`.

One build serves every network: weights, image and table of layers are written through ports before a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fpga
from fpga.count_action.ports import WORD_BITS, Port, Ports, Rows
from fpga.hdl.design import Design, make_block_design
from fpga.photonic_mac.cycles import Timing, Trace, calculate_cycles, sum_cycles
from fpga.photonic_mac.network import LANE_COUNT, Integers, Network, Optics, count_beats

_FPGA = Path(fpga.__file__).parent
WEIGHT_WORDS = 16896
IMAGE_ROWS = 64
MAX_LAYERS = 4
_MARGIN = 8
"""Cycles that are run beyond the end of an inference."""
_INPUTS = {
    "weight_write_i": 1, "weight_address_i": 15, "weight_data_i": 9 * LANE_COUNT, "image_write_i": 1, "image_row_i": 6,
    "image_data_i": 8 * LANE_COUNT, "layer_write_i": 1, "layer_address_i": 2, "layer_data_i": 56, "layers_i": 3,
    "preamble_i": 8, "limit_i": 32, "sparsity_i": 1, "run_i": 1, "optics_delay_i": 4, "optics_shift_i": 4,
    "optics_gain_i": 9, "optics_noise_i": 1, "optics_seed_i": 32,
}  # fmt: skip
_OUTPUTS = {
    "result_valid_o": 1, "result_o": 16, "layer_o": 2, "class_o": 16, "finished_o": 1, "cycles_o": 32, "fault_o": 1,
    "start_o": 1, "heading_o": 1, "sending_o": 1, "light_o": 1, "open_o": 1, "partial_valid_o": 1,
}  # fmt: skip


def _placed(widths: Mapping[str, int]) -> tuple[Port, ...]:
    ports: list[Port] = []
    for name, width in widths.items():
        ports.append(Port(name, width, ports[-1].column + ports[-1].word_count if ports else 0))
    return tuple(ports)


PORTS = Ports(_placed(_INPUTS), _placed(_OUTPUTS))
"""The ports of `photonic_loopback`."""


def loopback_design() -> Design:
    """Return the whole datapath with simulated optics."""
    return make_block_design("photonic_loopback", PORTS)


def load_rows(network: Network) -> Rows:
    """Return the cycles that write the weights and the table of layers.

    Raises ValueError for a network that is too large.
    """
    _check_size(network)
    words = np.concatenate([_weight_words(weights) for weights in network.layers])
    rows = _rows(max(len(words), len(network.layers)))
    _put(rows, "weight_write_i", np.arange(len(rows)) < len(words))
    _put(rows, "weight_address_i", np.arange(len(rows)))
    rows[: len(words), _columns("weight_data_i")] = words
    table = [_layer_entry(outputs, inputs) for outputs, inputs in network.shapes]
    _put(rows, "layer_write_i", np.arange(len(rows)) < len(table))
    _put(rows, "layer_address_i", np.minimum(np.arange(len(rows)), MAX_LAYERS - 1))
    rows[: len(table), _columns("layer_data_i")] = np.array(table, np.uint64)[:, None]
    return rows


def _layer_entry(outputs: int, inputs: int) -> int:
    """Return a layer in the table: results, products and beats."""
    beats = count_beats(inputs)
    return outputs << 40 | (outputs * beats) << 16 | beats


def _weight_words(weights: Integers) -> Rows:
    """Return the words of a layer as they are sent: sixteen times magnitude and sign (1: not negative)."""
    inputs = weights.shape[1]
    padded = np.pad(weights, ((0, 0), (0, count_beats(inputs) * LANE_COUNT - inputs))).reshape(-1, LANE_COUNT)
    return _packed(np.abs(padded) | (padded >= 0) << 8, 9)


def run_rows(
    network: Network, image: ArrayLike, optics: Optics | None = None, timing: Timing | None = None
) -> Rows:
    """Return the cycles that write an image, start, and wait until the inference is finished.

    Raises ValueError when the timing and the optics differ in their delay.
    """
    optics, timing = optics or Optics(), timing or Timing()
    if timing.delay != optics.delay:
        raise ValueError(f"light is late by {optics.delay} cycles, not {timing.delay}")
    pixels = np.asarray(image, np.int32).ravel()
    words = _packed(
        np.pad(pixels, (0, count_beats(len(pixels)) * LANE_COUNT - len(pixels))).reshape(-1, LANE_COUNT), 8
    )
    cycles = sum_cycles(calculate_cycles(network.shapes, timing))
    rows = _rows(len(words) + cycles + _MARGIN)
    _put(rows, "image_write_i", np.arange(len(rows)) < len(words))
    _put(rows, "image_row_i", np.minimum(np.arange(len(rows)), IMAGE_ROWS - 1))
    rows[: len(words), _columns("image_data_i")] = words
    _put(rows, "run_i", np.arange(len(rows)) == len(words))
    _put(rows, "optics_noise_i", (np.arange(len(rows)) >= len(words)) & optics.noise)
    settings = {
        "layers_i": len(network.layers), "preamble_i": timing.preamble, "limit_i": cycles + 1,
        "sparsity_i": optics.sparsity,
        "optics_delay_i": optics.delay, "optics_shift_i": optics.shift, "optics_gain_i": optics.gain,
        "optics_seed_i": optics.seed,
    }  # fmt: skip
    for name, value in settings.items():
        _put(rows, name, np.full(len(rows), int(value)))
    return rows


@dataclass(frozen=True)
class Inference:
    """Results of the hardware for an image."""

    results: tuple[NDArray[np.int16], ...]
    """Of every layer."""
    chosen: int
    """The class."""
    cycles: int
    """From run to finished, as its own counter says."""
    fault: bool
    """A count went over its target, or light did not come back in time."""
    trace: Trace


def inference(outputs: Rows) -> Inference:
    """Read what came out of the cycles of `run_rows`. Raises ValueError when the inference did not finish."""
    finished = _bits(outputs, "finished_o")
    if not finished.any():
        late = (
            "The hardware reports a fault: light did not come back in time."
            if _bits(outputs, "fault_o")[-1]
            else ""
        )
        raise ValueError(f"the inference did not finish. {late or 'Was the run long enough?'}")
    last = outputs[int(finished.argmax()) + 1]
    valid, layers = _bits(outputs, "result_valid_o"), _values(outputs, "layer_o")
    results = _values(outputs, "result_o").astype(np.uint16).view(np.int16)
    return Inference(
        results=tuple(results[valid & (layers == layer)] for layer in range(int(layers[valid].max()) + 1)),
        chosen=int(last[PORTS.find_output("class_o").column]),
        cycles=int(last[PORTS.find_output("cycles_o").column]),
        fault=bool(last[PORTS.find_output("fault_o").column]),
        trace=_trace(outputs),
    )


def _trace(outputs: Rows) -> Trace:
    names = ("start", "heading", "sending", "light", "open", "partial_valid", "result_valid", "finished")
    return Trace(*(_bits(outputs, f"{name}_o") for name in names))


def _check_size(network: Network) -> None:
    words = sum(outputs * count_beats(inputs) for outputs, inputs in network.shapes)
    widest = max(max(shape) for shape in network.shapes)
    if words > WEIGHT_WORDS or widest > IMAGE_ROWS * LANE_COUNT or len(network.layers) > MAX_LAYERS:
        raise ValueError(
            f"the memories hold {WEIGHT_WORDS} words of weights, {IMAGE_ROWS * LANE_COUNT} activations and {MAX_LAYERS}"
            f" layers; this network has {words}, {widest} and {len(network.layers)}"
        )


def _rows(cycles: int) -> Rows:
    return np.zeros((cycles, PORTS.input_column_count), np.uint64)


def _columns(name: str) -> slice:
    port = PORTS.find_input(name)
    return slice(port.column, port.column + port.word_count)


def _put(rows: Rows, name: str, values: NDArray[np.generic]) -> None:
    rows[:, PORTS.find_input(name).column] = values


def _values(outputs: Rows, name: str) -> Rows:
    return outputs[:, PORTS.find_output(name).column]


def _bits(outputs: Rows, name: str) -> NDArray[np.bool_]:
    return _values(outputs, name).astype(np.bool_)


def _packed(values: NDArray[np.int32], width: int) -> Rows:
    """Return rows of numbers side by side, the first one lowest, as 64-bit words."""
    bits = (values[..., None] >> np.arange(width) & 1).astype(np.bool_).reshape(len(values), -1)
    padded = np.zeros((len(values), -(-bits.shape[1] // WORD_BITS) * WORD_BITS), np.bool_)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)
