"""Documentation of `infer` for the generated pages, whose body no framework reads."""

from __future__ import annotations

from typing import Any

_PARAMETERS = {"type": "object", "description": "`timeout` in microseconds, `key` of the noise"}

_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "examples": ["UINT8", "FP32"]},
        "parameters": {"type": "object", "description": "`binary_data_size`"},
        "data": {"type": "array", "items": {}, "description": "flat, or nested as `shape` is"},
    },
}

_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": _PARAMETERS,
        "inputs": {"type": "array", "items": _TENSOR},
        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    },
}

INFER: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _REQUEST},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
