"""The report of a run: what it must say, and that it stands alone. The figures are fabricated here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from libraries import skip_without

skip_without("pyarrow")
skip_without("sqlalchemy")

from testbed.measure.gain import find_ring_gain
from testbed.measure.model import NicBytes, RankFigures, Timing
from testbed.measure.report.page import render_report, write_report
from testbed.measure.results.records import (
    INFERENCE,
    REPATCH,
    Comparison,
    Inference,
    LabInfo,
    Latency,
    Repatch,
    RunSummary,
    StoredCircuit,
    StoredPhase,
    StoredRun,
    StoredTopology,
)
from testbed.measure.results.store import RunStore

NAMES = tuple("abcdefghijkl")
STARTED = datetime(2026, 6, 12, 10, 15, 30, tzinfo=UTC)
SIZES = [1024 << power for power in range(14)]


def timing(
    topology: str, configuration: str, size: int, *, rings: int = 1, ranks: int = 12, **more
) -> Timing:
    """Return a plausible row: a latency of 3 ms a step and `rings` links at 96 % of 100 Mbit/s."""
    factor = 2 * (ranks - 1) / ranks
    time_us = 2 * (ranks - 1) * 140.0 + size * 8 * factor / (96.0 * rings) + 9.0 * size**0.5
    algbw = size * 8 / time_us
    row = Timing(
        run_id="20260612T101530-000000",
        topology=topology,
        configuration=configuration,
        collective="all_reduce",
        ranks=ranks,
        rings=rings,
        size_bytes=size,
        iterations=20 if size < 1 << 20 else 2,
        time_us=time_us,
        min_us=time_us * 0.97,
        max_us=time_us * 1.06,
        low_us=time_us * 0.99,
        high_us=time_us * 1.02,
        algbw_mbps=algbw,
        busbw_mbps=algbw * factor,
        limit_mbps=100.0 * rings,
        wrong=0,
        cpu_limited=size < (1 << 15) * rings,
        simulated=True,
        hosts="kernel",
    )
    return replace(row, **more)


def circulant(name: str, strides: tuple[int, ...], reason: str, **figures) -> StoredTopology:
    links = sorted({tuple(sorted((i, (i + p) % 12))) for p in strides for i in range(12)})
    return StoredTopology(
        name, 12, 4, simplex=False, strides=strides, links=tuple(links), reason=reason, **figures
    )


def fabricated(*, simulated: bool = True, hosts: str = "kernel", status: str = "done") -> StoredRun:
    """Return a whole run as the demo leaves it."""
    rings = circulant(
        "rings-1-5",
        (1, 5),
        "The only circulant whose four rings use every link once.",
        diameter=3,
        mean_hops=1.818,
    )
    groups = circulant(
        "groups-3-6",
        (3, 4),
        "Two jobs of six and four hosts reduce among themselves: strides 3 and 4 are their own rings.",
        diameter=4,
        mean_hops=2.091,
    )
    timings = [
        *(timing(rings.name, "one ring", size) for size in SIZES),
        *(timing(rings.name, "four rings", size, rings=4) for size in SIZES),
        *(
            timing(rings.name, "groups of 4", size, ranks=4, busbw_mbps=min(31.0, size / 9000))
            for size in SIZES
        ),
        *(timing(groups.name, "groups of 4", size, ranks=4) for size in SIZES),
    ]
    timings = [replace(row, simulated=simulated, hosts=hosts) for row in timings]
    repatch = Repatch(
        source=rings.name,
        target=groups.name,
        reason="The workload reduces in groups of four hosts, which lie three apart.",
        circuits_moved=48,
        outage_s=0.0213,
        total_s=0.61,
        stall_s=0.412,
        usual_gap_s=0.0009,
        comparisons=(
            Comparison("Group AllReduce, 8 MiB, bus bandwidth", "Mbit/s", 31.0, 94.1),
            Comparison("Group AllReduce, 8 MiB, time", "ms", 3246.0, 1070.0, higher_is_better=False),
        ),
    )
    circuits = tuple(
        StoredCircuit(
            f"{a}/nic{k + 1}", f"{b}/nic{k + 1}", "ocs1", 4 * i + k + 1, 49 + 4 * ((i + 1) % 12) + k
        )
        for i, (a, b) in enumerate(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))
        for k in range(4)
    )
    nic_bytes = tuple(
        NicBytes(rings.name, configuration, 8 << 20, name, f"nic{k}", int(expected * 1.013) + 9000, expected)
        for configuration, links in (("one ring", 1), ("four rings", 4))
        for name in NAMES
        for k in range(1, 5)
        for expected in [15_379_114.0 / links if k <= links else 0.0]
    )
    summary = RunSummary(
        run_id="20260612T101530-000000",
        directory=Path("runs/20260612T101530-000000"),
        lab="testbed12",
        status=status,
        started=STARTED,
        finished=STARTED + timedelta(seconds=131) if status == "done" else None,
        simulated=simulated,
        hosts=hosts,
        error="HostError: host c does not answer" if status == "failed" else "",
    )
    return StoredRun(
        summary=summary,
        lab=LabInfo(
            "testbed12", "labs/testbed12.yaml", NAMES, (4,) * 12, ("ocs1 (48x48)",), 100.0, 25.0, 9000
        ),
        environment={
            "arguments": ["/somewhere/bin/testbed", "demo", "labs/testbed12.yaml"],
            "machine": {"processors": 2, "system": "Linux-6.18 x86_64"},
            "seeds": {"topology": 1, "data": 20260612},
            "versions": {"lightbed": "0.1.0", "python": "3.11.7", "torch on the hosts": "2.13.0"},
        },
        topologies=(rings, groups),
        circuits={rings.name: circuits, groups.name: circuits},
        phases=(StoredPhase(REPATCH, STARTED, repatch.to_json()),),
        timings=tuple(timings),
        nic_bytes=nic_bytes,
    )


class Page(HTMLParser):
    """The text and the elements of a page; notices elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.misnested: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.misnested.extend(self._open)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "img"}:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.misnested.append(tag)

    def handle_data(self, data):
        if not self._open or self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(fabricated())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_is_well_formed(page: Page):
    assert page.misnested == []


