"""The worked tables of docs/reference/count-action.md, read from the page: what it says is what the simulators do."""

import re
from pathlib import Path

import numpy as np
import pytest

from fpga.count_action import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    parse_text,
)
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator, simulate
from fpga.count_action.simulate.port_values import pack_row
from fpga.count_action.simulate.signals import map_wires_by_name

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "count-action.md"
LEVEL, ACCUMULATE = CountKind.LEVEL, CountKind.ACCUMULATE
NUMBER, FLAG, STREAM = SignalKind.NUMBER, SignalKind.FLAG, SignalKind.STREAM


def table(rule):
    """Return the rows of the table under a rule: label to cells. A fire is True, an empty cell 0."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {rule} ")[1].split("\n### ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    rows = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines[2:]}
    assert [int(cell) for cell in lines[0][1:]] == list(range(len(lines[0]) - 1))
    return rows


def numbers(cells):
    return [
        int(re.search(r"-?\d+", cell)[0]) if re.search(r"\d", cell) else int("fire" in cell) for cell in cells
    ]


def fires(cells):
    return [int("fire" in cell) for cell in cells]


def run(datapath, **series):
    """Return the cycles of a run whose inputs are given by port, from reset."""
    length = max(map(len, series.values()))
    steps = [{port: values[cycle] for port, values in series.items()} for cycle in range(length)]
    reference = ReferenceSimulator(datapath)
    cycles = [reference.step(step) for step in steps]
    rows = np.array([pack_row(make_ports(datapath).inputs, step) for step in steps], np.uint64)
    outputs = ReferenceSimulator(datapath).run(rows)
    assert outputs.tolist() == [pack_row(make_ports(datapath).outputs, cycle.outputs) for cycle in cycles]
    pytest.importorskip("numba")
    assert np.array_equal(simulate(datapath, rows), outputs)
    return cycles


def single(kind, *terms, target, actions=(), name="m"):
    return Module(name, (Count("c", kind, "t", terms),), (Target("t", target),), tuple(actions))


def seen(cycles, count, field):
    return [int(getattr(each, field)) for cycle in cycles for each in cycle.counts if each.module == count]


def port(cycles, name):
    return [cycle.outputs[name] for cycle in cycles]


def test_level_and_accumulating_counts():
    rows = table("R1")
    datapath = Datapath(
        "r1",
        (Signal("x", NUMBER, width=2),),
        (
            single(LEVEL, Ref("x"), target=2, name="level"),
            single(ACCUMULATE, Ref("x"), target=3, name="accumulating"),
        ),
    )
    cycles = run(datapath, x_i=numbers(rows["increment"]))
    for name, label in (("level", "level, v (target 2)"), ("accumulating", "accumulating, v (target 3)")):
        assert seen(cycles, name, "value") == numbers(rows[label])
        assert seen(cycles, name, "fires") == fires(rows[label])


def test_overshoot():
    rows = table("R4")
    datapath = Datapath("r4", (Signal("x", NUMBER, width=2),), (single(ACCUMULATE, Ref("x"), target=5),))
    cycles = run(datapath, x_i=numbers(rows["increment"]))
    assert seen(cycles, "m", "value") == numbers(rows["v (target 5)"])
    assert port(cycles, "overshoot_o") == numbers(rows["overshoot (register)"])
    assert port(cycles, "fire_o") == [0, 0, 0, 0]


def test_clear():
    rows = table("R5")
    clearing = single(
        LEVEL,
        Ref("k"),
        target=1,
        name="k_m",
        actions=[Action(ActionKind.CLEAR_COUNT, "c", clears=("m", "c"))],
    )
    datapath = Datapath(
        "r5", (Signal("x", FLAG), Signal("k", FLAG)), (single(ACCUMULATE, Ref("x"), target=2), clearing)
    )
    arrives = numbers(rows["clear (arrives)"])
    cycles = run(datapath, x_i=numbers(rows["increment"]), k_i=[*arrives[1:], 0])
    assert seen(cycles, "m", "value") == numbers(rows["v (target 2)"])
    assert seen(cycles, "m", "fires") == fires(rows["v (target 2)"])


def test_latency():
    rows = table("R6")
    first = single(ACCUMULATE, Ref("x"), target=2, name="a", actions=[Action(ActionKind.PULSE, "c", "done")])
    second = single(ACCUMULATE, Ref("done", "a"), target=1, name="b")
    cycles = run(
        Datapath("r6", (Signal("x", FLAG),), (first, second)),
        x_i=numbers(rows["a: `sum x over cycles`, target 2, x"]),
    )
    assert seen(cycles, "a", "fires") == fires(rows["a fires, `pulse done`"])
    assert port(cycles, "a_done_o") == numbers(rows["a.done"])
    assert seen(cycles, "b", "fires") == fires(rows["b: `sum a.done over cycles`, target 1"])


def test_back_pressure():
    rows = table("R7")
    sends = Action(ActionKind.STREAM, "c", "out", (Ref("x"),), 8)
    datapath = Datapath(
        "r7", (Signal("x", STREAM, width=8),), (single(ACCUMULATE, Ref("x"), target=1, actions=[sends]),)
    )
    data = [10, 11, 12, 13]
    cycles = run(
        datapath, x_valid_i=numbers(rows["x.valid"]), x_data_i=data, m_out_ready_i=numbers(rows["out.ready"])
    )
    assert seen(cycles, "m", "is_stalled") == numbers(rows["stalled"])
    assert port(cycles, "x_ready_o") == numbers(rows["x.ready"])
    assert seen(cycles, "m", "fires") == numbers(rows["fire (target 1)"])
    assert port(cycles, "m_out_valid_o") == numbers(rows["out.valid"])
    assert port(cycles, "m_out_data_o") == [0, 10, 10, 10]


def test_commit():
    rows = table("R8")
    datapath = Datapath("r8", (Signal("x", FLAG),), (single(ACCUMULATE, Ref("x"), target=2),))
    cycles = run(
        datapath,
        x_i=numbers(rows["increment"]),
        target_shadow_i=numbers(rows["shadow"]),
        commit_i=numbers(rows["commit"]),
    )
    assert seen(cycles, "m", "target") == numbers(rows["target in force"])
    assert seen(cycles, "m", "value") == numbers(rows["v"])
    assert seen(cycles, "m", "fires") == fires(rows["v"])


@pytest.mark.parametrize(
    ("target", "kind", "expected"),
    [
        (0, ACCUMULATE, [0, 0, 0, 0]),
        (1, ACCUMULATE, [0, 1, 0, 1]),
        (0, LEVEL, [0, 0, 0, 0]),
        (1, LEVEL, [0, 1, 0, 1]),
    ],
)
def test_a_target_of_zero_is_never_reached(target, kind, expected):
    cycles = run(
        Datapath("r3", (Signal("x", FLAG),), (single(kind, Ref("x"), target=target),)), x_i=[0, 1, 0, 1]
    )
    assert seen(cycles, "m", "fires") == expected
    assert port(cycles, "overshoot_o") == [0, 0, 0, 0]


def test_every_table_of_the_page_is_tested():
    sections = PAGE.read_text(encoding="utf-8").split("\n### ")[1:]
    assert [section.split()[0] for section in sections if "\n| cycle |" in section] == [
        "R1",
        "R4",
        "R5",
        "R6",
        "R7",
        "R8",
        "R13",
        "R14",
        "R15",
        "R16",
        "R17",
        "R18",
        "R19",
        "R20",
        "R21",
        "R22",
        "R23",
        "R24",
        "R25",
        "R26",
    ]


def test_what_came_from_the_page_is_not_empty():
    assert numbers(table("R1")["increment"]) == [1, 0, 2, 1]
    assert fires(table("R8")["v"]) == [0, 1, 0, 0]
    assert (
        map_wires_by_name(
            Datapath("r3", (Signal("x", FLAG),), (single(LEVEL, Ref("x"), target=1),)), is_input=True
        )["x"].width
        == 1
    )


def test_formulas():
    pytest.importorskip("lark")
    rows = table("R13")
    header = "`sum x.valid over cycles while place == 0 and x.data == 7`, target 2: v"
    text = """module place { inputs: { stream x of 4 bits } counts: {
      place: sum x.valid over cycles to three; header: sum x.valid over cycles to two while place == 0 and x.data == 7 }
      targets: { three: 3; two: 2 } }"""
    cycles = run(
        parse_text(text).datapath,
        x_valid_i=numbers(rows["x.valid"]),
        x_data_i=numbers(rows["x.data"]),
    )
    values = [[each.value for each in cycle.counts] for cycle in cycles]
    bases = [cycle.counts[0].start_value for cycle in cycles]
    assert bases == numbers(rows["place: `sum x.valid over cycles`, base (target 3)"])
    assert [value for _, value in values] == numbers(rows[header])
    assert [cycle.counts[1].fires for cycle in cycles] == list(map(bool, fires(rows[header])))


def test_largest_sample():
    pytest.importorskip("lark")
    rows = table("R14")
    text = """module m { inputs: { stream x of 4 bits } counts: { sum x.valid over cycles } targets: { 3 }
      actions: { emit max x.data with index width 4 } }"""
    cycles = run(
        parse_text(text).datapath,
        x_valid_i=[1, 1, 1, 1],
        x_data_i=numbers(rows["x.data (always valid)"]),
        m_out_ready_i=[1, 1, 1, 1],
    )
    beats = port(cycles, "m_out_data_o")
    assert [beat & 15 for beat in beats] == numbers(rows["`emit max x.data with index`: largest"])
    assert [beat >> 4 for beat in beats] == numbers(rows["index"])
    assert seen(cycles, "m", "fires") == fires(rows["fire (target 3)"])


def test_tables():
    pytest.importorskip("lark")
    rows = table("R15")
    text = """module m { inputs: { stream x of 4 bits } counts: { sum x.valid over cycles to lengths[layer] }
      tables: { lengths[0 to 1]: 2, 1 } actions: { advance layer modulo 2 } }"""
    cycles = run(parse_text(text).datapath, x_valid_i=numbers(rows["x.valid"]), x_data_i=[0] * 5)
    assert port(cycles, "m_layer_o") == numbers(rows["layer: `advance layer modulo 2`, from 0"])
    assert seen(cycles, "m", "target") == numbers(rows["entry in force: `lengths[layer]`, lengths 2, 1"])
    assert seen(cycles, "m", "value") == numbers(rows["v"])
    assert seen(cycles, "m", "fires") == fires(rows["v"])


def test_at_least():
    pytest.importorskip("lark")
    rows = table("R16")
    text = """module m { inputs: { number x of 2 bits }
      counts: { sum x over cycles; sum x over cycles; sum x over cycles at most 1 }
      targets: { at least 3; at least 3 carry; at least 1 carry } }"""
    cycles = run(parse_text(text).datapath, x_i=numbers(rows["increment"]))
    bounded = "v (target at least 1 carry, `at most 1`)"
    for place, label in enumerate(["v (target at least 3)", "v (target at least 3 carry)", bounded]):
        assert [cycle.counts[place].value for cycle in cycles] == numbers(rows[label])
        assert [int(cycle.counts[place].fires) for cycle in cycles] == fires(rows[label])
    assert port(cycles, "overshoot_o") == [0] * 4
    saturated = numbers(rows["saturated (register) of the count `at most 1`"])
    assert [each >> 2 & 1 for each in port(cycles, "saturated_o")] == saturated


def test_up_and_down():
    pytest.importorskip("lark")
    rows = table("R17")
    text = """module m { inputs: { number up of 2 bits; number down of 2 bits }
      counts: { sum up - down over cycles at most 2; sum up - down over cycles } targets: { never; 3 } }"""
    cycles = run(parse_text(text).datapath, up_i=numbers(rows["up"]), down_i=numbers(rows["down"]))
    bounded, free = ([cycle.counts[place] for cycle in cycles] for place in (0, 1))
    label = "base (`sum up - down over cycles at most 2`, target never)"
    assert [each.start_value for each in bounded] == numbers(rows[label])
    assert [each & 1 for each in port(cycles, "saturated_o")] == numbers(rows["saturated (register)"])
    label = "v (the same without `at most`, target 3)"
    assert [each.value for each in free] == numbers(rows[label])
    assert [int(each.fires) for each in free] == fires(rows[label])


def test_ends_of_packets():
    pytest.importorskip("lark")
    rows = table("R18")
    text = """module m { inputs: { stream x of 8 bits with last }
      counts: { packets: sum x.valid over cycles to none while x.last; place: sum x.valid over cycles to none;
        first: sum x.valid over cycles to one while place == 0; end: sum x.valid over cycles to one while x.last }
      targets: { none: never; one: 1 } actions: { on first: store x.data as kind; on end: clear place } }"""
    driven = {f"x_{name}_i": numbers(rows[f"x.{name}"]) for name in ("valid", "last", "data")}
    cycles = run(parse_text(text).datapath, **driven)
    label = "packets: `sum x.valid over cycles while x.last`, base (target never)"
    assert [cycle.counts[0].start_value for cycle in cycles] == numbers(rows[label])
    assert port(cycles, "m_kind_o") == numbers(rows["kind: `store x.data` at the first beat of each packet"])


def test_a_number_with_several_stores():
    pytest.importorskip("lark")
    rows = table("R18")
    text = """module m { inputs: { flag a; flag b } counts: { x: sum a; y: sum b } targets: { 1 }
      actions: { on x: store 5 width 4 as k by priority; on y: store k + 1 width 4 as k by priority } }
      module late { counts: { sum a + b } targets: { at least 1 } actions: { store m.k as j } }"""
    cycles = run(parse_text(text).datapath, a_i=numbers(rows["a"]), b_i=numbers(rows["b"]))
    label = "k: `on a: store 5 as k by priority; on b: store k + 1 as k by priority`"
    assert port(cycles, "m_k_o") == numbers(rows[label])
    assert port(cycles, "late_j_o") == [0, 0, 0, 5, 6, 7]


def test_split_streams():
    pytest.importorskip("lark")
    rows = table("R26")
    text = """module m { inputs: { stream x of 8 bits; flag pause }
      counts: { large: sum x.valid to one while x.data > 100; small: sum x.valid to one while not pause;
        beats: sum x.valid over cycles to none }
      targets: { one: 1; none: never } actions: { on large: pulse up; on small: pulse down } }"""
    driven = {f"x_{name}_i": numbers(rows[f"x.{name}"]) for name in ("valid", "data")}
    cycles = run(parse_text(text).datapath, pause_i=numbers(rows["pause"]), **driven)
    labels = (
        "large: `sum x.valid while x.data > 100` fires (target 1)",
        "small: `sum x.valid while not pause` fires (target 1)",
    )
    for place, label in enumerate(labels):
        assert [int(cycle.counts[place].fires) for cycle in cycles] == fires(rows[label])
    assert port(cycles, "x_ready_o") == numbers(rows["x.ready"])
    label = "beats: `sum x.valid over cycles`, base (target never)"
    assert [cycle.counts[2].start_value for cycle in cycles] == numbers(rows[label])


def test_a_split_stream_loses_no_beat():
    """Beats of two streams meet in pairs; what has no partner is dropped after a wait, and each beat leaves once."""
    pytest.importorskip("lark")
    text = """module m { inputs: { stream x of 8 bits; stream y of 8 bits; flag drop }
      counts: { pair: sum x.valid + y.valid to two;
        left: sum x.valid to one while drop; right: sum y.valid to one while drop }
      targets: { two: 2; one: 1 }
      actions: { on pair: stream x.data, y.data as both;
        on left: stream x.data as x_alone; on right: stream y.data as y_alone } }"""
    datapath = parse_text(text).datapath
    steps = {
        "x_valid_i": [1, 1, 0, 1, 0, 1],
        "y_valid_i": [1, 0, 1, 1, 1, 0],
        "drop_i": [1, 0, 1, 1, 0, 1],
        **{f"m_{name}_ready_i": [1] * 6 for name in ("both", "x_alone", "y_alone")},
    }
    cycles = run(datapath, **steps)
    fired = ["".join(str(int(each.fires)) for each in cycle.counts) for cycle in cycles]
    assert fired == ["100", "000", "001", "100", "000", "010"]
    assert port(cycles, "x_ready_o") == [1, 0, 0, 1, 0, 1]
    assert port(cycles, "y_ready_o") == [1, 0, 1, 1, 0, 0]


def test_the_two_largest_samples():
    pytest.importorskip("lark")
    text = """module m { inputs: { stream x of 8 bits }
      counts: { first: sum x.valid over cycles while x.data > best;
        between: sum x.valid over cycles while x.data > second and not x.data > best }
      targets: { 1 }
      actions: { on first: store x.data as best; on first: store best as second by priority;
        on between: store x.data as second by priority } }"""
    data = [3, 9, 5, 9, 7, 200, 100, 0]
    cycles = run(parse_text(text).datapath, x_valid_i=[1] * 8, x_data_i=data)
    assert port(cycles, "m_best_o") == [max([0, *data[:cycle]]) for cycle in range(8)]
    assert port(cycles, "m_second_o") == [0, 0, 3, 5, 9, 9, 9, 100]


def test_a_number_in_network_order():
    """A 16-bit field of two bytes, its version in the upper half of the first, and a sum of fields with carry."""
    pytest.importorskip("lark")
    text = """module m { inputs: { stream x of 2 lanes of 8 bits }
      counts: { sum x.valid over cycles } targets: { 1 }
      actions: { store concat(x.data) as field; store x.data[1][7:4] as version;
        store (total + concat(x.data))[15:0] + (total + concat(x.data) >> 16) width 16 as total } }"""
    data = [0x3412, 0xFFFF, 0x0180, 0xFEFF]
    cycles = run(parse_text(text).datapath, x_valid_i=[1] * 5, x_data_i=[*data, 0])
    fields = [(each & 255) << 8 | each >> 8 for each in data]
    assert port(cycles, "m_field_o")[1:] == fields
    assert port(cycles, "m_version_o")[1:] == [each >> 12 for each in fields]
    totals = [0]
    for each in fields:
        total = totals[-1] + each
        totals.append((total & 0xFFFF) + (total >> 16))
    assert port(cycles, "m_total_o") == totals


@pytest.mark.parametrize("condition", ["x.data", "n", "x.data + n - n"])
def test_the_end_of_a_packet_is_a_condition_and_no_lowest_bit(condition):
    pytest.importorskip("lark")
    text = f"""module m {{ inputs: {{ stream x of 8 bits; number n of 4 bits }}
      counts: {{ sum x.valid over cycles }} targets: {{ 1 }} actions: {{ stream x.data last {condition} as y }} }}"""
    values = {"x_data_i": [2, 0, 1, 4, 0], "n_i": [2, 0, 1, 4, 0]}
    cycles = run(parse_text(text).datapath, x_valid_i=[1] * 5, **values, m_y_ready_i=[1] * 5)
    assert port(cycles, "m_y_last_o") == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("how", ["by priority", "by turns", "by turns until last", "by priority until last"])
def test_choice_among_streams(how):
    pytest.importorskip("lark")
    rows = table("R19")
    text = f"""module m {{ inputs: {{ stream a of 8 bits with last; stream b of 8 bits with last }}
      counts: {{ one: sum a.valid + b.valid {how} }} targets: {{ 1 }} actions: {{ merge with last as y }} }}"""
    driven = {f"{x}_{name}_i": numbers(rows[f"{x}.{name}"]) for x in "ab" for name in ("valid", "last")}
    beats = {"a_data_i": list(range(10, 16)), "b_data_i": list(range(20, 26))}
    cycles = run(parse_text(text).datapath, **driven, **beats, m_y_ready_i=[1] * 6)
    ready = {x: port(cycles, f"{x}_ready_o") for x in "ab"}
    target = " (target 1)" if how == "by priority" else ""
    assert ready["a"] == numbers(rows[f"a.ready, {how}{target}"])
    assert ready["b"] == numbers(rows[f"b.ready, {how}"])
    for name in ("turn", "open"):
        if f"{name}, {how}" in rows:
            assert port(cycles, f"m_one_{name}_o") == numbers(rows[f"{name}, {how}"])
    taken = ["a" if a else "b" for a in ready["a"]]
    assert port(cycles, "m_y_data_o") == [0] + [beats[f"{x}_data_i"][c] for c, x in enumerate(taken[:5])]
    assert port(cycles, "m_y_last_o") == [0] + [driven[f"{x}_last_i"][c] for c, x in enumerate(taken[:5])]


def test_the_turn_of_a_priority_is_the_stream_of_the_last_beat():
    pytest.importorskip("lark")
    text = """module m { inputs: { stream a of 8 bits with last; stream b of 8 bits with last }
      counts: { one: sum a.valid + b.valid by priority until last } targets: { 1 } }"""
    driven = {"a_valid_i": [0, 1, 1, 0, 1], "b_valid_i": [1, 1, 0, 0, 1], "a_last_i": [1] * 5}
    cycles = run(parse_text(text).datapath, **driven, b_last_i=[0, 1, 1, 1, 1])
    assert port(cycles, "a_ready_o") == [0, 0, 1, 0, 1]
    assert port(cycles, "b_ready_o") == [1, 1, 0, 0, 0]
    assert port(cycles, "m_one_turn_o") == [0, 1, 1, 0, 0]
    assert port(cycles, "m_one_open_o") == [0, 1, 0, 0, 0]


def test_buffered_streams():
    pytest.importorskip("lark")
    rows = table("R20")
    text = """module m { inputs: { stream x of 8 bits with last buffered } counts: { sum x.valid over cycles }
      targets: { 1 } actions: { stream x.data last x.last } }"""
    valid, ready = numbers(rows["x.valid (port)"]), numbers(rows["x.ready (port)"])
    # A source that keeps its beat until it is taken: 1, 2, 3, ..., each second the last of its packet.
    sent = [1 + sum(a and b for a, b in zip(valid[:c], ready[:c], strict=True)) for c in range(7)]
    driven = {"x_valid_i": valid, "x_data_i": sent, "x_last_i": [each % 2 for each in sent]}
    cycles = run(parse_text(text).datapath, **driven, m_out_ready_i=numbers(rows["out.ready"]))
    assert port(cycles, "x_ready_o") == ready
    assert seen(cycles, "m", "fires") == numbers(rows["fire (target 1)"])
    assert port(cycles, "m_out_valid_o") == numbers(rows["out.valid"])
    assert port(cycles, "m_out_data_o") == [0, 0, 1, 1, 1, 2, 3]
    assert port(cycles, "m_out_last_o") == [0, 0, 1, 1, 1, 0, 1]
    held = [0]
    for cycle in range(6):
        held.append(held[-1] + (valid[cycle] and ready[cycle]) - seen(cycles, "m", "fires")[cycle])
    assert held == numbers(rows["beats in the buffer"])


def test_properties():
    pytest.importorskip("lark")
    rows = table("R21")
    text = """module m { inputs: { flag x } counts: { sum x over cycles } targets: { never }
      always { low: count < 3 } never { both: x and count == 2 } }"""
    datapath = parse_text(text).datapath
    inputs = numbers(rows["x"])
    cycles = run(datapath, x_i=inputs)
    assert seen(cycles, "m", "start_value") == numbers(rows["count: `sum x over cycles`, target never, base"])
    stimulus = np.array([pack_row(make_ports(datapath).inputs, {"x_i": each}) for each in inputs], np.uint64)
    broken = set(ReferenceSimulator(datapath).find_violations(stimulus))
    for kind, name, label in (("always", "low", "count < 3"), ("never", "both", "x and count == 2")):
        holds = [int((cycle, "m", kind, name) not in broken) for cycle in range(5)]
        assert holds == numbers(rows[f"`{kind} {{ {label} }}` holds"])


def sent_formulas(rule, inputs, **driven):
    """Return, for each formula in backquotes of a table, what a stream sends, and what the table says."""
    rows = table(rule)
    formulas = [label for label in rows if label.startswith("`")]
    samples = ", ".join(label.strip("`") for label in formulas)
    text = f"""module m {{ inputs: {{ {inputs} }} counts: {{ sum x.valid over cycles }} targets: {{ 1 }}
      actions: {{ stream {samples} width 20 signed }} }}"""
    driven = {name: [*series, 0] for name, series in driven.items()}
    cycles = run(parse_text(text).datapath, **driven, x_valid_i=[1] * 5, m_out_ready_i=[1] * 5)
    beats = port(cycles, "m_out_data_o")[1:]
    fields = [[beat >> 20 * place & 0xFFFFF for beat in beats] for place in range(len(formulas))]
    sent = [[bits - (bits >> 19 << 20) for bits in field] for field in fields]
    return sent, [numbers(rows[label]) for label in formulas]


def test_shifts():
    pytest.importorskip("lark")
    data = [each & 255 for each in numbers(table("R22")["x.data (8 bits signed, always valid)"])]
    sent, expected = sent_formulas("R22", "stream x of 8 bits signed", x_data_i=data)
    assert len(expected) == 3
    assert sent == expected


def test_bit_slices():
    pytest.importorskip("lark")
    first = numbers(table("R23")["x.data[1] (8 bits signed, always valid)"])
    data = [(each & 255) + (each & 1) * 0x9700 for each in first]
    sent, expected = sent_formulas("R23", "stream x of 2 lanes of 8 bits signed", x_data_i=data)
    assert len(expected) == 3
    assert sent == expected


def test_concatenation():
    pytest.importorskip("lark")
    rows = table("R24")
    lanes = zip(numbers(rows["x.data[1] (8 bits, always valid)"]), numbers(rows["x.data[2]"]), strict=True)
    data = [first + 256 * second for first, second in lanes]
    sent, expected = sent_formulas("R24", "stream x of 2 lanes of 8 bits", x_data_i=data)
    assert len(expected) == 3
    assert sent == expected


def test_memories():
    pytest.importorskip("lark")
    rows = table("R25")
    text = """module w {
      inputs: { flag put; flag get; number at of 3 bits; number value of 8 bits; number from of 3 bits }
      memory m: 5 of 8 bits
      counts: { p: sum put; g: sum get } targets: { 1 }
      actions: { on p: store value in m[at]; on g: read m[from] as word } }"""
    cycles = run(
        parse_text(text).datapath,
        put_i=fires(rows["put: `store value in m[at]` (memory m: 5 of 8 bits)"]),
        get_i=fires(rows["get: `read m[from] as word`"]),
        **{f"{name}_i": numbers(rows[name]) for name in ("at", "value", "from")},
        w_m_load_i=numbers(rows["load"]),
        w_m_address_i=numbers(rows["address"]),
        w_m_word_i=numbers(rows["loaded word"]),
    )
    assert port(cycles, "w_word_o") == numbers(rows["word"])
    assert port(cycles, "w_m_o") == numbers(rows["m, as a driver sees it"])


@pytest.mark.parametrize(("wins", "flag"), [("", [0, 1, 1, 0, 1]), (" wins", [0, 1, 0, 0, 0])])
def test_a_flag_that_is_set_and_cleared(wins, flag):
    pytest.importorskip("lark")
    text = f"""module m {{ inputs: {{ flag on; flag off }} counts: {{ a: sum on; b: sum off }} targets: {{ 1 }}
      actions: {{ on a: set f; on b: clear f{wins} }} }}"""
    cycles = run(parse_text(text).datapath, on_i=[1, 1, 0, 1, 0], off_i=[0, 1, 1, 1, 0])
    assert port(cycles, "m_f_o") == flag
