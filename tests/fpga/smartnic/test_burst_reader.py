"""The reader of weights: the words of its jobs, in their order, from memories with delays, pauses and errors."""

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from needs import needs

from fpga.count_action.ports import Port, Ports
from fpga.hdl.design import Design

HERE = Path(__file__).resolve().parent
RTL = Path(__file__).resolve().parents[3] / "fpga" / "rtl"
BLOCKS = ("word_memory", "burst_reader", "axi_memory_model")
DEPTH, WORDS = 64, 1024
INPUTS = {
    "base_i": 40, "job_valid_i": 1, "job_word_i": 32, "job_words_i": 24, "word_ready_i": 1, "flush_i": 1, "hold_i": 1,
    "write_i": 1, "write_address_i": 10, "write_data_i": 256, "latency_i": 8, "refresh_every_i": 16,
    "refresh_cycles_i": 16,
}  # fmt: skip
OUTPUTS = {
    "job_ready_o": 1, "word_valid_o": 1, "word_o": 256, "flushing_o": 1, "error_o": 1, "arvalid_o": 1, "arready_o": 1,
    "araddr_o": 40, "arlen_o": 8, "rvalid_o": 1, "rready_o": 1, "rlast_o": 1, "rresp_o": 2,
}  # fmt: skip


def placed(widths):
    ports = []
    for name, width in widths.items():
        ports.append(Port(name, width, ports[-1].column + ports[-1].word_count if ports else 0))
    return tuple(ports)


PORTS = Ports(placed(INPUTS), placed(OUTPUTS))


def design():
    paths = [*(RTL / f"{name}.sv" for name in BLOCKS), HERE / "burst_reader_bench.sv"]
    return Design("burst_reader_bench", tuple((path.name, path.read_text("ascii")) for path in paths), PORTS)


@pytest.fixture(scope="module")
@needs("hdl")
def verilated():
    from fpga.hdl import explain_missing, verilator

    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    return verilator.build(design(), optimise_flag="-O1")


@pytest.fixture(scope="module")
@needs("hdl")
def icarus():
    from fpga.hdl import explain_missing, icarus

    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    return icarus


def contents(word):
    """Return the words of memory (rows of four 64-bit numbers), all different."""
    return (np.asarray(word, np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)) ^ np.arange(
        4, dtype=np.uint64
    )


def put(rows, name, values):
    rows[:, PORTS.find_input(name).column] = values


def load_rows():
    rows = np.zeros((WORDS, PORTS.input_column_count), np.uint64)
    put(rows, "write_i", 1)
    put(rows, "write_address_i", np.arange(WORDS))
    column = PORTS.find_input("write_data_i").column
    rows[:, column : column + 4] = contents(np.arange(WORDS))
    return rows


@dataclass
class Case:
    """Settings of a run, and how often things happen in it."""

    latency: int = 0
    refresh: tuple[int, int] = (0, 0)
    base: int = 0
    jobs: float = 1.0
    ready: float = 1.0
    hold: float = 0.0
    flush: float = 0.0
    largest: int = 90
    beyond: float = 0.0
    """Share of jobs that end outside the memory."""


CASES = [
    Case(),
    Case(largest=2),
    Case(latency=60, refresh=(300, 40), ready=0.7, hold=0.3),
    Case(latency=255, base=0x12345 << 5, flush=0.003, hold=0.1, beyond=1.0),
    Case(latency=5, refresh=(64, 20), flush=0.02, jobs=0.3, largest=200),
    Case(latency=20, ready=0.1, flush=0.002, beyond=0.1),
    Case(latency=3, refresh=(11, 10), hold=0.8, flush=0.01, largest=6),
    Case(base=96, flush=0.2, largest=40, beyond=0.3),
]


