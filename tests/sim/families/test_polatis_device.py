"""Whatever is commanded in whatever order: no port is used twice, and what is at rest is lit."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.clock import VirtualClock
from sim.twins.plant import Plant
from sim.twins.switch.device import SwitchDevice, SwitchFaults
from sim.twins.switch.matrix import Matrix, MatrixRefusal
from sim.twins.wire.line import Delivery

SIZE = 4
INPUTS, OUTPUTS = list(range(1, SIZE + 1)), list(range(SIZE + 1, 2 * SIZE + 1))

pairs = st.integers(0, SIZE).flatmap(
    lambda count: st.tuples(
        st.permutations(INPUTS).map(lambda order: order[:count]),
        st.permutations(OUTPUTS).map(lambda order: order[:count]),
    )
)
port = st.integers(0, 2 * SIZE + 1)
operations = st.one_of(
    st.tuples(st.sampled_from(["add", "only", "force"]), pairs),
    st.tuples(st.just("sub"), st.lists(st.sampled_from(INPUTS), max_size=2)),
    st.tuples(st.sampled_from(["disable", "enable", "fail", "lock", "unlock", "cut ports"]), port),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.01, 0.02, 1.0])),
    st.tuples(st.sampled_from(["clear", "power"]), st.none()),
)


class Plan:
    """Records what the switch last told the plant."""

    def __init__(self):
        self.lit_connections = {}

    def update_switch(self, switch, lit, attenuators):
        assert len(set(lit.values())) == len(lit)
        assert attenuators.keys() == set(lit.values())
        self.lit_connections = dict(lit)


def make(plant, clock, **options):
    defaults = {"switch_time_s": 0.02, "is_hitless": False, "boot_mode": "AUTOSAVE", "faults": SwitchFaults()}
    return SwitchDevice("ocs1", Matrix(SIZE, SIZE), plant=plant, clock=clock, **{**defaults, **options})


async def perform(device, clock, verb, value):
    matrix = device.matrix
    match verb:
        case "add" | "force":
            device.change_connections(matrix.plan_connections(*value, "replace" if verb == "force" else None))
        case "only":
            device.change_connections(matrix.plan_exact_connections(*value), is_full_configuration=True)
        case "sub":
            device.change_connections(matrix.plan_removal(value))
        case "cut ports":
            device.change_connections(matrix.plan_port_removal([value]))
        case "clear":
            device.change_connections(matrix.plan_full_removal(), is_full_configuration=True)
        case "disable" | "enable":
            matrix.check_port(value)
            device.set_disabled({value}, is_disabled=verb == "disable")
        case "fail":
            matrix.failed_ports.add(value)
            device.report_light()
        case "lock":
            matrix.locked_ports.add(value)
        case "unlock":
            matrix.locked_ports.discard(value)
        case "wait":
            await clock.advance(value)
        case "power":
            device.power_off()
            assert device.plant.lit_connections == {}
            device.boot()


@pytest.mark.long
def test_books_and_light_stay_in_order():
    seen = Counter()

    async def story(steps):
        clock, plant = VirtualClock(), Plan()
        device = make(plant, clock)
        for verb, value in steps:
            before = dict(device.matrix.connections)
            try:
                await perform(device, clock, verb, value)
            except MatrixRefusal:
                seen["refused"] += 1
                assert device.matrix.connections == before
            connections = device.matrix.connections
            assert len(set(connections.values())) == len(connections)
            assert plant.lit_connections.items() <= connections.items()
            assert plant.lit_connections == device.lit_connections
        seen["dark at the end of commands"] += plant.lit_connections != device.matrix.connections
        await clock.advance(0.02)
        await asyncio.wait_for(device.wait_idle(), 1.0)
        at_rest = {
            pair[0]: pair[1] for pair in device.matrix.connections.items() if device.matrix.passes_light(pair)
        }
        assert plant.lit_connections == at_rest
        seen["lit at rest"] += bool(at_rest)
        await device.stop()

    @settings(max_examples=500)
    @given(st.lists(operations, max_size=12))
    def check(steps):
        asyncio.run(story(steps))

    check()
    assert min(seen["refused"], seen["lit at rest"], seen["dark at the end of commands"]) >= 15, seen


def test_a_renderer_that_fails_does_not_stop_the_mirrors():
    class Fails(Plan):
        broken = True

        def update_switch(self, switch, lit, attenuators):
            super().update_switch(switch, lit, attenuators)
            if self.broken:
                raise RuntimeError("tc")

    async def story():
        clock, plant = VirtualClock(), Fails()
        device = make(plant, clock)
        with pytest.raises(RuntimeError, match="tc"):
            device.change_connections({1: 5})
        plant.broken = False
        await clock.advance(0.02)
        await device.wait_idle()
        return plant.lit_connections

    assert asyncio.run(story()) == {1: 5}


def test_idle_callbacks():
    async def story():
        clock, called = VirtualClock(), []
        device = make(Plant({}), clock)
        device.call_when_idle(lambda: called.append("at once"))
        device.change_connections({1: 5})
        device.call_when_idle(lambda: called.append("later"))
        assert called == ["at once"]
        await clock.advance(0.02)
        return called

    assert asyncio.run(story()) == ["at once", "later"]


def test_fates_come_in_their_turn():
    faults = SwitchFaults(close_after_commands=2)
    assert [faults.determine_delivery() for _ in range(3)] == [
        Delivery.ANSWERED,
        Delivery.NOT_ANSWERED,
        Delivery.ANSWERED,
    ]
