"""A compiled model from any file that a command takes: compiled already, or a network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lightning.compiler.compilation import compile_network
from lightning.compiler.lng_file.archive import load_model
from lightning.compiler.lowering import photonic_nodes
from lightning.compiler.model import CompiledModel
from lightning.compiler.options import Options
from lightning.networks.network import Network, Preprocessing

if TYPE_CHECKING:
    from lightning.networks.imports.onnx.choices import Choices


def load_or_compile(
    path: str | Path,
    samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    options: Options | None = None,
    preprocessing: Preprocessing | None = None,
    choices: Choices | None = None,
    *,
    choose_scheme: bool = False,
) -> CompiledModel:
    """Return the model in a `.lng`; or the network in an `.onnx` or `.npz`, compiled.

    Without `options`, or with `choose_scheme`, an `.npz` of weights without biases is compiled as `published` with
    activations scaled to 255 (`perfect_scaling`), as the published accuracies under noise assume; everything else as
    `scaled`, which needs `samples`: raw inputs, or arrays by the names of the inputs. `choices` are what an ONNX file
    leaves open. The datapath's own shifts are had by asking for `published`. Raises what
    `load_model`, `load_network` and `compile_network` raise.
    """
    path = Path(path)
    if path.suffix == ".lng":
        return load_model(path)
    from lightning.networks import load_network

    network = load_network(path, preprocessing, choices)
    chosen = options or Options()
    if options is None or choose_scheme:
        published = path.suffix == ".npz" and _unbiased(network)
        chosen = replace(
            chosen,
            scheme="published" if published else "scaled",
            perfect_scaling=published,
        )
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return compile_network(network, samples, chosen, source={"file": path.name, "sha256": content})


def _unbiased(network: Network) -> bool:
    biases = [network.constants[node.inputs[2]] for node in photonic_nodes(network) if len(node.inputs) > 2]
    return not any(np.any(bias) for bias in biases)
