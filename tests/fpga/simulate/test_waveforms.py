"""Waveforms: value change dumps that say what the run was, and plots."""

import numpy as np
import pytest

from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator
from fpga.count_action.simulate.signals import list_input_wires, list_output_wires
from fpga.count_action.simulate.waveforms.plot import MAX_WIRES, choose_traces, draw_waveforms
from fpga.count_action.simulate.waveforms.vcd import format_vcd


def read_vcd(text):
    """Return scopes and names to the value at each time: a reader of its own, after IEEE 1364-2005."""
    words = iter(text.split())
    names, scope, values, history, time = {}, [], {}, {}, 0
    for word in words:
        if word == "$scope":
            next(words)
            scope.append(next(words))
        elif word == "$upscope":
            scope.pop()
        elif word == "$var":
            kind, width, code, name = (next(words) for _ in range(4))
            names.setdefault(code, (".".join([*scope, name]), int(width)))
            assert kind == "wire"
        elif word in {"$timescale", "$enddefinitions", "$end", "1", "ns"} or word.startswith("["):
            continue
        elif word.startswith("#"):
            history[time] = dict(values)
            time = int(word[1:])
        elif word.startswith("b"):
            values[names[next(words)][0]] = int(word[1:], 2)
        else:
            values[names[word[1:]][0]] = int(word[0])
    return names, history


def test_a_dump_holds_the_run(generated):
    datapath = generated.random_datapath(2, 10)
    inputs = generated.constructive_stimulus(datapath, 60, 2)
    outputs = ReferenceSimulator(datapath).run(inputs)
    names, history = read_vcd(format_vcd(datapath, inputs, outputs))
    wires = [(wire, inputs) for wire in list_input_wires(datapath)] + [
        (wire, outputs) for wire in list_output_wires(datapath)
    ]
    assert len({name for name, _ in names.values()}) == len(wires) + 1
    for (name, width), (wire, rows) in zip(list(by_code(names))[1:], wires, strict=True):
        assert width == wire.width
        mask = (1 << wire.width) - 1
        seen = [history[10 * cycle][name] for cycle in range(60)]
        assert seen == [value & mask for value in wire.read_series(rows)], wire.name
    assert [history[time]["random_datapath.clk"] for time in (0, 5, 10, 15)] == [1, 0, 1, 0]


def by_code(names):
    """Return the position in the order in which identifiers are given out."""
    return (
        names[code]
        for code in sorted(names, key=lambda code: sum(94**p * (ord(c) - 32) for p, c in enumerate(code)))
    )


def test_names_in_a_dump_are_those_of_modules(small):
    rows = np.zeros((1, make_ports(small).input_column_count), np.uint64)
    names, _ = read_vcd(format_vcd(small, rows, ReferenceSimulator(small).run(rows)))
    assert {"small.join.both_fire", "small.join.out_data_o_1", "small.third.mark_o", "small.x_valid_i_0"} <= {
        name for name, _ in names.values()
    }


@pytest.mark.long
def test_a_plot_shows_what_does_most(generated, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'lightbed[hdl]'")
    datapath = generated.random_datapath(1, 10)
    inputs = generated.constructive_stimulus(datapath, 100, 1)
    outputs = ReferenceSimulator(datapath).run(inputs)
    traces = choose_traces(datapath, inputs, outputs)
    assert len(traces) == MAX_WIRES
    fires = [wire for wire, *_ in traces if wire.name.startswith("fire_o")]
    assert len(fires) > 5
    draw_waveforms(datapath, inputs, outputs, tmp_path / "run.png")
    image = (tmp_path / "run.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > 20_000
