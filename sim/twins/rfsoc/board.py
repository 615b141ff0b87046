"""The simulated board: processor, generators, readouts, clock, faults and knobs. `soc` adds QICK's interface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.core import Core
from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.plant import Plant
from sim.twins.rfsoc.processor import Run
from sim.twins.rfsoc.signals import decimation
from sim.twins.rfsoc.signals.playback import (
    BoardState,
    ChannelStates,
    Playback,
    cut_run,
    play_run,
)
from sim.twins.rfsoc.signals.readout import Converter, Readout

CALL_DURATION_S = 20e-6
"""Device time of a call that writes registers over a memory bus, including Python on the board."""
COUNTER_READ_DURATION_S = 50e-6
"""Device time of one read of the shot counter."""
TRANSFER_DURATION_S = 200e-6
"""Device time of one DMA transfer."""
START_DURATION_S = 5e-6
"""Device time between a start and the first instruction."""
DRIFT_PERIOD_S = 1.0
"""Period in which drifting quantities are updated during a run."""
READ_TIME_GROWTH = 2.0
"""Factor by which the device time of a read grows after each read without a new value."""

FAULTS: Mapping[str, str] = {
    "none": "all is well",
    "dead_board": "no call is answered: ConnectionError",
    "gone_in_acquisition": "the board answers until it is asked for the counter of a running program, and never again",
    "stuck_counter": "the counter of shots stays where it is, and programs seem never to end",
    "overrun": "whoever reads the counter comes so seldom that more shots have passed than the memory of sums holds",
    "wrong_clock": "the reference clock is 5 % low: clocks are not locked, and rates are not those of the profile",
}

LIGHT_FAULT = "laser_dropped"
"""Fault of the photonic kit. It is a knob of the kit, and can also be set as a fault of the board."""
OVERRUN_READ_DURATION_S = 1.0
"""Device time between two reads of the counter under the fault `overrun`."""
WRONG_CLOCK_FACTOR = 0.95
CONVERTER_BITS_RANGE = range(4, 17)


class DeviceClock:
    """Device time in seconds since power-on. The plant has not yet advanced by the unaccounted part of this time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._unaccounted_s = 0.0
        self._read_time_s = COUNTER_READ_DURATION_S

    def spend_time(self, duration_s: float) -> None:
        """Advance the time."""
        self.now_s += duration_s
        self._unaccounted_s += duration_s

    @property
    def accounted_s(self) -> float:
        """Time up to which the plant has been advanced."""
        return self.now_s - self._unaccounted_s

    def account_for_time(self, max_s: float = math.inf) -> float:
        """Return the unaccounted seconds, at most `max_s`, and count the returned seconds as accounted."""
        passed_s = min(self._unaccounted_s, max_s)
        self._unaccounted_s -= passed_s
        return passed_s

    def spend_read_time(self, next_change_s: float | None) -> None:
        """Spend the time of one read of a counter.

        The counter changes next, or the program ends, at `next_change_s` (None for never). Each read without a new
        value takes longer than the previous read, so a client that waits for a second needs 20 reads instead of 20,000.
        No read ends later than `COUNTER_READ_DURATION_S` after the change.
        """
        max_read_s = (
            self._read_time_s
            if next_change_s is None
            else max(next_change_s - self.now_s, 0.0) + COUNTER_READ_DURATION_S
        )
        self.spend_time(min(self._read_time_s, max_read_s))
        self._read_time_s = min(self._read_time_s * READ_TIME_GROWTH, 1.0)

    def reset_read_time(self) -> None:
        """Make the next read short again. Call this after a read with a new value."""
        self._read_time_s = COUNTER_READ_DURATION_S


def check_fault(name: str) -> str:
    """Return the name of a fault. Raise `ValueError` if it is unknown.

    >>> check_fault("dead_board")
    'dead_board'
    """
    if name not in FAULTS:
        raise ValueError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
    return name


