"""Server side of TL1, common to all families: command parser, response frames, logins and autonomous reports.

A family derives its frontend from `Tl1Frontend` and supplies a command table, its framing and its texts.

Input is `VERB:[tid]:[aid]:ctag:[general]:[positional]:[keyword];`, where `;` and `:` inside quotes are text. An answer
has one or more blocks. The last block ends with `;`, all others end with `>`:

       ocs1 26-01-31 12:00:00
    M  4 COMPLD
       "1.1.1>1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,GRPNAME=SYSTEM,..."
    ;

Sources: Telcordia GR-831 (frames), GR-833 (codes), and captures of `RTRV-PATCH` (frames).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal, Reason
from sim.twins.wire.control import Request
from sim.twins.wire.line import Line

MAX_COMMAND_CHARACTERS = 1 << 16

_FIELD_COUNT = 7
_ERROR_CODES: Mapping[Reason, str] = {
    Reason.NO_SUCH_PORT: "IIAC",
    Reason.WRONG_SIDE: "IIAC",
    Reason.REPEATED: "IIAC",
    Reason.UNEQUAL: "IIAC",
    Reason.FAILED: "SROF",
}
"""GR-833 error codes, by reason of a refusal. The code of any other reason is SNVS, status not valid."""


class Denial(Exception):
    """A refused command, with its four-letter error code. The answer contains the text as a comment."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Command:
    """One parsed command. Values are without quotes. Names of `keywords` are in upper case."""

    verb: str
    tid: str
    aid: str
    ctag: str
    positional: tuple[str, ...]
    keywords: Mapping[str, str]

    def get_keyword(self, name: str) -> str:
        """Return the value of a required keyword. Raise `Denial` (IPMS) if it is missing."""
        if name not in self.keywords:
            raise Denial("IPMS", f"{name} is missing")
        return self.keywords[name]


class CommandReader:
    """Splits a byte stream into commands. Chunks of the stream may have any size."""

    def __init__(self) -> None:
        self._text = ""
        self._is_quoted = False

    def feed(self, data: bytes) -> list[str]:
        """Return the nonempty commands that `data` completes, without terminator and surrounding white space.

        Truncate a command after `MAX_COMMAND_CHARACTERS`.
        """
        commands = []
        for character in data.decode("latin-1"):
            if character == '"':
                self._is_quoted = not self._is_quoted
            if character == ";" and not self._is_quoted:
                commands.append(self._text.strip())
                self._text = ""
            elif len(self._text) < MAX_COMMAND_CHARACTERS:
                self._text += character
        return [command for command in commands if command]


def parse_command(text: str) -> Command:
    """Parse a command (without its `;`). Any text is accepted.

    >>> command = parse_command('ENT-PATCH:"ocs1":1&2,17&18:7:')
    >>> command.verb, command.tid, command.aid, command.ctag
    ('ENT-PATCH', 'ocs1', '1&2,17&18', '7')

    A missing ctag becomes 0. Surplus fields become keywords, which commands ignore.
    """
    fields = [field.strip() for field in split_outside_quotes(text, ":")]
    fields += [""] * (_FIELD_COUNT - len(fields))
    keywords = (part.partition("=") for part in split_outside_quotes(":".join(fields[6:]), ",") if part)
    return Command(
        verb=fields[0].upper(),
        tid=unquote(fields[1]),
        aid=fields[2],
        ctag=fields[3] or "0",
        positional=tuple(unquote(part.strip()) for part in split_outside_quotes(fields[5], ",")),
        keywords={name.strip().upper(): unquote(value.strip()) for name, _, value in keywords},
    )


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split a text at each separator outside double quotes.

    >>> split_outside_quotes('LABEL="a,b",X=1', ",")
    ['LABEL="a,b"', 'X=1']
    """
    parts, is_quoted = [""], False
    for character in text:
        is_quoted ^= character == '"'
        if character == separator and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def unquote(text: str) -> str:
    """Return the text without surrounding double quotes."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


