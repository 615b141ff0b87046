"""Calient S-series switches, over TL1 and over REST.

A port `segment.fibre.port` has a fibre in and a fibre out; input n and output N+n are the fibres of the n-th
port. Based on drivers and captures of other projects. Tested against a simulated switch only, on no real unit yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.transports.lines import HTTP_OPTIONS, make_http_line, make_tcp_line, with_http_port
from ocs_drivers.vendors.calient.driver import ACTIVATION_S
from ocs_drivers.vendors.calient.rest_driver import CalientRest
from ocs_drivers.vendors.calient.tl1_driver import CalientTl1

__all__ = ["CalientRest", "CalientTl1", "rest_switch", "tl1_switch"]

TL1_PORT = 3082
"""Raw TL1, for machines. The interactive port, 3083, works as well."""

HTTP_PORT, HTTPS_PORT = 80, 443

REST_TIMEOUT_S = 15.0
"""Default timeout, in seconds, as in other clients of the REST interface."""

FACTORY_ACCOUNT = Credentials("admin", "admin")
"""An assumption; see `ocs_drivers.credentials` for how to set your own."""


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> CalientTl1:
    """Return an unopened `calient+tl1://host[:3083][?activation_s=10]`.

    `activation_s` is the longest time for a circuit to become active. Raises `AddressError`.
    """
    address = address.check_options("activation_s").with_port(TL1_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return CalientTl1(
        str(address),
        make_tcp_line(address, TL1_PORT),
        credentials=account,
        timeout_s=timeout_s,
        activation_s=address.read_seconds("activation_s", ACTIVATION_S),
    )


def rest_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> CalientRest:
    """Return an unopened `calient+rest://host[?tls=1&ca=FILE][&activation_s=10]`. Raises `AddressError`.

    Replies can take many seconds: `REST_TIMEOUT_S` replaces the default timeout.
    """
    address = address.check_options(*HTTP_OPTIONS, "activation_s")
    address = with_http_port(address, port=HTTP_PORT, tls_port=HTTPS_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return CalientRest(
        str(address),
        make_http_line(address, port=HTTP_PORT, tls_port=HTTPS_PORT),
        credentials=account,
        timeout_s=REST_TIMEOUT_S if timeout_s == DEFAULT_TIMEOUT_S else timeout_s,
        activation_s=address.read_seconds("activation_s", ACTIVATION_S),
    )
