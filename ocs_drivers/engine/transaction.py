"""One apply, the same for every driver: read, compare, plan, execute step by step, verify by reading back.

`judge_step` is pure: it derives the `Outcome` of a step from the read-back and the step's error. No write is sent
twice, and a pair counts as done only if it was read back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine.reports import describe_pairs, list_ports, make_failure, make_report
from ocs_drivers.errors import Conflict, NoLight, OcsError, Timeout
from ocs_drivers.model import ApplyReport, CrossConnects, Outcome, Power, Snapshot, Status, Step

Pair = tuple[int, int]


class Executor(Protocol):
    """The part of a switch that `apply` needs."""

    @property
    def address(self) -> str:
        """Address where the device answers."""

    def read(self) -> Snapshot:
        """Return the configuration of the device."""

    def plan(
        self, target: CrossConnects, current: Snapshot | CrossConnects, scope: Collection[int] | None = None
    ) -> tuple[Step, ...]:
        """Return the steps from `current` to `target`."""

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Execute one step."""


def judge_step(
    step: Step,
    snapshot: Snapshot | None,
    *,
    device_s: float = 0.0,
    error: Exception | None = None,
) -> Outcome:
    """Return the outcome of a step, judged by `snapshot`.

    A pair that differs from `step.after` has failed. Its status is unknown if nothing could be read, and after a
    timeout, because a slow device may still execute the command.
    """
    if snapshot is None:
        status_by_pair = dict.fromkeys(_list_moved_pairs(step, step.after), Status.UNKNOWN)
        return Outcome(Status.UNKNOWN, status_by_pair, None, device_s, error)
    mismatch_status = Status.UNKNOWN if isinstance(error, Timeout) else Status.FAILED
    current, goal = snapshot.connections.pairs, step.after.pairs
    status_by_pair = {
        pair: Status.DONE if (pair in current) == (pair in goal) else mismatch_status
        for pair in _list_moved_pairs(step, snapshot.connections)
    }
    return Outcome(_find_worst_status(status_by_pair.values()), status_by_pair, snapshot, device_s, error)


def check_target_undisturbed(
    target: CrossConnects,
    snapshot: Snapshot,
    steps: tuple[Step, ...],
    scope: Collection[int] | None,
    *,
    device: str,
) -> None:
    """Raise `Conflict` if a request in the queue would undo the target and no step touches the request's ports.

    Without this check "nothing to do" would hold only until the queue is processed.
    """
    touched_ports = {port for step in steps for pair in step.pairs.items() for port in pair}
    for request in snapshot.pending:
        if (
            request.pair is None
            or touched_ports & set(request.pair)
            or (scope is not None and request.pair[0] not in scope)
        ):
            continue
        if (request.kind == "connect") != (request.pair in target.pairs):
            raise Conflict(
                f"a request to {request.kind} {request.pair[0]}-{request.pair[1]} is waiting in the device's queue",
                expected=target,
                actual=snapshot.connections,
                device=device,
                ports=request.pair,
                hint="Wait until it is done, then read the switch and plan again.",
            )


def add_lost_circuits(
    step: Step, snapshot_before: Snapshot, outcome: Outcome, disconnecting_pairs: Collection[Pair]
) -> Outcome:
    """Return the outcome of a robot's step. Circuits that the step keeps, but that disappeared, count as failed.

    `disconnecting_pairs` contains the pairs that other requests in the robot's queue remove.
    """
    if outcome.read_back is None:
        return outcome
    current = outcome.read_back.connections
    expected_pairs = (
        snapshot_before.connections.pairs - (step.before.pairs - step.after.pairs) - step.pairs.pairs
    )
    lost_pairs = sorted(expected_pairs - current.pairs - frozenset(disconnecting_pairs))
    if not lost_pairs:
        return outcome
    error = outcome.error or Conflict(
        f"circuits that the request does not name are gone: {describe_pairs(lost_pairs)}",
        expected=step.after,
        actual=current,
        ports=list_ports(lost_pairs),
        hint="The device or somebody else removed these circuits: read, and connect them again if they are wanted.",
    )
    status_by_pair = {**outcome.pairs, **dict.fromkeys(lost_pairs, Status.FAILED)}
    return replace(
        outcome, status=_find_worst_status(status_by_pair.values()), pairs=status_by_pair, error=error
    )


def _list_moved_pairs(step: Step, current: CrossConnects) -> list[Pair]:
    """Return the pairs that a step adds or removes; for a whole-switch step, all pairs before, after and now."""
    if step.kind == "replace":
        return sorted(step.before.pairs | step.after.pairs | current.pairs)
    return sorted(step.pairs.pairs)


