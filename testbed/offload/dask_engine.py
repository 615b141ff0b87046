"""Workers of a Dask scheduler. Stages travel by value, so that workers need Dask and what the transforms import."""

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

from lightbed.wording import install_extra
from testbed.errors import OffloadError
from testbed.offload.configuration import Tls
from testbed.offload.engine import WorkerLost
from testbed.offload.stages import Pipeline, Runner, set_allocator, set_aside_thread, to_wire
from testbed.offload.travel import Sources, pack, sources_of

BROKEN = "error of a sample, of the user's code"
"""Mark before an error of a stage. Dask would run the stage again, and take some errors for a lost worker."""

CLIENT = "offload"
"""Part of the id of every client of ours, by which a scheduler counts the jobs that share its workers."""

ENTRY_MODULE = "lightbed_offload_entry"
RETRIES = 5
_CONNECT_S = 15.0
_FETCH_S = 3.0
"""Time to connect to a worker for a result. Dask tries until it is over, also where the worker is gone and refuses;
then the scheduler is asked, and the stage runs again elsewhere."""
_RESULT_S = 20.0
"""Time to fetch a result that is there. A host that dies while it sends would keep one of Dask's few fetches at a time
to itself; its batch is taken back instead."""
_FETCHES = 4
"""Results that are fetched at a time."""
_LOST = {"KilledWorker", "CancelledError", "FutureCancelledError", "CommClosedError", "LostWorkerError"}


class StageWorker:
    """The pipeline on a worker: a plugin of Dask, set up once on each, also on those that join later."""

    def __init__(self, name: str, parts: bytes, sources: Sources) -> None:
        self.name = name
        self.parts = parts
        self.sources = sources

    def setup(self, worker: Any) -> None:
        """Make the runner in the worker's process, with the allocator settings of the trainer."""
        set_allocator()
        set_aside_thread()  # setup runs in the thread of the event loop
        self.sources.install()
        self.runner = Runner(Pipeline(**pickle.loads(self.parts)))  # noqa: S301 - Dask pickles all that it sends
        entry_point()

    def teardown(self, worker: Any) -> None:
        """Do nothing: the process ends."""


def run_stage(name: str, stage: str, payload: Any, epoch: int) -> Any:
    """Return what a stage makes of a payload, on a worker."""
    from distributed import get_worker

    plugin = get_worker().plugins[name]
    try:
        return to_wire(plugin.runner.run(stage, payload, epoch))
    except Exception as error:  # noqa: BLE001 - it belongs to the trainer; Dask would try again
        return BROKEN, portable(error)


def portable(error: Exception) -> Exception:
    """Return an error that can be pickled, with the traceback of the worker as a note."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - of its class or its arguments
        notes = getattr(error, "__notes__", [])
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.__notes__ = notes
    error.add_note(f"on a worker:\n{text}")
    return error.with_traceback(None)


def entry_point() -> Any:
    """Return `run_stage` as the function of a module that trainer and workers have, so that tasks name it alone.

    To send a function by value with every task takes milliseconds of the trainer's processor time.
    """
    module = sys.modules.setdefault(ENTRY_MODULE, ModuleType(ENTRY_MODULE))
    if not hasattr(module, "run_stage"):
        entry = FunctionType(run_stage.__code__, run_stage.__globals__, "run_stage")
        entry.__module__ = ENTRY_MODULE
        module.run_stage = entry  # type: ignore[attr-defined]
    return module.run_stage


class Shares:
    """Turns by weight: who is furthest behind its share comes next.

    >>> shares = Shares({"a": 2, "b": 1})
    >>> shares.use({"a": "a", "b": "b"})
    >>> [shares.next() for _ in range(6)]
    ['a', 'b', 'a', 'a', 'b', 'a']
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if not weight > 0:
                raise OffloadError(
                    f"the weight of {name} is {weight}: give more than 0, or leave the worker out"
                )
        self._weights = dict(weights)
        self._behind: dict[str, float] = {}
        self._by_address: dict[str, float] = {}

    def use(self, addresses: Mapping[str, str]) -> None:
        """Take the addresses of named workers. Raises `OffloadError` for a name that nobody has."""
        for name, weight in self._weights.items():
            if name not in addresses:
                raise OffloadError(f"no worker is named {name}; workers: {', '.join(addresses)}")
            self._by_address[addresses[name]] = weight
        self._behind = dict.fromkeys(self._by_address, 0.0)

    def next(self) -> str | None:
        """Return the address whose turn it is, None when nobody has a weight."""
        if not self._behind:
            return None
        for address, weight in self._by_address.items():
            self._behind[address] += weight
        first = max(self._behind, key=lambda address: self._behind[address])
        self._behind[first] -= sum(self._by_address.values())
        return first


