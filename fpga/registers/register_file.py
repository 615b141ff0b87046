"""The AXI4-Lite register file of a top, `NAME_registers`, as readable SystemVerilog.

Every stage of an access ends in registers, so that a top runs at the clock of its datapath. A write waits for its
address and its data, selects its register, and acts. A read selects among eight words in a stage, then among eight
results of such stages, and so on. Tests compare it with the register file that PeakRDL generates from the SystemRDL.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fpga.registers.model import WORD_BITS, WORD_BYTES, Access, Register, RegisterMap
from fpga.registers.register_blocks import format_bit_range
from fpga.registers.register_ports import declare_port, list_axi_signals, list_vectors

_MAX_LINE_LENGTH = 100
"""Longest line."""
_STAGE_BITS = 3
"""Bits of the address that a stage of a read decodes."""
_BYTE_BITS = 8
_WRITABLE_ACCESS = frozenset({Access.WRITE, Access.PULSE, Access.PUSH})


def count_stages(address_bits: int) -> int:
    """Return the number of stages between a read's address and its answer."""
    return -(-(address_bits - 2) // _STAGE_BITS)


def count_read_cycles(address_bits: int) -> int:
    """Return the number of cycles from one accepted read to the next. A write takes 3 cycles, which is never more."""
    return 2 + count_stages(address_bits)


def emit_register_file(register_map: RegisterMap) -> str:
    """Return the text of the SystemVerilog module `NAME_registers`."""
    sections = [_write_header(register_map), _write_write_channel(register_map)]
    sections += [_write_section(register, register_map) for register in register_map]
    sections += [_write_read_channel(register_map), _write_stages(register_map)]
    body = ("\n".join(line for line in section) for section in sections)
    return "\n\n".join([*body, "endmodule"]) + "\n"


def _write_header(register_map: RegisterMap) -> Iterator[str]:
    yield f"// Registers of {register_map.name}, hash {register_map.digest:08x}, on AXI4-Lite. Generated."
    yield "//"
    yield from _write_comment(
        "One write and one read at a time. An access outside the registers is answered as one to a register"
        " that keeps nothing. Bits 1:0 of an address and the protection have no effect.",
        indent="",
    )
    yield f"module {register_map.name}_registers ("
    ports = [declare_port(name, 1, is_output=False) for name in ("clk_i", "rst_i", "datapath_reset_i")]
    ports += [
        declare_port(f"s_axil_{axi_signal.name}", axi_signal.width, is_output=axi_signal.is_output)
        for axi_signal in list_axi_signals(register_map.address_width)
    ]
    ports += [
        register_port.declaration for register in register_map for register_port in list_vectors(register)
    ]
    unread_pins = _list_unread_pins(register_map)
    for port in ports:
        comma = "," if port != ports[-1] else ""
        if port.split()[-1] in unread_pins:
            yield "  // verilator lint_off UNUSEDSIGNAL"
            yield f"  (* maybe_unused *) {port}{comma}"
            yield "  // verilator lint_on UNUSEDSIGNAL"
        else:
            yield f"  {port}{comma}"
    yield ");"


def _write_write_channel(register_map: RegisterMap) -> Iterator[str]:
    word_address_bits, data_bits = register_map.address_width - 2, _count_data_bits(register_map)
    acting_bits = max((_count_acting_bits(register) for register in register_map), default=0)
    strobe_count = -(-data_bits // _BYTE_BITS)
    yield from f"""\
  // Writes: an address and its data wait for each other. The write then selects a register, which
  // acts while the bus has the answer.
  logic {_pad("", word_address_bits)}address_full_q, data_full_q, answer_q, select;
  logic {_pad(format_bit_range(word_address_bits), word_address_bits)}write_word_q;
  logic {_pad(format_bit_range(data_bits), word_address_bits)}data_q;
  logic {_pad(format_bit_range(strobe_count), word_address_bits)}strobe_q;

  assign s_axil_awready = !address_full_q;
  assign s_axil_wready  = !data_full_q;
  assign s_axil_bvalid  = answer_q;
  assign s_axil_bresp   = '0;

  assign select = address_full_q && data_full_q && !answer_q;

  always_ff @(posedge clk_i) begin
    if (rst_i || (answer_q && s_axil_bready)) begin
      address_full_q <= 1'b0;
      data_full_q    <= 1'b0;
      answer_q       <= 1'b0;
    end else begin
      if (s_axil_awvalid) address_full_q <= 1'b1;
      if (s_axil_wvalid) data_full_q <= 1'b1;
      if (select) answer_q <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!address_full_q) write_word_q <= s_axil_awaddr[{register_map.address_width - 1}:2];
    if (!data_full_q) begin
      data_q   <= {_format_slice("s_axil_wdata", 0, data_bits)};
      strobe_q <= {_format_slice("s_axil_wstrb", 0, strobe_count, WORD_BYTES)};
    end
  end""".splitlines()
    if acting_bits:
        yield ""
        yield "  // What a write makes act: the bits of the bytes that have a strobe."
        yield f"  logic {format_bit_range(acting_bits)}written;"
        for low in range(0, acting_bits, _BYTE_BITS):
            size = min(_BYTE_BITS, acting_bits - low)
            strobe = _format_slice("strobe_q", low // _BYTE_BITS, 1, strobe_count)
            written_bits, source = (
                _format_slice("written", low, size, acting_bits),
                _format_slice("data_q", low, size, data_bits),
            )
            yield f"  assign {written_bits} = {strobe} ? {source} : '0;"


def _pad(text: str, bits: int) -> str:
    return text.ljust(max(len("[31:0] "), len(format_bit_range(bits))))


def _count_data_bits(register_map: RegisterMap) -> int:
    """Return the number of bits that the widest word to write has."""
    return max(
        (register.width for register in register_map if register.access in _WRITABLE_ACCESS), default=1
    )


def _count_acting_bits(register: Register) -> int:
    """Return the number of bits of the last word that act when it is written."""
    if register.access not in {Access.PULSE, Access.PUSH}:
        return 0
    register_bits = register.signal_bit_count or register.bit_count
    return min(register.width, register_bits - (register.word_count - 1) * register.width)


# ------------------------------------------------------------------------ one section per register


_ACCESS_TEXTS = {
    Access.CONSTANT: "read only, constant",
    Access.READ: "read only",
    Access.WRITE: "read and write",
    Access.PULSE: "write only, a bit acts for one cycle",
    Access.PUSH: "write only, a write of the last word acts",
}


def _write_section(register: Register, register_map: RegisterMap) -> Iterator[str]:
    address_range = (
        f" to 0x{register.get_offset(register.word_count - 1):X}" if register.word_count > 1 else ""
    )
    reset = f", reset 0x{register.reset_value:X}" if register.access is Access.WRITE else ""
    yield from _write_comment(
        f"0x{register.offset:X}{address_range} {register.name}: {_ACCESS_TEXTS[register.access]}{reset}."
        f" {register.description}."
    )
    for bit_field in register.fields:
        bit_text = (
            f"Bit {bit_field.low_bit}"
            if bit_field.width == 1
            else f"Bits {bit_field.low_bit + bit_field.width - 1}:{bit_field.low_bit}"
        )
        yield from _write_comment(f"{bit_text} {bit_field.name}: {bit_field.description}.")
    if register.access in _WRITABLE_ACCESS:
        yield from _write_flip_flops(register, register_map)


def _write_flip_flops(register: Register, register_map: RegisterMap) -> Iterator[str]:
    word_address_bits = register_map.address_width - 2
    name, write_signal, word_count = register.name, f"write_{register.name}_q", register.word_count
    yield f"  logic {format_bit_range(word_count)}{write_signal};"
    port_bits = register.signal_bit_count or register.bit_count
    stored_bits = register.bit_count if register.access is Access.WRITE else port_bits
    yield f"  logic {format_bit_range(stored_bits)}{name}_q;"
    if register.access is Access.PUSH:
        yield f"  logic push_{name}_q;"
    yield ""
    yield "  always_ff @(posedge clk_i) begin"
    yield f"    if (rst_i) {write_signal} <= '0;"
    first_word = register.offset // WORD_BYTES
    if word_count == 1:
        yield f"    else {write_signal} <= select && (write_word_q == {word_address_bits}'h{first_word:X});"
    else:
        yield f"    else for (int word = 0; word < {word_count}; word++) begin"
        yield (
            f"      {write_signal}[word] <= select && (write_word_q == {word_address_bits}'d{first_word} +"
            f" word[{word_address_bits - 1}:0]);"
        )
        yield "    end"
    yield "  end"
    yield ""
    if register.access is Access.WRITE:
        yield from _write_first_words(register, word_count, register_map)
    else:
        yield from _write_first_words(register, word_count - 1, register_map)
        yield from _write_last_word(register, register_map)
    yield from _write_statement(
        f"  assign {name}_o =", f"{_format_slice(f'{name}_q', 0, port_bits, stored_bits)};"
    )
    if register.access is Access.PUSH:
        yield from _write_statement(f"  assign {name}_push_o =", f"push_{name}_q;")


def _write_first_words(register: Register, word_count: int, register_map: RegisterMap) -> Iterator[str]:
    """Yield the flip-flops of the first words, each byte with its strobe."""
    if not word_count:
        return
    name, write_signal, width = register.name, f"write_{register.name}_q", register.width
    has_several_words = register.word_count > 1
    data_bits = _count_data_bits(register_map)
    value = f"{width}'h{register.reset_value:X}"
    first_words = f"{name}_q" if register.access is Access.WRITE else f"{name}_q[{word_count * width - 1}:0]"
    yield "  always_ff @(posedge clk_i) begin"
    yield f"    if (datapath_reset_i) {first_words} <= {f'{{{word_count}{{{value}}}}}' if word_count > 1 else value};"
    if has_several_words:
        yield f"    else for (int word = 0; word < {word_count}; word++) begin"
        yield f"      if ({write_signal}[word]) begin"
    else:
        yield f"    else if ({write_signal}) begin"
    indent = "        " if has_several_words else "      "
    for low in range(0, width, _BYTE_BITS):
        size = min(_BYTE_BITS, width - low)
        bits = _format_word_slice(name, low, size, width, has_several_words=has_several_words)
        strobe = _format_slice("strobe_q", low // _BYTE_BITS, 1, -(-data_bits // _BYTE_BITS))
        yield from _write_statement(
            f"{indent}if ({strobe})", f"{bits} <= {_format_slice('data_q', low, size, data_bits)};"
        )
    if has_several_words:
        yield "      end"
    yield "    end"
    yield "  end"
    yield ""


def _write_last_word(register: Register, register_map: RegisterMap) -> Iterator[str]:
    """Yield the flip-flops of the last word, whose bits act for one cycle if they are written."""
    name, write_signal, word_count, size = (
        register.name,
        f"write_{register.name}_q",
        register.word_count,
        _count_acting_bits(register),
    )
    idle_line = f"    if (rst_i || !{_format_slice(write_signal, word_count - 1, 1, word_count)})"
    bits = f"{name}_q" if word_count == 1 else f"{name}_q[{(word_count - 1) * register.width}+:{size}]"
    acting_bits = max(_count_acting_bits(register) for register in register_map)
    yield "  always_ff @(posedge clk_i) begin"
    yield from _write_statement(idle_line, f"{bits} <= '0;")
    yield from _write_statement("    else", f"{bits} <= {_format_slice('written', 0, size, acting_bits)};")
    if register.access is Access.PUSH:
        strobe_count = -(-_count_data_bits(register_map) // _BYTE_BITS)
        word_strobe_count = -(-register.width // _BYTE_BITS)
        any_strobe = _format_slice("strobe_q", 0, word_strobe_count, strobe_count)
        strobe_condition = f"{any_strobe} != '0" if word_strobe_count > 1 else any_strobe
        yield from _write_statement(idle_line, f"push_{name}_q <= 1'b0;")
        yield from _write_statement("    else", f"push_{name}_q <= {strobe_condition};")
    yield "  end"
    yield ""


def _write_statement(start: str, statement: str) -> Iterator[str]:
    """Yield a condition and its statement, or the sides of an assignment, in two lines if they are long."""
    if len(f"{start} {statement}") <= _MAX_LINE_LENGTH:
        yield f"{start} {statement}"
    else:
        yield start
        yield f"{' ' * (len(start) - len(start.lstrip()) + 2)}{statement}"


def _format_word_slice(name: str, low_bit: int, size: int, width: int, *, has_several_words: bool) -> str:
    if has_several_words:
        return f"{name}_q[{width}*word+{low_bit}+:{size}]" if low_bit else f"{name}_q[{width}*word+:{size}]"
    return _format_slice(f"{name}_q", low_bit, size, width)


def _format_slice(name: str, low_bit: int, size: int, all_bits: int = WORD_BITS) -> str:
    if size == all_bits:
        return name
    return f"{name}[{low_bit}]" if size == 1 else f"{name}[{low_bit + size - 1}:{low_bit}]"


# ------------------------------------------------------------------------ reads


def _write_read_channel(register_map: RegisterMap) -> Iterator[str]:
    stage_count = count_stages(register_map.address_width)
    last_stage = f"[{stage_count - 1}]" if stage_count > 1 else ""
    word_address_bits = register_map.address_width - 2
    next_stages = f"{{stage_q[{stage_count - 2}:0], accept}}" if stage_count > 2 else "{stage_q[0], accept}"
    yield from f"""\
  // Reads: an address selects among eight words or results per stage, until one is left.
  logic {_pad("", word_address_bits)}read_full_q, accept, answered_q;
  logic {_pad(format_bit_range(stage_count), word_address_bits)}stage_q;
  logic {_pad(format_bit_range(word_address_bits), word_address_bits)}read_word_q;

  assign s_axil_arready = !read_full_q;
  assign s_axil_rvalid  = answered_q;
  assign s_axil_rresp   = '0;

  assign accept = s_axil_arvalid && !read_full_q;

  always_ff @(posedge clk_i) begin
    if (rst_i || (answered_q && s_axil_rready)) begin
      read_full_q <= 1'b0;
      answered_q  <= 1'b0;
      stage_q     <= '0;
    end else begin
      if (s_axil_arvalid) read_full_q <= 1'b1;
      if (stage_q{last_stage}) answered_q <= 1'b1;
      stage_q <= {next_stages if stage_count > 1 else "accept"};
    end
  end

  always_ff @(posedge clk_i) begin
    if (!read_full_q) read_word_q <= s_axil_araddr[{register_map.address_width - 1}:2];
  end
""".splitlines()


def _list_unread_pins(register_map: RegisterMap) -> list[str]:
    """Return the pins of AXI4-Lite that have unread bits."""
    data_bits = _count_data_bits(register_map)
    pin_names = ["s_axil_awaddr", "s_axil_awprot", "s_axil_araddr", "s_axil_arprot"]
    pin_names += ["s_axil_wdata"] if data_bits < WORD_BITS else []
    return pin_names + (["s_axil_wstrb"] if -(-data_bits // _BYTE_BITS) < WORD_BYTES else [])


def _write_stages(register_map: RegisterMap) -> Iterator[str]:
    """Yield the stages; a group of words that all read 0 has none."""
    stage_count, word_address_bits = count_stages(register_map.address_width), register_map.address_width - 2
    expressions = [
        _read_expression(register, word) for register in register_map for word in range(register.word_count)
    ]
    for stage in range(stage_count):
        low = _STAGE_BITS * stage
        size = min(_STAGE_BITS, word_address_bits - low)
        groups = [expressions[begin : begin + (1 << size)] for begin in range(0, len(expressions), 1 << size)]
        expressions = []
        for group_index, group in enumerate(groups):
            is_last = stage == stage_count - 1
            expressions.append(
                (f"stage_{stage}_{group_index}_q" if not is_last else "answer_data_q") * any(group)
            )
            if not any(group):
                continue
            first_address = (group_index << low + size) * WORD_BYTES
            last_address = (group_index + 1 << low + size) * WORD_BYTES - 1
            yield f"  // Stage {stage}, 0x{first_address:X} to 0x{last_address:X}."
            yield f"  logic [31:0] {expressions[-1]};"
            yield ""
            yield "  always_ff @(posedge clk_i) begin"
            condition = ""
            if is_last:
                yield f"    if (rst_i) {expressions[-1]} <= '0;"
                condition = f"else if (stage_q{f'[{stage}]' if stage_count > 1 else ''}) "
            yield f"    {condition}case ({_format_slice('read_word_q', low, size, word_address_bits)})"
            for number, value in enumerate(group):
                if value:
                    yield from _write_statement(
                        f"      {size}'h{number:X}: {expressions[-1]} <=", f"{value};"
                    )
            yield f"      default: {expressions[-1]} <= '0;"
            yield "    endcase"
            yield "  end"
            yield ""
    yield "  assign s_axil_rdata = answer_data_q;"


def _read_expression(register: Register, word: int) -> str:
    """Return the expression that a read of a word returns; empty for 0."""
    if register.access is Access.CONSTANT:
        return f"32'h{register.reset_value:08X}"
    if register.access not in {Access.READ, Access.WRITE}:
        return ""
    is_input = register.access is Access.READ
    signal = register.name + ("_i" if is_input else "_q")
    readable_bits = (register.signal_bit_count or register.bit_count) if is_input else register.bit_count
    low_bit = word * register.width
    size = min(register.width, readable_bits - low_bit)
    if size <= 0:
        return ""
    bits = _format_slice(signal, low_bit, size, readable_bits)
    return f"{{{WORD_BITS - size}'b0, {bits}}}" if size < WORD_BITS else bits


def _write_comment(text: str, indent: str = "  ") -> Iterator[str]:
    for line in textwrap.wrap(
        text, _MAX_LINE_LENGTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False
    ):
        yield f"{indent}// {line}"
