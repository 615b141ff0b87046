"""Why a run was slow, from figures of ranks and connections that hypothesis draws: one cause, or none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.measure.diagnosis import explain_run, find_causes, find_lags, measure_idle_s
from testbed.measure.model import FlowFigures, LinkFigures, RankFigures

LIMIT_MBPS = 100.0
ROW_S = 1.0
"""Seconds of an iteration in which a healthy ring is full."""

shapes = st.tuples(st.integers(4, 12), st.integers(3, 10), st.integers(0, 10**6))
"""Ranks, iterations, and the seed of the noise."""


class Run:
    """A synthetic run of AllReduces on one ring, healthy but for noise and load that all ranks have."""

    def __init__(self, shape, *, rows=3, load=0.0):
        self.hosts, self.iterations, seed = shape
        self.noise = random.Random(seed)
        self.load = load
        self.ranks = [
            self.rank(f"row {row}", rank, iteration)
            for row in range(rows)
            for rank in range(self.hosts)
            for iteration in range(self.iterations)
        ]
        self.flows = [self.flow(f"row {row}", rank) for row in range(rows) for rank in range(self.hosts)]
        self.links = [
            LinkFigures("t", f"row {row}", 1 << 20, rank, self.link(rank), 30, LIMIT_MBPS * 0.97, LIMIT_MBPS)
            for row in range(rows)
            for rank in range(self.hosts)
        ]

    def link(self, rank):
        return f"h{rank}/nic1 -> h{(rank + 1) % self.hosts}/nic2"

    def rank(self, row, rank, iteration):
        queued_s = ROW_S * (0.02 + self.load * self.noise.uniform(0.5, 1.5))
        return RankFigures(
            *("t", row, 1 << 20, iteration, rank, f"h{rank}"),
            seconds=ROW_S * self.noise.uniform(0.97, 1.03),
            waiting_s=0.96 * ROW_S,
            processor_s=0.03 * ROW_S * self.noise.uniform(0.8, 1.2),
            queued_s=queued_s,
            stopped_s=0.0,
            disk_s=0.002 * self.noise.uniform(0.3, 3),
            others_s=0.01,
        )

    def flow(self, row, rank):
        """Return a connection that fills its link, which load slows a little."""
        whole_s = self.iterations * ROW_S
        size = int(whole_s * 0.97 * LIMIT_MBPS * 1e6 / 8)
        busy_s = whole_s * self.noise.uniform(0.9, 1.0)
        again = self.noise.choice([0, 0, 9000])
        values = {"busy_s": busy_s, "limited_s": 0.0, "windows": 10, "rtt_s": 0.01}
        rates = {"rate_mbps": 96.0, "peak_mbps": 99.0, "limit_mbps": LIMIT_MBPS}
        target = (rank + 1) % self.hosts
        return FlowFigures(
            *("t", row, 1 << 20, rank, target, 0, self.link(rank), size, size + again, again),
            **values,
            **rates,
        )

    def change(self, rank, **more_s):
        """Add seconds to figures of a rank in every iteration."""
        self.ranks = [
            replace(one, **{name: getattr(one, name) + seconds for name, seconds in more_s.items()})
            if one.rank == rank
            else one
            for one in self.ranks
        ]

    def slow_down(self, rank, share):
        """Let the link of a rank carry a part of its limit: all others then wait in between."""
        self.ranks = [replace(one, seconds=one.seconds / share) for one in self.ranks]
        self.flows = [
            replace(one, busy_s=one.busy_s / share if one.source == rank else one.busy_s)
            for one in self.flows
        ]
        self.links = [replace(one, peak_mbps=one.peak_mbps * share) for one in self.links]

    def lose(self, rank, share):
        """Let the link of a rank lose packets."""
        self.flows = [
            replace(one, retransmitted_bytes=int(one.acked_bytes * share)) if one.source == rank else one
            for one in self.flows
        ]

    def causes(self):
        return [(one.cause, one.rank, one.link) for one in find_causes(self.ranks, self.flows, self.links)]


class Stored:
    """A stored run, as far as it is explained."""

    def __init__(self, hosts, run=None):
        self.summary = type("Summary", (), {"hosts": hosts})
        self.ranks, self.flows, self.links = (run.ranks, run.flows, run.links) if run else ((), (), ())


def test_a_run_without_figures_of_ranks_says_why_it_is_not_explained():
    assert "modelled" in explain_run(Stored("model")).unexplained_reason
    assert "ranks.parquet" in explain_run(Stored("kernel")).unexplained_reason


def test_a_run_with_figures_is_explained():
    run = Run((6, 5, 7))
    run.change(4, stopped_s=0.5)
    explained = explain_run(Stored("kernel", run))
    assert (explained.rank_count, explained.unexplained_reason) == (6, "")
    (finding,) = explained.findings
    assert finding.describe().startswith("late: rank 4 (h4): it stood still or started late for 7.50 s")
    assert finding.slower == pytest.approx(2.0, abs=0.1)


@given(shapes, st.floats(0, 0.3))
def test_a_healthy_run_has_no_cause_however_busy_the_machine(shape, load):
    assert Run(shape, load=load).causes() == []


@given(shapes, st.floats(0.12, 2.0), st.floats(0, 0.1))
def test_a_rank_that_stands_still_is_late(shape, late_s, load):
    run = Run(shape, load=load)
    run.change(1, stopped_s=late_s)
    assert run.causes() == [("late", 1, "")]


@given(shapes, st.floats(0.2, 2.0))
def test_a_rank_that_starts_late_is_late(shape, late_s):
    run = Run(shape)
    run.change(2, seconds=late_s)
    assert run.causes() == [("late", 2, "")]


@given(shapes, st.floats(0.3, 2.0))
def test_a_rank_that_computes_longer_is_slow_by_computing(shape, more_s):
    run = Run(shape)
    run.change(0, processor_s=more_s, seconds=more_s)
    assert run.causes() == [("compute", 0, "")]


@given(shapes, st.floats(0.3, 2.0))
def test_computing_that_takes_longer_than_planned_is_slow_by_computing(shape, more_s):
    run = Run(shape)
    for rank in range(run.hosts):
        run.change(rank, computing_s=0.5, planned_s=0.5)
    run.change(3, computing_s=more_s)
    assert run.causes() == [("compute", 3, "")]


@given(shapes, st.floats(0.4, 2.0))
def test_a_rank_that_queues_much_longer_than_the_others_lacks_a_processor(shape, queued_s):
    run = Run(shape, load=0.02)
    run.change(1, queued_s=queued_s, seconds=queued_s)
    assert run.causes() == [("processor", 1, "")]


@given(shapes, st.floats(0.3, 2.0))
def test_a_host_whose_other_processes_take_the_processor_is_named(shape, others_s):
    run = Run(shape, load=0.1)
    run.change(2, others_s=others_s)
    assert run.causes() == [("processor", 2, "")]


def test_other_processes_do_no_harm_where_processors_are_free():
    run = Run((6, 5, 0))
    run.change(2, others_s=0.9)
    run.ranks = [replace(one, queued_s=0.001) for one in run.ranks]
    assert run.causes() == []


@given(shapes, st.floats(0.1, 1.0))
def test_a_disk_that_takes_much_longer_than_the_others_is_slow(shape, more_s):
    run = Run(shape)
    run.change(1, disk_s=more_s)
    assert run.causes() == [("disk", 1, "")]


@given(shapes, st.floats(0.1, 0.7), st.floats(0, 0.1))
def test_the_link_on_which_data_waits_all_the_time_is_slow(shape, share, load):
    run = Run(shape, load=load)
    run.slow_down(1, share)
    assert run.causes() == [("link", 1, run.link(1))]


@given(shapes, st.floats(0.008, 0.1))
def test_the_link_whose_connections_repeat_bytes_loses_them(shape, share):
    run = Run(shape)
    run.lose(2, share)
    assert run.causes() == [("retransmission", 2, run.link(2))]


def test_a_lossy_link_is_told_from_those_that_share_some_of_its_connections():
    """Two connections take the lossy link; the links before and after carry one of them, and others without loss."""
    run = Run((6, 5, 1))
    onward = f"{run.link(1)}, {run.link(2)}"
    before = f"{run.link(0)}, {run.link(1)}"
    run.flows += [replace(one, path=onward, source=1, target=3) for one in run.flows if one.source == 1]
    run.flows += [replace(one, path=before, source=0, target=2) for one in run.flows if one.source == 0]
    run.flows = [
        replace(one, retransmitted_bytes=int(one.acked_bytes * 0.02)) if run.link(1) in one.path else one
        for one in run.flows
    ]
    assert run.causes() == [("retransmission", 1, run.link(1))]


def test_a_full_queue_that_hits_one_of_many_connections_is_no_lossy_link():
    run = Run((6, 5, 1))
    small = [
        replace(one, acked_bytes=one.acked_bytes // 4, sent_bytes=one.acked_bytes // 4, busy_s=0.1, target=3)
        for one in run.flows
        if one.source == 1
    ]
    lossy = [replace(one, retransmitted_bytes=one.acked_bytes // 20) for one in small]
    run.flows += lossy
    assert run.causes() == []
    run.flows = lossy + [one for one in run.flows if one.source != 1]
    assert run.causes() == [("retransmission", 1, run.link(1))]


def test_one_hiccup_accuses_nobody():
    run = Run((6, 5, 2))
    place = next(place for place, one in enumerate(run.ranks) if (one.rank, one.iteration) == (3, 2))
    run.ranks[place] = replace(run.ranks[place], stopped_s=0.9)
    assert run.causes() == []


def test_a_machine_that_slows_all_links_alike_accuses_none():
    run = Run((6, 5, 3), load=0.2)
    run.flows = [replace(one, acked_bytes=one.acked_bytes // 2) for one in run.flows]
    run.links = [replace(one, peak_mbps=one.peak_mbps / 2) for one in run.links]
    assert run.causes() == []


def test_two_ranks_cannot_tell_which_of_them_is_unusual():
    run = Run((2, 5, 4))
    run.change(0, stopped_s=0.5)
    assert run.causes() == []


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"seconds": 1.0, "waiting_s": 0.9, "processor_s": 0.05, "queued_s": 0.02}, 0.03),
        ({"seconds": 1.0, "waiting_s": 1.0, "stopped_s": 0.4}, 0.4),
        ({"seconds": 1.0, "waiting_s": 0.2, "writes_s": 0.7}, 0.1),
    ],
)
def test_idle_time_is_what_nothing_else_explains(figures, expected):
    none = {"seconds": 0.0, "waiting_s": 0.0, "processor_s": 0.0, "queued_s": 0.0, "stopped_s": 0.0}
    one = RankFigures("t", "c", 1, 0, 0, "a", **{**none, **figures})
    assert measure_idle_s(one) == pytest.approx(expected)


def test_the_lag_of_each_rank_and_iteration_has_its_cause():
    run = Run((4, 3, 5), rows=1)
    run.change(2, stopped_s=0.5)
    (lags,) = find_lags(run.ranks).values()
    assert [len(of_rank) for of_rank in lags] == [3] * 4
    assert {lag.cause for lag in lags[2]} == {"late"}
    assert all(lag.share == pytest.approx(0.5, abs=0.05) for lag in lags[2])
    assert max(lag.share for rank in (0, 1, 3) for lag in lags[rank]) < 0.05
