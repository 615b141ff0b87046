"""`sim+SCHEME://name`: a twin of one's own, for the asking."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ocs_drivers import open_switch
from ocs_drivers.errors import AddressError, ConnectError


@pytest.mark.socket
@pytest.mark.process
def test_a_twin_is_started_and_opened():
    with open_switch("sim+calient+tl1://spare?size=8x8") as switch:
        assert switch.identity().serial.startswith("SIM")
        assert switch.connect({1: 9}).complete


@pytest.mark.socket
@pytest.mark.process
def test_the_same_name_is_the_same_switch_whatever_the_language():
    with open_switch("sim+polatis+tl1://one?size=8x8") as switch:
        switch.connect({2: 10})
        with (
            open_switch("sim+polatis+tl1://one?size=8x8") as again,
            open_switch("sim+polatis+tl1://other?size=8x8") as other,
        ):
            assert dict(again.read().connections) == {2: 10}
            assert dict(other.read().connections) == {}


@pytest.mark.socket
@pytest.mark.process
def test_it_ends_with_the_process_that_asked_for_it():
    program = (
        "from ocs_drivers import open_switch\n"
        "from ocs_drivers.simulated import _addresses_by_command\n"
        "open_switch('sim+glimmerglass+tl1://gone?size=8x8')\n"
        "print(next(iter(_addresses_by_command.values()))['tl1'])"
    )
    url = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    with pytest.raises(ConnectError):
        open_switch(url)


@pytest.mark.parametrize("address", ["sim+nobody+tl1://x", "sim+polatis+tl1://x?colour=red"])
def test_what_cannot_be_simulated_is_refused(address):
    with pytest.raises(AddressError):
        open_switch(address)


@pytest.mark.process
def test_a_size_without_sense_is_reported_with_its_hint():
    with pytest.raises(ConnectError, match="8x8"):
        open_switch("sim+polatis+tl1://x?size=big")
