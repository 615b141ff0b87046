"""AllReduces and exchanges, timed on all hosts. One launch measures a topology. The launch runs all ranks or none.

On every host, `testbed/node/guard.py` runs the rank `testbed/node/collective.py` and ends it at the deadline or when we
disconnect. Failures raise typed errors that name rank and link. If the hosts are only modelled, the flow model
estimates the times, and every row is marked as simulated.
"""

from __future__ import annotations

import json
import platform
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from typing import Any, Self

from testbed.design.model import Routes, Wiring
from testbed.errors import CollectiveError, HostError
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.hosts.forwarding import list_set_addresses
from testbed.lab.model import Lab, LabHost
from testbed.measure.collectives.rank_reports import Diagnosis, RankReports
from testbed.measure.collectives.rows import (
    compute_weights,
    make_timing,
    yield_flow_figures,
    yield_link_figures,
    yield_nic_bytes,
    yield_rank_figures,
)
from testbed.measure.collectives.spec import CollectiveSpec, Configuration, list_doubling_sizes
from testbed.measure.model import CollectiveResult, Timing

__all__ = [
    "CollectiveSpec",
    "Configuration",
    "ProgressCallback",
    "Ranks",
    "list_doubling_sizes",
    "run_collectives",
]

READY_TIMEOUT_S = 120.0
# Time after the deadline for the guards' last reports, and the longest pause between two checks of the ranks.
REPORT_GRACE_S = 1.5
POLL_INTERVAL_S = 0.5
_TIME_COLUMNS = ("time_us", "min_us", "max_us", "low_us", "high_us")
_IDLE_PROCESSOR_COLUMNS = dict.fromkeys(
    ("processor_s", "processor_busy", "processor_stolen", "processor_waited"), 0.0
)
ProgressCallback = Callable[[int, int, str], None]


def run_collectives(
    fleet: Fleet,
    lab: Lab,
    wiring: Wiring,
    routes: Routes,
    spec: CollectiveSpec,
    *,
    deadline_s: float = 60.0,
    on_progress: ProgressCallback = lambda _done, _total, _text: None,
    on_row: Callable[[Timing], None] = lambda _timing: None,
) -> CollectiveResult:
    """Measure all configurations of `spec` in one launch.

    Calls `on_row` after each measurement, so a failure loses none. Raises `CollectiveTimeout` (which names rank and
    link) at most 2 s after `deadline_s`, counted from the launch. Raises `WrongResult` for wrong sums,
    `CollectiveError` if a rank fails, and `HostError` if hosts cannot be reached. All ranks have ended when it returns
    or raises.
    """
    with Ranks(fleet, lab, deadline_s, keep_ranks=False) as ranks:
        return ranks.measure(wiring, routes, spec, on_progress=on_progress, on_row=on_row)


