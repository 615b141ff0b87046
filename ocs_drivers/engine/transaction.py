"""One apply, the same for every driver: read, compare, plan, execute step by step, prove by reading back.

The judgement of a step is pure: a step, what was read afterwards, and what went wrong on the way give an
`Outcome`. Nothing here sends a write twice, and nothing is called done that was not read back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine.reports import describe_pairs, failure_of, ports_of, report_of
from ocs_drivers.errors import Conflict, NoLight, OcsError, Timeout
from ocs_drivers.model import ApplyReport, CrossConnects, Outcome, Power, Snapshot, Status, Step

Pair = tuple[int, int]


class Executor(Protocol):
    """The part of a switch that `apply` needs."""

    @property
    def address(self) -> str:
        """Address where the device answers."""

    def read(self) -> Snapshot:
        """Return what the device holds."""

    def plan(
        self, target: CrossConnects, seen: Snapshot | CrossConnects, scope: Collection[int] | None = None
    ) -> tuple[Step, ...]:
        """Return the steps from `seen` to `target`."""

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Do one step."""


def judge(
    step: Step,
    read_back: Snapshot | None,
    *,
    device_s: float = 0.0,
    error: Exception | None = None,
) -> Outcome:
    """Return the outcome of every pair of a step, from what was read afterwards.

    A pair that is not as wanted has failed, but is unknown when nothing could be read, and also after a
    timeout: a device that was only slow may still carry the command out.
    """
    if read_back is None:
        pairs = dict.fromkeys(_pairs_moved(step, step.after), Status.UNKNOWN)
        return Outcome(Status.UNKNOWN, pairs, None, device_s, error)
    doubt = Status.UNKNOWN if isinstance(error, Timeout) else Status.FAILED
    found, wanted = read_back.connections.pairs, step.after.pairs
    pairs = {
        pair: Status.DONE if (pair in found) == (pair in wanted) else doubt
        for pair in _pairs_moved(step, read_back.connections)
    }
    return Outcome(_worst(pairs.values()), pairs, read_back, device_s, error)


def check_undisturbed(
    target: CrossConnects,
    seen: Snapshot,
    steps: tuple[Step, ...],
    scope: Collection[int] | None,
    *,
    device: str,
) -> None:
    """Raise `Conflict` when a move that waits in the device's queue would undo the target and no step meets it.

    Without that, "nothing to do" would be true for as long as the queue is long.
    """
    touched = {port for step in steps for pair in step.pairs.items() for port in pair}
    for move in seen.pending:
        if move.pair is None or touched & set(move.pair) or (scope is not None and move.pair[0] not in scope):
            continue
        if (move.kind == "connect") != (move.pair in target.pairs):
            raise Conflict(
                f"a request to {move.kind} {move.pair[0]}-{move.pair[1]} is waiting in the device's queue",
                expected=target,
                found=seen.connections,
                device=device,
                ports=move.pair,
                hint="Wait until it is done, then read the switch and plan again.",
            )


def with_losses(step: Step, before: Snapshot, outcome: Outcome, claimed: Collection[Pair]) -> Outcome:
    """Return the outcome of a robot's step, failed where circuits that it does not name are gone.

    `claimed` are pairs that other requests in the robot's queue were to remove.
    """
    if outcome.read_back is None:
        return outcome
    found = outcome.read_back.connections
    kept = before.connections.pairs - (step.before.pairs - step.after.pairs) - step.pairs.pairs
    gone = sorted(kept - found.pairs - frozenset(claimed))
    if not gone:
        return outcome
    error = outcome.error or Conflict(
        f"circuits that the request does not name are gone: {describe_pairs(gone)}",
        expected=step.after,
        found=found,
        ports=ports_of(gone),
        hint="The device removed them with it, or somebody else did: read, and connect them again if they are wanted.",
    )
    pairs = {**outcome.pairs, **dict.fromkeys(gone, Status.FAILED)}
    return replace(outcome, status=_worst(pairs.values()), pairs=pairs, error=error)


