"""Loaded models by name. Requests keep their model alive, and a new version takes over when it is warm."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from lightning.compiler.model import CompiledModel
from lightning.errors import ModelFileError, ServingError, UnknownModel
from lightning.execution.interface import Executor
from lightning.serving.model_instance import SLOW_FIDELITIES, FairLock, ModelInstance

Source = str | Path | CompiledModel
"""A file (`.lng`, or a network that compiles without samples), or a compiled model."""

MODEL_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Valid names of models. Names are parts of URLs and file names."""


class Lease:
    """The use of a model by a request: `with repository.acquire(name) as instance`."""

    __slots__ = ("_repository", "instance")

    def __init__(self, repository: Repository, instance: ModelInstance) -> None:
        self._repository = repository
        self.instance = instance

    def __enter__(self) -> ModelInstance:
        return self.instance

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """End the lease. Call this exactly once, or use `with`."""
        self._repository.release(self.instance)


@dataclass(frozen=True)
class IndexEntry:
    """An entry of the index: a loaded model, or a file that can be loaded."""

    name: str
    version: str
    is_ready: bool


class Repository:
    """Models in service, for any number of threads.

    `open_executor` creates the executor of a compiled model, with fidelity, noise and seed. `make_origin` describes
    these to clients. The `.lng` files in `directory` can be loaded by their names without suffix. Clients never supply
    paths.
    """

    def __init__(
        self,
        open_executor: Callable[[CompiledModel], Executor],
        directory: str | Path | None = None,
        make_origin: Callable[[CompiledModel], Mapping[str, Any]] = lambda _: {},
    ) -> None:
        self._open_executor = open_executor
        self._make_origin = make_origin
        self._directory = None if directory is None else Path(directory)
        self._fields_lock = threading.Lock()  # protects all fields below; never held while a model is loaded
        self._load_lock = threading.Lock()  # one load at a time
        self._hardware_lock = FairLock()  # the lock of all models on the hardware, in service or being loaded
        self._instances_by_name: dict[str, ModelInstance] = {}
        self._instances_by_number: dict[int, ModelInstance] = {}
        self._numbers_by_name: dict[str, int] = {}
        self._load_counts: dict[str, int] = {}
        self._sources: dict[str, Source] = {}

    # ------------------------------------------------------------------------------ loading

    def load(self, name: str, source: Source | None = None) -> ModelInstance:
        """Load a model, warm it, and replace the current model of this name. Close the replaced model when it is idle.

        The default `source` is the last source of this name, or else the file in the directory. Raise `UnknownModel` if
        there is neither, and the errors of file, compiler and device. After an error, the current model stays in
        service.
        """
        with self._load_lock:
            model_source = self._find_source(name, source)
            model, path = read_model(model_source)
            instance = self._open_model(name, model, path)
            with self._fields_lock:
                self._sources[name] = model_source
                self._numbers_by_name[name] = instance.number
                self._load_counts[name] = int(instance.version)
                # From here on, requests use the new version. The previous version is closed after its last lease.
                previous = self._instances_by_name.get(name)
                self._instances_by_name[name] = self._instances_by_number[instance.number] = instance
            self._retire(previous)
        return instance

    def unload(self, name: str) -> None:
        """Take a model out of service. Its pending requests are still answered. Raise `UnknownModel` if not loaded."""
        with self._fields_lock:
            instance = self._instances_by_name.pop(name, None)
            if instance is not None:
                del self._instances_by_number[instance.number]
        if instance is None:
            raise self._make_unknown_error(name)
        self._retire(instance)

    def close(self) -> None:
        """Unload all models."""
        for instance in self.list_serving():
            self.unload(instance.name)

    # ------------------------------------------------------------------------------- asking

    def acquire(self, name: str | int, version: str | None = None) -> Lease:
        """Return a lease of the model with this name or number. Raise `UnknownModel` if there is none."""
        with self._fields_lock:
            instance = (
                self._instances_by_number.get(name)
                if isinstance(name, int)
                else self._instances_by_name.get(name)
            )
            if instance is not None and version in {None, instance.version}:
                instance.users += 1
                return Lease(self, instance)
        raise self._make_unknown_error(name, version)

    def release(self, instance: ModelInstance) -> None:
        """End a lease."""
        with self._fields_lock:
            instance.users -= 1
            is_idle = instance.is_retired and instance.users == 0
        if is_idle:
            instance.close()

    def list_serving(self) -> tuple[ModelInstance, ...]:
        """Return the models in service. To run a model, acquire a lease."""
        with self._fields_lock:
            return tuple(self._instances_by_name.values())

    def get_numbers(self) -> Mapping[str, int]:
        """Return the number of every name that was ever loaded."""
        with self._fields_lock:
            return dict(self._numbers_by_name)

    def list_models(self) -> list[IndexEntry]:
        """Return the models in service and the models that can be loaded, sorted by name."""
        with self._fields_lock:
            version_by_name = {name: instance.version for name, instance in self._instances_by_name.items()}
            source_names = set(self._sources)
        names = source_names | set(self._find_files())
        return [
            IndexEntry(name, version_by_name.get(name, ""), name in version_by_name) for name in sorted(names)
        ]

    # ------------------------------------------------------------------------------- inside

    def _open_model(self, name: str, model: CompiledModel, path: Path | None) -> ModelInstance:
        number = self._numbers_by_name.get(name, len(self._numbers_by_name) + 1)
        version = self._load_counts.get(name, 0) + 1
        named_model = replace(
            model, network=replace(model.network, name=name)
        )  # so that errors contain the name that clients use
        with self._hardware_lock:
            executor = self._open_executor(named_model)
        lock = self._hardware_lock if executor.fidelity in SLOW_FIDELITIES else FairLock()
        instance = ModelInstance(
            name, str(version), number, model, executor, path, lock, self._make_origin(model)
        )
        try:
            instance.warm()
        except BaseException:
            instance.close()
            raise
        return instance

    def _retire(self, instance: ModelInstance | None) -> None:
        if instance is None:
            return
        with self._fields_lock:
            instance.is_retired = True
            is_idle = instance.users == 0
        if is_idle:
            instance.close()

    def _find_source(self, name: str, source: Source | None) -> Source:
        check_name(name)
        model_source = source or self._sources.get(name) or self._find_files().get(name)
        if model_source is None:
            raise self._make_unknown_error(name)
        return model_source

    def _find_files(self) -> dict[str, Path]:
        paths: Iterable[Path] = () if self._directory is None else self._directory.glob("*.lng")
        return {path.stem: path for path in paths if MODEL_NAME_PATTERN.fullmatch(path.stem)}

    def _make_unknown_error(self, name: str | int, version: str | None = None) -> UnknownModel:
        wanted_model = f"model {name!r}" if version is None else f"version {version!r} of model {name!r}"
        loaded = ", ".join(
            f"{instance.name} (version {instance.version})" for instance in self.list_serving()
        )
        return UnknownModel(
            f"no {wanted_model} is loaded",
            hint=f"There is {loaded}" if loaded else "No model is loaded: load one first",
        )


def check_name(name: str) -> None:
    """Raise `ServingError` for an invalid name of a model."""
    if MODEL_NAME_PATTERN.fullmatch(name) is None:
        raise ServingError(
            f"{name!r} is not a valid name for a model",
            hint="Use letters, digits, dots, dashes and underscores",
        )


def read_model(source: Source) -> tuple[CompiledModel, Path | None]:
    """Return the compiled model of a source, and its file or None. Raise `ModelFileError` if the file is missing."""
    if isinstance(source, CompiledModel):
        return source, None
    from lightning.compiler.compilation import load_or_compile

    path = Path(source)
    if not path.is_file():
        raise ModelFileError(f"there is no file {str(path)!r}", hint="Create it with `lightning compile`")
    return load_or_compile(path), path
