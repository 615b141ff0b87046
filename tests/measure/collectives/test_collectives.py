"""One launch followed line by line: what becomes a timing, and what becomes which error. Ranks are scripted."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.design.collectives.exchange import compute_exchange_limit_mbps, compute_exchange_loads
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.strides import list_rings
from testbed.errors import CollectiveError, CollectiveTimeout, HostError, WrongResult
from testbed.lab.hosts.launch import CommandResult
from testbed.lab.inventory import load_lab
from testbed.measure.collectives import ranks as ranks_module
from testbed.measure.collectives.rank_reports import RankReports
from testbed.measure.collectives.rows import find_misplaced_traffic, yield_nic_bytes
from testbed.measure.collectives.spec import (
    CollectiveSpec,
    Configuration,
    list_doubling_sizes,
    make_all_to_all,
)

TOPOLOGY = find_topology(12, 4)
WIRING = make_wiring(TOPOLOGY)
ROUTES = find_routes(WIRING)
RINGS = list_rings(TOPOLOGY)
MIB = 1 << 20
ONE = Configuration("one ring", RINGS[:1], (MIB, 8 * MIB))
FOUR = Configuration("four rings", RINGS, (8 * MIB,))
SPEC = CollectiveSpec("run", "all", (ONE, FOUR))
VERSIONS = {"torch": "2.13.0", "host_python": "3.11", "host_system": "Linux"}


@cache
def lab12():
    return load_lab(Path(__file__).parents[3] / "labs" / "testbed12.yaml")


def names():
    return [host.name for host in lab12().hosts]


class Clock:
    """Seconds that pass only while somebody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class ScriptedLaunch:
    """A `Launch` whose hosts say what `answer(host, heard)` gives, `heard` being `start`, `job`, `end` or `time`.

    `time` is asked once, when the deadline of the guards passes. A guard's line ends a host; those in `mute`
    say nothing any more.
    """

    def __init__(self, clock, deadline_s, hosts, answer, mute=()):
        self.clock, self.answer, self.mute = clock, answer, set(mute)
        self.alive = dict.fromkeys(hosts)
        self.deadline = clock.now + deadline_s
        self.queue, self.sent, self.closed = [], [], False
        self.tell("start")

    def tell(self, heard):
        for host in self.alive:
            if host in self.mute or any(who == host and '"guard"' in line for who, line in self.queue):
                continue
            for message in self.answer(host, heard):
                self.queue.append((host, message if isinstance(message, str) else json.dumps(message)))

    @property
    def running(self):
        return tuple(self.alive)

    def read_lines(self, timeout_s):
        until = self.clock.now + timeout_s
        while True:
            while self.queue:
                host, line = self.queue.pop(0)
                if '"guard"' in line:
                    self.alive.pop(host, None)
                yield host, line
            if not self.alive or self.clock.now >= until:
                return
            self.clock.now = min(until, self.deadline) if self.clock.now < self.deadline else until
            if self.clock.now == self.deadline:
                self.tell("time")

    def send(self, text, host=None):
        self.sent.append(text)
        self.tell("job")

    def close_input(self):
        if not self.closed:
            self.closed = True
            self.tell("end")

    def wait(self, timeout_s):
        for _ in self.read_lines(timeout_s):
            pass
        if self.alive:
            raise HostError("some still run")
        return {host: CommandResult(host, 1, "", f"Traceback\nlast words of {host}\n") for host in names()}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close_input()
        for _ in self.read_lines(1):
            pass


class ScriptedFleet:
    """A `Fleet` that notes what is copied and started."""

    hosts = lab12().hosts

    def __init__(self, clock, answer, deadline_s, mute=()):
        self.clock, self.answer, self.deadline_s, self.mute = clock, answer, deadline_s, mute

    def put(self, files):
        self.files = files
        return "private/dir"

    def start(self, commands):
        self.commands = commands
        self.launch = ScriptedLaunch(self.clock, self.deadline_s, commands, self.answer, self.mute)
        return self.launch


