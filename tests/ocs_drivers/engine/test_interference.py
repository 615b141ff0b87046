"""Events between a plan and its end: another controller, a cut line, a guard that changes its mind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from schemes import SCHEMES

from ocs_drivers import CrossConnects, Status
from ocs_drivers.errors import Conflict, ConnectionLost, PartialApply, PortBusy
from ocs_drivers.model import Step

SIZE = 8
CONTROLLED = (
    "polatis+scpi",
    "polatis+tl1",
    "polatis+rest",
    "calient+tl1",
    "calient+rest",
    "glimmerglass+tl1",
)
NAME_ONE_END = ["polatis+tl1", "polatis+rest"]
"""Their commands to remove a circuit name its input, whatever that is connected to."""


@pytest.fixture
def bench(world, open_in_memory) -> Callable[..., tuple[Any, Any]]:
    """Make a twin and an open driver on virtual time: `bench("calient+tl1", switch_time_s=3.0, moving="UMA")`."""

    def make(scheme: str, *, switch_time_s: float = 0.01, **options: str) -> tuple[Any, Any]:
        if scheme.endswith("rest"):
            pytest.importorskip("h11")
        family, front = SCHEMES[scheme]
        made = world(family, size=(SIZE, SIZE), settings={"switch_time_s": switch_time_s}, **options)
        return made, open_in_memory(made, scheme, front)

    return make


def stale_removal(made: Any, switch: Any) -> Step:
    """Return a step that removes 1->9, planned before somebody else moved input 1 to output 12."""
    switch.connect({1: 9})
    (step,) = switch.plan(CrossConnects(), switch.read(), [1])
    made.do("operator", disconnect=[1], connect=[[1, 12]])
    return step


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Return a guard that does something before the first write."""
    done: list[object] = []
    return lambda: done or done.append(act())


# -- two controllers


@pytest.mark.parametrize("scheme", NAME_ONE_END)
@pytest.mark.parametrize("cut", [False, True])
def test_a_removal_takes_down_the_circuit_that_was_planned_and_no_other(bench, scheme, cut):
    made, switch = bench(scheme)
    step = stale_removal(made, switch)
    if cut:
        made.do("set_fault", fault="close_connection")
    for _ in range(2):  # nor does trying again wear the check out
        with pytest.raises(Conflict) as caught:
            switch.execute(step)
        assert caught.value.actual == CrossConnects({1: 12})
    assert made.truth() == {1: 12}


@pytest.mark.parametrize("scheme", CONTROLLED)
def test_a_line_that_was_down_meanwhile_hides_no_change(bench, scheme):
    made, switch = bench(scheme)
    switch.connect({1: 9})
    (step,) = switch.plan(CrossConnects(), switch.read(), [1])
    made.do("set_fault", fault="close_connection")
    made.do("operator", disconnect=[1], connect=[[1, 12]])
    with pytest.raises(Conflict):
        switch.execute(step)
    assert made.truth() == {1: 12}


@pytest.mark.parametrize("scheme", CONTROLLED)
def test_a_step_older_than_the_last_read_is_a_conflict(bench, scheme):
    made, switch = bench(scheme)
    step = stale_removal(made, switch)
    switch.read()
    with pytest.raises(Conflict):
        switch.execute(step)
    assert made.truth() == {1: 12}


def test_two_controllers_during_an_apply_over_rest(bench):
    """The second moves input 2 when the first has removed its circuit of input 1, and is about to go on."""
    made, switch = bench("polatis+rest")
    switch.connect({1: 9, 2: 10})
    asked: list[int] = []

    def elbow() -> None:
        asked.append(1)
        if len(asked) == 2:
            made.do("operator", disconnect=[2], connect=[[2, 12]])

    with pytest.raises(Conflict) as caught:
        switch.apply(CrossConnects(), scope={1, 2}, guard=elbow)
    assert caught.value.report.pairs == {(1, 9): Status.DONE, (2, 10): Status.FAILED}
    assert made.truth() == {2: 12}


def test_two_controllers_during_an_apply_over_tl1_after_a_reconnect(bench):
    """The second moves input 1 while the line of the first is down, between its read and its removal."""
    made, switch = bench("polatis+tl1")
    switch.connect({1: 9, 2: 10})
    read = switch._read

    def read_and_lose() -> Any:
        snapshot = read()
        if not meanwhile:
            meanwhile.append(made.do("set_fault", fault="close_connection"))
            made.do("operator", disconnect=[1], connect=[[1, 12]])
        return snapshot

    meanwhile: list[Any] = []
    switch._read = read_and_lose
    with pytest.raises(Conflict):
        switch.apply(CrossConnects({2: 11}), scope={1, 2})
    assert made.truth() == {1: 12, 2: 10}
    assert switch.apply(CrossConnects({2: 11}), scope={1, 2}).complete  # read again and planned again
    assert made.truth() == {2: 11}


