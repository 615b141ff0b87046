"""Profiling of a user's script, with running workers or with workers that are started for it.

A script is a Python file that defines `dataset` and `step`, and optionally `transform`, `collate`, `batch_size` and
`seed`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lightbed.wording import describe_extra
from testbed.errors import OffloadError
from testbed.offload.configuration import Choice, Configuration
from testbed.offload.engine import Engine, ThreadEngine
from testbed.offload.profile import Narrator, Settings
from testbed.offload.store import Profile
from testbed.offload.workloads import WORKLOADS, load_workload

SCRIPT_MODULE = "offload_script"
SCRIPT_NAMES = ("dataset", "step", "transform", "collate", "batch_size", "seed")
DEFAULT_BATCH = 32


@dataclass(frozen=True, slots=True)
class Script:
    """The pipeline of a script and its model's step. `is_simulated` is True if the step is a timed wait."""

    name: str
    dataset: Any
    step: Callable[[Any], Any]
    transform: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    batch_size: int = DEFAULT_BATCH
    seed: int | None = None
    is_simulated: bool = False


def load_script(name: str) -> Script:
    """Load a script from a file, or an included workload. Raises `OffloadError` if it is missing or incomplete."""
    if name in WORKLOADS:
        return _make_script(name, load_workload(name))
    path = Path(name)
    if not path.is_file():
        raise OffloadError(
            f"no script {name}: give a Python file with `dataset` and `step`, or one of "
            f"{', '.join(WORKLOADS)}"
        )
    spec = importlib.util.spec_from_file_location(SCRIPT_MODULE, path)
    if spec is None or spec.loader is None:
        raise OffloadError(f"{name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT_MODULE] = module
    spec.loader.exec_module(module)
    return _make_script(name, module)


def _make_script(name: str, module: ModuleType) -> Script:
    value_by_name = {
        attribute: getattr(module, attribute) for attribute in SCRIPT_NAMES if hasattr(module, attribute)
    }
    missing_names = [
        required_name for required_name in ("dataset", "step") if required_name not in value_by_name
    ]
    if missing_names:
        raise OffloadError(
            f"{name} does not define `{missing_names[0]}`: a script defines `dataset` and `step(batch)`"
        )
    is_indexed = hasattr(value_by_name["dataset"], "__len__") and hasattr(
        value_by_name["dataset"], "__getitem__"
    )
    if not is_indexed and not hasattr(value_by_name["dataset"], "__iter__"):
        raise OffloadError(
            f"the dataset of {name} cannot be indexed: give it `__len__` and `__getitem__`, as torch's "
            "`Dataset` has, or `__iter__` for a stream"
        )
    return Script(name, is_simulated=bool(getattr(module, "simulated", False)), **value_by_name)


def profile_script(
    name: str, configuration: Configuration, worker_placement: Choice, narrator: Narrator | None = None
) -> tuple[Profile, bool]:
    """Profile a script. Return the profile, and whether the step is simulated. Raises `OffloadError`."""
    try:
        from testbed.offload.loader import OffloadedLoader
    except ImportError as error:
        raise OffloadError(f"profiling needs {error.name}: {describe_extra('offload')}") from error
    script = load_script(name)
    with open_engine(worker_placement, configuration) as engine:
        loader = OffloadedLoader(
            script.dataset,
            script.transform,
            batch_size=script.batch_size,
            collate=script.collate,
            seed=script.seed,
            threads=configuration.threads,
            engine=engine,
            rule=configuration.make_rule(),
        )
        try:
            settings = Settings(
                batches=configuration.batches,
                rounds=configuration.rounds,
                warm_up=configuration.warm_up,
                threshold=configuration.threshold,
                epochs=configuration.epochs,
                store=Path(configuration.store) if configuration.store else None,
                model=configuration.model,
                narrator=narrator,
            )
            return loader.tune(script.step, settings), script.is_simulated
        finally:
            loader.close()


@contextmanager
def open_engine(worker_placement: Choice, configuration: Configuration) -> Iterator[Engine]:
    """Yield the engine on the chosen workers. By default, start workers on this machine, which end with the block."""
    if worker_placement.in_process:
        yield ThreadEngine(worker_placement.workers or 1)
        return
    from testbed.offload.dask_engine import DaskEngine

    certificates = configuration.read_certificates()
    if worker_placement.scheduler is not None:
        yield DaskEngine(worker_placement.scheduler, tls=certificates, weights=configuration.weights)
        return
    if worker_placement.lab is not None:
        from testbed.offload.lab_workers import open_lab_engine

        with open_lab_engine(
            worker_placement.lab,
            worker_placement.runs,
            worker_placement.workers,
            tls=certificates,
            weights=configuration.weights,
        ) as engine:
            yield engine
        return
    from testbed.offload.local_workers import start_local_workers

    with start_local_workers(worker_placement.workers or 1, certificates) as address:
        yield DaskEngine(address, tls=certificates, weights=configuration.weights)
