"""Worker pool that runs chains in parallel: in this process, in processes of this machine, or on Dask workers.

A chain runs in chunks of steps. Each chunk is sent with its task and the state of its chain, so any worker can run it,
with the same result.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from lightbed.wording import describe_extra
from testbed.design.search.chains import (
    ChainState,
    EarlyStop,
    Objective,
    ObjectiveFactory,
    Rules,
    is_worker_loss,
    make_first_state,
    run_steps,
)
from testbed.errors import SearchError

CHUNK_STEPS = 100
"""Number of steps between two reports of a chain's state, for progress, checkpoints and stops."""

_CONNECT_S = 10.0
_SCHEMES = ("tcp", "tls")

Report = Callable[[Sequence[ChainState]], None]


@dataclass(frozen=True, slots=True)
class ChainTask:
    """Recipe of an objective and rules of its chains, in the form that is sent to workers.

    Tasks with the same fingerprint are equal.
    """

    fingerprint: str
    objective_factory: ObjectiveFactory = field(compare=False)
    rules: Rules = field(compare=False)


@lru_cache(maxsize=2)
def get_objective(task: ChainTask) -> Objective:
    """Return the objective of a task. It is made once per process, since it caches costs."""
    return task.objective_factory.make_objective()


def make_first_states(task: ChainTask, seed: int, chain_count: int) -> tuple[ChainState, ...]:
    """Return the states of all chains before the first step. Raises `SearchError` for `chain_count` below 1."""
    if chain_count < 1:
        raise SearchError(f"{chain_count} chains: give 1 or more")
    return tuple(
        make_first_state(get_objective(task), seed, chain_number) for chain_number in range(chain_count)
    )


def run_chains(
    task: ChainTask,
    states: Sequence[ChainState],
    executor: Executor,
    *,
    end_step: int | None = None,
    report: Report | None = None,
    stop: EarlyStop | None = None,
) -> tuple[ChainState, ...]:
    """Run chains to step `end_step` (default: to their end) and return their states.

    `report` is called with all states after every chunk. Ctrl-C and lost workers end the run early; incomplete chunks
    are then lost. Raises `SearchError` if workers are lost before the first chunk is complete.
    """
    stop = EarlyStop() if stop is None else stop
    last_step = task.rules.steps if end_step is None else min(end_step, task.rules.steps)
    current_states = list(states)
    pending: dict[Future[ChainState], int] = {}

    def submit_next(chain_index: int) -> None:
        steps = min(CHUNK_STEPS, last_step - current_states[chain_index].step)
        if steps > 0:
            pending[executor.submit(_run_chunk, task, current_states[chain_index], steps)] = chain_index

    with stop:
        for chain_index in range(len(current_states)):
            submit_next(chain_index)
        while pending:
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=pending.__getitem__):
                chain_index = pending.pop(future)
                current_states[chain_index] = future.result()
                if report:
                    report(current_states)
                submit_next(chain_index)
    for future in pending:
        future.cancel()
    if stop.has_lost_workers and tuple(current_states) == tuple(states):
        raise _make_lost_workers_error(stop.reason)
    return tuple(current_states)


def _make_lost_workers_error(reason: str) -> SearchError:
    return SearchError(
        f"workers of the search were lost: {reason}; use fewer workers if memory ran out, and resume if "
        "there is a checkpoint; a program that starts workers must do so below `if __name__ == "
        "'__main__'`"
    )


def _run_chunk(task: ChainTask, state: ChainState, step_count: int) -> ChainState:
    return run_steps(get_objective(task), task.rules, state, step_count)


@contextmanager
def open_worker_pool(worker_count: int = 1, scheduler: str | None = None) -> Iterator[Executor]:
    """Yield an executor: this process for one worker, processes for more, or the workers of a Dask scheduler.

    Raises `SearchError` for `worker_count` below 1, for a scheduler that does not answer, and for a loss of workers
    that no `EarlyStop` has caught.
    """
    if worker_count < 1:
        raise SearchError(f"{worker_count} workers: give 1 or more")
    try:
        if scheduler is not None:
            with _connect_to_dask(scheduler) as executor:
                yield executor
        elif worker_count == 1:
            yield InProcessExecutor()
        else:
            with _start_processes(worker_count) as executor:
                yield executor
    except Exception as error:
        if not is_worker_loss(error):
            raise
        raise _make_lost_workers_error(f"{type(error).__name__} {error}") from error


class InProcessExecutor(Executor):
    """Executor that runs each call immediately, in this process."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Run the call, and return a completed future."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            future.set_exception(error)
        return future


@contextmanager
def _start_processes(process_count: int) -> Iterator[Executor]:
    """Yield a pool of spawned processes: the threads of numerical libraries would not survive a fork."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    executor = ProcessPoolExecutor(
        process_count, mp_context=get_context("spawn"), initializer=_leave_ctrl_c_to_parent
    )
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _leave_ctrl_c_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _connect_to_dask(address: str) -> Iterator[Executor]:
    """Yield an executor on the workers of a running scheduler. Dask moves chunks of lost workers to other workers."""
    try:
        from distributed import Client
    except ImportError as error:
        raise SearchError(f"workers on other machines need Dask: {describe_extra('cluster')}") from error
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in _SCHEMES:
        raise SearchError(f"{address!r} is not a valid scheduler address (example: tcp://192.0.2.1:8786)")
    try:
        # After failures, a Dask client retries and then ends the program with a traceback: check the port first.
        socket.create_connection((host, port), _CONNECT_S).close()
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SearchError(
            f"no Dask scheduler answers at {address} ({error}): start `dask scheduler` there, and `dask "
            f"worker {address}` on the machines that should search"
        ) from error
    try:
        yield client.get_executor(pure=False)  # not pure: the same chunk submitted twice runs twice
    finally:
        client.close()
