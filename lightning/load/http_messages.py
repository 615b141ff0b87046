"""Encoded requests of the Open Inference Protocol, and detection of the end of an answer.

The protocol is https://github.com/kserve/open-inference-protocol. Binary tensors are Triton's extension: little-endian
bytes of the tensors follow a JSON document, whose length is in `Inference-Header-Content-Length`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning.load.inputs import Rows
from lightning.load.targets import LoadError, Target

DTYPE_BY_DATATYPE = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}


@dataclass(frozen=True)
class ModelInput:
    """The input tensor of a model, from its metadata. `shape` is the shape of a row, without the batch axis."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def parse_input(metadata: Any) -> ModelInput:
    """Return the input in a model's metadata, whose first axis is the batch.

    Raise `LoadError` unless the model has one input, with numbers and a fixed shape.
    """
    try:
        (entry,) = metadata["inputs"]
        name, datatype, shape = (
            str(entry["name"]),
            str(entry["datatype"]),
            [int(length) for length in entry["shape"]],
        )
    except (TypeError, KeyError, ValueError) as error:
        raise LoadError(
            f"the model's metadata does not name exactly one input tensor ({metadata!r:.200})",
            hint="Use a model with one input",
        ) from error
    if datatype not in DTYPE_BY_DATATYPE or any(length < 1 for length in shape[1:]):
        raise LoadError(
            f"input {name!r} is {datatype} {shape}, for which no data can be generated",
            hint="Use models with numeric inputs and a fixed shape after the batch axis",
        )
    return ModelInput(name, datatype, tuple(shape[1:]))


def encode_requests(
    target: Target, model: str, model_input: ModelInput, rows: Rows, *, binary: bool
) -> list[bytes]:
    """Return an encoded HTTP request with batch size 1 for each row."""
    make_body = _make_binary_body if binary else _make_json_body
    start_lines = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
    requests = []
    for row in rows:
        headers, content = make_body(model_input, row.astype(DTYPE_BY_DATATYPE[model_input.datatype])[None])
        request_head = f"{start_lines}{headers}Content-Length: {len(content)}\r\n\r\n"
        requests.append(request_head.encode() + content)
    return requests


def _make_json_body(model_input: ModelInput, tensor: Rows) -> tuple[str, bytes]:
    tensor_entry = {
        "name": model_input.name,
        "shape": tensor.shape,
        "datatype": model_input.datatype,
        "data": tensor.ravel().tolist(),
    }
    content = json.dumps({"inputs": [tensor_entry]}, separators=(",", ":")).encode()
    return "Content-Type: application/json\r\n", content


def _make_binary_body(model_input: ModelInput, tensor: Rows) -> tuple[str, bytes]:
    tensor_entry = {
        "name": model_input.name,
        "shape": tensor.shape,
        "datatype": model_input.datatype,
        "parameters": {"binary_data_size": tensor.nbytes},
    }
    document = {"inputs": [tensor_entry], "parameters": {"binary_data_output": True}}
    json_document = json.dumps(document, separators=(",", ":")).encode()
    headers = (
        f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(json_document)}\r\n"
    )
    return headers, json_document + np.ascontiguousarray(tensor).tobytes()


@dataclass(frozen=True)
class Reply:
    """A complete HTTP answer at the start of a buffer."""

    status: int
    length: int
    """Length of the answer in bytes."""
    closes_connection: bool
    """True if the server closes the connection after the answer."""


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


def parse_reply(buffer: bytes) -> Reply | None:
    r"""Return the answer at the start of a buffer, or None while it is incomplete.

    Raise `LoadError` if it is not HTTP/1.

    >>> parse_reply(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    Reply(status=200, length=40, closes_connection=False)
    >>> parse_reply(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{")
    """
    if not (buffer.startswith(b"HTTP/1.") and buffer[9:12].isdigit()) and len(buffer) >= 12:
        raise LoadError(
            f"the server answered {bytes(buffer[:40])!r}, which is not HTTP/1.1",
            hint="Give the address of an HTTP server",
        )
    length = find_message_length(buffer)
    if length is None:
        return None
    closes_connection = _CLOSES.search(buffer, 0, buffer.index(b"\r\n\r\n")) is not None
    return Reply(int(buffer[9:12]), length, closes_connection)


def find_message_length(buffer: bytes) -> int | None:
    """Return the length of the HTTP message at the start of a buffer, or None while it is incomplete."""
    start = buffer.find(b"\r\n\r\n") + 4
    if start < 4:
        return None
    if length_match := _LENGTH.search(buffer, 0, start):
        end = start + int(length_match[1])
    elif _CHUNKED.search(buffer, 0, start):
        last_chunk = buffer.find(b"0\r\n\r\n", start)
        end = last_chunk + 5 if last_chunk >= 0 else len(buffer) + 1
    else:
        end = start
    return end if len(buffer) >= end else None
