"""An input pipeline and its stages, which run on the trainer and on workers that have no lightbed.

The trainer sends this module by value, with the pipeline. Therefore its top-level imports are only the standard
library.
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
TENSOR_TAG = "tensor of torch, as an array of numpy"
"""Tag of an array that was a tensor. It is a string, because a class would be sent by value with every result."""

TRIM_THRESHOLD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An input pipeline: a dataset, a transform of one element, and a function that makes a batch of elements.

    Without a `transform`, reading includes the transformation and there is no candidate `p1`. `collate` defaults to
    torch's `default_collate`. With a `seed`, the transform draws the same random numbers wherever it runs.
    """

    dataset: Any
    transform: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    seed: int | None = None


def count_elements(dataset: Any) -> int:
    """Return the number of elements, or 0 for a stream of unknown length."""
    return len(dataset) if hasattr(type(dataset), "__len__") else 0


class Runner:
    """The stages of a pipeline. With a seed, only one thread of a process transforms at a time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def read_element(self, index: int) -> Any:
        """Return the raw element at an index, which `p1` sends to workers."""
        with add_index_note(index):
            return self.pipeline.dataset[index]

    def transform_element(self, index: int, raw_element: Any, epoch: int) -> Any:
        """Return the transformed element."""
        transform = self.pipeline.transform
        if transform is None:
            return raw_element
        with add_index_note(index):
            if self.pipeline.seed is None:
                return transform(raw_element)
            with seed_generators(f"{self.pipeline.seed}/{epoch}/{index}"):
                return transform(raw_element)

    def prepare_element(self, index: int, epoch: int) -> Any:
        """Return the element at an index, read and transformed."""
        if self.pipeline.seed is None or self.pipeline.transform is not None:
            return self.transform_element(index, self.read_element(index), epoch)
        with seed_generators(f"{self.pipeline.seed}/{epoch}/{index}"):
            return self.read_element(index)

    def collate(self, elements: list[Any]) -> Any:
        """Return the batch of these elements."""
        if self.pipeline.collate is not None:
            return self.pipeline.collate(elements)
        from torch.utils.data import default_collate

        return default_collate(elements)

    def prepare_batch(self, indices: Sequence[int], epoch: int) -> Any:
        """Read, transform and collate the elements of a batch."""
        return self.collate([self.prepare_element(index, epoch) for index in indices])

    def run_stage(self, stage: str, payload: Any, epoch: int) -> Any:
        """Run a stage. The payload is (index, raw element) for `p1`, an index for `p2`, indices for `p3`."""
        if stage == "p1":
            index, raw_element = payload
            return self.transform_element(index, raw_element, epoch)
        return self.prepare_element(payload, epoch) if stage == "p2" else self.prepare_batch(payload, epoch)


@contextmanager
def add_index_note(index: int) -> Iterator[None]:
    """Add the index of a sample to any error of its reading or transform. The error keeps its type."""
    try:
        yield
    except Exception as error:
        error.add_note(f"sample {index} of the dataset is broken: {type(error).__name__}")
        raise


@contextmanager
def seed_generators(seed: str) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch for the block, then restore their states.

    A lock admits one thread at a time. Meanwhile other threads that draw from Python's generator, such as Dask's event
    loop, get numbers from a spare generator.
    """
    seed_number = random.Random(seed).getrandbits(32)
    owner_record = _divert_draws()
    with owner_record.lock, preserve_generators():
        random.seed(seed_number)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed_number)
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.manual_seed(seed_number)
        previous_owner, owner_record.owner = owner_record.owner, threading.get_ident()
        try:
            yield
        finally:
            owner_record.owner = previous_owner


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the states of the generators of Python, numpy and torch after the block."""
    numpy_module, torch_module = sys.modules.get("numpy"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy_module.random.get_state() if numpy_module else None
    torch_state = torch_module.get_rng_state() if torch_module else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy_module:
            numpy_module.random.set_state(numpy_state)
        if torch_module:
            torch_module.set_rng_state(torch_state)


def use_spare_rng() -> None:
    """Make the current thread always draw from the spare generator. Call it in threads of libraries."""
    _divert_draws().spare_threads.add(threading.get_ident())


def _divert_draws() -> Any:
    """Divert draws of threads that do not own Python's generator, and return the record of its owner.

    The first call in a process patches `random` and `getrandbits`, on which all other functions of `random` rely. Then
    threads that do not own the generator draw from a spare one. The record is a module in `sys.modules`, which all
    copies of this module on a worker share.
    """
    owner_record: Any = sys.modules.setdefault(DRAWS_MODULE, ModuleType(DRAWS_MODULE))
    if hasattr(owner_record, "lock"):
        return owner_record
    owner_record.owner, owner_record.spare_threads = None, set()
    generator, spare_generator = random.seed.__self__, random.Random()  # type: ignore[attr-defined]

    def is_other_thread() -> bool:
        thread = threading.get_ident()
        return thread in owner_record.spare_threads or owner_record.owner not in {None, thread}

    def divert_draws(name: str) -> None:
        method, spare_method = getattr(generator, name), getattr(spare_generator, name)

        def draw(*arguments: Any) -> Any:
            return spare_method(*arguments) if is_other_thread() else method(*arguments)

        draw.__module__, draw.__name__, draw.__qualname__ = "random", name, name
        setattr(generator, name, draw)
        setattr(random, name, draw)

    for name in ("random", "getrandbits"):
        divert_draws(name)
    owner_record.lock = threading.RLock()  # set last, because its presence marks the record as complete
    return owner_record


def convert_to_arrays(value: Any) -> Any:
    """Replace the tensors in a value by numpy arrays, because Dask sends their buffers without a copy."""
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor) and value.dtype is not torch.bfloat16:
        return TENSOR_TAG, value.detach().cpu().numpy()
    return _map_items(value, convert_to_arrays)


def convert_to_tensors(value: Any) -> Any:
    """Invert `convert_to_arrays`."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] == TENSOR_TAG:
        import torch

        array = value[1]
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    return _map_items(value, convert_to_tensors)


def _map_items(value: Any, convert_item: Callable[[Any], Any]) -> Any:
    if type(value) in {list, tuple}:
        return type(value)(convert_item(item) for item in value)
    if type(value) is dict:
        return {key: convert_item(item) for key, item in value.items()}
    return value


def fix_allocator_thresholds() -> bool:
    """Fix the thresholds of glibc's allocator, and return whether that succeeded.

    glibc adapts its thresholds while a program runs: the same transform takes 2.7 or 7 ms of processor time, depending
    on earlier imports. Profiles compare trainer and workers, so both get the same fixed thresholds.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    trim_option, mmap_option = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    return bool(mallopt(mmap_option, MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(trim_option, TRIM_THRESHOLD_BYTES)
    )
