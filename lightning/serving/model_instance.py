"""A model in service: one version, its warm executor, and who is using it."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel
from lightning.execution.interface import Answers, Executor, raw_shape

WIRE = (np.uint8, np.float32, np.int64)
"""Types of arrays that a model is warmed with: of packets and images, of clients, of JSON."""
LIT = 127
"""Every number of an image that a model is warmed with."""
BATCH = 4
"""Images of the batch that a model is warmed with."""
TIMED = 5
"""Runs of which the shortest is what an image takes: others are disturbed."""
SLOW = frozenset({"device", "datapath"})
"""Fidelities of which one image takes so long that only their own `warm` is run. Their models may share one device."""
AT_ONCE_S = 0.002
"""Work that is done where the request arrives. Longer work goes to a thread, so that others are received."""
PIECE_S = 0.05
"""How long a batch keeps a model, about: then others who wait have their turn."""
MARKS = ("seed", "calibration")
"""Of what answers depend on, what each of them says; the model's metadata have the rest."""


class Turn:
    """A lock that is handed on. `threading.Lock` is not: a thread that takes it over and over keeps it from others."""

    __slots__ = ("_door", "_inside")

    def __init__(self) -> None:
        self._door = threading.Lock()  # held by the one who waits next, so that nobody can get past
        self._inside = threading.Lock()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for the turn, for so many seconds (negative: for ever; 0: not at all); whether it came."""
        end = monotonic() + timeout
        if not (self._door.acquire(timeout=timeout) if timeout else self._door.acquire(blocking=False)):
            return False
        try:
            if timeout < 0:
                return self._inside.acquire()
            return self._inside.acquire(timeout=max(end - monotonic(), 0))
        finally:
            self._door.release()

    def release(self) -> None:
        """Give the turn to the next one."""
        self._inside.release()


@dataclass(eq=False)
class ModelInstance:
    """One version of a model with its warm executor. Only a `Lease` may use it."""

    name: str
    version: str
    """The how-manieth that was loaded under this name: "1", "2", ..."""
    number: int
    """Of the name, for packets; the same in all versions."""
    model: CompiledModel
    executor: Executor
    source: Path | None = None
    lock: Turn = field(default_factory=Turn, repr=False)
    """Held while the executor runs. Models that compute on one device have it in common."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What answers depend on besides the model and their keys: seed, noise, calibration, device, version."""
    seconds_per_image: float = 0.0
    """Of one image alone, as measured when it was warm; infinite where that would have taken long."""
    users: int = 0
    retired: bool = False

    @cached_property
    def raw_shape(self) -> tuple[int, ...]:
        """Shape of one image, without the batch axis."""
        return raw_shape(self.model.network)

    @cached_property
    def hash(self) -> str:
        """Hash of all that the model computes with."""
        from lightning.compiler import model_hash

        return model_hash(self.model)

    @cached_property
    def marks(self) -> dict[str, Any]:
        """The entries of every answer by which it can be had again."""
        return {"hash": self.hash, **{key: self.origin[key] for key in MARKS if key in self.origin}}

    @cached_property
    def prefers_bytes(self) -> bool:
        """True where the executor answers bytes in one compiled function, and other data more slowly."""
        return getattr(self.executor, "chain", None) is not None

    @property
    def quick(self) -> bool:
        """True where an image is answered where its request arrives."""
        return self.seconds_per_image <= AT_ONCE_S

    @cached_property
    def worker(self) -> ThreadPoolExecutor:
        """The thread in which long work is done, in the order of requests."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"model-{self.name}-{self.version}")

    def run(self, inputs: npt.NDArray[np.generic], keys: npt.ArrayLike) -> Answers:
        """Return what the executor answers, one caller at a time; others come between pieces of a long batch."""
        images = len(inputs)
        piece = max(int(PIECE_S / self.seconds_per_image), 1) if self.seconds_per_image else images
        if images <= piece:
            with self.lock:
                return self.executor.run(inputs, keys)
        found, numbers = [], np.asarray(keys)
        for first in range(0, images, piece):
            with self.lock:
                some = slice(first, first + piece)
                found.append(self.executor.run(inputs[some], numbers[some]))
        return join(found)

    def warm(self) -> None:
        """Make every kernel with the arrays that come from a network: contiguous and read-only, of each type."""
        _ = self.marks  # kept, for it takes milliseconds
        with self.lock:
            self.executor.warm()
        if self.executor.fidelity in SLOW:
            self.seconds_per_image = math.inf
            return
        for images in (BATCH, 1):
            for datatype in WIRE:
                self._seconds(images, datatype)
        self.seconds_per_image = min(self._seconds(1, WIRE[0]) for _ in range(TIMED))

    def _seconds(self, images: int, datatype: type[np.generic]) -> float:
        """Return how long a batch takes of images without dark points, which could be skipped."""
        shape = (images, *self.raw_shape)
        lit = np.full(shape, LIT, datatype).tobytes()
        inputs, keys = np.frombuffer(lit, datatype).reshape(shape), np.zeros(images, np.uint64)
        started = time.perf_counter()
        self.run(inputs, keys)
        return time.perf_counter() - started

    def close(self) -> None:
        """Release the executor and its thread. Nobody may be using them.

        Hardware may be at another model's work for long, so its executors are let go of in their own thread.
        """
        if self.executor.fidelity in SLOW:
            self.worker.submit(self._let_go)
        else:
            self._let_go()
        if "worker" in self.__dict__:
            self.worker.shutdown(wait=False)

    def _let_go(self) -> None:
        with self.lock:
            self.executor.close()


def join(pieces: list[Answers]) -> Answers:
    """Return the answers for the parts of a batch, as one for all of it."""
    counters = Counter[str]()
    for each in pieces:
        counters.update(each.counters)
    return Answers(np.concatenate([each.scores for each in pieces]), pieces[0].cycles, dict(counters))
