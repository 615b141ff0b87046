"""From a network to a compiled model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel
from lightning.compiler.options import Options
from lightning.compiler.schemes.published import published_layers
from lightning.errors import CompileError, InputError
from lightning.networks.network import Network
from lightning.networks.ports import raw_of


def compile_network(
    network: Network,
    samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    options: Options | None = None,
    *,
    source: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """Return the network in integers.

    `samples` are raw inputs (n, ...) as in a data file, of which ranges are measured: training data, a hundred or so,
    never those on which accuracy is measured later; for a network with several inputs an array for each, by name. The
    `published` scheme needs none. `source` says where the network comes from and is kept. Raises `CompileError` for a
    network that the scheme cannot carry, and `InputError` for samples that the network does not take.
    """
    options = options or Options()
    if options.scheme == "published":
        layers, seen = published_layers(network), {}
    else:
        from lightning.compiler.schemes.scaled import scaled_layers

        raw = _needed(network, samples)
        layers, seen = scaled_layers(network, raw, options), _origin_of_samples(raw)
    origin = {
        "toolkit": toolkit_version(),
        "source": dict(source or {}),
        "options": dict(options.document),
        "samples": seen,
    }
    return CompiledModel(
        network, layers, options.hardware, options.scheme, options.wrap, origin, options.perfect_scaling
    )


def toolkit_version() -> str:
    """Return the version of the installed distribution; "unknown" in a checkout that is not installed."""
    try:
        return version("lightbed")
    except PackageNotFoundError:
        return "unknown"


def _needed(
    network: Network, samples: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None
) -> npt.NDArray[Any]:
    if samples is None:
        raise CompileError(
            f"the scheme `scaled` measures the ranges of activations of {network.name} on samples, and there are none",
            hint="Compile it with raw inputs, and use MODEL.lng then: "
            "lightning compile NETWORK --samples FILE.npy|FILE.npz|digits -o MODEL.lng",
        )
    if isinstance(samples, Mapping):
        return raw_of(network, samples)
    try:
        found = np.asarray(samples)
    except ValueError as error:
        raise InputError("samples are of different shapes", hint="Give one array (n, ...)") from error
    if found.ndim == 0:
        raise InputError("samples are a single number", hint="Give one array (n, ...)")
    return found


def _origin_of_samples(raw: npt.NDArray[Any]) -> dict[str, Any]:
    return {
        "images": len(raw),
        "shape": list(raw.shape[1:]),
        "type": str(raw.dtype),
        "range": [float(raw.min()), float(raw.max())],
        "sha256": hashlib.sha256(np.ascontiguousarray(raw).tobytes()).hexdigest(),
    }
