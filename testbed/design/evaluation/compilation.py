"""Tells which code is compiled on this machine: simulators and searches are compiled at their first use."""

from __future__ import annotations

from importlib import import_module
from typing import Literal

from lightbed.compiled import IS_AVAILABLE, is_cached_on_disk

CodePart = Literal["flows", "packets", "routes", "search", "contention", "regions"]

_FUNCTION_BY_CODE_PART: dict[CodePart, tuple[str, str]] = {
    "flows": ("sim.models.network.engine.loop", "run"),
    "packets": ("sim.models.network.engine.packets", "run_packets"),
    "routes": ("testbed.design.routing.balancing", "replace_trees"),
    "search": ("testbed.design.search.recurrence", "compute_finish_s"),
    "contention": ("sim.models.contention.engine", "run"),
    "regions": ("testbed.design.circuits.region_search", "search_circuits"),
}
"""Module and name of one function per part; the whole part is compiled together with it."""


def is_compiled(*code_parts: CodePart) -> bool:
    """Return whether all these parts are compiled. Without numba nothing is compiled: return True."""
    if not IS_AVAILABLE:
        return True
    functions = [_FUNCTION_BY_CODE_PART[part] for part in code_parts]
    return all(is_cached_on_disk(getattr(import_module(module), name)) for module, name in functions)
