"""A fibre is cut under a looping AllReduce, the lab is repaired, and every step is timed.

For simulated labs: `cut` is what takes the light away. The ranks run on all the while, in one launch; every sum is
checked, and traffic counts as back when an AllReduce that waited has ended.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import cast

from testbed.design.model import RingOrder
from testbed.errors import CollectiveError, VerifyFailed
from testbed.measure.collectives.ranks import CollectiveSpec, Configuration, run_collectives
from testbed.measure.model import Timing
from testbed.measure.results.records import Json
from testbed.operate.design import Design
from testbed.operate.repair import LabRepair, observe_design, plan_lab_repair, reroute
from testbed.operate.session import BringUpReport, LabSession

FIBRE_CUT = "fibre cut"
NOTICE_TIMEOUT_S = 30.0
_ROWS_BETWEEN = 3
_MAX_ROWS = 5000


@dataclass(frozen=True, slots=True)
class FibreCut:
    """Seconds from the cut until it was noticed, the detours stood, an AllReduce ended again, and so on.

    `repatch_s` is the second stage alone, from its first read until its routes stood, of which the switches moved
    `outage_s`; `repatch_stall_s` is how long no AllReduce ended meanwhile, and `usual_s` how long one usually takes.
    `rows` counts what was checked: each is three AllReduces, and every element of each was right.
    """

    noticed_s: float
    rerouted_s: float
    back_s: float
    repatch_s: float
    repatch_stall_s: float
    outage_s: float
    usual_s: float
    rows: int
    findings: int
    why: str

    def to_json(self) -> Mapping[str, Json]:
        """Return the data of a phase named `FIBRE_CUT`."""
        return cast("Mapping[str, Json]", asdict(self))


def cut_and_repair(
    session: LabSession, design: Design, loop: AllReduceLoop, cut: Callable[[], object]
) -> FibreCut:
    """Cut a fibre of a design in force while an AllReduce loops on it, and repair in both stages.

    Raises `VerifyFailed` when nothing is seen to be lost or nothing can restore it, what ended the loop when
    it ended, and the errors of every step.
    """
    first = loop.rows
    loop.wait(first + _ROWS_BETWEEN)
    began = time.monotonic()
    cut()
    planned = _notice(session, design, until=began + NOTICE_TIMEOUT_S)
    noticed = time.monotonic()
    reroute(session, planned)
    rerouted = time.monotonic()
    back = loop.wait_after(noticed)
    loop.wait(loop.rows + _ROWS_BETWEEN)
    again = time.monotonic()
    brought = _repatch(session, planned)
    loop.wait(loop.rows + _ROWS_BETWEEN)
    return FibreCut(
        noticed_s=noticed - began,
        rerouted_s=rerouted - began,
        back_s=back - began,
        repatch_s=brought.routes_s,
        repatch_stall_s=max(loop.gaps(again)),
        outage_s=brought.apply_result.outage_s,
        usual_s=statistics.median(loop.gaps(0.0, until=began)),
        rows=loop.rows - first,
        findings=len(brought.verify_report.findings),
        why=planned.repair.reason,
    )


def _notice(session: LabSession, design: Design, *, until: float) -> LabRepair:
    """Look until something is lost."""
    while time.monotonic() < until:
        planned = plan_lab_repair(session.lab, design, observe_design(session, design))
        if planned is not None:
            return planned
    raise VerifyFailed("no fibre is seen to be lost: was the one that was cut part of this topology?")


def _repatch(session: LabSession, planned: LabRepair) -> BringUpReport:
    if planned.repatched_design is None:
        raise VerifyFailed(f"there is nothing to re-patch: {planned.repair.reason}")
    return session.bring_up(planned.repatched_design)


class AllReduceLoop:
    """An AllReduce that loops on all hosts: when each of its rows was measured."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at: list[float] = []
        self._running: Future[None] | None = None
        self._enough = False

    @property
    def rows(self) -> int:
        """Number of rows that have been measured; every element of every one was right."""
        return len(self._at)

    def follow(self, running: Future[None]) -> None:
        """Fail whoever waits when this ends."""
        self._running = running
        running.add_done_callback(lambda _: self._wake())

    def take(self, _timing: Timing) -> None:
        """Take one more row, in the thread that follows the ranks."""
        self._at.append(time.monotonic())
        self._wake()
        if self._enough:
            raise _Enough

    def end(self) -> None:
        """End with the next row."""
        self._enough = True

    def wait(self, rows: int) -> None:
        """Wait until so many rows have been measured."""
        self._wait_until(lambda: self.rows >= rows)

    def wait_after(self, moment: float) -> float:
        """Return when the first row after a moment was measured."""
        self._wait_until(lambda: bool(self._at) and self._at[-1] > moment)
        return next(at for at in self._at if at > moment)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_until(self, done: Callable[[], bool]) -> None:
        running = self._running
        assert running is not None
        with self._changed:
            self._changed.wait_for(lambda: done() or running.done())
        if not done():
            running.result()  # raises what ended it
            raise CollectiveError("the AllReduce ended before the lab was repaired: let it loop for longer")

    def gaps(self, since: float, until: float = math.inf) -> list[float]:
        """Return the times between rows and the one before, of those measured in the interval."""
        return [after - before for before, after in pairwise(self._at) if since < after <= until]


class _Enough(Exception):
    """The loop has shown what it was to show."""


@contextmanager
def looping_allreduce(
    session: LabSession,
    design: Design,
    rings: tuple[RingOrder, ...],
    *,
    size_bytes: int = 1 << 18,
    deadline_s: float = 60.0,
) -> Iterator[AllReduceLoop]:
    """Provide an AllReduce over these rings that loops on all hosts while the body runs, at most until `deadline_s`.

    Raises `CollectiveError` when hosts are only modelled, and what `run_collectives` raises.
    """
    if session.fleet is None:
        raise CollectiveError("an AllReduce loops on hosts, and the hosts of this lab are only modelled")
    loop = AllReduceLoop()
    configuration = Configuration("loop", rings, (size_bytes,) * _MAX_ROWS)
    spec = CollectiveSpec("fibre cut", design.name, (configuration,), min_time_s=0.0, min_iterations=2)
    parts = (session.fleet, session.lab, design.wiring, design.routes, spec)

    def run() -> None:
        with suppress(_Enough):
            run_collectives(*parts, deadline_s=deadline_s, on_row=loop.take)

    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(run)
        loop.follow(running)
        try:
            yield loop
        finally:
            loop.end()
        running.result()
