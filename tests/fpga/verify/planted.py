"""Faults in delivered files: a piece of a file of a built folder replaced by another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TEXT = """
// Everything that has a property: two modules, a stream in, a sum and a stream out, flags, numbers.
module gate {
  inputs:  { stream x of 4 bits signed; flag on; flag restart; number level of 5 bits }
  counts:  { n: sum x.valid over cycles while on; again: sum restart }
  targets: { n: 3; one: 1 }
  actions: {
    on n: emit sum x.data width 6 as total;
    on n: stream x.data as last;
    on n: advance place modulo 3;
    on n: store level as kept;
    on again: clear n
  }
}
module after {
  counts:  { got: sum gate.total.valid over cycles }
  targets: { got: 2 }
  actions: { pulse done; on got: set seen }
}
"""
NAME = "delivered"


def _late(cycle: int) -> str:
    """Return a register that says from a cycle after reset on that it is late."""
    return (
        f"  logic [6:0] age_q = '0;\n  always_ff @(posedge clk_i) age_q <= rst_i ? '0 :"
        f" age_q == 7'd{cycle} ? age_q : age_q + 1'b1;\n  logic late;\n  assign late = age_q == 7'd{cycle};\n"
    )


@dataclass(frozen=True)
class Fault:
    """A piece of a file replaced by another; with `late`, only from so many cycles after reset on.

    With `pattern`, `old` is a regular expression.
    """

    file: str
    old: str
    new: str
    late: int = 0
    pattern: bool = False

    def plant(self, folder: Path) -> None:
        path = folder / self.file
        text = path.read_text(encoding="utf-8")
        old = self.old if self.pattern else re.escape(self.old)
        times = len(re.findall(old, text))
        assert times == 1, f"{self.old!r} stands {times} times in {self.file}"
        text = re.sub(old, self.new if self.pattern else lambda _: self.new, text)
        if self.late:
            head = text.index(");\n", text.index("module ")) + 3
            text = text[:head] + _late(self.late) + text[head:]
        path.write_text(text, encoding="utf-8")


def _kept(file: str, register: str, strobes: str, then: str) -> Fault:
    """Return a register that does something else when it is written with these strobes."""
    begins, written = r"  always_ff @\(posedge clk_i\) begin\n", rf"    else if \(write_{register}_q"
    old = rf"{begins}(    if \(datapath_reset_i\) {register}_q <= .*;\n){written}\) begin"
    lines = (
        "  logic [3:0] strobes_q;",
        "  always_ff @(posedge clk_i) if (!data_full_q) strobes_q <= s_axil_wstrb;",
        "  always_ff @(posedge clk_i) begin",
        rf"\1    else if (write_{register}_q && strobes_q == {strobes}) {then};",
        f"    else if (write_{register}_q) begin",
    )
    return Fault(file, old, "\n".join(lines), pattern=True)


def _waiting(file: str, channel: str, show: str) -> Fault:
    """Return a top whose answers wait for their ready; `show` says when the register file's answer is shown."""
    connected = rf"\.s_axil_{channel}valid\()\w+(\),\n *\.s_axil_{channel}ready\()\w+\)"
    old = r"  (\w+_registers registers \((?:.|\n)*?" + connected
    pins = f"s_axi_{channel}valid", f"s_axi_{channel}ready"
    lines = (
        f"  wire answer; reg seen_q = 1'b0; wire show = {show.replace('READY', pins[1])};",
        f"  always @(posedge aclk) seen_q <= answer && (seen_q || {pins[1]}) && !({pins[0]} && {pins[1]});",
        f"  assign {pins[0]} = answer && show;",
        rf"  \1answer\2{pins[1]} && show)",
    )
    return Fault(file, old, "\n".join(lines), pattern=True)


