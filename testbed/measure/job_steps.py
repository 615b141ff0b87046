"""The steps of the main job on an open lab: each is recorded as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from lightbed.wording import counted
from testbed.design.topology.circulants import as_json
from testbed.design.topology.strides import rings_of
from testbed.errors import VerifyFailed
from testbed.lab.hosts.reachability import ping_all
from testbed.measure.collectives.ranks import CollectiveSpec, Configuration, Ranks
from testbed.measure.current_topology import collect, node_configurations, record, ring_proof
from testbed.measure.gain import compare_topologies, group_name
from testbed.measure.model import Timing
from testbed.measure.results.records import Repatch, StoredCircuit, StoredTopology
from testbed.measure.results.run import Run
from testbed.measure.second_topology import SecondTopology, plan_second
from testbed.measure.stall import Stall, tcp_stream
from testbed.operate.session import BringUpReport, Design, LabSession, design_for, lay_out

# The groups of a job move much: small messages say nothing of them.
GROUP_SIZES = (65536, 262144, 1 << 20, 4 << 20, 8 << 20)


class Narrator(Protocol):
    """Receiver of a job's progress."""

    def phase(self, title: str) -> None:
        """Note that a new part of the job begins."""

    def note(self, text: str) -> None:
        """Note that something worth knowing happened."""

    def tick(self, done: int, total: int, text: str) -> None:
        """Note that one of many like steps is done."""


@dataclass(frozen=True, slots=True)
class MainJobOutcome:
    """The first design, whether both were proven, all timings, and what the re-patch to the second gave."""

    design: Design
    verified: bool
    timings: tuple[Timing, ...]
    repatch: Repatch | None


