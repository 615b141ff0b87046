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
    initial: Snapshot,
    steps: tuple[Step, ...],
    outcomes: Collection[Outcome],
    *,
    scope: Collection[int] | None,
) -> ApplyReport:
    """Return the report of an apply that executed the first `len(outcomes)` of its `steps`.

    The report covers the pairs of all steps, and the pairs in `scope` that somebody else changed meanwhile.
    """
    outcomes = tuple(outcomes)
    pairs: dict[Pair, Status] = {}
    for outcome in outcomes:
        pairs.update(outcome.pairs)
    read_back = outcomes[-1].read_back if outcomes else initial
    if outcomes and read_back is not None:
        current = read_back.connections
        pairs |= _find_undone(pairs, current, steps[len(outcomes) - 1].after)
        foreign = _find_foreign_changes(target, initial.connections, current, scope)
        pairs |= dict.fromkeys(sorted(foreign - pairs.keys()), Status.FAILED)
    for step in steps[len(outcomes) :]:  # never sent
        pairs.update(dict.fromkeys(step.pairs.items(), Status.FAILED))
    return ApplyReport(target, initial, steps, outcomes, read_back, pairs)


def _find_undone(
    pairs: Mapping[Pair, Status], current: CrossConnects, goal: CrossConnects
) -> dict[Pair, Status]:
    """Return the completed pairs that the last read-back contradicts, each with the status FAILED."""
    completed = (pair for pair, status in pairs.items() if status is Status.DONE)
    return {pair: Status.FAILED for pair in completed if (pair in current.pairs) != (pair in goal.pairs)}


def _find_foreign_changes(
    target: CrossConnects, initial: CrossConnects, current: CrossConnects, scope: Collection[int] | None
) -> frozenset[Pair]:
    """Return pairs of the target that existed before and are gone, and new pairs in the scope outside the target."""
    lost_pairs = (target.pairs & initial.pairs) - current.pairs
    added_pairs = current.pairs - initial.pairs - target.pairs
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
    if Status.UNKNOWN in report.pairs.values() or (error is not None and _has_changed(report)):
        return _make_partial(report, device)
    failure: OcsError
    if isinstance(error, DeviceError | AuthError | PortError | RobotFault | Unsupported):
        failure = error
    elif isinstance(error, OcsError):
        failure = _make_partial(report, device)
    else:
        failure = _make_mismatch(report, device)
    failure.report = report
    return failure


def _has_changed(report: ApplyReport) -> bool:
    if report.read_back is None:
        return True
    return report.read_back.connections != report.initial.connections


def _make_partial(report: ApplyReport, device: str) -> PartialApply:
    open_pairs = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    done_count = len(report.pairs) - len(open_pairs)
    unknown = [pair for pair in open_pairs if report.pairs[pair] is Status.UNKNOWN]
    failed = [pair for pair in open_pairs if report.pairs[pair] is Status.FAILED]
    parts = [f"{done_count} of {len(report.pairs)} pairs done"]
    parts += [f"failed: {describe_pairs(failed)}"] if failed else []
    parts += [f"unknown: {describe_pairs(unknown)}"] if unknown else []
    error = report.outcomes[-1].error
    parts += [f"because: {error}"] if error else []
    return PartialApply(
        "; ".join(parts),
        report=report,
        device=device,
        ports=list_ports(open_pairs),
        hint="Read the switch and plan again from what it holds; nothing was sent twice.",
    )


def _make_mismatch(report: ApplyReport, device: str) -> VerifyMismatch:
    wrong_pairs = [pair for pair, status in report.pairs.items() if status is not Status.DONE]
    target_pairs = report.target.pairs
    missing = {i: o for i, o in wrong_pairs if (i, o) in target_pairs}
    extra = {i: o for i, o in wrong_pairs if (i, o) not in target_pairs}
    parts = [f"missing {describe_pairs(missing.items())}"] if missing else []
    parts += [f"not removed or not ours {describe_pairs(extra.items())}"] if extra else []
    return VerifyMismatch(
        f"the switch reported no error but does not hold what was asked for: {'; '.join(parts)}",
        missing=missing,
        extra=extra,
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
