"""Every codec as one function from bytes to events: what the tests of all codecs and the fuzzer share.

`Codec.heard` takes the pieces in which bytes arrive and gives the events in order, and `DESYNC` last when the codec
refused the rest. It hands on to the words of the families whatever the codec makes of the bytes, so that an event holds
what would reach a driver. Every other exception than those a driver's caller may meet is a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ocs_drivers import bank_words, http, prompt_cli, scpi, telnet, tl1
from ocs_drivers.calient import rest_words as calient_rest
from ocs_drivers.calient import tl1_words as calient_tl1
from ocs_drivers.errors import DeviceError, PermissionDenied, PortError, ProtocolDesync, RobotFault
from ocs_drivers.glimmerglass import words as glimmerglass
from ocs_drivers.model import Identity
from ocs_drivers.polatis import rest_words as polatis_rest
from ocs_drivers.polatis import tl1_words as polatis_tl1
from ocs_drivers.rome import board, port_table, queue
from ocs_drivers.rome import words as rome
from ocs_drivers.rome.dialect import AFM, ROME
from ocs_drivers.rome.names import Layout
from ocs_drivers.sonic import names as sonic_names
from ocs_drivers.sonic import tables as sonic
from ocs_drivers.telescent import replies as telescent
from ocs_drivers.telescent import table as telescent_table
from ocs_drivers.telescent.words import Words

TRANSCRIPTS = Path(__file__).parents[1] / "ocs_drivers" / "transcripts"

DESYNC = "desync"
REFUSALS = (DeviceError, PermissionDenied, PortError, RobotFault)
"""What a device's own words may come to; they are no failure of the codec."""