class BoardKnobs(MutableMapping[str, Any]):
    """Knobs of a board and its plant: `adc_bits` (4 to 16), `filter` ("fir", "mean"), `fault`, and knobs of the plant.

    Raise `KeyError` for an unknown name, and `ValueError` for an invalid value. Deleting a knob resets it.
    """

    def __init__(
        self, adc_bits: int, plant_knobs: MutableMapping[str, Any], options: Mapping[str, str] | None = None
    ) -> None:
        self._board_knobs: dict[str, Any] = {"adc_bits": adc_bits, "filter": "fir", "fault": "none"}
        self._plant_knobs = plant_knobs
        for name, value in (options or {}).items():
            self[name] = value
        self._defaults = dict(self._board_knobs)

    def __getitem__(self, name: str) -> Any:
        return self._board_knobs[name] if name in self._board_knobs else self._plant_knobs[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "adc_bits":
            if str(value) not in {str(bits) for bits in CONVERTER_BITS_RANGE}:
                raise ValueError(
                    f"adc_bits must be {CONVERTER_BITS_RANGE[0]} to {CONVERTER_BITS_RANGE[-1]}, not {value!r}"
                )
            self._board_knobs[name] = int(value)
        elif name == "filter":
            decimation.make_taps(value)
            self._board_knobs[name] = value
        elif name == "fault":
            # A plant that has a knob of this name implements the fault itself.
            if value != LIGHT_FAULT or LIGHT_FAULT not in self._plant_knobs:
                check_fault(value)
            if LIGHT_FAULT in {value, self._board_knobs["fault"]}:
                self._plant_knobs[LIGHT_FAULT] = value == LIGHT_FAULT
            self._board_knobs["fault"] = value
        else:
            self._plant_knobs[name] = value

    def __delitem__(self, name: str) -> None:
        """Reset a knob to its initial value."""
        if name in self._defaults:
            self[name] = self._defaults[name]
        else:
            del self._plant_knobs[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._board_knobs
        yield from (name for name in self._plant_knobs if name not in self._board_knobs)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(slots=True)
class RunningProgram:
    """A program that was started, and may have ended since."""

    playback: Playback
    start_s: float
    ticks_per_s: float
    counter_bases: dict[int, tuple[float, int]]
    """For each counter, by address: the tick after which its changes count, and its value until then."""
    earlier_states: ChannelStates
    """Pulses and readout settings at the start."""
    stop_tick: float | None = None
    """Tick at which the program was stopped, or None."""

    def compute_tick(self, now_s: float) -> float:
        """Return the time since the start, in ticks of the processor."""
        return (now_s - self.start_s) * self.ticks_per_s


class Board:
    """One board. `lock` serializes the two threads that use it, one of which is QICK's streaming reader."""

    def __init__(
        self,
        cfg: dict[str, Any],
        plant: Plant,
        knobs: BoardKnobs,
        *,
        seed: int,
        instruction_limit: int | None = None,
    ) -> None:
        self.cfg = cfg
        self.plant = plant
        self.knobs = knobs
        self.clock = DeviceClock()
        self.lock = RLock()
        self.core = Core(cfg["tprocs"][0], cfg["readouts"], instruction_limit)
        self.envelopes = [np.zeros((gen["maxlen"], 2), np.int16) for gen in cfg["gens"]]
        self.start_source = "internal"
        rngs = np.random.default_rng(seed).spawn(len(cfg["readouts"]))
        self.readouts = [
            Readout(number, ro, cfg["tprocs"][0]["f_time"], plant, rng)
            for number, (ro, rng) in enumerate(zip(cfg["readouts"], rngs, strict=True))
        ]
        self._envelopes_version = 0
        self.channel_states: ChannelStates = {}
        self._running: RunningProgram | None = None
        self._last_playback: tuple[Run, tuple[Any, ...], Playback] | None = None
        self._is_unreachable = False
        self.converter = self._make_converter()

    @property
    def clock_factor(self) -> float:
        """Ratio of the clock rates to the configured rates."""
        return WRONG_CLOCK_FACTOR if self.knobs["fault"] == "wrong_clock" else 1.0

    def begin_call(self, duration_s: float = CALL_DURATION_S) -> None:
        """Spend the device time of a call. Raise `ConnectionError` if a fault makes the board unreachable."""
        if self._is_unreachable or self.knobs["fault"] == "dead_board":
            raise ConnectionError(
                "the board does not answer: check its power and its network, then connect again"
            )
        self.clock.spend_time(duration_s)

    def elapse(self, duration_s: float) -> None:
        """Advance the device time and the plant."""
        self.clock.spend_time(duration_s)
        self.store_ended_windows()
        self.plant.elapse(self.clock.account_for_time())

    def load_envelope(self, generator: int, samples: npt.NDArray[np.int16], address: int) -> None:
        """Write samples (n, 2) of an envelope from `address`.

        Raise `RuntimeError` if the samples exceed the memory. Raise `NotImplementedError` for a nonzero Q if the
        generator accepts only real envelopes.
        """
        self.store_ended_windows()
        cfg = self.cfg["gens"][generator]
        if len(samples) + address > cfg["maxlen"]:
            raise RuntimeError(
                f"an envelope of {len(samples)} samples at address {address} does not fit: generator {generator} "
                f"has room for {cfg['maxlen']}"
            )
        if not cfg["complex_env"] and samples[:, 1].any():
            raise NotImplementedError(f"generator {generator} takes real envelopes only: leave Q zero")
        target = self.envelopes[generator][address : address + len(samples)]
        if not np.array_equal(target, samples):
            target[:] = samples
            self._envelopes_version += 1

    def load_program(self, binprog: Any, *, load_mem: bool) -> None:
        """Load a compiled program in place of the previous one. Raise `ProgramError` if it is invalid.

        On a processor of version 1, this first stops a running program, because loading overwrites its memory.
        """
        if self.core.version == 1 and self._is_running():
            self.stop()
        self.core.load_bin_program(binprog, load_mem=load_mem)

    def start(self) -> None:
        """Start the loaded program at its beginning. Raise `ProgramError` or `NotSimulated` if it cannot be executed.

        A processor of version 1 ignores a start while its program is running.
        """
        if self.core.version == 1 and self._is_running():
            return
        self.store_ended_windows()
        self.stop()
        self._running = None
        self.plant.elapse(self.clock.account_for_time())
        self.clock.spend_time(START_DURATION_S)
        self.converter = self._make_converter()
        feedback = Feedback(self)
        completed_run = self.core.run(feedback.read_readout)
        new_playback = self._find_playback(completed_run.run)
        for readout_number, (readout, readout_run) in enumerate(
            zip(self.readouts, new_playback.readout_runs, strict=True)
        ):
            if readout_number in feedback.started_readouts:
                readout.extend_run(readout_run)
            else:
                readout.begin_run(readout_run)
        counter_bases = {address: (-1.0, value) for address, value in completed_run.counters_before.items()}
        ticks_per_s = self.cfg["tprocs"][0]["f_time"] * 1e6 * self.clock_factor
        self._running = RunningProgram(
            new_playback, self.clock.now_s, ticks_per_s, counter_bases, self.channel_states
        )
        self.channel_states = new_playback.channel_states
        self.clock.reset_read_time()

    def stop(self) -> None:
        """Stop the program. Windows that are open now are still filled to their ends."""
        running_program = self._running
        if running_program is not None and running_program.stop_tick is None:
            running_program.stop_tick = running_program.compute_tick(self.clock.now_s)
            for readout in self.readouts:
                readout.stop(running_program.stop_tick)
            if running_program.stop_tick < running_program.playback.last_word_tick:
                stopped_run = cut_run(running_program.playback.run, running_program.stop_tick)
                self.channel_states = play_run(
                    self.make_board_state(), stopped_run, running_program.earlier_states
                ).channel_states

    def stop_generators(self) -> None:
        """Stop the program and all generators."""
        self.stop()
        self.channel_states = {}

    def read_counter(self, address: int) -> int:
        """Spend the device time of a read, and return the current value of a counter."""
        running_program = self._running
        if self.knobs["fault"] == "gone_in_acquisition" and running_program is not None:
            self._is_unreachable = True
            self.begin_call()
        if running_program is None or self.knobs["fault"] == "stuck_counter":
            self.clock.spend_time(COUNTER_READ_DURATION_S)
            if running_program is not None:
                return running_program.counter_bases.get(address, (0.0, 0))[1]
            return int(self.core.read_mem("dmem", 1, address)[0]) if self.core.version == 1 else 0
        ticks, values = running_program.playback.find_counter_changes(address)
        change_count_before = int(np.searchsorted(ticks, self._compute_tick(running_program), "right"))
        self._spend_counter_read(running_program, ticks, change_count_before)
        cleared_tick, value = running_program.counter_bases.get(address, (-1.0, 0))
        change_count = int(np.searchsorted(ticks, self._compute_tick(running_program), "right"))
        if change_count > change_count_before:
            self.clock.reset_read_time()
        return (
            int(values[change_count - 1])
            if change_count and ticks[change_count - 1] > cleared_tick
            else value
        )

    def clear_counter(self, address: int) -> None:
        """Set a counter to zero: a word of data memory (version 1), or all registers (version 2)."""
        if self._running is not None:
            self._running.counter_bases[address] = (self._compute_tick(self._running), 0)
        if self.core.version == 2:
            self.stop()
        self.core.clear_counter(address)

    def store_ended_windows(self, readout: int | None = None) -> None:
        """Store the windows that a readout has received up to now. None means all readouts."""
        running_program = self._running
        if running_program is None:
            return
        self._drift_plant(running_program)
        for selected_readout in self.readouts if readout is None else [self.readouts[readout]]:
            selected_readout.store_ended_windows(
                running_program.compute_tick(self.clock.now_s), self.converter, self.compute_epoch()
            )

    def enable_readout(self, readout: int, *, avg: bool, buf: bool) -> None:
        """Make later triggers of a readout store sums (`avg`), samples (`buf`) or both."""
        self.store_ended_windows(readout)
        selected_readout = self.readouts[readout]
        selected_readout.buffer.enable(avg=avg, buf=buf)
        if self._running is not None and self._running.stop_tick is None:
            selected_readout.open_windows(since_tick=self._running.compute_tick(self.clock.now_s))

    def _drift_plant(self, running_program: RunningProgram) -> None:
        """Advance the plant by whole periods. Before each step, store the windows that ended before it.

        Periods in which no window ends pass in one step. A remaining fraction of a period stays unaccounted.
        """
        while (
            whole_period_count := math.floor((self.clock.now_s - self.clock.accounted_s) / DRIFT_PERIOD_S)
        ) >= 1:
            window_ends = [
                end for readout in self.readouts if (end := readout.find_next_end_tick()) is not None
            ]
            next_s = (
                running_program.start_s + min(window_ends) / running_program.ticks_per_s
                if window_ends
                else math.inf
            )
            quiet_period_count = math.floor(
                min(max(next_s - self.clock.accounted_s, 0.0), whole_period_count * DRIFT_PERIOD_S)
                / DRIFT_PERIOD_S
            )
            step_end_s = self.clock.accounted_s + DRIFT_PERIOD_S
            if not quiet_period_count:
                for readout in self.readouts:
                    readout.store_ended_windows(
                        running_program.compute_tick(step_end_s), self.converter, self.compute_epoch()
                    )
            self.plant.elapse(self.clock.account_for_time(max(quiet_period_count, 1) * DRIFT_PERIOD_S))

    def _spend_counter_read(
        self, running_program: RunningProgram, ticks: npt.NDArray[np.int64], change_count: int
    ) -> None:
        if self.knobs["fault"] == "overrun":
            self.clock.spend_time(OVERRUN_READ_DURATION_S)
            return
        next_tick = (
            ticks[change_count] if change_count < len(ticks) else running_program.playback.run.end_tick
        )
        self.clock.spend_read_time(running_program.start_s + float(next_tick) / running_program.ticks_per_s)

    def _compute_tick(self, running_program: RunningProgram) -> float:
        now = running_program.compute_tick(self.clock.now_s)
        return now if running_program.stop_tick is None else min(now, running_program.stop_tick)

    def _is_running(self) -> bool:
        running_program = self._running
        return (
            running_program is not None
            and self._compute_tick(running_program) < running_program.playback.run.end_tick
            and running_program.stop_tick is None
        )

    def _make_converter(self) -> Converter:
        return Converter(
            self.knobs["adc_bits"], decimation.make_taps(self.knobs["filter"]), self.clock_factor
        )

    def compute_epoch(self) -> tuple[Any, ...]:
        """Return a value that changes whenever noiseless traces may change."""
        return self.plant.version, self._envelopes_version, self.converter.clock_factor, self.converter.bits

    def make_board_state(self) -> BoardState:
        """Return the state of the board that a playback depends on."""
        return BoardState(self.cfg, self.core.version, self.envelopes, self.converter.clock_factor)

    def _find_playback(self, run: Run) -> Playback:
        """Return the playback of a run. If the run and the state before it are the same, reuse the last playback."""
        state_contents = frozenset(
            (key, channel_state.wave.encode_rows()[0], channel_state.phase)
            for key, channel_state in self.channel_states.items()
        )
        cache_key = (self.clock_factor, state_contents)
        if (
            self._last_playback is None
            or self._last_playback[0] is not run
            or self._last_playback[1] != cache_key
        ):
            self._last_playback = (
                run,
                cache_key,
                play_run(self.make_board_state(), run, self.channel_states),
            )
        return self._last_playback[2]


class Feedback:
    """Answers to a running program that reads a readout. The answer is I or Q of the last window that has ended."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.started_readouts: set[int] = set()

    def read_readout(self, port: int, half: int, tick: int) -> int:
        """Return I (`half` 0) or Q (`half` 1) of a readout. This is a `ReadInput`.

        Raise `NotSimulated` if the input is not a readout, or the processor cannot report its run so far.
        """
        board = self._board
        collect_events = getattr(board.core.processor, "collect_events", None)
        number = next(
            (index for index, ro in enumerate(board.cfg["readouts"]) if ro.get("tproc_ch", -1) == port), None
        )
        if number is None or collect_events is None:
            raise NotSimulated(f"input {port} of the processor")
        readout_run = play_run(board.make_board_state(), collect_events(), board.channel_states).readout_runs[
            number
        ]
        readout = board.readouts[number]
        if number in self.started_readouts:
            readout.extend_run(readout_run)
        else:
            self.started_readouts.add(number)
            readout.begin_run(readout_run)
        readout.store_ended_windows(tick, board.converter, board.compute_epoch())
        return int(readout.buffer.last_sum[half])
