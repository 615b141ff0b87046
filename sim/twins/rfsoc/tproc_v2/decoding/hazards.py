"""Hazards: what an instruction waits for in the pipeline, and what it makes later ones wait for.

The firmware stalls an instruction while one before it is still on its way through the stages (`qcore_ctrl_hazard.sv`).
Here each instruction knows which of a few things it needs, and leaves behind when each of them will be there again,
in cycles of the core after its own. Some stalls look only at the destination's address, hence befall even
instructions whose condition did not hold.
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.decoding.cells import (
    CYCLE,
    READY_ADDRESS,
    READY_FLAG,
    READY_INPUT,
    READY_LOADED,
    READY_PORT,
    READY_UNIT,
    READY_WAVE,
    READY_WAVE_READ,
)
from sim.twins.rfsoc.tproc_v2.decoding.columns import (
    BRANCH,
    CFG,
    CONTROL,
    FROM_DMEM,
    MEMORY,
    PERIPHERAL_HEADER,
    PORT_HEADER,
    REGISTER,
    WAVE_REGISTERS,
)
from sim.twins.rfsoc.tproc_v2.decoding.word import Word

EFFECTS = {
    "flags": ((READY_FLAG, 3),),
    "unit": ((READY_FLAG, 4), (READY_UNIT, 3)),
    "port": ((READY_PORT, 3),),
    "r_wave": ((READY_WAVE, 4), (READY_WAVE_READ, 3)),
    "input": ((READY_INPUT, 3),),
    "load": ((READY_LOADED, 2),),
    "random read": ((CYCLE, 2),),
    # By the address of the destination alone:
    "s_rand": ((CYCLE, 4),),
    "s_cfg": ((READY_FLAG, 5), (READY_UNIT, 4)),
    "s_addr": ((READY_ADDRESS, 4),),
    "w": ((READY_WAVE, 4),),
}
"""Which cells of the state an effect sets, and to how many cycles after the instruction's own."""

BY_ADDRESS = {1: "s_rand", 2: "s_cfg", 15: "s_addr"}
_FLAT = [(effect, cell, delay) for effect, cells in EFFECTS.items() for cell, delay in cells]
EFFECT_CELL = tuple(cell for _, cell, _ in _FLAT)
EFFECT_DELAY = tuple(delay for _, _, delay in _FLAT)
_BITS = {effect: sum(1 << n for n, row in enumerate(_FLAT) if row[0] == effect) for effect in EFFECTS}


def needs(word: Word, *, to_memory: bool) -> int:
    """Return bits of the cells from READY_FLAG on for which the instruction waits before it is taken up."""
    sources = {word.left, word.right}
    waits = {
        READY_FLAG: word.conditional and word.cond,
        READY_PORT: word.header == PORT_HEADER,
        READY_WAVE: to_memory,
        READY_WAVE_READ: any(source >> 5 == WAVE_REGISTERS >> 5 for source in sources),
        READY_UNIT: sources & {6, 7, 10, 11},
        READY_INPUT: sources & {8, 9},
    }
    return sum(1 << (cell - READY_FLAG) for cell, wanted in waits.items() if wanted)


def leaves(word: Word) -> int:
    """Return bits of EFFECT_CELL for an instruction whose condition did not hold."""
    by_address = "w" if word.rd >> 5 == WAVE_REGISTERS >> 5 else BY_ADDRESS.get(word.rd)
    bits = _BITS[by_address] if by_address else 0
    return bits | (_BITS["random read"] if 1 in {word.left, word.right} else 0)


def sets(word: Word, *, to_port: bool, source: int) -> int:
    """Return bits of EFFECT_CELL for an instruction that was carried out."""
    effects = {
        "flags": word.uf and word.header in {CFG, BRANCH, REGISTER, MEMORY, PORT_HEADER},
        "unit": word.header in {CONTROL, PERIPHERAL_HEADER},
        "port": to_port,
        "r_wave": word.loads_wave,
        "input": word.header == PORT_HEADER and not word.so and not word.cond & 1,
        "load": source == FROM_DMEM,
    }
    return leaves(word) | sum(_BITS[effect] for effect, there in effects.items() if there)
