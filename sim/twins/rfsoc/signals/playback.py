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
from sim.twins.rfsoc.signals.readout import ReadoutRun, find_trigger_rises
from sim.twins.rfsoc.signals.track import ChannelState, Generator, TimeLine, Track, make_track

GENERATOR_TYPES = ("axis_signal_gen_v4", "axis_signal_gen_v5", "axis_signal_gen_v6")
HOST_TUNED_TYPE = "axis_readout_v2"
PROGRAM_TUNED_TYPE = "axis_dyn_readout_v1"

ChannelStates: TypeAlias = Mapping[tuple[str, int], ChannelState]
"""Pulses and readout settings that outlive a run, by kind ("gen" or "ro") and number of the channel."""


@dataclass(frozen=True, slots=True)
class BoardState:
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
    readout_runs: Sequence[ReadoutRun]
    channel_states: ChannelStates
    last_word_tick: int
    """Tick at which the last word takes effect."""
    find_counter_changes: Callable[[int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
    """Returns the ticks of all changes of an address, and the values after them."""


def play_run(board_state: BoardState, run: Run, earlier_states: ChannelStates) -> Playback:
    """Return the playback of a run, after runs that left `earlier_states`. Raise `NotSimulated` for a generator."""
    generator_tracks = {
        ("gen", number): _make_track(board_state, run, earlier_states, number)
        for number in range(len(board_state.cfg["gens"]))
    }
    readout_tracks = {
        ("ro", number): _make_readout_track(board_state, run, earlier_states, number)
        for number, readout in enumerate(board_state.cfg["readouts"])
        if readout["ro_type"] == PROGRAM_TUNED_TYPE
    }
    timeline = TimeLine(
        [_make_generator(board_state, channel_state) for channel_state in board_state.cfg["gens"]],
        {number: track for (_, number), track in generator_tracks.items() if track is not None},
        board_state.envelopes,
    )
    readout_runs = [
        ReadoutRun(timeline, find_trigger_rises(run.pin_events, readout), readout_tracks.get(("ro", number)))
        for number, readout in enumerate(board_state.cfg["readouts"])
    ]
    channel_states = {
        key: track.find_channel_state()
        for key, track in (generator_tracks | readout_tracks).items()
        if track is not None
    }
    return Playback(
        run,
        readout_runs,
        {key: channel_state for key, channel_state in channel_states.items() if channel_state is not None},
        int(run.port_writes["time"].max(initial=-1)),
        _make_counter_lookup(run.counter_events),
    )


def cut_run(run: Run, tick: float) -> Run:
    """Return the part of a run up to a tick."""
    return Run(
        run.port_writes[run.port_writes["time"] <= tick],
        run.pin_events[run.pin_events["time"] <= tick],
        run.counter_events[run.counter_events["time"] <= tick],
        min(run.end_tick, int(tick)),
    )


def _make_generator(board_state: BoardState, cfg: Mapping[str, Any]) -> Generator:
    return Generator(
        cfg["fs"] * 1e6 * board_state.clock_factor, cfg["f_fabric"] / board_state.f_time, cfg["samps_per_clk"]
    )


def _make_track(
    board_state: BoardState, run: Run, earlier_states: ChannelStates, number: int
) -> Track | None:
    cfg = board_state.cfg["gens"][number]
    times, sent_words = _find_words(board_state, run, cfg["tproc_ch"], cfg.get("tmux_ch"))
    channel_state = earlier_states.get(("gen", number))
    if not len(times) and channel_state is None:
        return None
    if cfg["type"] not in GENERATOR_TYPES:
        raise NotSimulated(f"a generator of type {cfg['type']}", f"use one of type {GENERATOR_TYPES[-1]}")
    return make_track(_make_generator(board_state, cfg), times, sent_words, channel_state)


def _make_readout_track(
    board_state: BoardState, run: Run, earlier_states: ChannelStates, number: int
) -> Track:
    """Return the track of the words to a readout. Each word applies until the next word, whatever its length is."""
    cfg = board_state.cfg["readouts"][number]
    times, sent_words = _find_words(board_state, run, cfg["tproc_ctrl"], cfg.get("tmux_ch"))
    receiver = Generator(cfg["fs"] * 1e6 * board_state.clock_factor, cfg["f_fabric"] / board_state.f_time, 8)
    return make_track(receiver, times, sent_words, earlier_states.get(("ro", number)), is_last_kept=True)


def _find_words(
    board_state: BoardState, run: Run, port: int, mux_channel: int | None
) -> tuple[npt.NDArray[np.int64], waves.Waves]:
    writes = run.port_writes[run.port_writes["port"] == port]
    sent_words = waves.decode_words(writes["words"], board_state.version)
    times = writes["time"].astype(np.int64)
    if mux_channel is None:
        return times, sent_words
    is_selected = sent_words.mux_channel == mux_channel
    return times[is_selected], sent_words.select_rows(is_selected)


def _make_counter_lookup(
    counts: npt.NDArray[Any],
) -> Callable[[int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    @cache
    def counter(address: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        own_counts = counts[counts["address"] == address]
        return own_counts["time"].astype(np.int64), own_counts["value"].astype(np.int64)

    return counter
