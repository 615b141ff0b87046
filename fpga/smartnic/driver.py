"""Driver of the smartNIC on a board: its settings, models and counters, through `fpga.smartnic.registers`.

    nic = SmartNicDriver(open_bus("pynq://0xA0000000"))
    nic.configure(Settings(address="10.77.0.2"), memory_base=buffer.physical_address)
    nic.load(program, write_memory)

`write_memory(offset, data)` puts bytes into the board's memory, `offset` bytes after `memory_base`, and returns when
the smartNIC would read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpga.bus.protocol import Access, RegisterBus, choose_transfer
from fpga.datapath import WrongHardware
from fpga.registers.model import WORD_BITS, Register
from fpga.smartnic.registers import IDENTITY, OUTCOMES, SETTINGS, TABLE_NUMBERS, make_smartnic_registers
from fpga.smartnic.simulator import Settings, SmartNicError

if TYPE_CHECKING:
    from fpga.smartnic.program import NicProgram

WriteMemory = Callable[[int, bytes], object]
REGISTERS = make_smartnic_registers()
BASE_ALIGNMENT_BYTES = 4096
"""Alignment of the weights in bytes: bursts of the reader must not cross a multiple of it."""
MAX_STATUS_READS = 1_000_000
"""Largest number of reads of STATUS while waiting for a request to end; some seconds on a board."""
_WORD_MASK = (1 << WORD_BITS) - 1


class SmartNicDriver:
    """A smartNIC behind a bus. Raise WrongHardware if its registers are of another version."""

    def __init__(self, bus: RegisterBus) -> None:
        self._transfer = choose_transfer(bus)
        identity, digest = self._read("ID", "HASH")
        if identity != IDENTITY:
            raise WrongHardware(
                f"no smartNIC answers: the ID register reads {identity:#010x}, not {IDENTITY:#010x}. "
                "Check the base address and that the bitstream is loaded."
            )
        if digest != REGISTERS.digest:
            raise WrongHardware(
                f"the smartNIC has registers {digest:08x}, but the driver is for {REGISTERS.digest:08x}: "
                "load a bitstream of this version."
            )

    def configure(self, settings: Settings, memory_base: int = 0) -> None:
        """Write the settings. Settings of simulated memory and optics have no effect.

        `memory_base` is the address of the weights in the board's memory. Raise ValueError unless it is a multiple of
        4096.
        """
        if memory_base % BASE_ALIGNMENT_BYTES or not 0 <= memory_base < 1 << 40:
            raise ValueError(
                f"memory_base must be a multiple of {BASE_ALIGNMENT_BYTES} below 2**40, not {memory_base:#x}"
            )
        values = settings.list_inputs() | {"base": memory_base}
        self._transfer(
            [
                access
                for name, *_ in SETTINGS
                if name.lower() in values
                for access in _list_writes(REGISTERS[name], values[name.lower()])
            ]
        )

    def load(self, program: NicProgram, write_memory: WriteMemory) -> None:
        """Write the models of a program into memory and tables. Use `reload` while the smartNIC serves requests."""
        from fpga.smartnic.program import pack_layers, pack_look_up, pack_memory, pack_models

        # The model table comes last, because it puts the models into service.
        write_memory(0, pack_memory(program).astype("<u8").tobytes())
        look_up = np.zeros((256 * len(program.models), 2), np.uint64)
        look_up[:, 0] = pack_look_up(program)
        for name, words in (
            ("layers", pack_layers(program)),
            ("look_up", look_up),
            ("models", pack_models(program)),
        ):
            self._transfer(list(_list_table_writes(TABLE_NUMBERS[name], words)))

    def reload(
        self, program: NicProgram, write_memory: WriteMemory, max_status_reads: int = MAX_STATUS_READS
    ) -> None:
        """Load another program between two requests; then answer waiting requests, or refuse them with FAILED.

        Raise SmartNicError if the current request has not ended after `max_status_reads` reads of STATUS.
        """
        self.hold()
        try:
            self._wait(max_status_reads)
            self.load(program, write_memory)
        finally:
            self.hold(is_held=False)

    def hold(self, is_held: bool = True) -> None:
        """Begin no further requests; with `is_held` false, begin requests again."""
        self._write("HOLD", int(is_held))

    @property
    def is_working(self) -> bool:
        """True from the beginning of a request to its end."""
        return self._read_field("STATUS", "WORKING")

    @property
    def is_busy(self) -> bool:
        """True while a packet, request or answer is in the smartNIC; frames that wait before it do not count."""
        return self._read_field("STATUS", "BUSY")

    def abort(self) -> None:
        """Refuse the current request with FAILED. Waiting requests are then answered."""
        self._pulse("ABORT")

    def reset(self) -> None:
        """Reset the smartNIC and its settings. Its requests are lost. Call `configure` and `load` afterwards."""
        self._pulse("RESET")

    def read_counters(self) -> dict[str, int]:
        """Return the counts of packets by outcome, and `overrun`. They are read one after the other."""
        names = (*OUTCOMES, "overrun")
        return dict(zip(names, self._read(*(f"COUNT_{name}" for name in names)), strict=True))

    def _wait(self, max_status_reads: int) -> None:
        if all(self.is_working for _ in range(max_status_reads)):
            raise SmartNicError(f"the current request did not end within {max_status_reads} reads of STATUS.")

    def _read(self, *names: str) -> list[int]:
        return self._transfer([(REGISTERS[name].offset, None) for name in names])

    def _write(self, name: str, value: int) -> None:
        self._transfer(list(_list_writes(REGISTERS[name], value)))

    def _read_field(self, name: str, field: str) -> bool:
        return bool(self._read(name)[0] & _find_bit(name, field))

    def _pulse(self, field: str) -> None:
        self._write("CONTROL", _find_bit("CONTROL", field))


def _find_bit(name: str, field: str) -> int:
    (low,) = (bits.low_bit for bits in REGISTERS[name].fields if bits.name == field)
    return 1 << low


def _list_writes(register: Register, value: int) -> Iterator[Access]:
    for word in range(register.word_count):
        yield register.get_offset(word), value >> WORD_BITS * word & _WORD_MASK


def _list_table_writes(table: int, words: NDArray[np.uint64]) -> Iterator[Access]:
    """Yield the writes of a table's words, uint64[words, 2]."""
    for address, (low, high) in enumerate(words.tolist()):
        yield REGISTERS["TABLE_ADDRESS"].offset, table << 12 | address
        yield from _list_writes(REGISTERS["TABLE_WORD"], high << 64 | low)
