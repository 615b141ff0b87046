"""A plan run as a job on the hosts, with the bytes on its links during the job and since its start."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lightbed.wording import format_count
from testbed.design.evaluation.host_job import HostJob, make_host_job, make_host_scripts
from testbed.design.evaluation.job import build_plan_graph
from testbed.design.model import Wiring
from testbed.design.plans.file import Plan
from testbed.errors import CollectiveError, HostError
from testbed.lab.hosts.fleet import Fleet
from testbed.lab.hosts.forwarding import list_set_addresses
from testbed.lab.model import Lab
from testbed.measure.collectives.rank_reports import Diagnosis, RankReports
from testbed.measure.collectives.rows import (
    make_flow_figures,
    make_link_figures,
    make_rank_figures,
    sort_links,
)
from testbed.measure.current_topology import check_design_in_force
from testbed.measure.model import FlowFigures, LinkFigures, RankFigures
from testbed.measure.results.records import Json
from testbed.node.messages import HEADER
from testbed.operate.design import Design
from testbed.operate.session import LabSession

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.measure.results.store import RunStore
    from testbed.operate.choice import DesignChoice


WARM_UP_ITERATIONS = 1
HEADER_BYTES = 66
"""Headers of a packet: Ethernet 14 bytes, IPv4 20, TCP 20 and its time stamps 12."""
_REPORT_GRACE_S = 2.0
PLAN_JOB_PHASE = "plan job"
_ROW_KEY = ("", PLAN_JOB_PHASE, 0)
"""Topology, configuration and size of a job's only row."""


