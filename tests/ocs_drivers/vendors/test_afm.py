"""The driver of an AFM: circuits both ways between two logical ports are one request, in the public client's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers import CrossConnects, Status
from ocs_drivers.address import parse_address
from ocs_drivers.errors import Conflict, OcsError, PortBusy, RobotFault
from ocs_drivers.model import PendingMove, Snapshot, Step
from ocs_drivers.vendors.rome import AFM, RomeCli, read_timeouts
from ocs_drivers.vendors.rome.codec import decode_queue
from ocs_drivers.vendors.rome.ports import (
    TIED_HINT,
    Layout,
    add_tie_hint,
    decode_logical_ports,
    join_mirrored_steps,
)

pytestmark = pytest.mark.codec

SIZE = 8
EAST = tuple(f"E{number}" for number in range(1, SIZE + 1))
WEST = tuple(f"W{number}" for number in range(1, SIZE + 1))
LAYOUT = Layout(EAST, WEST, ports_by_logical_name={name[1:]: (name, f"W{name[1:]}") for name in EAST})

TABLE = """\
Customer        Logical             Side         TX     RX
Name              Name                           Port   Port
=================================================================
customer        1               1_90            e1     w1
customer        180             91_180          e180   w180
3               3               Top             e3     w3
""".splitlines()


def test_the_table_of_logical_ports_of_two_captures():
    assert decode_logical_ports(TABLE) == {"1": ("E1", "W1"), "180": ("E180", "W180"), "3": ("E3", "W3")}


@given(st.lists(st.text(max_size=80), max_size=5))
def test_any_table_of_logical_ports_names_pairs_of_ports(lines):
    for name, (east, west) in decode_logical_ports(lines).items():
        assert name.isdigit()
        assert (east[0], west[0]) == ("E", "W")


def test_a_request_of_others_by_number_is_two_moves():
    rule = "======= ========= ========= ================== ======= ==================="
    queue = decode_queue(
        [
            "Connection execution status: enabled",
            "Command in process:",
            "connect, ports: 1-2, status: in process with payload",
            rule,
            "Request Port1     Port2     Command            Source  User",
            rule,
            "772     3         4         connect            CLI     admin",
        ]
    )
    assert queue.list_moves(LAYOUT) == (
        PendingMove("connect", (1, SIZE + 2)),
        PendingMove("connect", (2, SIZE + 1)),
        PendingMove("connect", (3, SIZE + 4), "admin", "CLI", "772"),
        PendingMove("connect", (4, SIZE + 3), "admin", "CLI", "772"),
    )


def single_steps(kind: Any, pairs: list[tuple[int, int]]) -> list[Step]:
    held = CrossConnects(pairs if kind == "remove" else [])
    steps = []
    for pair in pairs:
        after = CrossConnects(held.pairs - {pair} if kind == "remove" else held.pairs | {pair})
        steps.append(Step(kind, CrossConnects([pair]), held, after, 60.0))
        held = after
    return steps


@given(st.permutations(range(1, SIZE + 1)), st.sampled_from(["add", "remove"]))
def test_joined_steps_make_the_same_circuits(outputs, kind):
    pairs = [(source, SIZE + output) for source, output in enumerate(outputs, 1)]
    steps = single_steps(kind, pairs)
    joined = join_mirrored_steps(steps, LAYOUT)
    assert [step.before for step in joined[1:]] == [step.after for step in joined[:-1]]
    assert joined[-1].after == steps[-1].after
    assert sorted(pair for step in joined for pair in step.pairs.items()) == sorted(pairs)
    assert sum(step.estimated_s for step in joined) == 60.0 * SIZE
    mirrored = sum(outputs[output - 1] == source != output for source, output in enumerate(outputs, 1))
    assert len(joined) == SIZE - mirrored // 2
    for step in joined:
        assert LAYOUT.find_request_names(step.pairs.pairs) is not None


def test_three_circuits_are_no_request():
    assert LAYOUT.find_request_names([(1, SIZE + 2), (2, SIZE + 1), (3, SIZE + 4)]) is None
    assert LAYOUT.find_request_names([(1, SIZE + 2), (3, SIZE + 4)]) is None
    assert LAYOUT.find_request_names([]) is None


# -- on the twin


@pytest.fixture
def panel(world) -> Iterator[Callable[..., tuple[RomeCli, Any]]]:
    opened: list[RomeCli] = []

    def make(one_way: str = "no", **options: str) -> tuple[RomeCli, Any]:
        made = world("afm", size=(SIZE, SIZE), **options)
        switch = RomeCli(
            "afm+cli://memory",
            made.transport("cli"),
            timeout_s=5,
            dialect=AFM,
            clock=made.clock,
            timeouts=read_timeouts(parse_address(f"afm+cli://memory?one_way={one_way}")),
        )
        switch.open()
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


def requests(made: Any) -> list[str]:
    entries = made.do("transcript")["entries"]
    text = "".join(entry["data"] for entry in entries if entry["direction"] == "in")
    return [
        line for line in text.split("\r") if line.startswith(("connection create", "connection disconnect"))
    ]


def test_both_ways_are_one_request_each(panel):
    switch, made = panel()
    both = {1: SIZE + 2, 2: SIZE + 1}
    assert switch.connect(both).complete
    assert made.truth() == both
    assert switch.disconnect([1, 2]).complete
    assert made.truth() == {}
    assert requests(made) == ["connection create 1 to 2", "connection disconnect 1 from 2"]


def test_one_way_names_an_e_and_a_w_port(panel):
    switch, made = panel()
    assert switch.connect({1: SIZE + 2, 3: SIZE + 3}).complete
    assert requests(made) == ["connection create E1 to W2", "connection create E3 to W3"]


def test_a_device_without_a_table_of_logical_ports(panel, world):
    made = world("afm", size=(SIZE, SIZE))
    commands = made.twin.frontends["cli"].serve.__self__._commands
    commands[:] = [(pattern, do) for pattern, do in commands if "logic" not in pattern.pattern]
    switch = RomeCli("afm+cli://memory", made.transport("cli"), timeout_s=5, dialect=AFM, clock=made.clock)
    switch.open()
    assert switch.connect({1: SIZE + 2, 2: SIZE + 1}).complete
    assert requests(made) == ["connection create E1 to W2", "connection create E2 to W1"]
    switch.close()


# -- ports that the device says are paired (`PAIRED PORT Enabled`, as in both captures)


BOTH = {1: SIZE + 2, 2: SIZE + 1}


@pytest.mark.parametrize("change", [{1: SIZE + 3}, {1: None}])
def test_half_of_a_two_way_circuit_is_refused(panel, change):
    switch, made = panel(paired="both")
    switch.connect(BOTH)
    before = requests(made)
    with pytest.raises(PortBusy, match=r"disconnect both inputs in one command, or .* one_way=yes") as caught:
        switch.apply(CrossConnects({i: o for i, o in change.items() if o}), scope=change)
    assert caught.value.ports == (2, SIZE + 1)
    assert requests(made) == before
    assert made.truth() == BOTH


def test_both_halves_make_way_together(panel):
    switch, made = panel(paired="both")
    switch.connect(BOTH)
    assert switch.apply(CrossConnects({1: SIZE + 3}), scope=[1, 2]).complete
    assert made.truth() == {1: SIZE + 3}
    assert requests(made)[1:] == ["connection disconnect 1 from 2", "connection create E1 to W3"]


def test_half_that_stays_is_made_again(panel):
    switch, made = panel(paired="both")
    switch.connect(BOTH)
    target = CrossConnects({1: SIZE + 3, 2: SIZE + 1})
    assert switch.apply(target).complete
    assert made.truth() == dict(target)
    assert requests(made)[1:] == [
        "connection disconnect 1 from 2",
        "connection create E1 to W3",
        "connection create E2 to W1",
    ]


@pytest.mark.parametrize("options", [{"paired": "off"}, {"paired": "one", "one_way": "yes"}])
def test_half_may_go_where_ports_are_not_paired_or_the_option_allows_it(panel, options):
    switch, made = panel(**options)
    switch.connect(BOTH)
    assert switch.connect({1: SIZE + 3}).complete
    assert made.truth() == {1: SIZE + 3, 2: SIZE + 1}


def test_a_circuit_that_goes_with_another_is_told(panel):
    """The option allowed it, and the device took the other direction down as well: nothing is called complete."""
    switch, made = panel(paired="both", one_way="yes")
    switch.connect(BOTH)
    with pytest.raises(Conflict, match=f"does not name are gone: 2->{SIZE + 1}") as caught:
        switch.connect({1: SIZE + 3})
    assert made.truth() == {}
    assert caught.value.report.pairs[1, SIZE + 2] is Status.DONE
    assert caught.value.report.pairs[2, SIZE + 1] is Status.FAILED
    assert not caught.value.report.complete


def test_a_circuit_that_somebody_has_queued_to_remove_is_no_surprise(panel):
    switch, made = panel()
    switch.connect({5: SIZE + 5})
    other = RomeCli("afm+cli://memory2", made.transport("cli"), timeout_s=5, dialect=AFM, clock=made.clock)
    other.open()
    other._session.ask("connection disconnect E5 from W5", lambda lines: None)
    assert switch.connect({1: SIZE + 3}).complete
    assert made.truth() == {1: SIZE + 3}
    other.close()


@pytest.mark.parametrize("pending", ["shown", "unknown"])
def test_both_moves_are_given_their_time(panel, pending):
    switch, made = panel(pending=pending)
    before_s = made.clock.now()
    assert switch.connect({1: SIZE + 2, 2: SIZE + 1}).complete
    assert 80 <= made.clock.now() - before_s < 90  # two moves of 40 s


def test_a_jam_at_the_second_move_leaves_the_first(panel):
    switch, made = panel()
    made.do("set_fault", fault="jam", count=1)
    with pytest.raises(OcsError) as caught:
        switch.connect({1: SIZE + 2, 2: SIZE + 1})
    assert isinstance(caught.value.__cause__ or caught.value, RobotFault)
    assert made.truth() == {1: SIZE + 2}
    assert caught.value.report.pairs[1, SIZE + 2] is Status.DONE
    assert caught.value.report.pairs[2, SIZE + 1] is not Status.DONE


def test_only_a_refusal_about_half_of_a_two_way_circuit_is_explained():
    pairs = CrossConnects({1: 4, 2: 3})
    seen = Snapshot(pairs, 0.0, tied=frozenset({frozenset(pairs.items())}))
    tied = add_tie_hint(PortBusy("input 2 shares a circuit", ports=(2, 3)), seen)
    other = add_tie_hint(PortBusy("output 3 is taken", ports=(1, 3)), seen)
    assert tied.hint == TIED_HINT
    assert other.hint != TIED_HINT
