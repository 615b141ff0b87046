"""nccl-tests' JSON: what was written is what is read, with all its traps, and cut off anywhere.

`written` writes as nccl-tests do (`jsonDouble` prints `%lf`, "nan" in quotes, `inf` bare); it shares nothing
with the parser.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ResultsError
from testbed.measure.model import Timing
from testbed.measure.nccl.json_output import close_document, parse_json
from testbed.measure.nccl.launch import import_nccl
from testbed.measure.nccl.table import NcclTable, format_nccl_version, format_table, make_table_document
from testbed.measure.results.run import redact_document

DATA = Path(__file__).parent / "data"
LAB_FILE = Path(__file__).parents[3] / "labs" / "testbed12.yaml"


class Raw(float):
    """A double as C prints it."""


def written(value: object) -> str:
    if isinstance(value, Raw):
        return (
            '"nan"'
            if math.isnan(value)
            else ("inf" if value > 0 else "-inf")
            if math.isinf(value)
            else f"{value:f}"
        )
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def parsed(text: str) -> NcclTable | str:
    """Return the table, or the message of the error."""
    try:
        return parse_json(text)
    except ResultsError as error:
        return str(error)


def half(time: float, algbw: float, busbw: float, wrong: float | None, *, cpu: bool = False) -> dict:
    figures = {"cpu_time" if cpu else "time": Raw(time), "alg_bw": Raw(algbw), "bus_bw": Raw(busbw)}
    return figures | {"nwrong": None if wrong is None else Raw(wrong)}


def entry(size: int = 8, *, per_iter: bool = False, **more: object) -> dict:
    result = {
        "size": size,
        "count": size // 4,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": half(27.61, 0.0, 0.0, 0),
        "in_place": half(27.16, 0.1, 0.2, 0),
    }
    if per_iter:
        spread = {
            "skipped_iterations": 0,
            "min_us": Raw(1),
            "max_us": Raw(9),
            "avg_us": Raw(3),
            "p50_us": Raw(3),
        }
        spread |= {"p99_us": Raw(8.5), "cv_pct": Raw(12.5), "times_us": [Raw(1), Raw(9)]}
        result |= {"out_of_place_per_iter": spread, "in_place_per_iter": spread}
    return result | {"actual_iterations": 20, "experiment_name": ""} | more


def document(results: list[dict], **more: object) -> dict:
    device = {"rank": 0, "group": 0, "pid": 12, "hostname": "hosta", "device": 0}
    return {
        "version": 3,
        "start_time": "2026-06-12 10:15:30",
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "env": ["HOME=/root", 'ODD={"[,', "AWS_SECRET_ACCESS_KEY=x", "NCCL_ALGO=Ring", "PATH=/bin\\"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 1,
            "blocking_collectives": "false",
            "parallel_init": "true",
            "devices": [device | {"device_hex": "0000:01:00", "device_info": "NVIDIA A100"}],
        },
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": Raw(11.2904), "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-06-12 10:16:00",
    } | more


def test_a_whole_document():
    table = parse_json(written(document([entry(8), entry(16)])))
    assert [row.size_bytes for row in table.rows] == [8, 16]
    assert table.rows[0].root == -1
    assert table.rows[0].in_place is not None
    assert table.rows[0].in_place.busbw_gbytes_per_s == 0.2
    assert (table.nccl_version, table.collective, table.ranks) == ("2.29.7", "all_reduce_perf", 1)
    assert (table.average_busbw_gbytes_per_s, table.average_ok) == (11.2904, None)
    assert (table.out_of_bounds, table.out_of_bounds_ok) == (0, True)
    assert (table.complete, table.failed, table.problems) == (True, False, ())
    assert table.devices[0].bus_id == "0000:01:00"


figures = st.one_of(st.floats(0, 1e9), st.just(math.nan), st.just(math.inf))
entries = st.builds(
    lambda size, first, second, wrong, root, cpu, per_iter, null_first: entry(
        size,
        per_iter=per_iter,
        root=root,
        out_of_place=None if null_first else half(*first, wrong, cpu=cpu),
        in_place=half(*second, wrong, cpu=cpu),
    ),
    st.integers(0, 1 << 40),
    st.tuples(figures, figures, figures),
    st.tuples(figures, figures, figures),
    st.one_of(st.none(), st.integers(0, 10**9)),
    st.sampled_from(["    -1", "     0", "    12", -1]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)

seen: Counter[str] = Counter()


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:f}")


@given(st.lists(entries, min_size=1, max_size=4))
def check_round_trip(results: list[dict]):
    table = parse_json(written(document(results)))
    assert len(table.rows) == len(results)
    for row, result in zip(table.rows, results, strict=True):
        assert row.root == int(str(result["root"]))
        for name, timing in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
            wanted = result[name]
            if wanted is None:
                assert timing is None
                seen["null half"] += 1
                continue
            assert timing is not None
            assert timing.time_us == finite(wanted.get("time", wanted.get("cpu_time")))
            assert timing.busbw_gbytes_per_s == finite(wanted["bus_bw"])
            assert timing.wrong == wanted["nwrong"]
            assert (timing.spread is not None) == (f"{name}_per_iter" in result)
            seen["cpu time" if "cpu_time" in wanted else "gpu time"] += 1
            seen["unchecked" if wanted["nwrong"] is None else "checked"] += 1
            seen["not finite"] += any(finite(one) is None for one in wanted.values() if isinstance(one, Raw))
            seen["spread"] += timing.spread is not None


def test_what_was_written_is_what_is_read():
    check_round_trip()
    assert min(seen[name] for name in ("null half", "cpu time", "gpu time", "unchecked", "checked")) >= 30
    assert min(seen[name] for name in ("not finite", "spread")) >= 30


@given(st.lists(entries, min_size=1, max_size=3))
def test_our_own_document_is_read_back_as_the_same_table(results: list[dict]):
    table = parse_json(written(document(results)))
    if {"time", "cpu_time"} <= {key for one in results for key in one["in_place"]}:
        return  # nccl-tests use one clock a run
    assert parse_json(json.dumps(make_table_document(table), allow_nan=False)) == table


@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("*.txt")))
def test_text_and_the_json_made_of_it_are_the_same_table(file: str, tmp_path: Path):
    table = import_nccl(DATA / file)
    path = tmp_path / "table.json"
    path.write_text(json.dumps(make_table_document(table)))
    again = import_nccl(path)
    assert again.source == "json"
    assert make_table_document(again) == make_table_document(table) | {"source": "json"}


def test_results_have_one_entry_a_size_in_the_form_of_nccl_tests():
    results = make_table_document(import_nccl(DATA / "all_reduce_2026.txt"))["results"]
    assert results[0] == {
        "size": 1048576,
        "count": 262144,
        "type": "float",
        "redop": "sum",
        "root": -1,
        "out_of_place": {"time": 152.4, "alg_bw": 6.88, "bus_bw": 10.32, "nwrong": 0},
        "in_place": {"time": 152.1, "alg_bw": 6.89, "bus_bw": 10.34, "nwrong": 0},
        "timestamp": None,
        "actual_iterations": 20,
    }
    assert len(results) == 5


def test_the_table_for_people_has_a_cell_for_every_column():
    names, rows = format_table(import_nccl(DATA / "all_reduce_2026.txt"))
    assert rows[0] == (
        "1048576", "float", "sum", "-1", "152.4", "6.88", "10.32", "0", "152.1", "6.89", "10.34", "0"
    )  # fmt: skip
    assert {len(names)} == {len(row) for row in rows}
    _, old = format_table(import_nccl(DATA / "all_gather_2021.txt"))
    assert old[0][2:4] == ("", "")


def test_the_documents_that_runs_leave_are_read_like_any_other():
    pytest.importorskip("pydantic")
    from testbed.lab.inventory import load_lab
    from testbed.measure.nccl.json_output import make_nccl_document

    timing = Timing(
        "run", "rings", "one ring", "all_reduce", 12, 1, 1 << 20, 4, 160_000.0, 1.0, 2.0, 52.4, 96.1, 100.0, 0,
        False, True, "kernel",
    )  # fmt: skip
    table = parse_json(json.dumps(make_nccl_document(load_lab(LAB_FILE), [timing], {})))
    assert (table.complete, table.failed, table.ranks, table.problems) == (True, False, 12, ())
    assert table.rows[0].in_place is not None
    assert table.rows[0].in_place.busbw_gbytes_per_s == pytest.approx(0.0120125)
    assert (table.rows[0].iterations, table.rows[0].root) == (4, -1)
    assert (table.collective, table.rows[0].redop) == ("all_reduce", "sum")
    for name in ("all_to_all", "sendrecv"):
        exchange = replace(timing, collective=name)
        table = parse_json(json.dumps(make_nccl_document(load_lab(LAB_FILE), [exchange], {})))
        assert (table.collective, table.rows[0].redop) == (name, "none")


@pytest.mark.slow
def test_cut_at_every_byte_nothing_breaks_and_no_whole_row_is_lost():
    results = [entry(8, per_iter=True), entry(16), entry(32)]
    text = written(document(results))
    rows = parse_json(text).rows
    # A row counts from the end of its in-place figures on.
    ends = [
        text.index(written(result)) + written(result).index('"actual_iterations"') - 1 for result in results
    ]
    outcomes: Counter[int] = Counter()
    for end in range(len(text)):
        whole = sum(place <= end for place in ends)
        table = parsed(text[:end])
        if isinstance(table, str):
            assert table.startswith("output:1: ")
            assert whole == 0
            outcomes[0] += 1
            continue
        outcomes[len(table.rows)] += 1
        assert len(table.rows) >= whole
        for row, uncut in zip(table.rows, rows, strict=False):
            assert row.size_bytes == uncut.size_bytes
            assert row.in_place is not None
            assert uncut.in_place is not None
            assert row.in_place in {uncut.in_place, replace(uncut.in_place, spread=None)}
        assert not table.complete
        assert "cut off" in table.problems[0]
    assert set(outcomes) == {0, 1, 2, 3}


@pytest.mark.parametrize("tail", ['"x,y', '"x],{y', '"x\\\\', '"x\\', '"'])
def test_what_a_cut_string_holds_is_no_structure(tail: str):
    assert close_document('{"a":1,"b":[1,2],"c":' + tail) == '{"a":1,"b":[1,2]}'


@given(st.text(max_size=60))
def test_arbitrary_text_closes_or_is_a_results_error(text: str):
    for candidate in (text, "{" + text, written(document([entry()]))[:300] + text):
        close_document(candidate)
        outcome = parsed(candidate)
        assert outcome if isinstance(outcome, str) else outcome.rows


broken = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["size", "count", "type", "in_place", "out_of_place", "time"]), inner
        ),
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(document([]))), broken, st.lists(broken, max_size=3))
def test_documents_of_the_wrong_shape_are_a_table_or_a_results_error(
    key: str, value: object, odd: list[object]
):
    for candidate in (document([entry(), *odd], **({} if key == "results" else {key: value})), document(odd)):
        outcome = parsed(json.dumps(candidate))
        assert outcome.startswith("output:1: ") if isinstance(outcome, str) else outcome.rows


def test_a_row_that_is_not_whole_is_left_out_and_named():
    table = parse_json(written(document([entry(8), {"size": 16}, entry(32)])))
    assert [row.size_bytes for row in table.rows] == [8, 32]
    assert table.problems == ("results[1] is incomplete and was skipped: KeyError 'in_place'",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"errors": ["unhandled system error"]}, "error: unhandled system error"),
        ({"out_of_bounds": {"count": 4, "okay": "false"}}, ""),
        ({"average_bus_bandwidth": {"bandwidth": Raw(1), "okay": "false"}}, ""),
    ],
)
def test_failures_are_seen(change: dict, words: str):
    table = parse_json(written(document([entry()], **change)))
    assert table.failed
    assert words in " ".join(table.problems)


def test_a_newer_version_is_read_and_said_so():
    table = parse_json(written(document([entry()], version=4)))
    assert table.rows
    assert "version 4 is newer" in table.problems[0]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("{}", 1, "no list `results`"),
        ('{"a":\n\n ?}', 3, "not a JSON document"),
        ('{"results": []}', 1, "`results` is empty"),
        ('{"results": [\n{"size": 8}\n]}', 3, "results[0] is incomplete"),
        ('{"nccl_version": 22907, "config": {"nth', 1, "cut off before the first result"),
    ],
)
def test_what_holds_no_row_is_an_error_with_its_line(text: str, line: int, words: str, tmp_path: Path):
    path = tmp_path / "out.json"
    path.write_text(text)
    with pytest.raises(ResultsError) as caught:
        import_nccl(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


def test_old_and_new_version_codes():
    assert [format_nccl_version(code) for code in (2408, 2804, 20903, 22907)] == [
        "2.4.8",
        "2.8.4",
        "2.9.3",
        "2.29.7",
    ]


def test_a_kept_document_holds_no_environment_but_settings_of_communication():
    kept = redact_document(document([entry()]))
    assert kept["env"] == ["NCCL_ALGO=Ring"]
    assert redact_document({"env": {"NCCL_NET": "IB", "LD_PRELOAD": "x"}})["env"] == ["NCCL_NET=IB"]
    assert redact_document({"env": None})["env"] == []
    assert redact_document({"results": []}) == {"results": []}
