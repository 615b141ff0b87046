"""Jobs that share a lab: their phases, and their hosts, which are fixed or chosen later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.models.contention.job import Burst, PeriodicJob

__all__ = ["Burst", "LabLinks", "Placement", "SharedJob", "place_jobs"]

Placement = Mapping[str, tuple[str, ...]]
"""Hosts of each job, by name of the job."""


@dataclass(frozen=True, slots=True)
class SharedJob:
    """A job on `hosts`, or, if these are empty, on `workers` hosts that are chosen later.

    `traffic` is `bulk` (each host sends a burst to the next host; with two hosts, only one sends) or `allreduce`. The
    default, "", is `bulk` between two hosts and `allreduce` among more. A job with `storage` writes checkpoints
    instead: with n storage hosts, host i sends to storage host i modulo n.
    """

    name: str
    period_ms: float
    bursts: tuple[Burst, ...]
    hosts: tuple[str, ...] = ()
    workers: int = 0
    traffic: str = ""
    storage: tuple[str, ...] = ()

    def list_pairs(self, hosts: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs whose links the job uses on `hosts`: each pair once, with its names in alphabetical order.

        >>> SharedJob("save", 1e4, (), storage=("d", "e")).list_pairs(("a", "b", "c"))
        [('a', 'd'), ('b', 'e'), ('c', 'd')]
        """
        if not self.storage:
            return list_ring_pairs(hosts)
        pairs = [(host, self.storage[number % len(self.storage)]) for number, host in enumerate(hosts)]
        return [(min(pair), max(pair)) for pair in pairs]

    def place_on_links(self, links: tuple[int, ...]) -> PeriodicJob:
        """Return the job on these links for the contention model. Raises `ValueError` as `PeriodicJob` does."""
        return PeriodicJob(self.name, self.period_ms, self.bursts, links)


@dataclass(frozen=True, slots=True)
class LabLinks:
    """Links between the hosts of a lab: one circuit per pair, or with `spread` up to one circuit per NIC.

    Three or more hosts of a job form a ring in their order. A checkpoint uses the links to storage hosts.
    """

    hosts: tuple[str, ...]
    rate_gbps: float
    nics: int = 1
    spread: bool = False

    def find_jobs_by_link(
        self, placement: Placement, jobs: Sequence[SharedJob]
    ) -> dict[str, tuple[str, ...]]:
        """Return the jobs on each link, by name of the link (`a-b`, or `a-b/2` for the second circuit).

        >>> LabLinks(("a", "b", "c"), 25.0).find_jobs_by_link(
        ...     {"x": ("a", "b"), "y": ("b", "a"), "z": ("a", "b", "c")},
        ...     [SharedJob(name, 300.0, ()) for name in "xyz"],
        ... )
        {'a-b': ('x', 'y', 'z'), 'b-c': ('z',), 'a-c': ('z',)}
        """
        jobs_by_link: dict[str, list[str]] = {}
        job_by_name = {job.name: job for job in jobs}
        for name, hosts in placement.items():
            for pair in job_by_name[name].list_pairs(hosts):
                jobs_by_link.setdefault("-".join(pair), []).append(name)
        if not self.spread:
            return {link: tuple(names) for link, names in jobs_by_link.items()}
        return {
            f"{link}/{circuit + 1}": tuple(names[circuit :: self.nics])
            for link, names in jobs_by_link.items()
            for circuit in range(min(self.nics, len(names)))
        }


def list_ring_pairs(hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the neighbours in a ring of hosts: each pair once, with its names in alphabetical order."""
    pairs = zip(hosts, [*hosts[1:], *hosts[:1]], strict=True)
    neighbours = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    return list(dict.fromkeys(neighbours))


def place_jobs(jobs: Sequence[SharedJob], jobs_by_link: Mapping[str, Sequence[str]]) -> list[PeriodicJob]:
    """Return the jobs for the contention model. Its link i is the i-th link of `jobs_by_link`."""
    links_by_job: dict[str, list[int]] = {job.name: [] for job in jobs}
    for link_index, names in enumerate(jobs_by_link.values()):
        for name in names:
            links_by_job[name].append(link_index)
    return [job.place_on_links(tuple(links_by_job[job.name])) for job in jobs]