def ready(host, gpus=0):
    port = 40123 if host == "a" else None
    message = {"event": "ready", "rank": names().index(host), "gpus": gpus, "processor_s": 1.5}
    return message | {"store_port": port, "versions": VERSIONS}


def guard(reason="exit", status=0, dark=()):
    return {"event": "guard", "reason": reason, "status": status, "seconds": 1.0, "dark_nics": list(dark)}


def at(size=MIB, configuration="one ring"):
    return {"event": "at", "configuration": configuration, "size": size}


DONE = {"event": "done", "processor_s": 0.5}
QUIET = {"processor_busy": 0.5, "processor_busiest": 0.6, "processor_stolen": 0.0, "processor_waited": 0.02}


def row(configuration, size, **changes):
    """Return the row of an AllReduce that fills its links to 99 % and puts every byte where it belongs."""
    ring = next(c for c in SPEC.configurations if c.name == configuration)
    rings = len(ring.rings)
    time_us = size * 8 / (99 * rings) * 22 / 12
    payload = 22 / 12 * size / rings * 3
    used = {link.source for r in ring.rings for link in links_of(r)}
    sent = [
        {
            nic.name: round(payload * 1.005) if (node, index) in used else 900
            for index, nic in enumerate(host.nics)
        }
        for node, host in enumerate(lab12().hosts)
    ]
    whole = {
        "event": "row",
        "configuration": configuration,
        "size": size,
        "iterations": 3,
        "time_us": time_us,
    }
    whole |= {"min_us": time_us * 0.9, "max_us": time_us * 1.1, "wrong": [0] * 12, "sent_bytes": sent}
    whole |= {"retransmitted_bytes": [[]] * 12, "seen": []}
    whole |= {"low_us": time_us * 0.98, "high_us": time_us * 1.02, "processor_s": 0.25}
    return whole | QUIET | changes


def links_of(ring):
    """Return the link from each node of a ring to the next, in a wiring that joins them directly."""
    after = {node: (node + ring.stride) % 12 for node in ring.order}
    return [link for link in WIRING.links if after[link.source.node] == link.target.node]


ROWS = [row("one ring", MIB), row("one ring", 8 * MIB), row("four rings", 8 * MIB)]


def healthy(host, heard):
    if heard == "start":
        return [ready(host)]
    if heard == "job":
        return [at(), *(ROWS if host == "a" else []), DONE, guard()]
    return [guard("input_closed", -9)]


@pytest.fixture
def run(monkeypatch):
    """Run a launch whose ranks answer so; gives result and fleet. The clock is the test's."""
    clock = Clock()
    monkeypatch.setattr(ranks_module, "time", clock)

    def launch(answer, *, spec=SPEC, deadline_s=60.0, mute=(), **keywords):
        launch.fleet = ScriptedFleet(clock, answer, deadline_s, mute)
        launch.began = clock.now
        try:
            return ranks_module.run_collectives(
                launch.fleet, lab12(), WIRING, ROUTES, spec, deadline_s=deadline_s, **keywords
            )
        finally:
            launch.seconds = clock.now - launch.began

    return launch


# ----------------------------------------------------------------------------------------- all goes well
def test_rows_become_timings_and_bytes(run):
    result = run(healthy)
    assert [(t.configuration, t.rings, t.size_bytes) for t in result.timings] == [
        ("one ring", 1, MIB),
        ("one ring", 1, 8 * MIB),
        ("four rings", 4, 8 * MIB),
    ]
    for timing in result.timings:
        assert timing.limit_mbps == pytest.approx(100 * timing.rings)
        assert timing.busbw_mbps == pytest.approx(99 * timing.rings)
        assert timing.algbw_mbps == pytest.approx(99 * timing.rings * 12 / 22)
        assert (timing.ranks, timing.iterations, timing.wrong) == (12, 3, 0)
        assert (timing.run_id, timing.topology, timing.collective) == ("run", "all", "all_reduce")
        assert timing.simulated
        assert not timing.cpu_limited
        assert (timing.low_us, timing.high_us) == pytest.approx(
            (timing.time_us * 0.98, timing.time_us * 1.02)
        )
        assert timing.processor_s == 0.25
    assert result.processor_s == pytest.approx(12 * (1.5 + 0.5))
    assert result.versions == {**VERSIONS, "collective_backend": "gloo"}
    assert find_misplaced_traffic(result.nic_bytes) == ()


