"""`ethtool -m` as real programs printed it, two public dumps a format, decoded to power, window and temperature.

The dumps are facts of single modules, with the flags and identity that the reader does not look at left out:
SFF-8472: netdev, C. Preimesberger, 2020-01-09, ethtool 5.3; intel-wired-lan, E. Castellotti, 2024-02-07.
SFF-8636: R. Christ's collection of 100GBase-CWDM4 modules (README, ConnectX-4); OPAE SDK, page of `qsfpinfo`.
CMIS: netdev, D. Zahka, 2024-10-15 (400G XDR4); netdev, I. Schimmel, 2021-11-23, patch "Print Module-Level Controls".
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.receivers import (
    PowerThresholds,
    describe_bad_lane,
    make_module_command,
    parse_module,
    read_receivers,
)
from testbed.lab.inventory import parse_lab

SFP_TRANSITION = """\
Identifier                                : 0x03 (SFP)
Extended identifier                       : 0x04 (GBIC/SFP defined by
2-wire interface ID)
Vendor name                               : Transition
Vendor PN                                 : TN-SFP-10G-LR
Vendor SN                                 : AX19080004387
Optical diagnostics support               : Yes
Laser bias current                        : 32.066 mA
Laser output power                        : 0.5547 mW / -2.56 dBm
Receiver signal average optical power     : 0.0001 mW / -40.00 dBm
Module temperature                        : 41.05 degrees C / 105.90 degrees F
Module voltage                            : 3.2768 V
Laser rx power low alarm                  : On
Laser bias current high alarm threshold   : 100.000 mA
Laser output power high alarm threshold   : 1.2589 mW / 1.00 dBm
Laser rx power high alarm threshold       : 1.2589 mW / 1.00 dBm
Laser rx power low alarm threshold        : 0.0490 mW / -13.10 dBm
Laser rx power high warning threshold     : 1.1220 mW / 0.50 dBm
Laser rx power low warning threshold      : 0.0550 mW / -12.60 dBm
"""
SFP_FS = """\
        Identifier                                : 0x03 (SFP)
        Vendor name                               : FS
        Vendor PN                                 : SFP-GE-BX
        Vendor rev                                :
        Vendor SN                                 : S2202359108
        Laser bias current                        : 17.650 mA
        Laser output power                        : 0.2132 mW / -6.71 dBm
        Receiver signal average optical power     : 0.2740 mW / -5.62 dBm
        Module temperature                        : 47.30 degrees C / 117.13 degrees F
        Module voltage                            : 3.2576 V
        Laser rx power low alarm                  : Off
        Laser rx power high alarm threshold       : 0.7079 mW / -1.50 dBm
        Laser rx power low alarm threshold        : 0.0028 mW / -25.53 dBm
        Laser rx power high warning threshold     : 0.6310 mW / -2.00 dBm
        Laser rx power low warning threshold      : 0.0032 mW / -24.95 dBm
