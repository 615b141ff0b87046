"""Optical switches that run SONiC (OCS), over SSH.

Based on the public design document and sonic-mgmt. Tested against a simulated switch only, on no real unit yet.

    sonic-ocs://host[:22]?key=FILE&known_hosts=FILE&sudo=no
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import make_ssh_line
from ocs_drivers.vendors.sonic.driver import SonicOcs

__all__ = ["SonicOcs", "ssh_switch"]

SSH_PORT = 22

FACTORY_ACCOUNT = Credentials("admin", "YourPaSsWoRd")
"""The default account of SONiC images."""


def ssh_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> SonicOcs:
    """Return an unopened SONiC switch; `sudo=no` is for root accounts. Host keys: see `transports.ssh`."""
    address = address.check_options("key", "known_hosts", "sudo").with_port(SSH_PORT)
    sudo = address.options.get("sudo", "yes")
    if sudo not in {"yes", "no"}:
        raise AddressError(
            f"sudo must be yes or no, not {sudo!r}", device=str(address), hint="Write sudo=no."
        )
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    transport = make_ssh_line(address, SSH_PORT, account)
    return SonicOcs(str(address), transport, timeout_s=timeout_s, sudo=sudo == "yes")
