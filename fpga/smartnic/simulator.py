"""The smartNIC under Verilator: Ethernet frames in, Ethernet frames out, and the cycles between them.

    nic = SmartNic(Settings(address="10.77.0.2"))
    nic.load(program)
    nic.send(frame)
    nic.run_until_idle()
    for cycle, frame in nic.receive(): ...
    nic.read_counters()["answered"]

The loop over cycles is in `harness.cpp`: a call runs millions of cycles. Time in the NIC is in cycles; it passes while
a method runs it, and stands still in between.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpga.count_action.load import load
from fpga.errors import FpgaError
from fpga.hdl import verilator
from fpga.hdl.design import Design, make_block_design
from fpga.photonic_mac.network import Optics
from fpga.smartnic.registers import OUTCOMES, TABLE_NUMBERS

if TYPE_CHECKING:
    from fpga.smartnic.program import NicProgram

TOP = "smartnic_loopback"
CONTROL_DATAPATH = "smartnic_control"
"""Name of the library datapath. A trace contains its counts and targets."""
COUNTER_NAMES = OUTCOMES
"""Counters of the NIC, in the order of its `counter_select_i`."""
SIGNAL_NAMES = (
    "start", "heading", "sending", "open", "partial_valid", "result_valid", "busy", "rx_valid", "rx_ready", "rx_last",
    "tx_valid", "tx_ready", "tx_last",
)  # fmt: skip
"""Signals of a trace, apart from `layer_numbers`."""
MAX_FRAME_BYTES = 9216
MEMORY_WORDS = 1 << 18
IDLE_LIMIT_CYCLES = 50_000_000
"""Cycles after which `run_until_idle` gives up."""

_FPGA_FOLDER = Path(__file__).resolve().parents[1]
_MODEL_TABLE, _LAYER_TABLE, _LOOK_UP_TABLE = TABLE_NUMBERS.values()
_TABLE_WORDS = 1 << 12
_PAUSE_UNIT = 1 << 16
_COUNT_WORDS, _TARGET_WORDS = 7, 6
"""Words of 32 bits that the harness copies of the counts and targets."""

Words = NDArray[np.uint64]
AnyWords = NDArray[np.uint64] | NDArray[np.uint8]


class SmartNicError(FpgaError, code="fpga.smartnic"):
    """A call that is not valid, or a simulated NIC that broke a rule of its bus."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a NIC. Raise ValueError for values outside their ranges.

    By default the memory is a DDR4 at 250 MHz: 40 cycles to the first word, and every 7.8 us a pause of
    0.35 us for refresh.
    """

    mac: str = "02:00:0a:4d:00:02"
    address: str = "10.77.0.2"
    port: int = 8500
    cycles_per_us: int = 250
    preamble: int = 10
    """Cycles of preamble before every layer."""
    limit: int = 1_000_000
    """Cycles after which an unfinished request fails."""
    optics: Optics = field(default_factory=Optics)
    apart: int = 0
    """Samples by which the weights' converter is later than the activations' converter, also in simulated light."""
    loss_factor: int = 128
    """128 times the factor that compensates the loss of light."""
    memory_latency: int = 40
    memory_refresh_every: int = 1950
    """Cycles from one pause of the memory to the next; 0 if the memory never pauses."""
    memory_refresh_cycles: int = 88

    def __post_init__(self) -> None:
        if not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", self.mac):
            raise ValueError(f"{self.mac!r} is not a MAC address such as 02:00:00:00:00:02")
        if int(self.mac[:2], 16) & 1:
            raise ValueError(f"{self.mac} is the MAC address of a group, not of one device")
        IPv4Address(self.address)
        limits = {
            "port": (1, 65535), "cycles_per_us": (1, 65535), "preamble": (1, 255), "limit": (1, 2**32 - 1),
            "apart": (0, 255), "loss_factor": (1, 1023),
            "memory_latency": (0, 255), "memory_refresh_every": (0, 65535), "memory_refresh_cycles": (0, 65535),
        }  # fmt: skip
        for name, (minimum, maximum) in limits.items():
            if not minimum <= getattr(self, name) <= maximum:
                raise ValueError(f"{name} must be {minimum} to {maximum}, not {getattr(self, name)}")
        if self.memory_refresh_every and self.memory_refresh_cycles >= self.memory_refresh_every:
            raise ValueError(
                f"memory_refresh_cycles is {self.memory_refresh_cycles}: it must be less than memory_refresh_every, "
                f"{self.memory_refresh_every}"
            )

    def list_inputs(self) -> dict[str, int]:
        """Return the inputs of the NIC that stay the same."""
        return {
            "mac": int(self.mac.replace(":", ""), 16),
            "address": int(IPv4Address(self.address)),
            "port": self.port,
            "cycles_per_us": self.cycles_per_us,
            "preamble": self.preamble,
            "limit": self.limit,
            "sparsity": int(self.optics.sparsity),
            "apart": self.apart,
            "loss_factor": self.loss_factor,
            "optics_apart": self.apart,
            "memory_latency": self.memory_latency,
            "memory_refresh_every": self.memory_refresh_every,
            "memory_refresh_cycles": self.memory_refresh_cycles,
            "optics_delay": self.optics.delay,
            "optics_shift": self.optics.shift,
            "optics_gain": self.optics.gain,
            "optics_noise": int(self.optics.noise),
            "optics_seed": self.optics.seed,
        }


@dataclass(frozen=True)
class Trace:
    """Signals of the NIC in consecutive cycles, with one value for each cycle."""

    signals: Mapping[str, NDArray[np.bool_]]
    layer_numbers: NDArray[np.uint8]
    counts: Mapping[str, NDArray[np.int64]]
    """Values of the accumulating counts of `smartnic_control`, by name, such as `sequencer.row`."""
    targets: Mapping[str, NDArray[np.int64]]
    """The target that the next commit sets, by count."""
    fires: Mapping[str, NDArray[np.bool_]]
    """Whether each count reaches its target."""


class SmartNic:
    """A verilated NIC with its state, in reset at first. `design` is a top with the ports of `smartnic_loopback`.

    The first use builds a shared library, which takes a minute; then it is in the cache (see `fpga.hdl.verilator`).
    Raise ToolMissing or ToolFailed, as building does.
    """

    def __init__(
        self, settings: Settings | None = None, *, design: Design | None = None, folder: Path | None = None,
        optimise_flag: str = "-O1",
    ) -> None:  # fmt: skip
        harness = (Path(__file__).parent / "harness.cpp").read_text(encoding="ascii")
        library = verilator.build_library(
            design or make_block_design(TOP), harness, folder, optimise_flag=optimise_flag
        )
        self.settings = settings or Settings()
        self._functions = _declare_functions(ctypes.CDLL(str(library)))
        self._pointer = ctypes.c_void_p(self._functions.nic_new())
        self._finalizer = weakref.finalize(self, self._functions.nic_delete, self._pointer)
        for name, value in self.settings.list_inputs().items():
            self.set_input(name, value)
        self.reset()

    @property
    def cycle(self) -> int:
        """Cycles since the NIC was made."""
        return int(self._functions.nic_cycle(self._get_pointer()))

    @property
    def waiting_frame_count(self) -> int:
        """Number of sent frames that the NIC has not completely received."""
        return int(self._functions.nic_waiting(self._get_pointer()))

    def set_input(self, name: str, value: int) -> None:
        """Set an input of the NIC by its name without `_i`, such as `memory_latency`, from the next cycle on."""
        if not self._functions.nic_set(self._get_pointer(), name.encode(), value):
            raise SmartNicError(f"{name!r} is not a setting of the NIC.")

    def load(self, program: NicProgram) -> None:
        """Write the models of a program into memory and tables, a word a cycle. Frames keep moving meanwhile.

        Raise SmartNicError for a program that is larger than the memory.
        """
        from fpga.smartnic.program import pack_layers, pack_look_up, pack_memory, pack_models

        for base, model in zip(program.model_bases, program.models, strict=True):
            if base + model.word_count > MEMORY_WORDS:
                raise SmartNicError(
                    f"{model.name}: with it the weights take {base + model.word_count} words; the memory has"
                    f" {MEMORY_WORDS}."
                )
        # The model table comes last, because it puts the models into service.
        self.write_memory(pack_memory(program))
        self.write_table(_LAYER_TABLE, pack_layers(program))
        self.write_table(_LOOK_UP_TABLE, pack_look_up(program))
        self.write_table(_MODEL_TABLE, pack_models(program))

    def write_memory(self, words: Words, address: int = 0) -> None:
        """Write `uint64[words, 4]` through the back door of the memory, a word a cycle. Raise SmartNicError."""
        rows = _to_rows(words, 4)
        if address < 0 or address + len(rows) > MEMORY_WORDS:
            raise SmartNicError(
                f"the memory has {MEMORY_WORDS} words of 32 bytes; {address + len(rows)} do not fit."
            )
        self._functions.nic_write_memory(self._get_pointer(), address, len(rows), rows.ctypes.data)

    def write_table(self, table: int, words: AnyWords, address: int = 0) -> None:
        """Write `uint64[words, 2]`, or `[words]`, into a table: 0 models, 1 layers, 2 look-up. Raise SmartNicError."""
        rows = _to_rows(words, 2)
        if address < 0 or address + len(rows) > _TABLE_WORDS:
            raise SmartNicError(f"a table has {_TABLE_WORDS} words; {address + len(rows)} do not fit.")
        self._functions.nic_write_table(self._get_pointer(), table, address, len(rows), rows.ctypes.data)

    def send(self, frame: bytes, *, is_bad: bool = False, gap: int = 0) -> None:
        """Queue a frame for the NIC, without its frame check sequence.

        `is_bad`: the MAC marked it as bad. `gap`: idle cycles before the frame. Raise SmartNicError for a frame
        without bytes, or of more than 9216.
        """
        if not 0 < len(frame) <= MAX_FRAME_BYTES:
            raise SmartNicError(f"a frame has 1 to {MAX_FRAME_BYTES} bytes, not {len(frame)}.")
        self._functions.nic_send(self._get_pointer(), bytes(frame), len(frame), int(is_bad), gap)

    def insert_pauses(self, receive_share: float = 0.0, transmit_share: float = 0.0, seed: int = 1) -> None:
        """Insert random pauses before beats to the NIC and before beats from it, with probabilities below 1."""
        if not (0 <= receive_share < 1 and 0 <= transmit_share < 1):
            raise ValueError(
                f"shares of pauses are at least 0 and below 1, not {receive_share} and {transmit_share}"
            )
        scaled_shares = (round(share * _PAUSE_UNIT) for share in (receive_share, transmit_share))
        self._functions.nic_pause(self._get_pointer(), *scaled_shares, seed)

    def run(self, cycle_count: int) -> None:
        """Run the NIC for `cycle_count` cycles. Raise SmartNicError if it breaks a rule of AXI-Stream."""
        self._functions.nic_run(self._get_pointer(), cycle_count, None, None)
        self._check_fault()

    def run_until_idle(self, max_cycles: int = IDLE_LIMIT_CYCLES) -> bool:
        """Run until no frame, request or answer is in the NIC; return False if it has work after `max_cycles` cycles.

        Raise SmartNicError if it breaks a rule of AXI-Stream.
        """
        is_idle = self._functions.nic_run_until_idle(self._get_pointer(), max_cycles)
        self._check_fault()
        return bool(is_idle)

    def trace(self, cycle_count: int) -> Trace:
        """Run for `cycle_count` cycles. Return the signals, counts and targets of each cycle before its clock edge."""
        signal_words = np.zeros(cycle_count, np.uint32)
        state_words = np.zeros((cycle_count, _COUNT_WORDS + _TARGET_WORDS + 1), np.uint32)
        self._functions.nic_run(
            self._get_pointer(), cycle_count, signal_words.ctypes.data, state_words.ctypes.data
        )
        self._check_fault()
        signals = {name: (signal_words >> bit & 1).astype(np.bool_) for bit, name in enumerate(SIGNAL_NAMES)}
        bits = np.unpackbits(state_words.view(np.uint8), axis=1, bitorder="little")
        datapath = load(_FPGA_FOLDER / "library" / f"{CONTROL_DATAPATH}.ca").datapath
        count_values = _split_bits(
            bits, ((f"{module.name}.{count.name}", count.width) for module, count in datapath.list_counts())
        )
        targets = _split_bits(
            bits[:, 32 * _COUNT_WORDS :],
            ((f"{module.name}.{target.name}", target.width) for module, target in datapath.list_targets()),
        )
        fires = _split_bits(
            bits[:, 32 * (_COUNT_WORDS + _TARGET_WORDS) :], ((name, 1) for name in count_values)
        )
        target_names = {
            f"{module.name}.{count.name}": f"{module.name}.{count.target}"
            for module, count in datapath.list_counts()
            if count.accumulates
        }
        return Trace(
            signals,
            (signal_words >> 16).astype(np.uint8),
            {name: count_values[name] for name in target_names},
            {name: targets[target] for name, target in target_names.items()},
            {name: fires[name].astype(np.bool_) for name in target_names},
        )

    def receive(self) -> list[tuple[int, bytes]]:
        """Take the frames that the NIC has sent since the last call, each with the cycle of its last beat."""
        pointer, frames = self._get_pointer(), []
        while (size := self._functions.nic_size(pointer)) >= 0:
            frame = ctypes.create_string_buffer(size)
            cycle = self._functions.nic_receive(pointer, frame)
            frames.append((int(cycle), frame.raw))
        return frames

    def list_arrivals(self) -> list[int]:
        """Return the cycles of the last beats of the frames that the NIC has taken since the last call."""
        pointer, cycles = self._get_pointer(), []
        while (cycle := self._functions.nic_taken(pointer)) >= 0:
            cycles.append(int(cycle))
        return cycles

    def read_counters(self) -> dict[str, int]:
        """Return the counters of the NIC by name. Reading takes two cycles for each."""
        values = np.zeros(len(COUNTER_NAMES), np.uint32)
        self._functions.nic_counters(self._get_pointer(), len(values), values.ctypes.data)
        return dict(zip(COUNTER_NAMES, values.tolist(), strict=True))

    def hold(self, is_held: bool = True) -> None:
        """Begin no further requests; with `is_held` false, begin requests again."""
        self.set_input("hold", int(is_held))

    def abort(self) -> None:
        """Refuse the current request with FAILED, in one cycle. Waiting requests are then answered."""
        self.set_input("abort", 1)
        self.run(1)
        self.set_input("abort", 0)

    def reload(self, program: NicProgram, max_cycles: int = IDLE_LIMIT_CYCLES) -> None:
        """Load another program between two requests; then answer waiting requests, or refuse them with FAILED.

        Raise SmartNicError if the current request does not end within `max_cycles` cycles, or for a program that is too
        large.
        """
        self.hold()
        try:
            if not self._functions.nic_run_until_unoccupied(self._get_pointer(), max_cycles):
                raise SmartNicError(f"the current request did not end within {max_cycles} cycles.")
            self.load(program)
        finally:
            self.hold(is_held=False)

    def reset(self) -> None:
        """Reset the NIC. Frames that wait or are in it are lost, and no model is in service until `load`."""
        self._functions.nic_reset(self._get_pointer())

    def close(self) -> None:
        """Free the memory of the model. Closing it again does nothing."""
        self._finalizer()

    def _get_pointer(self) -> ctypes.c_void_p:
        if not self._finalizer.alive:
            raise SmartNicError("the NIC is closed. Make another one.")
        return self._pointer

    def _check_fault(self) -> None:
        if fault := self._functions.nic_fault(self._pointer):
            raise SmartNicError(f"{fault.decode()}, before cycle {self.cycle}.")


def _split_bits(bits: NDArray[np.uint8], fields: Iterable[tuple[str, int]]) -> dict[str, NDArray[np.int64]]:
    """Return the fields of each row of bits, by name; the first field has the lowest bits."""
    values, low = {}, 0
    for name, width in fields:
        values[name] = bits[:, low : low + width].astype(np.int64) @ (1 << np.arange(width))
        low += width
    return values


def _to_rows(words: AnyWords, column_count: int) -> Words:
    """Return words as contiguous rows of `column_count` 64-bit columns; missing columns are 0. Raise SmartNicError."""
    values = np.asarray(words)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] > column_count or values.dtype.kind not in "ui":
        raise SmartNicError(
            f"words are uint64[words, {column_count}], not {values.dtype}{list(values.shape)}."
        )
    rows = np.zeros((len(values), column_count), np.uint64)
    rows[:, : values.shape[1]] = values
    return rows


def _declare_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the functions of the harness."""
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    types: dict[str, tuple[object, ...]] = {
        "new": (pointer,),
        "delete": (None, pointer),
        "set": (ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_uint64),
        "pause": (None, pointer, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64),
        "run": (None, pointer, int64, pointer, pointer),
        "run_until_idle": (ctypes.c_int, pointer, int64),
        "run_until_unoccupied": (ctypes.c_int, pointer, int64),
        "reset": (None, pointer),
        "send": (None, pointer, ctypes.c_char_p, int64, ctypes.c_int, int64),
        "size": (int64, pointer),
        "receive": (int64, pointer, pointer),
        "taken": (int64, pointer),
        "waiting": (int64, pointer),
        "cycle": (int64, pointer),
        "fault": (ctypes.c_char_p, pointer),
        "write_memory": (None, pointer, int64, int64, pointer),
        "write_table": (None, pointer, ctypes.c_int, int64, int64, pointer),
        "counters": (None, pointer, ctypes.c_int, pointer),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"nic_{name}")
        function.restype, function.argtypes = result, arguments
    return library
