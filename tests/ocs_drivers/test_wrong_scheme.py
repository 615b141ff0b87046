"""An address with the scheme of another make, and a device without a session left: the error says what to do."""

from __future__ import annotations

import pytest
from libraries import skip_without
from schemes import BANKS, SCHEMES

from ocs_drivers import open_switch
from ocs_drivers.engine.driver import CHECK_PORT_HINT, FREE_SESSION_HINT, add_hints
from ocs_drivers.errors import ConnectionLost, DeviceError, LoginFailed, OcsError, Unsupported

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")

LANGUAGES = {
    "tl1": ("polatis+tl1", "calient+tl1", "glimmerglass+tl1"),
    "rest": ("polatis+rest", "calient+rest"),
    "scpi": ("polatis+scpi", "dicon+scpi", "mosw+scpi"),
    "telnet": ("rome+telnet", "afm+telnet"),
    "ssh": ("telescent+cli", "rome+cli", "afm+cli", "sonic-ocs"),
}
"""Schemes that share a language, so that another make understands the first words."""

CROSSINGS = [
    pytest.param(scheme, other, marks=() if other == schemes[at - 1] else pytest.mark.long)
    for schemes in LANGUAGES.values()
    for at, scheme in enumerate(schemes)
    for other in schemes
    if scheme != other
]
"""Each scheme beside one other of its language; beside all others in the long lane."""


def url_of(shared_twin, scheme) -> str:
    family, front = SCHEMES[scheme]
    return shared_twin(family, f"--size={'2x8' if scheme in BANKS else '8x8'}").urls[front]


@pytest.mark.parametrize(("scheme", "other"), CROSSINGS)
def test_the_scheme_of_another_make_says_check_the_port(shared_twin, scheme, other):
    place = url_of(shared_twin, other).partition("://")[2].partition("?")[0]
    wrong = f"{scheme}://{place}{'?banks=2&channels=4' if scheme in BANKS else ''}"
    with pytest.raises(OcsError) as caught, open_switch(wrong, timeout_s=1.0):
        pass

    assert "check the port" in str(caught.value).lower(), repr(caught.value)


@pytest.mark.parametrize("scheme", LANGUAGES["tl1"])
def test_a_denial_for_the_limit_of_sessions_says_to_close_others(shared_twin, scheme):
    family, front = SCHEMES[scheme]
    twin = shared_twin(family, "--size=8x8")
    twin.do("set_fault", fault="max_sessions", count=0)
    with pytest.raises(DeviceError) as caught, open_switch(twin.urls[front], timeout_s=1.0):
        pass

    assert "maximum number of sessions" in str(caught.value)
    assert FREE_SESSION_HINT in str(caught.value)
    assert "check the port" not in str(caught.value).lower()


def hint_of(error: OcsError) -> str:
    add_hints(error)
    return error.hint


def test_a_refusal_of_another_kind_is_not_blamed_on_the_port():
    assert hint_of(DeviceError("the device refused: SNVS busy", device_code="SNVS", hint="Wait.")) == "Wait."
    assert hint_of(Unsupported("asyncssh is not installed", hint="pip install it.")) == "pip install it."


def test_each_thing_is_said_once():
    assert hint_of(ConnectionLost("cut")) == f"{FREE_SESSION_HINT} {CHECK_PORT_HINT}"
    assert (
        hint_of(ConnectionLost("cut", hint="Close a session. Check the port."))
        == "Close a session. Check the port."
    )
    assert hint_of(LoginFailed("user admin, too many sessions")) == FREE_SESSION_HINT
