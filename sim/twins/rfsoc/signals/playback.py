"""Playback of a run of a program on a board: signals of generators, triggers of readouts, values of counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import Run
from sim.twins.rfsoc.signals import waves
from sim.twins.rfsoc.signals.readout import Scene, rises
from sim.twins.rfsoc.signals.track import Generator, Standing, TimeLine, Track, play

GENERATORS = ("axis_signal_gen_v4", "axis_signal_gen_v5", "axis_signal_gen_v6")
HOST_TUNED = "axis_readout_v2"
PROGRAM_TUNED = "axis_dyn_readout_v1"

Standings: TypeAlias = Mapping[tuple[str, int], Standing]
"""Pulses and readout settings that outlive a run, by kind ("gen", "ro") and number."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The state of the board that a playback depends on."""

    cfg: Mapping[str, Any]
    version: int
    """Version of the processor."""
    envelopes: Sequence[npt.NDArray[np.int16]]
    clock_factor: float = 1.0

    @property
    def f_time(self) -> float:
        """Ticks of the processor per microsecond, as configured."""
        return float(self.cfg["tprocs"][0]["f_time"])


@dataclass(frozen=True, slots=True)
class Playback:
    """The effects of a run on generators, readouts and counters."""

    run: Run
    scenes: Sequence[Scene]
    standings: Standings
    last_word: int
    """Tick at which the last word takes effect."""
    counters: Callable[[int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
    """Returns, for an address, the ticks of all changes and the values after them."""


def playback(stage: Stage, run: Run, before: Standings) -> Playback:
    """Return the playback of a run after the state `before` that earlier runs left. Raise `NotSimulated`."""
    tracks = {("gen", number): _track(stage, run, before, number) for number in range(len(stage.cfg["gens"]))}
    tuned = {
        ("ro", number): _tune(stage, run, before, number)
        for number, readout in enumerate(stage.cfg["readouts"])
        if readout["ro_type"] == PROGRAM_TUNED
    }
    line = TimeLine(
        [_generator(stage, one) for one in stage.cfg["gens"]],
        {number: track for (_, number), track in tracks.items() if track is not None},
        stage.envelopes,
    )
    scenes = [
        Scene(line, rises(run.pins, readout), tuned.get(("ro", number)))
        for number, readout in enumerate(stage.cfg["readouts"])
    ]
    standings = {key: track.standing() for key, track in (tracks | tuned).items() if track is not None}
    return Playback(
        run,
        scenes,
        {key: one for key, one in standings.items() if one is not None},
        int(run.writes["time"].max(initial=-1)),
        _counters(run.counts),
    )


def until(run: Run, tick: float) -> Run:
    """Return the part of a run up to a tick at which it was stopped."""
    return Run(
        run.writes[run.writes["time"] <= tick],
        run.pins[run.pins["time"] <= tick],
        run.counts[run.counts["time"] <= tick],
        min(run.end, int(tick)),
    )


def _generator(stage: Stage, cfg: Mapping[str, Any]) -> Generator:
    return Generator(
        cfg["fs"] * 1e6 * stage.clock_factor, cfg["f_fabric"] / stage.f_time, cfg["samps_per_clk"]
    )


def _track(stage: Stage, run: Run, before: Standings, number: int) -> Track | None:
    cfg = stage.cfg["gens"][number]
    times, sent = _find_sent(stage, run, cfg["tproc_ch"], cfg.get("tmux_ch"))
    standing = before.get(("gen", number))
    if not len(times) and standing is None:
        return None
    if cfg["type"] not in GENERATORS:
        raise NotSimulated(f"a generator of type {cfg['type']}", f"use one of type {GENERATORS[-1]}")
    return play(_generator(stage, cfg), times, sent, standing)


def _tune(stage: Stage, run: Run, before: Standings, number: int) -> Track:
    """Return the track of the words to a readout; each word applies until the next one, whatever its length."""
    cfg = stage.cfg["readouts"][number]
    times, sent = _find_sent(stage, run, cfg["tproc_ctrl"], cfg.get("tmux_ch"))
    receiver = Generator(cfg["fs"] * 1e6 * stage.clock_factor, cfg["f_fabric"] / stage.f_time, 8)
    return play(receiver, times, sent, before.get(("ro", number)), is_last_kept=True)


def _find_sent(
    stage: Stage, run: Run, port: int, lane: int | None
) -> tuple[npt.NDArray[np.int64], waves.Waves]:
    writes = run.writes[run.writes["port"] == port]
    sent = waves.decode(writes["words"], stage.version)
    times = writes["time"].astype(np.int64)
    if lane is None:
        return times, sent
    selected = sent.lane == lane
    return times[selected], sent.rows(selected)


def _counters(
    counts: npt.NDArray[Any],
) -> Callable[[int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    @cache
    def counter(address: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        mine = counts[counts["address"] == address]
        return mine["time"].astype(np.int64), mine["value"].astype(np.int64)

    return counter