@dataclass(frozen=True, slots=True)
class LinkCount:
    """Bytes of one link over all iterations: planned, simulated, and counted by the sending NIC.

    Planned and simulated bytes include the tensors and the headers of the job's messages. `counted_bytes` is what the
    NIC sent, without packet headers. `retransmitted_bytes` is what TCP connections over the link sent again. It counts
    on each link of a connection's path.
    """

    link: str
    planned_bytes: int
    simulated_bytes: int
    counted_bytes: int | None
    retransmitted_bytes: int

    @property
    def relative_deviation(self) -> float | None:
        """Relative deviation of the link's bytes from the plan, or None if none were counted or planned.

        Retransmitted bytes passed the link twice only if the first copy was lost after the link, which is unknown. So
        the counted bytes may include any part of them. The deviation assumes the part that fits the plan best.

        >>> LinkCount("a/nic1 -> b/nic1", 1000, 1000, 1030, 50).relative_deviation
        0.0
        >>> LinkCount("a/nic1 -> b/nic1", 1000, 1000, 1100, 50).relative_deviation
        0.05
        """
        if self.counted_bytes is None or not self.planned_bytes:
            return None
        unrepeated_bytes = self.counted_bytes - self.retransmitted_bytes
        nearest_bytes = min(max(self.planned_bytes, unrepeated_bytes), self.counted_bytes)
        return (nearest_bytes - self.planned_bytes) / self.planned_bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that every host writes after each `iteration_interval`-th iteration, to `folder` or `/var/tmp`."""

    size_bytes: int
    iteration_interval: int = 1
    folder: str = ""


@dataclass(frozen=True, slots=True)
class PlanRun:
    """Result of the iterations of a plan on the hosts: their times, bytes by link, load of the processors.

    `counters_before` maps each NIC (`host/nic`) to its (bytes, packets) when the iterations began.
    """

    times_s: tuple[float, ...]
    predicted_iteration_s: float
    size_factor: float
    links: tuple[LinkCount, ...]
    counters_before: Mapping[str, Sequence[int]]
    processor_load: float
    rank_figures: tuple[RankFigures, ...] = ()
    flow_figures: tuple[FlowFigures, ...] = ()
    link_figures: tuple[LinkFigures, ...] = ()

    @property
    def measured_s(self) -> float:
        """Median time of the iterations."""
        return statistics.median(self.times_s)

    @property
    def prediction_error(self) -> float:
        """Prediction divided by measurement, minus 1."""
        return self.predicted_iteration_s / self.measured_s - 1


def run_plan(
    session: LabSession,
    design: Design,
    plan: Plan | None,
    *,
    iterations: int,
    iteration_s: float,
    factor: float | None,
    deadline_s: float,
    checkpoint: Checkpoint | None = None,
) -> PlanRun:
    """Run the plan in force as a job on the hosts.

    The job is scaled by `factor`. If `factor` is None, it is scaled so that an iteration takes `iteration_s`. Raises
    `CollectiveError` without a plan or if the hosts are only modelled, `VerifyFailed` if the plan is not in force, and
    `HostError`.
    """
    if plan is None or design.route_sets is None:
        raise CollectiveError(
            "a job needs a plan for at least two servers: apply one with `testbed apply LAB --plan FILE`"
        )
    if session.fleet is None:
        raise CollectiveError(
            "a job needs real hosts or kernel hosts; the hosts of this lab are only modelled"
        )
    check_design_in_force(session, design)
    link = session.lab.link
    job = make_host_job(
        build_plan_graph(plan),
        design.route_sets,
        link.rate_mbps,
        stretch=plan.rate_gbps * 1000 / link.rate_mbps,
        target_s=iteration_s,
        factor=factor,
        mtu_bytes=link.mtu,
    )
    return run_on_hosts(
        session.fleet,
        session.lab,
        design.wiring,
        job,
        iterations=iterations,
        deadline_s=deadline_s,
        checkpoint=checkpoint,
    )


def run_on_hosts(
    fleet: Fleet,
    lab: Lab,
    wiring: Wiring,
    job: HostJob,
    *,
    iterations: int = 3,
    deadline_s: float = 60.0,
    checkpoint: Checkpoint | None = None,
) -> PlanRun:
    """Run a job on the hosts after one warm-up iteration, and return its times and bytes.

    Raises `CollectiveError` and `HostError`.
    """
    program_names = ("guard.py", "iteration.py", "messages.py", "watch.py")
    folder = fleet.put(
        {name: resources.files("testbed.node").joinpath(name).read_bytes() for name in program_names}
    )
    commands = {
        host.name: _make_command(lab, folder, node, deadline_s) for node, host in enumerate(lab.hosts)
    }
    reports = RankReports()
    with fleet.start(commands) as launch:
        reports.read_until(launch, reports.ready_message_by_host, len(lab.hosts), deadline_s)
        if len(reports.ready_message_by_host) == len(lab.hosts):
            for host, script in _make_scripts(lab, job, reports, iterations, deadline_s, checkpoint).items():
                launch.send(json.dumps(script) + "\n", host)
            reports.read_until(launch, reports.done_hosts, len(lab.hosts), deadline_s + _REPORT_GRACE_S)
        if len(reports.done_hosts) < len(lab.hosts):
            launch.close_input()
            diagnosis = Diagnosis(lab, wiring, reports, {}, deadline_s)
            raise (
                diagnosis.make_failure_error()
                if reports.ready_message_by_host
                else diagnosis.make_not_ready_error()
            )
    rows = sorted(reports.rows, key=lambda row: row["rank"])
    return _make_result(lab, wiring, job, rows, iterations)


def _make_command(lab: Lab, folder: str, node: int, deadline_s: float) -> str:
    host = lab.hosts[node]
    nic_arguments = [argument for nic in host.nics for argument in ("--nic", nic.name)]
    guard_command = [
        host.python,
        "-IS",
        f"{folder}/guard.py",
        "--deadline",
        f"{deadline_s:g}",
        "--renew",
        *nic_arguments,
        "--",
    ]
    return shlex.join([*guard_command, host.python, "-IS", f"{folder}/iteration.py", str(node)])


def _make_scripts(
    lab: Lab,
    job: HostJob,
    reports: RankReports,
    iterations: int,
    deadline_s: float,
    checkpoint: Checkpoint | None,
) -> dict[str, dict[str, Any]]:
    ready_messages = [reports.ready_message_by_host[host.name] for host in lab.hosts]
    set_count = job.routes.set_count
    shared_fields = {
        "addresses": [
            [str(address) for address in list_set_addresses(host)[:set_count]] for host in lab.hosts
        ],
        "ports": [message["port"] for message in ready_messages],
        "barrier": f"{lab.hosts[0].management}:{ready_messages[0]['port']}",
        "nodes": len(lab.hosts),
        "warm_up": WARM_UP_ITERATIONS,
        "iterations": iterations,
        "pace_bytes": round(lab.link.rate_mbps * 1e6 / 8),
        "timeout_s": deadline_s,
        "checkpoint_bytes": checkpoint.size_bytes if checkpoint else 0,
        "checkpoint_every": checkpoint.iteration_interval if checkpoint else 1,
        "checkpoint_folder": checkpoint.folder if checkpoint else "",
    }
    scripts_by_node = make_host_scripts(job)
    return {
        host.name: {**shared_fields, **scripts_by_node[node], "nics": [nic.name for nic in host.nics]}
        for node, host in enumerate(lab.hosts)
    }


def _make_result(
    lab: Lab, wiring: Wiring, job: HostJob, rows: Sequence[Mapping[str, Any]], iterations: int
) -> PlanRun:
    counters_before, counters_after = (
        {
            f"{host.name}/{nic}": counts
            for host, row in zip(lab.hosts, rows, strict=True)
            for nic, counts in row[key].items()
        }
        for key in ("before", "after")
    )
    # Retransmitted bytes count on each link of their connection's path.
    retransmitted_bytes_by_edge = np.zeros(len(job.routes.topology.edges), dtype=np.int64)
    for source, host_row in enumerate(rows):
        for target, route_set, size in host_row["retransmitted"]:
            for edge in job.routes.find_path(source, target, route_set):
                retransmitted_bytes_by_edge[edge] += size
    header_bytes = job.link_message_counts * HEADER.size
    planned_bytes_by_edge, simulated_bytes_by_edge = (
        (tensor_bytes + header_bytes) * iterations
        for tensor_bytes in (job.planned_bytes, job.execution.link_bytes)
    )
    links = tuple(
        LinkCount(
            link=lab.link_label(link),
            planned_bytes=round(float(planned_bytes_by_edge[edge])),
            simulated_bytes=int(simulated_bytes_by_edge[edge]),
            counted_bytes=compute_payload(
                counters_before[lab.nic_label(link.source)], counters_after[lab.nic_label(link.source)]
            ),
            retransmitted_bytes=int(retransmitted_bytes_by_edge[edge]),
        )
        for edge, link in enumerate(sort_links(wiring))
    )
    return PlanRun(
        times_s=tuple(max(times) for times in zip(*(row["times"] for row in rows), strict=True)),
        predicted_iteration_s=job.predicted_s,
        size_factor=job.factor,
        links=links,
        counters_before=counters_before,
        processor_load=max(row["busy"] for row in rows),
        rank_figures=tuple(
            figures
            for rank, row in enumerate(rows)
            for figures in make_rank_figures(_ROW_KEY, rank, lab.hosts[rank].name, row["seen"])
        ),
        flow_figures=tuple(_yield_flows(lab, wiring, job, rows)),
        link_figures=tuple(
            figures
            for rank, row in enumerate(rows)
            for figures in make_link_figures(_ROW_KEY, lab, wiring, rank, row["seen"])
        ),
    )


def _yield_flows(
    lab: Lab, wiring: Wiring, job: HostJob, rows: Sequence[Mapping[str, Any]]
) -> Iterator[FlowFigures]:
    """Yield what each host measured about its connections."""
    links = sort_links(wiring)
    for source, row in enumerate(rows):
        for target, route_set, figures in row["seen"]["flows"]:
            path = [links[edge] for edge in job.routes.find_path(source, target, route_set)]
            yield make_flow_figures(_ROW_KEY, lab, (source, target, route_set), path, figures)


def compute_payload(before: Sequence[int], after: Sequence[int]) -> int | None:
    """Return the payload bytes between two readings (bytes, packets) of a NIC, or None after a reset of its counters.

    >>> compute_payload([1000, 10], [10066, 11]), compute_payload([1000, 10], [66, 1])
    (9000, None)
    """
    sent_bytes, packet_count = (
        later_value - earlier_value for earlier_value, later_value in zip(before, after, strict=True)
    )
    return sent_bytes - HEADER_BYTES * packet_count if packet_count >= 0 else None


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The last recorded run of an epoch's plan: its links, and the counters of the NICs at its start."""

    links: tuple[LinkCount, ...]
    counters_before: Mapping[str, Sequence[int]]


