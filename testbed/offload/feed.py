"""The conditional operator: batches of an order, each prepared here or by workers, as a ratio says.

Both sides work ahead of the trainer by two batches (of every worker), so that neither waits for the other, and the
trainer takes what is next. A worker that is lost is asked again, and at last the trainer does it itself. When all
workers are lost, it takes back all that they were asked for and asks for nothing more until the next epoch.
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
from testbed.offload.stages import Runner, from_wire

LOOK_AHEAD = 2
ATTEMPTS = 3
PATIENCE_S = 60.0
LOOK_S = 1.0
"""Time after which a trainer that waits looks whether there still are workers."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The share of the work: the candidate and its ratio, and how far each side works ahead."""

    candidate: str | None = None
    ratio: float = 0.0
    ordered: bool = True
    look_ahead: int = LOOK_AHEAD
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        """Raise `OffloadError` for a rule that cannot be."""
        if self.candidate is not None and self.candidate not in CANDIDATES:
            raise OffloadError(f"unknown candidate {self.candidate!r}; known: {', '.join(CANDIDATES)}")
        if not 0 <= self.ratio <= 1:
            raise OffloadError(f"ratio {self.ratio}: give a share of the data between 0 and 1")
        if self.look_ahead < 1:
            raise OffloadError(f"look_ahead {self.look_ahead}: give 1 batch or more")

    def is_remote(self, unit: int) -> bool:
        """Return whether a unit goes to workers."""
        return self.candidate is not None and is_remote(unit, self.ratio)


@dataclass(frozen=True, slots=True)
class Sides:
    """The trainer's own threads (None: it prepares when it asks) and the workers (None: there are none)."""

    runner: Runner
    local: Executor | None = None
    remote: Engine | None = None


@dataclass
class Counts:
    """Units that each side has prepared, those that were asked for again, and those taken back by the trainer."""

    local: int = 0
    remote: int = 0
    lost: int = 0
    taken_back: int = 0


@dataclass(slots=True)
class _Work:
    """A unit on its way: its numbers and indices, and how many workers were lost over it."""

    unit: int
    indices: tuple[int, ...]
    future: Future[Any] | None = None
    attempts: int = 1
    is_remote: bool = False


class _Silent(Exception):
    """No worker answers in time."""


