"""The lab of a service: leased, used through runs, restored by a rollback; told from one that is broken."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from libraries import skip_without

skip_without("sqlalchemy")
skip_without("pydantic")

from testbed.commands.declare import list_fields
from testbed.errors import LeaseDenied, VerifyFailed
from testbed.leases.choice import get_selected_lease
from testbed.pytest_plugin import served
from testbed.pytest_plugin.needs import LabNeeds
from testbed.pytest_plugin.options import LabOptions


class Service:
    """A service with one lab, as its client and its carrier show it. It keeps a diary of commands."""

    name = "shared"

    def __init__(self):
        self.diary, self.epochs = [], [SimpleNamespace(id=1, verified=True, state="verified")]
        self.maintenance, self.grant, self.fails = None, "granted", ""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.diary.append("closed")

    def list_labs(self):
        return [{"name": self.name}]

    def lab(self, name):
        assert name == self.name
        return self

    def read_state(self):
        return {"maintenance": self.maintenance}

    def read(self, document):
        assert document == "hosts"
        return {"hosts": [{"name": name, "nics": [{}, {}]} for name in "abcd"]}

    def list_hosts(self):
        return tuple("abcd")

    def extend_lease(self, lease):
        pass

    def run(self, words, command, progress):
        if words == "history":
            return SimpleNamespace(epochs=tuple(self.epochs))
        changed = [each for each in list_fields(type(command)) if getattr(command, each.name) != each.default]
        self.diary.append(
            (words, {each.name: getattr(command, each.name) for each in changed}, get_selected_lease())
        )
        if words.startswith("lease"):
            lease = SimpleNamespace(id="L1", state=self.grant, waits_for="lease L0", resources=("lab",))
            return SimpleNamespace(leases=(lease,))
        if words in ("apply", "rollback"):
            epoch = SimpleNamespace(id=self.epochs[0].id + 1, verified=words != self.fails, state="x")
            self.epochs.insert(0, epoch)
        finding = SimpleNamespace(kind="no_light", subject="a", detail="dark")
        return SimpleNamespace(
            verified=words != self.fails, ok=True, findings=(finding,) * (words == self.fails)
        )


@pytest.fixture
def service(monkeypatch):
    """Provide a service, and a `testbed.client` that leads to it."""
    one = Service()
    module = ModuleType("testbed.client")
    module.connect = module.connect_async = lambda url, token=None: one
    monkeypatch.setitem(sys.modules, "testbed.client", module)
    monkeypatch.setattr(served, "ServiceBackend", lambda client, lab, connect_async: client)
    monkeypatch.delenv("LIGHTBED_LEASE", raising=False)
    return one


def enter(needs=None, **more):
    given = {
        "file": None, "server": "http://lab", "name": None, "hosts_choice": "model", "runs_dir": None, "wait_s": 9.0,
        "really_move": None, "board": None,
    }  # fmt: skip
    return served.lease_served_lab(needs or LabNeeds(), LabOptions(**given | more), "test_x.py::test_it")


REQUEST = ("lease request", {"ttl": "300s", "wait": 9.0, "reason": "pytest: test_x.py::test_it"}, "")


def test_a_lab_is_leased_moved_under_the_lease_and_put_back(service):
    with enter(really_move="shared") as lab:
        assert lab.hosts == ("a", "b", "c", "d")
        assert lab.apply(simplex=True).verified
        assert lab.verify().ok

    rings = {"hosts": "model", "simplex": True, "method": "geometric", "really_move": "shared"}
    assert service.diary == [
        REQUEST,
        ("apply", rings, "L1"),
        ("verify", {"hosts": "model"}, "L1"),
        ("rollback", {"hosts": "model", "really_move": "shared", "epoch": 1}, "L1"),
        ("lease release", {"lease": "L1"}, ""),
        "closed",
    ]


def test_a_test_that_applies_nothing_needs_no_rollback(service):
    with enter(name="shared"):
        pass

    assert [entry[0] for entry in service.diary[:-1]] == ["lease request", "lease release"]


def test_findings_of_the_service_are_findings(service):
    service.fails = "apply"
    with enter() as lab:
        applied = lab.apply()
        assert not applied.verified
        assert [(one.kind, one.subject) for one in applied.findings] == [("no_light", "a")]


def test_a_rollback_that_is_not_proven_is_an_error_and_the_next_test_is_skipped(service):
    service.fails = "rollback"
    with (
        pytest.raises(VerifyFailed, match="epoch 1 of lab 'shared' is restored, but not verified"),
        enter() as lab,
    ):
        lab.apply()
    with pytest.raises(pytest.skip.Exception, match="marked broken: epoch 3"), enter():
        pass
    assert [entry[0] for entry in service.diary].count("lease release") == 2


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (LabNeeds(host_count=5), "has 4 hosts of 1 NICs, and 5 are needed"),
        (LabNeeds(degree=3), "has 0 hosts of 3 NICs"),
        (LabNeeds(gpu_count_per_host=1), "does not report GPUs"),
    ],
)
def test_what_the_lab_does_not_have_skips(service, needs, words):
    with pytest.raises(pytest.skip.Exception, match=words), enter(needs):
        pass
    assert service.diary == ["closed"]


def test_maintenance_and_a_dark_lab_skip(service):
    service.maintenance = {"reason": "a fan"}
    with pytest.raises(pytest.skip.Exception, match="under maintenance: a fan"), enter():
        pass
    service.maintenance, service.epochs = None, []
    with pytest.raises(pytest.skip.Exception, match="no epoch is in force"), enter():
        pass


def test_what_cannot_be_is_told(service):
    with (
        pytest.raises(
            pytest.UsageError, match="--lab-server http://lab has the labs shared: choose one with --lab-name"
        ),
        enter(name="other"),
    ):
        pass
    service.grant = "queued"
    with pytest.raises(LeaseDenied, match="not granted within 0 s: lease L0"), enter(wait_s=0.0):
        pass
    assert [entry[0] for entry in service.diary[-2:-1]] == ["lease release"]


def test_a_heartbeat_goes_on_until_it_is_left_whatever_it_meets():
    import threading

    from testbed.leases.heartbeat import keep_alive

    beats, third = [], threading.Event()

    def beat():
        beats.append(1)
        if len(beats) == 3:
            third.set()
        raise LeaseDenied("not now")

    with keep_alive(beat, period_s=0.001):
        assert third.wait(60)
    count = len(beats)
    assert threading.active_count() >= 1
    assert len(beats) == count
