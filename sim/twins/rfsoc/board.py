"""The board itself: processor, generators, readouts, clock, faults, knobs; `soc` gives it QICK's names."""

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
    Playback,
    Stage,
    Standings,
    playback,
    until,
)
from sim.twins.rfsoc.signals.readout import Converter, Readout

CALL_S = 20e-6
"""Registers written over a memory bus, Python on the board included."""
LOOK_S = 50e-6
"""One look at the counter of shots."""
TRANSFER_S = 200e-6
"""One transfer by direct memory access."""
START_S = 5e-6
"""Between a start and the first instruction."""
AGE_S = 1.0
"""Within a run, everything that drifts is updated so often."""
PATIENCE = 2.0
"""By how much each look that found nothing new takes longer than the one before."""

FAULTS: Mapping[str, str] = {
    "none": "all is well",
    "dead_board": "no call is answered: ConnectionError",
    "gone_in_acquisition": "the board answers until it is asked for the counter of a running program, and never again",
    "stuck_counter": "the counter of shots stays where it is, and programs seem never to end",
    "overrun": "whoever reads the counter comes so seldom that more shots have passed than the memory of sums holds",
    "wrong_clock": "the reference clock is 5 % low: clocks are not locked, and rates are not those of the profile",
}

OF_LIGHT = "laser_dropped"
"""The kit's own: its knob of this name can be set as a fault, too."""
OVERRUN_LOOK_S = 1.0
"""Device time between two looks at the counter under `overrun`."""
WRONG_CLOCK_FACTOR = 0.95
CONVERTER_BITS = range(4, 17)


