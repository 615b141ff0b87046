"""Modules of simulated NICs: their bytes by the standards, their text as ethtool's own decoders print those bytes.

The files in `transceivers/` are what the decoders of ethtool 6.6 (sfpid.c, sfpdiag.c, qsfp.c, cmis.c, compiled with a
stub that reads a file in place of the kernel) print of our memory: nothing of it is written by us.
"""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from sim.twins.hosts.transceivers import cmis, sff8472, sff8636
from sim.twins.hosts.transceivers.command import format_module, make_ethtool_script, make_module
from sim.twins.hosts.transceivers.memory import NoSuchPageError, compute_diagnostics
from sim.twins.plant import Plant

PRINTED = Path(__file__).parent / "transceivers"
STANDARDS = {"sfp": sff8472, "qsfp": sff8636, "cmis": cmis}
DARK = -math.inf


def module(standard, received_dbm=-1.8, transmitted_dbm=0.0):
    found = compute_diagnostics(standard.LANE_COUNT, 0.0, transmitted_dbm, received_dbm)
    return standard.make_memory("a/nic1", found)


def printed(standard, *words, **light):
    return format_module(module(standard, **light), standard, words)


def value(output, name):
    lines = [line.split(" : ") for line in output.decode().splitlines()]
    return next(text for label, text in lines if label.strip() == name)


@pytest.mark.parametrize("name", STANDARDS)
def test_ethtools_own_decoder_prints_our_bytes_as_we_do(name):
    assert printed(STANDARDS[name]).stdout.decode() == (PRINTED / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("standard", "size", "identifier"), [(sff8472, 512, 0x03), (sff8636, 640, 0x11), (cmis, 768, 0x18)]
)
def test_a_complete_dump_is_all_pages_and_begins_with_the_identifier(standard, size, identifier):
    raw = printed(standard, "raw", "on").stdout
    assert (len(raw), raw[0]) == (size, identifier)


def test_receive_power_stands_where_the_standards_say_in_tenths_of_a_microwatt():
    """-3 dBm are 501.2 uW; over four lanes 125.3 uW each."""
    places = {sff8472: (256 + 104, 1), sff8636: (34, 4), cmis: (128 * 5 + 186 - 128, 4)}
    for standard, (offset, lanes) in places.items():
        raw = printed(standard, "raw", "on", received_dbm=-3.0).stdout
        words = [int.from_bytes(raw[at : at + 2], "big") for at in range(offset, offset + 2 * lanes, 2)]
        assert words == [5012 if lanes == 1 else 1253] * lanes


def test_an_alarm_is_raised_where_the_light_is_below_its_threshold():
    names = {sff8472: "", sff8636: "   (Channel 1)", cmis: "   (Channel 1)"}
    for standard, lane in names.items():
        low = f"Laser rx power low alarm{' ' if lane else ''}{lane}"
        assert value(printed(standard).stdout, low) == "Off"
        assert value(printed(standard, received_dbm=-19.8).stdout, low) == "On"


def test_a_dark_receiver_and_a_laser_that_is_off_read_no_power():
    output = printed(sff8636, received_dbm=DARK, transmitted_dbm=DARK).stdout
    assert value(output, "Rcvr signal avg optical power(Channel 1)") == "0.0000 mW / -inf dBm"
    assert value(output, "Transmit avg optical power (Channel 4)") == "0.0000 mW / -inf dBm"
    assert value(output, "Laser tx bias current (Channel 1)") == "0.000 mA"


def test_offset_and_length_choose_bytes_of_a_hex_dump():
    assert printed(sff8472, "hex", "on", "offset", "0x100", "length", "18").stdout.decode() == (
        "Offset\t\tValues\n------\t\t------\n"
        "0x0100:\t\t4b 00 fb 00 46 00 00 00 8d cc 74 04 87 5a 7a 76 \n"
        "0x0110:\t\tc3 50 \n"
    )


