"""SONiC-OCS: both books, and the faults of the field, in memory and over SSH."""

from __future__ import annotations

import threading

import pytest
from needs import needs

from ocs_drivers import CrossConnects, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.errors import (
    AddressError,
    ConnectError,
    DeviceError,
    LoginFailed,
    OcsError,
    PartialApply,
    PermissionDenied,
    PortBusy,
    PortDisabled,
    PortFailed,
    ProtocolDesync,
    VerifyMismatch,
)
from ocs_drivers.model import PortState, Side, Snapshot
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.sonic import SonicOcs, codec

ADDRESS = "sonic-ocs://memory"

# -- in memory, on the virtual clock


@pytest.fixture
def ocs(world):
    return world("sonic", settings={"switch_time_s": 2.0})


@pytest.fixture
def switch(ocs):
    with SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock) as switch:
        yield switch


class TestInMemory:
    def test_who_answers(self, switch):
        assert (switch.identity().vendor, switch.identity().model) == ("SONiC", "OCS-V-8x8")
        assert (switch.capabilities.inputs, switch.capabilities.outputs) == (8, 8)

    @pytest.mark.parametrize("times", [1, 2])
    def test_a_version_that_is_cut_off_is_asked_for_again(self, ocs, times):
        """Without its serial number a twin would count as a real switch."""
        ocs.do("set_fault", fault="truncate_table", count=times)
        with SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock) as switch:
            assert switch.identity().serial.startswith("SIM")
        assert ocs.twin.device.faults.fire_counts["truncate_table"] == times

    def test_a_version_that_is_always_cut_off_opens_nothing(self, ocs):
        ocs.do("set_fault", fault="truncate_table", count=50)
        switch = SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock)
        with pytest.raises(ProtocolDesync, match="cut off before the serial number"):
            switch.open()

    def test_ports_have_names_and_labels(self, ocs, switch):
        ocs.twin.device.labels[9] = "to rack 7"
        ports = switch.ports()
        assert [ports[number].name for number in (1, 8, 9, 16)] == ["1A", "8A", "1B", "8B"]
        assert (ports[9].label, ports[9].side) == ("to rack 7", Side.OUT)

    def test_a_port_table_that_shrank_is_a_desync(self, switch, monkeypatch):
        monkeypatch.setattr(codec, "decode_port_config", lambda lines, names: {1: ("", PortState.ENABLED)})
        with pytest.raises(ProtocolDesync, match="8x8 shows 1 ports"):
            switch.ports()

    def test_a_switch_with_more_outputs_than_inputs(self, world):
        ocs = world("sonic", size=(2, 6))
        with SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock) as switch:
            switch.connect({2: 8})
            assert ocs.truth() == {2: 8}

    def test_made_is_tuned_on_both_sides(self, ocs, switch):
        before_s = ocs.clock.now()
        report = switch.connect({1: 10, 2: 9})
        assert ocs.truth() == {1: 10, 2: 9}
        assert 2.0 <= ocs.clock.now() - before_s < 3.0
        assert report.complete

    def test_nothing_to_do_changes_nothing(self, switch):
        switch.connect({1: 10})
        assert not switch.connect({1: 10}).changed

    def test_conflicts_are_removed_first(self, ocs, switch):
        switch.connect({1: 10, 2: 9})
        switch.apply(CrossConnects({1: 9, 2: 10, 3: 11}))
        assert ocs.truth() == {1: 9, 2: 10, 3: 11}

    def test_a_shutter_is_an_override(self, ocs, switch):
        switch.shutter([1, 10], is_open=False)
        assert {port for port, info in switch.ports().items() if info.state is PortState.DISABLED} == {1, 10}
        switch.shutter([1, 10], is_open=True)
        switch.connect({1: 10})
        assert ocs.truth() == {1: 10}

    def test_log_lines_are_events(self, ocs, switch):
        ocs.do("set_fault", fault="noise", count=1)
        switch.connect({1: 10})
        assert [event.kind for event in switch.events() if "orchagent" in event.lines[0]] == ["NOTICE"]

    def test_without_sudo_root_changes(self, world):
        ocs = world("sonic", settings={"user": "root"})
        with SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock, sudo=False) as switch:
            switch.connect({1: 10})
        assert ocs.truth() == {1: 10}

    def test_without_sudo_nobody_else_does(self, ocs):
        switch = SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock, sudo=False)
        switch.open()
        with pytest.raises(PermissionDenied):
            switch.connect({1: 10})
        assert ocs.truth() == {}


