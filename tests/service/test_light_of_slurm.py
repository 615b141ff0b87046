"""The light of a Slurm job, `examples/slurm/light.py`, on a lab of modelled hosts: from its file and from a service.

Slurm's commands are not there: the test holds its state. tests/operate/test_slurm.py runs the real ones.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")


LIGHT = Path(__file__).resolve().parents[2] / "examples" / "slurm" / "light.py"
PATIENCE_S = 60.0


class Controller:
    """The state of jobs that slurmctld would hold: which are being configured, and their comments."""

    def __init__(self):
        self.nodes, self.comments, self.held, self.cancelled = {}, {}, [], set()
        self.said = threading.Condition()

    def ask(self, *command):
        text = " ".join(command)
        if text.startswith("scontrol show hostnames"):
            return text.split()[-1].replace(",", "\n")
        if text.startswith("scontrol requeuehold"):
            self.held.append(command[-1])
            return ""
        job = next(word.removeprefix("--jobs=") for word in command if word.startswith("--jobs="))
        if "--states=CF" in command:
            return "" if job in self.cancelled else job
        return "10:00"

    def set_comment(self, job, comment):
        with self.said:
            self.comments.setdefault(job, []).append(comment.partition("; ")[2])
            self.said.notify_all()

    def wait_for(self, job, words):
        with self.said:
            seen = lambda: any(words in one for one in self.comments.get(job, ()))
            assert self.said.wait_for(seen, PATIENCE_S), (words, self.comments)


@pytest.fixture(params=["file", pytest.param("service", marks=pytest.mark.long)])
def slurm(request, up, tmp_path, monkeypatch):
    """Provide prologs and epilogs of jobs on the lab that is up, through its file and through the service."""
    specification = importlib.util.spec_from_file_location("light_on_a_lab", LIGHT)
    light = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, light)
    specification.loader.exec_module(light)
    controller = Controller()
    monkeypatch.setattr(light, "ask_slurm", controller.ask)
    monkeypatch.setattr(light, "set_comment", controller.set_comment)
    monkeypatch.setattr(light, "POLL_S", 0.1)
    monkeypatch.setenv("TESTBED_PATIENCE_S", str(PATIENCE_S))
    monkeypatch.delenv("TESTBED_REALLY_MOVE", raising=False)
    if request.param == "file":
        monkeypatch.setenv("TESTBED_LAB", str(up[1]))
        monkeypatch.setenv("LIGHTBED_RUNS", str(tmp_path / "runs"))
    else:
        running = request.getfixturevalue("running")
        monkeypatch.setenv("TESTBED_LAB", f"{running.url}/{up[0].lab.name}")
        monkeypatch.setenv("LIGHTBED_TOKEN", running.token("developer"))
        monkeypatch.delenv("LIGHTBED_RUNS", raising=False)

    def run(job, action, comment="", hosts=""):
        for name, value in {
            "SLURM_JOB_ID": job,
            "SLURM_JOB_COMMENT": comment,
            "SLURM_JOB_NODELIST": hosts,
            "SLURM_JOB_USER": "ann",
            "SLURM_CLUSTER_NAME": "bench",
        }.items():
            monkeypatch.setenv(name, value)
        return {"acquire": light.acquire, "release": light.release}[action]()

    controller.run, controller.light = run, light
    return controller


def find_leases(slurm):
    with slurm.light.open_job_lab() as lab:
        leases = lab.command("lease list").leases
        return {lease.reason.split(",")[0]: lease for lease in leases if lease.state in ("granted", "queued")}


def test_jobs_hold_their_hosts_and_circuits_of_idle_hosts_give_way(slurm):
    with slurm.light.open_job_lab() as lab:
        assert lab.apply(method="geometric").verified
    assert slurm.run("1", "acquire", "testbed: nodes=4 demand=2:64MiB", "a,b,c,d") == 0
    assert slurm.comments["1"][-1].startswith("has light: 16 circuits, epoch ")
    assert slurm.run("2", "acquire", "testbed: nodes=3", "g,f,e") == 0
    assert slurm.comments["2"][-1].startswith("has light: 12 circuits, epoch ")
    leases = find_leases(slurm)
    assert {reason: lease.resources for reason, lease in leases.items()} == {
        "Slurm job 1 of cluster bench": ("host:a", "host:b", "host:c", "host:d"),
        "Slurm job 2 of cluster bench": ("host:g", "host:f", "host:e"),
    }
    with slurm.light.open_job_lab() as lab:
        assert not lab.plan(hosts_of="a,b,c,d", demand=("2:67108864",)).has_changes
        # Without a topology, hosts mean the one that is in force on exactly these.
        stored = lab.plan(hosts_of="a,b,c,d")
        assert (stored.epoch is None, stored.has_changes) == (False, False)
    assert slurm.run("1", "release") == 0
    assert set(find_leases(slurm)) == {"Slurm job 2 of cluster bench"}
    assert slurm.run("2", "release") == 0
    assert slurm.run("2", "release") == 0
    assert find_leases(slurm) == {}


@pytest.mark.long
def test_a_job_without_a_demand_gets_rings_not_what_an_earlier_job_left(slurm):
    assert slurm.run("8", "acquire", "testbed: nodes=4 demand=2:64MiB", "a,b,c,d") == 0
    assert slurm.run("8", "release") == 0
    assert slurm.run("9", "acquire", "testbed: nodes=4", "a,b,c,d") == 0
    with slurm.light.open_job_lab() as lab:
        assert not lab.plan(hosts_of="a,b,c,d", method="geometric").has_changes
        assert lab.plan(hosts_of="a,b,c,d", demand=("2:67108864",)).has_changes
    assert slurm.run("9", "release") == 0


def test_a_job_waits_for_a_lease_of_others_and_is_cancelled(slurm):
    with slurm.light.open_job_lab() as lab:
        lease = lab.lease(["host:b"], reason="laser", ttl="5m")

        def cancel():
            slurm.wait_for("3", f"waits for light: lease {lease.id} of ")
            slurm.cancelled.add("3")

        other = threading.Thread(target=cancel)
        other.start()
        assert slurm.run("3", "acquire", "testbed: nodes=2", "a,b") == 1
        other.join()
        assert slurm.run("3", "release") == 0
        assert set(find_leases(slurm)) == {"laser"}
        lease.release()
    assert slurm.held == []


def test_a_job_that_cannot_get_light_says_why(slurm, monkeypatch):
    assert slurm.run("4", "acquire", "testbed: nodes=2", "a,z") == 1
    assert "got no light: " in slurm.comments["4"][-1]
    assert "host:z" in slurm.comments["4"][-1]
    assert slurm.run("5", "acquire", "testbed: nodes=3", "a,b") == 1
    assert slurm.comments["5"][-1] == "got no light: nodes=3, but Slurm chose 2 nodes"
    assert slurm.held == ["4", "5"]
    monkeypatch.setenv("TESTBED_PATIENCE_S", "0.2")
    with slurm.light.open_job_lab() as lab, lab.lease(["host:b"], reason="laser", ttl="5m") as lease:
        assert slurm.run("6", "acquire", "testbed: nodes=2", "a,b") == 1
        assert slurm.comments["6"][-1].startswith(f"got no light within 0.2 s: lease {lease.id} of ")
        assert set(find_leases(slurm)) == {"laser"}
    assert slurm.held == ["4", "5"]


@contextmanager
def act_as_ann(slurm, monkeypatch, request):
    """Open the lab as another person than the prolog's."""
    with monkeypatch.context() as patch:
        if "LIGHTBED_RUNS" in os.environ:
            patch.setenv("LIGHTBED_ON_BEHALF_OF", "ann")
        else:
            patch.setenv("LIGHTBED_TOKEN", request.getfixturevalue("running").token("admin"))
        with slurm.light.open_job_lab() as lab:
            yield lab


