"""Rail-only reproduced: all counts of table II, percentages within a point, four iteration times from one fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from testbed.design.reproductions.figure import ignore_progress
from testbed.design.reproductions.rail_only import MODULES, describe, load_figure
from testbed.design.reproductions.rail_only.iteration_times import select_main_fit
from testbed.design.reproductions.rail_only.model import (
    DGX_A100,
    GPT_310B,
    JOBS,
    compute_all_to_all_s,
    compute_saving,
    compute_slowdown,
    fit_efficiency,
)
from testbed.design.reproductions.rail_only.network_parts import DOMAIN_SIZE, PUBLISHED
from testbed.design.reproductions.rail_only.setup import QUICK


@pytest.fixture(scope="module")
def tables():
    return {number: load_figure(number).make_table(QUICK, ignore_progress) for number in MODULES}


def comparisons(tables, number):
    return load_figure(number).compare_with_paper(tables[number])


def test_all_24_counts_are_exact(tables):
    counts = [line for line in comparisons(tables, 1) if "saved" not in line.quantity]

    assert len(counts) == 24
    assert all(line.ours == line.published.value for line in counts)


@pytest.mark.parametrize(("column", "ratios"), [(2, (3.37, 3.7, 4.0)), (3, (1.77, 1.9, 2.0))])
def test_savings_are_within_a_point_for_any_ratio_in_the_derived_range(column, ratios):
    for (gpus, radix), published in PUBLISHED.items():
        for ratio in ratios:
            assert abs(100 * compute_saving(gpus, DOMAIN_SIZE, radix, ratio) - published[column]) <= 1


def test_slowdowns_are_within_two_per_cent_and_the_simulation_in_two_steps_agrees(tables):
    lines = [line for line in comparisons(tables, 2) if line.published.value]

    assert {line.published.value for line in lines} == {8.2, 11.2}
    for row in tables[2].records:
        assert row["two_steps"] == pytest.approx(row["formula"], rel=1e-5)
        assert row["one_step"] == pytest.approx(0, abs=1e-9)
    assert compute_slowdown(8, 8, DGX_A100) == pytest.approx(0.082, rel=0.02)


def test_the_spine_only_saves_the_second_step():
    spine_s, rails_s = (compute_all_to_all_s(1e6, 8, 16, DGX_A100, has_spine=one) for one in (True, False))

    assert rails_s - spine_s == pytest.approx(16 * 7 * 1e6 * 8e-9 / 2400)


def test_three_iteration_times_follow_from_the_fourth_within_five_per_cent(tables):
    main = select_main_fit(tables[3])

    assert [row["model"] for row in main.records] == [job.name for job in JOBS]
    for row in main.records:
        assert row["ours_s"] == pytest.approx(row["published_s"], rel=0.05)
    assert main.get_number("ours_s", model=GPT_310B.name) == pytest.approx(GPT_310B.published_s, rel=1e-5)
    assert any("529.6B" in line.quantity and "539.6B" in line.note for line in comparisons(tables, 3))


def test_megascales_time_gives_its_share_of_the_peak(tables):
    (line,) = [line for line in comparisons(tables, 3) if "MegaScale" in line.quantity]

    assert line.ours == pytest.approx(55.2, rel=0.02)


def test_traffic_is_mostly_tensor_parallel_and_most_pairs_are_silent(tables):
    for section in describe(tables)["traffic"].values():
        assert section["tensor_share"] > 0.75
        assert section["silent_pairs"] > 0.99
    assert describe(tables)["traffic"]["GPT 1T"]["gb_per_gpu"]["data"] == pytest.approx(6.56, rel=0.02)


def test_larger_domains_and_faster_links_never_take_longer(tables):
    for sweep, column in (("domain", "domain"), ("bandwidth", "rail_gbps")):
        part = tables[5].select_rows(sweep=sweep)
        for domain_gbps in part.list_values("domain_gbps"):
            for domain in part.list_values("domain") if column == "rail_gbps" else (None,):
                rows = part.select_rows(domain_gbps=domain_gbps, **({"domain": domain} if domain else {}))
                times = rows.get_numbers("iteration_s")
                assert all(one >= other * (1 - 1e-9) for one, other in pairwise(times))


def test_jobs_in_rectangles_take_the_time_that_they_take_alone(tables):
    section = describe(tables)["rectangles"]
    placed = [job for job in section["jobs"] if "reason" not in job]

    assert len(placed) == 7
    for job in placed:
        assert job["together_ms"] == pytest.approx(job["alone_ms"], rel=1e-5)
        assert job["random_ms"] > 2 * job["alone_ms"]
        assert job["domains"] * job["rails"] == job["gpus"]
    assert section["utilisation"] * section["domains"] * section["rails"] == sum(
        job["gpus"] for job in placed
    )
    (unplaced,) = [job for job in section["jobs"] if "reason" in job]
    assert (unplaced["job"], "a domain has 8" in unplaced["reason"]) == ("S16", True)


def test_the_document_has_its_sections(tables):
    sections = describe(tables)

    names = ["counts", "savings", "all_to_all", "iterations", "fits", "traffic", "sweeps", "rectangles"]
    assert list(sections) == names
    assert set(sections["counts"][0]) == {"gpus", "radix", "design", "switches", "transceivers"}
    assert {"model", "published_s", "ours_s"} <= set(sections["iterations"][0])


def test_a_job_without_a_published_time_cannot_be_fitted():
    with pytest.raises(ValueError, match="has no published time"):
        fit_efficiency(replace(GPT_310B, tflops=None), DGX_A100, 6, 2)


def test_other_figures_are_refused():
    with pytest.raises(ValueError, match="figure 7 of rail-only is not reproduced: choose from"):
        load_figure(7)
