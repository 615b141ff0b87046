"""The smartNIC of a board behind its driver: registers over AXI4-Lite, and frames of a MAC that cannot wait."""

import json
import random
import re
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

from fpga.bus.axi_pins import AxiPinsBus
from fpga.count_action.ports import Port, Ports
from fpga.datapath import WrongHardware
from fpga.smartnic.__main__ import main
from fpga.smartnic.build import make_nic_design
from fpga.smartnic.driver import REGISTERS, SmartNicDriver
from fpga.smartnic.frames import Endpoint, get_payload, make_datagram
from fpga.smartnic.program import NicLayer, NicModel, NicProgram
from fpga.smartnic.reference import compute_scores
from fpga.smartnic.registers import IDENTITY, OUTCOMES
from fpga.smartnic.simulator import Settings, SmartNicError
from lightning.serving.packets.codec import Kind, Packet, RefusalCode, decode_answer, parse, serialise

HERE = Path(__file__).resolve().parent
SETTINGS = Settings(apart=0x15, limit=10_000)
"""The light of `board.sv` has the same delay between the modulators."""
BASE = 4096
NIC = Endpoint(SETTINGS.mac, SETTINGS.address, SETTINGS.port)
CLIENT = Endpoint("02:00:00:00:00:01", "10.77.0.1", 40000)
BEAT = 64
PLACES = 511
"""Beats that wait before the smartNIC."""


def make_ports(text):
    sides = {"input": [], "output": []}
    for side, high, name in re.findall(
        r"^  (input|output)\s+logic (?:\[(\d+):0\])? *(\w+)", text, re.MULTILINE
    ):
        if name not in {"clk_i", "rst_i"}:
            before = sides[side]
            column = before[-1].column + before[-1].word_count if before else 0
            before.append(Port(name, int(high or 0) + 1, column))
    return Ports(tuple(sides["input"]), tuple(sides["output"]))


def verilate(top, text, design):
    skip_without("lark")
    from fpga.hdl import explain_missing, verilator

    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    return verilator.build(design(top, make_ports(text), text), optimise_flag="-O1")


class Pins:
    """Rows of values by port."""

    def __init__(self, simulator):
        self.simulator = simulator
        self.into = {port.name: port for port in simulator.design.ports.inputs}
        self.out_of = {port.name: port for port in simulator.design.ports.outputs}

    def rows(self, cycles):
        return np.zeros((cycles, self.simulator.design.ports.input_column_count), np.uint64)

    def put(self, rows, name, values):
        port = self.into[name]
        words = np.asarray(values, np.uint64).reshape(len(rows), -1)
        rows[:, port.column : port.column + port.word_count] = words

    def get(self, rows, name):
        port = self.out_of[name]
        return rows[:, port.column : port.column + port.word_count]


