"""An iteration of a plan as a job on hosts: the messages of the simulator, sent by the hosts themselves.

What is simulated and what runs are one program: the simulator's messages, each split over the sets of routes by the
weights of its pair, become the script of each host (`testbed/node/iteration.py`). Bytes and computing are scaled by
one factor, so that an iteration lasts about a second on links of any rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.models.network import wire_efficiency
from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import Fabric, routed
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.collectives.performance import MTU_BYTES, NAMESPACE_HOSTS
from testbed.design.fabrics.builders import rings_over
from testbed.design.routing.route_sets import RouteSets
from testbed.errors import WorkloadError

LASTS_S = 1.0
"""Time that a scaled iteration is to take."""


@dataclass(frozen=True, slots=True)
class HostJob:
    """An iteration as the hosts run it, and as it is predicted.

    Bytes are `factor` times those of the workload; computing is so, too, and longer by what the links are slower than
    in the plan. `simulated` is one iteration on the hosts' links.
    """

    routes: RouteSets
    factor: float
    simulated: Execution

    @property
    def predicted_s(self) -> float:
        """Predicted time of an iteration on the hosts."""
        return self.simulated.iteration_s

    @property
    def planned_bytes(self) -> NDArray[np.float64]:
        """Bytes of an iteration on each link of the topology, by the routes and weights of the plan."""
        messages = self.simulated.lowered.messages
        nodes = self.routes.topology.nodes
        sent = np.zeros((nodes, nodes))
        np.add.at(
            sent, (messages.source, messages.target), (messages.size_bytes * messages.rounds).astype(float)
        )
        return self.routes.link_bytes(sent)


def host_job(
    graph: TaskGraph,
    routes: RouteSets,
    rate_mbps: float,
    *,
    stretch: float = 1.0,
    lasts_s: float = LASTS_S,
    factor: float | None = None,
    mtu_bytes: int = MTU_BYTES,
    latency: Latency = NAMESPACE_HOSTS,
) -> HostJob:
    """Return an iteration scaled to last about `lasts_s` on links of a rate; a `factor` says the scale outright.

    `stretch` is how much slower these links are than those of the plan, and by so much longer computing takes.
    Raises `WorkloadError` for an iteration that takes no time.
    """
    fabric = host_fabric(routes, rate_mbps, mtu_bytes=mtu_bytes)

    def run(scale: float) -> Execution:
        scaled = scaled_graph(graph, scale, scale * stretch)
        return simulate(scaled, fabric, latency=latency, allreduce=rings_over(routes.topology))

    if factor is None:
        whole_s = run(1.0).iteration_s
        if not whole_s:
            raise WorkloadError("the iteration takes no time: there is nothing to run")
        factor = float(f"{lasts_s / whole_s:.3g}")
    return HostJob(routes, factor, run(factor))


def host_fabric(routes: RouteSets, rate_mbps: float, *, mtu_bytes: int = MTU_BYTES) -> Fabric:
    """Return the links of a plan at the payload rate of the hosts, with the plan's routes."""
    topology, rate_gbps = routes.topology, rate_mbps / 1e3 * wire_efficiency(mtu_bytes)
    return routed(topology.nodes, topology.edges, rate_gbps, routes.onward, routes.weight)


def scaled_graph(graph: TaskGraph, of_bytes: float, of_time: float) -> TaskGraph:
    """Return a graph with bytes and times scaled; a transfer moves at least one byte, for its target waits for it."""
    moves = (graph.kind == Kind.TRANSFER) | (graph.kind == Kind.ALLREDUCE)
    size = np.maximum(np.round(graph.size_bytes * of_bytes).astype(np.int64), moves)
    return replace(graph, size_bytes=size, time_s=graph.time_s * of_time)


def scripts(done: Execution) -> tuple[dict[str, Any], ...]:
    """Return the part of each host: `tasks`, `chains` and `incoming`, the number of connections to it.

    Raises `WorkloadError` for a task that waits for one of another host without a transfer between.
    """
    graph = done.graph
    tasks = _tasks_by_host(graph)
    chains = _chains_by_host(done)
    for host, of_host in enumerate(tasks):
        held = {task["id"] for task in of_host}
        lost = [chain["task"] for chain in chains[host] if chain["task"] not in held]
        assert not lost, f"tasks {lost} of host {host} have chains and are not its own"
    lines = {
        (host, to, number)
        for host, of_host in enumerate(chains)
        for chain in of_host
        for phase in chain["phases"]
        for to, number, _ in phase["send"]
    }
    return tuple(
        {
            "tasks": tasks[host],
            "chains": chains[host],
            "incoming": sum(1 for _, to, _ in lines if to == host),
        }
        for host in range(graph.nodes)
    )


