"""The problem of a search: the workload, the servers and their links."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.models.network.latency import Latency
from testbed.design.workloads.model import Workload
from testbed.design.workloads.profile import check_profile
from testbed.design.workloads.roofline import Cluster
from testbed.errors import SearchError


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload on the servers of a cluster, each with `degree` links of `rate_gbps`.

    All strategies of the search use `microbatches` microbatches. Raises `SearchError` for a rate that is not finite and
    positive, and `WorkloadError` for a profile of another workload.
    """

    workload: Workload
    cluster: Cluster
    degree: int
    rate_gbps: float
    simplex: bool = False
    microbatches: int = 1
    latency: Latency = field(default_factory=Latency)

    def __post_init__(self) -> None:
        if not 0 < self.rate_gbps < float("inf"):
            raise SearchError(f"rate_gbps is {self.rate_gbps}: a link's rate must be finite and above 0")
        check_profile(self.workload, self.cluster.profile)

    @property
    def nodes(self) -> int:
        """Number of servers."""
        return self.cluster.nodes

    @property
    def possible_pair_link_counts(self) -> tuple[int, ...]:
        """Numbers of a server's links that can join pairs. Its other links form rings; a duplex ring takes two."""
        min_ring_links = 1 if self.simplex or self.degree == 1 else 2
        rings = range(self.degree - 1, min_ring_links - 1, -1)
        return (0, *(self.degree - count for count in rings if self.simplex or count % 2 == 0))
