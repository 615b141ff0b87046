"""One iteration of a workload under a strategy as a task graph for the network simulator.

For each microbatch every server computes its operators forward in their order; outputs are sent as soon as they are
ready. The last operators begin the backward pass once all microbatches have passed (GPipe: Huang et al., 2019), and it
runs through the operators in reverse. An operator's gradients are summed among its replicas as soon as all of them
have computed it, during the rest of the backward pass. Devices run ready tasks in order of arrival. With several
microbatches that would run the first operator of a stage for all of them before the second for any, and the next stage
would receive everything at the end; so a stage begins a microbatch when it has ended the one before. An operator
receives one message per pair of servers from all operators of one sharding: the rows of a server's tables are sent
together. The update of the parameters takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.models.network.taskgraph import Exchange, TaskGraph, TaskGraphBuilder
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Edge, Workload
from testbed.design.workloads.profile import check_profile
from testbed.design.workloads.roofline import Cluster, operator_seconds
from testbed.design.workloads.sharding import (
    Resharding,
    Sharding,
    Strategy,
    backward_resharding,
    cut,
    dispatch_resharding,
    forward_resharding,
    fuse_steps,
    gradient_buckets,
    microbatch_samples,
    reverse_resharding,
    row_samples,
    shard_shares,
    single_steps,
    trainable,
)
from testbed.design.workloads.strategies import check_strategy
from testbed.errors import StrategyError

__all__ = ["BUCKET_BYTES", "iteration", "traffic"]

Integers = NDArray[np.int64]
Steps = tuple[int, ...]
Tasks = dict[int, list[int]]
"""Task numbers by server."""
Bundle = tuple[Edge, ...]
Between = Callable[[Sharding, Sharding, int, int, bool], Resharding]
BUCKET_BYTES = 64 * 2**20
"""Maximum bytes of gradients in one AllReduce: Horovod's fusion buffer (64 MB). PyTorch's 25 MiB would make more
messages than a search has time to simulate; larger buckets overlap less with the backward pass."""
MESSAGES_ONE_BY_ONE = 4
"""Messages that a server sends in a resharding, on average, up to which they are no exchange."""


def iteration(
    workload: Workload,
    strategy: Strategy,
    cluster: Cluster,
    *,
    bucket_bytes: float | None = BUCKET_BYTES,
    fuse: bool = True,
    whole_exchanges: bool = False,
) -> TaskGraph:
    """Return the task graph of one iteration; devices are servers.

    `bucket_bytes` limits the gradients of one AllReduce, None gives every operator its own; `fuse` runs neighbouring
    operators as one task if nothing happens between them, see `fuse_steps`. With `whole_exchanges` the messages of an
    all-to-all are one task for each group of servers that it joins: they begin when all servers of the group are
    ready, and these go on when all have arrived. That saves a task for each pair of servers.
    Raises `StrategyError` for a strategy that does not fit the workload; `roofline.check_memory` checks memory. Raises
    `WorkloadError` for a profile of another workload.
    """
    if bucket_bytes is not None and not bucket_bytes >= 0:
        raise StrategyError(f"{workload.name}: buckets of {bucket_bytes} bytes: give 0 or more, or None")
    check_profile(workload, cluster.profile)
    check_strategy(workload, strategy, cluster.nodes)
    return _Iteration(
        workload, strategy, cluster, bucket_bytes, fuse=fuse, whole_exchanges=whole_exchanges
    ).graph()


class _Iteration:
    """Builder of the task graph: the tasks so far, by step, microbatch and server."""

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        cluster: Cluster,
        bucket_bytes: float | None,
        *,
        fuse: bool,
        whole_exchanges: bool,
    ) -> None:
        self._workload, self._strategy, self._cluster = workload, strategy, cluster
        self._builder = TaskGraphBuilder(cluster.nodes)
        self._samples = microbatch_samples(workload.batch, strategy.microbatches)
        self._buckets = gradient_buckets(workload, strategy, bucket_bytes)
        self._steps = fuse_steps(workload, strategy, self._buckets) if fuse else single_steps(workload)
        self._step_of = {place: step for step, places in enumerate(self._steps) for place in places}
        self._trainable = trainable(workload)
        self._known_seconds: dict[tuple[int, int, int], float] = {}
        self._forward: dict[tuple[int, int], Tasks] = {}
        self._backward: dict[tuple[int, int], Tasks] = {}
        self._computed: dict[tuple[int, int, int], dict[int, int]] = {}
        self._sender = _Sender(self._builder, whole_exchanges=whole_exchanges)
        self._gates: dict[int, Tasks] = {}
        self._arrived: dict[tuple[Bundle, int], Tasks] = {}
        self._bundles = edge_bundles(workload, strategy)

    def graph(self) -> TaskGraph:
        stages = self._stages([True] * len(self._steps))
        for microbatch in range(len(self._samples)):
            self._close_gates(stages, microbatch, direction=0)
            for step in range(len(self._steps)):
                self._forward[step, microbatch] = self._pass_forward(step, microbatch)
        learns = [any(self._trainable[place] for place in places) for places in self._steps]
        stages = [Stage(first=stage.last, last=stage.first) for stage in self._stages(learns)]
        for microbatch in range(len(self._samples)):
            self._close_gates(stages, microbatch, direction=1)
            for step in reversed(range(len(self._steps))):
                if learns[step]:
                    self._backward[step, microbatch] = self._pass_backward(step, microbatch)
        if self._workload.training:
            for bucket in self._buckets:
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
        return self._builder.build()

    def _stages(self, taking_part: Sequence[bool]) -> Sequence[Stage]:
        if len(self._samples) == 1:
            return ()
        return pipeline_stages(self._workload, self._strategy, self._steps, taking_part)

    def _close_gates(self, stages: Sequence[Stage], microbatch: int, *, direction: int) -> None:
        """Make the first steps of each stage wait until its servers have ended the microbatch before."""
        self._gates = {}
        for stage in stages if microbatch else ():
            waits: Tasks = {}
            for step in stage.last:
                for server, task in self._computed[step, microbatch - 1, direction].items():
                    waits.setdefault(server, []).append(task)
            self._gates |= dict.fromkeys(stage.first, settle(self._builder, waits))

    def _pass_forward(self, step: int, microbatch: int) -> Tasks:
        """Add the forward pass of a step: inputs, dispatch to experts and back, computing, and the sum among shards."""
        places, samples = self._steps[step], self._samples[microbatch]
        ready: Tasks = {}
        for bundle in self._bundles[places[0]]:
            sent: Tasks = {}
            join(sent, (self._forward[self._step_of[producer], microbatch] for producer, _ in bundle))
            resharding = self._resharding(forward_resharding, bundle, samples)
            senders = set(resharding.source[resharding.source != resharding.target].tolist())
            sent |= settle(self._builder, {server: sent[server] for server in senders})
            self._sender.send(resharding, sent, ready)
        last = self._workload.operators[places[-1]]
        return self._compute(step, microbatch, ready, direction=0, reduce_bytes=last.forward_reduce_bytes)

    def _pass_backward(self, step: int, microbatch: int) -> Tasks:
        """Add the backward pass of a step: the gradients of its outputs, and then as in the forward pass."""
        places = self._steps[step]
        ready = {server: list(tasks) for server, tasks in self._forward[step, microbatch].items()}
        following = [edge for edge in self._workload.edges if edge[0] == places[-1]]
        for edge in following:
            join(ready, [self._gradients(edge, microbatch)])
        if not following:
            join(ready, (self._forward[step, other] for other in range(len(self._samples))))
        first = self._workload.operators[places[0]]
        return self._compute(step, microbatch, ready, direction=1, reduce_bytes=first.backward_reduce_bytes)

    def _gradients(self, edge: Edge, microbatch: int) -> Tasks:
        """Return the tasks after which the producer of an edge has the gradients of its output."""
        bundle = next(bundle for bundle in self._bundles[edge[1]] if edge in bundle)
        bundle = tuple(edge for edge in bundle if self._trainable[edge[0]])
        if (bundle, microbatch) not in self._arrived:
            ready = self._arrived[bundle, microbatch] = {}
            resharding = self._resharding(backward_resharding, bundle, self._samples[microbatch])
            self._sender.send(resharding, self._backward[self._step_of[edge[1]], microbatch], ready)
        return self._arrived[bundle, microbatch]

    def _resharding(self, between: Between, bundle: Bundle, samples: int) -> Resharding:
        return bundle_resharding(
            between, self._workload, self._strategy, bundle, samples, self._cluster.nodes
        )

    def _compute(
        self, step: int, microbatch: int, ready: Tasks, *, direction: int, reduce_bytes: int
    ) -> Tasks:
        sharding, samples = self._strategy.shardings[self._steps[step][0]], self._samples[microbatch]
        dispatch = self._dispatch(step, samples) if sharding.way == "expert" else None
        if dispatch is not None:
            ready = self._sender.exchange(dispatch, ready)
        join(ready, [self._gates.get(step, {})])
        computed = {
            server: self._builder.compute(
                server, self._seconds(step, row, direction), after=ready.get(server)
            )
            for server, row in zip(sharding.servers, self._work(step, samples), strict=True)
        }
        self._computed[step, microbatch, direction] = computed
        ends = {server: [task] for server, task in computed.items()}
        if dispatch is not None:
            ends = self._sender.exchange(reverse_resharding(dispatch), ends)
        return self._sum_activations(sharding, samples, ends, reduce_bytes)

    def _seconds(self, step: int, samples: int, direction: int) -> float:
        """Return the seconds of one shard of a step, cached: few numbers of samples repeat often."""
        known = self._known_seconds.get((step, samples, direction))
        if known is None:
            known = self._known_seconds[step, samples, direction] = sum(
                operator_seconds(
                    self._workload.operators[place],
                    samples,
                    self._strategy.shardings[place].shards,
                    self._cluster,
                )[direction]
                for place in self._steps[step]
                if direction == 0 or self._trainable[place]
            )
        return known

    def _dispatch(self, step: int, samples: int) -> Resharding:
        place = self._steps[step][0]
        operator = self._workload.operators[place]
        return dispatch_resharding(
            self._strategy.shardings[place],
            samples,
            operator.output_bytes * operator.routed,
            operator.popularity,
        )

    def _work(self, step: int, samples: int) -> list[int]:
        """Return the samples that each server computes; experts of which the gate is fond compute more."""
        place = self._steps[step][0]
        sharding, popularity = self._strategy.shardings[place], self._workload.operators[place].popularity
        rows = row_samples(sharding, samples)
        if popularity and sharding.way == "expert":
            shares = shard_shares(popularity, sharding.shards) * sharding.shards
            rows = np.ceil(rows * np.tile(shares, sharding.replicas)).astype(np.int64)
        work: list[int] = rows.tolist()
        return work

    def _sum_activations(self, sharding: Sharding, samples: int, ends: Tasks, sample_bytes: int) -> Tasks:
        """Return the last tasks after an AllReduce among the shards of each replica of a tensor-parallel step."""
        if sharding.way != "tensor" or sharding.shards == 1 or not sample_bytes:
            return ends
        summed = dict(ends)
        for row, count in zip(sharding.grid, np.diff(cut(samples, sharding.replicas)).tolist(), strict=True):
            if count:
                task = self._allreduce(row, count * sample_bytes, [ends[server][0] for server in row])
                summed.update({server: [task] for server in row})
        return summed

    def _allreduce(self, members: tuple[int, ...], size_bytes: int, after: list[int]) -> int:
        local_s = self._cluster.local_reduce_seconds(size_bytes)
        return self._builder.allreduce(members, size_bytes, time_s=local_s, after=after)


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps of one stage by number: the `first` have no predecessor in it, the `last` no successor."""

    first: Steps
    last: Steps