class Feed:
    """An iterator over (numbers of the batches or elements, batch). `close` lets go of what is on its way."""

    def __init__(
        self, sides: Sides, order: Order, rule: Rule, epoch: int = 0, done: Iterable[int] = ()
    ) -> None:
        self._sides, self._order, self._rule, self._epoch = sides, order, rule, epoch
        self._is_batchwise = rule.candidate in {None, "p3"}
        size = 1 if self._is_batchwise else order.batch_size
        number = order.batches if self._is_batchwise else len(order.indices)
        left = set(done)
        units = [unit for unit in range(number) if unit not in left]
        self._position = deque(units)
        self._sizes = deque(() if self._is_batchwise else order.sizes(len(left)))
        slots = sides.remote.slots if sides.remote else 1
        self._ahead = {False: rule.look_ahead * size, True: rule.look_ahead * size * slots}
        self._left = {
            side: deque(unit for unit in units if self._side(unit) == side) for side in (False, True)
        }
        self._going: dict[bool, deque[_Work]] = {False: deque(), True: deque()}
        self._is_alone = sides.remote is None or not sides.remote.workers()
        self.counts = Counts()

    def __iter__(self) -> Iterator[tuple[list[int], Any]]:
        """Return itself."""
        return self

    def __next__(self) -> tuple[list[int], Any]:
        """Return the next batch, and the numbers of its units."""
        if not self._position:
            raise StopIteration
        if self._is_batchwise:
            work, value = self._take()
            return [work.unit], value
        return self._batch_of([self._take() for _ in range(self._sizes.popleft())])

    def _batch_of(self, taken: list[tuple[_Work, Any]]) -> tuple[list[int], Any]:
        return [work.unit for work, _ in taken], self._sides.runner.collate([value for _, value in taken])

    def close(self) -> None:
        """Cancel what is on its way."""
        self._position.clear()
        for going in self._going.values():
            for work in going:
                if work.future is not None:
                    work.future.cancel()
            going.clear()

    def _side(self, unit: int) -> bool:
        return self._sides.remote is not None and self._rule.is_remote(unit)

    def _fill(self) -> None:
        for side in (True, False):
            while self._left[side] and len(self._going[side]) < self._ahead[side]:
                work = self._work(self._left[side].popleft())
                self._start(work, side=side)
                self._going[side].append(work)

    def _work(self, unit: int) -> _Work:
        if self._is_batchwise:
            return _Work(unit, self._order.batch(unit))
        return _Work(unit, (self._order.indices[unit],))

    def _start(self, work: _Work, *, side: bool) -> None:
        work.is_remote = side and not self._is_alone
        if work.is_remote:
            work.future = self._submit(work)
        elif self._sides.local is not None:
            work.future = self._sides.local.submit(self._prepare, work.indices)
        else:
            work.future = None

    def _submit(self, work: _Work) -> Future[Any]:
        assert self._sides.remote is not None
        assert self._rule.candidate is not None
        payload: Any = work.indices
        if not self._is_batchwise:
            (payload,) = work.indices
        if self._rule.candidate == "p1":
            payload = (payload, self._read(payload))
        return self._sides.remote.submit(self._rule.candidate, payload, self._epoch)

    def _read(self, index: int) -> Any:
        return self._sides.runner.read(index)

    def _prepare(self, indices: Sequence[int]) -> Any:
        if self._is_batchwise:
            return self._sides.runner.batch(indices, self._epoch)
        (index,) = indices
        return self._sides.runner.element(index, self._epoch)

    def _take(self) -> tuple[_Work, Any]:
        self._fill()
        side = self._side(self._position.popleft())
        if not side:
            work = self._going[side].popleft()
            value = self._own(work)
            self.counts.local += 1
        else:
            work, value = self._take_remote()
        self._fill()
        return work, value

    def _own(self, work: _Work) -> Any:
        """Return what this process prepares, now or before in a thread."""
        return self._prepare(work.indices) if work.future is None else work.future.result()

    def _take_remote(self) -> tuple[_Work, Any]:
        """Return what a worker prepared; the trainer prepares it when workers are lost again and again, or silent."""
        going = self._going[True]
        while True:
            work = going[0] if self._rule.ordered else self._first_ready(going)
            if not work.is_remote:
                value = self._own(work)
                self.counts.taken_back += 1
                break
            try:
                value = from_wire(self._await(work))
                self.counts.remote += 1
                break
            except WorkerLost:
                is_silent = False
                self.counts.lost += 1
                work.attempts += 1
                if self._has_workers() and work.attempts <= ATTEMPTS:
                    work.future = self._submit(work)
                    continue
            except _Silent:
                is_silent = True
            self._take_back(work, is_silent=is_silent)
        going.remove(work)
        return work, value

    def _await(self, work: _Work) -> Any:
        """Return the answer for a unit. Raises `_Silent` after the patience, or when no worker is left."""
        assert work.future is not None
        left = self._rule.patience_s
        while True:
            try:
                return work.future.result(min(left, LOOK_S))
            except TimeoutError as error:
                if work.future.done():
                    return work.future.result()  # just now, or the transform's own error
                left -= LOOK_S
                if left <= 0 or not self._has_workers():
                    raise _Silent from error

    def _has_workers(self) -> bool:
        return self._sides.remote is not None and bool(self._sides.remote.workers())

    def _take_back(self, work: _Work, *, is_silent: bool) -> None:
        """Prepare a unit here, and all others when no worker is left or none has answered meanwhile."""
        waiting = [each for each in self._going[True] if not _is_answered(each)]
        self._is_alone = not self._has_workers() or (is_silent and len(waiting) == len(self._going[True]))
        for each in waiting if self._is_alone else [work]:
            if each.is_remote:
                assert each.future is not None
                each.future.cancel()
                self._start(each, side=False)

    def _first_ready(self, going: deque[_Work]) -> _Work:
        """Return the unit that is ready first, or the one that is taken when none is in time."""
        left = self._rule.patience_s
        while True:
            mine = next((work for work in going if not work.is_remote), None)
            futures = {work.future: work for work in going if work.is_remote and work.future is not None}
            if mine is not None or not futures:
                return mine or going[0]
            ready, _ = wait(futures, min(left, LOOK_S), FIRST_COMPLETED)
            left -= LOOK_S
            if ready:
                return next(work for future, work in futures.items() if future in ready)
            if left <= 0 or not self._has_workers():
                return going[0]


