"""A circuit switch whose circuits follow the demand of a job, when a controller says so.

A controller chooses circuits for the bytes that tasks have to move. Circuits that change are dark for `delay_s`, and
the others stay lit. Flows over a dark circuit wait. By default one circuit at a time goes to the pair
with the greatest marginal use: demand times 1, 1/2, 1/4... for the first, second and third circuit of a pair, so that c
circuits are worth 2 - 2^(1-c) times its demand. Nodes have `degree` transmitters and receivers; circuits are one-way.

Pairs without a circuit wait for one, unless there is another way for them:

- With host forwarding, pairs without a circuit use the shortest path. One circuit of each node belongs to a fixed ring,
  so that a path joins every pair. A custom `allocator` must do this itself.
- With `packet_gbps`, each node has a link to a packet switch that never blocks. Pairs without a circuit use it.

Moving flows are rerouted whenever circuits change. A message has the latency of a single hop in all cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.algorithms import Algorithm, plan_rings
from sim.models.network.engine.program import ARMED, BEGINS, ENDS, Routes
from sim.models.network.execution.lowering import LoweredGraph, lower_graph
from sim.models.network.execution.simulation import Execution, Run, StalledError
from sim.models.network.fabrics.cost import Cost, compute_circuit_switch_cost
from sim.models.network.fabrics.direct import find_next_links, make_path_router
from sim.models.network.fabrics.model import CyclicRouter, Fabric, check_sizes
from sim.models.network.fabrics.rails import share_hosts
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Allocator = Callable[[Floats, Integers], Integers]
"""A function of the bytes to move (nodes, nodes), source by target, and the lit circuits; it returns circuits."""

_MAX_IDLE_PERIODS = 10_000
"""Periods without progress after which an iteration counts as stalled."""


@dataclass(frozen=True, slots=True)
class Controller:
    """Rule by which circuits move.

    | `switching_rule` | circuits are chosen | for the bytes of |
    |---|---|---|
    | `once` | before the job, and are lit when it begins | the iteration |
    | `per-iteration` | when an iteration begins, and are dark until they are switched | the iteration |
    | `every` | every `period_s` | running tasks |
    | `per-layer` | when the first communication of a layer begins | running tasks and the layer |

    A layer is the communication that waits for the same number of other communications. With a `look_ahead` of N,
    `per-layer` also counts the N layers that follow, and moves circuits for these as soon as no communication runs.
    With a `hysteresis` above 0, circuits move only if that saves more than `hysteresis` times `delay_s`.

    Raises `ValueError` for values out of range, and for options of other controllers.
    """

    switching_rule: Literal["once", "per-iteration", "every", "per-layer"] = "every"
    period_s: float = 50e-3
    hysteresis: float = 0.0
    look_ahead: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.period_s < float("inf"):
            raise ValueError(f"period_s is {self.period_s}: it must be finite and above 0 s")
        if not 0 <= self.hysteresis < float("inf") or self.look_ahead < 0:
            raise ValueError(
                f"hysteresis is {self.hysteresis} and look_ahead {self.look_ahead}: both must be finite, 0 or more"
            )
        if self.hysteresis and self.switching_rule in ("once", "per-iteration"):
            raise ValueError(
                f"hysteresis is {self.hysteresis}, but controller {self.switching_rule} has no hysteresis, because"
                " its circuits "
                "do not move during an iteration: set it to 0"
            )
        if self.look_ahead and self.switching_rule != "per-layer":
            raise ValueError(
                f"look_ahead is {self.look_ahead}, but only controller per-layer uses it: set it to 0 for "
                f"{self.switching_rule}, or choose per-layer"
            )


@dataclass(frozen=True, slots=True)
class CircuitSwitch:
    """A switch with `degree` circuits of `rate_gbps` from and to each node; circuits that move are dark for `delay_s`.

    `allocator` replaces the choice by marginal use, `cost` the price of the switch. With a `domain_size` above 1 each
    of the `node_count` nodes is a host of `domain_size` GPUs: these are the nodes of the fabric, each with
    `domain_gbps` to and from its host.
    """

    node_count: int
    degree: int
    rate_gbps: float
    controller: Controller = Controller()
    delay_s: float = 10e-3
    hosts_forward: bool = False
    packet_gbps: float = 0.0
    domain_size: int = 1
    domain_gbps: float = 0.0
    allocator: Allocator | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        check_sizes(self.node_count, self.rate_gbps)
        if self.node_count < 2 or self.degree < 1 + self.hosts_forward:
            raise ValueError(
                f"{self.node_count} nodes with degree {self.degree}: circuits need at least 2 nodes and a degree "
                "of at least 1, or 2 with forwarding"
            )
        if self.hosts_forward and self.packet_gbps:
            raise ValueError(
                f"packet_gbps is {self.packet_gbps}, but circuits with forwarding have no packet switch: set it to 0"
            )
        if self.packet_gbps < 0 or self.delay_s < 0:
            raise ValueError(
                f"packet_gbps is {self.packet_gbps} and delay_s {self.delay_s}: both must be 0 or more"
            )
        period_s = self.controller.period_s
        if self.controller.switching_rule == "every" and self.delay_s >= period_s:
            raise ValueError(
                f"circuits are dark for {self.delay_s * 1e3:g} ms, but move every {period_s * 1e3:g} ms: choose a "
                "longer period"
            )

    def make_fabric(self) -> Fabric:
        """Return a fabric with a dark link for each ordered pair of nodes; link s * n + t leads from s to t.

        The links up to a packet switch and down from it follow, then the links of domains.
        """
        pair_count, nodes = self.node_count**2, np.arange(self.node_count)
        sources, targets = np.divmod(np.arange(pair_count), self.node_count)
        rate_bps, name = (
            np.full(pair_count, self.rate_gbps * 1e9),
            "circuits+forwarding" if self.hosts_forward else "circuits",
        )
        capacity_bps = np.zeros(pair_count)
        if self.packet_gbps:
            switch, packet_bps = (
                np.full(self.node_count, self.node_count),
                np.full(2 * self.node_count, self.packet_gbps * 1e9),
            )
            sources, targets = (
                np.concatenate([sources, nodes, switch]),
                np.concatenate([targets, switch, nodes]),
            )
            rate_bps, capacity_bps = np.append(rate_bps, packet_bps), np.append(capacity_bps, packet_bps)
            name = "circuits+packets"
        fabric = Fabric(
            name=name,
            node_count=self.node_count,
            sources=sources,
            targets=targets,
            capacity_bps=capacity_bps,
            lane_bps=rate_bps,
            never_full=np.zeros(sources.size, dtype=bool),
            router=CyclicRouter(self._route_before_choice, 1),
            hosts_forward=True,
            cost=self.cost or compute_circuit_switch_cost(self.node_count, self.degree, self.rate_gbps),
        )
        return fabric if self.domain_size == 1 else share_hosts(fabric, self.domain_size, self.domain_gbps)

    def _route_before_choice(self, sources: Integers, targets: Integers, _choices: Integers) -> Integers:
        """Return the links before circuits are chosen: links of the packet switch, or the dark circuit of the pair."""
        pair_count = self.node_count**2
        if self.packet_gbps:
            return np.stack([pair_count + sources, pair_count + self.node_count + targets], axis=1)
        return (sources * self.node_count + targets)[:, None]

    def choose(self, wanted_bytes: Floats, lit_circuits: Integers) -> Integers:
        """Return circuits for bytes to move, see `Allocator`."""
        if self.allocator:
            return self.allocator(wanted_bytes, lit_circuits)
        circuits = choose_circuits(wanted_bytes, self, lit_circuits)
        return _improve(self, wanted_bytes, circuits) if self.packet_gbps else circuits

    def compute_service_s(self, wanted_bytes: Floats, circuits: Integers) -> float:
        """Return the seconds in which circuits move these bytes.

        Pairs without a circuit or another way add `delay_s`, because they wait until circuits move for them.
        """
        is_lit, circuit_bytes_per_s = circuits > 0, self.rate_gbps * 1e9 / 8
        if self.hosts_forward:
            return self._compute_forwarding_s(wanted_bytes, circuits)
        circuit_times_s = np.divide(
            wanted_bytes, circuits * circuit_bytes_per_s, out=np.zeros(wanted_bytes.shape), where=is_lit
        )
        unserved_bytes = np.where(is_lit, 0.0, wanted_bytes)
        np.fill_diagonal(unserved_bytes, 0.0)
        on_circuits_s = float(circuit_times_s.max(initial=0.0))
        busiest_bytes = float(max(unserved_bytes.sum(axis=0).max(), unserved_bytes.sum(axis=1).max()))
        if self.packet_gbps:
            return max(on_circuits_s, busiest_bytes / (self.packet_gbps * 1e9 / 8))
        return (
            on_circuits_s
            + busiest_bytes / (self.degree * circuit_bytes_per_s)
            + self.delay_s * (busiest_bytes > 0)
        )

    def _compute_forwarding_s(self, wanted_bytes: Floats, circuits: Integers) -> float:
        """Return the seconds of the fullest circuit on shortest paths."""
        pairs = np.argwhere(circuits > 0)
        sources, targets = np.nonzero(wanted_bytes)
        is_between_hosts = sources != targets
        sources, targets = sources[is_between_hosts], targets[is_between_hosts]
        paths = make_path_router(find_next_links(self.node_count, pairs, 0), pairs[:, 1], {})(
            sources, targets, sources
        )
        loads = np.zeros(len(pairs) + 1)
        np.add.at(loads, paths, np.broadcast_to(wanted_bytes[sources, targets][:, None], paths.shape))
        return float((loads[:-1] / circuits[pairs[:, 0], pairs[:, 1]]).max(initial=0.0)) / (
            self.rate_gbps * 1e9 / 8
        )


def simulate_circuits(
    graph: TaskGraph,
    switch: CircuitSwitch,
    *,
    latency: Latency | None = None,
    allreduce: Algorithm = plan_rings,
    trace: bool = False,
    rounding: float = 0.0,
) -> Execution:
    """Simulate one iteration over circuits that follow the demand; `rounding` as in `execution.simulate`.

    Raise `StalledError` if pairs wait for a circuit that never comes, `ValueError` if the graph has more nodes than the
    switch.
    """
    fabric = switch.make_fabric()
    lowered = lower_graph(graph, fabric, latency or Latency(), allreduce, splits_by_pair=True)
    run = Run(lowered, fabric.capacity_bps / 8, fabric.never_full, trace=trace, rounding=rounding)
    switched_run = _SwitchedRun(run, lowered, switch)
    run.run_until(0.0)
    match switch.controller.switching_rule:
        case "once" | "per-iteration":
            _move_at_begin(switched_run)
        case "every":
            _move_every_period(switched_run)
        case "per-layer":
            _move_by_layers(switched_run, graph)
    execution = run.make_execution(graph, fabric)
    dark_s = (
        min(switch.delay_s, execution.iteration_s - begin_s) for begin_s in switched_run.switching_times_s
    )
    return replace(
        execution,
        reconfiguration_count=len(switched_run.switching_times_s),
        outage_s=sum(dark_s),
        allocation_s=switched_run.allocation_s,
    )


@dataclass(slots=True)
class _SwitchedRun:
    """A run on circuits: the lit circuits, the times when circuits moved, and the processor time of choosing them."""

    run: Run
    lowered: LoweredGraph
    switch: CircuitSwitch
    lit_circuits: Integers = field(init=False)
    switching_times_s: list[float] = field(default_factory=list)
    allocation_s: float = 0.0

    def __post_init__(self) -> None:
        self.lit_circuits = np.zeros((self.switch.node_count, self.switch.node_count), np.int64)

    @property
    def now_s(self) -> float:
        return float(self.run.state.clock[0])

    def measure_demand(self, tasks: NDArray[np.bool_] | None = None) -> Floats:
        return compute_remaining_demand(
            self.run, self.lowered, self.switch.node_count, self.switch.domain_size, tasks
        )

    def choose(self, demands: Sequence[Floats], *, may_stay: bool = True) -> Integers:
        """Return circuits for the first of these demands, planned for the later demands, too."""
        began_s, controller = process_time(), self.switch.controller
        if may_stay and (controller.hysteresis or len(demands) > 1):
            dark_s = (controller.hysteresis or 1.0) * self.switch.delay_s
            circuits = plan_circuits(self.switch, demands, self.lit_circuits, dark_s)[0]
        else:
            circuits = self.switch.choose(demands[0], self.lit_circuits)
        self.allocation_s += process_time() - began_s
        return circuits

    def move(self, circuits: Integers) -> bool:
        """Switch to these circuits, and return whether all tasks ended while the new circuits were dark."""
        if (circuits == self.lit_circuits).all():
            return False
        self.switching_times_s.append(self.now_s)
        # Circuits of both configurations stay lit while the others are switched.
        self._set_capacity(np.minimum(self.lit_circuits, circuits))
        lit_s = self.now_s + self.switch.delay_s
        while self.now_s < lit_s:
            if self.run.run_until(lit_s):
                return True
        self.set_circuits(circuits)
        return False

    def set_circuits(self, circuits: Integers) -> None:
        """Light circuits at once."""
        self.lit_circuits = circuits
        self._set_capacity(circuits)
        if self.switch.hosts_forward or self.switch.packet_gbps:
            self.run.reroute(_route_messages(self.lowered, circuits, self.switch))

    def _set_capacity(self, circuits: Integers) -> None:
        self.run.capacity[: circuits.size] = circuits.reshape(-1) * (self.switch.rate_gbps * 1e9 / 8)


def _move_at_begin(switched_run: _SwitchedRun) -> None:
    all_tasks = np.ones(switched_run.lowered.program.task_s.size, dtype=bool)
    circuits = switched_run.choose([switched_run.measure_demand(all_tasks)])
    if switched_run.switch.controller.switching_rule == "once":
        switched_run.set_circuits(circuits)
    elif switched_run.move(circuits):
        return
    if not switched_run.run.run_until(np.inf):
        raise StalledError(
            f"some pairs have no circuit, and controller {switched_run.switch.controller.switching_rule} does not"
            " move circuits "
            "during an iteration: choose a controller that moves them more often, or more circuits"
        )


def _move_every_period(switched_run: _SwitchedRun) -> None:
    now_s, idle_period_count, progress = 0.0, 0, -1
    previous_demand = np.zeros_like(switched_run.lit_circuits, dtype=np.float64)
    while idle_period_count < _MAX_IDLE_PERIODS:
        demand = switched_run.measure_demand()
        # If nothing moved in a period, hysteresis could keep waiting pairs without a circuit for ever.
        is_stuck = bool(demand.any() and (demand == previous_demand).all())
        previous_demand = demand
        if switched_run.move(switched_run.choose([demand], may_stay=not is_stuck)):
            return
        now_s += switched_run.switch.controller.period_s
        if switched_run.run.run_until(now_s):
            return
        idle_period_count = (
            idle_period_count + 1 if progress == (progress := switched_run.run.count_progress()) else 0
        )
    raise StalledError(
        f"nothing moved in {_MAX_IDLE_PERIODS} periods, up to {now_s:.3f} s: increase the degree or the period"
    )


def _move_by_layers(switched_run: _SwitchedRun, graph: TaskGraph) -> None:
    layers, state = compute_communication_layers(graph), switched_run.run.state
    is_communication = layers >= 0
    look_ahead = switched_run.switch.controller.look_ahead
    end_flag = ENDS if look_ahead else 0
    last_layer = decided_layer = -1
    # Progress when all flows last waited for a circuit. If it is the same the next time, no circuit ever comes.
    progress: tuple[float, ...] = ()
    is_stuck = may_move = False
    while True:
        has_begun = is_communication & ~np.isnan(state.begin_s)
        last_layer = int(layers[has_begun].max(initial=last_layer))
        is_idle = not (has_begun & np.isnan(state.end_s)).any()
        # Before the first communication, and between two layers, circuits can move for the next layer.
        first_layer = last_layer + 1 if look_ahead and is_idle else last_layer
        if first_layer > decided_layer or is_stuck:
            decided_layer = max(decided_layer, first_layer)
            if is_stuck:
                demands = [switched_run.measure_demand()]
                remaining = float(switched_run.run.find_moving_messages()[1].sum())
                previous_progress, progress = (
                    progress,
                    (float(state.link_bytes.sum()), remaining, switched_run.run.count_progress()),
                )
                may_move = previous_progress != progress
                if not may_move and not switched_run.run.was_woken:
                    raise StalledError(
                        f"at {switched_run.now_s * 1e3:.3f} ms no circuit helps: increase the degree"
                    )
            else:
                demands = [
                    switched_run.measure_demand(is_communication & (has_begun | (layers <= first_layer)))
                ]
                demands += [
                    switched_run.measure_demand(layers == layer)
                    for layer in range(first_layer + 1, first_layer + 1 + look_ahead)
                ]
            if demands[0].any() and switched_run.move(switched_run.choose(demands, may_stay=not is_stuck)):
                return
        state.watch_flags[is_communication] = end_flag + BEGINS * (layers[is_communication] > decided_layer)
        # If circuits have just moved in vain, other tasks have to end before a move can help.
        state.counters[ARMED] = armed = int(may_move or not is_stuck)
        if switched_run.run.run_until(np.inf):
            return
        is_stuck = not switched_run.run.was_woken or state.counters[ARMED] < armed
        state.counters[ARMED] = 0


def compute_communication_layers(graph: TaskGraph) -> Integers:
    """Return the length of the longest chain of communications before each, (tasks,); -1 for other tasks."""
    is_communication = np.isin(graph.kind, (Kind.TRANSFER, Kind.ALLREDUCE, Kind.EXCHANGE))
    depth_step = is_communication.astype(np.int64)
    depth = np.zeros(graph.task_count, np.int64)
    out_degree = np.bincount(graph.before, minlength=graph.task_count)
    first = np.cumsum(out_degree) - out_degree
    next_tasks = graph.after[np.argsort(graph.before, kind="stable")]
    predecessor_counts = np.bincount(graph.after, minlength=graph.task_count)
    ready = np.flatnonzero(predecessor_counts == 0)
    while ready.size:
        counts = out_degree[ready]
        edges = np.repeat(first[ready] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        successors = next_tasks[edges]
        np.maximum.at(depth, successors, np.repeat(depth[ready] + depth_step[ready], counts))
        np.subtract.at(predecessor_counts, successors, 1)
        ready = np.unique(successors[predecessor_counts[successors] == 0])
    return np.where(is_communication, depth, -1)


def plan_circuits(
    switch: CircuitSwitch,
    demands: Sequence[Floats],
    lit_circuits: Integers,
    dark_s: float,
    candidates: Sequence[Integers] | None = None,
) -> list[Integers]:
    """Return the circuits for each of several demands, one after another, that take the least time in all.

    By dynamic programming: a demand takes `CircuitSwitch.compute_service_s`, and `dark_s` more if circuits move before
    it. The `candidates` are by default the lit circuits and the allocator's choice for each run of demands; with all
    possible circuits the plan is optimal.
    """
    if candidates is None:
        candidates = list(_propose_circuits(switch, demands, lit_circuits))
    service_s = np.array(
        [[switch.compute_service_s(demand, circuits) for circuits in candidates] for demand in demands]
    )
    flat_candidates = np.array(candidates).reshape(len(candidates), -1)
    must_switch = (flat_candidates[:, None] != flat_candidates).any(axis=2)
    total_s = service_s[0] + dark_s * (flat_candidates != lit_circuits.reshape(-1)).any(axis=1)
    best_predecessors = []
    for row in service_s[1:]:
        arrival_costs_s = total_s[:, None] + dark_s * must_switch
        best_predecessors.append(np.argmin(arrival_costs_s, axis=0))
        total_s = arrival_costs_s.min(axis=0) + row
    indices = [int(np.argmin(total_s))]
    for predecessors in reversed(best_predecessors):
        indices.append(int(predecessors[indices[-1]]))
    return [candidates[index] for index in reversed(indices)]


def _propose_circuits(
    switch: CircuitSwitch, demands: Sequence[Floats], lit_circuits: Integers
) -> Iterator[Integers]:
    for first_layer in range(len(demands)):
        for last_layer in range(first_layer, len(demands)):
            yield switch.choose(np.sum(demands[first_layer : last_layer + 1], axis=0), lit_circuits)
    if lit_circuits.any():
        yield lit_circuits


def _improve(switch: CircuitSwitch, wanted_bytes: Floats, circuits: Integers) -> Integers:
    """Change the circuits of one pair at a time while that makes them and the packet switch together faster.

    A pair with a circuit does not use the packet switch, so a circuit for few bytes can make the pair slower.
    """
    best_circuits, least_s, has_improved = circuits, switch.compute_service_s(wanted_bytes, circuits), True
    while has_improved:
        has_improved = False
        for source, target in np.argwhere(wanted_bytes > 0):
            for change in (-1, 1) if source != target else ():
                changed_circuits = _change_circuit(best_circuits, source, target, change, switch.degree)
                if (changed_circuits < 0).any() or changed_circuits.sum(axis=1).max() > switch.degree:
                    continue
                changed_s = switch.compute_service_s(wanted_bytes, changed_circuits)
                if changed_s < least_s * (1 - 1e-9):
                    best_circuits, least_s, has_improved = changed_circuits, changed_s, True
    return best_circuits


def _change_circuit(circuits: Integers, source: int, target: int, change: int, degree: int) -> Integers:
    """Return circuits with one more or less for a pair. If no port is free, a new circuit takes another pair's port."""
    changed_circuits = circuits.copy()
    changed_circuits[source, target] += change
    for circuit_counts, peer in ((changed_circuits[source], target), (changed_circuits[:, target], source)):
        other_peers = np.flatnonzero(circuit_counts)
        other_peers = other_peers[other_peers != peer]
        if circuit_counts.sum() > degree and other_peers.size:
            circuit_counts[other_peers[0]] -= 1
    return changed_circuits


