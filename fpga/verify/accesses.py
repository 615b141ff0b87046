"""Random accesses to the registers of a top: every word is read and written many times, in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_list import COMMIT, HOLD, RESET

_ROUNDS = 10
_LEAST = 150
"""Accesses that a small map gets at least."""
_MOST = 1500
_CONTROLS = 40
"""Writes to CONTROL beyond those: resets must come while a beat waits."""
_AFTER_RESET = 30
_BEGINS = RESET | HOLD | COMMIT


@dataclass(frozen=True, slots=True)
class Write:
    """A write: how long its address and its data wait first, and what it writes."""

    address: int
    data: int
    strobes: int
    wait_address: int
    wait_data: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read, and how long it waits first."""

    address: int
    wait: int


def random_accesses(table: RegisterMap, seed: int = 0) -> tuple[list[Write], list[Read]]:
    """Return writes and reads; an address without a register is among them where there is one."""
    draw = random.Random(seed)
    words = [(register, register.at(word)) for register in table for word in range(register.words)]
    rounds = max(_ROUNDS, -(-_LEAST // len(words)))
    written = [pair for pair in words if pair[0].access not in {Access.CONSTANT, Access.READ}] * rounds
    written += [(table["CONTROL",], table["CONTROL",].offset)] * _CONTROLS
    # What can only be read is written now and then: nothing may come of it.
    written += draw.sample(words, min(len(words), 8))
    looked_at = [address for _, address in words] * rounds
    if table.size_bytes < 1 << table.address_bits:
        looked_at += [table.size_bytes] * 2
    draw.shuffle(written)
    draw.shuffle(looked_at)
    writes = [_write(draw, register, address) for register, address in written[:_MOST]]
    control = table["CONTROL",].offset
    writes = list(_controlled(draw, control, writes))
    after = [each.address == control and each.data & _BEGINS for each in writes]
    # What is written right after a reset, or the end of a hold, may come before it or not: nothing could be said of it.
    writes[1:] = [
        replace(each, wait_address=_AFTER_RESET) if reset else each
        for each, reset in zip(writes[1:], after, strict=False)
    ]
    return writes, [Read(address, draw.choice((0, 0, 1, 7))) for address in looked_at[:_MOST]]


def _controlled(draw: random.Random, control: int, writes: list[Write]) -> Iterator[Write]:
    """Return the writes, those of CONTROL so that it is known what resets what: now and then, and never in a hold."""
    held = False
    for each in writes:
        if each.address != control:
            yield each
            continue
        free = (0, 1, 2, 3, COMMIT, draw.getrandbits(28) << 4, RESET, 7, HOLD, RESET | HOLD)
        data = draw.choice((0, 1, 2, 3, COMMIT) if held else free)
        yield replace(each, data=data, strobes=15)
        held = bool(data & HOLD or (held and not data & COMMIT))


def _write(draw: random.Random, register: Register, address: int) -> Write:
    data = draw.choice((0, register.mask, draw.getrandbits(32), draw.getrandbits(32)))
    strobes = draw.choice((15, 15, 15, 15, draw.getrandbits(4)))
    return Write(address, data, strobes, draw.choice((0, 0, 2, 9)), draw.choice((0, 0, 1, 5)))
