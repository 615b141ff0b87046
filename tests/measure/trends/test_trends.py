"""Regressions between runs are found with the change of the lab that came before; steady runs give none."""

from __future__ import annotations

import random

import pytest
from libraries import skip_without

skip_without("pyarrow")
skip_without("sqlalchemy")

from testbed.errors import ResultsError
from testbed.measure.results.store import RunStore
from testbed.measure.trends import sql
from testbed.measure.trends.comparison import compare_runs
from testbed.measure.trends.report import find_trends, read_bandwidth_series, read_power_series, select_series


def trends(laboratory, **options):
    stored = RunStore(laboratory.runs_dir).list_runs()
    series = (*read_bandwidth_series(stored, **options), *read_power_series(laboratory.runs_dir, stored))
    return find_trends(laboratory.runs_dir, series)


@pytest.mark.slow
def test_a_regression_is_found_with_the_epoch_before_it(laboratory):
    noise = random.Random(5)
    ids = [laboratory.run(day, mbps=(90 if day < 7 else 60) + noise.gauss(0, 1)) for day in range(14)]
    laboratory.epoch(2, 1, "--method geometric")
    laboratory.epoch(6.5, 2, "--simplex")
    laboratory.epoch(9, 3, "--method matchings")
    report = trends(laboratory)

    (change,) = report.regressions
    assert change.series.quantity == "bandwidth"
    assert change.series.name.endswith(", 1 MiB")
    assert (change.first_new_point.run_id, change.last_old_point.run_id) == (ids[7], ids[6])
    assert change.change_point.before == pytest.approx(90, abs=1)
    assert change.change_point.after == pytest.approx(60, abs=1)
    assert change.change_point.confidence > 0.99
    assert [one["why"] for one in change.epochs] == ["--simplex"]
    told = "\n".join(change.format_lines())
    assert (
        f"fell from {change.change_point.before:.4g} to {change.change_point.after:.4g} Mbit/s with run {ids[7]}"
        in told
    )
    assert "after epoch 2 (apply, 2026-03-08 00:00 UTC): --simplex" in told


@pytest.mark.slow
def test_light_that_is_lost_between_runs_is_a_regression_and_light_that_comes_back_is_not(laboratory):
    for day in range(18):
        laboratory.run(day, mbps=90 + day % 3)
        laboratory.reading(day - 0.3, (-1.0 if day < 6 or day >= 12 else -2.5) + 0.05 * (day % 2))
        laboratory.reading(day - 0.2, -9.0 if day == 3 else -1.0 if day < 6 or day >= 12 else -2.5)
        laboratory.reading(day - 0.1, -1.0 if day < 6 or day >= 12 else -2.5)
    report = trends(laboratory)

    assert [change.series.quantity for change in report.changes] == ["power", "power"]
    lost, found = report.changes
    assert (lost.is_regression, found.is_regression) == (True, False)
    assert (lost.series.name, lost.series.lab) == ("a/nic1:transmit", "t4")
    assert lost.difference == pytest.approx(-1.5, abs=0.05)
    assert lost.epochs == ()
    assert "no change of the lab" in "\n".join(lost.format_lines())


@pytest.mark.slow
def test_steady_runs_of_two_labs_have_no_change_and_few_runs_are_not_judged(laboratory):
    noise = random.Random(2)
    for day in range(10):
        laboratory.run(day, mbps=90 + noise.gauss(0, 2))
    for day in range(3):
        laboratory.run(day + 0.5, mbps=90 - 30 * day, lab="other")
    report = trends(laboratory)

    assert report.changes == ()
    assert (len(report.series), report.short_series_count) == (2, 1)
    assert len(select_series(report.series, "other", None)) == 1
    assert select_series(report.series, "", "power") == ()


def test_the_largest_size_of_the_newest_run_is_judged_unless_all_are_asked_for(laboratory):
    laboratory.run(0, mbps=90, sizes=(1024, 1 << 20, 1 << 30))
    laboratory.run(1, mbps=90, sizes=(1024, 1 << 20))
    stored = RunStore(laboratory.runs_dir).list_runs()

    (series,) = read_bandwidth_series(stored)
    assert series.name.endswith(", 1 MiB")
    assert series.values == (45.0, 90.0)
    assert len(read_bandwidth_series(stored, every_size=True)) == 3


def test_of_a_lab_without_runs_each_reading_counts(laboratory):
    for day in range(10):
        laboratory.reading(day, -1.0 if day < 5 else -3.0)
    (change,) = trends(laboratory).regressions

    assert change.first_new_point.run_id == ""
    assert change.first_new_point.start_time.startswith("2026-03-06")