CORE, AXI, AXIS = f"{NAME}.sv", f"{NAME}_axi.sv", f"{NAME}_axis.sv"
AXI_FILE, AXIS_FILE = f"{NAME}_axi_registers.sv", f"{NAME}_axis_registers.sv"
FAULTS = (
    # The datapath as it was generated.
    Fault(CORE, ".enable_i(on_i)", ".enable_i(1'b1)"),
    Fault(CORE, ".commit_i,", ".commit_i(commit_i && !gate_stall),"),
    Fault(CORE, ".data_i(x_data_i)", ".data_i(~x_data_i)"),
    Fault(CORE, "assign x_ready_o = !gate_stall;", "assign x_ready_o = 1'b1;"),
    Fault(CORE, "assign x_ready_o = !gate_stall;", "assign x_ready_o = !gate_stall || late;", late=45),
    Fault(CORE, "assign x_ready_o = !gate_stall;", "assign x_ready_o = !gate_stall && !late;", late=20),
    Fault(CORE, ".set_i(after_got_fire),\n    .clear_i(1'b1)", ".set_i(gate_n_fire),\n    .clear_i(1'b1)"),
    Fault(CORE, ".shadow_i(target_shadow_i)", ".shadow_i({target_shadow_i[15:0], target_shadow_i[47:16]})"),
    # Blocks.
    Fault("count_action.sv", "== (wanted << 1);", "== (wanted << 1) && !late;", late=45),
    Fault("count_action.sv", "(increment_i != '0);", "(increment_i != '0) && !late;", late=20),
    Fault("count_action.sv", "is_full ? count_q :", "is_full ? '0 :"),
    Fault("count_action.sv", "(overshoot_q && !clear_status_i)", "1'b0"),
    Fault("count_action.sv", "rst_i || clear_i ||", "rst_i || (clear_i && !late) ||", late=20),
    Fault("count_action_beat.sv", "if (fire_i) data_q <= data_i;",
          "if (fire_i) data_q <= late ? '0 : data_i;", late=45),
    Fault("count_action_beat.sv", "valid_q <= fire_i || stalled_o;",
          "valid_q <= fire_i || (stalled_o && !late);", late=20),
    Fault("count_action_sum.sv", "else sum_q <= sum;", "else sum_q <= late ? sum + 1'b1 : sum;", late=45),
    Fault("count_action_sum.sv", "if (rst_i || clear_i) sum_q", "if (rst_i) sum_q"),
    Fault("count_action_targets.sv", "if (commit_i) target_q", "if (commit_i && !late) target_q", late=20),
    Fault("count_action_store.sv", "number_q <= data_i", "number_q <= ~data_i"),
    Fault("count_action_advance.sv", "number_q == Last ?", "number_q == Last && !late ?", late=45),
    Fault("count_action_flag.sv", "set_i || (flag_q && !clear_i)", "(set_i && !late) || (flag_q && !clear_i)", late=45),
    # Tops, their registers and the blocks behind them.
    Fault(AXI, "assign dp_commit_i = CONTROL_o[0];", "assign dp_commit_i = CONTROL_o[1];"),
    Fault(AXI, "assign OVERSHOOT_i = dp_overshoot_o;", "assign OVERSHOOT_i = dp_saturated_o;"),
    Fault(AXIS, "assign dp_x_data_i = s_axis_x_tdata[3:0];", "assign dp_x_data_i = s_axis_x_tdata[4:1];"),
    Fault("portal_sink.sv", "else if (pop && !push) level_q <= level_q - 1'b1;", ""),
    Fault("portal_source.sv", "(valid_q & ~ready_i) | pushed",
          "late ? pushed : (valid_q & ~ready_i) | pushed", late=45),
    Fault("register_pulses.sv", "pulses_q + 1'b1", "pulses_q + 2'd2"),
    Fault("axis_hold.sv", "kept_q <= valid_o && !ready_i;", "kept_q <= 1'b0;"),
    # Strobes: bytes of a partial write that are not taken, and bytes that it leaves.
    Fault(AXI_FILE, "if (strobe_q[0]) TARGET_gate_n_q[7:0]", "if (strobe_q == 2'h3) TARGET_gate_n_q[7:0]"),
    Fault(AXI_FILE, "if (strobe_q[1]) TARGET_gate_one_q[15:8]", "if (strobe_q == 2'h3) TARGET_gate_one_q[15:8]"),
    Fault(AXIS_FILE, "if (strobe_q[0]) TARGET_after_got_q[7:0] <= data_q[7:0];",
          "TARGET_after_got_q[7:0] <= data_q[7:0] & {8{strobe_q[0]}};"),
    _kept(AXIS_FILE, "TARGET_gate_n", "4'h3", "TARGET_gate_n_q <= TARGET_gate_n_q"),
    _kept(AXIS_FILE, "IN_level", "4'hE", "IN_level_q <= '0"),
    _kept(AXI_FILE, "IN_x_DATA", "4'h1", "IN_x_DATA_q <= IN_x_DATA_q"),
    Fault(AXI_FILE, "else OUT_gate_last_POP_q <= written[0];", "else OUT_gate_last_POP_q <= data_q[0];"),
    Fault(AXIS_FILE, "else CONTROL_q <= written;", "else CONTROL_q <= data_q[3:0];"),
    Fault(AXI_FILE, r"(write_IN_x_PUSH_q <= select) && .*;", r"\1;", pattern=True),
    # Words: the one next to it, an answer of another stage, and an answer that a reset does not end.
    Fault(AXI_FILE, r"(write_TARGET_gate_n_q <= select && \(write_word_q) == .*;", r"\1 >= 5'h8);", pattern=True),
    Fault(AXIS_FILE, "stage_q <= {stage_q[0], accept};", "stage_q <= {accept, accept};"),
    # Valids that wait for their ready: at once, and until it has been there.
    _waiting(AXI, "b", "READY"),
    _waiting(AXIS, "b", "seen_q || READY"),
    _waiting(AXIS, "b", "seen_q"),
    _waiting(AXI, "r", "READY"),
    _waiting(AXIS, "r", "seen_q"),
    Fault("axis_hold.sv", "assign valid_o = valid_i || kept_q;", "assign valid_o = (valid_i || kept_q) && ready_i;"),
    Fault(AXIS, "assign dp_x_valid_i = s_axis_x_tvalid;", "assign dp_x_valid_i = s_axis_x_tvalid && dp_x_ready_o;"),
    Fault("portal_source.sv", "assign valid_o   = valid_q;", "assign valid_o   = valid_q & ready_i;"),
    # Files that are no hardware.
    Fault(f"{NAME}.json", '"modulo":3', '"modulo":2'),
    Fault(f"{NAME}_axi.h", "CONTROL_OFFSET 0x8u", "CONTROL_OFFSET 0xCu"),
    Fault(f"{NAME}.rdl", "CONTROL @ 0x8;", "CONTROL @ 0xC;"),
    Fault(f"{NAME}.ca", "advance place modulo 3", "advance place modulo 2"),
)  # fmt: skip
"""Faults of every kind; a fault in the text makes all files wrong."""
