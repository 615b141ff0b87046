"""Checkpoints: files with the states of a search's chains. A resumed search continues as if it had not stopped.

A checkpoint is JSON: `format`, `search` (a fingerprint of problem and options), and `chains`, one state each.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lightbed.output_file import write_output
from testbed.design.search.chains import ChainState, Objective, Rules, Visit
from testbed.errors import SearchError

FORMAT = "lightbed-search/1"


def compute_fingerprint(*parts: object) -> str:
    """Return 16 hexadecimal digits that are equal for equal parts, in any process."""
    text = "\n".join(map(repr, parts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(path: Path, fingerprint: str, states: Sequence[ChainState]) -> None:
    """Write the states to a file atomically: an older file stays until the new file is complete.

    Raises `SearchError` if the file cannot be written.
    """
    content = {"format": FORMAT, "search": fingerprint, "chains": [asdict(state) for state in states]}
    try:
        write_output(path, json.dumps(content, allow_nan=False))
    except OSError as error:
        raise SearchError(f"the checkpoint {path} cannot be written: {error}; give another file") from error


def read(path: Path, fingerprint: str, chain_count: int) -> tuple[ChainState, ...]:
    """Return the states in a file. Raises `SearchError` if it is missing, damaged, or belongs to another search."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise SearchError(
            f"the checkpoint {path} cannot be read: {error.strerror}; start without --resume"
        ) from error
    except ValueError as error:
        raise _make_damage_error(path, str(error)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SearchError(f"{path} is not a checkpoint of format {FORMAT}: start without --resume")
    if content.get("search") != fingerprint:
        raise SearchError(
            f"the checkpoint {path} belongs to another search: resume with the same workload, servers, seed "
            "and options, or start without --resume"
        )
    try:
        states = tuple(_parse_state(state) for state in content["chains"])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise _make_damage_error(path, repr(error)) from error
    if len(states) != chain_count:
        raise SearchError(
            f"the checkpoint {path} holds {len(states)} chains, not {chain_count}: start without --resume"
        )
    return states


def check(path: Path, states: Sequence[ChainState], objective: Objective, rules: Rules) -> None:
    """Raise `SearchError` unless this search can have written the states.

    All costs are computed again. This finds points that are not strategies of the objective or have another cost.
    """
    for state in states:
        if state.step > rules.steps or state.accepted > state.step or state.unchanged >= rules.patience:
            reason = (
                f"a chain has made {state.step} of {rules.steps} steps, accepted {state.accepted} of them, "
                f"and stood still for {state.unchanged} of at most {rules.patience - 1}"
            )
            raise _make_damage_error(path, reason)
        for visit in (state.at, *state.best):
            fault = _find_fault(objective, visit)
            if fault:
                raise _make_damage_error(path, fault)


def _find_fault(objective: Objective, visit: Visit) -> str:
    """Return the fault of a visit, or "". Costs may differ by a fraction of 1e-6: machines add in different orders."""
    if len(visit.point) != len(objective.get_start_point()):
        return f"{visit.point} is not a strategy of this search"
    try:
        cost_s = objective.compute_cost_s(visit.point, visit.origin)
    except IndexError:
        return f"{visit.point} on the topology of {visit.origin} is not a strategy of this search"
    if not math.isclose(cost_s, visit.cost_s, rel_tol=1e-6):
        return f"a strategy that takes {cost_s} s is stored with {visit.cost_s} s"
    return ""


def _make_damage_error(path: Path, reason: str) -> SearchError:
    return SearchError(f"the checkpoint {path} is damaged ({reason}): start without --resume")


def _parse_state(entry: Any) -> ChainState:
    """Check a state and return it. Raises `ValueError`, `KeyError` or `TypeError` if it is invalid."""
    generator = np.random.default_rng()
    if min(dict(entry["chance"]["state"]).values()) < 0:
        # numpy 1 would wrap the number around
        raise ValueError("the state of the random generator is negative")
    generator.bit_generator.state = entry["chance"]
    best_visits = tuple(_parse_visit(visit) for visit in entry["best"])
    counts = [entry[name] for name in ("step", "unchanged", "accepted")]
    if not best_visits or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError("counts must be integers of 0 or more, and there must be a best state")
    step, unchanged, accepted = counts
    return ChainState(
        generator.bit_generator.state, step, _parse_visit(entry["at"]), unchanged, accepted, best_visits
    )


def _parse_visit(entry: Any) -> Visit:
    cost, point, origin = entry
    if not (isinstance(cost, float) and math.isfinite(cost) and len(point) == len(origin)):
        raise ValueError(f"{str(entry)[:40]} is not [cost in s, point, origin], the last two of one length")
    if not all(isinstance(number, int) and number >= 0 for number in (*point, *origin)):
        raise ValueError(f"{str(entry)[:40]} is not a cost in s and two lists of integers of 0 or more")
    return Visit(cost, tuple(point), tuple(origin))