@dataclass(frozen=True, slots=True)
class Framing:
    """Texts that a family sends before the device name, and after the terminator, of each block or report."""

    block_prefix: str = "\r\n   "
    block_suffix: str = ""
    report_prefix: str = "\r\n   "
    report_suffix: str = ""

    def format_answer(
        self, name: str, tag: str, pages: Sequence[Sequence[str]], now: datetime, *, comment: str = ""
    ) -> bytes:
        """Return the frame of a completed command: a block for each page. The last block contains `comment`."""
        bodies = [_quote_rows(page) for page in pages]
        bodies[-1] += [comment] if comment else []
        terminators = [">"] * (len(bodies) - 1) + [";"]
        return b"".join(
            self._encode_block(name, f"M  {tag} COMPLD", body, now, end)
            for body, end in zip(bodies, terminators, strict=True)
        )

    def format_denial(self, name: str, tag: str, denial_error: Denial, now: datetime) -> bytes:
        """Return the frame of a refused command, with error code and comment."""
        return self._encode_block(
            name, f"M  {tag} DENY", [f"   {denial_error.code}", f"   /* {denial_error} */"], now
        )

    def format_report(self, name: str, tag: int, event: str, lines: Iterable[str], now: datetime) -> bytes:
        """Return the frame of an autonomous message, such as `REPT DBCHG`."""
        text = self.report_prefix + _format_block(name, f"A  {tag} {event}", _quote_rows(lines), now, ";")
        return (text + self.report_suffix).encode("latin-1", "replace")

    def _encode_block(
        self, name: str, head: str, body: Iterable[str], now: datetime, terminator: str = ";"
    ) -> bytes:
        text = self.block_prefix + _format_block(name, head, body, now, terminator) + self.block_suffix
        return text.encode("latin-1", "replace")


def _quote_rows(lines: Iterable[str]) -> list[str]:
    return [f'   "{line}"' for line in lines]


def _format_block(name: str, head: str, body: Iterable[str], now: datetime, terminator: str) -> str:
    return "\r\n".join([f"{name or '( nil )'} {now:%y-%m-%d %H:%M:%S}", head, *body, terminator])


TextLines = Sequence[str]
Handler = Callable[[Command], TextLines | Awaitable[TextLines]]
Send = Callable[[bytes], None]


def read_local_time() -> datetime:
    """Return the local time without a time zone, as switches print it."""
    return datetime.now()  # noqa: DTZ005 - devices print no zone