def compute_remaining_demand(
    run: Run,
    lowered: LoweredGraph,
    node_count: int,
    domain_size: int = 1,
    tasks: NDArray[np.bool_] | None = None,
) -> Floats:
    """Return the bytes that `tasks` (tasks,) still have to move, by default running tasks: (nodes, nodes).

    Rows are sources, columns targets. With `domain_size` GPUs in each node, messages of GPUs count for their nodes.
    """
    program, state, messages = lowered.program, run.state, lowered.messages
    is_counted = (~np.isnan(state.begin_s) if tasks is None else tasks) & np.isnan(state.end_s)
    chain_of = program.group_chain[program.message_group]
    rounds_left = messages.round_count.astype(np.float64)
    is_past = messages.phase < state.chain_phase[chain_of]
    is_current = messages.phase == state.chain_phase[chain_of]
    rounds_left[is_past] = 0.0
    rounds_left[is_current] -= state.chain_round[chain_of][is_current]
    message_bytes_left = rounds_left * program.message_bytes
    moving_messages, bytes_to_move = run.find_moving_messages()
    # While some flows of a group move, its others have arrived in this round.
    message_bytes_left -= program.message_bytes * (
        is_current & (state.remaining_flow_count[program.message_group] > 0)
    )
    message_bytes_left[moving_messages] += bytes_to_move
    message_bytes_left *= is_counted[messages.task]
    pair = messages.source // domain_size * node_count + messages.target // domain_size
    bytes_left = np.bincount(pair, weights=message_bytes_left, minlength=node_count**2).astype(np.float64)
    return bytes_left.reshape(node_count, node_count)


