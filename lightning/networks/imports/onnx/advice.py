"""Files that cannot be taken with an open batch: with fixed shapes, or refused with an advice that was tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.errors import NetworkError, UnsupportedNode
from lightning.networks.imports.onnx.choices import Choices, chosen
from lightning.networks.imports.onnx.converting import Versions, opsets_for_tracing
from lightning.networks.imports.onnx.entries import is_open, usual_shape
from lightning.networks.imports.onnx.fixed import fixed_network
from lightning.networks.imports.translators.operation_list import CONTRADICTIONS
from lightning.networks.network import Network, Preprocessing

USUAL = (0, 64, 512, 16, 1)
"""Lengths that are tried where the file leaves one open; 0 stands for what is usual with so many axes."""


def fixed_or_advised(
    versions: Versions, name: str, folder: Path, preprocessing: Preprocessing, first: NetworkError
) -> Network:
    """Return the network with the shapes of the file where all are fixed.

    Raises `first`, the refusal with an open batch, with the shapes as advice where they would help; and the refusal
    with fixed shapes where they would not.
    """
    opens = open_entries(versions.newest)
    if not opens:
        return _fixed(versions, name, folder, preprocessing, first)
    for usual in USUAL:
        shapes = {entry.name: usual_shape(entry, usual) for entry in opens}
        try:
            _try(versions, name, folder, preprocessing, shapes)
        except UnsupportedNode as error:
            raise UnsupportedNode(error.what, hint=error.hint) from first
        except (NetworkError, *CONTRADICTIONS):
            continue
        options = " ".join(f"--shape {each}={'x'.join(map(str, shape))}" for each, shape in shapes.items())
        raise type(first)(first.what, hint=f"Fix the shapes of its inputs: {options}") from first
    raise first


def open_entries(model: Any) -> list[Any]:
    """Return the inputs with a length that is not fixed."""
    held = {initialiser.name for initialiser in model.graph.initializer}
    return [entry for entry in model.graph.input if entry.name not in held and is_open(entry)]


def _try(
    versions: Versions,
    name: str,
    folder: Path,
    preprocessing: Preprocessing,
    shapes: dict[str, tuple[int, ...]],
) -> None:
    model = chosen(versions.newest, name, Choices(shapes))
    fixed_network(model, name, folder, preprocessing, opsets_for_tracing(model, name))


def _fixed(
    versions: Versions, name: str, folder: Path, preprocessing: Preprocessing, first: NetworkError
) -> Network:
    """Try the converted model, then the original."""
    models = [versions.newest] if versions.converted_to is None else [versions.newest, versions.original]
    errors = [first]
    for model in models:
        try:
            return fixed_network(model, name, folder, preprocessing, opsets_for_tracing(model, name))
        except UnsupportedNode as refusal:
            errors.append(refusal)
        except (NetworkError, *CONTRADICTIONS):
            continue
    raise errors[1] if len(errors) > 1 else first
