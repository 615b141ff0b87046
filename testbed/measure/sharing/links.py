"""The links that bursts of jobs take: a circuit from each host to the next, in the topology that is in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.design.model import Link, Wiring
from testbed.design.sharing.jobs import Placement, SharedJob
from testbed.errors import TopologyError
from testbed.lab.model import Lab


@dataclass(frozen=True, slots=True)
class JobLinks:
    """A job on hosts of the lab, by number: who sends to whom, over which link.

    `hosts` are in the order of its ring; `out[i]` is the link on which host i sends, None where it only receives.
    """

    job: SharedJob
    hosts: tuple[int, ...]
    out: tuple[Link | None, ...]

    @property
    def steps(self) -> int:
        """Parts of a burst: an AllReduce of k hosts has 2 (k - 1), each waits for the one before."""
        return 2 * (len(self.hosts) - 1) if is_allreduce(self.job, len(self.hosts)) else 1

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that the job sends on."""
        return tuple(link for link in self.out if link)


def is_allreduce(job: SharedJob, hosts: int) -> bool:
    """Return whether the hosts of a job exchange parts; else each sends its burst as a whole."""
    return job.traffic == "allreduce" or (not job.traffic and hosts > 2)


def links_of_jobs(
    lab: Lab, wiring: Wiring, jobs: Sequence[SharedJob], placement: Placement, *, spread: bool = False
) -> list[JobLinks]:
    """Return the links of each job; with `spread` jobs on the same hosts take parallel links in turn.

    Raises `TopologyError` for hosts that no link joins, and for a job on one host.
    """
    numbers = {host.name: number for number, host in enumerate(lab.hosts)}
    found: list[JobLinks] = []
    for job in jobs:
        hosts = tuple(numbers[name] for name in placement[job.name])
        if len(hosts) < 2:
            raise TopologyError(f"job {job.name!r} on one host sends nothing: give it two hosts or more")
        turn = sum(set(hosts) == set(other.hosts) for other in found) if spread else 0
        found.append(_job_links(lab, wiring, job, hosts, turn))
    return found


def _job_links(lab: Lab, wiring: Wiring, job: SharedJob, hosts: tuple[int, ...], turn: int) -> JobLinks:
    """Return the links in the order of the hosts or, where it has none, in the other; of two hosts by their names."""
    if len(hosts) == 2:
        hosts = (min(hosts), max(hosts))
    for order in (hosts, hosts[::-1]):
        is_one_way = len(order) == 2 and not is_allreduce(job, 2)
        pairs = [(order[0], order[1])] if is_one_way else list(zip(order, order[1:] + order[:1], strict=True))
        out = [_link(wiring, pair, turn) for pair in pairs]
        if None not in out:
            return JobLinks(job, order, (*out, *((None,) if is_one_way else ())))
    names = ", ".join(lab.hosts[host].name for host in hosts)
    raise TopologyError(
        f"no circuits join the hosts of job {job.name!r} ({names}) in the topology in force: choose hosts that are "
        "neighbours (`testbed verify` lists links), or apply a topology that joins them"
    )


def _link(wiring: Wiring, pair: tuple[int, int], turn: int) -> Link | None:
    links = sorted(link for link in wiring.links if (link.source.node, link.target.node) == pair)
    return links[turn % len(links)] if links else None
