"""The board's processor, and the run that it need not carry out again.

A run depends on program and memory alone, so a round that finds them as the round before did gives the same run. What
that run would have left in memory is then owed, and paid when somebody looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import Processor, ReadInput, Run

Words: TypeAlias = npt.NDArray[np.int32]
Block: TypeAlias = tuple[str, int, Words]
"""Memory, address, contents."""


@dataclass(frozen=True, slots=True)
class Done:
    """A run, with what its counters showed before and what it left in memory."""

    run: Run
    base: Mapping[int, int]
    left: Sequence[Block]
    state: int
    """Of the processor at the start."""


class Core:
    """The processor of a configuration; `version` is 1 or 2. Raises `NotSimulated` for another one."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        readouts: Sequence[Mapping[str, Any]],
        instruction_limit: int | None = None,
    ) -> None:
        self.version, self.processor = make_processor(cfg, readouts, instruction_limit)
        names = ("dmem",) if self.version == 1 else ("dmem", "wmem")
        self._sizes = {name: int(cfg[f"{name}_size"]) for name in names}
        self._done: Done | None = None
        self._owed: Sequence[Block] = ()
        self._state: int | None = None

    def load_bin_program(self, binprog: Any, *, load_mem: bool) -> None:
        """Load a compiled program. Raises `ProgramError`."""
        self._pay()
        self._state = None
        self.processor.load_bin_program(binprog, load_mem=load_mem)

    def reload_mem(self) -> None:
        """Load memories as the program brought them (version 2)."""
        if self.version == 2:
            self._pay()
            self._state = None
            self.processor.reload_mem()

    def load_mem(self, name: str, words: Words, address: int) -> None:
        """Write a block of memory. Raises `ProgramError`."""
        self._pay()
        self._state = None
        self.processor.load_mem(name, words, address)

    def read_mem(self, name: str, length: int, address: int) -> Words:
        """Read a block of memory. Raises `ProgramError`."""
        self._pay()
        return self.processor.read_mem(name, length, address)

    def clear_counter(self, address: int) -> None:
        """Set a word of data memory (version 1) or all registers (version 2) to zero."""
        if self.version == 2:
            self._pay()
            self.processor.reset()
        elif self._owes_only(address):
            self._owed = ()
        else:
            self.load_mem("dmem", np.zeros(1, np.int32), address)

    def run(self, read: ReadInput) -> Done:
        """Carry the program out, or find that it would do as before. Raises `ProgramError`, `NotSimulated`."""
        self._pay()
        if self._state is None:
            self._state = self.processor.version
        if self._done is None or self._done.state != self._state:
            self._done = self._execute(self._state, read)
        else:
            self._owed = self._done.left
        return self._done

    def _execute(self, state: int, read: ReadInput) -> Done:
        before = self._memories()
        self._state = None
        run = self.processor.run(read)
        counters = np.unique(run.counts["address"]).tolist() if self.version == 1 else []
        base = {address: int(before["dmem"][address]) for address in counters}
        return Done(run, base, _find_changes(before, self._memories()), state)

    def _pay(self) -> None:
        for name, address, words in self._owed:
            self.processor.load_mem(name, words, address)
            self._state = None
        self._owed = ()

    def _owes_only(self, address: int) -> bool:
        """Return True if clearing a counter would leave what was there before the run that is owed for."""
        if self._done is None or len(self._owed) != 1 or self._done.base.get(address) != 0:
            return False
        name, first, words = self._owed[0]
        return (name, first, len(words)) == ("dmem", address, 1)

    def _memories(self) -> dict[str, Words]:
        return {name: self.processor.read_mem(name, size, 0) for name, size in self._sizes.items()}


def make_processor(
    cfg: Mapping[str, Any], readouts: Sequence[Mapping[str, Any]], instruction_limit: int | None
) -> tuple[int, Processor]:
    """Return the processor of a configuration, with its version. Raises `NotSimulated` for another one.

    After `instruction_limit` instructions a program is held to be endless; None leaves that to the processor.
    """
    if cfg["type"] == "axis_tproc64x32_x8":
        from sim.twins.rfsoc.tproc_v1 import EVENT_LIMIT, TprocV1

        pins = {pin[1] for pin in cfg["output_pins"]} | {ro["trigger_port"] for ro in readouts}
        return 1, TprocV1(
            cfg["pmem_size"],
            cfg["dmem_size"],
            data_ports=pins,
            instruction_limit=instruction_limit,
            event_limit=max(EVENT_LIMIT, instruction_limit or 0),  # no instruction makes more than one
        )
    if cfg["type"] == "qick_processor":
        from sim.twins.rfsoc.tproc_v2 import TprocV2

        return 2, TprocV2.from_config(cfg, limit=instruction_limit)
    raise NotSimulated(f"a processor of type {cfg['type']}")


def _find_changes(before: Mapping[str, Words], after: Mapping[str, Words]) -> list[Block]:
    """Return one block a memory, from the first word that changed to the last."""
    left: list[Block] = []
    for name, was in before.items():
        rows = np.flatnonzero((was != after[name]).reshape(len(was), -1).any(axis=1))
        if len(rows):
            left.append((name, int(rows[0]), after[name][rows[0] : rows[-1] + 1]))
    return left
