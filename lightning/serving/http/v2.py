"""Codec of the documents of the Open Inference Protocol (KServe v2, https://kserve.github.io/website), without sockets.

A request is a JSON document. If a header states the length of the document, binary tensors may follow. Triton defines
this binary tensor extension:
https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_binary_data.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from lightning.errors import MalformedRequest
from lightning.optional import require
from lightning.serving.http.binary import (
    DTYPE_BY_DATATYPE,
    Array,
    from_bytes,
    from_lists,
    parse_shape,
    to_bytes,
)

Document = dict[str, Any]

JSON_LENGTH_HEADER = b"inference-header-content-length"
"""Name of the header with the number of JSON bytes in a body."""

_NON_JSON_NUMBER = re.compile("NaN|-?Infinity")
"""Python's names for numbers that JSON lacks."""

DATATYPE_BY_DTYPE = {kind: name for name, kind in DTYPE_BY_DATATYPE.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor."""

    name: str
    array: Array


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a client requests."""

    name: str
    is_binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    """An inference request."""

    inputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[RequestedOutput, ...] = ()
    """Requested outputs. If empty, the answer has all outputs, in the form that `prefers_binary` gives."""
    prefers_binary: bool = False


@dataclass(frozen=True, slots=True)
class AnswerBody:
    """The body of an answer. The first `json_length` bytes are JSON; None means all bytes."""

    content: bytes
    json_length: int | None = None


@cache
def _import_orjson() -> ModuleType:
    return require("orjson", "to serve models")


# --------------------------------------------------------------------------------------- requests


def decode_request(body: bytes, json_length: int | None = None) -> InferRequest:
    """Decode the request in a body. Raise `MalformedRequest` with the invalid part."""
    text, binary_data = _split_body(body, json_length)
    document = _check_object(_parse_json(text), "the request")
    parameters = _read_parameters(document, "the request")
    is_binary_default = _read_flag(parameters, "binary_data_output")
    inputs, offset = [], 0
    for entry in _read_list(document, "inputs", "the request"):
        tensor, offset = _parse_tensor(_check_object(entry, "an input"), binary_data, offset)
        inputs.append(tensor)
    if offset != len(binary_data):
        raise MalformedRequest(
            f"{len(binary_data) - offset} bytes follow the last tensor",
            hint="Give each binary input its `binary_data_size`",
        )
    outputs = tuple(
        _parse_output(entry, is_binary_default)
        for entry in _read_list(document, "outputs", "the request", ())
    )
    return InferRequest(tuple(inputs), _read_text(document, "id", ""), parameters, outputs, is_binary_default)


def decode_object(body: bytes) -> Document:
    """Decode a JSON object. An empty body is an empty object. Raise `MalformedRequest` for anything else."""
    return _check_object(_parse_json(body), "the request") if body.strip() else {}


def _split_body(body: bytes, json_length: int | None) -> tuple[bytes, bytes]:
    if json_length is None:
        return body, b""
    if not 0 < json_length <= len(body):
        raise MalformedRequest(
            f"the header announces {json_length} bytes of JSON, but the body has only {len(body)}",
            hint="Put the length of the JSON document into Inference-Header-Content-Length",
        )
    return body[:json_length], body[json_length:]


def _parse_json(text: bytes) -> object:
    orjson = _import_orjson()
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if match := _NON_JSON_NUMBER.search(error.doc, max(error.pos - 1, 0), error.pos + 8):
            raise MalformedRequest(f"JSON cannot carry {match[0]}", hint="Send finite numbers") from error
        raise MalformedRequest(
            f"the request is not JSON ({error})", hint="Send UTF-8 JSON; binary tensors need their own header"
        ) from error


def _parse_tensor(document: Document, binary_data: bytes, offset: int) -> tuple[Tensor, int]:
    """Return an input tensor, and the offset of the next tensor in `binary_data`."""
    name = _read_text(document, "name")
    shape, datatype = parse_shape(document.get("shape")), document.get("datatype")
    parameters = _read_parameters(document, f"input {name!r}")
    if "shared_memory_region" in parameters:
        raise MalformedRequest("shared memory is not supported", hint="Send the tensor in the request")
    size = parameters.get("binary_data_size")
    if size is None:
        return Tensor(name, from_lists(document.get("data"), datatype, shape)), offset
    if type(size) is not int or not 0 <= size <= len(binary_data) - offset or "data" in document:
        raise MalformedRequest(
            (
                f"input {name!r} needs {str(size)[:80]} bytes according to `binary_data_size`, but "
                f"{len(binary_data) - offset} arrived"
            ),
            hint=(
                "Send exactly that many bytes after the JSON, in the order of the inputs, and no `data` for "
                "them"
            ),
        )
    # A slice of bytes is a copy. It is aligned, which compiled code needs.
    return Tensor(name, from_bytes(binary_data[offset : offset + size], datatype, shape)), offset + size


def _parse_output(value: object, is_binary_default: bool) -> RequestedOutput:
    document = _check_object(value, "an output")
    name = _read_text(document, "name")
    parameters = _read_parameters(document, f"output {name!r}")
    for unknown in ("classification", "shared_memory_region"):
        if unknown in parameters:
            raise MalformedRequest(
                f"{unknown!r} of an output is not supported", hint="Request the numbers themselves"
            )
    return RequestedOutput(name, _read_flag(parameters, "binary_data", default=is_binary_default))


def _check_object(value: object, owner: str) -> Document:
    if not isinstance(value, dict):
        raise MalformedRequest(f"{owner} is not a JSON object", hint='Send {"inputs": [{"name": ...}]}')
    return value


def _get_value(document: Document, key: str, default: object) -> object:
    """Return the value of a key, or the default if it is missing or null. Some clients write null."""
    value = document.get(key)
    return default if value is None else value


def _read_list(document: Document, key: str, owner: str, default: object = None) -> Any:
    value = _get_value(document, key, default)
    if not isinstance(value, list | tuple):
        raise MalformedRequest(f"{owner} has no list {key!r}", hint='Send {"inputs": [{"name": ...}]}')
    return value


def _read_text(document: Document, key: str, default: str | None = None) -> str:
    value = _get_value(document, key, default)
    if not isinstance(value, str):
        raise MalformedRequest(f"{key!r} is missing or not a string", hint=f"Give {key!r} as a string")
    return value


def _read_parameters(document: Document, owner: str) -> Document:
    return _check_object(_get_value(document, "parameters", {}), f"`parameters` of {owner}")


def _read_flag(parameters: Document, key: str, *, default: bool = False) -> bool:
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise MalformedRequest(f"parameter {key!r} is not a boolean", hint="Send true or false")
    return value


# ---------------------------------------------------------------------------------------- answers


def encode_answer(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Array], parameters: Document
) -> AnswerBody:
    """Encode an answer with the requested outputs, each in the requested form.

    Raise `MalformedRequest` if the model lacks a requested output.
    """
    entries: list[Document] = []
    binary_parts: list[bytes] = []
    for requested_output in request.outputs or [
        RequestedOutput(name, request.prefers_binary) for name in outputs
    ]:
        if requested_output.name not in outputs:
            raise MalformedRequest(
                f"model {model!r} has no output {requested_output.name!r}",
                hint=f"It has {', '.join(outputs)}",
            )
        entries.append(_encode_output(requested_output, outputs[requested_output.name], binary_parts))
    document = {"model_name": model, "model_version": version, "id": request.id}
    text = encode_document(document | {"parameters": parameters, "outputs": entries})
    if not binary_parts:
        return AnswerBody(text)
    return AnswerBody(b"".join((text, *binary_parts)), len(text))


def _encode_output(requested_output: RequestedOutput, array: Array, binary_parts: list[bytes]) -> Document:
    entry: Document = {
        "name": requested_output.name,
        "datatype": DATATYPE_BY_DTYPE[array.dtype],
        "shape": list(array.shape),
    }
    if not requested_output.is_binary:
        return entry | {"data": array.ravel()}
    binary_parts.append(to_bytes(array))
    return entry | {"parameters": {"binary_data_size": len(binary_parts[-1])}}


def encode_document(document: Document) -> bytes:
    """Return a document as JSON, with numpy arrays as lists."""
    orjson = _import_orjson()
    return bytes(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))
