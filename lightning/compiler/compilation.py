"""Compilation of a network, or of any model file that a command accepts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.lng_file import load_model
from lightning.compiler.lowering import list_photonic_nodes
from lightning.compiler.model import CompiledModel
from lightning.compiler.options import Options
from lightning.compiler.schemes.published import compile_published
from lightning.errors import CompileError, InputError
from lightning.networks.network import Network, Preprocessing
from lightning.networks.preprocess import pack_named_inputs

if TYPE_CHECKING:
    from lightning.networks.imports.onnx.choices import Choices


def compile_network(
    network: Network,
    samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    options: Options | None = None,
    *,
    source: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """Return the compiled model of a network.

    `samples` are raw inputs (n, ...) that determine the ranges of activations: about a hundred of the training data,
    and none of the test data. For a network with several inputs, pass a mapping from input name to array. The
    `published` scheme needs no samples. `source` describes the origin of the network and is stored. Raise
    `CompileError` if the scheme does not support the network or samples are missing, and `InputError` if the samples do
    not fit the network.
    """
    options = options or Options()
    if options.scheme == "published":
        layers, sample_origin = compile_published(network), {}
    else:
        from lightning.compiler.schemes.scaled import compile_scaled

        raw_samples = _require_samples(network, samples)
        layers, sample_origin = compile_scaled(network, raw_samples, options), _describe_samples(raw_samples)
    origin = {
        "toolkit": get_toolkit_version(),
        "source": dict(source or {}),
        "options": dict(options.document),
        "samples": sample_origin,
    }
    return CompiledModel(
        network, layers, options.hardware, options.scheme, options.wrap, origin, options.perfect_scaling
    )


def get_toolkit_version() -> str:
    """Return the version of the installed distribution, or "unknown" if it is not installed."""
    try:
        return version("lightbed")
    except PackageNotFoundError:
        return "unknown"


def _require_samples(
    network: Network, samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None
) -> npt.NDArray[Any]:
    if samples is None:
        raise CompileError(
            (
                f"scheme `scaled` needs samples to measure the activation ranges of {network.name}, and there "
                "are none"
            ),
            hint=(
                "Compile with raw inputs, then use MODEL.lng: lightning compile NETWORK --samples "
                "FILE.npy|FILE.npz|digits -o MODEL.lng"
            ),
        )
    if isinstance(samples, Mapping):
        return pack_named_inputs(network, samples)
    try:
        array = np.asarray(samples)
    except ValueError as error:
        raise InputError("samples are of different shapes", hint="Give one array (n, ...)") from error
    if array.ndim == 0:
        raise InputError("samples are a single number", hint="Give one array (n, ...)")
    return array


def _describe_samples(raw: npt.NDArray[Any]) -> dict[str, Any]:
    return {
        "images": len(raw),
        "shape": list(raw.shape[1:]),
        "type": str(raw.dtype),
        "range": [float(raw.min()), float(raw.max())],
        "sha256": hashlib.sha256(np.ascontiguousarray(raw).tobytes()).hexdigest(),
    }


def load_or_compile(
    path: str | Path,
    samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    options: Options | None = None,
    preprocessing: Preprocessing | None = None,
    choices: Choices | None = None,
    *,
    choose_scheme: bool = False,
) -> CompiledModel:
    """Return the model in a `.lng` file, or compile the network in an `.onnx` or `.npz` file.

    Without `options`, or with `choose_scheme`, the scheme depends on the file. For an `.npz` of weights without biases
    it is `published` with `perfect_scaling`: the largest activation is scaled to 255, as for the accuracies with noise
    in the paper. (Pass the scheme `published` in `options` to scale activations by shifts, as the datapath does.) For
    all other files it is `scaled`, which needs `samples`. `choices` set the free dimensions, inputs and outputs of an
    ONNX file. Raise the errors of `load_model`, `load_network` and `compile_network`.
    """
    path = Path(path)
    if path.suffix == ".lng":
        return load_model(path)
    from lightning.networks import load_network

    network = load_network(path, preprocessing, choices)
    scheme_options = options or Options()
    if options is None or choose_scheme:
        has_published_form = path.suffix == ".npz" and _has_no_bias(network)
        scheme_options = replace(
            scheme_options,
            scheme="published" if has_published_form else "scaled",
            perfect_scaling=has_published_form,
        )
    content_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return compile_network(
        network, samples, scheme_options, source={"file": path.name, "sha256": content_sha256}
    )


def _has_no_bias(network: Network) -> bool:
    biases = [
        network.constants[node.inputs[2]] for node in list_photonic_nodes(network) if len(node.inputs) > 2
    ]
    return not any(np.any(bias) for bias in biases)
