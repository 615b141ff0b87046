"""A scheduler and workers on the hosts of a lab, over SSH, bound to the management network and to nothing else."""

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
from testbed.offload.configuration import RUNS, Tls
from testbed.offload.dask_engine import DaskEngine
from testbed.offload.local_workers import scheduler_command, tls_options, worker_command
from testbed.storage.address import address_in
from testbed.storage.looking import is_database_error

PORT = 8786
CHECK_S = 60.0
START_S = 60.0
_FILES = {"ca_file": "ca.pem", "certificate": "certificate.pem", "key": "key.pem"}


def jobs_of(lab: str, runs: Path) -> Callable[[], frozenset[str]]:
    """Return a function that names the leases held on a lab: jobs whose hosts may be those of the workers.

    Leases of single operations are left out. While the database cannot be read the last answer holds.
    """
    address, last = address_in(runs), frozenset[str]()

    def find_leases() -> frozenset[str]:
        nonlocal last
        try:
            found = read_leases(address, lab)
        except Exception as error:
            if not is_database_error(error):
                raise
            return last
        living = (each for each in found if each.is_held and not each.is_implicit)
        last = frozenset(f"lease {each.id}" for each in living if each.expires_s > time.time())
        return last

    return find_leases


@contextmanager
def engine_on_lab(
    path: Path,
    runs: Path = RUNS,
    workers: int | None = None,
    *,
    tls: Tls | None = None,
    weights: Mapping[str, float] | None = None,
) -> Iterator[DaskEngine]:
    """Provide an engine whose workers are the first hosts of a lab file, or all; see `workers_on`.

    Leases of the lab, as the database of `runs` has them, count as jobs that share the hosts.
    """
    lab = load_lab(path)
    hosts = lab.hosts if workers is None else lab.hosts[:workers]
    with workers_on(lab, hosts, tls) as address:
        yield DaskEngine(address, tls=tls, weights=weights, others=jobs_of(lab.name, runs))


@contextmanager
def workers_on(
    lab: Lab, hosts: tuple[LabHost, ...], tls: Tls | None = None, python: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Provide the address of a scheduler on the first of some hosts, with a worker on each, until the block ends.

    All of them bind their management address, so that no byte of the preprocessing takes an optical link, and end with
    their session of SSH. `python` names another interpreter of a host than the lab file's. Raises `OffloadError` when
    one has no `distributed`.
    """
    if not hosts:
        raise OffloadError("no hosts to start workers on: name at least 1")
    interpreters = {host.name: host.python for host in hosts} | dict(python or {})
    with SshFleet(lab) as fleet:
        _check_dask(fleet, {host.name: interpreters[host.name] for host in hosts})
        options: list[str] = []
        if tls is not None:  # the hosts get copies of the files of certificates
            copies = fleet.put({name: getattr(tls, part).read_bytes() for part, name in _FILES.items()})
            options = tls_options(Tls(**{part: Path(copies) / name for part, name in _FILES.items()}))
        head = hosts[0]
        protocol = "tls" if tls else "tcp"
        address = f"{protocol}://{head.management}:{PORT}"
        arguments = scheduler_command(str(head.management), PORT, protocol)
        scheduler = _command(interpreters[head.name], arguments, options)
        with fleet.start({head.name: scheduler}):
            _await_listening(fleet, head)
            workers = {
                host.name: _command(
                    interpreters[host.name], worker_command(address, str(host.management), host.name), options
                )
                for host in hosts
            }
            with fleet.start(workers):
                yield address


def _command(python: str, arguments: list[str], options: list[str]) -> str:
    """Return a command whose processes take one core each, and that says nothing on standard output."""
    return f"OMP_NUM_THREADS=1 exec {shlex.join([python, *arguments, *options])} >/dev/null 2>&1"


def _check_dask(fleet: SshFleet, interpreters: dict[str, str]) -> None:
    """Raise `OffloadError` naming the hosts whose interpreter has no `distributed`."""
    asked = {
        name: f"{shlex.join([python, '-c', 'import distributed'])} 2>&1"
        for name, python in interpreters.items()
    }
    failed = [name for name, done in fleet.run(asked, timeout_s=CHECK_S).items() if done.exit_status]
    if failed:
        raise OffloadError(
            f"{interpreters[failed[0]]} on {', '.join(failed)} cannot import `distributed`: install it there, with what"
            " the transforms import"
        )


def _await_listening(fleet: SshFleet, head: LabHost) -> None:
    """Wait until the scheduler listens. Raises `OffloadError` when it does not."""
    listens = f"ss -ltnH 'src {head.management} and sport = :{PORT}' | grep -q ."
    wait = f"for i in $(seq {int(START_S / 0.2)}); do {listens} && exit 0; sleep 0.2; done; exit 1"
    if fleet.run({head.name: wait}, timeout_s=START_S + 10)[head.name].exit_status:
        raise OffloadError(
            f"the scheduler on {head.name} does not listen at {head.management}:{PORT}: is the port in use?"
        )
