"""HUBER+SUHNER Polatis optical circuit switches: SCPI over TCP and over a serial line, TL1, and REST.

Inputs are ports 1..N, outputs N+1..N+M. Known from drivers of other projects that cite the vendor's manual,
and proven against a simulated switch only: no real unit has been at the other end yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.lines import tcp_line, visa_line
from ocs_drivers.polatis.scpi_driver import PolatisScpi
from ocs_drivers.polatis.tl1_driver import PolatisTl1

SCPI_PORT = 5025
TL1_PORT = 3082

FACTORY_ACCOUNT = Credentials("admin", "root")
"""The account a Polatis leaves the factory with."""


def scpi_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisScpi:
    """An unopened Polatis over SCPI on PyVISA; SCPI knows no login, so credentials are not used."""
    del credentials
    address = address.only_options().with_port(SCPI_PORT)
    if ":" in address.host:
        raise AddressError(
            "pyvisa-py reaches IPv4 addresses only",
            device=str(address),
            cure="Use the IPv4 address or polatis+tl1.",
        )
    return PolatisScpi(str(address), visa_line(address, SCPI_PORT), timeout_s=timeout_s)


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisTl1:
    """An unopened Polatis over TL1; for credentials see `ocs_drivers.credentials`."""
    address = address.only_options().with_port(TL1_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return PolatisTl1(str(address), tcp_line(address, TL1_PORT), credentials=account, timeout_s=timeout_s)
