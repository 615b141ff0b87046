"""The board's processor, with reuse of the last run.

A run depends only on program and memory. If they have not changed since the last run, that run is reused. Its memory
changes become pending: they are written when the memory is next accessed.
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
"""Name of a memory, address, and contents."""


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run with its memory changes. `counters_before` maps addresses of its counters to values before the run."""

    run: Run
    counters_before: Mapping[int, int]
    memory_changes: Sequence[Block]
    revision: int
    """Revision of the memories at the start (`Processor.version`)."""


class Core:
    """The processor of a configuration, of hardware `version` 1 or 2. Raise `NotSimulated` for any other processor."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        readouts: Sequence[Mapping[str, Any]],
        instruction_limit: int | None = None,
    ) -> None:
        self.version, self.processor = make_processor(cfg, readouts, instruction_limit)
        names = ("dmem",) if self.version == 1 else ("dmem", "wmem")
        self._size_by_memory = {name: int(cfg[f"{name}_size"]) for name in names}
        self._last_run: CompletedRun | None = None
        self._pending_writes: Sequence[Block] = ()
        self._revision: int | None = None

    def load_bin_program(self, binprog: Any, *, load_mem: bool) -> None:
        """Load a compiled program. Raise `ProgramError` if it is invalid."""
        self._apply_pending_writes()
        self._revision = None
        self.processor.load_bin_program(binprog, load_mem=load_mem)

    def reload_mem(self) -> None:
        """Restore the memories to the contents of the loaded program. On version 1, do nothing."""
        if self.version == 2:
            self._apply_pending_writes()
            self._revision = None
            self.processor.reload_mem()

    def load_mem(self, name: str, words: Words, address: int) -> None:
        """Write a block of memory. Raise `ProgramError` if the block does not exist."""
        self._apply_pending_writes()
        self._revision = None
        self.processor.load_mem(name, words, address)

    def read_mem(self, name: str, length: int, address: int) -> Words:
        """Return a block of memory. Raise `ProgramError` if the block does not exist."""
        self._apply_pending_writes()
        return self.processor.read_mem(name, length, address)

    def clear_counter(self, address: int) -> None:
        """Set a word of data memory (version 1) or all registers (version 2) to zero."""
        if self.version == 2:
            self._apply_pending_writes()
            self.processor.reset()
        elif self._can_drop_changes(address):
            self._pending_writes = ()
        else:
            self.load_mem("dmem", np.zeros(1, np.int32), address)

    def run(self, read_input: ReadInput) -> CompletedRun:
        """Execute the program, or reuse the last run if nothing has changed.

        Raise `ProgramError` or `NotSimulated` if the program cannot be executed.
        """
        self._apply_pending_writes()
        if self._revision is None:
            self._revision = self.processor.version
        if self._last_run is None or self._last_run.revision != self._revision:
            self._last_run = self._execute(self._revision, read_input)
        else:
            self._pending_writes = self._last_run.memory_changes
        return self._last_run

    def _execute(self, revision: int, read_input: ReadInput) -> CompletedRun:
        memories_before = self._read_memories()
        self._revision = None
        run = self.processor.run(read_input)
        counter_addresses = np.unique(run.counter_events["address"]).tolist() if self.version == 1 else []
        counters_before = {address: int(memories_before["dmem"][address]) for address in counter_addresses}
        return CompletedRun(
            run, counters_before, _find_changes(memories_before, self._read_memories()), revision
        )

    def _apply_pending_writes(self) -> None:
        for name, address, words in self._pending_writes:
            self.processor.load_mem(name, words, address)
            self._revision = None
        self._pending_writes = ()

    def _can_drop_changes(self, address: int) -> bool:
        """Return whether clearing the counter at this address undoes all pending changes."""
        if (
            self._last_run is None
            or len(self._pending_writes) != 1
            or self._last_run.counters_before.get(address) != 0
        ):
            return False
        name, first_address, words = self._pending_writes[0]
        return (name, first_address, len(words)) == ("dmem", address, 1)

    def _read_memories(self) -> dict[str, Words]:
        return {name: self.processor.read_mem(name, size, 0) for name, size in self._size_by_memory.items()}


def make_processor(
    cfg: Mapping[str, Any], readouts: Sequence[Mapping[str, Any]], instruction_limit: int | None
) -> tuple[int, Processor]:
    """Return the version and the processor of a configuration. Raise `NotSimulated` for an unknown type.

    A program that executes `instruction_limit` instructions counts as endless. None selects the processor's default.
    """
    if cfg["type"] == "axis_tproc64x32_x8":
        from sim.twins.rfsoc.tproc_v1 import EVENT_LIMIT, TprocV1

        data_ports = {pin[1] for pin in cfg["output_pins"]} | {
            readout["trigger_port"] for readout in readouts
        }
        return 1, TprocV1(
            cfg["pmem_size"],
            cfg["dmem_size"],
            data_ports=data_ports,
            instruction_limit=instruction_limit,
            event_limit=max(EVENT_LIMIT, instruction_limit or 0),  # no instruction makes more than one event
        )
    if cfg["type"] == "qick_processor":
        from sim.twins.rfsoc.tproc_v2 import TprocV2

        return 2, TprocV2.from_config(cfg, instruction_limit=instruction_limit)
    raise NotSimulated(f"a processor of type {cfg['type']}")


def _find_changes(memories_before: Mapping[str, Words], memories_after: Mapping[str, Words]) -> list[Block]:
    """Return one block for each changed memory, from the first changed word to the last."""
    blocks: list[Block] = []
    for name, old_words in memories_before.items():
        changed_rows = np.flatnonzero(
            (old_words != memories_after[name]).reshape(len(old_words), -1).any(axis=1)
        )
        if len(changed_rows):
            blocks.append(
                (name, int(changed_rows[0]), memories_after[name][changed_rows[0] : changed_rows[-1] + 1])
            )
    return blocks