class Tl1Frontend(ABC):
    """State that all TL1 sessions of one switch share: account, idle timeout, and numbering of reports.

    `account` is (user, password). `idle_timeout_s` is a time on the device's clock; 0 disables it. Answers of more than
    `page_rows` lines are split into pages; 0 disables pages. With `sends_own_reports`, a session also gets reports of
    its own changes.
    """

    framing: ClassVar[Framing] = Framing()
    login_required_denial: ClassVar[tuple[str, str]] = ("PLNA", "login not active")
    login_denied_text: ClassVar[str] = "login incorrect"
    unknown_command_text: ClassVar[str] = "no command {verb}"
    noise_report: ClassVar[tuple[str, str]] = ("", "")
    """Event and line of an unrelated report, for the fault `report_noise`."""

    def __init__(
        self,
        device: SwitchDevice,
        *,
        account: tuple[str, str],
        page_rows: int = 0,
        sends_own_reports: bool = True,
    ) -> None:
        self.device = device
        self._sends_own_reports = sends_own_reports
        self.page_rows = page_rows
        self.idle_timeout_s = 0.0
        self.sessions: list[Tl1Session] = []
        self._account = account
        self._report_count = 0
        self._noisy_command_count = 0

    # -- for families

    @abstractmethod
    def make_handlers(self, session: Tl1Session) -> Mapping[str, Handler]:
        """Return the command handlers of a logged-in session, by verb."""

    def find_canonical_verb(self, verb: str) -> str:
        """Return the key of `verb` in `make_handlers`."""
        return verb

    def check_target(self, command: Command) -> None:
        """Raise `Denial` if a command names another device. By default, accept any name."""
        del command

    def format_welcome(self, session: Tl1Session) -> TextLines:
        """Return the lines that answer a login."""
        del session
        return ()

    def make_answer_comment(self, command: Command) -> str:
        """Return the comment of the answer to a command. The default has no comment."""
        del command
        return ""

    def choose_tag(self, command: Command) -> str:
        """Return the tag of the answer to a command."""
        return command.ctag

    def describe_refusal(self, refusal: MatrixRefusal) -> str:
        """Return the comment that explains why the switch refuses."""
        return str(refusal)

    # -- sessions

    async def serve(
        self, client: Line, *, greeting: bytes = b"", prompt: bytes = b"", echoes_input: bool = False
    ) -> None:
        """Serve one client until it disconnects. With `echoes_input`, send each command back before its answer."""
        session = Tl1Session(self, client.send)
        self.sessions.append(session)
        if greeting:
            client.send(greeting)
        try:
            reader = CommandReader()
            while data := await client.read():
                for text in reader.feed(data):
                    if echoes_input:
                        client.send(f"{text};\r\n".encode("latin-1"))
                    await client.respond(lambda text=text: session.execute(text), prompt)  # type: ignore[misc]
        finally:
            self.sessions.remove(session)

    def expire_sessions(self) -> int:
        """Log all sessions out, without closing their connections. Return the number of sessions logged out."""
        logged_in_sessions = [session for session in self.sessions if session.user]
        for session in logged_in_sessions:
            session.user = ""
        return len(logged_in_sessions)

    def check_account(self, session: Tl1Session, command: Command) -> str:
        """Return the user of a login command. Raise `Denial` for a wrong account or too many sessions."""
        del session
        limit = self.device.faults.max_sessions
        if limit is not None and sum(bool(session.user) for session in self.sessions) >= limit:
            self.device.faults.fire_counts["max_sessions"] += 1
            raise Denial("SROF", "maximum number of sessions reached")
        if (command.aid, command.positional[0]) != self._account:
            raise Denial("PICC", self.login_denied_text)
        return command.aid

    # -- frames

    def split_into_pages(self, lines: TextLines) -> list[TextLines]:
        """Split the lines of an answer into blocks of `page_rows` lines. If that is 0, return one block."""
        size = self.page_rows or max(len(lines), 1)
        return [lines[start : start + size] for start in range(0, len(lines), size)] or [()]

    def format_answer(self, command: Command, lines: TextLines) -> bytes:
        """Return the frame of a completed command."""
        tag, comment = self.choose_tag(command), self.make_answer_comment(command)
        now = read_local_time()
        return self.framing.format_answer(
            self.device.name, tag, self.split_into_pages(lines), now, comment=comment
        )

    def format_denial(self, command: Command, denial_error: Denial) -> bytes:
        """Return the frame of a refused command."""
        return self.framing.format_denial(
            self.device.name, self.choose_tag(command), denial_error, read_local_time()
        )

    def make_denial(self, refusal: MatrixRefusal) -> Denial:
        """Return the TL1 denial for a command that the switch refuses."""
        return Denial(_ERROR_CODES.get(refusal.reason, "SNVS"), self.describe_refusal(refusal))

    # -- autonomous reports

    def report_changes(self, change: Change, verbs: tuple[str, str], event: str = "REPT DBCHG") -> None:
        """Report a change to all logged-in sessions that are not silenced.

        `verbs` are the commands that remove and add a circuit. Without `sends_own_reports`, skip the
        author of the change.
        """
        author = None if self._sends_own_reports else _author.get()
        listening_sessions = (
            session for session in self.sessions if session.user and not session.is_silenced
        )
        listeners = [session.send for session in listening_sessions if session is not author]
        if not listeners:  # only count the reports, to save the time of formatting them
            self._report_count += len(change.removed_pairs) + len(change.added_pairs)
            return
        for verb, pairs in zip(verbs, (change.removed_pairs, change.added_pairs), strict=True):
            for pair in pairs:
                self.report(listeners, event, self.format_change(self._report_count + 1, verb, pair))

    def format_change(self, number: int, verb: str, pair: tuple[int, int]) -> str:
        """Return the line that reports the change of one circuit."""
        return f"DBCHGSEQ={number}:{verb}:{self.format_pair_name(pair)}"

    def format_pair_name(self, pair: tuple[int, int]) -> str:
        """Return the name of a circuit in reports."""
        return f"{pair[0]},{pair[1]}"

    def report(self, listeners: Sequence[Send], event: str, line: str) -> None:
        """Send an autonomous message, with the next report number, to each listener."""
        self._report_count += 1
        data = self.framing.format_report(
            self.device.name, self._report_count, event, [line], read_local_time()
        )
        for send in listeners:
            send(data)

    # -- a fault that several families have

    def make_noise_fault(self) -> Fault:
        """Return the fault `report_noise`. It sends unrelated reports between a command and its answer."""
        return Fault(self._set_noise, lambda _: self._set_noise(None))

    def _set_noise(self, request: Request | None) -> None:
        self._noisy_command_count = request.get_integer("count", 1) if request else 0

    def send_noise(self, send: Send) -> None:
        """Send one unrelated report if the fault `report_noise` is set."""
        if self._noisy_command_count:
            self._noisy_command_count -= 1
            self.device.faults.fire_counts["report_noise"] += 1
            self.report([send], *self.noise_report)


