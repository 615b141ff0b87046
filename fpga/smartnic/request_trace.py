"""A request on its way through the simulated smartNIC: signals, counts and targets in every cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga.smartnic.simulator import SmartNic, SmartNicError, Trace

_CHUNK_CYCLES = 4096
_MAX_CYCLES = 50_000_000
"""Largest number of cycles to wait for an answer."""


@dataclass(frozen=True)
class RequestTrace:
    """A request from the first beat of its frame to the last beat of its answer; cycle 0 is the first."""

    trace: Trace
    answer: bytes
    """The frame that the NIC sent."""

    @property
    def cycle_count(self) -> int:
        """Number of cycles."""
        return len(self.trace.layer_numbers)

    @property
    def layer_start_cycles(self) -> NDArray[np.int64]:
        """(layers,) the cycles in which a layer starts."""
        return np.flatnonzero(self.trace.signals["start"])

    def find_targets(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the target in force in every cycle, for each count; 0 before the first layer.

        Targets of a layer are committed in the cycle in which it starts, and in force from the next one on.
        """
        starts = self.layer_start_cycles
        layer_indices = np.searchsorted(starts, np.arange(self.cycle_count), side="left") - 1
        return {
            name: np.where(layer_indices < 0, 0, shadow[starts][np.maximum(layer_indices, 0)])
            for name, shadow in self.trace.targets.items()
        }

    def count_fires(self) -> Mapping[str, int]:
        """Return how often each count reached its target."""
        return {name: int(fires.sum()) for name, fires in self.trace.fires.items()}


def trace_request(nic: SmartNic, frame: bytes) -> RequestTrace:
    """Send a frame to an idle NIC, and return the trace up to the last beat of its answer.

    Raise SmartNicError if no answer comes.
    """
    nic.receive()
    nic.send(frame)
    traces: list[Trace] = []
    for _ in range(_MAX_CYCLES // _CHUNK_CYCLES):
        traces.append(nic.trace(_CHUNK_CYCLES))
        if answers := nic.receive():
            trace = _join_traces(traces)
            arrivals = trace.signals["rx_valid"]
            departures = trace.signals["tx_valid"] & trace.signals["tx_ready"] & trace.signals["tx_last"]
            first_cycle, end_cycle = int(np.argmax(arrivals)), int(np.argmax(departures)) + 1
            return RequestTrace(_join_traces([trace], slice(first_cycle, end_cycle)), answers[0][1])
    raise SmartNicError(f"the NIC did not answer the frame within {_MAX_CYCLES} cycles.")


def _join_traces(traces: Sequence[Trace], cycle_slice: slice = slice(None)) -> Trace:  # a constant
    """Return the cycles of all parts, one after the other; `cycle_slice` selects the cycles to keep."""

    def join_field(field: str) -> dict[str, Any]:
        columns = [getattr(part, field) for part in traces]
        return {
            name: np.concatenate([column[name] for column in columns])[cycle_slice] for name in columns[0]
        }

    layer_numbers = np.concatenate([part.layer_numbers for part in traces])[cycle_slice]
    return Trace(
        join_field("signals"), layer_numbers, join_field("counts"), join_field("targets"), join_field("fires")
    )
