"""Dense networks for the photonic smartNIC, and the words of its memory and tables.

A model is numbered by its place in the program. Weights lie in memory row by row, in the order in which they are sent;
bias and scale of a row stand in its first word. Integers are little-endian; bit ranges are inclusive.

    memory, 256 bits     [127:0] 16 magnitudes, [143:128] 16 signs (1: not negative),
                         in the first word of a row [167:144] bias, [199:168] scale
    models, 128 bits     [31:0] first word in memory, [55:32] words, [71:56] inputs, [79:72] first layer,
                         [83:80] layers, [84] published, [85] wrap, [86] perfect, [127] in service
    layers, 128 bits     [15:0] outputs, [31:16] beats of a row, [55:32] words, [87:56] step, [88] rectified, [89] last
    look-up, 8 bits      the first activation of every byte; 256 bytes for each model
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga.photonic_mac.network import FULL_SCALE, LANE_COUNT, count_beats
from fpga.program import ProgramError

Words = NDArray[np.uint64]
Floats = NDArray[np.float32]

MAX_MODELS = 16
MAX_LAYERS = 64
"""Layers of all models of a program."""
MAX_MODEL_LAYERS = 15
MAX_ACTIVATIONS = 1024
"""Largest number of inputs of a layer, and of outputs of every layer but the last."""
MAX_SCORES = 356
"""Largest number of outputs of the last layer, which must fit in one packet."""
MODEL_ALIGNMENT_WORDS = 32
"""Every model begins in memory at a multiple of this number of words."""
SUM_LIMIT = 1 << 23
"""Sums with their bias are below this limit in magnitude, so that float32 holds them exactly."""
_FLOAT_INFO = np.finfo(np.float32)


@dataclass(frozen=True, eq=False)
class NicLayer:
    """A dense layer. Arrays are converted to their types; raise ProgramError for shapes and values that do not fit.

    A layer computes `float32(sums + bias) * scale`, in float32.
    """

    weights: NDArray[np.int16]
    """(outputs, inputs), -255 .. 255."""
    bias: NDArray[np.int32]
    """(outputs,), in units of sums."""
    scale: Floats
    """(outputs,), value of one step of a sum."""
    step: np.float32 = np.float32(1)  # noqa: RUF009  # a number, not a call with a state
    """Value of one step of the next layer's activations; 1 after the last layer."""
    has_relu: bool = False
    """Whether negative results become 0."""
    name: str = ""
    """Name of the layer in messages; by default its place in the model."""

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if reason := next(self._find_faults(weights), None):
            raise ProgramError(f"{self.name or 'layer'}: {reason}")
        object.__setattr__(self, "weights", np.ascontiguousarray(weights, np.int16))
        object.__setattr__(self, "bias", np.asarray(self.bias, np.int32))
        object.__setattr__(self, "scale", np.asarray(self.scale, np.float32))
        object.__setattr__(self, "step", np.float32(self.step))

    def _find_faults(self, weights: NDArray[Any]) -> Iterator[str]:
        if weights.ndim != 2 or not weights.size:
            yield f"weights have shape {weights.shape}, not (outputs, inputs)."
            return
        for name, values in (("bias", self.bias), ("scale", self.scale)):
            if np.shape(values) != weights.shape[:1]:
                yield f"{name} has shape {np.shape(values)}, not {weights.shape[:1]}, one for each row."
        if np.abs(weights.astype(np.int64)).max() > FULL_SCALE:
            yield f"weights must be -{FULL_SCALE} to {FULL_SCALE}."
        if np.abs(np.asarray(self.bias, np.int64)).max() >= SUM_LIMIT:
            yield f"biases must be less than {SUM_LIMIT} in magnitude."
        for name, numbers in (("scales", self.scale), ("steps", self.step)):
            floats = np.asarray(numbers, np.float32)
            if not ((floats >= _FLOAT_INFO.tiny) & (floats <= _FLOAT_INFO.max)).all():
                yield f"{name} must be positive normal float32."

    @property
    def output_count(self) -> int:
        """Rows of the layer."""
        return int(self.weights.shape[0])

    @property
    def input_count(self) -> int:
        """Terms of a row."""
        return int(self.weights.shape[1])

    @property
    def beat_count(self) -> int:
        """Words of a row, each sent in one cycle."""
        return count_beats(self.input_count)

    @property
    def word_count(self) -> int:
        """Words of the layer."""
        return self.output_count * self.beat_count

    @property
    def max_magnitudes(self) -> NDArray[np.int64]:
        """(outputs,) the largest magnitude that sum and bias of each row may reach: full light in every lane.

        Products are less, but noise adds to them, also where a weight is 0.
        """
        return np.asarray(np.abs(self.bias.astype(np.int64)) + self.beat_count * LANE_COUNT * FULL_SCALE)


