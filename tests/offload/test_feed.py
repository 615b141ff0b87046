"""The conditional operator: counters, exactly once, order, seeds, lost workers. No torch is needed for it."""

from __future__ import annotations

import gc
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from random import randint

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import OffloadError
from testbed.offload.engine import ThreadEngine, WorkerLost
from testbed.offload.epoch import is_remote, make_order
from testbed.offload.feed import Feed, Rule, Sides
from testbed.offload.stages import Pipeline, Runner

SIZE = 4


class Numbered:
    """A dataset whose elements are their indices."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


class Direct:
    """An engine without threads: a stage is run when it is submitted."""

    def __init__(self, slots=1, loses=lambda _number: False):
        self.slot_count, self.loses, self.submitted = slots, loses, []

    def open(self, runner):
        self.runner = runner

    def list_workers(self):
        return ("here",) * self.slot_count

    def submit(self, stage, payload, epoch):
        future = Future()
        self.submitted.append(payload)
        if self.loses(len(self.submitted) - 1):
            future.set_exception(WorkerLost())
        else:
            future.set_result(self.runner.run_stage(stage, payload, epoch))
        return future


def feed_of(count, rule, engine=None, *, seed=None, epoch=0, done=(), local=None, transform=None):
    engine = engine or Direct()
    runner = Runner(Pipeline(Numbered(count), transform or (lambda x: x), list, seed))
    engine.open(runner)
    order = make_order(count, SIZE, shuffle_by=f"{seed}/{epoch}")
    return Feed(Sides(runner, local, engine), order, rule, epoch, done)


def flat(feed):
    return [value for _, batch in feed for value in batch]


def test_shares_by_counting():
    """Of 10 units at 0.3, by floor((n + 1) * 0.3) > floor(n * 0.3): those at 3, 6 and 9."""
    assert [unit for unit in range(10) if is_remote(unit, 0.3)] == [3, 6, 9]


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1), st.integers(0, 300))
def test_counters_stay_within_a_unit_of_the_ratio_over_any_prefix(ratio, count):
    taken = 0
    for unit in range(count):
        taken += is_remote(unit, ratio)
        assert abs(taken - (unit + 1) * ratio) <= 1


@pytest.mark.long
def test_each_index_comes_once_at_any_ratio_with_workers_dying():
    lost = remote = 0

    @settings(max_examples=250, deadline=None)
    @given(
        st.integers(0, 60),
        st.sampled_from(["p1", "p2", "p3", None]),
        st.floats(0, 1),
        st.booleans(),
        st.integers(1, 3),
        st.integers(0, 2**32),
        st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    )
    def hold(count, candidate, ratio, ordered, slots, seed, loss):
        nonlocal lost, remote
        random_of = random.Random(seed)
        engine = Direct(slots, loses=lambda _number: random_of.random() < loss)
        feed = feed_of(count, Rule(candidate, ratio, ordered=ordered), engine, seed=seed)
        units = 1 if candidate in {None, "p3"} else SIZE
        expected = make_order(count, SIZE, shuffle_by=f"{seed}/0").indices
        seen, done = [], 0
        for numbers, batch in feed:
            seen += batch
            done += len(numbers)
            counts = feed.counts
            assert (
                abs(counts.remote_count + counts.taken_back_count - (ratio if candidate else 0) * done)
                <= 2 * units
            )
            # No worker is asked for more than two batches of each beyond its share.
            asked = len(engine.submitted) - counts.lost_count
            assert asked - (ratio if candidate else 0) * done <= 2 * units * slots + 1
        assert sorted(seen) == list(range(count))
        if ordered:
            assert seen == list(expected)
        lost += feed.counts.lost_count
        remote += feed.counts.remote_count

    hold()
    assert lost > 200
    # On a busy machine the trainer takes more units back.
    assert remote > 100


def test_a_worker_lost_three_times_leaves_the_unit_to_the_trainer():
    """Each of the two batches is asked for three times, and then prepared here."""
    feed = feed_of(8, Rule("p3", 1.0), Direct(loses=lambda _number: True))
    assert sorted(flat(feed)) == list(range(8))
    assert (feed.counts.lost_count, feed.counts.taken_back_count, feed.counts.remote_count) == (6, 2, 0)


def test_a_silent_worker_leaves_the_unit_to_the_trainer():
    class Silent(Direct):
        def submit(self, stage, payload, epoch):
            return Future()

    for ordered in (True, False):
        feed = feed_of(8, Rule("p3", 0.5, patience_s=0, ordered=ordered), Silent())
        assert sorted(flat(feed)) == list(range(8))
        assert feed.counts.taken_back_count == 1


class Waits(Future):
    """A future without an answer, which notes how long it was waited for instead of waiting."""

    waited_s = 0.0

    def result(self, timeout=None):
        if self.done():
            return super().result()
        Waits.waited_s += timeout
        raise TimeoutError


@pytest.mark.parametrize("candidate", ["p1", "p2", "p3"])
@pytest.mark.parametrize("has_local", [False, True])
def test_all_is_taken_back_at_once_when_all_workers_are_lost(monkeypatch, candidate, has_local):
    """One look of a second for 20 batches; nothing that was asked for goes on, and nothing more is asked for."""

    class Vanishing(Direct):
        answers, futures = 3, []

        def submit(self, stage, payload, epoch):
            if len(self.submitted) < self.answers:
                return super().submit(stage, payload, epoch)
            self.submitted.append(payload)
            self.futures.append(Waits())
            return self.futures[-1]

        def list_workers(self):
            return ("here",) if len(self.submitted) <= self.answers else ()

    monkeypatch.setattr(Waits, "waited_s", 0.0)
    monkeypatch.setattr(Vanishing, "futures", [])
    engine = Vanishing()
    with ThreadPoolExecutor(1) as local:
        feed = feed_of(80, Rule(candidate, 1.0), engine, local=local if has_local else None)
        assert sorted(flat(feed)) == list(range(80))
    assert Waits.waited_s <= 1
    assert all(future.cancelled() for future in engine.futures)
    assert feed.counts.remote_count == 3
    assert feed.counts.remote_count + feed.counts.taken_back_count == (20 if candidate == "p3" else 80)
    assert len(engine.submitted) <= 3 + 2 * (1 if candidate == "p3" else SIZE)


def test_workers_that_are_all_silent_are_waited_for_once(monkeypatch):
    """The scheduler has not noticed yet. One silent worker of two costs its own unit alone."""

    class Silent(Direct):
        loses_all = True

        def submit(self, stage, payload, epoch):
            future = super().submit(stage, payload, epoch)
            return Waits() if self.loses_all or len(self.submitted) % 2 else future

    monkeypatch.setattr(Waits, "waited_s", 0.0)
    feed = feed_of(80, Rule("p3", 1.0), Silent())
    assert sorted(flat(feed)) == list(range(80))
    assert (Waits.waited_s, feed.counts.taken_back_count) == (60, 20)
    engine = Silent()
    engine.loses_all = False
    feed = feed_of(80, Rule("p3", 1.0), engine)
    assert sorted(flat(feed)) == list(range(80))
    assert (feed.counts.remote_count, feed.counts.taken_back_count) == (10, 10)


def test_without_workers_at_the_start_nothing_is_asked_for():
    engine = Direct()
    engine.list_workers = tuple
    feed = feed_of(80, Rule("p3", 1.0), engine)
    assert sorted(flat(feed)) == list(range(80))
    assert engine.submitted == []


def test_other_threads_do_not_disturb_the_draws_of_a_seed():
    """As the event loop of Dask does, also by names that it imported long ago; it gets numbers nevertheless."""
    asked, drawn, others = threading.Event(), threading.Event(), []

    def disturb():
        for _ in range(20):
            asked.wait(10)
            asked.clear()
            others.append((random.random(), randint(0, 9), random.choice("ab")))
            drawn.set()

    def interrupted(x):
        first = random.random()
        if is_disturbed:
            asked.set()
            drawn.wait(10)
            drawn.clear()
        return x, first, random.random(), randint(0, 10**9), random.sample(range(99), 5)

    is_disturbed = False
    alone = flat(feed_of(20, Rule(), seed=7, transform=interrupted))
    is_disturbed = True
    thread = threading.Thread(target=disturb)
    thread.start()
    state = random.getstate()
    assert flat(feed_of(20, Rule(), seed=7, transform=interrupted)) == alone
    thread.join()
    assert len(set(others)) > 5
    assert random.getstate() == state


def draws(x):
    return x, random.random()


@pytest.mark.parametrize("candidate", ["p1", "p2", "p3"])
def test_draws_of_a_seeded_transform_do_not_depend_on_who_prepares(candidate):
    """The trainer's own generator goes on as if nobody had drawn."""
    random.seed(5)
    before = random.getstate()
    here = flat(feed_of(20, Rule(), seed=7, transform=draws))
    assert random.getstate() == before
    assert flat(feed_of(20, Rule(candidate, 0.6), seed=7, transform=draws)) == here
    assert len({drawn for _, drawn in here}) == 20
    assert flat(feed_of(20, Rule(), seed=7, epoch=1, transform=draws)) != here


