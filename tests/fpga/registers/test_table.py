"""The register map as data and as text."""

import json

import pytest

from fpga.bus import make_simulated_bus
from fpga.count_action import Count, CountKind, Datapath, Module, Ref, Signal, SignalKind, Target
from fpga.registers import (
    Access,
    StreamAccess,
    make_register_map,
    register_list,
    to_json,
    to_markdown,
    to_rdl,
)
from fpga.registers.model import WORD_BYTES, PortBits
from fpga.registers.top import Top


@pytest.fixture(params=list(StreamAccess), ids=lambda each: each.name.lower())
def table(request, demo):
    return make_register_map(demo, request.param)


def test_words_lie_one_behind_the_other(table):
    offset = 0
    for register in table:
        assert register.offset == offset
        assert 1 <= register.width <= 32
        offset += register.word_count * WORD_BYTES
    assert table.size_bytes == offset
    assert offset <= 1 << table.address_width < 2 * offset


def test_identity_is_at_the_same_place_in_both(demo):
    for streams in StreamAccess:
        table = make_register_map(demo, streams)
        assert (table["ID",].offset, table["ID",].reset_value) == (0, streams.value)
        assert (table["HASH",].offset, table["HASH",].reset_value) == (4, demo.digest)


def test_what_has_no_streams_is_the_beginning_of_what_has(demo):
    portal = make_register_map(demo, StreamAccess.REGISTERS).registers
    without = make_register_map(demo, StreamAccess.AXI_STREAM).registers
    assert without[1:] == portal[1 : len(without)]
    assert all(each.key[-1] in {"DATA", "PUSH", "WAITING", "LEVEL", "POP"} for each in portal[len(without) :])


def test_every_count_target_input_and_output_has_its_register(demo):
    table = make_register_map(demo)
    for module, count in demo.list_counts():
        assert table["COUNT", module.name, count.name].width == count.width
    for module, target in demo.list_targets():
        register = table["TARGET", module.name, target.name]
        assert (register.width, register.reset_value, register.access) == (
            target.width,
            target.reset,
            Access.WRITE,
        )
    assert table["IN", "lamps"].word_count == 2
    assert table["IN", "step"].word_count == 2
    assert table["IN", "x", "DATA"].word_count == 3  # 72 bits
    assert table["IN", "wide", "PUSH"].word_count == 2
    assert table["OUT", "wall", "bricks", "DATA"].word_count == 5  # 132 bits
    assert table["OUT", "book", "turn"].width == 3
    assert ("IN", "nobody") not in table


def test_a_word_that_is_not_there(demo):
    with pytest.raises(IndexError, match="IN_lamps has 2 words: there is no word 2"):
        make_register_map(demo)["IN", "lamps"].get_offset(2)
    with pytest.raises(KeyError, match="no register 'NONE'"):
        make_register_map(demo)["NONE"]


def test_names_that_coincide_get_numbers():
    def module(name, target):
        count = Count("c", CountKind.ACCUMULATE, target, (Ref("x"),))
        return Module(name, (count,), (Target(target, 1),), ())

    inputs = (Signal("x", SignalKind.FLAG),)
    table = make_register_map(Datapath("twins", inputs, (module("a", "b_c"), module("a_b", "c"))))
    assert table["TARGET", "a", "b_c"].name == "TARGET_a_b_c"
    assert table["TARGET", "a_b", "c"].name == "TARGET_a_b_c_2"
    assert len({each.name for each in table}) == len(table.registers)


def test_json_says_what_a_driver_needs(table):
    document = json.loads(to_json(table))
    assert document["hash"] == f"{table.digest:08x}"
    assert [each["offset"] for each in document["registers"]] == [each.offset for each in table]
    control = next(each for each in document["registers"] if each["name"] == "CONTROL")
    assert [field["name"] for field in control["fields"]] == ["COMMIT", "CLEAR_STATUS", "RESET", "HOLD"]


def test_page_names_every_register(table):
    page = to_markdown(table)
    for register in table:
        assert f"| 0x{register.offset:03X} | {register.name}" in page


def test_systemrdl_is_the_same_map(table, tmp_path):
    """Read back by the reference compiler of SystemRDL."""
    systemrdl = pytest.importorskip(
        "systemrdl", reason="needs systemrdl-compiler: pip install 'lightbed[hdl]'"
    )
    (tmp_path / "map.rdl").write_text(to_rdl(table))
    compiler = systemrdl.RDLCompiler()
    compiler.compile_file(str(tmp_path / "map.rdl"))
    found = {}
    for node in compiler.elaborate().top.descendants(unroll=True):
        if isinstance(node, systemrdl.node.RegNode):
            fields = list(node.fields())
            width = sum(field.width for field in fields)
            found[node.absolute_address] = (width, fields[0].is_sw_readable, fields[0].is_sw_writable)
    expected = {
        register.get_offset(word): (
            register.width,
            register.access not in {Access.PULSE, Access.PUSH},
            register.access not in {Access.CONSTANT, Access.READ},
        )
        for register in table
        for word in range(register.word_count)
    }
    assert found == expected


def test_a_row_is_all_that_a_register_needs(monkeypatch):
    """A register of `fire_o`, which no row names so far: top and simulated bus connect it."""
    counts = tuple(Count(f"c{n}", CountKind.ACCUMULATE, f"t{n}", (), constant=1) for n in (1, 2))
    module = Module("m", counts, (Target("t1", 1), Target("t2", 0)), ())
    datapath = Datapath("always", (), (module,))
    assert "  .fire_o(unused_fire_o)," in Top(datapath, StreamAccess.REGISTERS).text
    add_levels = register_list._add_levels

    def add_fires(builder, datapath):
        builder.add_packed("FIRES", access=Access.READ, description="Fires", signal=PortBits("fire_o", 2))
        add_levels(builder, datapath)

    monkeypatch.setattr(register_list, "_add_levels", add_fires)
    text = Top(datapath, StreamAccess.REGISTERS).text
    assert "assign FIRES_i = dp_fire_o;" in text
    assert "unused_fire_o" not in text
    bus = make_simulated_bus(datapath, "reference")
    assert bus.read32(make_register_map(datapath)["FIRES",].offset) == 0b01