@pytest.mark.parametrize(
    "scheme", ["calient+tl1", "glimmerglass+tl1"]
)  # over polatis+tl1 a removal looks anyway
def test_a_report_in_the_middle_of_a_read_is_news(bench, scheme):
    """The second moves input 1 when the first has heard what it is connected to, and reads on."""
    made, switch = bench(scheme)
    switch.connect({1: 9})
    read = switch._read

    def read_and_hear() -> Any:
        snapshot = read()
        if not meanwhile:
            meanwhile.append(made.do("operator", disconnect=[1], connect=[[1, 12]]))
            switch.ports()
        return snapshot

    meanwhile: list[Any] = []
    switch._read = read_and_hear
    (step,) = switch.plan(CrossConnects(), switch.read(), [1])
    with pytest.raises(Conflict):
        switch.execute(step)
    assert made.truth() == {1: 12}


@pytest.mark.parametrize("scheme", ["polatis+tl1", "calient+tl1", "glimmerglass+tl1"])
def test_a_break_between_two_questions_of_a_read_hides_no_change(bench, scheme, monkeypatch):
    made, switch = bench(scheme)
    switch.connect({1: 9})
    ask, asked = switch._session.ask, []

    def ask_and_lose(verb: str, *args: Any, **more: Any) -> Any:
        if verb.upper().startswith(("RTRV-PORT", "RTRV-CFG")) and not asked:
            asked.append(made.do("set_fault", fault="close_connection"))
            made.do("operator", disconnect=[1], connect=[[1, 12]])
        return ask(verb, *args, **more)

    monkeypatch.setattr(switch._session, "ask", ask_and_lose)
    assert switch.read().connections == CrossConnects({1: 12})
    assert asked


def test_a_read_that_had_to_reconnect_is_not_repeated_before_a_step(bench):
    made, switch = bench("glimmerglass+tl1")
    made.do("set_fault", fault="close_connection")
    (step,) = switch.plan(CrossConnects({1: 9}), switch.read())
    made.do("transcript", clear=True)
    switch.execute(step)
    entries = made.do("transcript")["entries"]
    received = [entry["data"].split(":")[0] for entry in entries if entry["direction"] == "in"]
    assert received == ["ent-crs-fiber", "rtrv-crs-fiber"]


