"""The meaning of texts: the talk's module, names, ranges, inference, instances."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga.count_action import (
    Action,
    ActionKind,
    Count,
    CountActionError,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    datapath_from_json,
    load,
    parse_text,
)
from fpga.count_action.language.unparse import unparse

TALK = """// the module of the talk, as it stands
module synchronized_data_streamer {
  counts:  { sum DAC[i].valid (i = 1 to num_DACs) }
  targets: { num_DACs }
  actions: { stream DAC[i].data (i = 1 to num_DACs) }
};
"""


def module_of(text, **given):
    """Return the last module of a text."""
    return parse_text(text, "t.ca", **given).datapath.modules[-1]


def test_the_text_of_the_talk_is_the_datapath_that_python_builds():
    dacs = tuple(Ref("DAC", None, bit) for bit in range(4))
    built = Datapath(
        "streamer",
        (Signal("DAC", SignalKind.STREAM, 4, width=16),),
        (
            Module(
                "synchronized_data_streamer",
                (Count("count", CountKind.LEVEL, "num_DACs", dacs),),
                (Target("num_DACs", 4),),
                (Action(ActionKind.STREAM, "count", "out", dacs, 16),),
            ),
        ),
    )
    read = parse_text(TALK, "streamer.ca", {"num_DACs": 4}).datapath
    assert read == built
    assert datapath_from_json(read.to_json()) == built
    assert read.digest == built.digest


def test_what_was_taken_for_granted_is_reported():
    checked = parse_text(TALK, "streamer.ca")
    assert [each.message for each in checked.inferences] == [
        "`num_DACs` is assumed to be a parameter of `synchronized_data_streamer`: 16 by default",
        "`DAC` is assumed to be an external input: 16 streams of 16 bits",
    ]
    assert [(each.line, each.column) for each in checked.inferences] == [(4, 14), (3, 18)]
    assert checked.warnings == ()


def test_elements_from_one_and_from_nought_are_the_same_bits():
    one = parse_text("module a { counts: { sum x[i] (i = 1 to 4) } targets: { 4 } }", "t.ca").datapath
    nought = parse_text("module a { counts: { sum x[i] (i = 0 to 3) } targets: { 4 } }", "t.ca").datapath
    assert one == nought
    assert [ref.index for ref in one.modules[0].counts[0].terms] == [0, 1, 2, 3]


def test_a_declared_range_says_which_element_is_bit_nought():
    text = "module a { inputs: { flag f[5 to 8] } counts: { sum f[7] } targets: { 1 } }"
    datapath = parse_text(text, "t.ca").datapath
    assert datapath.inputs == (Signal("f", SignalKind.FLAG, 4),)
    assert datapath.modules[0].counts[0].terms == (Ref("f", None, 2),)


def test_lanes_are_counted_from_one_unless_lane_nought_is_named():
    text = "inputs: { stream x of 4 lanes of 8 bits } module a { counts: { sum x.valid over cycles } targets: { 2 }"
    whole = module_of(text + " actions: { emit sum x.data } }").actions[0]
    assert [ref.lane for ref in whole.refs] == [0, 1, 2, 3]
    assert (whole.width, whole.signed, whole.output) == (32, False, "out")
    from_one = module_of(text + " actions: { emit sum x.data[i] (i = 3 to 4) } }").actions[0]
    assert [ref.lane for ref in from_one.refs] == [2, 3]
    from_nought = module_of(text + " actions: { stream x.data[0], x.data[3] } }").actions[0]
    assert [ref.lane for ref in from_nought.refs] == [0, 3]
    assert from_nought.width == 8


def test_numbers_are_worked_out():
    text = "module a(n = 5) { counts: { sum x over cycles } targets: { (n + 3) * 2 - 10 / 4 - -1 } }"
    assert module_of(text).targets[0].reset == 16 - 2 + 1
    assert module_of(text, parameters={"n": 1}).targets[0].reset == 8 - 2 + 1
    constant = "module a { counts: { sum 3 + x + 4 - 1 over cycles } targets: { never } }"
    assert module_of(constant).counts[0].constant == 6


def test_one_count_for_every_value_of_an_index():
    text = """module a {
      counts: { for k = 1 to 3: hits[k]: sum x[k].valid over cycles }
      targets: { 4 }
      actions: { for k = 1 to 3: on hits[k]: pulse done[k]; on hits[2]: clear hits[1] }
    }
    module b { counts: { sum a.done[2] over cycles } targets: { 2 } }"""
    first, second = parse_text(text, "t.ca").datapath.modules
    assert [count.name for count in first.counts] == ["hits_1", "hits_2", "hits_3"]
    assert [(action.on, action.output) for action in first.actions[:3]] == [
        ("hits_1", "done_1"),
        ("hits_2", "done_2"),
        ("hits_3", "done_3"),
    ]
    assert first.actions[3].clears == ("a", "hits_1")
    assert second.counts[0].terms == (Ref("done_2", "a"),)


def test_names_of_what_has_none():
    text = """module a(n = 3) {
      counts: { sum x over cycles; named: sum y over cycles; sum z over cycles; sum w over cycles }
      targets: { n; n; 5; last: never }
    }"""
    module = module_of(text)
    assert [count.name for count in module.counts] == ["count", "named", "count_3", "count_4"]
    assert [target.name for target in module.targets] == ["n", "target_2", "target_3", "last"]
    assert [count.target for count in module.counts] == ["n", "target_2", "target_3", "last"]
    assert module.targets[3].reset == 0


def test_a_count_can_say_its_target():
    text = """module a {
      counts: { p: sum x over cycles to big; q: sum y over cycles to big width 20; r: sum z over cycles to small }
      targets: { small: 2; big: 9 }
      actions: { on p: set f; on q: clear f }
    }"""
    module = module_of(text)
    assert [count.target for count in module.counts] == ["big", "big", "small"]
    assert [target.width for target in module.targets] == [16, 20]
    assert module.actions[1] == Action(ActionKind.CLEAR_FLAG, "q", "f")


def test_actions_without_on_follow_their_place():
    text = """module a {
      counts: { p: sum x; q: sum y } targets: { 1 }
      actions: { pulse done; advance layer modulo 5 }
    }"""
    assert [(action.on, action.width) for action in module_of(text).actions] == [("p", 1), ("q", 3)]


def test_conditions():
    text = """inputs: { number level of 4 bits }
    module a { counts: { sum x.valid over cycles while not busy and y.valid and level } targets: { 2 }
    actions: { set full } }"""
    gate = module_of(text).counts[0].gate
    assert [(each.ref.name, each.negated) for each in gate] == [
        ("busy", True),
        ("y", False),
        ("level", False),
    ]


def test_a_beat_has_the_width_of_its_widest_sample_and_a_sign_when_one_has():
    text = """inputs: { stream a of 8 bits; stream b of 12 bits signed }
    module m { counts: { sum a.valid + b.valid } targets: { 2 } actions: { stream a.data, b.data as both } }
    module n { counts: { sum m.both.valid over cycles } targets: { 1 } actions: { stream m.both.data[2] } }"""
    first, second = parse_text(text, "t.ca").datapath.modules
    assert (first.actions[0].width, first.actions[0].signed) == (12, True)
    assert second.actions[0].refs == (Ref("both", "m", 0, 1),)
    assert (second.actions[0].width, second.actions[0].signed) == (12, True)


def test_a_sign_can_be_written():
    text = "module m {{ counts: {{ sum x.valid }} targets: {{ 1 }} actions: {{ emit sum x.data width 8 {} as y }} }}"
    assert module_of(text.format("signed")).actions[0].signed is True
    assert module_of(text.format("unsigned")).actions[0].signed is False
    assert module_of(text.format("")).actions[0].signed is False


def test_inputs_of_one_name_are_one_input():
    text = """module a { counts: { sum x[i] (i = 1 to 2) } targets: { 1 } }
    module b { counts: { sum x[i] (i = 1 to 5) } targets: { 2 } }"""
    assert parse_text(text, "t.ca").datapath.inputs == (Signal("x", SignalKind.FLAG, 5),)


def test_instances_with_parameters_and_wires(tmp_path):
    (tmp_path / "lib.ca").write_text(
        "module counter(n) { inputs: { flag tick } counts: { sum tick over cycles } targets: { n: n }"
        " actions: { pulse done } }"
    )
    (tmp_path / "top.ca").write_text(
        'import "lib.ca"; use counter(n = 3) as first; use counter(n = 4) as second with tick = first.done;'
        " use counter(n = 5) as third with tick = clock[2];"
    )
    datapath = load(tmp_path / "top.ca").datapath
    assert datapath.name == "top"
    assert [(each.name, each.targets[0].reset) for each in datapath.modules] == [
        ("first", 3),
        ("second", 4),
        ("third", 5),
    ]
    assert [each.counts[0].terms for each in datapath.modules] == [
        (Ref("tick"),),
        (Ref("done", "first"),),
        (Ref("clock", None, 1),),
    ]
    assert [(each.name, each.size) for each in datapath.inputs] == [("tick", 1), ("clock", 2)]


def test_an_instance_for_every_value_of_an_index(tmp_path):
    (tmp_path / "lib.ca").write_text(
        "module slot(n) { inputs: { flag tick; stream x of 8 bits } counts: { sum x.valid over cycles while tick }"
        " targets: { n: n } actions: { stream x.data as out; pulse done } }"
    )
    (tmp_path / "top.ca").write_text(
        'import "lib.ca"; use slot(n = 5) as s[0] with x = first;'
        " use slot(n = 2 * i) as s[i] (i = 1 to 3) with x = s[i - 1].out, tick = clock[i];"
        " module all { counts: { sum s[i].done (i = 0 to 3) over cycles } targets: { 4 } }"
    )
    modules = load(tmp_path / "top.ca").datapath.modules
    assert [(each.name, each.targets[0].reset) for each in modules[:4]] == [
        ("s_0", 5), ("s_1", 2), ("s_2", 4), ("s_3", 6),
    ]  # fmt: skip
    assert [each.counts[0].terms for each in modules[:4]] == [
        (Ref("first"),), (Ref("out", "s_0"),), (Ref("out", "s_1"),), (Ref("out", "s_2"),),
    ]  # fmt: skip
    assert [each.counts[0].gate[0].ref for each in modules[1:4]] == [Ref("clock", index=k) for k in range(3)]
    assert modules[4].counts[0].terms == tuple(Ref("done", f"s_{k}") for k in range(4))


def test_an_index_that_names_no_instance_is_refused(refused):
    text = "use m as n (i = 1 to 2); module m { counts: { sum x } targets: { 1 } }"
    assert "`i` is not used in the name of the instances" in refused(text)[0].message


def test_imports_of_imports_can_be_used_and_a_file_is_read_once(tmp_path):
    (tmp_path / "a.ca").write_text("module a { counts: { sum x } targets: { 1 } }")
    (tmp_path / "b.ca").write_text('import "a.ca"; module b { counts: { sum y } targets: { 1 } }')
    (tmp_path / "c.ca").write_text('import "b.ca"; import "a.ca"; use a as one; use b as two;')
    assert [each.name for each in load(tmp_path / "c.ca").datapath.modules] == ["one", "two"]


def test_words_of_the_language_may_be_names_where_they_cannot_be_words():
    text = """module width(lanes = 3) {
      inputs: { stream stream of lanes lanes of 8 bits; flag of; number to of 3 bits }
      counts: { over: sum stream.valid + of + to over cycles while and and not with width 8 }
      targets: { width: lanes width 8 }
      actions: { set set }
    }"""
    module = module_of(text)
    assert [ref.name for ref in module.counts[0].terms] == ["stream", "of", "to"]
    assert [each.ref.name for each in module.counts[0].gate] == ["and", "with"]


def test_the_datapath_is_called_like_its_file(tmp_path):
    text = "module a { counts: { sum x } targets: { 1 } }"
    assert parse_text(text).datapath.name == "datapath"
    assert parse_text(text, "some/2 lanes.ca").datapath.name == "_2_lanes"
    assert parse_text(text, "table.ca").datapath.name == "table_top"  # `table` is a word of SystemVerilog


PACKETS = """module p { inputs: { stream x of 2 lanes of 8 bits with last and keep } counts: { sum x.valid over cycles }
  targets: { 1 } actions: { stream x.data last x.last keep x.keep as y } }"""


def test_packets_have_flags_beside_their_streams_and_can_be_written_and_read():
    datapath = parse_text(PACKETS).datapath
    assert [(each.name, each.size, each.part_of) for each in datapath.inputs] == [
        ("x", 1, ""), ("x_last", 1, "x"), ("x_keep", 2, "x"),
    ]  # fmt: skip
    assert [(each.output, each.part_of, each.width) for each in datapath.modules[0].actions] == [
        ("y", "", 8), ("y_last", "y", 1), ("y_keep", "y", 2),
    ]  # fmt: skip
    assert parse_text(unparse(datapath), f"{datapath.name}.ca").datapath == datapath


@pytest.mark.parametrize(("wire", "meant"), [("a.y", Ref("y_last", "a")), ("w", Ref("w_last"))])
def test_a_stream_of_packets_is_wired_with_its_ends(tmp_path, wire, meant):
    ends = """module ends { inputs: { stream z of 8 bits with last } counts: { sum z.valid over cycles while z.last }
      targets: { 1 } actions: { pulse done } }"""
    (tmp_path / "ends.ca").write_text(ends)
    text = f"""import "ends.ca"; use ends as e with z = {wire};
      module a {{ counts: {{ sum x.valid }} targets: {{ 1 }} actions: {{ stream x.data width 8 last 1 as y }} }}"""
    (tmp_path / "t.ca").write_text(text)
    assert load(tmp_path / "t.ca").datapath.module("e").counts[0].gate[0].ref == meant


def test_new_words_are_names_where_names_stand():
    text = """module last { counts: { sum go } targets: { 1 } actions: { pulse keep; pulse last } }
      module reader { inputs: { flag store; flag keep } counts: { sum last.keep + last.last + store + keep over cycles }
        targets: { most: 1 } actions: { pulse at } }"""
    terms = parse_text(text).datapath.module("reader").counts[0].terms
    assert [str(each) for each in terms] == ["last.keep[0]", "last.last[0]", "store[0]", "keep[0]"]


def test_a_stored_number_can_be_counted_as_large_as_it_is():
    text = """module a { inputs: { stream x of 4 bits } counts: { sum x.valid over cycles } targets: { 1 }
      actions: { store x.data as kept; pulse beat } }
      module b { counts: { sum a.kept over cycles while a.beat width WIDTH } targets: { 15 } actions: { pulse p } }"""
    assert parse_text(text.replace("WIDTH", "4")).datapath.module("b").counts[0].width == 4
    with pytest.raises(CountActionError, match="has 3 bits and can go up by 15"):
        parse_text(text.replace("WIDTH", "3").replace("{ 15 }", "{ 7 }"))
