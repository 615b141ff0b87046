"""Data sent to a device with its program: tables, envelopes, registers and windows.

A program is the same whatever its tables hold. So a replay compares these too, by a digest of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Sent = dict[Hashable, str]
"""Place -> digest of what was written there last."""

_COMPARED: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "load_mem": (("data", ()), ("mem_sel", "dmem"), ("addr", 0)),
    "load_envelope": (("ch", 0), ("data", ()), ("addr", 0)),
    "configure_readout": (("ch", 0), ("ro_regs", ())),
    "config_avg": (("ch", 0), ("address", 0), ("length", 1)),
    "config_buf": (("ch", 0), ("address", 0), ("length", 1)),
}
"""Calls of QickSoc that are compared: names and defaults of their arguments."""
_CONTENT = frozenset({"data", "ro_regs", "length"})
"""Arguments that say what is written; the others say where."""


def note(sent: Sent, call: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """Enter what this call writes, and return its place; None for a call that is not compared.

    >>> sent = {}
    >>> note(sent, "load_mem", ([1, 2],), {"addr": 16})
    ('load_mem', 'dmem', '16')
    >>> before = dict(sent)
    >>> note(sent, "load_mem", (np.array([1, 2]), "dmem", 16), {}), sent == before
    (('load_mem', 'dmem', '16'), True)
    """
    if call not in _COMPARED:
        return None
    names = _COMPARED[call]
    given = {**dict(names), **dict(zip((name for name, _ in names), args, strict=False)), **kwargs}
    place = (call, *(str(given[name]) for name, _ in names if name not in _CONTENT))
    content = [given[name] for name, _ in names if name in _CONTENT]
    sent[place] = hashlib.sha256(repr([_plain(each) for each in content]).encode()).hexdigest()
    return place


def _plain(value: Any) -> Any:
    """Return the same for lists and arrays, and for numbers of any width: over a network QICK sends lists."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(each)) for key, each in value.items())
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    numbers = _whole_numbers(value)
    if numbers is None:
        return [_plain(each) for each in value]
    return numbers.shape, hashlib.sha256(numbers.tobytes()).hexdigest()


def _whole_numbers(value: Any) -> npt.NDArray[np.int64] | None:
    """Return the words as one array, where they are whole numbers: envelopes are long."""
    try:
        found = np.asarray(value)
    except ValueError:  # of unequal lengths
        return None
    return found.astype(np.int64) if found.dtype.kind in "iu" else None
