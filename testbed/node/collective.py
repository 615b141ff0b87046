"""One rank of a measurement on CPU (Gloo) or GPU (NCCL): AllReduce over rings, or transfers, with every result checked.

    python3 collective.py RANK

prints `{"event": "ready", "rank", "processor_s", "gpus", "store_port", "versions"}` when it can start. Only rank 0 has
a `store_port`, because it holds the store. The program then reads the job, which is the same for all ranks, as a line:

    {"more": false, "nodes": 12, "backend": "gloo", "store": "10.99.0.11:40123", "addresses": [...],
     "nics": [[...], ...], "timeout_s": 60, "min_time_s": 0.5, "min_iterations": 5, "max_iterations": 20,
     "max_time_s": 8,
     "configurations": [{"name": "one_ring", "sizes": [1024, ...], "rings": [[0, 5, 10, ...], ...]},
                        {"name": "two_ways", "sizes": [1024, ...], "pairs": [[0, 5], [5, 0]]}, ...]}

With several sets of routes, the job also has `"set_addresses": [["10.100.1.100", "198.18.5.145"], ...]`, and a
configuration has `"weights": [[0.75, 0.25], ...]`: the part of each ring, or pair, that uses each set.

A ring lists its nodes in the order in which data passes. A node takes part in every ring that contains it. Its tensor
is split evenly over these rings, which run at the same time. Each ring has its own process group, with the rank order
of the ring: with sorted ranks, all rings would silently use the same links. With pairs instead of rings, a node splits
its tensor evenly over the nodes that it sends to. All transfers run at once, so all pairs together are an all-to-all.

The program prints JSON lines: `ready`; for each size `at` and, on rank 0, `row` (times, wrong elements, bytes sent by
each NIC, load of the processors); then `done` or `error`. Each job runs in a process forked from one that has imported
torch, because the import takes more processor time than most measurements. With `more`, another process then waits for
the next job. The store, barriers and agreements use only the management network. Standard library and torch only: this
file is copied to the hosts.
"""

# ruff: noqa: SLF001 - torch names its options with an underscore and has no other way to set them

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

_GC_WAS_ENABLED = gc.isenabled()
gc.disable()  # the import creates a million objects and little garbage: collections take a tenth of its time
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if _GC_WAS_ENABLED:
    gc.enable()

try:
    from testbed.node.watch import (
        RankWatch,
        find_connections,
        probe_disk,
        read_moment,
        read_others_processor_s,
        read_thread_waits,
        subtract_moments,
    )
except ModuleNotFoundError:  # a copy on a host, beside a copy of that file
    sys.path.insert(0, str(Path(__file__).parent))
    from watch import (  # type: ignore[import-not-found,no-redef]
        RankWatch,
        find_connections,
        probe_disk,
        read_moment,
        read_others_processor_s,
        read_thread_waits,
        subtract_moments,
    )

# Gloo's ring sends to the rank below, NCCL's to the rank above; ranks are numbered so that data passes in ring order.
RING_STEP = {"gloo": -1, "nccl": 1}
GLOO_THREADS = 1  # a process group has one operation at a time
EXIT_FAILED, EXIT_NO_JOB, EXIT_MORE_JOBS = 1, 1, 3  # exit statuses
PR_SET_PDEATHSIG = 1
MIN_OBSERVED_S = 0.02
"""Shortest iteration that is observed on its own, because a reading takes half a millisecond."""
PATTERN_PERIOD = 251  # values stay far below 2^24, so that float32 sums are exact


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


def get_ring_rank(order: list[int], node: int, backend: str) -> int:
    """Return the rank of a node in the process group of a ring, so that data passes in the ring's order.

    >>> get_ring_rank([0, 5, 10, 3], 5, "nccl"), get_ring_rank([0, 5, 10, 3], 5, "gloo")
    (1, 3)
    """
    return RING_STEP[backend] * order.index(node) % len(order)


