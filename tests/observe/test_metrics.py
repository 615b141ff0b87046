"""Metrics say what the database and the switches hold, with labels that do not grow; the dashboard shows them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from libraries import library, skip_without

skip_without("pyarrow")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.observe.device_metrics import make_samples
from testbed.observe.exposition import METRIC_BY_NAME, METRICS, Sample, format_exposition
from testbed.observe.stored_metrics import load_samples
from testbed.operate.light import SwitchReading

prometheus = library("prometheus_client.parser")
ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "examples" / "grafana" / "testbed.json"
FORBIDDEN_LABELS = {"run", "run_id", "operation", "op", "owner", "who", "user", "lease", "id", "token"}


def values(samples):
    return {(one.metric_name, *one.label_values): one.value for one in samples}


@pytest.fixture
def past(laboratory):
    """Yield a laboratory with a run, a reading, an epoch, an operation, leases, maintenance and a fault."""
    from testbed.leases.store import LeaseStore
    from testbed.operate.journal import open_journal
    from testbed.storage.database import Database

    laboratory.run(0, mbps=90)
    laboratory.reading(0.5, -1.5)
    laboratory.epoch(0.5, 7, "--simplex")
    with open_journal(laboratory.runs_dir) as journal, journal.open_operation("t4", "repair"):
        pass
    database = Database(laboratory.runs_dir / "lightbed.sqlite")
    store = LeaseStore(database, "t4")
    store.request(("host:a",), frozenset({"host:a"}))
    store.request(("host:a",), frozenset({"host:a"}))
    store.set_maintenance("a fan")
    store.write_checks({"host:b": "host_off", "host:c": ""})
    yield laboratory
    database.close()


def test_metrics_say_what_the_database_holds(past):
    found = values(load_samples(past.runs_dir))
    largest = ("t4", "true", "all_reduce", "ring: one ring", "4", "1048576")

    assert found["testbed_operations_total", "t4", "repair", "done"] == 1
    assert found["testbed_runs_total", "t4", "done"] == 1
    assert found["testbed_epoch", "t4"] == 7
    assert found["testbed_epoch_verified", "t4"] == 1
    assert found["testbed_leases", "t4", "granted"] == 1
    assert found["testbed_leases", "t4", "queued"] == 1
    assert found["testbed_leases", "t4", "draining"] == 0
    assert found["testbed_maintenance", "t4"] == 1
    assert found["testbed_faulty_parts", "t4"] == 1
    assert found["testbed_bus_bandwidth_mbps", *largest] == 90
    assert found["testbed_link_limit_mbps", *largest] == 100
    assert found["testbed_optical_power_dbm", "t4", "a/nic1:transmit"] == -1.5
    assert found["testbed_optical_excess_loss_db", "t4", "a/nic1:transmit"] == 0
    assert found["testbed_last_run_timestamp_seconds", "t4"] == 1772366400  # 2026-03-01T12:00Z


def test_steps_are_counted_and_timed(laboratory):
    import sqlalchemy as sa

    from testbed.operate.journal import open_journal
    from testbed.storage.schema import steps

    with open_journal(laboratory.runs_dir) as journal, journal.open_operation("t4") as operation:
        rows = [
            {
                "operation": operation, "switch": "ocs1", "ordinal": number, "address": "x", "kind": "add",
                "before": "{}", "after": "{}", "outcome": "done",
                "intent_at": f"2026-03-01T12:00:{number:02}.000000+00:00",
                "outcome_at": f"2026-03-01T12:00:{number:02}.{number:02}0000+00:00", "state": "verified",
                "change": "circuits",
            }
            for number in range(20)
        ]  # fmt: skip
        with journal.open_transaction() as connection:
            connection.execute(sa.insert(steps), rows)
    found = values(load_samples(laboratory.runs_dir))

    assert found["testbed_steps_total", "t4", "ocs1", "circuits", "verified"] == 20
    assert found["testbed_step_seconds", "t4", "circuits", "0.5"] == pytest.approx(0.10)
    assert found["testbed_step_seconds", "t4", "circuits", "0.95"] == pytest.approx(0.19)


@pytest.mark.slow
def test_labels_do_not_grow_with_runs_operations_epochs_and_readings(laboratory):
    from testbed.operate.journal import open_journal

    counts = []
    for day in range(6):
        laboratory.run(day, mbps=90)
        laboratory.reading(day, -1.0, place=f"ocs1:1-{49 + day}")  # each day patched otherwise
        laboratory.epoch(day, day + 1, "--simplex")
        with open_journal(laboratory.runs_dir) as journal, journal.open_operation("t4"):
            pass
        counts.append(len(load_samples(laboratory.runs_dir)))

    assert counts == [counts[0]] * 6
    assert not FORBIDDEN_LABELS & {label for metric in METRICS for label in metric.label_names}


def test_switches_are_told_as_they_answer():
    reading = SwitchReading(
        Snapshot(CrossConnects({1: 9, 2: 10}), 0.0),
        {1: Power(-1.25), 2: Power(-40.0, below_floor=True), 3: Power(-40.0, below_floor=True), 9: None},
    )
    assert values(make_samples("t4", {"ocs1": reading}, {"ocs2": "refused"})) == {
        ("testbed_switch_up", "t4", "ocs1"): 1,
        ("testbed_switch_up", "t4", "ocs2"): 0,
        ("testbed_circuits", "t4", "ocs1"): 2,
        ("testbed_dark_ports", "t4", "ocs1"): 1,
        ("testbed_port_power_dbm", "t4", "ocs1", "1"): -1.25,
    }


def test_prometheus_reads_the_text(past):
    samples = [*load_samples(past.runs_dir), Sample("testbed_switch_up", ('a "lab"\\\n', "ocs1"), 1)]
    families = {
        one.name: one for one in prometheus.text_string_to_metric_families(format_exposition(samples))
    }
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    given = {
        (
            one.metric_name,
            tuple(sorted(zip(METRIC_BY_NAME[one.metric_name].label_names, one.label_values, strict=True))),
        ): one.value
        for one in samples
    }

    assert read == pytest.approx(given)
    for family in families.values():
        assert family.documentation
        assert family.type in ("counter", "gauge")


def test_a_laboratory_without_a_past_has_no_samples(tmp_path):
    assert load_samples(tmp_path / "runs") == ()
    assert format_exposition(()) == ""
    with pytest.raises(ValueError, match="has the labels"):
        Sample("testbed_epoch", (), 1)


def test_the_page_lists_every_metric_as_the_table_has_it():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `testbed_")]

    assert rows == [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.label_names)} | {one.help} |"
        for one in METRICS
    ]


def test_the_dashboard_shows_every_metric_and_no_other():
    document = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    named = [name for text in expressions for name in re.findall(r"\btestbed_[a-z_]+", text)]

    assert set(named) == set(METRIC_BY_NAME)
    for expression in expressions:
        (name,) = re.findall(r"\btestbed_[a-z_]+", expression)
        labels = set(re.findall(r"(\w+)=~?\"", expression))
        for group in re.findall(r"by \(([^)]*)\)", expression):
            labels |= set(re.split(r",\s*", group))
        assert labels <= set(METRIC_BY_NAME[name].label_names), expression
        if METRIC_BY_NAME[name].kind == "counter":
            assert "increase(" in expression, expression
    for panel in panels:
        assert panel["title"], panel["id"]
        assert panel["description"]
        for target in panel["targets"]:
            (name,) = re.findall(r"\btestbed_[a-z_]+", target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= set(
                METRIC_BY_NAME[name].label_names
            )
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert re.findall(r"testbed_\w+", json.dumps(document["templating"])) == ["testbed_epoch"]