class MainJob:
    """The steps of the main job on one open lab, and what they have in common."""

    def __init__(
        self,
        session: LabSession,
        run: Run,
        hosts: str,
        sizes: tuple[int, ...],
        narrator: Narrator,
        deadline_s: float,
        ranks: Ranks | None,
    ) -> None:
        self.session = session
        self.ranks = ranks
        self.lab = session.lab
        self.run_record = run
        self.hosts = hosts
        self.sizes = sizes
        self.narrator = narrator
        self.deadline_s = deadline_s
        self.timings: list[Timing] = []
        self.off_plan = 0

    def run(self) -> MainJobOutcome:
        """Return both topologies, one after the other."""
        first = design_for(self.lab, name="all-nodes rings")
        self.narrator.phase("Planning a topology for a second job")
        planned = plan_second(first.topology, first.routes, self.lab.link.represents_gbps)
        groups = self.groups_of(planned)
        brought = self.bring_up(first, "Serves AllReduce over all nodes: every stride is a ring of its own.")
        self.prove_routes(brought)
        self.measure(first, groups, with_all_rings=True)
        if planned is None:
            self.narrator.note("no second topology: no group of these nodes is served better by another")
            return MainJobOutcome(first, brought.verified.ok and not self.off_plan, tuple(self.timings), None)
        name = ", ".join(group_name(group) for group in groups) or "second job"
        second = lay_out(self.lab, name, planned.topology)
        repatched, stall = self.repatch(second, planned)
        self.measure(second, groups, with_all_rings=False)
        repatch = self.record_repatch(first, repatched, planned, stall)
        verified = brought.verified.ok and repatched.verified.ok and not self.off_plan
        return MainJobOutcome(first, verified, tuple(self.timings), repatch)

    def groups_of(self, planned: SecondTopology | None) -> tuple[int, ...]:
        """Return sizes of the groups in which the second job reduces, beside all hosts."""
        demands = planned.demands if planned else ()
        return tuple(demand.group for demand in demands if demand.group < len(self.lab.hosts))

    def bring_up(self, design: Design, reason: str) -> BringUpReport:
        """Bring a design into force and put it on record. Raises `VerifyFailed` when light or fibres differ."""
        self.narrator.phase(f"Patching topology '{design.name}'")
        topology = as_json(design.topology)
        self.narrator.note(
            f"strides {', '.join(map(str, topology['strides']))}: {counted(len(topology['links']), 'link')}, "
            f"diameter {topology['diameter']}, mean {topology['mean_hops']:.2f} hops. {reason}"
        )
        brought = self.session.bring_up(design, self.narrator.note)
        if not brought.verified.ok:
            findings = "; ".join(f"{f.kind}: {f.subject}: {f.detail}" for f in brought.verified.findings[:5])
            raise VerifyFailed(
                f"{counted(len(brought.verified.findings), 'finding')} after patching: {findings}"
            )
        links = tuple((a, b) for a, b in topology.pop("links"))
        strides = tuple(topology.pop("strides"))
        self.run_record.add_topology(
            StoredTopology(name=design.name, links=links, strides=strides, reason=reason, **topology)
        )
        circuits = [StoredCircuit.of(self.lab, circuit) for circuit in brought.plan.circuits]
        self.run_record.add_circuits(design.name, circuits)
        self.run_record.add_phase(f"apply {design.name}", _apply_figures(brought))
        return brought

    def prove_routes(self, brought: BringUpReport) -> None:
        """Prove that every host reaches every other; without real hosts there is nothing to ask."""
        if self.session.fleet is None:
            self.narrator.note("hosts are modelled: routes are computed, not installed")
            return
        unreachable = ping_all(self.session.fleet).missing
        if unreachable:
            pairs = ", ".join(f"{source}->{target}" for source, target in unreachable[:6])
            raise VerifyFailed(
                f"no answer on {len(unreachable)} of the pairs of hosts: {pairs}; see `testbed verify`"
            )
        hosts = len(self.lab.hosts)
        self.narrator.note(f"all {hosts * (hosts - 1)} pairs of hosts reach each other")

    def measure(self, design: Design, groups: Sequence[int], *, with_all_rings: bool) -> None:
        """Measure the configurations of a topology, all sizes, in one launch; rows go on record when it ends."""
        self.narrator.phase(f"Measuring AllReduce on '{design.name}'")
        spec = CollectiveSpec(
            run_id=self.run_record.run_id,
            topology=design.name,
            configurations=tuple(self.configurations(design, groups, with_all_rings=with_all_rings)),
            hosts=self.hosts,
        )
        result = collect(
            self.session,
            design,
            spec,
            deadline_s=self.deadline_s,
            on_progress=self.narrator.tick,
            on_row=self._keep,
            ranks=self.ranks,
        )
        record(self.run_record, self.lab, spec, result)
        if result.nic_bytes:
            proof = ring_proof(result)
            self.off_plan += proof["counters_off_plan"]
            self.narrator.note(
                f"bytes on the NICs prove the rings: {proof['counters_as_planned']} counters as planned, "
                f"{proof['counters_off_plan']} off plan"
            )

    def _keep(self, timing: Timing) -> None:
        """Put a row on record as soon as it is measured."""
        self.timings.append(timing)
        self.run_record.add_timings([timing])

    def configurations(
        self, design: Design, groups: Sequence[int], *, with_all_rings: bool
    ) -> Iterator[Configuration]:
        """Yield one ring, all rings of the topology, and the groups of the second job."""
        yield from node_configurations(design, self.sizes, with_all_rings=with_all_rings)
        sizes = tuple(size for size in GROUP_SIZES if size in self.sizes) or self.sizes[-1:]
        for group in groups:
            yield Configuration(group_name(group), rings_of(design.topology, group), sizes)

    def repatch(self, second: Design, planned: SecondTopology) -> tuple[BringUpReport, Stall | None]:
        """Bring the second design into force under a TCP stream between two hosts that stay neighbours."""
        fleet = self.session.fleet
        streaming = tcp_stream(fleet, *self.lab.hosts[:2]) if fleet else nullcontext()
        with streaming as stream:
            brought = self.bring_up(second, planned.why)
            stall = stream.finish() if stream else None
        self.prove_routes(brought)
        return brought, stall

    def record_repatch(
        self, first: Design, brought: BringUpReport, planned: SecondTopology, stall: Stall | None
    ) -> Repatch:
        """Return what the re-patch cost and what it gave, for the record."""
        repatch = Repatch(
            source=first.name,
            target=brought.design.name,
            reason=planned.why,
            circuits_moved=sum(
                len(part.target.pairs - part.seen.connections.pairs) for part in brought.plan.switches
            ),
            outage_s=brought.apply.outage_s,
            total_s=brought.routes_s,
            stall_s=stall.longest_gap_s if stall else None,
            usual_gap_s=stall.median_gap_s if stall else None,
            comparisons=compare_topologies(
                self.timings, first.name, brought.design.name, planned.demands, len(self.lab.hosts)
            ),
        )
        self.run_record.add_repatch(repatch)
        stalled = f", TCP stalled {repatch.stall_s * 1e3:.0f} ms" if repatch.stall_s is not None else ""
        self.narrator.note(f"dark for {repatch.outage_s * 1e3:.0f} ms{stalled}")
        return repatch


def _apply_figures(brought: BringUpReport) -> dict[str, Any]:
    return {
        "circuits": len(brought.plan.circuits),
        "changed": brought.plan.has_changes,
        "outage_s": brought.apply.outage_s,
        "apply_s": brought.apply.total_s,
        "journal_s": brought.apply.journal_s,
        "routes_s": brought.routes_s,
        "links_heard": brought.verified.links_received,
        "findings": len(brought.verified.findings),
    }
