"""Optical power at the hosts' receivers, read with `ethtool -m` in one round trip per host.

The parser understands modules by SFF-8472 (SFP), SFF-8636 (QSFP) and CMIS (QSFP-DD, OSFP). A module that does not
report its power yields a reading without lanes and with a reason, not an error.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.lab.hosts.kernel_state import HEADING_PREFIX, split_by_heading
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

READ_TIMEOUT_S = 60.0  # a module's bus carries some 10 kB/s, and a host reads its modules one after the other
_LANE_SUFFIX = r"(?:\s*\(channel (\d+)\))?"
_RECEIVED_NAME = re.compile(
    rf"(?:receiver|rcvr) signal (?:average|avg) optical power{_LANE_SUFFIX}", re.IGNORECASE
)
_SENT_NAME = re.compile(rf"(?:laser output|transmit avg optical) power{_LANE_SUFFIX}", re.IGNORECASE)
_BIAS_NAME = re.compile(rf"laser (?:tx )?bias current{_LANE_SUFFIX}", re.IGNORECASE)
_POWER_VALUE = re.compile(r"[\d.]+ mW / (\S+) dBm")
_THRESHOLD_NAMES = ("low alarm", "low warning", "high warning", "high alarm")


@dataclass(frozen=True, slots=True)
class PowerThresholds:
    """Thresholds of a module for the power of one lane, in dBm."""

    low_alarm_dbm: float
    low_warning_dbm: float
    high_warning_dbm: float
    high_alarm_dbm: float


@dataclass(frozen=True, slots=True)
class ReceiverReading:
    """Received and sent power of one module, in dBm for each lane. A dark lane has minus infinity.

    `received_lanes_dbm` and `sent_lanes_dbm` are empty if the module reports no power; `reason` then says why. Unused
    lanes, without bias current and power, are left out. `thresholds` applies to each lane.
    """

    received_lanes_dbm: tuple[float, ...] = ()
    sent_lanes_dbm: tuple[float, ...] = ()
    thresholds: PowerThresholds | None = None
    temperature_c: float | None = None
    module: str = ""
    reason: str = ""

    @property
    def power_dbm(self) -> float | None:
        """Received power of all lanes together, as a power meter at the fibre would read it, or None.

        >>> round(ReceiverReading(received_lanes_dbm=(-6.0, -6.0, -6.0, -6.0)).power_dbm, 2)
        0.02
        """
        return sum_dbm(self.received_lanes_dbm)

    @property
    def has_dark_lane(self) -> bool:
        """True if only some lanes are dark. Then a laser or a receiver has failed, not a fibre."""
        return -math.inf in self.received_lanes_dbm and self.power_dbm != -math.inf

    @property
    def sent_power_dbm(self) -> float | None:
        """Power that the module sends, all lanes together, or None if not reported."""
        return sum_dbm(self.sent_lanes_dbm)


def describe_bad_lane(reading: ReceiverReading) -> str:
    """Return a description of the first lane outside the alarm thresholds of its module, or "" if there is none.

    Thresholds apply to each lane: the sum of all lanes may be right while one of them is dark.

    >>> describe_bad_lane(
    ...     ReceiverReading(received_lanes_dbm=(-3.0, -15.2), thresholds=PowerThresholds(-14, -11, 2, 3))
    ... )
    'lane 2 receives -15.2 dBm, less than the -14.0 dBm that its module needs'
    """
    thresholds = reading.thresholds
    if thresholds is None:
        return ""
    for lane, dbm in enumerate(reading.received_lanes_dbm, start=1):
        if dbm == -math.inf and reading.has_dark_lane:
            return f"lane {lane} receives no light, but others do"
        received = f"lane {lane} receives {dbm:.1f} dBm"
        if dbm < thresholds.low_alarm_dbm:
            return f"{received}, less than the {thresholds.low_alarm_dbm:.1f} dBm that its module needs"
        if dbm > thresholds.high_alarm_dbm:
            return f"{received}, more than the {thresholds.high_alarm_dbm:.1f} dBm that its module tolerates"
    return ""


def sum_dbm(lanes_dbm: tuple[float, ...]) -> float | None:
    """Return the sum of powers in dBm: None without lanes, minus infinity if all lanes are dark."""
    if not lanes_dbm:
        return None
    milliwatts = math.fsum(10 ** (dbm / 10) for dbm in lanes_dbm)
    return 10 * math.log10(milliwatts) if milliwatts > 0 else -math.inf


def read_receivers(fleet: Fleet, lab: Lab) -> dict[tuple[str, str], ReceiverReading]:
    """Return the reading of every NIC, by host and NIC, for hosts that the fleet reaches. Raises `HostError`."""
    reached_hosts = {host.name for host in fleet.hosts}
    hosts = [host for host in lab.hosts if host.name in reached_hosts]
    result_by_host = fleet.run(
        {host.name: make_module_command(host) for host in hosts}, timeout_s=READ_TIMEOUT_S
    )
    return {
        (host.name, nic.name): reading
        for host in hosts
        for nic, reading in zip(
            host.nics, _parse_readings(host, result_by_host[host.name].stdout), strict=True
        )
    }


def make_module_command(host: LabHost) -> str:
    """Return a shell command that prints the module information of each NIC under a heading."""
    nics = shlex.join(nic.name for nic in host.nics)
    # Sessions of users other than root often lack /usr/sbin.
    return (
        f"PATH=$PATH:/usr/sbin:/sbin; for nic in {nics}; do echo '{HEADING_PREFIX}'$nic; "
        "LC_ALL=C ethtool -m $nic 2>&1; done; true"
    )


def _parse_readings(host: LabHost, text: str) -> list[ReceiverReading]:
    text_by_nic = split_by_heading(text)
    return [parse_module(text_by_nic.get(nic.name, "")) for nic in host.nics]


def parse_module(text: str) -> ReceiverReading:
    """Parse the output of `ethtool -m` for one module, and return its reading.

    >>> parse_module("netlink error: Operation not supported").reason
    'netlink error: Operation not supported'
    """
    split_lines = (line.partition(" : ") for line in text.splitlines())
    value_by_name = {name.strip(): value.strip() for name, colon, value in split_lines if colon}
    received_dbm_by_lane, sent_dbm_by_lane, bias_by_lane = (
        _find_values_by_lane(value_by_name, pattern) for pattern in (_RECEIVED_NAME, _SENT_NAME, _BIAS_NAME)
    )
    module = " ".join(
        value_by_name[key] for key in ("Vendor name", "Vendor PN", "Vendor SN") if value_by_name.get(key)
    )
    if not received_dbm_by_lane:
        return ReceiverReading(module=module, reason=_find_reason(text, value_by_name))
    lanes = _find_lanes_in_use(received_dbm_by_lane, sent_dbm_by_lane, bias_by_lane)
    return ReceiverReading(
        received_lanes_dbm=tuple(received_dbm_by_lane[lane] for lane in lanes),
        sent_lanes_dbm=tuple(sent_dbm_by_lane[lane] for lane in lanes if lane in sent_dbm_by_lane),
        thresholds=_find_thresholds(value_by_name),
        temperature_c=_parse_number(value_by_name.get("Module temperature", "")),
        module=module,
    )


def _find_values_by_lane(text_by_name: Mapping[str, str], pattern: re.Pattern[str]) -> dict[int, float]:
    """Return the values of lines whose name matches a pattern, by lane. A line without a lane is lane 1."""
    value_by_lane = {}
    for name, text in text_by_name.items():
        value = _parse_dbm(text) if "dBm" in text else _parse_number(text)
        if (match := pattern.fullmatch(name)) and value is not None:
            value_by_lane[int(match.group(1) or 1)] = value
    return value_by_lane


def _find_lanes_in_use(
    received_dbm_by_lane: Mapping[int, float],
    sent_dbm_by_lane: Mapping[int, float],
    bias_by_lane: Mapping[int, float],
) -> list[int]:
    """Return the lanes in use: ethtool may print eight lanes for a module with four."""
    lanes = sorted(received_dbm_by_lane)
    if not any(bias_by_lane.values()):
        return lanes
    dark_dbm = -math.inf
    return [
        lane
        for lane in lanes
        if bias_by_lane.get(lane)
        or sent_dbm_by_lane.get(lane, dark_dbm) > dark_dbm
        or received_dbm_by_lane[lane] > dark_dbm
    ]


def _find_thresholds(text_by_name: Mapping[str, str]) -> PowerThresholds | None:
    """Return the thresholds of the received power, or None if the module has none or all are equal (0)."""
    thresholds = [
        _parse_dbm(text_by_name.get(f"Laser rx power {limit} threshold", "")) for limit in _THRESHOLD_NAMES
    ]
    known_thresholds = [limit for limit in thresholds if limit is not None]
    if len(known_thresholds) < len(_THRESHOLD_NAMES) or known_thresholds[0] >= known_thresholds[-1]:
        return None
    return PowerThresholds(*known_thresholds)


def _parse_dbm(text: str) -> float | None:
    match = _POWER_VALUE.match(text)
    return float(match.group(1)) if match else None


def _parse_number(text: str) -> float | None:
    match = re.match(r"-?[\d.]+", text)
    return float(match.group()) if match else None


def _find_reason(text: str, text_by_name: Mapping[str, str]) -> str:
    if any("OMA" in name for name in text_by_name):
        return "the module measures modulation amplitude, not average power"
    if text_by_name:
        return "the module reports no received power"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "ethtool printed nothing"
