"""The three memories of the second timed processor, as its DMA writes and reads them.

A block has eight words of 32 bits a line, as QICK hands it over: an instruction fills three of them, a wave six
(168 bits: the envelope's address has 24, the configuration 16), and the data memory takes single words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.processor import ProgramError

COLUMNS = {"pmem": 3, "dmem": 1, "wmem": 6}
KEPT = {
    "pmem": np.array([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFF], np.uint32),
    "dmem": np.array([0xFFFF_FFFF], np.uint32),
    "wmem": np.array([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF], np.uint32),
}
"""The bits of each column that the memory has."""


class Memories:
    """Program, data and wave memory; `version` counts the changes of their content."""

    def __init__(self, pmem_words: int, dmem_words: int, wmem_words: int) -> None:
        sizes = {"pmem": pmem_words, "dmem": dmem_words, "wmem": wmem_words}
        self._banks = {name: np.zeros((size, COLUMNS[name]), np.uint32) for name, size in sizes.items()}
        self.version = 0

    def write(self, name: str, data: Any, address: int = 0) -> None:
        """Write a block: (n, 8) of int32 for programs and waves (fewer columns pass too), (n,) for data.

        Raises `ProgramError` when there is no such memory or the block does not fit.
        """
        lines = self._lines(name, data)
        bank = self._part(name, len(lines), address)
        if not np.array_equal(bank, lines):
            bank[:] = lines
            self.version += 1

    def read(self, name: str, length: int, address: int = 0) -> npt.NDArray[np.int32]:
        """Read a block: (n, 3) for programs, (n, 6) for waves, (n,) for data."""
        block = self._part(name, length, address).view(np.int32).copy()
        return block.ravel() if name == "dmem" else block

    def numbers(self, name: str) -> list[int]:
        """Return the whole of a memory as one row of numbers without sign."""
        row: list[int] = self._banks[name].ravel().tolist()
        return row

    def keep(self, name: str, numbers: Any) -> None:
        """Take over what a program left in a memory."""
        self.write(name, np.asarray(numbers, np.int64).reshape(-1, COLUMNS[name]))

    def instructions(self, count: int) -> list[int]:
        """Return the first `count` words of the program memory, 72 bits each."""
        return [low | middle << 32 | high << 64 for low, middle, high in self._banks["pmem"][:count].tolist()]

    def _part(self, name: str, length: int, address: int) -> npt.NDArray[np.uint32]:
        bank = self._bank(name)
        if address < 0 or length < 0 or address + length > len(bank):
            raise ProgramError(
                f"{length} words from address {address} on do not fit into {name}, which has {len(bank)}: "
                "shorten the program, or take a firmware with larger memories"
            )
        return bank[address : address + length]

    def _bank(self, name: str) -> npt.NDArray[np.uint32]:
        if name not in self._banks:
            raise ProgramError(f"there is no memory {name!r}: take one of {', '.join(self._banks)}")
        return self._banks[name]

    def _lines(self, name: str, data: Any) -> npt.NDArray[np.uint32]:
        columns = self._bank(name).shape[1]
        block = np.asarray(data, np.int64)
        block = block.reshape(-1, 1) if block.ndim == 1 else block
        if block.ndim != 2 or block.shape[1] < columns:
            raise ProgramError(
                f"a block for {name} must have {columns} words a line or more, not the shape {block.shape}: "
                "pass (n, 8) for programs and waves, (n,) for data"
            )
        return (block[:, :columns] & KEPT[name]).astype(np.uint32)
