"""A lab that stands: what a test gets of it is leased and restored; what is broken is skipped."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("sqlalchemy")

from testbed.client.calls import ServiceUnreachable
from testbed.errors import HostError, LeaseDenied, RefusedToMove, VerifyFailed
from testbed.leases.model import find_parts

TWO = pytest.mark.testbed_hosts(2)
FOUR = pytest.mark.testbed_hosts(4)


def names(lab):
    return list(lab.hosts)


def test_a_test_gets_hosts_under_a_lease_and_the_circuits_are_put_back(lab_for, store, circuits, standing):
    foreign = {9: 22, 10: 21}  # e to f and back: somebody else's, and not in an epoch
    circuits(foreign)

    with lab_for(FOUR) as lab:
        assert names(lab) == ["a", "b", "c", "d"]
        lease = store.get(lab.lease_in_use.get())
        assert lease.state == "granted"
        assert lease.reason == "pytest: test_x.py::test_it"
        assert lab.apply().verified
        assert lab.verify().ok
        assert len(circuits()) == len(foreign) + 8
        # Hosts e and f are joined, and the only ones that are left.
        with lab_for(TWO, test="test_x.py::test_other") as other:
            assert names(other) == ["e", "f"]
            assert other.apply().verified
            assert other.lease_in_use.get() != lease.id
        assert {i: o for i, o in circuits().items() if i in foreign} == foreign

    assert circuits() == foreign
    with pytest.raises(LeaseDenied, match="released"):
        store.extend(lease.id)


@pytest.mark.long
def test_commands_compare_with_what_the_test_applied(lab_for, circuits):
    with lab_for(FOUR) as lab:
        applied = lab.apply(simplex=True)
        proof = lab.verify()
        assert (proof.ok, proof.epoch) == (True, applied.epoch)
        assert not lab.verify(method="geometric").ok
        assert lab.verify(epoch=applied.epoch).ok
        assert not lab.plan().has_changes
        assert lab.path("a", "d").hops
        assert lab.nccl(sizes="1KiB:1KiB").results
    with lab_for(FOUR, test="test_x.py::test_next") as lab:
        applied = lab.apply()
        assert applied.verified
        assert not lab.plan(method="geometric").has_changes


def test_modelled_hosts_run_no_program(lab_for, circuits):
    for hosts in ("model", "auto"):
        with (
            lab_for(TWO, lab_hosts=hosts) as lab,
            pytest.raises(HostError, match="only modelled and run no program"),
        ):
            lab.run("hostname", hosts=["a"])


def test_an_epoch_that_was_in_force_is_brought_into_force_again(lab_for, standing, circuits, tmp_path):
    from testbed.operate.design import build_design
    from testbed.operate.intent import load_intents, select_in_force
    from testbed.operate.journal import open_journal
    from testbed.operate.session import open_lab

    runs = tmp_path / "runs"
    with open_journal(runs) as journal, open_lab(standing.lab, journal, model_hosts=True) as session:
        assert session.bring_up(build_design(standing.lab)).verify_report
    before = circuits()

    with lab_for(TWO) as lab:
        # All hosts are joined: two of them cannot be moved alone.
        assert len(names(lab)) == 6
        assert lab.apply(simplex=True).verified
        assert circuits() != before

    assert circuits() == before
    (now,) = select_in_force(load_intents(runs, standing.lab.name))
    assert (now.epoch, now.state) == (3, "verified")
    assert now.topology == load_intents(runs, standing.lab.name)[2].topology


@pytest.mark.long
def test_a_test_that_fails_leaves_the_lab_as_it_was_too(lab_for, circuits):
    with pytest.raises(ZeroDivisionError), lab_for(TWO) as lab:
        lab.apply()
        raise ZeroDivisionError

    assert circuits() == {}


@pytest.mark.long
def test_a_lab_that_is_marked_broken_skips_and_never_fails(lab_for, store, circuits):
    store.write_checks({"nic:a/nic1": "no_light", "host:b": "host_off"})
    with lab_for(FOUR) as lab:
        assert names(lab) == ["c", "d", "e", "f"]
    with pytest.raises(pytest.skip.Exception, match=r"marked broken \(a: no_light, b: host_off\)"), lab_for():
        pass

    store.write_checks({"nic:a/nic1": "", "host:b": ""})
    store.set_maintenance("a fan is changed")
    with pytest.raises(pytest.skip.Exception, match=r"under maintenance by .*: a fan is changed"), lab_for():
        pass


def test_a_lab_that_could_not_be_put_back_is_marked_broken(lab_for, store, circuits, monkeypatch):
    from testbed.operate.borrow import LabState

    def fails(self, *_arguments):
        raise VerifyFailed("a fibre is cut")

    monkeypatch.setattr(LabState, "restore", fails)
    with pytest.raises(VerifyFailed), lab_for(test="test_x.py::test_breaks"):
        pass

    monkeypatch.undo()
    reason = "not restored after test_x.py::test_breaks: a fibre is cut"
    with pytest.raises(pytest.skip.Exception, match=reason), lab_for(TWO):
        pass


def test_needs_that_the_lab_does_not_meet_skip(lab_for, circuits):
    for mark in (pytest.mark.testbed_hosts(7), pytest.mark.testbed_degree(3), pytest.mark.testbed_gpu):
        with pytest.raises(pytest.skip.Exception, match="it does not have"), lab_for(mark):
            pass
    with (
        pytest.raises(pytest.skip.Exception, match="have no GPUs"),
        lab_for(pytest.mark.testbed_gpu, lab=None),
    ):
        pass
    with pytest.raises(pytest.skip.Exception, match="--lab-board"), lab_for(pytest.mark.testbed_board):
        pass


@pytest.mark.long
def test_a_board_is_leased_by_its_name(lab_for, store, circuits):
    with lab_for(TWO, pytest.mark.testbed_board, lab_board="kit1=qick://10.0.0.7") as lab:
        assert lab.board == "qick://10.0.0.7"
        assert "board:kit1" in store.get(lab.lease_in_use.get()).parts


@pytest.mark.long
def test_a_test_waits_for_its_lease_no_longer_than_it_may(lab_for, store, standing, circuits):
    held = store.request(("host:a",), find_parts(standing.lab, ["host:a"]), ttl_s=60)
    with (
        pytest.raises(LeaseDenied, match="not granted within 0 s; see `testbed lease list`"),
        lab_for(pytest.mark.testbed_hosts(6), lab_wait=0.0),
    ):
        pass

    store.release(held.id)
    with lab_for(pytest.mark.testbed_hosts(6), lab_wait=0.0) as lab:
        assert len(names(lab)) == 6


def test_a_real_lab_is_moved_only_by_its_name(lab_for, standing, circuits, tmp_path, monkeypatch):
    from dataclasses import replace

    from testbed.lab.inventory import render_lab
    from testbed.lab.simulated import lifecycle
    from testbed.pytest_plugin import standing as plugin

    file = tmp_path / "real.yaml"
    file.write_text(render_lab(replace(standing.lab, simulated=False, twins={})))
    with pytest.raises(RefusedToMove), lab_for(TWO, lab=str(file)):
        pass
    for module in (lifecycle, plugin):  # its hosts are modelled, whatever its file says
        monkeypatch.setattr(module, "find_hosts_in_use", lambda _lab, _hosts="auto": "model")
    with lab_for(TWO, lab=str(file), lab_really_move=standing.lab.name) as lab:
        applied = lab.apply()
        assert (applied.simulated, applied.verified) == (False, True)
        assert len(circuits()) == 4
    assert circuits() == {}


def test_options_that_cannot_be_are_refused(lab_for):
    refused = {"lab_board": "kit1"}, {"lab_server": "http://lab"}
    for options in refused:
        with pytest.raises(pytest.UsageError), lab_for(**options):
            pass
    with pytest.raises(ServiceUnreachable), lab_for(lab=None, lab_server="http://127.0.0.1:1"):
        pass
    with pytest.raises(pytest.UsageError, match="write testbed_hosts"), lab_for(pytest.mark.testbed_hosts(1)):
        pass
