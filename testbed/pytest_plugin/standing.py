"""Part of a running lab for one test: leased, and restored after the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ocs_drivers.errors import OcsError
from testbed.errors import LeaseDenied, LeaseImpossible, TestbedError, UnderMaintenance
from testbed.lab.inventory import render_lab
from testbed.lab.model import Lab, shard_of
from testbed.lab.simulated.lifecycle import HostsInUse, hosts_of
from testbed.leases.fence import database_errors
from testbed.leases.heartbeat import TTL_S, keep_alive
from testbed.leases.store import LeaseStore
from testbed.operate.apply import check_permission
from testbed.operate.borrow import HostRequest, LabState
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import Needs
from testbed.pytest_plugin.options import LabOptions, skip
from testbed.storage.address import address_in
from testbed.storage.database import Database


@contextmanager
def standing_lab(
    lab: Lab, needs: Needs, options: LabOptions, scratch: Path, test: str
) -> Iterator[LabOfTest]:
    """Lease what the test needs, and restore it after the test. Raises `RefusedToMove` and `LeaseDenied`.

    A lab that cannot be restored is marked broken: the error is reported once, and later tests are skipped.
    """
    check_permission(lab, options.really_move)
    if needs.board and not options.board:
        skip(lab, "the test needs a board, and --lab-board NAME=ADDRESS names none")
    name, _, address = (options.board or "").partition("=")
    boards = (f"board:{name}",) if needs.board else ()
    hosts: HostsInUse = "model" if options.hosts == "model" else hosts_of(lab)
    database = Database(address_in(options.runs_dir))
    store = LeaseStore(database, lab.name)
    file = scratch / "lab.yaml"
    file.write_text(render_lab(lab), encoding="utf-8")
    try:
        request = HostRequest(
            lab,
            needs,
            store,
            options.wait_s,
            f"pytest: {test}",
            TTL_S,
            boards,
            reads_gpus=bool(needs.gpus) and hosts != "model",
        )
        with database_errors(database), hold_lease(request) as (lease, names):
            lab_of_test = LabOfTest(
                lab=shard_of(lab, names) if len(names) < len(lab.hosts) else lab,
                file=file,
                runs_dir=options.runs_dir,
                hosts=hosts,
                lease=lease,
                degree=needs.degree,
                board=address if needs.board else "",
            )
            with lab_of_test.session() as session:
                before = LabState.read(session)
            try:
                yield lab_of_test
            finally:
                _restore(before, lab_of_test, store, test)
    finally:
        database.close()


def _restore(before: LabState, lab_of_test: LabOfTest, store: LeaseStore, test: str) -> None:
    try:
        with lab_of_test.session() as session:
            before.restore(
                session, lambda lab: replace(lab_of_test, lab=lab).session(), f"restore after {test}"
            )
    except (TestbedError, OcsError) as error:
        fault = f"not restored after {test}: {error}"
        store.write_checks({f"host:{host.name}": fault for host in lab_of_test.lab.hosts})
        raise


@contextmanager
def hold_lease(request: HostRequest) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Provide the id of a granted lease and its hosts; it is extended until the end of the block, then released.

    Skips the test if the lab can never grant it.
    """
    try:
        lease, hosts = request.acquire()
    except (LeaseImpossible, UnderMaintenance) as error:
        skip(request.lab, str(error).removeprefix(f"lab '{request.lab.name}': "))
    try:
        with keep_alive(lambda: request.store.extend(lease.id)):
            yield lease.id, hosts
    finally:
        with suppress(LeaseDenied):  # somebody has ended it meanwhile
            request.store.release(lease.id)