class Stranger:
    """Another client at the TL1 port of a Calient, who knows nothing but bytes."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self._client = made.attach("tl1")
        assert "COMPLD" in self.say("ACT-USER::admin:1::admin;")

    def say(self, command: str) -> str:
        self._client.send(command.encode())
        self._made.advance(0.2)
        return self._client.receive().decode()

    def provision(self, source: str, target: str) -> None:
        assert "COMPLD" in self.say(f"ENT-CRS::{source},{target}:1::LAB,1WAY;")


@pytest.mark.parametrize("scheme", ["calient+tl1", "calient+rest"])
@pytest.mark.parametrize("scope", [{1}, None])
def test_what_a_stranger_provisions_during_an_apply_is_his(bench, scheme, scope):
    made, switch = bench(scheme)
    switch.connect({1: 9})
    stranger = Stranger(made)
    with pytest.raises(PortBusy, match=r"1\.1\.3>1\.1\.2 is provisioned") as caught:
        switch.apply(
            CrossConnects({1: 10}), scope=scope, guard=once(lambda: stranger.provision("1.1.3", "1.1.2"))
        )
    assert caught.value.peer == 3
    assert caught.value.report.pairs == {(1, 9): Status.DONE, (1, 10): Status.FAILED}
    assert "1.1.3>1.1.2" in stranger.say("RTRV-CRS:::2::ALL;")
    if scope is None:  # a new plan has seen it, and may clear it away
        assert switch.apply(CrossConnects({1: 10})).complete


@pytest.mark.parametrize("scheme", ["calient+tl1", "calient+rest"])
def test_a_circuit_that_became_two_way_is_not_half_removed(bench, scheme):
    made, switch = bench(scheme)
    switch.connect({1: 10})
    (step,) = switch.plan(CrossConnects(), switch.read(), [1])
    stranger = Stranger(made)
    for command in ("CANC-CRS:::1::1.1.1>1.1.2;", "DLT-CRS:::2::1.1.1>1.1.2;"):
        stranger.say(command)
    stranger.say("ENT-CRS::1.1.1,1.1.2:3::LAB,2WAY;")
    stranger.say("ACT-CRS::1.1.1,1.1.2:4::1.1.1-1.1.2,LAB;")
    assert switch.read().connections == CrossConnects({1: 10, 2: 9})
    with pytest.raises(Conflict):
        switch.execute(step)
    assert made.truth() == {1: 10, 2: 9}


# -- a cut line


def cut_after(made: Any, seconds: float) -> None:
    """Break every connection once so much virtual time has passed."""
    from sim.twins.wire.control import answer_request

    async def cut() -> None:
        await made.virtual.sleep(seconds)
        await answer_request(
            made.twin.make_verbs(), json.dumps({"do": "set_fault", "fault": "close_connection"}).encode()
        )

    made.cutting = made.run(made._made(lambda: made.loop.create_task(cut())))


@pytest.mark.parametrize(
    ("scheme", "switch_time_s", "options"),
    [
        ("polatis+scpi", 0.4, {}),
        ("polatis+tl1", 0.4, {}),
        ("polatis+rest", 0.4, {}),
        ("calient+tl1", 3.0, {}),
        ("calient+tl1", 3.0, {"moving": "UMA"}),
        ("calient+rest", 3.0, {}),
        ("calient+rest", 3.0, {"moving": "UMA"}),
        ("glimmerglass+tl1", 3.0, {}),
    ],
)
def test_a_line_cut_while_mirrors_move_makes_nothing_done_before_its_time(
    bench, scheme, switch_time_s, options
):
    made, switch = bench(scheme, switch_time_s=switch_time_s, **options)
    report = switch.apply(CrossConnects({1: 10}), scope={1}, guard=once(lambda: cut_after(made, 0.1)))
    assert made.do("truth")["lit"] == [[1, 10]]
    assert made.cutting.done()
    assert report.pairs == {(1, 10): Status.DONE}


@pytest.mark.parametrize("scheme", ["calient+rest", "glimmerglass+tl1"])
def test_a_move_that_outlasts_all_patience_after_a_cut_is_unknown(bench, scheme):
    """It is not called failed: it may still be made."""
    made, switch = bench(scheme, switch_time_s=60.0)
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 10}), scope={1}, guard=once(lambda: cut_after(made, 0.1)))
    assert caught.value.report.pairs == {(1, 10): Status.UNKNOWN}
    made.advance(60)
    assert made.do("truth")["lit"] == [[1, 10]]


@pytest.mark.parametrize("scheme", ["calient+tl1", "calient+rest", "glimmerglass+tl1"])
def test_a_command_that_was_never_received_is_not_awaited_for_long(bench, scheme):
    made, switch = bench(scheme)
    began_s = made.clock.now()
    with pytest.raises(PartialApply) as caught:
        switch.apply(
            CrossConnects({1: 10}),
            scope={1},
            guard=once(
                lambda: made.do("set_fault", fault="close_connection", after_commands=1, executed=False)
            ),
        )
    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert caught.value.report.pairs == {(1, 10): Status.FAILED}
    assert made.clock.now() - began_s < 2
    assert made.truth() == {}


# -- a guard that changes its mind


class LeaseLost(Exception):
    pass


def test_a_guard_that_stops_a_step_half_way_leaves_a_report(bench):
    made, switch = bench("calient+tl1")
    asked: list[int] = []

    def guard() -> None:
        asked.append(1)
        if len(asked) == 2:  # between ENT-CRS and ACT-CRS
            raise LeaseLost("lease of ocs1 lost")

    with pytest.raises(PartialApply, match="lease of ocs1 lost") as caught:
        switch.apply(CrossConnects({1: 10, 2: 11}), scope={1, 2}, guard=guard)
    report = caught.value.report
    assert report.pairs == {(1, 10): Status.FAILED, (2, 11): Status.FAILED}
    assert isinstance(report.outcomes[0].error.__cause__, LeaseLost)
    assert [move.pair for move in report.read_back.pending] == [(1, 10)]  # provisioned, and told so
    assert made.truth() == {}


@pytest.mark.parametrize("scheme", CONTROLLED)
def test_a_guard_that_stops_a_step_before_its_first_byte_is_raised_as_it_is(bench, scheme):
    made, switch = bench(scheme)

    def guard() -> None:
        raise LeaseLost("lost")

    with pytest.raises(LeaseLost):
        switch.apply(CrossConnects({1: 10}), guard=guard)
    assert made.truth() == {}


# -- a robot's queue


@pytest.mark.parametrize(
    ("scheme", "family", "options"),
    [("rome+cli", "rome", {}), ("telescent+cli", "telescent", {"motion": "shown"})],
)
def test_nothing_to_do_is_not_reported_while_a_queue_will_undo_it(
    world, open_in_memory, scheme, family, options
):
    made = world(family, size=(SIZE, SIZE), **options)
    switch = open_in_memory(made, scheme, "cli")
    made.do("queue_job", kind="connect", pair=[1, 10], user="gui")
    for attempt in (lambda: switch.disconnect([1]), lambda: switch.apply(CrossConnects())):
        with pytest.raises(Conflict, match="a request to connect 1-10 is waiting in the device's queue"):
            attempt()
    assert switch.apply(CrossConnects(), scope=[2]).complete
    made.advance(1000.0)
    assert made.truth() == {1: 10}
    switch.disconnect([1])
    assert made.truth() == {}
