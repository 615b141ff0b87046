"""A scheduler and workers on the hosts of a lab, over SSH, bound to the management network and to nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import OffloadError
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab, LabHost
from testbed.offload.configuration import Tls
from testbed.offload.local_workers import scheduler_command, tls_options, worker_command

PORT = 8786
CHECK_S = 60.0
START_S = 60.0
_FILES = {"ca_file": "ca.pem", "certificate": "certificate.pem", "key": "key.pem"}


@contextmanager
def workers_on_lab(path: Path, count: int | None = None, tls: Tls | None = None) -> Iterator[str]:
    """Provide the address of a scheduler whose workers are the first `count` hosts of a lab file; see `workers_on`."""
    lab = load_lab(path)
    with workers_on(lab, lab.hosts if count is None else lab.hosts[:count], tls) as address:
        yield address


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
        raise OffloadError("no hosts to start workers on: name 1 or more")
    interpreters = {host.name: host.python for host in hosts} | dict(python or {})
    with SshFleet(lab) as fleet:
        _check_dask(fleet, {host.name: interpreters[host.name] for host in hosts})
        options = _certificates(fleet, tls)
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


def _certificates(fleet: SshFleet, tls: Tls | None) -> list[str]:
    """Copy the files of certificates to the hosts, and return the options that name them there."""
    if tls is None:
        return []
    folder = fleet.put({name: getattr(tls, part).read_bytes() for part, name in _FILES.items()})
    return tls_options(Tls(**{part: Path(folder) / name for part, name in _FILES.items()}))


def _await_listening(fleet: SshFleet, head: LabHost) -> None:
    """Wait until the scheduler listens. Raises `OffloadError` when it does not."""
    listens = f"ss -ltnH 'src {head.management} and sport = :{PORT}' | grep -q ."
    wait = f"for i in $(seq {int(START_S / 0.2)}); do {listens} && exit 0; sleep 0.2; done; exit 1"
    if fleet.run({head.name: wait}, timeout_s=START_S + 10)[head.name].exit_status:
        raise OffloadError(
            f"the scheduler on {head.name} does not listen at {head.management}:{PORT}: is the port taken by another?"
        )
