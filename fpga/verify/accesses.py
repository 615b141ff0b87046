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
"""Accesses at most, but for the partial writes, of which every word has its own."""
_CONTROLS = 40
"""Writes to CONTROL beyond those: resets must come while a beat waits."""
SEEDS = 3
"""Seeds from which a top is held: together they have all strobes of every word."""
PARTIALS = 2
"""Times that each byte of a word is written alone, and left alone."""
_PAUSE = 14
"""Cycles after which a write has had its effect."""
_AFTER_RESET = 30
_BEGINS = RESET | HOLD | COMMIT
_ALL_BYTES = 15
_LOWEST = 1
"""Strobe of the byte in which the bits of CONTROL are."""


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
    written = [pair for pair in words if pair[0].access not in {Access.CONSTANT, Access.READ}]
    single = written * rounds
    single += [(table["CONTROL",], table["CONTROL",].offset)] * _CONTROLS
    # What can only be read is written now and then: nothing may come of it.
    single += draw.sample(words, min(len(words), 8))
    looked_at = [address for _, address in words] * rounds
    if table.size_bytes < 1 << table.address_bits:
        looked_at += [table.size_bytes] * 2
    draw.shuffle(single)
    draw.shuffle(looked_at)
    groups: list[tuple[Write, ...]] = [
        (_write(draw, register, address),) for register, address in single[:_MOST]
    ]
    groups += [pair for register, address in written for pair in _partial(draw, register, address, seed)]
    draw.shuffle(groups)
    control = table["CONTROL",].offset
    writes = list(_control_writes(draw, control, [each for group in groups for each in group]))
    return _apart(control, writes), [
        Read(address, draw.choice((0, 0, 1, 7))) for address in looked_at[:_MOST]
    ]


def _partial(draw: random.Random, register: Register, address: int, seed: int) -> Iterator[tuple[Write, ...]]:
    """Return pairs of writes: the whole word, and in the next cycle, or a little later, a part of it.

    Every byte is written alone and is left alone. What is written differs in every byte from what is there, so that it
    is seen which byte has changed; of a register that acts it is the same, so that it is seen which one acts again.
    """
    plain = [
        strobes for byte in range(-(-register.width // 8)) for strobes in (1 << byte, _ALL_BYTES ^ 1 << byte)
    ]
    # All other strobes take turns over the seeds.
    others = [strobes for strobes in range(_ALL_BYTES) if strobes not in plain]
    for strobes in (*plain * PARTIALS, *others[seed % SEEDS :: SEEDS]):
        if register.access in {Access.PULSE, Access.PUSH}:
            there = after = register.mask
        else:
            there = draw.choice((register.mask, 0)) if register.width < 8 else draw.getrandbits(32)
            after = there ^ draw.choice((register.mask, 0xFFFF_FFFF))
        pause = draw.choice((0, 0, _PAUSE))
        yield (Write(address, there, _ALL_BYTES, 0, 0), Write(address, after, strobes, pause, pause))


def _control_writes(draw: random.Random, control: int, writes: list[Write]) -> Iterator[Write]:
    """Return the writes, those of CONTROL so that it is known what resets what: now and then, and never in a hold.

    What is written without its strobe may be anything: nothing may come of it.
    """
    held = False
    for each in writes:
        if each.address != control:
            yield each
            continue
        if not each.strobes & _LOWEST:
            yield replace(each, data=draw.choice((each.data, RESET, HOLD, COMMIT, 0xFFFF_FFFF)))
            continue
        free = (0, 1, 2, 3, COMMIT, draw.getrandbits(28) << 4, RESET, 7, HOLD, RESET | HOLD)
        data = draw.choice((0, 1, 2, 3, COMMIT) if held else free)
        yield replace(each, data=data)
        held = bool(data & HOLD or (held and not data & COMMIT))


def _apart(control: int, writes: list[Write]) -> list[Write]:
    """Return the writes, with a pause after a reset, and after the end of a hold.

    What is written right then may come before it or not: nothing could be said of it. What CONTROL gets without its
    strobe does nothing, and comes at once.
    """
    found: list[Write] = []
    pause = False
    for each in writes:
        idle = each.address == control and not each.strobes & _LOWEST
        found.append(replace(each, wait_address=_AFTER_RESET) if pause and not idle else each)
        begins = each.address == control and each.strobes & _LOWEST and each.data & _BEGINS
        pause = bool(begins) or (pause and idle)
    return found


def _write(draw: random.Random, register: Register, address: int) -> Write:
    data = draw.choice((0, register.mask, draw.getrandbits(32), draw.getrandbits(32)))
    strobes = draw.choice((15, 15, 15, 15, draw.getrandbits(4)))
    return Write(address, data, strobes, draw.choice((0, 0, 2, 9)), draw.choice((0, 0, 1, 5)))
