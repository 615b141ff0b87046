"""Offloading of preprocessing: idle processors of other hosts run part of a trainer's input pipeline.

`decide` is the smart offloading of FastFlow. `OffloadedLoader` runs its decision; it needs the extra `offload` (Dask
and torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.offload.policy import Candidate, Decision, Metrics, decide

if TYPE_CHECKING:
    from testbed.offload.loader import OffloadedLoader

__all__ = ["Candidate", "Decision", "Metrics", "OffloadedLoader", "decide"]


def __getattr__(name: str) -> Any:
    """Import the loader at its first use, because it needs torch and the policy does not."""
    if name == "OffloadedLoader":
        from testbed.offload.loader import OffloadedLoader

        return OffloadedLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
