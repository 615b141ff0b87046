"""nccl-tests' text in every set of columns since 2019: what was printed is what is read, also when cut off.

`Printer` prints with the `printf` formats of the versions concerned; it shares nothing with the parser.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ResultsError
from testbed.measure.nccl.launch import import_nccl
from testbed.measure.nccl.table import NcclTable
from testbed.measure.nccl.text_output import Columns, find_json_output_path, parse_text

DATA = Path(__file__).parent / "data"
HEADS = ("all_reduce_2019.txt", "all_gather_2021.txt", "all_reduce_2023.txt", "all_reduce_2026.txt")


# ------------------------------------------------------------------ the printing side, by version


def float_cell(value: float, width: int) -> str:
    """Return `getFloatStr` of versions since 2025-10: fewer decimals, then an exponent, as the number grows."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def old_time_cell(value: float) -> str:
    """Return times before 2025-10."""
    decimals = 0 if value > 10000 else 1 if value > 100 else 2
    return f"{value:7.{decimals}f}"


@dataclass(frozen=True)
class Half:
    time: float
    algbw: float
    busbw: float
    wrong: int | None
    error: float
    copybw: float
    spread: tuple[float, float, float, float]


@dataclass(frozen=True)
class Line:
    size: int
    count: int
    type: str
    redop: str
    root: int
    halves: tuple[Half, Half]


@dataclass(frozen=True)
class Printer:
    """One version with its options; `names` are the columns before the times."""

    era: str
    names: tuple[str, ...] = ("redop", "root")
    checked: bool = True
    cputime: bool = False
    timestamp: bool = False
    per_iteration: bool = False

    def head(self) -> str:
        time = "cputime" if self.cputime else "time"
        half = {
            "2019": [time, "algbw", "busbw", "error"],
            "2022": [time, "algbw", "busbw", "#wrong"],
            "2024": [time, "algbw", "busbw", "copybw", "#wrong"],
            "2026": [time, "algbw", "busbw", "#wrong"],
        }[self.era] + (["i_min", "i_max", "i_p99", "i_cv%"] if self.per_iteration else [])
        names = ["size", "count", "type", *self.names, *half, *half] + (
            ["timestamp"] if self.timestamp else []
        )
        new = "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907\n# Collective test starting: x_perf\n"
        return (
            (new if self.era == "2026" else "")
            + "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \n"
            + "#\n# Using devices\n"
            + "#  Rank  0 Group  0 Pid  12345 on  hosta device  0 [0000:01:00] NVIDIA A100\n#\n"
            + "#           out-of-place                       in-place\n"
            + "# "
            + "  ".join(f"{name:>7}" for name in names)
            + "\n"
            + "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)\n"
        )

    def row(self, line: Line) -> str:
        width = 6 if self.era == "2019" else 8
        text = f"{line.size:12d}  {line.count:12d}  {line.type:>{width}}"
        if "redop" in self.names:
            text += f"  {line.redop:>6}"
        if "root" in self.names:
            text += f"  {line.root:6d}"
        for half in line.halves:
            text += self.half(half)
        if self.timestamp:
            text += f"{'2026-06-12 10:15:30':>21}"
        return text + "\n"

    def half(self, half: Half) -> str:
        if self.era == "2026":
            text = f"  {float_cell(half.time, 7):>7}  {float_cell(half.algbw, 6):>6}  {float_cell(half.busbw, 6):>6}"
            text += f"  {half.wrong:6g}" if self.checked else "    N/A"
            if self.per_iteration:
                text += "".join(f"  {float_cell(value, 7):>7}" for value in half.spread)
            return text
        text = f"  {old_time_cell(half.time):>7}  {half.algbw:6.2f}  {half.busbw:6.2f}"
        if self.era == "2024":
            text += f"  {half.copybw:6.2f} {half.wrong:5g}" if self.checked else f"  {half.copybw:6.2f}   N/A"
        elif self.era == "2022":
            text += f"  {half.wrong:5g}" if self.checked else "    N/A"
        else:
            text += f"  {half.error:5.0e}" if self.checked else "    N/A"
        return text

    def foot(self) -> str:
        end = "# Collective test concluded: x_perf\n" if self.era == "2026" else ""
        return f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.345 \n#\n{end}"

    def whole(self, lines: list[Line]) -> str:
        return self.head() + "".join(map(self.row, lines)) + self.foot()


