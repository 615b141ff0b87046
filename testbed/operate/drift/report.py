"""One reading of a lab's light with verdicts: every fibre section compared with its past and with the lab file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lightbed.wording import format_count
from testbed.design.model import Nic
from testbed.errors import ResultsError
from testbed.lab.hosts.receivers import describe_bad_lane, read_receivers
from testbed.lab.model import Lab
from testbed.operate.drift.losses import Receivers, StretchLoss, measure_losses
from testbed.operate.drift.statistics import Verdict, judge_series
from testbed.operate.light import (
    EXCESS_LOSS,
    TOLERANCE_DB,
    SwitchReading,
    find_held_circuits,
    judge_circuits,
    read_ports,
)
from testbed.operate.model import Circuit, FindingKind, LinkFinding
from testbed.operate.plan import list_lab_ports
from testbed.operate.probe_findings import NO_CARRIER
from testbed.operate.proof.receivers import NO_MODULE_READINGS, POWER_OUT_OF_WINDOW

if TYPE_CHECKING:
    from testbed.operate.drift.history import LossHistory, LossSeries
    from testbed.operate.session import LabSession

SUDDEN_LOSS = FindingKind(
    "sudden_loss",
    "the loss of a fibre section has risen suddenly",
    "clean or straighten the fibre in the detail; if you changed it yourself, correct `loss_db` and pass `--since`",
    stops_packets=False,
)
SLOW_LOSS = FindingKind(
    "slow_loss",
    "the loss of a fibre section rises slowly",
    "repair the section before the receiver gets too little power; the detail says how fast the loss rises",
    stops_packets=False,
)

HISTORY_S = 30 * 86400.0
"""Default age limit in seconds of the stored readings that are judged."""
RESOLUTION_DB = 0.05
"""Tolerance for the resolution of monitors: a loss of 1 dB may read a little less."""


@dataclass(frozen=True, slots=True)
class StretchReport:
    """One fibre section: its current loss, and the verdict on its series."""

    loss: StretchLoss
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Return the row of `series` in `testbed drift --json`."""
        loss, verdict = self.loss, self.verdict
        return {
            "place": loss.place,
            "link": loss.link_label,
            "loss_db": round(loss.loss_db, 3),
            "intent_db": round(loss.intent_db, 3),
            "excess_db": round(loss.excess_db, 3),
            "power_dbm": round(loss.power_dbm, 3),
            "verdict": verdict.kind,
            "baseline_db": round(verdict.baseline_db, 3),
            "level_db": round(verdict.level_db, 3),
            "noise_db": round(verdict.noise_db, 3),
            "slope_db_per_day": round(verdict.slope_db_per_day, 4),
            "since": format_time(verdict.stretch_start_s),
            "readings_since": verdict.reading_count_since,
            "readings": verdict.reading_count,
        }


