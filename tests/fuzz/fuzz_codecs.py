"""Coverage-guided fuzzing of the codecs: bytes that reach new lines are kept and changed further.

    .venv/bin/python tests/fuzz/fuzz_codecs.py [CODEC...] [--quiet-s 600]

A codec may answer any bytes, split anywhere, with events or with `ProtocolDesync`; anything else is a finding, printed
with the bytes that show it. Ends for each codec when no new edge was reached for `--quiet-s` seconds. An edge is a pair
of lines executed one after the other inside the codec's module. Prints one JSON line for each codec.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ocs_drivers import prompt_cli, scpi, telnet, tl1
from ocs_drivers.calient import rest_words
from ocs_drivers.calient import tl1_words as calient_words
from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.glimmerglass import words as glimmerglass_words
from ocs_drivers.polatis import tl1_words as polatis_words

Feed = Callable[[list[bytes]], None]


def tl1_codec(pieces: list[bytes]) -> None:
    decoder = tl1.Decoder()
    for piece in pieces:
        for event in decoder.feed(piece):
            if isinstance(event, tl1.Reply):
                words_of(event.lines)


def words_of(lines: tuple[str, ...]) -> None:
    """What the families make of the lines of a reply."""
    for decode in (
        polatis_words.decode_pairs,
        polatis_words.decode_powers,
        polatis_words.decode_shutters,
        calient_words.decode_circuits,
        calient_words.decode_ports,
        glimmerglass_words.decode_circuits,
        glimmerglass_words.decode_ports,
    ):
        try:
            decode(lines)
        except ProtocolDesync:
            continue


def scpi_codec(pieces: list[bytes]) -> None:
    reader = scpi.ReplyReader()
    for piece in pieces:
        for reply in reader.feed(piece):
            for decode in (
                scpi.decode_connections,
                scpi.decode_port_states,
                scpi.decode_powers,
                scpi.decode_error,
            ):
                try:
                    decode(reply)
                except ProtocolDesync:
                    continue


def cli_codec(pieces: list[bytes]) -> None:
    decoder = prompt_cli.Decoder(re.compile(r"[\w@.-]+(?:\[\w+\])?[>#$]"))
    for piece in pieces:
        decoder.feed(piece)


def telnet_codec(pieces: list[bytes]) -> None:
    negotiator = telnet.Negotiator()
    for piece in pieces:
        negotiator.feed(piece)


def rest_codec(pieces: list[bytes]) -> None:
    try:
        document = json.loads(b"".join(pieces))
    except (ValueError, RecursionError):
        return
    for decode in (rest_words.decode_circuits, rest_port, rest_results):
        try:
            decode(document)
        except ProtocolDesync:
            continue


def rest_port(document: Any) -> None:
    item = rest_words.decode_detail(document)
    rest_words.decode_powers(item)
    rest_words.decode_port(item)


def rest_results(document: Any) -> None:
    rest_words.decode_results(document, len(document) if isinstance(document, list) else 1)


CODECS: dict[str, tuple[Feed, tuple[Any, ...], tuple[bytes, ...]]] = {
    "tl1": (
        tl1_codec,
        (tl1, polatis_words, calient_words, glimmerglass_words),
        (
            b'\r\n   OCS1 26-01-31 12:00:00\r\nM  123 COMPLD\r\n   "1,17"\r\n   "2,18"\r\n;',
            b"\r\n   OCS1 26-01-31 12:00:00\r\nM  1 DENY\r\n   IIAC\r\n   /* text; more */\r\n;",
            b'\r\n\n   O 26-01-31 12:00:00\r\n*C  7 REPT ALM CRS\r\n   "1.1.1>1.1.2:CR,LOS"\r\n;IP 5\r\n<',
            b'CAL 16-11-07 11:20:14\nM  0 COMPLD\n"2.3.6-3.2.5:SRCPORT=2.3.6,DSTPORT=3.2.5,CONNTYPE=2WAY,AS=UMA"\n>',
            b'CAL 16-11-07 11:20:14\nM  0 COMPLD\n"1.1.1>1.1.2:AS=IS,OS=RDY,OC=OK"\n;agent>',
            b'< g 26-01-31 12:00:00\nM  4 COMPLD\n"GGN:IPORTID=10046,OPORTID=20047,CONNSTATE=steady,INPWR=-5.8"\n;\n<',
            b'\n   C 26-01-31 12:00:00\nM  2 COMPLD\n"1.1.1:WX:INAS=IS,INOS=IS,INOC=OK,OUTAS=IS,OUTOS=IS,OUTOC=OK"\n;',
            b'\r\n   C 26-01-31 12:00:00\r\nM  2 PRTL\r\n   "1:OPEN"\r\n   "2:-29.55"\r\n   "3:\\"x"\r\n;',
        ),
    ),
    "scpi": (
        scpi_codec,
        (scpi,),
        (
            b'(@1,2,3),(@19,18,22)\r\n0, "No error"\r\n',
            b"(D,E,F)\r",
            b"(-29.55,-30.05)\n",
            b'-113, "Undefined";(@),(@)\n',
        ),
    ),
    "prompt_cli": (
        cli_codec,
        (prompt_cli,),
        (
            b"\x1b[32mone\x1b[0m\r\nROME[OPER]# ",
            b"\x1b]0;title\x07a\x08b\rtelescent> \xc3\xa4\xff",
            b"\x1bP x \x1b\\n@h:~$ ",
        ),
    ),
    "telnet": (
        telnet_codec,
        (telnet,),
        (b"\xff\xfb\x01login: \xff\xff\xff\xfd\x18\xff\xfa\x18\x01\xff\xf0\xff\xfc\x01",),
    ),
    "calient_rest": (
        rest_codec,
        (rest_words,),
        (
            b'[{"name":"1.1.1>1.1.2","dir":"uni","half1":{"conn":"1.1.1>1.1.2","as":"IS","os":"IS","oc":"OK"}}]',
            b'[{"port":"3.3.1","inpower":"-3.4","outpower":"NONE","inas":"IS","inoc":"OK","outas":"IS","outoc":"OK"}]',
            b'[{"status":"0","msg":"Failed","description":"x"},{"status":"1"}]',
        ),
    ),
}


class Edges:
    """Which pairs of lines of some modules have been executed one after the other."""

    def __init__(self, modules: tuple[Any, ...]) -> None:
        self._files = {module.__file__ for module in modules}
        self.seen: set[tuple[str, int, int]] = set()
        self._last = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event == "line":
            self.seen.add((frame.f_code.co_filename, self._last, frame.f_lineno))
            self._last = frame.f_lineno
        return self._line


def changed(data: bytes, other: bytes, tokens: list[bytes], rng: random.Random) -> bytes:
    """The bytes with a few changes."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        kind = rng.randrange(6)
        if kind == 0 and data:
            flipped = bytearray(data)
            flipped[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            data = bytes(flipped)
        elif kind == 1:
            data = data[:at] + data[end:]
        elif kind == 2:
            data = data[:at] + rng.choice(tokens) + data[at:]
        elif kind == 3:
            data = data[:at] + other[at:]
        elif kind == 4:
            data = data[:end] + data[at:end] + data[end:]
        else:
            data = data[:at] + rng.randbytes(rng.randint(1, 3)) + data[at:]
    return data[:4096]


def split(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def fuzz(name: str, quiet_s: float, seed: int) -> dict[str, object]:
    feed, modules, corpus_of = CODECS[name]
    corpus, rng, edges = list(corpus_of), random.Random(seed), Edges(modules)
    tokens = sorted({token for data in corpus for token in re.findall(rb"\w+|\W", data)})
    inputs, desyncs, began_s = 0, 0, time.monotonic()
    news_s = began_s
    while time.monotonic() - news_s < quiet_s:
        data = (
            corpus[inputs]
            if inputs < len(corpus_of)
            else changed(rng.choice(corpus), rng.choice(corpus), tokens, rng)
        )
        pieces, known = split(data, rng), len(edges.seen)
        with edges.watching():
            try:
                feed(pieces)
            except ProtocolDesync:
                desyncs += 1
            except Exception:
                print(f"FOUND in {name}: {pieces!r}", flush=True)
                raise
        inputs += 1
        if len(edges.seen) > known:
            corpus.append(data)
            news_s = time.monotonic()
    return {
        "fuzz": name,
        "inputs": inputs,
        "refused": desyncs,
        "edges": len(edges.seen),
        "kept": len(corpus),
        "ran_s": round(time.monotonic() - began_s),
        "quiet_s": quiet_s,
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("codecs", nargs="*", choices=[*CODECS, []], metavar="CODEC")
    parser.add_argument("--quiet-s", type=float, default=600.0, help="end after so long without a new edge")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.codecs or CODECS:
        print(json.dumps(fuzz(name, options.quiet_s, options.seed)), flush=True)


if __name__ == "__main__":
    main()
