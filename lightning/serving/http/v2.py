"""Documents of the Open Inference Protocol (KServe v2, https://kserve.github.io/website) as values, without sockets.

A request is a JSON document, with binary tensors behind it where a header says how long the document is. That is the
binary tensor extension, as Triton defines it:
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
from lightning.serving.http.binary import DATATYPES, Array, from_bytes, from_lists, shape_of, to_bytes

Document = dict[str, Any]

HEADER_LENGTH = b"inference-header-content-length"
"""The header that says how many bytes of a body are JSON."""

_NO_NUMBER = re.compile("NaN|-?Infinity")
"""What Python writes for numbers that JSON does not have."""

NAMES = {kind: name for name, kind in DATATYPES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """Numbers with a name."""

    name: str
    array: Array


@dataclass(frozen=True, slots=True)
class Wanted:
    """An output that a client asks for."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    """Request of a client."""

    inputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Wanted, ...] = ()
    """Empty: all, in the form that `binary` says."""
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes for the wire; the first `header_length` are JSON, all of them where that is none."""

    content: bytes
    header_length: int | None = None


@cache
def _orjson() -> ModuleType:
    return require("orjson", "to serve models")


# --------------------------------------------------------------------------------------- requests


def decode_request(body: bytes, header_length: int | None = None) -> InferRequest:
    """Return the request in a body. Raises `MalformedRequest`, which names what is wrong."""
    text, rest = _split(body, header_length)
    document = _object(_parse(text), "the request")
    parameters = _parameters(document, "the request")
    binary = _flag(parameters, "binary_data_output")
    inputs, offset = [], 0
    for each in _list(document, "inputs", "the request"):
        tensor, offset = _tensor(_object(each, "an input"), rest, offset)
        inputs.append(tensor)
    if offset != len(rest):
        raise MalformedRequest(
            f"{len(rest) - offset} bytes follow the last tensor",
            hint="Give each binary input its `binary_data_size`",
        )
    outputs = tuple(_find_wanted(each, binary) for each in _list(document, "outputs", "the request", ()))
    return InferRequest(tuple(inputs), _text(document, "id", ""), parameters, outputs, binary)


def decode_object(body: bytes) -> Document:
    """Return the object in a body that may be empty. Raises `MalformedRequest`."""
    return _object(_parse(body), "the request") if body.strip() else {}


def _split(body: bytes, header_length: int | None) -> tuple[bytes, bytes]:
    if header_length is None:
        return body, b""
    if not 0 < header_length <= len(body):
        raise MalformedRequest(
            f"the header announces {header_length} bytes of JSON, but the body has only {len(body)}",
            hint="Put the length of the JSON document into Inference-Header-Content-Length",
        )
    return body[:header_length], body[header_length:]


def _parse(text: bytes) -> object:
    orjson = _orjson()
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if word := _NO_NUMBER.search(error.doc, max(error.pos - 1, 0), error.pos + 8):
            raise MalformedRequest(f"JSON cannot carry {word[0]}", hint="Send finite numbers") from error
        raise MalformedRequest(
            f"the request is not JSON ({error})", hint="Send UTF-8 JSON; binary tensors need their own header"
        ) from error


def _tensor(given: Document, rest: bytes, offset: int) -> tuple[Tensor, int]:
    """Return one input, and where the bytes of the next begin."""
    name = _text(given, "name")
    shape, datatype = shape_of(given.get("shape")), given.get("datatype")
    parameters = _parameters(given, f"input {name!r}")
    if "shared_memory_region" in parameters:
        raise MalformedRequest("shared memory is not supported", hint="Send the tensor in the request")
    size = parameters.get("binary_data_size")
    if size is None:
        return Tensor(name, from_lists(given.get("data"), datatype, shape)), offset
    if type(size) is not int or not 0 <= size <= len(rest) - offset or "data" in given:
        raise MalformedRequest(
            (
                f"input {name!r} needs {str(size)[:80]} bytes according to `binary_data_size`, but "
                f"{len(rest) - offset} arrived"
            ),
            hint=(
                "Send exactly that many bytes after the JSON, in the order of the inputs, and no `data` for "
                "them"
            ),
        )
    # A slice is a copy, and so aligned, as compiled code wants it.
    return Tensor(name, from_bytes(rest[offset : offset + size], datatype, shape)), offset + size


def _find_wanted(given: object, binary: bool) -> Wanted:
    document = _object(given, "an output")
    name = _text(document, "name")
    parameters = _parameters(document, f"output {name!r}")
    for unknown in ("classification", "shared_memory_region"):
        if unknown in parameters:
            raise MalformedRequest(
                f"{unknown!r} of an output is not supported", hint="Request the numbers themselves"
            )
    return Wanted(name, _flag(parameters, "binary_data", default=binary))


def _object(given: object, what: str) -> Document:
    if not isinstance(given, dict):
        raise MalformedRequest(f"{what} is not a JSON object", hint='Send {"inputs": [{"name": ...}]}')
    return given


def _get_value(document: Document, key: str, default: object) -> object:
    """Return the value of a key, or the default; some clients write null for a missing value."""
    found = document.get(key)
    return default if found is None else found


def _list(document: Document, key: str, what: str, default: object = None) -> Any:
    found = _get_value(document, key, default)
    if not isinstance(found, list | tuple):
        raise MalformedRequest(f"{what} has no list {key!r}", hint='Send {"inputs": [{"name": ...}]}')
    return found


def _text(document: Document, key: str, default: str | None = None) -> str:
    found = _get_value(document, key, default)
    if not isinstance(found, str):
        raise MalformedRequest(f"{key!r} is missing or not a string", hint=f"Give {key!r} as a string")
    return found


def _parameters(document: Document, what: str) -> Document:
    return _object(_get_value(document, "parameters", {}), f"`parameters` of {what}")


def _flag(parameters: Document, key: str, *, default: bool = False) -> bool:
    found = parameters.get(key, default)
    if not isinstance(found, bool):
        raise MalformedRequest(f"parameter {key!r} is not a boolean", hint="Send true or false")
    return found


# ---------------------------------------------------------------------------------------- answers


def encode_answer(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Array], parameters: Document
) -> Body:
    """Return the answer to a request, with the outputs it wants in the form it wants. Raises `MalformedRequest`."""
    listed: list[Document] = []
    tails: list[bytes] = []
    for wanted in request.outputs or [Wanted(name, request.binary) for name in outputs]:
        if wanted.name not in outputs:
            raise MalformedRequest(
                f"model {model!r} has no output {wanted.name!r}", hint=f"It has {', '.join(outputs)}"
            )
        listed.append(_output(wanted, outputs[wanted.name], tails))
    document = {"model_name": model, "model_version": version, "id": request.id}
    text = document_bytes(document | {"parameters": parameters, "outputs": listed})
    if not tails:
        return Body(text)
    return Body(b"".join((text, *tails)), len(text))


def _output(wanted: Wanted, array: Array, tails: list[bytes]) -> Document:
    described: Document = {"name": wanted.name, "datatype": NAMES[array.dtype], "shape": list(array.shape)}
    if not wanted.binary:
        return described | {"data": array.ravel()}
    tails.append(to_bytes(array))
    return described | {"parameters": {"binary_data_size": len(tails[-1])}}


def document_bytes(document: Document) -> bytes:
    """Return a document of the protocol; arrays of numbers become lists."""
    orjson = _orjson()
    return bytes(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))
