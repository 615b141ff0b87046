"""Buffers of two beats between a port and the modules (R20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from fpga.count_action.model import Datapath, Ref, Signal
from fpga.count_action.ports import buffered_parts

Beat: TypeAlias = tuple[int, ...]
"""Samples, end and kept lanes of a beat: the bits of each port."""
Element: TypeAlias = tuple[str, int]
"""A stream and its index."""
Buffer: TypeAlias = tuple[tuple[Beat, ...], Beat]
"""The beats that wait, the first to leave first, and the beat that is shown (the last one when none waits)."""

DEPTH = 2


def buffered_streams(datapath: Datapath) -> Iterator[tuple[Signal, int]]:
    """Return every element of every buffered stream."""
    for signal in datapath.inputs:
        if signal.buffered:
            yield from ((signal, index) for index in range(signal.size))


def empty_buffers(datapath: Datapath) -> dict[Element, Buffer]:
    """Return the buffers after reset."""
    found: dict[Element, Buffer] = {}
    for signal, index in buffered_streams(datapath):
        found[signal.name, index] = ((), (0,) * sum(1 for _ in buffered_parts(datapath, signal)))
    return found


def shown(
    datapath: Datapath, buffers: Mapping[Element, Buffer], inputs: Mapping[str, int]
) -> Mapping[str, int]:
    """Return the inputs as the modules see them."""
    if not buffers:
        return inputs
    seen = dict(inputs)
    for signal, index in buffered_streams(datapath):
        waiting, beat = buffers[signal.name, index]
        ports = [(f"{signal.name}_valid_i", 1), *buffered_parts(datapath, signal)]
        for (port, width), value in zip(ports, (int(bool(waiting)), *beat), strict=True):
            mask = (1 << width) - 1 << index * width
            seen[port] = seen.get(port, 0) & ~mask | value << index * width
    return seen


def has_room(buffer: Buffer) -> bool:
    """Return whether a buffer is ready for a beat."""
    return len(buffer[0]) < DEPTH


def next_buffers(
    datapath: Datapath,
    buffers: Mapping[Element, Buffer],
    inputs: Mapping[str, int],
    leaves: Callable[[Ref], bool],
) -> dict[Element, Buffer]:
    """Return the buffers after the clock edge; `leaves` says whether the modules take the first beat of a stream."""
    found = {}
    for signal, index in buffered_streams(datapath):
        waiting, beat = buffers[signal.name, index]
        comes = inputs.get(f"{signal.name}_valid_i", 0) >> index & 1 and has_room((waiting, beat))
        if leaves(Ref(signal.name, index=index)):
            waiting = waiting[1:]
        if comes:
            parts = buffered_parts(datapath, signal)
            waiting += (
                tuple(inputs.get(port, 0) >> index * width & (1 << width) - 1 for port, width in parts),
            )
        found[signal.name, index] = (waiting, waiting[0] if waiting else beat)
    return found
