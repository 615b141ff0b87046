"""Workers execute runs by lab and lane: one run at a time moves a lab, and a few others run beside it.

Each run is a separate process, which continues if the service ends and stores its outcome itself. A new service takes
over the runs of an earlier one. It waits for live processes. It starts runs again if their process is gone. These
runs resume the operation that they had begun.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from lightbed.children import make_child_environment, make_module_command
from testbed.commands.declare import Lane
from testbed.service.requests import find_lane
from testbed.service.runs import Run, RunStore
from testbed.storage.owner import PERSON_VARIABLE, RUN_VARIABLE, is_running

LANE_CAPACITY: Mapping[Lane, int] = {"moving": 1, "looking": 2, "reading": 2, "prompt": 4, "waiting": 32}
"""Maximum number of concurrent runs of a lab in each lane.

Urgent commands (`confirm`, the release of a lease) queue only behind each other. Commands that may wait long
(`lease request --wait`) do not delay others.
"""
MAX_ATTEMPTS = 5
"""Number of attempts after which a run fails. Otherwise a run that always kills its process would never end."""
POLL_S = 0.2
_SPOOL_FOLDER_NAME = "service"
ExecuteRun = Callable[[Run], int]
log = logging.getLogger(__name__)


class Workers:
    """Threads that execute one run each. Runs without a lab belong to the lab "".

    `execute_run` executes one run and returns the exit code of its process.
    """

    def __init__(self, store: RunStore, labs: tuple[str, ...], execute_run: ExecuteRun) -> None:
        self._store, self._lab_names, self._execute_run_process = store, labs, execute_run
        self._wake_condition, self._is_stopping = threading.Condition(), False
        self._lane_by_run: dict[str, tuple[str, Lane]] = {}
        self._failed_start_count_by_run: Counter[str] = Counter()
        self._dispatcher = threading.Thread(target=self._dispatch, daemon=True)

    def start(self) -> None:
        """Start executing runs."""
        self._dispatcher.start()

    def wake(self) -> None:
        """Check for waiting runs now."""
        with self._wake_condition:
            self._wake_condition.notify_all()

    def stop(self) -> None:
        """Start no more runs. Running ones continue."""
        self._is_stopping = True
        self.wake()

    def _dispatch(self) -> None:
        while not self._is_stopping:
            try:
                self._start_waiting_runs()
            except Exception:  # for example a full disk: no run is lost, so try again
                log.exception("cannot execute runs")
            with self._wake_condition:
                self._wake_condition.wait(POLL_S)

    def _start_waiting_runs(self) -> None:
        """Start runs whose lane has room. Runs that an earlier process left come first."""
        with self._wake_condition:
            lane_by_run = dict(self._lane_by_run)
        running_count_by_lane = Counter(lane_by_run.values())
        for run in self._store.find_unfinished(excluded=lane_by_run):
            lane_key = run.lab, find_lane(run.command)
            if run.lab in self._lab_names and running_count_by_lane[lane_key] < LANE_CAPACITY[lane_key[1]]:
                running_count_by_lane[lane_key] += 1
                with self._wake_condition:
                    self._lane_by_run[run.id] = lane_key
                threading.Thread(target=self._execute_and_release, args=(run,), daemon=True).start()

    def _execute_and_release(self, run: Run) -> None:
        try:
            self._execute_run(run)
        except Exception:
            log.exception("cannot execute run %s", run.id)
        with self._wake_condition:
            del self._lane_by_run[run.id]
            self._wake_condition.notify_all()

    def _execute_run(self, run: Run) -> None:
        if run.state == "running" and is_running(run.owner):
            while is_running(run.owner) and not self._is_stopping:
                with self._wake_condition:
                    self._wake_condition.wait(POLL_S)
            return
        if run.attempts >= MAX_ATTEMPTS:
            self._store.store_failed(
                run.id, f"its process ended {run.attempts} times before its work was complete"
            )
            return
        exit_code = self._execute_run_process(run)
        updated_run = self._store.get(run.id)
        if updated_run.has_ended or updated_run.attempts > run.attempts:
            return
        self._failed_start_count_by_run[run.id] += 1
        # A process that exits by itself without claiming the run could not start.
        if exit_code >= 0 or self._failed_start_count_by_run[run.id] >= MAX_ATTEMPTS:
            self._store.store_failed(run.id, "its process could not be started; see the log of the service")


def interrupt(run: Run) -> None:
    """Stop the process of a run after its current step, as Ctrl-C does."""
    if run.state == "running" and is_running(run.owner):
        os.kill(int(run.owner.split()[0]), signal.SIGINT)


def get_run_folder(runs_dir: Path, run_id: str) -> Path:
    """Return the folder for the files of a run."""
    return runs_dir / _SPOOL_FOLDER_NAME / run_id


def start_process(run: Run, lab_files: Mapping[str, Path], runs_dir: Path, database: str) -> int:
    """Execute a run in a process with its own session, wait for it, and return its exit code."""
    lab_assignments = [f"{name}={path}" for name, path in lab_files.items()]
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES},
        PERSON_VARIABLE: run.who,
        RUN_VARIABLE: run.id,
        **({"LIGHTBED_DATABASE": database} if database else {}),
    }
    folder = get_run_folder(runs_dir, run.id)
    folder.mkdir(parents=True, exist_ok=True)
    command = make_module_command("testbed.cli.submitted", run.id, str(runs_dir), *lab_assignments)
    with (folder / "process.log").open("ab") as log_file:
        process = subprocess.run(
            command,
            env=make_child_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            check=False,
        )
    return process.returncode


_REMOVED_VARIABLES = frozenset({"LIGHTBED_SERVER", "LIGHTBED_TOKEN", "LIGHTBED_LEASE"})
