"""One iteration of a workload with a strategy, as a task graph for the network simulator.

For each microbatch, every server computes the forward pass of its operators in order, and sends outputs as soon as they
are ready. Once all microbatches have passed, the last operators begin the backward pass (GPipe: Huang et al., 2019),
which runs through the operators in reverse. The gradients of an operator are summed among its replicas as soon as all
replicas have computed them, during the rest of the backward pass. The update of the parameters takes no time.

Devices run ready tasks in order of arrival. With several microbatches, a device would thus run the first operator of
its stage for all microbatches before the second operator, and the next stage would receive everything at the end. So a
stage begins a microbatch only when it has ended the previous microbatch.

An operator receives one message per pair of servers from all operators with the same sharding. For example, the rows of
all tables of a server are sent together.
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
from testbed.design.workloads.roofline import Cluster, compute_operator_seconds
from testbed.design.workloads.sharding import (
    Resharding,
    Sharding,
    Strategy,
    compute_shard_shares,
    count_microbatch_samples,
    count_row_samples,
    fuse_steps,
    list_single_steps,
    list_trainable,
    make_backward_resharding,
    make_dispatch_resharding,
    make_forward_resharding,
    make_gradient_buckets,
    reverse_resharding,
    split_evenly,
)
from testbed.design.workloads.strategies import check_strategy
from testbed.errors import StrategyError

__all__ = ["BUCKET_BYTES", "iteration", "traffic"]

Integers = NDArray[np.int64]
StepNumbers = tuple[int, ...]
TasksByServer = dict[int, list[int]]
"""Task numbers by server."""
Bundle = tuple[Edge, ...]
MakeResharding = Callable[[Sharding, Sharding, int, int, bool], Resharding]
BUCKET_BYTES = 64 * 2**20
"""Maximum bytes of gradients in one AllReduce: Horovod's fusion buffer (64 MB). PyTorch's 25 MiB would give more
messages than a search has time to simulate. Larger buckets would overlap less with the backward pass."""
MAX_SINGLE_MESSAGES = 4
"""A resharding is an exchange if a server sends more messages than this, on average."""


def iteration(
    workload: Workload,
    strategy: Strategy,
    cluster: Cluster,
    *,
    bucket_bytes: float | None = BUCKET_BYTES,
    fuse: bool = True,
    whole_exchanges: bool = False,
) -> TaskGraph:
    """Return the task graph of one iteration. Devices are servers.

    - `bucket_bytes`: maximum gradients in one AllReduce. None gives every operator its own AllReduce.
    - `fuse`: run neighbouring operators as one task if nothing happens between them, see `fuse_steps`.
    - `whole_exchanges`: make the messages of an all-to-all one task for each group of servers, instead of a task for
      each pair. The messages begin when all servers of the group are ready, and the servers wait for all messages.

    Raises `StrategyError` for a strategy that does not fit the workload, and `WorkloadError` for a profile of another
    workload. It does not check memory, see `roofline.check_memory`.
    """
    if bucket_bytes is not None and not bucket_bytes >= 0:
        raise StrategyError(f"{workload.name}: buckets of {bucket_bytes} bytes: give 0 or more, or None")
    check_profile(workload, cluster.profile)
    check_strategy(workload, strategy, cluster.nodes)
    return _IterationBuilder(
        workload, strategy, cluster, bucket_bytes, fuse=fuse, whole_exchanges=whole_exchanges
    ).build_graph()


class _IterationBuilder:
    """Builder of the task graph. It keeps the tasks so far by step, microbatch and server."""

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
        self._samples = count_microbatch_samples(workload.batch, strategy.microbatches)
        self._buckets = make_gradient_buckets(workload, strategy, bucket_bytes)
        self._steps = fuse_steps(workload, strategy, self._buckets) if fuse else list_single_steps(workload)
        self._step_of = {
            op_index: step for step, op_indices in enumerate(self._steps) for op_index in op_indices
        }
        self._trainable = list_trainable(workload)
        self._cached_seconds: dict[tuple[int, int, int], float] = {}
        self._forward: dict[tuple[int, int], TasksByServer] = {}
        self._backward: dict[tuple[int, int], TasksByServer] = {}
        self._compute_tasks: dict[tuple[int, int, int], dict[int, int]] = {}
        self._sender = _Sender(self._builder, whole_exchanges=whole_exchanges)
        self._gates: dict[int, TasksByServer] = {}
        self._arrival_tasks: dict[tuple[Bundle, int], TasksByServer] = {}
        self._bundles = group_edges(workload, strategy)

    def build_graph(self) -> TaskGraph:
        stages = self._list_stages([True] * len(self._steps))
        for microbatch in range(len(self._samples)):
            self._close_gates(stages, microbatch, direction=0)
            for step in range(len(self._steps)):
                self._forward[step, microbatch] = self._pass_forward(step, microbatch)
        step_has_backward = [
            any(self._trainable[op_index] for op_index in op_indices) for op_indices in self._steps
        ]
        stages = [
            Stage(first_steps=stage.last_steps, last_steps=stage.first_steps)
            for stage in self._list_stages(step_has_backward)
        ]
        for microbatch in range(len(self._samples)):
            self._close_gates(stages, microbatch, direction=1)
            for step in reversed(range(len(self._steps))):
                if step_has_backward[step]:
                    self._backward[step, microbatch] = self._pass_backward(step, microbatch)
        if self._workload.training:
            for bucket in self._buckets:
                for size_bytes, members in zip(bucket.size_bytes, bucket.groups, strict=True):
                    earlier_tasks = [
                        task
                        for step in sorted({self._step_of[op_index] for op_index in bucket.operators})
                        for microbatch in range(len(self._samples))
                        for server in members
                        for task in self._backward[step, microbatch][server]
                    ]
                    if size_bytes:
                        self._add_allreduce(members, size_bytes, earlier_tasks)
        return self._builder.build()

    def _list_stages(self, is_included: Sequence[bool]) -> Sequence[Stage]:
        if len(self._samples) == 1:
            return ()
        return find_pipeline_stages(self._workload, self._strategy, self._steps, is_included)

    def _close_gates(self, stages: Sequence[Stage], microbatch: int, *, direction: int) -> None:
        """Make the first steps of each stage wait until its servers have ended the previous microbatch."""
        self._gates = {}
        for stage in stages if microbatch else ():
            tasks_before: TasksByServer = {}
            for step in stage.last_steps:
                for server, task in self._compute_tasks[step, microbatch - 1, direction].items():
                    tasks_before.setdefault(server, []).append(task)
            self._gates |= dict.fromkeys(stage.first_steps, join_by_barrier(self._builder, tasks_before))

    def _pass_forward(self, step: int, microbatch: int) -> TasksByServer:
        """Add the forward pass of a step: its inputs, dispatch to experts and back, computing, and sum among shards."""
        op_indices, sample_count = self._steps[step], self._samples[microbatch]
        ready_tasks: TasksByServer = {}
        for bundle in self._bundles[op_indices[0]]:
            sender_tasks: TasksByServer = {}
            merge_tasks(
                sender_tasks, (self._forward[self._step_of[producer], microbatch] for producer, _ in bundle)
            )
            resharding = self._make_resharding(make_forward_resharding, bundle, sample_count)
            senders = set(resharding.source[resharding.source != resharding.target].tolist())
            sender_tasks |= join_by_barrier(
                self._builder, {server: sender_tasks[server] for server in senders}
            )
            self._sender.send(resharding, sender_tasks, ready_tasks)
        last_operator = self._workload.operators[op_indices[-1]]
        return self._compute(
            step, microbatch, ready_tasks, direction=0, reduce_bytes=last_operator.forward_reduce_bytes
        )

    def _pass_backward(self, step: int, microbatch: int) -> TasksByServer:
        """Add the backward pass of a step: the gradients of its outputs, then the same as in the forward pass."""
        op_indices = self._steps[step]
        ready_tasks = {server: list(tasks) for server, tasks in self._forward[step, microbatch].items()}
        outgoing_edges = [edge for edge in self._workload.edges if edge[0] == op_indices[-1]]
        for edge in outgoing_edges:
            merge_tasks(ready_tasks, [self._send_gradients(edge, microbatch)])
        if not outgoing_edges:
            merge_tasks(
                ready_tasks,
                (self._forward[step, other_microbatch] for other_microbatch in range(len(self._samples))),
            )
        first_operator = self._workload.operators[op_indices[0]]
        return self._compute(
            step, microbatch, ready_tasks, direction=1, reduce_bytes=first_operator.backward_reduce_bytes
        )

    def _send_gradients(self, edge: Edge, microbatch: int) -> TasksByServer:
        """Add the messages of the gradients along an edge, and return the tasks after which its producer has them."""
        bundle = next(bundle for bundle in self._bundles[edge[1]] if edge in bundle)
        bundle = tuple(edge for edge in bundle if self._trainable[edge[0]])
        if (bundle, microbatch) not in self._arrival_tasks:
            ready_tasks = self._arrival_tasks[bundle, microbatch] = {}
            resharding = self._make_resharding(make_backward_resharding, bundle, self._samples[microbatch])
            self._sender.send(resharding, self._backward[self._step_of[edge[1]], microbatch], ready_tasks)
        return self._arrival_tasks[bundle, microbatch]

    def _make_resharding(
        self, make_edge_resharding: MakeResharding, bundle: Bundle, sample_count: int
    ) -> Resharding:
        return make_bundle_resharding(
            make_edge_resharding, self._workload, self._strategy, bundle, sample_count, self._cluster.nodes
        )

    def _compute(
        self, step: int, microbatch: int, ready_tasks: TasksByServer, *, direction: int, reduce_bytes: int
    ) -> TasksByServer:
        sharding, sample_count = self._strategy.shardings[self._steps[step][0]], self._samples[microbatch]
        dispatch = self._make_dispatch(step, sample_count) if sharding.way == "expert" else None
        if dispatch is not None:
            ready_tasks = self._sender.exchange(dispatch, ready_tasks)
        merge_tasks(ready_tasks, [self._gates.get(step, {})])
        task_by_server = {
            server: self._builder.add_compute(
                server,
                self._compute_seconds(step, server_sample_count, direction),
                predecessors=ready_tasks.get(server),
            )
            for server, server_sample_count in zip(
                sharding.servers, self._count_samples(step, sample_count), strict=True
            )
        }
        self._compute_tasks[step, microbatch, direction] = task_by_server
        last_tasks = {server: [task] for server, task in task_by_server.items()}
        if dispatch is not None:
            last_tasks = self._sender.exchange(reverse_resharding(dispatch), last_tasks)
        return self._sum_activations(sharding, sample_count, last_tasks, reduce_bytes)

    def _compute_seconds(self, step: int, sample_count: int, direction: int) -> float:
        """Return the seconds of one shard of a step. Results are cached, since numbers of samples repeat."""
        cached_s = self._cached_seconds.get((step, sample_count, direction))
        if cached_s is None:
            cached_s = self._cached_seconds[step, sample_count, direction] = sum(
                compute_operator_seconds(
                    self._workload.operators[op_index],
                    sample_count,
                    self._strategy.shardings[op_index].shards,
                    self._cluster,
                )[direction]
                for op_index in self._steps[step]
                if direction == 0 or self._trainable[op_index]
            )
        return cached_s

    def _make_dispatch(self, step: int, sample_count: int) -> Resharding:
        op_index = self._steps[step][0]
        operator = self._workload.operators[op_index]
        return make_dispatch_resharding(
            self._strategy.shardings[op_index],
            sample_count,
            operator.output_bytes * operator.routed,
            operator.popularity,
        )

    def _count_samples(self, step: int, sample_count: int) -> list[int]:
        """Return the number of samples that each server computes. Popular experts compute more."""
        op_index = self._steps[step][0]
        sharding, popularity = (
            self._strategy.shardings[op_index],
            self._workload.operators[op_index].popularity,
        )
        samples_by_server = count_row_samples(sharding, sample_count)
        if popularity and sharding.way == "expert":
            shares = compute_shard_shares(popularity, sharding.shards) * sharding.shards
            samples_by_server = np.ceil(samples_by_server * np.tile(shares, sharding.replicas)).astype(
                np.int64
            )
        sample_counts: list[int] = samples_by_server.tolist()
        return sample_counts

    def _sum_activations(
        self, sharding: Sharding, sample_count: int, last_tasks: TasksByServer, sample_bytes: int
    ) -> TasksByServer:
        """Add an AllReduce among the shards of each replica of a tensor-parallel step, and return the last tasks."""
        if sharding.way != "tensor" or sharding.shards == 1 or not sample_bytes:
            return last_tasks
        tasks_by_server = dict(last_tasks)
        for replica_servers, count in zip(
            sharding.grid, np.diff(split_evenly(sample_count, sharding.replicas)).tolist(), strict=True
        ):
            if count:
                task = self._add_allreduce(
                    replica_servers,
                    count * sample_bytes,
                    [last_tasks[server][0] for server in replica_servers],
                )
                tasks_by_server.update({server: [task] for server in replica_servers})
        return tasks_by_server

    def _add_allreduce(self, members: tuple[int, ...], size_bytes: int, earlier_tasks: list[int]) -> int:
        local_s = self._cluster.compute_local_reduce_seconds(size_bytes)
        return self._builder.add_allreduce(members, size_bytes, time_s=local_s, predecessors=earlier_tasks)


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps of one stage, by number: `first_steps` have no predecessor in the stage, `last_steps` have no successor."""

    first_steps: StepNumbers
    last_steps: StepNumbers