class Board(Pins):
    """The board: its driver, and the frames at its MAC."""

    def __init__(self, simulator):
        super().__init__(simulator)
        simulator.reset()
        self.bus = AxiPinsBus(simulator)
        self.driver = SmartNicDriver(self.bus)
        self.beats = []

    def write_memory(self, offset, data):
        rows = self.rows(len(data) // 32)
        self.put(rows, "memory_write", np.ones(len(rows)))
        self.put(rows, "memory_address", (BASE + offset) // 32 + np.arange(len(rows)))
        self.put(rows, "memory_data", np.frombuffer(data, "<u8"))
        self.simulator.run(rows)

    def run(self, cycles):
        """Run with the MAC ready."""
        self._run(self.rows(cycles))

    def send(self, frames, bad=()):
        """Give frames without a gap."""
        for number, frame in enumerate(frames):
            beats = -(-len(frame) // BEAT)
            rows = self.rows(beats)
            keep = np.packbits(np.arange(beats * BEAT) < len(frame), bitorder="little")
            last = np.arange(beats) == beats - 1
            self.put(rows, "rx_valid", np.ones(beats))
            self.put(rows, "rx_data", np.frombuffer(frame.ljust(beats * BEAT, b"\0"), "<u8"))
            self.put(rows, "rx_keep", keep.view("<u8"))
            self.put(rows, "rx_last", last)
            self.put(rows, "rx_bad", last & (number in bad))
            self._run(rows)

    def _run(self, rows):
        self.put(rows, "tx_ready", np.ones(len(rows)))
        out = self.simulator.run(rows)
        for cycle in np.flatnonzero(self.get(out, "tx_valid")):
            data, keep = self.get(out, "tx_data")[cycle].tobytes(), int(self.get(out, "tx_keep")[cycle, 0])
            self.beats.append((data[: keep.bit_count()], bool(self.get(out, "tx_last")[cycle, 0])))

    def answers(self):
        """Take the datagrams that were sent, parsed."""
        frames, frame = [], b""
        for data, last in self.beats:
            frame += data
            if last:
                frames.append(parse(get_payload(frame)))
                frame = b""
        assert frame == b""
        self.beats = []
        return frames


@pytest.fixture(scope="module")
@needs("hdl")
def simulator():
    text = (HERE / "board.sv").read_text("ascii")
    return verilate("board", text, make_nic_design)


@pytest.fixture
def board(simulator):
    made = Board(simulator)
    made.driver.configure(SETTINGS, BASE)
    return made


def model(name, seed, inputs, *outputs):
    draw = np.random.default_rng(seed)
    layers = []
    for place, count in enumerate(outputs):
        last = place == len(outputs) - 1
        weights = draw.integers(-255, 256, (count, inputs))
        bias, scale = draw.integers(-9000, 9000, count), draw.uniform(1e-4, 1e-2, count).astype(np.float32)
        layers.append(NicLayer(weights, bias, scale, np.float32(1 if last else 0.1), not last))
        inputs = count
    return NicModel(name, tuple(layers))


PROGRAM = NicProgram((model("two layers", 1, 40, 12, 5), model("one layer", 2, 50, 4)))
OTHER = NicProgram((model("other", 3, 40, 9, 3),))


def requests(program, count, seed=0):
    """Return images of a program by request, and their frames."""
    draw, images, frames = np.random.default_rng(seed), {}, []
    for number in range(count):
        chosen = number % len(program.models)
        images[number] = chosen, draw.integers(0, 256, program.models[chosen].input_count).astype(np.uint8)
        frames.append(frame(number, *images[number]))
    return images, frames


def frame(number, chosen, image):
    return make_datagram(serialise(Packet(Kind.REQUEST, chosen, number, image.tobytes())), CLIENT, NIC)


def assert_right(answers, images, program):
    """Assert that these are the answers of these images, each once."""
    assert sorted(each.request for each in answers) == sorted(images)
    for each in answers:
        chosen, image = images[each.request]
        assert (each.kind, each.model) == (Kind.ANSWER, chosen)
        answer = decode_answer(each.payload)
        expected, best = compute_scores(program.models[chosen], image)
        assert (answer.scores.tolist(), answer.class_index) == (expected.tolist(), best)


@pytest.mark.long
@pytest.mark.hdl
def test_requests_are_answered_and_counted(board):
    board.driver.load(PROGRAM, board.write_memory)
    images, frames = requests(PROGRAM, 6)
    unknown = frame(99, 7, np.zeros(40, np.uint8))
    board.send([*frames[:3], unknown, *frames[3:], frames[0]], bad={7})
    board.run(3000)
    answers = board.answers()
    (refusal,) = (each for each in answers if each.kind is Kind.REFUSAL)
    assert (refusal.request, refusal.code) == (99, RefusalCode.UNKNOWN_MODEL)
    assert_right([each for each in answers if each is not refusal], images, PROGRAM)
    assert not board.driver.is_working
    assert not board.driver.is_busy
    counters = {"received": 8, "answered": 6, "unknown_model": 1, "corrupt": 1}
    assert board.driver.read_counters() == dict.fromkeys((*OUTCOMES, "overrun"), 0) | counters


@pytest.mark.long
@pytest.mark.hdl
def test_a_program_is_replaced_between_two_requests(board):
    board.driver.load(PROGRAM, board.write_memory)
    images, frames = requests(PROGRAM, 1)
    board.send(frames)
    board.run(60)
    assert board.driver.is_working
    later = {number: image for number, image in requests(OTHER, 4)[0].items() if number}
    board.driver.hold()
    board.send([frame(number, *image) for number, image in later.items()])
    board.driver.reload(OTHER, board.write_memory)
    board.run(3000)
    first, *others = board.answers()
    assert_right([first], images, PROGRAM)
    assert_right(others, later, OTHER)


@pytest.mark.long
@pytest.mark.hdl
def test_a_reload_gives_up_when_the_request_does_not_end(board):
    board.driver.load(PROGRAM, board.write_memory)
    images, frames = requests(PROGRAM, 1)
    board.send(frames)
    board.run(60)
    with pytest.raises(SmartNicError, match="did not end within 2 reads"):
        board.driver.reload(OTHER, board.write_memory, max_status_reads=2)
    board.run(1000)
    assert_right(board.answers(), images, PROGRAM)


@pytest.mark.long
@pytest.mark.hdl
def test_an_abort_refuses_the_request_in_work_alone(board):
    board.driver.load(PROGRAM, board.write_memory)
    images, frames = requests(PROGRAM, 3)
    board.send(frames)
    board.run(40)
    board.driver.abort()
    board.run(2000)
    refusal, *answers = board.answers()
    assert (refusal.request, refusal.kind, refusal.code) == (0, Kind.REFUSAL, RefusalCode.FAILED)
    assert_right(answers, {number: image for number, image in images.items() if number}, PROGRAM)
    assert board.driver.read_counters()["failed"] == 1


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("cycles", [1, 10, 30, 45, 60, 75, 90, 100])
def test_a_reset_leaves_nothing_of_a_request_and_of_the_settings(board, cycles):
    board.driver.load(PROGRAM, board.write_memory)
    images, frames = requests(PROGRAM, 2)
    board.send(frames)
    board.run(cycles)
    board.driver.reset()
    assert set(board.driver.read_counters().values()) == {0}
    assert board.bus.read32(REGISTERS["PORT"].offset) == REGISTERS["PORT"].reset_value
    assert board.bus.read32(REGISTERS["BASE"].offset) == 0
    board.run(100)
    board.beats.clear()
    assert not board.driver.is_busy
    board.driver.configure(SETTINGS, BASE)
    board.send(frames[:1])
    board.run(200)
    assert [each.code for each in board.answers()] == [RefusalCode.UNKNOWN_MODEL]
    board.driver.load(PROGRAM, board.write_memory)
    board.send(frames)
    board.run(2000)
    assert_right(board.answers(), images, PROGRAM)


@pytest.mark.long
@pytest.mark.hdl
def test_frames_that_find_no_room_are_counted_and_the_others_are_whole(board):
    board.driver.load(OTHER, board.write_memory)
    board.driver.hold()
    images, frames = requests(OTHER, 300)
    board.send(frames)
    overruns = board.driver.read_counters()["overrun"]
    beats = -(-len(frames[0]) // BEAT)
    assert 300 - overruns >= PLACES // beats
    board.driver.hold(is_held=False)
    board.run(100)
    while board.driver.is_busy:
        board.run(1000)
    answers = board.answers()
    kept = {number: image for number, image in images.items() if number < 300 - overruns}
    assert [each.request for each in answers] == list(kept)
    assert_right(answers, kept, OTHER)
    counters = board.driver.read_counters()
    assert [counters[name] for name in ("received", "answered", "overrun")] == [
        len(kept),
        len(kept),
        overruns,
    ]
    assert overruns > 20


def test_the_command_writes_all_files_and_prints_the_registers(tmp_path, capsys):
    assert main(["build", "--out", str(tmp_path)]) == 0
    files = {path.name for path in tmp_path.iterdir()}
    assert f"hash {REGISTERS.digest:08x}: {len(files)} files in {tmp_path}" in capsys.readouterr().out
    sources = (tmp_path / "smartnic_axi.f").read_text().split()
    assert sources[-1] == "smartnic_axi.sv"
    registers = {
        "smartnic_axi.f",
        "smartnic.rdl",
        "smartnic.h",
        "smartnic.md",
        "smartnic.registers.json",
        "smartnic_axi_ip_registers.tcl",
    }
    assert files == {*sources, *registers, "package_ip.tcl", "project.tcl", "smartnic.tcl"}
    assert main(["registers", "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "smartnic.registers.json").read_text()
    assert json.loads(printed)["hash"] == f"{REGISTERS.digest:08x}"
    assert main(["registers"]) == 0
    assert capsys.readouterr().out == (tmp_path / "smartnic.md").read_text()


def test_an_unknown_board_is_a_wrong_option(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["build", "--out", str(tmp_path), "--board", "none"])
    assert "there are: zcu111" in capsys.readouterr().err


def test_other_hardware_is_refused():
    class Words:
        def __init__(self, *words):
            self.words = words

        def read32(self, offset):
            return self.words[offset // 4]

    with pytest.raises(WrongHardware, match="no smartNIC answers: the ID register reads 0x0000002a"):
        SmartNicDriver(Words(42, REGISTERS.digest))
    with pytest.raises(WrongHardware, match="has registers 00000001, but the driver is for"):
        SmartNicDriver(Words(IDENTITY, 1))


@pytest.mark.parametrize("base", [4095, 1 << 40, -4096])
def test_weights_lie_at_a_page(base):
    class Words:
        def read32(self, offset):
            return {0: IDENTITY, 4: REGISTERS.digest}[offset]

    with pytest.raises(ValueError, match="multiple of 4096"):
        SmartNicDriver(Words()).configure(SETTINGS, base)


# ------------------------------------------------------------------------ frames that wait


QUEUE = """\
module queue (
  input  logic       clk_i,
  input  logic       rst_i,
  input  logic       valid,
  input  logic       last,
  input  logic [7:0] beat,
  input  logic       ready,
  output logic       overrun,
  output logic       valid_out,
  output logic [7:0] beat_out
);

  frame_queue #(
    .Width(8),
    .PlaceWidth(3)
  ) u_queue (
    .clk_i,
    .rst_i,
    .valid_i(valid),
    .last_i(last),
    .beat_i(beat),
    .overrun_o(overrun),
    .valid_o(valid_out),
    .ready_i(ready),
    .beat_o(beat_out)
  );

endmodule
"""


@pytest.fixture(scope="module")
@needs("hdl")
def queue():
    return Pins(verilate("queue", QUEUE, make_nic_design))


def expected_outputs(beats, ready):
    """Return overrun, valid and beat of a queue of seven places in each cycle; `beats` are (beat, last) or None."""
    whole, part, dropping, shown = deque(), [], False, False
    for beat, taken in zip(beats, ready, strict=True):
        room, held = len(whole) + len(part) < 7, len(whole) - (shown and taken)
        stored = beat is not None and room and not dropping
        overrun = beat is not None and beat[1] and not stored
        yield overrun, shown, whole[0] if shown else None
        if shown and taken:
            whole.popleft()
        shown = held > 0
        if beat is None:
            continue
        part = [*part, beat[0]] if stored else []
        dropping = not stored and not beat[1]
        if beat[1]:
            whole.extend(part)
            part = []


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("seed", range(6))
def test_frames_come_out_whole_and_in_order_or_are_counted(queue, seed):
    chance, beats, cycles = random.Random(seed), [], 4000
    busy, eager = (0.3, 0.6, 0.9)[seed % 3], (0.4, 0.9)[seed % 2]
    while len(beats) < cycles:
        length = chance.choice([1, 1, 2, 3, 4, 7, 8, 9])
        for place in range(length):
            beats += [None] * sum(chance.random() > busy for _ in range(3))
            beats.append((chance.randrange(256), place == length - 1))
    ready = [chance.random() < eager for _ in beats]
    rows = queue.rows(len(beats))
    queue.put(rows, "valid", [each is not None for each in beats])
    queue.put(rows, "beat", [each[0] if each else chance.randrange(256) for each in beats])
    queue.put(rows, "last", [each[1] if each else chance.randrange(2) for each in beats])
    queue.put(rows, "ready", ready)
    queue.simulator.reset()
    out = queue.simulator.run(rows)
    columns = [queue.get(out, name)[:, 0].tolist() for name in ("overrun", "valid_out", "beat_out")]
    seen = [(overrun, shown, beat if shown else None) for overrun, shown, beat in zip(*columns, strict=True)]
    expected = list(expected_outputs(beats, ready))
    assert seen == expected
    assert sum(overrun for overrun, *_ in expected) > 20
    assert sum(shown and taken for (_, shown, _), taken in zip(expected, ready, strict=True)) > 200