_author: ContextVar[Tl1Session | None] = ContextVar("author", default=None)
"""Session whose command is running. It is the author of the changes that the command makes."""


class Tl1Session:
    """State of one connection: the login, and whether reports are silenced."""

    def __init__(self, frontend: Tl1Frontend, send: Send) -> None:
        self.user = ""
        self.is_silenced = False
        self.send = send
        self._frontend = frontend
        self._clock = frontend.device.clock
        self._last_activity_s = self._clock.now()
        self._table = frontend.make_handlers(self)

    async def execute(self, text: str) -> bytes:
        """Execute one command, and return its encoded answer."""
        command = parse_command(text)
        author_token = _author.set(self)
        try:
            lines = await self._run_command(command)
        except MatrixRefusal as refusal:
            return self._frontend.format_denial(command, self._frontend.make_denial(refusal))
        except Denial as denied:
            return self._frontend.format_denial(command, denied)
        finally:
            _author.reset(author_token)
        self._frontend.send_noise(self.send)
        return self._frontend.format_answer(command, lines)

    def set_silenced(self, *, is_silenced: bool) -> TextLines:
        """Silence autonomous reports to this session, or enable them again. Return an empty answer."""
        self.is_silenced = is_silenced
        return ()

    async def _run_command(self, command: Command) -> TextLines:
        self._frontend.check_target(command)
        if command.verb == "ACT-USER":
            self.user = self._frontend.check_account(self, command)
            self._last_activity_s = self._clock.now()
            return self._frontend.format_welcome(self)
        limit_s, idle_s = self._frontend.idle_timeout_s, self._clock.now() - self._last_activity_s
        if limit_s and idle_s > limit_s:
            self.user = ""
        if not self.user:
            raise Denial(*self._frontend.login_required_denial)
        self._last_activity_s = self._clock.now()
        if command.verb == "CANC-USER":
            self.user = ""
            return ()
        verb = self._frontend.find_canonical_verb(command.verb)
        if verb not in self._table:
            raise Denial("ICNV", self._frontend.unknown_command_text.format(verb=verb[:40]))
        lines = self._table[verb](command)
        return lines if isinstance(lines, Sequence) else await lines
