"""One apply, the same for every driver: read, compare, plan, execute step by step, prove by reading back.

The judgement of a step is pure: a step, what was read afterwards, and what went wrong on the way give an
`Outcome`. Nothing here sends a write twice, and nothing is called done that was not read back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ocs_drivers.contract import Guard, unguarded
from ocs_drivers.errors import (
    AuthError,
    Conflict,
    DeviceError,
    NoLight,
    OcsError,
    PartialApply,
    PortError,
    RobotFault,
    Timeout,
    Unsupported,
    VerifyMismatch,
)
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

    def execute(self, step: Step, guard: Guard = unguarded) -> Outcome:
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
                f"a request to {move.kind} {move.pair[0]}-{move.pair[1]} waits in the device's queue",
                expected=target,
                found=seen.connections,
                device=device,
                ports=move.pair,
                hint="Wait until it is done, then read, and plan again from what is there.",
            )


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
    guard: Guard = unguarded,
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
                check_unmoved(step, _found(outcomes[-1]), device=switch.address)
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


def _found(outcome: Outcome) -> CrossConnects:
    """Return what was read after a step that is done."""
    assert outcome.read_back is not None  # or the step would not be done
    return outcome.read_back.connections


def check_unmoved(step: Step, found: CrossConnects, *, device: str) -> None:
    """Raise `Conflict` unless the ports that `step` touches are as it expects to find them."""
    touched = _ports_of(step.pairs.items()) if step.kind != "replace" else None
    if _touching(found, touched) != _touching(step.before, touched):
        raise conflict(step.before, found, device=device)


def _touching(connections: CrossConnects, ports: Collection[int] | None) -> frozenset[Pair]:
    if ports is None:
        return connections.pairs
    return frozenset(pair for pair in connections.items() if pair[0] in ports or pair[1] in ports)


def conflict(expected: CrossConnects, found: CrossConnects, *, device: str) -> Conflict:
    """Return the error for a switch that somebody else has changed."""
    differing = sorted(found.pairs ^ expected.pairs)
    return Conflict(
        f"the switch is not as expected: {describe_pairs(differing)} differ; nothing more was sent",
        expected=expected,
        found=found,
        device=device,
        ports=_ports_of(differing),
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


def report_of(
    target: CrossConnects,
    seen: Snapshot,
    steps: tuple[Step, ...],
    outcomes: Collection[Outcome],
    *,
    scope: Collection[int] | None,
) -> ApplyReport:
    """Return the status of every pair of an apply that went through `outcomes` of its `steps`.

    Accounts for the pairs that the steps name, and for what somebody else changed meanwhile within `scope`.
    """
    outcomes = tuple(outcomes)
    pairs: dict[Pair, Status] = {}
    for outcome in outcomes:
        pairs.update(outcome.pairs)
    read_back = outcomes[-1].read_back if outcomes else seen
    if outcomes and read_back is not None:
        found = read_back.connections
        pairs |= _undone_since(pairs, found, steps[len(outcomes) - 1].after)
        others = _changed_by_others(target, seen.connections, found, scope)
        pairs |= dict.fromkeys(sorted(others - pairs.keys()), Status.FAILED)
    for step in steps[len(outcomes) :]:  # never sent
        pairs.update(dict.fromkeys(step.pairs.items(), Status.FAILED))
    return ApplyReport(target, seen, steps, outcomes, read_back, pairs)


def _undone_since(
    pairs: Mapping[Pair, Status], found: CrossConnects, after: CrossConnects
) -> dict[Pair, Status]:
    """Return the pairs that an earlier step had done, and that the last read-back does not show any more."""
    done = (pair for pair, status in pairs.items() if status is Status.DONE)
    return {pair: Status.FAILED for pair in done if (pair in found.pairs) != (pair in after.pairs)}


def _changed_by_others(
    target: CrossConnects, before: CrossConnects, found: CrossConnects, scope: Collection[int] | None
) -> frozenset[Pair]:
    """Return the pairs in the scope that should have stayed and are gone, or that nobody asked for."""
    gone = (target.pairs & before.pairs) - found.pairs
    added = found.pairs - before.pairs - target.pairs
    return gone | {pair for pair in added if scope is None or pair[0] in scope}


def failure_of(report: ApplyReport, *, device: str) -> OcsError:
    """Return the error that says best what an incomplete report means; the report is its `.report`.

    `PartialApply` when a pair is unknown, or when the device objected after part of the work was done;
    the device's own error when it objected and nothing was done; `VerifyMismatch` when it claimed success.
    """
    error = report.outcomes[-1].error
    if Status.UNKNOWN in report.pairs.values() or (error is not None and _anything_done(report)):
        return _partial(report, device)
    failure: OcsError
    if isinstance(error, DeviceError | AuthError | PortError | RobotFault | Unsupported):
        failure = error
    elif isinstance(error, OcsError):
        failure = _partial(report, device)
    else:
        failure = _mismatch(report, device)
    failure.report = report
    return failure


def _anything_done(report: ApplyReport) -> bool:
    if report.read_back is None:
        return True
    return report.read_back.connections != report.seen.connections


def _partial(report: ApplyReport, device: str) -> PartialApply:
    open_pairs = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    done = len(report.pairs) - len(open_pairs)
    unknown = [pair for pair in open_pairs if report.pairs[pair] is Status.UNKNOWN]
    failed = [pair for pair in open_pairs if report.pairs[pair] is Status.FAILED]
    parts = [f"{done} of {len(report.pairs)} pairs done"]
    parts += [f"failed: {describe_pairs(failed)}"] if failed else []
    parts += [f"unknown: {describe_pairs(unknown)}"] if unknown else []
    error = report.outcomes[-1].error
    parts += [f"because: {error}"] if error else []
    return PartialApply(
        "; ".join(parts),
        report=report,
        device=device,
        ports=_ports_of(open_pairs),
        hint="Read the switch and plan again from what it holds; nothing was sent twice.",
    )


def _mismatch(report: ApplyReport, device: str) -> VerifyMismatch:
    wrong = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    wanted = report.target.pairs
    missing = {i: o for i, o in wrong if (i, o) in wanted}
    extra = {i: o for i, o in wrong if (i, o) not in wanted}
    parts = [f"missing {describe_pairs(missing.items())}"] if missing else []
    parts += [f"not removed or not ours {describe_pairs(extra.items())}"] if extra else []
    return VerifyMismatch(
        f"the switch reported no error but does not hold what was asked for: {'; '.join(parts)}",
        missing=missing,
        extra=extra,
        device=device,
        ports=_ports_of(wrong),
        hint="Read the switch and plan again; if it repeats, look at these ports on the device.",
    )


def describe_pairs(pairs: Iterable[Pair], *, longest: int = 8) -> str:
    """Format pairs as people write them, cut after `longest`.

    >>> describe_pairs([(1, 49), (2, 50)])
    '1->49, 2->50'
    """
    listed = [f"{source}->{output}" for source, output in pairs]
    more = f" and {len(listed) - longest} more" if len(listed) > longest else ""
    return ", ".join(listed[:longest]) + more


def _ports_of(pairs: Iterable[Pair]) -> tuple[int, ...]:
    return tuple(sorted({port for pair in pairs for port in pair}))


_SEVERITY = (Status.DONE, Status.FAILED, Status.UNKNOWN)


def _worst(statuses: Iterable[Status]) -> Status:
    return max(statuses, key=_SEVERITY.index, default=Status.DONE)
