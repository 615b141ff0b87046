"""Layers of the seven networks that the published event simulator serves, as counts of products.

A layer is a number of dot products of one length. A convolution counts one dot product of kernel size for each pair of
input channel and output pixel, as the published simulator does. Embeddings count as dense layers over the vocabulary.
Sources: the published artifact of Lightning (SIGCOMM 2023), and the papers of the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """`count` dot products of `length` products each, which begin when the layers `after` are done."""

    length: int
    count: int
    after: tuple[int, ...] = ()

    @property
    def products(self) -> int:
        """The number of products of the layer."""
        return self.length * self.count


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A network: its layers, and the bytes of a request."""

    name: str
    layers: tuple[Layer, ...]
    request_bytes: int

    @property
    def products(self) -> int:
        """The number of products of an inference."""
        return sum(each.products for each in self.layers)


_IMAGE = 224 * 224 * 3
_TOKEN_BYTES = 10
"""Bytes of a token in a request, as published."""


def _chain(layers: Sequence[tuple[int, int]]) -> tuple[Layer, ...]:
    """Return layers of (length, count), each after the one before it."""
    return tuple(
        Layer(length, count, (place - 1,) if place else ()) for place, (length, count) in enumerate(layers)
    )


def _convolution(inputs: int, kernel: int, outputs: int, size: int) -> tuple[int, int]:
    return kernel * kernel, inputs * outputs * size * size


def _alexnet() -> tuple[Layer, ...]:
    return _chain(
        [
            _convolution(3, 11, 64, 55),
            _convolution(64, 5, 192, 27),
            _convolution(192, 3, 384, 13),
            _convolution(384, 3, 256, 13),
            _convolution(256, 3, 256, 13),
            (9216, 4096),
            (4096, 4096),
            (4096, 1000),
        ]
    )


def _vgg(repeats: Sequence[int]) -> tuple[Layer, ...]:
    layers, inputs, size = [], 3, 224
    for outputs, repeat in zip((64, 128, 256, 512, 512), repeats, strict=True):
        for _ in range(repeat):
            layers.append(_convolution(inputs, 3, outputs, size))
            inputs = outputs
        size //= 2
    return _chain([*layers, (25088, 4096), (4096, 4096), (4096, 1000)])


def _resnet18() -> tuple[Layer, ...]:
    """Return ResNet-18; the published simulator runs a projection after the block that it is parallel to."""
    layers, inputs = [_convolution(3, 7, 64, 112)], 64
    for outputs, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        layers += [_convolution(inputs, 3, outputs, size), _convolution(outputs, 3, outputs, size)]
        if inputs != outputs:
            layers.append(_convolution(inputs, 1, outputs, size))
        layers += [_convolution(outputs, 3, outputs, size)] * 2
        inputs = outputs
    return _chain([*layers, (512, 1000)])


def _transformer(
    *, blocks: int, heads: int, width: int, tokens: int, embeddings: Sequence[int], vocabulary: int = 0
) -> tuple[Layer, ...]:
    """Return a transformer: embeddings, then blocks of heads, projection and two dense layers.

    `vocabulary` adds the layer that scores tokens.
    """
    layers = [Layer(each, width) for each in embeddings]
    before = tuple(range(len(layers)))
    part = tokens * width // heads
    for _ in range(blocks):
        heads_done = []
        for _ in range(heads):
            first = len(layers)
            layers += [Layer(width, part, before)] * 3
            layers.append(Layer(width // heads, tokens * tokens, (first, first + 1)))
            layers.append(Layer(tokens, part, (first + 2, first + 3)))
            heads_done.append(first + 4)
        first = len(layers)
        layers.append(Layer(width, tokens * width, tuple(heads_done)))
        layers.append(Layer(width, tokens * 4 * width, (first,)))
        layers.append(Layer(4 * width, tokens * width, (first + 1,)))
        before = (first + 2,)
    if vocabulary:
        layers.append(Layer(width, tokens * vocabulary, before))
    return tuple(layers)


_TABLES = (
    9980333, 36084, 17217, 7378, 20134, 3, 7112, 1442, 61, 9758201, 1333352, 313829, 10, 2208, 11156, 122, 4, 970, 14,
    11156, 7267859, 9946608, 415421, 12420, 101, 36,
)  # fmt: skip
"""Rows of the embedding tables of DLRM, as published."""


def _dlrm() -> tuple[Layer, ...]:
    tables = [Layer(rows, 64) for rows in _TABLES]
    first = len(tables)
    bottom = [Layer(13, 512), Layer(512, 256, (first,)), Layer(256, 64, (first + 1,))]
    top = [Layer(415, 512, (*range(first), first + 2))]
    top += [
        Layer(*shape, (first + 3 + place,)) for place, shape in enumerate(((512, 512), (512, 256), (256, 1)))
    ]
    return (*tables, *bottom, *top)


MODELS: tuple[PublishedModel, ...] = (
    PublishedModel("AlexNet", _alexnet(), _IMAGE),
    PublishedModel("ResNet-18", _resnet18(), _IMAGE),
    PublishedModel("VGG-16", _vgg((2, 2, 3, 3, 3)), _IMAGE),
    PublishedModel("VGG-19", _vgg((2, 2, 4, 4, 4)), _IMAGE),
    PublishedModel(
        "BERT",
        _transformer(blocks=24, heads=16, width=1024, tokens=512, embeddings=(29056,)),
        512 * _TOKEN_BYTES,
    ),
    PublishedModel(
        "GPT-2",
        _transformer(
            blocks=48, heads=25, width=1600, tokens=1024, embeddings=(50257, 1024), vocabulary=50257
        ),
        1024 * _TOKEN_BYTES,
    ),
    PublishedModel("DLRM", _dlrm(), 512 * _TOKEN_BYTES),
)
"""The networks, in the published order."""
