"""Figure 1: iteration times of each set of jobs under each policy, by models and on hosts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Series,
    Table,
)
from testbed.design.reproductions.sharing.setup import (
    FIRST_JOB_WEIGHT,
    INTERCEPT,
    JOB_SETS,
    PERIOD_MS,
    POLICIES,
    SLOPE,
    STAGGER_MS,
    JobSet,
    JobStatistics,
    Policy,
    Scale,
)
from testbed.design.sharing.cassini.prediction import predict_policy
from testbed.design.sharing.cassini.schedule import Scheduler
from testbed.design.sharing.jobs import LabLinks, place_jobs
from testbed.design.sharing.packet_level import PacketLink, SendingJob, run_packets
from testbed.node.transport import DATA_FORMAT, PAYLOAD_BYTES, make_sender

HOSTS = ("a", "b")
RATE_GBPS = 0.1
_COLUMNS = ("jobs", "policy", "source", "job", "mean_ms", "p99_ms", "lost")
_HEADLINES = {
    "shifts": ("Cassini over fair", 1.6, "NSDI 2024"),
    "mltcp": ("MLTCP over fair", 2.0, "HotNets 2024"),
}


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows: list[tuple[Cell, ...]] = []
    cases = [(job_set, policy) for job_set in JOB_SETS for policy in POLICIES]
    for number, (job_set, policy) in enumerate(cases, 1):
        statistics_by_source: dict[str, Sequence[JobStatistics]] = {
            "model": make_model_jobs(job_set, policy, scale.iterations)
        }
        if policy == "mltcp":
            statistics_by_source["packets"] = simulate_packets(job_set, scale.packet_iterations)
        if scale.measure:
            statistics_by_source["hosts"] = scale.measure(job_set, policy)
        for source, statistics in statistics_by_source.items():
            for job in statistics:
                lost_packets = -1 if job.retransmitted is None else job.retransmitted
                rows.append((job_set.name, policy, source, job.job, job.mean_ms, job.p99_ms, lost_packets))
        progress(number, len(cases), f"{job_set.name}, {policy}")
    return Table.from_rows(_COLUMNS, rows)


def make_model_jobs(job_set: JobSet, policy: Policy, iterations: int) -> list[JobStatistics]:
    """Return the iteration times of each job under a policy, by the contention model."""
    jobs, links = job_set.make_jobs(RATE_GBPS, HOSTS), LabLinks(HOSTS, RATE_GBPS)
    placement = {job.name: HOSTS for job in jobs}
    step_ms = STAGGER_MS if policy == "mltcp" else 0.0
    starts_ms, slots_ms = [job_index * step_ms for job_index in range(len(jobs))], []
    if policy == "shifts":
        schedule = Scheduler(jobs, links).schedule([placement])
        starts_ms = [schedule.starts_ms[job.name] for job in jobs]
        slots_ms = [prediction.slot_ms for prediction in schedule.predicted]
    weights = (FIRST_JOB_WEIGHT, *(1.0,) * (len(jobs) - 1)) if policy == "weights" else ()
    mltcp = (SLOPE, INTERCEPT) if policy == "mltcp" else None
    periodic_jobs = place_jobs(jobs, links.find_jobs_by_link(placement, jobs))
    predictions = predict_policy(periodic_jobs, [RATE_GBPS], iterations, weights, mltcp, starts_ms, slots_ms)
    return [
        JobStatistics(prediction.job, prediction.mean_ms, prediction.p99_ms, None)
        for prediction in predictions
    ]


def simulate_packets(job_set: JobSet, iterations: int) -> list[JobStatistics]:
    """Return the iteration times of each job over a simulated link. Jobs use the hosts' transport with MLTCP."""
    link = PacketLink()
    packet_s = link.compute_time_s(bytes(DATA_FORMAT.size + PAYLOAD_BYTES))
    jobs = [
        SendingJob(
            PERIOD_MS * 1e-3 * (1 - fraction),
            int(PERIOD_MS * 1e-3 * fraction / packet_s),
            make_sender("reno", SLOPE, INTERCEPT),
            job_index * STAGGER_MS * 1e-3,
        )
        for job_index, fraction in enumerate(job_set.fractions)
    ]
    packet_run = run_packets(jobs, iterations, link)
    rows = zip(packet_run.iteration_s * 1e3, packet_run.retransmit_counts, strict=True)
    return [
        JobStatistics(f"job {number}", float(times.mean()), float(np.percentile(times, 99)), lost_packets)
        for number, (times, lost_packets) in enumerate(rows, 1)
    ]


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = [
        line for job_set in JOB_SETS for policy in POLICIES for line in _compare_set(table, job_set, policy)
    ]
    return (*_compare_headlines(table), *lines)


