"""The feed of batches, which trainer and workers prepare at a given ratio (FastFlow's conditional operator).

The trainer and each worker prepare `look_ahead` batches in advance, so that neither side waits for the other. If a
worker is lost, its unit is submitted again, with up to `MAX_ATTEMPTS` attempts in all. Then the trainer prepares it. If
all workers are lost, the trainer prepares all units until the next epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Any

from testbed.errors import OffloadError
from testbed.offload.engine import Engine, WorkerLost
from testbed.offload.epoch import Order, is_remote
from testbed.offload.policy import CANDIDATES
from testbed.offload.stages import Runner, convert_to_tensors

LOOK_AHEAD = 2
MAX_ATTEMPTS = 3
WORKER_TIMEOUT_S = 60.0
POLL_S = 1.0
"""Interval at which a waiting trainer checks that workers still exist."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Division of the work between trainer and workers."""

    candidate: str | None = None
    """Candidate to run, or None for no offload."""
    ratio: float = 0.0
    """Fraction of the units that workers prepare, 0 to 1."""
    ordered: bool = True
    """Whether to use units from workers in order, or whichever is ready first."""
    look_ahead: int = LOOK_AHEAD
    """Number of batches that the trainer and each worker prepare in advance."""
    patience_s: float = WORKER_TIMEOUT_S
    """Time to wait for a worker before the trainer prepares its unit."""

    def __post_init__(self) -> None:
        """Raise `OffloadError` for an unknown candidate, and for a ratio or look-ahead outside its range."""
        if self.candidate is not None and self.candidate not in CANDIDATES:
            raise OffloadError(f"unknown candidate {self.candidate!r}; known: {', '.join(CANDIDATES)}")
        if not 0 <= self.ratio <= 1:
            raise OffloadError(f"ratio {self.ratio}: give a share of the data between 0 and 1")
        if self.look_ahead < 1:
            raise OffloadError(f"look_ahead {self.look_ahead}: give 1 batch or more")

    def is_remote(self, unit: int) -> bool:
        """Return whether workers prepare the unit of this number."""
        return self.candidate is not None and is_remote(unit, self.ratio)


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides: the trainer's threads (None: the iterating thread prepares) and the workers (None: no workers)."""

    runner: Runner
    trainer_threads: Executor | None = None
    worker_engine: Engine | None = None


@dataclass
class UnitCounts:
    """Numbers of units: prepared by the trainer, prepared by workers, lost with a worker, taken back by the trainer."""

    local_count: int = 0
    remote_count: int = 0
    lost_count: int = 0
    taken_back_count: int = 0


@dataclass(slots=True)
class _UnitWork:
    """A unit in preparation: its number, its indices, and the number of attempts on workers."""

    unit_number: int
    indices: tuple[int, ...]
    future: Future[Any] | None = None
    attempt_count: int = 1
    is_remote: bool = False


class _UnansweredError(Exception):
    """No worker answered in time."""


