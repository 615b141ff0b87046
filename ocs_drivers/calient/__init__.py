"""Calient S-series switches, over TL1 and over REST.

A port `segment.fibre.port` has a fibre in and a fibre out; input n and output N+n are the fibres of the n-th
port. Known from drivers and captures of other projects, and proven against a simulated switch only: no real unit
has been at the other end yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.calient.rest_driver import CalientRest
from ocs_drivers.calient.tl1_driver import CalientTl1
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.lines import HTTP_OPTIONS, http_line, tcp_line

TL1_PORT = 3082
"""Raw TL1, for machines. The interactive port, 3083, works as well."""

HTTP_PORT, HTTPS_PORT = 80, 443

FACTORY_ACCOUNT = Credentials("admin", "admin")
"""An assumption; see `ocs_drivers.credentials` for how to name your own."""


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> CalientTl1:
    """An unopened `calient+tl1://host`."""
    address = address.only_options().with_port(TL1_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return CalientTl1(str(address), tcp_line(address, TL1_PORT), credentials=account, timeout_s=timeout_s)


def rest_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> CalientRest:
    """An unopened `calient+rest://host[?tls=1&ca=FILE]`. Replies can take seconds: give it a long timeout."""
    address = address.only_options(*HTTP_OPTIONS)
    address = address.with_port(HTTPS_PORT if address.options.get("tls") == "1" else HTTP_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    line = http_line(address, port=HTTP_PORT, tls_port=HTTPS_PORT)
    return CalientRest(str(address), line, credentials=account, timeout_s=timeout_s)
