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
_bound_subjects: ContextVar[Mapping[str, str]] = ContextVar("log_context", default={})  # noqa: B039  never changed


ContextFactory = Callable[[Mapping[str, str]], AbstractContextManager[object]]
_block_context_factory: ContextFactory | None = None


def set_block_context(context_factory: ContextFactory | None) -> None:
    """Enter what `context_factory` returns around every block of `about`; None stops this."""
    global _block_context_factory  # noqa: PLW0603  one for the process, as loggers are
    _block_context_factory = context_factory


@contextmanager
def about(**subjects: str) -> Iterator[None]:
    """Bind subjects for log lines of the block, in addition to subjects that are already bound."""
    context_token = _bound_subjects.set({**_bound_subjects.get(), **subjects})
    try:
        if _block_context_factory is None:
            yield
        else:
            with _block_context_factory(subjects):
                yield
    finally:
        _bound_subjects.reset(context_token)


def get_log_subjects() -> Mapping[str, str]:
    """Return the bound subjects and their values."""
    return _bound_subjects.get()
