"""The `.lng` file: a zip of `model.json`, arrays as `.npy` without pickle, and `SHA256SUMS` over all of them.

Equal models give equal bytes. Reading has a size limit. It checks the contents against the sums, then for consistency,
and raises `ModelFileError` for every fault. The sums detect damage, but do not authenticate the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightbed.output_file import write_output
from lightning.compiler.lowering import list_photonic_nodes, lower_node
from lightning.compiler.model import FULL_VALUE, CompiledModel, Geometry, Hardware, PhotonicLayer
from lightning.compiler.schemes.published import check_published
from lightning.errors import CompileError, LightningError, ModelFileError
from lightning.networks.network import MAX_ACTIVATION_SIZE, Network, Node, Port, Preprocessing
from lightning.networks.operations.operation_list import compute_node
from lightning.networks.preprocess import check_preprocessing

FORMAT_VERSION = 1
"""Version of `model.json`. Later versions are rejected."""
MAX_UNPACKED_BYTES = 2**30
"""Limit of the unpacked size of all members, because a file may declare any size."""
MAX_MEMBER_COUNT = 20_000
_CHECKSUMS_MEMBER = "SHA256SUMS"
_DOCUMENT_MEMBER = "model.json"
_PROGRAM_MEMBER = "program.json"
_COMPILE_HINT = "Compile the model again: lightning compile NETWORK -o MODEL.lng"
_DAMAGE_ERRORS = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError,
    ArithmeticError, RuntimeError, MemoryError, LightningError,
)  # fmt: skip
"""Errors that manipulated bytes may cause in the zip, in JSON, in arrays and in their values."""

Array = npt.NDArray[Any]
_DTYPE_BY_LAYER_ARRAY = {"weights": np.int16, "bias": np.int32, "output_scale": np.float32}


class _TooLarge(ValueError):
    """A file declares more than `MAX_MEMBER_COUNT` or `MAX_UNPACKED_BYTES`."""


def save_model(model: CompiledModel, path: str | Path) -> None:
    """Write a `.lng` file. Raise `ModelFileError` if it cannot be written."""
    try:
        write_output(path, pack_model(model))
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be written ({error.strerror})", hint="Give another path"
        ) from error


def load_model(path: str | Path) -> CompiledModel:
    """Return the model in a `.lng` file. Raise `ModelFileError` if it is invalid, too large, or of a later version."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror})", hint="Check the path") from error
    return unpack_model(content, str(path))


def model_hash(model: CompiledModel) -> str:
    """Return the identity of a model: SHA-256 over the sums of its members, in hexadecimal.

    The count-action program is not included: it follows from the other members, and needs an optional library.
    """
    return hashlib.sha256(_format_checksums(_pack_members(model)).encode()).hexdigest()


def pack_model(model: CompiledModel) -> bytes:
    """Return the bytes of a `.lng` file."""
    members = _pack_members(model) | _pack_program(model)
    members[_CHECKSUMS_MEMBER] = _format_checksums(members).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(members.items()):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # Unix; the default depends on the platform
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, 6)
    return buffer.getvalue()


def unpack_model(content: bytes, name: str = "the model") -> CompiledModel:
    """Return the model in the bytes of a `.lng` file. Raise `ModelFileError`, with `name` in its message."""
    try:
        members = _read_members(content)
        document = json.loads(members[_DOCUMENT_MEMBER])
        _check_format(document, name)
        _verify_checksums(members)
        model = from_document(document, _read_arrays(members))
        check_model(model)
    except ModelFileError:
        raise
    except _TooLarge as error:
        raise ModelFileError(
            f"{name} is too large: {error}", hint="Check where it comes from: no valid model is that large"
        ) from error
    except _DAMAGE_ERRORS as error:
        reason = (
            "" if isinstance(error, zipfile.BadZipFile) else f" ({error})"
        )  # "not a zip file" helps nobody
        raise ModelFileError(
            f"{name} is not a .lng file, or is damaged{reason}", hint=_COMPILE_HINT
        ) from error
    return model


def _pack_members(model: CompiledModel) -> dict[str, bytes]:
    document, arrays = to_document(model)
    text = json.dumps({"format": FORMAT_VERSION, **document}, indent=1, sort_keys=True, allow_nan=False)
    return {
        _DOCUMENT_MEMBER: text.encode(),
        **{f"{name}.npy": _pack_array(values) for name, values in arrays.items()},
    }