def test_a_ring_is_expected_on_its_twelve_links_and_nowhere_else(run):
    result = run(healthy)
    expected = {(e.configuration, e.size_bytes, e.host, e.nic): e.expected_bytes for e in result.nic_bytes}
    sources = {lab12().nic_label(link.source) for link in links_of(RINGS[0])}
    assert len(sources) == 12
    for (configuration, size, host, nic), value in expected.items():
        if configuration == "four rings":
            assert value == pytest.approx(22 / 12 * 8 * MIB / 4 * 3)
        else:
            share = 22 / 12 * size * 3 if f"{host}/{nic}" in sources else 0
            assert value == pytest.approx(share)
    assert len(expected) == 3 * 48


def test_every_rank_gets_the_same_job_only_when_all_are_ready(run):
    run(healthy)
    (line,) = run.fleet.launch.sent
    job = json.loads(line)
    assert line.endswith("\n")
    assert job["store"] == "10.99.0.11:40123"
    assert job["addresses"][:2] == ["10.100.1.100", "10.100.2.100"]
    assert job["nics"] == [["nic1", "nic2", "nic3", "nic4"]] * 12
    assert job["backend"] == "gloo"
    assert (job["nodes"], job["min_time_s"], job["min_iterations"], job["max_iterations"]) == (12, 0.5, 5, 20)
    assert (job["max_time_s"], job["more"]) == (8.0, False)
    one, four = job["configurations"]
    assert one == {"name": "one ring", "sizes": [MIB, 8 * MIB], "rings": [list(RINGS[0].order)]}
    steps = [(ring[1] - ring[0]) % 12 for ring in four["rings"]]
    assert steps == [1, 5, 7, 11]
    for ring, step in zip(four["rings"], steps, strict=True):
        assert all(ring[(i * pow(step, -1, 12)) % 12] == i for i in range(12))


def test_each_rank_runs_under_a_guard_that_knows_deadline_and_nics(run):
    run(healthy, deadline_s=7.5)
    assert list(run.fleet.commands) == names()
    words = run.fleet.commands["c"].split()
    before, after = words[: words.index("--")], words[words.index("--") + 1 :]
    assert before[2] == "private/dir/guard.py"
    assert before[before.index("--deadline") + 1] == "7.5"
    assert [nic for flag, nic in itertools.pairwise(before) if flag == "--nic"] == [
        "nic1",
        "nic2",
        "nic3",
        "nic4",
    ]
    assert after[-2:] == ["private/dir/collective.py", "2"]
    assert set(run.fleet.files) == {"guard.py", "collective.py", "watch.py"}


def test_progress_is_told_row_by_row(run):
    told = []
    run(healthy, on_progress=lambda *words: told.append(words))
    assert told == [
        (1, 3, f"all, one ring, {MIB} B"),
        (2, 3, f"all, one ring, {8 * MIB} B"),
        (3, 3, f"all, four rings, {8 * MIB} B"),
    ]


def test_lines_that_are_no_messages_are_passed_over(run):
    def chatty(host, heard):
        return ["warning: so what", "[1, 2]", "{}", "", *healthy(host, heard)]

    assert len(run(chatty).timings) == 3