def find_pipeline_stages(
    workload: Workload, strategy: Strategy, steps: Sequence[StepNumbers], is_included: Sequence[bool]
) -> tuple[Stage, ...]:
    """Return the stages of the steps marked in `is_included`: all steps forward, steps with gradients backward.

    Steps on the same servers form a stage. If a microbatch visits the same servers more than once, with other servers
    in between, each visit is a stage.
    """
    step_by_operator = {op_index: step for step, op_indices in enumerate(steps) for op_index in op_indices}
    edges = sorted(
        {(step_by_operator[producer], step_by_operator[consumer]) for producer, consumer in workload.edges}
    )
    stage_key_by_step = _count_visits(
        [frozenset(strategy.shardings[op_indices[0]].servers) for op_indices in steps], edges
    )
    inner_edges = {
        (producer_step, consumer_step)
        for producer_step, consumer_step in edges
        if stage_key_by_step[producer_step] == stage_key_by_step[consumer_step]
        and is_included[producer_step]
        and is_included[consumer_step]
        and producer_step != consumer_step
    }
    steps_with_input, steps_with_output = (
        {consumer_step for _, consumer_step in inner_edges},
        {producer_step for producer_step, _ in inner_edges},
    )
    steps_by_stage: dict[object, list[int]] = {}
    for step, stage in enumerate(stage_key_by_step):
        if is_included[step]:
            steps_by_stage.setdefault(stage, []).append(step)
    return tuple(
        Stage(
            tuple(step for step in stage_steps if step not in steps_with_input),
            tuple(step for step in stage_steps if step not in steps_with_output),
        )
        for stage_steps in steps_by_stage.values()
    )


