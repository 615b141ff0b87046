"""Events that `testbed switch ADDRESS watch` sees: changes between two looks, and unasked messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ocs_drivers import CrossConnects, OpticalSwitch


@dataclass(frozen=True, slots=True)
class Sight:
    """Something that happened, for people and for programs."""

    text: str
    document: dict[str, Any]


def sights(device: OpticalSwitch, *, every_s: float, for_s: float | None) -> Iterator[Sight]:
    """Yield everything that changes, from now on; ends after `for_s`, or never.

    Devices that speak unasked are read when they do, and now and then; others at every look.
    """
    began_s = time.monotonic()
    held = device.read().connections
    last_event = max((event.number for event in device.events()), default=0)
    yield Sight(f"{len(held)} connected", {"connections": sorted(held.items())})
    while for_s is None or time.monotonic() - began_s < for_s:
        time.sleep(every_s)
        for event in device.events(since=last_event):
            last_event = event.number
            lines = " ".join(event.lines)
            yield Sight(f"{event.kind} {lines}", {"event": event.kind, "lines": list(event.lines)})
        found = device.read().connections
        if found != held:
            yield _difference(held, found)
            held = found


def _difference(before: CrossConnects, after: CrossConnects) -> Sight:
    removed, added = sorted(before.pairs - after.pairs), sorted(after.pairs - before.pairs)
    words = [f"-{i}:{o}" for i, o in removed] + [f"+{i}:{o}" for i, o in added]
    return Sight(" ".join(words), {"removed": removed, "added": added})
