"""Counts that choose among their streams, and actions that send the selected beat (R19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fpga.count_action.arbitration import MAX_STREAMS, list_registers
from fpga.count_action.diagnostics import SourceError, quote
from fpga.count_action.elaboration.flat import FlatAction, FlatCount, FlatModule, FlatReference
from fpga.count_action.elaboration.targets import find_count
from fpga.count_action.language.syntax import ArbitrationText, CountText


def check_arbitration(
    count_text: CountText, arbitration: ArbitrationText, streams: list[FlatReference], constant: int
) -> None:
    """Raise `SourceError` if a count cannot choose among its terms."""
    order_text = f"`by {arbitration.order}`"
    if count_text.accumulates:
        message = f"{order_text} in a count over cycles, which takes every beat at once (R7)"
        hint = "Remove `over cycles`, and count the merged stream in a module of its own."
        raise SourceError(arbitration.location, message, hint)
    if constant or any(stream.suffix != "valid" for stream in streams):
        message = f"{order_text} chooses among streams, but the sum has other terms"
        raise SourceError(
            arbitration.location, message, "Add valid bits only: sum a.valid + b.valid by turns."
        )
    if not 2 <= len(streams) <= MAX_STREAMS:
        message = f"{order_text} of {len(streams)} streams; 2 to {MAX_STREAMS} are possible"
        hint = (
            f"Name another stream, or remove {order_text}."
            if len(streams) < 2
            else "Merge in several modules."
        )
        raise SourceError(arbitration.location, message, hint)
    names = [str(stream) for stream in streams]
    duplicate_name = next((name for name in names if names.count(name) > 1), None)
    if duplicate_name is not None:
        raise SourceError(
            arbitration.location,
            f"{quote(duplicate_name)} appears twice in the sum",
            "Name each stream once.",
        )


def make_arbiter_actions(count: FlatCount) -> Iterator[FlatAction]:
    """Yield the actions that store the numbers of an arbiter: the turn, and whether a packet is open."""
    if count.arbitration_order:
        for name, width in list_registers(
            count.arbitration_order,
            takes_whole_frames=count.takes_whole_frames,
            stream_count=len(count.terms),
        ).items():
            yield FlatAction(
                verb="store", name=f"{count.name}_{name}", count_name=count.name, count_location=count.location,
                samples=(), width=width, sign=None, cleared_reference=None, location=count.location, part_of=count.name,
            )  # fmt: skip


def make_end_signal_actions(action: FlatAction, end_signals: tuple[str, ...]) -> Iterator[FlatAction]:
    """Yield the actions that store the `last` flag and the kept lanes of the selected beat."""
    for end_kind in end_signals:
        width = 1 if end_kind == "last" else None
        yield replace(
            action,
            verb="store",
            name=f"{action.name}_{end_kind}",
            part_of=action.name,
            width=width,
            sign=None,
        )


def list_merged_streams(module: FlatModule, action: FlatAction) -> tuple[FlatReference, ...]:
    """Return references to the samples of the streams that a `merge` chooses among.

    Raise `SourceError` if its count takes all of its streams.
    """
    name = find_count(module, action)
    count = next(candidate for candidate in module.counts if candidate.name == name)
    if not count.arbitration_order:
        message = f"`merge` sends the selected beat, but count {quote(name)} takes all of its streams"
        raise SourceError(action.location, message, "Write `by turns` or `by priority` in the count.")
    return tuple(replace(term, suffix="data") for term in count.terms)


def find_last_flags(module: FlatModule, action: FlatAction) -> Iterator[FlatReference]:
    """Yield the `last` flags that an arbiter's stored numbers depend on; none for any other action."""
    if action.verb != "store" or action.samples or not action.part_of:
        return
    for count in module.counts:
        if count.name == action.part_of and count.takes_whole_frames:
            yield from (
                make_end_signal_reference(replace(term, suffix="data"), "last") for term in count.terms
            )


def make_end_signal_reference(stream: FlatReference, end_signal: str) -> FlatReference:
    """Return the reference to the `last` flag or the kept lanes of a stream (`end_signal` is `last` or `keep`)."""
    if stream.module is not None:
        return replace(stream, name=f"{stream.label}_{end_signal}", index=None, suffix="", lane=None)
    return FlatReference(end_signal, stream.name, None, "", None, stream.location)
