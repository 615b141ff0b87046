"""Jobs that are to share a lab: their phases, and the hosts that are fixed or still open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.models.contention.job import Burst, PeriodicJob

__all__ = ["Burst", "LabLinks", "Placement", "SharedJob", "place_jobs"]

Placement = Mapping[str, tuple[str, ...]]
"""Hosts of each job by its name."""


@dataclass(frozen=True, slots=True)
class SharedJob:
    """A job: `hosts` are where it runs, or none, and then it needs `workers` of them.

    `traffic` is `bulk` (each host sends a burst to the next; of two, one to the other) or `allreduce`; empty is `bulk`
    between two hosts and `allreduce` among more.
    """

    name: str
    period_ms: float
    bursts: tuple[Burst, ...]
    hosts: tuple[str, ...] = ()
    workers: int = 0
    traffic: str = ""

    def on(self, links: tuple[int, ...]) -> PeriodicJob:
        """Return the job of the contention model. Raises `ValueError` as `PeriodicJob`."""
        return PeriodicJob(self.name, self.period_ms, self.bursts, links)


@dataclass(frozen=True, slots=True)
class LabLinks:
    """The links between the hosts of a lab: a circuit for each pair, or with `spread` one for each NIC.

    A job of three hosts or more is a ring of them in their order.
    """

    hosts: tuple[str, ...]
    rate_gbps: float
    nics: int = 1
    spread: bool = False

    def of(self, placement: Placement) -> dict[str, tuple[str, ...]]:
        """Return the jobs of each link, by its name (`a-b`, or `a-b/2` for the second circuit).

        >>> LabLinks(("a", "b", "c"), 25.0).of({"x": ("a", "b"), "y": ("b", "a"), "z": ("a", "b", "c")})
        {'a-b': ('x', 'y', 'z'), 'b-c': ('z',), 'a-c': ('z',)}
        """
        users: dict[str, list[str]] = {}
        for job, hosts in placement.items():
            for pair in ring_pairs(hosts):
                users.setdefault("-".join(pair), []).append(job)
        if not self.spread:
            return {link: tuple(jobs) for link, jobs in users.items()}
        return {
            f"{link}/{circuit + 1}": tuple(jobs[circuit :: self.nics])
            for link, jobs in users.items()
            for circuit in range(min(self.nics, len(jobs)))
        }


def ring_pairs(hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of neighbours in the ring of these hosts, each pair once and in alphabetical order."""
    pairs = zip(hosts, [*hosts[1:], *hosts[:1]], strict=True)
    found = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    return list(dict.fromkeys(found))


def place_jobs(jobs: Sequence[SharedJob], users: Mapping[str, Sequence[str]]) -> list[PeriodicJob]:
    """Return the jobs of the contention model; link i is the i-th of `users`."""
    on: dict[str, list[int]] = {job.name: [] for job in jobs}
    for number, names in enumerate(users.values()):
        for name in names:
            on[name].append(number)
    return [job.on(tuple(on[job.name])) for job in jobs]
