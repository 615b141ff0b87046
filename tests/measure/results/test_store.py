"""The store: what was added is read back, also after a crash, also with two processes at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pyarrow")
skip_without("sqlalchemy")

import pyarrow.parquet as pq

from testbed.errors import ResultsError
from testbed.measure.model import FlowFigures, LinkFigures, NicBytes, RankFigures, Timing
from testbed.measure.results.records import Comparison, LabInfo, Repatch, StoredCircuit, StoredTopology
from testbed.measure.results.run import redact_arguments
from testbed.measure.results.store import RunStore

ROOT = Path(__file__).parents[3]
LAB = LabInfo("t4", "labs/t4.yaml", tuple("abcd"), (2,) * 4, ("ocs1 (8x8)",), 100.0, 25.0, 9000)
TOPOLOGY = StoredTopology(
    "ring", 4, 2, False, (1,), ((0, 1), (0, 3), (1, 2), (2, 3)), 2, 1.333, "the only one"
)
CIRCUITS = (StoredCircuit("a/nic1", "b/nic1", "ocs1", 1, 11), StoredCircuit("b/nic1", "a/nic1", "ocs1", 3, 9))
REPATCH = Repatch(
    "ring", "other", "groups", 8, 0.02, 0.5, 0.3, 0.001, (Comparison("time", "ms", 2.0, 1.0, False),)
)


def timing(run_id: str, size: int = 1024, **more) -> Timing:
    row = Timing(
        run_id, "ring", "one ring", "all_reduce", 4, 1, size, 20, 900.5, 890.0, 950.25, 9.1, 13.65, 100.0, 0, True,
        True, "kernel",
    )  # fmt: skip
    return replace(row, **more)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def begin(store: RunStore, **more):
    return store.begin_run(LAB, True, "kernel", {"topology": 1}, **more)


def test_what_was_added_is_read_back(store: RunStore):
    with begin(store, arguments=["testbed", "demo", "--password", "x"]) as run:
        rows = [timing(run.run_id, 1024 << k) for k in range(5)]
        sent = [NicBytes("ring", "one ring", 1024, "a", "nic1", 1536, 1536.0)]
        run.add_topology(TOPOLOGY)
        run.add_topology(replace(TOPOLOGY, name="other"))
        run.add_circuits("ring", CIRCUITS)
        run.add_circuits("other", CIRCUITS[:1])
        run.add_phase("apply", {"total_s": 0.25, "switches": ["ocs1"]})
        run.add_repatch(REPATCH)
        run.add_timings(rows[:2])
        run.add_timings(rows[2:])
        run.add_nic_bytes(sent)
        run.add_versions({"torch": "2.13.0"})
    stored = store.load_run(run.run_id)
    assert stored.summary == store.list_runs()[0]
    assert (stored.summary.status, stored.summary.simulated, stored.summary.hosts) == ("done", True, "kernel")
    assert stored.summary.finished is not None
    assert stored.summary.finished >= stored.summary.started
    assert stored.lab == LAB
    assert stored.lab.scale == 250
    assert stored.topologies == (TOPOLOGY, replace(TOPOLOGY, name="other"))
    assert stored.find_topology("other") == replace(TOPOLOGY, name="other")
    assert stored.find_topology("none") is None
    assert stored.circuits == {"ring": CIRCUITS, "other": CIRCUITS[:1]}
    assert (stored.phases[0].name, stored.phases[0].data) == (
        "apply",
        {"total_s": 0.25, "switches": ["ocs1"]},
    )
    assert stored.repatches == (REPATCH,)
    assert stored.repatches[0].comparisons[0].gain == 2.0
    assert stored.timings == tuple(rows)
    assert stored.nic_bytes == tuple(sent)
    assert stored.environment["seeds"] == {"topology": 1}
    assert stored.environment["arguments"] == ["testbed", "demo", "--password", "***"]
    assert {"lightbed", "python", "torch"} <= set(stored.environment["versions"])


def test_what_ranks_observed_is_read_back_and_a_run_without_it_has_none(store: RunStore):
    ranks = [
        RankFigures("ring", "one ring", 1024, iteration, 0, "a", 1.0, 0.9, 0.1, 0.0, 0.25)
        for iteration in range(3)
    ]
    flow = FlowFigures(
        *("ring", "one ring", 1024, 0, 1, 0, "a/nic1 -> b/nic1"),
        10,
        12,
        2,
        0.5,
        0.0,
        4,
        90.0,
        95.0,
        0.01,
        100.0,
    )
    link = LinkFigures("ring", "one ring", 1024, 0, "a/nic1 -> b/nic1", 4, 95.0, 100.0)
    with begin(store) as run:
        run.add_rank_figures(ranks[:1], [flow], [link])
        run.add_rank_figures(ranks[1:], [], [])
    with begin(store) as modelled:
        modelled.add_rank_figures([], [], [])
    stored = store.load_run(run.run_id)
    assert (stored.ranks, stored.flows, stored.links) == (tuple(ranks), (flow,), (link,))
    without = store.load_run(modelled.run_id)
    assert (without.ranks, without.flows, without.links) == ((), (), ())
    assert not (without.summary.directory / "ranks.parquet").exists()


def test_a_store_that_never_ran_is_empty_and_nothing_is_created(store: RunStore):
    assert store.list_runs() == ()
    with pytest.raises(ResultsError, match=r"no run 'last' in .*it holds: none"):
        store.load_run("last")
    assert not store.path.exists()


def test_what_runs_on_a_lab_kept_under_a_name_is_found_newest_first(store: RunStore):
    assert store.list_phases(LAB.name, "repair") == ()
    for n in range(3):
        with begin(store) as run:
            run.add_phase("repair", {"n": n})
            run.add_phase("apply", {"n": n})
    assert [phase.data["n"] for phase in store.list_phases(LAB.name, "repair")] == [2, 1, 0]
    assert store.list_phases("another", "repair") == ()


def test_parquet_has_the_columns_of_timing_and_says_simulated(store: RunStore):
    with begin(store) as run:
        run.add_timings([timing(run.run_id)])
    table = pq.read_table(run.directory / "timings.parquet")
    assert table.column_names == [field.name for field in fields(Timing)]
    assert [str(kind) for kind in table.schema.types] == (
        ["string"] * 4 + ["int64"] * 4 + ["double"] * 6 + ["int64", "bool", "bool", "string"] + ["double"] * 3
    )
    assert table.schema.metadata[b"SIMULATED"] == b"true"
    assert table.schema.metadata[b"lightbed.version"]


def test_parquet_of_a_real_run_does_not_say_simulated(store: RunStore):
    with store.begin_run(LAB, False, "real", {}) as run:
        run.add_timings([timing(run.run_id, simulated=False, hosts="real")])
    assert b"SIMULATED" not in pq.read_schema(run.directory / "timings.parquet").metadata


def test_a_timing_of_another_run_is_refused(store: RunStore):
    with begin(store) as run:
        with pytest.raises(ValueError, match="another"):
            run.add_timings([timing("another")])
        with pytest.raises(ValueError, match="simulated: False"):
            run.add_timings([timing(run.run_id, simulated=False)])
    assert store.load_run("last").timings == ()


@pytest.mark.slow
def test_ids_sort_by_time_and_name_directories(store: RunStore):
    runs = [begin(store) for _ in range(20)]
    ids = [run.run_id for run in runs]
    assert ids == sorted(set(ids))
    assert [run.run_id for run in store.list_runs()] == ids[::-1]
    assert all((store.path / run_id).is_dir() for run_id in ids)
    for run in runs:
        run.finish("done")


def test_runs_that_start_in_the_same_microsecond_get_ids_of_their_own(tmp_path: Path):
    moment = datetime(2026, 6, 12, 10, 15, 30, 999_999, tzinfo=UTC)
    same_clock = [RunStore(tmp_path / "runs", now=lambda: moment) for _ in range(3)]
    ids = []
    for store in same_clock:
        with begin(store) as run:
            ids.append(run.run_id)
    assert ids == ["20260612T101530-999999", "20260612T101531-000000", "20260612T101531-000001"]
    assert [run.run_id for run in same_clock[0].list_runs()] == ids[::-1]


def test_the_database_keeps_its_log_ahead_of_writing(store: RunStore):
    begin(store).finish("done")
    with contextlib.closing(sqlite3.connect(store.database)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_run_is_found_by_last_and_by_an_unambiguous_beginning(store: RunStore):
    first, second = begin(store), begin(store)
    first.finish("done")
    second.finish("done")
    assert store.load_run("last").summary.run_id == second.run_id
    same = [a == b for a, b in zip(first.run_id, second.run_id, strict=True)].index(False)
    shared, distinct = first.run_id[:same], first.run_id[: same + 1]
    assert store.load_run(distinct).summary.run_id == first.run_id
    with pytest.raises(ResultsError, match="2 runs begin with"):
        store.load_run(shared)
    with pytest.raises(ResultsError, match="no run 'x'"):
        store.load_run("x")
    with pytest.raises(ResultsError, match="no run ''"):
        store.load_run("")


def test_an_error_inside_the_run_is_its_end(store: RunStore):
    with pytest.raises(RuntimeError), begin(store):
        raise RuntimeError("host c does not answer")
    with pytest.raises(KeyboardInterrupt), begin(store):
        raise KeyboardInterrupt
    newest, oldest = store.list_runs()
    assert (oldest.status, oldest.error) == ("failed", "RuntimeError: host c does not answer")
    assert (newest.status, newest.error) == ("interrupted", "KeyboardInterrupt")


def test_the_first_word_on_the_end_counts(store: RunStore):
    with begin(store) as run:
        run.finish("failed", error="wrong sum")
        run.finish("done")
    assert (store.list_runs()[0].status, store.list_runs()[0].error) == ("failed", "wrong sum")


CHILD = """
import sys
from testbed.measure.results.records import LabInfo
from testbed.measure.results.store import RunStore
from testbed.measure.model import Timing
lab = LabInfo("t4", "t4.yaml", ("a",), (1,), (), 100.0, 25.0, 9000)
store = RunStore(sys.argv[1])
"""


def child(store: RunStore, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + then, str(store.path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.process
def test_a_killed_run_is_running_before_and_interrupted_after_and_keeps_what_it_had(store: RunStore):
    then = """
