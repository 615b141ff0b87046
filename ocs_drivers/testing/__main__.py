"""`python -m ocs_drivers.testing ADDRESS --free-ports 1-8:49-56 [--record FILE]`: test a driver on a switch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ocs_drivers.errors import OcsError
from ocs_drivers.families import open_switch
from ocs_drivers.testing.ports import find_free_ports


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and return pytest's exit status: 0 if all tests passed."""
    parser = argparse.ArgumentParser(prog="python -m ocs_drivers.testing", description=__doc__)
    parser.add_argument("address", help="address of the switch, as for open_switch")
    parser.add_argument("--free-ports", required=True, metavar="INPUTS:OUTPUTS", help="1-8:49-56, or `all`")
    parser.add_argument("--control", metavar="HOST:PORT", help="control socket of a simulated switch")
    parser.add_argument("--timeout", default="5", metavar="SECONDS", help="timeout of every answer")
    parser.add_argument("--record", metavar="FILE", help="write a record of the tests and their results")
    parser.add_argument("--sign-with", metavar="KEY", help="OpenSSH private key to sign the record with")
    options, pytest_options = parser.parse_known_args(arguments)
    command = [str(Path(__file__).with_name("test_conformance.py")), "-p", "ocs_drivers.testing.plugin"]
    folder = str(Path(__file__).parent)  # ignore the pytest settings of any surrounding project
    command += ["-c", os.devnull, "--rootdir", folder]
    command += ["-p", "no:cacheprovider", "-q", "--import-mode=importlib"]
    command += ["--switch", options.address, "--free-ports", options.free_ports]
    command += ["--switch-timeout", options.timeout]
    for option, value in (
        ("--switch-control", options.control),
        ("--record-to", options.record),
        ("--sign-with", options.sign_with),
    ):
        command += [option, value] if value else []
    try:  # report a common error once, not in every test
        with open_switch(options.address, timeout_s=float(options.timeout)) as switch:
            find_free_ports(switch, options.free_ports)
    except OcsError as error:
        parser.exit(1, f"error: {error}\n")
    return int(pytest.main([*command, *pytest_options]))


if __name__ == "__main__":
    sys.exit(main())
