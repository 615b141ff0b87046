"""The driver interface as tests on the free ports of one switch."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from itertools import groupby

import pytest

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import (
    Conflict,
    ConnectionLost,
    PortBusy,
    PortError,
    UnknownPort,
    Unsupported,
    WrongSide,
)
from ocs_drivers.model import (
    Attenuation,
    CrossConnects,
    PortState,
    Power,
    Side,
    Snapshot,
    Status,
)
from ocs_drivers.testing.ports import FreePorts, list_all_ports


class GuardRefused(Exception):
    """Raised by the guards of these tests."""


ALWAYS_CONNECTED = "every input of this switch is always connected, so the test cannot start without circuits"


def _exclude_free(connections: CrossConnects, free_ports: FreePorts) -> CrossConnects:
    """Return the circuits of inputs that are not free."""
    return CrossConnects((i, o) for i, o in connections.items() if i not in free_ports.inputs)


def _list_all_pairs(free_ports: FreePorts) -> set[tuple[int, int]]:
    return {(source, output) for source in free_ports.inputs for output in free_ports.outputs}


class OnFreePorts:
    """Base of tests that use only the free ports of a switch; these have no circuits before and after each test."""

    @pytest.fixture
    def free_ports(self, switch: OpticalSwitch) -> FreePorts:
        """Return the ports that tests may use: all ports. Override it if the switch carries other circuits."""
        return list_all_ports(switch.capabilities)

    @pytest.fixture
    def free(self, switch: OpticalSwitch, free_ports: FreePorts) -> FreePorts:
        """Return the ports that tests may use; skip the test on a switch without disconnects."""
        if not switch.capabilities.disconnects:
            pytest.skip(ALWAYS_CONNECTED)
        return free_ports

    @pytest.fixture
    def empty(self, switch: OpticalSwitch, free: FreePorts) -> Iterator[OpticalSwitch]:
        """Yield the switch without circuits on its free ports; clear them afterwards, and check all other circuits."""
        other_circuits = _exclude_free(switch.read().connections, free)
        switch.apply(CrossConnects(), scope=free.scope)
        yield switch
        switch.open()
        switch.apply(CrossConnects(), scope=free.scope)
        assert switch.read().connections == other_circuits

    @staticmethod
    def read_free_circuits(switch: OpticalSwitch, free: FreePorts) -> CrossConnects:
        """Return the circuits of the free ports."""
        connections = switch.read().connections
        return CrossConnects(connections.pairs - _exclude_free(connections, free).pairs)


class SwitchContract(OnFreePorts):
    """Test suite to inherit, with a fixture `switch` that yields an open switch."""

    # -- identity

    def test_identity_says_who_it_is(self, switch: OpticalSwitch) -> None:
        identity = switch.identity()
        assert identity.vendor
        assert identity.model

    def test_address_holds_no_credentials(self, switch: OpticalSwitch) -> None:
        assert "://" in switch.address
        assert "@" not in switch.address

    def test_ports_are_inputs_then_outputs(self, switch: OpticalSwitch) -> None:
        capabilities, ports = switch.capabilities, switch.ports()
        expected = [Side.IN] * capabilities.inputs + [Side.OUT] * capabilities.outputs
        assert [ports[number].side for number in sorted(ports)] == expected
        assert all(number == info.number for number, info in ports.items())

    def test_power_monitors_are_told(self, switch: OpticalSwitch) -> None:
        has_monitors = any(info.has_power_monitor for info in switch.ports().values())
        assert has_monitors == switch.capabilities.power_monitor

    # -- planning is pure

    def test_a_plan_moves_nothing(self, empty: OpticalSwitch, free: FreePorts) -> None:
        assert empty.plan(free.make_full_pairs(), empty.read(), free.scope)
        assert self.read_free_circuits(empty, free) == CrossConnects()

    def test_nothing_to_do_is_no_step(self, switch: OpticalSwitch, free: FreePorts) -> None:
        assert switch.plan(free.make_full_pairs(), free.make_full_pairs()) == ()

    def test_a_plan_ends_where_it_should(self, switch: OpticalSwitch, free: FreePorts) -> None:
        steps = switch.plan(free.make_full_pairs(1), free.make_full_pairs())
        assert steps[0].before == free.make_full_pairs()
        assert steps[-1].after == free.make_full_pairs(1)
        assert [step.before for step in steps[1:]] == [step.after for step in steps[:-1]]

    def test_whole_configuration_is_one_step_where_the_device_can(
        self, switch: OpticalSwitch, free: FreePorts
    ) -> None:
        kinds = [step.kind for step in switch.plan(free.make_full_pairs(1), free.make_full_pairs())]
        command_count = 1 if switch.capabilities.bulk_add else len(free.make_full_pairs())
        removals_then_additions = ["remove"] * command_count + ["add"] * command_count
        assert kinds == (["replace"] if switch.capabilities.atomic_whole else removals_then_additions)

    def test_break_before_make_within_the_scope(self, switch: OpticalSwitch, free: FreePorts) -> None:
        current = free.make_pairs(1, 2, 3)
        steps = switch.plan(free.make_pairs(2, 1), current, {free.get_input(1), free.get_input(2)})
        removals = [step for step in steps if step.kind == "remove"]
        additions = steps[len(removals) :]
        assert {step.kind for step in additions} == {"add"}
        assert [pair for step in removals for pair in step.pairs.items()] == [*free.make_pairs(1, 2).items()]
        assert [pair for step in additions for pair in step.pairs.items()] == [*free.make_pairs(2, 1).items()]
        # A device may remove or add both pairs by one request.
        assert 2 <= len(steps) <= (2 if switch.capabilities.bulk_add else 4)
        assert steps[-1].after == free.make_pairs(2, 1, 3)

    def test_unknown_port_is_refused(self, switch: OpticalSwitch, free: FreePorts) -> None:
        unknown_port = switch.capabilities.inputs + switch.capabilities.outputs + 1
        with pytest.raises(UnknownPort) as caught:
            switch.plan(CrossConnects({free.get_input(1): unknown_port}), CrossConnects())
        assert caught.value.ports == (unknown_port,)

    def test_wrong_side_is_refused(self, switch: OpticalSwitch, free: FreePorts) -> None:
        with pytest.raises(WrongSide) as caught:
            switch.plan(CrossConnects({free.get_input(1): free.get_input(2)}), CrossConnects())
        assert caught.value.ports == (free.get_input(2),)

    def test_target_outside_its_scope_is_refused(self, switch: OpticalSwitch, free: FreePorts) -> None:
        with pytest.raises(PortError) as caught:
            switch.plan(free.make_pairs(1, 2), CrossConnects(), {free.get_input(1)})
        assert caught.value.ports == (free.get_input(2),)

    def test_output_of_a_foreign_circuit_is_busy(self, switch: OpticalSwitch, free: FreePorts) -> None:
        with pytest.raises(PortBusy) as caught:
            switch.plan(free.make_pairs(3), free.make_pairs(0, 0, 3), {free.get_input(1)})
        assert caught.value.peer == free.get_input(3)
        assert caught.value.ports == (free.get_input(1), free.get_output(3))

    # -- applying

    def test_apply_makes_it_so(self, empty: OpticalSwitch, free: FreePorts) -> None:
        report = empty.apply(free.make_full_pairs(), scope=free.scope)
        assert report.complete
        assert report.changed
        assert report.read_back is not None
        assert report.read_back.connections.pairs >= free.make_full_pairs().pairs
        assert set(report.pairs.values()) == {Status.DONE}
        assert self.read_free_circuits(empty, free) == free.make_full_pairs()

    def test_apply_moves_from_one_to_another(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        empty.apply(free.make_full_pairs(1), scope=free.scope)
        assert self.read_free_circuits(empty, free) == free.make_full_pairs(1)

    def test_applying_again_sends_nothing(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        calls: list[str] = []
        report = empty.apply(free.make_full_pairs(), guard=lambda: calls.append("write"), scope=free.scope)
        assert not report.changed
        assert report.complete
        assert calls == []

    def test_scope_leaves_other_circuits_alone(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_pairs(1, 2, 3), scope=free.scope)
        empty.apply(free.make_pairs(2, 1), scope={free.get_input(1), free.get_input(2)})
        assert self.read_free_circuits(empty, free) == free.make_pairs(2, 1, 3)

    def test_guard_is_asked_before_every_write(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_pairs(1, 2), scope=free.scope)
        configurations: list[CrossConnects] = []
        report = empty.apply(
            free.make_pairs(2, 1),
            guard=lambda: configurations.append(self.read_free_circuits(empty, free)),
            scope=free.scope,
        )
        distinct_configurations = [
            configuration for configuration, _ in groupby(configurations)
        ]  # some steps take several commands
        expected = [free.make_pairs(1, 2), *(step.after for step in report.steps[:-1])]
        assert [circuits.pairs for circuits in distinct_configurations] == [
            circuits.pairs & _list_all_pairs(free) for circuits in expected
        ]

    def test_guard_that_raises_lets_nothing_pass(self, empty: OpticalSwitch, free: FreePorts) -> None:
        def refuse() -> None:
            raise GuardRefused

        with pytest.raises(GuardRefused):
            empty.apply(free.make_full_pairs(), guard=refuse, scope=free.scope)
        assert self.read_free_circuits(empty, free) == CrossConnects()

    def test_compare_and_set(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_pairs(1), scope=free.scope)
        with pytest.raises(Conflict) as caught:
            empty.apply(free.make_full_pairs(), expect=free.make_pairs(2), scope=free.scope)
        assert caught.value.actual == dict(empty.read().connections)
        assert caught.value.expected == dict(free.make_pairs(2))
        assert self.read_free_circuits(empty, free) == free.make_pairs(1)
        assert empty.apply(free.make_full_pairs(), expect=empty.read().connections, scope=free.scope).complete

    def test_execute_judges_by_reading_back(self, empty: OpticalSwitch, free: FreePorts) -> None:
        (step,) = empty.plan(free.make_pairs(1), empty.read(), {free.get_input(1)})
        outcome = empty.execute(step)
        assert outcome.status is Status.DONE
        assert outcome.pairs == dict.fromkeys(free.make_pairs(1).items(), Status.DONE)
        assert outcome.read_back is not None
        assert outcome.read_back.connections.pairs >= free.make_pairs(1).pairs
        assert outcome.device_s >= 0

    def test_connect_and_disconnect_touch_only_what_they_name(
        self, empty: OpticalSwitch, free: FreePorts
    ) -> None:
        empty.connect(free.make_pairs(1, 2, 3))
        empty.connect(free.make_pairs(4))
        assert self.read_free_circuits(empty, free) == free.make_pairs(4, 2, 3)
        empty.disconnect([free.get_input(2)])
        assert self.read_free_circuits(empty, free) == free.make_pairs(4, 0, 3)
        assert not empty.disconnect([free.get_input(2)]).changed

    def test_connect_refuses_an_output_in_use(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.connect(free.make_pairs(0, 2))
        with pytest.raises(PortBusy) as caught:
            empty.connect(free.make_pairs(2))
        assert caught.value.peer == free.get_input(2)
        assert self.read_free_circuits(empty, free) == free.make_pairs(0, 2)

    # -- light

    def test_power_is_told_for_every_port_asked(self, empty: OpticalSwitch, free: FreePorts) -> None:
        ports = empty.ports()
        readings: Mapping[int, Power | None] = empty.power(tuple(ports))
        assert set(readings) == set(ports)
        assert all((readings[number] is not None) == ports[number].has_power_monitor for number in ports)

    def test_power_of_an_unknown_port_is_refused(self, switch: OpticalSwitch) -> None:
        with pytest.raises(UnknownPort):
            switch.power([0])

    def test_shutter_closes_and_opens(self, empty: OpticalSwitch, free: FreePorts) -> None:
        if not empty.capabilities.shutter:
            with pytest.raises(Unsupported):
                empty.shutter([free.get_input(1)], is_open=False)
            return
        empty.shutter([free.get_input(1), free.get_output(1)], is_open=False)
        assert empty.ports()[free.get_input(1)].state is PortState.DISABLED
        assert empty.ports()[free.get_input(2)].state is PortState.ENABLED
        empty.shutter([free.get_input(1), free.get_output(1)], is_open=True)
        assert empty.ports()[free.get_input(1)].state is PortState.ENABLED

    def test_attenuator_is_set_and_cleared(self, empty: OpticalSwitch, free: FreePorts) -> None:
        setting = Attenuation("relative", -3.0)
        if not empty.capabilities.attenuator:
            with pytest.raises(Unsupported):
                empty.set_attenuation(free.get_output(1), setting)
            return
        empty.set_attenuation(free.get_output(1), setting)
        assert empty.attenuation(free.get_output(1)) == setting
        empty.set_attenuation(free.get_output(1), Attenuation("none"))
        assert empty.attenuation(free.get_output(1)) == Attenuation("none")

    # -- events, sessions, threads

    def test_own_changes_are_events_only_where_there_are_any(
        self, empty: OpticalSwitch, free: FreePorts
    ) -> None:
        """A device may send no report to the session that made the change. Whether a Polatis does is unknown."""
        last_number = max((event.number for event in empty.events()), default=0)
        empty.apply(free.make_pairs(1), scope=free.scope)
        new_events = empty.events(since=last_number)
        assert empty.capabilities.async_events or not new_events
        assert all(event.number > last_number for event in new_events)

    def test_circuits_outlive_the_connection(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        empty.close()
        empty.close()
        with pytest.raises(ConnectionLost):
            empty.read()
        empty.open()
        assert self.read_free_circuits(empty, free) == free.make_full_pairs()

    def test_threads_get_their_own_answers(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_full_pairs(), scope=free.scope)
        identity = copy.copy(empty.identity())
        failures: list[object] = []
        checks = [
            lambda: self.read_free_circuits(empty, free) == free.make_full_pairs(),
            lambda: empty.identity() == identity,
            lambda: len(empty.ports()) == empty.capabilities.inputs + empty.capabilities.outputs,
            lambda: set(empty.power([1, 2])) == {1, 2},
        ]

        def ask(number: int) -> None:
            turns = range(20)
            failures.extend((number, n) for n in turns if not checks[(number + n) % len(checks)]())

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(checks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert failures == []

    def test_equal_configurations_have_equal_revisions(self, empty: OpticalSwitch, free: FreePorts) -> None:
        empty.apply(free.make_pairs(2, 1), scope=free.scope)
        first_read, second_read = empty.read(), empty.read()
        assert first_read.revision == second_read.revision == Snapshot(second_read.connections, 0.0).revision
        assert second_read.monotonic_s >= first_read.monotonic_s
