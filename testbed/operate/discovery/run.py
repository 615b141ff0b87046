"""A discovery from beginning to end: left-overs of an earlier one, free ports, rounds, and all put back.

Its record stands in the journal's file: circuits before they are made, and what every round showed. After a crash the
next discovery of the lab finds here which circuits are its own, removes them, and goes on after the last round that was
seen. One that ended with an error and put all back has the state `stopped`: its rounds are taken over as well, but it
left nothing behind. Rounds older than `ROUNDS_KEPT` are not taken over: somebody may have moved fibres since.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lightbed.wording import count_noun
from testbed.lab.model import UNKNOWN_FIBRE, Lab
from testbed.operate.discovery.devices import Devices
from testbed.operate.discovery.evidence import Evidence
from testbed.operate.discovery.model import Discovered, History, NicName, Observation, Port, Problem, Round
from testbed.operate.discovery.planner import most_rounds, plan_rounds
from testbed.storage.owner import is_running, this_process
from testbed.storage.schema import discoveries

if TYPE_CHECKING:
    from testbed.operate.journal import Journal


ROUNDS_KEPT = timedelta(hours=1)
Pair = tuple[Port, Port]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A discovery whose process is gone: its circuits before and after its last change, and the rounds that it saw.

    `down` are the NICs that were set down before it began; `is_put_back` is True if it left nothing behind.
    """

    id: str
    problem: dict[str, Any]
    down: frozenset[NicName]
    states: tuple[frozenset[Pair], frozenset[Pair]]
    rounds: History
    is_put_back: bool = False

    def left_behind(self, held: Mapping[Port, Port]) -> tuple[frozenset[Pair], bool]:
        """Return the circuits that stand now at its ports, and whether they are its own.

        They are its own if they are all as before its last change, or all as after it. Anything else is the work of
        somebody who patched since, even where a pair was once part of a round.
        """
        ports = {_pair(port) for side in ("inputs", "outputs") for port in self.problem[side]}
        there = frozenset(pair for pair in held.items() if not ports.isdisjoint(pair))
        return there, there in self.states

    def rounds_for(self, problem: Problem, now: datetime | None = None) -> History:
        """Return its rounds if it looked for the same NICs at the same ports, and its first round is young enough."""
        since = ((now or datetime.now(UTC)) - ROUNDS_KEPT).isoformat(timespec="microseconds")
        is_young = bool(self.rounds) and self.rounds[0][1].at >= since
        return self.rounds if is_young and self.problem == _problem_json(problem) else ()


class DiscoveryRecord:
    """One discovery while it runs."""

    def __init__(self, journal: Journal, lab: str) -> None:
        self._journal = journal
        self._lab = lab
        self._id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self._circuits: frozenset[Pair] = frozenset()
        self._rounds: list[Any] = []

    def find_unfinished(self) -> tuple[Unfinished, ...]:
        """Return discoveries of this lab that were never concluded and whose process is gone, oldest first."""
        query = discoveries.select().where(
            discoveries.c.lab == self._lab, discoveries.c.state.in_(("running", "stopped"))
        )
        with self._journal.transaction() as connection:
            rows = connection.execute(query.order_by(discoveries.c.started)).all()
        return tuple(
            _parse_unfinished(row) for row in rows if row.state == "stopped" or not is_running(row.owner)
        )

    def begin(self, problem: Problem, down: Collection[NicName]) -> None:
        """Write down what is looked for, and which NICs were set down before."""
        begun = {
            "id": self._id,
            "lab": self._lab,
            "owner": this_process(),
            "started": _now(),
            "state": "running",
            "problem": json.dumps(_problem_json(problem)),
            "down": json.dumps(sorted(down)),
            "circuits": "[[], []]",
            "rounds": "[]",
        }
        with self._journal.transaction() as connection:
            connection.execute(discoveries.insert().values(begun))

    def intend(self, circuits: Mapping[Port, Port]) -> None:
        """Write down the circuits that stand and those that are to stand; when this returns they are on disk."""
        states = [sorted(self._circuits), sorted(circuits.items())]
        self._circuits = frozenset(circuits.items())
        self._write((self._id,), circuits=json.dumps(states))

    def saw(self, round_: Round, seen: Observation) -> None:
        """Write down what a round showed."""
        self._rounds.append(_round_json(round_, seen) | {"at": seen.at or _now()})
        self._write((self._id,), rounds=json.dumps(self._rounds))

    def stop(self, others: tuple[Unfinished, ...]) -> None:
        """Write down that it ended with an error, and that all is as it was before it and those it took over."""
        self._write((self._id, *(other.id for other in others)), state="stopped", circuits="[[], []]")

    def finish(self, others: tuple[Unfinished, ...]) -> None:
        """Write down that no circuit of this discovery, or of those it took over, is left."""
        self._write((self._id, *(other.id for other in others)), state="done")

    def _write(self, ids: Collection[str], **values: str) -> None:
        with self._journal.transaction() as connection:
            connection.execute(discoveries.update().where(discoveries.c.id.in_(ids)).values(values))


def _parse_unfinished(row: Any) -> Unfinished:
    before, after = (
        frozenset((_pair(source), _pair(target)) for source, target in state)
        for state in json.loads(row.circuits)
    )
    rounds = tuple(_round(one) for one in json.loads(row.rounds))
    down = frozenset(_pair(nic) for nic in json.loads(row.down))
    return Unfinished(row.id, json.loads(row.problem), down, (before, after), rounds, row.state == "stopped")


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "nics": [list(nic) for nic in problem.nics],
        "inputs": [list(port) for port in problem.inputs],
        "outputs": [list(port) for port in problem.outputs],
    }