"""
QSFP_FINISAR = """\
Identifier                                : 0x11 (QSFP28)
Vendor name                               : FINISAR CORP.
Vendor PN                                 : FTLC1152RGPL6-FB
Vendor SN                                 : UX503M0
Module temperature                        : 34.50 degrees C / 94.10 degrees F
Module voltage                            : 3.2706 V
Laser tx bias current (Channel 1)         : 0.000 mA
Laser tx bias current (Channel 2)         : 0.000 mA
Laser tx bias current (Channel 3)         : 0.000 mA
Laser tx bias current (Channel 4)         : 0.000 mA
Transmit avg optical power (Channel 1)    : 0.0001 mW / -40.00 dBm
Transmit avg optical power (Channel 2)    : 0.0001 mW / -40.00 dBm
Transmit avg optical power (Channel 3)    : 0.0001 mW / -40.00 dBm
Transmit avg optical power (Channel 4)    : 0.0001 mW / -40.00 dBm
Rcvr signal avg optical power(Channel 1)  : 0.0001 mW / -40.00 dBm
Rcvr signal avg optical power(Channel 2)  : 0.0001 mW / -40.00 dBm
Rcvr signal avg optical power(Channel 3)  : 0.0001 mW / -40.00 dBm
Rcvr signal avg optical power(Channel 4)  : 0.0001 mW / -40.00 dBm
Laser rx power high alarm   (Channel 1)   : Off
Laser rx power low alarm    (Channel 1)   : On
Laser rx power high alarm threshold       : 2.2387 mW / 3.50 dBm
Laser rx power low alarm threshold        : 0.0251 mW / -16.00 dBm
Laser rx power high warning threshold     : 1.7783 mW / 2.50 dBm
Laser rx power low warning threshold      : 0.0631 mW / -12.00 dBm
"""
QSFP_OPAE = """\
\tIdentifier                                : 0x11 (QSFP28)
\tVendor name                               : FINISAR CORP
\tVendor PN                                 : FTLC9551REPM
\tVendor SN                                 : XYH0RPZ
\tRx loss of signal                         : None
\tRx loss of lock                           : [ Yes, Yes, Yes, Yes ]
\tModule temperature                        : 45.22 degrees C / 113.39 degrees F
\tModule voltage                            : 3.3359 V
\tLaser tx bias current (Channel 1)         : 8.162 mA
\tLaser tx bias current (Channel 2)         : 7.560 mA
\tLaser tx bias current (Channel 3)         : 7.796 mA
\tLaser tx bias current (Channel 4)         : 7.708 mA
\tTransmit avg optical power (Channel 1)    : 1.0391 mW / 0.17 dBm
\tTransmit avg optical power (Channel 2)    : 1.0704 mW / 0.30 dBm
\tTransmit avg optical power (Channel 3)    : 1.0704 mW / 0.30 dBm
\tTransmit avg optical power (Channel 4)    : 0.9449 mW / -0.25 dBm
\tRcvr signal avg optical power(Channel 1)  : 0.9603 mW / -0.18 dBm
\tRcvr signal avg optical power(Channel 2)  : 0.9210 mW / -0.36 dBm
\tRcvr signal avg optical power(Channel 3)  : 1.0281 mW / 0.12 dBm
\tRcvr signal avg optical power(Channel 4)  : 1.0220 mW / 0.09 dBm
"""
CMIS_ARISTA = """\
Identifier                                : 0x18 (QSFP-DD Double Density
8X Pluggable Transceiver (INF-8628))
Vendor name                               : Arista Networks
Vendor PN                                 : QDD-400G-XDR4
Vendor SN                                 : XKT242211481
Module State                              : 0x03 (ModuleReady)
Module temperature                        : 70.49 degrees C / 158.89
degrees F
Module voltage                            : 3.2186 V
Laser tx bias current (Channel 1)         : 83.806 mA
Laser tx bias current (Channel 2)         : 81.878 mA
Laser tx bias current (Channel 3)         : 72.900 mA
Laser tx bias current (Channel 4)         : 110.100 mA
Laser tx bias current (Channel 5)         : 0.000 mA
Laser tx bias current (Channel 6)         : 0.000 mA
Laser tx bias current (Channel 7)         : 0.000 mA
Laser tx bias current (Channel 8)         : 0.000 mA
Transmit avg optical power (Channel 1)    : 1.5975 mW / 2.03 dBm
Transmit avg optical power (Channel 2)    : 1.6486 mW / 2.17 dBm
Transmit avg optical power (Channel 3)    : 1.6333 mW / 2.13 dBm
Transmit avg optical power (Channel 4)    : 1.4387 mW / 1.58 dBm
Transmit avg optical power (Channel 5)    : 0.0000 mW / -inf dBm
Transmit avg optical power (Channel 6)    : 0.0000 mW / -inf dBm
Transmit avg optical power (Channel 7)    : 0.0000 mW / -inf dBm
Transmit avg optical power (Channel 8)    : 0.0000 mW / -inf dBm
Rcvr signal avg optical power (Channel 1) : 2.2489 mW / 3.52 dBm
Rcvr signal avg optical power (Channel 2) : 1.8629 mW / 2.70 dBm
Rcvr signal avg optical power (Channel 3) : 1.8427 mW / 2.65 dBm
Rcvr signal avg optical power (Channel 4) : 1.8215 mW / 2.60 dBm
Rcvr signal avg optical power (Channel 5) : 0.0000 mW / -inf dBm
Rcvr signal avg optical power (Channel 6) : 0.0000 mW / -inf dBm
Rcvr signal avg optical power (Channel 7) : 0.0000 mW / -inf dBm
Rcvr signal avg optical power (Channel 8) : 0.0000 mW / -inf dBm
Laser bias current high alarm   (Chan 1)  : Off
Laser rx power low alarm    (Channel 1)   : Off
Laser rx power high alarm threshold       : 3.5481 mW / 5.50 dBm
Laser rx power low alarm threshold        : 0.1288 mW / -8.90 dBm
Laser rx power high warning threshold     : 2.8184 mW / 4.50 dBm
Laser rx power low warning threshold      : 0.2042 mW / -6.90 dBm
"""
CMIS_MELLANOX_RECEIVED = (0.55, 0.65, 0.62, 0.67, 0.70, 0.70, 0.49, 0.66) * 2
CMIS_MELLANOX = """\
 Identifier                                : 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628))
 Module State                              : 0x03 (ModuleReady)
 LowPwrAllowRequestHW                      : Off
 LowPwrRequestSW                           : Off
 Transmit avg optical power (Channel 1)    : 1.3222 mW / 1.21 dBm
 Transmit avg optical power (Channel 16)   : 1.3408 mW / 1.27 dBm
 Rcvr signal avg optical power (Channel 1) : 1.1351 mW / 0.55 dBm
 Rcvr signal avg optical power (Channel 2) : 1.1603 mW / 0.65 dBm
 Rcvr signal avg optical power (Channel 3) : 1.1529 mW / 0.62 dBm
 Rcvr signal avg optical power (Channel 4) : 1.1670 mW / 0.67 dBm
 Rcvr signal avg optical power (Channel 5) : 1.1759 mW / 0.70 dBm
 Rcvr signal avg optical power (Channel 6) : 1.1744 mW / 0.70 dBm
 Rcvr signal avg optical power (Channel 7) : 1.1188 mW / 0.49 dBm
 Rcvr signal avg optical power (Channel 8) : 1.1640 mW / 0.66 dBm
 Rcvr signal avg optical power (Channel 9) : 1.1351 mW / 0.55 dBm
 Rcvr signal avg optical power (Channel 10) : 1.1603 mW / 0.65 dBm
 Rcvr signal avg optical power (Channel 11) : 1.1529 mW / 0.62 dBm
 Rcvr signal avg optical power (Channel 12) : 1.1670 mW / 0.67 dBm
 Rcvr signal avg optical power (Channel 13) : 1.1759 mW / 0.70 dBm
 Rcvr signal avg optical power (Channel 14) : 1.1744 mW / 0.70 dBm
 Rcvr signal avg optical power (Channel 15) : 1.1188 mW / 0.49 dBm
 Rcvr signal avg optical power (Channel 16) : 1.1640 mW / 0.66 dBm
