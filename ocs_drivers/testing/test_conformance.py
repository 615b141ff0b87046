"""The tests of `python -m ocs_drivers.testing`: the contract and, on a simulated switch, faults that all twins have."""

from __future__ import annotations

import pytest

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import Conflict, OcsError
from ocs_drivers.model import CrossConnects, Status
from ocs_drivers.testing import FreePorts, OnFreePorts, SwitchContract
from ocs_drivers.testing.plugin import Control


class TestSwitch(SwitchContract):
    """The contract on the switch of `--switch`."""

    @pytest.fixture
    def free_ports(self, free_ports: FreePorts) -> FreePorts:
        """Return the ports of `--free-ports`."""
        return free_ports


class TestUnderFaults(OnFreePorts):
    """Tests of the driver on a faulty device: the driver reports no wrong status; it may report `UNKNOWN`."""

    @pytest.fixture
    def free_ports(self, free_ports: FreePorts) -> FreePorts:
        """Return the ports of `--free-ports`."""
        return free_ports

    def test_what_is_read_is_the_truth(self, empty: OpticalSwitch, free: FreePorts, control: Control) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        assert dict(empty.read().connections) == dict(control("truth")["connections"])

    def test_a_command_that_is_ignored_is_not_called_done(
        self, empty: OpticalSwitch, free: FreePorts, control: Control
    ) -> None:
        _skip_unless_reading_back(empty)
        control("set_fault", fault="drop_command")
        with pytest.raises(OcsError) as caught:
            empty.apply(free.make_pairs(1), scope=free.scope)
        assert caught.value.report is not None
        assert set(caught.value.report.pairs.values()) == {Status.FAILED}
        assert self.read_free_circuits(empty, free) == CrossConnects()

    @pytest.mark.parametrize("executed", [True, False])
    def test_a_line_cut_in_a_write_is_judged_by_reading(
        self, empty: OpticalSwitch, free: FreePorts, control: Control, *, executed: bool
    ) -> None:
        control("set_fault", fault="close_connection", after_commands=2, executed=executed)
        try:
            report = empty.apply(free.make_pairs(1, 2), scope=free.scope)
        except OcsError as error:
            assert error.report is not None
            report = error.report
        truth = control("truth")["connections"]
        for pair, status in report.pairs.items():
            assert status is Status.UNKNOWN or (status is Status.DONE) == (list(pair) in truth)

    def test_another_operator_is_a_conflict(
        self, empty: OpticalSwitch, free: FreePorts, control: Control
    ) -> None:
        _skip_unless_reading_back(empty)
        connections = empty.read().connections
        control("operator", connect=[[free.get_input(1), free.get_output(2)]])
        with pytest.raises(Conflict):
            empty.apply(free.make_pairs(1), scope=free.scope, expect=connections)

    def test_noise_on_the_line_costs_nothing_but_time(
        self, empty: OpticalSwitch, free: FreePorts, control: Control
    ) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        control("set_fault", fault="garbage", count=1)
        assert self.read_free_circuits(empty, free) == free.make_full_pairs()


def _skip_unless_reading_back(switch: OpticalSwitch) -> None:
    if not switch.capabilities.reads_back:
        pytest.skip("this panel reads back only what a person confirmed")
