"""Stored intent: what a lab is meant to be, from before the first byte; read where nothing can be written."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects
from testbed.database_file import get_database_path, read_rows
from testbed.design.topology.circulants import find_topology
from testbed.errors import ApplyFailed, DriftError, IntentError, JournalError
from testbed.lab.model import make_shard
from testbed.operate.design import build_design, build_intent_design, lay_out
from testbed.operate.intent import IntentLog, TopologySource, load_intents, select_in_force
from testbed.operate.journal import open_journal
from testbed.operate.plan import plan_lab
from testbed.operate.session import LabSession
from testbed.operate.unfinished import find_unfinished_operations, find_unfinished_or_error

ROOT = Path(__file__).parents[2]


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
def session(testbed12, switch, journal):
    """Provide the 12-host lab on a switch in memory, its hosts only modelled."""
    return LabSession(testbed12, {"ocs1": switch}, None, journal)


def the_only(runs, lab):
    (intent,) = load_intents(runs, lab.name)
    return intent


@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
def test_an_applied_design_is_made_again_from_the_store(session, testbed12, runs, simplex):
    design = build_design(testbed12, simplex=simplex)
    brought = session.bring_up(design, topology_source=TopologySource("--simplex" if simplex else ""))
    intent = the_only(runs, testbed12)
    lab, again = build_intent_design(testbed12, intent)
    assert (lab, again) == (testbed12, design)
    assert (brought.epoch, intent.epoch, intent.state, intent.is_unfinished) == (1, 1, "verified", False)
    assert intent.revision == testbed12.revision != ""


def test_the_intent_is_stored_before_the_first_byte(session, testbed12, switch, runs):
    states = []

    def obey(step):
        states.append(the_only(runs, testbed12).state)
        return step.after

    switch.obey = obey
    session.bring_up(build_design(testbed12))
    assert states == ["intended"]


def test_an_apply_that_sends_nothing_leaves_the_intent_as_it_was(session, testbed12, switch, runs):
    session.bring_up(build_design(testbed12))
    other = build_design(testbed12, simplex=True)
    stale = session.plan(other)
    switch.held = CrossConnects({1: 49})
    with pytest.raises(DriftError):
        session.carry_out(other, stale)
    assert the_only(runs, testbed12).state == "verified"


def test_a_failed_apply_is_what_is_meant_and_unfinished(session, testbed12, switch, runs):
    switch.obey = lambda step: CrossConnects({1: 49})
    with pytest.raises(ApplyFailed):
        session.bring_up(build_design(testbed12))
    intent = the_only(runs, testbed12)
    assert (intent.state, intent.is_unfinished) == ("failed", True)
    assert intent.describe().startswith("epoch 1 (unfinished: failed before circuits and routes stood, 20")
    (left,) = find_unfinished_operations(runs, testbed12)
    assert left.operation == intent.operation
    assert left.detail.endswith("before circuits and routes stood")
    assert left.hint == "run `testbed resume`, or `testbed apply --epoch 1`"


def test_findings_of_the_proof_fail_an_epoch_that_stands_all_the_same(session, testbed12, switch, runs):
    switch.readings = dict.fromkeys(range(49, 97), replace(switch.power([49])[49], dbm=-19.0))
    brought = session.bring_up(build_design(testbed12))
    assert not brought.verify_report.ok
    intent = the_only(runs, testbed12)
    assert (intent.state, intent.is_unfinished) == ("failed", False)
    assert intent.describe().startswith("epoch 1 (failed: its proof ended with 48 findings, 20")
    assert find_unfinished_operations(runs, testbed12) == ()


def test_routes_that_fail_after_the_circuits_leave_the_apply_unfinished(
    session, testbed12, runs, monkeypatch
):
    def refuse(_self, _design):
        raise OSError("no route")

    monkeypatch.setattr(LabSession, "install_routes", refuse)
    with pytest.raises(OSError, match="no route"):
        session.bring_up(build_design(testbed12))
    (left,) = find_unfinished_operations(runs, testbed12)
    assert "failed (no route)" in left.detail
    monkeypatch.undo()
    assert session.bring_up(build_design(testbed12)).epoch == 2
    assert find_unfinished_operations(runs, testbed12) == ()


def test_a_lab_that_goes_with_its_session_is_meant_to_be_nothing(testbed12, switch, journal, runs):
    session = LabSession(testbed12, {"ocs1": switch}, None, journal, keep_intent=False)
    assert session.bring_up(build_design(testbed12)).epoch is None
    assert load_intents(runs, testbed12.name) == ()


@pytest.mark.slow
def test_epochs_count_for_each_lab(session, testbed12, journal, runs):
    design = build_design(testbed12)
    assert [session.bring_up(design).epoch for _ in range(3)] == [1, 2, 3]
    other = IntentLog(journal, replace(testbed12, name="other"))
    assert (
        other.store(design.topology, design.wiring, "default", TopologySource(), "operation", state="applied")
        == 1
    )
    assert [one.epoch for one in load_intents(runs, testbed12.name)] == [3, 2, 1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(jobs=st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8))
def test_epochs_in_force_share_no_host_and_leave_none_out(jobs):
    class Job:
        def __init__(self, hosts):
            self.hosts = tuple(sorted(hosts))

    newest_first = [Job(hosts) for hosts in jobs]
    standing = select_in_force(newest_first)
    taken = [host for job in standing for host in job.hosts]
    assert len(taken) == len(set(taken))
    assert standing[0] is newest_first[0]
    for number, job in enumerate(newest_first):
        newer = {host for one in newest_first[:number] for host in one.hosts}
        assert (job in standing) == newer.isdisjoint(job.hosts)


def test_an_apply_that_runs_is_no_unfinished_one(session, testbed12, switch, runs):
    seen = []

    def obey(step):
        intent = the_only(runs, testbed12)
        seen.append((intent.is_under_way, intent.is_unfinished, find_unfinished_operations(runs, testbed12)))
        return step.after

    switch.obey = obey
    session.bring_up(build_design(testbed12))
    assert seen == [(True, False, ())]


def test_two_jobs_stand_with_one_another(testbed12, memory_switch, journal, runs):
    switch = memory_switch()
    for names in ("abcdef", "ghijkl"):
        lab = make_shard(testbed12, names)
        LabSession(lab, {"ocs1": switch}, None, journal).bring_up(build_design(lab))
    assert [one.hosts[0] for one in select_in_force(load_intents(runs, testbed12.name))] == ["g", "a"]


def test_a_lab_file_that_lost_a_host_is_told(session, testbed12, runs):
    session.bring_up(build_design(testbed12))
    smaller = replace(testbed12, hosts=testbed12.hosts[:11])
    with pytest.raises(
        IntentError, match=r"has no host 'l' with 4 NICs, which epoch 1 connects: the file differs"
    ):
        build_intent_design(smaller, the_only(runs, testbed12))


def test_nics_that_a_discovery_cut_off_are_told_and_no_other_nic_is_compared(session, testbed12, runs):
    """Links are stored by the number of a NIC: without its first NIC a host would be compared one NIC further on."""
    topology = find_topology(12, 2)
    design = lay_out(testbed12, "two", topology)
    session.bring_up(design)
    first, *others = testbed12.hosts
    cut = replace(first, nics=first.nics[1:], unused_nics=("nic1",))
    lab = replace(testbed12, hosts=(cut, *others), revision="after")
    words = (
        r"lists nic2, nic3, nic4 for host 'a', but epoch 1 connects nic1, nic2: the file differs from "
        rf".*testbed12\.yaml, with which epoch 1 was applied \(revision {testbed12.revision}, now after\); name a "
    )
    with pytest.raises(IntentError, match=words):
        build_intent_design(lab, the_only(runs, testbed12))
    behind = replace(first, nics=first.nics[:3], unused_nics=("nic4",))
    build_intent_design(replace(testbed12, hosts=(behind, *others)), the_only(runs, testbed12))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = ["{root}", "{root}/tests/operate", "{root}/tests/plugins"]
from conftest import MemorySwitch
from testbed.lab.inventory import load_lab
from testbed.operate.journal import Journal, open_journal
from testbed.operate.design import build_design
from testbed.operate.session import LabSession

lab, at = load_lab("{root}/labs/testbed12.yaml"), sys.argv[2]
die = lambda *_args, **_options: os.kill(os.getpid(), signal.SIGKILL)
if at == "intent":
    Journal.store_intent = die
elif at == "routes":
    LabSession.install_routes = die
elif at == "proof":
    LabSession.verify = die
switch = MemorySwitch(obey=die if at == "move" else None)
LabSession(lab, {{"ocs1": switch}}, None, open_journal(sys.argv[1])).bring_up(build_design(lab))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("intent", "was killed before circuits and routes stood"),
        ("move", "was killed before circuits and routes stood"),
        ("routes", "was killed before circuits and routes stood"),
        ("proof", "was killed in its proof"),
    ],
)
@pytest.mark.process
def test_an_apply_that_was_killed_is_named(tmp_path, testbed12, at, words):
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(root=ROOT), str(tmp_path), at],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    left = find_unfinished_operations(tmp_path, testbed12)
    intent = the_only(tmp_path, testbed12)
    (one,) = left
    assert (one.operation, one.intent, one.lacks_proof) == (intent.operation, intent, at == "proof")
    assert one.were_circuits_in_place == (at in ("routes", "proof"))
    assert words in one.detail


def test_an_operation_of_an_earlier_release_that_was_killed_is_named(journal, testbed12, runs):
    """Until circuits were applied again: whoever applies reads the switches first."""
    with journal.open_operation(testbed12.name) as killed:
        pass
    with sqlite3.connect(journal.path) as connection:
        dead = {"owner": "1 never/0", "state": "running", "id": killed}
        connection.execute("update operations set owner = :owner, state = :state where id = :id", dead)
        connection.execute("drop table intents")
    connection.close()
    (left,) = find_unfinished_operations(runs, testbed12)
    assert left.operation == killed
    assert left.detail.startswith("an operation that was killed, begun ")
    with journal.open_operation(testbed12.name):
        pass
    assert find_unfinished_operations(runs, testbed12) == ()


@pytest.mark.parametrize("runs_dir", ["absent", "lab.yaml/runs", "empty"])
def test_where_nothing_is_stored_nothing_is_made(tmp_path, runs_dir):
    (tmp_path / "lab.yaml").touch()
    (tmp_path / "empty").mkdir()
    get_database_path(tmp_path / "empty").touch()
    before = sorted(tmp_path.rglob("*"))
    assert load_intents(tmp_path / runs_dir, "lab") == ()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_is_no_database_is_told(tmp_path, testbed12):
    get_database_path(tmp_path).write_bytes(b"something else, and long enough to be looked at\n" * 40)
    with pytest.raises(
        JournalError,
        match=r"cannot read the stored topology of .*: .*lightbed\.sqlite cannot be read .*; .* or name the topology",
    ):
        load_intents(tmp_path, "lab")
    (told,) = find_unfinished_or_error(tmp_path, testbed12)
    assert told.operation == str(tmp_path)
    assert told.hint.startswith("make the file readable, or give the --runs-dir"), (
        "an apply would be refused too"
    )
    assert "cannot be read" in told.detail


@pytest.mark.process
@pytest.mark.parametrize("log", [True, False], ids=["commits in the log", "all in the file"])
def test_what_only_the_log_holds_is_read_where_sqlite_cannot_share_it(tmp_path, monkeypatch, log):
    """As on a disk that is mounted read-only: no file of shared memory can be made there."""
    path = tmp_path / "lightbed.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("pragma journal_mode=wal")
    writer.execute("create table numbers (n)")
    writer.execute("pragma wal_checkpoint(truncate)")
    writer.execute("insert into numbers values (7)")
    if not log:
        writer.execute("pragma wal_checkpoint(truncate)")

    def refused(_path):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("testbed.database_file._open_shared", refused)
    assert read_rows(path, "select n from numbers") == [{"n": 7}]
    writer.close()


def test_estimates_take_the_lab_files_switch_time(testbed12, memory_switch):
    twins = {"ocs1": replace(testbed12.twins["ocs1"], switch_time_s=1.5)}
    lab, wiring = testbed12, build_design(testbed12).wiring

    def estimates(lab, switch):
        (part,) = plan_lab(lab, wiring, {"ocs1": switch}).switches
        return [step.estimated_s for step in part.steps]

    assert estimates(lab, memory_switch()) == [pytest.approx(0.02)]
    assert estimates(replace(lab, twins=twins), memory_switch()) == [pytest.approx(1.5)]
    assert estimates(replace(lab, twins={}), memory_switch()) == [pytest.approx(0.025)], "the driver's own"
