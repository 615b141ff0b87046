"""Loaded models by name: a request keeps its model alive, and a new one takes over when it is warm."""

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
from lightning.serving.model_instance import SLOW, ModelInstance, Turn

Source = str | Path | CompiledModel
"""A file (`.lng`, or a network that can be compiled without samples), or what is in one."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a model may be called: it is a part of addresses and of file names."""


class Lease:
    """The time during which one request uses a model: `with repository.acquire(name) as loaded`."""

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
        """Note that the request has been answered. Once, and not after `with`."""
        self._repository.release(self.instance)


@dataclass(frozen=True)
class Listed:
    """A line of the index: a model that is loaded, or a file that could be."""

    name: str
    version: str
    ready: bool


class Repository:
    """Models that answer, for any number of threads.

    `open_model` makes an executor of a compiled model; it decides fidelity, noise and seed, and `origin_of` tells
    them to clients. `directory` holds `.lng` files that may be loaded by their names, without the ending. Paths never
    come from the network.
    """

    def __init__(
        self,
        open_model: Callable[[CompiledModel], Executor],
        directory: str | Path | None = None,
        origin_of: Callable[[CompiledModel], Mapping[str, Any]] = lambda _: {},
    ) -> None:
        self._open = open_model
        self._origin_of = origin_of
        self._directory = None if directory is None else Path(directory)
        self._guard = threading.Lock()  # of all below; never held while a model is loaded
        self._loading = threading.Lock()  # one load at a time
        self._hardware = Turn()  # of all models that compute on it, in service or being made ready
        self._serving: dict[str, ModelInstance] = {}
        self._numbered: dict[int, ModelInstance] = {}
        self._numbers: dict[str, int] = {}
        self._loads: dict[str, int] = {}
        self._sources: dict[str, Source] = {}

    # ------------------------------------------------------------------------------ loading

    def load(self, name: str, source: Source | None = None) -> ModelInstance:
        """Load a model next to the one of this name, warm it, and let it take over; the old one ends when it is idle.

        Without `source` it is read again from where it came, or from the directory. Raises `UnknownModel` when
        there is no such place, and what the file, the compiler or the device say. The old one then goes on.
        """
        with self._loading:
            found = self._source(name, source)
            model, path = _read(found)
            instance = self._open_model(name, model, path)
            with self._guard:
                self._sources[name] = found
                self._numbers[name] = instance.number
                self._loads[name] = int(instance.version)
                old = self._serving.get(name)
                self._serving[name] = self._numbered[instance.number] = instance
            self._retire(old)
        return instance

    def unload(self, name: str) -> None:
        """Take a model out of service. Requests that have it are answered still. Raises `UnknownModel`."""
        with self._guard:
            instance = self._serving.pop(name, None)
            if instance is not None:
                del self._numbered[instance.number]
        if instance is None:
            raise self._unknown(name)
        self._retire(instance)

    def close(self) -> None:
        """Unload everything."""
        for instance in self.serving():
            self.unload(instance.name)

    # ------------------------------------------------------------------------------- asking

    def acquire(self, name: str | int, version: str | None = None) -> Lease:
        """Use the model of this name or number until the lease is released. Raises `UnknownModel`."""
        with self._guard:
            instance = self._numbered.get(name) if isinstance(name, int) else self._serving.get(name)
            if instance is not None and version in {None, instance.version}:
                instance.users += 1
                return Lease(self, instance)
        raise self._unknown(name, version)

    def release(self, instance: ModelInstance) -> None:
        """End a lease."""
        with self._guard:
            instance.users -= 1
            over = instance.retired and instance.users == 0
        if over:
            instance.close()

    def serving(self) -> tuple[ModelInstance, ...]:
        """Return the models in service, to be listed and not to be run."""
        with self._guard:
            return tuple(self._serving.values())

    def numbers(self) -> Mapping[str, int]:
        """Return the number of every name that was ever loaded."""
        with self._guard:
            return dict(self._numbers)

    def index(self) -> list[Listed]:
        """Return the models in service and those that could be loaded, by name."""
        with self._guard:
            ready = {name: instance.version for name, instance in self._serving.items()}
            known = set(self._sources)
        names = known | set(self._files())
        return [Listed(name, ready.get(name, ""), name in ready) for name in sorted(names)]

    # ------------------------------------------------------------------------------- inside

    def _open_model(self, name: str, model: CompiledModel, path: Path | None) -> ModelInstance:
        number = self._numbers.get(name, len(self._numbers) + 1)
        version = self._loads.get(name, 0) + 1
        called = replace(
            model, network=replace(model.network, name=name)
        )  # so that errors name it as clients do
        with self._hardware:
            executor = self._open(called)
        turn = self._hardware if executor.fidelity in SLOW else Turn()
        instance = ModelInstance(
            name, str(version), number, model, executor, path, turn, self._origin_of(model)
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
        with self._guard:
            instance.retired = True
            over = instance.users == 0
        if over:
            instance.close()

    def _source(self, name: str, source: Source | None) -> Source:
        if NAME.fullmatch(name) is None:
            raise ServingError(
                f"{name!r} is not a valid name for a model",
                hint="Use letters, digits, dots, dashes and underscores",
            )
        found = source or self._sources.get(name) or self._files().get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _files(self) -> dict[str, Path]:
        paths: Iterable[Path] = () if self._directory is None else self._directory.glob("*.lng")
        return {path.stem: path for path in paths if NAME.fullmatch(path.stem)}

    def _unknown(self, name: str | int, version: str | None = None) -> UnknownModel:
        which = f"model {name!r}" if version is None else f"version {version!r} of model {name!r}"
        there = ", ".join(f"{each.name} (version {each.version})" for each in self.serving())
        return UnknownModel(
            f"no {which} is loaded",
            hint=f"There is {there}" if there else "Nothing is loaded: load it first",
        )


def _read(source: Source) -> tuple[CompiledModel, Path | None]:
    if isinstance(source, CompiledModel):
        return source, None
    from lightning.compiler.compilation import load_or_compile

    path = Path(source)
    if not path.is_file():
        raise ModelFileError(f"there is no file {str(path)!r}", hint="Create it with `lightning compile`")
    return load_or_compile(path), path
