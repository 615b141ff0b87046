"""Jobs that share the hosts of workers: leases of a lab."""

from __future__ import annotations

from libraries import skip_without

skip_without("sqlalchemy")
skip_without("asyncssh")

from testbed.leases.store import LeaseStore
from testbed.offload.lab_workers import make_lease_lister
from testbed.storage.address import get_database_address
from testbed.storage.database import Database


def test_leases_held_on_a_lab_are_jobs(tmp_path, monkeypatch):
    """Those that wait, those of a single operation and those of another lab are not; a broken file changes nothing."""
    jobs = make_lease_lister("lab", tmp_path)
    assert jobs() == frozenset()
    database = Database(get_database_address(tmp_path))
    store = LeaseStore(database, "lab")
    first = store.request((), frozenset({"host a"}))
    assert jobs() == {f"lease {first.id}"}
    waiting = store.request((), frozenset({"host a"}))
    assert waiting.state == "queued"
    store.request_implicit(frozenset({"host b"}))
    LeaseStore(database, "another").request((), frozenset({"host a"}))
    assert jobs() == {f"lease {first.id}"}
    store.release(first.id)
    assert store.get(waiting.id).state == "granted"
    second = jobs()
    assert second == {f"lease {waiting.id}"}
    database.close()

    def unreadable(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr("testbed.offload.lab_workers.read_leases", unreadable)
    assert jobs() == second