def choose_circuits(wanted_bytes: Floats, switch: CircuitSwitch, lit_circuits: Integers) -> Integers:
    """Return the number of circuits of each pair, (nodes, nodes), by greatest marginal use.

    Circuits that are lit now stay if no demand needs their ports.
    """
    from sim.models.network.engine.uses import assign_circuits

    circuits = np.zeros_like(lit_circuits)
    if switch.hosts_forward:
        circuits[np.arange(switch.node_count), np.roll(np.arange(switch.node_count), -1)] = 1
    free_out, free_in = switch.degree - circuits.sum(axis=1), switch.degree - circuits.sum(axis=0)
    wanted_bytes_by_pair = np.where(np.eye(len(lit_circuits), dtype=bool), 0.0, wanted_bytes).reshape(-1)
    pairs = np.flatnonzero(wanted_bytes_by_pair > 0)
    # Most pairs get no circuit, so the first use of each is sorted, and only further uses are in the heap.
    pairs = pairs[np.argsort(-wanted_bytes_by_pair[pairs], kind="stable")]
    free_circuit_count = min(int(free_out.sum()), int(free_in.sum()))
    assign_circuits(
        pairs,
        wanted_bytes_by_pair,
        circuits,
        free_out,
        free_in,
        np.zeros(free_circuit_count + 1),
        np.zeros(free_circuit_count + 1, np.int64),
    )
    for source, target in np.argwhere(lit_circuits > circuits):
        staying_circuits = min(
            lit_circuits[source, target] - circuits[source, target], free_out[source], free_in[target]
        )
        circuits[source, target] += staying_circuits
        free_out[source] -= staying_circuits
        free_in[target] -= staying_circuits
    return circuits


