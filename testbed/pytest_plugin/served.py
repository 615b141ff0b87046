"""A whole lab of a service for one test: leased for it, and restored by a rollback.

The test's commands become runs of the service, with its own lab file, journal and audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from testbed.errors import VerifyFailed
from testbed.leases.heartbeat import TTL_S
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import LabNeeds
from testbed.pytest_plugin.options import LabOptions
from testbed.scripting.backends import ServiceBackend

if TYPE_CHECKING:
    from testbed.client import Client

MAX_WAIT_S = 3600.0
"""The longest `wait` of `testbed lease request`."""


@contextmanager
def lease_served_lab(needs: LabNeeds, options: LabOptions, test_name: str) -> Iterator[LabOfTest]:
    """Lease a lab of a service, and roll back to the earlier epoch at the end. Skip the test if the lab does not fit.

    Raises `LeaseDenied`, and the errors of the client if the service does not answer or refuses.
    """
    from testbed.client import connect, connect_async

    assert options.server is not None, "the caller has looked"
    with connect(options.server) as client:
        name = _choose_lab(client, options, needs)
        backend = ServiceBackend(client, name, partial(connect_async, options.server))
        lab = LabOfTest(backend, options.hosts_choice, options.really_move)
        wait_s = min(options.wait_s, MAX_WAIT_S)
        with lab.lease(ttl=f"{TTL_S:g}s", wait=wait_s, reason=f"pytest: {test_name}"):
            epoch = _find_epoch(lab, name)
            try:
                yield lab
            finally:
                _roll_back_lab(lab, name, epoch)


def _choose_lab(client: Client, options: LabOptions, needs: LabNeeds) -> str:
    """Return the name of --lab-name, or of the only lab. Skips the test if the lab does not fit it."""
    lab_names = [lab_document["name"] for lab_document in client.list_labs()]
    if options.name not in lab_names and (options.name or len(lab_names) != 1):
        raise pytest.UsageError(
            f"--lab-server {options.server} has the labs {', '.join(lab_names) or '(none)'}: choose one with "
            "--lab-name"
        )
    lab = client.lab(options.name or lab_names[0])
    suitable_hosts = [host for host in lab.read("hosts")["hosts"] if len(host["nics"]) >= (needs.degree or 1)]
    if len(suitable_hosts) < (needs.host_count or 1):
        _skip(
            lab.name,
            f"it has {len(suitable_hosts)} hosts of {needs.degree or 1} NICs, and {needs.host_count or 1} are needed",
        )
    if needs.gpu_count_per_host or needs.needs_board:
        _skip(lab.name, "a service does not report GPUs and boards: pass a lab file with --lab")
    maintenance: Any = lab.read_state().get("maintenance")
    if maintenance:
        _skip(lab.name, f"it is under maintenance: {maintenance.get('reason', '')}")
    return lab.name


def _find_epoch(lab: LabOfTest, name: str) -> int:
    """Return the current epoch. Skip the test unless this epoch is verified, because a rollback needs it."""
    epochs = lab.epochs()
    if not epochs:
        _skip(name, "no epoch is in force on it to go back to: `testbed apply` first")
    if not epochs[0].verified:
        _skip(
            name, f"it is marked broken: epoch {epochs[0].id} is {epochs[0].state}; `testbed apply` proves it"
        )
    return epochs[0].id


def _roll_back_lab(lab: LabOfTest, name: str, epoch: int) -> None:
    if lab.epochs()[0].id == epoch:
        return
    rollback = lab.rollback(epoch=epoch)
    if not rollback.verified:
        details = "; ".join(finding.detail for finding in rollback.findings)
        raise VerifyFailed(f"epoch {epoch} of lab '{name}' is restored, but not verified: {details}")


def _skip(name: str, reason: str) -> NoReturn:
    pytest.skip(f"lab '{name}': {reason}")