def stimulus(case, cycles, seed):
    random = np.random.default_rng(seed)
    rows = np.zeros((cycles, PORTS.input_column_count), np.uint64)
    words = random.integers(0, case.largest + 1, cycles)
    starts = random.integers(0, max(WORDS - case.largest - case.base // 32, 1), cycles)
    starts += WORDS * (random.random(cycles) < case.beyond)
    put(rows, "base_i", case.base)
    put(rows, "job_valid_i", random.random(cycles) < case.jobs)
    put(rows, "job_word_i", starts)
    put(rows, "job_words_i", words)
    put(rows, "word_ready_i", random.random(cycles) < case.ready)
    put(rows, "flush_i", random.random(cycles) < case.flush)
    put(rows, "hold_i", random.random(cycles) < case.hold)
    put(rows, "latency_i", case.latency)
    put(rows, "refresh_every_i", case.refresh[0])
    put(rows, "refresh_cycles_i", case.refresh[1])
    return rows


@dataclass
class Observer:
    """A model of the reader, fed with its jobs and with the events of the bus; `seen` counts events."""

    depth: int = DEPTH
    seen: Counter = field(default_factory=Counter)
    words: deque = field(default_factory=deque)
    """Words of the jobs that have not come out: their places in memory."""
    ordered: int = 0
    """Words that were requested on the bus and have not come out; those that are dropped count until they came."""
    bursts: deque = field(default_factory=deque)
    address: tuple | None = None
    responses: deque = field(default_factory=deque)
    """Whether each word that has come and not gone out came with an error."""
    errors: int = 0
    flushed: bool = False

    def watch(self, rows, outputs):
        told = {port.name: rows[:, port.column].tolist() for port in PORTS.inputs if port.width <= 64}
        did = {port.name: outputs[:, port.column].tolist() for port in PORTS.outputs if port.width <= 64}
        column = PORTS.find_output("word_o").column
        data = outputs[:, column : column + 4]
        for cycle in range(len(rows)):
            now = {name: values[cycle] for name, values in (told | did).items()}
            self._bus(now)
            self._words(now, data[cycle])
            self._jobs(now)

    def _bus(self, now):
        if self.address is not None:
            assert (now["arvalid_o"], now["araddr_o"], now["arlen_o"]) == (1, *self.address)
            self.seen["address held"] += 1
        self.address = None
        if now["arvalid_o"]:
            beats = now["arlen_o"] + 1
            first = now["araddr_o"]
            assert beats <= 32
            assert first // 4096 == (first + 32 * beats - 1) // 4096
            if now["arready_o"]:
                self.bursts.append([beats, self.flushed])
                self.seen["bursts"] += 1
                self.seen["full bursts"] += beats == 32
            else:
                self.address = (now["araddr_o"], now["arlen_o"])
        in_flight = sum(beats for beats, _ in self.bursts) + (self.address[1] + 1 if self.address else 0)
        assert in_flight + self.ordered <= self.depth
        self.seen["nearly full"] += in_flight + self.ordered > self.depth - 32
        self.seen["several bursts"] += len(self.bursts) > 1
        assert now["rready_o"] == 1
        assert now["error_o"] == self.errors
        self.errors = 0
        if now["rvalid_o"]:
            burst = self.bursts[0]
            burst[0] -= 1
            assert now["rlast_o"] == (burst[0] == 0)
            if burst[1] or self.flushed or now["flush_i"]:
                self.seen["dropped beats"] += 1
            else:
                self.ordered += 1
                self.responses.append(int(now["rresp_o"] != 0))
            if burst[0] == 0:
                self.bursts.popleft()

    def _words(self, now, data):
        assert now["word_valid_o"] == 0 or not now["flushing_o"]
        if now["word_valid_o"]:
            place = self.words[0]
            if place is not None:
                assert data.tolist() == contents([place])[0].tolist()
            if now["word_ready_i"]:
                self.words.popleft()
                self.ordered -= 1
                self.errors = self.responses.popleft()
                self.seen["errors"] += self.errors
                self.seen["words"] += 1
            else:
                self.seen["words held"] += 1

    def _jobs(self, now):
        self.flushed = bool(now["flush_i"]) or (self.flushed and bool(now["flushing_o"]))
        if now["flush_i"]:
            self.seen["flushes"] += 1
            self.seen["flushes with words"] += bool(self.words)
            self.seen["flushes with bursts"] += bool(self.bursts)
            self.words.clear()
            self.responses.clear()
            self.errors = 0
            self.ordered = 0
            for burst in self.bursts:
                burst[1] = True
        if now["job_valid_i"] and now["job_ready_o"]:
            assert not now["flushing_o"]
            assert not now["flush_i"]
            first = now["base_i"] // 32 + now["job_word_i"]
            # What is outside the memory nobody knows, only that it comes.
            self.words += [
                place if place < WORDS else None for place in range(first, first + now["job_words_i"])
            ]
            self.seen["jobs"] += 1
            self.seen["jobs ahead"] += len(self.words) > now["job_words_i"]
            self.seen["empty jobs"] += now["job_words_i"] == 0
            self.seen["unaligned jobs"] += first % 32 > 0

    def drain(self, run):
        """Run without jobs until everything has come out."""
        rows = np.zeros((40_000, PORTS.input_column_count), np.uint64)
        put(rows, "word_ready_i", 1)
        self.watch(rows[:1], run(rows[:1]))
        for _ in range(200):
            if not self.words and not self.bursts:
                break
            self.watch(rows[:200], run(rows[:200]))
        self.watch(rows[:20], run(rows[:20]))
        assert not self.words
        assert not self.bursts
        assert self.ordered == 0


def check(run, case, cycles, seed):
    observer = Observer()
    rows = stimulus(case, cycles, seed)
    observer.watch(rows, run(rows))
    observer.drain(run)
    return observer.seen


@pytest.mark.long
@pytest.mark.slow
def test_words_are_those_of_the_jobs_in_order(verilated):
    seen = Counter()
    for seed, case in enumerate(CASES):
        verilated.reset()
        verilated.run(load_rows())
        seen += check(verilated.run, case, 4000, seed)
    assert seen["words"] >= 8000, seen
    assert seen["jobs"] >= 800, seen
    assert seen["jobs ahead"] >= 400, seen
    assert min(seen["empty jobs"], seen["unaligned jobs"], seen["full bursts"]) >= 50, seen
    assert min(seen["nearly full"], seen["several bursts"]) >= 5000, seen
    assert min(seen["address held"], seen["errors"]) >= 200, seen
    assert min(seen["words held"], seen["dropped beats"]) >= 500, seen
    assert min(seen["flushes with words"], seen["flushes with bursts"]) >= 40, seen


@pytest.mark.long
def test_words_of_a_million_cycles(verilated):
    random = np.random.default_rng(7)
    seen = Counter()
    for seed in range(250):
        refresh = int(random.integers(2, 400))
        case = Case(
            latency=int(random.integers(0, 256) * random.integers(0, 2)),
            refresh=(refresh, int(random.integers(0, refresh))) if random.random() < 0.7 else (0, 0),
            base=int(random.integers(0, 512)) << 5,
            jobs=random.random(),
            ready=random.choice([1.0, 0.9, 0.5, 0.1]),
            hold=random.choice([0.0, 0.3, 0.9]),
            flush=random.choice([0.0, 0.001, 0.02, 0.3]),
            largest=int(random.choice([1, 5, 33, 90, 400])),
            beyond=random.choice([0.0, 0.0, 0.2]),
        )
        verilated.reset()
        verilated.run(load_rows())
        seen += check(verilated.run, case, 4000, seed)
    assert seen["words"] >= 100_000, seen
    assert min(seen["errors"], seen["dropped beats"], seen["flushes with words"]) >= 5000, seen


def test_icarus_agrees(icarus):
    rows = [np.zeros((2, PORTS.input_column_count), np.uint64), load_rows()]
    for seed, case in enumerate(CASES[:3]):
        rows.append(stimulus(case, 400, seed))
    observer = Observer()
    rows = np.concatenate(rows)
    observer.watch(rows, icarus.run(design(), rows))
    assert observer.seen["words"] >= 300
    assert observer.seen["words held"] >= 20


@pytest.mark.long
@pytest.mark.parametrize("largest", [1, 2, 31, 90, 600])
def test_an_ideal_memory_gives_a_word_every_cycle(verilated, largest):
    """Across bursts and across jobs, however short: from the first word on there is no gap."""
    verilated.reset()
    verilated.run(load_rows())
    rows = stimulus(Case(largest=largest), 3000, largest)
    words = rows[:, PORTS.find_input("job_words_i").column]
    words[words == 0] = 1
    valid = verilated.run(rows)[:, PORTS.find_output("word_valid_o").column].astype(bool)
    first = int(valid.argmax())
    assert first <= 8
    assert valid[first:].all()


@pytest.mark.long
def test_refresh_takes_its_share_of_the_cycles(verilated):
    verilated.reset()
    verilated.run(load_rows())
    rows = stimulus(Case(refresh=(100, 25), largest=90), 20_000, 1)
    put(rows, "job_words_i", 64)
    words = verilated.run(rows)[:, PORTS.find_output("word_valid_o").column].sum()
    assert 0.749 <= words / len(rows) <= 0.751


@pytest.mark.long
def test_latency_shows_before_the_first_word(verilated):
    firsts = []
    for latency in (0, 1, 50, 255):
        verilated.reset()
        rows = stimulus(Case(latency=latency), 400, 1)
        put(rows, "job_words_i", 200)
        firsts.append(int(verilated.run(rows)[:, PORTS.find_output("word_valid_o").column].argmax()))
    assert [each - firsts[0] for each in firsts] == [0, 1, 50, 255]


@pytest.mark.long
@pytest.mark.hdl
def test_a_foreign_memory(tmp_path, monkeypatch):
    """The AXI slave of cocotbext-axi, with pauses on both channels."""
    from fpga.hdl import explain_missing

    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi: pip install 'lightbed[hdl]'")
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    monkeypatch.setenv("STORY_FILE", str(tmp_path / "story.json"))
    monkeypatch.syspath_prepend(HERE)
    runner = get_runner("icarus")
    sources = [RTL / "word_memory.sv", RTL / "burst_reader.sv", HERE / "burst_reader_axi.sv"]
    runner.build(
        sources=sources, hdl_toplevel="burst_reader_axi", build_dir=tmp_path, timescale=("1ns", "1ps")
    )
    results = runner.test(
        hdl_toplevel="burst_reader_axi",
        test_module="burst_reader_story",
        build_dir=tmp_path,
        test_dir=tmp_path,
    )
    assert get_results(results) == (1, 0)
    seen = json.loads((tmp_path / "story.json").read_text())
    assert seen["wrong"] == []
    assert seen["words"] >= 3000, seen
    assert min(seen["flushes"], seen["jobs"] // 4) >= 15, seen
