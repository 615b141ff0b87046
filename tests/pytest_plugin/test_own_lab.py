"""A simulated lab that a test has for itself: only the hosts that it needs, under a lease, with programs on them."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("sqlalchemy")

from testbed.errors import HostError, LabStartError, LeaseDenied
from testbed.lab.inventory import load_lab, parse_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.pytest_plugin.small_lab import render_lab_text

TWO = pytest.mark.testbed_hosts(2)


@pytest.fixture
def lab_file(tmp_path):
    """Provide the file of a lab of four hosts that does not run."""
    file = tmp_path / "four.yaml"
    file.write_text(render_lab_text(4, 2).replace("name: of-a-test", "name: four"))
    return file


def test_a_test_uses_only_its_hosts_of_a_larger_lab(lab_for, lab_file):
    with lab_for(TWO, lab=str(lab_file)) as lab:
        assert lab.hosts == ("a", "b")
        assert len(load_lab(lab.lab_file).hosts) == 4
        assert (lab.apply().circuits, lab.verify().ok) == (4, True)
        (held,) = [lease for lease in lab.command("lease list").leases if lease.state == "granted"]
        assert (held.id, held.resources) == (lab.lease_in_use.get(), ("host:a", "host:b"))
        with pytest.raises(LeaseDenied):
            lab.lease(["host:a"])
        assert lab.ask_twin("plant", "cut", fibre="a/nic1:transmit")
        assert "no_light" in {finding.kind for finding in lab.verify().findings}
        with pytest.raises(LabStartError, match="'laser' has no control socket; known are "):
            lab.ask_twin("laser", "cut")


def test_a_test_without_needs_has_the_whole_lab(lab_for, lab_file):
    with lab_for(pytest.mark.testbed_board, lab=str(lab_file)) as lab:
        assert (lab.hosts, lab.board) == (("a", "b", "c", "d"), "sim://kit")
        assert lab.apply().verified
        assert lab.epochs()[0].verified


@pytest.mark.kernel
@pytest.mark.long
def test_programs_run_on_the_light_as_it_is(lab_for):
    with lab_for(TWO, lab=None, lab_hosts="kernel") as lab:
        applied = lab.apply()
        assert applied.verified
        done = lab.run("echo of $TESTBED_RANK", hosts=["b"])
        assert (done.exit_code, done.patched, done.lease) == (0, False, lab.lease_in_use.get())
        assert [(rank.host, rank.stdout) for rank in done.ranks] == [("b", "of $TESTBED_RANK\n")]
        assert {rank.host for rank in lab.run("hostname").ranks} == {"a", "b"}
        assert lab.run("false", hosts=["a"]).exit_code == 1
        assert lab.verify().epoch == applied.epoch


@pytest.mark.kernel
@pytest.mark.long
def test_modelled_hosts_of_a_lab_in_the_kernel_run_no_program(lab_for, lab_file):
    with start_lab(parse_lab(lab_file.read_text(), lab_file), hosts="kernel", may_move=True) as started:
        lab_file.write_text(render_lab(started.lab))
        with (
            lab_for(TWO, lab=str(lab_file), lab_hosts="model") as lab,
            pytest.raises(HostError, match="only modelled and run no program"),
        ):
            lab.run("hostname", hosts=["a"])
