"""Subjects of lines of a log: run, operation, device and lease, bound where each begins.

    with about(operation="20260301T102000-1a2b3c"):
        logger.info("step done")       # the line has the operation, however deep the call is

Nothing is written anywhere by this; `testbed.observe.json_log` adds what is bound to every line, and
`testbed.observe.traces` makes a span of each block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal

Subject = Literal["run", "operation", "device", "lease"]
SUBJECTS: tuple[Subject, ...] = ("run", "operation", "device", "lease")

logger = logging.getLogger("testbed")
_bound: ContextVar[Mapping[str, str]] = ContextVar("log_context", default={})  # noqa: B039  never changed


Around = Callable[[Mapping[str, str]], AbstractContextManager[object]]
_around: Around | None = None


def surround(around: Around | None) -> None:
    """Enter what this returns around every block of `about`; None ends it."""
    global _around  # noqa: PLW0603  one for the process, as loggers are
    _around = around


@contextmanager
def about(**subjects: str) -> Iterator[None]:
    """Bind subjects for what is logged inside, besides those that are bound already."""
    mark = _bound.set({**_bound.get(), **subjects})
    try:
        if _around is None:
            yield
        else:
            with _around(subjects):
                yield
    finally:
        _bound.reset(mark)


def find_bound() -> Mapping[str, str]:
    """Return what is bound here, by subject."""
    return _bound.get()