@pytest.mark.parametrize("words", ["page 0x11 offset 186 length 2", "page 17 raw on offset 186 length 2"])
def test_a_page_is_read_alone_in_hex_or_raw(words):
    output = printed(cmis, *words.split(), received_dbm=-3.0).stdout
    assert output == (
        b"\x04\xe5" if "raw" in words else b"Offset\t\tValues\n------\t\t------\n0x00ba:\t\t04 e5 \n"
    )


def test_a_page_without_offset_begins_behind_the_lower_half():
    assert b"\n0x0080:\t\t" in printed(sff8636, "page", "3").stdout


def test_the_second_address_of_an_sfp_holds_its_diagnostics():
    asked = ("i2c", "0x51", "offset", "104", "length", "2", "raw", "on")
    assert printed(sff8472, *asked, received_dbm=-3.0).stdout == (5012).to_bytes(2, "big")


@pytest.mark.parametrize(
    "words", [("hex",), ("hex", "maybe"), ("offset", "many"), ("colour", "on"), ("offset",)]
)
def test_arguments_that_ethtool_does_not_take_are_refused(words):
    done = printed(sff8472, *words)
    assert (done.status, done.stdout) == (1, b"")
    assert done.stderr.startswith("ethtool: bad command line argument(s)")


@pytest.mark.parametrize("words", ["page 9", "offset 250 length 10", "raw on offset 512", "page 1 bank 2"])
def test_bytes_that_are_not_there_are_an_error_of_the_kernel(words):
    assert printed(sff8472, *words.split()).status == 95


def test_hex_and_raw_exclude_each_other():
    assert printed(cmis, "hex", "on", "raw", "on").stderr == "Hex and raw dump cannot be specified together\n"


def test_memory_outside_its_pages_is_not_readable():
    with pytest.raises(NoSuchPageError):
        module(sff8472).read(page=1, offset=0, length=1)


def fibre(switch_port, loss_db=0.3):
    return {"switch": "ocs1", "port": switch_port, "loss_db": loss_db}


def test_a_module_reads_the_light_of_the_plant():
    """-1.8 dBm after two fibres and a switch; 3 dB of dirt leave -4.8 dBm, 0.3311 mW."""
    nics = {
        name: [{"name": "nic1", "transmit": fibre(at), "receive": fibre(at + 2)}]
        for name, at in (("a", 1), ("b", 2))
    }
    plant = Plant(
        {
            "switches": [{"name": "ocs1"}],
            "hosts": [{"name": name, "nics": rows} for name, rows in nics.items()],
        }
    )
    plant.update_switch("ocs1", {1: 4})
    plant.set_extra_loss("b/nic1:receive", 3.0)
    plant.set_laser("b/nic1", is_on=False)
    lit, dark = (
        format_module(make_module(plant, nic, 25), sff8472, ()).stdout for nic in ("b/nic1", "a/nic1")
    )
    assert value(lit, "Receiver signal average optical power") == "0.3311 mW / -4.80 dBm"
    assert value(lit, "Laser output power") == "0.0000 mW / -inf dBm"
    assert value(dark, "Receiver signal average optical power") == "0.0000 mW / -inf dBm"
    assert value(dark, "Laser output power") == "1.0000 mW / 0.00 dBm"


@pytest.mark.process
def test_the_hosts_command_is_shell_and_passes_on_what_is_not_its_own(tmp_path):
    script = make_ethtool_script("a", ("nic1", "nic2"), "127.0.0.1", 9).replace(
        "/usr/sbin/ethtool", str(tmp_path / "real")
    )
    (tmp_path / "real").write_text('#!/bin/sh\necho "real $*"\n')
    (tmp_path / "real").chmod(0o755)
    for words, output in (("-m eth0", "real -m eth0\n"), ("-k nic1", "real -k nic1\n"), ("", "real \n")):
        command = ["bash", "-s", "--", *words.split()]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, output), done.stderr
