"""Every line of a log says which run, operation, device and lease it is about, in threads too."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("sqlalchemy")

from testbed.log_context import SUBJECTS, about, get_log_subjects, logger
from testbed.observe import json_log
from testbed.operate.apply import call_each

TESTBED12 = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"


@pytest.fixture
def log():
    """Provide the lines of the log as documents, when it is called."""
    stream = io.StringIO()
    levels = {name: logging.getLogger(name).level for name in json_log.LOGGER_NAMES}
    handler = json_log.log_to(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    json_log.remove_handler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_subjects_are_bound_from_the_outside_in_and_released(log):
    with about(run="r1", lease="l1"):
        with about(device="ocs1"):
            logger.info("light is on")
        logger.warning("one\ntwo %s", "ü")
    logger.debug("not told")
    logging.getLogger("ocs_drivers.progress").info("5 s so far")

    lines = log()
    assert [(line["level"], line["message"]) for line in lines] == [
        ("info", "light is on"),
        ("warning", "one\ntwo ü"),
        ("info", "5 s so far"),
    ]
    assert [tuple(line[subject] for subject in SUBJECTS) for line in lines] == [
        ("r1", None, "ocs1", "l1"),
        ("r1", None, None, "l1"),
        (None, None, None, None),
    ]
    assert lines[2]["logger"] == "ocs_drivers.progress"
    assert get_log_subjects() == {}


def test_threads_know_what_they_work_for(log):
    with about(operation="op1"):
        call_each({"ocs1": 1, "ocs2": 2}, lambda _item: logger.info("at work"))

    assert [line["operation"] for line in log()] == ["op1", "op1"]


def test_an_error_is_named_and_stays_on_its_line(log):
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("it failed")

    (line,) = log()
    assert (line["message"], line["error"]) == ("it failed", "ValueError: a\nb")


class Switch:
    """A switch in memory that does what it is told."""

    def __init__(self):
        from ocs_drivers.model import Capabilities, CrossConnects

        self.address = "memory://log"
        self.capabilities = Capabilities(48, 48, atomic_whole=True)
        self.held = CrossConnects()

    def read(self):
        from ocs_drivers.model import Snapshot

        return Snapshot(self.held, 0.0)

    def plan(self, target, seen, scope=None):
        from ocs_drivers.engine import planning

        return planning.plan(target, seen, capabilities=self.capabilities, scope=scope, device=self.address)

    def execute(self, step, guard):
        from ocs_drivers.engine.transaction import judge_step

        guard()
        self.held = step.after
        return judge_step(step, self.read(), device_s=0.0)


def test_an_apply_in_a_run_is_logged_with_all_four_subjects(log, tmp_path):
    from testbed.design.patching.wiring import make_wiring
    from testbed.design.topology.circulants import find_topology
    from testbed.lab.inventory import load_lab
    from testbed.measure.results.store import RunStore
    from testbed.operate.apply import apply_plan
    from testbed.operate.journal import open_journal
    from testbed.operate.plan import plan_lab

    lab = replace(load_lab(TESTBED12), name="logged")
    switches = {"ocs1": Switch()}
    with (
        open_journal(tmp_path) as journal,
        RunStore(tmp_path).begin_run(lab, True, "model", {}, arguments=["x"]) as run,
    ):
        applied = apply_plan(
            lab, plan_lab(lab, make_wiring(find_topology(12, 4)), switches), switches, journal
        )

    lines = log()
    assert [line["message"] for line in lines] == [
        "run started",
        "apply of lab logged started",
        "step 0 (replace) is sent",
        "step 0 is done",
        "operation ended: done",
        "run ended: done",
    ]
    assert {line["run"] for line in lines} == {run.run_id}
    assert [line["operation"] for line in lines] == [None, *[applied.operation] * 4, None]
    assert [line["device"] for line in lines] == [None, None, "ocs1", "ocs1", None, None]
    assert lines[2]["lease"]
    assert [line["lease"] for line in lines] == [None, *[lines[2]["lease"]] * 4, None]


def test_the_environment_says_where_lines_go(tmp_path, monkeypatch):
    place = tmp_path / "log.jsonl"
    monkeypatch.setenv(json_log.LOG_VARIABLE, str(place))
    handler = json_log.log_from_environment()
    assert json_log.log_from_environment() is None  # a second command of the same process
    logger.info("told")
    json_log.remove_handler(handler)
    logger.info("not told")
    monkeypatch.setenv(json_log.LOG_VARIABLE, "")
    assert json_log.log_from_environment() is None

    assert [json.loads(line)["message"] for line in place.read_text().splitlines()] == ["told"]