def test_the_page_needs_nothing_from_elsewhere(html: str, page: Page):
    names = {name for name, _ in page.elements}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not re.search(r"https?:|@import|url\((?!#)", html)


def test_a_simulated_run_says_so_plainly_with_its_scale(html: str, page: Page):
    assert page.text.count("SIMULATED") >= 3
    assert "(SIMULATED)" in html.partition("</title>")[0]
    assert "100 Mbit/s, which represents 25 Gb/s: scale 250×" in page.text
    assert "hosts: kernel" in page.text


def test_model_hosts_are_named_where_the_figures_are():
    text = Page(render_report(fabricated(hosts="model"))).text
    assert "hosts: model. No packet was sent" in text
    assert text.count("Hosts: model. The values are computed, not measured.") == 3


def test_a_real_run_says_nothing_of_simulation_or_scale():
    text = render_report(fabricated(simulated=False, hosts="real"))
    assert "SIMULATED" not in text
    assert "represents" not in text
    assert "≙" not in text


def test_every_section_of_a_whole_run_is_there(page: Page):
    for heading in (
        "Bus bandwidth",
        "Topologies",
        "Re-patch to groups-3-6",
        "Timings",
        "Bytes on the interfaces",
        "Circuits",
        "Versions, seeds, machine",
        "Repeat this run",
    ):
        assert f" {heading} " in page.text


def stopped_run() -> StoredRun:
    """Return a run of two sizes in which rank 3 is stopped for half of each iteration of the larger."""
    none = {"processor_s": 0.01, "queued_s": 0.0}
    ranks = [
        RankFigures(
            *("rings", "one ring", size, iteration, rank, NAMES[rank]),
            **none,
            seconds=1.0,
            waiting_s=0.98,
            stopped_s=0.5 if (rank, size) == (3, 1 << 20) else 0.0,
        )
        for size in (1 << 16, 1 << 20)
        for rank in range(12)
        for iteration in range(5)
    ]
    return replace(fabricated(), ranks=tuple(ranks))


