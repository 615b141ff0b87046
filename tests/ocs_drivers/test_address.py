"""Addresses, and that no credentials ever show."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import types

import pytest

from ocs_drivers import Address, Credentials, families, known_schemes, open_switch, parse_address
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.wire import redact
from ocs_drivers.vendors.polatis import FACTORY_ACCOUNT, rest_switch, scpi_switch, tl1_switch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("polatis+scpi://host:5025", Address("polatis+scpi", "host", 5025)),
        ("polatis+tl1://10.0.0.2", Address("polatis+tl1", "10.0.0.2")),
        ("polatis+tl1://[fd00::2]:3082", Address("polatis+tl1", "fd00::2", 3082)),
        ("TCPIP0::10.0.0.2::5025::SOCKET", Address("polatis+scpi", "10.0.0.2", 5025)),
        ("tcpip::host::5025::socket", Address("polatis+scpi", "host", 5025)),
    ],
)
def test_addresses_are_understood(text, expected):
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:5025",
        "polatis+scpi://",
        "polatis+scpi://host:port",
        "polatis+scpi://host:70000",
        "polatis+scpi://host:0",
        "polatis+scpi://host/path",
        "TCPIP0::host::INSTR",
        "TCPIP0::host::99999::SOCKET",
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(text):
    with pytest.raises(AddressError, match="polatis"):
        parse_address(text)


def test_credentials_are_used_and_never_shown(caplog):
    parsed = parse_address("polatis+tl1://admin:s%40cret@host:3082")
    assert parsed.credentials == Credentials("admin", "s@cret")
    switch = tl1_switch(parsed, credentials=parsed.credentials)
    shown = [str(parsed), repr(parsed), repr(parsed.credentials), switch.address, repr(switch)]
    with pytest.raises(AddressError) as caught:
        parse_address("polatis+tl1://admin:s@cret/x@host:port")
    shown.append(str(caught.value))
    assert not [text for text in shown if "cret" in text]


def test_logins_are_redacted_whatever_their_case():
    assert redact("act-user:TID:admin:12:gb:secret;") == "act-user:TID:admin:12:gb:***;"
    assert redact("RTRV-PATCH:::1:;") == "RTRV-PATCH:::1:;"


def test_no_password_reaches_the_wire_log(twin, caplog):
    caplog.set_level(logging.DEBUG, logger="ocs_drivers.wire")
    with open_switch(twin.tl1, credentials=("admin", "root")) as switch:
        switch.read()
    logged = [record.getMessage() for record in caplog.records]
    assert any("> ACT-USER::admin:" in line and line.endswith("***;") for line in logged)
    assert any("< M " in line and "COMPLD" in line for line in logged)
    assert not [line for line in logged if "root" in line]


def test_unknown_schemes_name_the_known_ones():
    assert {"polatis+scpi", "polatis+tl1"} <= set(known_schemes())
    with pytest.raises(AddressError, match="no driver supports"):
        open_switch("nonesuch://host")


class ThirdPartySwitch:
    opened = False

    def __init__(self, at, *, timeout_s, credentials):
        self.made_with = (str(at), timeout_s, credentials)

    def open(self):
        self.opened = True


@pytest.fixture
def third_party(monkeypatch):
    module = types.ModuleType("third_party_switches")
    module.ThirdPartySwitch = ThirdPartySwitch
    monkeypatch.setitem(sys.modules, "third_party_switches", module)
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, f"third_party_switches:{value}", families.ENTRY_POINT_GROUP)
        for name, value in [("theirs", "ThirdPartySwitch"), ("broken", "Missing")]
    )
    monkeypatch.setattr(families, "entry_points", lambda **select: points.select(**select))


def test_third_parties_add_drivers_by_entry_point(third_party):
    switch = open_switch("theirs://me:secret@host:1", timeout_s=2)
    assert switch.opened
    assert switch.made_with == ("theirs://host:1", 2, Credentials("me", "secret"))
    assert "theirs" in known_schemes()


def test_a_driver_that_cannot_be_loaded_says_which(third_party):
    with pytest.raises(AddressError, match=r"broken cannot be loaded.*third_party_switches:Missing"):
        open_switch("broken://host")


def test_default_ports():
    assert scpi_switch(parse_address("polatis+scpi://host")).address == "polatis+scpi://host:5025"
    assert tl1_switch(parse_address("polatis+tl1://host")).address == "polatis+tl1://host:3082"
    assert rest_switch(parse_address("polatis+rest://host")).address == "polatis+rest://host:8008"
    assert rest_switch(parse_address("polatis+rest://host?tls=1")).address == "polatis+rest://host:443?tls=1"


def test_scpi_over_pyvisa_is_ipv4_only():
    with pytest.raises(AddressError, match="IPv4"):
        scpi_switch(parse_address("polatis+scpi://[fd00::2]"))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, FACTORY_ACCOUNT),
        ({"LIGHTBED_OCS_USER": "op", "LIGHTBED_OCS_PASSWORD": "pw"}, Credentials("op", "pw")),
        ({"LIGHTBED_OCS_PASSWORD": "pw"}, Credentials("admin", "pw")),
    ],
)
def test_credentials_come_from_the_environment(monkeypatch, environment, expected):
    for name in ("LIGHTBED_OCS_USER", "LIGHTBED_OCS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    switch = tl1_switch(parse_address("polatis+tl1://host"))
    assert switch._session._credentials == expected
    given = tl1_switch(parse_address("polatis+tl1://host"), credentials=Credentials("a", "b"))
    assert given._session._credentials == Credentials("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "polatis+tl1:admin:secret@host",
        "admin:secret@host",
        "TCPIP0::admin:secret@host::5025::SOCKET",
        "polatis+serial:admin:secret@/dev/ttyUSB0",
        "manual:admin:secret@panel.json",
        "polatis+scpi://admin:se/cret@host",
        "polatis+scpi://admin:se:cret@host:port",
        "polatis+scpi://admin:secret@host/path",
        "nonesuch://admin:secret@host",
    ],
)
def test_an_address_that_is_refused_shows_no_password(text):
    with pytest.raises(AddressError) as caught:
        open_switch(text)
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_time_in_an_address_is_finite_and_above_0(text):
    address = Address("manual", "", path="panel", options={"patience_s": text})
    with pytest.raises(AddressError, match="option patience_s must be a number of seconds above 0, not"):
        address.read_seconds("patience_s", 60)
    assert Address("manual", "", path="panel").read_seconds("patience_s", 60) == 60
