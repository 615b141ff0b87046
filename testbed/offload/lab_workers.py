"""A scheduler and workers on the hosts of a lab, started over SSH and bound to the management network only."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import OffloadError
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab, LabHost
from testbed.leases.listing import read_leases
from testbed.offload.configuration import DEFAULT_RUNS, Tls
from testbed.offload.dask_engine import DaskEngine
from testbed.offload.local_workers import make_scheduler_command, make_tls_options, make_worker_command
from testbed.storage.address import get_database_address
from testbed.storage.reading import is_database_error

SCHEDULER_PORT = 8786
CHECK_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
_CERTIFICATE_FILES = {"ca_file": "ca.pem", "certificate": "certificate.pem", "key": "key.pem"}


def make_lease_lister(lab: str, runs_folder: Path) -> Callable[[], frozenset[str]]:
    """Return a function that reads the leases of a lab and names the jobs that may share the workers' hosts.

    It returns a name for each lease in force, and excludes implicit leases of single operations. While the database
    cannot be read, it returns its last result.
    """
    address, last_names = get_database_address(runs_folder), frozenset[str]()

    def find_leases() -> frozenset[str]:
        nonlocal last_names
        try:
            leases = read_leases(address, lab)
        except Exception as error:
            if not is_database_error(error):
                raise
            return last_names
        held_leases = (lease for lease in leases if lease.is_held and not lease.is_implicit)
        last_names = frozenset(f"lease {lease.id}" for lease in held_leases if lease.expires_s > time.time())
        return last_names

    return find_leases


@contextmanager
def open_lab_engine(
    path: Path,
    runs_folder: Path = DEFAULT_RUNS,
    worker_count: int | None = None,
    *,
    tls: Tls | None = None,
    weights: Mapping[str, float] | None = None,
) -> Iterator[DaskEngine]:
    """Start workers on the first `worker_count` hosts of a lab file (default: all), and yield an engine with them.

    Each lease in the database of `runs_folder` counts as one job that shares the hosts. Raises the errors of
    `start_lab_workers`.
    """
    lab = load_lab(path)
    hosts = lab.hosts if worker_count is None else lab.hosts[:worker_count]
    with start_lab_workers(lab, hosts, tls) as address:
        yield DaskEngine(
            address, tls=tls, weights=weights, list_other_jobs=make_lease_lister(lab.name, runs_folder)
        )


@contextmanager
def start_lab_workers(
    lab: Lab,
    hosts: tuple[LabHost, ...],
    tls: Tls | None = None,
    python_by_host: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Start a scheduler on the first of these hosts and a worker on each, and yield the scheduler's address.

    All bind the management address of their host, so that preprocessing never uses an optical link. They end with their
    SSH session. `python_by_host` maps host names to interpreters and overrides the lab file. Raises `OffloadError` if
    an interpreter has no `distributed`.
    """
    if not hosts:
        raise OffloadError("no hosts to start workers on: name at least 1")
    interpreter_by_host = {host.name: host.python for host in hosts} | dict(python_by_host or {})
    with SshFleet(lab) as fleet:
        _check_dask(fleet, {host.name: interpreter_by_host[host.name] for host in hosts})
        options: list[str] = []
        if tls is not None:
            copies_folder = fleet.put(
                {name: getattr(tls, part).read_bytes() for part, name in _CERTIFICATE_FILES.items()}
            )
            options = make_tls_options(
                Tls(**{part: Path(copies_folder) / name for part, name in _CERTIFICATE_FILES.items()})
            )
        first_host = hosts[0]
        protocol = "tls" if tls else "tcp"
        address = f"{protocol}://{first_host.management}:{SCHEDULER_PORT}"
        arguments = make_scheduler_command(str(first_host.management), SCHEDULER_PORT, protocol)
        scheduler_command = _make_command(interpreter_by_host[first_host.name], arguments, options)
        with fleet.start({first_host.name: scheduler_command}):
            _await_listening(fleet, first_host)
            worker_command_by_host = {
                host.name: _make_command(
                    interpreter_by_host[host.name],
                    make_worker_command(address, str(host.management), host.name),
                    options,
                )
                for host in hosts
            }
            with fleet.start(worker_command_by_host):
                yield address


def _make_command(python: str, arguments: list[str], options: list[str]) -> str:
    """Return a shell command that discards its output and uses one thread for arithmetic."""
    return f"OMP_NUM_THREADS=1 exec {shlex.join([python, *arguments, *options])} >/dev/null 2>&1"


def _check_dask(fleet: SshFleet, interpreter_by_host: dict[str, str]) -> None:
    """Raise `OffloadError`, which names the hosts, if an interpreter cannot import `distributed`."""
    command_by_host = {
        name: f"{shlex.join([python, '-c', 'import distributed'])} 2>&1"
        for name, python in interpreter_by_host.items()
    }
    failed_hosts = [
        name
        for name, result in fleet.run(command_by_host, timeout_s=CHECK_TIMEOUT_S).items()
        if result.exit_status
    ]
    if failed_hosts:
        raise OffloadError(
            f"{interpreter_by_host[failed_hosts[0]]} on {', '.join(failed_hosts)} cannot import `distributed`: "
            "install it there, with the libraries that the transforms import"
        )


def _await_listening(fleet: SshFleet, first_host: LabHost) -> None:
    """Wait until the scheduler listens. Raises `OffloadError` after `START_TIMEOUT_S`."""
    listen_check = f"ss -ltnH 'src {first_host.management} and sport = :{SCHEDULER_PORT}' | grep -q ."
    wait_loop = (
        f"for i in $(seq {int(START_TIMEOUT_S / 0.2)}); do {listen_check} && exit 0; sleep 0.2; done; exit 1"
    )
    if fleet.run({first_host.name: wait_loop}, timeout_s=START_TIMEOUT_S + 10)[first_host.name].exit_status:
        raise OffloadError(
            f"the scheduler on {first_host.name} does not listen at {first_host.management}:{SCHEDULER_PORT}: is the"
            " port in use?"
        )
