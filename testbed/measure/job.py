"""The main job: patch a topology, verify it, measure collectives, re-patch for a workload, measure again, report.

With a model, a host then sends inference requests to a board. Each result enters the run's record immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from lightbed.wording import format_count
from testbed.design.topology.circulants import render_topology
from testbed.design.topology.strides import list_rings
from testbed.errors import HostError, VerifyFailed
from testbed.lab.hosts.reachability import ping_all
from testbed.lab.inventory import render_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.lab.simulated.link_rate import LinkRate
from testbed.measure.collectives.ranks import CollectiveSpec, Configuration, Ranks
from testbed.measure.current_topology import (
    count_proving_counters,
    make_node_configurations,
    measure_collectives,
    record_result,
)
from testbed.measure.gain import (
    RingGain,
    compare_topologies,
    find_ring_gain,
    make_group_name,
    select_largest_timings,
)
from testbed.measure.inference import InferenceTrial, measure_inference
from testbed.measure.model import Timing
from testbed.measure.report.page import write_report
from testbed.measure.results.records import LINK_RATE, Inference, Repatch, StoredCircuit, StoredTopology
from testbed.measure.results.run import Run
from testbed.measure.results.store import RunStore
from testbed.measure.second_topology import SecondTopology, plan_second_topology
from testbed.measure.stall import Stall, run_tcp_stream
from testbed.operate.apply import check_permission
from testbed.operate.design import Design, build_design, lay_out
from testbed.operate.journal import open_journal
from testbed.operate.session import BringUpReport, LabSession, open_lab

# Groups reduce large tensors, so small messages are not measured.
GROUP_SIZES = (65536, 262144, 1 << 20, 4 << 20, 8 << 20)


class Narrator(Protocol):
    """Receiver of a job's progress."""

    def phase(self, title: str) -> None:
        """Report that a new part of the job starts."""

    def note(self, text: str) -> None:
        """Report a notable event."""

    def tick(self, done: int, total: int, text: str) -> None:
        """Report that `done` of `total` similar steps are done."""


@dataclass(frozen=True, slots=True)
class MainJobOutcome:
    """Result of the main job.

    `is_verified` is True if all topologies were verified and all byte counters are on plan.
    """

    design: Design
    is_verified: bool
    timings: tuple[Timing, ...]
    repatch: Repatch | None


