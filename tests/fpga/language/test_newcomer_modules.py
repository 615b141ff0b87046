"""Modules as a newcomer writes them from the documentation alone: checked, simulated beside a model, proven, built."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")
skip_without("numba", reason="numba runs the simulator: pip install 'lightbed[fpga]'")

from fpga.cli import run_app
from fpga.count_action import parse_text
from fpga.count_action.load import load
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import simulate
from fpga.count_action.simulate.port_values import pack_row, unpack_row
from fpga.formal import prove
from fpga.formal.sby import TOOLS
from fpga.hdl import explain_missing
from fpga.verify.verify import verify

FOLDER = Path(__file__).resolve().parent / "newcomers"
MODULES = sorted(FOLDER.glob("*.ca"))
CYCLES = 400


@pytest.fixture
def chance():
    return random.Random(1)


def play(name, **series):
    """Return what the ports show in each cycle. Every output stream is taken at once; the run begins after reset."""
    datapath = load(FOLDER / f"{name}.ca").datapath
    ports = make_ports(datapath)
    taken = {each.name: 1 for each in ports.inputs if each.name.endswith("_ready_i")}
    length = len(next(iter(series.values())))
    steps = [{**taken, **{port: each[cycle] for port, each in series.items()}} for cycle in range(length)]
    rows = np.array([pack_row(ports.inputs, step) for step in steps], np.uint64)
    return [unpack_row(ports.outputs, row) for row in simulate(datapath, rows).tolist()]


def beats(shown, stream):
    """Return the beats that a stream sends."""
    return [each[f"{stream}_data_o"] for each in shown if each[f"{stream}_valid_o"]]


def pack(lanes, bits):
    return sum((each & (1 << bits) - 1) << bits * place for place, each in enumerate(lanes))


def packets(chance, longest, values):
    """Return the beats of packets as (valid, data, last), with pauses."""
    steps = []
    while len(steps) < CYCLES:
        length = chance.randint(1, longest)
        for place in range(length):
            while chance.random() < 0.3:
                steps.append((0, 0, 0))
            steps.append((1, chance.choice(values), int(place == length - 1)))
    return steps


def ports_of_stream(steps, name="x"):
    return {
        f"{name}_{what}_i": list(each)
        for what, each in zip(("valid", "data", "last"), zip(*steps, strict=True), strict=True)
    }


def split(steps):
    """Return the samples of each complete packet."""
    whole, now = [], []
    for valid, data, last in steps:
        now += [data] * valid
        if valid and last:
            whole.append(now)
            now = []
    return whole


def test_hysteresis(chance):
    ups, downs = (
        [int(chance.random() < bias(cycle)) for cycle in range(CYCLES)]
        for bias in (
            lambda cycle: 0.8 if cycle // 50 % 2 == 0 else 0.2,
            lambda cycle: 0.2 if cycle // 50 % 2 == 0 else 0.8,
        )
    )
    level, levels, busy, shows = 0, [], 0, []
    for up, down in zip(ups, downs, strict=True):
        levels.append(level)
        shows.append(busy)
        busy = 1 if level >= 12 else 0 if level <= 4 else busy
        level = max(0, min(15, level + up - down))
    shown = play("hysteresis", up_i=ups, down_i=downs)
    assert [each["count_o"] & 15 for each in shown] == levels
    assert [each["hysteresis_busy_o"] for each in shown] == shows
    assert {0, 15} <= set(levels)


def test_framing(chance):
    steps = packets(chance, 11, [0x7E, 0x7E, 1])
    frames = split(steps)
    good = [each for each in frames if each[0] == 0x7E and len(each) <= 8]
    shown = play("framing", **ports_of_stream([*steps, (0, 0, 0), (0, 0, 0)]))
    begun = split([*steps, (1, 0x7E, 1)])
    assert sum(each["framing_no_start_o"] for each in shown) == sum(each[0] != 0x7E for each in begun) > 5
    assert sum(each["framing_too_long_o"] for each in shown) == sum(len(each) > 8 for each in begun) > 5
    datapath = load(FOLDER / "framing.ca").datapath
    low = sum(count.width for _, count in list(datapath.list_counts())[:-1])
    assert shown[-1]["count_o"] >> low == len(good) > 5


def test_weighted_round_robin():
    both = play(
        "weighted_round_robin", a_valid_i=[1] * 80, b_valid_i=[1] * 80, a_data_i=[1] * 80, b_data_i=[2] * 80
    )
    order = beats(both, "joined_out")
    assert len(order) >= 70
    assert order[:9] == [2, 1, 1, 1, 2, 1, 1, 1, 2]
    alone = play(
        "weighted_round_robin", a_valid_i=[1] * 40, b_valid_i=[0] * 40, a_data_i=[1] * 40, b_data_i=[2] * 40
    )
    assert len(beats(alone, "joined_out")) >= 37


def test_moving_maximum(chance):
    steps = packets(chance, 6, range(256))
    peaks = [max(each) for each in split(steps)]
    shown = play("moving_maximum", **ports_of_stream([*steps, (0, 0, 0)]))
    assert beats(shown, "moving_maximum_peak") == [
        max(peaks[max(0, place - 3) : place + 1]) for place in range(len(peaks))
    ]


def test_rate_limiter(chance):
    data = [chance.randrange(256) for _ in range(CYCLES)]
    valid = [int(chance.random() < 0.7) for _ in data]
    refill = [int(chance.random() < 0.25) for _ in data]
    credit, sent, dropped = [0, 0], ([], []), 0
    for each, is_valid, fills in zip(data, valid, refill, strict=True):
        kind, before = each >> 7, list(credit)
        if fills:
            credit = [min(each + 1, 4) for each in credit]
        if is_valid and before[kind]:
            sent[kind].append(each)
            credit[kind] = before[kind] - (not fills)
        dropped += bool(is_valid and not before[kind])
    shown = play("rate_limiter", x_valid_i=[*valid, 0], x_data_i=[*data, 0], refill_i=[*refill, 0])
    assert [beats(shown, f"rate_limiter_out_{kind}") for kind in (0, 1)] == list(sent)
    assert sum(each["rate_limiter_dropped_o"] for each in shown) == dropped > 20
    assert min(map(len, sent)) > 20


def test_signed_dot_product(chance):
    samples = [[chance.randint(-128, 127) for _ in range(4)] for _ in range(CYCLES)]
    weights = [[chance.choice([-1, 0, 1]) for _ in range(4)] for _ in samples]
    ones = [1] * (CYCLES + 3)
    shown = play(
        "signed_dot_product",
        x_valid_i=ones,
        w_valid_i=ones,
        x_data_i=[*(pack(each, 8) for each in samples), 0, 0, 0],
        w_data_i=[*(pack(each, 2) for each in weights), 0, 0, 0],
    )
    products = [sum(x * w for x, w in zip(*each, strict=True)) for each in zip(samples, weights, strict=True)]
    sums = [sum(products[begin : begin + 4]) & 0xFFFF for begin in range(0, CYCLES, 4)]
    assert beats(shown, "dot_result") == sums


def test_top_2(chance):
    steps = packets(chance, 7, range(256))
    expected = [sorted([0, *each])[-2:] for each in split(steps)]
    found = beats(play("top_2", **ports_of_stream([*steps, (0, 0, 0)])), "top_2_two")
    assert [[each >> 8, each & 255] for each in found] == expected


def test_watchdog(chance):
    kicks = [int(chance.random() < 0.12) for _ in range(CYCLES)]
    idle, alarm, shows = 0, 0, []
    for kick in kicks:
        shows.append(alarm)
        late = idle + 1 == 10
        alarm = 0 if kick else int(alarm or late)
        idle = 0 if kick or late else idle + 1
    assert [each["watchdog_alarm_o"] for each in play("watchdog", kick_i=kicks)] == shows
    assert {0, 1} == set(shows)


def test_histogram(chance):
    data = [chance.choice([3, 3, 7, chance.randrange(256)]) for _ in range(CYCLES)]
    valid = [int(chance.random() < 0.8) for _ in data]
    ports = {"x_valid_i": [*valid, 0, 0], "x_data_i": [*data, 0, 0]}
    shown = play("histogram", **ports)
    counted = Counter(each for each, is_valid in zip(data, valid, strict=True) if is_valid)
    latest = [each["histogram_latest_o"] for each in shown]
    assert (
        latest[-1]
        == counted[next(each for each, is_valid in zip(data[::-1], valid[::-1], strict=True) if is_valid)]
    )
    assert max(latest) == max(counted.values()) > 50


def test_jitter_buffer(chance):
    """Samples leave in their order, once each, and the first of them when eight have come."""
    data = [chance.randrange(256) for _ in range(CYCLES)]
    valid, ticks = (
        [int(cycle % 4 == 0) for cycle in range(CYCLES)],
        [int(cycle % 4 == 2) for cycle in range(CYCLES)],
    )
    shown = play("jitter_buffer", x_valid_i=valid, x_data_i=data, tick_i=ticks)
    sent = [each for each, is_valid in zip(data, valid, strict=True) if is_valid]
    got = [each["jitter_buffer_sample_o"] for each in shown if each["jitter_buffer_played_o"]]
    assert got == sent[: len(got)]
    assert len(got) > 80
    first = next(cycle for cycle, each in enumerate(shown) if each["jitter_buffer_played_o"])
    assert sum(valid[:first]) >= 8


def stutter(chance, often, length=CYCLES):
    """Return the bits of a valid or a ready that is 1 in a share of the cycles."""
    return [int(chance.random() < often) for _ in range(length)]


def moved(shown, valid, data, stream):
    """Return the samples that a stream of inputs passes to the datapath."""
    steps = zip(valid, data, shown, strict=True)
    return [sample for is_valid, sample, each in steps if is_valid and each[f"{stream}_ready_o"]]


def received(shown, ready, stream, field="data"):
    """Return what the receiver of a stream takes."""
    steps = zip(ready, shown, strict=True)
    return [each[f"{stream}_{field}_o"] for takes, each in steps if takes and each[f"{stream}_valid_o"]]


@pytest.mark.parametrize("often", [0.5, 1])
def test_class_table(chance, often):
    table = [chance.randrange(16) for _ in range(64)]
    later, idle = [0] * 64, [0] * CYCLES
    classes = [*later, *(chance.randrange(64) for _ in range(CYCLES))]
    valid, ready = [*later, *stutter(chance, 0.9)], [*later, *stutter(chance, often)]
    shown = play(
        "class_table",
        class_table_ports_load_i=[*[1] * 64, *idle],
        class_table_ports_address_i=[*range(64), *idle],
        class_table_ports_word_i=[*table, *idle],
        class_valid_i=valid,
        class_data_i=classes,
        class_table_port_ready_i=ready,
    )
    asked, got = moved(shown, valid, classes, "class"), received(shown, ready, "class_table_port")
    assert got == [table[each] for each in asked][: len(got)]
    assert len(asked) - 2 <= len(got) > 0.8 * often * CYCLES


def test_checksum(chance):
    def checksum(words):
        total = sum(words)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return 0xFFFF - total

    steps = packets(chance, 9, [0, 1, 0x8000, 0xFFFE, 0xFFFF])
    shown = play("checksum", **ports_of_stream([*steps, (0, 0, 0)]))
    expected = [checksum(each) for each in split(steps)]
    assert [each["checksum_result_o"] for each in shown if each["checksum_done_o"]] == expected
    assert {0, 0xFFFF} & set(expected)


@pytest.mark.parametrize(("comes", "goes"), [(1, 1), (0.3, 1), (1, 0.2)])
def test_ping_pong(chance, comes, goes):
    """Bytes leave in their order, the last of each image marked. An image begins to leave when it is whole."""
    length = 3 * CYCLES
    data = [chance.randrange(256) for _ in range(length)]
    valid, ready = stutter(chance, comes, length), stutter(chance, goes, length)
    shown = play("ping_pong", x_valid_i=valid, x_data_i=data, sender_out_ready_i=ready)
    taken, got = moved(shown, valid, data, "x"), received(shown, ready, "sender_out")
    assert got == taken[: len(got)]
    assert received(shown, ready, "sender_out", "last") == [
        int(place % 32 == 31) for place in range(len(got))
    ]
    assert len(got) > 32
    assert len(taken) - len(got) <= 64 + 3
    begins = next(cycle for cycle, each in enumerate(shown) if each["sender_out_valid_o"])
    assert len(moved(shown[:begins], valid[:begins], data[:begins], "x")) >= 32


def test_demultiplexer(chance):
    steps = packets(chance, 6, range(256))
    shown = play("demultiplexer", **ports_of_stream([*steps, (0, 0, 0)]))
    for port in range(4):
        got = [
            (each[f"demultiplexer_out_{port}_data_o"], each[f"demultiplexer_out_{port}_last_o"])
            for each in shown
            if each[f"demultiplexer_out_{port}_valid_o"]
        ]
        whole = [each for each in split(steps) if each[0] >> 6 == port]
        expected = [(data, int(place == len(each) - 1)) for each in whole for place, data in enumerate(each)]
        assert got == expected
        assert len(whole) > 5


def test_starvation(chance):
    ones = [1] * 80
    both = play("starvation", high_valid_i=ones, low_valid_i=ones, high_data_i=[1] * 80, low_data_i=[2] * 80)
    assert beats(both, "joined_out")[:10] == [1, 1, 1, 1, 2, 1, 1, 1, 1, 2]
    data, ready = [cycle & 127 for cycle in range(CYCLES)], stutter(chance, 0.8)
    highs, lows = stutter(chance, 0.6), stutter(chance, 0.3)
    high, low = data, [128 + each for each in data]
    shown = play(
        "starvation",
        high_valid_i=highs,
        low_valid_i=lows,
        high_data_i=high,
        low_data_i=low,
        joined_out_ready_i=ready,
    )
    got = received(shown, ready, "joined_out")
    for bit, taken in enumerate((moved(shown, highs, high, "high"), moved(shown, lows, low, "low"))):
        mine = [each for each in got if each >> 7 == bit]
        assert mine == taken[: len(mine)]
        assert len(taken) - 3 <= len(mine) > 40
    passed, most = 0, 0
    for waits, is_high, each in zip(lows, highs, shown, strict=True):
        passed = 0 if waits and each["low_ready_o"] else passed + (waits and is_high and each["high_ready_o"])
        most = max(most, passed)
    assert most == 4


def test_delay_line(chance):
    data = [chance.randrange(256) for _ in range(CYCLES)]
    shown = play("delay_line", x_i=data)
    assert [each["delay_line_y_o"] for each in shown] == [*[0] * 16, *data[:-16]]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_has_a_warning(path):
    assert parse_text(path.read_text(encoding="utf-8"), path.name).warnings == ()


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.timeout(300)
@needs("hdl")
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_is_proven_and_its_built_files_are_verified(warm_yosys, tmp_path, path):
    if reason := explain_missing(*TOOLS, "iverilog", "vvp"):
        pytest.skip(reason)
    proof = prove(load(path).datapath)
    assert proof.ok, proof.results
    assert [each for each in proof.cover_results if each.statement == "fire" and not each.is_reached] == []
    assert run_app(["build", str(path), "-o", str(tmp_path / "built")]) == 0
    assert verify(tmp_path / "built").ok
