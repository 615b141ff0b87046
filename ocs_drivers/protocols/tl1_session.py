"""A TL1 session: the login, one command at a time, and unsolicited reports."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    OcsError,
    ProtocolDesync,
    SessionExpired,
    TransportError,
    Unsupported,
)
from ocs_drivers.protocols import tl1
from ocs_drivers.protocols.session import TransportSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline, make_answer_deadline, record_answer
from ocs_drivers.transports import wire
from ocs_drivers.transports.transport import Transport, make_timeout

_T = TypeVar("_T")

CLOSE_TIMEOUT_S = 0.5
"""Time limit of a logout; the device ends an idle login by itself."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Properties of TL1 that differ between vendors.

    A denial with one of `login_required_codes`, or with a text that matches `login_required_text`, means that nobody
    is logged in. A denial with one of `unsupported_codes` means that the function does not exist. A denied login whose
    text matches `already_logged_in_text` ("Already logged in") counts as a success. With `omits_trailing_blocks`,
    commands lack the final colon (see `tl1.Command`).
    """

    login_required_codes: frozenset[str] = frozenset({"PICC", "PLNA"})
    login_required_text: re.Pattern[str] | None = None
    unsupported_codes: frozenset[str] = frozenset({"IICM", "ICNV"})
    already_logged_in_text: re.Pattern[str] | None = None
    omits_trailing_blocks: bool = False

    def needs_login(self, reply: tl1.Reply) -> bool:
        """Return True if the reply means that nobody is logged in."""
        if reply.completion != "DENY":
            return False
        return reply.code in self.login_required_codes or _matches(self.login_required_text, reply)

    def is_logged_in(self, reply: tl1.Reply) -> bool:
        """Return True if the reply is a denied login that means that we are already logged in."""
        return reply.completion == "DENY" and _matches(self.already_logged_in_text, reply)


def _matches(pattern: re.Pattern[str] | None, reply: tl1.Reply) -> bool:
    return pattern is not None and bool(pattern.search(" ".join((*reply.lines, *reply.comments))))


STANDARD_DIALECT = Dialect()


class Tl1Session(TransportSession):
    """Commands and replies on one connection; several threads may share it.

    Replies are matched by correlation tag; reports that arrive in between are kept for `events`. A lock is
    held over each exchange, and any failure of an exchange closes the connection. An expired login is renewed once.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        credentials: Credentials,
        timeout_s: float,
        dialect: Dialect = STANDARD_DIALECT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(transport, device=device, timeout_s=timeout_s, clock=clock)
        self._dialect = dialect
        self._credentials = credentials
        self._decoder = tl1.Decoder()
        self._replies: deque[tl1.Reply] = deque()
        self._tag = 0

    def ask(
        self,
        verb: str,
        decode: Callable[[tuple[str, ...]], _T],
        *,
        aid: str = "",
        positional: str = "",
        keywords: str = "",
        timeout_s: float | None = None,
        before_resending: Guard = allow_all,
    ) -> _T:
        """Send a command and decode the lines of its reply.

        If nobody is logged in, the device refuses the command. The session then logs in, calls `before_resending` and
        sends the command once more. Raises `SessionExpired` if the login fails, `Unsupported` or `DeviceError` if the
        command is denied.
        """
        command = tl1.Command(
            verb,
            0,
            aid=aid,
            positional_block=positional,
            keyword_block=keywords,
            is_short=self._dialect.omits_trailing_blocks,
        )
        with self._lock:
            self.make_ready()
            reply = self._send(command, timeout_s)
            if self._dialect.needs_login(reply):
                self._renew_login()
                before_resending()
                reply = self._send(command, timeout_s)
            self._check_reply(reply, command.text)
            with self._close_on_failure(wire.redact(command.text)):
                return decode(reply.lines)

    def ask_with_retry(
        self, verb: str, decode: Callable[[tuple[str, ...]], _T], *, aid: str = "", positional: str = ""
    ) -> _T:
        """Call `ask`, and again on a new connection if the device had closed the old one. For reads only."""
        try:
            return self.ask(verb, decode, aid=aid, positional=positional)
        except ConnectionLost:
            return self.ask(verb, decode, aid=aid, positional=positional)

    def _log_out(self) -> None:
        """End the login, so that the device frees its session."""
        if self._transport.is_open:
            with contextlib.suppress(OcsError):
                logout = self._make_command("CANC-USER", aid=self._credentials.user)
                self._exchange(logout, Deadline(min(CLOSE_TIMEOUT_S, self._timeout_s), self._clock))

    def _start(self) -> None:
        self._decoder = tl1.Decoder()
        self._replies.clear()
        try:
            self._login()
        except ConnectionLost as error:
            raise ConnectError(
                "the device closed the connection during the login",
                device=self._device,
                hint="It may have no free session; close other clients.",
            ) from error
        except OcsError:
            self._transport.close()
            raise

    def _login(self) -> None:
        credentials = self._credentials
        try:
            if "," in credentials.password:
                raise ValueError("','")
            command = self._make_command("ACT-USER", aid=credentials.user, positional=credentials.password)
        except ValueError:
            raise LoginFailed(
                "the user name or password contains a character that TL1 cannot carry",
                device=self._device,
                hint="Use letters, digits and punctuation other than , ; : quotes and backslash.",
            ) from None
        reply = self._exchange(command, make_answer_deadline(self._timeout_s, self._clock))
        if self._dialect.is_logged_in(reply):
            return
        if self._dialect.needs_login(reply):
            raise LoginFailed(
                f"the device does not accept user {credentials.user!r} with this password",
                device=self._device,
                received=_format_denial(reply),
                hint="Set LIGHTBED_OCS_USER and LIGHTBED_OCS_PASSWORD, or give credentials.",
            )
        self._check_reply(reply, wire.redact(command.text))

    def _renew_login(self) -> None:
        try:
            self._login()
        except LoginFailed as error:
            raise self._make_expired_error() from error

    def _make_expired_error(self) -> SessionExpired:
        return SessionExpired(
            "the login was lost and could not be renewed",
            device=self._device,
            hint="Check that the account still exists and has not been logged in elsewhere.",
        )

    def _check_reply(self, reply: tl1.Reply, sent_command: str) -> None:
        """Raise `SessionExpired`, `Unsupported` or `DeviceError` for a denial or a partial completion."""
        if reply.completion in {"COMPLD", "DELAY", "RTRV"}:
            return
        if self._dialect.needs_login(reply):
            raise self._make_expired_error()
        if reply.code in self._dialect.unsupported_codes:
            raise Unsupported(
                f"this switch does not support the command {sent_command.partition(':')[0]}",
                device=self._device,
                sent=sent_command,
                received=_format_denial(reply),
                hint="See `capabilities`.",
            )
        raise DeviceError(
            f"the device refused: {_format_denial(reply)}",
            device_code=reply.code or reply.completion,
            device=self._device,
            sent=sent_command,
        )

    def _make_command(self, verb: str, *, aid: str = "", positional: str = "") -> tl1.Command:
        return tl1.Command(
            verb,
            self._make_tag(),
            aid=aid,
            positional_block=positional,
            is_short=self._dialect.omits_trailing_blocks,
        )

    def _make_tag(self) -> int:
        self._tag += 1
        return self._tag

    def _send(self, command: tl1.Command, timeout_s: float | None) -> tl1.Reply:
        deadline = make_answer_deadline(self._timeout_s if timeout_s is None else timeout_s, self._clock)
        reply = self._exchange(replace(command, tag=self._make_tag()), deadline)
        record_answer()
        return reply

    def _exchange(self, command: tl1.Command, deadline: Deadline) -> tl1.Reply:
        """Send one command and return its reply, with all parts joined."""
        with self._close_on_failure(wire.redact(command.text)):
            wire.log_sent(self._device, command.text)
            self._transport.send(command.text.encode("ascii") + b"\r\n", deadline)
            pages = [self._read_reply(str(command.tag), deadline)]
            while pages[-1].has_more:
                pages.append(self._read_reply(str(command.tag), deadline))
        lines = tuple(line for page in pages for line in page.lines)
        return replace(pages[-1], lines=lines)

    def _read_reply(self, tag: str, deadline: Deadline) -> tl1.Reply:
        while not self._replies:
            self._decode(self._receive(deadline))
        reply = self._replies.popleft()
        if reply.tag != tag:
            raise ProtocolDesync(f"the reply carries tag {reply.tag}, not {tag}", received=str(reply))
        return reply

    def _process_input(self) -> None:
        """Process pending input; close a connection that proves to be broken."""
        deadline = Deadline(self._timeout_s, self._clock)  # a device may send without end
        try:
            while self._transport.is_open and self._transport.has_input():
                if not deadline.allow_read():
                    raise make_timeout(self._device, deadline)
                self._decode(self._transport.receive(Deadline(0, self._clock)))
        except TransportError:
            self._transport.close()
        if self._replies:  # a reply without a command: reconnect
            self._transport.close()

    def _decode(self, data: bytes) -> None:
        wire.log_received(self._device, data)
        for message in self._decoder.feed(data):
            if isinstance(message, tl1.Reply):
                self._replies.append(message)
            elif isinstance(message, tl1.AutonomousMessage):
                self._store_event(message.verb, message.lines)
            elif message.code in {"NA", "NG", "RL"}:
                refusal = f"refused with {message.code} before it was read"
                self._replies.append(tl1.Reply(message.tag, "DENY", message.code, (), (refusal,)))


def _format_denial(reply: tl1.Reply) -> str:
    return " ".join(filter(None, (reply.code or reply.completion, *reply.lines, *reply.comments)))
