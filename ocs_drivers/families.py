"""Families of switches: each scheme of an address, the factory of its driver, and its simulated twin.

`FAMILIES` is the only list of the built-in schemes, one line each. Other distributions add families by entry
points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ocs_drivers.address import DEFAULT_TIMEOUT_S, parse_address
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError

ENTRY_POINT_GROUP = "ocs_drivers.drivers"
"""Entry point group: name = scheme, value = a `DriverFactory`."""

SIMULATED_PREFIX = "sim+"
"""Prefix of a scheme that starts a simulated switch and connects the driver to it."""

_SIMULATED_SWITCH = "ocs_drivers.simulated:simulate_switch"


class Family(NamedTuple):
    """The driver of a scheme, and its twin.

    `factory_path` is a `DriverFactory`, written `module:function`. `twin_family` is the family's name in `python -m
    sim.twins`, if it differs from the part of the scheme before `+`. `is_in_labs` is True if a simulated lab may
    contain this switch; only matrix switches with a network interface qualify.
    """

    factory_path: str
    twin_family: str = ""
    is_in_labs: bool = False


FAMILIES: Mapping[str, Family] = {
    "polatis+scpi": Family("ocs_drivers.vendors.polatis:scpi_switch", is_in_labs=True),
    "polatis+tl1": Family("ocs_drivers.vendors.polatis:tl1_switch", is_in_labs=True),
    "polatis+serial": Family("ocs_drivers.vendors.polatis:serial_switch"),
    "polatis+rest": Family("ocs_drivers.vendors.polatis:rest_switch", is_in_labs=True),
    "calient+tl1": Family("ocs_drivers.vendors.calient:tl1_switch", is_in_labs=True),
    "calient+rest": Family("ocs_drivers.vendors.calient:rest_switch", is_in_labs=True),
    "glimmerglass+tl1": Family("ocs_drivers.vendors.glimmerglass:tl1_switch", is_in_labs=True),
    "telescent+cli": Family("ocs_drivers.vendors.telescent:cli_switch", is_in_labs=True),
    "rome+cli": Family("ocs_drivers.vendors.rome:rome_ssh", is_in_labs=True),
    "rome+telnet": Family("ocs_drivers.vendors.rome:rome_telnet", is_in_labs=True),
    "afm+cli": Family("ocs_drivers.vendors.rome:afm_ssh", is_in_labs=True),
    "afm+telnet": Family("ocs_drivers.vendors.rome:afm_telnet", is_in_labs=True),
    "sonic-ocs": Family("ocs_drivers.vendors.sonic:ssh_switch", twin_family="sonic", is_in_labs=True),
    "dicon+scpi": Family("ocs_drivers.vendors.dicon:tcp_switch"),
    "dicon+serial": Family("ocs_drivers.vendors.dicon:serial_switch"),
    "mosw+scpi": Family("ocs_drivers.vendors.mosw:tcp_switch"),
    "scpi-1xn": Family("ocs_drivers.vendors.scpi_1xn:tcp_switch"),
    "scpi-1xn+serial": Family("ocs_drivers.vendors.scpi_1xn:serial_switch"),
    "manual": Family("ocs_drivers.vendors.manual:manual_panel"),
}

DriverFactory = Callable[..., OpticalSwitch]
"""`factory(address: Address, *, timeout_s: float, credentials: Credentials | None)` returns an unopened switch."""


def entry_points(**select: str) -> Any:
    """Return `importlib.metadata.entry_points(**select)`. Its import is slow, and most addresses do not need it."""
    from importlib import metadata

    return metadata.entry_points(**select)


def find_driver_factory(scheme: str) -> DriverFactory:
    """Return the factory for a scheme, from `FAMILIES` or from an installed distribution.

    Raises `AddressError` for an unknown scheme or an entry point that cannot be loaded.
    """
    if scheme.startswith(SIMULATED_PREFIX):
        # This raises an error if there is no such driver.
        find_driver_factory(scheme.removeprefix(SIMULATED_PREFIX))
        return _import_driver(_SIMULATED_SWITCH)
    if scheme in FAMILIES:
        return _import_driver(FAMILIES[scheme].factory_path)
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=scheme):
        try:
            factory: DriverFactory = entry_point.load()
        except Exception as error:
            raise AddressError(
                f"the driver for {scheme} cannot be loaded: {error}",
                hint=f"Check the distribution that provides {entry_point.value}.",
            ) from error
        return factory
    raise AddressError(f"no driver supports {scheme}", hint=f"Known: {', '.join(known_schemes())}.")


def _import_driver(factory_path: str) -> DriverFactory:
    module, name = factory_path.split(":")
    factory: DriverFactory = getattr(import_module(module), name)
    return factory


def known_schemes() -> tuple[str, ...]:
    """Return the schemes that `open_switch` supports in this installation, sorted."""
    return tuple(sorted({*FAMILIES, *entry_points(group=ENTRY_POINT_GROUP).names}))


def list_lab_schemes() -> tuple[str, ...]:
    """Return the schemes of switches that a simulated lab may have, in the order of the table."""
    return tuple(scheme for scheme, family in FAMILIES.items() if family.is_in_labs)


def find_twin_family(scheme: str) -> str:
    """Return the name of a scheme's family in `python -m sim.twins`.

    >>> find_twin_family("polatis+tl1"), find_twin_family("sonic-ocs")
    ('polatis', 'sonic')
    """
    family = FAMILIES.get(scheme)
    return (family and family.twin_family) or scheme.partition("+")[0]


def open_switch(
    address: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    credentials: Credentials | tuple[str, str] | None = None,
) -> OpticalSwitch:
    """Return an open driver of the switch at `address`.

    `timeout_s` bounds every wait for an answer. `credentials` take precedence over those in the address. Raises
    `AddressError`, `ConnectError`, `Timeout`, `ProtocolDesync`, `LoginFailed`.
    """
    parsed = parse_address(address)
    if isinstance(credentials, tuple):
        credentials = Credentials(*credentials)
    factory = find_driver_factory(parsed.scheme)
    switch = factory(parsed, timeout_s=timeout_s, credentials=credentials or parsed.credentials)
    switch.open()
    return switch
