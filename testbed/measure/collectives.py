"""Run AllReduce and exchanges on all hosts and bring back what they took: one launch a topology, all ranks or none.

`testbed/node/collective.py` runs on every host under `testbed/node/guard.py`, which ends it at the deadline or
when we hang up. What goes wrong comes back as a typed error that names rank and link.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

from testbed.design.model import Routes, Wiring
from testbed.errors import CollectiveError, HostError
from testbed.lab.fleet import Completed, Fleet, Launch
from testbed.lab.model import Lab, LabHost
from testbed.measure.collective_rows import nic_bytes_of, timing_of
from testbed.measure.collective_spec import CollectiveSpec, Configuration, doubling_sizes
from testbed.measure.model import CollectiveResult, Timing
from testbed.measure.rank_reports import Diagnosis, RankReports

__all__ = ["CollectiveSpec", "Configuration", "Progress", "doubling_sizes", "run_collectives"]

READY_TIMEOUT_S = 60.0
# How long after the deadline the guards' last words are waited for, and how often we look who still runs.
GRACE_S = 1.5
LOOK_S = 0.5

Progress = Callable[[int, int, str], None]


def run_collectives(
    fleet: Fleet,
    lab: Lab,
    wiring: Wiring,
    routes: Routes,
    spec: CollectiveSpec,
    *,
    deadline_s: float = 60.0,
    on_progress: Progress = lambda _done, _total, _text: None,
    on_row: Callable[[Timing], None] = lambda _timing: None,
) -> CollectiveResult:
    """Measure all configurations of `spec` in one launch.

    Raises `CollectiveTimeout` naming rank and link at the latest 2 s after `deadline_s` (counted from the launch),
    `on_row` is given each timing as soon as it is measured, so that a failure loses none.
    `WrongResult`, `CollectiveError` when a rank fails, `HostError` when hosts cannot be reached. No rank is left
    behind.
    """
    names = ("guard.py", "collective.py")
    programs = {name: resources.files("testbed.node").joinpath(name).read_bytes() for name in names}
    folder = fleet.put(programs)
    commands = {host.name: _command(host, node, folder, deadline_s) for node, host in enumerate(lab.hosts)}
    said = RankReports()
    ends_at = time.monotonic() + deadline_s + GRACE_S
    with fleet.start(commands) as launch:
        ready = _await_ready(launch, said, set(commands), min(ends_at, time.monotonic() + READY_TIMEOUT_S))
        if ready:
            launch.send(json.dumps(_job(lab, spec, said, deadline_s)) + "\n")
            for row in _follow(launch, said, spec, ends_at, on_progress):
                on_row(timing_of(lab, wiring, routes, spec, row))
        launch.close_input()
        completed = _completed(launch)
        for host, line in launch.lines(0):
            said.take(host, line)
    diagnosis = Diagnosis(lab, wiring, said, completed, deadline_s)
    if not ready:
        raise diagnosis.not_ready()
    if said.done != set(commands):
        raise diagnosis.failure()
    return _result(lab, wiring, routes, spec, said)


def _command(host: LabHost, node: int, folder: str, deadline_s: float) -> str:
    nics = [word for nic in host.nics for word in ("--nic", nic.name)]
    rank = [host.python, "-I", f"{folder}/collective.py", str(node)]
    guard = [host.python, "-IS", f"{folder}/guard.py", "--deadline", f"{deadline_s:g}"]
    return shlex.join([*guard, *nics, "--", *rank])


def _await_ready(launch: Launch, said: RankReports, hosts: set[str], until: float) -> bool:
    """Whether all ranks got ready; False as soon as one has ended instead."""
    for _event in _events(launch, said, until):
        if said.ready.keys() == hosts:
            return True
        gone = said.guards.keys() | (hosts - set(launch.running))
        said.never_began = gone - said.ready.keys()
        if gone:
            return False
    return False


def _follow(
    launch: Launch, said: RankReports, spec: CollectiveSpec, until: float, on_progress: Progress
) -> Iterator[dict[str, Any]]:
    """Rows as they come, until all have ended; hangs up as soon as one is lost: the others would wait in vain."""
    for event in _events(launch, said, until):
        if event == "row":
            row = said.rows[-1]
            text = f"{spec.topology}, {row['configuration']}, {row['size']} B"
            on_progress(len(said.rows), spec.rows, text)
            yield row
        if said.failed or (said.ready.keys() - said.done) - set(launch.running):
            launch.close_input()


def _events(launch: Launch, said: RankReports, until: float) -> Iterator[str]:
    """Kinds of event as they come, an empty one now and then, until all have ended or the time has come."""
    while launch.running and (left_s := until - time.monotonic()) > 0:
        for host, line in launch.lines(min(LOOK_S, left_s)):
            yield said.take(host, line)
        yield ""
    for host, line in launch.lines(0):
        yield said.take(host, line)


def _completed(launch: Launch) -> dict[str, Completed]:
    """What became of the commands; empty when some do not end by themselves (leaving the launch ends them)."""
    try:
        return launch.wait(GRACE_S)
    except HostError:
        return {}


def _job(lab: Lab, spec: CollectiveSpec, said: RankReports, deadline_s: float) -> dict[str, Any]:
    first = lab.hosts[0]
    return {
        "nodes": len(lab.hosts),
        "backend": _backend(spec, said.ready),
        "store": f"{first.management}:{said.ready[first.name]['store_port']}",
        "addresses": [str(host.address) for host in lab.hosts],
        "nics": [[nic.name for nic in host.nics] for host in lab.hosts],
        "timeout_s": deadline_s,
        "min_time_s": spec.min_time_s,
        "min_iterations": spec.min_iterations,
        "max_iterations": spec.max_iterations,
        "configurations": [_described(configuration) for configuration in spec.configurations],
    }


def _described(configuration: Configuration) -> dict[str, Any]:
    named = {"name": configuration.name, "sizes": configuration.sizes}
    if configuration.pairs:
        return {**named, "pairs": configuration.pairs}
    return {**named, "rings": [ring.order for ring in configuration.rings]}


def _backend(spec: CollectiveSpec, ready: Mapping[str, Mapping[str, Any]]) -> str:
    """The backend that all ranks use. Raises `CollectiveError` when NCCL is asked for and a host or a case cannot."""
    exchanges = [configuration.name for configuration in spec.configurations if configuration.pairs]
    if exchanges and spec.backend == "nccl":
        raise CollectiveError(
            f"{exchanges[0]}: transfers between pairs are measured with the backend 'gloo' only; choose it"
        )
    without = [host for host, message in ready.items() if not message["gpus"]]
    if spec.backend == "auto":
        return "gloo" if without or exchanges else "nccl"
    if spec.backend == "nccl" and without:
        names = ", ".join(sorted(without))
        raise CollectiveError(
            f"no GPU that torch can use on {names}: choose the backend 'gloo', or 'auto' to use what all hosts have"
        )
    return spec.backend


def _result(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, said: RankReports
) -> CollectiveResult:
    timings = tuple(timing_of(lab, wiring, routes, spec, row) for row in said.rows)
    nic_bytes = tuple(entry for row in said.rows for entry in nic_bytes_of(lab, wiring, routes, spec, row))
    backend = _backend(spec, said.ready)
    versions = {**next(iter(said.ready.values()))["versions"], "collective_backend": backend}
    return CollectiveResult(timings, nic_bytes, versions)
