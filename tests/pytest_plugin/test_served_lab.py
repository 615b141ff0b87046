"""The lab of a service: leased, run through its client, put back by a rollback; told from one that is broken."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from libraries import skip_without

skip_without("sqlalchemy")
skip_without("pydantic")

from testbed.errors import LeaseDenied, VerifyFailed
from testbed.pytest_plugin import served
from testbed.pytest_plugin.needs import Needs
from testbed.pytest_plugin.options import LabOptions


class Lab:
    """A lab as the client shows it, with a service behind it that keeps a diary."""

    name = "shared"

    def __init__(self):
        self.diary, self.epochs = [], [{"id": 1, "verified": True, "state": "verified"}]
        self.maintenance, self.states, self.fails = None, ["granted"], ""

    def read_state(self):
        return {"maintenance": self.maintenance}

    def read(self, document):
        hosts = [{"name": name, "nics": [{}, {}]} for name in "abcd"]
        return {"hosts": {"hosts": hosts}, "history": {"epochs": self.epochs}}[document]

    def request_lease(self, resources, **options):
        self.diary.append(("request", tuple(resources), options["reason"]))
        return {"id": "L1", "state": self.states[0]}

    def extend_lease(self, lease, ttl_s=None):
        self.states = self.states[1:] or self.states
        return {"id": lease, "state": self.states[0]}

    def release_lease(self, lease):
        self.diary.append(("release", lease))

    def run(self, command, **options):
        self.diary.append((command, options))
        if command != "verify":
            number = self.epochs[0]["id"] + 1
            self.epochs = [{"id": number, "verified": command != self.fails, "state": "x"}, *self.epochs]
        finding = {"kind": "no_light", "subject": "a", "detail": "dark", "hint": "", "more": 1}
        result = {
            "verified": command != self.fails,
            "ok": True,
            "findings": [finding] * (command == self.fails),
        }
        return SimpleNamespace(id="r1", state="done", exit_code=0, messages="", result=result)


@pytest.fixture
def lab(monkeypatch):
    """Provide the lab of a service, and a `testbed.client` that leads to it."""
    one = Lab()

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            one.diary.append("closed")

        def list_labs(self):
            return [{"name": "shared"}]

        def lab(self, name):
            return one

    module = ModuleType("testbed.client")
    module.connect = lambda url, token=None: Client()
    monkeypatch.setitem(sys.modules, "testbed.client", module)
    monkeypatch.setattr(served, "POLL_S", 0.0)
    return one


def enter(needs=None, **more):
    given = {
        "file": None, "server": "http://lab", "name": None, "hosts": "model", "runs_dir": None, "wait_s": 9.0,
        "really_move": None, "board": None,
    }  # fmt: skip
    return served.lease_served_lab(needs or Needs(), LabOptions(**given | more), "test_x.py::test_it")


def test_a_lab_is_leased_moved_under_the_lease_and_put_back(lab):
    lab.states = ["queued", "queued", "granted"]
    with enter() as given:
        assert given.hosts == ["a", "b", "c", "d"]
        assert given.apply(simplex=True).verified.ok
        assert given.verify().ok

    assert lab.diary == [
        ("request", (), "pytest: test_x.py::test_it"),
        ("apply", {"lease": "L1", "hosts": "model", "simplex": True}),
        ("verify", {}),
        ("rollback", {"lease": "L1", "hosts": "model", "epoch": 1}),
        ("release", "L1"),
        "closed",
    ]


def test_a_test_that_applies_nothing_needs_no_rollback(lab):
    with enter(name="shared", really_move="shared"):
        pass

    assert [entry[0] for entry in lab.diary[:-1]] == ["request", "release"]


def test_findings_of_the_service_are_findings(lab):
    lab.fails = "apply"
    with enter() as given:
        proof = given.apply().verified
        assert not proof.ok
        assert [(one.kind, one.subject) for one in proof.findings] == [("no_light", "a")]


def test_a_run_that_fails_is_told_with_its_reason(lab):
    error = {"error": {"code": "refused", "message": "lab 'shared' is real"}}
    lab.run = lambda command, **options: SimpleNamespace(
        id="r7", state="failed", exit_code=1, messages="", result=error
    )
    with (
        pytest.raises(VerifyFailed, match=r"run r7 \(apply\) .* is failed: lab 'shared' is real"),
        enter() as given,
    ):
        given.apply()


def test_a_rollback_that_is_not_proven_is_an_error_and_the_next_test_is_skipped(lab):
    lab.fails = "rollback"
    with (
        pytest.raises(VerifyFailed, match="epoch 1 of lab 'shared' is restored, but not verified"),
        enter() as given,
    ):
        given.apply()
    with pytest.raises(pytest.skip.Exception, match="marked broken: epoch 3"), enter():
        pass
    assert lab.diary.count(("release", "L1")) == 2


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(hosts=5), "has 4 hosts of 1 NICs, and 5 are needed"),
        (Needs(degree=3), "has 0 hosts of 3 NICs"),
        (Needs(gpus=1), "does not report GPUs"),
    ],
)
def test_what_the_lab_does_not_have_skips(lab, needs, words):
    with pytest.raises(pytest.skip.Exception, match=words), enter(needs):
        pass
    assert lab.diary == ["closed"]


def test_maintenance_and_a_dark_lab_skip(lab):
    lab.maintenance = {"reason": "a fan"}
    with pytest.raises(pytest.skip.Exception, match="under maintenance: a fan"), enter():
        pass
    lab.maintenance, lab.epochs = None, []
    with pytest.raises(pytest.skip.Exception, match="no epoch is in force"), enter():
        pass


def test_what_cannot_be_is_told(lab):
    with (
        pytest.raises(
            pytest.UsageError, match="--lab-server http://lab has the labs shared: choose one with --lab-name"
        ),
        enter(name="other"),
    ):
        pass
    lab.states = ["queued"]
    with pytest.raises(LeaseDenied, match="not granted within 0 s"), enter(wait_s=0.0):
        pass
    assert ("release", "L1") in lab.diary


def test_a_heartbeat_goes_on_until_it_is_left_whatever_it_meets():
    import threading

    from testbed.leases.heartbeat import keep_alive

    beats, third = [], threading.Event()

    def beat():
        beats.append(1)
        if len(beats) == 3:
            third.set()
        raise LeaseDenied("not now")

    with keep_alive(beat, every_s=0.001):
        assert third.wait(60)
    count = len(beats)
    assert threading.active_count() >= 1
    assert len(beats) == count