def apply(
    switch: Executor,
    target: CrossConnects,
    *,
    scope: Collection[int] | None = None,
    expect: CrossConnects | None = None,
    guard: Guard = allow_all,
) -> ApplyReport:
    """Set the circuits of `scope` to `target`. If nothing differs, only the read is sent.

    Ports are checked before the first byte. Stops at the first step that is not done. Raises `Conflict` if somebody
    else has changed the ports of the next step or the switch does not hold `expect`, and the errors of
    `make_failure`.
    """
    switch.plan(target, target, scope)
    initial_snapshot = switch.read()
    if expect is not None and initial_snapshot.connections != expect:
        raise make_conflict(expect, initial_snapshot.connections, device=switch.address)
    steps = switch.plan(target, initial_snapshot, scope)
    outcomes: list[Outcome] = []
    for step in steps:
        try:
            if outcomes:
                check_ports_unmoved(step, _get_read_back(outcomes[-1]), device=switch.address)
            outcomes.append(switch.execute(step, guard))
        except OcsError as error:
            if outcomes:
                error.report = make_report(target, initial_snapshot, steps, outcomes, scope=scope)
            raise
        if outcomes[-1].status is not Status.DONE:
            break
    report = make_report(target, initial_snapshot, steps, outcomes, scope=scope)
    if not report.complete:
        raise make_failure(report, device=switch.address) from report.outcomes[-1].error
    return report


def _get_read_back(outcome: Outcome) -> CrossConnects:
    """Return the configuration that was read after a step that is done."""
    assert outcome.read_back is not None  # a step without a read-back is not done
    return outcome.read_back.connections


def check_ports_unmoved(step: Step, current: CrossConnects, *, device: str) -> None:
    """Raise `Conflict` unless the ports that `step` touches are connected as in `step.before`."""
    touched_ports = list_ports(step.pairs.items()) if step.kind != "replace" else None
    if _select_touching_pairs(current, touched_ports) != _select_touching_pairs(step.before, touched_ports):
        raise make_conflict(step.before, current, device=device)


def check_ports_unrequested(step: Step, snapshot: Snapshot, *, device: str) -> None:
    """Raise `Conflict` if the device's queue holds a request for ports of the step, whoever sent the request."""
    touched_ports = list_ports(step.pairs.items())
    for request in snapshot.pending:
        if request.pair and set(touched_ports) & set(request.pair):
            user_text = f" by {request.user}" if request.user else ""
            raise Conflict(
                (
                    f"a request to {request.kind} {request.pair[0]}-{request.pair[1]}{user_text} "
                    "is waiting in the device's queue"
                ),
                expected=step.before,
                actual=snapshot.connections,
                device=device,
                ports=sorted(set(touched_ports) & set(request.pair)),
                hint="Wait until it is done, then read the switch and plan again.",
            )


def _select_touching_pairs(connections: CrossConnects, ports: Collection[int] | None) -> frozenset[Pair]:
    return connections.pairs if ports is None else connections.touching(ports)


def make_conflict(expect: CrossConnects, current_connections: CrossConnects, *, device: str) -> Conflict:
    """Return the error for a switch that somebody else has changed."""
    differing_pairs = sorted(current_connections.pairs ^ expect.pairs)
    return Conflict(
        f"the switch is not as expected: {describe_pairs(differing_pairs)} differ; nothing more was sent",
        expected=expect,
        actual=current_connections,
        device=device,
        ports=list_ports(differing_pairs),
        hint="Somebody else changed it: read again, and plan from what is there now.",
    )


def check_light(report: ApplyReport, power_by_port: Mapping[int, Power | None], *, device: str) -> None:
    """Raise `NoLight`, with the report, if a connected output of the target is dark."""
    dark_ports = tuple(
        port for port, reading in sorted(power_by_port.items()) if reading and reading.below_floor
    )
    if not dark_ports:
        return
    error = NoLight(
        "connected as asked for, but no light comes out",
        device=device,
        ports=dark_ports,
        hint="Check the transmitters and fibres of these circuits; they stay connected.",
    )
    error.report = replace(report, dark=dark_ports)
    raise error


_STATUSES_BY_SEVERITY = (Status.DONE, Status.FAILED, Status.UNKNOWN)


def _find_worst_status(statuses: Iterable[Status]) -> Status:
    return max(statuses, key=_STATUSES_BY_SEVERITY.index, default=Status.DONE)