class MainJob:
    """The steps of the main job on an open lab, and their shared state."""

    def __init__(
        self,
        session: LabSession,
        run: Run,
        hosts_in_use: str,
        sizes: tuple[int, ...],
        narrator: Narrator,
        deadline_s: float,
        ranks: Ranks | None,
    ) -> None:
        self.session = session
        self.ranks = ranks
        self.lab = session.lab
        self.run_record = run
        self.hosts = hosts_in_use
        self.sizes = sizes
        self.narrator = narrator
        self.deadline_s = deadline_s
        self.timings: list[Timing] = []
        self.off_plan_counter_count = 0

    def run(self) -> MainJobOutcome:
        """Patch and measure both topologies, one after the other."""
        first_design = build_design(self.lab, name="all-nodes rings")
        self.narrator.phase("Planning a topology for a second job")
        second_topology = plan_second_topology(
            first_design.topology, first_design.routes, self.lab.link.represents_gbps
        )
        group_sizes = self.list_group_sizes(second_topology)
        first_report = self.bring_up(
            first_design, "It serves AllReduce over all nodes: every stride is a ring of its own."
        )
        self.check_routes(first_report)
        self.measure(first_design, group_sizes, with_all_rings=True)
        if second_topology is None:
            self.narrator.note("no second topology: no group of these nodes is served better by another")
            return MainJobOutcome(
                first_design,
                first_report.verify_report.ok and not self.off_plan_counter_count,
                tuple(self.timings),
                None,
            )
        second_name = ", ".join(make_group_name(group_size) for group_size in group_sizes) or "second job"
        second_design = lay_out(self.lab, second_name, second_topology.topology)
        second_report, stall = self.repatch(second_design, second_topology)
        self.measure(second_design, group_sizes, with_all_rings=False)
        repatch = self.record_repatch(first_design, second_report, second_topology, stall)
        is_verified = (
            first_report.verify_report.ok
            and second_report.verify_report.ok
            and not self.off_plan_counter_count
        )
        return MainJobOutcome(first_design, is_verified, tuple(self.timings), repatch)

    def list_group_sizes(self, second_topology: SecondTopology | None) -> tuple[int, ...]:
        """Return the group sizes in which the second job reduces, without the group of all hosts."""
        demands = second_topology.demands if second_topology else ()
        return tuple(demand.group_size for demand in demands if demand.group_size < len(self.lab.hosts))

    def bring_up(self, design: Design, reason: str) -> BringUpReport:
        """Apply a design, verify it and record it. Raise `VerifyFailed` if the verification has findings."""
        self.narrator.phase(f"Patching topology '{design.name}'")
        topology = render_topology(design.topology)
        self.narrator.note(
            f"strides {', '.join(map(str, topology['strides']))}: {format_count(len(topology['links']), 'link')}, "
            f"diameter {topology['diameter']}, mean {topology['mean_hops']:.2f} hops. {reason}"
        )
        report = self.session.bring_up(design, self.narrator.note)
        if not report.verify_report.ok:
            findings_text = "; ".join(
                f"{finding.kind}: {finding.subject}: {finding.detail}"
                for finding in report.verify_report.findings[:5]
            )
            raise VerifyFailed(
                f"{format_count(len(report.verify_report.findings), 'finding')} after patching: {findings_text}"
            )
        links = tuple((a, b) for a, b in topology.pop("links"))
        strides = tuple(topology.pop("strides"))
        self.run_record.add_topology(
            StoredTopology(name=design.name, links=links, strides=strides, reason=reason, **topology)
        )
        circuits = [StoredCircuit.from_circuit(self.lab, circuit) for circuit in report.plan.circuits]
        self.run_record.add_circuits(design.name, circuits)
        self.run_record.add_phase(
            f"apply {design.name}",
            {
                "circuits": len(report.plan.circuits),
                "changed": report.plan.has_changes,
                "outage_s": report.apply_result.outage_s,
                "apply_s": report.apply_result.total_s,
                "journal_s": report.apply_result.journal_s,
                "routes_s": report.routes_s,
                "links_heard": report.verify_report.links_received,
                "findings": len(report.verify_report.findings),
            },
        )
        return report

    def check_routes(self, report: BringUpReport) -> None:
        """Raise `VerifyFailed` unless every host reaches every other. Do nothing if hosts are modelled."""
        if self.session.fleet is None:
            self.narrator.note("hosts are modelled: routes are computed, not installed")
            return
        unreachable_pairs = ping_all(self.session.fleet).missing_pairs
        if unreachable_pairs:
            pairs_text = ", ".join(f"{source}->{target}" for source, target in unreachable_pairs[:6])
            raise VerifyFailed(
                f"no answer on {len(unreachable_pairs)} of the pairs of hosts: {pairs_text}; run `testbed verify`"
            )
        host_count = len(self.lab.hosts)
        self.narrator.note(f"all {host_count * (host_count - 1)} pairs of hosts reach each other")

    def measure(self, design: Design, group_sizes: Sequence[int], *, with_all_rings: bool) -> None:
        """Measure all configurations and sizes of a topology in one launch, and record each row immediately."""
        self.narrator.phase(f"Measuring AllReduce on '{design.name}'")
        spec = CollectiveSpec(
            run_id=self.run_record.run_id,
            topology=design.name,
            configurations=tuple(
                self.make_configurations(design, group_sizes, with_all_rings=with_all_rings)
            ),
            hosts_in_use=self.hosts,
        )
        result = measure_collectives(
            self.session,
            design,
            spec,
            deadline_s=self.deadline_s,
            on_progress=self.narrator.tick,
            on_row=self._record_timing,
            ranks=self.ranks,
        )
        record_result(self.run_record, self.lab, spec, result)
        if result.nic_bytes:
            proof = count_proving_counters(result)
            self.off_plan_counter_count += proof["counters_off_plan"]
            self.narrator.note(
                f"bytes on the NICs prove the rings: {proof['counters_as_planned']} counters as planned, "
                f"{proof['counters_off_plan']} off plan"
            )

    def _record_timing(self, timing: Timing) -> None:
        self.timings.append(timing)
        self.run_record.add_timings([timing])

    def make_configurations(
        self, design: Design, group_sizes: Sequence[int], *, with_all_rings: bool
    ) -> Iterator[Configuration]:
        """Yield the configurations to measure: one ring, all rings of the topology, the groups of the second job."""
        yield from make_node_configurations(design, self.sizes, with_all_rings=with_all_rings)
        sizes = tuple(size for size in GROUP_SIZES if size in self.sizes) or self.sizes[-1:]
        for group_size in group_sizes:
            yield Configuration(make_group_name(group_size), list_rings(design.topology, group_size), sizes)

    def repatch(
        self, second_design: Design, second_topology: SecondTopology
    ) -> tuple[BringUpReport, Stall | None]:
        """Apply the second design while a TCP stream runs between two hosts that stay neighbours."""
        fleet = self.session.fleet
        stream_context = run_tcp_stream(fleet, *self.lab.hosts[:2]) if fleet else nullcontext()
        with stream_context as stream:
            report = self.bring_up(second_design, second_topology.reason)
            stall = stream.finish() if stream else None
        self.check_routes(report)
        return report, stall

    def record_repatch(
        self,
        first_design: Design,
        report: BringUpReport,
        second_topology: SecondTopology,
        stall: Stall | None,
    ) -> Repatch:
        """Record the costs and gains of the re-patch, and return them."""
        repatch = Repatch(
            source=first_design.name,
            target=report.design.name,
            reason=second_topology.reason,
            circuits_moved=sum(
                len(switch_plan.target.pairs - switch_plan.snapshot.connections.pairs)
                for switch_plan in report.plan.switches
            ),
            outage_s=report.apply_result.outage_s,
            total_s=report.routes_s,
            stall_s=stall.longest_gap_s if stall else None,
            usual_gap_s=stall.median_gap_s if stall else None,
            comparisons=compare_topologies(
                self.timings,
                first_design.name,
                report.design.name,
                second_topology.demands,
                len(self.lab.hosts),
            ),
        )
        self.run_record.add_repatch(repatch)
        stall_text = f", TCP stalled {repatch.stall_s * 1e3:.0f} ms" if repatch.stall_s is not None else ""
        self.narrator.note(f"dark for {repatch.outage_s * 1e3:.0f} ms{stall_text}")
        return repatch


