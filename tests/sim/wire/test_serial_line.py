"""A serial line with a simulated device at its end: bytes both ways, at the pace of the line."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sim.models.clock import VirtualClock
from sim.twins.wire.serial_line import SerialLine

SOON_S = 60.0


async def shout(reader: Any, writer: Any) -> None:
    """Answer every line in capitals, ended by CR; `bye` ends the session after an answer."""
    while data := await reader.read(4096):
        writer.write(data.upper() + b"\r")
        await writer.drain()
        if data == b"bye":
            writer.close()
            return


class Clock:
    """Real passes of the loop, and time that jumps to wherever somebody waits for."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)
        await asyncio.sleep(0)


def with_line(
    test: Callable[[SerialLine, Clock], Awaitable[None]], client: Any = shout, baud: int = 38400
) -> None:
    async def run() -> None:
        clock = Clock()
        line = SerialLine(client, baud=baud, clock=clock)
        line.open()
        try:
            await asyncio.wait_for(test(line, clock), SOON_S)
        finally:
            await line.close()
        assert not os.path.lexists(line.address)

    asyncio.run(run())


def opened(line: SerialLine) -> int:
    descriptor = os.open(line.address, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    tty.setraw(descriptor)
    return descriptor


async def heard(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        try:
            piece = os.read(descriptor, 4096)
        except BlockingIOError:
            await asyncio.sleep(0.001)
        else:
            assert piece, f"the line has vanished after {data!r}"
            data += piece
    return data


async def gone(descriptor: int) -> None:
    """Return when the line under an open descriptor has vanished."""
    while True:
        try:
            if not os.read(descriptor, 4096):
                return
        except BlockingIOError:
            await asyncio.sleep(0.001)
        except OSError:
            return


def test_bytes_go_both_ways():
    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        os.write(end, b"hello")
        assert await heard(end, 6) == b"HELLO\r"
        os.close(end)

    with_line(test)


@pytest.mark.parametrize(("baud", "seconds"), [(300, 10 * (1000 + 1001) / 300), (38400, 10 * 2001 / 38400)])
def test_a_byte_takes_ten_bits_of_the_clock_each_way(baud, seconds):
    async def whole(reader: Any, writer: Any) -> None:
        data = await reader.readexactly(1000)
        writer.write(data + b"\r")
        await reader.read()

    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        os.write(end, b"x" * 1000)
        await heard(end, 1001)
        assert clock.seconds == pytest.approx(seconds)
        os.close(end)

    with_line(test, whole, baud)


def test_on_a_virtual_clock_nothing_arrives_until_time_passes():
    async def run() -> None:
        clock = VirtualClock()
        line = SerialLine(shout, baud=1000, clock=clock)
        line.open()
        end = opened(line)
        os.write(end, b"abcd")
        await asyncio.sleep(0.02)
        await clock.advance(0.039)
        await asyncio.sleep(0.02)
        with pytest.raises(BlockingIOError):
            os.read(end, 10)
        await clock.advance(0.1)
        assert await asyncio.wait_for(heard(end, 5), SOON_S) == b"ABCD\r"
        os.close(end)
        await line.close()

    asyncio.run(run())


def test_several_open_it_in_turn():
    async def test(line: SerialLine, clock: Clock) -> None:
        for word in (b"one", b"two", b"three"):
            end = opened(line)
            os.write(end, word)
            assert await heard(end, len(word) + 1) == word.upper() + b"\r"
            os.close(end)

    with_line(test)


def test_a_line_that_vanishes_comes_back_at_the_same_path():
    async def test(line: SerialLine, clock: Clock) -> None:
        end, path = opened(line), line.address
        assert line.drop_clients() == 1
        await gone(end)
        os.close(end)
        assert line.address == path
        again = opened(line)
        os.write(again, b"x")
        assert await heard(again, 2) == b"X\r"
        os.close(again)

    with_line(test)


def test_a_line_that_was_taken_away_cannot_be_opened():
    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        await line.refuse()
        assert not line.is_open
        with pytest.raises(FileNotFoundError):
            opened(line)
        os.write(end, b"still")  # who has it, keeps it
        assert await heard(end, 6) == b"STILL\r"
        assert line.drop_clients() == 1
        await gone(end)
        os.close(end)
        assert line.drop_clients() == 0
        line.open()
        os.close(opened(line))

    with_line(test)


@pytest.mark.slow
def test_last_words_arrive_before_the_line_goes():
    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        os.write(end, b"bye")
        assert await heard(end, 4) == b"BYE\r"
        await gone(end)
        os.close(end)

    for _ in range(40):  # the kernel may take its time to bring them to this end, or not
        with_line(test)


def test_a_client_that_does_not_read_holds_up_only_itself():
    async def flood(reader: Any, writer: Any) -> None:
        await reader.read(10)
        writer.write(b"z" * 50_000)
        await writer.drain()
        writer.write(b"!")
        await reader.read()

    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        os.write(end, b"go")
        await asyncio.sleep(0.05)
        assert await heard(end, 50_001) == b"z" * 50_000 + b"!"
        os.close(end)

    with_line(test, flood)


def test_a_line_that_vanishes_in_an_answer_ends_the_session():
    ended = asyncio.Event()

    async def flood(reader: Any, writer: Any) -> None:
        try:
            await reader.read(10)
            writer.write(b"z" * 50_000)
            await writer.drain()
        except ConnectionError:
            ended.set()
            raise

    async def test(line: SerialLine, clock: Clock) -> None:
        end = opened(line)
        os.write(end, b"go")
        await heard(end, 100)
        line.drop_clients()
        await ended.wait()
        os.close(end)

    with_line(test, flood)
