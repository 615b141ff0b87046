"""An interactive command line of a device, with login, prompt, echo and pages.

A session reads and writes plain bytes on a `Line`: over SSH, in memory, or over telnet (`sim.twins.frontends.telnet`).
A family supplies a table that maps regular expressions to command handlers.
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

MAX_COMMAND_CHARACTERS = 1 << 16

_BLUE, _RESET = "\x1b[1;34m", "\x1b[0m"
_PAGER = "--More--"
_MIN_TABLE_ROWS = 3
"""Minimum number of lines of a reply that counts as a table. Faults of tables apply only to such replies."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output of a command, and its exit status. LF separates the lines. The last line needs no LF.

    `ends_session` is True if the command ends the session.
    """

    text: str
    status: int = 0
    ends_session: bool = False


class SessionEnded(Exception):
    """The end of a session by a command. The argument is the output of the command."""


Execute = Callable[[str], Awaitable[CommandOutput]]
Interpreter = Callable[[str, int, Execute], Awaitable[CommandOutput]]
"""Executes a line of one or several commands. The second argument is the previous exit status."""


async def run_one_command(line: str, status: int, execute: Execute) -> CommandOutput:
    """Execute a line as one command. An empty line keeps the exit status."""
    return await execute(line) if line else CommandOutput("", status)


class CommandError(Exception):
    """A command that the device refuses. The message is the text that the device prints."""


class Terminal(Protocol):
    """Connection to a client: `sim.twins.wire.line.Line` or `sim.twins.frontends.telnet.TelnetLine`."""

    async def read(self) -> bytes:
        """Return the next bytes that the client typed, or empty bytes at the end."""
        ...

    def send(self, data: bytes) -> None:
        """Send bytes to the client at once."""

    async def respond(self, execute: Callable[[], Awaitable[bytes]], line_end: bytes = b"") -> None:
        """Execute one command, and send its output followed by `line_end`."""


@dataclass(frozen=True, slots=True)
class TypedCommand:
    """A command for a handler: the match of the handler's pattern, the user, and the name of the frontend."""

    match: re.Match[str]
    user: str
    frontend: str


Handler = Callable[[TypedCommand], str | CommandOutput | Awaitable[str | CommandOutput]]
"""Executes a command and returns its output. Plain text means exit status 0."""


@dataclass(frozen=True, slots=True)
class CliStyle:
    """Texts and behaviour of a command line.

    - `prompt`: printed unchanged, in blue if `has_colour`.
    - `account`: user name and password of a login on the command line, as over telnet. None if the connection has its
      own login (SSH).
    - `user`: the user if `account` is None.
    - `login_prompt`, `login_failure_text`: prompt of the login, and text after a wrong login.
    - `page_rows`: number of lines of a page; 0 disables paging.
    - `unknown_command_text`, `unknown_command_status`: output and exit status of an unknown command.
    - `noise_line`: line that the fault `noise` inserts into a table.
    - `exit_commands`: commands that end the session.
    """

    prompt: str
    user: str = "admin"
    account: tuple[str, str] | None = None
    greeting: str = ""
    login_prompt: str = "login: "
    echoes_input: bool = True
    has_colour: bool = False
    page_rows: int = 0
    unknown_command_text: str = "unknown command"
    unknown_command_status: int = 0
    login_failure_text: str = "Login incorrect"
    noise_line: str = "%% LOG: temperature of the shelf is 31 C"
    exit_commands: frozenset[str] = frozenset({"exit", "quit", "logout"})