def to_json(plan_run: PlanRun, epoch: int | None) -> dict[str, Json]:
    """Return the data of the run's phase `PLAN_JOB_PHASE`."""
    return {
        "epoch": epoch,
        "factor": plan_run.size_factor,
        "predicted_s": plan_run.predicted_iteration_s,
        "times_s": list(plan_run.times_s),
        "busy": plan_run.processor_load,
        "links": [asdict(link) for link in plan_run.links],
        "before": {nic: list(counts) for nic, counts in plan_run.counters_before.items()},
    }


def find_last_job(store: RunStore, lab: str, epoch: int | None) -> RecordedJob | None:
    """Return the last recorded job of an epoch of a lab, or None."""
    for phase in store.list_phases(lab, PLAN_JOB_PHASE):
        data = cast("Mapping[str, Any]", phase.data)
        if epoch is not None and data["epoch"] == epoch:
            return RecordedJob(tuple(LinkCount(**link) for link in data["links"]), data["before"])
    return None


def count_links_since(job: RecordedJob, fleet: Fleet, lab: Lab) -> tuple[LinkCount, ...]:
    """Return the links of a job with the bytes that their NICs have counted since its start.

    `counted_bytes` is None for NICs that cannot be read, or whose counters were reset.
    """
    counters = read_counters(fleet, lab)
    return tuple(_recount_link(link, job.counters_before, counters) for link in job.links)


