"""Layers of the seven networks of the published event simulator, as numbers of products.

A layer is a number of dot products of equal length. As in the published simulator, a convolution counts one dot product
of kernel size for each pair of input channel and output pixel. Embeddings count as dense layers over the vocabulary.
Sources: the published artifact of Lightning (SIGCOMM 2023), and the papers of the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """`dot_product_count` dot products of `dot_product_length` products each.

    They begin when the layers `predecessors` are done.
    """

    dot_product_length: int
    dot_product_count: int
    predecessors: tuple[int, ...] = ()

    @property
    def product_count(self) -> int:
        """The number of products of the layer."""
        return self.dot_product_length * self.dot_product_count


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A network: its layers, and the bytes of a request."""

    name: str
    layers: tuple[Layer, ...]
    request_bytes: int

    @property
    def product_count(self) -> int:
        """The number of products of an inference."""
        return sum(layer.product_count for layer in self.layers)


_IMAGE_BYTES = 224 * 224 * 3
_TOKEN_BYTES = 10
"""Bytes per token in a request, as published."""


def _make_chain(layers: Sequence[tuple[int, int]]) -> tuple[Layer, ...]:
    """Return a chain of layers of (length, count). Each layer waits for its predecessor."""
    return tuple(
        Layer(length, count, (index - 1,) if index else ()) for index, (length, count) in enumerate(layers)
    )


def _make_convolution_shape(
    input_channels: int, kernel: int, output_channels: int, output_size: int
) -> tuple[int, int]:
    return kernel * kernel, input_channels * output_channels * output_size * output_size


def _make_alexnet() -> tuple[Layer, ...]:
    return _make_chain(
        [
            _make_convolution_shape(3, 11, 64, 55),
            _make_convolution_shape(64, 5, 192, 27),
            _make_convolution_shape(192, 3, 384, 13),
            _make_convolution_shape(384, 3, 256, 13),
            _make_convolution_shape(256, 3, 256, 13),
            (9216, 4096),
            (4096, 4096),
            (4096, 1000),
        ]
    )


def _make_vgg(repeats: Sequence[int]) -> tuple[Layer, ...]:
    layers, input_channels, size = [], 3, 224
    for output_channels, repeat in zip((64, 128, 256, 512, 512), repeats, strict=True):
        for _ in range(repeat):
            layers.append(_make_convolution_shape(input_channels, 3, output_channels, size))
            input_channels = output_channels
        size //= 2
    return _make_chain([*layers, (25088, 4096), (4096, 4096), (4096, 1000)])


def _make_resnet18() -> tuple[Layer, ...]:
    """Return ResNet-18. As in the published simulator, a projection follows the block that it is parallel to."""
    layers, input_channels = [_make_convolution_shape(3, 7, 64, 112)], 64
    for output_channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        layers += [
            _make_convolution_shape(input_channels, 3, output_channels, size),
            _make_convolution_shape(output_channels, 3, output_channels, size),
        ]
        if input_channels != output_channels:
            layers.append(_make_convolution_shape(input_channels, 1, output_channels, size))
        layers += [_make_convolution_shape(output_channels, 3, output_channels, size)] * 2
        input_channels = output_channels
    return _make_chain([*layers, (512, 1000)])


def _make_transformer(
    *,
    block_count: int,
    head_count: int,
    width: int,
    token_count: int,
    embedding_lengths: Sequence[int],
    vocabulary_size: int = 0,
) -> tuple[Layer, ...]:
    """Return a transformer: embeddings, then blocks of heads, projection and two dense layers.

    `vocabulary_size` adds the layer that scores tokens.
    """
    layers = [Layer(length, width) for length in embedding_lengths]
    predecessors = tuple(range(len(layers)))
    products_per_head = token_count * width // head_count
    for _ in range(block_count):
        head_outputs = []
        for _ in range(head_count):
            first_layer_index = len(layers)
            layers += [Layer(width, products_per_head, predecessors)] * 3
            layers.append(
                Layer(
                    width // head_count, token_count * token_count, (first_layer_index, first_layer_index + 1)
                )
            )
            layers.append(
                Layer(token_count, products_per_head, (first_layer_index + 2, first_layer_index + 3))
            )
            head_outputs.append(first_layer_index + 4)
        first_layer_index = len(layers)
        layers.append(Layer(width, token_count * width, tuple(head_outputs)))
        layers.append(Layer(width, token_count * 4 * width, (first_layer_index,)))
        layers.append(Layer(4 * width, token_count * width, (first_layer_index + 1,)))
        predecessors = (first_layer_index + 2,)
    if vocabulary_size:
        layers.append(Layer(width, token_count * vocabulary_size, predecessors))
    return tuple(layers)


_EMBEDDING_TABLE_ROWS = (
    9980333, 36084, 17217, 7378, 20134, 3, 7112, 1442, 61, 9758201, 1333352, 313829, 10, 2208, 11156, 122, 4, 970, 14,
    11156, 7267859, 9946608, 415421, 12420, 101, 36,
)  # fmt: skip
"""Rows of the embedding tables of DLRM, as published."""


def _make_dlrm() -> tuple[Layer, ...]:
    embedding_layers = [Layer(rows, 64) for rows in _EMBEDDING_TABLE_ROWS]
    first_layer_index = len(embedding_layers)
    bottom = [Layer(13, 512), Layer(512, 256, (first_layer_index,)), Layer(256, 64, (first_layer_index + 1,))]
    top = [Layer(415, 512, (*range(first_layer_index), first_layer_index + 2))]
    top += [
        Layer(*shape, (first_layer_index + 3 + index,))
        for index, shape in enumerate(((512, 512), (512, 256), (256, 1)))
    ]
    return (*embedding_layers, *bottom, *top)


MODELS: tuple[PublishedModel, ...] = (
    PublishedModel("AlexNet", _make_alexnet(), _IMAGE_BYTES),
    PublishedModel("ResNet-18", _make_resnet18(), _IMAGE_BYTES),
    PublishedModel("VGG-16", _make_vgg((2, 2, 3, 3, 3)), _IMAGE_BYTES),
    PublishedModel("VGG-19", _make_vgg((2, 2, 4, 4, 4)), _IMAGE_BYTES),
    PublishedModel(
        "BERT",
        _make_transformer(
            block_count=24, head_count=16, width=1024, token_count=512, embedding_lengths=(29056,)
        ),
        512 * _TOKEN_BYTES,
    ),
    PublishedModel(
        "GPT-2",
        _make_transformer(
            block_count=48,
            head_count=25,
            width=1600,
            token_count=1024,
            embedding_lengths=(50257, 1024),
            vocabulary_size=50257,
        ),
        1024 * _TOKEN_BYTES,
    ),
    PublishedModel("DLRM", _make_dlrm(), 512 * _TOKEN_BYTES),
)
"""The networks, in the published order."""
