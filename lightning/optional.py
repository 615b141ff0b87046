"""Import of optional libraries, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from lightbed.wording import describe_extra
from lightning.errors import MissingLibrary

EXTRA_BY_MODULE = {
    "qick": "qick",
    "Pyro4": "qick",
    "psutil": "qick",
    "matplotlib": "kit",
    "numba": "kit",
    "scipy": "kit",
    "typer": "kit",
    "rich": "kit",
    "pyvisa": "kit",
    "onnx": "inference",
    "onnxruntime": "inference",
    "PIL": "inference",
    "sklearn": "inference",
    "fastapi": "serve",
    "httptools": "serve",
    "orjson": "serve",
    "prometheus_client": "serve",
    "uvicorn": "serve",
    "uvloop": "serve",
    "torch": "torch",
}
"""The extra of lightbed that installs each library."""


def require(module_name: str, purpose: str) -> ModuleType:
    """Import and return an optional module. `purpose` completes the message, as in "to speak to a board".

    Raise `MissingLibrary` if the module or an optional library that it imports is not installed.
    """
    library = module_name.partition(".")[0]
    try:
        return import_module(module_name)
    except ImportError as error:
        if (error.name or library).partition(".")[0] not in {library, *EXTRA_BY_MODULE}:
            raise  # the installation is broken, and no extra would repair it
        missing_module = (error.name or library).partition(".")[0]
        extra = EXTRA_BY_MODULE.get(missing_module, "kit")
        raise MissingLibrary(
            f"{missing_module} is needed {purpose}, but is not installed",
            hint=f"To use it, {describe_extra(extra)}.",
        ) from error
