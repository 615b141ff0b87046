"""VGG16 and ResNet50.

Published totals: VGG16 138.36 M parameters and 15.5 G multiply-adds per image of 224 x 224, ResNet50 25.56 M
and 4.1 G (Simonyan and Zisserman 2015; He et al. 2016; torchvision's tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from testbed.design.workloads.catalogue.blocks import (
    WorkloadBuilder,
    make_convolution,
    make_dense,
    merge_operators,
)
from testbed.design.workloads.catalogue.parameters import Parameters
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError

#: Widths of VGG16's convolutions. The maps are halved after each group.
VGG_GROUPS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
#: ResNet50's stages: number of bottlenecks, and their inner width. All stages but the first begin by halving the maps.
RESNET_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
#: Product of all strides: a smaller image would have empty maps.
RESNET_STRIDE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Vgg16(Parameters):
    """VGG16 for images of side `image`; `padding` and `pool` are 1 and 2 as published, 2 and 3 in TopoOpt's code."""

    image: int = 224
    padding: int = 1
    pool: int = 2
    classes: int = 1000
    batch_per_device: int = 64


def build_vgg16(name: str, parameters: Vgg16, nodes: int, origin: str) -> Workload:
    """Return VGG16: 13 convolutions and 3 dense layers. Raises `WorkloadError` for a small image."""
    builder = WorkloadBuilder()
    inputs: tuple[int, ...] = ()
    channels, side = 3, parameters.image
    for group, widths in enumerate(VGG_GROUPS, 1):
        convolutions, side = _make_group(parameters, f"conv{group}_", (channels, *widths), side)
        inputs, channels = builder.add_chain(convolutions, *inputs), widths[-1]
    sizes = (channels * side * side, 4096, 4096, parameters.classes)
    builder.add_chain(
        (
            make_dense(f"dense{number}", input_size, output_size)
            for number, (input_size, output_size) in enumerate(pairwise(sizes), 1)
        ),
        *inputs,
    )
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def _make_group(
    parameters: Vgg16, prefix: str, channels: tuple[int, ...], side: int
) -> tuple[list[Operator], int]:
    """Return convolutions between these numbers of channels, with a pooling after the last, and the side after it."""
    convolutions = []
    for number, (input_channels, output_channels) in enumerate(pairwise(channels), 1):
        output_side = side + 2 * parameters.padding - 2
        pooled_side = (output_side - parameters.pool) // 2 + 1 if number == len(channels) - 1 else None
        convolutions.append(
            make_convolution(
                f"{prefix}{number}",
                (input_channels, output_channels),
                3,
                (side, output_side),
                pooled_side=pooled_side,
            )
        )
        side = output_side if pooled_side is None else pooled_side
    if side < 1:
        raise WorkloadError(f"vgg16: an image of {parameters.image} is too small for five poolings; use 224")
    return convolutions, side


@dataclass(frozen=True, slots=True, kw_only=True)
class Resnet50(Parameters):
    """ResNet50 for images of side `image`, 224 as published."""

    image: int = 224
    classes: int = 1000
    batch_per_device: int = 128


def build_resnet50(name: str, parameters: Resnet50, nodes: int, origin: str) -> Workload:
    """Return ResNet50: the stem, 16 bottlenecks and a dense layer. Raises `WorkloadError` for a small image."""
    builder = WorkloadBuilder()
    if parameters.image < RESNET_STRIDE:
        raise WorkloadError(
            f"{name}: an image of {parameters.image} is halved five times; use 224, or at least {RESNET_STRIDE}"
        )
    side = _halve(parameters.image)
    pooled_side = _halve(side)
    stem = make_convolution(
        "stem", (3, 64), 7, (parameters.image, side), has_bias=False, pooled_side=pooled_side
    )
    last_index, channels = builder.add_operator(merge_operators("stem", "convolution", [stem], 2 * 64)), 64
    for stage, (count, inner_channels) in enumerate(RESNET_STAGES, 1):
        for block_index in range(1, count + 1):
            sides = (pooled_side, _halve(pooled_side) if stage > 1 and block_index == 1 else pooled_side)
            bottleneck = _make_bottleneck(
                f"stage{stage}_{block_index}",
                channels,
                inner_channels,
                sides,
                has_projection=block_index == 1,
            )
            last_index, channels, pooled_side = (
                builder.add_operator(bottleneck, last_index),
                4 * inner_channels,
                sides[1],
            )
    builder.add_operator(make_dense("dense", channels, parameters.classes), last_index)
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def _make_bottleneck(
    name: str, channels: int, inner_channels: int, sides: tuple[int, int], *, has_projection: bool
) -> Operator:
    """Return a bottleneck: 1x1, 3x3 (with the stride) and 1x1 convolutions.

    With `has_projection`, the shortcut also has a 1x1 convolution. Each convolution is normalised, with a scale and a
    shift per channel.
    """
    side, output_side = sides
    output_channels = 4 * inner_channels
    parts = [
        make_convolution(name, (channels, inner_channels), 1, (side, side), has_bias=False),
        make_convolution(name, (inner_channels, inner_channels), 3, (side, output_side), has_bias=False),
    ]
    if has_projection:
        parts.append(
            make_convolution(name, (channels, output_channels), 1, (side, output_side), has_bias=False)
        )
    parts.append(
        make_convolution(
            name, (inner_channels, output_channels), 1, (output_side, output_side), has_bias=False
        )
    )
    return merge_operators(
        name,
        "bottleneck",
        parts,
        2 * (2 * inner_channels + output_channels + output_channels * has_projection),
    )


def _halve(side: int) -> int:
    """Return the side after a kernel of stride 2 with same padding."""
    return (side + 1) // 2