def _pairs_moved(step: Step, found: CrossConnects) -> list[Pair]:
    """Return the pairs the step was to make or remove; a whole-switch step answers for every pair found as well."""
    if step.kind == "replace":
        return sorted(step.before.pairs | step.after.pairs | found.pairs)
    return sorted(step.pairs.pairs)


def apply(
    switch: Executor,
    target: CrossConnects,
    *,
    scope: Collection[int] | None = None,
    expect: CrossConnects | None = None,
    guard: Guard = allow_all,
) -> ApplyReport:
    """Make `switch` hold `target` within `scope`; an unchanged target sends only the read.

    Ports are checked before the first byte. Stops at the first step that is not done, and when somebody
    else has changed the ports of the next one. Raises `Conflict` for that, or when `expect` is given and not
    found, and the errors of `failure_of`.
    """
    switch.plan(target, target, scope)
    seen = switch.read()
    if expect is not None and seen.connections != expect:
        raise conflict(expect, seen.connections, device=switch.address)
    steps = switch.plan(target, seen, scope)
    outcomes: list[Outcome] = []
    for step in steps:
        try:
            if outcomes:
                check_unmoved(step, _read_after(outcomes[-1]), device=switch.address)
            outcomes.append(switch.execute(step, guard))
        except OcsError as error:
            if outcomes:
                error.report = report_of(target, seen, steps, outcomes, scope=scope)
            raise
        if outcomes[-1].status is not Status.DONE:
            break
    report = report_of(target, seen, steps, outcomes, scope=scope)
    if not report.complete:
        raise failure_of(report, device=switch.address) from report.outcomes[-1].error
    return report


def _read_after(outcome: Outcome) -> CrossConnects:
    """Return what was read after a step that is done."""
    assert outcome.read_back is not None  # or the step would not be done
    return outcome.read_back.connections


def check_unmoved(step: Step, found: CrossConnects, *, device: str) -> None:
    """Raise `Conflict` unless the ports that `step` touches are as it expects to find them."""
    touched = ports_of(step.pairs.items()) if step.kind != "replace" else None
    if _touching(found, touched) != _touching(step.before, touched):
        raise conflict(step.before, found, device=device)


def check_unclaimed(step: Step, found: Snapshot, *, device: str) -> None:
    """Raise `Conflict` when a move of these ports that nobody here asked for waits in the device's queue."""
    touched = ports_of(step.pairs.items())
    for move in found.pending:
        if move.pair and set(touched) & set(move.pair):
            by = f" by {move.user}" if move.user else ""
            raise Conflict(
                f"a request to {move.kind} {move.pair[0]}-{move.pair[1]}{by} is waiting in the device's queue",
                expected=step.before,
                found=found.connections,
                device=device,
                ports=sorted(set(touched) & set(move.pair)),
                hint="Wait until it is done, then read the switch and plan again.",
            )


def _touching(connections: CrossConnects, ports: Collection[int] | None) -> frozenset[Pair]:
    return connections.pairs if ports is None else connections.touching(ports)


def conflict(expected: CrossConnects, found: CrossConnects, *, device: str) -> Conflict:
    """Return the error for a switch that somebody else has changed."""
    differing = sorted(found.pairs ^ expected.pairs)
    return Conflict(
        f"the switch is not as expected: {describe_pairs(differing)} differ; nothing more was sent",
        expected=expected,
        found=found,
        device=device,
        ports=ports_of(differing),
        hint="Somebody else changed it: read again, and plan from what is there now.",
    )


def check_light(report: ApplyReport, readings: Mapping[int, Power | None], *, device: str) -> None:
    """Raise `NoLight`, with the report, when an output of the target is connected but sees no light."""
    dark = tuple(port for port, reading in sorted(readings.items()) if reading and reading.below_floor)
    if not dark:
        return
    error = NoLight(
        "connected as asked for, but no light comes out",
        device=device,
        ports=dark,
        hint="Look at the transmitters and fibres of these circuits; the configuration stands.",
    )
    error.report = replace(report, dark=dark)
    raise error


_SEVERITY = (Status.DONE, Status.FAILED, Status.UNKNOWN)


def _worst(statuses: Iterable[Status]) -> Status:
    return max(statuses, key=_SEVERITY.index, default=Status.DONE)