@dataclass(slots=True)
class CliFaults:
    """Faults of tables on a command line: numbers of next tables that will be truncated or contain noise."""

    line_faults: LineFaults
    truncated_tables: int = 0
    noisy_tables: int = 0

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the faults `truncate_table` and `noise`, by name."""
        return {
            "truncate_table": self._make_counter("truncated_tables"),
            "noise": self._make_counter("noisy_tables"),
        }

    def _make_counter(self, name: str) -> Fault:
        return Fault(
            lambda request: setattr(self, name, request.get_integer("count", 1)),
            lambda _: setattr(self, name, 0),
            "count",
        )

    def apply_table_faults(self, rows: list[str], noise: str) -> list[str]:
        """Return the lines of a reply as active faults change them: truncated within a line, or with noise."""
        if len(rows) < _MIN_TABLE_ROWS:
            return rows
        if self.truncated_tables:
            self.truncated_tables -= 1
            self.line_faults.fire_counts["truncate_table"] += 1
            complete_count = len(rows) // 2
            rows = [*rows[:complete_count], rows[complete_count][: len(rows[complete_count]) // 2]]
        if self.noisy_tables:
            self.noisy_tables -= 1
            self.line_faults.fire_counts["noise"] += 1
            rows = [*rows[:2], noise, *rows[2:]]
        return rows


class CliFrontend:
    """State that all sessions of one command line share.

    The first pattern of `commands` that matches the whole command selects the handler. A session ends after
    `idle_timeout_s` without input on `clock`; None disables this. `name` tells handlers on which command line of the
    device a user typed a command. `interpreter` executes a line, which may contain several commands.
    """

    def __init__(
        self,
        commands: Mapping[str, Handler],
        style: CliStyle,
        *,
        clock: Clock,
        faults: CliFaults,
        idle_timeout_s: float | None = None,
        name: str = "cli",
        interpreter: Interpreter = run_one_command,
    ) -> None:
        self.name = name
        self.style = style
        self.clock = clock
        self.faults = faults
        self.idle_timeout_s = idle_timeout_s
        self._interpreter = interpreter
        self._commands = [(re.compile(pattern), handler) for pattern, handler in commands.items()]
        self._sessions: list[_Session] = []

    @property
    def session_count(self) -> int:
        """Number of logged-in sessions."""
        return sum(bool(session.user) for session in self._sessions)

    async def serve(self, terminal: Terminal, must_echo: Callable[[], bool] | None = None) -> None:
        """Serve one client until its session ends. `must_echo` takes precedence over `style.echoes_input`."""
        session = _Session(self, terminal, must_echo or (lambda: self.style.echoes_input))
        self._sessions.append(session)
        try:
            await session.run()
        finally:
            self._sessions.remove(session)

    def announce(self, *lines: str) -> None:
        """Print unsolicited lines to every logged-in session, directly after the prompt, as in captures of a ROME."""
        for session in self._sessions:
            if session.user:
                session.send_text("".join(f"{line}\r\n" for line in lines))

    def expire_sessions(self) -> int:
        """End all sessions, and return their number."""
        for session in self._sessions:
            session.end()
        return len(self._sessions)

    async def execute(self, terminal: Terminal, command: str) -> int:
        """Execute one command without a shell, so without greeting, echo and prompt. Return its exit status."""
        status = self.style.unknown_command_status

        async def answer() -> bytes:
            nonlocal status
            output = await self.run_line(command.strip(), self.style.user)
            status = output.status
            return _format_rows(self.apply_faults(output)).encode()

        await terminal.respond(answer)
        return status

    async def run_line(self, line: str, user: str, status: int = 0) -> CommandOutput:
        """Execute a line, and return its output. `status` is the exit status of the previous command."""
        return await self._interpreter(line, status, lambda command: self._execute_command(command, user))

    def apply_faults(self, output: CommandOutput) -> list[str]:
        """Return the lines of an output, with active faults of tables."""
        return self.faults.apply_table_faults(output.text.splitlines(), self.style.noise_line)

    async def _execute_command(self, command: str, user: str) -> CommandOutput:
        for pattern, handler in self._commands:
            match = pattern.fullmatch(command)
            if match:
                result = handler(TypedCommand(match, user, self.name))
                output = result if isinstance(result, str | CommandOutput) else await result
                return CommandOutput(output) if isinstance(output, str) else output
        return CommandOutput(self.style.unknown_command_text, self.style.unknown_command_status)


class _Session:
    """The session of one client. `user` is empty until the client has logged in."""

    def __init__(self, frontend: CliFrontend, terminal: Terminal, must_echo: Callable[[], bool]) -> None:
        self.user = ""
        self._last_status = 0
        self._frontend = frontend
        self._style = frontend.style
        self._terminal = terminal
        self._echoes = must_echo
        self._line_editor = LineEditor()
        self._complete_lines: list[str] = []
        self._read_task: asyncio.Task[bytes] | None = None
        self._last_activity_s = frontend.clock.now()
        self._end_event = asyncio.Event()

    def send_text(self, text: str) -> None:
        """Send text to the client at once."""
        self._terminal.send(text.encode())

    def end(self) -> None:
        """End the session, as the device does."""
        self._end_event.set()
        if self._read_task is not None:
            self._read_task.cancel()

    async def run(self) -> None:
        """Run the session: login, greeting and commands, until it ends."""
        idle_watch = asyncio.get_running_loop().create_task(self._end_when_idle())
        try:
            self.user = self._style.user if self._style.account is None else await self._login()
            if self.user:
                await self._execute_lines()
        finally:
            idle_watch.cancel()

    async def _end_when_idle(self) -> None:
        """End the session after `idle_timeout_s` without input."""
        limit_s, clock = self._frontend.idle_timeout_s, self._frontend.clock
        while limit_s is not None:
            if self._read_task is None:  # a command is running, so the session is not idle
                self._last_activity_s = clock.now()
            remaining_s = self._last_activity_s + limit_s - clock.now()
            if remaining_s <= 0:
                self.end()
                return
            await clock.sleep(remaining_s)

    async def _execute_lines(self) -> None:
        self.send_text(
            _format_rows([self._style.greeting] if self._style.greeting else []) + self._format_prompt()
        )
        while (command := await self._read_line()) is not None:
            if command.strip() in self._style.exit_commands:
                return
            prompt = self._format_prompt().encode()
            try:
                await self._terminal.respond(lambda command=command: self._answer(command), prompt)  # type: ignore[misc]
            except SessionEnded as ending:
                self.send_text(str(ending))
                return

    async def _login(self) -> str:
        """Return the user who logged in. The name is empty if the client disconnected, or failed three times."""
        for _ in range(3):
            self.send_text(self._style.login_prompt)
            user = await self._read_line()
            self.send_text("Password: ")
            password = await self._read_line(is_secret=True)
            if user is None or password is None:
                return ""
            if (user, password) == self._style.account:
                return user
            self.send_text(f"{self._style.login_failure_text}\r\n")
        return ""

    def _format_prompt(self) -> str:
        prompt = self._style.prompt
        return f"{_BLUE}{prompt}{_RESET}" if self._style.has_colour else prompt

    async def _answer(self, command: str) -> bytes:
        output = await self._frontend.run_line(command.strip(), self.user, self._last_status)
        self._last_status = output.status
        text = _format_rows(await self._show_pages(self._frontend.apply_faults(output)))
        if output.ends_session:
            raise SessionEnded(text)
        return text.encode()

    async def _show_pages(self, rows: Sequence[str]) -> Sequence[str]:
        """Print all pages except the last, and wait for a key after each. Return the rows of the last page.

        Return no rows if the client disconnects, or quits with q or Ctrl-C.
        """
        page_length = self._style.page_rows
        while page_length and len(rows) > page_length:
            self.send_text(_format_rows(rows[:page_length]) + _PAGER)
            rows = rows[page_length:]
            key = await self._read()
            self.send_text("\b" * len(_PAGER) + " " * len(_PAGER) + "\b" * len(_PAGER))
            if not key or key in {b"q", b"\x03"}:
                return ()
        return rows

    async def _read_line(self, *, is_secret: bool = False) -> str | None:
        """Return the next line that the client typed, or None if the client disconnected or the session has ended."""
        while not self._complete_lines:
            data = await self._read()
            if not data:
                return None
            echo_text = "".join(self._accept_input(data, is_secret=is_secret))
            if self._echoes() or is_secret:
                self.send_text(echo_text)
        return self._complete_lines.pop(0)

    def _accept_input(self, data: bytes, *, is_secret: bool) -> Iterator[str]:
        """Store the lines that `data` completes, and yield the echo. Of a secret line, echo only the line end."""
        for echo, line in self._line_editor.feed(data):
            if line is not None:
                self._complete_lines.append(line)
            if line is not None or not is_secret:
                yield echo

    async def _read(self) -> bytes:
        """Return the next input, or empty bytes if the client disconnected or the session has ended."""
        if self._end_event.is_set():
            return b""
        self._read_task = asyncio.get_running_loop().create_task(self._terminal.read())
        try:
            return await self._read_task
        except asyncio.CancelledError:
            if not self._end_event.is_set():
                raise
            return b""
        finally:
            self._read_task = None
            self._last_activity_s = self._frontend.clock.now()


def _format_rows(rows: Sequence[str]) -> str:
    return "".join(f"{row}\r\n" for row in rows)


class LineEditor:
    """Converts typed bytes to lines and their echo, as a terminal does: with backspace, Ctrl-C and UTF-8."""

    def __init__(self) -> None:
        self._buffer = ""
        self._is_after_return = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> Iterator[tuple[str, str | None]]:
        """Yield the echo of each character, with the complete line if the character ends a line, otherwise None."""
        for character in self._utf8.decode(data):
            is_after_return, self._is_after_return = self._is_after_return, character == "\r"
            if character in "\n\x00" and is_after_return:
                continue  # second half of a line end: CR NUL of telnet, or CR LF
            if character in "\r\n":
                line, self._buffer = self._buffer, ""
                yield "\r\n", line
            elif character in "\b\x7f":
                yield ("\b \b" if self._buffer else ""), None
                self._buffer = self._buffer[:-1]
            elif character == "\x03":
                self._buffer = ""
                yield "^C\r\n", ""
            elif character.isprintable() and len(self._buffer) < MAX_COMMAND_CHARACTERS:
                self._buffer += character
                yield character, None
