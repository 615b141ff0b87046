"""Simulated switches by address: `sim+calient+tl1://spare?size=16x16&speed=10` starts a twin for the caller.

For notebooks and first steps. The twin is a process (`python -m sim.twins`) that ends when the calling process ends.
Addresses with the same name, family and options share a twin: `sim+polatis+scpi://a` and `sim+polatis+tl1://a` reach
one switch.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import threading

from lightbed.children import make_child_environment, make_module_command
from ocs_drivers.address import Address, parse_address
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError, ConnectError
from ocs_drivers.families import SIMULATED_PREFIX, find_driver_factory, find_twin_family

_addresses_by_command: dict[tuple[str, ...], dict[str, str]] = {}
_start_lock = threading.Lock()


def simulate_switch(
    address: Address, *, timeout_s: float, credentials: Credentials | None = None
) -> OpticalSwitch:
    """Return an unopened driver of a twin. Options: `size` and `speed`. Raises `AddressError`, `ConnectError`."""
    scheme = address.scheme.removeprefix(SIMULATED_PREFIX)
    factory = find_driver_factory(scheme)
    name = (address.host or address.path).strip("/") or "ocs1"
    addresses = _find_twin(scheme, name, address.check_options("size", "speed"))
    for url in addresses.values():
        if url.partition("://")[0] == scheme:
            return factory(parse_address(url), timeout_s=timeout_s, credentials=credentials)
    raise AddressError(
        f"the twin does not speak {scheme}", device=str(address), hint=f"It speaks: {', '.join(addresses)}."
    )


def _find_twin(scheme: str, name: str, address: Address) -> dict[str, str]:
    """Return the addresses of the twin with this name, by protocol; start it if it is not running."""
    options = [f"--{key}={value}" for key, value in sorted(address.options.items())]
    usage_arguments = ["--called-as", "testbed sim switch"]
    command = make_module_command(
        "sim.twins", *usage_arguments, find_twin_family(scheme), f"--name={name}", *options
    )
    with _start_lock:
        key = tuple(command)
        if key not in _addresses_by_command:
            _addresses_by_command[key] = _start_twin(command, str(address))
        return _addresses_by_command[key]


def _start_twin(command: list[str], device: str) -> dict[str, str]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=make_child_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ready_line = process.stdout.readline()
    if not ready_line:
        _, error_output = process.communicate()
        raise ConnectError(
            f"the twin did not start: {error_output.strip().rpartition(chr(10))[2]}",
            device=device,
            hint="Run `testbed sim switch list` for the families; write the size like 8x8.",
        )
    atexit.register(_end_twin, process)
    return {
        name: url for name, url in json.loads(ready_line).items() if isinstance(url, str) and "://" in url
    }


def _end_twin(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=10)  # closing its standard input ends the twin