@pytest.mark.parametrize(
    ("processors", "share", "limited"),
    [
        ({}, 0.5, False),
        ({"processor_busy": 0.9}, 0.5, True),
        ({"processor_busy": 0.9}, 0.95, False),
        # One of two processors is busy with something else, and the hosts wait for the other.
        ({"processor_busy": 0.7, "processor_busiest": 1.0, "processor_waited": 0.3}, 0.85, True),
        ({"processor_busy": 0.7, "processor_busiest": 1.0, "processor_waited": 0.3}, 0.92, False),
        # The same processor is busy and nobody waits: the links, or the protocol, are what is slow.
        ({"processor_busy": 0.7, "processor_busiest": 1.0}, 0.85, False),
        ({"processor_busy": 0.4, "processor_stolen": 0.2}, 0.85, True),
    ],
)
def test_cpu_limited_is_a_lack_of_processors_and_links_that_are_not_full(run, processors, share, limited):
    slow = row("one ring", MIB, **processors)
    slow["time_us"] *= 0.99 / share

    def answer(host, heard):
        return [slow if message == ROWS[0] else message for message in healthy(host, heard)]

    assert run(answer).timings[0].cpu_limited is limited


# ---------------------------------------------------------------------------- ranks that stay for another job
@pytest.fixture
def keep(monkeypatch):
    """Return ranks that stay, which answer so; they have a fleet. The clock is the test's."""
    clock = Clock()
    monkeypatch.setattr(ranks_module, "time", clock)

    def make(answer, deadline_s=60.0):
        fleet = ScriptedFleet(clock, answer, deadline_s)
        ranks = ranks_module.Ranks(fleet, lab12(), deadline_s)
        ranks.fleet, ranks.clock = fleet, clock
        return ranks

    return make


def staying(host, heard):
    """Return a rank that is ready for the next job as soon as one is done; only the first start costs."""
    if heard == "job":
        return [*(ROWS if host == "a" else []), DONE, ready(host) | {"processor_s": 0.0}]
    return healthy(host, heard)


def measure(ranks, **keywords):
    return ranks.measure(WIRING, ROUTES, SPEC, **keywords)


def test_ranks_that_stay_are_started_once(keep):
    with keep(staying) as ranks:
        first, second = measure(ranks), measure(ranks)
        launch = ranks.fleet.launch
        assert not launch.closed
    assert launch.closed
    assert [json.loads(line)["more"] for line in launch.sent] == [True, True]
    assert [timing.busbw_mbps for timing in first.timings] == [t.busbw_mbps for t in second.timings]
    assert (first.processor_s, second.processor_s) == pytest.approx((12 * 2.0, 12 * 0.5))
    assert "--renew" in ranks.fleet.commands["c"].split()


def test_ranks_whose_deadline_passed_between_two_jobs_are_started_again(keep):
    def answer(host, heard):
        return [guard("deadline", -9)] if heard == "time" else staying(host, heard)

    with keep(answer, deadline_s=20) as ranks:
        measure(ranks)
        first = ranks.fleet.launch
        for _ in first.read_lines(30):
            pass
        assert first.running == ()
        assert len(measure(ranks).timings) == 3
        assert ranks.fleet.launch is not first


def test_a_rank_that_is_lost_in_the_second_job_is_named_and_all_are_ended(keep):
    jobs = []

    def answer(host, heard):
        jobs.append(heard == "job" and host == "f")
        if heard == "job" and host == "f" and sum(jobs) == 2:
            return [at(), {"event": "error", "rank": 5, "message": "Connection reset"}, guard(status=1)]
        return staying(host, heard)

    with keep(answer) as ranks:
        measure(ranks)
        with pytest.raises(CollectiveError, match=r"rank 5 \(f, .*: Connection reset"):
            measure(ranks)
        assert ranks.fleet.launch.closed


# ------------------------------------------------------------------------------------------ not all ready
def test_a_rank_that_does_not_start_is_named_and_nobody_runs(run):
    def answer(host, heard):
        return [guard(status=1)] if (host, heard) == ("d", "start") else healthy(host, heard)

    with pytest.raises(CollectiveError, match=r"1 of 12 ranks .* so none ran: rank 3 \(d\): last words of d"):
        run(answer)
    assert run.fleet.launch.sent == []
    assert run.fleet.launch.running == ()
    assert run.seconds < 2