def test_two_runs_are_compared_row_by_row(laboratory):
    first = laboratory.run(0, mbps=90, sizes=(1024, 1 << 20, 1 << 30))
    second = laboratory.run(1, mbps=80, sizes=(1024, 1 << 30))
    store = RunStore(laboratory.runs_dir)
    found = compare_runs(store.load_run(first), store.load_run(second))

    assert [
        (row.first_timing.size_bytes, round(row.bandwidth_ratio, 3), row.is_clear) for row in found.rows
    ] == [
        (1024, 0.889, True),
        (1 << 30, 0.889, True),
    ]
    assert (found.only_a_count, found.only_b_count) == (1, 0)
    assert found.differences == ()
    same = compare_runs(store.load_run(first), store.load_run(first))
    assert {(row.bandwidth_ratio, row.is_clear) for row in same.rows} == {(1.0, False)}


def test_a_run_leaves_its_record_beside_its_timings(laboratory):
    import pyarrow.parquet as pq

    run_id = laboratory.run(0, mbps=90)
    (row,) = pq.read_table(laboratory.runs_dir / run_id / "run.parquet").to_pylist()
    (phase,) = pq.read_table(laboratory.runs_dir / run_id / "phases.parquet").to_pylist()

    assert (row["run_id"], row["lab"], row["status"], row["hosts"]) == (run_id, "t4", "done", "kernel")
    assert row["started"] < row["finished"]
    assert '"seeds": {"topology": 1}' in row["environment"]
    assert (phase["run_id"], phase["name"], phase["data"]) == (run_id, "apply", '{"total_s": 0.25}')


@pytest.mark.slow
def test_sql_sees_runs_timings_light_and_epochs(laboratory):
    skip_without("duckdb")
    from testbed.measure.trends.sql import query_runs

    first, second = laboratory.run(0, mbps=90), laboratory.run(1, mbps=80)
    laboratory.reading(0.5, -1.0)
    laboratory.epoch(0.5, 1, "--simplex")
    (laboratory.runs_dir / first / "run.parquet").unlink()  # as of an earlier release

    def ask(statement):
        return query_runs(laboratory.runs_dir, statement)

    joined = ask(
        "select run_id, lab, max(busbw_mbps) as best from runs join timings using (run_id) group by all order by 1"
    )
    assert joined.columns == ("run_id", "lab", "best")
    assert joined.rows == ((first, "t4", 90.0), (second, "t4", 80.0))
    assert ask("select run_id, sent_bytes from nic_bytes order by 1").rows == ((first, 1536), (second, 1536))
    assert ask("select count(*) from ranks join links using (run_id) join flows using (run_id)").rows == (
        (0,),
    )
    assert ask("select count(*) from phases where name = 'apply'").rows == ((2,),)
    assert ask("select lab, id, verified, why from epochs").rows == (("t4", 1, True, "--simplex"),)
    assert ask("select place, power_dbm from losses").rows == (("a/nic1:transmit", -1.0),)
    assert ask("select status from runs").rows == (("done",), ("done",))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("select nonsense", "nonsense"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("copy runs to 'stolen.csv'", "disabled"),
        ("set enable_external_access = true", "(?i)enable external access|locked"),
        ("install httpfs", "disabled|(?i)permission"),
    ],
)
def test_sql_reaches_nothing_else(laboratory, tmp_path, statement, words, monkeypatch):
    skip_without("duckdb")
    from testbed.measure.trends.sql import query_runs

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError):
        query_runs(laboratory.runs_dir, statement)
    assert not (tmp_path / "stolen.csv").exists()


def test_without_duckdb_the_extra_is_named(laboratory, monkeypatch):
    import sys

    from testbed.measure.trends.sql import query_runs

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ResultsError, match=r"install the extra \[results\] of lightbed"):
        query_runs(laboratory.runs_dir, "select 1")


def test_a_damaged_file_is_named(laboratory):
    skip_without("duckdb")
    from testbed.measure.trends.sql import query_runs

    run_id = laboratory.run(0, mbps=90)
    (laboratory.runs_dir / run_id / "timings.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ResultsError, match=f"{run_id}/timings.parquet"):
        query_runs(laboratory.runs_dir, "select 1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select count(*) from range(1000000000000)", "longer than 0.2 s"),
        ("select * from range(200000)", "more than 100,000 rows"),
        (
            "select count(distinct md5(a.range::text || b.range::text)) from range(20000) a, range(2000) b",
            "more than the 64 MB",
        ),
    ],
)
def test_a_statement_that_takes_too_much_is_ended(laboratory, monkeypatch, statement, message):
    laboratory.run(0, mbps=90)
    monkeypatch.setattr(sql, "MAX_MEMORY_MB", 64)
    monkeypatch.setattr(sql, "MAX_QUERY_S", 0.2 if "0.2" in message else 60.0)
    with pytest.raises(ResultsError, match=message):
        sql.query_runs(laboratory.runs_dir, statement)
