"""Preprocessing that goes elsewhere: a trainer's input pipeline, partly on the idle processors of other hosts.

`decide` is FastFlow's smart offloading; `OffloadedLoader` (extra `offload`: Dask and torch) runs what it decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.offload.policy import Candidate, Decision, Metrics, decide

if TYPE_CHECKING:
    from testbed.offload.loader import OffloadedLoader

__all__ = ["Candidate", "Decision", "Metrics", "OffloadedLoader", "decide"]


def __getattr__(name: str) -> Any:
    """Import the loader when it is asked for: it needs torch, which the policy does not."""
    if name == "OffloadedLoader":
        from testbed.offload.loader import OffloadedLoader

        return OffloadedLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
