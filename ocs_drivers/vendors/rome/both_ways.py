"""Requests of an AFM for two logical ports, each an E and a W port: one request makes the circuits both ways. Pure.

connection create 1 to 2                           E1 to W2, and E2 to W1
customer        1               1_90            e1     w1        a row of `port show logic table`
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ocs_drivers.errors import PortBusy
from ocs_drivers.model import CrossConnects, Snapshot, Step
from ocs_drivers.vendors.rome.ports import Layout, Pair

TIED_HINT = (
    "The device says that its ports are paired, so removing one direction may take down the other: disconnect both "
    "inputs in one command, or allow it with the option one_way=yes."
)

_ROW = re.compile(
    r"\S.*?\s(?P<name>\d{1,9})\s+\S+\s+(?P<east>e\d{1,9})\s+(?P<west>w\d{1,9})\s*", re.IGNORECASE
)


def decode_logical(lines: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Decode the E and W port of each logical port; names that are not numbers are left out.

    >>> decode_logical(["customer        1               1_90            e1     w1"])
    {'1': ('E1', 'W1')}
    """
    rows = (match for line in lines if (match := _ROW.fullmatch(line)))
    return {row["name"]: (row["east"].upper(), row["west"].upper()) for row in rows}


def two_way_circuits(pairs: Collection[Pair], layout: Layout) -> frozenset[frozenset[Pair]]:
    """Return each circuit with its mirrored one, where both are there.

    >>> layout = Layout(("E1", "E2"), ("W1", "W2"), logical={"1": ("E1", "W1"), "2": ("E2", "W2")})
    >>> [sorted(group) for group in two_way_circuits({(1, 4), (2, 3)}, layout)]
    [[(1, 4), (2, 3)]]
    """
    mirrored = ((pair, layout.mirrored(pair)) for pair in pairs)
    return frozenset(frozenset({pair, other}) for pair, other in mirrored if other and other in pairs)


def explain_tie(busy: PortBusy, seen: Snapshot | CrossConnects) -> PortBusy:
    """Return the error with what to do about it, where it is about half of a two-way circuit."""
    tied = {pair for group in seen.tied for pair in group} if isinstance(seen, Snapshot) else set()
    if busy.ports in tied:
        busy.hint = TIED_HINT
        busy.locate(device=busy.device)
    return busy


def join_both_ways(steps: Iterable[Step], layout: Layout) -> tuple[Step, ...]:
    """Return the steps with each circuit and its mirrored one in one step, where both are made, or both removed.

    A circuit may be removed and made again: half of a two-way circuit that stays alone.
    """
    steps = list(steps)
    moves = {(step.kind, pair) for step in steps for pair in step.pairs.items()}
    joined: list[Step] = []
    done: set[tuple[str, Pair]] = set()
    for step in steps:
        pairs = set(step.pairs.pairs)
        if any((step.kind, pair) in done for pair in pairs):
            continue
        for pair in step.pairs.items():
            mirrored = layout.mirrored(pair)
            if mirrored is not None and (step.kind, mirrored) in moves:
                pairs.add(mirrored)
        done |= {(step.kind, pair) for pair in pairs}
        before = joined[-1].after if joined else step.before
        after = before.pairs - pairs if step.kind == "remove" else before.pairs | pairs
        joined.append(
            replace(
                step,
                pairs=CrossConnects(pairs),
                before=before,
                after=CrossConnects(after),
                estimated_s=step.estimated_s * len(pairs),
            )
        )
    return tuple(joined)