PRINTERS = [
    Printer("2019", ("redop",)),
    Printer("2019", ("root",)),
    Printer("2019", ()),
    Printer("2019", ("redop", "root")),
    Printer("2019", ("redop",), checked=False),
    Printer("2022"),
    Printer("2022", checked=False),
    Printer("2022", cputime=True),
    Printer("2024"),
    Printer("2026"),
    Printer("2026", checked=False),
    Printer("2026", cputime=True),
    Printer("2026", timestamp=True),
    Printer("2026", per_iteration=True),
    Printer("2026", per_iteration=True, timestamp=True, cputime=True),
]

positive = st.one_of(
    st.floats(0.001, 99.0), st.floats(100.0, 99_999.0), st.floats(1e5, 9e9), st.sampled_from([0.0, 9999.995])
)
halves = st.builds(
    Half,
    time=positive,
    algbw=st.floats(0.0, 2e6),
    busbw=st.floats(0.0, 2e6),
    wrong=st.one_of(st.just(0), st.integers(1, 10**10)),
    error=st.sampled_from([0.0, 1e-7, 5e-5, 3.0]),
    copybw=st.floats(0.0, 9999.0),
    spread=st.tuples(positive, positive, positive, st.floats(0.0, 300.0)),
)
lines = st.builds(
    Line,
    size=st.integers(0, 1 << 40),
    count=st.integers(0, 1 << 38),
    type=st.sampled_from(["float", "bfloat16", "int8", "uint64", "f8e4m3", "half"]),
    redop=st.sampled_from(["sum", "prod", "max", "avg", "mulsum", "none"]),
    root=st.integers(-1, 130),
    halves=st.tuples(halves, halves),
)


# ------------------------------------------------------------------ what was printed is what is read


def printed(text: str, name: str, place: int) -> float | None:
    """Return the number that a header's column shows in the only row of the text (its `place`-th of that name)."""
    header = next(line for line in text.splitlines() if line.startswith("# ") and "size" in line.split())
    row = next(line for line in text.splitlines() if not line.startswith("#"))
    column = [index for index, one in enumerate(header[1:].split()) if one == name][place]
    word = row.split()[column]
    return None if word == "N/A" else float(word)


seen: Counter[Printer] = Counter()
exponents: Counter[str] = Counter()


@settings(max_examples=40)
@given(line=lines)
def check_round_trip(printer: Printer, line: Line):
    text = printer.whole([line])
    table = parse_text(text)
    (row,) = table.rows
    seen[printer] += 1
    exponents["with" if re.search(r"\d\.?\d*e\+\d\d", printer.row(line)) else "without"] += 1

    assert (row.size_bytes, row.count, row.type) == (line.size, line.count, line.type)
    assert row.redop == (line.redop if "redop" in printer.names else None)
    assert row.root == (line.root if "root" in printer.names else None)
    assert row.timestamp == ("2026-06-12 10:15:30" if printer.timestamp else None)
    for place, half in enumerate((row.out_of_place, row.in_place)):
        assert half is not None
        assert half.time_us == printed(text, "cputime" if printer.cputime else "time", place)
        assert half.algbw_gbytes_per_s == printed(text, "algbw", place)
        assert half.busbw_gbytes_per_s == printed(text, "busbw", place)
        assert half.wrong == (None if printer.era == "2019" else printed(text, "#wrong", place))
        assert half.largest_error == (printed(text, "error", place) if printer.era == "2019" else None)
        assert half.copy_gbytes_per_s == (printed(text, "copybw", place) if printer.era == "2024" else None)
        if printer.per_iteration:
            assert half.spread is not None
            assert half.spread.p99_us == printed(text, "i_p99", place)
        else:
            assert half.spread is None
    assert table.time_kind == ("cpu" if printer.cputime else "gpu")
    assert (table.complete, table.failed, table.problems) == (True, False, ())
    assert table.average_busbw_gbytes_per_s == 12.345
    assert (table.ranks, row.iterations) == (1, 20)


@pytest.mark.long
def test_every_set_of_columns_is_read_as_printed():
    for printer in PRINTERS:
        check_round_trip(printer)
    assert set(seen) == set(PRINTERS)
    assert min(seen.values()) >= 20
    assert exponents["with"] >= 40
    assert exponents["without"] >= 20


