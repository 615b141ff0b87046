"""Labs of the service, described by their files and the database. This module reads no device."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from testbed.errors import TestbedError
from testbed.lab.model import FibreEnd, Lab, LabNic
from testbed.lab.simulated.lifecycle import list_simulated_labs
from testbed.leases.listing import describe_leases, read_maintenance
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.intent import Intent, load_intents, select_in_force
from testbed.service.runs import RunStore
from testbed.service_errors import MatchNeeded, StateChanged
from testbed.storage.address import Address
from testbed.storage.reading import read_rows

CACHE_S = 0.1
"""Time for which a document about a lab is cached."""
REACHABILITY_CACHE_S = 2.0
CHECK_COMMANDS = ("verify", "verify --narrow", "apply", "rollback")
"""Commands whose documents contain the findings of a proof."""
MAX_CHECKED_RUNS = 20
"""Maximum number of runs of each of these commands that are searched, newest first."""


@dataclass(frozen=True, slots=True)
class TopologyCheck:
    """A check of the topology in force by a run: the time, the command, and the document of the run."""

    checked_at: str
    command: str
    run_id: str
    is_as_planned: bool
    document: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Findings, including informational ones."""
        return list(self.document["findings"])

    def describe_source(self) -> dict[str, Any]:
        """Return when and by which command the topology was checked."""
        return {
            "at": self.checked_at,
            "by": self.command,
            "id": self.run_id,
            "as_planned": self.is_as_planned,
        }


