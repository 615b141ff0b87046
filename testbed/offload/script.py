"""Scripts of users: a file of Python that names a dataset, a transform, a model's step, and a batch size."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.errors import OffloadError
from testbed.offload.workloads import WORKLOADS, load_workload

MODULE = "offload_script"
NAMES = ("dataset", "step", "transform", "collate", "batch_size", "seed")
DEFAULT_BATCH = 32


@dataclass(frozen=True, slots=True)
class Script:
    """The pipeline of a script and its model's step; `is_simulated` says that the step is a timed wait."""

    name: str
    dataset: Any
    step: Callable[[Any], Any]
    transform: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    batch_size: int = DEFAULT_BATCH
    seed: int | None = None
    is_simulated: bool = False


def load_script(name: str) -> Script:
    """Return the pipeline of a file, or of a workload that is shipped. Raises `OffloadError` for neither."""
    if name in WORKLOADS:
        return _script_of(name, load_workload(name))
    path = Path(name)
    if not path.is_file():
        raise OffloadError(
            f"no script {name}: give a file of Python with `dataset` and `step`, or one of {', '.join(WORKLOADS)}"
        )
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise OffloadError(f"{name} is not a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return _script_of(name, module)


def _script_of(name: str, module: ModuleType) -> Script:
    found = {each: getattr(module, each) for each in NAMES if hasattr(module, each)}
    missing = [each for each in ("dataset", "step") if each not in found]
    if missing:
        raise OffloadError(f"{name} does not name `{missing[0]}`: a script names `dataset` and `step(batch)`")
    is_indexed = hasattr(found["dataset"], "__len__") and hasattr(found["dataset"], "__getitem__")
    if not is_indexed and not hasattr(found["dataset"], "__iter__"):
        raise OffloadError(
            f"the dataset of {name} is not read by index: give it `__len__` and `__getitem__`, as torch's `Dataset`"
            " has, or `__iter__` for a stream"
        )
    return Script(name, is_simulated=bool(getattr(module, "simulated", False)), **found)
