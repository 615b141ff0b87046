"""The text of the generated top: readable, the same every time, and refused where names do not allow it."""

from dataclasses import replace
from pathlib import Path

import pytest

from fpga.count_action.model import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Location,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)
from fpga.count_action.verilog import list_core_files, write_top_module

GOLDEN = Path(__file__).parent / "synchronized_data_streamer.sv"
FILE = "/home/somebody/streamer.ca"
TEXT = """\
module synchronized_data_streamer {
  counts:  { sum DAC[i].valid (i = 1 to num_DACs) }
  targets: { num_DACs }
  actions: { stream DAC[i].data (i = 1 to num_DACs) }
};
"""


def at(line: int, column: int) -> Location:
    return Location(FILE, line, column)


def streamer(size: int = 16) -> Datapath:
    refs = tuple(Ref("DAC", index=index) for index in range(size))
    module = Module(
        "synchronized_data_streamer",
        (Count("count", CountKind.LEVEL, "num_DACs", refs, location=at(2, 14)),),
        (Target("num_DACs", size, location=at(3, 14)),),
        (Action(ActionKind.STREAM, "count", "DAC", refs, 16, location=at(4, 14)),),
        location=at(1, 1),
    )
    return Datapath("synchronized_data_streamer", (Signal("DAC", SignalKind.STREAM, size, 1, 16),), (module,))


def flags(*names: str) -> tuple[Signal, ...]:
    return tuple(Signal(name, SignalKind.FLAG) for name in names)


def counting(name: str, flag: str, *counts: str) -> Module:
    counts = counts or ("c",)
    return Module(
        name,
        tuple(Count(each, CountKind.ACCUMULATE, "t", (Ref(flag),)) for each in counts),
        (Target("t", 2),),
        tuple(Action(ActionKind.PULSE, each, f"{each}_done") for each in counts),
    )


def test_the_streamers_text():
    assert write_top_module(streamer(), {FILE: TEXT}) == GOLDEN.read_text(encoding="ascii")


def test_the_text_does_not_depend_on_where_the_source_lies():
    assert "/home" not in write_top_module(streamer(), {FILE: TEXT})


def test_the_text_is_the_same_every_time():
    assert write_top_module(streamer()) == write_top_module(streamer())


def test_a_quoted_line_cannot_leave_its_comment():
    text = write_top_module(
        streamer(), {FILE: TEXT.replace("targets: { num_DACs }", "targets: { num_DACs } // \\")}
    )
    assert not any(line.endswith("\\") for line in text.splitlines())


def test_blocks_of_the_top_are_the_hand_written_ones():
    used = {
        line.split()[0]
        for line in write_top_module(streamer()).splitlines()
        if line.lstrip().startswith("count_action")
    }
    assert used <= {path.stem for path in list_core_files()}
    assert used >= {"count_action_level", "count_action_targets", "count_action_beat", "count_action_ones"}


@pytest.mark.parametrize("name", ["buffer_", "module_1", "always", "count_action", "count_action_beat"])
def test_a_top_is_not_called_by_a_word_of_systemverilog_or_a_block(name):
    datapath = replace(streamer(), name=name)
    if name in {"buffer_", "module_1"}:
        assert f"module {name} (" in write_top_module(datapath)
    else:
        with pytest.raises(ValueError) as refused:
            write_top_module(datapath)
        assert "Rename the datapath" in str(refused.value)


def test_ports_that_would_be_called_alike_are_refused():
    datapath = Datapath("top", flags("commit"), (counting("m", "commit"),))
    with pytest.raises(ValueError) as refused:
        write_top_module(datapath)
    assert str(refused.value) == "two ports would be named commit_i. Rename an input, a module or an output."


@pytest.mark.hdl
def test_wires_that_would_be_called_alike_are_numbered(icarus, simulate):
    """Modules `a` with count `b_c` and `a_b` with count `c` meet in one prefix."""
    from fpga.hdl.cosimulation import find_first_mismatch
    from fpga.hdl.stimulus import generate_stimulus

    modules = (counting("a", "x", "b_c"), counting("a_b", "y", "c"))
    datapath = Datapath("top", flags("x", "y"), tuple(replace(each, actions=()) for each in modules))
    assert "a_b_c_2_fire" in write_top_module(datapath)
    inputs = generate_stimulus(datapath, 100)
    assert find_first_mismatch(datapath, simulate(datapath, inputs), icarus.run(datapath, inputs)) is None