def pipeline_stages(
    workload: Workload, strategy: Strategy, steps: Sequence[Steps], takes_part: Sequence[bool]
) -> tuple[Stage, ...]:
    """Return the stages of the steps that take part: all of them forward, those with gradients backward.

    Steps on the same servers form a stage, unless the output of one reaches the other by way of other servers:
    then a microbatch visits these servers more than once, and each visit is a stage.
    """
    step_of = {place: step for step, places in enumerate(steps) for place in places}
    edges = sorted({(step_of[producer], step_of[consumer]) for producer, consumer in workload.edges})
    stage_of = _count_visits([frozenset(strategy.shardings[places[0]].servers) for places in steps], edges)
    inside = {
        (a, b) for a, b in edges if stage_of[a] == stage_of[b] and takes_part[a] and takes_part[b] and a != b
    }
    fed, feeding = {b for _, b in inside}, {a for a, _ in inside}
    members: dict[object, list[int]] = {}
    for step, stage in enumerate(stage_of):
        if takes_part[step]:
            members.setdefault(stage, []).append(step)
    return tuple(
        Stage(
            tuple(step for step in among if step not in fed),
            tuple(step for step in among if step not in feeding),
        )
        for among in members.values()
    )


def _count_visits(
    servers: Sequence[frozenset[int]], edges: Sequence[Edge]
) -> list[tuple[frozenset[int], int]]:
    """Return for each step its servers, and how often a path to it leaves these at most. Edges must be sorted."""
    visits = [0] * len(servers)
    for here in set(servers):
        departures = [0] * len(servers)
        for producer, consumer in edges:
            leaves = servers[producer] == here != servers[consumer]
            departures[consumer] = max(departures[consumer], departures[producer] + leaves)
        for step in range(len(servers)):
            if servers[step] == here:
                visits[step] = departures[step]
    return list(zip(servers, visits, strict=True))