@dataclass(frozen=True, slots=True)
class JobResult:
    """The results of the main job. `link_rate` is the rate that a simulated lab chose, or None for a fixed rate."""

    run_id: str
    directory: Path
    report: Path
    lab: Lab
    hosts_in_use: str
    link_count: int
    is_verified: bool
    timings: tuple[Timing, ...]
    repatch: Repatch | None
    link_rate: LinkRate | None
    inference: Inference | None = None

    @property
    def largest_timings(self) -> tuple[Timing, ...]:
        """The timing of each configuration of the first topology at its largest size."""
        return select_largest_timings(self.timings)

    @property
    def ring_gain(self) -> RingGain | None:
        """The gain of all rings over one at the largest size, or None if the topology has only one ring."""
        return find_ring_gain(self.largest_timings)


@contextmanager
def provide_lab(
    lab: Lab, hosts: Literal["auto", "kernel", "model"], narrator: Narrator
) -> Iterator[tuple[Lab, str, LinkRate | None]]:
    """Yield the lab, the kind of its hosts (`real`, `kernel` or `model`), and the link rate if the lab chose one.

    A simulated lab is started (on the next free subnet if its own is in use) and torn down afterwards.
    """
    if not lab.simulated:
        yield lab, "real", None
        return
    with start_lab(lab, hosts=hosts, may_move=True) as running_lab:
        reason_text = f" ({running_lab.mode_reason})" if running_lab.mode_reason else ""
        narrator.note(
            f"SIMULATED lab {running_lab.lab_id} at {running_lab.lab.management}, "
            f"hosts: {running_lab.hosts_mode}{reason_text}"
        )
        if running_lab.link_rate:
            narrator.note(running_lab.link_rate.describe())
        yield running_lab.lab, running_lab.hosts_mode, running_lab.link_rate


def run_job(
    lab: Lab,
    *,
    hosts: Literal["auto", "kernel", "model"],
    sizes: Sequence[int],
    runs_dir: Path,
    narrator: Narrator,
    deadline_s: float = 60.0,
    really_move: str | None = None,
    trial: InferenceTrial | None = None,
) -> JobResult:
    """Run the main job on a lab, then `trial` on a board if given, and store the record in `runs_dir`.

    Raises `RefusedToMove` for a real lab unless `really_move` names it, and the errors of every step. On an error, a
    simulated lab is torn down and the run is recorded as failed or interrupted.
    """
    check_permission(lab, really_move)
    narrator.phase("Starting the lab")
    with provide_lab(lab, hosts, narrator) as (opened_lab, hosts_in_use, link_rate):
        if trial and hosts_in_use == "model":
            raise HostError(
                f"the hosts of lab '{opened_lab.name}' are only modelled and send no packets to a board: run as root, "
                "with --hosts kernel"
            )
        store = RunStore(runs_dir)
        with (
            store.begin_run(opened_lab, lab.simulated, hosts_in_use, seeds={}) as run,
            open_journal(runs_dir) as journal,
        ):
            (run.directory / "lab.yaml").write_text(render_lab(opened_lab), encoding="utf-8")
            if link_rate:
                run.add_phase(LINK_RATE, asdict(link_rate) | {"text": link_rate.describe()})
            # A simulated lab ends with the job, so it keeps no intent.
            lab_context = open_lab(
                opened_lab, journal, model_hosts=hosts_in_use == "model", keep_intent=not opened_lab.simulated
            )
            with lab_context as session, ExitStack() as stack:
                ranks = None
                if session.fleet:
                    ranks = stack.enter_context(Ranks(session.fleet, opened_lab, deadline_s))
                outcome = MainJob(session, run, hosts_in_use, tuple(sizes), narrator, deadline_s, ranks).run()
                inference = None
                if trial:
                    narrator.phase(f"Inference on board {opened_lab.boards[0].name}")
                    inference = measure_inference(session, run, trial, narrator.note, deadline_s)
    report = run.directory / "report.html"
    write_report(store.load_run(run.run_id), report)
    return JobResult(
        run_id=run.run_id,
        directory=run.directory,
        report=report,
        lab=opened_lab,
        hosts_in_use=hosts_in_use,
        link_count=len(outcome.design.topology.links),
        is_verified=outcome.is_verified,
        timings=outcome.timings,
        repatch=outcome.repatch,
        link_rate=link_rate,
        inference=inference,
    )
