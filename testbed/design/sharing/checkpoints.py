"""Simulated checkpoints of a job to storage hosts: the iterations during a write, and the mean over all iterations.

A blocking write begins when an iteration has ended, and the next iteration waits for it. An overlapped write begins
with an iteration, and shares the links with this and later iterations. Only the first of these iterations are
simulated. If the write goes on after them, its progress per iteration is assumed to stay the same. The next checkpoint
waits for the end of the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import numpy as np

from sim.models.network.execution import Execution
from sim.models.network.taskgraph import Kind, TaskGraph, TaskGraphBuilder
from testbed.design.evaluation.job import Job
from testbed.design.sharing.joined_jobs import PlacedJob, chain_iterations
from testbed.design.workloads.checkpoint import Mode, Storage, add_checkpoint, add_storage, divide_evenly
from testbed.design.workloads.iteration.totals import Traffic, sum_graph_traffic
from testbed.errors import PlanFileError, WorkloadError

MAX_WINDOW = 8
"""Maximum number of simulated iterations during a write."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint to `storage` every `iteration_interval` iterations.

    If `size_bytes` is 0, the job determines its size.
    """

    iteration_interval: int
    storage: Storage
    mode: Mode = "blocking"
    size_bytes: int = 0

    def divide_bytes(self, job: Job) -> tuple[int, ...]:
        """Return the bytes that each node writes. Raises `WorkloadError` if they are not known."""
        if self.size_bytes:
            return divide_evenly(self.size_bytes, job.graph.node_count)
        if not job.checkpoint:
            raise WorkloadError(
                f"the bytes of a checkpoint of {job.name} are not known: give --checkpoint-bytes"
            )
        return job.checkpoint


class CheckpointJobs(NamedTuple):
    """A job in a cluster with storage hosts: an iteration without a checkpoint, and an iteration with one."""

    baseline_job: Job
    checkpoint_job: Job


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointRun:
    """Times of iterations around a write, in seconds.

    - `baseline_execution`: execution of an iteration without a write.
    - `window_execution`: execution of the write together with `iteration_count` iterations.
    - `longest_s`: the longest iteration, including a blocking write, or the wait for an overlapped write to end before
      the next checkpoint.
    - `write_s`: duration of the write.
    - `mean_s`: mean over all iterations until the next checkpoint.
    - `is_extrapolated`: whether the write goes on after the window.
    """

    baseline_execution: Execution
    window_execution: Execution
    iteration_count: int
    longest_s: float
    write_s: float
    mean_s: float
    is_extrapolated: bool = False


def add_checkpoint_graphs(job: Job, checkpoint: Checkpoint) -> CheckpointJobs:
    """Return the job with and without the write of a checkpoint, both for the same fabric.

    Circuits are placed for the mean traffic of an iteration, so the bytes of a write are divided by
    `iteration_interval`. Raises `PlanFileError` for the job of a plan, whose circuits reach no storage host, and
    `WorkloadError` if the size of a checkpoint is not known.
    """
    if job.plan is not None:
        raise PlanFileError("circuits of the plan reach no storage host: leave out --checkpoint-every")
    baseline_graph = add_storage(job.graph, checkpoint.storage)
    checkpoint_graph = add_checkpoint(
        job.graph, checkpoint.divide_bytes(job), checkpoint.storage, checkpoint.mode
    )
    plain_traffic, all_traffic = sum_graph_traffic(baseline_graph), sum_graph_traffic(checkpoint_graph)
    mean_pair_bytes = (
        plain_traffic.pairs + (all_traffic.pairs - plain_traffic.pairs) / checkpoint.iteration_interval
    )
    return CheckpointJobs(
        replace(
            job,
            graph=baseline_graph,
            traffic=Traffic(baseline_graph.node_count, plain_traffic.allreduce, mean_pair_bytes),
        ),
        replace(job, graph=checkpoint_graph, traffic=all_traffic),
    )


def run_checkpoint(
    job: Job, checkpoint: Checkpoint, simulate: Callable[[TaskGraph], Execution]
) -> CheckpointRun:
    """Simulate a job with and without the write of a checkpoint.

    `job` has no storage hosts; the fabric of `simulate` has them. Raises `WorkloadError` if the size of a checkpoint is
    not known, and the errors of `simulate`.
    """
    baseline = simulate(add_storage(job.graph, checkpoint.storage))
    bytes_by_node, iteration_interval, baseline_s = (
        checkpoint.divide_bytes(job),
        checkpoint.iteration_interval,
        baseline.iteration_s,
    )
    if checkpoint.mode == "blocking":
        window = simulate(add_checkpoint(job.graph, bytes_by_node, checkpoint.storage, "blocking"))
        added_s = window.iteration_s - baseline_s
        return CheckpointRun(
            baseline,
            window,
            1,
            window.iteration_s,
            added_s,
            baseline_s + added_s / iteration_interval,
        )

    def simulate_overlapped(graph: TaskGraph) -> Execution:
        return simulate(add_checkpoint(graph, bytes_by_node, checkpoint.storage, "overlapped"))

    server_count = job.graph.node_count
    alone_s = simulate_overlapped(TaskGraphBuilder(server_count).build()).iteration_s
    # The write takes longer than alone, but so do the iterations: the ratio is a good estimate.
    iteration_count = min(
        iteration_interval,
        MAX_WINDOW,
        ceil(alone_s / baseline_s) + 1 if baseline_s else MAX_WINDOW,
    )
    server_ids = np.arange(max(server_count, int(job.graph.device.max(initial=0)) + 1))
    chained_iterations = chain_iterations(server_count, [PlacedJob(job.graph, server_ids)], iteration_count)
    window = simulate_overlapped(chained_iterations.graph)
    is_transfer = window.graph.kind == Kind.TRANSFER
    write_s = float(window.end_s[is_transfer & (window.graph.target >= server_count)].max())
    end_s = float(window.end_s[chained_iterations.end_tasks[0, -1]])
    iteration_s = chained_iterations.compute_iteration_s(window)
    longest_s, last_s = float(iteration_s.max()), float(iteration_s[..., -1].max())
    if write_s <= end_s:
        mean_s = (end_s + (iteration_interval - iteration_count) * baseline_s) / iteration_interval
        return CheckpointRun(baseline, window, iteration_count, longest_s, write_s, mean_s)
    rest_s = write_s - end_s
    if iteration_count == iteration_interval:
        return CheckpointRun(
            baseline,
            window,
            iteration_count,
            max(longest_s, last_s + rest_s),
            write_s,
            write_s / iteration_interval,
        )
    # Progress of the write in one iteration, in seconds of a write without iterations.
    progress_s, slow_s = max((alone_s - rest_s) / iteration_count, 0.0), end_s / iteration_count
    needed_iterations = (
        alone_s / progress_s if progress_s * iteration_interval > alone_s else iteration_interval
    )
    wait_s = max(alone_s - needed_iterations * progress_s, 0.0)
    write_s, longest_s = needed_iterations * slow_s + wait_s, max(longest_s, slow_s + wait_s)
    mean_s = (write_s + (iteration_interval - needed_iterations) * baseline_s) / iteration_interval
    return CheckpointRun(baseline, window, iteration_count, longest_s, write_s, mean_s, is_extrapolated=True)
