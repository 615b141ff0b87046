"""Run AllReduce on all hosts and bring back what it took: one launch a topology, all ranks or none.

`testbed/node/collective.py` runs on every host under `testbed/node/guard.py`, which ends it at the deadline or
when we hang up. What goes wrong comes back as a typed error that names rank and link.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from testbed.design.model import Link, Nic, RingOrder, Routes, Wiring
from testbed.design.performance import link_limit_mbps, ring_paths
from testbed.errors import CollectiveError, CollectiveTimeout, HostError, WrongResult
from testbed.lab.fleet import Completed, Fleet, Launch
from testbed.lab.model import Lab, LabHost
from testbed.measure.model import CollectiveResult, NicBytes, Timing

STORE_PORT = 29500
READY_TIMEOUT_S = 60.0
GRACE_S = 2.0
# A size is limited by the hosts' processors when they were this busy and the links were not full.
BUSY_PROCESSOR = 0.75
FULL_LINK = 0.9

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run an AllReduce: `rings` over all nodes, or over groups of them side by side.

    Every node must be in as many rings as every other: its tensor is split evenly over them.
    """

    name: str
    rings: tuple[RingOrder, ...]
    sizes: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """Nodes that share one sum."""
        return len(self.rings[0].order)

    @property
    def rings_per_node(self) -> int:
        """Over how many rings each node splits its tensor."""
        return Counter(node for ring in self.rings for node in ring.order).most_common(1)[0][1]


@dataclass(frozen=True, slots=True)
class CollectiveSpec:
    """What one launch measures: per size one warm-up, then `min_time_s` or `max_iterations`, at least `min_iterations`."""

    run_id: str
    topology: str
    configurations: tuple[Configuration, ...]
    hosts: str = "kernel"
    backend: str = "gloo"
    min_time_s: float = 0.5
    min_iterations: int = 2
    max_iterations: int = 20


@dataclass(slots=True)
class _Heard:
    """What the ranks have said so far."""

    ready: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_at: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    guards: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, host: str, line: str) -> str:
        """Note one line; gives the kind of event, empty for a line that is none."""
        try:
            message = json.loads(line)
            event = str(message["event"])
        except (ValueError, KeyError, TypeError):
            return ""
        if event == "ready":
            self.ready[host] = message
        elif event == "at":
            self.last_at[host] = f"{message['configuration']}, {message['size']} B"
        elif event == "row":
            self.rows.append(message)
        elif event == "done":
            self.done.add(host)
        elif event == "error":
            self.errors[host] = message["message"]
        elif event == "guard":
            self.guards[host] = message
        return event


