"""Subjects of log lines (run, operation, device and lease), bound for a block.

    with about(operation="20260301T102000-1a2b3c"):
        logger.info("step done")       # the line has the operation, however deep the call is

This module writes nothing: `testbed.observe.json_log` adds the bound subjects to every line, and
`testbed.observe.traces` creates a span for each block.
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
    """Enter the context manager that `around` returns around every block of `about`; None stops this."""
    global _around  # noqa: PLW0603  one for the process, as loggers are
    _around = around


@contextmanager
def about(**subjects: str) -> Iterator[None]:
    """Bind subjects for log lines of the block, in addition to subjects that are already bound."""
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
    """Return the bound subjects and their values."""
    return _bound.get()
