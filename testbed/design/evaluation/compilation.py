"""The state of the simulator's machine code on this machine."""

from __future__ import annotations

from lightbed.compiled import AVAILABLE, is_kept


def is_compiled() -> bool:
    """Return True if the first simulation need not compile anything, also where numba is not installed."""
    if not AVAILABLE:
        return True
    from sim.models.network.engine import loop

    return is_kept(loop.run)
