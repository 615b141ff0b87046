"""Circuits that are otherwise for a moment, to see which NICs are dark then; what was there is put back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ocs_drivers.model import CrossConnects
from testbed.design.model import Nic
from testbed.operate.engine.goal import goal_text
from testbed.operate.loss import read_carriers
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.session import Design, LabSession, Note

SETTLE_S = 2.0
"""Time in which a NIC notices that its light comes or goes."""
POLL_S = 0.05


@contextmanager
def changed_circuits(
    session: LabSession, design: Design, switch: str, wanted: Mapping[int, int | None], note: Note
) -> Iterator[None]:
    """Hold inputs of one switch at other outputs, None for at none; whatever happens, all is put back.

    Circuits that end at these outputs are down meanwhile, and no others are touched. Both changes are one operation,
    whose goal is what was there: killed in between, it is named until it is resumed. Raises what `LabSession.apply`
    raises.
    """
    before = session.switches[switch].read().connections
    outputs = {output for output in wanted.values() if output is not None}
    scope = frozenset(wanted) | {before.inputs_of[output] for output in outputs if output in before.inputs_of}
    moved = ", ".join(f"{pair[0]} -> {pair[1]}" for pair in sorted(before.pairs) if pair[0] in scope)
    tried = ", ".join(f"{source} -> {output}" for source, output in wanted.items() if output is not None)
    down = f"circuit {moved} of {switch} is taken down for a moment" if moved else ""
    made = f"{tried} of {switch} is made for a moment" if tried else ""
    note("; ".join(part for part in (down, made) if part))
    back = _part(session, switch, {i: before[i] for i in scope if i in before}, scope)
    goal = goal_text({switch: (session.switches[switch].address, back)})
    with session.operation("trial", "which fibre it is", goal=goal):
        try:
            tried_pairs = {i: o for i, o in wanted.items() if o is not None}
            _hold(session, design, _part(session, switch, tried_pairs, scope))
            yield
        finally:
            _hold(session, design, _part(session, switch, back.target, scope))
            note(f"circuit {moved} of {switch} is put back" if moved else f"{tried} of {switch} is removed")


def carriers_once(session: LabSession, is_seen: Callable[[Mapping[Nic, bool]], bool]) -> Mapping[Nic, bool]:
    """Return whether each NIC has light, when something is seen of that, and after `SETTLE_S` at the latest."""
    assert session.fleet is not None
    deadline = time.monotonic() + SETTLE_S
    while True:
        carriers = read_carriers(session.fleet, session.lab)
        if is_seen(carriers) or time.monotonic() > deadline:
            return carriers
        time.sleep(POLL_S)


def _part(session: LabSession, name: str, pairs: Mapping[int, int], scope: frozenset[int]) -> SwitchPlan:
    switch = session.switches[name]
    seen, target = switch.read(), CrossConnects(pairs)
    return SwitchPlan(name, target, scope, seen, switch.plan(target, seen, scope))


def _hold(session: LabSession, design: Design, part: SwitchPlan) -> None:
    session.apply(LabPlan(design.wiring, (), (part,)))