class Ranks:
    """Ranks that stay alive between measurements, one per host, because a start takes seconds of processor time.

    A context manager: leaving it ends the ranks. The first measurement starts them. The next one restarts them if the
    deadline has passed in between.
    """

    def __init__(self, fleet: Fleet, lab: Lab, deadline_s: float, *, keep_ranks: bool = True) -> None:
        self._fleet = fleet
        self._lab = lab
        self._deadline_s = deadline_s
        self._keeps_ranks = keep_ranks
        self._host_names = {host.name for host in lab.hosts}
        self._folder = ""
        self._launch: Launch | None = None
        self._resources = ExitStack()
        self._reports = RankReports()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all ranks. Safe to call again."""
        self._launch = None
        self._resources.close()

    def measure(
        self,
        wiring: Wiring,
        routes: Routes,
        spec: CollectiveSpec,
        *,
        on_progress: ProgressCallback = lambda _done, _total, _text: None,
        on_row: Callable[[Timing], None] = lambda _timing: None,
    ) -> CollectiveResult:
        """Measure all configurations of `spec` as `run_collectives` does. The deadline applies to each measurement.

        Raises the errors of `run_collectives` after it has ended all ranks.
        """
        try:
            reports = self._measure(wiring, routes, spec, on_progress, on_row)
        except BaseException:
            self.close()
            raise
        if not self._keeps_ranks:
            self.close()
        return _make_result(self._lab, wiring, routes, spec, reports)

    def _measure(
        self,
        wiring: Wiring,
        routes: Routes,
        spec: CollectiveSpec,
        on_progress: ProgressCallback,
        on_row: Callable[[Timing], None],
    ) -> RankReports:
        end_s = time.monotonic() + self._deadline_s + REPORT_GRACE_S
        launch, reports = self._start_ranks()
        is_ready = _await_ready(
            launch, reports, self._host_names, min(end_s, time.monotonic() + READY_TIMEOUT_S)
        )
        if is_ready:
            end_s = time.monotonic() + self._deadline_s + REPORT_GRACE_S if self._keeps_ranks else end_s
            spec = _drop_route_sets_for_nccl(spec, reports)
            job = _make_job(self._lab, spec, reports, self._deadline_s) | {"more": self._keeps_ranks}
            launch.send(json.dumps(job) + "\n")
            for row in _yield_rows(launch, reports, spec, end_s, on_progress, keep_ranks=self._keeps_ranks):
                on_row(make_timing(self._lab, wiring, routes, spec, row))
            if self._keeps_ranks and reports.done_hosts == self._host_names:
                return reports
        launch.close_input()
        try:
            result_by_host = launch.wait(REPORT_GRACE_S)
        except HostError:  # some ranks are still running, and end when the block is left
            result_by_host = {}
        for host, line in launch.read_lines(0):
            reports.store_event(host, line)
        diagnosis = Diagnosis(self._lab, wiring, reports, result_by_host, self._deadline_s)
        if not is_ready:
            raise diagnosis.make_not_ready_error()
        if reports.done_hosts != self._host_names:
            raise diagnosis.make_failure_error()
        return reports

    def _start_ranks(self) -> tuple[Launch, RankReports]:
        """Return the running ranks (or start new ones) and the reports for their next job."""
        if self._launch is not None and set(self._launch.running) == self._host_names:
            self._reports = RankReports(ready_message_by_host=self._reports.next_ready_message_by_host)
            return self._launch, self._reports
        self.close()
        if not self._folder:
            program_names = ("guard.py", "collective.py", "watch.py")
            programs = {
                name: resources.files("testbed.node").joinpath(name).read_bytes() for name in program_names
            }
            self._folder = self._fleet.put(programs)
        commands = {host.name: self._make_command(host, node) for node, host in enumerate(self._lab.hosts)}
        self._launch = self._resources.enter_context(self._fleet.start(commands))
        self._reports = RankReports()
        return self._launch, self._reports

    def _make_command(self, host: LabHost, node: int) -> str:
        nic_arguments = [argument for nic in host.nics for argument in ("--nic", nic.name)]
        rank_command = [host.python, "-I", f"{self._folder}/collective.py", str(node)]
        guard_command = [
            host.python,
            "-IS",
            f"{self._folder}/guard.py",
            "--deadline",
            f"{self._deadline_s:g}",
        ]
        return shlex.join(
            [*guard_command, *(["--renew"] if self._keeps_ranks else []), *nic_arguments, "--", *rank_command]
        )


def _await_ready(launch: Launch, reports: RankReports, hosts: set[str], end_s: float) -> bool:
    """Return True once all ranks are ready, False as soon as one has ended or the time is up."""
    if reports.ready_message_by_host.keys() == hosts:
        return True
    for _event in _yield_events(launch, reports, end_s):
        if reports.ready_message_by_host.keys() == hosts:
            return True
        ended_hosts = reports.guard_report_by_host.keys() | (hosts - set(launch.running))
        reports.unstarted_hosts = ended_hosts - reports.ready_message_by_host.keys()
        if ended_hosts:
            return False
    return False


def _yield_rows(
    launch: Launch,
    reports: RankReports,
    spec: CollectiveSpec,
    end_s: float,
    on_progress: ProgressCallback,
    *,
    keep_ranks: bool,
) -> Iterator[dict[str, Any]]:
    """Yield rows as they arrive, until all ranks have ended (or, with `keep_ranks`, until all are done).

    Disconnects as soon as a rank is lost, because the others would wait for it.
    """
    for event in _yield_events(launch, reports, end_s):
        if event == "row":
            row = reports.rows[-1]
            progress_text = f"{spec.topology}, {row['configuration']}, {row['size']} B"
            on_progress(len(reports.rows), spec.row_count, progress_text)
            yield row
        if reports.has_failed or (reports.ready_message_by_host.keys() - reports.done_hosts) - set(
            launch.running
        ):
            launch.close_input()
        elif keep_ranks and reports.done_hosts == reports.ready_message_by_host.keys():
            return


def _yield_events(launch: Launch, reports: RankReports, end_s: float) -> Iterator[str]:
    """Yield the kind of each event as it arrives, and "" at each poll, until all ranks have ended or time is up."""
    while launch.running and (remaining_s := end_s - time.monotonic()) > 0:
        for host, line in launch.read_lines(min(POLL_INTERVAL_S, remaining_s)):
            yield reports.store_event(host, line)
        yield ""
    for host, line in launch.read_lines(0):
        yield reports.store_event(host, line)


def _make_job(lab: Lab, spec: CollectiveSpec, reports: RankReports, deadline_s: float) -> dict[str, Any]:
    first_host, route_sets = lab.hosts[0], spec.sets
    return {
        "nodes": len(lab.hosts),
        "backend": _choose_backend(spec, reports.ready_message_by_host),
        "store": f"{first_host.management}:{reports.ready_message_by_host[first_host.name]['store_port']}",
        "addresses": [str(host.address) for host in lab.hosts],
        "nics": [[nic.name for nic in host.nics] for host in lab.hosts],
        "timeout_s": deadline_s,
        "min_time_s": spec.min_time_s,
        "min_iterations": spec.min_iterations,
        "max_iterations": spec.max_iterations,
        "max_time_s": spec.max_time_s,
        "configurations": [
            configuration.as_json()
            | ({"weights": compute_weights(configuration, route_sets)} if route_sets else {})
            for configuration in spec.configurations
        ],
        **(
            {
                "set_addresses": [
                    [str(address) for address in list_set_addresses(host)[: route_sets.set_count]]
                    for host in lab.hosts
                ]
            }
            if route_sets
            else {}
        ),
    }


def _drop_route_sets_for_nccl(spec: CollectiveSpec, reports: RankReports) -> CollectiveSpec:
    """Return the spec without sets of routes if NCCL is used, because NCCL chooses its own connections."""
    return (
        spec if _choose_backend(spec, reports.ready_message_by_host) == "gloo" else replace(spec, sets=None)
    )


def _choose_backend(spec: CollectiveSpec, ready_messages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the backend that all ranks use.

    Raises `CollectiveError` if NCCL is requested although a host has no GPU or a configuration is an exchange.
    """
    exchange_names = [
        configuration.name
        for configuration in spec.configurations
        if not configuration.collective.runs_on_gpus
    ]
    if exchange_names and spec.backend == "nccl":
        raise CollectiveError(
            f"{exchange_names[0]}: transfers between pairs are measured with the backend 'gloo' only; choose it"
        )
    hosts_without_gpus = [host for host, message in ready_messages.items() if not message["gpus"]]
    if spec.backend == "auto":
        return "gloo" if hosts_without_gpus or exchange_names else "nccl"
    if spec.backend == "nccl" and hosts_without_gpus:
        hosts_text = ", ".join(sorted(hosts_without_gpus))
        raise CollectiveError(
            f"no GPU that torch can use on {hosts_text}: choose the backend 'gloo', or "
            "'auto' to use what all hosts have"
        )
    return spec.backend


