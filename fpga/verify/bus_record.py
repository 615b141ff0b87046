"""The record of a bench about the registers of a top: transactions, and when each can have had its effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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


def find_answered_writes(log: Columns, writes: list[Write]) -> list[tuple[Write, Done]]:
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


def find_unanswered(log: Columns, requests: int, answer: str) -> Iterator[Breach]:
    """Return a breach when there are fewer answers than requests, or more."""
    given = len(handshakes(log, f"s_axi_{answer}valid", f"s_axi_{answer}ready"))
    if given != requests:
        yield Breach(f"s_axi_{answer}valid", len(log["aresetn"]) - 1, requests, given)


WAITING = 16
"""Cycles in which an answer, or a beat, must come that nobody is ready for."""


def waits_for_ready(
    pin: str, offered: Iterable[bool], valid: list[int], ready: list[int]
) -> Iterator[Breach]:
    """Return where something is there to be sent, and its valid stays 0 as long as its ready does.

    AXI forbids it: a receiver may wait for valid before it is ready.
    """
    waited = 0
    for cycle, there in enumerate(offered):
        waited = waited + 1 if there and not valid[cycle] and not ready[cycle] else 0
        if waited > WAITING:
            yield Breach(f"{pin} before its ready", cycle, 1, 0)
            return


def late_answers(log: Columns) -> Iterator[Breach]:
    """Return answers that wait for their ready, the earliest first."""
    requests = {
        "b": [max(pair) for pair in zip(*(_moves(log, each) for each in ("aw", "w")), strict=False)],
        "r": _moves(log, "ar"),
    }
    found: list[Breach] = []
    for channel, other in (("b", "r"), ("r", "b")):
        begun, ended = Counter(requests[channel]), Counter(_moves(log, channel))
        pairs = zip(log[f"s_axi_{other}valid"], log[f"s_axi_{other}ready"], strict=True)
        open_, offered = 0, []
        for cycle, (shown, taken) in enumerate(pairs):
            # Answers may come in the order of their requests: that one waits for the bench is no fault of the other.
            offered.append(open_ > 0 and not (shown and not taken))
            open_ += begun[cycle] - ended[cycle]
        name = f"s_axi_{channel}"
        found += waits_for_ready(f"{name}valid", offered, log[f"{name}valid"], log[f"{name}ready"])
    yield from sorted(found, key=lambda each: each.cycle)


def _moves(log: Columns, channel: str) -> list[int]:
    return handshakes(log, f"s_axi_{channel}valid", f"s_axi_{channel}ready")


def errors(log: Columns, channel: str) -> Iterator[Breach]:
    """Return answers that say that there was an error."""
    for cycle, (valid, answer) in enumerate(
        zip(log[f"s_axi_{channel}valid"], log[f"s_axi_{channel}resp"], strict=True)
    ):
        if valid and answer:
            yield Breach(f"s_axi_{channel}resp", cycle, 0, answer)
            return
