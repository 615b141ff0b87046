"""One arm, one queue: jobs in their turn, dark while they last, and nothing moves after a jam until it is allowed."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.clock import VirtualClock
from sim.twins.plant import Plant
from sim.twins.switch.robot import Robot
from sim.twins.switch.settings import TwinSettings
from sim.twins.wire.control import Request, VerbError

SIZE = 4
MOVE_S = 60.0
HOMING_S = 300.0


class Bench:
    """A robot over a panel on a virtual clock, and all it said."""

    def __init__(self):
        self.clock = VirtualClock()
        self.device = TwinSettings("panel", SIZE, SIZE, Plant({}), self.clock).make_patch_panel()
        self.robot = Robot(self.device, move_s=MOVE_S, homing_s=HOMING_S)
        self.said = []
        self.robot.add_listener(lambda event, job: self.said.append((event, job.number if job else None)))

    def ask(self, kind, source, output, user="us"):
        return self.robot.submit_job(kind, (source, output), user=user, source="CLI")

    def states(self):
        return [self.robot.find_job(number).state for number in sorted(self.robot._jobs)]

    @property
    def connections(self):
        return self.device.matrix.connections


def story(tell):
    """Run `tell(bench)` in a loop of its own."""

    async def run():
        bench = Bench()
        try:
            return await tell(bench)
        finally:
            await bench.device.stop()

    return asyncio.run(run())


def test_a_connection_is_in_the_books_and_lit_when_its_move_is_over():
    async def tell(bench):
        job = bench.ask("connect", 1, 5)
        assert (job.number, job.state, bench.robot.queue) == (1, "queued", (job,))
        await bench.clock.advance(MOVE_S - 0.1)
        assert (bench.states(), bench.connections, bench.robot.running_job.number) == (["running"], {}, 1)
        await bench.clock.advance(0.1)
        assert (bench.states(), bench.connections, bench.device.lit_connections) == (["done"], {1: 5}, {1: 5})
        assert (bench.robot.running_job, bench.robot.queue) == (None, ())
        assert bench.said == [("queued", 1), ("running", 1), ("done", 1)]
        assert bench.device.move_count_by_port == {1: 1, 5: 1}

    story(tell)


def test_a_circuit_is_dark_while_the_arm_takes_it_out_and_stands_in_the_books_until_then():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        bench.ask("connect", 2, 6)
        await bench.clock.advance(2 * MOVE_S)
        bench.ask("disconnect", 1, 5)
        await bench.clock.advance(1.0)
        assert (bench.connections, bench.device.lit_connections) == ({1: 5, 2: 6}, {2: 6})
        await bench.clock.advance(MOVE_S)
        assert (bench.connections, bench.device.lit_connections) == ({2: 6}, {2: 6})

    story(tell)


def test_jobs_are_done_one_at_a_time_in_the_order_of_asking_whoever_asks():
    async def tell(bench):
        for number, user in enumerate(["us", "gui", "us", "gui"], start=1):
            bench.ask("connect", number, 4 + number, user)
        await bench.clock.advance(0.0)
        for done in range(1, 5):
            first = bench.robot.queue[0]
            assert (first.number, first.state) == (done, "running")
            assert len(bench.robot.queue) == 5 - done
            await bench.clock.advance(MOVE_S)
            assert len(bench.connections) == done
        await asyncio.wait_for(bench.robot.wait_idle(), 1.0)
        assert bench.clock.now() == 4 * MOVE_S

    story(tell)


def test_what_is_so_already_is_skipped_in_no_time():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        bench.ask("connect", 1, 5)
        bench.ask("disconnect", 2, 6)
        await bench.clock.advance(MOVE_S)
        assert bench.states() == ["done", "skipped", "skipped"]

    story(tell)


@pytest.mark.parametrize(
    ("kind", "pair", "why"),
    [
        ("connect", (1, 6), "port 1 carries another connection"),
        ("connect", (2, 5), "port 5 carries another connection"),
        ("connect", (5, 6), "port 5 is on the other side"),
        ("connect", (9, 6), "port 9 does not exist"),
        ("connect", (3, 7), "port 7 is locked"),
        ("disconnect", (1, 6), "port 1 is not connected that way"),
        ("disconnect", (9, 6), "port 9 does not exist"),
    ],
)
def test_what_the_panel_refuses_has_failed_in_no_time(kind, pair, why):
    async def tell(bench):
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S)
        bench.device.matrix.locked_ports.add(7)
        job = bench.ask(kind, *pair)
        await bench.clock.advance(0.0)
        assert (bench.robot.find_job(job.number).state, bench.robot.find_job(job.number).why) == (
            "failed",
            why,
        )
        assert bench.device.lit_connections == {1: 5}

    story(tell)


def test_a_panel_that_changes_under_the_arm_fails_the_job():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S / 2)
        bench.device.change_connections({2: 5})
        await bench.clock.advance(MOVE_S)
        assert (bench.states(), bench.connections, bench.device.lit_connections) == (
            ["failed"],
            {2: 5},
            {2: 5},
        )

    story(tell)


def test_after_a_jam_nothing_moves_until_homed_and_enabled():
    async def tell(bench):
        robot = bench.robot
        robot.jam_after_moves(1)
        for number in (1, 2, 3):
            bench.ask("connect", number, 4 + number)
        await bench.clock.advance(10 * MOVE_S)
        assert (robot.is_jammed, bench.states()) == (True, ["done", "running", "queued"])
        assert bench.device.fire_counts["jam"] == 1
        robot.enable_jobs()
        await bench.clock.advance(10 * MOVE_S)
        assert bench.connections == {1: 5}
        run = robot.start_homing()
        assert robot.start_homing() is run
        await bench.clock.advance(HOMING_S)
        assert run.done()
        assert (robot.is_jammed, robot.is_enabled, bench.states()) == (
            False,
            False,
            ["done", "failed", "queued"],
        )
        await bench.clock.advance(10 * MOVE_S)
        assert bench.connections == {1: 5}
        robot.enable_jobs()
        await bench.clock.advance(MOVE_S)
        assert bench.connections == {1: 5, 3: 7}
        assert bench.said[-6:] == [
            ("homing", None),
            ("failed", 2),
            ("homed", None),
            ("enabled", None),
            ("running", 3),
            ("done", 3),
        ]

    story(tell)


def test_a_circuit_that_was_being_taken_out_has_its_light_back_after_the_homing_run():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S)
        bench.robot.jam_after_moves(0)
        bench.ask("disconnect", 1, 5)
        await bench.clock.advance(MOVE_S)
        assert (bench.connections, bench.device.lit_connections) == ({1: 5}, {})
        bench.robot.start_homing()
        await bench.clock.advance(HOMING_S)
        assert (bench.connections, bench.device.lit_connections) == ({1: 5}, {1: 5})

    story(tell)


def test_a_homing_run_waits_for_the_move_under_way_and_no_other_begins():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        bench.ask("connect", 2, 6)
        await bench.clock.advance(MOVE_S / 2)
        bench.robot.start_homing()
        bench.robot.enable_jobs()
        await bench.clock.advance(MOVE_S / 2)
        assert (bench.states(), bench.robot.is_homing) == (["done", "queued"], True)
        await bench.clock.advance(HOMING_S + MOVE_S)
        assert (bench.states(), bench.robot.is_enabled) == (["done", "queued"], False)

    story(tell)


def test_who_hears_of_the_end_of_a_homing_run_may_enable_at_once():
    async def tell(bench):
        bench.robot.add_listener(lambda event, _: bench.robot.enable_jobs() if event == "homed" else None)
        bench.robot.start_homing()
        bench.ask("connect", 1, 5)
        await bench.clock.advance(HOMING_S + MOVE_S)
        assert bench.states() == ["done"]

    story(tell)


def test_a_power_loss_fails_all_jobs_and_costs_no_light():
    async def tell(bench):
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S)
        bench.ask("disconnect", 1, 5)
        bench.ask("connect", 2, 6)
        await bench.clock.advance(MOVE_S / 2)
        bench.device.power_off()
        assert bench.states() == ["done", "failed", "failed"]
        assert bench.robot.find_job(2).why == "the power went"
        await bench.clock.advance(10 * MOVE_S)
        bench.device.boot()
        assert (bench.connections, bench.device.lit_connections) == ({1: 5}, {1: 5})
        bench.ask("connect", 2, 6)
        await bench.clock.advance(MOVE_S)
        assert bench.device.lit_connections == {1: 5, 2: 6}

    story(tell)


def test_a_jam_outlasts_a_power_loss():
    async def tell(bench):
        bench.robot.jam_after_moves(0)
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S)
        bench.device.power_off()
        bench.device.boot()
        bench.ask("connect", 1, 5)
        await bench.clock.advance(10 * MOVE_S)
        assert (bench.robot.is_jammed, bench.states()) == (True, ["failed", "queued"])

    story(tell)


def test_a_stuck_pair_is_called_done_and_is_not_made():
    async def tell(bench):
        bench.device.faults.stuck_pairs.add((1, 5))
        bench.ask("connect", 1, 5)
        await bench.clock.advance(MOVE_S)
        assert (bench.states(), bench.connections, bench.device.fire_counts["stuck"]) == (["done"], {}, 1)

    story(tell)


@pytest.mark.slow
def test_jobs_of_long_ago_are_forgotten_and_those_that_wait_are_not():
    async def tell(bench):
        bench.robot.enabled = False
        waiting = bench.ask("connect", 1, 5)
        for _ in range(1200):
            bench.robot.submit_job("disconnect", (1, 5), user="us", source="CLI")
        assert len(bench.robot.queue) == 1201
        bench.robot.enable_jobs()
        await bench.clock.advance(1201 * MOVE_S)
        assert bench.robot.queue == ()
        bench.ask("disconnect", 1, 5)
        assert len(bench.robot._jobs) <= 1001
        with pytest.raises(KeyError):
            bench.robot.find_job(waiting.number)

    story(tell)


# -- the control socket


def test_another_users_job_is_queued_and_seen():
    async def tell(bench):
        verbs = bench.robot.make_verbs()
        job = verbs["queue_job"](Request({"kind": "connect", "pair": [1, 5], "user": "gui"}))["job"]
        assert (job["number"], job["user"], job["source"], job["pair"]) == (1, "gui", "GUI", (1, 5))
        await bench.clock.advance(0.0)
        truth = verbs["robot"](Request({}))
        assert [job["state"] for job in truth["queue"]] == ["running"]
        assert (truth["jammed"], truth["homing"], truth["enabled"]) == (False, False, True)
        with pytest.raises(VerbError, match="connect or disconnect"):
            verbs["queue_job"](Request({"kind": "swap", "pair": [1, 5]}))

    story(tell)


def test_a_jam_that_is_cleared_fails_its_job_and_the_arm_goes_on():
    async def tell(bench):
        jam = bench.robot.list_faults()["jam"]
        jam.set_action(Request({}))
        bench.ask("connect", 1, 5)
        bench.ask("connect", 2, 6)
        await bench.clock.advance(10 * MOVE_S)
        assert bench.robot.is_jammed
        jam.clear_action(Request({}))
        await bench.clock.advance(MOVE_S)
        assert (bench.states(), bench.connections) == (["failed", "done"], {2: 6})

    story(tell)


def test_a_jam_that_has_not_happened_is_called_off():
    async def tell(bench):
        jam = bench.robot.list_faults()["jam"]
        jam.set_action(Request({"count": 1}))
        jam.clear_action(Request({}))
        for number in (1, 2, 3):
            bench.ask("connect", number, 4 + number)
        await bench.clock.advance(3 * MOVE_S)
        assert bench.states() == ["done"] * 3

    story(tell)


# -- whatever happens

jobs = st.tuples(st.sampled_from(["connect", "connect", "disconnect"]), st.integers(1, 4), st.integers(5, 8))
steps = st.one_of(
    jobs,
    jobs,
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, MOVE_S, 3 * MOVE_S])),
    st.tuples(st.just("wait"), st.just(MOVE_S)),
    st.tuples(st.just("jam"), st.integers(0, 1)),
    st.tuples(st.sampled_from(["home", "enable", "enable", "power", "unjam"]), st.none()),
    st.tuples(st.just("edit"), st.integers(1, 2 * SIZE)),
)


async def perform(bench, step):
    robot = bench.robot
    match step:
        case ("wait", seconds):
            await bench.clock.advance(seconds)
        case ("jam", count):
            robot.jam_after_moves(count)
        case ("home", _):
            robot.start_homing()
        case ("enable", _):
            robot.enable_jobs()
        case ("unjam", _):
            robot.list_faults()["jam"].clear_action(Request({}))
        case ("power", _):
            bench.device.power_off()
            bench.device.boot()
        case ("edit", port):
            bench.device.change_connections(bench.device.matrix.plan_port_removal([port]))
        case (kind, source, output):
            bench.ask(kind, source, output)


class Watch:
    """Follows every job by what the robot says, and holds it to the order of things."""

    FOLLOWS = {
        "queued": [None],
        "running": ["queued"],
        "done": ["running"],
        "jammed": ["running"],
        "skipped": ["queued"],
        "failed": ["queued", "running", "jammed"],
    }

    def __init__(self, bench):
        self.bench = bench
        self.last = {}
        self.begun = []
        self.seen = Counter()
        bench.robot.add_listener(self.hear)

    def hear(self, event, job):
        self.seen[event] += 1
        if job is None:
            return
        assert self.last.get(job.number) in self.FOLLOWS[event], (event, job)
        self.last[job.number] = event
        if event == "running":
            self.begun.append(job.number)
            assert [number for number, state in self.last.items() if state == "running"] == [job.number]
        if event in ("done", "skipped"):
            there = job.pair in self.bench.connections.items()
            assert there == (job.kind == "connect")

    def check(self):
        robot, device = self.bench.robot, self.bench.device
        waiting = [number for number, event in self.last.items() if event == "queued"]
        assert [job.number for job in robot.queue if job.state == "queued"] == waiting
        assert (robot.running_job is None) or self.last[robot.running_job.number] in ("running", "jammed")
        assert device.lit_connections.items() <= device.matrix.connections.items()
        if robot.running_job is not None:
            assert robot.running_job.pair[0] not in device.lit_connections
        elif not robot._gripped_inputs:
            assert device.lit_connections == device.matrix.connections
        assert self.begun == sorted(self.begun)


@pytest.mark.long
def test_jobs_take_their_turns_and_light_tells_the_truth_whatever_happens():
    seen = Counter()

    @settings(max_examples=300)
    @given(st.sampled_from([None, 0, 1]), st.lists(steps, min_size=6, max_size=30))
    def check(jam_after, plan):
        async def tell(bench):
            watch = Watch(bench)
            bench.robot.jam_after_moves(jam_after)
            for step in [*plan, ("wait", MOVE_S)]:
                await perform(bench, step)
                await bench.clock.advance(0.0)
                watch.check()
            bench.robot.list_faults()["jam"].clear_action(Request({}))
            await bench.clock.advance(HOMING_S + MOVE_S * len(plan))
            bench.robot.enable_jobs()
            await bench.clock.advance(MOVE_S * len(plan) + 1.0)
            assert bench.robot.queue == ()
            watch.check()
            seen.update(watch.seen)

        story(tell)

    check()
    assert min(seen[event] for event in (*Watch.FOLLOWS, "homed", "enabled")) >= 20, seen