class _Sender:
    """Adds the messages of reshardings to a graph, one by one or as exchanges."""

    def __init__(self, builder: TaskGraphBuilder, *, whole_exchanges: bool) -> None:
        self._builder, self._whole = builder, whole_exchanges
        self._exchanges: dict[tuple[bytes, ...], tuple[Exchange, ...]] = {}

    def send(self, resharding: Resharding, ends: Tasks, ready: Tasks) -> None:
        """Add the messages of a resharding, and to `ready` the tasks that each target must wait for."""
        source, target = resharding.source, resharding.target
        moves = source != target
        if not self._whole or np.count_nonzero(moves) <= MESSAGES_ONE_BY_ONE * np.unique(source).size:
            moves[:] = False
            for sender, receiver, size_bytes in zip(*(column.tolist() for column in resharding), strict=True):
                if sender != receiver:
                    arrival = self._builder.transfer(sender, receiver, size_bytes, after=ends[sender])
                    ready.setdefault(receiver, []).append(arrival)
        for exchange in self._exchanges_of(resharding) if moves.any() else ():
            after = {task for sender in set(exchange.source.tolist()) for task in ends[sender]}
            task = self._builder.exchange(exchange, after=sorted(after))
            for receiver in set(exchange.target.tolist()):
                ready.setdefault(receiver, []).append(task)
        for server in source[source == target].tolist():
            ready.setdefault(server, []).extend(ends[server])

    def exchange(self, resharding: Resharding, ends: Tasks) -> Tasks:
        """Return the last tasks of an all-to-all; each server waits until all of its parts have arrived."""
        ends = settle(
            self._builder, {server: ends.get(server, []) for server in set(resharding.source.tolist())}
        )
        ready: Tasks = {}
        self.send(resharding, ends, ready)
        return settle(self._builder, ready)

    def _exchanges_of(self, resharding: Resharding) -> tuple[Exchange, ...]:
        """Return an exchange for each set of servers that messages join, the same objects for equal reshardings."""
        key = tuple(column.tobytes() for column in resharding)
        if key not in self._exchanges:
            moves = resharding.source != resharding.target
            rows = Resharding(*(column[moves] for column in resharding))
            parts = join_pairs(rows.source, rows.target)
            order = np.argsort(parts, kind="stable")
            borders = np.flatnonzero(np.diff(parts[order])) + 1
            columns = [np.split(column[order], borders) for column in rows]
            self._exchanges[key] = tuple(Exchange(*part) for part in zip(*columns, strict=True))
        return self._exchanges[key]