class RankAgreement:
    """Barriers and small agreements over the store. Every rank must make the same calls in the same order."""

    def __init__(self, store: dist.Store, rank: int, node_count: int) -> None:
        self.store = store
        self.rank = rank
        self.node_count = node_count
        self.call_count = 0

    def _make_key(self) -> str:
        self.call_count += 1
        return f"agree/{self.call_count}"

    def wait_for_all(self) -> None:
        """Wait until all ranks have called this."""
        key = self._make_key()
        if self.store.add(key, 1) == self.node_count:
            self.store.set(f"{key}/all", "1")
        self.store.wait([f"{key}/all"])

    def gather(self, value: object) -> list[Any]:
        """Return the values of all ranks, in rank order, on rank 0, and an empty list on other ranks."""
        key = self._make_key()
        self.store.set(f"{key}/{self.rank}", json.dumps(value))
        if self.rank:
            return []
        return [json.loads(self.store.get(f"{key}/{rank}")) for rank in range(self.node_count)]

    def broadcast(self, value: object) -> Any:
        """Return rank 0's value, on all ranks."""
        key = self._make_key()
        if self.rank == 0:
            self.store.set(key, json.dumps(value))
        return json.loads(self.store.get(key))


@dataclass
class Node:
    """The node of this rank: its job, store, device and addresses."""

    job: dict[str, Any]
    rank: int
    store: dist.Store
    device: torch.device
    gloo_devices: dict[int, Any] = field(default_factory=dict)

    @property
    def nics(self) -> list[str]:
        """Interfaces of this node."""
        nics: list[str] = self.job["nics"][self.rank]
        return nics

    def get_gloo_device(self, route_set: int) -> Any:
        """Return the Gloo device of a set of routes. All groups share it, because each device is a thread that polls.

        Only the first set routes between all hosts. In other sets, only hosts that exchange data may connect.
        """
        if route_set not in self.gloo_devices:
            address = (
                self.job["set_addresses"][self.rank][route_set]
                if route_set
                else self.job["addresses"][self.rank]
            )
            create_device = dist.ProcessGroupGloo.create_device
            self.gloo_devices[route_set] = create_device(
                hostname=address, **({"lazy_init": True} if route_set else {})
            )
        return self.gloo_devices[route_set]

    def make_process_group(self, name: str, order: list[int], route_set: int = 0) -> Any:
        """Return the process group of one ring, bound to this node's address in a set of routes (not its hostname)."""
        ring_rank = get_ring_rank(order, self.rank, self.job["backend"])
        store = dist.PrefixStore(name, self.store)
        timeout = timedelta(seconds=self.job["timeout_s"])
        if self.job["backend"] == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            options.group_name = name
            options.global_ranks_in_group = sorted(order, key=lambda node: get_ring_rank(order, node, "nccl"))
            return dist.ProcessGroupNCCL(store, ring_rank, len(order), options)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [self.get_gloo_device(route_set)]
        options._threads = GLOO_THREADS
        options._timeout = timeout
        return dist.ProcessGroupGloo(store, ring_rank, len(order), options)

    def count_sent_bytes(self) -> dict[str, int]:
        """Return the bytes that each NIC has sent since it came up."""
        path_by_nic = {nic: Path(f"/sys/class/net/{nic}/statistics/tx_bytes") for nic in self.nics}
        return {nic: int(path.read_text(encoding="ascii")) for nic, path in path_by_nic.items()}


@lru_cache(maxsize=64)
def make_pattern(element_count: int, start: int, device: torch.device | str) -> torch.Tensor:
    """Return the part that all inputs share, from element `start` on. `Configuration.measure` clears the cache."""
    indices = torch.empty(element_count, device=device)
    torch.arange(start, start + element_count, out=indices)
    return indices.remainder_(PATTERN_PERIOD)


def fill_inputs(tensor: torch.Tensor, rank: int, iteration: int, start: int = 0) -> None:
    """Fill a tensor with inputs from element `start` on. Inputs differ by rank, element and iteration."""
    torch.add(make_pattern(tensor.numel(), start, tensor.device), 3 * rank + iteration, out=tensor)


def compute_expected(template: torch.Tensor, ranks: list[int], iteration: int) -> torch.Tensor:
    """Return the sum of the inputs of `ranks`, exact in float32."""
    constant = torch.tensor(float(iteration * len(ranks) + 3 * sum(ranks)), device=template.device)
    return torch.add(constant, make_pattern(template.numel(), 0, template.device), alpha=len(ranks))