def _pack_program(model: CompiledModel) -> dict[str, bytes]:
    """Return the count-action program. Empty if the datapath does not support the model, or a library is missing."""
    from lightning.compiler.datapath.program import make_program

    try:
        return {_PROGRAM_MEMBER: make_program(model).to_json().encode()}
    except (LightningError, ImportError):
        return {}


def _pack_array(values: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values, order="C"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _format_checksums(members: Mapping[str, bytes]) -> str:
    """Return the sums as `sha256sum` prints them."""
    return "".join(f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))


def _read_members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBER_COUNT or sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
            raise _TooLarge(
                f"it declares more than {MAX_MEMBER_COUNT} members, or {MAX_UNPACKED_BYTES} bytes unpacked"
            )
        names = [info.filename for info in infos]
        if len(set(names)) < len(names):
            raise ValueError(f"two of its members are named {max(names, key=names.count)}")
        return {info.filename: _read_member(archive, info) for info in infos}


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the content of a member, limited to its declared size."""
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"{member.filename} uses an unsupported compression")
    with archive.open(member) as stream:
        content = stream.read(member.file_size)
    if len(content) != member.file_size:
        raise ValueError(f"{member.filename} is truncated")
    return content


def _check_format(document: Any, name: str) -> None:
    version = document["format"]
    if type(version) is not int or version < 1:
        raise ValueError(f"format {version!r}")
    if version > FORMAT_VERSION:
        toolkit = document["origin"]["toolkit"]
        raise ModelFileError(
            f"{name} has format {version}, written by lightbed {toolkit}; this version reads up to {FORMAT_VERSION}",
            hint="install a newer lightbed",
        )


def _verify_checksums(members: Mapping[str, bytes]) -> None:
    contents = {name: content for name, content in members.items() if name != _CHECKSUMS_MEMBER}
    if members[_CHECKSUMS_MEMBER].decode("ascii") != _format_checksums(contents):
        raise ValueError("the contents do not match SHA256SUMS")


def _read_arrays(members: Mapping[str, bytes]) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removesuffix(".npy"): _read_array(content)
        for name, content in members.items()
        if name.endswith(".npy")
    }


def _read_array(content: bytes) -> npt.NDArray[Any]:
    """Return an array of numbers from its bytes. Raise `ValueError` if the header declares another size."""
    buffer = io.BytesIO(content)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError("an array of an unsupported version")
    shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(buffer)
    if is_fortran_order or dtype.kind not in "iufb":
        raise ValueError(f"an array of the unsupported type {dtype}")
    return np.frombuffer(content, dtype, offset=buffer.tell()).reshape(shape).copy()


def check_model(model: CompiledModel) -> None:
    """Raise `ModelFileError` for an inconsistent model.

    A model is inconsistent if a node cannot be computed, a photonic node has no layer, a layer has no node, or a number
    is out of range.
    """
    _check_network(model.network)
    if model.scheme not in {"published", "scaled"}:
        raise _make_inconsistency_error(f"unknown scheme {model.scheme!r}")
    if model.perfect_scaling and model.scheme != "published":
        raise _make_inconsistency_error("perfect scaling requires the scheme `published`")
    node_by_name = {node.name: node for node in list_photonic_nodes(model.network)}
    if node_by_name.keys() != model.layers.keys():
        differing_names = ", ".join(sorted(node_by_name.keys() ^ model.layers.keys()))
        raise _make_inconsistency_error(
            f"layers do not match the Gemm and Conv nodes of the network: {differing_names}"
        )
    for name, layer in model.layers.items():
        _check_layer(model.network, node_by_name[name], layer)
    if model.scheme == "published":
        check_published(model.network)


def _check_network(network: Network) -> None:
    if not {network.input, network.output} <= network.shapes.keys():
        raise _make_inconsistency_error(
            f"the input {network.input} or the output {network.output} has no shape"
        )
    for name, shape in network.shapes.items():
        if min(shape, default=1) < 1 or prod(shape) > MAX_ACTIVATION_SIZE:
            raise _make_inconsistency_error(f"activation {name} has the impossible shape {shape}")
    check_preprocessing(network.preprocessing, network.input_shape)
    for ports, tensor_name in ((network.inputs, network.input), (network.outputs, network.output)):
        if ports and sum(port.size for port in ports) != prod(network.shapes[tensor_name]):
            raise _make_inconsistency_error(
                f"{', '.join(port.name for port in ports)} do not make up {tensor_name}"
            )
    defined_tensors, node_names = {network.input, *network.constants}, set()
    for node in network.nodes:
        undefined_inputs = [name for name in node.inputs if name and name not in defined_tensors]
        if undefined_inputs or not node.inputs or node.output not in network.shapes:
            raise _make_inconsistency_error(
                f"{node.operation} {node.name} reads inputs that are not defined yet, or have no shape"
            )
        if node.output in defined_tensors or node.name in node_names:
            raise _make_inconsistency_error(
                f"{node.operation} {node.name} is defined twice, or defines a tensor again"
            )
        _check_node(network, node)
        defined_tensors.add(node.output)
        node_names.add(node.name)
    if network.output not in defined_tensors:
        raise _make_inconsistency_error(f"the output {network.output} is not the output of any node")


def _check_node(network: Network, node: Node) -> None:
    """Raise `ModelFileError` unless the output of `node` for an empty batch has the shape in the model."""
    input_shapes = [network.shapes[name] for name in node.inputs if name in network.shapes]
    empty_batch = {
        name: np.zeros((0, *network.shapes[name]), np.float32)
        for name in node.inputs
        if name in network.shapes
    }
    try:
        shape = compute_node(node, empty_batch, network.constants).shape
    except Exception as error:  # attributes may hold anything
        raise _make_inconsistency_error(
            f"{node.operation} {node.name} cannot be computed ({error!r})"
        ) from error
    expected_shape = network.shapes[node.output]
    keeps_size = node.operation != "Reshape" or prod(input_shapes[0]) == prod(expected_shape)
    if shape != (0, *expected_shape) or not keeps_size:
        raise _make_inconsistency_error(
            f"{node.operation} {node.name} gives {shape[1:]} for an input instead of {expected_shape}"
        )


def _check_layer(network: Network, node: Node, layer: PhotonicLayer) -> None:
    lowered_node = lower_node(network, node)
    sums_shape = lowered_node.weights.shape[:2]
    shapes = layer.weights.shape, layer.bias.shape, layer.output_scale.shape
    if shapes != (lowered_node.weights.shape, sums_shape, sums_shape) or (
        layer.geometry,
        layer.vectors,
    ) != (
        lowered_node.geometry,
        lowered_node.vector_count,
    ):
        raise _make_inconsistency_error(f"layer {node.name} differs in size from its node")
    if prod(network.shapes[node.output]) != layer.position_count * prod(sums_shape):
        raise _make_inconsistency_error(f"layer {node.name} differs in output shape from its node")
    if np.abs(layer.weights).max(initial=0) > FULL_VALUE:
        raise _make_inconsistency_error(f"layer {node.name} has weights beyond -{FULL_VALUE} to {FULL_VALUE}")
    if not (0 < layer.input_scale < np.inf and np.isfinite(layer.output_scale).all()):
        raise _make_inconsistency_error(f"layer {node.name} has scales that are not positive numbers")


def _make_inconsistency_error(problem: str) -> ModelFileError:
    return ModelFileError(f"{problem}", hint=_COMPILE_HINT)


def to_document(model: CompiledModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the document and its arrays by name.

    Raise `CompileError` for an attribute that is not a plain value.
    """
    arrays: dict[str, Array] = {}
    document = {
        "scheme": model.scheme,
        "wrap": model.wrap,
        **({"perfect_scaling": True} if model.perfect_scaling else {}),
        "hardware": asdict(model.hardware),
        "origin": json.loads(json.dumps(dict(model.origin))),
        "network": _make_network_document(model.network, arrays),
        "layers": [
            _make_layer_document(node, layer, index, arrays)
            for index, (node, layer) in enumerate(model.layers.items())
        ],
    }
    return document, arrays