def test_a_heat_map_shows_the_part_of_each_iteration_that_a_rank_lost():
    page = Page(render_report(stopped_run()))
    assert " Slow ranks and links " in page.text
    cells = [rect for rect in page.of("rect") if rect["class"] == "heat"]
    assert len(cells) == 12 * 5
    assert [float(cell["fill-opacity"]) for cell in cells[15:20]] == [0.52] * 5
    assert {cell["fill-opacity"] for place, cell in enumerate(cells) if not 15 <= place < 20} == {"0.06"}
    assert "rank 3 (d), iteration 1: 49% lost (late)" in page.text
    assert "it stood still or started late for 2.50 s of 5.00 s" in page.text


def test_a_healthy_run_says_that_nobody_held_up_the_others():
    run = stopped_run()
    healthy = replace(run, ranks=tuple(replace(one, stopped_s=0.0) for one in run.ranks))
    assert "No rank and no link held up the others." in render_report(healthy)
    assert "Slow ranks and links" not in render_report(fabricated())


def test_the_repatch_section_gives_reason_cost_and_gain(page: Page):
    for words in (
        "The workload reduces in groups of four hosts, which lie three apart.",
        "21.3 ms",
        "412 ms",
        "31 Mbit/s",
        "94.1 Mbit/s",
        "3.04×",
        "3.03×",
        "groups of 4, before and after",
    ):
        assert words in page.text


INFERRED = Inference(
    model="models/lenet.lng",
    host="a",
    board="board1",
    circuits=("a/nic4 -> board1/port1", "board1/port1 -> a/nic4"),
    requests=50,
    answered=50,
    wrong=0,
    lost=0,
    repeated=1,
    refused={},
    latency_us=Latency(1238.1, 1610.5, 7329.9, 8161.5),
    cycles=17556,
    picture="request.png",
)


def run_with_board(one: Inference = INFERRED, **more) -> StoredRun:
    run = fabricated()
    return replace(run, phases=(*run.phases, StoredPhase(INFERENCE, STARTED, one.to_json())), **more)


def test_the_trial_of_a_board_has_a_section_with_the_picture_inside_the_page(tmp_path: Path):
    (tmp_path / "request.png").write_bytes(b"\x89PNG...")
    run = run_with_board()

    html = render_report(replace(run, summary=replace(run.summary, directory=tmp_path)))

    page = Page(html)
    assert page.misnested == []
    for words in (
        "Inference on board1",
        "Inference on board1 1.61 ms median latency, 50 of 50 right",
        "Host a sent inference requests for lenet.lng to board1",
        "Circuit to the board a/nic4 -> board1/port1",
        "Circuit back board1/port1 -> a/nic4",
        "Requests 50",
        "Answers 50",
        "Wrong answers 0",
        "Requests sent again 1",
        "Median latency 1.61 ms",
        "99th percentile 7.33 ms",
        "datapath (median) 17\N{NO-BREAK SPACE}556",
    ):
        assert re.sub(r"\s+", " ", words) in page.text
    (picture,) = page.of("img")
    assert picture["src"] == "data:image/png;base64,iVBORy4uLg=="
    assert "cycle by cycle" in str(picture["alt"])
    assert "Of 50 inference requests" not in page.text


def test_a_board_that_fails_is_named_at_the_top_and_a_lost_picture_left_out():
    one = replace(
        INFERRED,
        answered=40,
        wrong=3,
        lost=8,
        refused={"BUSY": 2},
        latency_us=None,
        cycles=None,
        error="No route",
    )
    page = Page(render_report(run_with_board(one)))

    assert "Of 50 inference requests, board1 answered 40, 3 wrongly." in page.text
    assert "Requests without a reply 8 (No route)" in page.text
    assert "Refused as BUSY 2" in page.text
    assert page.of("img") == []
    assert "Median latency" not in page.text


def test_a_run_without_a_board_says_nothing_of_inference(page: Page):
    assert "nference" not in page.text


