"""A command line as devices have it: a prompt, what is typed repeated, one command at a time.

A session is plain bytes on a `Line`, the same over SSH, over telnet (`sim.twins.frontends.telnet` around it) and
in memory. A family brings a table of commands: regular expression -> what it does.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.models.clock import Clock
from sim.twins.switch.fault_list import Fault
from sim.twins.wire.line import LineFaults

LONGEST_COMMAND = 1 << 16

_BLUE, _PLAIN = "\x1b[1;34m", "\x1b[0m"
_PAGER = "--More--"
_TABLE_ROWS = 3
"""Lines from which a reply counts as a table, which noise and truncation may hit."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Output of a command, lines parted by LF without a last line end, and its exit status.

    `leaves` is True of a command that ends the session.
    """

    text: str
    status: int = 0
    leaves: bool = False


class Left(Exception):
    """A line that ends the session; the argument is what it printed."""


Execute = Callable[[str], Awaitable[Printed]]
Interpreter = Callable[[str, int, Execute], Awaitable[Printed]]
"""Does a line that may have several commands, given the exit status of what was done before."""


async def one_command(line: str, status: int, execute: Execute) -> Printed:
    """Interpret a line as one command; an empty one leaves the exit status as it is."""
    return await execute(line) if line else Printed("", status)


class CommandError(Exception):
    """A command that the device refuses; the message is what it prints."""


class Terminal(Protocol):
    """The client's end: `sim.twins.wire.line.Line`, or its like for telnet."""

    async def read(self) -> bytes:
        """Return the bytes that were typed; empty at the end."""
        ...

    def send(self, data: bytes) -> None:
        """Show something at once."""

    async def respond(self, execute: Callable[[], Awaitable[bytes]], ending: bytes = b"") -> None:
        """Do one command, and show what it prints and then `ending`."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A command as it came: what the pattern matched, who typed it, and on which command line."""

    match: re.Match[str]
    user: str
    frontend: str


Handler = Callable[[Typed], str | Printed | Awaitable[str | Printed]]
"""Does a command; gives what the device prints. Text alone is that of a command that succeeded."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Appearance of a command line.

    `prompt` is printed as it stands, in colour where `colour`. `account` is asked for on the line itself, the user
    with `login`, as over telnet; None where the wire has a login of its own, whose user is then `user`. `page_rows`
    is the length of a page, 0 for no paging. `unknown` is the answer to an unknown command, with that exit status,
    `noise` the line that the fault of that name throws into a table. `leave` are commands that end the session.
    """

    prompt: str
    user: str = "admin"
    account: tuple[str, str] | None = None
    greeting: str = ""
    login: str = "login: "
    echo: bool = True
    colour: bool = False
    page_rows: int = 0
    unknown: str = "unknown command"
    unknown_status: int = 0
    rejected: str = "Login incorrect"
    noise: str = "%% LOG: temperature of the shelf is 31 C"
    leave: frozenset[str] = frozenset({"exit", "quit", "logout"})


