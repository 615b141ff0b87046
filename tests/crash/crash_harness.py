"""One operation killed at a point, then resumed: what it may leave, and what must be so afterwards."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from testbed.lab.control import send_request
from testbed.lab.inventory import render_lab
from testbed.lab.simulated.lifecycle import SimulatedLab

ROOT = Path(__file__).resolve().parents[2]
Circuits = frozenset[tuple[int, int]]
KILLED = -9
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Directory in memory, None where there is none: a kill takes the process and leaves the page cache."""


class Server:
    """The warmed process under the recorder; a context manager."""

    def __init__(self, recorder: Path, locks: Path) -> None:
        environment = {
            **os.environ,
            "LD_PRELOAD": str(recorder),
            "LIGHTBED_LOCK_DIR": str(locks),
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crash_server.py")), str(recorder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._line() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()

    def run(self, **request: Any) -> dict[str, Any]:
        """Return how a forked child ended that did this."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())


@dataclass
class Scene:
    """A lab that is up, with one epoch in force, and the operation that is killed in it.

    `kept` is the directory of runs as it was before the operation, `start` what the twins held then. `labels` are its
    kill points, `effects` how often each switch changed its configuration. `resume` is what goes on after a kill;
    `ends` counts the states after it.
    """

    up: SimulatedLab
    server: Server
    lab_file: Path
    runs: Path
    kept: Path
    operation: dict[str, Any]
    start: dict[str, Circuits] = field(default_factory=dict)
    goal: dict[str, Circuits] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    effects: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    resume: dict[str, Any] = field(default_factory=lambda: {"do": "resume"})

    @classmethod
    def of(
        cls,
        up: SimulatedLab,
        server: Server,
        directory: Path,
        before: Sequence[dict[str, Any]],
        **operation: Any,
    ) -> Scene:
        """Return the scene of an operation: `before` are done first, then the operation once without a kill."""
        lab_file = directory / "lab.yaml"
        lab_file.write_text(render_lab(up.lab))
        scene = cls(up, server, lab_file, directory / "runs", directory / "kept", operation)
        for request in before:
            ended = scene.run(**request)
            assert ended["code"] == (KILLED if "kill" in request else 0), ended
        shutil.copytree(scene.runs, scene.kept)
        scene.start, changes = scene.truth(), scene.changes()
        ended = scene.run(**operation)
        assert ended["code"] == 0, ended
        scene.goal, scene.labels = scene.truth(), tuple(dict.fromkeys(ended["labels"]))
        scene.effects = Counter(scene.changes())
        scene.effects.subtract(changes)
        return scene

    def run(self, **request: Any) -> dict[str, Any]:
        """Let a child of the server do this in the lab."""
        return self.server.run(lab=str(self.lab_file), runs=str(self.runs), **request)

    def ask(self, switch: str, **request: Any) -> dict[str, Any]:
        """Ask the control socket of a twin."""
        return send_request(self.up.control_addresses[switch], request)

    def truth(self) -> dict[str, Circuits]:
        """Return what every twin holds."""
        return {
            one.name: frozenset((a, b) for a, b in self.ask(one.name, do="truth")["connections"])
            for one in self.up.lab.switches
        }

    def changes(self) -> Counter[str]:
        """Return how often the configuration of every twin has changed."""
        return Counter(
            {one.name: int(self.ask(one.name, do="truth")["changes"]) for one in self.up.lab.switches}
        )

    def reset(self) -> None:
        """Put twins and journal back to where the operation begins."""
        for switch, circuits in self.start.items():
            held = self.truth()[switch]
            self.ask(
                switch,
                do="operator",
                disconnect=sorted(one for one, _ in held - circuits),
                connect=sorted(map(list, circuits - held)),
            )
        assert self.truth() == self.start
        shutil.rmtree(self.runs)
        shutil.copytree(self.kept, self.runs)

    def survive(self, label: str) -> bool:
        """Kill the operation at a point and resume it; return False if the point was not reached this time.

        Checks that after the resume every switch is where the operation leads, or where it began if nothing was sent;
        or that it stopped as unknown, with a reason, and moved nothing. Nothing may be done twice with effect, and the
        journal alone must tell the same state.
        """
        self.reset()
        before = self.changes()
        killed = self.run(kill=label, **self.operation)
        if killed["code"] != KILLED:
            assert killed["code"] == 0, killed
            return False
        cut = self.truth()
        assert self.is_on_the_way(cut), f"{label}: the switches hold what no step leads to"
        resumed = self.run(**self.resume)
        told = f"{label}: { ({key: resumed[key] for key in resumed if key != 'labels'}) }"
        assert resumed["code"] == 0, told
        assert len(resumed.get("held", [2])) == 1, told
        self.ends[resumed["state"]] += 1
        held, spent = self.truth(), self.changes() - before
        assert self.replayed() == held, f"the journal tells another state: {told}"
        assert all(spent[name] <= self.effects[name] for name in spent), f"{spent} changes: {told}"
        if resumed["state"] == "unknown":
            assert held == cut, f"stopped, and moved: {told}"
            assert resumed["reason"], told
            return True
        assert resumed["still"] == [], told
        assert held == self.goal or held == cut == self.start, f"neither goal nor beginning: {told}"
        assert spent == (self.effects if held == self.goal else Counter()), f"{spent} changes: {told}"
        return True

    def is_on_the_way(self, held: dict[str, Circuits]) -> bool:
        """Return whether every circuit stood before or is asked for, and none that is kept has gone."""
        return all(
            self.start[name] & self.goal[name] <= circuits <= self.start[name] | self.goal[name]
            for name, circuits in held.items()
        )

    def replayed(self) -> dict[str, Circuits]:
        """Return what every switch holds by the journal alone: the last that was read after a step."""
        held = dict(self.start)
        query = "select switch, read_back from steps where read_back is not null order by outcome_at"
        with sqlite3.connect(self.runs / "lightbed.sqlite") as connection:
            rows = connection.execute(query).fetchall()
        connection.close()
        for switch, read_back in rows:
            held[switch] = frozenset((int(a), b) for a, b in json.loads(read_back).items())
        return held
