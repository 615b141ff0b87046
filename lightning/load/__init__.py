"""Open-loop load: requests at times drawn beforehand, whether answers come or not, and what that did to latency.

Latency counts from the scheduled time of sending, so that a server that stalls is charged for every request that it
kept waiting, not only for the one that it was working on. `drive_http` speaks the Open Inference Protocol (version 2)
to any server that does; `drive_datagrams` sends inference packets. Both give an `Outcome`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.load.datagrams import drive_datagrams
    from lightning.load.http import drive_http
    from lightning.load.outcome import Outcome
    from lightning.load.schedule import poisson_schedule

__all__ = ["Outcome", "drive_datagrams", "drive_http", "poisson_schedule"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "datagrams": "drive_datagrams",
            "http": "drive_http",
            "outcome": "Outcome",
            "schedule": "poisson_schedule",
        },
    )
