"""Preprocessing next to an ONNX graph, as metadata: other runtimes pass it over, an import here takes it up."""

from __future__ import annotations

import json
from dataclasses import asdict

from lightning.errors import NetworkError
from lightning.networks.network import Preprocessing

PREPROCESSING = "lightbed.preprocessing"
"""The key in `metadata_props`; the value is a JSON object with the fields of `Preprocessing`."""


def as_metadata(preprocessing: Preprocessing) -> dict[str, str]:
    """Return what a file says of it.

    >>> as_metadata(Preprocessing(scale=0.5))["lightbed.preprocessing"]
    '{"scale": 0.5, "mean": [0.0], "deviation": [1.0], "layout": "as-is"}'
    """
    return {PREPROCESSING: json.dumps(asdict(preprocessing))}


def from_metadata(text: str, name: str) -> Preprocessing:
    """Return the preprocessing that metadata say; `name` is the file's. Raises `NetworkError` where it is damaged."""
    try:
        given = json.loads(text)
        mean, deviation = (tuple(map(float, given[field])) for field in ("mean", "deviation"))
        return Preprocessing(float(given["scale"]), mean, deviation, str(given["layout"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NetworkError(
            f"{name}.onnx: its metadata {PREPROCESSING} are damaged ({error})",
            hint="Write the file again, or say how inputs are prepared: lightning compile --scale",
        ) from error
