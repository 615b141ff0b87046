"""A pipeline and its stages: what runs on the trainer, and on workers that have no lightbed installed.

This module travels to the workers by value, with the pipeline: it imports the standard library alone at its head.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MMAP_THRESHOLD_BYTES = 32 << 20
TENSOR = "tensor of torch, as an array of numpy"
"""Mark before an array that was a tensor. A class of ours would travel by value with every result."""

TRIM_THRESHOLD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An input pipeline: a dataset that is read by index, a transform of one element, and how elements are batched.

    Without `transform` reading and transforming are one, so that `p1` does not exist. `collate` is torch's
    `default_collate` when it is not given. With a `seed` the transform draws the same numbers wherever it runs.
    """

    dataset: Any
    transform: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    seed: int | None = None


class Runner:
    """Runs the stages of a pipeline, one element after the other where draws must be reproducible."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._lock = threading.Lock()

    def read(self, index: int) -> Any:
        """Return the raw element: what `p1` sends."""
        return self.pipeline.dataset[index]

    def finish(self, index: int, raw: Any, epoch: int) -> Any:
        """Return the transformed element."""
        transform = self.pipeline.transform
        if transform is None:
            return raw
        if self.pipeline.seed is None:
            return transform(raw)
        with self._lock, seeded(f"{self.pipeline.seed}/{epoch}/{index}"):
            return transform(raw)

    def element(self, index: int, epoch: int) -> Any:
        """Return an element, read and transformed."""
        if self.pipeline.seed is None or self.pipeline.transform is not None:
            return self.finish(index, self.read(index), epoch)
        with self._lock, seeded(f"{self.pipeline.seed}/{epoch}/{index}"):
            return self.read(index)

    def collate(self, elements: list[Any]) -> Any:
        """Return the batch of some elements."""
        if self.pipeline.collate is not None:
            return self.pipeline.collate(elements)
        from torch.utils.data import default_collate

        return default_collate(elements)

    def batch(self, indices: Sequence[int], epoch: int) -> Any:
        """Return a batch, read, transformed and collated."""
        return self.collate([self.element(index, epoch) for index in indices])

    def run(self, stage: str, payload: Any, epoch: int) -> Any:
        """Return what a stage makes of what was sent: (index, raw) for `p1`, an index for `p2`, indices for `p3`."""
        if stage == "p1":
            index, raw = payload
            return self.finish(index, raw, epoch)
        return self.element(payload, epoch) if stage == "p2" else self.batch(payload, epoch)


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch for a while; afterwards they have the states that they had."""
    number = random.Random(seed).getrandbits(32)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    torch_state = torch.get_rng_state() if torch else None
    random.seed(number)
    if numpy:
        numpy.random.seed(number)
    if torch:
        torch.default_generator.manual_seed(number)
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)


def to_wire(value: Any) -> Any:
    """Return a value in which tensors of torch are arrays of numpy, whose buffers travel without a copy."""
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor) and value.dtype is not torch.bfloat16:
        return TENSOR, value.detach().cpu().numpy()
    return _rebuilt(value, to_wire)


def from_wire(value: Any) -> Any:
    """Return the value that `to_wire` was given."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] == TENSOR:
        import torch

        array = value[1]
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    return _rebuilt(value, from_wire)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) in {list, tuple}:
        return type(value)(change(item) for item in value)
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    return value


def set_allocator() -> bool:
    """Set glibc's allocator as on every other side, and return whether that was possible.

    glibc moves its thresholds as a program goes: the same transform costs 2.7 or 7 ms of processor time, depending on
    which libraries were imported before. Profiles compare trainer and workers, so all get the same fixed thresholds.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    trim, mmap = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    return bool(mallopt(mmap, MMAP_THRESHOLD_BYTES)) and bool(mallopt(trim, TRIM_THRESHOLD_BYTES))
