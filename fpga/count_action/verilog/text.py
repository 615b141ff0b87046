"""SystemVerilog text: declarations, instances, expressions, and comments that cite the source."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fpga.count_action.model import Location

CLOCK_CONNECTIONS = {"clk_i": "clk_i", "rst_i": "rst_i"}
"""Clock and reset connections of every block with a register."""


_MAX_COLUMNS = 110


def fold_line(line: str) -> list[str]:
    """Return a line of the body, indented, and folded to 110 columns."""
    spaces = " " * (2 + len(line) - len(line.lstrip()))
    continuation = f"{spaces}// " if line.startswith("//") else f"{spaces}    "
    return textwrap.wrap(
        line.strip(),
        _MAX_COLUMNS,
        initial_indent=spaces,
        subsequent_indent=continuation,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def format_bit_range(width: int) -> str:
    """Return a range such as `[15:0]`; empty for a single bit."""
    return f"[{width - 1}:0]" if width > 1 else ""


def declare_wire(name: str, width: int = 1) -> str:
    """Return the declaration of a wire."""
    return f"logic {format_bit_range(width)} {name};" if width > 1 else f"logic {name};"


def join_with_commas(items: Iterable[str]) -> Iterator[str]:
    """Yield the items, one per line, with commas between them."""
    lines = list(items)
    yield from (f"  {line}," for line in lines[:-1])
    yield f"  {lines[-1]}"


def write_instance(
    block: str, name: str, parameters: Mapping[str, object], ports: Mapping[str, str]
) -> Iterator[str]:
    """Yield an instance of a block, with one parameter or port per line."""
    if parameters:
        yield f"{block} #("
        yield from join_with_commas(f".{key}({value})" for key, value in parameters.items())
        yield f") {name} ("
    else:
        yield f"{block} {name} ("
    yield from join_with_commas(
        f".{key}({value})" if value != key else f".{key}" for key, value in ports.items()
    )
    yield ");"


def write_bit(value: object) -> str:
    """Return a constant of one bit: 1 if `value` is true."""
    return f"1'b{int(bool(value))}"


def join_or(conditions: Iterable[str]) -> str:
    """Return the disjunction of the conditions, without duplicates; `1'b0` if there are none."""
    return " || ".join(dict.fromkeys(conditions)) or write_bit(0)


def concatenate(parts: list[str]) -> str:
    """Return `{last, ..., first}`, or the only part unchanged."""
    return parts[0] if len(parts) == 1 else f"{{{', '.join(reversed(parts))}}}"


def replicate(expression: str, repeat_count: int) -> str:
    """Return the replication of an expression."""
    return f"{{{repeat_count}{{{expression}}}}}" if repeat_count > 1 else expression


def extend_expression(expression: str, width: int, target_width: int, fill_bit: str = "1'b0") -> str:
    """Return an expression of `width` bits extended to `target_width` bits with the bit `fill_bit`."""
    return (
        expression
        if width == target_width
        else f"{{{replicate(fill_bit, target_width - width)}, {expression}}}"
    )


def format_citation(location: Location | None, texts: Mapping[str, str]) -> str:
    """Return the location of a part, and its line if `texts` has the text of that file."""
    if location is None:
        return ""
    location_text = f" ({Path(location.file).name}:{location.line}:{location.column})"
    lines = texts.get(location.file, "").splitlines()
    if location.line > len(lines):
        return location_text
    # A backslash at the end of a comment would continue it on the next line.
    quoted_line = re.sub(r"[^ -~]|\\+$", " ", lines[location.line - 1]).strip()
    return f"{location_text}: {quoted_line}"


KEYWORDS = frozenset(
    """
    accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind
    bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config
    const constraint context continue cover covergroup coverpoint cross deassign default defparam design disable
    dist do edge else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup
    endinterface endmodule endpackage endprimitive endprogram endproperty endspecify endsequence endtable endtask
    enum event eventually expect export extends extern final first_match for force foreach forever fork forkjoin
    function generate genvar global highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies import
    incdir include initial inout input inside instance int integer interconnect interface intersect join join_any
    join_none large let liblist library local localparam logic longint macromodule matches medium modport module
    nand negedge nettype new nexttime nmos nor noshowcancelled not notif0 notif1 null or output package packed
    parameter pmos posedge primitive priority program property protected pull0 pull1 pulldown pullup
    pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase randsequence rcmos real realtime ref reg
    reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1 s_always s_eventually s_nexttime
    s_until s_until_with scalared sequence shortint shortreal showcancelled signed small soft solve specify
    specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on sync_reject_on
    table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior
    trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void
    wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
    """.split()  # noqa: SIM905 - 250 quoted words are not easier to read
)