def _route_messages(lowered: LoweredGraph, circuits: Integers, switch: CircuitSwitch) -> Routes:
    """Return routes over the current circuits, with the link numbers of the fabric.

    Pairs without a circuit use the packet switch if there is one, else the shortest path.
    """
    host_count, domain_size = switch.node_count, switch.domain_size
    gpu_count, messages = domain_size * host_count, lowered.messages
    pair, path = np.unique(messages.source * gpu_count + messages.target, return_inverse=True)
    sources, targets = np.divmod(pair, gpu_count)
    from_hosts, to_hosts = sources // domain_size, targets // domain_size
    if switch.packet_gbps:
        is_lit = circuits[from_hosts, to_hosts] > 0
        up_links = np.where(is_lit, from_hosts * host_count + to_hosts, circuits.size + from_hosts)
        padded_paths = np.stack(
            [up_links, np.where(is_lit, -1, circuits.size + host_count + to_hosts)], axis=1
        )
        padded_paths[from_hosts == to_hosts] = -1
    else:
        pairs = np.argwhere(circuits > 0)
        link_of = pairs[:, 0] * host_count + pairs[:, 1]
        router = make_path_router(find_next_links(host_count, pairs, 0), pairs[:, 1], {})
        padded_paths = router(from_hosts, to_hosts, pair)
        padded_paths = np.where(padded_paths >= 0, link_of[padded_paths], -1)
    if domain_size > 1:
        first_domain_link = circuits.size + 2 * host_count * bool(switch.packet_gbps)
        padded_paths = np.column_stack(
            [first_domain_link + sources, padded_paths, first_domain_link + gpu_count + targets]
        )
    is_link = padded_paths >= 0
    first = np.concatenate([[0], np.cumsum(is_link.sum(axis=1))])
    return Routes(first, padded_paths[is_link], path)
