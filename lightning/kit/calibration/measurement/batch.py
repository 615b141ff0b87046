"""Measurement of many rows of gain words in one program of the timed processor.

A row holds one gain word per modulator. The generators play pulses with the gains of a row, and one window of the
readout, inside the pulses, gives one reading.
The words form a table in the processor's data memory, with four 32-bit words a row. For each row the program loads the
gain registers (`memr`), plays the four pulses, and opens the window. One run thus measures about a thousand rows,
`shots` times each, without the host: the results collect in the accumulating buffer.

    reader = TableReader(soc)                  # the board, or its twin
    readings = reader.read(words, shots=4)     # (n, 4) gain words
    readings.levels                            # (n,) counts above the idle level

The same run measures the idle level: the first and last rows of every table are zero words.

Words have 16 bits and the generators' converters have 14, so four consecutive words give the same level. A dither makes
the mean change with every word w: if the number of shots is a multiple of four, the shots use w, w+1, w+2 and w+3
equally often. Only version 1 of the timed processor (the kit's firmware) is supported; others raise `ProgramError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning import errors
from lightning.kit.calibration.fringe import Floats
from lightning.kit.settings import check_integer
from lightning.optional import require

DEFAULT_CHANNELS = (0, 1, 2, 3)
READOUT = 1
"""The kit's detector: readout index 1 in the published configuration."""
TABLE_ADDRESS = 16
"""First word of the table in data memory; QICK counts shots in word 1."""
ADDRESS_REGISTERS = (1, 2, 3, 4)
"""Registers for the table addresses of the four generators. The numbers differ, because two generators may share a page
of registers. QICK leaves these registers free on every page."""
IDLE_ROW_COUNT = 8
"""Idle rows at each end of a table."""
DITHER_STEPS = np.arange(4, dtype=np.int32)
"""Added to the words of a row. Four consecutive words are one step of a 14-bit converter."""
OSCILLATOR_GAIN = 0.5
"""Converts accumulated readings to counts of a decimated waveform. The readout's oscillator halves waveforms, because
its product keeps the upper 16 of 32 bits. Accumulated readings do not pass the oscillator."""
MAX_SHOTS = 1_000_000
SETTLE_TICKS = 24
"""Margin between the window and the ends of the pulses. It covers the rise and fall times and the residual skew."""


@dataclass(frozen=True, slots=True)
class Window:
    """Times of a reading, in ticks of the readout (decimated samples)."""

    length: int = 16
    """Decimated samples averaged into one reading."""
    offset: int = 190
    """Delay of the readout trigger after the nominal start of the pulses."""
    lead_ticks: int = 40
    """Time by which the pulses exceed the window at each end."""
    delays: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Delay of each generator, so that all act at the same time."""
    relax_us: float = 1.0

    @classmethod
    def for_arrival(cls, arrival_ticks: Sequence[float], *, length: int = 16) -> Window:
        """Return the window for light that arrives `arrival_ticks` ticks after the pulses, one number per generator.

        >>> Window.for_arrival((146.0, 146.2, 140.0, 146.1)).delays
        (0, 0, 6, 0)
        """
        latest_ticks = max(arrival_ticks)
        delay_0, delay_1, delay_2, delay_3 = (round(latest_ticks - ticks) for ticks in arrival_ticks)
        return cls(
            length, math.ceil(latest_ticks) + SETTLE_TICKS, SETTLE_TICKS, (delay_0, delay_1, delay_2, delay_3)
        )

    @property
    def pulse_length(self) -> int:
        """Length of the pulses, in ticks of the readout."""
        return self.length + 2 * self.lead_ticks


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of a table of rows."""

    levels: Floats
    """(rows,) mean counts above the idle level."""
    idle_level: float
    """Counts with all words zero."""
    single_readings: Floats
    """(rows, shots) each reading above the idle level, in the order of time."""

    @property
    def peak_level(self) -> float:
        """Greatest level at the converter, which includes the idle level."""
        return float(self.levels.max(initial=0.0)) + self.idle_level


