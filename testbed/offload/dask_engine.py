"""Engine with the workers of a Dask scheduler.

Stages are sent by value, so workers need only Dask and the libraries that the transforms import.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import fields
from types import FunctionType, ModuleType
from typing import Any

from lightbed.wording import describe_extra
from testbed.errors import OffloadError
from testbed.offload.configuration import Tls
from testbed.offload.engine import WorkerLost
from testbed.offload.serialisation import SourceFinder, collect_sources, serialise_parts
from testbed.offload.stages import (
    Pipeline,
    Runner,
    convert_to_arrays,
    fix_allocator_thresholds,
    use_spare_rng,
)

USER_ERROR_TAG = "error of a sample, of the user's code"
"""Tag of an error that a stage returns. Dask would retry a stage that raises, or treat its worker as lost."""

CLIENT_NAME = "offload"
"""Part of the id of each client of this package. Each client is a job, and the jobs share the scheduler's workers."""

ENTRY_MODULE = "lightbed_offload_entry"
MAX_RETRIES = 5
_CONNECT_TIMEOUT_S = 15.0
_FETCH_CONNECT_TIMEOUT_S = 3.0
"""Time limit for a connection to a worker, to fetch a result. Dask retries for this time, even if refused. Then the
scheduler runs the stage again elsewhere."""
_FETCH_TIMEOUT_S = 20.0
"""Time to fetch a finished result. A host that dies while it sends would block one of the few concurrent fetches. After
this time its result counts as lost."""
_MAX_FETCHES = 4
"""Number of concurrent fetches."""
_LOST_WORKER_ERRORS = {
    "KilledWorker",
    "CancelledError",
    "FutureCancelledError",
    "CommClosedError",
    "LostWorkerError",
}


class StageWorker:
    """The pipeline on a worker: a Dask plugin, which Dask sets up on all present and future workers."""

    def __init__(self, name: str, packed_pipeline: bytes, sources: SourceFinder) -> None:
        self.name = name
        self.parts = packed_pipeline
        self.sources = sources

    def setup(self, worker: Any) -> None:
        """Create the runner in the worker's process, with the allocator settings of the trainer."""
        fix_allocator_thresholds()
        use_spare_rng()  # setup runs in the thread of the event loop
        self.sources.install()
        self.runner = Runner(Pipeline(**pickle.loads(self.parts)))  # noqa: S301 - Dask itself pickles everything
        register_entry_point()

    def teardown(self, worker: Any) -> None:
        """Do nothing, because the process ends."""


def run_stage(name: str, stage: str, payload: Any, epoch: int) -> Any:
    """Run a stage on a worker. Return its result, or (`USER_ERROR_TAG`, error)."""
    from distributed import get_worker

    plugin: StageWorker = get_worker().plugins[name]
    try:
        return convert_to_arrays(plugin.runner.run_stage(stage, payload, epoch))
    except Exception as error:  # noqa: BLE001 - the trainer raises it; Dask would retry
        return USER_ERROR_TAG, make_picklable_error(error)