def from_document(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> CompiledModel:
    """Return the model of a document. Raise `KeyError`, `TypeError` or `ValueError` for an invalid document."""
    layers = {layer["node"]: _parse_layer(layer, arrays) for layer in document["layers"]}
    return CompiledModel(
        _parse_network(document["network"], arrays),
        layers,
        Hardware(**document["hardware"]),
        document["scheme"],
        _check_flag("wrap", document["wrap"]),
        dict(document["origin"]),
        _check_flag("perfect_scaling", document.get("perfect_scaling", False)),
    )


def _make_network_document(network: Network, arrays: dict[str, Array]) -> dict[str, Any]:
    array_names = {name: f"constants/{index}" for index, name in enumerate(sorted(network.constants))}
    arrays.update({array_names[name]: np.asarray(values) for name, values in network.constants.items()})
    return {
        "name": network.name,
        "input": network.input,
        "output": network.output,
        "nodes": [_make_node_document(node) for node in network.nodes],
        "constants": array_names,
        "shapes": {name: list(shape) for name, shape in network.shapes.items()},
        "preprocessing": asdict(network.preprocessing),
        "notes": list(network.notes),
        **{
            name: [[port.name, list(port.shape), port.dtype] for port in ports]
            for name, ports in (("inputs", network.inputs), ("outputs", network.outputs))
            if ports
        },
    }


def _parse_network(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Network:
    preprocessing = document["preprocessing"]
    return Network(
        _check_text("the name of the network", document["name"]),
        tuple(_parse_node(node) for node in document["nodes"]),
        {name: arrays[array_name] for name, array_name in document["constants"].items()},
        document["input"],
        document["output"],
        {name: tuple(int(size) for size in shape) for name, shape in document["shapes"].items()},
        Preprocessing(
            preprocessing["scale"],
            tuple(preprocessing["mean"]),
            tuple(preprocessing["deviation"]),
            preprocessing["layout"],
        ),
        tuple(document["notes"]),
        *(tuple(_parse_port(*port) for port in document.get(name, ())) for name in ("inputs", "outputs")),
    )


def _parse_port(name: Any, shape: Any, dtype: Any) -> Port:
    return Port(
        _check_text("the name of a port", name),
        tuple(int(size) for size in shape),
        _check_text(f"the type of port {name}", dtype),
    )


def _make_node_document(node: Node) -> dict[str, Any]:
    try:
        attributes = {name: _encode(value) for name, value in node.attributes.items()}
    except TypeError as error:
        raise CompileError(
            f"{node.operation} {node.name} has an attribute that the file format cannot store: {error}",
            hint="Use numbers, strings, or tuples of them",
        ) from None
    return {
        "name": node.name,
        "operation": node.operation,
        "inputs": list(node.inputs),
        "output": node.output,
        "attributes": attributes,
    }


def _parse_node(document: Mapping[str, Any]) -> Node:
    attributes = {name: _decode(value) for name, value in document["attributes"].items()}
    return Node(
        document["name"], document["operation"], tuple(document["inputs"]), document["output"], attributes
    )


def _encode(value: Any) -> Any:
    """Convert a value for JSON. Infinity, as in a `Clip`, becomes `{"number": "inf"}`, because JSON lacks it.

    Raise `TypeError` for values that are not plain.
    """
    plain_value = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain_value, tuple | list):
        return [_encode(entry) for entry in plain_value]
    if isinstance(plain_value, float) and not math.isfinite(plain_value):
        return {"number": str(plain_value)}
    if plain_value is None or isinstance(plain_value, bool | int | float | str):
        return plain_value
    raise TypeError(f"a {type(plain_value).__name__}")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(entry) for entry in value)
    return float(value["number"]) if isinstance(value, dict) else value


