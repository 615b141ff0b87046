"""A session without sockets is as one with them: same bytes, same faults, same endings, on virtual time.

The frontend here is made up (it answers what it gets in capitals), so that what is tested is common to all families.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from sim.models.clock import VirtualClock
from sim.twins.plant import Plant
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import answer_request

FLOOR_DBM = -60.0


class Shout:
    """Answers in capitals, and knows what it was asked."""

    def __init__(self):
        self.asked = []

    async def serve(self, line):
        while data := await line.read():
            await line.respond(lambda data=data: self.execute(data))

    async def execute(self, data):
        self.asked.append(data)
        return data.upper()


def make(frontend):
    clock = VirtualClock()
    settings = TwinSettings("ocs1", 4, 4, Plant({}), clock)
    device = settings.make_device(switch_time_s=0.02)
    return SwitchTwin(device, {"shout": Frontend("made-up", frontend.serve)}), clock


def story(tell):
    """Run `tell(twin, clock)` in a loop of its own, and close the twin; gives what the frontend was asked."""
    frontend = Shout()

    async def run():
        twin, clock = make(frontend)
        try:
            await tell(twin, clock)
        finally:
            await twin.close()

    asyncio.run(run())
    return frontend.asked


async def do(twin, verb, **fields):
    reply = await answer_request(twin.make_verbs(), json.dumps({"do": verb, **fields}).encode())
    assert reply.pop("ok"), reply
    return reply


async def set_fault(twin, fault, **fields):
    await do(twin, "set_fault", fault=fault, **fields)


async def fired(twin):
    truth = await do(twin, "truth")
    return truth["fired"].items() - {(name, 0) for name in truth["fired"]}


async def ask(client, clock, data=b"hello\n"):
    client.send(data)
    await clock.advance(0.0)
    return client.receive()


def test_two_clients_are_answered_and_every_byte_is_in_the_transcript():
    async def tell(twin, clock):
        one, other = twin.attach("shout"), twin.attach("shout")
        assert [await ask(one, clock), await ask(other, clock, b"you\n")] == [b"HELLO\n", b"YOU\n"]
        entries = (await do(twin, "transcript"))["entries"]
        assert [(entry["session"], entry["direction"], entry["data"]) for entry in entries] == [
            (1, "in", "hello\n"),
            (1, "out", "HELLO\n"),
            (2, "in", "you\n"),
            (2, "out", "YOU\n"),
        ]

    story(tell)


def test_there_is_no_front_of_another_name():
    async def tell(twin, clock):
        with pytest.raises(KeyError):
            twin.attach("whisper")

    story(tell)


def test_disconnecting_ends_the_session_of_this_client_only():
    async def tell(twin, clock):
        one, other = twin.attach("shout"), twin.attach("shout")
        one.close()
        one.close()
        with pytest.raises(ConnectionResetError, match="this end is closed"):
            one.send(b"hello\n")
        await clock.advance(0.0)
        assert (one.is_closed, other.is_closed) == (True, False)
        assert await ask(other, clock) == b"HELLO\n"

    story(tell)


def test_refusing_and_accepting_again():
    async def tell(twin, clock):
        before = twin.attach("shout")
        await set_fault(twin, "refuse")
        with pytest.raises(ConnectionRefusedError):
            twin.attach("shout")
        assert await ask(before, clock) == b"HELLO\n"
        assert await fired(twin) == {("refuse", 1)}
        await do(twin, "clear_fault", fault="refuse")
        assert await ask(twin.attach("shout"), clock) == b"HELLO\n"

    story(tell)


def test_refusing_before_anybody_ever_came():
    async def tell(twin, clock):
        await set_fault(twin, "refuse")
        with pytest.raises(ConnectionRefusedError):
            twin.attach("shout")

    story(tell)


def test_dropped_clients_are_told_and_can_come_again():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await clock.advance(0.0)
        await set_fault(twin, "close_connection")
        assert client.is_closed
        with pytest.raises(ConnectionResetError, match="the device has closed the connection"):
            client.send(b"hello\n")
        assert await fired(twin) == {("close_connection", 1)}
        assert await ask(twin.attach("shout"), clock) == b"HELLO\n"

    story(tell)


def test_a_power_cycle_drops_refuses_and_comes_back():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await clock.advance(0.0)
        cycle = asyncio.create_task(twin.power_cycle(5.0))
        await clock.advance(4.9)
        assert client.is_closed
        with pytest.raises(ConnectionRefusedError):
            twin.attach("shout")
        await clock.advance(0.1)
        await cycle
        assert await ask(twin.attach("shout"), clock) == b"HELLO\n"

    story(tell)


@pytest.mark.parametrize(("executed", "asked"), [(True, [b"hello\n"]), (False, [])])
def test_a_connection_that_ends_with_a_command(executed, asked):
    async def tell(twin, clock):
        client = twin.attach("shout")
        await set_fault(twin, "close_connection", after_commands=1, executed=executed)
        assert await ask(client, clock) == b""
        assert client.is_closed
        assert await fired(twin) == {("close_connection", 1)}

    assert story(tell) == asked


def test_a_connection_that_ends_within_an_answer():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await set_fault(twin, "close_connection", after_bytes=3)
        assert await ask(client, clock) == b"HEL"
        assert client.is_closed

    story(tell)


def test_a_delayed_answer_takes_virtual_time():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await set_fault(twin, "delay_reply", seconds=30.0)
        assert await ask(client, clock) == b""
        await clock.advance(29.9)
        assert client.receive() == b""
        await clock.advance(0.1)
        assert client.receive() == b"HELLO\n"
        assert await fired(twin) == {("delay_reply", 1)}

    story(tell)


def test_garbage_ends_as_the_answer_would():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await set_fault(twin, "garbage", count=1)
        noise = await ask(client, clock)
        assert noise.endswith(b"O\n")
        assert noise != b"HELLO\n"
        assert await ask(client, clock) == b"HELLO\n"
        assert await fired(twin) == {("garbage", 1)}

    story(tell)


def test_a_half_open_line_stays_open_and_hears_nothing():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await set_fault(twin, "half_open")
        assert await ask(client, clock) == b""
        await clock.advance(1000.0)
        assert (client.receive(), client.is_closed) == (b"", False)
        assert await fired(twin) == {("half_open", 1)}
        await do(twin, "clear_fault", fault="half_open")
        assert client.receive() == b""
        assert await ask(client, clock, b"again\n") == b"AGAIN\n"

    assert story(tell) == [b"again\n"]


def test_a_limit_of_clients():
    async def tell(twin, clock):
        await set_fault(twin, "max_sessions", count=1)
        first, second = twin.attach("shout"), twin.attach("shout")
        await clock.advance(0.0)
        assert (first.is_closed, second.is_closed) == (False, True)
        assert await fired(twin) == {("max_sessions", 1)}
        first.close()
        await clock.advance(0.0)
        assert await ask(twin.attach("shout"), clock) == b"HELLO\n"

    story(tell)


def test_closing_the_twin_ends_every_session():
    async def tell(twin, clock):
        client = twin.attach("shout")
        await twin.close()
        assert client.is_closed
        with pytest.raises(ConnectionRefusedError):
            twin.attach("shout")

    story(tell)


# -- what light does, with faults of ports and fibres


async def lit(twin, clock):
    """Return two circuits at rest."""
    twin.device.change_connections({1: 5, 2: 6})
    await clock.advance(0.02)
    assert twin.device.lit_connections == {1: 5, 2: 6}


def test_a_dark_input():
    async def tell(twin, clock):
        await lit(twin, clock)
        await set_fault(twin, "dark_input", port=1)
        assert [twin.device.read_power_dbm(port) for port in (1, 5)] == [FLOOR_DBM, FLOOR_DBM]
        assert twin.device.read_power_dbm(6) > FLOOR_DBM
        truth = await do(twin, "truth")
        assert (truth["connections"], truth["lit"]) == ([[1, 5], [2, 6]], [[2, 6]])
        assert truth["fired"]["dark_input"] == 2
        await do(twin, "clear_fault", fault="dark_input", port=1)
        assert twin.device.lit_connections == {1: 5, 2: 6}

    story(tell)


def test_swapped_fibres_leave_the_configuration_right_and_the_path_wrong():
    async def tell(twin, clock):
        await lit(twin, clock)
        await set_fault(twin, "swap_fibres", pair=[1, 2])
        truth = await do(twin, "truth")
        assert truth["connections"] == truth["lit"] == [[1, 5], [2, 6]]
        assert sorted(truth["really"]) == [[1, 6], [2, 5]]
        await do(twin, "clear_fault", fault="swap_fibres")
        assert (await do(twin, "truth"))["really"] == [[1, 5], [2, 6]]

    story(tell)


def test_the_dark_fibre_goes_where_it_is_plugged():
    async def tell(twin, clock):
        await lit(twin, clock)
        await set_fault(twin, "dark_input", port=1)
        await set_fault(twin, "swap_fibres", pair=[1, 2])
        assert twin.device.read_power_dbm(2) == FLOOR_DBM
        assert twin.device.read_power_dbm(1) > FLOOR_DBM
        assert twin.device.lit_connections == {1: 5}

    story(tell)


def test_a_fibre_is_swapped_with_one_other_at_most():
    async def tell(twin, clock):
        twin.device.change_connections({1: 5, 2: 6, 3: 7})
        await clock.advance(0.02)
        await set_fault(twin, "swap_fibres", pair=[1, 2])
        await set_fault(twin, "swap_fibres", pair=[2, 3])
        assert twin.device.light_paths == {1: 5, 3: 6, 2: 7}
        await set_fault(twin, "swap_fibres", pair=[3, 2])
        assert twin.device.light_paths == {1: 5, 3: 6, 2: 7}

    story(tell)


@pytest.mark.parametrize(
    ("pair", "complaint"), [([1, 5], "other side"), ([1, 9], "does not exist"), ([2, 2], "two different")]
)
def test_only_two_inputs_can_be_swapped(pair, complaint):
    async def tell(twin, clock):
        request = f'{{"do": "set_fault", "fault": "swap_fibres", "pair": {pair}}}'
        reply = await answer_request(twin.make_verbs(), request.encode())
        assert (reply["ok"], complaint in reply["error"]) == (False, True)

    story(tell)


def test_what_unfit_ports_refuse_is_counted():
    async def tell(twin, clock):
        matrix = twin.device.matrix
        for fault, port in (("fail_port", 1), ("lock_port", 2), ("disable_port", 3)):
            await set_fault(twin, fault, port=port)
            with pytest.raises(Exception, match=f"port {port} "):
                matrix.plan_connections([port], [5])
        await set_fault(twin, "stuck", pair=[4, 8])
        assert twin.device.change_connections({4: 8}) is None
        assert await fired(twin) == {("fail_port", 1), ("lock_port", 1), ("disable_port", 1), ("stuck", 1)}

    story(tell)


def test_wear_counts_every_move_of_a_port():
    async def tell(twin, clock):
        for after in ({1: 5}, {1: 6}, {}, {1: 6}):
            twin.device.change_connections(after)
        assert (await do(twin, "truth"))["wear"] == {"1": 5, "5": 2, "6": 3}

    story(tell)


def test_a_reported_change_names_what_was_made_and_what_removed():
    async def tell(twin, clock):
        changes = []
        twin.device.add_listener(changes.append)
        twin.device.change_connections({1: 5, 2: 6})
        twin.device.change_connections({1: 6, 3: 7})
        assert [(set(change.removed_pairs), set(change.added_pairs)) for change in changes] == [
            (set(), {(1, 5), (2, 6)}),
            ({(1, 5), (2, 6)}, {(1, 6), (3, 7)}),
        ]

    story(tell)
