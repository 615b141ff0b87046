"""Glimmerglass System 100, 300 and 600 over TL1.

Based on drivers of other projects and a public capture of a real unit, which the tests replay to this driver; not
tested on a real unit yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import make_tcp_line
from ocs_drivers.vendors.glimmerglass.driver import OPERATION_MODES, GlimmerglassTl1

__all__ = ["GlimmerglassTl1", "tl1_switch"]

TL1_PORT = 10034
"""Default port of the device. Older software uses 10033: name that port in the address."""

FACTORY_ACCOUNT = Credentials("admin", "admin")
"""An assumption; see `ocs_drivers.credentials` for how to set your own."""


def tl1_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> GlimmerglassTl1:
    """Return an unopened `glimmerglass+tl1://host[?opmode=sync]`.

    `opmode` is sent with every connection command. With `sync` the device answers once there is light, with `async` at
    once. Without `opmode`, the setting of the device applies. In all cases a circuit is done once it was read back.
    """
    address = address.check_options("opmode").with_port(TL1_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=FACTORY_ACCOUNT)
    return GlimmerglassTl1(
        str(address),
        make_tcp_line(address, TL1_PORT),
        credentials=account,
        timeout_s=timeout_s,
        operation_mode=_parse_operation_mode(address),
    )


def _parse_operation_mode(address: Address) -> str:
    name = address.options.get("opmode", "")
    if name not in OPERATION_MODES:
        raise AddressError(f"unknown opmode {name!r}", device=str(address), hint="Known: sync, async.")
    return name