def _make_layer_document(
    node: str, layer: PhotonicLayer, index: int, arrays: dict[str, Array]
) -> dict[str, Any]:
    array_names = {field_name: f"layers/{index}.{field_name}" for field_name in _DTYPE_BY_LAYER_ARRAY}
    arrays.update(
        {
            array_names[field_name]: np.asarray(getattr(layer, field_name), dtype)
            for field_name, dtype in _DTYPE_BY_LAYER_ARRAY.items()
        }
    )
    return {
        "node": node,
        "name": layer.name,
        "input_scale": layer.input_scale,
        "signed": layer.signed,
        "vectors": layer.vectors,
        "geometry": None if layer.geometry is None else asdict(layer.geometry),
        **array_names,
    }


def _parse_layer(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> PhotonicLayer:
    array_by_field = {field_name: arrays[document[field_name]] for field_name in _DTYPE_BY_LAYER_ARRAY}
    for field_name, dtype in _DTYPE_BY_LAYER_ARRAY.items():
        actual_dtype = array_by_field[field_name].dtype
        if actual_dtype != dtype:
            raise ValueError(
                f"{field_name} of layer {document['name']} has the type {actual_dtype}, not {np.dtype(dtype)}"
            )
    geometry = document["geometry"]
    return PhotonicLayer(
        document["name"],
        **array_by_field,
        input_scale=float(document["input_scale"]),
        signed=_check_flag("signed", document["signed"]),
        geometry=None if geometry is None else _parse_geometry(geometry),
        vectors=int(document["vectors"]),
    )


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.40}, not a string")
    return value


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r:.40}, not a boolean")
    return value


def _parse_geometry(document: Mapping[str, Any]) -> Geometry:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    return Geometry(**values)