@pytest.mark.slow
@pytest.mark.parametrize("printer", PRINTERS, ids=str)
def test_rows_without_a_header_are_read_by_their_number_of_columns(printer: Printer):
    half = Half(412.3, 20.35, 37.3, 0, 0.0, 1.0, (1.0, 2.0, 3.0, 4.0))
    line = Line(8388608, 2097152, "float", "sum", -1, (half, half))
    whole = parse_text(printer.whole([line])).rows[0]
    bare = parse_text(printer.row(line) * 2)
    bare_row = bare.rows[1]
    assert (bare_row.size_bytes, bare_row.redop, bare_row.root) == (whole.size_bytes, whole.redop, whole.root)
    assert bare_row.out_of_place is not None
    assert whole.out_of_place is not None
    assert bare_row.out_of_place.busbw_gbytes_per_s == whole.out_of_place.busbw_gbytes_per_s
    assert bare_row.out_of_place.spread == whole.out_of_place.spread
    assert bare_row.out_of_place.copy_gbytes_per_s == whole.out_of_place.copy_gbytes_per_s
    assert bare_row.timestamp == whole.timestamp
    if printer.checked:
        assert bare_row.out_of_place.largest_error == whole.out_of_place.largest_error
    assert "guessed" in bare.problems[0]


# ------------------------------------------------------------------ cut off anywhere


def parsed(text: str) -> NcclTable | str:
    """Return the table, or the message of the error."""
    try:
        return parse_text(text)
    except ResultsError as error:
        return str(error)


@pytest.mark.long
@pytest.mark.parametrize("file", HEADS)
def test_cut_at_every_byte_nothing_breaks_and_no_whole_row_is_lost(file: str):
    data = (DATA / file).read_bytes()
    rows = parse_text(data.decode()).rows
    kept = Counter[int]()
    for end in range(len(data)):
        cut = data[:end].decode(errors="replace")
        whole_rows = sum(line[:1] == " " for line in cut.split("\n")[:-1])
        table = parsed(cut)
        if isinstance(table, str):
            assert whole_rows == 0
            assert re.match(r"output:\d+: ", table)
            kept[0] += 1
            continue
        kept[len(table.rows)] += 1
        assert table.rows == rows[:whole_rows]
        average = table.average_busbw_gbytes_per_s
        assert average in {None, parse_text(data.decode()).average_busbw_gbytes_per_s}
        assert table.complete == (average is not None)
        assert table.complete or table.problems
    assert len(kept) == len(rows) + 1


noise = st.sampled_from(
    ["\n", "#", "# ", "size count type time algbw busbw #wrong time algbw busbw #wrong timestamp", " 8 ", "float",
     "-1", "sum", "N/A", "nan", "1e999", "h:1:2 [0] NCCL INFO x", "h: Test timeout (3s) a:1", "Rank 0", ": ", "\x85"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(noise, max_size=40), st.integers(0, 3))
def test_arbitrary_text_gives_a_table_or_a_results_error(pieces: list[str], where: int):
    good = (DATA / HEADS[where]).read_text()
    for text in (" ".join(pieces), good + " ".join(pieces), " ".join(pieces) + good):
        outcome = parsed(text)
        assert re.match(r"output:\d+: ", outcome) if isinstance(outcome, str) else outcome.rows


# ------------------------------------------------------------------ real shapes


def test_a_whole_output_of_today():
    table = import_nccl(DATA / "all_reduce_2026.txt")
    assert table.version == "2.19.6"
    assert table.nccl_version == "2.29.7"
    assert table.collective == "all_reduce_perf"
    assert [device.host for device in table.devices] == ["hosta", "hostb", "hostc", "hostd"]
    assert table.devices[3].bus_id == "0000:01:00"
    assert table.devices[3].name == "NVIDIA A100-SXM4-80GB"
    assert [row.size_bytes for row in table.rows] == [1 << power for power in range(20, 25)]
    assert table.rows[-1].in_place is not None
    assert table.rows[-1].in_place.busbw_gbytes_per_s == 11.92
    assert table.average_busbw_gbytes_per_s == 11.2904
    assert (table.out_of_bounds, table.out_of_bounds_ok, table.average_ok) == (0, True, None)
    assert table.json_path == "out.json.0"


def test_error_and_no_root_in_2019():
    table = import_nccl(DATA / "all_reduce_2019.txt")
    assert table.version is None
    assert {row.root for row in table.rows} == {None}
    assert table.rows[0].in_place is not None
    assert (table.rows[0].in_place.wrong, table.rows[0].in_place.largest_error) == (None, 1e-7)
    assert table.devices[0].group is None
    assert table.complete


def test_log_lines_in_the_middle_of_rows_are_set_apart():
    head, row = Printer("2022").head(), "        1024           256     float     sum      -1"
    figures = "    12.34   0.08   0.15      0    11.50   0.09   0.16      0"
    log = "node1:42:57 [0] NCCL INFO Channel 00/02 :    0   1"
    table = parse_text(f"{head}{row}{log}\n{log}\nsomething else\n{figures}{log}\n")
    assert [one.size_bytes for one in table.rows] == [1024]
    assert table.rows[0].root == -1
    assert table.rows[0].in_place is not None
    assert table.rows[0].in_place.time_us == 11.5


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "0: ", "  0: "])
def test_labels_of_launchers_are_taken_off(label: str):
    text = (DATA / "all_reduce_2026.txt").read_text()
    labelled = "".join(label + line for line in text.splitlines(keepends=True))
    assert parse_text(labelled).rows == parse_text(text).rows