run = store.begin_run(lab, True, "kernel", {})
run.add_timings([Timing(run.run_id, "t", "c", "x", 2, 1, 8, 2, 1., 1., 1., 1., 1., 1., 0, True, True, "kernel")])
print("begun", flush=True)
sys.stdin.read()
"""
    with child(store, then) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert store.list_runs()[0].status == "running"
        process.send_signal(signal.SIGKILL)
    assert store.list_runs()[0].status == "interrupted"
    stored = store.load_run("last")
    assert stored.summary.finished is None
    assert len(stored.timings) == 1


@pytest.mark.long
@pytest.mark.process
def test_processes_that_start_together_do_not_disturb_each_other(store: RunStore):
    then = """
print("ready", flush=True)
sys.stdin.read()
for _ in range(5):
    with store.begin_run(lab, True, "kernel", {"a": 1}) as run:
        for n in range(4):
            run.add_phase("p", {"n": n})
"""
    children = [child(store, then) for _ in range(3)]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in children:
        process.communicate(timeout=60)
    assert [process.returncode for process in children] == [0, 0, 0]
    runs = store.list_runs()
    assert len({run.run_id for run in runs}) == 15
    assert {run.status for run in runs} == {"done"}
    assert all(
        [phase.data["n"] for phase in store.load_run(run.run_id).phases] == [0, 1, 2, 3] for run in runs
    )


def test_threads_of_one_process_may_add_at_once(store: RunStore):
    with begin(store) as run:
        threads = [
            threading.Thread(target=lambda k=k: [run.add_phase(f"p{k}", {"n": n}) for n in range(10)])
            for k in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(store.load_run("last").phases) == 30


def test_other_tables_in_the_same_file_stay(store: RunStore):
    store.path.mkdir()
    with sqlite3.connect(store.database) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE notes (id TEXT)")
        other.execute("INSERT INTO notes VALUES ('op')")
    other.close()
    with begin(store) as run:
        run.add_phase("p", {})
    with sqlite3.connect(store.database) as other:
        tables = {name for (name,) in other.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        assert other.execute("SELECT id FROM notes").fetchall() == [("op",)]
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    assert tables >= {
        "circuits",
        "environment",
        "notes",
        "operations",
        "phases",
        "runs",
        "steps",
        "topologies",
    }


def test_a_damaged_database_is_an_error_with_its_hint(store: RunStore):
    store.path.mkdir()
    store.database.write_bytes(b"not a database at all, but long enough to be read as one" * 20)
    with pytest.raises(ResultsError, match=r"file is not a database.*move it away"):
        store.list_runs()
    with pytest.raises(ResultsError, match="file is not a database"):
        begin(store)


def test_a_database_with_a_journal_alone_holds_no_runs(store: RunStore):
    store.path.mkdir()
    sqlite3.connect(store.database).close()
    store.database.touch()

    assert store.list_runs() == ()
    with pytest.raises(ResultsError, match="no run 'last'"):
        store.load_run("last")


def test_a_damaged_or_foreign_parquet_file_is_an_error(store: RunStore):
    with begin(store) as run:
        run.add_timings([timing(run.run_id)])
    path = run.directory / "timings.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["wrong", "hosts"]), path)
    with pytest.raises(ResultsError, match=r"no column wrong, hosts; .*another version"):
        store.load_run("last")
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(ResultsError, match="not a readable Parquet file"):
        store.load_run("last")


def test_nccl_documents_lie_beside_without_the_environment(store: RunStore):
    with begin(store) as run:
        path = run.add_nccl("ring, one ring", {"version": 3, "env": ["HOME=/root", "NCCL_ALGO=Ring"]})
    assert path == run.directory / "nccl" / "ring-one-ring.json"
    assert json.loads(path.read_text()) == {"version": 3, "env": ["NCCL_ALGO=Ring"]}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["t", "--api-key=a", "b"], ("t", "--api-key=***", "b")),
        (["t", "--token", "--secret", "c"], ("t", "--token", "***", "c")),
        (["t", "polatis+scpi://admin:root@10.0.0.1:5025"], ("t", "polatis+scpi://***@10.0.0.1:5025")),
        (["t", "password.txt", "--seed", "7"], ("t", "password.txt", "--seed", "7")),
    ],
)
def test_secrets_on_the_command_line_are_not_kept(given: list[str], shown: tuple[str, ...]):
    assert redact_arguments(given) == shown
