"""`testbed topology`: find the links between a number of hosts, without a lab."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, option
from testbed.commands.documents import OMIT_NONE, Document
from testbed.commands.groups import DEMAND_OPTION, SIMPLEX_OPTION
from testbed.design.topology.strides import Method


@dataclass(frozen=True, kw_only=True)
class TopologyDocument(Document):
    """A topology and its distances. With many nodes, only distances from `hops_sampled_from` nodes are computed."""

    nodes: int
    degree: int
    simplex: bool
    strides: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    diameter: int
    mean_hops: float
    hops_sampled_from: int | None = field(default=None, metadata=OMIT_NONE)

    def describe_distances(self) -> str:
        """Return the distances for people."""
        if self.hops_sampled_from is None:
            return f"diameter {self.diameter}, mean hops {self.mean_hops:.3f}"
        sample_text = f"from a sample of {self.hops_sampled_from} nodes"
        return f"diameter {self.diameter} or more, mean hops {self.mean_hops:.2f}, {sample_text}"


@dataclass(frozen=True, kw_only=True)
class Topology(Command[TopologyDocument]):
    """`testbed topology`."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    nodes: Annotated[int, option("Number of hosts.", least=1)] = REQUIRED
    degree: Annotated[int, option("NICs of each host.", least=1)] = REQUIRED
    simplex: Annotated[bool, SIMPLEX_OPTION] = False
    method: Annotated[Method, option("Method that chooses ring strides.")] = "geometric"
    demand: Annotated[tuple[str, ...], DEMAND_OPTION] = ()

    def run(self, context: CommandContext) -> TopologyDocument:
        """Find a topology. Raises `TopologyError`."""
        from lightbed.wording import format_count
        from testbed.design.patching.wiring import list_patches, make_wiring
        from testbed.design.topology.circulants import find_topology, parse_demands, render_topology

        demands = parse_demands(self.demand)
        topology = find_topology(
            self.nodes, self.degree, simplex=self.simplex, method=self.method, demands=demands
        )
        document = TopologyDocument(**render_topology(topology))
        links_text = format_count(len(topology.links), "one-way link" if self.simplex else "duplex link")
        strides = ", ".join(map(str, topology.strides))
        context.say(
            f"{self.nodes} nodes, degree {self.degree}: strides {strides}",
            f"{links_text}, {document.describe_distances()}",
        )
        if not context.is_quiet:
            context.say(*list_patches(make_wiring(topology)))
        return document