class Feed:
    """An iterator over (numbers of the units in a batch, batch)."""

    def __init__(
        self, sides: Sides, order: Order, rule: Rule, epoch: int = 0, finished_units: Iterable[int] = ()
    ) -> None:
        self._sides, self._order, self._rule, self._epoch = sides, order, rule, epoch
        self._is_batchwise = rule.candidate in {None, "p3"}
        units_per_batch = 1 if self._is_batchwise else order.batch_size
        unit_count = order.batch_count if self._is_batchwise else len(order.indices)
        done_units = set(finished_units)
        units = [unit for unit in range(unit_count) if unit not in done_units]
        self._queue = deque(units)
        self._sizes = deque(() if self._is_batchwise else order.iterate_sizes(len(done_units)))
        slot_count = sides.worker_engine.slot_count if sides.worker_engine else 1
        self._max_pending = {
            False: rule.look_ahead * units_per_batch,
            True: rule.look_ahead * units_per_batch * slot_count,
        }
        self._remaining_units = {
            is_remote_side: deque(unit for unit in units if self._is_remote_unit(unit) == is_remote_side)
            for is_remote_side in (False, True)
        }
        self._pending: dict[bool, deque[_UnitWork]] = {False: deque(), True: deque()}
        self._is_local_only = sides.worker_engine is None or not sides.worker_engine.list_workers()
        self.counts = UnitCounts()

    def __iter__(self) -> Iterator[tuple[list[int], Any]]:
        """Return this iterator."""
        return self

    def __next__(self) -> tuple[list[int], Any]:
        """Return the numbers of the units of the next batch, and the batch."""
        if not self._queue:
            raise StopIteration
        if self._is_batchwise:
            work, value = self._await_next_unit()
            return [work.unit_number], value
        return self._make_batch([self._await_next_unit() for _ in range(self._sizes.popleft())])

    def _make_batch(self, results: list[tuple[_UnitWork, Any]]) -> tuple[list[int], Any]:
        return [work.unit_number for work, _ in results], self._sides.runner.collate(
            [value for _, value in results]
        )

    def close(self) -> None:
        """Cancel all pending units."""
        self._queue.clear()
        for pending in self._pending.values():
            for work in pending:
                if work.future is not None:
                    work.future.cancel()
            pending.clear()

    def _is_remote_unit(self, unit: int) -> bool:
        return self._sides.worker_engine is not None and self._rule.is_remote(unit)

    def _start_units(self) -> None:
        for is_remote_side in (True, False):
            while (
                self._remaining_units[is_remote_side]
                and len(self._pending[is_remote_side]) < self._max_pending[is_remote_side]
            ):
                work = self._make_work(self._remaining_units[is_remote_side].popleft())
                self._start(work, is_remote_side=is_remote_side)
                self._pending[is_remote_side].append(work)

    def _make_work(self, unit: int) -> _UnitWork:
        if self._is_batchwise:
            return _UnitWork(unit, self._order.get_batch(unit))
        return _UnitWork(unit, (self._order.indices[unit],))

    def _start(self, work: _UnitWork, *, is_remote_side: bool) -> None:
        work.is_remote = is_remote_side and not self._is_local_only
        if work.is_remote:
            work.future = self._submit(work)
        elif self._sides.trainer_threads is not None:
            work.future = self._sides.trainer_threads.submit(self._prepare, work.indices)
        else:
            work.future = None

    def _submit(self, work: _UnitWork) -> Future[Any]:
        assert self._sides.worker_engine is not None
        assert self._rule.candidate is not None
        payload: Any = work.indices
        if not self._is_batchwise:
            (payload,) = work.indices
        if self._rule.candidate == "p1":
            payload = (payload, self._read(payload))
        return self._sides.worker_engine.submit(self._rule.candidate, payload, self._epoch)

    def _read(self, index: int) -> Any:
        return self._sides.runner.read_element(index)

    def _prepare(self, indices: Sequence[int]) -> Any:
        if self._is_batchwise:
            return self._sides.runner.prepare_batch(indices, self._epoch)
        (index,) = indices
        return self._sides.runner.prepare_element(index, self._epoch)

    def _await_next_unit(self) -> tuple[_UnitWork, Any]:
        self._start_units()
        is_remote_side = self._is_remote_unit(self._queue.popleft())
        if not is_remote_side:
            work = self._pending[is_remote_side].popleft()
            value = self._get_local_value(work)
            self.counts.local_count += 1
        else:
            work, value = self._await_remote_unit()
        self._start_units()
        return work, value

    def _get_local_value(self, work: _UnitWork) -> Any:
        """Return the value of a local unit: prepare it now, or wait for its thread."""
        return self._prepare(work.indices) if work.future is None else work.future.result()

    def _await_remote_unit(self) -> tuple[_UnitWork, Any]:
        """Return the next unit of the workers. After too many losses or no answer, the trainer prepares it."""
        pending = self._pending[True]
        while True:
            work = pending[0] if self._rule.ordered else self._wait_for_first(pending)
            if not work.is_remote:
                value = self._get_local_value(work)
                self.counts.taken_back_count += 1
                break
            try:
                value = convert_to_tensors(self._wait_for_result(work))
                self.counts.remote_count += 1
                break
            except WorkerLost:
                is_unanswered = False
                self.counts.lost_count += 1
                work.attempt_count += 1
                if self._has_workers() and work.attempt_count <= MAX_ATTEMPTS:
                    work.future = self._submit(work)
                    continue
            except _UnansweredError:
                is_unanswered = True
            self._return_to_trainer(work, is_unanswered=is_unanswered)
        pending.remove(work)
        return work, value

    def _wait_for_result(self, work: _UnitWork) -> Any:
        """Wait for the result of a unit. Raises `_UnansweredError` after `patience_s` or if no worker is left."""
        assert work.future is not None
        remaining_s = self._rule.patience_s
        while True:
            try:
                return work.future.result(min(remaining_s, POLL_S))
            except TimeoutError as error:
                if work.future.done():
                    # The unit ended just now, or the transform itself raised TimeoutError.
                    return work.future.result()
                remaining_s -= POLL_S
                if remaining_s <= 0 or not self._has_workers():
                    raise _UnansweredError from error

    def _has_workers(self) -> bool:
        return self._sides.worker_engine is not None and bool(self._sides.worker_engine.list_workers())

    def _return_to_trainer(self, work: _UnitWork, *, is_unanswered: bool) -> None:
        """Give a unit to the trainer, or all pending units if no worker is left or none of these has been answered."""
        unanswered_units = [unit_work for unit_work in self._pending[True] if not _is_answered(unit_work)]
        self._is_local_only = not self._has_workers() or (
            is_unanswered and len(unanswered_units) == len(self._pending[True])
        )
        for unit_work in unanswered_units if self._is_local_only else [work]:
            if unit_work.is_remote:
                assert unit_work.future is not None
                unit_work.future.cancel()
                self._start(unit_work, is_remote_side=False)

    def _wait_for_first(self, pending: deque[_UnitWork]) -> _UnitWork:
        """Return a unit that is ready or that the trainer prepares. After `patience_s`, return the oldest unit."""
        remaining_s = self._rule.patience_s
        while True:
            local_work = next((work for work in pending if not work.is_remote), None)
            work_by_future = {
                work.future: work for work in pending if work.is_remote and work.future is not None
            }
            if local_work is not None or not work_by_future:
                return local_work or pending[0]
            ready, _ = wait(work_by_future, min(remaining_s, POLL_S), FIRST_COMPLETED)
            remaining_s -= POLL_S
            if ready:
                return next(work for future, work in work_by_future.items() if future in ready)
            if remaining_s <= 0 or not self._has_workers():
                return pending[0]