def count_different_elements(result: torch.Tensor, expected: torch.Tensor) -> int:
    """Return the number of elements that differ."""
    return 0 if torch.equal(result, expected) else int((result != expected).sum())


def choose_iterations(job: dict[str, Any], iteration_s: float) -> int:
    """Return the number of iterations of about `iteration_s` that fill `min_time_s`, within the job's limits.

    Three are enough if `min_iterations` would take longer than `max_time_s`.
    """
    iteration_s = max(iteration_s, 1e-6)
    min_count = min(job["min_iterations"], max(3, math.floor(job["max_time_s"] / iteration_s)))
    return int(min(max(math.ceil(job["min_time_s"] / iteration_s), min_count), job["max_iterations"]))


def compute_quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile, interpolated linearly between the sorted values.

    >>> compute_quartiles([3.0, 1.0, 2.0, 10.0, 4.0]), compute_quartiles([2.0])
    ((2.0, 3.0, 4.0), (2.0, 2.0, 2.0))
    """
    sorted_values = sorted(values)

    def interpolate(share: float) -> float:
        lower_index, fraction = divmod(share * (len(sorted_values) - 1), 1)
        lower_value, upper_value = (
            sorted_values[int(lower_index)],
            sorted_values[min(int(lower_index) + 1, len(sorted_values) - 1)],
        )
        return lower_value + fraction * (upper_value - lower_value)

    return interpolate(0.25), interpolate(0.5), interpolate(0.75)


@dataclass(frozen=True)
class ProcessorTimes:
    """Processor times so far, read at `clock_s`: `own_s` of this process, and the ticks of each processor.

    `waited_s` is the time that the threads of this process were runnable without a processor, summed over threads.
    """

    own_s: float
    waited_s: float
    clock_s: float
    busy_ticks: tuple[int, ...]
    stolen_ticks: tuple[int, ...]
    all_ticks: tuple[int, ...]


def read_processor_times() -> ProcessorTimes:
    """Return the current times. Idle time and disk waits are not busy, but time that the hypervisor took is."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    ticks_by_processor = [
        [int(count) for count in line.split()[1:9]]
        for line in lines
        if line.startswith("cpu") and line[3].isdigit()
    ]
    return ProcessorTimes(
        own_s=time.process_time(),
        waited_s=sum(read_thread_waits().values()),
        clock_s=time.monotonic(),
        busy_ticks=tuple(sum(counts) - counts[3] - counts[4] for counts in ticks_by_processor),
        stolen_ticks=tuple(counts[7] for counts in ticks_by_processor),
        all_ticks=tuple(sum(counts) for counts in ticks_by_processor),
    )


@dataclass(frozen=True)
class ProcessorUse:
    """Processor use in an interval: seconds of this process, and shares of the interval.

    `busy` is the share of all processors together or, if larger, of this process on one processor. `busiest` is the
    share of the busiest processor. `stolen` is the share that the hypervisor took. `waited` is the waiting time of all
    threads of this process.
    """

    own_s: float
    busy: float
    busiest: float
    stolen: float
    waited: float


def compute_processor_use(before: ProcessorTimes, after: ProcessorTimes, device_type: str) -> ProcessorUse:
    """Return the processor use between two moments, of this machine and of this process.

    With a GPU, `busy` ignores this process, because it polls while it waits for the GPU.
    """
    clock_s = max(1e-9, after.clock_s - before.clock_s)
    all_ticks, busy_ticks, stolen_ticks = (
        [
            later_value - earlier_value
            for earlier_value, later_value in zip(getattr(before, name), getattr(after, name), strict=True)
        ]
        for name in ("all_ticks", "busy_ticks", "stolen_ticks")
    )
    machine_share = sum(busy_ticks) / max(1, sum(all_ticks))
    own_share = (after.own_s - before.own_s) / clock_s
    return ProcessorUse(
        own_s=after.own_s - before.own_s,
        busy=min(1.0, machine_share if device_type == "cuda" else max(machine_share, own_share)),
        busiest=max(
            (
                busy_count / max(1, all_count)
                for busy_count, all_count in zip(busy_ticks, all_ticks, strict=True)
            ),
            default=0.0,
        ),
        stolen=sum(stolen_ticks) / max(1, sum(all_ticks)),
        waited=(after.waited_s - before.waited_s) / clock_s,
    )