def join_pairs(one: Integers, other: Integers) -> Integers:
    """Return for each pair the lowest server that a chain of pairs joins to it.

    >>> join_pairs(np.array([5, 1, 2, 4]), np.array([2, 3, 9, 1])).tolist()
    [2, 1, 2, 1]
    """
    lowest = np.arange(max(one.max(), other.max()) + 1)
    while True:
        joined = np.minimum(lowest[one], lowest[other])
        before = lowest.copy()
        np.minimum.at(lowest, one, joined)
        np.minimum.at(lowest, other, joined)
        lowest = lowest[lowest]
        if (lowest == before).all():
            return lowest[one]


def settle(builder: TaskGraphBuilder, tasks: Tasks) -> Tasks:
    """Return the tasks with those of each server joined by a barrier, which saves edges from each to each message."""
    return {
        server: [builder.barrier(after=waits)] if len(waits) > 1 else waits for server, waits in tasks.items()
    }


def join(ready: Tasks, passes: Iterable[Tasks]) -> None:
    """Add the tasks of several passes to `ready`, for each server its own."""
    for ends in passes:
        for server, tasks in ends.items():
            ready[server] = sorted({*ready.get(server, []), *tasks})


def edge_bundles(workload: Workload, strategy: Strategy) -> tuple[tuple[Bundle, ...], ...]:
    """Return for each operator the edges into it, grouped by the sharding of their producers."""
    bundles: list[dict[tuple[Sharding, bool], Bundle]] = [{} for _ in workload.operators]
    for edge in workload.edges:
        key = strategy.shardings[edge[0]], workload.is_sliced(edge)
        into = bundles[edge[1]]
        into[key] = (*into.get(key, ()), edge)
    return tuple(tuple(into.values()) for into in bundles)


def bundle_resharding(
    between: Between, workload: Workload, strategy: Strategy, bundle: Bundle, samples: int, nodes: int
) -> Resharding:
    """Return the messages on the edges of a bundle, each pair of servers once; `between` reshards a single edge."""
    producer, consumer = (strategy.shardings[place] for place in bundle[0])
    sliced = workload.is_sliced(bundle[0])
    parts = [between(producer, consumer, samples, workload.edge_bytes(edge), sliced) for edge in bundle]
    if len(parts) == 1:
        return parts[0]
    key, row = np.unique(
        np.concatenate([part.source * nodes + part.target for part in parts]), return_inverse=True
    )
    total = np.bincount(row, np.concatenate([part.size_bytes for part in parts])).astype(np.int64)
    return Resharding(key // nodes, key % nodes, total)
