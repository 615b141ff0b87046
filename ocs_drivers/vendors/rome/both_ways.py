"""Requests of an AFM for two logical ports, each an E and a W port: one request makes the circuits both ways. Pure.

connection create 1 to 2                           E1 to W2, and E2 to W1
customer        1               1_90            e1     w1        a row of `port show logic table`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ocs_drivers.model import CrossConnects, Step
from ocs_drivers.vendors.rome.ports import Layout, Pair

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


def join_both_ways(steps: Iterable[Step], layout: Layout) -> tuple[Step, ...]:
    """Return the steps with each circuit and its mirrored one in one step, where both are made, or both removed."""
    steps = list(steps)
    kinds = {pair: step.kind for step in steps for pair in step.pairs.items()}
    joined: list[Step] = []
    done: set[Pair] = set()
    for step in steps:
        pairs = set(step.pairs.pairs)
        if pairs & done:
            continue
        for pair in step.pairs.items():
            mirrored = layout.mirrored(pair)
            if mirrored is not None and kinds.get(mirrored) == step.kind:
                pairs.add(mirrored)
        done |= pairs
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
