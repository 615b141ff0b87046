"""Workers: those runs of a lab that move it follow one another, those that look run with them, a few at a time.

Each run is a process of its own, which outlives the service and writes its end into the database itself. A service that
starts finds what an earlier one left: a run whose process lives is waited for, one whose process is gone is carried
out again, which goes on with the operation that it had begun.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.service.requests import LOOKING, MOVING
from testbed.service.runs import Run, RunStore
from testbed.storage.owner import ON_BEHALF_OF, RUN, is_running

LOOKERS = 2
"""Runs of a lab that look at the same time."""
ATTEMPTS = 5
"""So often a run is carried out before it is failed: one that ends its process each time would never end."""
POLL_S = 0.2
_SPOOL = "service"
Carry = Callable[[Run], int]
log = logging.getLogger(__name__)


class Workers:
    """The threads that carry runs out, those of each lab; the lab "" stands for runs that are of no lab.

    `carry` starts one run and returns the exit code of its process.
    """

    def __init__(self, store: RunStore, labs: tuple[str, ...], carry: Carry) -> None:
        self._store, self._carry = store, carry
        self._wake, self._ending = threading.Condition(), False
        self._claimed: set[str] = set()
        self._killed: Counter[str] = Counter()
        lanes = [(lab, commands) for lab in labs for commands in (MOVING, *[LOOKING] * LOOKERS)]
        self._threads = [threading.Thread(target=self._work, args=lane, daemon=True) for lane in lanes]

    def start(self) -> None:
        """Begin to carry runs out."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Look for runs now."""
        with self._wake:
            self._wake.notify_all()

    def stop(self) -> None:
        """Begin no more runs; those under way go on."""
        self._ending = True
        self.wake()

    def _work(self, lab: str, commands: tuple[str, ...]) -> None:
        while not self._ending:
            try:
                is_idle = not self._next_turn(lab, commands)
            except Exception:  # a full disk, a server that is away: what waits is not lost
                log.exception("runs of lab %s cannot be carried out", lab)
                is_idle = True
            if is_idle:
                with self._wake:
                    self._wake.wait(POLL_S)

    def _next_turn(self, lab: str, commands: tuple[str, ...]) -> bool:
        """Carry out the next run; return whether there was one."""
        run = self._claim(lab, commands)
        if run is None:
            return False
        try:
            self._turn(run)
        finally:
            with self._wake:
                self._claimed.discard(run.id)
        return True

    def _claim(self, lab: str, commands: tuple[str, ...]) -> Run | None:
        with self._wake:
            run = self._store.next(lab, commands, tuple(self._claimed))
            if run is not None:
                self._claimed.add(run.id)
            return run

    def _turn(self, run: Run) -> None:
        if run.state == "running" and is_running(run.owner):
            self._wait_for(run.owner)
            return
        if run.attempts >= ATTEMPTS:
            self._store.fail(run.id, f"its process ended {run.attempts} times before its work was done")
            return
        code = self._carry(run)
        after = self._store.get(run.id)
        if after.has_ended or after.attempts > run.attempts:
            return
        self._killed[run.id] += 1
        if code >= 0 or self._killed[run.id] >= ATTEMPTS:  # it ended by itself before it took the run
            self._store.fail(run.id, "its process could not be started; see the log of the service")

    def _wait_for(self, owner: str) -> None:
        while is_running(owner) and not self._ending:
            with self._wake:
                self._wake.wait(POLL_S)


def interrupt(run: Run) -> None:
    """Ask the process of a run to stop at the next boundary, as Ctrl-C does."""
    if run.state == "running" and is_running(run.owner):
        os.kill(int(run.owner.split()[0]), signal.SIGINT)


def folder_of(runs_dir: Path, run_id: str) -> Path:
    """Return the folder for the files of a run."""
    return runs_dir / _SPOOL / run_id


def start_process(run: Run, lab_files: Mapping[str, Path], runs_dir: Path, database: str) -> int:
    """Carry a run out in a process of its own session, wait for its end, and return its exit code."""
    labs = [f"{name}={path}" for name, path in lab_files.items()]
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON},
        ON_BEHALF_OF: run.who,
        RUN: run.id,
        **({"LIGHTBED_DATABASE": database} if database else {}),
    }
    folder = folder_of(runs_dir, run.id)
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "testbed.cli.submitted", run.id, str(runs_dir), *labs]
    with (folder / "process.log").open("ab") as log:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    return done.returncode


_NOT_HANDED_ON = frozenset({"LIGHTBED_SERVER", "LIGHTBED_TOKEN", "LIGHTBED_LEASE"})