def _make_result(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, reports: RankReports
) -> CollectiveResult:
    spec = _drop_route_sets_for_nccl(spec, reports)
    timings = tuple(make_timing(lab, wiring, routes, spec, row) for row in reports.rows)
    nic_bytes = tuple(
        entry for row in reports.rows for entry in yield_nic_bytes(lab, wiring, routes, spec, row)
    )
    backend = _choose_backend(spec, reports.ready_message_by_host)
    versions = {
        **next(iter(reports.ready_message_by_host.values()))["versions"],
        "collective_backend": backend,
    }
    return CollectiveResult(
        timings,
        nic_bytes,
        versions,
        reports.processor_s,
        tuple(figures for row in reports.rows for figures in yield_rank_figures(lab, spec, row)),
        tuple(
            figures for row in reports.rows for figures in yield_flow_figures(lab, wiring, routes, spec, row)
        ),
        tuple(figures for row in reports.rows for figures in yield_link_figures(lab, wiring, spec, row)),
    )


def model_collectives(
    lab: Lab, wiring: Wiring, routes: Routes, spec: CollectiveSpec, on_progress: ProgressCallback
) -> CollectiveResult:
    """Return estimates of the flow model in place of measurements. `iterations` is 0, because nothing ran."""
    cases = [(configuration, size) for configuration in spec.configurations for size in configuration.sizes]
    timings = []
    for case_number, (configuration, size) in enumerate(cases, start=1):
        link = lab.link
        time_s = configuration.collective.predict_time_s(
            wiring, routes, configuration, size, link.rate_mbps, link.mtu
        )
        row = {
            "configuration": configuration.name,
            "size": size,
            "iterations": 0,
            "wrong": (),
            **_IDLE_PROCESSOR_COLUMNS,
        }
        row |= dict.fromkeys(_TIME_COLUMNS, time_s * 1e6)
        timings.append(replace(make_timing(lab, wiring, routes, spec, row), simulated=True, hosts="model"))
        on_progress(case_number, len(cases), f"{spec.topology}, {configuration.name}, {size} B (modelled)")
    return CollectiveResult(tuple(timings), (), {"host_python": f"model ({platform.python_version()})"})
