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

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result. If the caller is interrupted, cancel `work`."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
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


async def gather(work: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], dict[str, Exception]]:
    """Await all work concurrently; return its results and its exceptions, both by host."""
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    values: dict[str, T] = {}
    errors: dict[str, Exception] = {}
    for host, result in zip(work, results, strict=True):
        if isinstance(result, Exception):
            errors[host] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            values[host] = result
    return values, errors


async def wait_at_most(work: Awaitable[object], timeout_s: float) -> None:
    """Wait for `work` at most `timeout_s`, so that closing never blocks on a host that does not answer."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except TimeoutError:
        pass


async def _cancel_others() -> None:
    other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in other_tasks:
        task.cancel()
    await asyncio.gather(*other_tasks, return_exceptions=True)
