"""Arbitration among the streams of a count: by priority or by turns, per beat or per packet (R19).

An arbiter consists of formulas and stored numbers, which every backend supports. The count takes only the selected
beat. The numbers are named after the count: `NAME_open` is 1 inside a packet. Then `NAME_turn` is the stream of that
packet; otherwise it is the stream at which the search begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fpga.count_action.model import Count, Module, Operand, Operation, Ref

ARBITRATION_ORDERS = ("priority", "turns")
MAX_STREAMS = 16
"""Largest number of streams of one arbiter: the selection is one combinational path."""


def list_registers(arbitration_order: str, *, takes_whole_frames: bool, stream_count: int) -> dict[str, int]:
    """Return the width of each number that an arbiter stores, by the suffix of its name."""
    turn_widths = (
        {"turn": (stream_count - 1).bit_length()}
        if takes_whole_frames or arbitration_order == "turns"
        else {}
    )
    return turn_widths | ({"open": 1} if takes_whole_frames else {})


def make_selection(count: Count, module_name: str, options: Sequence[Operand]) -> Operand:
    """Return the formula for the option of the selected stream, or the last option if no stream has a beat."""
    valid_formulas = [Operation("valid", (Ref(term.name, term.module, term.index),)) for term in count.terms]
    selection = options[-1]
    for is_valid, option in reversed(list(zip(valid_formulas[:-1], options[:-1], strict=True))):
        selection = Operation("if", (is_valid, option, selection))
    turn = Ref(f"{count.name}_turn", module_name)
    if count.order == "turns":
        for index, option in reversed(list(enumerate(options))):
            is_next = Operation("and", (valid_formulas[index], Operation("<=", (turn, index))))
            selection = Operation("if", (is_next, option, selection))
    if count.whole:
        open_option = Operation("table", (turn, *options))
        selection = Operation("if", (Ref(f"{count.name}_open", module_name), open_option, selection))
    return selection


def make_picks(count: Count, module_name: str) -> list[Operand]:
    """Return, for each stream, the formula that is 1 if an arbiter selects it."""
    selection = make_selection(count, module_name, range(len(count.terms)))
    return [Operation("==", (selection, index)) for index in range(len(count.terms))]


def make_next_values(count: Count, module_name: str) -> dict[str, Operand]:
    """Return the formula for the next value of each stored number, by the suffix of its name."""
    stream_count = len(count.terms)
    last_flags = [make_last_ref(term) for term in count.terms]
    next_streams: list[Operand] = [(index + 1) % stream_count for index in range(stream_count)]
    next_values: dict[str, Operand] = {}
    if count.order == "turns" or count.whole:
        next_turns: list[Operand] = next_streams if count.order == "turns" else list(range(stream_count))
        if count.order == "turns" and count.whole:
            next_turns = [
                Operation("if", (is_last, next_index, index))
                for index, (is_last, next_index) in enumerate(zip(last_flags, next_streams, strict=True))
            ]
        next_values["turn"] = make_selection(count, module_name, next_turns)
    if count.whole:
        next_values["open"] = make_selection(
            count, module_name, [Operation("not", (is_last,)) for is_last in last_flags]
        )
    return next_values


def make_last_ref(stream: Ref) -> Ref:
    """Return the `last` flag of a stream."""
    return Ref(f"{stream.name}_last", stream.module)


def select_samples(count: Count, module_name: str, lanes: int) -> list[Operand]:
    """Return the formulas for the samples of the selected beat, one per lane."""
    return [
        make_selection(
            count, module_name, [Ref(term.name, term.module, term.index, lane) for term in count.terms]
        )
        for lane in range(lanes)
    ]


def find_pick_formula(count: Count, stream: Ref) -> Ref | None:
    """Return the formula that is 1 if a count selects this stream, or None if the count takes all streams."""
    stream_key = (stream.module, stream.name, stream.index)
    terms_and_picks = zip(count.terms, count.picks, strict=False)
    return next(
        (pick for term, pick in terms_and_picks if (term.module, term.name, term.index) == stream_key), None
    )


def find_arbitrating_counts(module: Module) -> Iterator[Count]:
    """Yield the counts of a module that arbitrate."""
    return (count for count in module.counts if count.order)
