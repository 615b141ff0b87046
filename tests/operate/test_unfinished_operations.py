"""Operations that were left unfinished are named until later ones cover what they left, and no longer."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Status
from testbed.lab.model import make_shard
from testbed.operate.confirmation import ConfirmationLog
from testbed.operate.design import build_design
from testbed.operate.discovery.model import Observation, Problem, Round
from testbed.operate.discovery.run import MAX_ROUND_AGE, DiscoveryRecord
from testbed.operate.engine.planned import ROUTES_CHANGE, PlannedStep
from testbed.operate.intent import find_replaced_intents, load_intents
from testbed.operate.journal import open_journal
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.session import LabSession
from testbed.operate.unfinished import find_unfinished_operations


class Killed(BaseException):
    """The process is gone: nothing after it is done."""


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def journal(runs):
    with open_journal(runs) as journal:
        yield journal


@pytest.fixture
def switch(memory_switch):
    return memory_switch()


@pytest.fixture
def apply(testbed12, switch, journal, monkeypatch):
    """Return a function that applies the default topology to some hosts, and is killed before the routes if asked."""

    def apply(hosts="abcdefghijkl", *, kill=False, **options):
        lab = make_shard(testbed12, hosts)
        session = LabSession(lab, {"ocs1": switch}, None, journal)
        if not kill:
            return session.bring_up(build_design(lab, **options), take_over=True)
        with monkeypatch.context() as patch:

            def die(*_arguments):
                raise Killed

            patch.setattr(LabSession, "install_routes", die)
            patch.setattr("testbed.operate.intent.ApplyRecord.store_state", lambda *_arguments: None)
            with pytest.raises(Killed):
                session.bring_up(build_design(lab, **options), take_over=True)
        died(journal, "intents")
        return None

    return apply


def died(journal, table, state=None):
    """Let the process of the newest row be gone."""
    with sqlite3.connect(journal.path) as connection:
        connection.execute(
            f"update {table} set owner = '1 gone/0', state = coalesce(?, state) where rowid = "
            f"(select max(rowid) from {table})",
            (state,),
        )
    connection.close()


def left(runs, lab):
    return [one.detail for one in find_unfinished_operations(runs, lab)]


@pytest.mark.slow
def test_an_apply_that_was_killed_is_forgotten_host_by_host(apply, runs, testbed12):
    apply(kill=True)
    (told,) = left(runs, testbed12)
    assert told.endswith(" was killed before circuits and routes stood")
    apply("abcdef")
    (told,) = left(runs, testbed12)
    assert told.endswith("; newer epochs exist for all hosts but g, h, i, j, k, l")
    apply("ghijkl")
    assert left(runs, testbed12) == []


@pytest.mark.slow
def test_a_host_that_is_no_longer_in_the_lab_file_keeps_no_apply_unfinished(apply, runs, testbed12):
    """No epoch can be meant for it any more: the advice to apply again would be in vain for ever."""
    apply(kill=True)
    apply("abcdefghijk")
    (told,) = left(runs, testbed12)
    assert told.endswith("; newer epochs exist for all hosts but l")
    without_l = replace(testbed12, hosts=testbed12.hosts[:-1])
    assert left(runs, without_l) == []
    assert len(left(runs, make_shard(without_l, "ab"))) == 0
    assert len(left(runs, make_shard(testbed12, "ab"))) == 1, "l is another job's, and still there"


def test_the_newest_of_two_that_were_killed_is_told_and_knows_the_other(apply, runs, testbed12):
    apply()
    apply(kill=True, simplex=True)
    apply(kill=True)
    (one,) = find_unfinished_operations(runs, testbed12)
    assert (one.intent.epoch, [epoch.epoch for epoch in one.replaced]) == (3, [2, 1])
    assert one.were_circuits_in_place


@pytest.mark.slow
def test_epochs_that_an_apply_replaces_are_the_last_that_stood_on_each_host(apply, runs, testbed12):
    apply()
    apply("abcdef", simplex=True)
    apply("abcde", kill=True)
    apply("ghijkl")
    apply(kill=True)
    intents = load_intents(runs, testbed12.name)
    assert [one.epoch for one in find_replaced_intents(intents, intents[0])] == [4, 3, 2]
    assert [one.epoch for one in find_replaced_intents(intents, intents[1])] == [1]


def one_circuit(session, pair):
    """Apply one circuit and no more, as looking for swapped fibres does: an operation without an epoch."""
    switch = session.switches["ocs1"]
    seen, scope, target = switch.read(), frozenset({pair[0]}), CrossConnects([pair])
    part = SwitchPlan("ocs1", target, scope, seen, switch.plan(target, seen, scope))
    return session.apply(LabPlan(None, (), (part,)))


def test_a_later_operation_on_other_ports_makes_nothing_good(apply, memory_switch, journal, runs, testbed12):
    apply(kill=True)
    session = LabSession(testbed12, {"ocs1": memory_switch()}, None, journal)
    one_circuit(session, (1, 60))
    assert len(left(runs, testbed12)) == 1


def test_an_operation_without_an_epoch_is_forgotten_when_its_ports_are_patched_again(
    memory_switch, journal, runs, testbed12
):
    switch = memory_switch()
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    one_circuit(session, (1, 60))
    died(journal, "operations", "running")
    (told,) = left(runs, testbed12)
    assert told.startswith("an operation that was killed, begun ")
    switch.held = CrossConnects()
    one_circuit(session, (2, 61))
    assert len(left(runs, testbed12)) == 1
    switch.held = CrossConnects()
    one_circuit(session, (1, 60))
    assert left(runs, testbed12) == []


def configured(journal, hosts, *, kill=False):
    """Configure hosts as an operation of their own, which is killed in the middle of it if asked."""
    steps = [PlannedStep(host, 0, "10.99.0.2", "configure", "", "digest", ROUTES_CHANGE) for host in hosts]
    with suppress(Killed), journal.open_operation("testbed12", "repair") as operation:
        journal.step_log.store_intents(operation, steps)
        if kill:
            raise Killed
        journal.step_log.store_outcomes(
            operation, {(step.device, 0): (Status.DONE, "digest") for step in steps}
        )


def test_hosts_that_were_left_in_the_middle_are_named_until_all_of_them_are_configured_again(
    journal, runs, testbed12, memory_switch
):
    configured(journal, "ab", kill=True)
    (told,) = left(runs, testbed12)
    assert told.startswith("a repair that was interrupted, begun ")
    assert told.endswith("; 2 steps without an outcome on a,b")
    one_circuit(LabSession(testbed12, {"ocs1": memory_switch()}, None, journal), (1, 60))
    configured(journal, "a")
    assert left(runs, testbed12) == [told], "other switches and hosts make nothing good"
    configured(journal, "abc")
    assert left(runs, testbed12) == []


@pytest.mark.slow
def test_a_way_back_that_failed_is_named_until_a_newer_epoch_is_verified(apply, journal, runs, testbed12):
    apply()
    apply(simplex=True)
    confirmations = ConfirmationLog(journal, "testbed12")
    confirmations.request(2, 1, 60.0)
    assert confirmations.change_state(2, ("requested",), "failed", reason="no answer")
    (one,) = find_unfinished_operations(runs, testbed12)
    assert one.detail == "epoch 2 was not confirmed; the rollback to epoch 1 failed (no answer)"
    assert one.awaits_confirmation
    apply()
    assert left(runs, testbed12) == []


@pytest.mark.slow
def test_an_operation_without_an_epoch_is_forgotten_when_all_hosts_of_its_time_are_applied(
    apply, switch, journal, runs, testbed12
):
    apply()
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    switch.held = CrossConnects()
    one_circuit(session, (1, 60))
    died(journal, "operations", "running")
    apply("ghijkl", simplex=True)
    assert len(left(runs, testbed12)) == 1
    apply()
    assert left(runs, testbed12) == []


# ------------------------------------------------------------------------------ discoveries

NICS = (("a", "nic1"), ("b", "nic1"))
PROBLEM = Problem(NICS, (("ocs1", 1), ("ocs1", 2)), (("ocs1", 53), ("ocs1", 54)))
ROUND = Round("all", {("ocs1", 1): ("ocs1", 60)})
SEEN = Observation({}, {NICS[0]: True}, {}, frozenset(NICS))


def begin(journal, lab, *, patch=None):
    """Begin a discovery; `patch` makes its circuit through the journal, as a round does."""
    record = DiscoveryRecord(journal, lab.name)
    record.begin(PROBLEM, ())
    record.store_intent(ROUND.circuits)
    if patch:
        one_circuit(patch, (1, 60))
    record.add_round(ROUND, SEEN)
    return record


def test_a_killed_discovery_is_named_with_its_next_command(journal, runs, testbed12):
    begin(journal, testbed12)
    assert left(runs, testbed12) == [], "it runs"
    died(journal, "discoveries")
    (one,) = find_unfinished_operations(runs, testbed12)
    assert one.detail.startswith("a discovery of fibres that was killed, begun ")
    assert one.detail.endswith("; up to 1 of its circuits may still exist, and NICs may be down")
    assert one.hint.startswith("run `testbed discover` again")
    assert one.circuits == {("ocs1", 1, 60)}
    assert find_unfinished_operations(runs, replace(testbed12, name="another lab")) == ()


@pytest.mark.parametrize("end", ["finish", "stop"])
def test_a_discovery_that_put_all_back_is_not_named(journal, runs, testbed12, end):
    record = begin(journal, testbed12)
    record.mark_finished(()) if end == "finish" else record.mark_stopped(())
    died(journal, "discoveries")
    assert left(runs, testbed12) == []


def test_the_next_discovery_takes_it_over(journal, runs, testbed12):
    begin(journal, testbed12)
    died(journal, "discoveries")
    begin(journal, testbed12)
    assert left(runs, testbed12) == [], "it runs, and began with what was left"
    died(journal, "discoveries")
    assert len(left(runs, testbed12)) == 1


@pytest.mark.slow
def test_an_apply_that_removes_its_circuits_and_sets_up_its_hosts_covers_it(
    apply, switch, journal, runs, testbed12
):
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    begin(journal, testbed12, patch=session)
    died(journal, "operations")
    died(journal, "discoveries")
    apply("ghijkl")
    assert len(left(runs, testbed12)) == 1, "neither its hosts nor its circuit"
    apply("abcdef")
    assert left(runs, testbed12) == []


def test_an_apply_that_leaves_one_of_its_circuits_does_not_cover_it(apply, journal, runs, testbed12, switch):
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    record = DiscoveryRecord(journal, testbed12.name)
    record.begin(PROBLEM, ())
    record.store_intent({("ocs1", 9): ("ocs1", 60)})
    one_circuit(session, (9, 60))
    died(journal, "operations")
    died(journal, "discoveries")
    apply("abdefg")  # both ports are of c: the circuit stays
    assert len(left(runs, testbed12)) == 1


def test_rounds_are_taken_over_for_an_hour_and_no_longer(journal, testbed12):
    begin(journal, testbed12)
    died(journal, "discoveries")
    (one,) = DiscoveryRecord(journal, testbed12.name).find_unfinished()
    now = datetime.now(UTC)
    assert one.load_rounds(PROBLEM, now) == ((ROUND, SEEN),)
    assert one.load_rounds(PROBLEM, now + MAX_ROUND_AGE - timedelta(minutes=1)) != ()
    assert one.load_rounds(PROBLEM, now + MAX_ROUND_AGE + timedelta(minutes=1)) == ()
    assert one.load_rounds(replace(PROBLEM, nics=NICS[:1]), now) == ()


def test_rounds_that_are_taken_over_again_keep_their_time(journal, testbed12):
    """Otherwise a discovery that is killed again and again would make old rounds young."""
    begin(journal, testbed12)
    died(journal, "discoveries")
    (one,) = DiscoveryRecord(journal, testbed12.name).find_unfinished()
    ((round_, seen),) = one.load_rounds(PROBLEM)
    again = DiscoveryRecord(journal, testbed12.name)
    again.begin(PROBLEM, ())
    again.add_round(round_, seen)
    died(journal, "discoveries")
    *_, two = DiscoveryRecord(journal, testbed12.name).find_unfinished()
    assert two.rounds[0][1].time_text == seen.time_text != ""


def test_rounds_of_an_earlier_release_have_no_time_and_are_not_taken_over(journal, testbed12):
    begin(journal, testbed12)
    died(journal, "discoveries")
    with sqlite3.connect(journal.path) as connection:
        (text,) = connection.execute("select rounds from discoveries").fetchone()
        rounds = [{key: value for key, value in one.items() if key != "at"} for one in json.loads(text)]
        connection.execute("update discoveries set rounds = ?", (json.dumps(rounds),))
    connection.close()
    (one,) = DiscoveryRecord(journal, testbed12.name).find_unfinished()
    assert one.rounds != ()
    assert one.load_rounds(PROBLEM) == ()
