"""The pytest plugin behind `python -m ocs_drivers.testing`: options, the switch, and the record.

The record is a JSON document with the switch, the result of each test, and a SHA-256 over its content. With
`--sign-with`, an OpenSSH private key, a signature is written next to it (`FILE.sig`, namespace `lightbed-conformance`).
Check it with the public key:

    ssh-keygen -Y verify -f allowed_signers -I lab -n lightbed-conformance -s FILE.sig < FILE

The digest detects damage, and the signature shows who signed the record. Neither proves that the device was real. The
serial number of a simulated switch starts with `SIM`.
"""

from __future__ import annotations

import json
import platform
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from lightbed.output_file import write_output
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import OcsError
from ocs_drivers.families import open_switch
from ocs_drivers.testing.ports import FreePorts, find_free_ports

NAMESPACE = "lightbed-conformance"

Control = Callable[..., dict[str, Any]]
"""`control("set_fault", fault="stuck", pair=[1, 49])` sends a request to a simulated switch and checks the reply."""


def format_utc_now() -> str:
    """Return the current UTC time in the format of records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RecordError(OcsError, code="ocs.record", who="user"):
    """The record cannot be signed, or was modified."""


@dataclass(slots=True)
class Record:
    """Results of one run; `result_by_test` maps each test to passed, failed or skipped with the reason."""

    address: str
    result_by_test: dict[str, str] = field(default_factory=dict)
    switch: dict[str, Any] = field(default_factory=dict)
    start_time: str = field(default_factory=format_utc_now)

    def describe(self, switch: OpticalSwitch) -> None:
        """Add the address, identity, capabilities and driver of the switch."""
        self.address = switch.address
        self.switch = {
            "identity": asdict(switch.identity()),
            "capabilities": asdict(switch.capabilities),
            "driver": f"{type(switch).__module__}.{type(switch).__qualname__}",
            "simulated": switch.identity().serial.startswith("SIM"),
        }

    def make_document(self) -> dict[str, Any]:
        """Return the record with its digest, as a JSON document."""
        content = {
            "record": NAMESPACE,
            "address": self.address,
            "switch": self.switch,
            "lightbed": _find_version(),
            "python": platform.python_version(),
            "started": self.start_time,
            "ended": format_utc_now(),
            "results": dict(sorted(self.result_by_test.items())),
        }
        return {**content, "sha256": compute_digest(content)}


def compute_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content as canonical JSON, without its own `sha256`.

    >>> compute_digest({"a": 1}) == compute_digest({"a": 1, "sha256": "anything"})
    True
    """
    hashed_content = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(hashed_content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def write_record(record: Record, path: Path, *, signing_key: Path | None = None) -> None:
    """Write the record, and its signature if a key is given. Raise `RecordError` if signing fails."""
    write_output(path, json.dumps(record.make_document(), indent=1, sort_keys=True) + "\n")
    if signing_key is None:
        return
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(signing_key), "-n", NAMESPACE, str(path)]
    path.with_name(path.name + ".sig").unlink(missing_ok=True)
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip()
        raise RecordError(
            f"the record {path} was written but could not be signed: {reason}",
            hint="Give an OpenSSH private key that needs no passphrase or is in the agent.",
        ) from error


def read_record(path: Path) -> dict[str, Any]:
    """Read a record. Raise `RecordError` if its digest does not match."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document.get("sha256") != compute_digest(document):
        raise RecordError(f"{path} was modified after it was written", hint="Run the suite again.")
    return document


def _find_version() -> str:
    try:
        return version("lightbed")
    except PackageNotFoundError:  # used from a checkout that was never installed
        return "unknown"


_record = pytest.StashKey[Record]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("optical switch conformance")
    group.addoption("--switch", metavar="ADDRESS", help="the switch under test")
    group.addoption("--switch-control", metavar="HOST:PORT", help="control socket of a simulated switch")
    group.addoption("--switch-timeout", type=float, default=5.0, metavar="SECONDS")
    group.addoption(
        "--free-ports",
        metavar="INPUTS:OUTPUTS",
        help="ports that may be changed, such as 1-8:49-56; `all` uses the whole switch",
    )
    group.addoption("--record-to", type=Path, metavar="FILE", help="write a record of the run")
    group.addoption("--sign-with", type=Path, metavar="KEY", help="OpenSSH private key to sign the record")


def pytest_configure(config: pytest.Config) -> None:
    """Start a record."""
    config.stash[_record] = Record(config.getoption("--switch") or "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Record the result of each test; a test with a failed setup or teardown is failed."""
    report = yield
    results = item.config.stash[_record].result_by_test
    if report.when == "call" or not report.passed:
        reason = f": {report.longrepr[2]}" if report.skipped and isinstance(report.longrepr, tuple) else ""
        if results.get(item.name) != "failed":
            results[item.name] = report.outcome + reason
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record."""
    path = session.config.getoption("--record-to")
    if path is not None and session.config.stash[_record].result_by_test:
        key = session.config.getoption("--sign-with")
        try:
            write_record(session.config.stash[_record], path, signing_key=key)
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
    """Yield the switch, opened and described in the record."""
    with open_switch(switch_address, timeout_s=request.config.getoption("--switch-timeout")) as switch:
        request.config.stash[_record].describe(switch)
        yield switch


@pytest.fixture
def free_ports(request: pytest.FixtureRequest, switch: OpticalSwitch) -> FreePorts:
    """Return the ports of `--free-ports`. Raise `AddressError` if they carry circuits."""
    free_text: str | None = request.config.getoption("--free-ports")
    if free_text is None:
        pytest.fail("which ports are free? Give --free-ports INPUTS:OUTPUTS, or `all` for the whole switch")
    return find_free_ports(switch, free_text)


@pytest.fixture
def control(request: pytest.FixtureRequest) -> Iterator[Control]:
    """Yield a function for the control socket of a simulated switch; clear all faults afterwards."""
    address: str | None = request.config.getoption("--switch-control")
    if address is None:
        pytest.skip("a real switch has no faults to set: no --switch-control")
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rw") as stream:

        def ask(verb: str, **fields: Any) -> dict[str, Any]:
            stream.write(json.dumps({"do": verb, **fields}) + "\n")
            stream.flush()
            reply: dict[str, Any] = json.loads(stream.readline())
            assert reply["ok"], reply
            return reply

        yield ask
        ask("clear_fault", fault="all")
