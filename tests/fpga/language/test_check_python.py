"""Datapaths that Python built are held to the same rules, without a text and without lark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fpga.count_action import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    check,
    find_warnings,
    parse_text,
)
from fpga.count_action.language.unparse import unparse

COUNT = Count("beats", CountKind.ACCUMULATE, "goal", (Ref("x"),))
PULSE = Action(ActionKind.PULSE, "beats", "done")
MODULE = Module("m", (COUNT,), (Target("goal", 4),), (PULSE,))
X = Signal("x", SignalKind.STREAM, width=8)
GOOD = Datapath("d", (X,), (MODULE,))


def with_module(**changes):
    return replace(GOOD, modules=(replace(MODULE, **changes),))


def with_count(**changes):
    return with_module(counts=(replace(COUNT, **changes),))


def with_action(**changes):
    return with_module(actions=(replace(PULSE, **changes),))


def test_a_good_one_has_no_errors():
    assert check(GOOD) == ()
    assert find_warnings(GOOD) == ()


WRONG = {
    "no input `y`": with_count(terms=(Ref("y"),)),
    "no module `n`": with_count(terms=(Ref("y", "n"),)),
    "`m` does not drive `y`": with_count(gate=(Condition(Ref("y", "m")),)),
    "index of x is 1": with_count(terms=(Ref("x", None, 1),)),
    "lane of x is -1": with_count(terms=(Ref("x", None, 0, -1),)),
    "target `gaol`, which does not exist": with_count(target="gaol"),
    "width of count `beats` is 0": with_count(width=0),
    "constant of count `beats` is 281474976710656": with_count(constant=2**48),
    "`beats` adds nothing": with_count(terms=()),
    "`a b` cannot be the name of a count": with_count(name="a b"),
    "`sum` is a keyword of the language": with_count(name="sum"),
    "on the count `other`": with_action(on="other"),
    "width of pulse `done` is 3": with_action(width=3),
    "the sum `done` has 0 samples": with_action(kind=ActionKind.EMIT, width=8),
    "shift of sum `done` is 50": with_action(kind=ActionKind.EMIT, width=8, shift=50, refs=(Ref("x"),)),
    "modulo of number `done` is 0": with_action(kind=ActionKind.ADVANCE),
    "number `done` has 2 bits and goes up to 4": with_action(kind=ActionKind.ADVANCE, width=2, modulo=5),
    "no count `m.other` to clear": with_action(kind=ActionKind.CLEAR_COUNT, clears=("m", "other")),
    "no count `.` to clear": with_action(kind=ActionKind.CLEAR_COUNT),
    "nothing sets it": with_action(kind=ActionKind.CLEAR_FLAG),
    "does not fit in 2 bits": with_module(targets=(Target("goal", 4, 2),)),
    "target `goal` is -1": with_module(targets=(Target("goal", -1),)),
    "counts nothing": with_module(counts=(), actions=()),
    "`done` is a pulse here and a count": with_count(name="done"),
    "`m` is a module here and a input": replace(GOOD, inputs=(X, Signal("m", SignalKind.FLAG))),
    "no module": replace(GOOD, modules=()),
    "is a SystemVerilog keyword": replace(GOOD, name="table"),
    "width of `x` is 49": replace(GOOD, inputs=(replace(X, width=49),)),
    "number of elements of `x` is 0": replace(GOOD, inputs=(replace(X, size=0),)),
    "number of lanes of `x` is 2000": replace(GOOD, inputs=(replace(X, lanes=2000),)),
    "is signed, but not a stream": replace(GOOD, inputs=(X, Signal("f", SignalKind.FLAG, signed=True))),
    "`x` is an input, and a count or an output": with_action(output="x"),
    "two ports of the hardware would have the name `x_valid_i`": replace(
        GOOD, inputs=(X, Signal("x_valid", SignalKind.FLAG))
    ),
}


def choosing(**changes):
    """Return a datapath that chooses by turns, with something else in its count."""
    pytest.importorskip("lark")
    text = "module m { counts: { sum a.valid + b.valid by turns } targets: { 1 } actions: { merge as y } }"
    datapath = parse_text(text, "d.ca").datapath
    module = datapath.modules[0]
    counts = (replace(module.counts[0], **changes),)
    return replace(datapath, modules=(replace(module, counts=counts),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": "size"}, "unknown order `size`"),
        ({"order": "", "picks": ()}, "merges, and does not send the beat"),
        ({"order": ""}, "but no order"),
        ({"order": "priority"}, "the picks of `count` are not priority"),
        ({"whole": True}, "no action stores `count_open`"),
        ({"kind": CountKind.ACCUMULATE}, "is not a level count of streams alone"),
        ({"constant": 1}, "is not a level count of streams alone"),
        ({"terms": (Ref("a"), Ref("a"))}, "or a stream twice"),
        ({"terms": (Ref("a"),)}, "chooses among 1 streams"),
        ({"picks": (Ref("#9", "m"),) * 2}, "there is no formula `#9`"),
    ],
)
def test_a_choice_that_is_not_one_is_reported(changes, message):
    assert check(choosing()) == ()
    assert any(message in each.message for each in check(choosing(**changes)))


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_reported(message):
    found = check(WRONG[message])
    assert any(message in each.message for each in found), found
    assert all(each.hint for each in found), found
    assert {(each.file, each.line) for each in found} == {("<python>", 0)}


def test_unused_parts_are_warnings():
    datapath = replace(GOOD, inputs=(X, Signal("y", SignalKind.FLAG)))
    assert [each.message for each in find_warnings(datapath)] == ["input `y` is not used"]
    datapath = with_module(targets=(Target("goal", 4), Target("other", 4)))
    assert [each.message for each in find_warnings(datapath)] == ["no count has the target `other`"]


def test_clearing_a_level_count_is_a_warning():
    clear = Action(ActionKind.CLEAR_COUNT, "beats", clears=("m", "beats"))
    level = replace(COUNT, kind=CountKind.LEVEL)
    datapath = with_module(counts=(level,), targets=(Target("goal", 1),), actions=(clear,))
    assert [each.message.split(" is ")[0] for each in find_warnings(datapath)] == ["`m.beats`"]


def test_a_sign_that_samples_do_not_have_is_written():
    emit = Action(ActionKind.EMIT, "beats", "dot", (Ref("x"),), 16, signed=True)
    assert "emit sum x.data width 16 signed as dot" in unparse(with_module(actions=(emit,)))
