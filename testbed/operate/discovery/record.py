"""The record of a discovery in the journal's file: its circuits before they are made, and what every round showed.

After a crash the next discovery of the lab finds here which circuits are its own, removes them, and goes on after
the last round that was seen. One that ended with an error and put all back has the state `stopped`: its rounds are
taken over as well, but it left nothing behind. Rounds older than `ROUNDS_KEPT` are not taken over: somebody may have
moved fibres since.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from testbed.operate.discovery.model import History, NicName, Observation, Port, Problem, Round
from testbed.operate.owner import is_running, this_process

if TYPE_CHECKING:
    from testbed.operate.journal import Journal

_TABLE = (
    "create table if not exists discoveries (id text primary key, lab text not null, owner text not null, "
    "started text not null, state text not null, problem text not null, down text not null, "
    "circuits text not null, rounds text not null)"
)
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
        with journal.transaction() as connection:
            connection.exec_driver_sql(_TABLE)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return discoveries of this lab that were never concluded and whose process is gone, oldest first."""
        query = (
            "select id, owner, problem, down, circuits, rounds, state from discoveries "
            "where lab = ? and state in ('running', 'stopped') order by started"
        )
        with self._journal.transaction() as connection:
            rows = connection.exec_driver_sql(query, (self._lab,)).all()
        return tuple(_unfinished(row) for row in rows if row[6] == "stopped" or not is_running(row[1]))

    def begin(self, problem: Problem, down: Collection[NicName]) -> None:
        """Write down what is looked for, and which NICs were set down before."""
        looked_for, set_down = json.dumps(_problem_json(problem)), json.dumps(sorted(down))
        values = (self._id, self._lab, this_process(), _now(), looked_for, set_down)
        statement = "insert into discoveries values (?, ?, ?, ?, 'running', ?, ?, '[[], []]', '[]')"
        with self._journal.transaction() as connection:
            connection.exec_driver_sql(statement, values)

    def intend(self, circuits: Mapping[Port, Port]) -> None:
        """Write down the circuits that stand and those that are to stand; when this returns they are on disk."""
        states = [sorted(self._circuits), sorted(circuits.items())]
        self._circuits = frozenset(circuits.items())
        self._write("update discoveries set circuits = ? where id = ?", json.dumps(states))

    def saw(self, round_: Round, seen: Observation) -> None:
        """Write down what a round showed."""
        self._rounds.append(_round_json(round_, seen) | {"at": seen.at or _now()})
        self._write("update discoveries set rounds = ? where id = ?", json.dumps(self._rounds))

    def stop(self, others: tuple[Unfinished, ...]) -> None:
        """Write down that it ended with an error, and that all is as it was before it and those it took over."""
        stop = "update discoveries set state = 'stopped', circuits = '[[], []]' where id = ?"
        with self._journal.transaction() as connection:
            for one in (self._id, *(other.id for other in others)):
                connection.exec_driver_sql(stop, (one,))

    def finish(self, others: tuple[Unfinished, ...]) -> None:
        """Write down that no circuit of this discovery, or of those it took over, is left."""
        with self._journal.transaction() as connection:
            for one in (self._id, *(other.id for other in others)):
                connection.exec_driver_sql("update discoveries set state = 'done' where id = ?", (one,))

    def _write(self, statement: str, text: str) -> None:
        with self._journal.transaction() as connection:
            connection.exec_driver_sql(statement, (text, self._id))


def _unfinished(row: Any) -> Unfinished:
    before, after = (
        frozenset((_pair(source), _pair(target)) for source, target in state) for state in json.loads(row[4])
    )
    rounds = tuple(_round(one) for one in json.loads(row[5]))
    down = frozenset(_pair(nic) for nic in json.loads(row[3]))
    return Unfinished(row[0], json.loads(row[2]), down, (before, after), rounds, row[6] == "stopped")


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
