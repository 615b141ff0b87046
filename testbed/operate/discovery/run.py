"""A complete discovery: it removes leftovers of an earlier one, finds free ports, runs rounds, and restores the lab.

The journal records circuits before they are made, and the observation of every round. After a crash, the next discovery
of the lab removes the recorded circuits, and continues after the last recorded round. A discovery that failed but
restored the lab has the state `stopped`, and its rounds are reused too. Rounds older than `MAX_ROUND_AGE` are not
reused, because somebody may have moved fibres since.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lightbed.wording import format_count
from testbed.lab.model import UNKNOWN_FIBRE, Lab
from testbed.operate.discovery.devices import Devices
from testbed.operate.discovery.evidence import Evidence
from testbed.operate.discovery.model import (
    DiscoveryResult,
    History,
    NicKey,
    Observation,
    Port,
    Problem,
    Round,
)
from testbed.operate.discovery.planner import compute_max_rounds, plan_rounds
from testbed.storage.owner import get_current_process, is_running
from testbed.storage.schema import discoveries

if TYPE_CHECKING:
    from testbed.operate.journal import Journal


MAX_ROUND_AGE = timedelta(hours=1)
Circuit = tuple[Port, Port]


@dataclass(frozen=True, slots=True)
class UnfinishedDiscovery:
    """A discovery that did not finish: its circuits before and after its last change, and its recorded rounds.

    `down_nics` holds the NICs that were down before it started. `is_restored` is True if it restored the lab.
    """

    id: str
    problem: dict[str, Any]
    down_nics: frozenset[NicKey]
    circuit_states: tuple[frozenset[Circuit], frozenset[Circuit]]
    rounds: History
    is_restored: bool = False

    def find_leftovers(self, circuits_by_input: Mapping[Port, Port]) -> tuple[frozenset[Circuit], bool]:
        """Return the current circuits at this discovery's ports, and whether the discovery made them.

        The discovery made them if they equal its circuits before or after its last change. Otherwise somebody else has
        patched since, even if a pair was once part of a round.
        """
        ports = {_make_pair(port) for side in ("inputs", "outputs") for port in self.problem[side]}
        circuits = frozenset(pair for pair in circuits_by_input.items() if not ports.isdisjoint(pair))
        return circuits, circuits in self.circuit_states

    def load_rounds(self, problem: Problem, now: datetime | None = None) -> History:
        """Return the rounds of this discovery if its problem is `problem` and its first round is recent, or else ()."""
        oldest_start = ((now or datetime.now(UTC)) - MAX_ROUND_AGE).isoformat(timespec="microseconds")
        is_recent = bool(self.rounds) and self.rounds[0][1].time_text >= oldest_start
        return self.rounds if is_recent and self.problem == _render_problem(problem) else ()


class DiscoveryRecord:
    """The record of one discovery in the journal. All methods raise `JournalError`."""

    def __init__(self, journal: Journal, lab: str) -> None:
        self._journal = journal
        self._lab = lab
        self._id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self._circuits: frozenset[Circuit] = frozenset()
        self._rounds: list[Any] = []

    def find_unfinished(self) -> tuple[UnfinishedDiscovery, ...]:
        """Return the discoveries of this lab that were stopped, or whose process has ended, oldest first."""
        query = discoveries.select().where(
            discoveries.c.lab == self._lab, discoveries.c.state.in_(("running", "stopped"))
        )
        with self._journal.open_transaction() as connection:
            rows = connection.execute(query.order_by(discoveries.c.started)).all()
        return tuple(
            _parse_unfinished(row) for row in rows if row.state == "stopped" or not is_running(row.owner)
        )

    def begin(self, problem: Problem, down_nics: Collection[NicKey]) -> None:
        """Store the problem, and the NICs that were down before."""
        values = {
            "id": self._id,
            "lab": self._lab,
            "owner": get_current_process(),
            "started": _format_now(),
            "state": "running",
            "problem": json.dumps(_render_problem(problem)),
            "down": json.dumps(sorted(down_nics)),
            "circuits": "[[], []]",
            "rounds": "[]",
        }
        with self._journal.open_transaction() as connection:
            connection.execute(discoveries.insert().values(values))

    def store_intent(self, circuits: Mapping[Port, Port]) -> None:
        """Store the current circuits and the circuits of the next round. They are on disk when this returns."""
        states = [sorted(self._circuits), sorted(circuits.items())]
        self._circuits = frozenset(circuits.items())
        self._write((self._id,), circuits=json.dumps(states))

    def add_round(self, round_: Round, observation: Observation) -> None:
        """Store the observation of a round."""
        self._rounds.append(
            _render_round(round_, observation) | {"at": observation.time_text or _format_now()}
        )
        self._write((self._id,), rounds=json.dumps(self._rounds))

    def mark_stopped(self, other_discoveries: tuple[UnfinishedDiscovery, ...]) -> None:
        """Store that this discovery failed but restored the lab, and undid `other_discoveries`, which it took over."""
        self._write(
            (self._id, *(discovery.id for discovery in other_discoveries)),
            state="stopped",
            circuits="[[], []]",
        )

    def mark_finished(self, other_discoveries: tuple[UnfinishedDiscovery, ...]) -> None:
        """Store that this discovery and `other_discoveries`, which it took over, are done and left no circuit."""
        self._write((self._id, *(discovery.id for discovery in other_discoveries)), state="done")

    def _write(self, ids: Collection[str], **values: str) -> None:
        with self._journal.open_transaction() as connection:
            connection.execute(discoveries.update().where(discoveries.c.id.in_(ids)).values(values))


def _parse_unfinished(row: Any) -> UnfinishedDiscovery:
    previous_circuits, next_circuits = (
        frozenset((_make_pair(source), _make_pair(target)) for source, target in state)
        for state in json.loads(row.circuits)
    )
    rounds = tuple(_parse_round(round_row) for round_row in json.loads(row.rounds))
    down_nics = frozenset(_make_pair(nic) for nic in json.loads(row.down))
    return UnfinishedDiscovery(
        row.id,
        json.loads(row.problem),
        down_nics,
        (previous_circuits, next_circuits),
        rounds,
        row.state == "stopped",
    )


def _render_problem(problem: Problem) -> dict[str, Any]:
    return {
        "nics": [list(nic) for nic in problem.nics],
        "inputs": [list(port) for port in problem.inputs],
        "outputs": [list(port) for port in problem.outputs],
    }


def _render_round(round_: Round, observation: Observation) -> dict[str, Any]:
    return {
        "purpose": round_.purpose,
        "circuits": [[list(source), list(target)] for source, target in round_.circuits.items()],
        "off": sorted(round_.down_nics),
        "lit": [[list(port), is_lit] for port, is_lit in observation.is_lit_by_port.items()],
        "carriers": [[list(nic), carrier] for nic, carrier in observation.has_carrier_by_nic.items()],
        "heard": [
            [list(nic), [list(sender) for sender in senders]]
            for nic, senders in observation.senders_by_receiver.items()
        ],
        "spoke": sorted(observation.active_senders),
    }


def _make_pair(texts: Any) -> Any:
    return (texts[0], texts[1])


def _parse_round(row: Mapping[str, Any]) -> tuple[Round, Observation]:
    senders_by_nic: dict[NicKey, tuple[NicKey, ...]] = {
        _make_pair(nic): tuple(_make_pair(sender) for sender in senders) for nic, senders in row["heard"]
    }
    round_ = Round(
        row["purpose"],
        {_make_pair(source): _make_pair(target) for source, target in row["circuits"]},
        frozenset(_make_pair(nic) for nic in row["off"]),
    )
    observation = Observation(
        {_make_pair(port): is_lit for port, is_lit in row["lit"]},
        {_make_pair(nic): carrier for nic, carrier in row["carriers"]},
        senders_by_nic,
        frozenset(_make_pair(nic) for nic in row["spoke"]),
        row.get("at", ""),
    )
    return round_, observation


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


AddNote = Callable[[str], None]


def discover(
    devices: Devices,
    record: DiscoveryRecord,
    add_note: AddNote = lambda _text: None,
    *,
    max_rounds: int | None = None,
) -> DiscoveryResult:
    """Find the fibres of every NIC whose row in the lab file lacks one, in at most `max_rounds` rounds.

    Raises `DriftError` or `PortBusy` if somebody else patches during the discovery, `ApplyFailed`, `HostError` and the
    drivers' errors. In every case, circuits are removed and interfaces restored, as far as devices answer.
    """
    unfinished_discoveries = record.find_unfinished()
    killed_discoveries = tuple(
        unfinished for unfinished in unfinished_discoveries if not unfinished.is_restored
    )
    notes = _remove_leftovers(devices, killed_discoveries)
    down_nics = devices.find_down_interfaces()
    # The killed discoveries themselves have set the other NICs down.
    earlier_down_nics = down_nics.intersection(*(unfinished.down_nics for unfinished in killed_discoveries))
    try:
        devices.set_interfaces(down_nics, is_up=True)
        held_circuits = devices.read_circuits()
        nics, busy_nics = _split_busy(devices, nics=_find_nics_without_fibres(devices.lab))
        inputs, outputs = devices.find_free_ports(held_circuits)
        problem = Problem(nics, inputs, outputs)
        earlier_rounds = unfinished_discoveries[-1].load_rounds(problem) if unfinished_discoveries else ()
        record.begin(problem, earlier_down_nics)
        result = _search(
            devices, record, problem, earlier_rounds, add_note, max_rounds or compute_max_rounds(problem)
        )
    except BaseException:
        devices.restore(earlier_down_nics)
        record.mark_stopped(killed_discoveries)
        raise
    devices.restore(earlier_down_nics)
    record.mark_finished(unfinished_discoveries)
    return replace(
        result,
        busy_circuits=tuple(
            f"{source[0]}:{source[1]} -> {target[1]}" for source, target in held_circuits.items()
        ),
        busy_nics=busy_nics,
        notes=notes,
        resumed=bool(earlier_rounds),
        circuit_changes=devices.circuit_changes,
    )


def _find_nics_without_fibres(lab: Lab) -> tuple[NicKey, ...]:
    return tuple(
        (host.name, nic.name)
        for host in lab.hosts
        for nic in host.nics
        if UNKNOWN_FIBRE in (nic.transmit, nic.receive)
    )


def _remove_leftovers(
    devices: Devices, unfinished_discoveries: tuple[UnfinishedDiscovery, ...]
) -> tuple[str, ...]:
    """Remove the circuits of unfinished discoveries, and return notes about them.

    Circuits that an unfinished discovery did not make are not touched.
    """
    notes = []
    for unfinished in unfinished_discoveries:
        circuits, is_from_discovery = unfinished.find_leftovers(devices.read_circuits())
        if circuits and is_from_discovery:
            devices.remove_circuits(circuits)
            notes.append(f"removed {format_count(len(circuits), 'circuit')} of an unfinished discovery")
        elif circuits:
            labels = ", ".join(
                f"{source[0]}:{source[1]} -> {target[1]}" for source, target in sorted(circuits)
            )
            notes.append(
                f"not touched, at ports of an unfinished discovery: {labels}; somebody has patched since. "
                "Remove unwanted circuits with `testbed switch`, then run `testbed discover` again"
            )
    return tuple(notes)


def _split_busy(devices: Devices, nics: tuple[NicKey, ...]) -> tuple[tuple[NicKey, ...], tuple[NicKey, ...]]:
    """Return the free NICs and the busy NICs, which already receive light."""
    report = devices.probe()
    busy_nics = {nic for nic, nic_report in report.nics.items() if nic_report.has_carrier}
    return (
        tuple(nic for nic in nics if nic not in busy_nics),
        tuple(nic for nic in nics if nic in busy_nics),
    )


def _search(
    devices: Devices,
    record: DiscoveryRecord,
    problem: Problem,
    history: History,
    add_note: AddNote,
    max_rounds: int,
) -> DiscoveryResult:
    rounds = plan_rounds(problem, max_rounds=max_rounds)
    # Recorded rounds are reused as long as the same observations lead to the same rounds.
    recorded_rounds = dict(enumerate(history))
    monitored_ports: tuple[Port, ...] = (*problem.inputs, *problem.outputs)
    round_count = 0
    try:
        round_ = next(rounds)
        while True:
            recorded_round = recorded_rounds.get(round_count)
            if recorded_round and recorded_round[0] == round_:
                observation = recorded_round[1]
            else:
                recorded_rounds = {}
                record.store_intent(round_.circuits)
                observation = devices.run_round(round_, monitored_ports)
            record.add_round(round_, observation)
            round_count += 1
            off_text = f", {format_count(len(round_.down_nics), 'NIC')} off" if round_.down_nics else ""
            circuits = format_count(len(round_.circuits), "circuit")
            add_note(f"round {round_count} ({round_.purpose}): {circuits}{off_text}")
            round_ = rounds.send(observation)
    except StopIteration as end:
        evidence: Evidence = end.value
    return DiscoveryResult(
        evidence.make_results(), round_count, unidentified_inputs=evidence.find_unidentified_inputs()
    )
