"""Journal, epochs, discoveries, losses and results keep their contract on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("pyarrow")
skip_without("sqlalchemy")

from ocs_drivers.engine.transaction import judge_step
from ocs_drivers.model import CrossConnects, Snapshot, Status, Step
from testbed.lab.inventory import load_lab
from testbed.measure.results.records import LabInfo, StoredCircuit, StoredTopology
from testbed.measure.results.store import RunStore
from testbed.operate.design import build_design
from testbed.operate.discovery.model import Problem
from testbed.operate.discovery.run import DiscoveryRecord
from testbed.operate.drift.history import LossHistory
from testbed.operate.drift.losses import StretchLoss
from testbed.operate.intent import IntentLog, TopologySource, load_intents
from testbed.operate.journal import open_journal
from testbed.operate.unfinished import find_unfinished_operations
from testbed.storage.address import choose_database

BEFORE, AFTER = CrossConnects({1: 49}), CrossConnects({1: 50, 2: 49})
STEP = Step("replace", AFTER, BEFORE, AFTER)


@pytest.fixture
def runs(database_address, tmp_path):
    """Provide a directory of runs whose database is the one of the contract."""
    if isinstance(database_address, str):
        choose_database(database_address)
    yield tmp_path / "runs"
    choose_database("")


@pytest.fixture(scope="module")
def testbed12():
    return load_lab(Path(__file__).parents[2] / "labs" / "testbed12.yaml")


@pytest.fixture
def journal(runs):
    with open_journal(runs) as journal:
        yield journal


def test_steps_and_their_outcomes(journal):
    with journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        assert journal.read_steps(operation)[0]["outcome"] is None
        journal.store_outcome(operation, "ocs1", 0, judge_step(STEP, Snapshot(AFTER, 0.0)))
    (step,) = journal.read_steps(operation)
    assert (journal.read_state(operation), step["outcome"], step["read_back"]) == (
        "done",
        "done",
        '{"1": 50, "2": 49}',
    )


def test_a_step_without_an_outcome_is_settled_by_a_read(journal):
    with pytest.raises(KeyboardInterrupt), journal.open_operation("lab") as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        raise KeyboardInterrupt
    (step,) = journal.find_open_steps()
    assert (step.operation, step.after) == (operation, AFTER)
    ((_, became),) = journal.settle("lab", "memory://ocs1", Snapshot(AFTER, 0.0))
    assert became is Status.DONE
    assert journal.find_open_steps() == ()


def test_epochs_and_what_was_left_unfinished(journal, runs, testbed12):
    design = build_design(testbed12)
    log = IntentLog(journal, testbed12)
    with journal.open_operation(testbed12.name) as operation:
        with log.record_apply(
            design.topology, design.wiring, design.name, TopologySource("--simplex")
        ) as applying:
            applying.begin(operation)
            applying.store_state("applied")
            applying.store_state("verified")
        assert (
            log.store(design.topology, design.wiring, design.name, TopologySource(), operation, "intended")
            == 2
        )
    newest, first = load_intents(runs, testbed12.name)
    assert (first.epoch, first.state, first.wiring) == (1, "verified", design.wiring)
    assert (newest.epoch, newest.state) == (2, "intended")
    with pytest.raises(KeyboardInterrupt), journal.open_operation(testbed12.name) as operation:
        journal.store_intent(operation, "ocs1", 0, "memory://ocs1", STEP)
        raise KeyboardInterrupt
    assert "1 step without an outcome on ocs1" in find_unfinished_operations(runs, testbed12)[-1].detail


def test_a_discovery_that_ended(journal):
    record = DiscoveryRecord(journal, "lab")
    record.begin(Problem(nics=(("a", "nic1"),), inputs=(("ocs1", 1),), outputs=(("ocs1", 49),)), [])
    record.store_intent({("ocs1", 1): ("ocs1", 49)})
    record.mark_stopped(())
    (left,) = record.find_unfinished()
    assert (left.is_restored, left.circuit_states) == (True, (frozenset(), frozenset()))
    record.mark_finished(())
    assert record.find_unfinished() == ()


def test_losses_and_their_times(database_address):
    with LossHistory(database_address) as history:
        assert history.read_series("lab", 0.0) == {}
        history.append("lab", 1.5, [StretchLoss("a/nic1:transmit", "a/nic1", 0.5, 0.4, -1.0)])
        history.append("lab", 2.5, [StretchLoss("a/nic1:transmit", "a/nic1", 0.75, 0.4, -1.0)])
        assert history.read_series("lab", 2.0) == {"a/nic1:transmit": ((2.5,), (0.75,))}


def test_runs_and_what_they_found(runs):
    lab = LabInfo("t4", "labs/t4.yaml", tuple("abcd"), (2,) * 4, ("ocs1 (8x8)",), 100.0, 25.0, 9000)
    rings = [
        StoredTopology(name, 4, 2, False, (1,), ((0, 1), (2, 3)), 2, 1.3, "")
        for name in ("second in the alphabet", "first")
    ]
    circuit = StoredCircuit("a/nic1", "b/nic1", "ocs1", 1, 11)
    store = RunStore(runs)
    with store.begin_run(lab, True, "kernel", {"topology": 1}, ["testbed", "demo"]) as run:
        for ring in rings:
            run.add_topology(ring)
            run.add_circuits(ring.name, [circuit])
        run.add_phase("apply", {"total_s": 0.25})
        run.add_phase("apply", {"total_s": 0.5})
        run.add_versions({"torch": "2.13.0"})
        run.add_versions({"torch": "2.14.0"})
    stored = store.load_run("last")
    assert (stored.lab, stored.topologies, stored.summary.status) == (lab, tuple(rings), "done")
    assert list(stored.circuits) == ["second in the alphabet", "first"]
    assert stored.environment["versions"]["torch"] == "2.14.0"
    assert [phase.data["total_s"] for phase in stored.phases] == [0.25, 0.5]
    assert [phase.data["total_s"] for phase in store.list_phases("t4", "apply")] == [0.5, 0.25]


def test_a_run_of_another_machine_is_not_taken_for_interrupted(runs, database_address):
    from testbed.storage.database import Database
    from testbed.storage.schema import runs as table

    lab = LabInfo("t4", "labs/t4.yaml", tuple("abcd"), (2,) * 4, ("ocs1 (8x8)",), 100.0, 25.0, 9000)
    run = RunStore(runs).begin_run(lab, True, "kernel", {}, [])
    (run.directory / ".lock").unlink()
    assert RunStore(runs).list_runs()[0].status == "interrupted"
    with Database(database_address, keep_open=False).open_transaction() as connection:
        connection.execute(table.update().values(machine="elsewhere"))
    assert RunStore(runs).list_runs()[0].status == "running"
    run.finish("done")
