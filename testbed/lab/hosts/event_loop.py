"""An event loop in its own thread, so that a synchronous program can use many connections at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread; `call` runs a coroutine there and waits for it."""

    _loop: asyncio.AbstractEventLoop
    _thread: threading.Thread

    def start(self) -> None:
        """Start the thread; required before any other method."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and return its result. If the caller is interrupted, cancel `coroutine`."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop without waiting for it."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Cancel the remaining tasks, end the thread and close the loop."""
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def gather(awaitable_by_host: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], dict[str, Exception]]:
    """Await all work concurrently; return its results and its exceptions, both by host."""
    results = await asyncio.gather(*awaitable_by_host.values(), return_exceptions=True)
    result_by_host: dict[str, T] = {}
    error_by_host: dict[str, Exception] = {}
    for host, result in zip(awaitable_by_host, results, strict=True):
        if isinstance(result, Exception):
            error_by_host[host] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            result_by_host[host] = result
    return result_by_host, error_by_host


async def wait_at_most(awaitable: Awaitable[object], timeout_s: float) -> None:
    """Wait for `awaitable` at most `timeout_s`, so that closing never blocks on a host that does not answer."""
    try:
        async with asyncio.timeout(timeout_s):
            await awaitable
    except TimeoutError:
        pass


async def _cancel_others() -> None:
    other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in other_tasks:
        task.cancel()
    await asyncio.gather(*other_tasks, return_exceptions=True)
