"""Coverage-guided fuzzing of the codecs: bytes that reach new edges are kept and changed further.

    .venv/bin/python tests/fuzz/fuzz_codecs.py [CODEC...] [--quiet-s 600] [--inputs 1000000] [--seed 0]

A codec may answer any bytes with events or with a protocol error, and the same however the bytes are split; anything
else is a finding, printed with the bytes that show it. Begins with what devices said in the recorded transcripts, and
ends for each codec when no new edge was reached for `--quiet-s` seconds and it has had `--inputs` inputs. An edge is a
pair of lines executed one after the other inside the codec's modules. Prints one JSON line for each codec.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from codec_table import CODECS, DESYNC, Codec

LONGEST_INPUT_BYTES = 4096
NUMBERS = (b"0", b"007", b"-29.55", b"1e999", b"nan", b"9" * 12, b"9" * 600)


class Edges:
    """Pairs of lines of some modules that have been executed one after the other."""

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._files = {module.__file__ for module in modules}
        self.seen: set[tuple[str, int, int]] = set()
        self._last = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        before, self._last = sys.gettrace(), 0
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


def changed(data: bytes, other: bytes, tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """Return the bytes with a few changes."""
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
    return data[:LONGEST_INPUT_BYTES]


def split(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def tokens_of(codec: Codec) -> list[bytes]:
    """Return the words and marks of its seeds, and numbers that are none."""
    words = {token for data in codec.seeds for token in re.findall(rb"\w+|\W", data)}
    return sorted({*words, *NUMBERS})


def is_refused(events: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Return True if the codec refused the pieces; it must then refuse the whole, and else give the same for it."""
    refused = list(events[-1:]) == [DESYNC]
    alike = list(whole[-1:]) == [DESYNC] if refused else repr(events) == repr(whole)
    assert alike, "it matters how the bytes were split"
    return refused


def fuzz(name: str, quiet_s: float, least_inputs: int, seed: int) -> dict[str, object]:
    codec, rng = CODECS[name], random.Random(seed)
    corpus, tokens, edges = list(codec.seeds), tokens_of(codec), Edges(codec.modules)
    inputs = refused = 0
    began_s = news_s = time.monotonic()
    while inputs < least_inputs or time.monotonic() - news_s < quiet_s:
        first = inputs < len(codec.seeds)
        data = corpus[inputs] if first else changed(rng.choice(corpus), rng.choice(corpus), tokens, rng)
        pieces, known = split(data, rng), len(edges.seen)
        try:
            with edges.watching():
                events = codec.decode(pieces)
            refused += is_refused(events, codec.decode([data]))
        except Exception:
            print(f"FOUND in {name}: {pieces!r}", flush=True)
            raise
        inputs += 1
        if len(edges.seen) > known:
            news_s = time.monotonic()
            if not first:
                corpus.append(data)
    report = {
        "fuzz": name,
        "inputs": inputs,
        "refused": refused,
        "edges": len(edges.seen),
        "kept": len(corpus),
    }
    now_s = time.monotonic()
    return {**report, "ran_s": round(now_s - began_s), "quiet_s": round(now_s - news_s), "seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("codecs", nargs="*", choices=[*CODECS, []], metavar="CODEC", help=", ".join(CODECS))
    parser.add_argument("--quiet-s", type=float, default=600.0, help="end after so long without a new edge")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="not before so many inputs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.codecs or CODECS:
        print(json.dumps(fuzz(name, options.quiet_s, options.inputs, options.seed)), flush=True)


if __name__ == "__main__":
    main()
