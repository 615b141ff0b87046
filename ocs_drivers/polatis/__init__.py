"""HUBER+SUHNER Polatis optical circuit switches, over SCPI and over TL1.

Inputs are ports 1..N, outputs N+1..N+M. Known from drivers of other projects that cite the vendor's manual,
and proven against a simulated switch only: no real unit has been at the other end yet.
"""

from __future__ import annotations

import os

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address, Credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.polatis.scpi_driver import PolatisScpi
from ocs_drivers.polatis.tl1_driver import PolatisTl1
from ocs_drivers.transport import SocketTransport
from ocs_drivers.visa import VisaTransport

SCPI_PORT = 5025
TL1_PORT = 3082

USER_VARIABLE = "LIGHTBED_OCS_USER"
PASSWORD_VARIABLE = "LIGHTBED_OCS_PASSWORD"  # noqa: S105  (the name of a variable)
FACTORY_ACCOUNT = Credentials("admin", "root")
"""The TL1 account a Polatis leaves the factory with."""


def scpi_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisScpi:
    """An unopened Polatis over SCPI on PyVISA; SCPI knows no login, so credentials are not used."""
    del credentials
    address = address.with_port(SCPI_PORT)
    if ":" in address.host:
        raise AddressError(
            "pyvisa-py reaches IPv4 addresses only",
            device=str(address),
            cure="Use the IPv4 address or polatis+tl1.",
        )
    transport = VisaTransport(address.host, address.port or SCPI_PORT, device=str(address))
    return PolatisScpi(str(address), transport, timeout_s=timeout_s)


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisTl1:
    """An unopened Polatis over TL1.

    Credentials: those given, else `LIGHTBED_OCS_USER` and `LIGHTBED_OCS_PASSWORD`, else the factory account.
    """
    address = address.with_port(TL1_PORT)
    transport = SocketTransport(address.host, address.port or TL1_PORT, device=str(address))
    return PolatisTl1(
        str(address), transport, credentials=credentials or _default_credentials(), timeout_s=timeout_s
    )


def _default_credentials() -> Credentials:
    user, password = os.environ.get(USER_VARIABLE), os.environ.get(PASSWORD_VARIABLE)
    if user is None and password is None:
        return FACTORY_ACCOUNT
    return Credentials(user or FACTORY_ACCOUNT.user, password or "")