def test_a_rank_that_is_never_ready_is_named_by_the_deadline(run):
    def answer(host, heard):
        if host == "e" and heard == "start":
            return []
        return [guard("deadline", -9)] if heard == "time" else healthy(host, heard)

    with pytest.raises(CollectiveError) as caught:
        run(answer, deadline_s=20)
    assert "rank 4 (e" in str(caught.value)
    assert run.fleet.launch.sent == []
    assert run.seconds <= 22


# -------------------------------------------------------------------------------------- failures on the way
def stalled(dark):
    """Return ranks that stop in the first size, until their guards end them at the deadline."""

    def answer(host, heard):
        if heard == "start":
            return [ready(host)]
        if heard == "job":
            return [at()]
        return [guard("deadline" if heard == "time" else "input_closed", -9, dark.get(host, ()))]

    return answer


def test_a_dark_link_is_named_with_the_rank_that_has_no_light(run):
    link = WIRING.links[5]
    host, nic = lab12().nic_label(link.target).split("/")
    with pytest.raises(CollectiveTimeout) as caught:
        run(stalled({host: [nic]}))
    message = str(caught.value)
    assert (
        f"rank {link.target.node} ({host}, at one ring, {MIB} B) has no light on {lab12().link_label(link)}"
        in message
    )
    assert message.count("has no light") == 1
    assert run.seconds <= 62
    assert run.fleet.launch.running == ()


def test_many_dark_links_are_not_all_listed(run):
    every = [nic.name for nic in lab12().hosts[0].nics]
    with pytest.raises(CollectiveTimeout, match="and 44 more"):
        run(stalled(dict.fromkeys(names(), every)))


def test_a_stall_with_light_everywhere_names_the_ranks_that_did_not_finish(run):
    silent = stalled({})

    def answer(host, heard):
        return healthy(host, heard) if host in "abcdefghij" else silent(host, heard)

    with pytest.raises(CollectiveTimeout) as caught:
        run(answer, deadline_s=30)
    message = str(caught.value)
    assert f"within 30 s: rank 10 (k, at one ring, {MIB} B), rank 11 (l, at one ring, {MIB} B) " in message
    assert run.seconds <= 32


def test_a_killed_rank_is_the_culprit_not_those_who_noticed(run):
    def answer(host, heard):
        if heard != "job":
            return healthy(host, heard)
        if host == "g":
            return [at(), guard(status=-9)]
        return [at(), {"event": "error", "rank": 0, "message": "Connection closed by peer"}, guard(status=1)]

    with pytest.raises(CollectiveError, match=r"rank 6 \(g, .*\) was ended by signal 9") as caught:
        run(answer)
    assert not isinstance(caught.value, CollectiveTimeout)
    assert run.seconds < 5


@pytest.mark.parametrize(("status", "failed"), [(0, False), (1, True), (-9, True)])
def test_a_rank_has_failed_when_it_gave_up_and_when_it_was_killed(status, failed):
    """Then the others wait in vain; some never notice."""
    said = RankReports()
    said.store_event("g", json.dumps(guard(status=status)))
    assert said.has_failed is failed


def test_a_rank_that_fails_ends_the_others_at_once(run):
    def answer(host, heard):
        if heard != "job":
            return healthy(host, heard)
        return [at(), *([{"event": "error", "message": "no such device"}] if host == "b" else [])]

    with pytest.raises(CollectiveError, match=r"rank 1 \(b, at one ring, 1048576 B\): no such device"):
        run(answer)
    assert run.fleet.launch.closed
    assert run.seconds < 5


def test_a_host_that_falls_silent_is_said_to_be_unconfirmed(run):
    def answer(host, heard):
        if heard == "job" and host == "c":
            run.fleet.launch.mute.add("c")
            return []
        return stalled({})(host, heard)

    with pytest.raises(CollectiveTimeout, match=r"not confirmed by c$"):
        run(answer)


