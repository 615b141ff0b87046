"""Reports of an apply: the status of every pair, and the error that best describes an incomplete one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lightbed.wording import list_some
from ocs_drivers.errors import (
    AuthError,
    Conflict,
    DeviceError,
    OcsError,
    PartialApply,
    PortError,
    RobotFault,
    Unsupported,
    VerifyMismatch,
)
from ocs_drivers.model import ApplyReport, CrossConnects, Outcome, Snapshot, Status, Step

Pair = tuple[int, int]


def make_report(
    target: CrossConnects,
    initial_snapshot: Snapshot,
    steps: tuple[Step, ...],
    outcomes: Collection[Outcome],
    *,
    scope: Collection[int] | None,
) -> ApplyReport:
    """Return the report of an apply that executed the first `len(outcomes)` of its `steps`.

    The report covers the pairs of all steps, and the pairs in `scope` that somebody else changed meanwhile.
    """
    outcomes = tuple(outcomes)
    status_by_pair: dict[Pair, Status] = {}
    for outcome in outcomes:
        status_by_pair.update(outcome.pairs)
    read_back = outcomes[-1].read_back if outcomes else initial_snapshot
    if outcomes and read_back is not None:
        current = read_back.connections
        status_by_pair |= _find_undone_pairs(status_by_pair, current, steps[len(outcomes) - 1].after)
        foreign_pairs = _find_foreign_changes(target, initial_snapshot.connections, current, scope)
        status_by_pair |= dict.fromkeys(sorted(foreign_pairs - status_by_pair.keys()), Status.FAILED)
    for step in steps[len(outcomes) :]:  # never sent
        status_by_pair.update(dict.fromkeys(step.pairs.items(), Status.FAILED))
    return ApplyReport(target, initial_snapshot, steps, outcomes, read_back, status_by_pair)


def _find_undone_pairs(
    status_by_pair: Mapping[Pair, Status], current: CrossConnects, goal: CrossConnects
) -> dict[Pair, Status]:
    """Return the completed pairs that the last read-back contradicts, each with the status FAILED."""
    completed = (pair for pair, status in status_by_pair.items() if status is Status.DONE)
    return {pair: Status.FAILED for pair in completed if (pair in current.pairs) != (pair in goal.pairs)}


def _find_foreign_changes(
    target: CrossConnects,
    initial_connections: CrossConnects,
    current: CrossConnects,
    scope: Collection[int] | None,
) -> frozenset[Pair]:
    """Return pairs of the target that existed before and are gone, and new pairs in the scope outside the target."""
    lost_pairs = (target.pairs & initial_connections.pairs) - current.pairs
    added_pairs = current.pairs - initial_connections.pairs - target.pairs
    return lost_pairs | {pair for pair in added_pairs if scope is None or pair[0] in scope}


def make_failure(report: ApplyReport, *, device: str) -> OcsError:
    """Return the error that best describes an incomplete report, with `report` as its `.report`.

    It is, in this order:

    - the `Conflict` that ended the last step;
    - `PartialApply` if a pair is unknown, if the step failed after part of the work was done, or if the connection
      failed;
    - the device's own error if the device refused and nothing was done;
    - `VerifyMismatch` if the device reported success.
    """
    error = report.outcomes[-1].error
    if isinstance(error, Conflict):
        error.report = report
        return error.locate(device=device)
    if Status.UNKNOWN in report.pairs.values() or (error is not None and _has_executed_step(report)):
        return _make_partial_apply(report, device)
    failure: OcsError
    if isinstance(error, DeviceError | AuthError | PortError | RobotFault | Unsupported):
        failure = error
    elif isinstance(error, OcsError):
        failure = _make_partial_apply(report, device)
    else:
        failure = _make_mismatch(report, device)
    failure.report = report
    return failure


def _has_executed_step(report: ApplyReport) -> bool:
    if report.read_back is None:
        return True
    return report.read_back.connections != report.initial.connections


def _make_partial_apply(report: ApplyReport, device: str) -> PartialApply:
    undone_pairs = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    done_count = len(report.pairs) - len(undone_pairs)
    unknown_pairs = [pair for pair in undone_pairs if report.pairs[pair] is Status.UNKNOWN]
    failed_pairs = [pair for pair in undone_pairs if report.pairs[pair] is Status.FAILED]
    parts = [f"{done_count} of {len(report.pairs)} pairs done"]
    parts += [f"failed: {describe_pairs(failed_pairs)}"] if failed_pairs else []
    parts += [f"unknown: {describe_pairs(unknown_pairs)}"] if unknown_pairs else []
    error = report.outcomes[-1].error
    parts += [f"because: {error}"] if error else []
    return PartialApply(
        "; ".join(parts),
        report=report,
        device=device,
        ports=list_ports(undone_pairs),
        hint="Read the switch and plan again from what it holds; nothing was sent twice.",
    )


def _make_mismatch(report: ApplyReport, device: str) -> VerifyMismatch:
    wrong_pairs = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    target_pairs = report.target.pairs
    missing_pairs = {i: o for i, o in wrong_pairs if (i, o) in target_pairs}
    extra_pairs = {i: o for i, o in wrong_pairs if (i, o) not in target_pairs}
    parts = [f"missing {describe_pairs(missing_pairs.items())}"] if missing_pairs else []
    parts += [f"not removed or not ours {describe_pairs(extra_pairs.items())}"] if extra_pairs else []
    return VerifyMismatch(
        f"the switch reported no error but does not hold what was asked for: {'; '.join(parts)}",
        missing=missing_pairs,
        extra=extra_pairs,
        device=device,
        ports=list_ports(wrong_pairs),
        hint="Read the switch and plan again; if it repeats, look at these ports on the device.",
    )


def describe_pairs(pairs: Iterable[Pair]) -> str:
    """Format pairs for people: the first few, and how many more there are.

    >>> describe_pairs([(1, 49), (2, 50)])
    '1->49, 2->50'
    """
    return list_some(f"{source}->{output}" for source, output in pairs)


def list_ports(pairs: Iterable[Pair]) -> tuple[int, ...]:
    """Return the ports of pairs, sorted."""
    return tuple(sorted({port for pair in pairs for port in pair}))