def count_links_since_last_job(
    session: LabSession, choice: DesignChoice, runs_dir: Path
) -> tuple[LinkCount, ...]:
    """Return the bytes of the links since the plan last ran as a job, or () if it never did."""
    if choice.intent is None or choice.topology_source.plan_text is None or session.fleet is None:
        return ()
    from testbed.measure.results.store import RunStore  # imports SQLAlchemy: only if needed

    job = find_last_job(RunStore(runs_dir), choice.lab.name, choice.intent.epoch)
    return count_links_since(job, session.fleet, choice.lab) if job else ()


def summarise_links(links: Sequence[LinkCount]) -> list[str]:
    """Return one line on the deviation of the links from the plan, or no line if no link was counted."""
    largest_deviation = find_largest_deviation(links)
    if largest_deviation is None:
        return []
    retransmitted_bytes = sum(link.retransmitted_bytes for link in links)
    links_text = format_count(len(links), "link")
    return [
        (
            f"the payload of {links_text} is within {largest_deviation * 100:.1f} % of the plan; "
            f"{retransmitted_bytes} bytes were retransmitted"
        )
    ]


def _recount_link(
    link: LinkCount,
    counters_before: Mapping[str, Sequence[int]],
    counters_by_nic: Mapping[str, Sequence[int]],
) -> LinkCount:
    nic = link.link.partition(" -> ")[0]
    counted_bytes = (
        compute_payload(counters_before[nic], counters_by_nic[nic])
        if nic in counters_before and nic in counters_by_nic
        else None
    )
    return LinkCount(
        link.link, link.planned_bytes, link.simulated_bytes, counted_bytes, link.retransmitted_bytes
    )


def read_counters(fleet: Fleet, lab: Lab) -> dict[str, tuple[int, int]]:
    """Return the (bytes, packets) that each NIC (`host/nic`) has sent, or {} if a host of the fleet is unreachable."""
    fleet_hosts = {host.name for host in fleet.hosts}
    hosts = [host for host in lab.hosts if host.name in fleet_hosts]
    path_format = "/sys/class/net/{}/statistics/tx_{}"
    commands = {
        host.name: shlex.join(
            [
                "cat",
                *(path_format.format(nic.name, unit) for nic in host.nics for unit in ("bytes", "packets")),
            ]
        )
        for host in hosts
    }
    try:
        results = fleet.run(commands)
    except HostError:
        return {}
    counters_by_nic = {}
    for host in hosts:
        values = [int(count) for count in results[host.name].stdout.split()]
        if len(values) == 2 * len(host.nics):
            for index, nic in enumerate(host.nics):
                counters_by_nic[f"{host.name}/{nic.name}"] = (values[2 * index], values[2 * index + 1])
    return counters_by_nic


def find_largest_deviation(links: Iterable[LinkCount]) -> float | None:
    """Return the largest relative deviation of a link from the plan, or None if no link was counted."""
    deviations = [abs(link.relative_deviation) for link in links if link.relative_deviation is not None]
    return max(deviations, default=None)
