"""From readings to losses, from losses to findings, and the file between two readings."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import ResultsError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.receivers import PowerThresholds, ReceiverReading
from testbed.operate.drift.history import open_history
from testbed.operate.drift.losses import measure_losses
from testbed.operate.drift.report import judge_modules, read_drift
from testbed.operate.journal import open_journal
from testbed.operate.light import SwitchReading, compute_budget
from testbed.operate.plan import list_circuits
from testbed.operate.session import LabSession

WIRING = make_wiring(find_topology(12, 4))
DAY_S = 86400.0
BEGIN_S = 1_800_000_000.0
LIT = ReceiverReading(
    received_lanes_dbm=(-1.8,), sent_lanes_dbm=(0.0,), thresholds=PowerThresholds(-14.0, -11.0, 2.0, 3.0)
)


@pytest.fixture
def first(testbed12):
    """Return the first circuit of the default topology: a/nic1 -> b/nic1 over 1 -> 53."""
    return list_circuits(testbed12, WIRING)[0]


def along(lab, circuit, *, entering=Power(-0.3), leaving=Power(-1.5), sender=LIT, receiver=LIT):  # noqa: B008
    power = {circuit.input_port: entering, circuit.output_port: leaving}
    reading = SwitchReading(Snapshot(CrossConnects({circuit.input_port: circuit.output_port}), 0.0), power)
    receivers = {("a", "nic1"): sender, ("b", "nic1"): receiver}
    found = measure_losses(
        lab, [circuit], {"ocs1": reading}, {key: each for key, each in receivers.items() if each}
    )
    return {loss.place: (round(loss.loss_db, 6), round(loss.intent_db, 6)) for loss in found}


def test_each_stretch_of_glass_between_two_monitors_has_its_loss(testbed12, first):
    assert along(testbed12, first) == {
        "a/nic1:transmit": (0.3, 0.3),
        "ocs1:1-53": (1.2, 1.2),
        "b/nic1:receive": (0.3, 0.3),
    }


def test_dirt_is_in_the_stretch_where_it_is(testbed12, first):
    dirty = along(testbed12, first, leaving=Power(-4.5), receiver=replace(LIT, received_lanes_dbm=(-4.8,)))
    assert dirty == {"a/nic1:transmit": (0.3, 0.3), "ocs1:1-53": (4.2, 1.2), "b/nic1:receive": (0.3, 0.3)}


def test_without_monitors_the_glass_is_one_stretch(testbed12, first):
    assert along(testbed12, first, entering=None, leaving=None) == {
        "a/nic1:transmit+ocs1:1-53+b/nic1:receive": (1.8, 1.8)
    }


def test_without_modules_the_lab_files_laser_stands_for_the_real_one(testbed12, first):
    assert along(testbed12, first, sender=None, receiver=None) == {
        "laser?+a/nic1:transmit": (0.3, 0.3),
        "ocs1:1-53": (1.2, 1.2),
    }


def test_the_lanes_of_a_module_are_added_up(testbed12, first):
    lanes = replace(LIT, received_lanes_dbm=(-1.8 - 10 * math.log10(4),) * 4)
    assert along(testbed12, first, receiver=lanes)["b/nic1:receive"] == (0.3, 0.3)


def test_dark_glass_has_no_loss(testbed12, first):
    dark = replace(LIT, received_lanes_dbm=(-math.inf,))
    assert "b/nic1:receive" not in along(testbed12, first, receiver=dark)
    nothing = Power(-60, below_floor=True)
    assert along(testbed12, first, entering=nothing, leaving=nothing, receiver=dark) == {}


def test_what_modules_say_besides_is_found_once_a_host(testbed12, first):
    reading = SwitchReading(Snapshot(CrossConnects({1: 53}), 0.0), {1: Power(-0.3), 53: Power(-1.5)})
    weak = replace(LIT, received_lanes_dbm=(-19.8,))
    silent = ReceiverReading(reason="netlink error: Operation not supported")
    receivers = {("b", "nic1"): weak, ("c", "nic1"): silent, ("c", "nic2"): silent}
    found = judge_modules(testbed12, [first], {"ocs1": reading}, receivers)
    assert [(each.kind, each.subject, each.detail) for each in found] == [
        (
            "power_out_of_window",
            "a/nic1 -> b/nic1",
            "b/nic1: lane 1 receives -19.8 dBm, less than the -14.0 dBm that its module needs",
        ),
        ("no_module_readings", "c", "nic1, nic2: netlink error: Operation not supported"),
    ]


def test_a_receiver_that_stays_dark_behind_a_lit_output_is_found(testbed12, first):
    reading = SwitchReading(Snapshot(CrossConnects({1: 53}), 0.0), {53: Power(-1.5)})
    receivers = {("b", "nic1"): replace(LIT, received_lanes_dbm=(-math.inf,))}
    (found,) = judge_modules(testbed12, [first], {"ocs1": reading}, receivers)
    assert (found.kind, found.subject) == ("no_carrier", "a/nic1 -> b/nic1")
    assert found.detail == "light leaves output 53 of ocs1 and does not reach b/nic1"


class LightFleet:
    """Hosts whose modules say what the test sets: power by NIC, -1.8 dBm by default."""

    def __init__(self, lab):
        self.lab, self.hosts, self.received = lab, lab.hosts, {}

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        return {host.name: CommandResult(host.name, 0, self._said(host), "") for host in self.hosts}

    def _said(self, host):
        return "".join(self._module(host.name, nic.name) for nic in host.nics)

    def _module(self, host, nic):
        milliwatts = 10 ** (self.received.get((host, nic), -1.8) / 10)
        return (
            f"=== {nic}\nLaser bias current : 45.000 mA\nLaser output power : 1.0000 mW / 0.00 dBm\n"
            f"Receiver signal average optical power : {milliwatts:.4f} mW / {10 * math.log10(milliwatts):.2f} dBm\n"
        )


class Bench:
    """The 12-host lab in memory, patched as planned: set the light, move the clock, read."""

    def __init__(self, lab, switch, runs):
        self.lab, self.switch, self.fleet, self.now_s = lab, switch, LightFleet(lab), BEGIN_S
        self.circuits = list_circuits(lab, WIRING)
        switch.held = CrossConnects({each.input_port: each.output_port for each in self.circuits})
        for each in self.circuits:
            budget = compute_budget(lab, each)
            switch.readings |= {
                each.input_port: Power(budget.input_dbm),
                each.output_port: Power(budget.output_dbm),
            }
        self.history, self.off = open_history(runs), {}

    def read(self, after_s=3600.0, **options):
        self.now_s += after_s
        session = LabSession(self.lab, {"ocs1": self.switch}, self.fleet, None, unreachable_reasons=self.off)
        return read_drift(session, self.circuits, self.history, self.now_s, **options)


@pytest.fixture
def bench(testbed12, memory_switch, tmp_path):
    made = Bench(testbed12, memory_switch(), tmp_path)
    with made.history:
        yield made


def kinds(report):
    return [(each.kind, each.subject) for each in report.findings]


@pytest.mark.slow
def test_a_healthy_lab_learns_and_then_is_steady(bench):
    verdicts = [{each.verdict.kind for each in bench.read().stretches} for _ in range(14)]
    assert verdicts == [{"learning"}] * 11 + [{"steady"}] * 3
    report = bench.read()
    assert (report.ok, len(report.stretches), report.findings) == (True, 3 * 48, ())


@pytest.mark.slow
def test_a_sudden_loss_of_1_db_is_found_at_once_and_told_once(bench):
    for _ in range(12):
        bench.read()
    bench.fleet.received["b", "nic1"] = -2.8
    report = bench.read()
    ((kind, subject),) = kinds(report)
    assert (kind, subject, report.ok) == ("sudden_loss", "a/nic1 -> b/nic1", False)
    detail = report.findings[0].detail
    assert detail.startswith("b/nic1:receive loses 1.0 dB more since 2027-")
    assert ", in one reading so far (baseline 0.3 dB, noise 0." in detail
    assert detail.endswith("13 readings); 1.0 dB more than the lab file says")


@pytest.mark.slow
def test_a_slow_loss_is_told_with_its_slope_long_before_the_link_fails(bench):
    for hour in range(0, 7 * 24, 6):
        bench.switch.readings[53] = Power(-1.5 - 0.2 * hour / 24)
        bench.fleet.received["b", "nic1"] = -1.8 - 0.2 * hour / 24
        report = bench.read(after_s=6 * 3600)
    ((kind, subject),) = kinds(report)
    assert (kind, subject) == ("slow_loss", "a/nic1 -> b/nic1")
    assert report.findings[0].detail.startswith("ocs1:1-53 loses 0.20 dB more every day since 2027-")


def test_at_the_first_reading_the_lab_file_is_the_only_measure(bench):
    bench.fleet.received["b", "nic1"] = -4.8
    report = bench.read()
    assert kinds(report) == [("excess_loss", "a/nic1 -> b/nic1")]
    assert "b/nic1:receive loses 3.0 dB more than the lab file says" in report.findings[0].detail


@pytest.mark.long
def test_after_a_repair_that_changed_the_glass_judgement_begins_where_the_operator_says(bench):
    for _ in range(14):
        bench.read()
    bench.fleet.received["b", "nic1"] = -2.5
    for _ in range(3):
        report = bench.read()
    assert kinds(report) == [("sudden_loss", "a/nic1 -> b/nic1")]
    assert kinds(bench.read(since_s=bench.now_s)) == []


def test_circuits_are_compared_with_the_plan_and_only_those_that_are_there_have_losses(bench):
    bench.switch.held = CrossConnects({pair: out for pair, out in bench.switch.held.items() if pair != 1})
    report = bench.read()
    assert kinds(report) == [("missing_circuit", "a/nic1 -> b/nic1")]
    assert len(report.stretches) == 3 * 47


def test_readings_of_labs_and_runs_stand_in_one_file_with_the_journal(bench, tmp_path):
    bench.read()
    with open_journal(tmp_path) as journal, open_history(tmp_path) as again:
        assert journal.find_open_steps() == ()
        assert len(again.read_series("testbed12", 0.0)) == 3 * 48
        assert again.read_series("another", 0.0) == {}
        assert again.read_series("testbed12", bench.now_s + 1) == {}


def test_a_reading_that_cannot_be_kept_is_judged_all_the_same_and_says_what_to_do(bench, tmp_path):
    (tmp_path / "runs").write_text("not a directory")
    bench.history = open_history(tmp_path / "runs")
    bench.fleet.received["b", "nic1"] = -4.8
    report = bench.read()
    assert "free disk space, or choose another directory for runs (--runs-dir)" in report.storage_error
    assert report.as_json()["not_kept"] == report.storage_error
    assert kinds(report) == [("excess_loss", "a/nic1 -> b/nic1")]
    assert {each.verdict.reading_count for each in report.stretches} == {1}


@pytest.mark.slow
def test_readings_kept_before_the_disk_was_full_are_judged_with_the_new_one(bench, monkeypatch):
    for _ in range(12):
        bench.read()

    def full(*_):
        raise ResultsError("no space left")

    monkeypatch.setattr(bench.history, "append", full)
    bench.fleet.received["b", "nic1"] = -2.8
    report = bench.read()
    assert (report.storage_error, kinds(report)) == ("no space left", [("sudden_loss", "a/nic1 -> b/nic1")])
    assert {each.verdict.reading_count for each in report.stretches} == {13}


def test_a_damaged_file_is_told_and_not_a_traceback(bench, tmp_path):
    (tmp_path / "lightbed.sqlite").write_bytes(b"no database" * 100)
    report = bench.read()
    assert "losses cannot be read in" in report.storage_error
    assert report.ok
    with pytest.raises(ResultsError, match="losses cannot be stored in"):
        bench.history.append("testbed12", 0.0, [each.loss for each in report.stretches])


def test_a_host_that_is_off_is_one_finding_and_its_dark_fibres_are_none(bench):
    bench.off = {"b": "no session with 10.99.0.12: connection refused"}
    bench.fleet.hosts = tuple(host for host in bench.lab.hosts if host.name != "b")
    dark = [each for each in bench.circuits if each.link.source.node == 1]
    for each in dark:
        bench.switch.readings |= dict.fromkeys(
            (each.input_port, each.output_port), Power(-60, below_floor=True)
        )
    assert len(dark) == 4
    report = bench.read()
    assert kinds(report) == [("host_off", "b")]
    assert len(report.stretches) == 44 * 3 - 4, "light that leaves the switch for b is not measured there"


def test_the_table_is_plain_enough_for_other_programs(bench, tmp_path):
    bench.read()
    with sqlite3.connect(tmp_path / "lightbed.sqlite") as plain:
        rows = plain.execute("select * from losses where place = 'ocs1:1-53'").fetchall()
    plain.close()
    expected = (pytest.approx(1.2), pytest.approx(1.2), pytest.approx(-1.5))
    assert rows == [("testbed12", "ocs1:1-53", bench.now_s, *expected)]


def test_the_document_is_json(bench):
    document = json.loads(json.dumps(bench.read().as_json()))
    assert document["series"][0] == {
        "place": "a/nic1:transmit",
        "link": "a/nic1 -> b/nic1",
        "loss_db": 0.3,
        "intent_db": 0.3,
        "excess_db": 0.0,
        "power_dbm": -0.3,
        "verdict": "learning",
        "baseline_db": 0.3,
        "level_db": 0.3,
        "noise_db": 0.2,
        "slope_db_per_day": 0.0,
        "since": document["taken"],
        "readings_since": 1,
        "readings": 1,
    }
