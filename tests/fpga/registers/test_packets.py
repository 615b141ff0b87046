"""Ends of packets at the tops: `tlast` and `tkeep` on AXI-Stream, flags beside streams that go through registers."""

from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga.count_action import parse_text
from fpga.count_action.verilog import write_top_module
from fpga.registers import StreamAccess
from fpga.registers.register_list import make_register_map
from fpga.registers.top import Top

TEXT = """module p { inputs: { stream x of 2 lanes of 16 bits with last and keep } counts: { sum x.valid over cycles }
  targets: { 1 } actions: { stream x.data last x.last keep x.keep as y } }"""


def lines(top: str) -> set[str]:
    return {line.strip().rstrip(",;") for line in top.splitlines()}


def test_axi_stream_ports_have_tlast_and_tkeep():
    found = lines(Top(parse_text(TEXT, "p.ca").datapath, StreamAccess.AXI_STREAM).text)
    assert found >= {
        "input  wire s_axis_x_tlast",
        "input  wire [3:0] s_axis_x_tkeep",
        "assign dp_x_last_i = s_axis_x_tlast",
        "assign dp_x_keep_i = {s_axis_x_tkeep[2], s_axis_x_tkeep[0]}",
        "output wire m_axis_p_y_tlast",
        "output wire [3:0] m_axis_p_y_tkeep",
        "assign m_axis_p_y_tlast = held_p_y_last",
        "assign m_axis_p_y_tkeep = {held_p_y_keep[1], held_p_y_keep[1], held_p_y_keep[0], held_p_y_keep[0]}",
    }


def test_only_the_top_with_registers_has_them_as_flags():
    datapath = parse_text(TEXT, "p.ca").datapath
    registers, axis = (
        [each.name for each in make_register_map(datapath, streams)]
        for streams in (StreamAccess.REGISTERS, StreamAccess.AXI_STREAM)
    )
    assert {"IN_x_last", "IN_x_keep"} <= set(registers)
    assert not {"IN_x_last", "IN_x_keep"} & set(axis)
    assert registers[: len(axis)] == axis  # what both have stands at the same offsets


def test_the_ready_of_a_buffered_stream_comes_from_its_buffer_at_both_tops():
    text = TEXT.replace("with last and keep }", "with last and keep buffered; stream z of 8 bits }")
    datapath = parse_text(text.replace("sum x.valid", "sum x.valid + z.valid"), "p.ca").datapath
    core = write_top_module(datapath)
    assert ".ready_o(x_ready_o)" in core
    assert "assign x_ready_o" not in core
    assert "assign z_ready_o = !p_stall;" in core  # what is not marked keeps R7
    assert ".data_i({x_keep_i, x_last_i, x_data_i})" in core
    axis, axi = (
        lines(Top(datapath, each).text) for each in (StreamAccess.AXI_STREAM, StreamAccess.REGISTERS)
    )
    assert "assign s_axis_x_tready = dp_x_ready_o && !held" in axis  # both from registers
    assert ".ready_i(dp_x_ready_o & {1{!held}})" in axi
