"""Measurement of tiles on a device: one program plays as many tiles as fit in the generators' memories.

The memory of each generator holds the envelopes of all tiles in sequence. For each tile the program advances the
address, plays the four generators, and opens one window of the accumulating readout. One run thus returns one sum per
tile and shot, for any number of products in a tile. The first and last tiles of every run are dark. Their mean is
subtracted from the others.

Sums have two advantages over decimated samples. A window of the accumulating readout may be as long as the tile, while
the decimated buffer holds 1,024 samples. And the readout's filter, which mixes neighbouring symbols, does not change
their sum, so symbols may be much shorter than the filter (2 ticks against 15).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lightning.errors import ProgramError, WrongChannel
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.calibration.measurement.batch import OSCILLATOR_GAIN
from lightning.kit.dot.symbol import Alignment, Samples, Symbol, Tile
from lightning.kit.settings import MODULATOR_COUNT
from lightning.optional import require

FULL_GAIN = 32767
DARK_TILE_COUNT = 4
"""Dark tiles at each end of a run of short tiles. A run of long tiles has one at each end."""
REST_TICKS = 240
"""Pause between two tiles. The processor needs about 100 ticks to count, advance addresses and set four pulses; with a
shorter pause the pulses would play late."""
MAX_PULSE_TICKS = 60_000
"""Limit of a pulse, whose length has 16 bits."""


@dataclass(frozen=True, slots=True)
class SignalPath:
    """The path of a signal through the kit: generators of the modulators, readout of the detector, and alignment."""

    channels: tuple[int, ...]
    readout: int
    alignment: Alignment


class TileReader:
    """Measurement of tiles on one device.

    `soc` is the result of `lightning.connect`, or a `QickSoc`. Every call has a deadline. Raise `ProgramError` if the
    processor is not version 1, or if generators, readout and processor do not run at one rate. Raise `WrongChannel` if
    the firmware lacks the calibration's generators or readout.
    """

    def __init__(self, soc: Any, calibration: Calibration) -> None:
        from lightning.kit.devices.guard import guard_soc

        self.soc = soc = guard_soc(soc)
        channels = tuple(modulator.channel for modulator in calibration.modulators)
        _check_firmware(soc, channels, calibration.readout)
        first_generator = soc["gens"][channels[0]]
        self.samples_per_tick = int(first_generator["samps_per_clk"])
        self.memory_length = min(int(soc["gens"][channel]["maxlen"]) for channel in channels)
        self.buffer_length = int(soc["readouts"][calibration.readout]["avg_maxlen"]) - 1
        self.decimated_length = int(soc["readouts"][calibration.readout]["buf_maxlen"]) - 1
        alignment = Alignment.from_timing(calibration.timing, self.samples_per_tick)
        self.signal_path = SignalPath(channels, calibration.readout, alignment)

    def make_tile(self, symbol_count: int, symbol: Symbol) -> Tile:
        """Return the dimensions of a tile with this number of symbols on this device."""
        return Tile(symbol_count, symbol, self.samples_per_tick)

    def count_max_symbols(self, symbol: Symbol) -> int:
        """Return the number of symbols in the longest tile that fits in a run with two dark tiles."""
        ticks = min(self.memory_length // self.samples_per_tick // 3, MAX_PULSE_TICKS)
        edge_ticks = self.make_tile(0, symbol).ticks
        return (ticks - edge_ticks) * self.samples_per_tick // symbol.sample_count

    def count_tiles_per_run(self, tile: Tile) -> int:
        """Return the number of tiles that fit in one run besides the dark tiles."""
        return min(self.memory_length // tile.sample_count, self.buffer_length) - 2 * self.count_dark_tiles(
            tile
        )

    def count_dark_tiles(self, tile: Tile) -> int:
        """Return the number of dark tiles at each end of a run."""
        return DARK_TILE_COUNT if 8 * DARK_TILE_COUNT * tile.sample_count <= self.memory_length else 1

    def measure_sums(self, envelopes: Samples, tile: Tile, dark_envelopes: Samples, *, shots: int) -> Floats:
        """Return the light of each tile in counts times ticks, (tiles, shots). The light of dark tiles is subtracted.

        `envelopes` are (4, tiles, samples), `dark_envelopes` (4, samples). The tiles take several runs if one run
        cannot hold them.
        """
        tiles_per_run = self.count_tiles_per_run(tile)
        sums_by_run = [
            self._measure_run(envelopes[:, start : start + tiles_per_run], tile, dark_envelopes, shots)
            for start in range(0, envelopes.shape[1], tiles_per_run)
        ]
        return np.concatenate(sums_by_run)

    def measure_trace(self, envelopes: Samples, tile: Tile, *, round_count: int) -> Floats:
        """Play one tile and return the decimated counts of its window, (samples,), averaged over `round_count`.

        `envelopes` are (4, samples).
        """
        self._load_envelopes(envelopes)
        program = self.make_program(tile, 1, 1)
        runs = [
            program.acquire_decimated(self.soc, load_envelopes=False, progress=False)
            for _ in range(round_count)
        ]
        counts: Floats = OSCILLATOR_GAIN * np.asarray(runs, dtype=float).mean(axis=0).reshape(-1, 2)[:, 0]
        return counts

    def _measure_run(self, envelopes: Samples, tile: Tile, dark_envelopes: Samples, shots: int) -> Floats:
        dark_tile_count = self.count_dark_tiles(tile)
        dark_tile_envelopes = np.repeat(dark_envelopes[:, None, :], dark_tile_count, axis=1)
        all_envelopes = np.concatenate([dark_tile_envelopes, envelopes, dark_tile_envelopes], axis=1)
        tile_count = all_envelopes.shape[1]
        self._load_envelopes(all_envelopes.reshape(MODULATOR_COUNT, -1))
        shots_per_pass = max(1, self.buffer_length // tile_count)
        shots_by_pass = [min(shots_per_pass, shots - start) for start in range(0, shots, shots_per_pass)]
        raw = np.concatenate([self._measure_pass(tile, tile_count, count) for count in shots_by_pass], axis=1)
        dark_level = float(np.concatenate([raw[:dark_tile_count], raw[-dark_tile_count:]]).mean())
        light: Floats = raw[dark_tile_count:-dark_tile_count] - dark_level
        return light

    def _measure_pass(self, tile: Tile, tile_count: int, shots: int) -> Floats:
        """Execute the program once and return the raw sums in counts times ticks, (tiles, shots)."""
        program = self.make_program(tile, tile_count, shots)
        program.acquire(self.soc, load_pulses=False, progress=False)
        counts = np.asarray(program.get_raw()[0], dtype=float).reshape(tile_count, shots, -1, 2)
        sums: Floats = OSCILLATOR_GAIN * counts[:, :, 0, 0]
        return sums

    def make_program(self, tile: Tile, tile_count: int, shots: int) -> Any:
        """Return the QICK program for a run of `tile_count` tiles, including dark tiles."""
        return _load_program_class()(self.soc, tile, tile_count, shots, self.signal_path)

    def _load_envelopes(self, envelopes: Samples) -> None:
        """Load (4, samples) envelopes into the memories of the generators."""
        for channel, samples in zip(self.signal_path.channels, envelopes, strict=True):
            iq_samples = np.zeros((samples.size, 2), dtype=np.int16)
            iq_samples[:, 0] = samples
            self.soc.load_envelope(
                channel, data=iq_samples if _is_local(self.soc) else iq_samples.tolist(), addr=0
            )


def _is_local(soc: Any) -> bool:
    """Return whether the device is an object of this process.

    A device in another process gets lists instead of arrays, because its version of numpy may differ.
    """
    from qick import QickConfig

    return isinstance(getattr(soc, "unguarded", soc), QickConfig)


def _check_firmware(soc: Any, channels: tuple[int, ...], readout: int) -> None:
    processor = soc["tprocs"][0]
    if processor["type"] != "axis_tproc64x32_x8":
        raise ProgramError(
            f"vectors need the timed processor of version 1, but this firmware has {processor['type']}",
            hint="Load the kit's firmware, or multiply pair by pair with LightningControl",
        )
    if max(channels) >= len(soc["gens"]) or readout >= len(soc["readouts"]):
        raise WrongChannel(
            (
                f"the calibration uses generators {channels} and readout {readout}, but this firmware has "
                f"{len(soc['gens'])} and {len(soc['readouts'])}"
            ),
            hint="Run `lightning calibrate` with this firmware",
        )
    rates = {float(soc["gens"][channel]["f_fabric"]) for channel in channels}
    rates |= {float(processor["f_time"]), float(soc["readouts"][readout]["f_output"])}
    if len(rates) > 1:
        raise ProgramError(
            f"generators, readout and processor run at {sorted(rates)} MHz; tiles need one common rate",
            hint="Load the kit's firmware",
        )


@lru_cache(maxsize=1)
def _load_program_class() -> Any:
    """Return a subclass of QICK's sweep program that plays tiles. Imports QICK only here: it is optional."""
    qick = require("qick", "to compile programs for the board")

    class TileProgram(qick.RAveragerProgram):  # type: ignore[misc, name-defined]  # QICK has no types
        """A program that plays tiles from the envelope memories, with one window for each."""

        def __init__(
            self, soccfg: Any, tile: Tile, tile_count: int, shots: int, signal_path: SignalPath
        ) -> None:
            self.tile, self.signal_path = tile, signal_path
            super().__init__(soccfg, {"expts": tile_count, "reps": shots, "start": 0, "step": 1})

        def initialize(self) -> None:
            self.declare_readout(
                ch=self.signal_path.readout, length=self.tile.window_ticks, freq=0, sel="input"
            )
            blank = np.zeros(self.tile.sample_count)
            for channel in self.signal_path.channels:
                self.declare_gen(ch=channel, nqz=1)
                self.add_envelope(ch=channel, name="tile", idata=blank)
                self.set_pulse_registers(
                    ch=channel, style="arb", outsel="input", freq=0, phase=0, gain=FULL_GAIN, waveform="tile"
                )
            self.synci(200)

        def body(self) -> None:
            for channel, delay in zip(
                self.signal_path.channels, self.signal_path.alignment.delay_ticks, strict=True
            ):
                self.pulse(ch=channel, t=delay)
            offset = self.signal_path.alignment.arrival_ticks + self.tile.offset_ticks
            self.trigger(adcs=[self.signal_path.readout], adc_trig_offset=offset, t=0)
            self.wait_all()
            self.sync_all(REST_TICKS)

        def update(self) -> None:
            for channel in self.signal_path.channels:
                page, address = self.ch_page(channel), self.sreg(channel, "addr")
                self.mathi(page, address, address, "+", self.tile.ticks)

    return TileProgram
