"""The registers of a datapath, and what there is to say about one cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fpga.count_action.actions import KINDS
from fpga.count_action.model import Datapath
from fpga.count_action.simulate.bit_slices import Key, beats_of
from fpga.count_action.simulate.reference.buffers import Buffer, Element, empty_buffers


@dataclass(frozen=True, slots=True)
class State:
    """Every register, by module and name. Values are unsigned and fit their widths."""

    counts: Mapping[Key, int]
    overshoot: Mapping[Key, bool]
    saturated: Mapping[Key, bool]
    targets: Mapping[Key, int]
    """The targets in force."""
    kept: Mapping[Key, Any]
    """What actions keep beside their outputs: sums and extreme samples since the last fire, say."""
    valid: Mapping[Key, bool]
    """True while there is a beat on its way out."""
    outputs: Mapping[Key, int]
    """Beats, flags, pulses and numbers, by module and output."""
    buffers: Mapping[Element, Buffer]
    """Beats of buffered streams that wait."""


@dataclass(frozen=True, slots=True)
class CountCycle:
    """One cycle of a count; `value` is what is compared with `target` (R1)."""

    module: str
    count: str
    enabled: bool
    stalled: bool
    base: int
    increment: int
    """0 for a count that is not enabled, or stalled."""
    value: int
    target: int
    """The target in force."""
    fires: bool
    rest: int
    """What the count is after this cycle if it is not cleared (R2, R10, R16, R17)."""
    overshoots: bool
    saturates: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle as it is before its clock edge: ports by name, and every count."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    counts: tuple[CountCycle, ...]


def reset_state(datapath: Datapath) -> State:
    """Return the registers after reset (R12)."""
    counts = [(module.name, count.name) for module, count in datapath.counts()]
    outputs = {
        (module.name, name): action
        for module in datapath.modules
        for name, action in module.outputs().items()
    }
    return State(
        counts=dict.fromkeys(counts, 0),
        overshoot=dict.fromkeys(counts, False),
        saturated=dict.fromkeys(counts, False),
        targets={(module.name, target.name): target.reset for module, target in datapath.targets()},
        kept={key: KINDS[action.kind].reset(action) for key, action in outputs.items()},
        valid=dict.fromkeys((beat for module in datapath.modules for beat in beats_of(module)), False),
        outputs=dict.fromkeys(outputs, 0),
        buffers=empty_buffers(datapath),
    )
