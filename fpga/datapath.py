"""The driver of a datapath on a bus: it loads programs, pushes beats, and collects results.

Its `Datapath` is not `fpga.count_action.Datapath`, the model of a datapath, which is part of a `Program`. The driver
hides offsets, the shadow bank and COMMIT from its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from numpy.typing import ArrayLike

from fpga.beats import Beats, Samples
from fpga.bus.protocol import RegisterBus
from fpga.count_action.actions.memory import find_memory
from fpga.count_action.model import Action, Signal, SignalKind
from fpga.errors import FpgaError
from fpga.program import Program
from fpga.registers.model import WORD_BITS, RegisterMap
from fpga.registers.register_list import (
    CLEAR_STATUS,
    COMMIT,
    HIGH,
    HOLD,
    RESET,
    StreamAccess,
    list_effects,
    make_register_map,
)
from fpga.stream_portal import Portal, read_words

_ID, _HASH_OFFSET = 0, 4  # the two registers that are at the same place in every map
_READ_ATTEMPTS = 16
"""Number of attempts to read both words of a register consistently."""


class DatapathError(FpgaError, code="fpga.datapath", who="device"):
    """Base class of errors of the driver."""


class WrongHardware(DatapathError):
    """The hardware behind the bus is not what the program was written for."""


class BeatsNotTaken(DatapathError):
    """The datapath does not accept a beat. `outputs` holds the results so far."""

    def __init__(self, message: str, outputs: dict[str, Samples]) -> None:
        super().__init__(message)
        self.outputs = outputs


@dataclass(frozen=True, slots=True)
class Status:
    """Counts (`module.count`) whose sticky bits are set."""

    overshoot: frozenset[str]
    saturated: frozenset[str]


class Datapath:
    """A count-action datapath in hardware or a simulator, reached through `bus`.

    Call `load` first: it identifies the hardware. Nothing is retried, and only written DATA words are cached. Errors
    of the bus pass through.
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
    def load(
        self, program: Program, layer: int = 0, memories: Mapping[str, Iterable[int]] | None = None
    ) -> None:
        """Reset the hardware, and put one layer of the program in force.

        `memories` maps `module.memory` to words that are loaded from address 0 on; a reset keeps all other words. The
        datapath stays in reset meanwhile, so that its first cycle has these words and the targets of the layer. If
        the bus fails half-way, nothing counts as loaded, and the datapath stays in reset. Raise ProgramError if there
        is no such layer, ValueError if there is no such memory or words do not fit, and WrongHardware if the hardware
        is not the program's. These errors are raised before anything is written.
        """
        targets = program.targets(layer)
        words_by_memory = {
            name: _check_words(_find_memory(program, *_split_name(name)), name, words, 0)
            for name, words in (memories or {}).items()
        }
        identity, digest = self.bus.read32(_ID), self.bus.read32(_HASH_OFFSET)
        if identity not in {access.value for access in StreamAccess}:
            raise WrongHardware(
                f"no count-action datapath answers: the ID register reads {identity:#010x}, not "
                f"{StreamAccess.REGISTERS.value:#010x} or {StreamAccess.AXI_STREAM.value:#010x}. Check the base"
                " address "
                "and that the bitstream is loaded."
            )
        if digest != program.digest:
            raise WrongHardware(
                f"the hardware has hash {digest:08x}, but the program is for {program.digest:08x} "
                f"({program.datapath.name}): they come from different modules. "
                "Load the bitstream of this program's modules, or write the program for the modules in the hardware."
            )
        stream_access = StreamAccess(identity)
        self._program = None
        self._table = make_register_map(program.datapath, stream_access)
        self._restart(program, RESET | HOLD)
        for name, values in words_by_memory.items():
            self._load_words(*_split_name(name), values, 0)
        self._put_in_force(targets)
        self._program = program

    def use(self, layer: int) -> None:
        """Put the targets of another layer in force, all in one cycle; counts keep their values.

        Raise ProgramError if there is no such layer; nothing is written then.
        """
        self._put_in_force(self._require_program().targets(layer))

    def reset(self) -> None:
        """Return to the state after power-on: counts are 0, targets are as in the text, and there are no beats."""
        self._restart(self._require_program(), RESET)

    def _restart(self, program: Program, bits: int) -> None:
        self._write_control(bits)
        self._portal = Portal(self.bus, self._table, program.datapath)

    def _put_in_force(self, targets: Iterable[tuple[str, str, int]]) -> None:
        for module, target, value in targets:
            self._write(("TARGET", module, target), value)
        self._write_control(COMMIT)

    # ---------------------------------------------------------------------------------------- beats
    def run(
        self, beats: ArrayLike | Beats | Mapping[str, ArrayLike | Beats], *, patience: int | None = None
    ) -> dict[str, Samples]:
        """Push beats into the input streams, and return the results.

        `beats` maps names of inputs to beats, or is the beats alone if there is one input (`fpga.beats.pack_beats`
        describes their shape). Beats of one input keep their order; there is no order between inputs. The result maps
        `module.output` to an array beats × samples. The run ends when nothing has moved in `patience` successive polls
        of all streams; the default is enough for a beat to pass all modules.

        Raise BeatsNotTaken if beats are left then, DatapathError if the top has AXI-Stream ports, and ValueError for an
        unknown input or samples that do not fit.
        """
        datapath = self._require_program().datapath
        if self._table["ID",].reset_value != StreamAccess.REGISTERS.value:
            raise DatapathError(
                "the streams of this top are AXI-Stream ports, not registers. Feed them with DMA, or build the top"
                f" {datapath.name}_axi into the bitstream."
            )
        self._portal.enqueue(beats)
        outputs = self._portal.exchange(len(datapath.modules) + 4 if patience is None else patience)
        untaken_beats = self._portal.discard_queues()
        if untaken_beats:
            remaining_text = ", ".join(f"{number} of {name}" for name, number in untaken_beats.items())
            raise BeatsNotTaken(
                (
                    f"the datapath does not accept the remaining beats: {remaining_text}. "
                    "Its modules wait for beats of "
                    "another stream, for a flag, or for time (give run() more patience). `.outputs` holds what "
                    "came out; reset() discards the waiting beats."
                ),
                outputs,
            )
        return outputs

    # --------------------------------------------------------------- everything that is not a stream
    def set_input(self, name: str, value: int, index: int = 0) -> None:
        """Set an input flag or number; `index` selects one of several under the same name.

        Raise ValueError if there is no such input, or its width cannot hold the value.
        """
        signal = self._find_level_input(name)
        if not 0 <= index < signal.size or not 0 <= value < 1 << signal.width:
            raise ValueError(
                f"{name}[{index}] = {value}: there are {signal.size}, of {signal.width} bits each, counted from 0."
            )
        register = self._table["IN", name]
        if signal.kind is SignalKind.NUMBER:
            self.bus.write32(register.get_offset(index), value)
            return
        word, bit = divmod(index, WORD_BITS)
        old_word = self.bus.read32(register.get_offset(word))
        self.bus.write32(register.get_offset(word), old_word & ~(1 << bit) | value << bit)

    def load_memory(self, module: str, memory: str, words: Iterable[int], start: int = 0) -> None:
        """Load words of a memory, at consecutive addresses from `start` on.

        The datapath keeps running meanwhile: stores into the memory in a cycle of a load are lost (R25). Raise
        ValueError, before anything is written, if there is no such memory, or words do not fit.
        """
        values = _check_words(
            _find_memory(self._require_program(), module, memory), f"{module}.{memory}", words, start
        )
        self._load_words(module, memory, values, start)

    def _load_words(self, module: str, memory: str, values: Iterable[int], start: int) -> None:
        self._set_address(module, memory, start)
        register = self._table["MEMORY", module, memory, "LOAD"]
        for value in values:
            for word in range(register.word_count):
                word_value = value >> WORD_BITS * word & (1 << WORD_BITS) - 1
                self.bus.write32(register.get_offset(word), word_value)

    def read_memory(self, module: str, memory: str, start: int = 0, words: int | None = None) -> list[int]:
        """Return words of a memory from `start` on, by default all.

        First stop all stores into the memory: a word is read only in cycles without a store (R25). Raise ValueError if
        there is no such memory, or it does not have these words.
        """
        action = _find_memory(self._require_program(), module, memory)
        stop = action.words if words is None else start + words
        if not 0 <= start <= stop <= action.words:
            raise ValueError(
                f"{module}.{memory} has words 0 to {action.words - 1}, not {start} to {stop - 1}."
            )
        values = []
        for address in range(start, stop):
            self._set_address(module, memory, address)
            values.append(read_words(self.bus, self._table, ("MEMORY", module, memory, "WORD")))
        return values

    def _set_address(self, module: str, memory: str, address: int) -> None:
        self.bus.write32(self._table["MEMORY", module, memory, "ADDRESS"].offset, address)

    def counts(self) -> dict[str, int]:
        """Return the current counts, by `module.count`. They are read one after the other, not in the same cycle."""
        module_counts = [
            (module.name, count.name) for module, count in self._require_program().datapath.list_counts()
        ]
        return {f"{module}.{count}": self._read("COUNT", module, count) for module, count in module_counts}

    def outputs(self) -> dict[str, int]:
        """Return the current flags and numbers, and the numbers of pulses since reset, by `module.output`."""
        module_outputs = [
            (module, name) for module, name, *_ in list_effects(self._require_program().datapath)
        ]
        return {f"{module}.{name}": self._read("OUT", module, name) for module, name in module_outputs}

    def status(self) -> Status:
        """Return the counts that have jumped over their targets or exceeded their widths since `clear_status`."""
        names = [
            f"{module.name}.{count.name}" for module, count in self._require_program().datapath.list_counts()
        ]
        return Status(self._read_status("OVERSHOOT", names), self._read_status("SATURATED", names))

    def clear_status(self) -> None:
        """Clear the sticky bits of all counts."""
        self._write_control(CLEAR_STATUS)

    def _read_status(self, register: str, names: list[str]) -> frozenset[str]:
        bits = read_words(self.bus, self._table, (register,))
        return frozenset(name for index, name in enumerate(names) if bits >> index & 1)

    def _find_level_input(self, name: str) -> Signal:
        flags_and_numbers = {
            signal.name: signal
            for signal in self._require_program().datapath.inputs
            if signal.kind is not SignalKind.STREAM and not signal.loads_memory
        }
        if name not in flags_and_numbers:
            raise ValueError(
                f"no input flag or number {name!r}; there are: {', '.join(flags_and_numbers) or 'none'}."
            )
        return flags_and_numbers[name]

    # ------------------------------------------------------------------------------------ registers
    @property
    def registers(self) -> RegisterMap:
        """The register map of the loaded hardware."""
        self._require_program()
        return self._table

    def _require_program(self) -> Program:
        if self._program is None:
            raise DatapathError("no program is loaded. Call load(program) first: it identifies the hardware.")
        return self._program

    def _write_control(self, bits: int) -> None:
        self._write(("CONTROL",), bits)

    def _write(self, key: tuple[str, ...], value: int) -> None:
        self.bus.write32(self._table[key].offset, value & (1 << WORD_BITS) - 1)
        if (*key, HIGH) in self._table:
            self.bus.write32(self._table[*key, HIGH].offset, value >> WORD_BITS)

    def _read(self, *key: str) -> int:
        """Return the value of a register. If it has two words, read them again until the upper one stays the same.

        Raise DatapathError if the upper word keeps changing.
        """
        low_word = self.bus.read32(self._table[key].offset)
        if (*key, HIGH) not in self._table:
            return low_word
        high_offset = self._table[*key, HIGH].offset
        high_word, previous_high_word, remaining_attempts = self.bus.read32(high_offset), -1, _READ_ATTEMPTS
        while high_word != previous_high_word:
            if remaining_attempts == 0:
                raise DatapathError(
                    f"{'_'.join(key)} changes faster than it can be read. Stop its inputs while you read it."
                )
            previous_high_word, remaining_attempts = high_word, remaining_attempts - 1
            low_word, high_word = self.bus.read32(self._table[key].offset), self.bus.read32(high_offset)
        return high_word << WORD_BITS | low_word


def _find_memory(program: Program, module: str, memory: str) -> Action:
    """Return the declaration of a memory. Raise ValueError if there is none."""
    try:
        return find_memory(program.datapath, module, memory)
    except KeyError as error:
        raise ValueError(f"{error.args[0]}.") from None


def _split_name(name: str) -> tuple[str, str]:
    """Return the module and the memory of `module.memory`."""
    module, _, memory = name.partition(".")
    return module, memory


def _check_words(memory: Action, name: str, words: Iterable[int], start: int) -> list[int]:
    """Return the words. Raise ValueError if the memory does not have their addresses, or they do not fit."""
    values = list(words)
    if start < 0 or start + len(values) > memory.words:
        raise ValueError(
            f"{name} has words 0 to {memory.words - 1}, not {start} to {start + len(values) - 1}."
        )
    if unfitting_words := [value for value in values if not 0 <= value < 1 << memory.width]:
        raise ValueError(f"{name} has words of {memory.width} bits: {unfitting_words[0]} does not fit.")
    return values
