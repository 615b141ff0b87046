"""Wave2Wave ROME and FiberZone AFM, one family of robotic patch panels, over SSH or telnet.

Based on two public drivers and the captures of their tests; not tested on a real unit yet.
As in the public driver, one request with two logical ports makes an AFM connect both directions. We assume that an AFM
accepts requests for one E and one W port, that it shows its queue as ROME does, and that its state 6 means that the
robot is working on a port. Options of an address, for a device that is different or slower:

    move_s, longest_s    seconds of one move, typically and at most (60 and 120)
    poll_s               seconds between two reads of a robot that is moving (3)
    idle_s               seconds after which an idle connection is replaced (180; an assumption)
    homing_s             seconds that a homing run may take (900)
    grace_s              seconds for which a request for a homing run is tolerated while a command runs (120)
    one_way              yes: allow removing one direction of a two-way circuit if the ports are paired (no)
    key, known_hosts     files of SSH
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.protocols.cli_session import Login
from ocs_drivers.transports.lines import make_ssh_line, make_telnet_line
from ocs_drivers.vendors.rome.codec import AFM, ROME, Dialect
from ocs_drivers.vendors.rome.driver import OPTIONS, RomeCli, Timeouts, read_timeouts

__all__ = [
    "AFM",
    "ROME",
    "RomeCli",
    "Timeouts",
    "afm_ssh",
    "afm_telnet",
    "read_timeouts",
    "rome_ssh",
    "rome_telnet",
]

SSH_PORT, TELNET_PORT = 22, 23

DEFAULT_ACCOUNT = Credentials("admin", "admin")
"""An assumption: nobody has published a factory account."""


def rome_ssh(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> RomeCli:
    """Return an unopened ROME over SSH. Raise `AddressError` for an invalid option."""
    return _make_over_ssh(address, ROME, timeout_s, credentials)


def rome_telnet(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> RomeCli:
    """Return an unopened ROME over telnet. Raise `AddressError` for an invalid option."""
    return _make_over_telnet(address, ROME, timeout_s, credentials)


def afm_ssh(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> RomeCli:
    """Return an unopened AFM over SSH. Raise `AddressError` for an invalid option."""
    return _make_over_ssh(address, AFM, timeout_s, credentials)


def afm_telnet(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> RomeCli:
    """Return an unopened AFM over telnet. Raise `AddressError` for an invalid option."""
    return _make_over_telnet(address, AFM, timeout_s, credentials)


def _make_over_ssh(
    address: Address, dialect: Dialect, timeout_s: float, credentials: Credentials | None
) -> RomeCli:
    address = address.check_options(*OPTIONS, "key", "known_hosts").with_port(SSH_PORT)
    options = read_timeouts(address)
    transport = make_ssh_line(address, SSH_PORT, _choose_account(address, credentials))
    return RomeCli(str(address), transport, timeout_s=timeout_s, dialect=dialect, timeouts=options)


def _make_over_telnet(
    address: Address, dialect: Dialect, timeout_s: float, credentials: Credentials | None
) -> RomeCli:
    address = address.check_options(*OPTIONS).with_port(TELNET_PORT)
    return RomeCli(
        str(address),
        make_telnet_line(address, TELNET_PORT),
        timeout_s=timeout_s,
        dialect=dialect,
        login=Login(_choose_account(address, credentials)),
        timeouts=read_timeouts(address),
    )


def _choose_account(address: Address, credentials: Credentials | None) -> Credentials:
    return find_credentials(str(address), credentials or address.credentials, factory=DEFAULT_ACCOUNT)
