"""Data loader of a training: a torch `IterableDataset` whose batches trainer and workers prepare."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

from testbed.errors import OffloadError
from testbed.offload.engine import Engine
from testbed.offload.epoch import Order, from_ranges, make_order, make_order_of_batches, to_ranges
from testbed.offload.feed import Feed, Rule, Sides, StreamFeed, UnitCounts
from testbed.offload.policy import Decision
from testbed.offload.stages import Pipeline, Runner, seed_generators

if TYPE_CHECKING:
    from testbed.offload.profile import Settings
    from testbed.offload.store import Profile

STATE_VERSION = 1
BATCH_SIZE = 32
"""Batch size for measurements if a `batch_sampler` does not define one."""


class OffloadedLoader(IterableDataset):  # type: ignore[misc]  # torch is Any here
    """Loader of the batches of a dataset, some of which workers prepare.

        loader = OffloadedLoader(dataset, transform, batch_size=64, scheduler="tcp://10.0.0.1:8786")
        loader.tune(step)
        for batch in loader: step(batch)

    Each index occurs exactly once per epoch, at any ratio and even if workers are lost. With a `seed`, the order and
    the transform's random draws are the same in every run. The trainer then prepares in the iterating thread, because
    the generators of Python, numpy and torch belong to the whole process. Without a seed it uses `threads` threads.

    `engine` replaces `scheduler` in tests and for the workers of a lab. `DataLoader(loader, batch_size=None)` can
    iterate the loader. With `num_workers`, each of its processes opens its own connection and takes its share of the
    batches. `sampler` and `batch_sampler` are torch's; `set_epoch` of a `DistributedSampler` is called. An
    `IterableDataset` has no indices, so the trainer reads it and workers only transform elements (`p1`).
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[[Any], Any] | None = None,
        *,
        batch_size: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        threads: int = 1,
        scheduler: str | None = None,
        engine: Engine | Callable[[], Engine] | None = None,
        rule: Rule | None = None,
        retune: bool = False,
    ) -> None:
        super().__init__()
        self.is_stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        self._check_options(batch_size, sampler, batch_sampler, shuffle=shuffle, drop_last=drop_last)
        if scheduler is not None and engine is not None:
            raise OffloadError("give a scheduler or an engine, not both")
        self.pipeline = Pipeline(dataset, transform, collate, seed)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batch_size = batch_size or getattr(batch_sampler, "batch_size", None) or BATCH_SIZE
        self.shuffle, self.drop_last = (
            shuffle is not False and sampler is None and batch_sampler is None,
            drop_last,
        )
        self.rule = rule or Rule()
        self.profile: Profile | None = None
        self.counts = UnitCounts()
        self._threads = threads
        self._retune = retune
        self._tuned: tuple[Callable[[Any], Any], Settings | None, bool, Any] | None = None
        self._engine_source = engine if scheduler is None else _make_engine_factory(scheduler)
        self._order_seed = random.getrandbits(63) if seed is None else seed
        self._epoch = 0
        self._done_units: set[int] = set()
        self._resumed_units: set[int] = set()
        self._drawn_order: Order | None = None
        self._running_rule: Rule | None = None
        self._sides: Sides | None = None
        self._pid = 0

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]  # torch's base class declares no length
        sample_count = len(self.pipeline.dataset if self.sampler is None else self.sampler)  # type: ignore[arg-type]
        return sample_count // self.batch_size if self.drop_last else -(-sample_count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch, or the remaining batches after `load_state_dict`."""
        worker_info = get_worker_info()
        if self._retune and worker_info is None and not self._resumed_units:
            self.retune_if_shared()
        self._running_rule, self._done_units, self._resumed_units = self.rule, self._resumed_units, set()
        feed = self._make_feed(worker_info)
        self.counts = feed.counts
        try:
            for units, batch in feed:
                self._done_units.update(units)
                yield batch
        finally:
            feed.close()
        self._epoch, self._done_units, self._running_rule, self._drawn_order = (
            self._epoch + 1,
            set(),
            None,
            None,
        )

    def _make_feed(self, worker_info: Any) -> Feed:
        """Return the feed of the remaining batches of the epoch."""
        sides = self.sides(is_child=worker_info is not None)
        if self.is_stream:
            return StreamFeed(
                sides,
                self.pipeline.dataset,
                self.batch_size,
                self.rule,
                self._epoch,
                self._done_units,
                drop_last=self.drop_last,
                numbers=count(worker_info.id, worker_info.num_workers) if worker_info is not None else None,
            )
        order = (
            self._drawn_order
            if self._drawn_order is not None and self._done_units
            else self._make_order(worker_info)
        )
        self._drawn_order = order if self.sampler is not None or self.batch_sampler is not None else None
        return Feed(sides, order, self.rule, self._epoch, self._done_units)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch. Use it with the processes of a `DataLoader`, which do not count epochs."""
        self._epoch, self._done_units, self._resumed_units, self._drawn_order = epoch, set(), set(), None

    def apply(self, decision: Decision) -> None:
        """Use a decision from the next epoch on."""
        self.rule = replace(self.rule, candidate=decision.candidate, ratio=decision.ratio)

    def tune(
        self, step: Callable[[Any], Any], settings: Settings | None = None, *, copy: bool = True
    ) -> Profile:
        """Measure the pipeline with the model's step, decide, apply the decision, and return the profile.

        The measurement runs a copy of the step, with copies of model and optimiser, and restores the random generators.
        `copy=False` runs the step itself; pass a step that may be run for measurements. Raises `OffloadError` for a
        step that cannot be copied.
        """
        from testbed.offload.profile import profile_loader

        jobs_and_workers = self._read_sharing()
        self.profile = profile_loader(self, step, settings, copy=copy)
        self._tuned = (step, settings, copy, jobs_and_workers)
        self.apply(self.profile.decision)
        return self.profile

    def retune_if_shared(
        self, step: Callable[[Any], Any] | None = None, settings: Settings | None = None
    ) -> bool:
        """Measure again if jobs or workers have changed since `tune`, and return whether they have changed.

        With `retune=True` the loader calls this method at the start of every epoch.
        """
        if self._tuned is None:
            return False
        last_step, last_settings, copy, jobs_and_workers = self._tuned
        if self._read_sharing() == jobs_and_workers:
            return False
        self.tune(step or last_step, settings or last_settings, copy=copy)
        return True

    def _read_sharing(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the jobs that share the workers, and the hosts of the worker threads."""
        engine = self.sides().worker_engine
        return (engine.list_jobs(), engine.list_workers()) if engine else (frozenset(), ())

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the training as plain values, for JSON or `torch.save`."""
        rule = self._running_rule or self.rule
        drawn_order = self._drawn_order  # stored, because a sampler may draw another order next time
        order = (
            {"indices": list(drawn_order.indices), "bounds": list(drawn_order.batch_bounds)}
            if drawn_order and self._done_units
            else {}
        )
        return order | {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "seed": self._order_seed,
            "batch_size": self.batch_size,
            "candidate": rule.candidate,
            "ratio": rule.ratio,
            "done": to_ranges(self._done_units),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state. Raises `OffloadError` for another version or batch size."""
        if state.get("version") != STATE_VERSION or state.get("batch_size") != self.batch_size:
            raise OffloadError(
                f"this state has version {state.get('version')} and batches of {state.get('batch_size')}, but "
                f"the loader needs version {STATE_VERSION} and {self.batch_size}"
            )
        self.rule = replace(self.rule, candidate=state["candidate"], ratio=state["ratio"])
        self._epoch, self._order_seed = state["epoch"], state["seed"]
        self._resumed_units = set(from_ranges(state["done"]))
        self._done_units, self._running_rule, self._drawn_order = set(self._resumed_units), None, None
        if "indices" in state:
            self._drawn_order = Order(state["indices"], self.batch_size, tuple(state["bounds"]))

    def sides(self, *, is_child: bool = False) -> Sides:
        """Return the trainer's and the workers' side. The first call in a process creates them."""
        if self._sides is None or self._pid != os.getpid():
            runner = Runner(self.pipeline)
            engine = self._engine_source() if callable(self._engine_source) else self._engine_source
            if engine is not None:
                engine.open(Runner(replace(self.pipeline, dataset=None)) if self.is_stream else runner)
            has_threads = not is_child and self.pipeline.seed is None
            executor = (
                ThreadPoolExecutor(self._threads, thread_name_prefix="offload-local") if has_threads else None
            )
            self._sides, self._pid = Sides(runner, executor, engine), os.getpid()
        return self._sides

    def close(self) -> None:
        """Stop the threads and release the workers."""
        if self._sides is not None and self._pid == os.getpid():
            if isinstance(self._sides.trainer_threads, ThreadPoolExecutor):
                self._sides.trainer_threads.shutdown(wait=True, cancel_futures=True)
            if self._sides.worker_engine is not None:
                self._sides.worker_engine.close()
        self._sides = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without threads, connections and the step."""
        return self.__dict__ | {"_sides": None, "_pid": 0, "_tuned": None}

    def _make_order(self, worker_info: Any = None) -> Order:
        seed: Any = self._order_seed
        if worker_info is not None and self.pipeline.seed is None:
            # This is torch's base seed, which is new for every epoch and equal in all processes.
            seed = worker_info.seed - worker_info.id
        seed = f"{seed}/{self._epoch}"
        if self.sampler is not None or self.batch_sampler is not None:
            with (
                seed_generators(seed)
                if worker_info is not None or self.pipeline.seed is not None
                else nullcontext()
            ):
                order = self._draw_sampler_order()
        else:
            shuffle_seed = seed if self.shuffle else None
            sample_count = len(self.pipeline.dataset)
            order = make_order(
                sample_count, self.batch_size, shuffle_by=shuffle_seed, drop_last=self.drop_last
            )
        if worker_info is None or worker_info.num_workers == 1:
            return order
        return order.take_share(worker_info.id, worker_info.num_workers)

    def _draw_sampler_order(self) -> Order:
        """Draw the order of the epoch from the sampler, after `set_epoch` if it has that method."""
        samplers: tuple[Any, ...] = (
            self.sampler,
            self.batch_sampler,
            getattr(self.batch_sampler, "sampler", None),
        )
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self._epoch)
        if self.batch_sampler is not None:
            return make_order_of_batches(self.batch_sampler, self.batch_size)
        assert self.sampler is not None
        indices = list(self.sampler)
        if self.drop_last:
            indices = indices[: len(indices) - len(indices) % self.batch_size]
        return Order(indices, self.batch_size)

    def _check_options(
        self,
        batch_size: int | None,
        sampler: Any,
        batch_sampler: Any,
        *,
        shuffle: bool | None,
        drop_last: bool,
    ) -> None:
        """Raise `OffloadError` for options that exclude each other, as in torch's `DataLoader`."""
        if batch_sampler is not None and (
            batch_size is not None or sampler is not None or shuffle or drop_last
        ):
            raise OffloadError(
                "batch_sampler makes whole batches: leave out batch_size, sampler, shuffle and drop_last"
            )
        if batch_sampler is None and (batch_size is None or batch_size < 1):
            raise OffloadError(f"batch_size {batch_size}: give 1 or more")
        if sampler is not None and shuffle:
            raise OffloadError("a sampler has its own order: leave out shuffle")
        if self.is_stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise OffloadError("a stream has its own order: leave out shuffle, sampler and batch_sampler")


def _make_engine_factory(address: str) -> Callable[[], Engine]:
    def connect() -> Engine:
        from testbed.offload.dask_engine import DaskEngine

        return DaskEngine(address)

    return connect