@dataclass
class LabView:
    """A lab as the service shows it: its file, its journal and its runs."""

    lab: Lab
    runs_dir: Path
    database_address: Address
    runs: RunStore
    _cache: dict[str, tuple[float, Any]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def get_cached(self, name: str, read_value: Callable[[], Any], max_age_s: float = CACHE_S) -> Any:
        """Return the result of `read_value`, or the last result if it is at most `max_age_s` old.

        While one thread calls `read_value`, other threads get the last result, or wait if there is none.
        """
        stored_s, value = self._cache.get(name, (None, None))
        if stored_s is not None and time.monotonic() - stored_s <= max_age_s:
            return value
        if not self._lock.acquire(blocking=stored_s is None):
            return value
        try:
            stored_s, value = self._cache.get(name, (-1e9, None))
            if time.monotonic() - stored_s > max_age_s:
                value = read_value()
                self._cache[name] = (time.monotonic(), value)
            return value
        finally:
            self._lock.release()

    def clear_cache(self) -> None:
        """Drop all cached values. Call it after a change."""
        with self._lock:
            self._cache.clear()

    def json(self) -> dict[str, Any]:
        """Return the lab and its current state as a JSON document."""
        lab = self.lab
        current_intent, check = self.find_current_intent(), self.find_last_check()
        running_runs = self.runs.list_runs(lab=lab.name, state="running")
        return {
            "name": lab.name,
            "simulated": lab.simulated,
            "revision": lab.revision,
            "hosts": [host.name for host in lab.hosts],
            "switches": [switch.name for switch in lab.switches],
            "topology": self.add_last_check(make_topology_json(current_intent), current_intent, check)
            if current_intent
            else None,
            "findings": check.findings if check else [],
            "maintenance": read_maintenance(self.database_address, lab.name),
            "stopped": EmergencyStop(self.runs_dir, lab.name).is_in_force,
            "leases": self.list_leases(),
            "runs": [run.make_summary() for run in running_runs],
        }

    def find_last_check(self) -> TopologyCheck | None:
        """Return the newest check of the topology in force, by a run of this service, or None."""
        current_intent = self.find_current_intent()
        if current_intent is None:
            return None
        checks = [self._find_newest_check(command, current_intent.epoch) for command in CHECK_COMMANDS]
        return max(filter(None, checks), key=lambda check: check.checked_at, default=None)

    def _find_newest_check(self, command: str, epoch: int) -> TopologyCheck | None:
        for run in self.runs.list_runs(
            lab=self.lab.name, command=command, state="done", limit=MAX_CHECKED_RUNS
        ):
            document = run.parse_result()
            if document and document.get("epoch") == epoch and "findings" in document:
                return TopologyCheck(run.finished, command, run.id, run.exit_code == 0, document)
        return None

    def add_last_check(
        self, topology: dict[str, Any], current_intent: Intent, check: TopologyCheck | None
    ) -> dict[str, Any]:
        """Add the time and command of the last check to the document of the topology in force.

        The state of a verified topology becomes `deviating` if its last check has findings.
        """
        applied_at = current_intent.applied_at or current_intent.intended_at
        if check is None or check.checked_at < applied_at:
            source = {"at": applied_at, "by": "operation", "id": current_intent.operation}
            return topology | {"seen": source | {"as_planned": current_intent.state == "verified"}}
        state = (
            current_intent.state if check.is_as_planned or current_intent.state != "verified" else "deviating"
        )
        return topology | {"state": state, "seen": check.describe_source()}

    def find_current_intent(self) -> Intent | None:
        """Return the newest topology in force, or None."""
        intents = select_in_force(self.list_topologies())
        return intents[0] if intents else None

    def list_topologies(self) -> tuple[Intent, ...]:
        """Return the topologies, newest first."""
        return load_intents(self.runs_dir, self.lab.name)

    def list_leases(self, *, includes_ended: bool = False) -> list[dict[str, Any]]:
        """Return the leases."""
        return describe_leases(
            self.database_address, self.lab.name, time.time(), includes_ended=includes_ended
        )

    def list_hosts(self) -> list[dict[str, Any]]:
        """Return the hosts with the ports of their fibres."""
        return [
            {
                "name": host.name,
                "management": str(host.management),
                "address": str(host.address),
                "nics": [_describe_nic(nic) for nic in host.nics],
            }
            for host in self.lab.hosts
        ]

    def list_switches(self) -> list[dict[str, Any]]:
        """Return the switches with circuits and ports."""
        circuits_by_switch, power_by_place = self._read_circuits(), self._read_power()
        no_reading = ((), None)
        nic_by_port = {
            (fibre_end.switch, side, fibre_end.port): f"{host.name}/{nic.name}"
            for host in self.lab.hosts
            for nic in host.nics
            for side, fibre_end in (("input", nic.transmit), ("output", nic.receive))
        }
        return [
            {
                "name": lab_switch.name,
                "address": lab_switch.address,
                "inputs": lab_switch.input_count,
                "outputs": lab_switch.output_count,
                "circuits": [
                    {"input": source, "output": output}
                    for source, output in circuits_by_switch.get(lab_switch.name, no_reading)[0]
                ],
                "seen": circuits_by_switch.get(lab_switch.name, no_reading)[1],
                "ports": [
                    {
                        "port": port,
                        "side": side,
                        "nic": nic,
                        "power": power_by_place.get(f"{nic}:{_FIBRE_BY_SIDE[side]}"),
                    }
                    for (switch, side, port), nic in sorted(nic_by_port.items())
                    if switch == lab_switch.name
                ],
            }
            for lab_switch in self.lab.switches
        ]

    def _read_circuits(self) -> dict[str, tuple[Sequence[tuple[int, int]], dict[str, Any]]]:
        """Return for each switch its circuits at the last reading, and the time and command of that reading."""
        reading_by_switch: dict[str, tuple[Sequence[tuple[int, int]], dict[str, Any]]] = {}
        for row in read_rows(self.database_address, _READ_BACK_QUERY, (self.lab.name,)):
            pairs = sorted(
                (int(source), int(output)) for source, output in json.loads(row["read_back"]).items()
            )
            reading_by_switch[row["switch"]] = (
                pairs,
                {"at": row["at"], "by": "operation", "id": row["operation"]},
            )
        check = self.find_last_check()
        for switch, pair_list in (check.document.get("held", {}) if check else {}).items():
            if check and (
                switch not in reading_by_switch or reading_by_switch[switch][1]["at"] < check.checked_at
            ):
                reading_by_switch[switch] = (
                    [(source, output) for source, output in pair_list],
                    {"at": check.checked_at, "by": check.command, "id": check.run_id},
                )
        return reading_by_switch

    def _read_power(self) -> dict[str, dict[str, Any]]:
        """Return the last power reading of each place. A reading of joined fibres counts for each of them."""
        reading_by_place: dict[str, dict[str, Any]] = {}
        for row in read_rows(self.database_address, _LAST_LOSSES_QUERY, (self.lab.name,)):
            reading = {name: row[name] for name in ("power_dbm", "loss_db", "taken_s")}
            reading_by_place |= dict.fromkeys(row["place"].split("+"), reading)
        return reading_by_place

    def list_losses(self) -> list[dict[str, Any]]:
        """Return the last reading of every place, with the number of its readings."""
        count_rows = read_rows(self.database_address, _LOSS_COUNT_QUERY, (self.lab.name,))
        readings = {row["place"]: row["readings"] for row in count_rows}
        rows = read_rows(self.database_address, _LAST_LOSSES_QUERY, (self.lab.name,))
        return [{**dict(row), "readings": readings[row["place"]]} for row in rows]

    def explain_outage(self) -> str:
        """Return why the lab cannot be used now, or "" if its switches can be reached."""
        return str(self.get_cached("up", lambda: _find_outage(self.lab), REACHABILITY_CACHE_S))


_FIBRE_BY_SIDE = {"input": "transmit", "output": "receive"}
_READ_BACK_QUERY = """
select s.switch, s.read_back, s.outcome_at as at, s.operation from steps s join operations o on o.id = s.operation
where o.lab = ? and s.change = 'circuits' and s.read_back is not null order by s.outcome_at
"""
_LAST_LOSSES_QUERY = """
select l.place, l.taken_s, l.loss_db, l.power_dbm from losses l join
(select lab, place, max(taken_s) as newest from losses where lab = ? group by lab, place) n
on l.lab = n.lab and l.place = n.place and l.taken_s = n.newest order by l.place
"""
_LOSS_COUNT_QUERY = "select place, count(*) as readings from losses where lab = ? group by place"


def load_topology_document(runs_dir: Path, lab: str) -> dict[str, Any]:
    """Return the topology in force as a document. Without a topology, the document has epoch 0."""
    intents = select_in_force(load_intents(runs_dir, lab))
    if not intents:
        return {"lab": lab, "epoch": 0, "state": "none", "name": ""}
    return make_topology_json(intents[0], includes_links=True)


def check_etag(if_match: str, etag: str, subject: str) -> None:
    """Raise `MatchNeeded` without If-Match, and `StateChanged` if it names another state than `etag`."""
    if not if_match:
        raise MatchNeeded(
            f"the header If-Match is missing: set it to the ETag of {subject}, which is now {etag}"
        )
    if if_match.strip() != "*" and etag not in [tag_text.strip() for tag_text in if_match.split(",")]:
        raise StateChanged(f"{subject} has changed: its ETag is now {etag}; read it again, then decide")


def make_etag(document: Any) -> str:
    """Return the ETag of a document."""
    text = json.dumps(document, sort_keys=True, default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


def make_topology_json(intent: Intent, *, includes_links: bool = False) -> dict[str, Any]:
    """Return a topology as a JSON document."""
    document = {
        "lab": intent.lab,
        "epoch": intent.epoch,
        "state": intent.state,
        "name": intent.name,
        "operation": intent.operation,
        "hosts": list(intent.hosts),
        "stated": intent.topology_source.options_text,
        "at": intent.intended_at,
    }
    wiring = [
        [link.source.node, link.source.index, link.target.node, link.target.index]
        for link in intent.wiring.links
    ]
    return document | ({"links": wiring} if includes_links else {})


def _describe_nic(nic: LabNic) -> dict[str, Any]:
    return {
        "name": nic.name,
        "address": str(nic.address),
        "transmit": _describe_end(nic.transmit),
        "receive": _describe_end(nic.receive),
    }


def _describe_end(fibre_end: FibreEnd) -> dict[str, Any]:
    return {"switch": fibre_end.switch, "port": fibre_end.port, "loss_db": fibre_end.loss_db}


def _find_outage(lab: Lab) -> str:
    if lab.simulated:
        try:
            is_live = any(entry["live"] and entry["lab"] == lab.name for entry in list_simulated_labs())
        except TestbedError as error:
            return str(error)
        return "" if is_live else f"no simulated lab '{lab.name}' is up: `testbed sim up`"
    silent_switches = [switch.name for switch in lab.switches if not _is_answering(switch.address)]
    return f"no answer from {', '.join(silent_switches)}" if silent_switches else ""


def _is_answering(address: str) -> bool:
    """Return whether something listens at an address. Addresses without a port are not tried and count as True."""
    url = urlsplit(address)
    try:
        if not (url.hostname and url.port):
            return True
        with socket.create_connection((url.hostname, url.port), timeout=1.0):
            return True
    except (OSError, ValueError):
        return False


def find_lab(views: Sequence[LabView], name: str) -> LabView | None:
    """Return the lab with this name, or None."""
    return next((view for view in views if view.lab.name == name), None)
