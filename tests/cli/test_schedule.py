"""`testbed schedule`: the document, the pictures, and what bad input gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "labs" / "testbed12.yaml"
JOBS = """\
jobs:
  - {name: x, period_ms: 300, bursts: [{start_ms: 150, length_ms: 150, gbps: 25}], hosts: [a, b]}
  - {name: y, period_ms: 300, bursts: [{start_ms: 150, length_ms: 150, gbps: 25}], hosts: [a, b]}
  - {name: z, period_ms: 200, bursts: [{start_ms: 100, length_ms: 100, gbps: 25}], workers: 2}
"""


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return path


@pytest.mark.slow
@pytest.mark.translates
def test_the_document_has_placement_starts_links_candidates_and_predictions(testbed, jobs, tmp_path):
    out = tmp_path / "pictures"
    ran = testbed("schedule", jobs, "--lab", LAB, "--out", out, "--picture", "png", "--json")

    assert ran.code == 0
    found = ran.json
    assert {
        "placement",
        "starts_ms",
        "links",
        "candidates",
        "predicted",
        "notes",
        "pictures",
        "unfinished",
    } == set(found)
    assert (found["placement"]["x"], len(found["placement"]["z"])) == (["a", "b"], 2)
    assert abs(found["starts_ms"]["x"] - found["starts_ms"]["y"]) == 150
    assert found["links"] == [
        {
            "link": "a-b",
            "jobs": ["x", "y"],
            "score": 1,
            "score_clamped": 1,
            "proven": True,
            "approximate": False,
        }
    ]
    assert set(found["candidates"][0]) == {"score", "dropped"}
    assert found["predicted"][0] == pytest.approx(
        {"job": "x", "solo_ms": 300, "fair_ms": 450, "shifted_ms": 300, "slot_ms": 300}
    )
    assert sorted(path.name for path in out.iterdir()) == ["circles.png", "timeline.png"]
    assert all((out / name).stat().st_size > 10_000 for name in ("circles.png", "timeline.png"))


@pytest.mark.translates
def test_the_example_writes_checkpoints_between_bursts(testbed):
    """A write of 128 ms fits between bursts of 150 ms, if it starts while bert computes."""
    ran = testbed("schedule", ROOT / "examples" / "shared_jobs.yaml", "--lab", LAB, "--json")

    assert ran.code == 0, ran.err
    (shared,) = ran.json["links"]
    assert (shared["link"], shared["jobs"], shared["score"]) == ("a-b", ["bert", "save"], 1)
    bert, save, archive = ran.json["predicted"]
    assert bert["shifted_ms"] == pytest.approx(300)
    assert bert["fair_ms"] > 305
    assert (save["solo_ms"], save["shifted_ms"]) == pytest.approx((3000, 3000))
    assert (archive["fair_ms"], archive["slot_ms"]) == pytest.approx((60_000, 60_000))
    assert ran.json["placement"]["archive"] == ["a", "b"]


def test_checkpoints_do_not_run_on_hosts(testbed):
    ran = testbed("schedule", ROOT / "examples" / "shared_jobs.yaml", "--lab", LAB, "--run")

    assert ran.code == 1
    assert "job 'save' writes checkpoints, which are predicted but do not run on hosts" in ran.err


def test_people_get_tables(testbed, jobs):
    ran = testbed("schedule", jobs, "--lab", LAB, "--spread")

    assert ran.code == 0
    assert "Iteration times, predicted" in ran.out


@pytest.mark.parametrize(
    ("arguments", "before", "after", "words"),
    [
        ((), "hosts: [a, b]", "hosts: [a, zz]", "which the lab does not have"),
        ((), "period_ms: 300", "period_ms: 0", "jobs.yaml:2"),
        (("--most-ticks", 1), "", "", "raise --most-ticks"),
        (("--host-scheduler", "nobody"), "", "", "choose from pollux, themis"),
        (("--run", "--policy", "best"), "", "", "choose from fair, weights, shifts, mltcp"),
        (("--run", "--weight", "q=2"), "", "", "is not JOB=W with W above 0; jobs are x, y, z"),
        ((), "period_ms: 300", "run: nothing, period_ms: 300", "unknown key 'bursts'"),
    ],
)
def test_bad_input_is_named(testbed, jobs, arguments, before, after, words):
    jobs.write_text(JOBS.replace(before, after, 1))

    ran = testbed("schedule", jobs, "--lab", LAB, *arguments)

    assert ran.code == 1
    assert words in ran.err
