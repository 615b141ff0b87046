"""The contract as tests, to be run by whoever writes a driver or has a real switch in front of him.

On the ports of a switch that are free, and nothing else is touched:

    python -m ocs_drivers.testing calient+tl1://10.0.0.7 --free-ports 1-8:321-328 --record switch7.json

In a suite of one's own:

    from ocs_drivers.testing import SwitchContract

    class TestMyDriver(SwitchContract):
        @pytest.fixture
        def switch(self):
            with open_switch("mine://10.0.0.2") as switch:
                yield switch

Without the fixture `free_ports` that takes the switch over: all its circuits go. Needs four free inputs and
outputs at least, and pytest. A passing driver can be used by everything above `ocs_drivers`.
"""

from ocs_drivers.testing.contract import GuardRefused, OnFreePorts, SwitchContract
from ocs_drivers.testing.ports import FreePorts

__all__ = ["FreePorts", "GuardRefused", "OnFreePorts", "SwitchContract"]