"""
COPPER = """\
        Identifier                                : 0x03 (SFP)
        Connector                                 : 0x22 (RJ45)
        Transceiver type                          : 10G Ethernet: 10G Base-SR
        Date code                                 : 191202
"""


@pytest.mark.parametrize(
    ("dump", "lanes_dbm", "sent_dbm", "window", "celsius", "module"),
    [
        (
            SFP_TRANSITION,
            (-40.0,),
            (-2.56,),
            PowerThresholds(-13.1, -12.6, 0.5, 1.0),
            41.05,
            "Transition TN-SFP-10G-LR AX19080004387",
        ),
        (
            SFP_FS,
            (-5.62,),
            (-6.71,),
            PowerThresholds(-25.53, -24.95, -2.0, -1.5),
            47.3,
            "FS SFP-GE-BX S2202359108",
        ),
        (
            QSFP_FINISAR,
            (-40.0,) * 4,
            (-40.0,) * 4,
            PowerThresholds(-16.0, -12.0, 2.5, 3.5),
            34.5,
            "FINISAR CORP. FTLC1152RGPL6-FB UX503M0",
        ),
        (
            QSFP_OPAE,
            (-0.18, -0.36, 0.12, 0.09),
            (0.17, 0.30, 0.30, -0.25),
            None,
            45.22,
            "FINISAR CORP FTLC9551REPM XYH0RPZ",
        ),
        (
            CMIS_ARISTA,
            (3.52, 2.70, 2.65, 2.60),
            (2.03, 2.17, 2.13, 1.58),
            PowerThresholds(-8.9, -6.9, 4.5, 5.5),
            70.49,
            "Arista Networks QDD-400G-XDR4 XKT242211481",
        ),
        (CMIS_MELLANOX, CMIS_MELLANOX_RECEIVED, (1.21, 1.27), None, None, ""),
    ],
)
def test_a_public_dump_is_read_as_its_owner_would(dump, lanes_dbm, sent_dbm, window, celsius, module):
    found = parse_module(dump)
    assert (found.received_lanes_dbm, found.sent_lanes_dbm, found.thresholds) == (lanes_dbm, sent_dbm, window)
    assert (found.temperature_c, found.module, found.reason) == (celsius, module, "")


def test_the_power_of_a_fibre_is_that_of_all_its_lanes():
    """2.2489 + 1.8629 + 1.8427 + 1.8215 mW are 7.776 mW, 8.91 dBm."""
    assert parse_module(CMIS_ARISTA).power_dbm == pytest.approx(8.91, abs=0.01)


def test_the_window_is_that_of_each_lane():
    """One lane of four at -9.0 dBm, 0.1 dB below the alarm: the fibre as a whole carries 7.8 dBm."""
    found = parse_module(CMIS_ARISTA)
    assert describe_bad_lane(found) == ""
    weak = replace(found, received_lanes_dbm=(3.52, 2.70, -9.0, 2.60))
    assert weak.power_dbm == pytest.approx(7.8, abs=0.1)
    assert describe_bad_lane(weak) == "lane 3 receives -9.0 dBm, less than the -8.9 dBm that its module needs"
    strong = replace(found, received_lanes_dbm=(3.52, 5.6, 2.65, 2.60))
    assert (
        describe_bad_lane(strong)
        == "lane 2 receives 5.6 dBm, more than the 5.5 dBm that its module tolerates"
    )


def test_a_dark_receiver_reads_minus_infinity_on_all_its_lanes():
    dark = CMIS_ARISTA.replace("2.2489 mW / 3.52", "0.0000 mW / -inf").replace(
        "1.8629 mW / 2.70", "0.0000 mW / -inf"
    )
    dark = dark.replace("1.8427 mW / 2.65", "0.0000 mW / -inf").replace(
        "1.8215 mW / 2.60", "0.0000 mW / -inf"
    )
    assert parse_module(dark).received_lanes_dbm == (-math.inf,) * 4
    assert parse_module(dark).power_dbm == -math.inf


def test_thresholds_that_are_all_nothing_are_no_window():
    text = SFP_FS
    for power in ("0.7079 mW / -1.50", "0.0028 mW / -25.53", "0.6310 mW / -2.00", "0.0032 mW / -24.95"):
        text = text.replace(f"threshold       : {power}", "threshold       : 0.0000 mW / -inf")
        text = text.replace(power, "0.0000 mW / -inf")
    assert parse_module(text).thresholds is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("netlink error: Operation not supported\n", "netlink error: Operation not supported"),
        (
            "Cannot get module EEPROM information: Operation not supported\n",
            "Cannot get module EEPROM information: Operation not supported",
        ),
        ("bash: line 1: ethtool: command not found", "bash: line 1: ethtool: command not found"),
        ("", "ethtool printed nothing"),
        (COPPER, "the module reports no received power"),
        (
            SFP_FS.replace("signal average optical power    ", "signal OMA                      "),
            "the module measures modulation amplitude, not average power",
        ),
    ],
)
def test_a_module_that_tells_no_power_says_why(text, reason):
    found = parse_module(text)
    assert (found.power_dbm, found.sent_power_dbm, found.reason) == (None, None, reason)


def test_newer_programs_write_the_same_with_other_letters():
    """A patch on netdev makes the name of the power the same in all formats."""
    line = "\tReceiver Signal average optical power(Channel 1) : 0.9240 mW / -0.34 dBm\n"
    assert parse_module(line).received_lanes_dbm == (-0.34,)


class OneRun:
    """A fleet that answers as its table says, and counts its round trips."""

    def __init__(self, hosts, said):
        self.hosts, self.said, self.runs = hosts, said, []

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        self.runs.append(commands)
        return {host: CommandResult(host, 0, self.said[host], "") for host in commands}


def test_all_nics_of_all_hosts_are_read_in_one_round_trip(small_lab_text, tmp_path):
    lab = parse_lab(small_lab_text(hosts=2), tmp_path / "lab.yaml")
    said = {
        "a": f"Welcome\n=== nic1\n{SFP_FS}=== nic2\nnetlink error: No such device\n",
        "b": f"=== nic1\n{QSFP_OPAE}=== nic2\n{SFP_TRANSITION}",
    }
    fleet = OneRun(lab.hosts, said)
    found = read_receivers(fleet, lab)
    assert fleet.runs == [{host.name: make_module_command(host) for host in lab.hosts}]
    assert {key: reading.power_dbm and round(reading.power_dbm, 2) for key, reading in found.items()} == {
        ("a", "nic1"): -5.62,
        ("a", "nic2"): None,
        ("b", "nic1"): 5.94,
        ("b", "nic2"): -40.0,
    }
    assert found["a", "nic2"].reason == "netlink error: No such device"


def test_hosts_that_the_fleet_does_not_reach_are_left_out(small_lab_text, tmp_path):
    lab = parse_lab(small_lab_text(hosts=2, nics=1), tmp_path / "lab.yaml")
    fleet = OneRun(lab.hosts[:1], {"a": f"=== nic1\n{SFP_FS}"})
    assert list(read_receivers(fleet, lab)) == [("a", "nic1")]
