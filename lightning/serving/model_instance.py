"""A model in service: one version with its warm executor and the number of its users."""

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
from lightning.execution.interface import Answers, Executor, get_raw_shape

WARM_UP_TYPES = (np.uint8, np.float32, np.int64)
"""Types of warm-up arrays: bytes of packets and images, floats of clients, integers of JSON."""
WARM_UP_VALUE = 127
"""Value of all numbers in a warm-up image. A kernel may skip zeros, which would make the measured time too short."""
WARM_UP_IMAGE_COUNT = 4
"""Number of images in the warm-up batch."""
TIMED_RUN_COUNT = 5
"""Number of timed runs. The shortest time counts, because other processes delay some runs."""
SLOW_FIDELITIES = frozenset({"device", "datapath"})
"""Fidelities with slow images. Only their executor warms them. Their models may share a device."""
MAX_INLINE_S = 0.002
"""Longest work in the thread that receives requests. Another thread runs longer work, so that receiving continues."""
MAX_PIECE_S = 0.05
"""Approximate time for which a batch may hold a model before waiting requests get their turn."""
ANSWER_ORIGIN_KEYS = ("seed", "calibration")
"""Entries of `ModelInstance.origin` that every answer repeats. The metadata contain all entries."""


class FairLock:
    """A lock that serves waiting threads in turn. With `threading.Lock`, one thread can keep the lock from others."""

    __slots__ = ("_owner_lock", "_queue_lock")

    def __init__(self) -> None:
        # The thread that is next in the queue holds this lock, so that no other thread can overtake it.
        self._queue_lock = threading.Lock()
        self._owner_lock = threading.Lock()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self, timeout_s: float = -1) -> bool:
        """Wait for the lock for up to `timeout_s` seconds (negative: for ever); return whether it was acquired."""
        deadline_s = monotonic() + timeout_s
        if not (
            self._queue_lock.acquire(timeout=timeout_s)
            if timeout_s
            else self._queue_lock.acquire(blocking=False)
        ):
            return False
        try:
            if timeout_s < 0:
                return self._owner_lock.acquire()
            return self._owner_lock.acquire(timeout=max(deadline_s - monotonic(), 0))
        finally:
            self._queue_lock.release()

    def release(self) -> None:
        """Pass the lock to the next waiting thread."""
        self._owner_lock.release()


@dataclass(eq=False)
class ModelInstance:
    """A version of a model with its warm executor. Use it only through a `Lease`."""

    name: str
    version: str
    """Number of the load under this name: "1", "2", ..."""
    number: int
    """Number of the name in packets. It is the same for all versions."""
    model: CompiledModel
    executor: Executor
    source: Path | None = None
    lock: FairLock = field(default_factory=FairLock, repr=False)
    """Lock that is held while the executor runs. Models on the same device share it."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Inputs of the computation besides model and keys: seed, noise, calibration, device, version."""
    seconds_per_image: float = 0.0
    """Time of a single image, measured during warm-up; infinite for slow fidelities."""
    users: int = 0
    is_retired: bool = False

    @cached_property
    def raw_shape(self) -> tuple[int, ...]:
        """Shape of one image, without the batch axis."""
        return get_raw_shape(self.model.network)

    @cached_property
    def hash(self) -> str:
        """Hash of the compiled model."""
        from lightning.compiler import model_hash

        return model_hash(self.model)

    @cached_property
    def answer_origin(self) -> dict[str, Any]:
        """Entries of every answer that allow a client to reproduce it."""
        return {
            "hash": self.hash,
            **{key: self.origin[key] for key in ANSWER_ORIGIN_KEYS if key in self.origin},
        }

    @cached_property
    def prefers_bytes(self) -> bool:
        """True if the executor has a compiled function for bytes, so that other data takes longer."""
        return getattr(self.executor, "chain", None) is not None

    @property
    def is_quick(self) -> bool:
        """True if an image is computed in the thread that receives requests."""
        return self.seconds_per_image <= MAX_INLINE_S

    @cached_property
    def worker(self) -> ThreadPoolExecutor:
        """Executor with one thread, for long work in the order of requests."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"model-{self.name}-{self.version}")

    def run(self, inputs: npt.NDArray[np.generic], keys: npt.ArrayLike) -> Answers:
        """Run the executor, one caller at a time. Other callers get their turn between the pieces of a long batch."""
        image_count = len(inputs)
        piece_size = (
            max(int(MAX_PIECE_S / self.seconds_per_image), 1) if self.seconds_per_image else image_count
        )
        if image_count <= piece_size:
            with self.lock:
                return self.executor.run(inputs, keys)
        piece_answers, key_array = [], np.asarray(keys)
        for start in range(0, image_count, piece_size):
            with self.lock:
                piece_slice = slice(start, start + piece_size)
                piece_answers.append(self.executor.run(inputs[piece_slice], key_array[piece_slice]))
        return join_answers(piece_answers)

    def warm(self) -> None:
        """Compile all kernels for contiguous read-only arrays, as requests have them, and time an image."""
        _ = self.answer_origin  # cached here, because the hash takes milliseconds
        with self.lock:
            self.executor.warm()
        if self.executor.fidelity in SLOW_FIDELITIES:
            self.seconds_per_image = math.inf
            return
        for image_count in (WARM_UP_IMAGE_COUNT, 1):
            for datatype in WARM_UP_TYPES:
                self._measure_seconds(image_count, datatype)
        self.seconds_per_image = min(
            self._measure_seconds(1, WARM_UP_TYPES[0]) for _ in range(TIMED_RUN_COUNT)
        )

    def _measure_seconds(self, image_count: int, datatype: type[np.generic]) -> float:
        """Return the time for a batch of images without zeros, which a kernel could skip."""
        shape = (image_count, *self.raw_shape)
        pixels = np.full(shape, WARM_UP_VALUE, datatype).tobytes()
        inputs, keys = np.frombuffer(pixels, datatype).reshape(shape), np.zeros(image_count, np.uint64)
        start_s = time.perf_counter()
        self.run(inputs, keys)
        return time.perf_counter() - start_s

    def close(self) -> None:
        """Close the executor and its thread, which must be idle.

        A slow executor is closed in its own thread, because another model may occupy its device for long.
        """
        if self.executor.fidelity in SLOW_FIDELITIES:
            self.worker.submit(self._close_executor)
        else:
            self._close_executor()
        if "worker" in self.__dict__:
            self.worker.shutdown(wait=False)

    def _close_executor(self) -> None:
        with self.lock:
            self.executor.close()


def join_answers(piece_answers: list[Answers]) -> Answers:
    """Join the answers to the pieces of a batch."""
    counters = Counter[str]()
    for piece in piece_answers:
        counters.update(piece.counters)
    return Answers(
        np.concatenate([piece.scores for piece in piece_answers]), piece_answers[0].cycles, dict(counters)
    )