@pytest.mark.parametrize("one", [INFERRED, replace(INFERRED, latency_us=None, cycles=None)])
def test_a_trial_of_a_board_survives_json(one: Inference):
    assert Inference.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_sizes_limited_by_the_cpu_are_shaded_and_said_so(html: str, page: Page):
    assert html.count('class="cpu-band"') == 3
    assert (
        "In the shaded areas (hollow points) the hosts’ CPU is the limit, not the links: one ring at 1 KiB to 16 KiB; "
        "four rings at 1 KiB to 64 KiB; groups of 4 at 1 KiB to 16 KiB."
    ) in page.text
    assert "limited by the hosts’ CPU" in page.text


def test_no_band_and_no_word_of_shading_when_nothing_was_limited():
    stored = fabricated()
    free = replace(stored, timings=tuple(replace(one, cpu_limited=False) for one in stored.timings))
    text = render_report(free)
    assert 'class="cpu-band"' not in text
    assert "Shaded" not in text


def test_each_configuration_has_its_limit_line(html: str):
    own, shared = re.findall(r'class="limit c\d"', html), re.findall(r'class="limit shared"', html)
    assert (len(own), len(shared)) == (2, 2)
    assert html.count("limit 400 ≙ 100 Gb/s") == 1
    assert html.count("limit 100 ≙ 25 Gb/s") == 3


def test_drawings_have_titles_and_descriptions_that_exist(html: str, page: Page):
    drawings = page.of("svg")
    identifiers = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(drawings) == 5
    assert len(set(identifiers)) == len(identifiers)
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set(str(drawing["aria-labelledby"]).split()) <= set(identifiers)


def test_drawings_are_well_formed_xml(html: str):
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        ET.fromstring(drawing)


def test_the_topology_drawing_has_every_node_and_link(html: str):
    drawing = ET.fromstring(re.findall(r"<svg[^>]*topology.*?</svg>", html, re.DOTALL)[0])
    links = [path for path in drawing.iter("path") if str(path.get("class")).startswith("link ")]
    names = [text.text for text in drawing.iter("text") if text.get("class") == "node-name"]
    legend = [text.text for text in drawing.iter("text") if text.get("class") == "label"]
    assert len(links) == 24
    assert names == list(NAMES)
    assert legend == ["stride ±1: 12 two-way links", "stride ±5: 12 two-way links"]


def test_one_way_links_have_arrows_and_signed_strides():
    stored = fabricated()
    oneway = StoredTopology("ring", 3, 1, True, (1,), ((0, 1), (1, 2), (2, 0)), 2, 1.5, "smallest")
    text = render_report(replace(stored, topologies=(oneway,)))
    assert text.count('marker-end="url(#topology-0-arrow)"') == 3
    assert "stride +1: 3 one-way links" in text


def test_parallel_links_are_drawn_apart():
    stored = fabricated()
    double = StoredTopology(
        "pair", 2, 2, False, (1, 1), ((0, 1), (0, 1)), 1, 1.0, "two links between two hosts"
    )
    text = render_report(replace(stored, topologies=(double,)))
    paths = re.findall(r'<path d="([^"]+)" class="link', text)
    assert len(paths) == len(set(paths)) == 2


def test_tables_have_headers_with_scope(page: Page):
    headers = page.of("th")
    assert headers
    assert all(header.get("scope") in {"col", "row", "colgroup"} for header in headers)
    assert len(page.of("caption")) == len(page.of("table"))


def test_every_timing_has_a_row(page: Page):
    assert len(page.of("tr")) >= len(fabricated().timings)


def test_the_byte_counters_are_summed_up_by_their_worst_case(page: Page):
    assert "+1.4%" in page.text or "+1.5%" in page.text
    assert "no other NIC" in page.text


def test_the_ring_gain_compares_like_with_like():
    one = timing("t", "one ring", 8 << 20)
    four = timing("t", "four rings", 8 << 20, rings=4)
    gain = find_ring_gain([one, four])
    assert gain is not None
    assert gain.bandwidth_ratio == pytest.approx(four.busbw_mbps / one.busbw_mbps)
    assert gain.ratio_bounds == pytest.approx(
        (gain.bandwidth_ratio * 0.99 / 1.02, gain.bandwidth_ratio * 1.02 / 0.99)
    )
    assert not gain.is_cpu_limited
    assert find_ring_gain([one]) is None
    assert find_ring_gain([replace(one, ranks=4), four]) is None
    assert find_ring_gain([]) is None