class TableReader:
    """Measurement of rows of gain words on one device.

    `soc` is the result of `lightning.connect`, or a `QickSoc`. Every call has a deadline, so a lost board raises
    `DeviceStuck` or `DeviceGone` instead of hanging. Raise `ProgramError` if the processor is not version 1,
    `WrongChannel` if the firmware lacks these generators or this readout.
    """

    def __init__(
        self,
        soc: Any,
        *,
        channels: tuple[int, int, int, int] = DEFAULT_CHANNELS,
        readout: int = READOUT,
        window: Window | None = None,
    ) -> None:
        check_firmware(soc, channels, readout)
        from lightning.kit.devices.guard import guard_soc

        self.soc = guard_soc(soc)
        self.channels = channels
        self.readout = readout
        self.window = window or Window()

    @property
    def row_capacity(self) -> int:
        """Number of rows that fit in one table besides its idle rows."""
        memory_rows = (int(self.soc["tprocs"][0]["dmem_size"]) - TABLE_ADDRESS) // 4
        buffer_rows = int(self.soc["readouts"][self.readout]["avg_maxlen"]) - 1
        return min(memory_rows, buffer_rows) - 2 * IDLE_ROW_COUNT

    def read(self, words: npt.ArrayLike, *, shots: int = 1) -> Readings:
        """Measure (n, 4) gain words, each `shots` times.

        Raise `OutOfRange` for words beyond the generators' 16 bits, an empty table, or shots outside 1 to a million.
        """
        table = _check_table(words, shots)
        row_count, run_shots = len(table), shots
        if shots % DITHER_STEPS.size == 0:
            table = np.clip(table[:, None, :] + DITHER_STEPS[:, None], -32768, 32767).reshape(-1, 4)
            run_shots = shots // DITHER_STEPS.size
        readings = [
            self._run_table(table[start : start + self.row_capacity], run_shots)
            for start in range(0, len(table), self.row_capacity)
        ]
        single_readings = np.concatenate(
            [table_readings.single_readings for table_readings in readings]
        ).reshape(row_count, shots)
        idle_level = float(np.mean([table_readings.idle_level for table_readings in readings]))
        return Readings(single_readings.mean(axis=1), idle_level, single_readings)

    def _run_table(self, rows: npt.NDArray[np.int32], shots: int) -> Readings:
        """Run one table, in as many passes as the accumulating buffer needs."""
        idle_rows = np.zeros((IDLE_ROW_COUNT, 4), dtype=np.int32)
        table = np.concatenate([idle_rows, rows, idle_rows])
        shots_per_pass = max(1, (int(self.soc["readouts"][self.readout]["avg_maxlen"]) - 1) // len(table))
        shots_by_pass = [min(shots_per_pass, shots - start) for start in range(0, shots, shots_per_pass)]
        raw = np.concatenate([self._run_pass(table, count) for count in shots_by_pass], axis=1)
        idle_level = float(np.concatenate([raw[:IDLE_ROW_COUNT], raw[-IDLE_ROW_COUNT:]]).mean())
        single_readings = raw[IDLE_ROW_COUNT:-IDLE_ROW_COUNT] - idle_level
        return Readings(single_readings.mean(axis=1), idle_level, single_readings)

    def _run_pass(self, table: npt.NDArray[np.int32], shots: int) -> Floats:
        """Return the raw readings in counts per decimated sample, (rows, shots)."""
        program = self.make_program(row_count=len(table), shots=shots)
        self.soc.load_mem(table.ravel(), mem_sel="dmem", addr=TABLE_ADDRESS)
        program.acquire(self.soc, progress=False)
        counts = np.asarray(program.get_raw()[0], dtype=float).reshape(len(table), shots, -1, 2)
        single_readings: Floats = OSCILLATOR_GAIN * counts[:, :, 0, 0] / self.window.length
        return single_readings

    def make_program(self, *, row_count: int, shots: int) -> Any:
        """Return the compiled program for a table of `row_count` rows, including idle rows."""
        config = {"expts": row_count, "reps": shots, "start": 0, "step": 1}
        return _load_program_class()(self.soc, config, self.channels, self.readout, self.window)


def to_processor_ticks(soccfg: Any, readout: int, ticks: float) -> int:
    """Convert ticks of a readout to ticks of the timed processor, rounded. On the kit both clocks are equal."""
    return round(
        ticks * float(soccfg["tprocs"][0]["f_time"]) / float(soccfg["readouts"][readout]["f_output"])
    )


def to_generator_ticks(soccfg: Any, readout: int, channel: int, ticks: float) -> int:
    """Convert ticks of a readout to ticks of a generator, rounded up."""
    ratio = float(soccfg["gens"][channel]["f_fabric"]) / float(soccfg["readouts"][readout]["f_output"])
    return math.ceil(round(ticks * ratio, 6))


def check_firmware(soc: Any, channels: tuple[int, ...], readout: int) -> None:
    """Raise `ProgramError` or `WrongChannel` if this firmware cannot measure tables."""
    processor_type, device = soc["tprocs"][0]["type"], str(getattr(soc, "identity", ""))
    if processor_type != "axis_tproc64x32_x8":
        raise errors.ProgramError(
            "tables are measured by the timed processor of version 1 (axis_tproc64x32_x8); this firmware has"
            f" {processor_type}",
            device=device,
            hint="load the kit's firmware, or measure row by row with LightningControl",
        )
    missing_channels = [channel for channel in channels if not 0 <= channel < len(soc["gens"])]
    if missing_channels or not 0 <= readout < len(soc["readouts"]):
        raise errors.WrongChannel(
            (
                f"this firmware has {len(soc['gens'])} generators and {len(soc['readouts'])} readouts; "
                f"generators {channels} and readout {readout} are needed"
            ),
            device=device,
            hint="load the kit's firmware, or give the channels that your kit is wired to",
        )


def _check_table(words: npt.ArrayLike, shots: int) -> npt.NDArray[np.int32]:
    check_integer("shots", shots, 1, MAX_SHOTS)
    table = np.atleast_2d(np.asarray(words, dtype=np.int64))
    if table.ndim != 2 or table.shape[1] != 4 or not len(table):
        raise errors.OutOfRange(
            f"the table must have rows of four gain words, at least one, not shape {table.shape}"
        )
    if np.abs(table).max() > 32767:
        raise errors.OutOfRange(
            f"gain words have 16 bits including the sign; {int(np.abs(table).max())} has more"
        )
    return table.astype(np.int32)


@lru_cache(maxsize=1)
def _load_program_class() -> Any:
    """Return a subclass of QICK's sweep program that reads a table. Imports QICK only here: it is optional."""
    qick = require("qick", "to compile programs for the board")

    class TableProgram(qick.RAveragerProgram):  # type: ignore[misc, name-defined]  # QICK has no types
        """A program that for each row loads four gain words, plays four pulses and reads one window."""

        def __init__(
            self, soccfg: Any, cfg: dict[str, Any], channels: tuple[int, ...], readout: int, window: Window
        ) -> None:
            self.channel_registers = tuple(zip(channels, ADDRESS_REGISTERS, window.delays, strict=True))
            self.readout, self.window = readout, window
            super().__init__(soccfg, cfg)

        def initialize(self) -> None:
            self.declare_readout(ch=self.readout, length=self.window.length, freq=0, sel="input")
            for index, (channel, address_register, _) in enumerate(self.channel_registers):
                length = to_generator_ticks(self.soccfg, self.readout, channel, self.window.pulse_length)
                self.declare_gen(ch=channel, nqz=1)
                self.set_pulse_registers(ch=channel, style="const", freq=0, phase=0, gain=0, length=length)
                self.regwi(self.ch_page(channel), address_register, TABLE_ADDRESS + index)
            self.synci(200)

        def body(self) -> None:
            for channel, address_register, _ in self.channel_registers:
                self.memr(self.ch_page(channel), self.sreg(channel, "gain"), address_register)
            for channel, _, delay in self.channel_registers:
                self.pulse(ch=channel, t=to_processor_ticks(self.soccfg, self.readout, delay))
            offset = to_processor_ticks(self.soccfg, self.readout, self.window.offset)
            self.trigger(adcs=[self.readout], adc_trig_offset=offset, t=0)
            self.wait_all()
            self.sync_all(self.us2cycles(self.window.relax_us))

        def update(self) -> None:
            for channel, address_register, _ in self.channel_registers:
                page = self.ch_page(channel)
                self.mathi(page, address_register, address_register, "+", 4)

    return TableProgram
