"""Both drivers against the simulated switch, over real sockets."""

from __future__ import annotations

import pytest
from needs import needs

from ocs_drivers import open_switch
from ocs_drivers.testing import SwitchContract


class TestPolatisScpi(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, twin):
        pytest.importorskip("pyvisa_py")
        with open_switch(twin.scpi) as switch:
            yield switch


class TestPolatisTl1(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, twin):
        with open_switch(twin.tl1) as switch:
            yield switch


class TestPolatisScpiAnsweringOnSeparateLines(SwitchContract):
    """The contract with answers on separate lines: which way a unit answers chained queries is not confirmed."""

    @pytest.fixture
    @needs("socket")
    def switch(self, separate_lines_process):
        pytest.importorskip("pyvisa_py")
        with open_switch(separate_lines_process.scpi) as switch:
            yield switch
