"""The file of jobs, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.design.sharing.jobs import Burst, SharedJob
from testbed.errors import WorkloadError
from testbed.lab.jobs_file import parse_jobs, read_jobs

GOOD = """\
jobs:
  - name: x
    period_ms: 300
    bursts:
      - {start_ms: 150, length_ms: 150, gbps: 25}
    hosts: [a, b]
  - {name: y, period_ms: 200, bursts: [], workers: 3}
"""


def test_jobs_are_read():
    assert parse_jobs(Path("jobs.yaml"), GOOD) == (
        SharedJob("x", 300.0, (Burst(150.0, 150.0, 25.0),), ("a", "b"), 2),
        SharedJob("y", 200.0, (), (), 3),
    )


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("jobs:", "job:", 1, "no list of jobs"),
        ("period_ms: 300", "period_ms: 0", 2, "period of job 'x' is 0"),
        ("period_ms: 300", "period_ms: -300", 2, "period of job 'x' is -300"),
        ("period_ms: 300", "period_ms: long", 3, "'long'; give a number"),
        ("period_ms: 300", "period: 300", 3, "unknown key 'period'"),
        ("length_ms: 150", "length_ms: 0", 2, "length of burst 1 of job 'x' is 0"),
        ("length_ms: 150", "length_ms: 151", 2, "overlap or leave its period"),
        ("gbps: 25", "gbps: fast", 5, "gbps of a burst of job 'x' is 'fast'"),
        ("gbps: 25", "mbps: 25", 5, "unknown key 'mbps'"),
        ("hosts: [a, b]", "hosts: [a, a]", 6, "different names of hosts"),
        ("hosts: [a, b]", "", 2, "needs either hosts or workers"),
        ("workers: 3", "workers: 0", 7, "workers of job 'y' is 0"),
        ("name: y", "name: x", 7, "job 'x' is there twice"),
        ("hosts: [a, b]", "hosts: [a, b", 7, "not YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line(before, after, line, words):
    with pytest.raises(WorkloadError) as caught:
        parse_jobs(Path("jobs.yaml"), GOOD.replace(before, after, 1))

    assert str(caught.value).startswith(f"jobs.yaml:{line}:")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_jobs(tmp_path / "jobs.yaml")
