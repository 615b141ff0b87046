"""Pooling of ONNX in canonical form: over images, padding and `ceil_mode` as numbers."""

from __future__ import annotations

from typing import Any

from lightning.networks.imports.builder import Builder, Call
from lightning.networks.imports.translators.products import as_image, without_row
from lightning.networks.imports.translators.windows import excess, move_of
from lightning.networks.patches import output_size


def pool(builder: Builder, call: Call) -> str:
    """`MaxPool` or `AveragePool` over one axis or two."""
    x = builder.activation(call)
    if call.outputs > 1:
        raise call.refused("gives indices too", "Export it with one output")
    image, flat = as_image(builder, call, x)
    size = (builder.shapes[image][1], builder.shapes[image][2])
    sides = call.wholes("kernel_shape", (0,) if flat else (0, 0), least=1)
    kernel = (1, sides[0]) if flat else (sides[0], sides[1])
    move = move_of(call, size, kernel, flat=flat)
    strides, pads, dilations = move
    reach = [dilations[axis % 2] * (kernel[axis % 2] - 1) + 1 for axis in range(4)]
    if any(pad >= far for pad, far in zip(pads, reach, strict=True)):
        raise call.refused(f"pads {pads} as much as its kernel {kernel}", "Pad less than the kernel")
    more = excess(size, kernel, move) if call.whole("ceil_mode", 0) else (0, 0)
    all_pads = (pads[0], pads[1], pads[2] + more[0], pads[3] + more[1])
    if min(output_size(size, kernel, strides, all_pads, dilations)) < 1:
        raise call.refused(f"has a kernel {kernel} larger than the image {size}")
    attributes: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    attributes["excess"] = more
    if call.operation == "AveragePool":
        attributes["count_include_pad"] = bool(call.whole("count_include_pad", 0))
    return without_row(builder, call, builder.emit(call.operation, [image], call.name, attributes), flat=flat)


def global_pool(builder: Builder, call: Call) -> str:
    """`GlobalAveragePool` or `GlobalMaxPool` of images or sequences."""
    x = builder.activation(call)
    image, flat = as_image(builder, call, x)
    return without_row(builder, call, builder.emit(call.operation, [image], call.name), flat=flat)
