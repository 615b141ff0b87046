"""The file of jobs, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.design.sharing.jobs import Burst, SharedJob
from testbed.errors import WorkloadError
from testbed.lab.jobs_file import JobContext, parse_jobs, read_jobs

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


WORKLOAD = """\
jobs:
  - {name: d, workload: vgg16, settings: {batch: 64}, workers: 2, traffic: allreduce}
"""


def test_a_workload_gives_period_and_bursts_on_the_ring_of_its_hosts():
    (job,) = parse_jobs(Path("jobs.yaml"), WORKLOAD, JobContext(25.0))
    (slow,) = parse_jobs(Path("jobs.yaml"), WORKLOAD, JobContext(12.5))

    assert (job.workers, job.traffic) == (2, "allreduce")
    sent, of_slow = (sum(burst.volume_mbit for burst in one.bursts) for one in (job, slow))
    assert sent == pytest.approx(of_slow, rel=0.01)
    assert all(burst.gbps <= 25.0 for burst in job.bursts)
    assert slow.period_ms > job.period_ms > sum(burst.length_ms for burst in job.bursts)


def test_a_run_gives_period_and_bursts():
    asked = []

    def measured(run: str, job: str):
        asked.append((run, job))
        return 100.0, (Burst(70.0, 30.0, 25.0),)

    rows = "jobs:\n  - {name: x, run: r1, workers: 2}\n  - {name: y, run: r1, job: z, hosts: [a, b]}\n"
    x, y = parse_jobs(Path("jobs.yaml"), rows, JobContext(read_measured_phases=measured))

    assert asked == [("r1", "x"), ("r1", "z")]
    assert (x.period_ms, y.bursts) == (100.0, (Burst(70.0, 30.0, 25.0),))


SAVE = """\
jobs:
  - name: save
    checkpoint: {bytes: 12_000_000_000, every_s: 30}
    hosts: [a, b, c]
    storage: [d]
"""


@pytest.mark.parametrize(("nics", "gbps"), [(1, 25 / 3), (2, 50 / 3), (3, 25.0), (8, 25.0)])
def test_a_checkpoint_is_one_burst_of_all_hosts_at_the_rate_of_the_storage_hosts_links(nics, gbps):
    (job,) = parse_jobs(Path("jobs.yaml"), SAVE, JobContext(25.0, nics_per_host=nics))

    assert (job.period_ms, job.hosts, job.workers, job.storage) == (30_000, ("a", "b", "c"), 3, ("d",))
    (burst,) = job.bursts
    assert burst.gbps == pytest.approx(gbps)
    assert 3 * burst.volume_mbit * 1e6 / 8 == pytest.approx(12e9)


def test_a_checkpoint_may_be_slower_than_its_links():
    text = SAVE.replace("every_s: 30", "every_s: 30, gbps: 4")
    (job,) = parse_jobs(Path("jobs.yaml"), text, JobContext(25.0, nics_per_host=4))

    assert job.bursts == (Burst(22_000.0, 8000.0, 4.0),)


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("bytes: 12_000_000_000", "bytes: 0", 3, "bytes of the checkpoint of job 'save' is 0"),
        ("bytes: 12_000_000_000, ", "", 3, "bytes of the checkpoint of job 'save' is None; give a number"),
        (
            "every_s: 30",
            "every_s: 1",
            3,
            "a write of the checkpoint of job 'save' takes 3.84 s at 8.33333 Gb/s",
        ),
        (
            "every_s: 30",
            "every_s: 30, gbps: 26",
            3,
            "gbps of the checkpoint of job 'save' is 26, but a host can",
        ),
        ("every_s: 30", "every_s: 30, to: d", 3, "unknown key 'to'"),
        ("storage: [d]", "", 2, "storage of job 'save' is None"),
        ("storage: [d]", "storage: [a]", 5, "none of the job's hosts"),
        ("storage: [d]", "storage: [d, d]", 5, "each once"),
        ("storage: [d]", "storage: [d]\n    traffic: bulk", 6, "unknown key 'traffic'"),
    ],
)
def test_a_mistake_in_a_checkpoint_is_told_with_its_line(before, after, line, words):
    with pytest.raises(WorkloadError) as caught:
        parse_jobs(Path("jobs.yaml"), SAVE.replace(before, after, 1), JobContext(25.0, nics_per_host=1))

    assert str(caught.value).startswith(f"jobs.yaml:{line}:")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{name: x, workload: nothing, workers: 2}", "jobs.yaml:2: .*nothing"),
        (
            "{name: x, workload: vgg16, workers: 1}",
            "workload 'vgg16' sends nothing on a single host: give it at least two",
        ),
        ("{name: x, workload: vgg16, settings: 3, workers: 2}", "not a mapping: write settings"),
        ("{name: x, workload: vgg16, period_ms: 3, workers: 2}", "unknown key 'period_ms'"),
        ("{name: x, run: r1, workers: 2}", "stored runs cannot be read here"),
        (
            "{name: x, period_ms: 3, bursts: [], traffic: some, workers: 2}",
            "give traffic: bulk or traffic: allreduce",
        ),
    ],
)
def test_a_wrong_source_is_told_with_its_line(row, words):
    with pytest.raises(WorkloadError, match=words):
        parse_jobs(Path("jobs.yaml"), f"jobs:\n  - {row}\n")


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("jobs:", "job:", 1, "the list of jobs is missing"),
        ("period_ms: 300", "period_ms: 0", 2, "period of job 'x' is 0"),
        ("period_ms: 300", "period_ms: -300", 2, "period of job 'x' is -300"),
        ("period_ms: 300", "period_ms: long", 3, "'long'; give a number"),
        ("period_ms: 300", "period: 300", 3, "unknown key 'period'"),
        ("length_ms: 150", "length_ms: 0", 2, "length of burst 1 of job 'x' is 0"),
        ("length_ms: 150", "length_ms: 151", 2, "overlap or leave its period"),
        ("gbps: 25", "gbps: fast", 5, "gbps of a burst of job 'x' is 'fast'"),
        ("gbps: 25", "gbps: 99", 5, "a burst of job 'x' has 99 Gb/s, but a link of the lab carries only"),
        ("gbps: 25", "mbps: 25", 5, "unknown key 'mbps'"),
        ("hosts: [a, b]", "hosts: [a, a]", 6, "each only once"),
        ("hosts: [a, b]", "", 2, "needs either hosts or workers"),
        ("workers: 3", "workers: 0", 7, "workers of job 'y' is 0"),
        ("name: y", "name: x", 7, "job 'x' appears twice"),
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
