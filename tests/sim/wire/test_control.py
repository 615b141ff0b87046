"""The control socket answers every line with one line, right or wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

from sim.twins.wire.control import ControlServer, VerbError, answer_request
from sim.twins.wire.listener import Listener, bind_socket


def refuse(_):
    raise VerbError("not today")


async def slowly(request):
    await asyncio.sleep(0)
    return {"twice": 2 * request.get_integer("value")}


VERBS = {"truth": lambda _: {"lit": []}, "refuse": refuse, "slowly": slowly}


def ask(line) -> dict:
    return asyncio.run(answer_request(VERBS, line.encode()))


def test_a_verb_is_answered():
    assert ask('{"do": "truth"}') == {"ok": True, "lit": []}
    assert ask('{"do": "slowly", "value": 21}') == {"ok": True, "twice": 42}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"do": "sing"}', "unknown verb 'sing'; this socket knows: refuse, slowly, truth"),
        ('{"do": "refuse"}', "not today"),
        ('{"do": "slowly"}', "field 'value' is missing"),
        ('{"do": "slowly", "value": 1.5}', "field 'value' must be an integer, not 1.5"),
        ('{"do": "slowly", "value": true}', "field 'value' must be an integer, not True"),
        ('{"do": 3}', "field 'do' must be a string, not 3"),
        ("[1]", 'a request must be an object such as {"do": "truth"}'),
    ],
)
def test_wrong_requests_are_explained(line, error):
    assert ask(line) == {"ok": False, "error": error}


def test_what_is_not_json_is_said_so():
    reply = ask("truth, please")
    assert reply["ok"] is False
    assert reply["error"].startswith("not a line of JSON")


@pytest.mark.socket
def test_several_clients_each_get_their_own_answers():
    async def story():
        server, sock = ControlServer(VERBS), bind_socket("127.0.0.1", 0)
        await server.serve(sock)
        clients = [await asyncio.open_connection(*sock.getsockname()) for _ in range(3)]
        for value, (_, writer) in enumerate(clients):
            writer.write(b'{"do": "slowly", "value": %d}\n' % value * 2)
        replies = [[json.loads(await reader.readline()) for _ in range(2)] for reader, _ in clients]
        for _, writer in clients:
            writer.close()
        await server.close()
        return replies

    assert asyncio.run(story()) == [[{"ok": True, "twice": 2 * value}] * 2 for value in range(3)]


async def echo(reader, writer):
    while data := await reader.read(100):
        writer.write(data)


@pytest.mark.socket
def test_a_listener_refuses_and_accepts_again_on_the_same_address():
    async def story():
        sock = bind_socket("127.0.0.1", 0)
        address, listener = sock.getsockname(), Listener(sock, echo)
        for _ in range(3):
            listener.open()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            await listener.refuse()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            writer.write(b"y")  # who was in stays in
            assert await reader.read(1) == b"y"
            writer.close()
        await listener.close()

    asyncio.run(story())


@pytest.mark.socket
def test_dropped_clients_see_the_end():
    async def story():
        sock = bind_socket("127.0.0.1", 0)
        listener = Listener(sock, echo)
        listener.open()
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        assert listener.drop_clients() == 1
        assert await reader.read() == b""
        writer.close()
        await listener.close()

    asyncio.run(story())


@pytest.mark.socket
def test_a_taken_address_is_an_error():
    with bind_socket("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(OSError, match="in use"):
            bind_socket(*first.getsockname())
