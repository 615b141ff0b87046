"""Part of a lab that stands, for one test: leased, and put back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ocs_drivers.errors import OcsError
from testbed.errors import TestbedError
from testbed.lab.inventory import render_lab
from testbed.lab.model import Lab
from testbed.lab.shards import shard_of
from testbed.lab.simulated.lifecycle import HostsInUse, hosts_of
from testbed.leases.fence import database_errors
from testbed.leases.store import LeaseStore
from testbed.operate.apply import check_permission
from testbed.pytest_plugin.asking import Asking, leased
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import Needs
from testbed.pytest_plugin.options import LabOptions, skip
from testbed.pytest_plugin.restoring import Before
from testbed.storage.address import address_in
from testbed.storage.database import Database


@contextmanager
def standing_lab(
    lab: Lab, needs: Needs, options: LabOptions, scratch: Path, test: str
) -> Iterator[LabOfTest]:
    """Lease what the test needs, and put it back as it was. Raises `RefusedToMove` and `LeaseDenied`.

    A lab that cannot be put back is marked broken: the error is told once, and later tests are skipped.
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
        asking = Asking(lab, needs, hosts, store, options.wait_s, test, boards)
        with database_errors(database), leased(asking) as (lease, names):
            given = LabOfTest(
                lab=shard_of(lab, names) if len(names) < len(lab.hosts) else lab,
                file=file,
                runs_dir=options.runs_dir,
                hosts=hosts,
                lease=lease.id,
                degree=needs.degree,
                board=address if needs.board else "",
            )
            before = Before.of(given, lab)
            try:
                yield given
            finally:
                _put_back(before, given, lab, store, test)
    finally:
        database.close()


def _put_back(before: Before, given: LabOfTest, lab: Lab, store: LeaseStore, test: str) -> None:
    try:
        before.put_back(given, lab, test)
    except (TestbedError, OcsError) as error:
        fault = f"not put back after {test}: {error}"
        store.write_checks({f"host:{host.name}": fault for host in given.lab.hosts})
        raise