class TestGhosts:
    @pytest.fixture
    def haunted(self, ocs, switch):
        ocs.do("set_fault", fault="ghost_entry", pair=[3, 12])
        ocs.advance(5)
        return switch

    def test_are_read_as_the_circuits_they_are(self, ocs, haunted):
        assert haunted.read().connections == CrossConnects({3: 12}) == CrossConnects(ocs.truth())

    def test_are_circuits_that_lost_their_configuration(self, ocs, switch):
        switch.connect({1: 10, 2: 11})
        ocs.do("set_fault", fault="ghost_entry", port=1)
        assert switch._read_tables().ghost_circuits == {(1, 10)}
        switch.apply(CrossConnects({1: 11, 2: 10}))
        assert ocs.truth() == {1: 11, 2: 10}
        assert not switch._read_tables().ghost_circuits

    def test_are_in_the_way_of_others(self, ocs, haunted):
        with pytest.raises(PortBusy, match="output 12, needed for input 4, is used by input"):
            haunted.connect({4: 12})

    @pytest.mark.parametrize("pairs", [{3: 13}, {3: 13, 4: 12}, {}])
    def test_are_cleared_before_their_ports_are_used(self, ocs, haunted, pairs):
        haunted.apply(CrossConnects(pairs), scope={3, 4})
        assert ocs.truth() == pairs
        assert not haunted._read_tables().ghost_circuits

    def test_are_gone_with_the_power(self, ocs, haunted):
        haunted.connect({1: 10})
        ocs.do("power_cycle", off_s=0)
        ocs.advance(30)
        assert haunted.read().connections == CrossConnects({1: 10})


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "error"),
        [("disable_port", PortDisabled), ("lock_port", PortDisabled), ("fail_port", PortFailed)],
    )
    @pytest.mark.parametrize("port", [1, 10])
    def test_unfit_ports_are_refused_in_the_plan(self, ocs, switch, fault, error, port):
        ocs.do("set_fault", fault=fault, port=port)
        with pytest.raises(error) as caught:
            switch.connect({1: 10})
        assert caught.value.ports == (port,)
        assert ocs.truth() == {}

    def test_a_port_that_fails_after_the_plan(self, ocs, switch):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        ocs.do("set_fault", fault="fail_port", port=10)
        outcome = switch.execute(step)
        assert isinstance(outcome.error, PortFailed)
        assert outcome.error.ports == (10,)

    def test_a_port_that_fails_while_it_tunes(self, ocs, switch, monkeypatch):
        perform = switch._perform

        def perform_and_break(step, guard):
            perform(step, guard)
            ocs.do("set_fault", fault="fail_port", port=10)

        monkeypatch.setattr(switch, "_perform", perform_and_break)
        with pytest.raises(PortFailed) as caught:
            switch.connect({1: 10})
        assert caught.value.ports == (10,)
        assert caught.value.report.read_back.connections == CrossConnects()

    @pytest.mark.parametrize("kind", ["add", "remove"])
    def test_a_command_that_is_dropped(self, ocs, switch, kind):
        held = {1: 10} if kind == "remove" else {}
        switch.apply(CrossConnects(held))
        ocs.do("set_fault", fault="drop_command", count=1)
        with pytest.raises(VerifyMismatch):
            switch.apply(CrossConnects({} if held else {1: 10}))
        assert ocs.truth() == held

    def test_a_mirror_that_sticks(self, ocs, switch):
        ocs.do("set_fault", fault="stuck", pair=[1, 10])
        with pytest.raises(VerifyMismatch) as caught:
            switch.connect({1: 10, 2: 11})
        assert caught.value.missing == {1: 10}
        assert switch.read().connections == CrossConnects({2: 11}) == CrossConnects(ocs.truth())

    @pytest.mark.parametrize("retry", [{1: 10}, {1: 12}])
    def test_what_was_configured_in_vain_is_cleared(self, ocs, switch, retry):
        ocs.do("set_fault", fault="stuck", pair=[1, 10])
        with pytest.raises(VerifyMismatch):
            switch.connect({1: 10})
        ocs.do("clear_fault", fault="all")
        switch.connect(retry)
        assert ocs.truth() == retry
        seen = switch._read_tables()
        assert seen.configured_circuits == seen.hardware_circuits

    def test_what_others_configured_is_cleared_only_within_the_scope(self, ocs, switch):
        ocs.do("set_fault", fault="stuck", pair=[5, 10])
        switch._session.ask("sudo config ocs cross-connect add 5A-2B safe", tuple)  # somebody else's
        with pytest.raises(PortBusy, match="5A-2B is configured") as caught:
            switch.connect({1: 10})
        assert (caught.value.peer, ocs.truth()) == (5, {})
        assert switch._read_tables().configured_circuits == {(5, 10)}
        assert switch.apply(CrossConnects({1: 10}), scope=[1, 5]).complete
        assert (switch._read_tables().configured_circuits, ocs.truth()) == ({(1, 10)}, {1: 10})

    def test_what_appears_after_the_plan_is_not_cleared(self, ocs, switch):
        (step,) = switch.plan(CrossConnects({1: 10}), switch.read())
        ocs.do("set_fault", fault="stuck", pair=[5, 10])
        switch._session.ask("sudo config ocs cross-connect add 5A-2B safe", tuple)
        assert switch.execute(step).status is Status.FAILED
        assert switch._read_tables().configured_circuits == {(5, 10)}

    @pytest.mark.parametrize("executed", [True, False])
    @pytest.mark.parametrize("fault", ["close_connection", "half_open"])
    def test_a_line_that_ends_within_a_command(self, ocs, switch, fault, executed):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        switch._yield_addition_commands = lambda pairs: [
            "add 1A-2B safe"
        ]  # the next command is the one that changes
        ocs.do("set_fault", fault=fault, after_commands=1, executed=executed)
        outcome = switch.execute(step)
        ocs.do("clear_fault", fault="all")
        truth = ocs.truth()
        reported = {pair: status.value for pair, status in outcome.pairs.items()}
        assert reported[1, 10] in ({"done", "unknown"} if truth else {"failed", "unknown"})
        assert switch.read().connections == CrossConnects(truth)

    def test_a_broken_line_between_commands_is_repaired(self, ocs, switch):
        ocs.do("set_fault", fault="close_connection")
        switch.connect({1: 10})
        assert ocs.truth() == {1: 10}

    def test_an_expired_session_is_repaired(self, ocs, switch):
        ocs.do("set_fault", fault="expire_session")
        switch.connect({1: 10})
        assert ocs.truth() == {1: 10}

    def test_an_idle_shell_is_repaired(self, world):
        ocs = world("sonic", idle_s="180")
        with SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock) as switch:
            ocs.advance(1000)
            switch.connect({1: 10})
        assert ocs.truth() == {1: 10}

    def test_no_session_left(self, ocs, switch):
        ocs.do("set_fault", fault="max_sessions", count=1)
        second = SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock)
        with pytest.raises(ConnectError):
            second.open()
        assert switch.read().connections == CrossConnects()

    def test_a_late_answer_meets_nobody(self, ocs, switch):
        ocs.do("set_fault", fault="delay_reply", seconds=20)
        with pytest.raises(OcsError):
            switch.read()
        ocs.do("clear_fault", fault="all")
        ocs.advance(60)
        assert switch.read().connections == CrossConnects()

    def test_a_table_that_is_cut_is_asked_for_again(self, ocs, switch):
        rows = {1: 10, 2: 11, 3: 12, 4: 13}
        switch.connect(rows)
        ocs.do("set_fault", fault="truncate_table", count=2)
        assert switch.read().connections == CrossConnects(rows)
        ocs.do("set_fault", fault="truncate_table", count=3)
        with pytest.raises(ProtocolDesync):
            switch.read()

    def test_noise_within_a_table(self, ocs, switch):
        switch.connect({1: 10, 2: 11, 3: 12})
        ocs.do("set_fault", fault="noise", count=4)
        assert switch.read().connections == CrossConnects({1: 10, 2: 11, 3: 12})

    def test_garbage_is_read_again(self, ocs, switch):
        ocs.do("set_fault", fault="garbage", count=2)
        assert switch.read().connections == CrossConnects()

    def test_garbage_after_a_change_leaves_the_truth_to_a_read(self, ocs, switch):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        switch._yield_addition_commands = lambda pairs: ["add 1A-2B safe"]
        ocs.do("set_fault", fault="garbage", count=1)
        outcome = switch.execute(step)
        assert isinstance(outcome.error, DeviceError)
        assert outcome.read_back.connections == CrossConnects(ocs.truth())

    def test_a_refusal_in_the_middle_tells_what_was_made_all_the_same(self, ocs, switch):
        step = switch.plan(CrossConnects({1: 10, 2: 11}), switch.read())[0]
        switch._yield_addition_commands = lambda pairs: ["add 1A-2B safe", "add 2A-9B safe"]
        outcome = switch.execute(step)
        assert {pair: status.value for pair, status in outcome.pairs.items()} == {
            (1, 10): "done",
            (2, 11): "failed",
        }
        assert ocs.truth() == {1: 10}

    def test_somebody_else_was_faster(self, ocs, switch):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        ocs.do("operator", connect=[[4, 10]])
        outcome = switch.execute(step)
        assert isinstance(outcome.error, DeviceError)
        assert ocs.truth() == {4: 10}

    def test_what_somebody_else_has_just_configured_is_not_cleared(self, ocs, switch):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        ocs.do("set_fault", fault="stuck", pair=[4, 10])  # configured, and not in the hardware
        other = SonicOcs(ADDRESS, ocs.transport("cli"), timeout_s=5, clock=ocs.clock)
        other.open()
        other._session.ask("sudo config ocs cross-connect add 4A-2B safe", codec.check_success)
        outcome = switch.execute(step)
        assert isinstance(outcome.error, DeviceError)
        assert other._read_tables().configured_circuits == {(4, 10)}


