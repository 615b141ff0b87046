"""TopoOpt's published shapes, on the reproduced numbers that stand in the documentation."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path

import pytest

from testbed.design.reproductions.figure import Table, ignore_progress
from testbed.design.reproductions.topoopt import MODULES, load_figure
from testbed.design.reproductions.topoopt.all_to_all import TOPOOPT_SPLIT, compute_slowdown
from testbed.design.reproductions.topoopt.circuit_delay import ONE_SHOT
from testbed.design.reproductions.topoopt.dedicated_cluster import MODELS as MODEL_NAMES
from testbed.design.reproductions.topoopt.dedicated_cluster import compute_ratio
from testbed.design.reproductions.topoopt.jobs import NIC_ONCE, make_default_job, simulate_job
from testbed.design.reproductions.topoopt.setup import PAPER
from testbed.design.reproductions.topoopt.shared_cluster import compute_time_ratio as shared_ratio

RESULTS = Path(__file__).parents[3] / "docs" / "reproductions" / "topoopt"


def published(number):
    """Return the committed table of a figure."""
    return Table.from_csv((RESULTS / f"figure{number}.csv").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", MODULES)
def test_the_page_of_the_paper_links_the_committed_plot_and_numbers(number):
    page = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    for suffix in ("svg", "csv"):
        assert f"](topoopt/figure{number}.{suffix})" in page
        assert (RESULTS / f"figure{number}.{suffix}").exists()
    comparison = load_figure(number).compare_with_paper(published(number))
    assert comparison
    assert all(isfinite(line.ours) for line in comparison)


def test_pure_data_parallel_models_run_as_on_the_ideal_switch():
    table = published(11).select_rows(degree=4.0)
    ours = table.select_rows(fabric="TopoOpt", pure_data_parallel="yes")
    assert {"BERT", "ResNet50", "VGG16"} <= set(ours.list_values("model"))
    for row in ours.records:
        case = {"model": row["model"], "rate_gbps": row["rate_gbps"]}
        assert compute_ratio(table, "TopoOpt", "ideal switch", **case) <= 1.10, case


def test_the_fat_tree_of_equal_cost_is_slower_in_every_model_at_100_gbps():
    table = published(11).select_rows(rate_gbps=100.0)
    assert len(table.list_values("model")) == 6
    for degree in (4.0, 8.0):
        for model in table.list_values("model"):
            assert compute_ratio(table, "Fat-tree", "TopoOpt", model=model, degree=degree) > 1, (
                model,
                degree,
            )


def test_the_expander_is_the_slowest_of_all_at_100_gbps():
    table = published(11).select_rows(rate_gbps=100.0)
    for degree in (4.0, 8.0):
        for model in table.list_values("model"):
            for other in ("TopoOpt", "ideal switch", "Fat-tree", "oversubscribed Fat-tree"):
                assert compute_ratio(table, "expander", other, model=model, degree=degree) > 1, (
                    model,
                    degree,
                    other,
                )


def test_the_all_to_all_is_80_per_cent_of_the_allreduce_at_batch_2048():
    shares = published(12).select_rows(batch=2048.0).get_numbers("all_to_all_share")
    assert shares == pytest.approx([0.8] * len(shares), abs=0.03)


def test_a_large_all_to_all_makes_topoopt_slower_and_less_so_at_degree_8():
    table = published(12)
    four, eight = (compute_slowdown(table, degree, 2048.0, "TopoOpt", "Fat-tree") for degree in (4.0, 8.0))
    assert 1 < eight < four


def test_links_split_by_bytes_alone_do_not_come_out_as_published():
    """The paper's report, less of a loss at degree 8, is not what its split gives here."""
    table = published(12)
    assert compute_slowdown(table, 8.0, 2048.0, TOPOOPT_SPLIT, "Fat-tree") > compute_slowdown(
        table, 8.0, 2048.0, "TopoOpt", "Fat-tree"
    )


@pytest.mark.parametrize(("degree", "told"), [(4.0, 1.11), (8.0, 1.05)])
def test_the_bandwidth_tax_at_batch_64(degree, told):
    """Within 0.05 with AllReduces counted as the paper's share of the all-to-all counts them; on the wire at degree 4
    it is 0.056 below, and stays so."""
    table = published(13)
    case = {"degree": degree, "batch": 64.0}
    assert table.get_number("tax_tensors_once", **case) == pytest.approx(told, abs=0.05)
    assert table.get_number("tax", **case) == pytest.approx(told, abs=0.06)


def test_the_tax_grows_with_the_batch_and_falls_with_the_degree():
    table = published(13)
    for degree in (4.0, 8.0):
        taxes = table.select_rows(degree=degree).get_numbers("tax")
        assert list(taxes) == sorted(taxes)
    assert all(
        a > b
        for a, b in zip(*(table.select_rows(degree=d).get_numbers("tax") for d in (4.0, 8.0)), strict=True)
    )


def test_no_job_feels_another_on_topoopt_and_jobs_on_trees_do():
    table = published(16)
    tails = table.select_rows(fabric="TopoOpt").get_numbers("p99_ms")
    assert min(tails) == max(tails)
    for jobs in table.list_values("jobs"):
        assert shared_ratio(table, "mean_ms", jobs, "Fat-tree") > 1
        assert shared_ratio(table, "p99_ms", jobs, "Fat-tree") > 1.5
    assert shared_ratio(table, "p99_ms", 27.0, "oversubscribed Fat-tree") > 1.5


