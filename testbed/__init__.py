"""Describe, patch and verify an optical testbed, measure on it, and keep every measurement.

from testbed import open_lab

with open_lab("labs/testbed12.yaml", start=True) as lab:
    print(lab.apply().verified)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.scripting.asynchronous import AsyncLab, open_lab_async
    from testbed.scripting.lab import HeldLease, Lab, open_lab

__all__ = ["AsyncLab", "HeldLease", "Lab", "open_lab", "open_lab_async"]


def __getattr__(name: str) -> Any:
    """Return a public name. It is imported at its first use, so that commands start fast."""
    if name in __all__:
        from testbed.scripting import asynchronous

        return getattr(asynchronous, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
