"""Every codec as one function from bytes to events: what the fuzzer and the tests of all codecs share.

`Codec.decode` takes the pieces in which bytes arrive and gives the events in order, each with what the decoders of the
families make of it, and `DESYNC` last when the codec refused the rest. Any exception that it raises is a finding.

    .venv/bin/python tests/fuzz/codec_table.py        the files that codecs are made of, for coverage
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from ocs_drivers.errors import DeviceError, PermissionDenied, PortError, ProtocolDesync, RobotFault
from ocs_drivers.model import Identity
from ocs_drivers.protocols import cli, http, scpi, tl1
from ocs_drivers.transports import telnet
from ocs_drivers.vendors.banks import codec as banks
from ocs_drivers.vendors.calient import circuits as calient_circuits
from ocs_drivers.vendors.calient import ports as calient_ports
from ocs_drivers.vendors.calient import rest_codec as calient_rest
from ocs_drivers.vendors.calient import tl1_codec as calient_tl1
from ocs_drivers.vendors.glimmerglass import codec as glimmerglass
from ocs_drivers.vendors.polatis import rest_codec as polatis_rest
from ocs_drivers.vendors.polatis import scpi_codec as polatis_scpi
from ocs_drivers.vendors.polatis import tl1_codec as polatis_tl1
from ocs_drivers.vendors.rome import codec as rome
from ocs_drivers.vendors.rome import port_table as rome_table
from ocs_drivers.vendors.rome import ports as rome_ports
from ocs_drivers.vendors.sonic import codec as sonic
from ocs_drivers.vendors.telescent import codec as telescent

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = ROOT / "tests/ocs_drivers/transcripts"

DESYNC = "desync"
REFUSALS = (DeviceError, PermissionDenied, PortError, RobotFault)
"""Errors that a device's own text may mean; they are not failures of the codec."""

