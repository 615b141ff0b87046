"""A switch that is written by its address alone is held as whoever moves its lab holds it."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import JournalError, LeaseDenied, UnderMaintenance
from testbed.leases.choice import select_lease
from testbed.leases.listing import read_leases
from testbed.leases.model import find_parts
from testbed.leases.store import LeaseStore
from testbed.operate.design import build_design
from testbed.operate.direct import find_labs_with_switch, lease_ports
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.journal import open_journal
from testbed.operate.session import LabSession
from testbed.operation_errors import OperationStopped

ADDRESS = "polatis+scpi://10.99.0.2:5025"
SAME = "polatis+tl1://10.99.0.2:3082"


@pytest.fixture
def leases(testbed12, memory_switch, tmp_path):
    """Provide the leases of a lab whose switch has been moved for it."""
    with open_journal(tmp_path) as journal:
        switch = memory_switch(address=ADDRESS)
        LabSession(testbed12, {"ocs1": switch}, None, journal).bring_up(build_design(testbed12))
        yield LeaseStore(journal.database, testbed12.name)


@pytest.fixture
def parts(testbed12):
    return lambda *resources: find_parts(testbed12, resources)


def write(runs_dir, address, *ports):
    with lease_ports(runs_dir, address, frozenset(ports)):
        pytest.fail("written")


def test_a_switch_that_no_lab_has_moved_belongs_to_nobody(tmp_path):
    with lease_ports(tmp_path, ADDRESS, frozenset({1})):
        assert not any(tmp_path.iterdir()), "and nothing is written for it"


def test_the_journal_tells_whose_switch_it_is(leases, tmp_path):
    assert (
        find_labs_with_switch(tmp_path, ADDRESS)
        == find_labs_with_switch(tmp_path, SAME)
        == {"testbed12": {"ocs1"}}
    )
    assert find_labs_with_switch(tmp_path, "polatis+scpi://10.99.0.3:5025") == {}
    assert find_labs_with_switch(tmp_path, "polatis+scpi://10.99.0.2:5026") == {}, (
        "another device behind the same host"
    )


def test_a_port_that_somebody_has_leased_is_not_written(leases, parts, tmp_path):
    lease = leases.request(["host:a"], parts("host:a"))
    port = min(int(part.rpartition("/")[2]) for part in lease.parts if part.startswith("port:"))
    with pytest.raises(LeaseDenied, match=f"lease {lease.id} of .* holds port:ocs1/{port}"):
        write(tmp_path, SAME, port)
    with lease_ports(tmp_path, ADDRESS, frozenset({48})):
        held = [one for one in read_leases(leases.database.address, "testbed12") if one.is_implicit]
        assert [one.parts for one in held] == [{"port:ocs1/48"}]
        assert [one.id for one in leases.find_sending_leases()] == [held[0].id], (
            "its end waits for what is sent"
        )
    assert leases.find_sending_leases() == ()


def test_under_its_lease_a_port_is_written(leases, parts, tmp_path, request):
    request.addfinalizer(lambda: select_lease(""))
    lease = leases.request(["port:ocs1/1"], parts("port:ocs1/1"))
    select_lease(lease.id)
    with lease_ports(tmp_path, ADDRESS, frozenset({1})):
        assert [one.id for one in leases.find_sending_leases()] == [lease.id]
    with pytest.raises(LeaseDenied, match="does not cover port:ocs1/2"):
        write(tmp_path, ADDRESS, 1, 2)


def test_a_lease_is_no_lease_of_a_switch_of_nobody(leases, tmp_path, request):
    request.addfinalizer(lambda: select_lease(""))
    select_lease("20260101T000000-abcdef")
    with pytest.raises(LeaseDenied, match=r"no lab of the database .* has changed"):
        write(tmp_path, "polatis+scpi://10.99.0.9:5025", 1)


def test_a_stopped_lab_and_one_under_maintenance_are_not_written(leases, tmp_path):
    stop = EmergencyStop(tmp_path, "testbed12")
    stop.activate("smoke")
    with pytest.raises(OperationStopped, match="smoke"):
        write(tmp_path, ADDRESS, 1)
    stop.release()
    leases.set_maintenance("hands in the rack")
    with pytest.raises(UnderMaintenance):
        write(tmp_path, ADDRESS, 1)


def test_a_database_that_cannot_be_read_lets_nothing_be_written(tmp_path):
    (tmp_path / "lightbed.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(JournalError, match=r"cannot find out whether .* is part of a lab"):
        write(tmp_path, ADDRESS, 1)
