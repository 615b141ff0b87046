"""Part of a running lab for one test: leased, and restored after the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ocs_drivers.errors import OcsError
from testbed.errors import LeaseDenied, LeaseImpossible, TestbedError, UnderMaintenance
from testbed.lab.model import Lab, make_shard
from testbed.lab.simulated.lifecycle import find_hosts_in_use
from testbed.leases.choice import use_lease
from testbed.leases.fence import convert_database_errors
from testbed.leases.heartbeat import TTL_S, keep_alive
from testbed.leases.store import LeaseStore
from testbed.operate.apply import check_permission
from testbed.operate.borrow import HostRequest, LabState, OpenSession
from testbed.operate.journal import open_journal
from testbed.operate.session import LabSession, open_lab
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import LabNeeds
from testbed.pytest_plugin.options import LabOptions, skip
from testbed.scripting.backends import LocalBackend
from testbed.storage.address import get_database_address
from testbed.storage.database import Database


@contextmanager
def lease_running_lab(
    lab: Lab, lab_file: Path, needs: LabNeeds, options: LabOptions, test_name: str
) -> Iterator[LabOfTest]:
    """Lease the parts of a running lab that the test needs, and restore them after the test.

    Raises `RefusedToMove` and `LeaseDenied`. If the restore fails, its error is raised and the hosts are marked as
    faulty, so that later tests are skipped.
    """
    check_permission(lab, options.really_move)
    if needs.needs_board and not options.board:
        skip(lab, "the test needs a board, and --lab-board NAME=ADDRESS names none")
    name, _, address = (options.board or "").partition("=")
    boards = (f"board:{name}",) if needs.needs_board else ()
    are_modelled = find_hosts_in_use(lab, options.hosts_choice) == "model"
    database = Database(get_database_address(options.runs_dir))
    store = LeaseStore(database, lab.name)
    try:
        request = HostRequest(
            lab,
            needs,
            store,
            options.wait_s,
            f"pytest: {test_name}",
            TTL_S,
            boards,
            reads_gpus=bool(needs.gpu_count_per_host) and not are_modelled,
        )
        with convert_database_errors(database), hold_lease(request) as (lease, names):
            shard_lab = make_shard(lab, names)

            @contextmanager
            def open_session(shard: Lab) -> Iterator[LabSession]:
                with (
                    use_lease(lease),
                    open_journal(options.runs_dir) as journal,
                    open_lab(shard, journal, model_hosts=are_modelled) as session,
                ):
                    yield session

            with open_session(shard_lab) as session:
                earlier_state = LabState.read(session)
            lab_of_test = LabOfTest(
                LocalBackend(lab_file, options.runs_dir),
                options.hosts_choice,
                options.really_move,
                # Name the hosts even if they are all hosts: the newest epoch may belong to a test with fewer hosts.
                hosts_of=names,
                board=address if needs.needs_board else "",
            )
            lab_of_test.lease_in_use.set(lease)
            try:
                yield lab_of_test
            finally:
                _restore_lab(earlier_state, shard_lab, open_session, store, test_name)
    finally:
        database.close()


def _restore_lab(
    earlier_state: LabState, shard_lab: Lab, open_session: OpenSession, store: LeaseStore, test_name: str
) -> None:
    try:
        with open_session(shard_lab) as session:
            earlier_state.restore(session, open_session, f"restore after {test_name}")
    except (TestbedError, OcsError) as error:
        fault = f"not restored after {test_name}: {error}"
        store.write_checks({f"host:{host.name}": fault for host in shard_lab.hosts})
        raise


@contextmanager
def hold_lease(request: HostRequest) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the id of a granted lease and its hosts. Extend the lease until the end of the block, then release it.

    Skip the test if the lab can never grant the lease or is under maintenance.
    """
    try:
        lease, hosts = request.acquire()
    except (LeaseImpossible, UnderMaintenance) as error:
        skip(request.lab, str(error).removeprefix(f"lab '{request.lab.name}': "))
    try:
        with keep_alive(lambda: request.store.extend(lease.id)):
            yield lease.id, hosts
    finally:
        with suppress(LeaseDenied):  # somebody has ended the lease meanwhile
            request.store.release(lease.id)
