"""Memories of the processor, which outlive a run."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

REGISTER_COUNT = 8 * 32
STACK_SIZE = 255


@dataclass(slots=True)
class Memories:
    """8 pages of 32 registers, data memory, and the stack with its depth. Words are 0 to 2**32 - 1."""

    registers: npt.NDArray[np.int64]
    data: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]
    depth: int = 0

    @classmethod
    def make_empty(cls, dmem_words: int) -> Memories:
        """Return memories that are all zero, as after power-on."""
        registers, data, stack = (
            np.zeros(size, np.int64) for size in (REGISTER_COUNT, dmem_words, STACK_SIZE)
        )
        return cls(registers, data, stack)

    def compute_fingerprint(self) -> bytes:
        """Return a digest of the contents: registers, data, and the used part of the stack."""
        digest = blake2b(self.depth.to_bytes(2), digest_size=16)
        for words in (self.registers, self.data, self.stack[: self.depth]):
            digest.update(words.tobytes())
        return digest.digest()
