"""The lab for coroutines: each method runs in a separate thread, and can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from testbed.operate.engine.consent import allow_stop
from testbed.scripting.backends import LabEvent
from testbed.scripting.lab import HeldLease, Lab, open_lab

_COROUTINES = (
    "optimise",
    "plan",
    "apply",
    "verify",
    "path",
    "nccl",
    "job",
    "run",
    "repair",
    "resume",
    "rollback",
    "light",
    "epochs",
    "lease",
    "command",
)
"""Methods of `Lab` that are coroutines of `AsyncLab`."""


async def open_lab_async(source: str | Path, **options: Any) -> AsyncLab:
    """Return the lab of a lab file or of a service for coroutines. Takes and raises the same as `open_lab`."""
    return AsyncLab(await asyncio.to_thread(partial(open_lab, source, **options)))


class AsyncLab:
    """A lab with the methods of `Lab` as coroutines: `await lab.apply()`. It is an async context manager.

    Cancelling a change stops it after its current step.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the resources of the lab; stop it if `open_lab_async` started it."""
        await asyncio.to_thread(self._lab.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of `Lab` as a coroutine function. Raise `AttributeError` for an unknown name."""
        if name not in _COROUTINES:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return partial(self._run, getattr(self._lab, name))

    async def _run(self, method: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        with allow_stop() as stop:
            thread = asyncio.create_task(asyncio.to_thread(partial(method, *arguments, **options)))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                await asyncio.to_thread(stop)
                # A change ends after its current step, never in the middle of it.
                await asyncio.wait([thread])
                if thread.exception() is None and isinstance(thread.result(), HeldLease):
                    await asyncio.to_thread(thread.result().release)  # nobody gets this lease
                raise

    async def list_hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts, in the order of the lab file."""
        return await asyncio.to_thread(lambda: self._lab.hosts)

    async def events(self, after: int | None = None) -> AsyncIterator[LabEvent]:
        """Yield the events after number `after` (None: from now on) without end, each once as it happens."""
        events = await asyncio.to_thread(self._lab.events_async, after)
        async for event in events:
            yield event