def _count_visits(
    servers: Sequence[frozenset[int]], edges: Sequence[Edge]
) -> list[tuple[frozenset[int], int]]:
    """Return, for each step, its servers and the maximum number of times that a path to it leaves them.

    Edges must be sorted.
    """
    visits = [0] * len(servers)
    for server_set in set(servers):
        departures = [0] * len(servers)
        for producer, consumer in edges:
            is_leaving = servers[producer] == server_set != servers[consumer]
            departures[consumer] = max(departures[consumer], departures[producer] + is_leaving)
        for step in range(len(servers)):
            if servers[step] == server_set:
                visits[step] = departures[step]
    return list(zip(servers, visits, strict=True))


class _Sender:
    """Adds the messages of reshardings to a graph, one by one or as exchanges."""

    def __init__(self, builder: TaskGraphBuilder, *, whole_exchanges: bool) -> None:
        self._builder, self._whole_exchanges = builder, whole_exchanges
        self._exchanges: dict[tuple[bytes, ...], tuple[Exchange, ...]] = {}

    def send(self, resharding: Resharding, source_tasks: TasksByServer, ready_tasks: TasksByServer) -> None:
        """Add the messages of a resharding, and add the tasks that each target must wait for to `ready_tasks`."""
        source, target = resharding.source, resharding.target
        is_remote = source != target
        if (
            not self._whole_exchanges
            or np.count_nonzero(is_remote) <= MAX_SINGLE_MESSAGES * np.unique(source).size
        ):
            is_remote[:] = False
            for sender, receiver, size_bytes in zip(*(column.tolist() for column in resharding), strict=True):
                if sender != receiver:
                    arrival = self._builder.add_transfer(
                        sender, receiver, size_bytes, predecessors=source_tasks[sender]
                    )
                    ready_tasks.setdefault(receiver, []).append(arrival)
        for exchange in self._make_exchanges(resharding) if is_remote.any() else ():
            sender_tasks = {task for sender in set(exchange.source.tolist()) for task in source_tasks[sender]}
            task = self._builder.add_exchange(exchange, predecessors=sorted(sender_tasks))
            for receiver in set(exchange.target.tolist()):
                ready_tasks.setdefault(receiver, []).append(task)
        for server in source[source == target].tolist():
            ready_tasks.setdefault(server, []).extend(source_tasks[server])

    def exchange(self, resharding: Resharding, source_tasks: TasksByServer) -> TasksByServer:
        """Add an all-to-all and return its last tasks. Each server waits until all of its parts have arrived."""
        source_tasks = join_by_barrier(
            self._builder,
            {server: source_tasks.get(server, []) for server in set(resharding.source.tolist())},
        )
        ready_tasks: TasksByServer = {}
        self.send(resharding, source_tasks, ready_tasks)
        return join_by_barrier(self._builder, ready_tasks)

    def _make_exchanges(self, resharding: Resharding) -> tuple[Exchange, ...]:
        """Return an exchange for each set of servers that messages connect. Equal reshardings get the same objects."""
        key = tuple(column.tobytes() for column in resharding)
        if key not in self._exchanges:
            is_remote = resharding.source != resharding.target
            remote_rows = Resharding(*(column[is_remote] for column in resharding))
            component_labels = join_pairs(remote_rows.source, remote_rows.target)
            order = np.argsort(component_labels, kind="stable")
            borders = np.flatnonzero(np.diff(component_labels[order])) + 1
            columns = [np.split(column[order], borders) for column in remote_rows]
            self._exchanges[key] = tuple(
                Exchange(*exchange_columns) for exchange_columns in zip(*columns, strict=True)
            )
        return self._exchanges[key]


