"""Task graphs, transfers and switched circuits run on a fabric."""

from __future__ import annotations

from sim.models.network.execution.simulation import Change, Execution, StalledError, Trace, simulate

__all__ = ["Change", "Execution", "StalledError", "Trace", "simulate"]