def _round_json(round_: Round, seen: Observation) -> dict[str, Any]:
    return {
        "purpose": round_.purpose,
        "circuits": [[list(source), list(target)] for source, target in round_.circuits.items()],
        "off": sorted(round_.off),
        "lit": [[list(port), is_lit] for port, is_lit in seen.lit.items()],
        "carriers": [[list(nic), carrier] for nic, carrier in seen.carriers.items()],
        "heard": [[list(nic), [list(one) for one in speakers]] for nic, speakers in seen.heard.items()],
        "spoke": sorted(seen.spoke),
    }


def _pair(words: Any) -> Any:
    return (words[0], words[1])


def _round(kept: Mapping[str, Any]) -> tuple[Round, Observation]:
    heard: dict[NicName, tuple[NicName, ...]] = {
        _pair(nic): tuple(_pair(one) for one in speakers) for nic, speakers in kept["heard"]
    }
    round_ = Round(
        kept["purpose"],
        {_pair(source): _pair(target) for source, target in kept["circuits"]},
        frozenset(_pair(nic) for nic in kept["off"]),
    )
    seen = Observation(
        {_pair(port): is_lit for port, is_lit in kept["lit"]},
        {_pair(nic): carrier for nic, carrier in kept["carriers"]},
        heard,
        frozenset(_pair(nic) for nic in kept["spoke"]),
        kept.get("at", ""),
    )
    return round_, seen


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


Note = Callable[[str], None]


def discover(
    devices: Devices, record: DiscoveryRecord, note: Note = lambda _text: None, *, limit: int | None = None
) -> Discovered:
    """Find the fibres of every NIC of the lab file whose row lacks one.

    Raises `DriftError` or `PortBusy` when somebody else patches meanwhile, `ApplyFailed`, `HostError` and the drivers'
    errors; circuits are removed and interfaces put back in any case, as far as devices answer.
    """
    others = record.find_unfinished()
    killed = tuple(one for one in others if not one.is_put_back)
    notes = _remove_leftovers(devices, killed)
    found_down = devices.interfaces_down()
    down = found_down.intersection(*(one.down for one in killed))  # the rest was set down by those
    try:
        devices.set_interfaces(found_down, up=True)
        held = devices.read_held()
        sought, busy = _find_sought(devices, wanted=_without_fibres(devices.lab))
        inputs, outputs = devices.free_ports(held)
        problem = Problem(sought, inputs, outputs)
        kept = others[-1].rounds_for(problem) if others else ()
        record.begin(problem, down)
        found = _search(devices, record, problem, kept, note, limit or most_rounds(problem))
    except BaseException:
        devices.put_back(down)
        record.stop(killed)
        raise
    devices.put_back(down)
    record.finish(others)
    return replace(
        found,
        busy_circuits=tuple(f"{source[0]}:{source[1]} -> {target[1]}" for source, target in held.items()),
        busy_nics=busy,
        notes=notes,
        resumed=bool(kept),
        circuit_changes=devices.circuit_changes,
    )


def _without_fibres(lab: Lab) -> tuple[NicName, ...]:
    return tuple(
        (host.name, nic.name)
        for host in lab.hosts
        for nic in host.nics
        if UNKNOWN_FIBRE in (nic.transmit, nic.receive)
    )


def _remove_leftovers(devices: Devices, others: tuple[Unfinished, ...]) -> tuple[str, ...]:
    """Remove what discoveries that did not end have left, and return what is to be said of it.

    Circuits that are not exactly as such a discovery had them are somebody else's, and stay.
    """
    notes = []
    for one in others:
        there, is_its_own = one.left_behind(devices.read_held())
        if there and is_its_own:
            devices.remove(there)
            notes.append(f"removed {count_noun(len(there), 'circuit')} of a discovery that did not end")
        elif there:
            named = ", ".join(f"{source[0]}:{source[1]} -> {target[1]}" for source, target in sorted(there))
            notes.append(
                f"left alone, at ports of a discovery that did not end: {named}; somebody has patched since. "
                "Remove with `testbed switch` what nobody wants, then discover again"
            )
    return tuple(notes)


def _find_sought(
    devices: Devices, wanted: tuple[NicName, ...]
) -> tuple[tuple[NicName, ...], tuple[NicName, ...]]:
    """Return NICs to look for, and those that receive light already, which somebody uses."""
    report = devices.probe()
    busy = {nic for nic, found in report.nics.items() if found.carrier}
    return (
        tuple(nic for nic in wanted if nic not in busy),
        tuple(nic for nic in wanted if nic in busy),
    )


def _search(
    devices: Devices,
    record: DiscoveryRecord,
    problem: Problem,
    kept: History,
    note: Note,
    limit: int,
) -> Discovered:
    rounds = plan_rounds(problem, limit=limit)
    earlier = dict(enumerate(kept))  # taken over as long as the same observations give the same rounds
    monitored: tuple[Port, ...] = (*problem.inputs, *problem.outputs)
    count = 0
    try:
        round_ = next(rounds)
        while True:
            again = earlier.get(count)
            if again and again[0] == round_:
                seen = again[1]
            else:
                earlier = {}
                record.intend(round_.circuits)
                seen = devices.show(round_, monitored)
            record.saw(round_, seen)
            count += 1
            off = f", {count_noun(len(round_.off), 'NIC')} off" if round_.off else ""
            made = count_noun(len(round_.circuits), "circuit")
            note(f"round {count} ({round_.purpose}): {made}{off}")
            round_ = rounds.send(seen)
    except StopIteration as end:
        evidence: Evidence = end.value
    return Discovered(evidence.results(), count, nameless=evidence.nameless())
