"""Random accesses to the registers of a top: every word is read and written many times, in random order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fpga.registers.model import Access, Register, RegisterMap
from fpga.registers.register_list import COMMIT, HOLD, RESET

_ROUND_COUNT = 10
_MIN_ACCESSES = 150
"""Smallest number of accesses, for small register maps."""
_MAX_ACCESSES = 1500
"""Largest number of reads, and of writes of complete words; partial writes of every word come in addition."""
_CONTROL_WRITE_COUNT = 40
"""Additional writes to CONTROL, so that some resets happen while a beat waits."""
SEED_COUNT = 3
"""Number of runs of a top; together they write every word with all strobes."""
PARTIAL_ROUNDS = 2
"""Number of times that each byte of a word is written alone, and omitted alone."""
_PAUSE_CYCLES = 14
"""Cycles after which a write has certainly taken effect."""
_RESET_WAIT_CYCLES = 30
_RESTART_BITS = RESET | HOLD | COMMIT
_ALL_BYTES = 15
_LOWEST_STROBE = 1
"""Strobe of the byte that holds the bits of CONTROL."""


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """A write. Its address and its data wait for `address_wait_cycles` and `data_wait_cycles` before they are sent."""

    address: int
    data: int
    strobes: int
    address_wait_cycles: int
    data_wait_cycles: int


@dataclass(frozen=True, slots=True)
class ReadAccess:
    """A read, which waits `wait_cycles` before it is sent."""

    address: int
    wait_cycles: int


def draw_accesses(register_map: RegisterMap, seed: int = 0) -> tuple[list[WriteAccess], list[ReadAccess]]:
    """Return the writes and reads of a run. If there are addresses without a register, one of them is read, too."""
    rng = random.Random(seed)
    register_words = [
        (register, register.get_offset(word))
        for register in register_map
        for word in range(register.word_count)
    ]
    round_count = max(_ROUND_COUNT, -(-_MIN_ACCESSES // len(register_words)))
    writable_words = [pair for pair in register_words if pair[0].access not in {Access.CONSTANT, Access.READ}]
    words_to_write = writable_words * round_count
    words_to_write += [(register_map["CONTROL",], register_map["CONTROL",].offset)] * _CONTROL_WRITE_COUNT
    # Some writes go to read-only registers: they must have no effect.
    words_to_write += rng.sample(register_words, min(len(register_words), 8))
    addresses = [address for _, address in register_words] * round_count
    if register_map.size_bytes < 1 << register_map.address_width:
        addresses += [register_map.size_bytes] * 2
    rng.shuffle(words_to_write)
    rng.shuffle(addresses)
    write_groups: list[tuple[WriteAccess, ...]] = [
        (_draw_write(rng, register, address),) for register, address in words_to_write[:_MAX_ACCESSES]
    ]
    write_groups += [
        pair
        for register, address in writable_words
        for pair in _draw_partial_writes(rng, register, address, seed)
    ]
    rng.shuffle(write_groups)
    control_offset = register_map["CONTROL",].offset
    writes = list(
        _draw_control_writes(rng, control_offset, [write for group in write_groups for write in group])
    )
    return _insert_pauses(control_offset, writes), [
        ReadAccess(address, rng.choice((0, 0, 1, 7))) for address in addresses[:_MAX_ACCESSES]
    ]


def _draw_partial_writes(
    rng: random.Random, register: Register, address: int, seed: int
) -> Iterator[tuple[WriteAccess, ...]]:
    """Yield pairs of writes: the complete word, and directly afterwards or a little later, a part of it.

    Every byte is written alone and omitted alone. The second value differs from the first in every byte, which shows
    the bytes that have changed. Registers that act on a write get the same value twice, which shows if they act again.
    """
    byte_strobes = [
        strobes for byte in range(-(-register.width // 8)) for strobes in (1 << byte, _ALL_BYTES ^ 1 << byte)
    ]
    # The other strobes are spread over the seeds.
    other_strobes = [strobes for strobes in range(_ALL_BYTES) if strobes not in byte_strobes]
    for strobes in (*byte_strobes * PARTIAL_ROUNDS, *other_strobes[seed % SEED_COUNT :: SEED_COUNT]):
        if register.access in {Access.PULSE, Access.PUSH}:
            complete_word = partial_word = register.mask
        else:
            complete_word = rng.choice((register.mask, 0)) if register.width < 8 else rng.getrandbits(32)
            partial_word = complete_word ^ rng.choice((register.mask, 0xFFFF_FFFF))
        pause_cycles = rng.choice((0, 0, _PAUSE_CYCLES))
        yield (
            WriteAccess(address, complete_word, _ALL_BYTES, 0, 0),
            WriteAccess(address, partial_word, strobes, pause_cycles, pause_cycles),
        )


def _draw_control_writes(
    rng: random.Random, control_offset: int, writes: list[WriteAccess]
) -> Iterator[WriteAccess]:
    """Yield the writes with new data for CONTROL: occasional resets and holds, but never a reset during a hold.

    Without its strobe, CONTROL gets any value: it must have no effect.
    """
    is_held = False
    for write in writes:
        if write.address != control_offset:
            yield write
            continue
        if not write.strobes & _LOWEST_STROBE:
            yield replace(write, data=rng.choice((write.data, RESET, HOLD, COMMIT, 0xFFFF_FFFF)))
            continue
        free_values = (0, 1, 2, 3, COMMIT, rng.getrandbits(28) << 4, RESET, 7, HOLD, RESET | HOLD)
        data = rng.choice((0, 1, 2, 3, COMMIT) if is_held else free_values)
        yield replace(write, data=data)
        is_held = bool(data & HOLD or (is_held and not data & COMMIT))


def _insert_pauses(control_offset: int, writes: list[WriteAccess]) -> list[WriteAccess]:
    """Return the writes, with a pause after each reset and each end of a hold.

    A write at that moment could take effect before or after it, so its result would be unknown. Writes to CONTROL
    without its strobe have no effect, and are not delayed.
    """
    delayed_writes: list[WriteAccess] = []
    must_pause = False
    for write in writes:
        has_no_effect = write.address == control_offset and not write.strobes & _LOWEST_STROBE
        delayed_writes.append(
            replace(write, address_wait_cycles=_RESET_WAIT_CYCLES)
            if must_pause and not has_no_effect
            else write
        )
        is_restart = (
            write.address == control_offset and write.strobes & _LOWEST_STROBE and write.data & _RESTART_BITS
        )
        must_pause = bool(is_restart) or (must_pause and has_no_effect)
    return delayed_writes


def _draw_write(rng: random.Random, register: Register, address: int) -> WriteAccess:
    data = rng.choice((0, register.mask, rng.getrandbits(32), rng.getrandbits(32)))
    strobes = rng.choice((15, 15, 15, 15, rng.getrandbits(4)))
    return WriteAccess(address, data, strobes, rng.choice((0, 0, 2, 9)), rng.choice((0, 0, 1, 5)))