def join_pairs(first_servers: Integers, second_servers: Integers) -> Integers:
    """Return, for each pair, the lowest server that a chain of pairs connects to it.

    >>> join_pairs(np.array([5, 1, 2, 4]), np.array([2, 3, 9, 1])).tolist()
    [2, 1, 2, 1]
    """
    lowest_label = np.arange(max(first_servers.max(), second_servers.max()) + 1)
    while True:
        pair_label = np.minimum(lowest_label[first_servers], lowest_label[second_servers])
        previous = lowest_label.copy()
        np.minimum.at(lowest_label, first_servers, pair_label)
        np.minimum.at(lowest_label, second_servers, pair_label)
        lowest_label = lowest_label[lowest_label]
        if (lowest_label == previous).all():
            return lowest_label[first_servers]


def join_by_barrier(builder: TaskGraphBuilder, tasks: TasksByServer) -> TasksByServer:
    """Return the tasks with several tasks of a server joined by a barrier, which saves edges to every message."""
    return {
        server: [builder.add_barrier(predecessors=tasks_before)] if len(tasks_before) > 1 else tasks_before
        for server, tasks_before in tasks.items()
    }


def merge_tasks(ready_tasks: TasksByServer, task_maps: Iterable[TasksByServer]) -> None:
    """Add the tasks of several passes to the tasks of the same servers in `ready_tasks`."""
    for task_map in task_maps:
        for server, tasks in task_map.items():
            ready_tasks[server] = sorted({*ready_tasks.get(server, []), *tasks})


