"""`testbed switch ADDRESS ...` on a switch that a lab of the database has moved: its leases and its stop hold there."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.lab.control import send_request
from testbed.leases.choice import select_lease


def held_by(up):
    truth = send_request(up[0].control_addresses["ocs1"], {"do": "truth"})
    return [tuple(pair) for pair in truth["connections"]]


@pytest.fixture
def write(testbed, up, after):
    """Return a function that takes a circuit down by the address of its switch."""
    after(1)
    lab = up[0].lab
    port = lab.hosts[0].nics[0].transmit.port

    def run(*options):
        ran = testbed("switch", lab.switches[0].address, "disconnect", port, *options, "--json")
        return ran.code, ran.json.get("error", {}).get("code"), ran.json.get("changed")

    yield run
    select_lease("")


def test_the_lease_of_somebody_else_is_respected_and_one_s_own_is_named(testbed, up, write):
    output = dict(held_by(up))[up[0].lab.hosts[0].nics[0].transmit.port]
    wanted = ("host:a", f"port:ocs1/{output}")  # its other end is the port of another host
    (lease,) = testbed("lease", "request", up[1], *wanted, "--json").json["leases"]
    assert write() == (1, "lease.denied", None)
    assert write("--lease", "20260101T000000-abcdef") == (1, "lease.denied", None)
    assert write("--lease", lease["id"]) == (0, None, True)
    assert testbed("lease", "release", up[1], lease["id"]).code == 0
    assert write() == (0, None, False)


def test_the_stop_and_the_maintenance_of_the_lab_hold(testbed, up, write):
    assert testbed("stop", up[1]).code == 0
    assert write() == (1, "operation.stopped", None)
    assert testbed("stop", up[1], "--release").code == 0
    assert testbed("maintenance", "on", up[1]).code == 0
    assert write() == (1, "maintenance", None)
    assert testbed("maintenance", "off", up[1]).code == 0
    assert write() == (0, None, True)


def test_a_directory_of_runs_that_knows_no_such_lab_holds_nothing(write, tmp_path):
    assert write("--runs-dir", tmp_path / "others") == (0, None, True)
    assert not (tmp_path / "others").exists()
