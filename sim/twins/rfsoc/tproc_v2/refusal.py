"""Why the machine could not go on, as an error that says what, where, and what to do."""

from __future__ import annotations

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError
from sim.twins.rfsoc.tproc_v2.decoding import cells, columns, instruction

_REASONS = {
    cells.STUCK: "waits for a flag that nothing can change any more: set it first, or update flags in the jump",
    cells.TOO_DEEP: f"is a call inside {cells.STACK_DEPTH} others: the stack of return addresses holds no more",
    cells.TOO_SHALLOW: "returns though nothing was called: end the main program with end() before its subroutines",
    cells.TOO_EARLY: (
        "sends a word at a time before the start, which the processor would never come to: delay the reference first"
    ),
    columns.UNKNOWN: "is not a valid instruction: load a program made by QICK's assembler of tProc v2",
}

_SIMULATED = {
    cells.FLAG_SOURCE: (
        "a flag from another source than the internal one and the arithmetic units",
        "use FLAG",
    ),
    cells.DATA_SOURCE: (
        "core data from another source than host and multiplier",
        "use DPORT_RD for readouts",
    ),
}


def refusal(stop: int, address: int, word: int | None, length: int) -> Exception:
    """Return the exception for a stop code, at an address whose instruction is `word` (None: outside the program)."""
    if word is None:
        return ProgramError(
            f"address {address} is outside the program, which has {length} words: end it with end(), "
            "and keep jumps inside it"
        )
    where = f"the instruction at address {address} (word 0x{word:018x})"
    if stop in _REASONS:
        return ProgramError(f"{where} {_REASONS[stop]}")
    what, hint = _SIMULATED.get(stop, (instruction.name(word), "leave it out of the program, or use a board"))
    return NotSimulated(f"{what}, {where},", hint)