@dataclass(frozen=True, slots=True)
class DriftReport:
    """One reading of a lab with verdicts and findings. `storage_error` says why it could not be stored, or is empty."""

    taken_s: float
    stretches: tuple[StretchReport, ...]
    findings: tuple[LinkFinding, ...]
    storage_error: str = ""

    @property
    def ok(self) -> bool:
        """True if all findings only inform."""
        return all(finding.is_informational for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `testbed drift --json`, without the lab."""
        return {
            "taken": format_time(self.taken_s),
            "ok": self.ok,
            "not_kept": self.storage_error,
            "series": [stretch.as_json() for stretch in self.stretches],
            "findings": [finding.as_json() for finding in self.findings],
        }


def format_time(seconds: float) -> str:
    """Return a time in seconds since 1970 in ISO 8601.

    >>> format_time(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def read_drift(
    session: LabSession,
    planned_circuits: Iterable[Circuit],
    history: LossHistory,
    taken_s: float,
    since_s: float | None = None,
) -> DriftReport:
    """Read the light of a lab once, store it, and judge it together with the stored readings since `since_s`.

    `since_s` is by default `HISTORY_S` before the reading. A reading that cannot be stored is judged nevertheless.
    Links of hosts that are off are not judged. Raises the drivers' errors and `HostError`.
    """
    lab = session.lab
    switches = read_ports(list_lab_ports(lab), session.switches)
    receivers = read_receivers(session.fleet, lab) if session.fleet else {}
    held_circuits = find_held_circuits(lab, {name: reading.snapshot for name, reading in switches.items()})
    losses = measure_losses(lab, held_circuits, switches, receivers)
    begin_s = taken_s - HISTORY_S if since_s is None else since_s
    series, storage_error = _store(history, lab.name, taken_s, losses, begin_s)
    stretches = tuple(StretchReport(loss, judge_series(*series[loss.place])) for loss in losses)
    silent_nics = [
        Nic(node, index)
        for node, host in enumerate(lab.hosts)
        for index in range(len(host.nics))
        if host.name in session.unreachable
    ]
    intent_findings = (
        finding
        for finding in judge_circuits(lab, tuple(planned_circuits), switches, silent_nics)
        if finding.kind != "excess_loss"
    )
    findings = (
        *session.unreachable_findings,
        *intent_findings,
        *judge_stretches(stretches),
        *judge_modules(lab, held_circuits, switches, receivers),
    )
    return DriftReport(taken_s, stretches, findings, storage_error)


def _store(
    history: LossHistory, lab: str, taken_s: float, losses: Iterable[StretchLoss], since_s: float
) -> tuple[dict[str, LossSeries], str]:
    """Store a reading. Return the series of its places, which end with the reading, and the error of storing it."""
    storage_error = ""
    stored_series: dict[str, LossSeries] = {}
    current_losses = {loss.place: loss.loss_db for loss in losses}
    try:
        stored_series = history.read_series(lab, since_s)
        history.append(lab, taken_s, losses)
    except ResultsError as error:
        storage_error = str(error)
    series = {}
    for place, loss_db in current_losses.items():
        times_s, losses_db = stored_series.get(place, ((), ()))
        series[place] = ((*times_s, taken_s), (*losses_db, loss_db))
    return series, storage_error


def judge_stretches(stretches: Iterable[StretchReport]) -> Iterator[LinkFinding]:
    """Yield at most one finding per section, if it loses more than before or more than the lab file says."""
    for stretch in stretches:
        loss, verdict = stretch.loss, stretch.verdict
        history_text = f"baseline {verdict.baseline_db:.1f} dB, noise {verdict.noise_db:.2f} dB, "
        history_text += format_count(verdict.reading_count, "reading")
        excess_text = f"{loss.excess_db:.1f} dB more than the lab file says"
        has_excess = loss.excess_db >= TOLERANCE_DB - RESOLUTION_DB
        start_text = format_time(verdict.stretch_start_s)
        if verdict.kind == "trend" and verdict.slope_db_per_day > 0:
            kind = SLOW_LOSS
            description = (
                f"loses {verdict.slope_db_per_day:.2f} dB more every day since {start_text} ({history_text})"
            )
        elif verdict.kind == "step":
            kind = SUDDEN_LOSS
            sample_note = ", in one reading so far" if verdict.reading_count_since == 1 else ""
            description = (
                f"loses {verdict.change_db:.1f} dB more since {start_text}{sample_note} ({history_text})"
            )
        elif has_excess:
            yield EXCESS_LOSS.report(loss.link_label, f"{loss.place} loses {excess_text} ({history_text})")
            continue
        else:
            continue
        yield kind.report(
            loss.link_label, f"{loss.place} {description}{f'; {excess_text}' if has_excess else ''}"
        )


def judge_modules(
    lab: Lab, held_circuits: Iterable[Circuit], switches: Mapping[str, SwitchReading], receivers: Receivers
) -> Iterator[LinkFinding]:
    """Yield findings about receivers that are dark or outside their window, and about modules without readings.

    Modules of one host without readings for the same reason are one finding.
    """
    for circuit in held_circuits:
        nic = circuit.link.target
        reading = receivers.get((lab.hosts[nic.node].name, lab.get_nic(nic).name))
        output_power = switches[circuit.switch].power_by_port.get(circuit.output_port)
        if reading is None or reading.power_dbm is None or (output_power and output_power.below_floor):
            continue
        label, subject = lab.nic_label(nic), lab.link_label(circuit.link)
        if not math.isfinite(reading.power_dbm):
            if output_power:
                detail = f"light leaves output {circuit.output_port} of {circuit.switch} and does not reach {label}"
                yield NO_CARRIER.report(subject, detail)
        elif lane_fault := describe_bad_lane(reading):
            yield POWER_OUT_OF_WINDOW.report(subject, f"{label}: {lane_fault}")
    silent_nics: dict[tuple[str, str], list[str]] = {}
    for (host, nic_name), reading in receivers.items():
        if reading.power_dbm is None:
            silent_nics.setdefault((host, reading.reason), []).append(nic_name)
    for (host, reason), nics in silent_nics.items():
        yield NO_MODULE_READINGS.report(host, f"{', '.join(nics)}: {reason}")