def headline_of(run: StoredRun) -> str:
    """Return the tile of four rings over one, as text."""
    (tile,) = re.findall(
        r'<div class="tile[^"]*"><dt>four rings over one ring</dt>.*?</div>', render_report(run)
    )
    return re.sub(r"<[^>]*>", "", tile)


def test_the_headline_is_the_ratio_and_its_spread():
    text = headline_of(fabricated())
    assert re.search(r"3\.\d\d\s*×", text)
    assert "limit 4×, 3." in text


@pytest.mark.parametrize("slow", ["one ring", "four rings"])
def test_the_headline_is_never_a_number_that_the_machine_made(slow: str):
    run = fabricated()
    timings = tuple(
        replace(row, cpu_limited=True) if (row.configuration, row.size_bytes) == (slow, 8 << 20) else row
        for row in run.timings
    )
    text = headline_of(replace(run, timings=timings))
    assert text.startswith("four rings over one ringlimited by the hosts’ CPU")
    assert "not a property of the links: measured 3." in text


def test_the_report_says_how_the_rate_of_the_links_was_chosen():
    run = fabricated()
    said = "links at 50 Mbit/s instead of 100: 1.0 of 2 processors free"
    phase = replace(run.phases[0], name="link rate", data={"text": said})
    assert f"The rate was chosen for this machine: {said}." in render_report(
        replace(run, phases=(*run.phases, phase))
    )
    assert "The rate was chosen" not in render_report(run)


def test_a_run_of_an_earlier_version_has_no_quartiles():
    run = fabricated()
    old = replace(run, timings=tuple(replace(row, low_us=0.0, high_us=0.0) for row in run.timings))
    assert "by quartiles" not in render_report(old)
    assert "0.00 to 0.00" not in render_report(old)


@pytest.mark.parametrize("status", ["failed", "interrupted", "running"])
def test_a_run_that_did_not_end_well_says_so_first(status: str):
    text = Page(render_report(fabricated(status=status))).text
    assert f"This run is {status}" in text


def test_wrong_sums_are_named():
    stored = fabricated()
    rows = (replace(stored.timings[0], wrong=7), *stored.timings[1:])
    text = Page(render_report(replace(stored, timings=rows))).text
    assert "Some sums are wrong: rings-1-5, one ring, 1 KiB." in text


def test_a_run_with_nothing_in_it_still_gives_a_report():
    stored = fabricated(status="interrupted")
    bare = replace(stored, environment={}, topologies=(), circuits={}, phases=(), timings=(), nic_bytes=())
    page = Page(render_report(bare))
    assert page.misnested == []
    assert "No timing was recorded." in page.text


def test_names_from_files_are_escaped():
    stored = fabricated()
    evil = replace(stored, lab=replace(stored.lab, host_names=("<b>", *NAMES[1:])))
    evil = replace(evil, summary=replace(evil.summary, lab="<script>alert(1)</script>"))
    text = render_report(evil)
    assert "<script>" not in text
    assert "&lt;b&gt;" in text


def test_the_file_is_written_whole_and_small(tmp_path: Path):
    path = tmp_path / "report.html"
    path.write_text("an older report")
    write_report(fabricated(), path)
    assert path.read_text(encoding="utf-8") == render_report(fabricated())
    assert path.stat().st_size < 150_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_a_run_that_went_through_the_store_gives_the_same_report(tmp_path: Path):
    made = fabricated()
    with RunStore(tmp_path / "runs").begin_run(
        made.lab, True, "kernel", {"data": 1}, ["testbed", "demo", "x"]
    ) as run:
        for topology in made.topologies:
            run.add_topology(topology)
            run.add_circuits(topology.name, made.circuits[topology.name])
        run.add_repatch(made.repatches[0])
        run.add_timings(replace(row, run_id=run.run_id) for row in made.timings)
        run.add_nic_bytes(made.nic_bytes)
    stored = RunStore(tmp_path / "runs").load_run("last")
    assert render_report(
        replace(stored, summary=made.summary, environment=made.environment)
    ) == render_report(made)
