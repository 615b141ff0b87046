"""Progress of an installation: one line per step, with elapsed time, and remaining time known from earlier runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

_ERASE = "\r\x1b[K"


def format_duration(seconds: float) -> str:
    """Format a time for people.

    >>> format_duration(0.4), format_duration(59.6), format_duration(154)
    ('0.4 s', '60 s', '2 min 34 s')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def estimate_time_left_s(
    steps: Sequence[str], durations_s: Mapping[str, float], elapsed_s: float
) -> float | None:
    """Return the seconds until all `steps` are done, if the first of them has run for `elapsed_s`.

    Returns None if a step has no remembered duration, or if the first one takes longer than remembered.

    >>> estimate_time_left_s(["torch", "host"], {"torch": 10, "host": 2}, 4)
    8
    >>> estimate_time_left_s(["torch", "host"], {"torch": 10}, 4) is None
    True
    >>> estimate_time_left_s(["torch", "host"], {"torch": 10, "host": 2}, 11) is None
    True
    """
    if not all(step in durations_s for step in steps):
        return None
    if steps and elapsed_s > durations_s[steps[0]]:
        return None
    return sum(durations_s[step] for step in steps) - elapsed_s


def format_state(elapsed_s: float, left_s: float | None, detail: str = "") -> str:
    """Return the state of a step, the second half of its line.

    >>> format_state(12, 31.2, "the CPU build")
    'the CPU build, 12 s, about 31 s left'
    """
    remaining_text = "" if left_s is None or left_s < 1 else f"about {format_duration(round(left_s))} left"
    return ", ".join(part for part in (detail, format_duration(elapsed_s), remaining_text) if part)


@dataclass(slots=True)
class Line:
    """The line of a running step."""

    title: str
    stream: TextIO
    measure_elapsed_s: Callable[[], float]
    estimate_left_s: Callable[[float], float | None]
    detail: str = ""
    """Result of the step in words, printed at the end."""

    def begin(self) -> None:
        """Print the title; a file or pipe gets nothing more until the step ends."""
        self.stream.write(f"{self.title} ... ")
        self.stream.flush()

    def tick(self) -> None:
        """Update the time, if the stream is a terminal."""
        if self.stream.isatty():
            elapsed_s = self.measure_elapsed_s()
            self.stream.write(
                f"{_ERASE}{self.title} ... {format_state(elapsed_s, self.estimate_left_s(elapsed_s))}"
            )
            self.stream.flush()

    def end(self, state: str) -> None:
        """Print the final state of the step, and end the line."""
        title = f"{_ERASE}{self.title} ... " if self.stream.isatty() else ""
        self.stream.write(f"{title}{state}\n")
        self.stream.flush()


@dataclass(slots=True)
class Progress:
    """The progress lines of an installation, one for each step of `plan`, in order."""

    plan: Sequence[str]
    stream: TextIO
    durations_s: dict[str, float] = field(default_factory=dict)
    """Duration of each step in an earlier run, in s."""
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def step(self, key: str, title: str) -> Iterator[Line]:
        """Print one line for the step that runs in the block, and remember its duration."""
        position = self.plan.index(key)
        following = self.plan[position:]
        start = self.clock()
        line = Line(
            f"install: {position + 1}/{len(self.plan)} {title}",
            self.stream,
            lambda: self.clock() - start,
            lambda elapsed_s: estimate_time_left_s(following, self.durations_s, elapsed_s),
        )
        line.begin()
        try:
            yield line
        except BaseException:
            line.end("not done")
            raise
        elapsed_s = self.clock() - start
        line.end(
            format_state(elapsed_s, estimate_time_left_s(following[1:], self.durations_s, 0), line.detail)
        )
        self.durations_s[key] = elapsed_s


def read_durations(path: Path) -> dict[str, float]:
    """Read the remembered duration of each step in s; {} if the file is missing or invalid."""
    try:
        durations = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in durations.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def write_durations(path: Path, durations: Mapping[str, float]) -> None:
    """Write the duration of each step in s. If the file cannot be written, the next run shows no remaining time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({key: round(value, 1) for key, value in durations.items()}), encoding="utf-8"
        )
    except OSError:
        return