@dataclass(frozen=True, eq=False)
class NicModel:
    """A chain of dense layers under a name.

    `follows_published_datapath`: activations of later layers are sums (negative sums become 0), shifted so that the
    highest set bit of the largest is bit 7, or with `is_scaling_exact` multiplied so that the largest is 255. Biases
    are 0, scales and steps 1. `wraps_sums`: sums wrap to 16 bits, before the bias. Raise ProgramError for a model that
    the NIC cannot hold; the message has its name.
    """

    name: str
    layers: tuple[NicLayer, ...]
    follows_published_datapath: bool = False
    wraps_sums: bool = False
    look_up_table: NDArray[np.uint8] = field(default_factory=lambda: np.arange(256, dtype=np.uint8))
    """(256,), the first activation of every byte; the byte itself by default."""
    is_scaling_exact: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        table = np.asarray(self.look_up_table)
        if table.shape != (256,) or table.min() < 0 or table.max() > FULL_SCALE:
            raise ProgramError(f"{self.name}: the look-up table must have 256 values from 0 to {FULL_SCALE}.")
        object.__setattr__(self, "look_up_table", table.astype(np.uint8))
        if reason := next(self._find_faults(), None):
            raise ProgramError(f"{self.name}: {reason}")

    def _find_faults(self) -> Iterator[str]:
        layer_count = len(self.layers)
        if not 1 <= layer_count <= MAX_MODEL_LAYERS:
            yield f"{layer_count} layers; the NIC takes 1 to {MAX_MODEL_LAYERS} in a model."
            return
        for index, layer in enumerate(self.layers):
            is_last = index + 1 == layer_count
            max_outputs = MAX_SCORES if is_last else MAX_ACTIVATIONS
            subject = layer.name or f"layer {index}"
            if layer.input_count > MAX_ACTIVATIONS:
                yield f"{subject} has {layer.input_count} inputs; the NIC takes up to {MAX_ACTIVATIONS}."
            if layer.output_count > max_outputs:
                kind = "scores" if is_last else "activations"
                yield f"{subject} has {layer.output_count} outputs; the NIC takes up to {max_outputs} {kind}."
            if not is_last and layer.output_count != self.layers[index + 1].input_count:
                yield (
                    f"{subject} has {layer.output_count} outputs, and the next layer takes"
                    f" {self.layers[index + 1].input_count}."
                )
            if layer.max_magnitudes.max() >= SUM_LIMIT:
                row = int(layer.max_magnitudes.argmax())
                yield (
                    f"{subject}, row {row}: sum and bias may reach {layer.max_magnitudes[row]}; the NIC takes less"
                    f" than {SUM_LIMIT}."
                )
            is_beyond = layer.max_magnitudes * layer.scale.astype(np.float64) > float(_FLOAT_INFO.max)
            if is_beyond.any():
                row = int(is_beyond.argmax())
                yield f"{subject}, row {row}: scale {layer.scale[row]} gives results beyond float32."
            if self.follows_published_datapath and (
                layer.bias.any() or (layer.scale != 1).any() or layer.step != 1
            ):
                yield f"{subject} is published, so its biases must be 0, its scales and its step 1."
        if self.is_scaling_exact and not self.follows_published_datapath:
            yield "perfect scaling is for published models; others have scales."
        if self.layers[-1].step != 1:
            yield "the step after the last layer must be 1."

    @property
    def input_count(self) -> int:
        """Bytes of an input."""
        return self.layers[0].input_count

    @property
    def output_count(self) -> int:
        """Scores of an answer."""
        return self.layers[-1].output_count

    @property
    def word_count(self) -> int:
        """Words of all weights."""
        return sum(layer.word_count for layer in self.layers)