def _compare_set(table: Table, job_set: JobSet, policy: Policy) -> list[Comparison]:
    """Return two lines per source: the mean of all jobs, and the largest 99th percentile of any job.

    For sources other than the model, a note compares their mean with the mean of the model.
    """
    lines = []
    model_mean_ms = _compute_mean_ms(table, job_set, policy, "model")
    for source in [
        source
        for source in ("model", "packets", "hosts")
        if _select_rows(table, job_set, policy, source).rows
    ]:
        mean_ms, rows = (
            _compute_mean_ms(table, job_set, policy, source),
            _select_rows(table, job_set, policy, source),
        )
        note = "compatible" if job_set.is_compatible else "not compatible"
        if source != "model":
            lost_packets = sum(rows.get_numbers("lost"))
            difference_percent = 100 * (model_mean_ms / mean_ms - 1)
            note += f"; model {model_mean_ms:.1f} ms, {difference_percent:+.1f} %; {lost_packets:.0f} packets lost"
        name = f"{job_set.name}, {policy}, {source}"
        lines.append(Comparison(f"{name}: mean iteration", UNPUBLISHED, mean_ms, note, " ms"))
        max_p99_ms = max(rows.get_numbers("p99_ms"))
        lines.append(Comparison(f"{name}: p99 iteration", UNPUBLISHED, max_p99_ms, note, " ms"))
    return lines


def _compare_headlines(table: Table) -> list[Comparison]:
    """Return one line per headline: the largest speed-up over fair sharing, beside the claim of the paper."""
    lines = []
    for policy, (name, value, paper) in _HEADLINES.items():
        ratios = {
            job_set.name: _compute_mean_ms(table, job_set, "fair", "model")
            / _compute_mean_ms(table, job_set, policy, "model")
            for job_set in JOB_SETS
        }
        best_set = max(ratios, key=ratios.__getitem__)
        published = PublishedValue(f"up to {value:g} x", "A", value)
        note = f"abstract of {paper}, with other jobs; this value is for {best_set}"
        lines.append(Comparison(f"{name}: mean iteration", published, ratios[best_set], note, " x"))
    return lines


def _select_rows(table: Table, job_set: JobSet, policy: str, source: str) -> Table:
    return table.select_rows(jobs=job_set.name, policy=policy, source=source)


def _compute_mean_ms(table: Table, job_set: JobSet, policy: str, source: str) -> float:
    return float(np.mean(_select_rows(table, job_set, policy, source).get_numbers("mean_ms")))


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(f"{job_set.name}", "policy", "mean iteration time (ms)", _make_bars(table, job_set), "bars")
        for job_set in JOB_SETS
    )
    return Plot("SIMULATED: jobs on one link under four policies", panels, max_columns=2)


def _make_bars(table: Table, job_set: JobSet) -> tuple[Series, ...]:
    sources: Sequence[str] = [
        source for source in ("model", "hosts") if _select_rows(table, job_set, "fair", source).rows
    ]
    return tuple(
        Series(
            source, POLICIES, tuple(_compute_mean_ms(table, job_set, policy, source) for policy in POLICIES)
        )
        for source in sources
    )


FIGURE = Figure(1, "Jobs on one link under four policies", _make_table, _compare_with_paper, _make_plot)
