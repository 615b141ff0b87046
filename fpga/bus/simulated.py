"""A bus to a simulated datapath. Its registers behave as in the AXI4-Lite top, but without the AXI4-Lite protocol.

Every access takes one cycle of the datapath. A read returns the value in that cycle; a write takes effect in the next.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fpga.bus.protocol import check_access
from fpga.count_action.actions.memory import list_memories
from fpga.count_action.model import Datapath
from fpga.count_action.ports import WORD_BITS as COLUMN_BITS
from fpga.count_action.ports import Rows, make_ports
from fpga.registers.model import WORD_BITS, Access, BlockPin, PortBits, Register
from fpga.registers.register_blocks import BLOCKS, RegisterBlock
from fpga.registers.register_list import COMMIT, HOLD, RESET, make_register_map

_COLUMN_MASK = (1 << COLUMN_BITS) - 1


class Engine(Protocol):
    """A simulator of a datapath, which keeps the state between runs."""

    def run(self, rows: Rows) -> Rows:
        """Return the outputs of every cycle, sampled before its clock edge."""
        ...

    def reset(self, shadow_bank: int | None = None) -> None:
        """Return to the state after power-on, but keep the words of memories.

        If `shadow_bank` is given, put its targets in force.
        """
        ...

    def load_word(self, module: str, memory: str, address: int, word: int) -> None:
        """Load a word of a memory; ignore an address beyond the memory."""
        ...


class _Pins:
    """Ports of the datapath in an engine: the inputs for the next cycle, and the outputs of the last cycle."""

    def __init__(self, datapath: Datapath, engine: Engine) -> None:
        self._engine = engine
        ports = make_ports(datapath)
        self._input_ports = {port.name: port for port in ports.inputs}
        self._output_ports = {port.name: port for port in ports.outputs}
        self._column_counts = (ports.input_column_count, ports.output_column_count)
        self._memories = [(module.name, memory.output) for module, memory in list_memories(datapath)]
        self.reset()

    def reset(self) -> None:
        """Reset the engine, and set every input to 0."""
        self._engine.reset()
        input_columns, output_columns = self._column_counts
        self._row = np.zeros((1, input_columns), np.uint64)
        self._inputs: dict[str, int] = dict.fromkeys(self._input_ports, 0)
        self._outputs = [0] * output_columns

    @property
    def shadow_bank(self) -> int:
        """The targets in the shadow bank, as one number."""
        return self._inputs["target_shadow_i"]

    def restart(self, shadow_bank: int | None) -> None:
        """Reset the engine, but keep the inputs.

        Put the targets of `shadow_bank` in force unless `shadow_bank` is None.
        """
        self._engine.reset(shadow_bank)
        self._outputs = [0] * self._column_counts[1]

    def run_cycle(self) -> None:
        """Run one cycle."""
        self._outputs = self._engine.run(self._row)[0].tolist()

    def run_reset_cycle(self) -> None:
        """Run a cycle of reset, which changes only memories that are being loaded (R25)."""
        for module, memory in self._memories:
            load, address, word = (
                self._inputs[f"{module}_{memory}_{suffix}_i"] for suffix in ("load", "address", "word")
            )
            if load:
                self._engine.load_word(module, memory, address, word)

    def set_input(self, port: str, value: int) -> None:
        """Set an input to a value. Most values are unchanged, and are skipped for speed."""
        input_port = self._input_ports[port]
        value &= (1 << input_port.width) - 1
        if self._inputs[port] == value:
            return
        self._inputs[port] = value
        for word_index in range(input_port.word_count):
            self._row[0, input_port.column + word_index] = value >> COLUMN_BITS * word_index & _COLUMN_MASK

    def set_bits(self, bits: PortBits, value: int) -> None:
        """Set the bits of a part of an input."""
        low_bit = bits.low_bit or 0
        mask = (1 << bits.width) - 1 << low_bit
        self.set_input(bits.port, self._inputs[bits.port] & ~mask | value << low_bit & mask)

    def get_output(self, port: str) -> int:
        """Return the value of an output in the last cycle."""
        output_port = self._output_ports[port]
        column = output_port.column
        if output_port.word_count == 1:
            return self._outputs[column]
        return sum(
            self._outputs[column + word_index] << COLUMN_BITS * word_index
            for word_index in range(output_port.word_count)
        )


class SimulatedBus:
    """`RegisterBus` of a datapath and its registers, simulated in this process."""

    def __init__(self, datapath: Datapath, engine: Engine) -> None:
        self.datapath = datapath
        self.cycle_count = 0
        """Number of clock cycles so far."""
        self._pins = _Pins(datapath, engine)
        self._register_map = make_register_map(datapath)
        self._registers_by_offset = {
            register.get_offset(word_index): (register, word_index)
            for register in self._register_map
            for word_index in range(register.word_count)
        }
        self._reset()

    def read32(self, offset: int) -> int:
        """Return the word at `offset`; 0 if there is no register."""
        check_access(offset)
        self._run_cycle()
        if offset not in self._registers_by_offset:
            return 0
        register, word_index = self._registers_by_offset[offset]
        if register.access is Access.CONSTANT:
            return register.reset_value
        if register.access is Access.WRITE:
            return self._stored_words[offset]
        if register.access is Access.READ:
            return self._read_back(register) >> WORD_BITS * word_index & register.mask
        return 0

    def write32(self, offset: int, value: int) -> None:
        """Write a word at `offset`. Ignore it if there is no writable register."""
        check_access(offset, value)
        register, word_index = self._registers_by_offset.get(offset, (None, 0))
        if register is None:
            self._run_cycle()
        elif register.access is Access.PULSE:
            self._pulse_bits(register, value & register.mask)
        else:
            if offset in self._stored_words:
                self._stored_words[offset] = value & register.mask
                if register.access is Access.WRITE or word_index == register.word_count - 1:
                    self._drive_signal(register)
            self._run_cycle()

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def _reset(self) -> None:
        self._is_held = False
        self._pins.reset()
        self._blocks: dict[tuple[str, str], RegisterBlock] = {
            (block_kind, name): BLOCKS[block_kind](name, self._pins)
            for block_kind, name in self._register_map.find_blocks()
        }
        self._stored_words = {
            offset: register.reset_value
            for offset, (register, _) in self._registers_by_offset.items()
            if register.access in {Access.WRITE, Access.PUSH}
        }
        for register in self._register_map:
            if register.access is Access.WRITE:
                self._drive_signal(register)

    def _run_cycle(self) -> None:
        if self._is_held:
            self._pins.run_reset_cycle()
        else:
            self._pins.run_cycle()
        self.cycle_count += 1
        for block in self._blocks.values():
            block.clock()

    # ------------------------------------------------------------------------ registers and their signals

    def _find_block(self, pin: BlockPin) -> RegisterBlock:
        return self._blocks[pin.block, pin.name]

    def _read_back(self, register: Register) -> int:
        """Return the value that the datapath or a block shows in a register, over all words."""
        if isinstance(register.signal, BlockPin):
            return self._find_block(register.signal).read(register.signal.pin)
        assert register.signal is not None
        return self._pins.get_output(register.signal.port) >> (register.signal.low_bit or 0)

    def _drive_signal(self, register: Register) -> None:
        """Set the signal of a register to its value, the concatenation of its words."""
        value = 0
        for word_index in range(register.word_count):
            value |= self._stored_words[register.get_offset(word_index)] << register.width * word_index
        if isinstance(register.signal, BlockPin):
            self._find_block(register.signal).write(
                register.signal.pin, value & (1 << register.signal.width) - 1
            )
        elif register.signal is not None:
            self._pins.set_bits(register.signal, value)

    def _pulse_bits(self, register: Register, value: int) -> None:
        """Set the written bits to 1 for one cycle."""
        if isinstance(register.signal, BlockPin) and value:
            self._find_block(register.signal).write(register.signal.pin, value)
        connected_fields = [field for field in register.fields if field.port]
        for field in connected_fields:
            self._pins.set_input(field.port, value >> field.low_bit & 1)
        self._run_cycle()
        for field in connected_fields:
            self._pins.set_input(field.port, 0)
        if register.key == ("CONTROL",):
            self._apply_control(value)

    def _apply_control(self, control: int) -> None:
        """Apply RESET and HOLD of CONTROL: reset everything, or hold the datapath in reset until a COMMIT."""
        was_held, shadow_bank = self._is_held, self._pins.shadow_bank
        is_held = bool(control & HOLD or (was_held and not control & COMMIT))
        if control & RESET:
            self._reset()
        if is_held or was_held or control & RESET:
            # As in hardware, a commit in the last cycle of a reset puts the shadow bank in force.
            self._pins.restart(shadow_bank if control & COMMIT and not is_held else None)
        self._is_held = is_held