Heard = Callable[[Sequence[bytes]], list[Any]]
Decode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec: how it hears, the modules it is made of, recorded and written bytes to begin with.

    `tokens` are pieces from which its language is built; `needs` is the library that it stands on.
    """

    heard: Heard
    modules: tuple[str, ...]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...]
    needs: str = ""


def taken(
    feed: Callable[[bytes], Iterable[Any]], pieces: Iterable[bytes], words: Sequence[Decode]
) -> list[Any]:
    """The events of all pieces, each with what the words make of it."""
    events: list[Any] = []
    try:
        for piece in pieces:
            for event in feed(piece):
                events.append((event, [read(decode, event) for decode in words]))
    except ProtocolDesync:
        events.append(DESYNC)
    return events


def read(decode: Decode, told: Any) -> Any:
    """What a decoder of words makes of what it is told, or the name of the error that it raises by right."""
    try:
        return decode(told)
    except (ProtocolDesync, *REFUSALS) as error:
        return type(error).__name__


# -- TL1

_LINES = (
    polatis_tl1.nothing,
    polatis_tl1.decode_size,
    polatis_tl1.decode_pairs,
    polatis_tl1.decode_powers,
    polatis_tl1.decode_shutters,
    polatis_tl1.decode_configured_ports,
    polatis_tl1.decode_attenuation,
    lambda lines: polatis_tl1.decode_identity(lines, lines),
    calient_tl1.nothing,
    calient_tl1.decode_identity,
    calient_tl1.decode_circuits,
    calient_tl1.decode_ports,
    calient_tl1.decode_aliases,
    calient_tl1.decode_powers,
    glimmerglass.decode_system,
    glimmerglass.decode_circuits,
    glimmerglass.decode_ports,
)


def tl1_words(event: tl1.Tl1Event) -> list[Any]:
    """What each family makes of the lines of a reply."""
    return [read(decode, event.lines) for decode in _LINES] if isinstance(event, tl1.Reply) else []


def hear_tl1(pieces: Sequence[bytes]) -> list[Any]:
    return taken(tl1.Decoder().feed, pieces, (tl1_words,))


# -- SCPI

_ONE_TO_N = bank_words.Words("ROUT{bank}:SCAN {channel}", "ROUT{bank}:SCAN?")
_REPLIES = (
    scpi.decode_identity,
    scpi.size_in_product_code,
    scpi.decode_size,
    scpi.decode_connections,
    scpi.decode_peer,
    scpi.decode_boot_mode,
    scpi.decode_port_states,
    scpi.decode_powers,
    scpi.is_queued_error,
    scpi.decode_error,
    scpi.decode_complete,
    _ONE_TO_N.decode_identity,
    lambda reply: bank_words.decode_channel(reply, 1, 16),
    bank_words.decode_open,
    bank_words.decode_monitor,
)


def hear_scpi(pieces: Sequence[bytes]) -> list[Any]:
    return taken(scpi.ReplyReader().feed, pieces, _REPLIES)


# -- command lines

_SIX = Layout(("E1", "E2", "E3"), ("W1", "W2", "W3"), logical={"A1": ("E1", "W1"), "A2": ("E2", "W2")})
_BOARD = board.Board(Identity("", "", "", ""), 8, 8)


def rome_table(dialect: Any, lines: tuple[str, ...]) -> Any:
    """The table of ports, whatever size it says it has."""
    try:
        told = board.decode_board(lines, dialect)
    except ProtocolDesync:
        told = _BOARD
    table = port_table.decode_ports(lines, dialect, told)
    return table, table.unfit(), table.connections(())


def telescent_cells(lines: tuple[str, ...]) -> Any:
    table = telescent_table.Table(telescent.decode_cells(lines, Words()), Words())
    return table, table.pending, table.outputs, table.unfit(force=True), table.connections


_SIXTY_FOUR = sonic_names.Names(64)
_SCREENS: dict[str, tuple[Decode, ...]] = {
    "rome": (
        lambda lines: board.decode_board(lines, ROME),
        partial(rome_table, ROME),
        lambda lines: queue.decode_queue(lines).moves(_SIX),
        rome.refuse,
        lambda lines: rome.failure_of(lines, ("E6", "W4"), "connect"),
    ),
    "afm": (lambda lines: board.decode_board(lines, AFM), partial(rome_table, AFM)),
    "telescent": (telescent_cells, lambda lines: telescent.decode_input(lines, Words())),
    "sonic": (
        lambda lines: sorted(sonic.configured(lines, _SIXTY_FOUR)),
        lambda lines: sonic.hardware(lines, _SIXTY_FOUR),
        lambda lines: sonic.port_config(lines, _SIXTY_FOUR),
        lambda lines: sorted(sonic.broken_ports(lines, _SIXTY_FOUR)),
        sonic.identity,
        sonic.nothing,
    ),
}

_PROMPT = re.compile(r"[\w@.-]+(?:\[\w+\]|:~)?[>#$]")


def hear_screen(family: str, pieces: Sequence[bytes]) -> list[Any]:
    """Lines up to each prompt, and what a family makes of them; the lines after the last prompt alone."""
    lines: list[str] = []

    def replies(events: Iterable[prompt_cli.CliEvent]) -> Iterator[tuple[str, ...]]:
        for event in events:
            if isinstance(event, prompt_cli.Line):
                lines.append(event.text)
            else:
                yield tuple(lines)
                lines.clear()

    decoder = prompt_cli.Decoder(_PROMPT)
    events = taken(lambda piece: replies(decoder.feed(piece)), pieces, _SCREENS.get(family, ()))
    return events if events[-1:] == [DESYNC] else [*events, tuple(lines)]


# -- telnet


def hear_telnet(pieces: Sequence[bytes]) -> list[Any]:
    """All the text and all the answers: how much of each comes at once depends on the pieces."""
    negotiator, text, answers = telnet.Negotiator(), b"", b""
    try:
        for piece in pieces:
            more, answer = negotiator.feed(piece)
            text, answers = text + more, answers + answer
    except ProtocolDesync:
        return [DESYNC]
    return [text, answers]


# -- HTTP and JSON


def hear_http(pieces: Sequence[bytes]) -> list[Any]:
    """The reply to one GET, after which the device hangs up."""
    conversation = http.Conversation()
    conversation.request(http.Request("GET", "/x", (("Host", "h"),)))
    waiting = [piece for piece in pieces if piece]
    try:
        for number, piece in enumerate([*waiting, b""], 1):
            reply = conversation.feed(piece)
            if reply is not None:
                surplus = number < len(waiting)  # bytes that no request asked for
                return (
                    [DESYNC]
                    if surplus
                    else [reply, reply.text, read(lambda _: reply.json(), None), cookies(conversation)]
                )
    except ProtocolDesync:
        return [DESYNC]
    raise AssertionError("a conversation that is over has neither a reply nor an error")


def cookies(conversation: http.Conversation) -> Any:
    jar = http.CookieJar()
    for name, value in conversation.headers:
        if name == "set-cookie":
            jar.take(value)
    return jar.header


_DOCUMENTS = (
    polatis_rest.decode_pairs,
    polatis_rest.decode_ports,
    polatis_rest.decode_powers,
    polatis_rest.decode_product,
    calient_rest.decode_circuits,
    calient_rest.decode_summary,
    lambda document: calient_rest.decode_port(calient_rest.decode_detail(document)),
    lambda document: calient_rest.decode_powers(calient_rest.decode_detail(document)),
    lambda document: calient_rest.decode_results(
        document, len(document) if isinstance(document, list) else 1
    ),
    calient_rest.decode_node,
)


def hear_json(pieces: Sequence[bytes]) -> list[Any]:
    """The body of a reply in the words of both families that speak REST."""
    reply = http.HttpReply(200, b"".join(pieces))
    try:
        document = reply.json()
    except ProtocolDesync:
        return [DESYNC]
    return [read(decode, document) for decode in _DOCUMENTS]


# -- what they begin with


def recorded(*names: str) -> tuple[bytes, ...]:
    """What devices said in the transcripts, message by message."""
    texts = [(TRANSCRIPTS / f"{name}.jsonl").read_text(encoding="utf-8") for name in names]
    entries = [json.loads(line) for text in texts for line in text.splitlines()]
    said = [entry["data"].encode("latin-1") for entry in entries if entry["what"] == "received"]
    return tuple(dict.fromkeys(said))


def bodies(*names: str) -> tuple[bytes, ...]:
    """The bodies of recorded HTTP replies."""
    return tuple(body for reply in recorded(*names) if (body := reply.partition(b"\r\n\r\n")[2]))


def _tokens(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode("latin-1") for text in texts)


_DIGITS = _tokens("0", "1", "17", "007", "-29.55", "1e999", "nan", "9" * 12)
_SCREEN_TOKENS = _tokens(
    "\r\n", "\n", "\r", "\b", "\t", "\x1b[0m", "\x1b]0;t\x07", "\x1b", "\xff", "> ", "ocs1[OPER]# ", "a@h:~$ "
)

CODECS: dict[str, Codec] = {
    "tl1": Codec(
        hear_tl1,
        (
            "ocs_drivers.tl1",
            "ocs_drivers.polatis.tl1_words",
            "ocs_drivers.calient.tl1_words",
            "ocs_drivers.glimmerglass.words",
        ),
        (
            *recorded("polatis+tl1", "calient+tl1", "glimmerglass+tl1"),
            b"\r\n   OCS1 26-01-31 12:00:00\r\nM  1 DENY\r\n   IIAC\r\n   /* text; more */\r\n;",
            b'\r\n\n   O 26-01-31 12:00:00\r\n*C  7 REPT ALM CRS\r\n   "1.1.1>1.1.2:CR,LOS"\r\n;IP 5\r\n<',
            b'\r\n   C 26-01-31 12:00:00\r\nM  2 PRTL\r\n   "1:OPEN"\r\n   "2:-29.55"\r\n   "3:\\"x"\r\n>agent>',
            b'\r\n   C 26-01-31 12:00:00\r\nM  2 COMPLD\r\n   "33:ABSOLUTE,-10.0,0"\r\n;',
            b'\r\n   C 26-01-31 12:00:00\r\nM  2 COMPLD\r\n   "33:MODE=RELATIVE,LEVEL=-3.0,REFS=2"\r\n;',
        ),
        (
            *_DIGITS,
            *_tokens("\r\n", ";", "<", ">", '"', "\\", "/*", "*/", "   OCS1 26-01-31 12:00:00\r\n", "M  1 COMPLD\r\n", "A  1 REPT X\r\n"),
            *_tokens("DENY", "PRTL", "IP 5\r\n", '"1,17"\r\n', '"1:OPEN"\r\n', "NONE", ":", ",", "=", "CONNSTATE=steady", "PORTHEALTH=good"),
            *_tokens("IPORTID=10001", "OPORTID=20001", "PORTID=10001", "AS=IS", "OS=RDY", "OC=OK", "CONNTYPE=2WAY", "LEVEL=", "MODE="),
        ),
    ),
    "scpi": Codec(
        hear_scpi,
        ("ocs_drivers.scpi", "ocs_drivers.bank_words"),
        (
            *recorded("polatis+scpi", "polatis+serial"),
            b'(@1,2,3),(@19,18,22)\r\n0, "No error"\r\n',
            b'(D,E,F)\r(-29.55,-30.05)\n"18"\nAUTosave\n16,16\n1\n',
            b'-113, "Undefined ""header""";(@),(@)\n',
            b"6, 2\n1,1,2\n0, -8.000\nver3.27\n",
        ),
        (*_DIGITS, *_tokens("(@", "(", ")", ",", ";", '"', '""', "\n", "\r\n", "\t", "E", "D", "F", "9.91E37", "REST", "-24x24-")),
    ),
    "prompt_cli": Codec(
        partial(hear_screen, ""),
        ("ocs_drivers.prompt_cli",),
        (
            b"\x1b[32mone\x1b[0m\r\nROME[OPER]# ",
            b"\x1b]0;title\x07a\x08b\rtelescent> \xc3\xa4\xff",
            b"\x1bP x \x1b\\n@h:~$ \x1b(B\x1b[1",
        ),
        (*_SCREEN_TOKENS, *_tokens("\x1b[", "\x1bP", "\x1b\\", "\x1b(", "\xc3\xa4", " ")),
    ),
    "rome": Codec(
        partial(hear_screen, "rome"),
        (
            "ocs_drivers.rome.board",
            "ocs_drivers.rome.port_table",
            "ocs_drivers.rome.queue",
            "ocs_drivers.rome.words",
            "ocs_drivers.rome.names",
        ),
        (
            *recorded("rome+cli"),
            b"Connection execution status: enabled\nCommand in process:\nconnect, ports: E3-W1, status: in process\n"
            b"=== ===\nRequest Port1\n=== ===\n772     A1        A2        connect            CLI     admin\nocs1[OPER]# ",
            b"08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect\nPorts are not of the same matrix\nR[O]#",
            b"Multiple Cross Connect Severe Failure\nR[O]#Error\nR[O]#",
        ),
        (
            *_DIGITS,
            *_SCREEN_TOKENS,
            *_tokens("E1[1AE1] ", "W1[1AW1] ", "1AE9 ", "Unlocked ", "Locked ", "Enabled ", "Disabled ", "Connected ", "In process "),
            *_tokens("Disconnected ", "A1 ", "=== ===\n", "disconnect", "connect, ports: E1-W1", "Command in process:", "homing run"),
        ),
    ),
    "afm": Codec(
        partial(hear_screen, "afm"),
        ("ocs_drivers.rome.board", "ocs_drivers.rome.port_table", "ocs_drivers.rome.names"),
        recorded("afm+telnet"),
        (*_DIGITS, *_SCREEN_TOKENS, *_tokens("E1 1 2 1 w1 W1 1 7\n", "W1 1 2 1 e1 E1 1 7\n", "E5 1 1 1 1 0\n", "MAX_PORT_EAST 8 ")),
    ),
    "telescent": Codec(
        partial(hear_screen, "telescent"),
        ("ocs_drivers.telescent.replies", "ocs_drivers.telescent.table"),
        (
            *recorded("telescent+cli"),
            b"STATE = ALLOCATED_AND_LOCKED\r\nOUTPUT = 321 \r\nt>STATE = UNALLOCATED_AND_UNLOCKED\r\nt>",
            b"==== ERROR ====\r\nport 9: the robot is stuck\r\n====\r\nt>java.lang.Exception\r\nt>====\r\nERROR\r\n====\r\nt>",
            b"R0#N AL3 UU1 CU2 DU3 XX4\r\nt>",
        ),
        (*_DIGITS, *_SCREEN_TOKENS, *_tokens("R0#", "R1#", " AL1", " UL2", " UU0" * 12, " C1", " D1", "STATE = ", "OUTPUT = ", "=")),
    ),
    "sonic": Codec(
        partial(hear_screen, "sonic"),
        ("ocs_drivers.sonic.tables", "ocs_drivers.sonic.names"),
        recorded("sonic-ocs"),
        (*_DIGITS, *_SCREEN_TOKENS, *_tokens("1A-2B", "1A", "2B", "  ", "-", "tuned", "failed", "normal", "succeeded", ": ", "id  label  state")),
    ),
    "telnet": Codec(
        hear_telnet,
        ("ocs_drivers.telnet",),
        (
            *recorded("afm+telnet"),
            b"\xff\xfb\x01login: \xff\xff\xff\xfd\x18\xff\xfa\x18\x01\xff\xf0\xff\xfc\x01",
        ),
        tuple(bytes([byte]) for byte in (*range(240, 256), 1, 3, 24)) + (b"\xff\xfb\x01", b"\xff\xfa", b"\xff\xf0"),
    ),
    "http": Codec(
        hear_http,
        ("ocs_drivers.http",),
        (
            *recorded("polatis+rest", "calient+rest"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[42]\r\n0\r\n\r\n",
            b"HTTP/1.1 102 P\r\n\r\nHTTP/1.0 200 OK\r\nSet-Cookie: a=b; Max-Age=0\r\nSet-Cookie: c=d; Path=/\r\n\r\n{}",
            b"HTTP/1.1 204 No\r\nSet-Cookie: =\r\n\r\n",
        ),
        (
            *_DIGITS,
            *_tokens("HTTP/1.1 200 OK\r\n", "HTTP/1.0", "\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n"),
            *_tokens("0\r\n\r\n", "Set-Cookie: a=b\r\n", "[", "]", "{", "}", '"', "100", "101", "304", ":"),
        ),
        needs="h11",
    ),
    "json": Codec(
        hear_json,
        ("ocs_drivers.polatis.rest_words", "ocs_drivers.calient.rest_words"),
        (
            *bodies("polatis+rest", "calient+rest"),
            b'[{"status":"0","msg":"Failed","description":"x"},{"status":"1"}]',
            b'{"optical-switch:opm-power": {"port": [{"port-id": "1", "power": "-29.55"}, {"port-id": 2, "power": null}]}}',
        ),
        (
            *_DIGITS,
            *_tokens("{", "}", "[", "]", ":", ",", '"', "null", "true", '"1"', '""', '"port"', '"status"', '"as":"IS"', '"dir":"bi"', '"half2":'),
            *_tokens('"ingress":1', '"egress":2', '"pair":[', '"power":', '"port-id":1', '"1.1.1>1.1.2"', '"1.1.2-1.1.1"', "1e400"),
        ),
    ),
}  # fmt: skip
