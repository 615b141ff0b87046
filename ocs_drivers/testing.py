"""The contract as tests: what every driver must do, to be run by whoever writes one.

    from ocs_drivers.testing import SwitchContract

    class TestMyDriver(SwitchContract):
        @pytest.fixture
        def switch(self):
            with open_switch("mine://10.0.0.2") as switch:
                yield switch

The switch behind the address is taken over: its circuits go. Needs at least four inputs and four outputs,
and pytest. A passing driver can be used by everything above `ocs_drivers`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping

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


class GuardRefused(Exception):
    """What the guards of these tests raise."""


class Wanted:
    """Pairs on the ports of any switch: `pairs(2, 1)` connects input 1 to the second output, 2 to the first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self._inputs = inputs
        self._outputs = outputs

    def output(self, number: int) -> int:
        """The device's number of the output counted from 1."""
        return self._inputs + number

    def pairs(self, *outputs: int) -> CrossConnects:
        """Inputs 1, 2, ... to these outputs counted from 1; 0 leaves an input out."""
        return CrossConnects(
            {number: self.output(output) for number, output in enumerate(outputs, 1) if output}
        )

    def full(self, shift: int = 0) -> CrossConnects:
        """As many circuits as the switch can hold, shifted."""
        count = min(self._inputs, self._outputs)
        return CrossConnects({n + 1: self.output(1 + (n + shift) % count) for n in range(count)})


