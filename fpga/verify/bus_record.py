"""The record of a bench about the registers of a top: transactions, and when each can have had its effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fpga.verify.accesses import Read, Write

SETTLED = 3
"""Cycles after the answer to a write in which its effect may still come to the pins of the datapath."""

Columns = Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction: accepted in cycle `begins`, answered in cycle `ends`."""

    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule of the bus that was not kept: where, when, and what was expected and seen."""

    pin: str
    cycle: int
    expected: int
    seen: int


def handshakes(log: Columns, valid: str, ready: str) -> list[int]:
    """Return the cycles in which something moves."""
    pairs = zip(log[valid], log[ready], strict=True)
    return [cycle for cycle, (one, other) in enumerate(pairs) if one and other]


def answers(log: Columns, channel: str) -> list[int]:
    """Return the first cycle of every answer."""
    found, waits = [], False
    for cycle, (valid, ready) in enumerate(
        zip(log[f"s_axi_{channel}valid"], log[f"s_axi_{channel}ready"], strict=True)
    ):
        if valid and not waits:
            found.append(cycle)
        waits = bool(valid and not ready)
    return found


def written(log: Columns, writes: list[Write]) -> list[tuple[Write, Done]]:
    """Return the writes that were answered."""
    addresses, data = (handshakes(log, f"s_axi_{each}valid", f"s_axi_{each}ready") for each in ("aw", "w"))
    ends = answers(log, "b")
    return [
        (write, Done(max(one, other), end))
        for write, one, other, end in zip(writes, addresses, data, ends, strict=False)
    ]


def read(log: Columns, reads: list[Read]) -> list[tuple[Read, Done, int]]:
    """Return the reads that were answered, with their answers."""
    begins, ends = handshakes(log, "s_axi_arvalid", "s_axi_arready"), answers(log, "r")
    return [
        (each, Done(begin, end), log["s_axi_rdata"][end])
        for each, begin, end in zip(reads, begins, ends, strict=False)
    ]


def unstable(log: Columns, valid: str, ready: str, payload: list[str]) -> Iterator[Breach]:
    """Return what changes though a beat waits: its valid, or what it carries. A bus reset ends a beat."""
    for cycle in range(1, len(log[valid])):
        if not (log[valid][cycle - 1] and not log[ready][cycle - 1] and log["aresetn"][cycle]):
            continue
        for name in (valid, *payload):
            if log[name][cycle] != log[name][cycle - 1]:
                yield Breach(name, cycle, log[name][cycle - 1], log[name][cycle])
                return


def unanswered(log: Columns, requests: int, answer: str) -> Iterator[Breach]:
    """Return a breach when there are fewer answers than requests, or more."""
    given = len(handshakes(log, f"s_axi_{answer}valid", f"s_axi_{answer}ready"))
    if given != requests:
        yield Breach(f"s_axi_{answer}valid", len(log["aresetn"]) - 1, requests, given)


def errors(log: Columns, channel: str) -> Iterator[Breach]:
    """Return answers that say that there was an error."""
    for cycle, (valid, answer) in enumerate(
        zip(log[f"s_axi_{channel}valid"], log[f"s_axi_{channel}resp"], strict=True)
    ):
        if valid and answer:
            yield Breach(f"s_axi_{channel}resp", cycle, 0, answer)
            return
