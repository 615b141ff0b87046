"""Part of a lab that stands, for one test: asked for until it is granted, leased, and put back as it was.

What is put back are circuits as they were read, then the epochs in force.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ocs_drivers.errors import OcsError
from ocs_drivers.model import CrossConnects
from testbed.design.model import Wiring
from testbed.errors import LeaseDenied, TestbedError, VerifyFailed
from testbed.lab.inventory import render_lab
from testbed.lab.model import Lab, shard_of
from testbed.lab.simulated.lifecycle import HostsInUse, hosts_of
from testbed.leases.fence import database_errors
from testbed.leases.listing import read_leases, read_maintenance
from testbed.leases.model import Lease, parts_of
from testbed.leases.store import LeaseStore
from testbed.operate.apply import check_permission
from testbed.operate.design import design_of_intent
from testbed.operate.engine.planned import goal_text
from testbed.operate.intent import Intent, load_intents, select_in_force
from testbed.operate.light import find_held_circuits
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.plan import scope_of
from testbed.operate.session import Change, LabSession, open_lab
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import Candidates, Needs, join_hosts
from testbed.pytest_plugin.options import LabOptions, skip
from testbed.scripting.heartbeat import TTL_S, keep_alive
from testbed.storage.address import address_in
from testbed.storage.database import Database
from testbed.storage.looking import read_rows

POLL_S = 0.5
_STOOD = frozenset({"applied", "verified"})


@contextmanager
def standing_lab(
    lab: Lab, needs: Needs, options: LabOptions, scratch: Path, test: str
) -> Iterator[LabOfTest]:
    """Lease what the test needs, and put it back as it was. Raises `RefusedToMove` and `LeaseDenied`.

    A lab that cannot be put back is marked broken: the error is told once, and later tests are skipped.
    """
    check_permission(lab, options.really_move)
    if needs.board and not options.board:
        skip(lab, "the test needs a board, and --lab-board NAME=ADDRESS names none")
    name, _, address = (options.board or "").partition("=")
    boards = (f"board:{name}",) if needs.board else ()
    hosts: HostsInUse = "model" if options.hosts == "model" else hosts_of(lab)
    database = Database(address_in(options.runs_dir))
    store = LeaseStore(database, lab.name)
    file = scratch / "lab.yaml"
    file.write_text(render_lab(lab), encoding="utf-8")
    try:
        asking = Asking(lab, needs, hosts, store, options.wait_s, test, boards)
        with database_errors(database), hold_lease(asking) as (lease, names):
            given = LabOfTest(
                lab=shard_of(lab, names) if len(names) < len(lab.hosts) else lab,
                file=file,
                runs_dir=options.runs_dir,
                hosts=hosts,
                lease=lease.id,
                degree=needs.degree,
                board=address if needs.board else "",
            )
            before = Before.of(given, lab)
            try:
                yield given
            finally:
                _put_back(before, given, lab, store, test)
    finally:
        database.close()


def _put_back(before: Before, given: LabOfTest, lab: Lab, store: LeaseStore, test: str) -> None:
    try:
        before.put_back(given, lab, test)
    except (TestbedError, OcsError) as error:
        fault = f"not put back after {test}: {error}"
        store.write_checks({f"host:{host.name}": fault for host in given.lab.hosts})
        raise


@dataclass(frozen=True, slots=True)
class Asking:
    """A test that asks for hosts of a lab, and for boards besides."""

    lab: Lab
    needs: Needs
    hosts: HostsInUse
    store: LeaseStore
    wait_s: float
    test: str
    boards: tuple[str, ...] = ()

    def acquire(self) -> tuple[Lease, tuple[str, ...]]:
        """Return a granted lease and its hosts in the lab's order; others as soon as these are free earlier.

        Skips the test where none can be granted. Raises `LeaseDenied` when the time is over.
        """
        deadline = time.monotonic() + self.wait_s
        request: Lease | None = None
        asked: tuple[str, ...] = ()
        while True:
            candidates = self._look()
            reason = self._out_of_order() or candidates.explain_lack(self.needs)
            wanted = candidates.choose(self.needs, self._find_held(request)) or asked
            wanted = wanted or candidates.choose(self.needs, ())
            # A request keeps its place in the queue for as long as it is for the same hosts.
            if request is not None and (reason or wanted != asked):
                self.store.release(request.id)
                request = None
            if reason:
                skip(self.lab, reason)
            request = self.store.extend(request.id) if request else self._request(wanted)
            asked = wanted
            # A host may have failed while the request waited.
            if request.is_held and self._look().is_whole(asked):
                return request, tuple(host.name for host in self.lab.hosts if host.name in asked)
            if time.monotonic() > deadline:
                self.store.release(request.id)
                what = f"hosts {', '.join(asked)} of lab '{self.lab.name}' were not granted"
                raise LeaseDenied(f"{what} within {self.wait_s:g} s; see `testbed lease list`")
            time.sleep(POLL_S)

    def _request(self, hosts: tuple[str, ...]) -> Lease:
        resources = (*(f"host:{name}" for name in hosts), *self.boards)
        parts = parts_of(self.lab, resources)
        return self.store.request(resources, parts, ttl_s=TTL_S, reason=f"pytest: {self.test}")

    def _out_of_order(self) -> str:
        stopped = read_maintenance(self.store.database.address, self.lab.name)
        return f"it is under maintenance by {stopped['owner']}: {stopped['reason']}" if stopped else ""

    def _find_held(self, mine: Lease | None) -> frozenset[str]:
        """Return hosts of which others hold a part, or wait for one."""
        theirs = [
            one
            for one in read_leases(self.store.database.address, self.lab.name)
            if mine is None or one.id != mine.id
        ]
        parts = frozenset[str]().union(*(one.parts for one in theirs))
        return frozenset(
            host.name
            for host in self.lab.hosts
            if not parts.isdisjoint(parts_of(self.lab, [f"host:{host.name}"]))
        )

    def _look(self) -> Candidates:
        """Read the switches, the last checks and, where they matter, the GPUs. Raises what drivers raise."""
        lab = self.lab
        asks_hosts = bool(self.needs.gpus) and self.hosts != "model"
        with open_lab(lab, None, model_hosts=not asks_hosts, partial=asks_hosts) as session:
            seen = {name: switch.read() for name, switch in session.switches.items()}
            gpus = _gpus(session) if session.fleet else {}
        names = [host.name for host in lab.hosts]
        pairs = [
            (names[one.link.source.node], names[one.link.target.node])
            for one in find_held_circuits(lab, seen)
        ]
        return Candidates(
            groups=join_hosts(names, pairs),
            nics={host.name: len(host.nics) for host in lab.hosts},
            faults=self._faults(),
            gpus=gpus,
        )

    def _faults(self) -> dict[str, str]:
        """Return the fault of each host of which a part failed its last check."""
        query = "select part, fault from part_checks where lab = ? and fault != '' order by part"
        rows = read_rows(self.store.database.address, query, (self.lab.name,))
        faults = {row["part"]: row["fault"] for row in rows}
        found = {}
        for host in self.lab.hosts:
            parts = parts_of(self.lab, [f"host:{host.name}"]) & faults.keys()
            if parts:
                found[host.name] = faults[min(parts)]
        return found


def _gpus(session: LabSession) -> dict[str, int]:
    """Return how many GPUs each host that answers has, by its own word; none where it has no driver for them."""
    assert session.fleet is not None
    hosts = [host.name for host in session.lab.hosts if host.name not in session.off]
    done = session.fleet.run(dict.fromkeys(hosts, "nvidia-smi --list-gpus 2>/dev/null; true"))
    return {
        host: sum(line.startswith("GPU ") for line in one.stdout.splitlines()) for host, one in done.items()
    }


@contextmanager
def hold_lease(asking: Asking) -> Iterator[tuple[Lease, tuple[str, ...]]]:
    """Provide a granted lease and its hosts; it is extended until this is left, and released then."""
    lease, hosts = asking.acquire()
    try:
        with keep_alive(lambda: asking.store.extend(lease.id)):
            yield lease, hosts
    finally:
        with suppress(LeaseDenied):  # somebody has broken it meanwhile
            asking.store.release(lease.id)


@dataclass(frozen=True, slots=True)
class Before:
    """Circuits of the hosts of a test by switch, and the epochs in force on these hosts alone, the newest first."""

    circuits: Mapping[str, CrossConnects]
    epochs: tuple[Intent, ...]

    @classmethod
    def of(cls, given: LabOfTest, lab: Lab) -> Before:
        """Return what the hosts of a test are joined by. Raises what drivers raise."""
        with given.session() as session:
            seen = {name: switch.read().connections for name, switch in session.switches.items()}
        names = {host.name for host in given.lab.hosts}
        intents = select_in_force(load_intents(given.runs_dir, lab.name))
        epochs = (one for one in intents if names.issuperset(one.hosts) and one.state in _STOOD)
        return cls({name: _in_scope(given.lab, name, held) for name, held in seen.items()}, tuple(epochs))

    def put_back(self, given: LabOfTest, lab: Lab, test: str) -> None:
        """Make the circuits that were, and bring the epochs that were in force into force again, with their routes.

        Raises `VerifyFailed` where an epoch that was verified is not proven again, and what applying raises.
        """
        with given.session() as session:
            parts = (_plan_back(given.lab, session, name, held) for name, held in self.circuits.items())
            # A plan of circuits that switches held, not of links.
            no_links = Wiring(len(given.lab.hosts), 1, simplex=False, links=())
            plan = LabPlan(no_links, (), tuple(parts))
            if plan.has_changes:
                addresses = {name: switch.address for name, switch in session.switches.items()}
                goal = goal_text({part.switch: (addresses[part.switch], part) for part in plan.switches})
                with session.operation("trial", f"put back after {test}", goal=goal):
                    session.apply(plan)
        now = {one.epoch for one in select_in_force(load_intents(given.runs_dir, lab.name))}
        for intent in reversed(self.epochs):
            if intent.epoch not in now:
                self._bring_back(intent, given, lab, test)

    @staticmethod
    def _bring_back(intent: Intent, given: LabOfTest, lab: Lab, test: str) -> None:
        here, design = design_of_intent(lab, intent)
        change = Change("rollback", f"back to epoch {intent.epoch} after {test}")
        with replace(given, lab=here).session() as session:
            brought = session.carry_out(design, session.plan(design), stated=intent.stated, change=change)
        if intent.state == "verified" and not brought.verified.ok:
            found = "; ".join(finding.detail for finding in brought.verified.findings)
            raise VerifyFailed(
                f"epoch {intent.epoch} of lab '{lab.name}' is restored, but not verified: {found}"
            )


def _in_scope(lab: Lab, switch: str, held: CrossConnects) -> CrossConnects:
    scope = scope_of(lab, lab.switch(switch))
    return held if scope is None else CrossConnects({i: o for i, o in held.pairs if i in scope})


def _plan_back(lab: Lab, session: LabSession, name: str, target: CrossConnects) -> SwitchPlan:
    """Return the steps that take a switch back to what it held."""
    switch, scope = session.switches[name], scope_of(lab, lab.switch(name))
    seen = switch.read()
    return SwitchPlan(name, target, scope, seen, switch.plan(target, seen, scope))