class StreamFeed(Feed):
    """A feed of elements that come one after the other, not by index: read here, in the thread that asks.

    Workers transform them, `p1`. `numbers` are the indices by which draws are seeded: one for each element.
    """

    def __init__(
        self,
        sides: Sides,
        elements: Iterable[Any],
        batch_size: int,
        rule: Rule,
        epoch: int = 0,
        done: Iterable[int] = (),
        *,
        drop_last: bool = False,
        numbers: Iterable[int] | None = None,
    ) -> None:
        if rule.candidate not in {None, "p1"}:
            raise OffloadError(f"{rule.candidate} reads on the workers, but a stream is read here: use p1")
        super().__init__(sides, Order((), batch_size), rule, epoch)
        self._is_batchwise = False
        slots = sides.remote.slots if sides.remote else 1
        self._ahead = {
            False: rule.look_ahead * batch_size if sides.local else 1,
            True: rule.look_ahead * batch_size * slots,
        }
        self._elements: Iterator[tuple[int, Any]] | None = enumerate(elements)
        self._numbers = iter(count() if numbers is None else numbers)
        self._done, self._drop_last = set(done), drop_last
        self._raw: dict[int, Any] = {}
        self._index: dict[int, int] = {}

    def __next__(self) -> tuple[list[int], Any]:
        """Return the next batch, and the numbers of its elements."""
        taken: list[tuple[_Work, Any]] = []
        while len(taken) < self._order.batch_size:
            self._fill()
            if not self._position:
                break
            work, value = self._take()
            del self._raw[work.indices[0]]
            taken.append((work, value))
        if not taken or (self._drop_last and len(taken) < self._order.batch_size):
            raise StopIteration
        return self._batch_of(taken)

    def close(self) -> None:
        """Cancel what is on its way, and read no more."""
        self._elements = None
        super().close()

    def _fill(self) -> None:
        while (
            self._elements is not None
            and self._lacks_any()
            and len(self._position) < sum(self._ahead.values())
        ):
            unit, raw = next(self._elements, (-1, None))
            if unit < 0:
                self._elements = None
                break
            index = next(self._numbers)
            if unit not in self._done:
                self._raw[index], self._index[unit] = raw, index
                self._position.append(unit)
                self._left[self._side(unit)].append(unit)
        super()._fill()

    def _lacks_any(self) -> bool:
        """Return whether a side that gets elements could take one more."""
        is_remote = (
            self._sides.remote is not None and self._rule.candidate is not None and self._rule.ratio > 0
        )
        sides = ({True} if is_remote else set()) | (
            {False} if not is_remote or self._rule.ratio < 1 else set()
        )
        return any(len(self._left[side]) + len(self._going[side]) < self._ahead[side] for side in sides)

    def _work(self, unit: int) -> _Work:
        return _Work(unit, (self._index.pop(unit),))

    def _read(self, index: int) -> Any:
        return self._raw[index]

    def _prepare(self, indices: Sequence[int]) -> Any:
        (index,) = indices
        return self._sides.runner.finish(index, self._raw[index], self._epoch)


def _is_answered(work: _Work) -> bool:
    """Return whether a worker has answered for a unit, also with an error of the transform."""
    future = work.future
    if future is None or not work.is_remote or not future.done() or future.cancelled():
        return False
    return not isinstance(future.exception(), WorkerLost)
