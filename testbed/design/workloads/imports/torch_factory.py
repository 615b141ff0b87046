"""A torch module by the name of the function that makes it, as command lines give it."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from testbed.design.workloads.imports.torch_module import import_torch
from testbed.design.workloads.imports.traced import Imported
from testbed.errors import WorkloadError


def import_factory(name: str, *, batch: int, training: bool = True) -> Imported:
    """Return the workload of what `MODULE:FACTORY` makes: a torch module, and its example inputs, one or several.

    Modules are looked for in the current folder, too. Raises `WorkloadError` that says what is missing.
    """
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise WorkloadError(
            f"--torch {name!r} is not MODULE:FACTORY; write for example --torch my_models:make"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise WorkloadError(f"--torch {name}: {error}; give a module that Python finds here") from error
    except AttributeError as error:
        raise WorkloadError(f"--torch {name}: {error}; give a function of that module") from error
    except Exception as error:
        raise _failed(name, error) from error
    try:
        made = factory()
    except Exception as error:
        raise _failed(name, error) from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise WorkloadError(f"--torch {name}: it must return a pair, the module and its example inputs")
    module, inputs = made
    examples = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return import_torch(module, tuple(examples), batch=batch, training=training, name=factory_name)


def _failed(name: str, error: Exception) -> WorkloadError:
    """Return what the user's own code raised, and where: a traceback would mostly be ours."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return WorkloadError(f"--torch {name}: {where} raised {type(error).__name__}: {error}; correct it there")
