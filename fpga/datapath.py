"""The driver of a datapath on a bus: loads programs, pushes beats in, takes beats out.

Not to be confused with `fpga.count_action.Datapath`, the representation of a datapath, of which a `Program` has
one. The driver alone knows offsets, the shadow bank and COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from numpy.typing import ArrayLike

from fpga.beats import Beats, Samples
from fpga.bus.protocol import RegisterBus
from fpga.count_action.model import Signal, SignalKind
from fpga.errors import FpgaError
from fpga.program import Program
from fpga.registers.model import WORD_BITS, RegisterMap
from fpga.registers.register_list import (
    CLEAR_STATUS,
    COMMIT,
    HIGH,
    HOLD,
    RESET,
    Streams,
    effects,
    register_map,
)
from fpga.stream_portal import Portal, read_words

_ID, _HASH = 0, 4  # the two registers that are at the same place in every map
_READS = 16
"""Times that both words of a register are read before they are given up."""


class DatapathError(FpgaError, code="fpga.datapath", who="device"):
    """Hardware and program do not fit, or beats do not go through."""


class WrongHardware(DatapathError):
    """The hardware behind the bus is not what the program was written for."""


class BeatsNotTaken(DatapathError):
    """The datapath does not take a beat. `outputs` holds what came out before."""

    def __init__(self, message: str, outputs: dict[str, Samples]) -> None:
        super().__init__(message)
        self.outputs = outputs


@dataclass(frozen=True, slots=True)
class Status:
    """Counts, as `module.count`, whose sticky bits are set."""

    overshoot: frozenset[str]
    saturated: frozenset[str]


class Datapath:
    """A count-action datapath in hardware or a simulator, reached through `bus`.

    `load` comes first: it tells what the hardware is. Nothing is retried and nothing is cached but the DATA words
    that were written. Errors of the bus pass through.
    """

    def __init__(self, bus: RegisterBus) -> None:
        self.bus = bus
        self._program: Program | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the bus."""
        self.bus.close()

    # ------------------------------------------------------------------------------------- programs
    def load(self, program: Program, layer: int = 0) -> None:
        """Reset the hardware and put one layer of the program in force.

        The datapath is held in reset in between: its first cycle has the targets of the layer. When the bus fails
        half-way, nothing counts as loaded, and the datapath stays in reset. Raises ProgramError when there is no such
        layer and WrongHardware when the hash in the hardware is not that of the program; nothing is written then.
        """
        targets = program.targets(layer)
        identity, digest = self.bus.read32(_ID), self.bus.read32(_HASH)
        if identity not in {each.value for each in Streams}:
            raise WrongHardware(
                f"no count-action datapath answers: the ID register reads {identity:#010x}, not "
                f"{Streams.REGISTERS.value:#010x} or {Streams.AXI_STREAM.value:#010x}. Check the base address "
                "and that the bitstream is loaded."
            )
        if digest != program.digest:
            raise WrongHardware(
                f"the hardware has hash {digest:08x}, but the program is for {program.digest:08x} "
                f"({program.datapath.name}): they come from different modules. "
                "Load the bitstream of this program's modules, or write the program for the modules in the hardware."
            )
        streams = Streams(identity)
        self._program = None
        self._table = register_map(program.datapath, streams)
        self._restart(program, RESET | HOLD)
        self._put_in_force(targets)
        self._program = program

    def use(self, layer: int) -> None:
        """Put the targets of another layer in force, all in one cycle; counts go on from where they are.

        Raises ProgramError when there is no such layer; nothing is written then.
        """
        self._put_in_force(self._require_program().targets(layer))

    def reset(self) -> None:
        """Return to the state after power-on: counts 0, targets those of the text, no beats anywhere."""
        self._restart(self._require_program(), RESET)

    def _restart(self, program: Program, bits: int) -> None:
        self._control(bits)
        self._portal = Portal(self.bus, self._table, program.datapath)

    def _put_in_force(self, targets: Iterable[tuple[str, str, int]]) -> None:
        for module, target, value in targets:
            self._write(("TARGET", module, target), value)
        self._control(COMMIT)

    # ---------------------------------------------------------------------------------------- beats
    def run(
        self, beats: ArrayLike | Beats | Mapping[str, ArrayLike | Beats], *, patience: int | None = None
    ) -> dict[str, Samples]:
        """Push beats into the input streams, and give what comes out.

        `beats` is by the name of the input, or the beats alone where there is one input (see
        `fpga.beats.packed_beats` for their shape). Every input is pushed in its order; between inputs there is
        none. The result is by `module.output`: beats × samples. The run ends when nothing has moved for
        `patience` looks at all streams; by default as many as a beat needs through all modules, and some.

        Raises BeatsNotTaken when beats are left then, ValueError for an input that is not there or samples that
        do not fit.
        """
        datapath = self._require_program().datapath
        if self._table["ID",].reset != Streams.REGISTERS.value:
            raise DatapathError(
                "the streams of this top are AXI-Stream ports, not registers. Feed them with DMA, or build the top"
                f" {datapath.name}_axi into the bitstream."
            )
        self._portal.enqueue(beats)
        outputs = self._portal.exchange(len(datapath.modules) + 4 if patience is None else patience)
        left = self._portal.forget_what_is_left()
        if left:
            what = ", ".join(f"{number} of {name}" for name, number in left.items())
            raise BeatsNotTaken(
                (
                    f"the datapath does not accept the remaining beats: {what}. Its modules wait for beats of "
                    "another stream, for a flag, or for time (give run() more patience). `.outputs` holds what "
                    "came out; reset() discards the waiting beats."
                ),
                outputs,
            )
        return outputs

    # --------------------------------------------------------------- everything that is not a stream
    def set_input(self, name: str, value: int, index: int = 0) -> None:
        """Give an input flag or number a value; `index` chooses among those under one name.

        Raises ValueError when there is no such input, or its width cannot hold the value.
        """
        signal = self._level_input(name)
        if not 0 <= index < signal.size or not 0 <= value < 1 << signal.width:
            raise ValueError(
                f"{name}[{index}] = {value}: there are {signal.size}, of {signal.width} bits each, counted from 0."
            )
        register = self._table["IN", name]
        if signal.kind is SignalKind.NUMBER:
            self.bus.write32(register.at(index), value)
            return
        word, bit = divmod(index, WORD_BITS)
        old = self.bus.read32(register.at(word))
        self.bus.write32(register.at(word), old & ~(1 << bit) | value << bit)

    def counts(self) -> dict[str, int]:
        """Return what the counts are now, by `module.count`, read one after the other."""
        pairs = [(module.name, count.name) for module, count in self._require_program().datapath.counts()]
        return {f"{module}.{count}": self._read("COUNT", module, count) for module, count in pairs}

    def outputs(self) -> dict[str, int]:
        """Return flags and numbers as they are now, and the pulses since reset, by `module.output`."""
        driven = [(module, name) for module, name, *_ in effects(self._require_program().datapath)]
        return {f"{module}.{name}": self._read("OUT", module, name) for module, name in driven}

    def status(self) -> Status:
        """Return which counts have jumped over their targets or exceeded their widths since `clear_status`."""
        names = [f"{module.name}.{count.name}" for module, count in self._require_program().datapath.counts()]
        return Status(self._find_bits("OVERSHOOT", names), self._find_bits("SATURATED", names))

    def clear_status(self) -> None:
        """Clear the sticky bits of all counts."""
        self._control(CLEAR_STATUS)

    def _find_bits(self, register: str, names: list[str]) -> frozenset[str]:
        bits = read_words(self.bus, self._table, (register,))
        return frozenset(name for place, name in enumerate(names) if bits >> place & 1)

    def _level_input(self, name: str) -> Signal:
        levels = {
            each.name: each
            for each in self._require_program().datapath.inputs
            if each.kind is not SignalKind.STREAM
        }
        if name not in levels:
            raise ValueError(f"no input flag or number {name!r}; there are: {', '.join(levels) or 'none'}.")
        return levels[name]

    # ------------------------------------------------------------------------------------ registers
    @property
    def registers(self) -> RegisterMap:
        """The registers of what was loaded."""
        self._require_program()
        return self._table

    def _require_program(self) -> Program:
        if self._program is None:
            raise DatapathError("no program is loaded. Call load(program) first: it identifies the hardware.")
        return self._program

    def _control(self, bits: int) -> None:
        self._write(("CONTROL",), bits)

    def _write(self, key: tuple[str, ...], value: int) -> None:
        self.bus.write32(self._table[key].offset, value & (1 << WORD_BITS) - 1)
        if (*key, HIGH) in self._table:
            self.bus.write32(self._table[*key, HIGH].offset, value >> WORD_BITS)

    def _read(self, *key: str) -> int:
        """Return what a register shows; one of two words is read until its upper bits have not changed meanwhile.

        Raises DatapathError when they always do.
        """
        low = self.bus.read32(self._table[key].offset)
        if (*key, HIGH) not in self._table:
            return low
        upper = self._table[*key, HIGH].offset
        high, before, left = self.bus.read32(upper), -1, _READS
        while high != before:
            if left == 0:
                raise DatapathError(
                    f"{'_'.join(key)} changes faster than it can be read. Hold what feeds it."
                )
            before, left = high, left - 1
            low, high = self.bus.read32(self._table[key].offset), self.bus.read32(upper)
        return high << WORD_BITS | low
