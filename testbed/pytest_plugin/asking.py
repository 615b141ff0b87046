"""Asking for hosts of a lab that stands, until they are granted, and keeping them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from testbed.errors import LeaseDenied
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import HostsInUse
from testbed.leases.listing import read_leases, read_maintenance
from testbed.leases.model import Lease, parts_of
from testbed.leases.store import LeaseStore
from testbed.operate.light import held_circuits
from testbed.operate.session import LabSession, open_lab
from testbed.pytest_plugin.heartbeat import TTL_S, kept_alive
from testbed.pytest_plugin.needs import Candidates, Needs, joined
from testbed.pytest_plugin.options import skip
from testbed.storage.looking import read_rows

POLL_S = 0.5


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

    def granted(self) -> tuple[Lease, tuple[str, ...]]:
        """Return a granted lease and its hosts in the lab's order; others as soon as these are free earlier.

        Skips the test where none can be granted. Raises `LeaseDenied` when the time is over.
        """
        deadline = time.monotonic() + self.wait_s
        request: Lease | None = None
        asked: tuple[str, ...] = ()
        while True:
            candidates = self._look()
            reason = self._out_of_order() or candidates.lacking(self.needs)
            wanted = candidates.choose(self.needs, self._held(request)) or asked
            wanted = wanted or candidates.choose(self.needs, ())
            if request is not None and (reason or wanted != asked):
                self.store.release(request.id)
                request = None
            if reason:
                skip(self.lab, reason)
            request = self.store.extend(request.id) if request else self._request(wanted)
            asked = wanted
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

    def _held(self, mine: Lease | None) -> frozenset[str]:
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
            (names[one.link.source.node], names[one.link.target.node]) for one in held_circuits(lab, seen)
        ]
        return Candidates(
            groups=joined(names, pairs),
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
def leased(asking: Asking) -> Iterator[tuple[Lease, tuple[str, ...]]]:
    """Provide a granted lease and its hosts; it is extended until this is left, and released then."""
    lease, hosts = asking.granted()
    try:
        with kept_alive(lambda: asking.store.extend(lease.id)):
            yield lease, hosts
    finally:
        with suppress(LeaseDenied):  # somebody has broken it meanwhile
            asking.store.release(lease.id)