class DeviceClock:
    """Seconds since power-on, and those that nobody has accounted for yet."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._unaccounted_s = 0.0
        self._look_s = LOOK_S

    def spend(self, seconds: float) -> None:
        """Advance the time."""
        self.now_s += seconds
        self._unaccounted_s += seconds

    @property
    def accounted_s(self) -> float:
        """Time up to which everything that drifts has been updated."""
        return self.now_s - self._unaccounted_s

    def account(self, most_s: float = math.inf) -> float:
        """Return the seconds that have passed since the last call; of more than `most_s` the rest at the next call."""
        passed_s = min(self._unaccounted_s, most_s)
        self._unaccounted_s -= passed_s
        return passed_s

    def look(self, next_news_s: float | None) -> None:
        """Note one look at a counter that will change at `next_news_s`, the end of it included; never, for None.

        Looks in vain take ever longer, so that a program that waits for a second needs twenty of them and not
        twenty thousand, but none goes past the news by more than one look.
        """
        longest_s = self._look_s if next_news_s is None else max(next_news_s - self.now_s, 0.0) + LOOK_S
        self.spend(min(self._look_s, longest_s))
        self._look_s = min(self._look_s * PATIENCE, 1.0)

    def refresh(self) -> None:
        """There was something new: looks are short again."""
        self._look_s = LOOK_S


def check_fault(name: str) -> str:
    """Return the name of a fault. Raises `ValueError` for one that is none.

    >>> check_fault("dead_board")
    'dead_board'
    """
    if name not in FAULTS:
        raise ValueError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
    return name


class BoardKnobs(MutableMapping[str, Any]):
    """`adc_bits` (4 to 16), `filter` ("fir", "mean") and `fault` are the board's; every other name is the plant's.

    Raises `KeyError` for a name that neither has, `ValueError` for a value that cannot be.
    """

    def __init__(
        self, adc_bits: int, plant: MutableMapping[str, Any], options: Mapping[str, str] | None = None
    ) -> None:
        self._own: dict[str, Any] = {"adc_bits": adc_bits, "filter": "fir", "fault": "none"}
        self._plant = plant
        for name, value in (options or {}).items():
            self[name] = value
        self._made = dict(self._own)

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._plant[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "adc_bits":
            if str(value) not in {str(bits) for bits in CONVERTER_BITS}:
                raise ValueError(
                    f"adc_bits must be {CONVERTER_BITS[0]} to {CONVERTER_BITS[-1]}, not {value!r}"
                )
            self._own[name] = int(value)
        elif name == "filter":
            decimation.taps(value)
            self._own[name] = value
        elif name == "fault":
            # a plant that has a knob of this name keeps the fault while it lasts
            if value != OF_LIGHT or OF_LIGHT not in self._plant:
                check_fault(value)
            if OF_LIGHT in {value, self._own["fault"]}:
                self._plant[OF_LIGHT] = value == OF_LIGHT
            self._own["fault"] = value
        else:
            self._plant[name] = value

    def __delitem__(self, name: str) -> None:
        """Back to what it was made with."""
        if name in self._made:
            self[name] = self._made[name]
        else:
            del self._plant[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._plant if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(slots=True)
class Running:
    """A program that was started, and may have ended."""

    playback: Playback
    begun_s: float
    ticks_per_s: float
    base: dict[int, tuple[float, int]]
    """Of a counter: tick from which on changes count, and its value before them."""
    before: Standings
    """What stood when it began."""
    stopped: float | None = None
    """Tick at which it was stopped."""

    def tick(self, now_s: float) -> float:
        """Return ticks of the processor since the beginning."""
        return (now_s - self.begun_s) * self.ticks_per_s


class Board:
    """One board. Calls come from two threads (QICK's streaming reader is one): they take turns."""

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
        self.source = "internal"
        rngs = np.random.default_rng(seed).spawn(len(cfg["readouts"]))
        self.readouts = [
            Readout(number, ro, cfg["tprocs"][0]["f_time"], plant, rng)
            for number, (ro, rng) in enumerate(zip(cfg["readouts"], rngs, strict=True))
        ]
        self._envelopes_version = 0
        self.standings: Standings = {}
        self._running: Running | None = None
        self._played: tuple[Run, tuple[Any, ...], Playback] | None = None
        self._is_gone = False
        self.converter = self._present_converter()

    @property
    def clock_factor(self) -> float:
        """Rate of all clocks over what the configuration says."""
        return WRONG_CLOCK_FACTOR if self.knobs["fault"] == "wrong_clock" else 1.0

    def touch(self, seconds: float = CALL_S) -> None:
        """Somebody calls: time passes. Raises `ConnectionError` for a board that does not answer."""
        if self._is_gone or self.knobs["fault"] == "dead_board":
            raise ConnectionError(
                "the board does not answer: check its power and its network, then connect again"
            )
        self.clock.spend(seconds)

    def elapse(self, seconds: float) -> None:
        """Advance device time for everything that drifts."""
        self.clock.spend(seconds)
        self.settle()
        self.plant.elapse(self.clock.account())

    def load_envelope(self, generator: int, rows: npt.NDArray[np.int16], address: int) -> None:
        """Write samples (n, 2) of an envelope. Raises `RuntimeError` for more than the memory holds."""
        self.settle()
        cfg = self.cfg["gens"][generator]
        if len(rows) + address > cfg["maxlen"]:
            raise RuntimeError(
                f"an envelope of {len(rows)} samples at address {address} does not fit: generator {generator} "
                f"has room for {cfg['maxlen']}"
            )
        if not cfg["complex_env"] and rows[:, 1].any():
            raise NotImplementedError(f"generator {generator} takes real envelopes only: leave Q zero")
        place = self.envelopes[generator][address : address + len(rows)]
        if not np.array_equal(place, rows):
            place[:] = rows
            self._envelopes_version += 1

    def load_program(self, binprog: Any, *, load_mem: bool) -> None:
        """Take a compiled program in place of the one before. Raises `ProgramError`.

        On version 1 that ends a program that is under way: its words are there no more.
        """
        if self.core.version == 1 and self._is_under_way():
            self.stop()
        self.core.load_bin_program(binprog, load_mem=load_mem)

    def start(self) -> None:
        """Start the loaded program at its beginning. Raises `ProgramError`, `NotSimulated`.

        A processor of version 1 begins only where it waits for a start or has come to `end`.
        """
        if self.core.version == 1 and self._is_under_way():
            return
        self.settle()
        self.stop()
        self._running = None
        self.plant.elapse(self.clock.account())
        self.clock.spend(START_S)
        self.converter = self._present_converter()
        feedback = Feedback(self)
        done = self.core.run(feedback.read)
        played = self._playback_of(done.run)
        for number, (readout, scene) in enumerate(zip(self.readouts, played.scenes, strict=True)):
            if number in feedback.begun:
                readout.extend(scene)
            else:
                readout.begin(scene)
        base = {address: (-1.0, value) for address, value in done.base.items()}
        ticks_per_s = self.cfg["tprocs"][0]["f_time"] * 1e6 * self.clock_factor
        self._running = Running(played, self.clock.now_s, ticks_per_s, base, self.standings)
        self.standings = played.standings
        self.clock.refresh()

    def stop(self) -> None:
        """Stop the program; windows that it has opened by now are filled to their ends."""
        running = self._running
        if running is not None and running.stopped is None:
            running.stopped = running.tick(self.clock.now_s)
            for readout in self.readouts:
                readout.stop(running.stopped)
            if running.stopped < running.playback.last_word:
                stopped = until(running.playback.run, running.stopped)
                self.standings = playback(self.stage(), stopped, running.before).standings

    def silence(self) -> None:
        """Stop, and end whatever generators still play."""
        self.stop()
        self.standings = {}

    def counter(self, address: int) -> int:
        """Return one look at a counter."""
        running = self._running
        if self.knobs["fault"] == "gone_in_acquisition" and running is not None:
            self._is_gone = True
            self.touch()
        if running is None or self.knobs["fault"] == "stuck_counter":
            self.clock.spend(LOOK_S)
            if running is not None:
                return running.base.get(address, (0.0, 0))[1]
            return int(self.core.read_mem("dmem", 1, address)[0]) if self.core.version == 1 else 0
        ticks, values = running.playback.counters(address)
        before = int(np.searchsorted(ticks, self._tick(running), "right"))
        self._look(running, ticks, before)
        since, value = running.base.get(address, (-1.0, 0))
        after = int(np.searchsorted(ticks, self._tick(running), "right"))
        if after > before:
            self.clock.refresh()
        return int(values[after - 1]) if after and ticks[after - 1] > since else value

    def clear_counter(self, address: int) -> None:
        """Set a counter to zero: a word of data memory (version 1), or all registers (version 2)."""
        if self._running is not None:
            self._running.base[address] = (self._tick(self._running), 0)
        if self.core.version == 2:
            self.stop()
        self.core.clear_counter(address)

    def settle(self, readout: int | None = None) -> None:
        """Store what readouts (one, or all) have received by now."""
        running = self._running
        if running is None:
            return
        self._age(running)
        for one in self.readouts if readout is None else [self.readouts[readout]]:
            one.settle(running.tick(self.clock.now_s), self.converter, self.epoch())

    def enable(self, readout: int, *, avg: bool, buf: bool) -> None:
        """Choose whether triggers store sums, samples or both from now on."""
        self.settle(readout)
        one = self.readouts[readout]
        one.buffer.enable(avg=avg, buf=buf)
        if self._running is not None and self._running.stopped is None:
            one.listen(since=self._running.tick(self.clock.now_s))

    def _age(self, running: Running) -> None:
        """Advance the plant by whole seconds, and store first what was received until then.

        Seconds in which no window ends pass in one go; what is left of a second waits.
        """
        while (whole := math.floor((self.clock.now_s - self.clock.accounted_s) / AGE_S)) >= 1:
            ends = [end for one in self.readouts if (end := one.next_end()) is not None]
            next_s = running.begun_s + min(ends) / running.ticks_per_s if ends else math.inf
            quiet = math.floor(min(max(next_s - self.clock.accounted_s, 0.0), whole * AGE_S) / AGE_S)
            moment_s = self.clock.accounted_s + AGE_S
            if not quiet:
                for one in self.readouts:
                    one.settle(running.tick(moment_s), self.converter, self.epoch())
            self.plant.elapse(self.clock.account(max(quiet, 1) * AGE_S))

    def _look(self, running: Running, ticks: npt.NDArray[np.int64], seen: int) -> None:
        if self.knobs["fault"] == "overrun":
            self.clock.spend(OVERRUN_LOOK_S)
            return
        coming = ticks[seen] if seen < len(ticks) else running.playback.run.end
        self.clock.look(running.begun_s + float(coming) / running.ticks_per_s)

    def _tick(self, running: Running) -> float:
        now = running.tick(self.clock.now_s)
        return now if running.stopped is None else min(now, running.stopped)

    def _is_under_way(self) -> bool:
        running = self._running
        return (
            running is not None and self._tick(running) < running.playback.run.end and running.stopped is None
        )

    def _present_converter(self) -> Converter:
        return Converter(self.knobs["adc_bits"], decimation.taps(self.knobs["filter"]), self.clock_factor)

    def epoch(self) -> tuple[Any, ...]:
        """Return a value that changes whenever noiseless traces do."""
        return self.plant.version, self._envelopes_version, self.converter.clock_factor, self.converter.bits

    def stage(self) -> Stage:
        """Return the stage that a run plays on now."""
        return Stage(self.cfg, self.core.version, self.envelopes, self.converter.clock_factor)

    def _playback_of(self, run: Run) -> Playback:
        """Return the same as worked out for the last start, when it was of the same run after the same."""
        before = frozenset((key, one.wave.contents()[0], one.turn) for key, one in self.standings.items())
        conditions = (self.clock_factor, before)
        if self._played is None or self._played[0] is not run or self._played[1] != conditions:
            self._played = run, conditions, playback(self.stage(), run, self.standings)
        return self._played[2]


class Feedback:
    """Answers the program's reads of readouts while it runs: I and Q of the window that has ended last."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.begun: set[int] = set()

    def read(self, port: int, half: int, tick: int) -> int:
        """Read an input (`ReadInput`); raise `NotSimulated` if the processor reports no progress."""
        board = self._board
        so_far = getattr(board.core.processor, "so_far", None)
        number = next(
            (i for i, ro in enumerate(board.cfg["readouts"]) if ro.get("tproc_ch", -1) == port), None
        )
        if number is None or so_far is None:
            raise NotSimulated(f"input {port} of the processor")
        scene = playback(board.stage(), so_far(), board.standings).scenes[number]
        readout = board.readouts[number]
        if number in self.begun:
            readout.extend(scene)
        else:
            self.begun.add(number)
            readout.begin(scene)
        readout.settle(tick, board.converter, board.epoch())
        return int(readout.buffer.last_sum[half])
