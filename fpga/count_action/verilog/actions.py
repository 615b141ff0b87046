"""Actions in SystemVerilog: one instance of a block each, on the fire of their count."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.graph import clear_wins
from fpga.count_action.model import Action, ActionKind, Count, CountKind, Module
from fpga.count_action.verilog.counts import clear, enable, moving_sample
from fpga.count_action.verilog.text import (
    CLOCKED,
    any_of,
    bit,
    concatenation,
    declared,
    extended,
    instance,
    repeated,
)
from fpga.count_action.verilog.wiring import Slice, Wiring, joined


def action_lines(wiring: Wiring, module: Module, action: Action) -> Iterator[str]:
    """Return what an action drives.

    Of the actions that drive one flag only the first gives lines, for all of them.
    """
    fire = wiring.fire(module.name, action.on)
    if action.kind is ActionKind.STREAM:
        yield from _beat(wiring, module, action, _samples(wiring, action))
    elif action.kind is ActionKind.EMIT:
        yield from _emit(wiring, module, action)
    elif action.kind is ActionKind.ADVANCE:
        yield from _advance(module, action, fire)
    elif action.kind is ActionKind.STORE:
        yield from _stored(wiring, module, action, fire)
    elif action.kind is ActionKind.PULSE:
        yield from _flag(module, action, fire, bit(1))
    elif any(action is first for first in drivers(module, action.output)[:1]):
        yield from _flag(module, action, *_set_and_clear(wiring, module, action.output))


def drivers(module: Module, flag: str) -> list[Action]:
    """Return the actions that set or clear a flag."""
    kinds = (ActionKind.SET, ActionKind.CLEAR_FLAG)
    return [action for action in module.drives(*kinds) if action.output == flag]


def _flag(module: Module, action: Action, set_when: str, clear_when: str) -> Iterator[str]:
    """Return a flag, or a pulse, which is cleared in every cycle."""
    name = f"{module.name}_{action.output}"
    ports = {**CLOCKED, "set_i": set_when, "clear_i": clear_when, "flag_o": f"{name}_o"}
    wins = {"ClearWins": bit(1)} if clear_wins(module, action.output) else {}
    yield from instance("count_action_flag", f"u_{name}_flag", wins, ports)


def _set_and_clear(wiring: Wiring, module: Module, flag: str) -> tuple[str, str]:
    actions = drivers(module, flag)

    def fires(kind: ActionKind) -> str:
        return any_of(wiring.fire(module.name, action.on) for action in actions if action.kind is kind)

    return fires(ActionKind.SET), fires(ActionKind.CLEAR_FLAG)


def _advance(module: Module, action: Action, fire: str) -> Iterator[str]:
    name = f"{module.name}_{action.output}"
    yield from instance(
        "count_action_advance",
        f"u_{name}_advance",
        {"Width": action.width, "Last": f"{action.width}'d{action.modulo - 1}"},
        {**CLOCKED, "advance_i": fire, "number_o": f"{name}_o"},
    )


def _stored(wiring: Wiring, module: Module, action: Action, fire: str) -> Iterator[str]:
    name = f"{module.name}_{action.output}"
    yield from instance(
        "count_action_store",
        f"u_{name}_store",
        {"Width": action.width},
        {**CLOCKED, "fire_i": fire, "data_i": _samples(wiring, action), "number_o": f"{name}_o"},
    )


def _beat(wiring: Wiring, module: Module, action: Action, data: str) -> Iterator[str]:
    """Return the register of an output beat."""
    name = f"{module.name}_{action.output}"
    inside = (module.name, action.output) in wiring.consumed
    yield from instance(
        "count_action_beat",
        f"u_{name}_beat",
        {"Width": wiring.ports.output(f"{name}_data_o").width},
        {
            **CLOCKED,
            "fire_i": wiring.fire(module.name, action.on),
            "data_i": data,
            "ready_i": f"{name}_ready" if inside else f"{name}_ready_i",
            "valid_o": f"{name}_valid_o",
            "data_o": f"{name}_data_o",
            "stalled_o": f"{name}_stalled",
        },
    )


def _emit(wiring: Wiring, module: Module, action: Action) -> Iterator[str]:
    """Return a sum of samples, and the beat in which it leaves (R11)."""
    name = f"{module.name}_{action.output}"
    count = module.count(action.on)
    if action.reduction != "sum":
        yield from _extreme(wiring, module, action)
        return
    width, signed = _sample_type(wiring, action)
    yield declared(f"{name}_sum", action.width)
    yield from instance(
        "count_action_sum",
        f"u_{name}_sum",
        {
            "Samples": len(action.refs),
            "SampleWidth": width,
            "SampleSigned": bit(signed),
            "Width": action.width,
            "Accumulate": bit(count.kind is CountKind.ACCUMULATE),
            "Shift": action.shift,
            "Signed": bit(action.signed),
        },
        {
            **CLOCKED,
            "clear_i": any_of(
                [wiring.fire(module.name, count.name), *_not_never(clear(wiring, module, count))]
            ),
            "take_i": _taken(wiring, module, count, action),
            "samples_i": _samples(wiring, action, width),
            "sum_o": f"{name}_sum",
        },
    )
    yield from _beat(wiring, module, action, f"{name}_sum")


def _extreme(wiring: Wiring, module: Module, action: Action) -> Iterator[str]:
    """Return the largest or smallest sample, and the beat in which it leaves (R14)."""
    name = f"{module.name}_{action.output}"
    count = module.count(action.on)
    yield declared(f"{name}_extreme", wiring.ports.output(f"{name}_data_o").width)
    yield from instance(
        "count_action_extreme",
        f"u_{name}_extreme",
        {
            "Samples": len(action.refs),
            "Width": action.width,
            "Accumulate": bit(count.kind is CountKind.ACCUMULATE),
            "Shift": action.shift,
            "Signed": bit(action.signed),
            "Minimum": bit(action.reduction == "min"),
            "WithIndex": bit(action.with_index),
        },
        {
            **CLOCKED,
            "clear_i": any_of(
                [wiring.fire(module.name, count.name), *_not_never(clear(wiring, module, count))]
            ),
            "take_i": _taken(wiring, module, count, action),
            "samples_i": _samples(wiring, action),
            "beat_o": f"{name}_extreme",
        },
    )
    yield from _beat(wiring, module, action, f"{name}_extreme")


def _not_never(condition: str) -> list[str]:
    return [] if condition == bit(0) else [condition]


def _sample_type(wiring: Wiring, action: Action) -> tuple[int, bool]:
    """Return width and sign of the samples of a sum: their own where alike and fitting, else those of the sum."""
    types = {(source.width, source.signed) for source in map(wiring.source, action.refs)}
    width, signed = types.pop()
    return (width, signed) if not types and width <= action.width else (action.width, False)


def _samples(wiring: Wiring, action: Action, width: int | None = None) -> str:
    """Return the samples side by side, each in `width` bits (those of the action's own samples by default)."""
    width = action.width if width is None else width
    sources = [wiring.source(ref) for ref in action.refs]
    slices = [source.sample(ref.index, ref.lane) for source, ref in zip(sources, action.refs, strict=True)]
    if all(each.width == width for each in slices):
        return joined(slices)
    fitted = [_fitted(each, source.signed, width) for each, source in zip(slices, sources, strict=True)]
    return concatenation(fitted)


def _fitted(sample: Slice, signed: bool, width: int) -> str:
    """Return a sample in `width` bits: extended by its own sign, or without its upper bits (R10)."""
    if sample.width >= width:
        return str(Slice(sample.wire, sample.total, sample.low, width))
    sign = str(Slice(sample.wire, sample.total, sample.low + sample.width - 1)) if signed else bit(0)
    return extended(str(sample), sample.width, width, sign)


def _taken(wiring: Wiring, module: Module, count: Count, action: Action) -> str:
    """Return which samples are added in this cycle: of beats that move while the count is enabled and not stalled.

    A level count keeps no sum, and its beat is looked at in the cycle of its fire alone; then valid is enough.
    """
    counts = f"!{wiring.stall(module.name)}"
    if count.gate:
        counts = f"{counts} && {enable(wiring, count)}"
    moving = [moving_sample(wiring, count, ref) for ref in action.refs]
    gate = repeated(counts, len(moving)) if len(moving) > 1 else f"({counts})"
    streams = [each for each in moving if each is not None]
    if len(streams) == len(moving):
        return f"{joined(streams)} & {gate}"
    return f"{concatenation([bit(1) if each is None else str(each) for each in moving])} & {gate}"