def make_picklable_error(error: Exception) -> Exception:
    """Return the error with the worker's traceback as a note, or a `RuntimeError` if it cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled on this line
    except Exception:  # noqa: BLE001 - pickling runs the user's code, which may raise anything
        notes = getattr(error, "__notes__", [])
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.__notes__ = notes
    error.add_note(f"on a worker:\n{text}")
    return error.with_traceback(None)


def register_entry_point() -> Any:
    """Return `run_stage` from a module that trainer and workers create, so that tasks contain only its name.

    Sending the function by value with every task would take milliseconds of the trainer's processor time.
    """
    module = sys.modules.setdefault(ENTRY_MODULE, ModuleType(ENTRY_MODULE))
    if not hasattr(module, "run_stage"):
        entry_point = FunctionType(run_stage.__code__, run_stage.__globals__, "run_stage")
        entry_point.__module__ = ENTRY_MODULE
        module.run_stage = entry_point  # type: ignore[attr-defined]
    return module.run_stage


class WeightedRotation:
    """Weighted round robin. The worker that is furthest behind its share is next.

    >>> rotation = WeightedRotation({"a": 2, "b": 1})
    >>> rotation.set_addresses({"a": "a", "b": "b"})
    >>> [rotation.choose_next() for _ in range(6)]
    ['a', 'b', 'a', 'a', 'b', 'a']
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if not weight > 0:
                raise OffloadError(
                    f"the weight of {name} is {weight}: give more than 0, or leave the worker out"
                )
        self._weights = dict(weights)
        self._deficit_by_address: dict[str, float] = {}
        self._weight_by_address: dict[str, float] = {}

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Set the addresses of the workers, by name. Raises `OffloadError` for a weight without a worker."""
        for name, weight in self._weights.items():
            if name not in addresses:
                raise OffloadError(f"no worker is named {name}; workers: {', '.join(addresses)}")
            self._weight_by_address[addresses[name]] = weight
        self._deficit_by_address = dict.fromkeys(self._weight_by_address, 0.0)

    def choose_next(self) -> str | None:
        """Return the address of the next worker, or None if no worker has a weight."""
        if not self._deficit_by_address:
            return None
        for address, weight in self._weight_by_address.items():
            self._deficit_by_address[address] += weight
        next_address = max(self._deficit_by_address, key=lambda address: self._deficit_by_address[address])
        self._deficit_by_address[next_address] -= sum(self._weight_by_address.values())
        return next_address


class DaskEngine:
    """Engine with the workers of a running scheduler. It fetches results directly from the workers.

    `weights` maps addresses or names of workers to their share of the work; by default Dask distributes the work.
    `list_other_jobs` returns jobs that use the hosts but are not clients, such as the leases of a lab. Raises
    `OffloadError` if no scheduler answers. `open` raises `OffloadError` without workers.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: Tls | None = None,
        weights: Mapping[str, float] | None = None,
        job: str = "",
        list_other_jobs: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OffloadError(f"workers on other machines need Dask: {describe_extra('offload')}") from error
        if address.startswith("tls:") and tls is None:
            raise OffloadError(
                f"{address} accepts only connections with certificates: name them under the key `tls`"
            )
        try:
            self._client = Client(
                address,
                timeout=_CONNECT_TIMEOUT_S,
                name=f"{CLIENT_NAME}-{job or uuid.uuid4().hex[:8]}",
                security=_make_security(tls),
                direct_to_workers=True,
                set_as_default=False,
            )
        except (OSError, ValueError) as error:
            raise OffloadError(
                f"no Dask scheduler answers at {address} ({error}): start `dask scheduler` there, and `dask "
                f"worker {address} --nthreads 1` on the hosts that should prepare data"
            ) from error
        self._client.rpc.timeout = _FETCH_CONNECT_TIMEOUT_S
        self._address = address
        self._plugin_name = f"offload-{uuid.uuid4().hex}"
        self._rotation = WeightedRotation(weights or {})
        self._list_other_jobs = list_other_jobs
        self._run_entry_point: Any = None
        self._fetches: set[Future[Any]] = set()
        self._fetch_lock = threading.Lock()
        self._fetch_slots = asyncio.Semaphore(_MAX_FETCHES)
        self._is_closed = False

    @property
    def slot_count(self) -> int:
        """Number of threads of all workers, at least 1."""
        return max(1, len(self.list_workers()))

    def open(self, runner: Runner) -> None:
        """Send the pipeline to all present and future workers."""
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_TIMEOUT_S)
        except TimeoutError as error:
            raise OffloadError(
                f"the scheduler {self._address} has no workers: start `dask worker {self._address} --nthreads 1`"
            ) from error
        pipeline = runner.pipeline
        try:
            pipeline_parts = {part.name: getattr(pipeline, part.name) for part in fields(pipeline)}
            packed_pipeline = serialise_parts(pipeline_parts)
            self._client.sync(_use_spare_rng_in_loop)
            self._run_entry_point = register_entry_point()
            self._client.run_on_scheduler(register_entry_point)  # the scheduler unpickles tasks
            self._register_plugin(
                _make_plugin(self._plugin_name, packed_pipeline, collect_sources(pipeline_parts.values()))
            )
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
            self._rotation.set_addresses(
                {
                    name: address
                    for address, worker_document in workers.items()
                    for name in (address, str(worker_document["name"]))
                }
            )
        except OffloadError:
            self.close()
            raise

    def _register_plugin(self, plugin: Any) -> None:
        """Register the plugin on all workers. Raises `OffloadError` if a worker cannot set it up."""
        try:
            self._client.register_plugin(plugin, name=self._plugin_name)
        except Exception as error:
            if self._client.status != "running" or isinstance(error, OSError):
                raise
            raise OffloadError(
                f"the pipeline was sent, but a worker cannot set it up ({error}): install there what the "
                "pipeline imports, in the versions of the trainer"
            ) from error

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Submit a stage, and return the future of its result. If its worker is lost, Dask runs it elsewhere."""
        target_address = self._rotation.choose_next()
        placement_options = (
            {} if target_address is None else {"workers": [target_address], "allow_other_workers": True}
        )
        dask_future = self._ask(
            lambda: self._client.submit(
                self._run_entry_point,
                self._plugin_name,
                stage,
                payload,
                epoch,
                pure=False,
                retries=MAX_RETRIES,
                **placement_options,
            ),
            None,
            is_open=self._client.status == "running",  # a request during a reconnect may get no answer
        )
        future: Future[Any] = Future()
        if dask_future is None:
            future.set_exception(WorkerLost(f"the scheduler {self._address} is gone"))
            return future
        future.add_done_callback(
            lambda local_future: dask_future.cancel() if local_future.cancelled() else None
        )
        dask_future.add_done_callback(lambda finished_future: self._start_fetch(finished_future, future))
        return future

    def _start_fetch(self, dask_future: Any, future: Future[Any]) -> None:
        """Start to fetch the result of a finished Dask future into `future`.

        This must not block, because all clients of this process share one thread for callbacks. Waiting there for an
        event loop that has just stopped would block every other engine.
        """
        if not future.set_running_or_notify_cancel():
            return
        fetch = None
        with self._fetch_lock:
            if not self._is_closed and not dask_future.cancelled():
                result = self._await_result(dask_future)
                try:
                    fetch = asyncio.run_coroutine_threadsafe(result, self._client.loop.asyncio_loop)
                    self._fetches.add(fetch)
                except RuntimeError:  # the event loop has ended
                    result.close()
        if fetch is None:
            future.set_exception(WorkerLost("the result was dropped: its client has disconnected"))
            return
        fetch.add_done_callback(lambda fetch: self._set_result(fetch, dask_future, future))

    async def _await_result(self, dask_future: Any) -> Any:
        """Fetch a result in the client's event loop. The time limit starts when the fetch gets its turn."""
        async with self._fetch_slots, asyncio.timeout(_FETCH_TIMEOUT_S):
            return await dask_future

    def _set_result(self, fetch: Future[Any], dask_future: Any, future: Future[Any]) -> None:
        """Set the result or the error of `future` from a finished fetch, and release the Dask future."""
        self._fetches.discard(fetch)
        try:
            value = fetch.result()
            if (
                type(value) is tuple
                and len(value) == 2
                and isinstance(value[0], str)
                and value[0] == USER_ERROR_TAG
            ):
                future.set_exception(value[1])
            else:
                future.set_result(value)
        except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
            is_worker_lost = type(error).__name__ in _LOST_WORKER_ERRORS or isinstance(error, OSError)
            future.set_exception(WorkerLost(f"{type(error).__name__}: {error}") if is_worker_lost else error)
        finally:
            # Fetches that `close` cancelled are released by Dask's client itself: a release here prints an error.
            if not fetch.cancelled():
                dask_future.release()

    def read_cpu_ns(self) -> int:
        """Return 0, because workers are separate processes."""
        return 0

    def list_jobs(self) -> frozenset[str]:
        """Return the ids of all clients of this kind on the scheduler, and the other jobs on the hosts."""
        clients = self._ask(
            lambda: self._client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients)), []
        )
        return (
            frozenset(client for client in clients if f"-{CLIENT_NAME}-" in client) | self._list_other_jobs()
        )

    def list_workers(self) -> tuple[str, ...]:
        """Return the host of each worker thread, sorted."""
        thread_count_by_address: dict[str, int] = self._ask(self._client.nthreads, {})
        return tuple(
            sorted(
                host
                for address, thread_count in thread_count_by_address.items()
                for host in [_parse_host(address)] * thread_count
            )
        )

    def close(self) -> None:
        """Disconnect. The workers keep running, and pending fetches count as lost."""
        with self._fetch_lock:
            self._is_closed = True
            fetches = list(self._fetches)
        for fetch in fetches:  # the event loop ends with the client and would never finish them
            fetch.cancel()
        try:
            self._ask(lambda: self._client.unregister_worker_plugin(self._plugin_name), None)
        except (KeyError, TimeoutError, ValueError):  # the workers are already gone
            pass
        finally:
            self._client.close()

    def _ask(self, send_request: Callable[[], Any], default: Any, *, is_open: bool = True) -> Any:
        """Return Dask's answer, or `default` if the scheduler is gone, so that the training goes on without workers."""
        try:
            return send_request() if is_open else default
        except Exception as error:
            if self._client.status == "running" and not isinstance(error, OSError):
                raise
            return default


def _parse_host(address: str) -> str:
    """Return the host of an address.

    >>> _parse_host("tcp://10.0.0.1:4000")
    '10.0.0.1'
    """
    return address.rpartition("://")[2].rpartition(":")[0]


async def _use_spare_rng_in_loop() -> None:
    """Make the event loop of Dask in this process draw from the spare random generator."""
    use_spare_rng()


def _make_plugin(name: str, parts: bytes, sources: SourceFinder) -> Any:
    """Return the plugin as an instance of Dask's plugin class, which is imported late because Dask is an extra."""
    from distributed import WorkerPlugin

    class Offload(StageWorker, WorkerPlugin):  # type: ignore[misc]  # Dask is Any here
        pass

    return Offload(name, parts, sources)


def _make_security(tls: Tls | None) -> Any:
    if tls is None:
        return None
    from distributed import Security

    return Security(
        tls_ca_file=str(tls.ca_file),
        tls_client_cert=str(tls.certificate),
        tls_client_key=str(tls.key),
        require_encryption=True,
    )
