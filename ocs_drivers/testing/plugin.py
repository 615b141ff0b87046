"""The pytest plugin behind `python -m ocs_drivers.testing`: options, the switch, and the record."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import OcsError
from ocs_drivers.families import open_switch
from ocs_drivers.testing.ports import FreePorts, find_free_ports
from ocs_drivers.testing.record import Record, write_record

Control = Callable[..., dict[str, Any]]
"""`control("set_fault", fault="stuck", pair=[1, 49])` asks a simulated switch; the reply is checked."""

_record = pytest.StashKey[Record]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("optical switch conformance")
    group.addoption("--switch", metavar="ADDRESS", help="the switch under test")
    group.addoption("--switch-control", metavar="HOST:PORT", help="control socket, of a simulated switch")
    group.addoption("--switch-timeout", type=float, default=5.0, metavar="SECONDS")
    group.addoption(
        "--free-ports",
        metavar="INPUTS:OUTPUTS",
        help="ports that may be moved, such as 1-8:49-56; `all` takes the whole switch over",
    )
    group.addoption("--record-to", type=Path, metavar="FILE", help="write a record of the run")
    group.addoption("--sign-with", type=Path, metavar="KEY", help="OpenSSH private key to sign the record")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a record."""
    config.stash[_record] = Record(config.getoption("--switch") or "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note how each test ended; what failed in setting up or clearing away counts as failed."""
    report = yield
    results = item.config.stash[_record].results
    if report.when == "call" or not report.passed:
        reason = f": {report.longrepr[2]}" if report.skipped and isinstance(report.longrepr, tuple) else ""
        if results.get(item.name) != "failed":
            results[item.name] = report.outcome + reason
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record."""
    path = session.config.getoption("--record-to")
    if path is not None and session.config.stash[_record].results:
        key = session.config.getoption("--sign-with")
        try:
            write_record(session.config.stash[_record], path, sign_with=key)
        except OcsError as error:
            pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def switch_address(request: pytest.FixtureRequest) -> str:
    """Return the address given with `--switch`."""
    address: str | None = request.config.getoption("--switch")
    if address is None:
        pytest.skip("no switch named: give --switch ADDRESS")
    return address


@pytest.fixture
def switch(request: pytest.FixtureRequest, switch_address: str) -> Iterator[OpticalSwitch]:
    """Yield the switch, open."""
    with open_switch(switch_address, timeout_s=request.config.getoption("--switch-timeout")) as switch:
        request.config.stash[_record].describe(switch)
        yield switch


@pytest.fixture
def free_ports(request: pytest.FixtureRequest, switch: OpticalSwitch) -> FreePorts:
    """Return the ports that the operator named free. Fails when they carry circuits: then they are not."""
    named: str | None = request.config.getoption("--free-ports")
    if named is None:
        pytest.fail("which ports are free? Give --free-ports INPUTS:OUTPUTS, or `all` for the whole switch")
    return find_free_ports(switch, named)


@pytest.fixture
def control(request: pytest.FixtureRequest) -> Iterator[Control]:
    """Yield the control socket of a simulated switch; faults are cleared afterwards."""
    address: str | None = request.config.getoption("--switch-control")
    if address is None:
        pytest.skip("a real switch has no faults to set: no --switch-control")
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rw") as lines:

        def ask(verb: str, **fields: Any) -> dict[str, Any]:
            lines.write(json.dumps({"do": verb, **fields}) + "\n")
            lines.flush()
            reply: dict[str, Any] = json.loads(lines.readline())
            assert reply["ok"], reply
            return reply

        yield ask
        ask("clear_fault", fault="all")