class SwitchContract:
    """Inherit, and give a fixture `switch` that yields an open switch."""

    @pytest.fixture
    def empty(self, switch: OpticalSwitch) -> Iterator[OpticalSwitch]:
        """The switch with no circuit; none is left behind either."""
        switch.apply(CrossConnects())
        yield switch
        switch.open()
        switch.apply(CrossConnects())

    @pytest.fixture
    def wanted(self, switch: OpticalSwitch) -> Wanted:
        return Wanted(switch.capabilities.inputs, switch.capabilities.outputs)

    # -- who it is

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
        monitored = any(info.has_power_monitor for info in switch.ports().values())
        assert monitored == switch.capabilities.power_monitor

    # -- planning is pure

    def test_a_plan_moves_nothing(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        assert empty.plan(wanted.full(), empty.read())
        assert empty.read().connections == CrossConnects()

    def test_nothing_to_do_is_no_step(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        assert switch.plan(wanted.full(), wanted.full()) == ()

    def test_a_plan_ends_where_it_should(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        steps = switch.plan(wanted.full(1), wanted.full())
        assert steps[0].before == wanted.full()
        assert steps[-1].after == wanted.full(1)
        assert [step.before for step in steps[1:]] == [step.after for step in steps[:-1]]

    def test_whole_configuration_is_one_step_where_the_device_can(
        self, switch: OpticalSwitch, wanted: Wanted
    ) -> None:
        kinds = [step.kind for step in switch.plan(wanted.full(1), wanted.full())]
        commands = 1 if switch.capabilities.bulk_add else len(wanted.full())
        in_turn = ["remove"] * commands + ["add"] * commands
        assert kinds == (["replace"] if switch.capabilities.atomic_whole else in_turn)

    def test_break_before_make_within_the_scope(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        seen = wanted.pairs(1, 2, 3)
        steps = switch.plan(wanted.pairs(2, 1), seen, {1, 2})
        removals = [step for step in steps if step.kind == "remove"]
        additions = steps[len(removals) :]
        assert {step.kind for step in additions} == {"add"}
        assert [pair for step in removals for pair in step.pairs.items()] == [*wanted.pairs(1, 2).items()]
        assert [pair for step in additions for pair in step.pairs.items()] == [*wanted.pairs(2, 1).items()]
        assert len(steps) == (2 if switch.capabilities.bulk_add else 4)
        assert steps[-1].after == wanted.pairs(2, 1, 3)

    def test_unknown_port_is_refused(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        beyond = switch.capabilities.inputs + switch.capabilities.outputs + 1
        with pytest.raises(UnknownPort) as caught:
            switch.plan(CrossConnects({1: beyond}), CrossConnects())
        assert caught.value.ports == (beyond,)

    def test_wrong_side_is_refused(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        with pytest.raises(WrongSide) as caught:
            switch.plan(CrossConnects({1: 2}), CrossConnects())
        assert caught.value.ports == (2,)

    def test_target_outside_its_scope_is_refused(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        with pytest.raises(PortError) as caught:
            switch.plan(wanted.pairs(1, 2), CrossConnects(), {1})
        assert caught.value.ports == (2,)

    def test_output_of_a_foreign_circuit_is_busy(self, switch: OpticalSwitch, wanted: Wanted) -> None:
        with pytest.raises(PortBusy) as caught:
            switch.plan(wanted.pairs(3), wanted.pairs(0, 0, 3), {1})
        assert caught.value.peer == 3
        assert caught.value.ports == (1, wanted.output(3))

    # -- applying

    def test_apply_makes_it_so(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        report = empty.apply(wanted.full())
        assert report.complete
        assert report.changed
        assert report.read_back is not None
        assert report.read_back.connections == wanted.full()
        assert set(report.pairs.values()) == {Status.DONE}
        assert empty.read().connections == wanted.full()

    def test_apply_moves_from_one_to_another(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.full())
        empty.apply(wanted.full(1))
        assert empty.read().connections == wanted.full(1)

    def test_applying_again_sends_nothing(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.full())
        calls: list[str] = []
        report = empty.apply(wanted.full(), guard=lambda: calls.append("write"))
        assert not report.changed
        assert report.complete
        assert calls == []

    def test_scope_leaves_other_circuits_alone(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.pairs(1, 2, 3))
        empty.apply(wanted.pairs(2, 1), scope={1, 2})
        assert empty.read().connections == wanted.pairs(2, 1, 3)

    def test_guard_is_asked_before_every_write(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.pairs(1, 2))
        seen: list[CrossConnects] = []
        report = empty.apply(wanted.pairs(2, 1), guard=lambda: seen.append(empty.read().connections))
        assert seen == [step.before for step in report.steps]

    def test_guard_that_raises_lets_nothing_pass(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        def refuse() -> None:
            raise GuardRefused

        with pytest.raises(GuardRefused):
            empty.apply(wanted.full(), guard=refuse)
        assert empty.read().connections == CrossConnects()

    def test_compare_and_set(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.pairs(1))
        with pytest.raises(Conflict) as caught:
            empty.apply(wanted.full(), expect=wanted.pairs(2))
        assert caught.value.found == dict(wanted.pairs(1))
        assert caught.value.expected == dict(wanted.pairs(2))
        assert empty.read().connections == wanted.pairs(1)
        assert empty.apply(wanted.full(), expect=wanted.pairs(1)).complete

    def test_execute_judges_by_reading_back(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        (step,) = empty.plan(wanted.pairs(1), CrossConnects(), {1})
        outcome = empty.execute(step)
        assert outcome.status is Status.DONE
        assert outcome.pairs == dict.fromkeys(wanted.pairs(1).items(), Status.DONE)
        assert outcome.read_back is not None
        assert outcome.read_back.connections == wanted.pairs(1)
        assert outcome.device_s >= 0

    def test_connect_and_disconnect_touch_only_what_they_name(
        self, empty: OpticalSwitch, wanted: Wanted
    ) -> None:
        empty.connect(wanted.pairs(1, 2, 3))
        empty.connect(wanted.pairs(4))
        assert empty.read().connections == wanted.pairs(4, 2, 3)
        empty.disconnect([2])
        assert empty.read().connections == wanted.pairs(4, 0, 3)
        assert not empty.disconnect([2]).changed

    def test_connect_refuses_an_output_in_use(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.connect(wanted.pairs(0, 2))
        with pytest.raises(PortBusy) as caught:
            empty.connect(wanted.pairs(2))
        assert caught.value.peer == 2
        assert empty.read().connections == wanted.pairs(0, 2)

    # -- light

    def test_power_is_told_for_every_port_asked(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        ports = empty.ports()
        readings: Mapping[int, Power | None] = empty.power(tuple(ports))
        assert set(readings) == set(ports)
        assert all((readings[number] is not None) == ports[number].has_power_monitor for number in ports)

    def test_power_of_an_unknown_port_is_refused(self, switch: OpticalSwitch) -> None:
        with pytest.raises(UnknownPort):
            switch.power([0])

    def test_shutter_closes_and_opens(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        if not empty.capabilities.shutter:
            with pytest.raises(Unsupported):
                empty.shutter([1], is_open=False)
            return
        empty.shutter([1, wanted.output(1)], is_open=False)
        assert empty.ports()[1].state is PortState.DISABLED
        assert empty.ports()[2].state is PortState.ENABLED
        empty.shutter([1, wanted.output(1)], is_open=True)
        assert empty.ports()[1].state is PortState.ENABLED

    def test_attenuator_is_set_and_cleared(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        setting = Attenuation("relative", -3.0)
        if not empty.capabilities.attenuator:
            with pytest.raises(Unsupported):
                empty.set_attenuation(wanted.output(1), setting)
            return
        empty.set_attenuation(wanted.output(1), setting)
        assert empty.attenuation(wanted.output(1)) == setting
        empty.set_attenuation(wanted.output(1), Attenuation("none"))
        assert empty.attenuation(wanted.output(1)) == Attenuation("none")

    # -- events, sessions, threads

    def test_own_changes_are_events_where_there_are_any(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        last = max((event.number for event in empty.events()), default=0)
        empty.apply(wanted.pairs(1))
        news = empty.events(since=last)
        assert bool(news) == empty.capabilities.async_events
        assert all(event.number > last for event in news)

    def test_circuits_outlive_the_connection(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.full())
        empty.close()
        empty.close()
        with pytest.raises(ConnectionLost):
            empty.read()
        empty.open()
        assert empty.read().connections == wanted.full()

    def test_threads_get_their_own_answers(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.full())
        identity = copy.copy(empty.identity())
        wrong: list[object] = []
        questions = [
            lambda: empty.read().connections == wanted.full(),
            lambda: empty.identity() == identity,
            lambda: len(empty.ports()) == empty.capabilities.inputs + empty.capabilities.outputs,
            lambda: set(empty.power([1, 2])) == {1, 2},
        ]

        def ask(number: int) -> None:
            turns = range(20)
            wrong.extend((number, n) for n in turns if not questions[(number + n) % len(questions)]())

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(questions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []

    def test_equal_configurations_have_equal_revisions(self, empty: OpticalSwitch, wanted: Wanted) -> None:
        empty.apply(wanted.pairs(2, 1))
        first, again = empty.read(), empty.read()
        assert first.revision == again.revision == Snapshot(wanted.pairs(2, 1), 0.0).revision
        assert again.monotonic_s >= first.monotonic_s
