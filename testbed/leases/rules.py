"""Grants and ends of leases: pure functions over the leases of a lab.

Within a priority, requests are granted in the order of their arrival. A request that must wait holds its parts back
from those behind it, so that small requests do not starve a large one. A request that waits for a part that failed its
check, or for a reservation ahead, holds nothing back, because the wait is unbounded. Implicit leases are granted for
parts that failed, too: a repair must be able to change them.

`POLICIES` are the conditions of a grant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from testbed.errors import ClockError, LeaseDenied
from testbed.leases.model import Lease

CLOCK_STEP_S = 5.0
"""Largest step back of a clock, in seconds, that counts as an adjustment; until it is over, time does not advance."""


def check_monotonic(now_s: float, newest_s: float) -> float:
    """Return the later of the current and the newest stored time. Raises `ClockError` for a clock that was set back."""
    if newest_s - now_s > CLOCK_STEP_S:
        behind = newest_s - now_s
        raise ClockError(
            f"the clock of this machine is {behind:.0f} s behind the newest entry of the database, so "
            "leases cannot be judged and nothing may move; correct the clock, or, if it was ahead "
            "before, wait that long"
        )
    return max(now_s, newest_s)


def sort_requests(waiting: Iterable[Lease]) -> list[Lease]:
    """Return requests in the order in which they are served: reservations first, then by priority, then by arrival."""
    return sorted(waiting, key=lambda one: (one.starts_s is None, -one.priority, one.arrival))


@dataclass(frozen=True, slots=True)
class Queue:
    """The leases of a lab while requests are granted, with parts that are `taken` and parts held back by requests."""

    leases: Collection[Lease]
    faults: Mapping[str, str]
    now_s: float
    taken: frozenset[str] = frozenset()
    held_back: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Policy:
    """A condition of a grant.

    `stops` returns whether it stops a request. `why` returns what the request waits for, as a sentence, or "" if it
    does not wait for this condition; its queue has no `taken` parts. With `holds_back`, a stopped request holds its
    parts back from those behind it.
    """

    stops: Callable[[Lease, Queue], bool]
    why: Callable[[Lease, Queue], str]
    holds_back: bool = False


def _is_broken(lease: Lease, queue: Queue) -> bool:
    return not (lease.is_implicit or lease.parts.isdisjoint(queue.faults))


def _why_broken(lease: Lease, queue: Queue) -> str:
    broken = sorted(part for part in lease.parts if part in queue.faults)
    return f"{broken[0]} failed its last check ({queue.faults[broken[0]]})" if broken else ""


def _must_queue(lease: Lease, queue: Queue) -> bool:
    return not lease.parts.isdisjoint(queue.taken | queue.held_back)


def _why_queued(lease: Lease, queue: Queue) -> str:
    others = [one for one in queue.leases if one.id != lease.id and not one.parts.isdisjoint(lease.parts)]
    for one in (*filter(lambda each: each.is_held, others), *sort_requests(others)):
        if one.is_held:
            return f"lease {one.id} of {one.owner} holds {_common(one, lease)}"
        if one.state == "queued" and sort_requests((one, lease))[0] is one:
            return f"request {one.id} of {one.owner} for {_common(one, lease)} is served first"
    return ""


def _meets_reservation(lease: Lease, queue: Queue) -> bool:
    ahead = [one for one in queue.leases if one.state == "requested"]
    return _ends_before(ahead, lease, queue.now_s) < queue.now_s + lease.ttl_s


def _why_reserved(lease: Lease, queue: Queue) -> str:
    others = [one for one in queue.leases if one.id != lease.id]
    overlaps = _ends_before(others, lease, queue.now_s) < queue.now_s + lease.ttl_s
    return f"a duration of {lease.ttl_s:.0f} s would overlap a reservation" if overlaps else ""


POLICIES = (
    Policy(_is_broken, _why_broken),
    Policy(_must_queue, _why_queued, holds_back=True),
    Policy(_meets_reservation, _why_reserved),
)
"""Every condition of a grant. A pending request reports the first whose sentence is not empty."""


def select_grants(leases: Collection[Lease], faults: Mapping[str, str], now_s: float) -> list[Lease]:
    """Return the requests that can be granted now, in order."""
    taken = frozenset[str]().union(*(one.parts for one in leases if one.is_held))
    queue = Queue(leases, faults, now_s, taken)
    granted = []
    for one in sort_requests(one for one in leases if one.state == "queued"):
        stopping = [policy for policy in POLICIES if policy.stops(one, queue)]
        if any(policy.holds_back for policy in stopping):
            queue = replace(queue, held_back=queue.held_back | one.parts)
        elif not stopping:
            granted.append(one)
            queue = replace(queue, taken=queue.taken | one.parts)
    return granted


def why_waiting(lease: Lease, leases: Collection[Lease], faults: Mapping[str, str], now_s: float) -> str:
    """Return what a request waits for, as a sentence; empty if nothing stops it."""
    if lease.state == "requested":
        return "its start has not come"
    queue = Queue(leases, faults, now_s)
    return next((why for policy in POLICIES if (why := policy.why(lease, queue))), "")


def _ends_before(ahead: Iterable[Lease], lease: Lease, now_s: float) -> float:
    """Return the time by which a lease must end: the start of the next reservation of one of its parts.

    This is not before `now_s`, and infinite without such a reservation.
    """
    starts = [
        one.starts_s
        for one in ahead
        if one.id != lease.id and one.starts_s is not None and not one.parts.isdisjoint(lease.parts)
    ]
    return max(now_s, min(starts, default=float("inf")))


def _common(one: Lease, other: Lease) -> str:
    """Return a part that both leases have, a host if possible."""
    return min(one.parts & other.parts, key=lambda part: (not part.startswith("host:"), part))


def is_due(lease: Lease, now_s: float) -> bool:
    """Return whether the time of a lease is over, or that of a request which nobody has extended."""
    return now_s >= lease.expires_s


def is_start_due(lease: Lease, now_s: float) -> bool:
    """Return whether a lease is a reservation whose start has come."""
    return lease.state == "requested" and lease.starts_s is not None and lease.starts_s <= now_s


def grant(lease: Lease, token: int, now_s: float) -> Lease:
    """Return the granted form of a request. A reservation ends at its planned time, even if it starts late."""
    expires_s = lease.expires_s if lease.starts_s is not None else now_s + lease.ttl_s
    return lease.become("granted", token=token, granted_s=now_s, expires_s=expires_s)


def extend(lease: Lease, leases: Collection[Lease], now_s: float, ttl_s: float) -> Lease:
    """Return the lease extended to `ttl_s` from now, but at most to the next reservation. Raises `LeaseDenied`."""
    if lease.state not in ("granted", "queued"):
        raise LeaseDenied(f"lease {lease.id} is {lease.state} and cannot be extended; request a new one")
    ahead = [one for one in leases if one.state == "requested"]
    until_s = min(now_s + ttl_s, _ends_before(ahead, lease, now_s))
    return replace(lease, ttl_s=ttl_s, expires_s=max(lease.expires_s if lease.starts_s else 0.0, until_s))


def check_reservation(lease: Lease, leases: Collection[Lease]) -> None:
    """Raise `LeaseDenied` if a reservation overlaps another, or a lease that is held beyond its start."""
    assert lease.starts_s is not None
    for one in leases:
        if one.id == lease.id or one.parts.isdisjoint(lease.parts):
            continue
        if one.starts_s is not None:
            is_free = one.expires_s <= lease.starts_s or lease.expires_s <= one.starts_s
        else:
            is_free = not one.is_held or one.expires_s <= lease.starts_s
        if not is_free:
            raise LeaseDenied(
                f"{_common(one, lease)} is reserved then by lease {one.id} of {one.owner}; choose another "
                "time (--at)"
            )
