"""`/metrics` says what `testbed metrics` says, of the labs that somebody may see; the dashboard finds all it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from laboratories import laboratory
from libraries import library, skip_without

skip_without("fastapi")
skip_without("httpx")
skip_without("pyarrow")

from ocs_drivers.errors import TransportError
from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.observe.device_metrics import make_samples
from testbed.observe.exposition import CONTENT_TYPE, METRIC_BY_NAME, format_exposition
from testbed.observe.stored_metrics import load_samples
from testbed.operate.light import SwitchReading
from testbed.service import labs, metrics
from testbed.service.access import Identity

prometheus = library("prometheus_client.parser")
DASHBOARD = Path(__file__).resolve().parents[2] / "examples" / "grafana" / "testbed.json"
ANN = Identity("ann", "operator")
__all__ = ["laboratory"]


@pytest.fixture
def past(laboratory, service):
    """Provide a service whose lab has a run, a reading, an epoch, a step, a lease and a finding."""
    import sqlalchemy as sa

    from testbed.operate.journal import open_journal
    from testbed.storage.schema import steps

    assert laboratory.runs_dir == service.runs_dir
    laboratory.run(0, mbps=90)
    laboratory.reading(0.5, -1.5)
    laboratory.epoch(0.5, 7, "--simplex")
    with open_journal(laboratory.runs_dir) as journal, journal.open_operation("t4") as operation:
        step = {
            "operation": operation, "switch": "ocs1", "ordinal": 0, "address": "x", "kind": "add",
            "before": "{}", "after": "{}", "outcome": "done", "intent_at": "2026-03-01T12:00:00.000000+00:00",
            "outcome_at": "2026-03-01T12:00:00.500000+00:00", "state": "verified", "change": "circuits",
        }  # fmt: skip
        with journal.open_transaction() as connection:
            connection.execute(sa.insert(steps), [step])
    laboratory.epoch(0.5, 7, "--simplex", lab="testbed12")
    run, _ = service.runs.submit(Identity("anna", "viewer"), "testbed12", "verify", "{}")
    service.runs.store_finished(
        run.id, 2, json.dumps({"epoch": 7, "findings": [{"kind": "missing_circuit"}]}), ""
    )
    return service


@pytest.fixture
def switches(monkeypatch, service):
    """Provide what the lab's switch answers, and how often it was asked; a function in place of it is called."""
    power = {1: Power(-1.25), 2: Power(-40.0, below_floor=True)}
    reading = SwitchReading(Snapshot(CrossConnects({1: 9, 2: 10}), 0.0), power)
    asked = []

    def device_samples(lab):
        asked.append(lab.name)
        if asked.count("fail"):
            raise TransportError("no answer")
        return tuple(make_samples(lab.name, {"ocs1": reading}, {"ocs2": "refused"}))

    monkeypatch.setattr(metrics, "read_device_samples", device_samples)
    monkeypatch.setattr(metrics, "find_running_lab", lambda lab: lab)
    monkeypatch.setattr(labs, "_find_outage", lambda lab: "")
    return asked


def families(text):
    return {one.name: one for one in prometheus.text_string_to_metric_families(text)}


@pytest.mark.slow
def test_the_answer_is_that_of_the_command(past, ask, switches, token_of):
    told = ask("GET", "/metrics", token_of("viewer"))

    assert told.headers["content-type"] == CONTENT_TYPE
    stored = format_exposition(load_samples(past.runs_dir)).splitlines()
    assert [line for line in stored if line not in told.text.splitlines()] == []
    assert 'testbed_switch_up{lab="testbed12",switch="ocs1"} 1' in told.text
    assert 'testbed_switch_up{lab="testbed12",switch="ocs2"} 0' in told.text


@pytest.mark.slow
def test_the_dashboard_finds_every_metric_with_its_labels(past, ask, switches):
    """Names, labels of selectors and of legends: what a panel asks for is there."""
    answered = {
        sample.name: set(sample.labels)
        for family in families(ask("GET", "/metrics").text).values()
        for sample in family.samples
    }
    panels = json.loads(DASHBOARD.read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]

    assert set(answered) == set(METRIC_BY_NAME)
    assert len(targets) >= len(METRIC_BY_NAME)
    for target in targets:
        (name,) = re.findall(r"\btestbed_[a-z_]+", target["expr"])
        wanted = set(re.findall(r"(\w+)=~?\"", target["expr"])) | set(
            re.findall(r"{{(\w+)}}", target["legendFormat"])
        )
        assert wanted <= answered[name], target["expr"]


@pytest.mark.slow
def test_a_token_for_a_lab_sees_no_other(past, ask, switches, token_of):
    told = ask("GET", "/metrics", token_of("viewer", labs=["t4"])).text

    assert 'lab="t4"' in told
    assert "testbed12" not in told
    assert ask("GET", "/metrics", token_of("admin", scopes=["audit:read"])).status_code == 403


def test_switches_are_read_once_however_many_ask(service, ask, switches):
    answers = {ask("GET", "/metrics").text for _ in range(3)}

    assert len(answers) == 1
    assert switches == ["testbed12"]


def test_switches_are_not_read_while_a_run_moves_the_lab(service, ask, switches):
    request = '{"command": "apply", "lab": "testbed12"}'
    run, _ = service.runs.submit(ANN, "testbed12", "apply", request)
    service.runs.claim_run(run.id)
    assert "testbed_switch_up" not in ask("GET", "/metrics").text
    service.runs.store_finished(run.id, 0, "", "")

    assert "testbed_switch_up" in ask("GET", "/metrics").text
    assert switches == ["testbed12"]


def test_switches_of_a_lab_that_is_down_are_down(ask):
    assert 'testbed_switch_up{lab="testbed12",switch="ocs1"} 0' in ask("GET", "/metrics").text


@pytest.mark.slow
def test_switches_that_cannot_be_read_are_down_and_the_rest_is_told(past, ask, switches):
    switches.append("fail")

    told = ask("GET", "/metrics")

    assert told.status_code == 200
    assert 'testbed_switch_up{lab="testbed12",switch="ocs1"} 0' in told.text
    assert "testbed_epoch" in told.text
