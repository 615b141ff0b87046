"""Progress of commands on standard error: plain lines for logs, or a live bar for terminals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from testbed.design.evaluation.compilation import CodePart


ProgressCallback = Callable[[int, int, str], None]
"""A callback with the number of steps done, the number of all steps (0 if unknown), and a text."""
_progress_callback: ContextVar[ProgressCallback | None] = ContextVar("progress", default=None)


def note_compilation(*code_parts: CodePart) -> None:
    """Print on standard error that the simulator must be compiled, unless these parts are already compiled."""
    from testbed.design.evaluation.compilation import is_compiled

    if not is_compiled(*code_parts):
        print(
            "compiling the simulator for this machine, once: about half a minute", file=sys.stderr, flush=True
        )


@dataclass
class PlainNarrator:
    """Progress as plain lines, for logs and pipes. A step with the previous step's text is printed only at the end."""

    _last_text: str = ""

    def phase(self, title: str) -> None:
        """Start a new part of the job."""
        self._last_text = ""
        print(f"== {title}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Report an event."""
        print(f"   {text}", file=sys.stderr, flush=True)

    def tick(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` steps are complete."""
        if text != self._last_text or done >= total:
            print(f"   [{done}/{total}] {text}", file=sys.stderr, flush=True)
        self._last_text = text


class RichNarrator:
    """Progress as a live bar, for terminals."""

    def __init__(self, progress: RichProgress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def phase(self, title: str) -> None:
        """Start a new part of the job."""
        self._progress.console.print(f"[bold]{title}[/bold]")
        self._progress.reset(self._task, total=None, description=title)

    def note(self, text: str) -> None:
        """Report an event."""
        self._progress.console.print(f"  {text}", highlight=False)

    def tick(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` steps are complete."""
        self._progress.update(self._task, completed=done, total=total, description=text)


@dataclass
class CallbackNarrator:
    """Progress as calls of a function. Titles and events are calls with 0 of 0 steps."""

    callback: ProgressCallback

    def phase(self, title: str) -> None:
        """Report the start of a new part of the job."""
        self.callback(0, 0, title)

    def note(self, text: str) -> None:
        """Report an event."""
        self.callback(0, 0, text)

    def tick(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` steps are complete."""
        self.callback(done, total, text)


Narrator = PlainNarrator | RichNarrator | CallbackNarrator


@contextmanager
def report_progress(callback: ProgressCallback | None) -> Iterator[None]:
    """Report the progress of commands in the block to `callback`, or on standard error if `callback` is None."""
    previous_callback = _progress_callback.set(callback)
    try:
        yield
    finally:
        _progress_callback.reset(previous_callback)


@contextmanager
def narrate() -> Iterator[Narrator]:
    """Provide a narrator: the function of `report_progress`, else a live bar on a terminal, else plain lines."""
    callback = _progress_callback.get()
    if callback is not None:
        yield CallbackNarrator(callback)
        return
    if not sys.stderr.isatty():
        yield PlainNarrator()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield RichNarrator(progress)
