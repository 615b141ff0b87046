"""The machinery of reproductions: tables, comparisons, plots, iterations back to back, every figure in small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Panel,
    Plot,
    PublishedValue,
    Series,
    Table,
    format_markdown,
    format_page,
    ignore_progress,
    make_series,
)
from testbed.design.reproductions.topoopt import MODULES, dedicated_cluster, load_figure
from testbed.design.reproductions.topoopt.bandwidth_tax import compute_tax_with_tensors_once
from testbed.design.reproductions.topoopt.jobs import make_all_to_all_job, simulate_all_to_all
from testbed.design.reproductions.topoopt.path_lengths import compute_mean_length
from testbed.design.reproductions.topoopt.setup import QUICK
from testbed.design.reproductions.topoopt.shared_cluster import MODEL_FRACTIONS, draw_models
from testbed.design.sharing.joined_jobs import PlacedJob, chain_iterations

TINY = replace(
    QUICK,
    node_count=8,
    rates_gbps=(100.0,),
    cluster_sizes=(128,),
    batch_sizes=(64,),
    shared_node_count=24,
    job_node_count=9,
    job_counts=(2,),
    iteration_count=1,
    delays_s=(1e-3,),
    step_count=2,
    finalist_count=1,
)

words = st.text("abc xyz", min_size=1).filter(str.strip)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.tuples(words, numbers)))
def test_a_table_survives_csv(rows):
    table = Table.from_rows(("name", "value"), rows)
    assert Table.from_csv(table.csv) == table


def test_a_table_answers_by_column():
    table = Table.from_rows(("kind", "n", "ms"), [("a", 1, 0.5), ("b", 1, 1.5), ("b", 2, 2.5)])
    assert table.get_number("ms", kind="b", n=2.0) == 2.5
    assert table.list_values("kind") == ("a", "b")
    with pytest.raises(ValueError, match=r"2 rows match \{'kind': 'b'\} instead of one"):
        table.get_number("ms", kind="b")
    with pytest.raises(ValueError, match="does not have the 2 columns"):
        Table.from_rows(("a", "b"), [(1, 2, 3)])


def test_a_comparison_states_source_and_difference():
    line = Comparison("tax", PublishedValue("1.11", "S", 1.11), 1.221, "a note", " x")
    assert line.cells == ("tax", "1.11 [S]", "1.221 x", "+10.0 %", "a note")
    assert Comparison("hops", UNPUBLISHED, 5.48).cells == ("hops", "—", "5.48", "—", "")
    assert format_markdown([line]).splitlines()[2] == "| tax | 1.11 [S] | 1.221 x | +10.0 % | a note |"


@pytest.mark.slow
def test_plots_are_the_same_file_from_the_same_data(tmp_path):
    pytest.importorskip("matplotlib")
    from testbed.design.reproductions.drawing import draw_plot

    lines = Panel("one", "n", "ms", (Series("a", (1.0, 2.0), (3.0, 4.0)),), logarithmic="xy")
    bars = Panel("two", "model", "ms", (Series("a", ("x", "y"), (1.0, 2.0)),), "bars")
    steps = Panel("three", "hops", "share", (Series("b", (0.0, 1.0), (0.5, 1.0)),), "steps")
    plot = Plot("all kinds", (lines, bars, steps), max_columns=2)
    first, second = draw_plot(plot, tmp_path / "a.svg"), draw_plot(plot, tmp_path / "b.svg")
    assert first.read_bytes() == second.read_bytes()
    assert draw_plot(plot, tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_series_are_cut_by_a_column():
    table = Table.from_rows(("fabric", "n", "ms"), [("a", 1, 5.0), ("b", 1, 6.0), ("a", 2, 7.0)])
    assert make_series(table, "fabric", "n", "ms") == (
        Series("a", (1.0, 2.0), (5.0, 7.0)),
        Series("b", (1.0,), (6.0,)),
    )


def pair_job(time_s, size_bytes):
    """Return a graph in which one node computes, then sends to another."""
    job = TaskGraphBuilder(node_count=2)
    job.add_transfer(0, 1, size_bytes, predecessors=[job.add_compute(0, time_s)])
    return job.build()


def test_iterations_follow_one_another_without_a_gap():
    """1 ms of computing and 1 ms of 12.5 MB at 100 Gbit/s; the job begins 5 ms late."""
    shared = chain_iterations(4, [PlacedJob(pair_job(1e-3, 12_500_000), np.array([3, 1]), 5e-3)], 3)
    done = simulate(shared.graph, make_ideal_switch(4, 100), latency=NO_LATENCY)
    assert shared.compute_iteration_s(done) == pytest.approx(np.full((1, 3), 2e-3), rel=1e-9)
    assert done.iteration_s == pytest.approx(11e-3, rel=1e-9)


def test_jobs_on_servers_of_their_own_meet_nowhere_on_an_ideal_switch():
    jobs = [
        PlacedJob(pair_job(1e-3, 12_500_000), np.array([0, 1])),
        PlacedJob(pair_job(2e-3, 25_000_000), np.array([3, 2]), 1e-4),
    ]
    shared = chain_iterations(4, jobs, 2)
    times = shared.compute_iteration_s(simulate(shared.graph, make_ideal_switch(4, 100), latency=NO_LATENCY))
    assert times == pytest.approx(np.array([[2e-3, 2e-3], [4e-3, 4e-3]]), rel=1e-9)


def test_jobs_with_the_same_link_share_it():
    jobs = [PlacedJob(pair_job(0.0, 12_500_000), np.array([0, 1]))] * 2
    shared = chain_iterations(2, jobs, 1)
    times = shared.compute_iteration_s(simulate(shared.graph, make_ideal_switch(2, 100), latency=NO_LATENCY))
    assert times == pytest.approx(np.full((2, 1), 2e-3), rel=1e-9)


def test_the_all_to_all_grows_with_the_batch_and_the_allreduce_does_not():
    small, large = (make_all_to_all_job(8, batch).traffic for batch in (64, 128))
    assert large.pairs == pytest.approx(2 * small.pairs)
    assert large.allreduce == small.allreduce


def test_counting_tensors_once_weighs_the_all_to_all_more():
    done = simulate_all_to_all(8, 64, 4, 100.0).fastest_execution
    assert 1 < done.bandwidth_tax < compute_tax_with_tensors_once(done)


def test_the_mean_of_a_cumulative_distribution():
    """Half of the paths have one link, half have three."""
    table = Table.from_rows(
        ("fabric", "degree", "links", "share_up_to"),
        [("x", 4, links, share) for links, share in enumerate((0.0, 0.5, 0.5, 1.0))],
    )
    assert compute_mean_length(table, "x", 4.0) == 2.0


def test_jobs_are_drawn_as_the_paper_mixes_them():
    drawn = [model for seed in range(40) for model in draw_models(27, seed)]
    for model, share in MODEL_FRACTIONS.items():
        assert drawn.count(model) / len(drawn) == pytest.approx(share, abs=0.05)
    assert draw_models(27, 3)[:5] == draw_models(5, 3)


@pytest.mark.slow
@pytest.mark.parametrize("number", MODULES)
def test_every_figure_runs_in_small(number, monkeypatch):
    monkeypatch.setattr(dedicated_cluster, "MODELS", {"vgg16": "VGG16"})
    wanted = load_figure(number)
    table = wanted.make_table(TINY, ignore_progress)
    assert wanted.number == number
    assert table.rows
    assert Table.from_csv(table.csv) == table
    comparisons, plot = wanted.compare_with_paper(table), wanted.make_plot(table)
    assert comparisons
    assert all(np.isfinite(line.ours) for line in comparisons)
    assert all(series.y_values for panel in plot.panels for series in panel.series)
    assert format_page(wanted, table, "x.svg").startswith(f"# Figure {number}: {wanted.title}\n\n![")


def test_a_figure_that_is_not_reproduced_is_told():
    with pytest.raises(ValueError, match="figure 9 of TopoOpt is not reproduced: choose from"):
        load_figure(9)
