"""Grants and ends of leases: pure functions over the leases of a lab.

Within a priority, requests are granted in the order of their arrival. A request that must wait reserves its parts
against later requests, so that small requests do not starve a large one. But a request that waits for a faulty part or
for an earlier reservation reserves nothing, because its wait is unbounded. Implicit leases may cover faulty parts,
because a repair must be able to change them.

`POLICIES` are the conditions of a grant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from testbed.errors import ClockError, LeaseDenied
from testbed.leases.model import Lease

CLOCK_STEP_S = 5.0
"""Largest tolerated backward step of the clock, in seconds. Until the clock catches up, our time stands still."""


def check_monotonic(now_s: float, newest_s: float) -> float:
    """Return the later of the current and the newest stored time. Raises `ClockError` for a clock that was set back."""
    if newest_s - now_s > CLOCK_STEP_S:
        lag_s = newest_s - now_s
        raise ClockError(
            f"the clock of this machine is {lag_s:.0f} s behind the newest entry of the database, so "
            "leases cannot be judged and nothing may move; correct the clock, or, if it was ahead "
            "before, wait that long"
        )
    return max(now_s, newest_s)


def sort_requests(requests: Iterable[Lease]) -> list[Lease]:
    """Return requests in their order of service: reservations first, then by priority, then by arrival."""
    return sorted(requests, key=lambda lease: (lease.starts_s is None, -lease.priority, lease.arrival))


@dataclass(frozen=True, slots=True)
class QueueState:
    """The leases of a lab while requests are granted.

    Leases hold `held_parts`. `reserved_parts` are kept for requests that wait.
    """

    leases: Collection[Lease]
    faults: Mapping[str, str]
    now_s: float
    held_parts: frozenset[str] = frozenset()
    reserved_parts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Policy:
    """A condition of a grant.

    `blocks_request` returns True if the condition stops a request. `explain` returns a sentence that says what the
    request waits for, or "" if it does not wait for this condition; it gets a queue without `held_parts`. With
    `reserves_parts`, a stopped request reserves its parts against later requests.
    """

    blocks_request: Callable[[Lease, QueueState], bool]
    explain: Callable[[Lease, QueueState], str]
    reserves_parts: bool = False


def _has_faulty_part(lease: Lease, queue: QueueState) -> bool:
    return not (lease.is_implicit or lease.parts.isdisjoint(queue.faults))


def _explain_fault(lease: Lease, queue: QueueState) -> str:
    faulty_parts = sorted(part for part in lease.parts if part in queue.faults)
    return (
        f"{faulty_parts[0]} failed its last check ({queue.faults[faulty_parts[0]]})" if faulty_parts else ""
    )


def _has_taken_part(lease: Lease, queue: QueueState) -> bool:
    return not lease.parts.isdisjoint(queue.held_parts | queue.reserved_parts)


def _explain_taken_part(lease: Lease, queue: QueueState) -> str:
    competing_leases = [
        other_lease
        for other_lease in queue.leases
        if other_lease.id != lease.id and not other_lease.parts.isdisjoint(lease.parts)
    ]
    for other_lease in (
        *filter(lambda other_lease: other_lease.is_held, competing_leases),
        *sort_requests(competing_leases),
    ):
        if other_lease.is_held:
            return f"lease {other_lease.id} of {other_lease.owner} holds {_choose_common_part(other_lease, lease)}"
        if other_lease.state == "queued" and sort_requests((other_lease, lease))[0] is other_lease:
            return (
                f"request {other_lease.id} of {other_lease.owner} for "
                f"{_choose_common_part(other_lease, lease)} is served first"
            )
    return ""


def _overlaps_reservation(lease: Lease, queue: QueueState) -> bool:
    reservations = [other_lease for other_lease in queue.leases if other_lease.state == "requested"]
    return _find_latest_end(reservations, lease, queue.now_s) < queue.now_s + lease.ttl_s


def _explain_reservation(lease: Lease, queue: QueueState) -> str:
    other_leases = [other_lease for other_lease in queue.leases if other_lease.id != lease.id]
    is_overlapping = _find_latest_end(other_leases, lease, queue.now_s) < queue.now_s + lease.ttl_s
    return f"a duration of {lease.ttl_s:.0f} s would overlap a reservation" if is_overlapping else ""


POLICIES = (
    Policy(_has_faulty_part, _explain_fault),
    Policy(_has_taken_part, _explain_taken_part, reserves_parts=True),
    Policy(_overlaps_reservation, _explain_reservation),
)
"""Every condition of a grant. The reason of a pending request is the first sentence of `explain` that is not empty."""


def select_grants(leases: Collection[Lease], fault_by_part: Mapping[str, str], now_s: float) -> list[Lease]:
    """Return the requests that can be granted now, in order."""
    held_parts = frozenset[str]().union(*(lease.parts for lease in leases if lease.is_held))
    queue = QueueState(leases, fault_by_part, now_s, held_parts)
    granted_requests = []
    for request in sort_requests(request for request in leases if request.state == "queued"):
        blocking_policies = [policy for policy in POLICIES if policy.blocks_request(request, queue)]
        if any(policy.reserves_parts for policy in blocking_policies):
            queue = replace(queue, reserved_parts=queue.reserved_parts | request.parts)
        elif not blocking_policies:
            granted_requests.append(request)
            queue = replace(queue, held_parts=queue.held_parts | request.parts)
    return granted_requests


def explain_wait(
    lease: Lease, leases: Collection[Lease], fault_by_part: Mapping[str, str], now_s: float
) -> str:
    """Return a sentence that says what a request waits for, or "" if nothing stops it."""
    if lease.state == "requested":
        return "its start has not come"
    queue = QueueState(leases, fault_by_part, now_s)
    return next((explanation for policy in POLICIES if (explanation := policy.explain(lease, queue))), "")


def _find_latest_end(reservations: Iterable[Lease], lease: Lease, now_s: float) -> float:
    """Return the time by which a lease must end: the start of the next reservation of one of its parts.

    The time is at least `now_s`, and infinite without such a reservation.
    """
    starts_s = [
        reservation.starts_s
        for reservation in reservations
        if reservation.id != lease.id
        and reservation.starts_s is not None
        and not reservation.parts.isdisjoint(lease.parts)
    ]
    return max(now_s, min(starts_s, default=float("inf")))


def _choose_common_part(lease: Lease, other_lease: Lease) -> str:
    """Return a part that both leases have, a host if possible."""
    return min(lease.parts & other_lease.parts, key=lambda part: (not part.startswith("host:"), part))


def is_expiry_due(lease: Lease, now_s: float) -> bool:
    """Return True if the time of a lease or request is over."""
    return now_s >= lease.expires_s


def is_start_due(lease: Lease, now_s: float) -> bool:
    """Return True if a lease is a reservation whose start time has passed."""
    return lease.state == "requested" and lease.starts_s is not None and lease.starts_s <= now_s


def make_granted_lease(lease: Lease, token: int, now_s: float) -> Lease:
    """Return the granted form of a request. A reservation ends at its planned time, even if it starts late."""
    expires_s = lease.expires_s if lease.starts_s is not None else now_s + lease.ttl_s
    return lease.change_state("granted", token=token, granted_s=now_s, expires_s=expires_s)


def make_extended_lease(lease: Lease, leases: Collection[Lease], now_s: float, ttl_s: float) -> Lease:
    """Return the lease extended to `ttl_s` from now, but at most to the next reservation. Raises `LeaseDenied`."""
    if lease.state not in ("granted", "queued"):
        raise LeaseDenied(f"lease {lease.id} is {lease.state} and cannot be extended; request a new one")
    reservations = [other_lease for other_lease in leases if other_lease.state == "requested"]
    new_expiry_s = min(now_s + ttl_s, _find_latest_end(reservations, lease, now_s))
    return replace(
        lease, ttl_s=ttl_s, expires_s=max(lease.expires_s if lease.starts_s else 0.0, new_expiry_s)
    )


def check_reservation(lease: Lease, leases: Collection[Lease]) -> None:
    """Raise `LeaseDenied` if a reservation overlaps another reservation or a held lease that ends after its start."""
    assert lease.starts_s is not None
    for other_lease in leases:
        if other_lease.id == lease.id or other_lease.parts.isdisjoint(lease.parts):
            continue
        if other_lease.starts_s is not None:
            is_free = other_lease.expires_s <= lease.starts_s or lease.expires_s <= other_lease.starts_s
        else:
            is_free = not other_lease.is_held or other_lease.expires_s <= lease.starts_s
        if not is_free:
            raise LeaseDenied(
                f"{_choose_common_part(other_lease, lease)} is reserved then by lease {other_lease.id} of "
                f"{other_lease.owner}; choose another "
                "time (--at)"
            )
