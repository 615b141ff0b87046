"""`ethtool -m` on hosts that are there: each answers with the light of its own receiver, in the module of the lab."""

from __future__ import annotations

import subprocess

import pytest

pytestmark = pytest.mark.kernel


def test_a_host_reads_the_light_that_reaches_it(lab):
    lab.scpi(":OXC:SWIT:CONN:ONLY (@1),(@9)")
    lit = lab.ssh("b", "ethtool -m nic1")
    dark = lab.ssh("c", "ethtool -m nic1")
    assert "\tReceiver signal average optical power     : 0.6607 mW / -1.80 dBm" in lit.splitlines()
    assert "\tReceiver signal average optical power     : 0.0000 mW / -inf dBm" in dark.splitlines()


def test_dirt_is_read_where_it_is(lab):
    lab.scpi(":OXC:SWIT:CONN:ONLY (@1),(@9)")
    lab.control("plant", {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 18})
    assert "-19.79 dBm" in lab.ssh("b", "ethtool -m nic1 | grep 'Receiver signal'")
    assert lab.ssh("b", "ethtool -m nic1 | grep 'Laser rx power low alarm  '").endswith("On")
    lab.control("plant", {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 0})


def test_bytes_come_unchanged_through_the_shell(lab):
    raw = subprocess.run(
        lab.ssh_command("a", "ethtool -m nic2 raw on"), capture_output=True, timeout=60, check=True
    ).stdout
    assert (len(raw), raw[:3]) == (512, b"\x03\x04\x07")
    assert lab.ssh("a", "ethtool -m nic2 hex on offset 0 length 3").endswith("0x0000:\t\t03 04 07")


def test_errors_have_the_exit_status_and_words_of_ethtool(lab):
    status, said = lab.ssh("a", "ethtool -m nic1 page 9", check=False)
    assert (status, said) == (95, "netlink error: Invalid argument\n")


def test_programs_that_choose_their_own_path_find_the_command_in_a_root_of_its_own(lab):
    if lab.ready["shared_root"]:
        pytest.skip(f"hosts share the machine's root: {lab.ready['shared_root']}")
    assert "SIMULATED" in lab.ssh("a", "env -i PATH=/usr/local/sbin:/usr/bin:/bin ethtool -m nic1")


@pytest.mark.parametrize(("rate_gbps", "line"), [(100, "(QSFP28)"), (400, "(QSFP-DD Double")])
def test_the_labs_rate_chooses_the_module(kernel_labs, rate_gbps, line):
    raw = kernel_labs.wiring(hosts=1)
    raw["link"]["represents_gbps"] = rate_gbps
    with kernel_labs.supervised(raw, key=kernel_labs.key) as up:
        assert line in up.ssh("a", "ethtool -m nic1 | head -1")