class StreamFeed(Feed):
    """A feed of the elements of a stream. The iterating thread reads the elements and workers transform them (`p1`).

    `numbers` yields the index of each element, which seeds its random draws. Raises `OffloadError` for any candidate
    but `p1`.
    """

    def __init__(
        self,
        sides: Sides,
        elements: Iterable[Any],
        batch_size: int,
        rule: Rule,
        epoch: int = 0,
        finished_units: Iterable[int] = (),
        *,
        drop_last: bool = False,
        numbers: Iterable[int] | None = None,
    ) -> None:
        if rule.candidate not in {None, "p1"}:
            raise OffloadError(f"{rule.candidate} reads on the workers, but a stream is read here: use p1")
        super().__init__(sides, Order((), batch_size), rule, epoch)
        self._is_batchwise = False
        slot_count = sides.worker_engine.slot_count if sides.worker_engine else 1
        self._max_pending = {
            False: rule.look_ahead * batch_size if sides.trainer_threads else 1,
            True: rule.look_ahead * batch_size * slot_count,
        }
        self._elements: Iterator[tuple[int, Any]] | None = enumerate(elements)
        self._numbers = iter(count() if numbers is None else numbers)
        self._done_units, self._drop_last = set(finished_units), drop_last
        self._raw_by_unit: dict[int, Any] = {}
        self._index_by_unit: dict[int, int] = {}

    def __next__(self) -> tuple[list[int], Any]:
        """Return the numbers of the elements of the next batch, and the batch."""
        results: list[tuple[_UnitWork, Any]] = []
        while len(results) < self._order.batch_size:
            self._start_units()
            if not self._queue:
                break
            work, value = self._await_next_unit()
            del self._raw_by_unit[work.indices[0]]
            results.append((work, value))
        if not results or (self._drop_last and len(results) < self._order.batch_size):
            raise StopIteration
        return self._make_batch(results)

    def close(self) -> None:
        """Cancel all pending elements, and stop reading."""
        self._elements = None
        super().close()

    def _start_units(self) -> None:
        while (
            self._elements is not None
            and self._has_room()
            and len(self._queue) < sum(self._max_pending.values())
        ):
            unit, raw_element = next(self._elements, (-1, None))
            if unit < 0:
                self._elements = None
                break
            index = next(self._numbers)
            if unit not in self._done_units:
                self._raw_by_unit[index], self._index_by_unit[unit] = raw_element, index
                self._queue.append(unit)
                self._remaining_units[self._is_remote_unit(unit)].append(unit)
        super()._start_units()

    def _has_room(self) -> bool:
        """Return whether a side that the rule uses has room for another element."""
        uses_workers = (
            self._sides.worker_engine is not None
            and self._rule.candidate is not None
            and self._rule.ratio > 0
        )
        used_sides = ({True} if uses_workers else set()) | (
            {False} if not uses_workers or self._rule.ratio < 1 else set()
        )
        return any(
            len(self._remaining_units[is_remote_side]) + len(self._pending[is_remote_side])
            < self._max_pending[is_remote_side]
            for is_remote_side in used_sides
        )

    def _make_work(self, unit: int) -> _UnitWork:
        return _UnitWork(unit, (self._index_by_unit.pop(unit),))

    def _read(self, index: int) -> Any:
        return self._raw_by_unit[index]

    def _prepare(self, indices: Sequence[int]) -> Any:
        (index,) = indices
        return self._sides.runner.transform_element(index, self._raw_by_unit[index], self._epoch)


def _is_answered(work: _UnitWork) -> bool:
    """Return whether a worker has answered for a unit. An error of the transform is also an answer."""
    future = work.future
    if future is None or not work.is_remote or not future.done() or future.cancelled():
        return False
    return not isinstance(future.exception(), WorkerLost)
