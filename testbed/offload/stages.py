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
from types import ModuleType
from typing import Any

DRAWS_MODULE = "lightbed_offload_draws"
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


def count_of(dataset: Any) -> int:
    """Return the number of elements; 0 for a stream that does not say it."""
    return len(dataset) if hasattr(type(dataset), "__len__") else 0


class Runner:
    """Runs the stages of a pipeline, one element after the other where draws must be reproducible."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def read(self, index: int) -> Any:
        """Return the raw element: what `p1` sends."""
        with note_of(index):
            return self.pipeline.dataset[index]

    def finish(self, index: int, raw: Any, epoch: int) -> Any:
        """Return the transformed element."""
        transform = self.pipeline.transform
        if transform is None:
            return raw
        with note_of(index):
            if self.pipeline.seed is None:
                return transform(raw)
            with seed_generators(f"{self.pipeline.seed}/{epoch}/{index}"):
                return transform(raw)

    def element(self, index: int, epoch: int) -> Any:
        """Return an element, read and transformed."""
        if self.pipeline.seed is None or self.pipeline.transform is not None:
            return self.finish(index, self.read(index), epoch)
        with seed_generators(f"{self.pipeline.seed}/{epoch}/{index}"):
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
def note_of(index: int) -> Iterator[None]:
    """Add the index of a sample to any error of its reading or transform; the error keeps its type."""
    try:
        yield
    except Exception as error:
        error.add_note(f"sample {index} of the dataset is broken: {type(error).__name__}")
        raise


@contextmanager
def seed_generators(seed: str) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch for a while; afterwards they have the states that they had.

    One thread at a time does so. Others that draw from Python's generator meanwhile, such as the event loop of Dask,
    get numbers of another one.
    """
    number = random.Random(seed).getrandbits(32)
    draws = _divide_draws()
    with draws.lock, keep_generators():
        random.seed(number)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(number)
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.manual_seed(number)
        before, draws.owner = draws.owner, threading.get_ident()
        try:
            yield
        finally:
            draws.owner = before


@contextmanager
def keep_generators() -> Iterator[None]:
    """Give the generators of Python, numpy and torch the states that they had before the block."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy else None
    torch_state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)


def set_aside_thread() -> None:
    """Give the current thread a random generator of its own, because it belongs to a library and not to the user."""
    _divide_draws().aside.add(threading.get_ident())


def _divide_draws() -> Any:
    """Return who draws from Python's generator, after its two primitives were made to ask for that.

    Everything else in `random` draws by them, also what others imported from it before. All pipelines of a process
    share the answer, and copies of this module that travelled to a worker do, too: it stands in a module of its own.
    """
    draws: Any = sys.modules.setdefault(DRAWS_MODULE, ModuleType(DRAWS_MODULE))
    if hasattr(draws, "lock"):
        return draws
    draws.owner, draws.aside = None, set()
    generator, spare = random.seed.__self__, random.Random()  # type: ignore[attr-defined]

    def is_other() -> bool:
        thread = threading.get_ident()
        return thread in draws.aside or draws.owner not in {None, thread}

    def divide(name: str) -> None:
        own, other = getattr(generator, name), getattr(spare, name)

        def draw(*arguments: Any) -> Any:
            return other(*arguments) if is_other() else own(*arguments)

        draw.__module__, draw.__name__, draw.__qualname__ = "random", name, name
        setattr(generator, name, draw)
        setattr(random, name, draw)

    for name in ("random", "getrandbits"):
        divide(name)
    draws.lock = threading.RLock()
    return draws


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