class DaskEngine:
    """Workers of a scheduler that runs. Results come from the workers directly, never through the scheduler.

    `weights` gives addresses of workers, or their names, a share of the work; without, all get the same. `others` names
    jobs that use the hosts without being clients, such as the leases of a lab. Raises `OffloadError` when no scheduler
    answers, and on `open` when no worker has come.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: Tls | None = None,
        weights: Mapping[str, float] | None = None,
        job: str = "",
        others: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise OffloadError(f"workers on other machines need Dask: {install_extra('offload')}") from error
        if address.startswith("tls:") and tls is None:
            raise OffloadError(
                f"{address} accepts only connections with certificates: name them under the key `tls`"
            )
        try:
            self._client = Client(
                address,
                timeout=_CONNECT_S,
                name=f"{CLIENT}-{job or uuid.uuid4().hex[:8]}",
                security=_security(tls),
                direct_to_workers=True,
                set_as_default=False,
            )
        except (OSError, ValueError) as error:
            raise OffloadError(
                f"no Dask scheduler answers at {address} ({error}): start `dask scheduler` there, and `dask "
                f"worker {address} --nthreads 1` on the hosts that should prepare data"
            ) from error
        self._client.rpc.timeout = _FETCH_S
        self._address = address
        self._name = f"offload-{uuid.uuid4().hex}"
        self._shares = Shares(weights or {})
        self._others = others
        self._run: Any = None
        self._fetches: set[Future[Any]] = set()
        self._fetching = threading.Lock()
        self._turns = asyncio.Semaphore(_FETCHES)
        self._is_closed = False

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(1, len(self.workers()))

    def open(self, runner: Runner) -> None:
        """Send the pipeline to all workers, and to those that will come."""
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            raise OffloadError(
                f"the scheduler {self._address} has no workers: start `dask worker {self._address} --nthreads 1`"
            ) from error
        pipeline = runner.pipeline
        try:
            named = {each.name: getattr(pipeline, each.name) for each in fields(pipeline)}
            parts = pack(named)
            self._client.sync(_set_aside_loop)
            self._run = entry_point()
            self._client.run_on_scheduler(entry_point)  # it reads what tasks are made of
            self._set_up(_plugin(self._name, parts, sources_of(named.values())))
            known = self._client.scheduler_info(n_workers=-1)["workers"]
            self._shares.use(
                {name: address for address, about in known.items() for name in (address, str(about["name"]))}
            )
        except OffloadError:
            self.close()
            raise

    def _set_up(self, plugin: Any) -> None:
        """Send the pipeline. Raises `OffloadError` when a worker cannot unpack it."""
        try:
            self._client.register_plugin(plugin, name=self._name)
        except Exception as error:
            if self._client.status != "running" or isinstance(error, OSError):
                raise
            raise OffloadError(
                f"the pipeline was sent, but a worker cannot set it up ({error}): install there what the "
                "pipeline imports, in the versions of the trainer"
            ) from error

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Return the future of a stage on a worker. Dask runs it again elsewhere when its worker is lost."""
        target = self._shares.next()
        chosen = {} if target is None else {"workers": [target], "allow_other_workers": True}
        there = self._ask(
            lambda: self._client.submit(
                self._run, self._name, stage, payload, epoch, pure=False, retries=RETRIES, **chosen
            ),
            None,
            is_open=self._client.status
            == "running",  # what is asked while it connects again may get no answer
        )
        here: Future[Any] = Future()
        if there is None:
            here.set_exception(WorkerLost(f"the scheduler {self._address} is gone"))
            return here
        here.add_done_callback(lambda asked: there.cancel() if asked.cancelled() else None)
        there.add_done_callback(lambda done: self._fetch(done, here))
        return here

    def _fetch(self, done: Any, here: Future[Any]) -> None:
        """Begin to fetch a result, for who waits for it.

        Runs in the one thread that all clients of this process share for callbacks, so it waits for nothing. It waited
        for the result once, and what was asked of an event loop that had just stopped held up every other engine.
        """
        if not here.set_running_or_notify_cancel():
            return
        fetch = None
        with self._fetching:
            if not self._is_closed and not done.cancelled():
                result = self._result_of(done)
                try:
                    fetch = asyncio.run_coroutine_threadsafe(result, self._client.loop.asyncio_loop)
                    self._fetches.add(fetch)
                except RuntimeError:  # the event loop has ended
                    result.close()
        if fetch is None:
            here.set_exception(WorkerLost("the result was dropped: its client has disconnected"))
            return
        fetch.add_done_callback(lambda fetch: self._hand_over(fetch, done, here))

    async def _result_of(self, done: Any) -> Any:
        """Return a result of Dask; runs in the event loop of its client, and has its time from its turn on."""
        async with self._turns, asyncio.timeout(_RESULT_S):
            return await done

    def _hand_over(self, fetch: Future[Any], done: Any, here: Future[Any]) -> None:
        """Give a result of Dask to who waits for it."""
        self._fetches.discard(fetch)
        try:
            value = fetch.result()
            if type(value) is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] == BROKEN:
                here.set_exception(value[1])
            else:
                here.set_result(value)
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            is_lost = type(error).__name__ in _LOST or isinstance(error, OSError)
            here.set_exception(WorkerLost(f"{type(error).__name__}: {error}") if is_lost else error)
        finally:
            # Of a fetch that `close` ends the client lets go: Dask prints an error of one that loses its key before.
            if not fetch.cancelled():
                done.release()

    def cpu_ns(self) -> int:
        """Return 0: workers are processes of their own."""
        return 0

    def jobs(self) -> frozenset[str]:
        """Return the clients of ours that are connected to the scheduler, and the other jobs of the hosts."""
        clients = self._ask(
            lambda: self._client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients)), []
        )
        return frozenset(each for each in clients if f"-{CLIENT}-" in each) | self._others()

    def workers(self) -> tuple[str, ...]:
        """Return the hosts of the workers, one for each thread."""
        threads: dict[str, int] = self._ask(self._client.nthreads, {})
        return tuple(
            sorted(host for address, count in threads.items() for host in [_host_of(address)] * count)
        )

    def close(self) -> None:
        """Disconnect; the workers stay. Results that are being fetched count as lost."""
        with self._fetching:
            self._is_closed = True
            fetches = list(self._fetches)
        for fetch in fetches:  # the event loop ends with the client, and would leave them unfinished
            fetch.cancel()
        try:
            self._ask(lambda: self._client.unregister_worker_plugin(self._name), None)
        except (KeyError, TimeoutError, ValueError):  # its workers are gone already
            pass
        finally:
            self._client.close()

    def _ask(self, question: Callable[[], Any], nothing: Any, *, is_open: bool = True) -> Any:
        """Return what Dask answers, or `nothing` when the scheduler is gone: the trainer goes on without workers."""
        try:
            return question() if is_open else nothing
        except Exception as error:
            if self._client.status == "running" and not isinstance(error, OSError):
                raise
            return nothing


def _host_of(address: str) -> str:
    """Return the host of an address.

    >>> _host_of("tcp://10.0.0.1:4000")
    '10.0.0.1'
    """
    return address.rpartition("://")[2].rpartition(":")[0]


async def _set_aside_loop() -> None:
    """Give Dask's event loop in this process a generator of its own to draw from."""
    set_aside_thread()


def _plugin(name: str, parts: bytes, sources: Sources) -> Any:
    """Return the plugin as a class of Dask's, made here since Dask is an extra."""
    from distributed import WorkerPlugin

    class Offload(StageWorker, WorkerPlugin):  # type: ignore[misc]  # Dask is Any here
        pass

    return Offload(name, parts, sources)


def _security(tls: Tls | None) -> Any:
    if tls is None:
        return None
    from distributed import Security

    return Security(
        tls_ca_file=str(tls.ca_file),
        tls_client_cert=str(tls.certificate),
        tls_client_key=str(tls.key),
        require_encryption=True,
    )
