"""Statements for the buffers of streams at the clock edge (R20).

A buffer stands in words as its port does: a bit for each stream, and all beats side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.actions.kind import when
from fpga.count_action.model import Signal
from fpga.count_action.ports import WORD_BITS, buffered_parts
from fpga.count_action.simulate.compiled.expressions import literal
from fpga.count_action.simulate.compiled.names import Names

Lines = Iterator[str]


def buffer_lines(names: Names) -> Lines:
    """Return the statements for all buffers, after everything that looks at them."""
    for signal in names.datapath.inputs:
        if signal.buffered:
            yield from _buffer(names, signal)


def _buffer(names: Names, signal: Signal) -> Lines:
    valid = names.ports.input(f"{signal.name}_valid_i")
    ready = names.ports.output(f"{signal.name}_ready_o").column
    for word in range(valid.words):
        column = valid.column + word
        first, second = f"bv{column}", f"bw{column}"
        yield f"bt{column} = i{column} & o{ready + word}"
        yield f"bs{column} = bt{column} & {first} & (g_{first} ^ -1)"
        yield f"bu{column} = g_{first} & {second}"
        yield f"bf{column} = bt{column} & (bs{column} ^ -1)"
        yield f"{first} = {first} & (g_{first} ^ -1) | {second} | bt{column}"
        yield f"{second} = {second} & (g_{first} ^ -1) | bs{column}"
    for name, width in buffered_parts(names.datapath, signal):
        port = names.ports.input(name)
        for index in range(signal.size):
            yield from _element(port.column, valid.column, index, width)


def _element(data: int, valid: int, index: int, width: int) -> Lines:
    """Return the statements for the beats of one stream."""
    word, bit = divmod(index, WORD_BITS)
    goes_up, first, second = (f"b{letter}{valid + word} >> {bit} & 1" for letter in "ufs")
    places = list(_places(index * width, width))
    kept = {f"{data + word}": (literal(~mask), literal(mask)) for word, mask in places}
    yield when(goes_up, [f"bh{at} = bh{at} & {rest} | bn{at} & {mask}" for at, (rest, mask) in kept.items()])
    yield when(first, [f"bh{at} = bh{at} & {rest} | i{at} & {mask}" for at, (rest, mask) in kept.items()])
    yield when(second, [f"bn{at} = bn{at} & {rest} | i{at} & {mask}" for at, (rest, mask) in kept.items()])


def _places(low: int, width: int) -> Iterator[tuple[int, int]]:
    """Return the words in which bits stand, and the bits in each."""
    for word in range(low // WORD_BITS, (low + width - 1) // WORD_BITS + 1):
        begin = max(low - word * WORD_BITS, 0)
        end = min(low + width - word * WORD_BITS, WORD_BITS)
        yield word, (1 << end) - (1 << begin)
