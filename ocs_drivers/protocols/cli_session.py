"""A session at a prompt: the login, one command at a time, and unsolicited lines."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import ConnectError, ConnectionLost, LoginFailed, OcsError, TransportError
from ocs_drivers.protocols.cli import CliEvent, Decoder, Line, Prompt, encode_command
from ocs_drivers.protocols.session import TransportSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline, make_answer_deadline, record_answer
from ocs_drivers.transports import wire
from ocs_drivers.transports.transport import Transport, make_connection_lost, make_timeout

_T = TypeVar("_T")

CLOSE_TIMEOUT_S = 0.5
"""Time limit of a logout; the device notices a closed connection by itself."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login at the device's own prompts, as over telnet.

    `user_prompt` and `password_prompt` match the whole prompt. A second user prompt means that the device refused the
    login. Raises `LoginFailed` for a name or password with a character that is not printable.
    """

    credentials: Credentials
    user_prompt: re.Pattern[str] = re.compile(r"(?:(?!Last )\S+ )?(?:[Ll]ogin|[Uu]ser(?:name)?):")
    password_prompt: re.Pattern[str] = re.compile(r"[Pp]assword:")

    def __post_init__(self) -> None:
        if not (self.credentials.user + self.credentials.password).isprintable():
            raise LoginFailed(
                "the user name or the password contains a character that cannot be typed",
                hint="Use letters, digits and punctuation.",
            )


class CliSession(TransportSession):
    """Commands and replies at a prompt; several threads may share it.

    A reply is the text between the echo of the command and the next prompt. Set `has_echo` to False for a device
    that does not echo commands. Lines that match `unsolicited_pattern`, and all lines outside a reply (banners
    included), become events; a group `kind` in the pattern gives the event its kind. If the device pages long output,
    `pager_prompt` matches the text at the end of a page.

    A lock is held over each exchange, and any failure of an exchange closes the connection. Some devices silently drop
    idle connections: after `idle_limit_s` without an exchange, the next exchange makes a new connection.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        timeout_s: float,
        prompt: re.Pattern[str],
        clock: Clock = SYSTEM_CLOCK,
        unsolicited_pattern: re.Pattern[str] | None = None,
        login: Login | None = None,
        idle_limit_s: float | None = None,
        pager_prompt: re.Pattern[str] | None = None,
        logout_command: str = "",
        has_echo: bool = True,
        line_end: bytes = b"\r",
    ) -> None:
        super().__init__(transport, device=device, timeout_s=timeout_s, clock=clock)
        self._unsolicited_pattern = unsolicited_pattern
        self._login = login
        self._idle_limit_s = idle_limit_s
        self._pager_prompt = pager_prompt
        self._logout_command = logout_command
        self._has_echo = has_echo
        self._line_end = line_end
        login_prompts = (login.user_prompt, login.password_prompt) if login else ()
        self._prompt_pattern = _join_patterns(prompt, pager_prompt, *login_prompts)
        self._decoder = Decoder(self._prompt_pattern)
        self._pending_events: deque[CliEvent] = deque()
        self._last_exchange_s = clock.now()

    def make_ready(self) -> None:
        """Ensure a live connection at its prompt before a write, and read pending input."""
        with self._lock:
            if (
                self._idle_limit_s is not None
                and self._clock.now() - self._last_exchange_s >= self._idle_limit_s
            ):
                self._transport.close()
            super().make_ready()

    def ask(
        self, command: str, decode: Callable[[tuple[str, ...]], _T], *, timeout_s: float | None = None
    ) -> _T:
        """Send a command and decode the lines of its reply.

        `decode` raises `ProtocolDesync` for lines that do not answer this command; this closes the connection. For a
        refusal it raises another error, such as `DeviceError`; the connection stays open. A command with control
        characters raises `ValueError` before anything is sent.
        """
        with self._lock:
            encode_command(command, self._line_end)
            self.make_ready()
            deadline = make_answer_deadline(self._timeout_s if timeout_s is None else timeout_s, self._clock)
            with self._close_on_failure(command):
                lines = self._exchange(command, deadline)
                record_answer()
                try:
                    return decode(lines)
                except OcsError as refusal:
                    if isinstance(refusal, TransportError):
                        raise
                    located_refusal = refusal.locate(device=self._device, sent=command)
            raise located_refusal

    def ask_with_retry(self, command: str, decode: Callable[[tuple[str, ...]], _T]) -> _T:
        """Call `ask`, and again on a new connection if the device had closed the old one. For reads only."""
        try:
            return self.ask(command, decode)
        except ConnectionLost:
            return self.ask(command, decode)

    # -- connecting

    def _log_out(self) -> None:
        if self._transport.is_open and self._logout_command:
            deadline = Deadline(min(CLOSE_TIMEOUT_S, self._timeout_s), self._clock)
            with contextlib.suppress(OcsError):
                self._send_line(self._logout_command, deadline)

    def _start(self) -> None:
        self._decoder = Decoder(self._prompt_pattern)
        self._pending_events.clear()
        try:
            with self._close_on_failure(""):
                self._reach_prompt(make_answer_deadline(self._timeout_s, self._clock))
        except ConnectionLost as error:
            raise ConnectError(
                "the device closed the connection before it was ready for a command",
                device=self._device,
                hint="It may have no free session; close other clients.",
            ) from error
        self._last_exchange_s = self._clock.now()

    def _reach_prompt(self, deadline: Deadline) -> None:
        """Read up to the first prompt for a command, and log in if the device asks for it."""
        has_sent_user = False
        while prompt := self._read_prompt(deadline, has_sent_user=has_sent_user):
            login = self._login
            if login and login.user_prompt.fullmatch(prompt):
                if has_sent_user:
                    raise self._make_login_failed(login.credentials)
                has_sent_user = True
                self._send_line(login.credentials.user, deadline)
            elif login and login.password_prompt.fullmatch(prompt):
                self._send_line(login.credentials.password, deadline, is_secret=True)
            else:
                return

    def _read_prompt(self, deadline: Deadline, *, has_sent_user: bool) -> str:
        """Return the next prompt. Keep lines before it as events, except the echo of the user name; continue pages."""
        while True:
            token = self._read_event(deadline)
            if isinstance(token, Line):
                if not (has_sent_user and self._login and token.text == self._login.credentials.user):
                    self._store_unsolicited_line(token.text)
            elif not self._request_next_page(token, deadline):
                return token.text

    def _make_login_failed(self, credentials: Credentials) -> LoginFailed:
        return LoginFailed(
            f"the device does not accept user {credentials.user!r} with this password",
            device=self._device,
            hint="Set LIGHTBED_OCS_USER and LIGHTBED_OCS_PASSWORD, or give credentials.",
        )

    # -- exchanging

    def _exchange(self, command: str, deadline: Deadline) -> tuple[str, ...]:
        """Send one command and return all lines of its reply."""
        self._send_line(command, deadline)
        if self._has_echo:
            self._await_echo(command, deadline)
        lines: list[str] = []
        while (line := self._read_line(deadline)) is not None:
            if self._unsolicited_pattern is not None and self._unsolicited_pattern.match(line):
                self._store_unsolicited_line(line)
            else:
                lines.append(line)
        self._last_exchange_s = self._clock.now()
        return tuple(lines)

    def _await_echo(self, command: str, deadline: Deadline) -> None:
        """Skip output from before the device received the command, including another prompt."""
        while True:
            token = self._read_event(deadline)
            if isinstance(token, Prompt):
                self._check_logged_in(token)
            elif _is_echo(token.text, command):
                return
            else:
                self._store_unsolicited_line(token.text)

    def _read_line(self, deadline: Deadline) -> str | None:
        """Return the next line of a reply; None at its end."""
        while True:
            token = self._read_event(deadline)
            if isinstance(token, Line):
                return token.text
            self._check_logged_in(token)
            if not self._request_next_page(token, deadline):
                return None

    def _request_next_page(self, prompt: Prompt, deadline: Deadline) -> bool:
        """Return True at the end of a page, after requesting the next page."""
        if self._pager_prompt is None or not self._pager_prompt.fullmatch(prompt.text):
            return False
        self._transport.send(b" ", deadline)
        return True

    def _check_logged_in(self, prompt: Prompt) -> None:
        if self._is_login_prompt(prompt):
            raise make_connection_lost(self._device, "the device asks for a login again")

    def _is_login_prompt(self, prompt: Prompt) -> bool:
        login = self._login
        return login is not None and any(
            pattern.fullmatch(prompt.text) for pattern in (login.user_prompt, login.password_prompt)
        )

    def _send_line(self, command: str, deadline: Deadline, *, is_secret: bool = False) -> None:
        wire.log_sent(self._device, "***" if is_secret else command)
        self._transport.send(encode_command(command, self._line_end), deadline)

    def _read_event(self, deadline: Deadline) -> CliEvent:
        while not self._pending_events:
            self._decode(self._receive(deadline))
        return self._pending_events.popleft()

    def _decode(self, data: bytes) -> None:
        wire.log_received(self._device, data)
        self._pending_events.extend(self._decoder.feed(data))

    def _process_input(self) -> None:
        """Read the input since the last exchange; close a connection that proves to be broken."""
        deadline = Deadline(self._timeout_s, self._clock)  # a device may send without end
        try:
            while self._transport.is_open and self._transport.has_input():
                if not deadline.allow_read():
                    raise make_timeout(self._device, deadline)
                self._decode(self._transport.receive(Deadline(0, self._clock)))
        except TransportError:
            self._transport.close()
        while self._pending_events:
            token = self._pending_events.popleft()
            if isinstance(token, Line):
                self._store_unsolicited_line(token.text)
            elif self._is_login_prompt(token):
                self._transport.close()

    def _store_unsolicited_line(self, line: str) -> None:
        match = self._unsolicited_pattern.match(line) if self._unsolicited_pattern else None
        self._store_event((match.groupdict().get("kind") if match else None) or "line", (line,))


def _join_patterns(*patterns: re.Pattern[str] | None) -> re.Pattern[str]:
    """Return a pattern that matches if one of `patterns` matches; each part keeps its IGNORECASE flag."""
    parts = [
        f"(?{'i' if pattern.flags & re.IGNORECASE else ''}:{pattern.pattern})"
        for pattern in patterns
        if pattern is not None
    ]
    return re.compile("|".join(parts))


def _is_echo(line: str, command: str) -> bool:
    """Return True if a line is the echo of the command; devices add and drop blanks."""
    return line.split() == command.split()