def test_what_is_done_is_left_out():
    whole = list(feed_of(20, Rule("p3", 0.5), seed=1))
    rest = list(feed_of(20, Rule("p3", 0.5), seed=1, done=[0, 1, 3]))
    assert rest == [whole[2], whole[4]]


def test_threads_of_trainer_and_workers_together():
    """In the order of completion of workers each index still comes once."""
    with ThreadPoolExecutor(2) as local:
        for candidate in ("p1", "p2", "p3"):
            engine = ThreadEngine(3, is_lost=lambda number: number % 7 == 3)
            feed = feed_of(200, Rule(candidate, 0.7, ordered=False), engine, local=local)
            assert sorted(flat(feed)) == list(range(200))
            assert feed.counts.lost_count > 0
            assert engine.read_cpu_ns() > 0
            engine.close()


def test_an_error_of_the_transform_is_the_users():
    def fails(_x):
        raise ValueError("a broken element")

    with pytest.raises(ValueError, match="a broken element"):
        list(feed_of(8, Rule("p3", 0.0), transform=fails))


@pytest.mark.parametrize("candidate", ["p1", "p2", "p3"])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_broken_sample_names_its_index(candidate, ratio):
    def fails_at_17(x):
        return 1 / (x - 17)

    with pytest.raises(ZeroDivisionError, match="sample 17 of the dataset is broken"):
        list(feed_of(40, Rule(candidate, ratio), transform=fails_at_17))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rule("p9", 0.5), "unknown candidate 'p9'"),
        (lambda: Rule("p3", 1.5), r"ratio 1\.5"),
        (lambda: Rule("p3", 0.5, look_ahead=0), "look_ahead 0"),
    ],
)
def test_rules_that_cannot_be(build, message):
    with pytest.raises(OffloadError, match=message):
        build()


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [30, pytest.param(1000, marks=pytest.mark.long)])
def test_epochs_of_which_every_tenth_loses_workers(epochs):
    """Each is whole, and nothing is left on its way: neither work, nor objects, nor threads."""
    is_losing = False
    engine = ThreadEngine(2, is_lost=lambda number: is_losing and number % 3 == 1)
    lost, objects = 0, []
    with ThreadPoolExecutor(1) as local:
        for epoch in range(epochs):
            is_losing = epoch % 10 == 0
            rule = Rule("p3" if epoch % 2 else "p2", 0.5)
            feed = feed_of(24, rule, engine, seed=3, epoch=epoch, local=local)
            assert sorted(flat(feed)) == list(range(24))
            assert not any(feed._pending.values())
            lost += feed.counts.lost_count > 0
            if epoch in (epochs // 2, epochs - 1):
                gc.collect()
                objects.append((len(gc.get_objects()), threading.active_count()))
        engine.close()
    assert lost == epochs // 10
    assert objects[1][0] - objects[0][0] < 200, "one an epoch would be more, of 500"
    assert objects[1][1] <= objects[0][1]
