"""Sleepers on a virtual clock wake at their own moments, in order, and only when told."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.clock import RealClock, ScaledClock, VirtualClock


def test_time_stands_still_until_advanced():
    async def story():
        clock = VirtualClock(start_s=5.0)
        task = asyncio.create_task(clock.sleep(1.0))
        await clock.advance(0.999)
        assert (task.done(), clock.now(), clock.sleeper_count) == (False, 5.999, 1)
        await clock.advance(0.001)
        assert (task.done(), clock.sleeper_count) == (True, 0)

    asyncio.run(story())


def test_a_woken_task_may_sleep_again_within_the_same_advance():
    async def story():
        clock, seen = VirtualClock(), []

        async def robot():
            for _ in range(3):
                await clock.sleep(60.0)
                seen.append(clock.now())

        task = asyncio.create_task(robot())
        await clock.advance(200.0)
        assert task.done()
        return seen, clock.now()

    assert asyncio.run(story()) == ([60.0, 120.0, 180.0], 200.0)


def test_equal_deadlines_wake_in_the_order_of_falling_asleep():
    assert wake_order([1.0] * 10) == list(range(10))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20))
def test_sleepers_wake_by_deadline(deadlines):
    assert wake_order(deadlines) == sorted(range(len(deadlines)), key=lambda index: deadlines[index])


def wake_order(delays) -> list[int]:
    async def story():
        clock, woken = VirtualClock(), []

        async def sleeper(index, delay):
            await clock.sleep(delay)
            assert clock.now() == delay
            woken.append(index)

        tasks = [asyncio.create_task(sleeper(*item)) for item in enumerate(delays)]
        await clock.advance(20.0)
        await asyncio.gather(*tasks)
        return woken

    return asyncio.run(story())


def test_the_clock_goes_from_sleeper_to_sleeper():
    async def story():
        clock = VirtualClock()
        tasks = [asyncio.create_task(clock.sleep(seconds)) for seconds in (3.0, 1.0, 2.0)]
        await clock.advance(0.0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        stops = []
        while clock.wake_next(2.5):
            stops.append(clock.now())
        return stops, clock.now(), clock.next_wake_s

    assert asyncio.run(story()) == ([2.0], 2.5, 3.0)


def test_a_cancelled_sleeper_is_forgotten():
    async def story():
        clock = VirtualClock()
        task = asyncio.create_task(clock.sleep(1.0))
        await clock.advance(0.0)
        task.cancel()
        await clock.advance(2.0)
        assert task.cancelled()
        assert clock.sleeper_count == 0

    asyncio.run(story())


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="cannot go back"):
        asyncio.run(VirtualClock().advance(-1.0))


def test_the_real_clock_passes_at_least_the_time_asked_for():
    async def story():
        clock = RealClock()
        before = clock.now()
        await clock.sleep(0.002)
        await clock.sleep(-1.0)
        return clock.now() - before

    assert asyncio.run(story()) >= 0.002


def test_a_scaled_clock_passes_its_seconds_faster_and_not_too_few_of_them():
    async def story():
        clock, machine = ScaledClock(1000.0), RealClock()
        before, machine_before = clock.now(), machine.now()
        await clock.sleep(20.0)
        await clock.sleep(-1.0)
        machine_passed_s = machine.now() - machine_before
        return clock.now() - before, machine_passed_s

    passed_s, machine_passed_s = asyncio.run(story())
    assert passed_s >= 20.0
    assert machine_passed_s >= 0.02
    assert machine_passed_s == pytest.approx(passed_s / 1000.0, abs=0.5)


@pytest.mark.parametrize("speed", [0.0, -1.0])
def test_time_neither_stands_nor_runs_back_on_a_scaled_clock(speed):
    with pytest.raises(ValueError, match="times real time"):
        ScaledClock(speed)