def compute_part_ends(weights: list[float], element_count: int) -> list[int]:
    """Return the ends of the parts of a tensor that is split by weights.

    >>> compute_part_ends([0.5, 0.25, 0.25], 10), compute_part_ends([1.0], 3)
    ([5, 8, 10], [3])
    """
    partial_sums = list(itertools.accumulate(weights))
    return [round(partial_sum / partial_sums[-1] * element_count) for partial_sum in partial_sums]


def wait_for_works(works: list[Any]) -> float:
    """Wait for the end of all operations; return the seconds."""
    begin_s = time.perf_counter()
    for work in works:
        work.wait()
    return time.perf_counter() - begin_s


class RingAllReduce:
    """In-place AllReduce, split evenly over the rings that contain this node. All rings run at once.

    The weights of a ring split its part over the sets of routes, with one process group per set.
    """

    def __init__(
        self, node: Node, name: str, rings: list[list[int]], weights: list[list[float]] | None = None
    ) -> None:
        self.node = node
        own_rings = [(index, order) for index, order in enumerate(rings) if node.rank in order]
        group_specs = [
            (index, order, route_set, weight)
            for index, order in own_rings
            for route_set, weight in enumerate(weights[index] if weights else [1.0])
            if weight
        ]
        self.process_groups = [
            node.make_process_group(f"{name}/{index}/{route_set}", order, route_set)
            for index, order, route_set, _ in group_specs
        ]
        self.weights = [weight for *_, weight in group_specs]
        self.ring_nodes = sorted(own_rings[0][1])

    def make_buffers(self, size_bytes: int, iteration: int) -> torch.Tensor:
        """Return the input tensor of one iteration."""
        tensor = torch.empty(max(1, size_bytes // 4), device=self.node.device)
        fill_inputs(tensor, self.node.rank, iteration)
        return tensor

    def run(self, tensor: torch.Tensor) -> float:
        """Reduce the tensor in place; return the seconds of waiting."""
        bounds = compute_part_ends(self.weights, tensor.numel())
        # Some parts are empty if there are fewer elements than rings.
        parts = tensor.tensor_split(bounds[:-1])
        group_parts = [
            (group, part) for group, part in zip(self.process_groups, parts, strict=True) if part.numel()
        ]
        return wait_for_works([group.allreduce([part]) for group, part in group_parts])

    def count_wrong_elements(self, tensor: torch.Tensor, iteration: int) -> int:
        """Return the number of elements that are not exactly the sum of all members' inputs."""
        return count_different_elements(tensor, compute_expected(tensor, self.ring_nodes, iteration))


@dataclass(frozen=True)
class TransferBuffers:
    """The parts that a node sends and receives in an iteration, by the other node.

    `element_count` is the size of the whole tensor.
    """

    element_count: int
    outgoing: dict[int, torch.Tensor]
    incoming: dict[int, torch.Tensor]


class Exchange:
    """Transfers between pairs, all at once (Gloo). A node splits its tensor evenly over the nodes that it sends to.

    The weights of a pair split its part over the sets of routes, with one process group per set.
    """

    def __init__(
        self, node: Node, name: str, pairs: list[list[int]], weights: list[list[float]] | None = None
    ) -> None:
        self.node = node
        pair_weight_lists = weights or [[1.0]] * len(pairs)
        self.weights = {
            (source, target): pair_weights
            for (source, target), pair_weights in zip(pairs, pair_weight_lists, strict=True)
        }
        nodes: int = node.job["nodes"]
        self.targets = [sorted(target for source, target in pairs if source == rank) for rank in range(nodes)]
        rank_order = [RING_STEP[node.job["backend"]] * rank % nodes for rank in range(nodes)]
        used_sets = sorted(
            {
                route_set
                for pair_weights in pair_weight_lists
                for route_set, weight in enumerate(pair_weights)
                if weight
            }
        )
        # In each group the rank of a node is its number.
        self.group_by_route_set = {
            route_set: node.make_process_group(f"{name}/{route_set}", rank_order, route_set)
            for route_set in used_sets
        }

    def locate_part(self, source: int, target: int, element_count: int) -> tuple[int, int]:
        """Return start and length of the part for `target` in the tensor of `source`."""
        base_length, remainder = divmod(element_count, len(self.targets[source]))
        position = self.targets[source].index(target)
        return position * base_length + min(position, remainder), base_length + (position < remainder)

    def make_buffers(self, size_bytes: int, iteration: int) -> TransferBuffers:
        """Return the parts that this node sends, and buffers for the parts that it receives."""
        rank, element_count = self.node.rank, max(1, size_bytes // 4)
        outgoing = {
            target: self.make_part(rank, target, element_count, iteration) for target in self.targets[rank]
        }
        incoming = {
            source: torch.full(
                (self.locate_part(source, rank, element_count)[1],), math.nan, device=self.node.device
            )
            for source, targets in enumerate(self.targets)
            if rank in targets
        }
        return TransferBuffers(element_count, outgoing, incoming)

    def make_part(self, source: int, target: int, element_count: int, iteration: int) -> torch.Tensor:
        """Return the part that `source` sends to `target` in one iteration."""
        start, length = self.locate_part(source, target, element_count)
        tensor = torch.empty(length, device=self.node.device)
        fill_inputs(tensor, source, iteration, start)
        return tensor

    def run(self, buffers: TransferBuffers) -> float:
        """Send and receive all parts; the tag is the source. Return the seconds of waiting."""
        rank = self.node.rank
        works = [
            self.group_by_route_set[route_set].recv([buffer], source, source)
            for source, tensor in buffers.incoming.items()
            for route_set, buffer in self.split_by_route_set(source, rank, tensor)
        ]
        works += [
            self.group_by_route_set[route_set].send([part], target, rank)
            for target, tensor in buffers.outgoing.items()
            for route_set, part in self.split_by_route_set(rank, target, tensor)
        ]
        return wait_for_works(works)

    def split_by_route_set(
        self, source: int, target: int, tensor: torch.Tensor
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (set, part) of a pair's tensor. Empty parts are skipped, unless all are empty."""
        weights = self.weights[source, target]
        parts = tensor.tensor_split(compute_part_ends(weights, tensor.numel())[:-1])
        nonempty_parts = [(route_set, part) for route_set, part in enumerate(parts) if part.numel()]
        yield from nonempty_parts or [(weights.index(max(weights)), tensor)]

    def count_wrong_elements(self, buffers: TransferBuffers, iteration: int) -> int:
        """Return the number of received elements that differ from what the sender sent."""
        expected_part_by_source = {
            source: self.make_part(source, self.node.rank, buffers.element_count, iteration)
            for source in buffers.incoming
        }
        return sum(
            count_different_elements(part, expected_part_by_source[source])
            for source, part in buffers.incoming.items()
        )


COLLECTIVES: dict[str, Any] = {"pairs": Exchange, "rings": RingAllReduce}
"""Classes of collectives by their key in a description. The first key present decides."""


class Configuration:
    """A collective that this node takes part in, and the sizes to measure."""

    def __init__(self, node: Node, description: dict[str, Any]) -> None:
        self.node = node
        self.name: str = description["name"]
        self.sizes: list[int] = description["sizes"]
        kind = next(key for key in COLLECTIVES if description.get(key))
        collective_class = COLLECTIVES[kind]
        self.collective = collective_class(node, self.name, description[kind], description.get("weights"))

    def perform(self, buffers: Any) -> float:
        """Run the collective on its buffers, and wait for its end; return the seconds of waiting."""
        waiting_s: float = self.collective.run(buffers)
        if self.node.device.type == "cuda":
            begin_s = time.perf_counter()
            torch.cuda.synchronize()
            waiting_s += time.perf_counter() - begin_s
        return waiting_s

    def run(self, agreement: RankAgreement) -> None:
        """Measure all sizes."""
        for size in self.sizes:
            print_event("at", configuration=self.name, size=size)
            row = self.measure(size, agreement)
            if row is not None:
                print_event("row", configuration=self.name, size=size, **row)
        agreement.wait_for_all()

    def measure(self, size: int, agreement: RankAgreement) -> dict[str, object] | None:
        """Warm up, agree on a number of iterations, time them back to back, check every result.

        Return the row on rank 0, None elsewhere.
        """
        job, rank = self.node.job, self.node.rank
        make_pattern.cache_clear()  # drop the patterns of the last size
        buffers = self.collective.make_buffers(size, 0)
        agreement.wait_for_all()
        begin_s = time.perf_counter()
        self.perform(buffers)
        warm_up_s = time.perf_counter() - begin_s
        wrong_count = self.collective.count_wrong_elements(buffers, 0)
        slowest_s = max(agreement.gather(warm_up_s), default=warm_up_s)
        iteration_count, is_detailed = agreement.broadcast(
            [choose_iterations(job, slowest_s), slowest_s >= MIN_OBSERVED_S]
        )
        buffers_by_iteration = [
            self.collective.make_buffers(size, iteration) for iteration in range(iteration_count)
        ]
        measurement = self.time_iterations(buffers_by_iteration, agreement, is_detailed=is_detailed)
        wrong_count += sum(
            self.collective.count_wrong_elements(buffers, iteration)
            for iteration, buffers in enumerate(buffers_by_iteration)
        )
        rank_measurements = agreement.gather({**measurement, "wrong": wrong_count})
        return None if rank else make_row(rank_measurements)

    def time_iterations(
        self, buffers_by_iteration: list[Any], agreement: RankAgreement, *, is_detailed: bool
    ) -> dict[str, object]:
        """Time all iterations; return `times` (s of each), `sent` (bytes by NIC), `used` (processors) and `seen`.

        `seen` holds observations of each iteration, of each connection by peer, and of the host. Counters are read
        between barriers, so that they cover exactly these iterations of all ranks. Unless `is_detailed`, the totals are
        divided evenly among the iterations.
        """
        agreement.wait_for_all()
        connections = find_connections()
        watch = RankWatch(connections, self.node.nics)
        sent_bytes_before, processor_times_before = self.node.count_sent_bytes(), read_processor_times()
        others_before_s = read_others_processor_s()
        agreement.wait_for_all()
        watch.begin()
        process_totals, times_s, observations = [read_moment(watch)], [], []
        last_s = time.perf_counter()
        for buffers in buffers_by_iteration:
            begin_s = time.perf_counter()
            waiting_s = self.perform(buffers)
            end_s = time.perf_counter()
            times_s.append(end_s - begin_s)
            observations.append({"seconds": end_s - last_s, "waiting_s": waiting_s})
            if is_detailed:
                process_totals.append(read_moment(watch))
            last_s = time.perf_counter()
        process_totals.append(read_moment(watch))
        agreement.wait_for_all()
        processor_times_after, flows = read_processor_times(), watch.end()
        others_s = read_others_processor_s() - others_before_s
        sent_bytes_after = self.node.count_sent_bytes()
        for _, connection in connections:
            connection.close()
        agreement.wait_for_all()
        disk_s = probe_disk()
        agreement.wait_for_all()
        observations[-1]["disk_s"] = disk_s
        total_seconds = subtract_moments(process_totals[0], process_totals[-1])
        mean_seconds = {key: value / len(buffers_by_iteration) for key, value in total_seconds.items()}
        for entry, (before, after) in (
            zip(observations, itertools.pairwise(process_totals), strict=False) if is_detailed else ()
        ):
            entry.update(subtract_moments(before, after))
        return {
            "sent": {nic: sent_bytes_after[nic] - sent_bytes_before[nic] for nic in sent_bytes_after},
            "used": vars(
                compute_processor_use(processor_times_before, processor_times_after, self.node.device.type)
            ),
            "times": times_s,
            "seen": {
                "iterations": [{**mean_seconds, **entry} for entry in observations],
                "flows": flows,
                "nics": watch.describe_nics(),
                "others_s": others_s,
            },
        }


def make_row(rank_measurements: list[dict[str, Any]]) -> dict[str, object]:
    """Return the row of one size from the measurements of all ranks: `time_us` is the median of the slowest rank.

    `min_us` and `max_us` time each iteration by its slowest rank. `processor_s` is the sum of all ranks per iteration.
    """
    times_by_rank = [entry["times"] for entry in rank_measurements]
    uses = [entry["used"] for entry in rank_measurements]
    # An iteration lasts until its slowest rank is done.
    slowest_times_s = [max(values) for values in zip(*times_by_rank, strict=True)]
    lower_s, median_s, upper_s = max(
        map(compute_quartiles, times_by_rank), key=lambda quartiles: quartiles[1]
    )
    return {
        "iterations": len(slowest_times_s),
        "time_us": median_s * 1e6,
        "low_us": lower_s * 1e6,
        "high_us": upper_s * 1e6,
        "min_us": min(slowest_times_s) * 1e6,
        "max_us": max(slowest_times_s) * 1e6,
        "wrong": [entry["wrong"] for entry in rank_measurements],
        "sent_bytes": [entry["sent"] for entry in rank_measurements],
        "retransmitted_bytes": [
            [[peer, flow["retransmitted"]] for peer, flow in entry["seen"]["flows"]]
            for entry in rank_measurements
        ],
        "seen": [entry["seen"] for entry in rank_measurements],
        "processor_s": sum(use["own_s"] for use in uses) / len(slowest_times_s),
        "processor_busy": max(use["busy"] for use in uses),
        "processor_busiest": max(use["busiest"] for use in uses),
        "processor_stolen": max(use["stolen"] for use in uses),
        "processor_waited": max(use["waited"] for use in uses),
    }


def make_store() -> dist.TCPStore:
    """Return the store of the job, on rank 0, at a free port."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def connect_store(address: str, timeout_s: float) -> dist.TCPStore:
    """Return a connection to the store of rank 0 over the management network."""
    host, _, port = address.rpartition(":")
    return dist.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s))


def announce_ready(rank: int, startup_cpu_s: float) -> dist.TCPStore | None:
    """Print `ready` with the processor time of the start; rank 0 also opens and returns the store."""
    torch.set_num_threads(1)
    store = make_store() if rank == 0 else None
    print_event(
        "ready",
        rank=rank,
        processor_s=startup_cpu_s,
        gpus=torch.cuda.device_count() if dist.is_nccl_available() else 0,
        store_port=store.port if store else None,
        versions={
            "torch": torch.__version__,
            "host_python": platform.python_version(),
            "host_system": f"{platform.system()} {platform.release()}",
        },
    )
    return store


def measure_all(job: dict[str, Any], rank: int, store: dist.TCPStore | None) -> None:
    """Build every process group, then measure one configuration after the other."""
    device = torch.device("cuda", 0) if job["backend"] == "nccl" else torch.device("cpu")
    if store is None:
        store = connect_store(job["store"], job["timeout_s"])
    store.set_timeout(timedelta(seconds=job["timeout_s"]))
    node = Node(job, rank, store, device)
    if job["backend"] == "nccl":
        os.environ.setdefault("NCCL_ALGO", "Ring")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "=" + ",".join(node.nics))
    agreement = RankAgreement(store, rank, job["nodes"])
    configurations = [Configuration(node, description) for description in job["configurations"]]
    agreement.wait_for_all()
    for configuration in configurations:
        configuration.run(agreement)
    print_event("done", rank=rank, processor_s=time.process_time())
    agreement.wait_for_all()  # rank 0 holds the store, so it must not leave before the others


def run_one_job(rank: int, startup_cpu_s: float) -> int:
    """Get ready, wait for one job, run it; return the exit status."""
    store = announce_ready(rank, startup_cpu_s)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return EXIT_NO_JOB
    try:
        job = json.loads(line)
        measure_all(job, rank, store)
    except (RuntimeError, OSError, ValueError) as error:  # torch's errors are RuntimeErrors
        message = str(error).strip() or type(error).__name__
        print_event("error", rank=rank, message=message.splitlines()[0][:500])
        return EXIT_FAILED
    return EXIT_MORE_JOBS if job.get("more") else 0


def main() -> int:
    """Run one rank, with one process per job; return the exit status of the last job."""
    rank = int(sys.argv[1])
    gc.freeze()  # keeps the imported objects shared with children and out of collections
    startup_cpu_s = time.process_time()
    while True:
        process = os.fork()  # safe: this process has one thread, and no process group or GPU is open
        if not process:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            status = run_one_job(rank, startup_cpu_s)
            sys.stdout.flush()
            os._exit(status)  # skip all clean-up: process groups would wait for peers that have ended
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status < 0:
            os.kill(os.getpid(), -status)
        if status != EXIT_MORE_JOBS:
            return status
        startup_cpu_s = 0.0


if __name__ == "__main__":
    sys.exit(main())