Lines = tuple[str, ...]
Decode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec: its function, the modules it is made of, and bytes to begin with, recorded and written.

    `needs` is the library that it stands on.
    """

    decode: Callable[[Sequence[bytes]], list[Any]]
    modules: tuple[ModuleType, ...]
    seeds: tuple[bytes, ...]
    needs: str = ""


def read(decoders: Iterable[Decode], received: Any) -> list[Any]:
    """Return the result of each decoder, or the name of the error that it raises by right."""
    return [_read(decode, received) for decode in decoders]


def _read(decode: Decode, received: Any) -> Any:
    try:
        return decode(received)
    except (ProtocolDesync, *REFUSALS) as error:
        return type(error).__name__


def taken(feed: Callable[[bytes], Iterable[Any]], pieces: Iterable[bytes]) -> Iterator[Any]:
    """Return the events of all pieces, and `DESYNC` where the codec refuses one."""
    try:
        for piece in pieces:
            yield from feed(piece)
    except ProtocolDesync:
        yield DESYNC


def with_decoded(events: Iterable[Any], decode: Callable[[Any], Any]) -> list[Any]:
    return [event if event == DESYNC else (event, decode(event)) for event in events]


# -- TL1

_FOUR = calient_ports.PortNames(["1.1.1", "1.1.2", "1.1.3", "1.1.4"])
_TL1_DECODERS: tuple[Decode, ...] = (
    tl1.ignore,
    lambda lines: polatis_tl1.decode_identity(lines, lines),
    polatis_tl1.decode_size,
    polatis_tl1.decode_pairs,
    polatis_tl1.decode_powers,
    polatis_tl1.decode_shutters,
    polatis_tl1.decode_configured_ports,
    polatis_tl1.decode_attenuation,
    calient_tl1.decode_identity,
    lambda lines: calient_snapshot(calient_tl1.decode_circuits(lines)),
    calient_tl1.decode_ports,
    calient_tl1.decode_aliases,
    calient_tl1.decode_powers,
    glimmerglass.decode_system,
    glimmerglass.decode_circuits,
    glimmerglass.decode_ports,
)


def calient_snapshot(circuits: list[calient_ports.Circuit]) -> Any:
    return calient_circuits.CircuitTable(_FOUR, circuits).make_snapshot(0.0, {})


def events_of_tl1(pieces: Sequence[bytes]) -> list[Any]:
    return with_decoded(taken(tl1.Decoder().feed, pieces), decode_tl1)


def decode_tl1(event: tl1.Tl1Event) -> list[Any]:
    return read(_TL1_DECODERS, event.lines) if isinstance(event, tl1.Reply) else []


# -- SCPI

_BANK = banks.CommandSet("ROUT{bank}:SCAN {channel}", "ROUT{bank}:SCAN?")
_SCPI_DECODERS: tuple[Decode, ...] = (
    scpi.decode_identity,
    polatis_scpi.parse_product_size,
    polatis_scpi.decode_size,
    polatis_scpi.decode_connections,
    polatis_scpi.decode_peer,
    polatis_scpi.decode_boot_mode,
    polatis_scpi.decode_port_states,
    polatis_scpi.decode_powers,
    scpi.is_queued_error,
    scpi.decode_error,
    scpi.check_completion,
    _BANK.decode_identity,
    lambda reply: banks.decode_channel(reply, 1, 16),
    banks.decode_open_state,
    banks.decode_power,
)


def events_of_scpi(pieces: Sequence[bytes]) -> list[Any]:
    return with_decoded(taken(scpi.ReplyReader().feed, pieces), partial(read, _SCPI_DECODERS))


# -- command lines

_PROMPT = re.compile(r"[\w@.-]+(?:\[\w+\]#|:~\$|>)")
_SIX = rome_ports.Layout(
    ("E1", "E2", "E3"), ("W1", "W2", "W3"), ports_by_logical_name={"A1": ("E1", "W1"), "A2": ("E2", "W2")}
)
_NOBODY = Identity("", "", "", "")
_SIXTY_FOUR = sonic.PortNames(64)
_TELESCENT = telescent.CommandSet()


def decode_rome_ports(dialect: rome.Dialect, ports_a_side: int, lines: Lines) -> Any:
    board = rome.Board(_NOBODY, ports_a_side, ports_a_side)
    table = rome_table.decode_ports(lines, dialect, board)
    return table, table.find_unfit_ports(), table.find_connections(())


def telescent_cells(lines: Lines) -> Any:
    table = telescent.OutputTable(telescent.decode_cells(lines, _TELESCENT), _TELESCENT)
    return (
        table,
        table.pending_moves,
        table.output_states,
        table.find_unfit_ports(allow_locked=True),
        table.connections,
    )


_SCREEN_DECODERS: tuple[Decode, ...] = (
    lambda lines: rome.decode_board(lines, rome.ROME),
    lambda lines: rome.decode_board(lines, rome.AFM),
    partial(decode_rome_ports, rome.ROME, 1),
    partial(decode_rome_ports, rome.ROME, 8),
    partial(decode_rome_ports, rome.AFM, 1),
    partial(decode_rome_ports, rome.AFM, 8),
    lambda lines: rome.decode_queue(lines).list_moves(_SIX),
    rome.check_accepted,
    rome_ports.decode_logical_ports,
    lambda lines: rome.find_failure(lines, [("E6", "W4")], "connect"),
    telescent_cells,
    lambda lines: telescent.decode_input(lines, _TELESCENT),
    lambda lines: sorted(sonic.parse_configured_pairs(lines, _SIXTY_FOUR)),
    lambda lines: sonic.parse_hardware_states(lines, _SIXTY_FOUR),
    lambda lines: sonic.decode_port_config(lines, _SIXTY_FOUR),
    lambda lines: sorted(sonic.parse_broken_ports(lines, _SIXTY_FOUR)),
    sonic.decode_identity,
    sonic.check_silent,
)


def events_of_screen(pieces: Sequence[bytes]) -> list[Any]:
    """Return the lines up to each prompt, as every family decodes them behind the echo; then the lines left over."""
    lines: list[str] = []
    events: list[Any] = []
    for event in taken(cli.Decoder(_PROMPT).feed, pieces):
        if isinstance(event, cli.Line):
            lines.append(event.text)
        elif event == DESYNC:
            return [*events, DESYNC]
        else:
            events.append((event, lines, read(_SCREEN_DECODERS, tuple(lines[1:]))))
            lines = []
    return [*events, lines]


# -- telnet


def events_of_telnet(pieces: Sequence[bytes]) -> list[Any]:
    """Return all the text and all the answers: how much of each comes at once depends on the pieces."""
    negotiator = telnet.Negotiator()
    events = list(taken(lambda piece: [negotiator.feed(piece)], pieces))
    if events[-1:] == [DESYNC]:
        return [DESYNC]
    return [b"".join(text for text, _ in events), b"".join(answer for _, answer in events)]


# -- HTTP and JSON


def events_of_http(pieces: Sequence[bytes]) -> list[Any]:
    """Return the reply to one GET, after which the device closes the connection."""
    connection = http.HttpConnection()
    connection.encode_request(http.Request("GET", "/x", (("Host", "h"),)))
    waiting = [*filter(None, pieces), b""]
    try:
        reply = None
        while reply is None:
            reply = connection.feed(waiting.pop(0))
    except ProtocolDesync:
        return [DESYNC]
    if any(waiting):  # bytes that no request asked for
        return [DESYNC]
    return [reply, reply.text, read((http.HttpReply.json,), reply), cookies(connection)]


def cookies(connection: http.HttpConnection) -> Any:
    jar = http.CookieJar()
    for name, value in connection.headers:
        if name == "set-cookie":
            jar.store(value)
    return jar.headers


_JSON_DECODERS: tuple[Decode, ...] = (
    polatis_rest.decode_pairs,
    polatis_rest.decode_ports,
    polatis_rest.decode_powers,
    polatis_rest.decode_product,
    polatis_rest.decode_attenuators,
    lambda document: calient_snapshot(calient_rest.decode_circuits(document)),
    calient_rest.decode_summary,
    lambda document: calient_rest.decode_port(calient_rest.decode_detail(document)),
    lambda document: calient_rest.decode_powers(calient_rest.decode_detail(document)),
    lambda document: calient_rest.decode_failures(document, 2),
    calient_rest.decode_node,
)


def events_of_json(pieces: Sequence[bytes]) -> list[Any]:
    """Return the body of a reply, decoded for both families that speak REST."""
    try:
        document = http.HttpReply(200, b"".join(pieces)).json()
    except ProtocolDesync:
        return [DESYNC]
    return read(_JSON_DECODERS, document)


# -- what they begin with


def recorded(*names: str) -> tuple[bytes, ...]:
    """Return what devices sent in the transcripts, between one command and the next."""
    texts = [(TRANSCRIPTS / f"{name}.jsonl").read_text(encoding="utf-8") for name in names]
    entries = [json.loads(line) for text in texts for line in text.splitlines()]
    turns = groupby((entry for entry in entries if "data" in entry), key=itemgetter("what"))
    sent = ["".join(entry["data"] for entry in turn) for what, turn in turns if what == "received"]
    return tuple(dict.fromkeys(text.encode("latin-1") for text in sent))


def unrepeated(*names: str) -> tuple[bytes, ...]:
    """Return what devices sent that repeat every command, without that: transports take it away."""
    return tuple(re.sub(rb"\A\s*<?[^\r\n<]*;\r\n", b"", reply) for reply in recorded(*names))


def bodies(*names: str) -> tuple[bytes, ...]:
    """Return the bodies of recorded HTTP replies."""
    return tuple(body for reply in recorded(*names) if (body := reply.partition(b"\r\n\r\n")[2]))


_HEAD = b"\r\n   OCS1 26-01-31 12:00:00\r\nM  1 "

CODECS: dict[str, Codec] = {
    "tl1": Codec(
        events_of_tl1,
        (tl1, polatis_tl1, calient_tl1, calient_ports, calient_circuits, glimmerglass),
        (
            *recorded("polatis+tl1", "calient+tl1"),
            *unrepeated("glimmerglass+tl1"),
            _HEAD + b"DENY\r\n   IIAC\r\n   /* text; more */\r\n;",
            b'\r\n\n   O 26-01-31 12:00:00\r\n*C  7 REPT ALM CRS\r\n   "1.1.1>1.1.2:CR,LOS"\r\n;IP 5\r\n<',
            _HEAD + b'PRTL\r\n   "1:OPEN"\r\n   "2:-29.55"\r\n   "3:\\"x"\r\n>agent>',
            _HEAD + b'COMPLD\r\n   "33:ABSOLUTE,-10.0,0"\r\n;' + _HEAD + b'COMPLD\r\n   "1:NONE"\r\n;',
            _HEAD + b'COMPLD\r\n   "33:MODE=RELATIVE,LEVEL=-3.0,REFS=2"\r\n;',
            _HEAD
            + b'COMPLD\r\n"1.1.1-1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,CONNTYPE=2WAY,AS=UMA,OS=RDY,OC=OK"\r\n>',
            _HEAD + b'COMPLD\r\n   "GGN:IPORTID=10046,OPORTID=20047,CONNSTATE=steady,INPWR=-5.873"\r\n;',
        ),
    ),
    "scpi": Codec(
        events_of_scpi,
        (scpi, polatis_scpi, banks),
        (
            *recorded("polatis+scpi", "polatis+serial"),
            b'(@1,2,3),(@19,18,22)\r\n0, "No error"\r\n',
            b'(D,E,F)\r(-29.55,9.91E37)\n"18"\nAUTosave\n16,16\n1\n',
            b'-113, "Undefined ""header""";(@),(@)\n',
            b"6, 2\n1,1,2\n0, -8.000\nver3.27\n",
        ),
    ),
    "cli": Codec(
        events_of_screen,
        (
            cli,
            rome,
            rome_ports,
            rome_table,
            sonic,
            telescent,
        ),
        (
            *recorded("rome+cli", "afm+telnet", "telescent+cli", "sonic-ocs"),
            b"\x1b[32mone\x1b[0m\r\nROME[OPER]# ",
            b"\x1b]0;title\x07a\x08b\rtelescent> \xc3\xa4\xff",
            b"\x1bP x \x1b\\n@h:~$ \x1b(B\x1b[1",
            (
                b"port show\nE1[1AE1] Unlocked Enabled Connected 3 W1[1AW1] A1\n"
                b"W1[1AW1] Unlocked Enabled Connected 3 E1[1AE1] A1\nR[O]#"
            ),
            b"port show\nE1 1 2 1 w1 W1 1 7\nW1 1 2 1 e1 E1 1 7\nF[A]# x\nE5 1 1 1 2 0\nW5 2 6 1 w6 3 9\nF[A]# ",
            (
                b"x\nConnection execution status: enabled\nCommand in process:\nconnect, ports: E3-W1, status: moving\n"
                b"=== ===\nRequest Port1\n=== ===\n772   A1    A2    connect    CLI    admin\nR[O]# "
            ),
            b"x\n08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect\nR[O]# ",
            b"x\nPorts are not of the same matrix\nR[O]#x\nMultiple Cross Connect Severe Failure\nR[O]#x\nError\nR[O]#",
            b"x\nSTATE = ALLOCATED_AND_LOCKED\r\nOUTPUT = 321 \r\nt>x\nSTATE = UNALLOCATED_AND_UNLOCKED\r\nt>",
            b"x\n==== ERROR ====\r\nport 9: the robot is stuck\r\n====\r\nt>",
            b"x\njava.lang.Exception\r\nt>x\n====\r\nERROR\r\n====\r\nt>",
            b"x\nR0#N AL3 UU1 CU2 DU0 XX4\r\nt>",
            b"x\nid  a_side  b_side\n--  ------  ------\n1A-1B  1A  1B\na@h:~$ ",
            b"x\nid  label  state\n--  -----  -----\n1A  x      normal\n1B  y      force_blocked\na@h:~$ ",
        ),
    ),
    "telnet": Codec(
        events_of_telnet,
        (telnet,),
        (
            *recorded("afm+telnet"),
            b"\xff\xfb\x01login: \xff\xff\xff\xfd\x18\xff\xfa\x18\x01\xff\xf0\xff\xfc\x01\xff\xfe\x03\xff\xf1",
        ),
    ),
    "http": Codec(
        events_of_http,
        (http,),
        (
            *recorded("polatis+rest", "calient+rest"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[42]\r\n0\r\n\r\n",
            b"HTTP/1.1 102 P\r\n\r\nHTTP/1.0 200 OK\r\nSet-Cookie: a=b; Max-Age=0\r\nSet-Cookie: c=d; Path=/\r\n\r\n{}",
            b"HTTP/1.1 204 No\r\nSet-Cookie: =\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n",
        ),
        needs="h11",
    ),
    "rest_json": Codec(
        events_of_json,
        (polatis_rest, calient_rest, calient_ports, calient_circuits),
        (
            *bodies("polatis+rest", "calient+rest"),
            b'[{"status":"0","msg":"Failed","description":"x"},{"status":"1"}]',
            b'{"port":"1.1.1","inas":"IS","inos":"OOS","outas":"LCK","outos":"IS","inpower":"-3.4","outpower":"NONE"}',
            b'{"opm-power": {"port": [{"port-id": "1", "power": "-3.5"}, {"port-id": 2, "power": null}]}}',
            (
                b'[{"name":"1.1.1-1.1.2","dir":"bi","half1":{"conn":"1.1.1>1.1.2","as":"IS","os":"IS","oc":"OK"},'
                b'"half2":{"conn":"1.1.2>1.1.1","as":"IS","os":"RDY","oc":"FAIL"}}]'
            ),
        ),
    ),
}


def files() -> list[str]:
    """Return the files of all codecs, from the root of the repository."""
    found = {module.__file__ or "" for codec in CODECS.values() for module in codec.modules}
    return sorted(str(Path(file).relative_to(ROOT)) for file in found)


if __name__ == "__main__":
    print(",".join(files()))
