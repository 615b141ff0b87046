"""The default lab file of tests: hosts with a number of NICs each, on one optical circuit switch."""

from __future__ import annotations

import sys
from pathlib import Path

FIRST_SUBNET = "10.98.0"
MAX_HOSTS = 200
MAX_PORTS = 1000


def render_lab_text(host_count: int, degree: int) -> str:
    """Return a lab file for `host_count` hosts with `degree` NICs each.

    Transmitter k of host h is on input `degree * h + k + 1`, its receiver on the corresponding output. Raises
    `ValueError` for a lab that does not fit one switch and one subnet.
    """
    port_count = host_count * degree
    if host_count > MAX_HOSTS or port_count > MAX_PORTS:
        raise ValueError(
            f"{host_count} hosts of {degree} NICs do not fit one switch of {MAX_PORTS} ports: give a lab file "
            "with --lab"
        )
    lines = [
        "name: of-a-test",
        "simulated: true",
        f"management: {FIRST_SUBNET}.0/24",
        "link: {rate_mbps: 100, represents_gbps: 25, mtu: 9000}",
        "switches:",
        (
            f"  - {{name: ocs1, address: 'polatis+scpi://{FIRST_SUBNET}.2:5025', "
            f"inputs: {port_count}, outputs: {port_count}}}"
        ),
        f"ssh: {{python: '{Path(sys.executable).absolute()}'}}",
        "hosts:",
    ]
    for host_index in range(host_count):
        lines += [
            f"  - name: {_make_name(host_index)}",
            f"    management: {FIRST_SUBNET}.{11 + host_index}",
            f"    address: 10.100.{host_index + 1}.200",
            "    nics:",
        ]
        for nic_index in range(degree):
            port = host_index * degree + nic_index + 1
            lines.append(
                f"      - {{name: nic{nic_index + 1}, address: 10.100.{host_index + 1}.{nic_index + 1}, "
                f"transmit: 'ocs1:{port}', receive: 'ocs1:{port_count + port}'}}"
            )
    return "\n".join(lines) + "\n"


def _make_name(host_index: int) -> str:
    """Return a, b, ..., z, a1, b1, ...

    >>> _make_name(0), _make_name(25), _make_name(26)
    ('a', 'z', 'a1')
    """
    letter = chr(ord("a") + host_index % 26)
    return f"{letter}{host_index // 26}" if host_index >= 26 else letter