def test_wrong_elements_are_counted_by_rank_and_host(run):
    bad = row("one ring", 8 * MIB, wrong=[0] * 7 + [3, 0, 0, 1, 0])

    def answer(host, heard):
        return [bad if message == ROWS[1] else message for message in healthy(host, heard)]

    with pytest.raises(WrongResult, match=r"one ring, 8388608 B: .* 3 on rank 7 \(h\), 1 on rank 10 \(k\)"):
        run(answer)


# --------------------------------------------------------------------------------------------- backends
@pytest.mark.parametrize(
    ("asked", "gpus", "used"),
    [("auto", 1, "nccl"), ("auto", 0, "gloo"), ("gloo", 1, "gloo"), ("nccl", 1, "nccl")],
)
def test_the_backend_follows_what_all_hosts_have(run, asked, gpus, used):
    def answer(host, heard):
        return [ready(host, gpus)] if heard == "start" else healthy(host, heard)

    result = run(answer, spec=replace(SPEC, backend=asked))
    assert json.loads(run.fleet.launch.sent[0])["backend"] == used
    assert result.versions["collective_backend"] == used


def test_nccl_without_a_gpu_somewhere_names_the_hosts(run):
    def answer(host, heard):
        return [ready(host, gpus=0 if host in "bk" else 1)] if heard == "start" else healthy(host, heard)

    with pytest.raises(CollectiveError, match="no GPU that torch can use on b, k"):
        run(answer, spec=replace(SPEC, backend="nccl"))
    assert run.fleet.launch.sent == []
    assert run.fleet.launch.running == ()


# -------------------------------------------------------------------------------------------- exchanges
EXCHANGES = replace(SPEC, configurations=(make_all_to_all("all", 12, (11 * MIB,)),))


def exchange_row():
    """Return every link carries what its routes put on it, in four iterations of 1.5 s."""
    sent = [dict.fromkeys((nic.name for nic in host.nics), 0) for host in lab12().hosts]
    for link, share in compute_exchange_loads(ROUTES, EXCHANGES.configurations[0].pairs).items():
        sent[link.source.node][lab12().get_nic(link.source).name] = round(share * 11 * MIB * 4 * 1.004)
    return row("one ring", MIB) | {
        "configuration": "all",
        "size": 11 * MIB,
        "iterations": 4,
        "time_us": 1.5e6,
        "sent_bytes": sent,
    }


def exchanging(host, heard):
    if heard == "start":
        return [ready(host, gpus=1)]
    return [*([exchange_row()] if host == "a" else []), DONE, guard()]


def test_an_all_to_all_is_measured_and_proven_by_the_bytes_of_its_routes(run):
    result = run(exchanging, spec=EXCHANGES)
    (timing,) = result.timings
    assert (timing.collective, timing.ranks, timing.rings) == ("all_to_all", 12, 0)
    assert timing.busbw_mbps == timing.algbw_mbps == pytest.approx(11 * MIB * 8 / 1.5e6)
    assert timing.limit_mbps == compute_exchange_limit_mbps(ROUTES, EXCHANGES.configurations[0].pairs, 100)
    assert find_misplaced_traffic(result.nic_bytes) == ()
    hops = sum(ROUTES.count_hops(s, t) for s in range(12) for t in range(12) if s != t)
    assert sum(entry.expected_bytes for entry in result.nic_bytes) == pytest.approx(hops * MIB * 4)
    assert json.loads(run.fleet.launch.sent[0])["backend"] == "gloo", "although all have GPUs"


def test_nccl_does_not_exchange(run):
    with pytest.raises(
        CollectiveError, match=r"all: transfers between pairs are measured with .* 'gloo' only"
    ):
        run(exchanging, spec=replace(EXCHANGES, backend="nccl"))


