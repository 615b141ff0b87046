"""Opsets: files of older ones are converted, and those that cannot be are taken as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lightning.errors import NetworkError
from lightning.networks.imports.onnx.parts import OLDEST, OPSETS, newest_opset, opsets_of
from lightning.networks.network import Network
from lightning.optional import needed

TARGET = 21
RUNTIME = 26
"""The newest opset that ONNX Runtime computes; later files are taken as of this one."""


@dataclass(frozen=True)
class Versions:
    """A model as it came, and converted."""

    original: Any
    opset: int
    newest: Any
    converted_to: int | None

    def noted(self, network: Network) -> Network:
        """Return the network with a note of the conversion."""
        if self.converted_to is None:
            return network
        note = f"converted from opset {self.opset} to {self.converted_to}"
        return replace(network, notes=(note, *network.notes))


def converted(model: Any, name: str) -> Versions:
    """Return the model with its operations in an opset that is understood. Raises `NetworkError`."""
    opset = opsets_of(model, name)[""]
    if not OLDEST <= opset <= newest_opset():
        raise NetworkError(
            f"{name}.onnx is of opset {opset}, and {OLDEST} to {newest_opset()} are understood",
            hint="Export it with opset_version=17" if opset < OLDEST else "Run: pip install --upgrade onnx",
        )
    if opset >= OPSETS[0]:
        return Versions(model, opset, model, None)
    converter = needed("onnx.version_converter", "to read ONNX files of older opsets")
    try:
        return Versions(model, opset, converter.convert_version(model, TARGET), TARGET)
    except Exception:  # noqa: BLE001 - the converter raises errors of many classes, and asserts
        return Versions(model, opset, model, None)


def opsets_for_tracing(model: Any, name: str) -> Mapping[str, int]:
    """Return the opsets by domain, none later than the runtime knows."""
    given = opsets_of(model, name)
    return {**given, "": min(given[""], RUNTIME)}