def _tasks_by_host(graph: TaskGraph) -> list[list[dict[str, Any]]]:
    """Return the tasks of each host, with those of them that they wait for."""
    known = [_known_at(graph, task) for task in range(graph.tasks)]
    before: dict[int, list[int]] = defaultdict(list)
    for first, then in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
        before[then].append(first)
    places = _places(graph, known, before)
    found: list[list[dict[str, Any]]] = [[] for _ in range(graph.nodes)]
    for task in range(graph.tasks):
        starts = _starts_at(graph, task, places)
        for first in before[task]:
            if starts.isdisjoint(places[first]):
                raise WorkloadError(
                    f"task {task} waits for task {first}, which ends on other hosts: put a transfer between them"
                )
        for host in places[task]:
            waits = [first for first in before[task] if host in starts and host in places[first]]
            found[host].append(
                {
                    "id": task,
                    "computes": bool(graph.kind[task] == Kind.COMPUTE),
                    "seconds": float(graph.time_s[task]) if host in starts else 0.0,
                    "after": waits,
                }
            )
    return found


def _known_at(graph: TaskGraph, task: int) -> set[int]:
    """Return the hosts that know when a task has ended; a barrier has none of its own."""
    match graph.kind[task]:
        case Kind.COMPUTE:
            return {int(graph.device[task])}
        case Kind.TRANSFER:
            return {int(graph.source[task]), int(graph.target[task])}
        case Kind.ALLREDUCE:
            return set(graph.groups[graph.group[task]])
    return set()


def _starts_at(graph: TaskGraph, task: int, places: list[set[int]]) -> set[int]:
    """Return the hosts that start a task: of a transfer, its source."""
    return {int(graph.source[task])} if graph.kind[task] == Kind.TRANSFER else places[task]


def _places(graph: TaskGraph, known: list[set[int]], before: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Return the hosts of each task; a barrier is on those on which all that it waits for is known."""
    places: list[set[int] | None] = [
        None if graph.kind[task] == Kind.BARRIER else hosts for task, hosts in enumerate(known)
    ]

    def of(task: int) -> set[int]:
        found = places[task]
        if found is None:
            each = [of(first) for first in before.get(task, ())]
            found = places[task] = set.intersection(*each) if each else set(range(graph.nodes))
            if not found:
                raise WorkloadError(
                    f"barrier {task} waits for tasks that no single host knows of: put transfers between"
                )
        return found

    return [of(task) for task in range(graph.tasks)]


def _chains_by_host(done: Execution) -> list[list[dict[str, Any]]]:
    """Return the chains of each host: what it sends and receives in each round of each phase."""
    program, messages = done.lowered.program, done.lowered.messages
    chain_of = np.repeat(np.arange(program.chain_task.size), np.diff(program.phase_first))
    weight = done.fabric.weights
    assert weight is not None, "a fabric with planned routes has weights"
    used = weight[messages.choice % len(weight), messages.source, messages.target] > 0
    taken = np.where(used, messages.choice % len(weight), 0)
    hosts: list[dict[int, dict[int, dict[str, Any]]]] = [defaultdict(dict) for _ in range(done.graph.nodes)]

    def phase_at(host: int, phase: int) -> dict[str, Any]:
        phases = hosts[host][int(chain_of[phase])]
        number = phase - int(program.phase_first[chain_of[phase]])
        rounds = int(program.phase_rounds[phase])
        return phases.setdefault(phase, {"phase": number, "rounds": rounds, "send": [], "receive": 0})

    columns = (messages.phase, messages.source, messages.target, taken, messages.size_bytes)
    for phase, source, target, number, size in zip(*(column.tolist() for column in columns), strict=True):
        phase_at(source, phase)["send"].append([target, number, size])
        phase_at(target, phase)["receive"] += 1
    return [
        [
            {
                "task": int(program.chain_task[chain]),
                "id": chain,
                "phases": [phases[key] for key in sorted(phases)],
            }
            for chain, phases in sorted(of_host.items())
        ]
        for of_host in hosts
    ]