def test_line_ends_of_windows_and_a_byte_order_mark(tmp_path: Path):
    text = (DATA / "all_reduce_2026.txt").read_text()
    path = tmp_path / "out.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert import_nccl(path) == parse_text(text)


def test_a_replayed_trace_has_only_in_place():
    row = (
        "        1024           256     float     sum      -1" + " " * 32 + "    11.50   0.09   0.16      0\n"
    )
    table = parse_text(Printer("2026").head() + row)
    assert table.rows[0].out_of_place is None
    assert table.rows[0].in_place is not None
    assert table.rows[0].in_place.time_us == 11.5


def test_a_failed_run_keeps_its_rows_and_says_why():
    table = import_nccl(DATA / "failed_2024.txt")
    assert [row.size_bytes for row in table.rows] == [8, 16]
    assert table.failed
    assert not table.complete
    assert any(
        "Test NCCL failure common.cu:303 'remote process exited" in problem for problem in table.problems
    )
    assert "the row of size 32 is incomplete" in " ".join(table.problems)


def test_wrong_values_fail_the_run():
    text = (DATA / "all_reduce_2026.txt").read_text().replace(": 0 OK", ": 12 FAILED")
    table = parse_text(text)
    assert (table.failed, table.out_of_bounds, table.out_of_bounds_ok, table.complete) == (
        True,
        12,
        False,
        True,
    )


def test_a_bandwidth_below_the_one_demanded_fails_the_run():
    text = (DATA / "all_reduce_2026.txt").read_text().replace(": 11.2904 ", ": 11.2904 FAILED")
    assert (parse_text(text).failed, parse_text(text).average_ok) == (True, False)


def test_figures_that_are_no_numbers_are_absent():
    half = Half(1.0, 1.0, 1.0, 0, 0.0, 0.0, (0.0,) * 4)
    text = Printer("2022").whole([Line(8, 2, "float", "sum", -1, (half, half))])
    table = parse_text(text.replace("   1.00", "    nan", 2).replace("12.345", "-nan"))
    assert table.rows[0].out_of_place is not None
    assert table.rows[0].out_of_place.time_us is None
    assert table.average_busbw_gbytes_per_s is None
    assert table.complete


def test_two_tests_in_one_output_are_both_given_and_said_so():
    text = (DATA / "all_reduce_2026.txt").read_text()
    table = parse_text(text + text)
    assert len(table.rows) == 10
    assert any("another test starts" in problem for problem in table.problems)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "not output of nccl-tests"),
        ("\n\nhello\n", 3, "not output of nccl-tests"),
        ("# nThread 1 nGpus 1 warmup iters: 1 iters: 20 \n", 2, "ended before its first size"),
        ("hosta: Test CUDA failure common.cu:1001 'no CUDA-capable device'\n", 2, "no CUDA-capable device"),
    ],
)
def test_what_holds_no_row_is_an_error_with_its_line(text: str, line: int, words: str, tmp_path: Path):
    path = tmp_path / "out.txt"
    path.write_text(text)
    with pytest.raises(ResultsError) as caught:
        import_nccl(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(ResultsError, match=r"none\.txt: No such file"):
        import_nccl(tmp_path / "none.txt")


def test_the_announced_json_path_is_found_among_other_lines():
    assert (
        find_json_output_path("x\n# Writing JSON output to /tmp/my out.json.2\r\n#\n") == "/tmp/my out.json.2"
    )
    assert find_json_output_path("# no such line") is None


def test_half_a_header_is_no_header():
    half = ["time", "algbw", "busbw", "#wrong"]
    names = ["size", "count", "type", "redop", "root", *half, *half]
    assert Columns.from_header(names) is not None
    assert all(Columns.from_header(names[:end]) is None for end in range(len(names)))
