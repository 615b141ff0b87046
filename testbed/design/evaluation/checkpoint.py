"""Checkpoints of a job to storage hosts: the job with and without the write, on the same cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from testbed.design.evaluation.job import Job
from testbed.design.workloads.checkpoint import Mode, Storage, add_checkpoint, add_storage, divide_evenly
from testbed.design.workloads.iteration.totals import Traffic, traffic_of
from testbed.errors import PlanFileError, WorkloadError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in every `every`-th iteration, to `storage`; `size_bytes` of it, or 0: those of the job."""

    every: int
    storage: Storage
    mode: Mode = "blocking"
    size_bytes: int = 0

    def mean_s(self, plain_s: float, writing_s: float) -> float:
        """Return the mean time of an iteration, from that of one without and one with a write.

        >>> Checkpoint(10, Storage(1)).mean_s(1.0, 1.5)
        1.05
        """
        return plain_s + (writing_s - plain_s) / self.every


class CheckpointJobs(NamedTuple):
    """A job in a cluster with storage hosts: an iteration without a checkpoint, and one with."""

    plain: Job
    writing: Job


def with_checkpoint(job: Job, checkpoint: Checkpoint) -> CheckpointJobs:
    """Return the job with and without the write of a checkpoint, both for the same fabric.

    Circuits are placed for the mean traffic of an iteration: a write counts one part in `every`. Raises
    `PlanFileError` for the job of a plan, whose circuits reach no storage host, and `WorkloadError` if the bytes are
    not known.
    """
    if job.plan is not None:
        raise PlanFileError("circuits of the plan reach no storage host: leave out --checkpoint-every")
    nodes, storage = job.graph.nodes, checkpoint.storage
    shares = divide_evenly(checkpoint.size_bytes, nodes) if checkpoint.size_bytes else job.checkpoint
    if not shares:
        raise WorkloadError(f"the bytes of a checkpoint of {job.name} are not known: give --checkpoint-bytes")
    plain = add_storage(job.graph, storage)
    writing = add_checkpoint(job.graph, shares, storage, checkpoint.mode)
    own, all_traffic = traffic_of(plain), traffic_of(writing)
    mean = Traffic(plain.nodes, own.allreduce, own.pairs + (all_traffic.pairs - own.pairs) / checkpoint.every)
    return CheckpointJobs(
        replace(job, graph=plain, traffic=mean), replace(job, graph=writing, traffic=all_traffic)
    )