def group_edges(workload: Workload, strategy: Strategy) -> tuple[tuple[Bundle, ...], ...]:
    """Return the edges into each operator, grouped by the sharding of their producers."""
    bundles: list[dict[tuple[Sharding, bool], Bundle]] = [{} for _ in workload.operators]
    for edge in workload.edges:
        key = strategy.shardings[edge[0]], workload.is_sliced(edge)
        bundles_into = bundles[edge[1]]
        bundles_into[key] = (*bundles_into.get(key, ()), edge)
    return tuple(tuple(bundles_into.values()) for bundles_into in bundles)


def make_bundle_resharding(
    make_edge_resharding: MakeResharding,
    workload: Workload,
    strategy: Strategy,
    bundle: Bundle,
    sample_count: int,
    nodes: int,
) -> Resharding:
    """Return one message per server pair for the edges of a bundle (`make_edge_resharding` reshards one edge)."""
    producer, consumer = (strategy.shardings[op_index] for op_index in bundle[0])
    is_sliced = workload.is_sliced(bundle[0])
    reshardings = [
        make_edge_resharding(producer, consumer, sample_count, workload.compute_edge_bytes(edge), is_sliced)
        for edge in bundle
    ]
    if len(reshardings) == 1:
        return reshardings[0]
    pair_keys, pair_index = np.unique(
        np.concatenate([resharding.source * nodes + resharding.target for resharding in reshardings]),
        return_inverse=True,
    )
    total_bytes = np.bincount(
        pair_index, np.concatenate([resharding.size_bytes for resharding in reshardings])
    ).astype(np.int64)
    return Resharding(pair_keys // nodes, pair_keys % nodes, total_bytes)
