"""Simulation of a design with Icarus Verilog. It is four-valued, so an X at an output is detected as an error.

A generated bench reads its stimulus from a file of hexadecimal rows, and writes the outputs to another file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from fpga.count_action.model import Datapath
from fpga.count_action.ports import WORD_BITS, Port, Rows
from fpga.hdl.design import Design, make_design
from fpga.hdl.tools import BadOutput, find_tool
from fpga.hdl.verilator import check_rows

_HEX_DIGITS = frozenset("0123456789abcdef")
_HEX_DIGITS_PER_WORD = WORD_BITS // 4

_BENCH_TEMPLATE = """\
// Reads a row of inputs per cycle, and writes the outputs before the clock edge.
`timescale 1ns / 1ps
module bench;
  logic clk, rst;
{wires}
  integer from_file, to_file, cycle, read;

  {top} dut (
    .clk_i(clk),
    .rst_i(rst),
{connections}
  );

  initial begin
    from_file = $fopen("stimulus.hex", "r");
    to_file = $fopen("outputs.hex", "w");
    clk = 1'b0;
    for (cycle = 0; cycle < {cycles}; cycle = cycle + 1) begin
      if (cycle % {episode} == 0) begin
        rst = 1'b1;
{zeros}
        repeat (2) begin
          #1 clk = 1'b1;
          #1 clk = 1'b0;
        end
        rst = 1'b0;
      end
      read = $fscanf(from_file, {read});
      #1 $fdisplay(to_file, {written});
      clk = 1'b1;
      #1 clk = 1'b0;
    end
    $fclose(to_file);
    $finish(0);
  end
endmodule
"""


def dump(design: Design, rows: Rows, *, timeout_s: float = 600) -> str:
    """Return the VCD text of a run, with every wire of the design below `bench.dut`. Raise as `run` does."""
    inputs = check_rows(design, rows)
    with tempfile.TemporaryDirectory(prefix="icarus-") as folder_name:
        folder = Path(folder_name)
        _simulate(design, inputs, len(inputs) or 1, folder, timeout_s, _DUMP_MODULE)
        return (folder / "dump.vcd").read_text(encoding="ascii")


_DUMP_MODULE = 'module dump; initial begin $dumpfile("dump.vcd"); $dumpvars(0, bench.dut); end endmodule\n'


def run(design: Datapath | Design, rows: Rows, *, episode_cycles: int = 0, timeout_s: float = 600) -> Rows:
    """Return the outputs of every cycle from reset on; reset the design again after every `episode_cycles`, if given.

    Raise ToolMissing, ToolFailed (errors in the sources), BadOutput (an X or Z at an output) or ValueError (rows of
    another width).
    """
    simulated_design = make_design(design) if isinstance(design, Datapath) else design
    inputs = check_rows(simulated_design, rows)
    with tempfile.TemporaryDirectory(prefix="icarus-") as folder_name:
        folder = Path(folder_name)
        _simulate(simulated_design, inputs, episode_cycles or len(inputs) or 1, folder, timeout_s)
        text = (folder / "outputs.hex").read_text(encoding="ascii")
    return _parse_rows(simulated_design, text, len(inputs))


def _simulate(
    design: Design, inputs: Rows, episode_cycles: int, folder: Path, timeout_s: float, extra_module: str = ""
) -> None:
    """Build the bench and run it; `extra_module` is the text of another module to simulate with it."""
    sources = design.write(folder)
    (folder / "bench.sv").write_text(_write_bench(design, len(inputs), episode_cycles), encoding="ascii")
    (folder / "more.sv").write_text(extra_module, encoding="ascii")
    (folder / "stimulus.hex").write_text(_format_rows(design, inputs), encoding="ascii")
    tops = ["-s", "bench", *(["-s", "dump"] if extra_module else [])]
    files = ["bench.sv", "more.sv", *(path.name for path in sources)]
    find_tool("iverilog").run(
        ["-g2012", *tops, "-o", "bench.vvp", *files], folder=folder, timeout_s=timeout_s
    )
    find_tool("vvp").run(["-n", "bench.vvp"], folder=folder, timeout_s=timeout_s)


def _write_bench(design: Design, cycle_count: int, episode_cycles: int) -> str:
    # A wire for every port, because Icarus is slow with slices of one wide wire.
    inputs = {f"in_{index}": port for index, port in enumerate(design.ports.inputs)}
    outputs = {f"out_{index}": port for index, port in enumerate(design.ports.outputs)}
    return _BENCH_TEMPLATE.format(
        top=design.top,
        cycles=cycle_count,
        episode=episode_cycles,
        wires="\n".join(
            [f"  logic [{port.width - 1}:0] {name};" for name, port in inputs.items()]
            + [f"  wire [{port.width - 1}:0] {name};" for name, port in outputs.items()]
        ),
        zeros="\n".join(f"        {name} = '0;" for name in inputs),
        connections=",\n".join(f"    .{port.name}({name})" for name, port in (inputs | outputs).items()),
        read=", ".join([f'"{" %h" * len(inputs)}"', *inputs]),
        written=", ".join([f'"{" %h" * len(outputs)}"', *outputs]),
    )


def _format_rows(design: Design, rows: Rows) -> str:
    """Return one line per row, with the ports as hexadecimal numbers."""
    columns = [_format_port(port, rows) for port in design.ports.inputs]
    return "".join(" ".join(line) + "\n" for line in zip(*columns, strict=True))


def _format_port(port: Port, rows: Rows) -> list[str]:
    words = rows[:, port.column : port.column + port.word_count].copy()
    words[:, -1] &= np.uint64(2 ** (port.width - WORD_BITS * (port.word_count - 1)) - 1)
    big_endian = np.ascontiguousarray(words[:, ::-1]).astype(">u8")
    return [row.tobytes().hex() for row in big_endian]


def _parse_rows(design: Design, text: str, cycle_count: int) -> Rows:
    lines = [line.split() for line in text.splitlines()]
    if len(lines) != cycle_count:
        raise BadOutput(f"{design.top}: Icarus returned {len(lines)} cycles instead of {cycle_count}.")
    rows = np.zeros((cycle_count, design.ports.output_column_count), np.uint64)
    for port, values in zip(design.ports.outputs, zip(*lines, strict=True), strict=False):
        for cycle, value in enumerate(values):
            if not set(value) <= _HEX_DIGITS:
                raise BadOutput(
                    f"{design.top}: X or Z in cycle {cycle} at {port.name}. Reset must set every register.",
                    port.name,
                    cycle,
                )
        padded_digits = "".join(value.zfill(_HEX_DIGITS_PER_WORD * port.word_count) for value in values)
        words = np.frombuffer(bytes.fromhex(padded_digits), ">u8").reshape(cycle_count, port.word_count)
        rows[:, port.column : port.column + port.word_count] = words[:, ::-1]
    return rows
