"""One iteration of a workload under a strategy as a task graph for the network simulator.

For each microbatch every server computes its operators forward in their order; outputs travel as soon as they are
there. Where nothing follows, the backward pass begins once all microbatches have passed (GPipe: Huang et al., 2019)
and goes through the operators in reverse. An operator's gradients are summed among its replicas as soon as all of
them are done with it, while the rest of the backward pass goes on. Devices take what is ready, first come, first
served. The update of the parameters itself takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.workloads.layout import Layout, Strategy
from testbed.design.workloads.model import Workload
from testbed.design.workloads.moves import (
    Moves,
    backward_moves,
    cut,
    dispatch_moves,
    forward_moves,
    reversed_moves,
    row_samples,
)
from testbed.design.workloads.roofline import Cluster, operator_seconds
from testbed.design.workloads.steps import (
    Bucket,
    fused_steps,
    gradient_buckets,
    microbatch_samples,
    single_steps,
    trainable,
)
from testbed.design.workloads.strategies import check_strategy
from testbed.design.workloads.tally import traffic

__all__ = ["BUCKET_BYTES", "iteration", "traffic"]

BUCKET_BYTES = 64 * 2**20
"""Gradients summed together at most: Horovod's fusion buffer (64 MB). PyTorch's 25 MiB would make more rounds of
messages than a search has time to simulate; with larger ones the sum overlaps less with the backward pass."""

Tasks = dict[int, list[int]]
"""Task numbers by server."""


def iteration(
    workload: Workload,
    strategy: Strategy,
    cluster: Cluster,
    *,
    bucket_bytes: float | None = BUCKET_BYTES,
    fuse: bool = True,
) -> TaskGraph:
    """The task graph of one iteration; devices are servers.

    `bucket_bytes` bounds what one AllReduce of gradients sums, None gives every operator its own; `fuse` runs
    neighbouring operators as one task where nothing happens between them, see `steps.fused_steps`.
    Raises `StrategyError`; whether it fits into memory is for `roofline.check_memory`.
    """
    check_strategy(workload, strategy, cluster.nodes)
    return _Iteration(workload, strategy, cluster, bucket_bytes, fuse=fuse).graph()


Edge = tuple[int, int]
Between = Callable[[Layout, Layout, int, int, bool], Moves]


class _Iteration:
    """A task graph on its way: what is done where, by step and microbatch."""

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        cluster: Cluster,
        bucket_bytes: float | None,
        *,
        fuse: bool,
    ) -> None:
        self._workload, self._strategy, self._cluster = workload, strategy, cluster
        self._builder = TaskGraphBuilder(cluster.nodes)
        self._samples = microbatch_samples(workload.batch, strategy.microbatches)
        self._buckets = gradient_buckets(workload, strategy, bucket_bytes)
        self._steps = fused_steps(workload, strategy, self._buckets) if fuse else single_steps(workload)
        self._step_of = {place: step for step, places in enumerate(self._steps) for place in places}
        self._trainable = trainable(workload)
        self._known_seconds: dict[tuple[int, int, int], float] = {}
        self._forward: dict[tuple[int, int], Tasks] = {}
        self._backward: dict[tuple[int, int], Tasks] = {}
        self._arrived: dict[tuple[tuple[Edge, ...], int], Tasks] = {}
        self._edges_into: dict[int, list[Edge]] = {place: [] for place in range(len(workload.operators))}
        for edge in workload.edges:
            self._edges_into[edge[1]].append(edge)

    def graph(self) -> TaskGraph:
        for microbatch in range(len(self._samples)):
            for step in range(len(self._steps)):
                self._forward[step, microbatch] = self._pass_forward(step, microbatch)
        for microbatch in range(len(self._samples)):
            for step in reversed(range(len(self._steps))):
                if any(self._trainable[place] for place in self._steps[step]):
                    self._backward[step, microbatch] = self._pass_backward(step, microbatch)
        if self._workload.training:
            for bucket in self._buckets:
                self._sum_gradients(bucket)
        return self._builder.build()

    def _pass_forward(self, step: int, microbatch: int) -> Tasks:
        """Collect inputs, send samples to their experts, compute, bring them back, sum among shards."""
        places, samples = self._steps[step], self._samples[microbatch]
        ready: Tasks = {}
        for bundle in self._bundles(places[0]):
            done: Tasks = {}
            _join(done, (self._forward[self._step_of[producer], microbatch] for producer, _ in bundle))
            moves = self._moves(forward_moves, bundle, samples)
            senders = set(moves.source[moves.source != moves.target].tolist())
            done |= self._settled({server: done[server] for server in senders})
            self._send(moves, done, ready)
        last = self._workload.operators[places[-1]]
        return self._compute(step, samples, ready, direction=0, reduce_bytes=last.forward_reduce_bytes)

    def _pass_backward(self, step: int, microbatch: int) -> Tasks:
        """Collect gradients of the outputs, then as forward."""
        places, samples = self._steps[step], self._samples[microbatch]
        ready = {server: list(tasks) for server, tasks in self._forward[step, microbatch].items()}
        following = [edge for edge in self._workload.edges if edge[0] == places[-1]]
        for edge in following:
            _join(ready, [self._gradients(edge, microbatch)])
        if not following:
            _join(ready, (self._forward[step, other] for other in range(len(self._samples))))
        first = self._workload.operators[places[0]]
        return self._compute(step, samples, ready, direction=1, reduce_bytes=first.backward_reduce_bytes)

    def _gradients(self, edge: Edge, microbatch: int) -> Tasks:
        """What has to happen before the producer of an edge has the gradients of its output."""
        bundle = next(bundle for bundle in self._bundles(edge[1]) if edge in bundle)
        bundle = tuple(edge for edge in bundle if self._trainable[edge[0]])
        if (bundle, microbatch) not in self._arrived:
            ready = self._arrived[bundle, microbatch] = {}
            moves = self._moves(backward_moves, bundle, self._samples[microbatch])
            self._send(moves, self._backward[self._step_of[edge[1]], microbatch], ready)
        return self._arrived[bundle, microbatch]

    def _bundles(self, consumer: int) -> list[tuple[Edge, ...]]:
        """The edges into an operator; those from operators of one layout together.

        What one server sends another for them is one message, as the tables of a server have theirs looked up and
        sent together; and the graph stays small.
        """
        bundles: dict[tuple[Layout, bool], tuple[Edge, ...]] = {}
        for edge in self._edges_into[consumer]:
            key = self._strategy.layouts[edge[0]], self._workload.sliced(edge)
            bundles[key] = (*bundles.get(key, ()), edge)
        return list(bundles.values())

    def _moves(self, between: Between, bundle: Sequence[Edge], samples: int) -> Moves:
        """What passes over some edges between the same layouts, pairs of servers once each."""
        producer, consumer = (self._strategy.layouts[place] for place in bundle[0])
        sliced, nodes = self._workload.sliced(bundle[0]), self._cluster.nodes
        sizes = [self._workload.operators[edge[0]].output_bytes for edge in bundle]
        parts = [between(producer, consumer, samples, size, sliced) for size in sizes]
        if len(parts) == 1:
            return parts[0]
        key, row = np.unique(
            np.concatenate([part.source * nodes + part.target for part in parts]), return_inverse=True
        )
        total = np.bincount(row, np.concatenate([part.size_bytes for part in parts])).astype(np.int64)
        return Moves(key // nodes, key % nodes, total)

    def _send(self, moves: Moves, done: Tasks, ready: Tasks) -> None:
        """Add to `ready` what has to happen before each target can go on."""
        for source, target, size_bytes in zip(*(column.tolist() for column in moves), strict=True):
            after = done[source]
            arrived = (
                after
                if source == target
                else [self._builder.transfer(source, target, size_bytes, after=after)]
            )
            ready.setdefault(target, []).extend(arrived)

    def _compute(self, step: int, samples: int, ready: Tasks, *, direction: int, reduce_bytes: int) -> Tasks:
        layout = self._strategy.layouts[self._steps[step][0]]
        dispatch = self._dispatch(step, samples) if layout.way == "expert" else None
        if dispatch is not None:
            ready = self._exchange(dispatch, ready)
        done = {
            server: [
                self._builder.compute(server, self._seconds(step, row, direction), after=ready.get(server))
            ]
            for server, row in zip(layout.servers, row_samples(layout, samples).tolist(), strict=True)
        }
        if dispatch is not None:
            done = self._exchange(reversed_moves(dispatch), done)
        return self._sum_activations(layout, samples, done, reduce_bytes)

    def _seconds(self, step: int, samples: int, direction: int) -> float:
        """Of one shard of a step; few numbers of samples are asked for again and again."""
        known = self._known_seconds.get((step, samples, direction))
        if known is None:
            known = self._known_seconds[step, samples, direction] = sum(
                operator_seconds(
                    self._workload.operators[place],
                    samples,
                    self._strategy.layouts[place].shards,
                    self._cluster,
                )[direction]
                for place in self._steps[step]
                if direction == 0 or self._trainable[place]
            )
        return known

    def _dispatch(self, step: int, samples: int) -> Moves:
        place = self._steps[step][0]
        operator = self._workload.operators[place]
        return dispatch_moves(self._strategy.layouts[place], samples, operator.output_bytes * operator.routed)

    def _exchange(self, moves: Moves, done: Tasks) -> Tasks:
        """All-to-all; each server goes on when all of its parts are there."""
        done = self._settled({server: done.get(server, []) for server in set(moves.source.tolist())})
        ready: Tasks = {}
        self._send(moves, done, ready)
        return self._settled(ready)

    def _settled(self, tasks: Tasks) -> Tasks:
        """One task to wait for instead of many: each of them would be an edge to each message that follows."""
        return {
            server: [self._builder.barrier(after=waits)] if len(waits) > 1 else waits
            for server, waits in tasks.items()
        }

    def _sum_activations(self, layout: Layout, samples: int, done: Tasks, sample_bytes: int) -> Tasks:
        """AllReduce among the shards of each replica of a tensor-parallel step."""
        if layout.way != "tensor" or layout.shards == 1 or not sample_bytes:
            return done
        summed = dict(done)
        for row, count in zip(layout.grid, np.diff(cut(samples, layout.replicas)).tolist(), strict=True):
            if count:
                task = self._allreduce(row, count * sample_bytes, [done[server][0] for server in row])
                summed.update({server: [task] for server in row})
        return summed

    def _sum_gradients(self, bucket: Bucket) -> None:
        for size_bytes, members in zip(bucket.size_bytes, bucket.groups, strict=True):
            after = [
                task
                for step in sorted({self._step_of[place] for place in bucket.operators})
                for microbatch in range(len(self._samples))
                for server in members
                for task in self._backward[step, microbatch][server]
            ]
            if size_bytes:
                self._allreduce(members, size_bytes, after)

    def _allreduce(self, members: tuple[int, ...], size_bytes: int, after: list[int]) -> int:
        local_s = self._cluster.local_reduce_seconds(size_bytes)
        return self._builder.allreduce(members, size_bytes, time_s=local_s, after=after)


def _join(ready: Tasks, passes: Iterable[Tasks]) -> None:
    """Wait for those passes, too, each server for its own."""
    for done in passes:
        for server, tasks in done.items():
            ready[server] = sorted({*ready.get(server, []), *tasks})