def test_circuits_that_move_do_not_repay_where_everybody_sends_to_everybody():
    """Without forwarding they are far slower; where rings are all there is, they stay and lose nothing."""
    table = published(17)
    assert len(table.select_rows(model="DLRM", fabric=ONE_SHOT).rows) == 12
    for row in table.select_rows(fabric=ONE_SHOT).records:
        case = table.select_rows(model=row["model"], degree=row["degree"], delay_ms=row["delay_ms"])
        waiting, forwarding = (
            case.get_number("iteration_ms", fabric=f"circuits, {how}forwarding") / row["iteration_ms"]
            for how in ("no ", "")
        )
        if row["model"] == "DLRM":
            assert 1.5 < forwarding < 4 < 50 < waiting
        else:
            assert waiting == pytest.approx(1, abs=0.05)


def test_the_cost_ratios_are_as_told():
    """Circuit switches come out as published; the ideal switch does not, with the recalled prices."""
    circuits, ideal = (
        next(
            line
            for line in load_figure(10).compare_with_paper(published(10))
            if line.quantity.startswith(start)
        )
        for start in ("cost with optical circuit switches", "cost of the ideal switch")
    )
    assert circuits.ours == pytest.approx(1.33, abs=0.1)
    assert ideal.ours < 3.2


@pytest.mark.parametrize(
    ("prices", "nic_for", "rate_gbps"),
    [
        ("recalled", "an interface", 200 + (4608 - 3777) / (7254 - 3777) * 200),
        ("recalled", "a server", 100 + (2574 - 2309) / (3777 - 2309) * 100),
        ("MixNet", "an interface", 200 + (4532 - 4205) / (9885 - 4205) * 200),
        ("MixNet", "a server", 100 + (2555 - 2290) / (4205 - 2290) * 100),
    ],
)
def test_the_rate_of_equal_cost_by_hand(prices, nic_for, rate_gbps):
    """A server of four links of 100 Gbit/s, in USD, between what a host of a Fat-tree costs at two rates of a table.

    Beyond 200 Gbit/s the recalled prices, but for fibres, grow in proportion: 300 + 3,477 * 2 at 400.
    """
    case = {"prices": prices, "nic_for": nic_for, "servers": 128.0, "degree": 4.0, "rate_gbps": 100.0}
    assert published(10).get_number("fattree_gbps", fabric="TopoOpt", **case) == pytest.approx(
        rate_gbps, rel=1e-5
    )


def test_mixnets_prices_are_shown_where_its_table_has_them():
    table = published(10)
    assert set(table.select_rows(prices="MixNet").list_values("rate_gbps")) == {100.0, 200.0}
    assert set(table.select_rows(prices="recalled").list_values("rate_gbps")) == {
        10.0,
        25.0,
        40.0,
        100.0,
        200.0,
    }


def test_with_a_nic_once_a_server_the_fat_tree_is_nearer_to_what_was_published():
    """2.7 times slower at batch 128, and up to 3.4 times in the 99th percentile of the shared cluster."""
    once = f"Fat-tree, {NIC_ONCE}"
    assert compute_slowdown(published(12), 4.0, 128.0, once, "TopoOpt") == pytest.approx(2.7, rel=0.15)
    table = published(16)
    tail = max(shared_ratio(table, "p99_ms", jobs, once) for jobs in table.list_values("jobs"))
    assert tail == pytest.approx(3.4, rel=0.1)


def test_figure_10_is_what_the_models_give_today():
    assert load_figure(10).make_table(PAPER, ignore_progress) == published(10)


@pytest.mark.long
def test_figure_14_is_what_the_models_give_today():
    assert load_figure(14).make_table(PAPER, ignore_progress) == published(14)


@pytest.mark.long
def test_figure_16_for_five_jobs_is_what_the_models_give_today():
    made, kept = (
        load_figure(16).make_table(replace(PAPER, job_counts=(5,)), ignore_progress),
        published(16).select_rows(jobs=5.0),
    )
    assert made.list_values("fabric") == kept.list_values("fabric")
    for column in ("mean_ms", "p99_ms"):
        assert made.get_numbers(column) == pytest.approx(kept.get_numbers(column), rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("model", ["bert", "candle", "ncf"])
def test_figure_11_at_degree_8_is_what_the_models_give_today(model):
    """The kept numbers are of even routes, which planned ones equal on rings and beat where pairs send."""
    table = published(11).select_rows(model=MODEL_NAMES[model], degree=8.0, rate_gbps=100.0)
    job = make_default_job(model, PAPER.node_count)
    for fabric in ("TopoOpt", "ideal switch", "Fat-tree"):
        kept = table.get_number("iteration_ms", fabric=fabric)
        found = simulate_job(job, fabric, 8, 100.0).iteration_s * 1e3
        if fabric == "TopoOpt" and job.traffic.pairs.any():
            assert 0.9 * kept < found <= kept * (1 + 1e-4)
        else:
            assert found == pytest.approx(kept, rel=1e-4)