@pytest.mark.long
def test_leases_of_others_with_the_reason_of_a_job_are_left_alone(slurm, monkeypatch, request):
    reason = "Slurm job 8 of cluster bench, user ann"
    with slurm.light.open_job_lab() as lab:
        (lease,) = lab.command("lease request", ["host:l"], reason="whose").leases
        lab.command("lease release", lease.id)
    with act_as_ann(slurm, monkeypatch, request) as lab:
        for host, allowed in (("j", ()), ("k", (lease.owner,))):
            lab.command("lease request", [f"host:{host}"], reason=reason, ttl="5m", allow=allowed)
    assert slurm.run("8", "acquire", "testbed: nodes=2", "a,b") == 0
    assert slurm.comments["8"][-1].startswith("has light: ")
    assert slurm.run("8", "release") == 0
    with act_as_ann(slurm, monkeypatch, request) as lab:
        leases = [lease for lease in lab.command("lease list").leases if lease.reason == reason]
        assert sorted(lease.resources for lease in leases) == [("host:j",), ("host:k",)]
        for lease in leases:
            lab.command("lease release", lease.id)


@pytest.mark.long
def test_maintenance_is_waited_for(slurm):
    def work():
        slurm.wait_for("7", "waits for light: lab ")
        with slurm.light.open_job_lab() as lab:
            lab.command("maintenance", "off")

    with slurm.light.open_job_lab() as lab:
        lab.command("maintenance", "on", reason="hands in the rack")
    other = threading.Thread(target=work)
    other.start()
    assert slurm.run("7", "acquire", "testbed: nodes=2", "k,l") == 0
    other.join()
    assert any("is under maintenance" in one for one in slurm.comments["7"])
    assert slurm.run("7", "release") == 0