# ----------------------------------------------------------------------------------- the proof by counters
def nic_bytes(run):
    return run(healthy).nic_bytes


def test_sorted_ranks_would_be_found(run):
    """All four rings on the links of stride 1: what happens when process groups sort their ranks."""
    entries = [entry for entry in nic_bytes(run) if entry.configuration == "four rings"]
    first = {lab12().nic_label(link.source) for link in links_of(RINGS[0])}
    wrong = [
        replace(
            entry, sent_bytes=int(entry.expected_bytes * 4) if f"{entry.host}/{entry.nic}" in first else 0
        )
        for entry in entries
    ]
    assert len(find_misplaced_traffic(wrong)) == 48


@pytest.mark.slow
@given(st.data())
def test_bytes_on_another_nic_are_found(data):
    """One ring; the bytes of one of its NICs went out by another NIC of the same host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "time", Clock())
        fleet = ScriptedFleet(ranks_module.time, healthy, 60)
        entries = ranks_module.run_collectives(fleet, lab12(), WIRING, ROUTES, SPEC).nic_bytes
    entries = [entry for entry in entries if (entry.configuration, entry.size_bytes) == ("one ring", 8 * MIB)]
    host = data.draw(st.sampled_from(names()))
    busy = next(entry for entry in entries if entry.host == host and entry.expected_bytes)
    idle = data.draw(st.sampled_from([e for e in entries if e.host == host and not e.expected_bytes]))
    share = data.draw(st.floats(0.06, 1))
    moved = int(busy.sent_bytes * share)
    changed = [
        replace(e, sent_bytes=e.sent_bytes + (moved if e is idle else -moved if e is busy else 0))
        for e in entries
    ]
    assert {(e.host, e.nic) for e in find_misplaced_traffic(changed)} == {(host, busy.nic), (host, idle.nic)}


@pytest.mark.parametrize(
    ("share", "again", "found"),
    [(1.068, 0, 0), (1.2, 0, 1), (1.2, 0.12, 0), (1.4, 0.3, 0), (1.5, 0.3, 1), (0.96, 0, 0), (0.94, 0.3, 1)],
)
def test_what_tcp_sends_again_is_no_proof_of_another_way(run, share, again, found):
    entries = [entry for entry in nic_bytes(run) if entry.configuration == "one ring"]
    busy = max(entries, key=lambda entry: entry.expected_bytes)
    sent, resent = int(busy.expected_bytes * share), int(busy.expected_bytes * again)
    changed = [replace(e, sent_bytes=sent, retransmitted_bytes=resent) if e is busy else e for e in entries]
    assert len(find_misplaced_traffic(changed)) == found


def test_bytes_sent_again_count_on_each_link_of_their_way():
    hop = next(pair for pair in ROUTES.first_link if len(ROUTES.path(*pair)) == 2)
    again = [[] for _ in lab12().hosts]
    again[hop[0]] = [(str(lab12().hosts[hop[1]].address), 700), (str(lab12().hosts[0].management), 99)]
    entries = yield_nic_bytes(lab12(), WIRING, ROUTES, SPEC, row("one ring", MIB, retransmitted_bytes=again))
    links = {lab12().nic_label(link.source) for link in ROUTES.path(*hop)}
    assert {
        f"{e.host}/{e.nic}": e.retransmitted_bytes for e in entries if e.retransmitted_bytes
    } == dict.fromkeys(links, 700)


def test_small_sizes_prove_nothing_and_are_not_judged(run):
    small = [replace(entry, size_bytes=1024, sent_bytes=10**9) for entry in nic_bytes(run)]
    assert find_misplaced_traffic(small) == ()


# ------------------------------------------------------------------------------------------------- sizes
@given(st.integers(0, 20), st.integers(0, 20))
def test_sizes_double_from_the_smallest_to_the_largest(low, steps):
    sizes = list_doubling_sizes(4 << low, 4 << low << steps)
    assert sizes == tuple(4 << low << k for k in range(steps + 1))