@dataclass(frozen=True, eq=False)
class NicProgram:
    """The models that a NIC serves; a model's number is its place. Raise ProgramError for more than the NIC holds."""

    models: tuple[NicModel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(self.models))
        if len(self.models) > MAX_MODELS:
            name = self.models[MAX_MODELS].name
            raise ProgramError(
                f"{name}: it is model {MAX_MODELS + 1}; the NIC takes up to {MAX_MODELS} models."
            )
        layer_count = 0
        for model in self.models:
            layer_count += len(model.layers)
            if layer_count > MAX_LAYERS:
                raise ProgramError(
                    f"{model.name}: with it there are {layer_count} layers; the NIC takes {MAX_LAYERS}."
                )

    @cached_property
    def model_bases(self) -> tuple[int, ...]:
        """The first word of every model in memory."""
        bases, end = [], 0
        for model in self.models:
            bases.append(end)
            end += -(-model.word_count // MODEL_ALIGNMENT_WORDS) * MODEL_ALIGNMENT_WORDS
        return tuple(bases)

    @cached_property
    def first_layers(self) -> tuple[int, ...]:
        """The first layer of every model in the layer table."""
        first_indices = np.cumsum([0, *(len(model.layers) for model in self.models)])
        return tuple(int(layer_count) for layer_count in first_indices[:-1])

    @property
    def word_count(self) -> int:
        """Number of words of memory, including the gaps between models."""
        return self.model_bases[-1] + self.models[-1].word_count if self.models else 0


def pack_memory(program: NicProgram) -> Words:
    """Return the memory, uint64[words, 4]; 0 between models."""
    memory = np.zeros((program.word_count, 4), np.uint64)
    for base, model in zip(program.model_bases, program.models, strict=True):
        address = base
        for layer in model.layers:
            memory[address : address + layer.word_count] = pack_weights(layer)
            address += layer.word_count
    return memory


def pack_weights(layer: NicLayer) -> Words:
    """Return the words of a layer, uint64[words, 4], row by row; unused lanes have weight 0."""
    padding_count = layer.beat_count * LANE_COUNT - layer.input_count
    weights = np.pad(layer.weights, ((0, 0), (0, padding_count))).reshape(-1, LANE_COUNT)
    packed_words = np.zeros((layer.word_count, 32), np.uint8)
    packed_words[:, :LANE_COUNT] = np.abs(weights)
    packed_words[:, 16:18] = np.packbits(weights >= 0, axis=1, bitorder="little")
    first_words = packed_words[:: layer.beat_count]
    first_words[:, 18:21] = layer.bias.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3]
    first_words[:, 21:25] = layer.scale.astype("<f4").view(np.uint8).reshape(-1, 4)
    return packed_words.view("<u8").astype(np.uint64)


def pack_models(program: NicProgram) -> Words:
    """Return the model table, uint64[16, 2]; missing models are not in service."""
    return _pack_table(
        MAX_MODELS,
        (
            base
            | model.word_count << 32
            | model.input_count << 56
            | first_layer << 72
            | len(model.layers) << 80
            | int(model.follows_published_datapath) << 84
            | int(model.wraps_sums) << 85
            | int(model.is_scaling_exact) << 86
            | 1 << 127
            for base, first_layer, model in zip(
                program.model_bases, program.first_layers, program.models, strict=True
            )
        ),
    )


def pack_layers(program: NicProgram) -> Words:
    """Return the layer table, uint64[64, 2], 0 beyond the last layer."""
    return _pack_table(
        MAX_LAYERS,
        (
            layer.output_count
            | layer.beat_count << 16
            | layer.word_count << 32
            | int(np.float32(layer.step).view(np.uint32)) << 56
            | int(layer.has_relu) << 88
            | int(number == len(model.layers)) << 89
            for model in program.models
            for number, layer in enumerate(model.layers, 1)
        ),
    )


def pack_look_up(program: NicProgram) -> NDArray[np.uint8]:
    """Return the look-up table, uint8[256 * models]; address is number * 256 + byte."""
    return np.concatenate([np.zeros(0, np.uint8), *(model.look_up_table for model in program.models)])


def _pack_table(count: int, values: Iterable[int]) -> Words:
    table = np.zeros((count, 2), np.uint64)
    for index, value in enumerate(values):
        table[index] = value & 0xFFFF_FFFF_FFFF_FFFF, value >> 64
    return table
