"""Where the chains of a search stand, in a file: to go on after a stop exactly as if there had been none.

JSON: `format`, `search` (a fingerprint of what is searched for and how), and a state for each chain.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from testbed.design.search.chain import ChainState, Visit
from testbed.errors import SearchError

FORMAT = "lightbed-search/1"


def fingerprint(*parts: object) -> str:
    """A short name of what is searched for: equal for equal parts, in any process."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:16]


def write(path: Path, search: str, states: Sequence[ChainState]) -> None:
    """Put the states into the file, all or nothing: an older file stays until the new one is whole.

    Raises `SearchError` when it cannot be written.
    """
    content = {"format": FORMAT, "search": search, "chains": [asdict(state) for state in states]}
    text = json.dumps(content, allow_nan=False)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=path.name, suffix=".new", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if temporary:
            temporary.unlink(missing_ok=True)
        raise SearchError(f"the checkpoint {path} cannot be written: {error}; give another file") from error


def read(path: Path, search: str, chains: int) -> tuple[ChainState, ...]:
    """The states in a file. Raises `SearchError` naming it: not there, damaged, or of another search."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise SearchError(
            f"the checkpoint {path} cannot be read: {error.strerror}; start without resuming"
        ) from error
    except ValueError as error:
        raise SearchError(f"the checkpoint {path} is damaged ({error}): start without resuming") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SearchError(f"{path} is no checkpoint of format {FORMAT}: start without resuming")
    if content.get("search") != search:
        raise SearchError(
            f"the checkpoint {path} is of another search: resume with the workload, servers, seed and options that it "
            f"was begun with, or start without resuming"
        )
    try:
        states = tuple(_from_json(state) for state in content["chains"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SearchError(f"the checkpoint {path} is damaged ({error!r}): start without resuming") from error
    if len(states) != chains:
        raise SearchError(
            f"the checkpoint {path} holds {len(states)} chains, not {chains}: start without resuming"
        )
    return states


def _from_json(row: Any) -> ChainState:
    """A state, every number of it looked at."""
    chance = np.random.default_rng()
    chance.bit_generator.state = row["chance"]
    best = tuple(_visit(visit) for visit in row["best"])
    counts = [row[name] for name in ("step", "unchanged", "accepted")]
    if not best or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError("counts must be whole numbers of 0 or more, and something must be best")
    step, unchanged, accepted = counts
    return ChainState(chance.bit_generator.state, step, _visit(row["at"]), unchanged, accepted, best)


def _visit(row: Any) -> Visit:
    cost, point, origin = row
    if not (isinstance(cost, float) and math.isfinite(cost) and len(point) == len(origin)):
        raise ValueError(f"{row} is no visit")
    if not all(isinstance(number, int) and number >= 0 for number in (*point, *origin)):
        raise ValueError(f"{row} is no visit")
    return Visit(cost, tuple(point), tuple(origin))
