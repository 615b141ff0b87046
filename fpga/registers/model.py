"""Registers of a datapath: names, byte offsets, widths, access and reset values.

A register is one 32-bit word, or a row of words (`word_count` > 1) at consecutive addresses. The SystemRDL text, the
Markdown page, the JSON for drivers in other languages, the AXI4-Lite top and the simulated register file are all
generated from this table, the only source of offsets.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

WORD_BITS = 32
WORD_BYTES = 4

Key = tuple[str, ...]
"""Identity of a register: its kind and the names of its part, such as `("TARGET", module, target)`."""


class Access(enum.Enum):
    """Access to a register from the bus."""

    CONSTANT = "constant"
    """Read only; constant."""
    READ = "read only"
    """Read only; the datapath drives it."""
    WRITE = "read and write"
    """Stored until the next write or reset; the datapath reads it."""
    PULSE = "write only, pulse"
    """Each bit written as 1 is active for one cycle, if its byte strobe is set; reads as 0."""
    PUSH = "write only, push"
    """Words are stored. A write to the last word triggers the action, with the written bytes; reads as 0."""


@dataclass(frozen=True, slots=True)
class PortBits:
    """A port of the datapath.

    If several registers share it, `low_bit` is the first bit that belongs to this register.
    """

    port: str
    width: int
    low_bit: int | None = None


@dataclass(frozen=True, slots=True)
class BlockPin:
    """A pin of an instance of a block (`register_blocks`), with `width` used bits."""

    block: str
    name: str
    pin: str
    width: int


@dataclass(frozen=True, slots=True)
class BitField:
    """A named group of bits of a register; bit `low_bit` is its least significant."""

    name: str
    low_bit: int
    width: int
    description: str
    port: str = ""
    """Port of the datapath that the bits drive; empty for resets, and if `Register.signal` names the port."""


@dataclass(frozen=True, slots=True)
class Register:
    """One register. `width` is the number of used bits of one word."""

    key: Key
    name: str
    offset: int
    width: int
    access: Access
    description: str
    signal: PortBits | BlockPin | None = None
    """The signal that the register shows or sets."""
    reset_value: int = 0
    word_count: int = 1
    fields: tuple[BitField, ...] = ()
    """The parts of the word; empty if the word has only one."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes in the address space."""
        return self.word_count * WORD_BYTES

    @property
    def bit_count(self) -> int:
        """Number of used bits in all words."""
        return self.word_count * self.width

    @property
    def signal_bit_count(self) -> int:
        """Number of bits of the signal; the words may have more."""
        return self.signal.width if self.signal else 0

    @property
    def mask(self) -> int:
        """Mask of the used bits of a word."""
        return (1 << self.width) - 1

    def get_offset(self, word: int = 0) -> int:
        """Return the byte offset of a word. Raise IndexError if there is no such word."""
        if not 0 <= word < self.word_count:
            raise IndexError(f"{self.name} has {self.word_count} words: there is no word {word}")
        return self.offset + word * WORD_BYTES


@dataclass(frozen=True)
class RegisterMap:
    """All registers of one datapath, in the order of their offsets."""

    name: str
    digest: int
    registers: tuple[Register, ...]
    _by_key: dict[Key, Register] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_key", {register.key: register for register in self.registers})

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __getitem__(self, key: Key | str) -> Register:
        """Return the register with a key (tuple) or a name (str). Raise KeyError if there is none."""
        if isinstance(key, tuple):
            return self._by_key[key]
        for register in self.registers:
            if register.name == key:
                return register
        raise KeyError(f"no register {key!r} in {self.name}")

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def find_shared_ports(self) -> dict[str, list[Register]]:
        """Return the registers of each shared port, the lowest bits first."""
        registers: dict[str, list[Register]] = {}
        for register in self:
            if isinstance(register.signal, PortBits) and register.signal.low_bit is not None:
                registers.setdefault(register.signal.port, []).append(register)
        return registers

    def find_blocks(self) -> dict[tuple[str, str], dict[str, Register]]:
        """Return the registers of each block by pin; blocks are identified by kind and name."""
        blocks: dict[tuple[str, str], dict[str, Register]] = {}
        for register in self:
            if isinstance(register.signal, BlockPin):
                pins = blocks.setdefault((register.signal.block, register.signal.name), {})
                pins[register.signal.pin] = register
        return blocks

    @property
    def size_bytes(self) -> int:
        """Number of bytes from offset 0 to the end of the last register."""
        return self.registers[-1].offset + self.registers[-1].size_bytes

    @property
    def address_width(self) -> int:
        """Number of address lines of the register file."""
        return max(3, (self.size_bytes - 1).bit_length())


@dataclass
class MapBuilder:
    """Builder that places registers at consecutive offsets, with unique names."""

    registers: list[Register] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _offset: int = 0

    def add(
        self,
        *key: str,
        access: Access,
        description: str,
        signal: PortBits | BlockPin | None = None,
        width: int = WORD_BITS,
        word_count: int = 1,
        reset_value: int = 0,
        fields: tuple[BitField, ...] = (),
    ) -> None:
        """Append a register. `width` is the width of a word."""
        self.registers.append(
            Register(
                key,
                self._make_unique_name(key),
                self._offset,
                width,
                access,
                description,
                signal,
                reset_value,
                word_count,
                fields,
            )
        )
        self._offset += word_count * WORD_BYTES

    def add_packed(self, *key: str, access: Access, description: str, signal: PortBits | BlockPin) -> None:
        """Append a register with enough words for the bits of `signal`; a single word has the width of the signal."""
        word_count = -(-signal.width // WORD_BITS)
        width = signal.width if word_count == 1 else WORD_BITS
        self.add(
            *key, access=access, description=description, signal=signal, width=width, word_count=word_count
        )

    def _make_unique_name(self, key: Key) -> str:
        # Names joined by "_" can coincide (a_b.c and a.b_c): the later one gets a number.
        base_name = name = "_".join(key)
        number = 1
        while name in self._names:
            number += 1
            name = f"{base_name}_{number}"
        self._names.add(name)
        return name
