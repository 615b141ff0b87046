"""The driver interface as a test suite, for authors of drivers and owners of real switches.

Run the suite on the free ports of a switch; other ports are not changed:

    python -m ocs_drivers.testing calient+tl1://10.0.0.7 --free-ports 1-8:321-328 --record switch7.json

In your own test suite:

    from ocs_drivers.testing import SwitchContract

    class TestMyDriver(SwitchContract):
        @pytest.fixture
        def switch(self):
            with open_switch("mine://10.0.0.2") as switch:
                yield switch

Without a fixture `free_ports` the suite uses the whole switch and removes all its circuits. It needs pytest and at
least four free inputs and four free outputs. A driver that passes works with everything built on `ocs_drivers`.
"""

from ocs_drivers.testing.contract import GuardRefused, OnFreePorts, SwitchContract
from ocs_drivers.testing.ports import FreePorts

__all__ = ["FreePorts", "GuardRefused", "OnFreePorts", "SwitchContract"]
