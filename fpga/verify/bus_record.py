"""Transactions in the log of a bench, and breaches of the rules of AXI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fpga.verify.accesses import ReadAccess, WriteAccess

SETTLING_CYCLES = 3
"""Largest number of cycles between the answer to a write and its effect at the pins of the datapath."""

Columns = Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction: accepted in cycle `begin_cycle`, answered in cycle `end_cycle`."""

    begin_cycle: int
    end_cycle: int


@dataclass(frozen=True, slots=True)
class Breach:
    """A breach of a rule: the pin, the cycle, and the expected and actual value."""

    pin: str
    cycle: int
    expected: int
    actual: int


def find_handshakes(log: Columns, valid: str, ready: str) -> list[int]:
    """Return the cycles in which both `valid` and `ready` are 1."""
    pairs = zip(log[valid], log[ready], strict=True)
    return [cycle for cycle, (is_valid, is_ready) in enumerate(pairs) if is_valid and is_ready]


def find_answers(log: Columns, channel: str) -> list[int]:
    """Return the first cycle of every answer on a channel (`b` or `r`)."""
    cycles, is_waiting = [], False
    for cycle, (valid, ready) in enumerate(
        zip(log[f"s_axi_{channel}valid"], log[f"s_axi_{channel}ready"], strict=True)
    ):
        if valid and not is_waiting:
            cycles.append(cycle)
        is_waiting = bool(valid and not ready)
    return cycles


def find_answered_writes(log: Columns, writes: list[WriteAccess]) -> list[tuple[WriteAccess, Transaction]]:
    """Return the answered writes with their transactions."""
    address_cycles, data_cycles = (
        find_handshakes(log, f"s_axi_{channel}valid", f"s_axi_{channel}ready") for channel in ("aw", "w")
    )
    answer_cycles = find_answers(log, "b")
    return [
        (write, Transaction(max(address_cycle, data_cycle), end_cycle))
        for write, address_cycle, data_cycle, end_cycle in zip(
            writes, address_cycles, data_cycles, answer_cycles, strict=False
        )
    ]


def find_answered_reads(log: Columns, reads: list[ReadAccess]) -> list[tuple[ReadAccess, Transaction, int]]:
    """Return the answered reads with their transactions and answers."""
    begin_cycles, answer_cycles = (
        find_handshakes(log, "s_axi_arvalid", "s_axi_arready"),
        find_answers(log, "r"),
    )
    return [
        (read, Transaction(begin, end), log["s_axi_rdata"][end])
        for read, begin, end in zip(reads, begin_cycles, answer_cycles, strict=False)
    ]


def find_unstable_pins(log: Columns, valid: str, ready: str, payload: list[str]) -> Iterator[Breach]:
    """Yield the first change of `valid` or of the payload while a beat waits. A bus reset ends a beat."""
    for cycle in range(1, len(log[valid])):
        if not (log[valid][cycle - 1] and not log[ready][cycle - 1] and log["aresetn"][cycle]):
            continue
        for name in (valid, *payload):
            if log[name][cycle] != log[name][cycle - 1]:
                yield Breach(name, cycle, log[name][cycle - 1], log[name][cycle])
                return


def find_answer_count_breach(log: Columns, request_count: int, answer_channel: str) -> Iterator[Breach]:
    """Yield a breach if the number of answers differs from the number of requests."""
    answer_count = len(find_handshakes(log, f"s_axi_{answer_channel}valid", f"s_axi_{answer_channel}ready"))
    if answer_count != request_count:
        yield Breach(f"s_axi_{answer_channel}valid", len(log["aresetn"]) - 1, request_count, answer_count)


MAX_WAITING_CYCLES = 16
"""Number of cycles within which an answer or a beat must appear, even if its receiver is not ready."""


def find_waits_for_ready(
    pin: str, offers: Iterable[bool], valid: list[int], ready: list[int]
) -> Iterator[Breach]:
    """Yield a breach if valid waits for ready: something is offered, but valid stays 0 while ready is 0.

    AXI forbids it, because a receiver may wait for valid before it is ready.
    """
    waiting_cycles = 0
    for cycle, is_offered in enumerate(offers):
        waiting_cycles = waiting_cycles + 1 if is_offered and not valid[cycle] and not ready[cycle] else 0
        if waiting_cycles > MAX_WAITING_CYCLES:
            yield Breach(f"{pin} before its ready", cycle, 1, 0)
            return


def find_late_answers(log: Columns) -> Iterator[Breach]:
    """Yield a breach for each channel whose valid waits for its ready, the earliest first."""
    requests = {
        "b": [
            max(pair)
            for pair in zip(
                *(_find_handshake_cycles(log, request_channel) for request_channel in ("aw", "w")),
                strict=False,
            )
        ],
        "r": _find_handshake_cycles(log, "ar"),
    }
    breaches: list[Breach] = []
    for channel, other_channel in (("b", "r"), ("r", "b")):
        starts, answer_counts = Counter(requests[channel]), Counter(_find_handshake_cycles(log, channel))
        pairs = zip(log[f"s_axi_{other_channel}valid"], log[f"s_axi_{other_channel}ready"], strict=True)
        unanswered_requests, offers = 0, []
        for cycle, (is_valid, is_ready) in enumerate(pairs):
            # A top may answer in the order of requests: while the bench delays one channel, the other may wait.
            offers.append(unanswered_requests > 0 and not (is_valid and not is_ready))
            unanswered_requests += starts[cycle] - answer_counts[cycle]
        name = f"s_axi_{channel}"
        breaches += find_waits_for_ready(f"{name}valid", offers, log[f"{name}valid"], log[f"{name}ready"])
    yield from sorted(breaches, key=lambda breach: breach.cycle)


def _find_handshake_cycles(log: Columns, channel: str) -> list[int]:
    return find_handshakes(log, f"s_axi_{channel}valid", f"s_axi_{channel}ready")


def find_errors(log: Columns, channel: str) -> Iterator[Breach]:
    """Yield the first answer with an error code."""
    for cycle, (valid, answer) in enumerate(
        zip(log[f"s_axi_{channel}valid"], log[f"s_axi_{channel}resp"], strict=True)
    ):
        if valid and answer:
            yield Breach(f"s_axi_{channel}resp", cycle, 0, answer)
            return
