"""Counts in SystemVerilog: increment, conditions, and an instance of the counter block."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.model import (
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    SignalKind,
    is_formula_ref,
)
from fpga.count_action.verilog.text import (
    CLOCK_CONNECTIONS,
    concatenate,
    declare_wire,
    extend_expression,
    join_or,
    replicate,
    write_bit,
    write_instance,
)
from fpga.count_action.verilog.wiring import Slice, Wiring, join_slices


def write_count(wiring: Wiring, module: Module, count: Count) -> Iterator[str]:
    """Yield the wires of a count, its increment, and its counter."""
    prefix = wiring.find_prefix(module.name, count.name)
    target = find_target_bits(wiring.datapath, module, count.target)
    if count.aim is not None:
        target = wiring.find_source(count.aim).slice_value(0)
    if count.goes_down:
        yield from _write_bounded_count(wiring, module, count, target)
        return
    if count.kind is CountKind.LEVEL:
        yield from _write_level_count(wiring, module, count, target)
        return
    width = compute_increment_width(wiring, count.constant, count.terms)
    yield declare_wire(f"{prefix}_increment", width)
    yield declare_wire(f"{prefix}_overshoot")
    yield declare_wire(f"{prefix}_saturated")
    yield from _write_increment(
        wiring, module, f"{prefix}_increment", count, count.constant, count.terms, width
    )
    yield from write_instance(
        "count_action",
        f"u_{prefix}_count",
        {
            "Width": count.width,
            "IncrementWidth": width,
            "TargetWidth": target.width,
            **_make_target_parameters(module, count),
        },
        {
            **_make_common_connections(wiring, module, count),
            "increment_i": f"{prefix}_increment",
            "target_i": str(target),
            **_connect_outputs(prefix),
        },
    )


def _write_level_count(wiring: Wiring, module: Module, count: Count, target: Slice) -> Iterator[str]:
    """Yield the wires of a level count, two addends of its increment, and its comparison.

    The comparison is faster than a sum of the addends. The first addend takes the numbers and the constant. If there
    are neither numbers nor constant, it takes two thirds of the bits, because the second addend must also be subtracted
    from the target.
    """
    prefix = wiring.find_prefix(module.name, count.name)
    single_bit_terms = [
        ref
        for ref in count.terms
        if find_pick_bit(wiring, module, count, ref) or find_term_bits(wiring, count, ref).width == 1
    ]
    other_terms = tuple(ref for ref in count.terms if ref not in single_bit_terms)
    first_term_count = 0 if other_terms or count.constant else (2 * len(single_bit_terms) + 2) // 3
    terms_by_addend = {
        "first": (count.constant, (*other_terms, *single_bit_terms[:first_term_count])),
        "second": (0, tuple(single_bit_terms[first_term_count:])),
    }
    width = max(compute_increment_width(wiring, *part) for part in terms_by_addend.values())
    yield from (declare_wire(f"{prefix}_{name}", width) for name in terms_by_addend)
    for name, (constant, refs) in terms_by_addend.items():
        yield from _write_increment(wiring, module, f"{prefix}_{name}", count, constant, refs, width)
    # If an earlier count fires, it takes the beat that both counts read (R26).
    rivals = [
        f"!{wiring.find_fire_wire(module.name, rival.name)}"
        for rival in wiring.graph.find_rivals(module, count)
    ]
    enable_conditions = [write_enable(wiring, count)] if count.gate or not rivals else []
    comparison_parameters = {"AtLeast": write_bit(1)} if module.target(count.target).at_least else {}
    yield from write_instance(
        "count_action_level",
        f"u_{prefix}_count",
        {"AddendWidth": width, "TargetWidth": target.width, **comparison_parameters},
        {
            "enable_i": " && ".join([*enable_conditions, *rivals]),
            "stall_i": wiring.find_stall_wire(module.name),
            "first_i": f"{prefix}_first",
            "second_i": f"{prefix}_second",
            "target_i": str(target),
            "fire_o": f"{prefix}_fire",
        },
    )


def _write_bounded_count(wiring: Wiring, module: Module, count: Count, target: Slice) -> Iterator[str]:
    """Yield the wires of a count between bounds, its increment and decrement, and its counter (R17)."""
    prefix = wiring.find_prefix(module.name, count.name)
    terms_by_addend = {
        "increment": (max(count.constant, 0), count.terms),
        "decrement": (max(-count.constant, 0), count.taken),
    }
    width = max(compute_increment_width(wiring, *part) for part in terms_by_addend.values())
    yield from (declare_wire(f"{prefix}_{name}", width) for name in terms_by_addend)
    yield declare_wire(f"{prefix}_overshoot")
    yield declare_wire(f"{prefix}_saturated")
    for name, (constant, refs) in terms_by_addend.items():
        yield from _write_increment(wiring, module, f"{prefix}_{name}", count, constant, refs, width)
    bound_bits = wiring.find_source(count.bound).slice_value(0) if count.bound else None
    yield from write_instance(
        "count_action_up_down",
        f"u_{prefix}_count",
        {
            "Width": count.width,
            "IncrementWidth": width,
            "TargetWidth": target.width,
            "BoundWidth": bound_bits.width if bound_bits else count.width,
            **_make_target_parameters(module, count),
        },
        {
            **_make_common_connections(wiring, module, count),
            "up_i": f"{prefix}_increment",
            "down_i": f"{prefix}_decrement",
            "target_i": str(target),
            "bound_i": str(bound_bits) if bound_bits else replicate(write_bit(1), count.width),
            **_connect_outputs(prefix),
        },
    )


def _make_target_parameters(module: Module, count: Count) -> dict[str, str]:
    target = module.target(count.target)
    flags = {"AtLeast": target.at_least, "Carry": target.carry}
    return {name: write_bit(1) for name, is_set in flags.items() if is_set}


def _make_common_connections(wiring: Wiring, module: Module, count: Count) -> dict[str, str]:
    """Return the connections that every kind of counter has."""
    return {
        **CLOCK_CONNECTIONS,
        "enable_i": write_enable(wiring, count),
        "stall_i": wiring.find_stall_wire(module.name),
        "clear_i": write_clear(wiring, module, count),
        "clear_status_i": "clear_status_i",
    }


def _connect_outputs(prefix: str) -> dict[str, str]:
    return {f"{port}_o": f"{prefix}_{port}" for port in ("fire", "count", "overshoot", "saturated")}


def _write_increment(
    wiring: Wiring,
    module: Module,
    sum_wire: str,
    count: Count,
    constant: int,
    refs: tuple[Ref, ...],
    width: int,
) -> Iterator[str]:
    """Yield the lines for an increment or decrement: the number of ones, the numbers, and the constant."""
    terms = [find_pick_bit(wiring, module, count, ref) or find_term_bits(wiring, count, ref) for ref in refs]
    bits = [term for term in terms if term.width == 1]
    addends = [extend_expression(str(term), term.width, width) for term in terms if term.width > 1]
    if constant or not terms:
        addends.append(f"{width}'d{constant}")
    if len(bits) > 1:
        plain_name = sum_wire.removesuffix("_increment")
        ones_wire = f"{plain_name}_ones"
        yield declare_wire(ones_wire, width)
        yield from write_instance(
            "count_action_ones",
            f"u_{plain_name}_ones",
            {"Bits": len(bits), "Width": width},
            {"bits_i": join_slices(bits), "ones_o": ones_wire},
        )
        addends.insert(0, ones_wire)
    elif bits:
        addends.insert(0, extend_expression(str(bits[0]), 1, width))
    yield f"assign {sum_wire} = {' + '.join(addends)};"


def find_term_bits(wiring: Wiring, count: Count, ref: Ref) -> Slice:
    """Return the bits of a term.

    For a stream, a level count adds the valid bit, and an accumulating count adds the bit of a moving beat.
    """
    source = wiring.find_source(ref)
    if source.kind is not SignalKind.STREAM:
        return source.slice_value(ref.index)
    return (
        source.slice_valid_bit(ref.index)
        if count.kind is CountKind.LEVEL
        else source.slice_move_bit(ref.index)
    )


def find_pick_bit(wiring: Wiring, module: Module, count: Count, ref: Ref) -> Slice | None:
    """Return the bit that is 1 if a count selects a stream that has a beat, or None for other counts (R19)."""
    return wiring.find_pick_wire(module.name, count, ref) if count.order else None


def write_pick_wires(wiring: Wiring, module: Module, count: Count) -> Iterator[str]:
    """Yield the lines for the streams that a count selects: one bit for each, of which at most one is 1 (R19)."""
    name = wiring.find_pick_wire(module.name, count, count.terms[0]).wire
    picks = [f"{wiring.find_value_wire(pick)}[0]" for pick in count.picks]
    yield declare_wire(name, len(picks))
    valid_bits = join_slices(wiring.find_source(ref).slice_valid_bit(ref.index) for ref in count.terms)
    yield f"assign {name} = {valid_bits} & {concatenate(picks)};"


def find_move_bit(wiring: Wiring, count: Count, ref: Ref) -> Slice | None:
    """Return the bit that is 1 if the beat of a sample is counted, or None if the sample is not of a stream."""
    if is_formula_ref(ref):
        return Slice(wiring.find_move_wire(ref), 1) if wiring.graph.find_streams(ref) else None
    source = wiring.find_source(ref)
    if source.kind is not SignalKind.STREAM:
        return None
    is_counted = any(
        (counted_term.module, counted_term.name, counted_term.index) == (ref.module, ref.name, ref.index)
        for counted_term in count.counted
    )
    needs_valid_only = is_counted and count.kind is CountKind.LEVEL and not count.order
    return source.slice_valid_bit(ref.index) if needs_valid_only else source.slice_move_bit(ref.index)


def compute_increment_width(wiring: Wiring, constant: int, refs: tuple[Ref, ...]) -> int:
    """Return the number of bits of the largest increment: the constant `constant` plus all terms."""
    for ref in refs:
        source = wiring.find_source(ref)
        constant += 1 if source.kind is SignalKind.STREAM else 2**source.width - 1
    return max(1, constant.bit_length())


def write_enable(wiring: Wiring, count: Count) -> str:
    """Return the condition that enables a count (`while`)."""
    conditions = []
    for condition in count.gate:
        source = wiring.find_source(condition.ref)
        is_stream = source.kind is SignalKind.STREAM
        bits = (
            source.slice_valid_bit(condition.ref.index)
            if is_stream
            else source.slice_value(condition.ref.index)
        )
        text = str(bits) if bits.width == 1 else f"({bits} != '0)"
        conditions.append(f"!{text}" if condition.negated else text)
    return " && ".join(conditions) or write_bit(1)


def write_clear(wiring: Wiring, module: Module, count: Count) -> str:
    """Return the condition that clears a count: the fires of other counts (R5)."""
    return join_or(
        wiring.find_fire_wire(acting_module.name, action.on)
        for acting_module in wiring.datapath.modules
        for action in acting_module.actions
        if action.clears == (module.name, count.name)
    )


def find_target_bits(datapath: Datapath, module: Module, name: str) -> Slice:
    """Return the bits of a target in the bank. Raise KeyError if there is no such target."""
    bank_width = sum(target.width for _, target in datapath.list_targets())
    bit_position = 0
    for owner, target in datapath.list_targets():
        if owner.name == module.name and target.name == name:
            return Slice("target", bank_width, bit_position, target.width)
        bit_position += target.width
    raise KeyError(f"module {module.name!r} has no target {name!r}")
