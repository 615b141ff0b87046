"""Traces: tables that agree with what was run, as files and as a picture."""

import numpy as np
import pytest

from sim.models.network.execution import simulate
from sim.models.network.execution.circuits import CircuitSwitch, Controller, simulate_circuits
from sim.models.network.fabrics import make_circulant, make_fat_tree
from sim.models.network.results.timeline import compute_utilisation, draw_timeline
from sim.models.network.results.traces import make_flow_table, make_link_table, make_task_table, write_traces
from sim.models.network.taskgraph import TaskGraphBuilder


@pytest.fixture(scope="module")
def done():
    job = TaskGraphBuilder(8)
    forward = [job.add_compute(node, 1e-3) for node in range(8)]
    moves = [
        job.add_transfer(node, (node + 3) % 8, 5_000_000, predecessors=[forward[node]]) for node in range(8)
    ]
    job.add_allreduce(tuple(range(8)), 8_000_000, predecessors=forward)
    job.add_compute(0, 1e-3, predecessors=moves)
    return simulate(job.build(), make_circulant(8, (1, 7), 100), trace=True)


def test_a_row_for_each_message_of_each_round(done):
    table = make_flow_table(done)
    assert len(table["task"]) == 8 + 14 * 8
    assert table["size_bytes"].sum() == done.wire_bytes
    assert (np.diff(table["end_s"]) >= 0).all()
    assert (table["begin_s"] < table["end_s"]).all()
    ring = table["task"] == 16
    assert np.bincount(table["round"][ring]).tolist() == [8] * 14


def test_rates_times_durations_are_the_bytes_of_a_link(done):
    table = make_link_table(done)
    moved = table["rate_bps"] * (table["end_s"] - table["begin_s"]) / 8
    np.testing.assert_allclose(
        np.bincount(table["link"], weights=moved, minlength=16), done.link_bytes, atol=1e-3
    )
    same = table["link"][1:] == table["link"][:-1]
    assert (table["begin_s"][1:][same] >= table["end_s"][:-1][same]).all()


def test_utilisation_sums_to_the_bytes(done):
    borders, share = compute_utilisation(done, columns=37)
    moved = (share * np.diff(borders) * done.fabric.capacity_bps[:, None]).sum(axis=1) / 8
    np.testing.assert_allclose(moved, done.link_bytes, atol=1e-3)
    assert share.min() >= -1e-9
    assert share.max() <= 1 + 1e-9
    assert share[:, borders[1:] <= 1e-3].max() == pytest.approx(0, abs=1e-9)


def test_circuits_that_move_have_no_utilisation(tmp_path):
    job = TaskGraphBuilder(2)
    job.add_transfer(0, 1, 10**6)
    done = simulate_circuits(job.build(), CircuitSwitch(2, 1, 8, Controller("once")), trace=True)

    assert np.isnan(compute_utilisation(done)[1]).all()
    pytest.importorskip("matplotlib")
    assert draw_timeline(done, tmp_path / "circuits.svg").stat().st_size > 1000


def test_files_hold_the_tables(done, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    files = write_traces(done, tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["flows.parquet", "links.parquet", "tasks.parquet"]
    for file, table in zip(
        files, (make_flow_table(done), make_link_table(done), make_task_table(done)), strict=True
    ):
        read = parquet.read_table(file).to_pydict()
        assert {name: column.tolist() for name, column in table.items()} == read
    assert set(read["kind"]) == {"compute", "transfer", "allreduce"}


@pytest.mark.slow
def test_the_picture_shows_all_three_parts(done, tmp_path):
    pytest.importorskip("matplotlib")
    path = draw_timeline(done, tmp_path / "iteration.svg")
    text = path.read_text(encoding="utf-8")
    assert text.count('id="axes_') == 3
    assert "SIMULATED" in text or text.count("<use") > 100  # letters may be drawn as shapes


def test_an_iteration_without_trace_says_how_to_get_one():
    job = TaskGraphBuilder(2)
    job.add_transfer(0, 1, 100)
    done = simulate(job.build(), make_fat_tree(2, 100))
    with pytest.raises(ValueError, match="trace=True"):
        make_link_table(done)


@pytest.mark.slow
def test_an_iteration_in_which_nothing_moves_has_empty_tables(tmp_path):
    pytest.importorskip("matplotlib")
    job = TaskGraphBuilder(2)
    job.add_compute(0, 1e-3)
    done = simulate(job.build(), make_fat_tree(2, 100), trace=True)
    assert {len(column) for column in make_link_table(done).values()} == {0}
    assert draw_timeline(done, tmp_path / "still.png").stat().st_size > 1000
