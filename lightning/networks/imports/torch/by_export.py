"""Modules that `torch.fx` or its importers do not understand, by way of the ONNX file that torch writes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np

from lightning.errors import LightningError
from lightning.networks.imports.onnx.file import from_bytes
from lightning.networks.network import Network, Preprocessing
from lightning.networks.reference import run_float
from lightning.optional import needed

OPSET = 17
CLOSE = 1e-3
"""Of the largest answer."""


def exported(
    module: Any, example_shape: Sequence[int], preprocessing: Preprocessing | None, first: LightningError
) -> Network:
    """Return the network of a module with fixed shapes. Raises `first` where torch cannot write it either."""
    torch = needed("torch", "to import modules")
    needed("onnx", "to import modules that torch.fx does not understand")
    modes = [(part, part.training) for part in module.modules()]
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # the exporter's own advice to its users
            example = torch.zeros(1, *example_shape)
            torch.onnx.export(module.eval(), example, buffer, dynamo=False, opset_version=OPSET)
            network = from_bytes(buffer.getvalue(), type(module).__name__, preprocessing=preprocessing)
            if not _agrees(torch, module, network):
                raise first
    except Exception:  # noqa: BLE001 - the module's own code runs here, and the exporter's
        raise first from None
    finally:
        for part, training in modes:
            part.training = training
    return replace(network, notes=("imported by way of ONNX: " + first.what, *network.notes))


def _agrees(torch: Any, module: Any, network: Network) -> bool:
    """Return whether two images at once give what each gives alone: an export knows one image, and one branch."""
    random = np.random.default_rng(0)
    images = random.standard_normal((2, *network.input_shape)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(images)).numpy()
    found = run_float(network, images)
    limit = CLOSE * max(float(np.abs(wanted).max()), CLOSE)
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= limit)