def doubling_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Message sizes from `smallest` to `largest` bytes, each twice the one before.

    >>> doubling_sizes(1024, 8192)
    (1024, 2048, 4096, 8192)
    """
    steps = max(0, math.floor(math.log2(largest / smallest) + 1e-9))
    return tuple(smallest << step for step in range(steps + 1))


def run_collectives(
    fleet: Fleet,
    lab: Lab,
    wiring: Wiring,
    routes: Routes,
    spec: CollectiveSpec,
    *,
    deadline_s: float = 60.0,
    on_progress: Progress = lambda _done, _total, _text: None,
) -> CollectiveResult:
    """Measure all configurations of `spec` in one launch.

    Raises `CollectiveTimeout` naming rank and link at the latest 2 s after `deadline_s`, `WrongResult`,
    `CollectiveError` when a rank fails, `HostError` when hosts cannot be reached. No rank is left behind.
    """
    program_files = {
        name: resources.files("testbed.node").joinpath(name).read_bytes() for name in ("guard.py", "collective.py")
    }
    folder = fleet.put(program_files)
    commands = {host.name: _command(host, node, folder, deadline_s) for node, host in enumerate(lab.hosts)}
    total = sum(len(configuration.sizes) for configuration in spec.configurations)
    heard = _Heard()
    with fleet.start(commands) as launch:
        launch.send(json.dumps(_job(lab, spec, deadline_s)) + "\n")
        _await_ready(launch, heard, set(commands), min(READY_TIMEOUT_S, deadline_s))
        launch.send("go\n")
        for host, line in launch.lines(deadline_s + GRACE_S):
            event = heard.take(host, line)
            if event == "row":
                row = heard.rows[-1]
                on_progress(len(heard.rows), total, f"{spec.topology}, {row['configuration']}, {row['size']} B")
            if event in ("error", "guard") and _failed(heard):
                launch.close_input()  # one is lost: end the others now
        launch.close_input()
        completed = _completed(launch)
    _demand_success(lab, wiring, heard, completed, set(commands))
    return _result(lab, wiring, routes, spec, heard)


def _command(host: LabHost, node: int, folder: str, deadline_s: float) -> str:
    nics = [word for nic in host.nics for word in ("--nic", nic.name)]
    rank = [host.python, "-Ps", f"{folder}/collective.py", str(node)]
    guard = [host.python, "-IS", f"{folder}/guard.py", "--deadline", f"{deadline_s:g}"]
    return shlex.join([*guard, *nics, "--", *rank])


def _job(lab: Lab, spec: CollectiveSpec, deadline_s: float) -> dict[str, Any]:
    return {
        "nodes": len(lab.hosts),
        "backend": spec.backend,
        "store": f"{lab.hosts[0].management}:{STORE_PORT}",
        "addresses": [str(host.address) for host in lab.hosts],
        "nics": [[nic.name for nic in host.nics] for host in lab.hosts],
        "timeout_s": deadline_s,
        "min_time_s": spec.min_time_s,
        "min_iterations": spec.min_iterations,
        "max_iterations": spec.max_iterations,
        "configurations": [
            {
                "name": configuration.name,
                "sizes": configuration.sizes,
                "rings": [ring.order for ring in configuration.rings],
            }
            for configuration in spec.configurations
        ],
    }


def _await_ready(launch: Launch, heard: _Heard, hosts: set[str], timeout_s: float) -> None:
    """All ranks stand ready, or nobody runs."""
    for host, line in launch.lines(timeout_s):
        if heard.take(host, line) == "guard":
            break
        if heard.ready.keys() == hosts:
            return
    launch.close_input()
    completed = _completed(launch)
    missing = sorted(hosts - heard.ready.keys())
    words = "; ".join(f"{host}: {_last_words(completed.get(host))}" for host in missing)
    raise CollectiveError(
        f"{len(missing)} of {len(hosts)} ranks did not get ready within {timeout_s:g} s, so none ran: {words}. "
        "Does the hosts' Python have torch? `testbed doctor LAB` looks"
    )


def _failed(heard: _Heard) -> bool:
    lost = [host for host, guard in heard.guards.items() if guard["reason"] != "exit" or guard["status"] != 0]
    return bool(lost or heard.errors)


def _completed(launch: Launch) -> dict[str, Completed]:
    """What became of the commands; empty when some do not end by themselves (leaving the launch ends them)."""
    try:
        return launch.wait(GRACE_S)
    except HostError:
        return {}


def _last_words(completed: Completed | None) -> str:
    lines = completed.stderr.strip().splitlines() if completed else []
    return lines[-1][-300:] if lines else "it said nothing"


def _demand_success(
    lab: Lab, wiring: Wiring, heard: _Heard, completed: Mapping[str, Completed], hosts: set[str]
) -> None:
    lost = sorted(hosts - heard.done)
    if not lost and heard.done == hosts:
        return
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}
    waiting = [host for host in lost if host not in heard.errors]
    who = ", ".join(f"rank {nodes[host]} ({host}, at {heard.last_at.get(host, 'the start')})" for host in lost[:4])
    more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
    dark = sorted(_dark_links(lab, wiring, heard))
    reasons = {guard["reason"] for guard in heard.guards.values()}
    if "deadline" in reasons or dark:
        link = f"no light on {', '.join(dark)}" if dark else "every NIC has carrier: look with `testbed verify`"
        raise CollectiveTimeout(f"the AllReduce did not finish: {who}{more} waited; {link}. All ranks were ended")
    words = "; ".join(f"{host}: {heard.errors[host]}" for host in sorted(heard.errors)) or "; ".join(
        f"{host}: {_last_words(completed.get(host))}" for host in waiting[:3]
    )
    raise CollectiveError(f"the AllReduce failed on {who}{more}: {words}. All ranks were ended")


def _dark_links(lab: Lab, wiring: Wiring, heard: _Heard) -> Iterator[str]:
    """Labels of the links that should light a NIC which the guards saw without carrier."""
    into = wiring.link_into
    for node, host in enumerate(lab.hosts):
        for index, nic in enumerate(host.nics):
            if nic.name in heard.guards.get(host.name, {}).get("dark_nics", ()):
                link = into.get(Nic(node, index))
                if link is not None:
                    yield lab.link_label(link)


def _result(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, heard: _Heard
) -> CollectiveResult:
    by_name = {configuration.name: configuration for configuration in spec.configurations}
    timings: list[Timing] = []
    nic_bytes: list[NicBytes] = []
    for row in heard.rows:
        configuration = by_name[row["configuration"]]
        limit = link_limit_mbps(wiring, routes, configuration.rings, lab.link.rate_mbps)
        timing = _timing(lab, spec, configuration, row, limit)
        timings.append(timing)
        nic_bytes.extend(_nic_bytes(lab, wiring, routes, spec, configuration, row))
        if timing.wrong:
            ranks = [rank for rank, count in enumerate(row["wrong"]) if count]
            raise WrongResult(
                f"{configuration.name}, {row['size']} B: rank {ranks} hold {timing.wrong} wrong elements; "
                "the network or a host corrupts data: do not trust this run"
            )
    versions = dict(next(iter(heard.ready.values()))["versions"])
    return CollectiveResult(tuple(timings), tuple(nic_bytes), versions)


def _timing(
    lab: Lab, spec: CollectiveSpec, configuration: Configuration, row: Mapping[str, Any], limit: float
) -> Timing:
    algbw = row["size"] * 8 / row["time_us"]
    busbw = algbw * 2 * (configuration.ranks - 1) / configuration.ranks
    return Timing(
        run_id=spec.run_id,
        topology=spec.topology,
        configuration=configuration.name,
        collective="all_reduce",
        ranks=configuration.ranks,
        rings=configuration.rings_per_node,
        size_bytes=row["size"],
        iterations=row["iterations"],
        time_us=row["time_us"],
        min_us=row["min_us"],
        max_us=row["max_us"],
        algbw_mbps=algbw,
        busbw_mbps=busbw,
        limit_mbps=limit,
        wrong=sum(row["wrong"]),
        cpu_limited=busbw < FULL_LINK * limit and row["processor_busy"] >= BUSY_PROCESSOR,
        simulated=lab.simulated,
        hosts=spec.hosts,
    )


def _nic_bytes(
    lab: Lab,
    wiring: Wiring,
    routes: Routes,
    spec: CollectiveSpec,
    configuration: Configuration,
    row: Mapping[str, Any],
) -> Iterator[NicBytes]:
    """What each NIC sent, and the payload that the rings put on its link: 2(n-1)/n of its share an iteration."""
    crossings = _crossings(ring_paths(wiring, routes, configuration.rings))
    share = row["size"] / configuration.rings_per_node
    payload = 2 * (configuration.ranks - 1) / configuration.ranks * share * row["iterations"]
    for node, host in enumerate(lab.hosts):
        for index, nic in enumerate(host.nics):
            link = wiring.link_from.get(Nic(node, index))
            yield NicBytes(
                topology=spec.topology,
                configuration=configuration.name,
                size_bytes=row["size"],
                host=host.name,
                nic=nic.name,
                sent_bytes=row["sent_bytes"][node][nic.name],
                expected_bytes=payload * crossings[link] if link else 0.0,
            )


def _crossings(rings: Sequence[Sequence[Sequence[Link]]]) -> Counter[Link]:
    """How many ring hops pass over each link."""
    return Counter(link for ring in rings for path in ring for link in path)
