"""Lab files for tests: small, regular, on no network that exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def lab_text(hosts=3, nics=2, *, simulated=True, name="small", subnet="10.99.0") -> str:
    """Return a lab file with one switch, wired in order like labs/testbed12.yaml.

    Line 12 is the first host's `name`.
    """
    ports = hosts * nics
    lines = [
        f"name: {name}",
        f"simulated: {str(simulated).lower()}",
        f"management: {subnet}.0/24",
        "link: {rate_mbps: 100, represents_gbps: 25, mtu: 9000}",
        "switches:",
        "  - name: ocs1",
        f"    address: polatis+scpi://{subnet}.2:5025",
        f"    inputs: {ports}",
        f"    outputs: {ports}",
        f"ssh: {{python: '{Path(sys.executable).resolve()}'}}",
        "hosts:",
    ]
    for host in range(hosts):
        lines += [
            f"  - name: {chr(ord('a') + host)}",
            f"    management: {subnet}.{11 + host}",
            f"    address: 10.100.{host + 1}.100",
            "    nics:",
        ]
        for nic in range(nics):
            port = host * nics + nic + 1
            lines.append(
                f"      - {{name: nic{nic + 1}, address: 10.100.{host + 1}.{nic + 1}, "
                f"transmit: 'ocs1:{port}', receive: 'ocs1:{ports + port}'}}"
            )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def small_lab_text():
    return lab_text


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory):
    """Provide keys made in tests stay out of the home of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
