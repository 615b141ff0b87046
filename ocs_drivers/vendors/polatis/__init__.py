"""HUBER+SUHNER Polatis optical circuit switches: SCPI over TCP and over a serial line, TL1, and REST.

Inputs are ports 1..N, outputs N+1..N+M. Based on drivers of other projects that cite the vendor's manual.
Tested against a simulated switch only, on no real unit yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import (
    HTTP_OPTIONS,
    make_http_line,
    make_serial_line,
    make_tcp_line,
    make_visa_line,
    with_http_port,
)
from ocs_drivers.vendors.polatis.rest_driver import PolatisRest
from ocs_drivers.vendors.polatis.scpi_driver import PolatisScpi
from ocs_drivers.vendors.polatis.tl1_driver import PolatisTl1

__all__ = [
    "PolatisRest",
    "PolatisScpi",
    "PolatisTl1",
    "rest_switch",
    "scpi_switch",
    "serial_switch",
    "tl1_switch",
]

SCPI_PORT = 5025
TL1_PORT = 3082
REST_PORT = 8008
REST_TLS_PORT = 443
SERIAL_BAUD = 38400

FACTORY_ACCOUNT = Credentials("admin", "root")
"""The factory account of a Polatis."""


def scpi_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisScpi:
    """Return an unopened Polatis over SCPI on PyVISA; SCPI has no login, so credentials are ignored."""
    del credentials
    address = address.check_options().with_port(SCPI_PORT)
    if ":" in address.host:
        raise AddressError(
            "pyvisa-py connects to IPv4 addresses only",
            device=str(address),
            hint="Use the IPv4 address or polatis+tl1.",
        )
    return PolatisScpi(str(address), make_visa_line(address, SCPI_PORT), timeout_s=timeout_s)


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisTl1:
    """Return an unopened Polatis over TL1; for credentials see `ocs_drivers.credentials`."""
    address = address.check_options().with_port(TL1_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return PolatisTl1(
        str(address), make_tcp_line(address, TL1_PORT), credentials=account, timeout_s=timeout_s
    )


def serial_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisScpi:
    """Return an unopened Polatis over SCPI on a serial line (8N1, 38400 baud unless `?baud=` is given); no login."""
    del credentials
    address = address.check_options("baud")
    return PolatisScpi(str(address), make_serial_line(address, SERIAL_BAUD), timeout_s=timeout_s)


def rest_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> PolatisRest:
    """Return an unopened Polatis over RESTCONF, `polatis+rest://host[:8008][?tls=1][&media=xml]`.

    `tls=1` selects HTTPS, see `ocs_drivers.transports.lines.make_http_line`; `media=xml` selects XML instead of JSON.
    """
    address = address.check_options(*HTTP_OPTIONS, "media")
    address = with_http_port(address, port=REST_PORT, tls_port=REST_TLS_PORT)
    media = address.options.get("media", "json")
    if media not in {"json", "xml"}:
        raise AddressError(f"media must be json or xml, not {media!r}", device=str(address))
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    transport = make_http_line(address, port=REST_PORT, tls_port=REST_TLS_PORT)
    return PolatisRest(
        str(address),
        transport,
        credentials=account,
        timeout_s=timeout_s,
        encoding="xml" if media == "xml" else "json",
    )
