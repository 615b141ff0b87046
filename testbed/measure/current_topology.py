"""Measurements on the topology in force: our own collectives, or nccl-tests if the hosts have GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lightbed.wording import format_count
from testbed.design.model import RingOrder
from testbed.design.topology.strides import list_rings
from testbed.errors import CollectiveError, VerifyFailed
from testbed.lab.model import Lab
from testbed.measure.collectives.ranks import (
    CollectiveSpec,
    Configuration,
    ProgressCallback,
    Ranks,
    model_collectives,
    run_collectives,
)
from testbed.measure.collectives.rows import PROVING_SIZE_BYTES, find_misplaced_traffic
from testbed.measure.model import CollectiveResult, Timing
from testbed.measure.nccl.json_output import make_nccl_document
from testbed.measure.nccl.launch import NcclSettings, NcclTest, run_nccl
from testbed.measure.nccl.log import RingFinding, find_ring_differences
from testbed.measure.nccl.table import NcclTable, make_table_document
from testbed.measure.results.run import Run
from testbed.operate.design import Design
from testbed.operate.session import LabSession

ONE_RING_NAME = "one ring"
Backend = Literal["auto", "gloo", "nccl"]
_NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 6: "six", 8: "eight"}


@dataclass(frozen=True, slots=True)
class NcclTestsResult:
    """Timings of nccl-tests, and findings where NCCL's rings differ from the planned rings."""

    table: NcclTable
    ring_findings: tuple[RingFinding, ...]


def make_rings_name(rings: Sequence[RingOrder]) -> str:
    """Return the name of a configuration over all rings of a topology, such as `four rings`."""
    return f"{_NUMBER_WORDS.get(len(rings), str(len(rings)))} rings"


def make_node_configurations(
    design: Design, sizes: tuple[int, ...], *, with_all_rings: bool = True
) -> tuple[Configuration, ...]:
    """Return the AllReduces over all nodes: on one ring, and on all rings of the topology if it has several."""
    rings = list_rings(design.topology)
    one_ring = Configuration(ONE_RING_NAME, rings[:1], sizes)
    has_several_rings = with_all_rings and len(rings) > 1
    return (
        (one_ring, Configuration(make_rings_name(rings), rings, sizes)) if has_several_rings else (one_ring,)
    )


def measure_collectives(
    session: LabSession,
    design: Design,
    spec: CollectiveSpec,
    *,
    deadline_s: float,
    on_progress: ProgressCallback,
    on_row: Callable[[Timing], None] = lambda _timing: None,
    ranks: Ranks | None = None,
) -> CollectiveResult:
    """Measure on the hosts, or estimate with the flow model if hosts are modelled. Call `on_row` with each timing.

    `ranks` are running ranks to use. They stay alive and have their own deadline.
    """
    if session.fleet is None:
        result = model_collectives(session.lab, design.wiring, design.routes, spec, on_progress)
        for timing in result.timings:
            on_row(timing)
        return result
    if ranks is not None:
        return ranks.measure(design.wiring, design.routes, spec, on_progress=on_progress, on_row=on_row)
    return run_collectives(
        session.fleet,
        session.lab,
        design.wiring,
        design.routes,
        spec,
        deadline_s=deadline_s,
        on_progress=on_progress,
        on_row=on_row,
    )


def record_result(run: Run, lab: Lab, spec: CollectiveSpec, result: CollectiveResult) -> None:
    """Add a result to a run: byte counters, what the ranks measured, versions, and a document per configuration."""
    run.add_nic_bytes(result.nic_bytes)
    run.add_rank_figures(result.ranks, result.flows, result.links)
    run.add_versions(result.versions)
    for configuration in spec.configurations:
        timings = [timing for timing in result.timings if timing.configuration == configuration.name]
        document = make_nccl_document(lab, timings, result.versions)
        run.add_nccl(f"{spec.topology}-{configuration.name}", document)
    run.add_phase(f"ring proof {spec.topology}", count_proving_counters(result))


def count_proving_counters(result: CollectiveResult) -> dict[str, int]:
    """Count the NIC counters that agree with the plan and those that contradict it, at sizes that can prove it."""
    misplaced_traffic = find_misplaced_traffic(result.nic_bytes)
    proving_entries = [entry for entry in result.nic_bytes if entry.size_bytes >= PROVING_SIZE_BYTES]
    return {
        "counters_as_planned": len(proving_entries) - len(misplaced_traffic),
        "counters_off_plan": len(misplaced_traffic),
    }


def measure_current_topology(
    session: LabSession,
    design: Design,
    run: Run,
    sizes: tuple[int, ...],
    deadline_s: float,
    *,
    hosts: str,
    backend: Backend = "auto",
    on_progress: ProgressCallback,
) -> CollectiveResult:
    """Measure one ring, then all rings, on a topology. Raise `VerifyFailed` unless it is in force."""
    check_design_in_force(session, design)
    configurations = make_node_configurations(design, sizes)
    route_sets = design.route_sets if session.fleet is not None else None
    spec = CollectiveSpec(
        run.run_id, design.name, configurations, hosts_in_use=hosts, backend=backend, sets=route_sets
    )
    result = measure_collectives(
        session,
        design,
        spec,
        deadline_s=deadline_s,
        on_progress=on_progress,
        on_row=lambda timing: run.add_timings([timing]),
    )
    record_result(run, session.lab, spec, result)
    return result


def measure_nccl_tests(
    session: LabSession, design: Design, run: Run, settings: NcclSettings, test: NcclTest
) -> NcclTestsResult:
    """Run nccl-tests over all hosts and compare NCCL's rings with the planned ones.

    Raises `CollectiveError` if the hosts are modelled or lack GPUs or programs, `VerifyFailed` if the topology is not
    in force.
    """
    if session.fleet is None:
        raise CollectiveError("nccl-tests need hosts with GPUs; the hosts of this lab are only modelled")
    check_design_in_force(session, design)
    rings = list_rings(design.topology)
    nccl_run = run_nccl(session.fleet, session.lab, replace(settings, channels=len(rings)), test)
    run.add_nccl(f"{design.name}-{test.program}", make_table_document(nccl_run.table))
    return NcclTestsResult(nccl_run.table, find_ring_differences(rings, nccl_run.ring_log))


def check_design_in_force(session: LabSession, design: Design) -> None:
    """Raise `VerifyFailed` unless switches, light and fibres match the design."""
    verification = session.verify(session.plan(design))
    if not verification.ok:
        first_finding = verification.findings[0]
        raise VerifyFailed(
            f"the topology is not in force: {format_count(len(verification.findings), 'finding')}, the first: "
            f"{first_finding.kind}: {first_finding.subject}: {first_finding.detail}. "
            "Apply this topology first, then measure"
        )
