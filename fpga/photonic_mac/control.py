"""Datapaths of the library that come with the count-action language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fpga.count_action.load import load
from fpga.count_action.model import Datapath

_LIBRARY = Path(__file__).resolve().parents[1] / "library"


def library_datapath(name: str, parameters: Mapping[str, int] | None = None) -> Datapath:
    """Return a datapath of the library that comes with the language. Raises CountActionError when there is none."""
    return load(_LIBRARY / f"{name}.ca", dict(parameters or {})).datapath