@dataclass(slots=True)
class CliFaults:
    """Faults of tables on a command line: the next so many lose rows, or have noise within."""

    device: LineFaults
    truncated_tables: int = 0
    noisy_tables: int = 0

    def table(self) -> Mapping[str, Fault]:
        """Return the faults by name, for `SwitchTwin`."""
        return {
            "truncate_table": self._make_counter("truncated_tables"),
            "noise": self._make_counter("noisy_tables"),
        }

    def _make_counter(self, name: str) -> Fault:
        return Fault(
            lambda request: setattr(self, name, request.whole("count", 1)),
            lambda _: setattr(self, name, 0),
            "count",
        )

    def spoil(self, rows: list[str], noise: str) -> list[str]:
        """Return the rows of a reply as they really come."""
        if len(rows) < _TABLE_ROWS:
            return rows
        if self.truncated_tables:
            self.truncated_tables -= 1
            self.device.fired["truncate_table"] += 1
            kept = len(rows) // 2
            rows = [*rows[:kept], rows[kept][: len(rows[kept]) // 2]]
        if self.noisy_tables:
            self.noisy_tables -= 1
            self.device.fired["noise"] += 1
            rows = [*rows[:2], noise, *rows[2:]]
        return rows


class CliFrontend:
    """State that all sessions of one command line share.

    `commands` are tried in order, each against the whole command. Sessions that are idle for `idle_timeout_s`
    of the clock are ended; None for never. `name` tells commands of several command lines of a device apart.
    `interpreter` parts a line into commands, where there can be several.
    """

    def __init__(
        self,
        commands: Mapping[str, Handler],
        manner: Manner,
        *,
        clock: Clock,
        faults: CliFaults,
        idle_timeout_s: float | None = None,
        name: str = "cli",
        interpreter: Interpreter = one_command,
    ) -> None:
        self.name = name
        self.manner = manner
        self.clock = clock
        self.faults = faults
        self.idle_timeout_s = idle_timeout_s
        self._interpreter = interpreter
        self._commands = [(re.compile(pattern), handler) for pattern, handler in commands.items()]
        self._sessions: list[_Session] = []

    @property
    def sessions(self) -> int:
        """Number of sessions that are logged in."""
        return sum(bool(session.user) for session in self._sessions)

    async def serve(self, line: Terminal, echoes: Callable[[], bool] | None = None) -> None:
        """Serve one client until it leaves, or is idle for too long; `echoes` goes before the manner's `echo`."""
        session = _Session(self, line, echoes or (lambda: self.manner.echo))
        self._sessions.append(session)
        try:
            await session.run()
        finally:
            self._sessions.remove(session)

    def announce(self, *lines: str) -> None:
        """Print lines to every session, asked for or not: right behind the prompt, as captures of a ROME show them."""
        for session in self._sessions:
            if session.user:
                session.print("".join(f"{line}\r\n" for line in lines))

    def expire(self) -> int:
        """End all sessions; gives their number."""
        for session in self._sessions:
            session.end()
        return len(self._sessions)

    async def execute(self, line: Terminal, command: str) -> int:
        """Execute one command that comes without a shell, and give its exit status: no greeting, no echo, no prompt."""
        status = self.manner.unknown_status

        async def answer() -> bytes:
            nonlocal status
            printed = await self.run(command.strip(), self.manner.user)
            status = printed.status
            return _wire(self.rows(printed)).encode()

        await line.respond(answer)
        return status

    async def run(self, line: str, user: str, status: int = 0) -> Printed:
        """Do what a line says. `status` is the exit status of what was done before."""
        return await self._interpreter(line, status, lambda command: self._do(command, user))

    def rows(self, printed: Printed) -> list[str]:
        """Return the lines of an output as they really come, with the faults of tables."""
        return self.faults.spoil(printed.text.splitlines(), self.manner.noise)

    async def _do(self, command: str, user: str) -> Printed:
        for pattern, handler in self._commands:
            match = pattern.fullmatch(command)
            if match:
                given = handler(Typed(match, user, self.name))
                printed = given if isinstance(given, str | Printed) else await given
                return Printed(printed) if isinstance(printed, str) else printed
        return Printed(self.manner.unknown, self.manner.unknown_status)


class _Session:
    """One client at the command line. `user` is empty until it has logged in."""

    def __init__(self, frontend: CliFrontend, line: Terminal, echoes: Callable[[], bool]) -> None:
        self.user = ""
        self._status = 0
        self._frontend = frontend
        self._manner = frontend.manner
        self._line = line
        self._echoes = echoes
        self._keyboard = Keyboard()
        self._lines: list[str] = []
        self._reading: asyncio.Task[bytes] | None = None
        self._used_s = frontend.clock.now()
        self._ended = asyncio.Event()

    def print(self, text: str) -> None:
        """Show text at once."""
        self._line.send(text.encode())

    def end(self) -> None:
        """End the session from the device's side."""
        self._ended.set()
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Serve one client, from the greeting to the end."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            self.user = self._manner.user if self._manner.account is None else await self._login()
            if self.user:
                await self._serve()
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        """End the session when nothing was typed for too long."""
        limit_s, clock = self._frontend.idle_timeout_s, self._frontend.clock
        while limit_s is not None:
            if self._reading is None:  # it is at work
                self._used_s = clock.now()
            left_s = self._used_s + limit_s - clock.now()
            if left_s <= 0:
                self.end()
                return
            await clock.sleep(left_s)

    async def _serve(self) -> None:
        self.print(_wire([self._manner.greeting] if self._manner.greeting else []) + self._prompt())
        while (command := await self._read_line()) is not None:
            if command.strip() in self._manner.leave:
                return
            prompt = self._prompt().encode()
            try:
                await self._line.respond(lambda command=command: self._answer(command), prompt)  # type: ignore[misc]
            except Left as left:
                self.print(str(left))
                return

    async def _login(self) -> str:
        """Return the user who has logged in; empty when the client left or guessed three times."""
        for _ in range(3):
            self.print(self._manner.login)
            user = await self._read_line()
            self.print("Password: ")
            password = await self._read_line(secret=True)
            if user is None or password is None:
                return ""
            if (user, password) == self._manner.account:
                return user
            self.print(f"{self._manner.rejected}\r\n")
        return ""

    def _prompt(self) -> str:
        prompt = self._manner.prompt
        return f"{_BLUE}{prompt}{_PLAIN}" if self._manner.colour else prompt

    async def _answer(self, command: str) -> bytes:
        printed = await self._frontend.run(command.strip(), self.user, self._status)
        self._status = printed.status
        text = _wire(await self._show_pages(self._frontend.rows(printed)))
        if printed.leaves:
            raise Left(text)
        return text.encode()

    async def _show_pages(self, rows: Sequence[str]) -> Sequence[str]:
        """Show all pages but the last, which is left for the caller to show."""
        length = self._manner.page_rows
        while length and len(rows) > length:
            self.print(_wire(rows[:length]) + _PAGER)
            rows = rows[length:]
            key = await self._read()
            self.print("\b" * len(_PAGER) + " " * len(_PAGER) + "\b" * len(_PAGER))
            if not key or key in {b"q", b"\x03"}:
                return ()
        return rows

    async def _read_line(self, *, secret: bool = False) -> str | None:
        """Return the next line that is typed; None when the client has left or its time is up."""
        while not self._lines:
            data = await self._read()
            if not data:
                return None
            shown = "".join(self._take(data, secret=secret))
            if self._echoes() or secret:
                self.print(shown)
        return self._lines.pop(0)

    def _take(self, data: bytes, *, secret: bool) -> Iterator[str]:
        """Take in what was typed, and give what the device shows of it: of a password, that it has ended."""
        for echo, line in self._keyboard.feed(data):
            if line is not None:
                self._lines.append(line)
            if line is not None or not secret:
                yield echo

    async def _read(self) -> bytes:
        """Return the next input; empty when the client has left, was idle for too long, or is to leave."""
        if self._ended.is_set():
            return b""
        self._reading = asyncio.get_running_loop().create_task(self._line.read())
        try:
            return await self._reading
        except asyncio.CancelledError:
            if not self._ended.is_set():
                raise
            return b""
        finally:
            self._reading = None
            self._used_s = self._frontend.clock.now()


def _wire(rows: Sequence[str]) -> str:
    return "".join(f"{row}\r\n" for row in rows)


class Keyboard:
    """Bytes as they are typed, to lines; gives what a device repeats of them as well."""

    def __init__(self) -> None:
        self._typed = ""
        self._after_return = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> Iterator[tuple[str, str | None]]:
        """Yield for each character what to repeat, and the line when it ends there."""
        for character in self._utf8.decode(data):
            after_return, self._after_return = self._after_return, character == "\r"
            if character in "\n\x00" and after_return:
                continue  # the second half of a line end, in telnet's way or in everybody's
            if character in "\r\n":
                typed, self._typed = self._typed, ""
                yield "\r\n", typed
            elif character in "\b\x7f":
                yield ("\b \b" if self._typed else ""), None
                self._typed = self._typed[:-1]
            elif character == "\x03":
                self._typed = ""
                yield "^C\r\n", ""
            elif character.isprintable() and len(self._typed) < LONGEST_COMMAND:
                self._typed += character
                yield character, None
