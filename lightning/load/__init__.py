"""Open-loop load: requests at times drawn in advance, independent of answers, and their latency.

Latency counts from the scheduled time of sending. A stall of the server therefore counts for every request that it
delays, not only for the current one (no coordinated omission). `drive_http` sends requests of the Open Inference
Protocol (version 2) to any server. `drive_datagrams` sends inference packets. Both return an `Outcome`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.load.datagrams import drive_datagrams
    from lightning.load.http import drive_http
    from lightning.load.outcome import Outcome
    from lightning.load.schedule import draw_schedule

__all__ = ["Outcome", "draw_schedule", "drive_datagrams", "drive_http"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "datagrams": "drive_datagrams",
            "http": "drive_http",
            "outcome": "Outcome",
            "schedule": "draw_schedule",
        },
    )
