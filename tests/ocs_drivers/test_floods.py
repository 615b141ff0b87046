"""Bytes without end: no scheme listens to them for longer than an answer may take. Time here is that of the twin."""

from __future__ import annotations

import pytest
from libraries import skip_without
from schemes import BANKS, SCHEMES

from ocs_drivers.errors import OcsError

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")
skip_without("serial")

ASKED = [scheme for scheme in SCHEMES if scheme != "manual"]
"""A panel that is patched by hand is read from its file."""

PIECE_S = 0.01
LONGEST_S = 60.0
"""No driver asks more than twelve questions of five seconds before it gives up."""

FLOODS = {"lines": b"noise and more noise\r\n" * 3, "bytes": b"\x07\x7f~" * 20, "the same again": b""}


by_flood = pytest.mark.parametrize(
    "flood", ["lines", *(pytest.param(other, marks=pytest.mark.long) for other in FLOODS if other != "lines")]
)


class Flooded:
    """A wire that carries what the device says until the flood begins, and then bytes without end."""

    def __init__(self, wire, clock, flood, *, has_begun):
        self._wire, self._clock, self._flood = wire, clock, flood
        self.has_begun = has_begun
        self._last = b"\r\n"

    @property
    def is_open(self):
        return self._wire.is_open

    def open(self, timeout_s):
        self._wire.open(timeout_s)

    def close(self):
        self._wire.close()

    def has_input(self):
        return self.has_begun or self._wire.has_input()

    def send(self, data, deadline):
        self._wire.send(data, deadline)

    def receive(self, deadline):
        if not self.has_begun:
            self._last = self._wire.receive(deadline) or self._last
            return self._last
        self._clock.sleep(PIECE_S)
        return self._flood or self._last


@pytest.fixture
def flooded(world, open_in_memory):
    """Return a function that makes a twin whose wire is flooded, and what opens a driver on it."""

    def make(scheme, flood, *, has_begun=False):
        family, front = SCHEMES[scheme]
        made = world(family, size=(2, 8) if scheme in BANKS else (8, 8))
        wires = []

        def transport(front, inner=made.transport):
            wires.append(Flooded(inner(front), made.clock, FLOODS[flood], has_begun=has_begun))
            return wires[-1]

        made.transport = transport
        return made, wires, lambda: open_in_memory(made, scheme, front, **made.twin.frontends[front].options)

    return make


@by_flood
@pytest.mark.parametrize("scheme", ASKED)
def test_a_reply_is_not_awaited_for_ever(flooded, scheme, flood):
    made, wires, open_driver = flooded(scheme, flood)
    switch = open_driver()
    for wire in wires:
        wire.has_begun = True
    before_s = made.clock.now()
    with pytest.raises(OcsError):
        switch.read()
    assert made.clock.now() - before_s < LONGEST_S


@by_flood
@pytest.mark.parametrize("scheme", ASKED)
def test_an_opening_ends(flooded, scheme, flood):
    made, _, open_driver = flooded(scheme, flood, has_begun=True)
    before_s = made.clock.now()
    with pytest.raises(OcsError):
        open_driver()
    assert made.clock.now() - before_s < LONGEST_S
