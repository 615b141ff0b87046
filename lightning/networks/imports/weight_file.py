"""Import of weights w1, w2, ... in an `.npz`, as a fully connected network with ReLU between its layers."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np

from lightning.errors import NetworkError
from lightning.networks.network import Floats, Network, Node, Preprocessing

PIXEL_PREPROCESSING = Preprocessing(scale=1 / 255)
"""Default preprocessing of these networks: bytes scaled to 0..1."""

INVALID_FILE_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of zipfile and numpy for a damaged file, or a file of another format."""


def from_weights(path: Path, preprocessing: Preprocessing | None = None) -> Network:
    """Return the network of weights w1 (outputs, inputs), w2, ... and optional biases b1 (outputs,), b2, ...

    Raise `NetworkError` for an invalid file, and for arrays that do not form a chain of layers.
    """
    arrays = _read_arrays(path)
    depth = _check_names(arrays, path)
    constants = {name: _read_layer_array(arrays, name, path) for name in sorted(arrays)}
    nodes: list[Node] = []
    shapes: dict[str, tuple[int, ...]] = {"input": (constants["w1"].shape[1],)}
    for number in range(1, depth + 1):
        source = f"relu{number - 1}" if number > 1 else "input"
        output_count = constants[f"w{number}"].shape[0]
        _check_shapes(constants, number, shapes[source][0], path)
        bias = (f"b{number}",) if f"b{number}" in constants else ()
        nodes.append(Node(f"fc{number}", "Gemm", (source, f"w{number}", *bias), f"fc{number}"))
        shapes[f"fc{number}"] = (output_count,)
        if number < depth:
            nodes.append(Node(f"relu{number}", "Relu", (f"fc{number}",), f"relu{number}"))
            shapes[f"relu{number}"] = (output_count,)
    return Network(
        path.stem,
        tuple(nodes),
        constants,
        "input",
        f"fc{depth}",
        shapes,
        preprocessing or PIXEL_PREPROCESSING,
        (),
    )


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except INVALID_FILE_ERRORS as error:
        raise NetworkError(
            f"{path} cannot be read as arrays: {error}",
            hint="Write it with numpy.savez(path, w1=..., w2=...)",
        ) from error


def _check_names(arrays: dict[str, np.ndarray], path: Path) -> int:
    foreign_names = sorted(name for name in arrays if not re.fullmatch(r"[wb][1-9][0-9]*", name))
    depth = sum(name.startswith("w") for name in arrays)
    missing_names = [f"w{number}" for number in range(1, depth + 1) if f"w{number}" not in arrays]
    unmatched_biases = [name for name in arrays if name.startswith("b") and f"w{name[1:]}" not in arrays]
    if foreign_names or missing_names or unmatched_biases or not depth:
        problem = (
            f"has {', '.join(foreign_names + unmatched_biases)}"
            if foreign_names or unmatched_biases
            else f"lacks {', '.join(missing_names) or 'w1'}"
        )
        raise NetworkError(f"{path} {problem}", hint="Name weights w1, w2, ... and biases b1, b2, ...")
    return depth


def _read_layer_array(arrays: dict[str, np.ndarray], name: str, path: Path) -> Floats:
    array, axis_count = arrays[name], 2 if name.startswith("w") else 1
    if array.dtype.kind not in "iuf" or array.ndim != axis_count or array.size == 0:
        raise NetworkError(
            f"{path}: {name} is {array.dtype} {array.shape}",
            hint="Give numbers: weights (outputs, inputs), biases (outputs,)",
        )
    floats = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(floats).all():
        raise NetworkError(f"{path}: {name} holds NaN or infinity", hint="Train the network again")
    return floats


def _check_shapes(constants: dict[str, Floats], number: int, input_count: int, path: Path) -> None:
    weights = constants[f"w{number}"]
    if weights.shape[1] != input_count:
        raise NetworkError(
            (
                f"{path}: w{number} takes {weights.shape[1]} inputs, but the previous layer has {input_count} "
                "outputs"
            ),
            hint="Store weights as (outputs, inputs)",
        )
    bias = constants.get(f"b{number}")
    if bias is not None and bias.shape != weights.shape[:1]:
        raise NetworkError(
            f"{path}: b{number} has {len(bias)} entries, but w{number} has {len(weights)} outputs"
        )
