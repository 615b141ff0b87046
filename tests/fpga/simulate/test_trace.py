"""A run in words."""

import numpy as np
import pytest
from libraries import skip_without

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
)
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import explain_run
from fpga.count_action.simulate.port_values import write_series


def trace(datapath, **series):
    rows = np.zeros((max(map(len, series.values())), make_ports(datapath).input_column_count), np.uint64)
    for name, values in series.items():
        write_series(rows, make_ports(datapath).find_input(name), values)
    return list(explain_run(datapath, rows))


def test_what_happens_and_why():
    module = Module(
        "m",
        (
            Count("c", CountKind.ACCUMULATE, "t", (Ref("x"),), gate=(Condition(Ref("go")),), width=3),
            Count("wide", CountKind.LEVEL, "never", (Ref("x"),)),
        ),
        (Target("t", 3), Target("never", 0)),
        (Action(ActionKind.PULSE, "c", "done"), Action(ActionKind.CLEAR_COUNT, "c", clears=("m", "c"))),
    )
    datapath = Datapath(
        "words", (Signal("x", SignalKind.NUMBER, width=3), Signal("go", SignalKind.FLAG)), (module,)
    )
    lines = trace(
        datapath, x_i=[1, 2, 2, 7, 7], go_i=[1, 1, 0, 1, 1], commit_i=[0, 0, 0, 0, 1], target_shadow_i=[0] * 5
    )
    assert lines == [
        "cycle 0",
        "  m.c: 0 + 1 = 1, target 3",
        "  m.wide: level 1, target never (0, R3)",
        "cycle 1",
        "  m.c: 1 + 2 = 3, target 3: FIRES",
        "    in the next cycle: m.done is 1 for one cycle",
        "    in the next cycle: m.c restarts at 0 (R5)",
        "  m.wide: level 2, target never (0, R3)",
        "cycle 2",
        "  m.c: not enabled; stays at 0 (R2)",
        "  m.wide: level 2, target never (0, R3)",
        "cycle 3",
        "  m.c: 0 + 7 = 7, target 3: above its target, sets overshoot (R4)",
        "  m.wide: level 7, target never (0, R3)",
        "cycle 4",
        (
            "  m.c: 7 + 7 = 14, target 3: above its target, sets overshoot (R4): does not fit, stays"
            " at the largest value and sets saturated (R10)"
        ),
        "  m.wide: level 7, target never (0, R3)",
        "  COMMIT: from the next cycle on the targets of the shadow bank are in force (R8)",
    ]


@pytest.mark.slow
def test_stalls_and_every_effect(generated):
    lines = []
    for seed in range(3):
        datapath = generated.random_datapath(seed, 14)
        lines += explain_run(datapath, generated.constructive_stimulus(datapath, 150, seed))
    text = "\n".join(lines)
    for words in (
        "stalled, as a beat of", "a beat of", "the sum on", "is 1 for one cycle", "becomes 1", "becomes 0",
        "counts from 0 to", "restarts at 0", "COMMIT", "status bits are cleared", "sets saturated",
    ):  # fmt: skip
        assert words in text, words


def test_reached_without_an_increment(small):
    """The target is lowered to where the count stands: it waits for an increment."""
    lower = 2 | 1 << 2
    late = trace(
        small, x_valid_i=[3, 0, 0, 0], go_i=[1] * 4, commit_i=[0, 0, 1, 0], target_shadow_i=[lower] * 4
    )
    assert "  third.beats: 0 + 1 = 1, target 3" in late
    assert late[-1].endswith("target 1: reached before; without an increment it does not fire (R2)")
    early = trace(small, x_valid_i=[3, 0], go_i=[1] * 2, commit_i=[1, 0], target_shadow_i=[lower] * 2)
    assert "  third.beats: 0 + 1 = 1, target 1: FIRES" in early


def test_what_is_lost_and_what_does_not_count():
    skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.count_action import parse_text

    text = """module m { inputs: { stream x of 8 bits; flag f; flag g } memory w: 4 of 8 bits;
      counts: { a: sum x.valid while f; b: sum x.valid; c: sum g; d: sum g } targets: { 1 }
      actions: { on a: pulse first; on b: pulse second;
        on c: store 1 in w[1] by priority; on d: store 2 in w[2] by priority;
        on c: store 3 as k by priority; on d: store 2 as k by priority; on d: read w[1] as word } }"""
    lines = trace(parse_text(text).datapath, x_valid_i=[1, 0], f_i=[1, 0], g_i=[1, 1], m_w_load_i=[0, 1])
    assert lines[1:5] == [
        "  m.a: level 1, target 1: FIRES",
        "    in the next cycle: m.first is 1 for one cycle",
        "  m.b: does not count, as a precedes it and fires (R26)",
        "  m.c: level 1, target 1: FIRES",
    ]
    stores = [line.partition(": ")[2] for line in lines if " store" in line]
    assert stores == [
        *("m.w stores a word (R25)", "m.k stores a sample (R18)"),
        *("a store in m.w is lost (R25)", "a store in m.k is lost (R18)"),
        *("a store in m.w is lost (R25)", "m.k stores a sample (R18)"),
        *("a store in m.w is lost (R25)", "a store in m.k is lost (R18)"),
    ]
