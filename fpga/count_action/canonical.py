"""The canonical text of a datapath, by which hardware and driver know each other."""

from __future__ import annotations

import enum
import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def canonical(thing: Any) -> str:
    """Return the canonical text of frozen classes: sorted keys, no spaces, no locations."""
    return json.dumps(_plain(thing), sort_keys=True, separators=(",", ":"))


def _plain(thing: Any) -> Any:
    if isinstance(thing, enum.Enum):
        return thing.value
    if is_dataclass(thing):
        kept = (each for each in fields(thing) if each.compare and not _left_out(thing, each))
        return {each.name: _plain(getattr(thing, each.name)) for each in kept}
    if isinstance(thing, tuple):
        return [_plain(each) for each in thing]
    return thing


def _left_out(thing: Any, each: Any) -> bool:
    """Return whether a field came after the first release and has its default: old texts keep their digest."""
    if "added" not in each.metadata:
        return False
    assert each.default is not MISSING
    return bool(getattr(thing, each.name) == each.default)