def test_half_the_work_is_a_partial_apply(ocs, switch):
    switch.connect({1: 10})
    ocs.do("set_fault", fault="stuck", pair=[1, 11])
    with pytest.raises((PartialApply, VerifyMismatch)) as caught:
        switch.connect({1: 11})
    assert caught.value.report.read_back.connections == CrossConnects(ocs.truth()) == CrossConnects()


# -- over SSH


@pytest.fixture(scope="module")
@needs("process", "socket")
def process(shared_twin):
    pytest.importorskip("asyncssh")
    return shared_twin("sonic", "--size=8x8", "--switch-time-ms=5")


@pytest.mark.long
class TestContractOverSsh(SwitchContract):
    @pytest.fixture
    @needs("socket")
    def switch(self, process):
        with open_switch(process.urls["cli"], credentials=("admin", "YourPaSsWoRd")) as switch:
            switch.poll_s = 0.01
            yield switch


class TestOverSsh:
    @pytest.fixture
    @needs("socket")
    def switch(self, process):
        with open_switch(process.urls["cli"], credentials=("admin", "YourPaSsWoRd"), timeout_s=2) as switch:
            switch.poll_s = 0.01
            switch.apply(CrossConnects())
            yield switch
            process.do("clear_fault", fault="all")

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("fault", "fields"),
        [
            ("close_connection", {"after_commands": 3}),
            ("close_connection", {}),
            ("expire_session", {}),
            ("noise", {"count": 3}),
            ("truncate_table", {"count": 1}),
            ("ghost_entry", {"port": 1}),
        ],
    )
    def test_faults_are_overcome(self, process, switch, fault, fields):
        switch.apply(CrossConnects({1: 9}))
        process.do("set_fault", fault=fault, **fields)
        switch.apply(CrossConnects({1: 10, 2: 11}))
        assert process.truth() == {1: 10, 2: 11}

    def test_a_write_that_is_cut_off_is_reported_as_it_is(self, process, switch):
        step = switch.plan(CrossConnects({1: 10}), switch.read())[0]
        switch._yield_addition_commands = lambda pairs: ["add 1A-2B safe"]
        process.do("set_fault", fault="close_connection", after_commands=1)
        switch.execute(step)
        assert switch.read().connections == CrossConnects(process.truth()) == CrossConnects({1: 10})

    def test_a_wrong_password(self, process):
        with pytest.raises(LoginFailed):
            open_switch(process.urls["cli"], credentials=("admin", "guess"))

    def test_two_clients_see_one_switch(self, process, switch):
        with open_switch(process.urls["cli"], credentials=("admin", "YourPaSsWoRd")) as second:
            switch.connect({1: 10})
            assert second.read().connections == CrossConnects({1: 10})

    def test_threads_share_a_session(self, switch):
        switch.connect({1: 10})
        seen: list[Snapshot] = []
        threads = [threading.Thread(target=lambda: seen.append(switch.read())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [snapshot.connections for snapshot in seen] == [CrossConnects({1: 10})] * 4


@pytest.mark.parametrize("address", ["sonic-ocs://h?sudo=maybe", "sonic-ocs://h?colour=1"])
def test_options_that_nobody_knows(address):
    from ocs_drivers.vendors.sonic import ssh_switch

    with pytest.raises(AddressError):
        ssh_switch(parse_address(address))
